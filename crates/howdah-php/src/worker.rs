//! A worker child: boots a script once, then passes it one request after another as the script asks for them
//! ([`next_request`], called from `shim/worker/worker.c`). The shim resets PHP between two requests, and the front
//! decides whether a child is forked or retired.

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use howdah_proto::request::{FrameBuilder, RequestFrame};
use howdah_proto::shm::{ChildId, ChildPort, EXIT_BROKEN, Region};
use howdah_proto::variables::Var;
use howdah_proto::worker::WorkerMessage;

use crate::child::{request_replacement, wait_for_claim};
use crate::ffi::{self, WorkerEnd};
use crate::{current_request, sys};

/// Exit status of a worker that exited before it asked for a request.
pub const EXIT_NOT_BOOTED: i32 = 71;

struct WorkerChild {
    region: &'static Region,
    me: ChildId,
    /// The child's row in the pool; `None` until the script has booted.
    port: Option<ChildPort>,
    /// The worker runs a request, or code that its script executes after one.
    in_request: bool,
    served: u64,
    /// A replacement has been requested.
    replacement_requested: bool,
    next_front: u32,
    max_requests: u64,
    /// The descriptor for messages to the zygote.
    messages: OwnedFd,
}

thread_local! {
    /// The worker of this process. A child has one thread.
    static WORKER: RefCell<Option<WorkerChild>> = const { RefCell::new(None) };
}

/// Runs the worker script as child `me` to its end.
pub fn serve(
    region: &'static Region,
    me: ChildId,
    max_requests: u64,
    script: &Path,
    words: OwnedFd,
) -> ! {
    ffi::php_enter_child();
    let worker = WorkerChild {
        region,
        me,
        port: None,
        in_request: false,
        served: 0,
        replacement_requested: false,
        next_front: u32::from(me.index),
        max_requests,
        messages: words,
    };
    WORKER.with_borrow_mut(|w| *w = Some(worker));
    // Leaked, because PHP refers to it until this process exits.
    let boot: &'static RequestFrame = Box::leak(Box::new(boot_frame(script)));
    let end = ffi::php_run_worker(boot);
    if let WorkerEnd::Finished | WorkerEnd::Broken = end {
        // A request that ended the script is counted too.
        WORKER.with_borrow_mut(|w| w.iter_mut().for_each(WorkerChild::end_job));
    }
    match end {
        WorkerEnd::Finished => sys::exit_now(0),
        WorkerEnd::Broken => sys::exit_now(EXIT_BROKEN),
        WorkerEnd::ScriptFork(status) => sys::exit_now(status),
        WorkerEnd::Failed(name, message) => {
            let message = format!("{}: {message}", script.display());
            let word = WorkerMessage::Failed {
                child: me,
                name: name.to_owned(),
                message,
            };
            WORKER.with_borrow(|worker| {
                if let Some(worker) = worker {
                    // If this fails, the zygote is gone and no process could read the message.
                    let _ = sys::send(worker.messages.as_fd(), word.encode().as_bytes(), None);
                }
            });
            sys::exit_now(EXIT_NOT_BOOTED)
        }
    }
}

/// Builds the contents of `$_SERVER` while the script boots: a made-up request for the script itself, as FrankenPHP
/// does it. It contains only variables that every request sets, because runtimes merge these into each request's own.
fn boot_frame(script: &Path) -> RequestFrame {
    let bytes = |path: &Path| path.as_os_str().as_encoded_bytes().to_vec();
    let root = script.parent().map(bytes).unwrap_or_default();
    let name = script
        .file_name()
        .map(|n| [b"/", n.as_encoded_bytes()].concat());
    let name = name.unwrap_or_default();
    let build = |file: &[u8]| {
        let mut frame = FrameBuilder::new(Vec::new());
        frame.var(Var::RequestMethod, b"GET");
        frame.var(Var::ScriptFilename, file);
        frame.var(Var::ScriptName, &name);
        frame.var(Var::PhpSelf, &name);
        frame.var(Var::RequestUri, &name);
        frame.var(Var::DocumentUri, &name);
        frame.var(Var::DocumentRoot, &root);
        frame.var(Var::QueryString, b"");
        frame.var(Var::GatewayInterface, b"CGI/1.1");
        frame.var(Var::ServerProtocol, b"HTTP/1.1");
        frame.var(Var::ServerSoftware, b"Howdah");
        frame.var(Var::ServerName, b"localhost");
        frame.var(Var::RemoteAddr, b"127.0.0.1");
        frame.named(b"FRANKENPHP_WORKER", b"1");
        frame.named(b"HOWDAH_WORKER", b"1");
        frame.finish(Some(0), u32::MAX)
    };
    // A file system path is shorter than a frame and contains no NUL.
    build(&bytes(script)).unwrap_or_else(|e| panic!("{}: {e:?}", script.display()))
}

/// Waits for the next request, makes it the current one and returns its frame, or NULL when there will be none. The
/// first call reports that the script has booted.
pub fn next_request() -> *const u8 {
    WORKER.with_borrow_mut(|worker| match worker {
        Some(worker) => worker.next_request(),
        None => std::ptr::null(),
    })
}

/// Asks the front to replace all workers because code has changed.
pub fn request_restart() {
    WORKER.with_borrow(|worker| {
        if let Some(worker) = worker {
            let word = WorkerMessage::Restart { child: worker.me };
            let _ = sys::send(worker.messages.as_fd(), word.encode().as_bytes(), None);
        }
    });
}

impl WorkerChild {
    fn end_job(&mut self) {
        if let Some(port) = self.port
            && std::mem::take(&mut self.in_request)
        {
            port.end_job();
            self.served += 1;
        }
    }

    fn next_request(&mut self) -> *const u8 {
        let port = match self.port {
            Some(port) => port,
            None => {
                let word = WorkerMessage::Booted { child: self.me };
                let _ = sys::send(self.messages.as_fd(), word.encode().as_bytes(), None);
                *self.port.insert(ChildPort::enter(self.region, self.me))
            }
        };
        self.end_job();
        if self.max_requests != 0 && self.served >= self.max_requests {
            port.leave();
            return std::ptr::null();
        }
        let claim = wait_for_claim(&port, &mut self.next_front, || ());
        // A job begins even if there is no request, because the time limit of a request also applies to the code that
        // the script runs after its last request.
        let now = sys::monotonic_ns();
        port.begin_job(now);
        let Some(claim) = claim else {
            return std::ptr::null();
        };
        self.in_request = true;
        // The replacement is requested a tenth of `max_requests` early, since it has to boot a script.
        let announced = self.max_requests - self.max_requests / 10;
        if self.max_requests != 0 && !self.replacement_requested && self.served + 1 >= announced {
            self.replacement_requested = true;
            request_replacement(&port);
        }
        claim.record_begin(now);
        let frame = claim.frame();
        current_request::begin(claim);
        frame
    }
}
