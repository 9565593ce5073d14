//! The zygote of a pool: PHP's module startup once, then fork, reap, signal and trace children as
//! the front asks. Runs no request. Single-threaded, because it forks.
//!
//! ```text
//! start → become the pool's user → PHP module startup → Ready ─┬─ Spawn → fork → Spawned
//!                                                     │        ├─ Signal, Trace → Trace
//!                                                   Failed     ├─ SIGCHLD → Exited
//!                                                              └─ end of file → retire all → leave
//! ```

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use howdah_proto::control::{Command, Exit, MAX_MESSAGE, Report};
use howdah_proto::shm::{ChildId, PoolPort, Region, VERSION};
use howdah_proto::worker::Word;

use crate::arguments::{Options, PhpIni};
use crate::ffi::{self, StartError};
use crate::identity::{self, IdentityError};
use crate::sys::{self, Ended, Forked, MapError};
use crate::{child, exchange, worker};

struct Zygote {
    pool: String,
    region: Region,
    control: i32,
    child_signals: i32,
    bells: Vec<i32>,
    worker: Option<Worker>,
    pid: i32,
    children: Vec<Child>,
    /// On which a child hands over a descriptor of its memory.
    memories: Pair,
    farewell: Duration,
}

struct Child {
    pid: i32,
    id: ChildId,
    /// Reads its memory, for its PHP stack; none yet, or none to be had.
    memory: Option<i32>,
}

/// A pair of packet sockets, of which the zygote keeps one and its children have the other.
#[derive(Clone, Copy)]
struct Pair {
    ours: i32,
    theirs: i32,
}

impl Pair {
    fn new() -> Result<Pair, Failure> {
        let (ours, theirs) = sys::packet_pair().map_err(|e| ("NoSocket", e.to_string()))?;
        Ok(Pair { ours, theirs })
    }
}

/// What the zygote of a worker pool needs in addition.
struct Worker {
    script: PathBuf,
    /// On which workers say that they have booted, or why not.
    words: Pair,
}

/// A start that failed: its name and a sentence.
type Failure = (&'static str, String);

/// The control socket, over which a failed start is reported; -1: there is none.
static CONTROL: AtomicI32 = AtomicI32::new(-1);

/// Runs the zygote until the front closes the control socket.
pub fn run(mut options: Options) -> ExitCode {
    let control = options.control_fd;
    CONTROL.store(control, Ordering::Relaxed);
    match start(&mut options) {
        Ok(zygote) => zygote.serve(),
        Err((name, message)) => {
            fail(name, message);
            ExitCode::FAILURE
        }
    }
}

/// Starts PHP as a zygote would, and says whether that went well: for `howdah check`.
pub fn try_start(mut options: Options, seconds: u32) -> ExitCode {
    // An extension that hangs must not hang who asks.
    sys::die_after(seconds);
    match start_php(&mut options) {
        Ok(()) => ExitCode::SUCCESS,
        Err((name, message)) => {
            fail(name, message);
            ExitCode::FAILURE
        }
    }
}

/// Tells the log, and the front where there is one.
fn fail(name: &str, message: String) {
    eprintln!("howdah-php: {name}: {message}");
    let control = CONTROL.load(Ordering::Relaxed);
    if control >= 0 {
        let report = Report::Failed {
            name: name.to_owned(),
            message,
        };
        // The front may be gone; the line above is then all there is to say.
        let _ = sys::send(control, report.encode().as_bytes(), None);
    }
}

/// The shim has found that PHP's start would end the process: ends it first, with a reason.
pub fn cannot_start(name: &str, message: String) -> ! {
    fail(name, message);
    sys::leave(1)
}

fn start(options: &mut Options) -> Result<Zygote, Failure> {
    sys::settle_zygote();
    let io = |what: &str, e: std::io::Error| ("BadDescriptor", format!("{what}: {e}"));
    sys::set_cloexec(options.control_fd).map_err(|e| io("--control-fd", e))?;
    for fd in &options.bell_fds {
        sys::set_cloexec(*fd).map_err(|e| io("--bell-fds", e))?;
    }
    let region = sys::map_region(options.memory_fd).map_err(|e| match e {
        MapError::System(e) => ("BadMemory", format!("cannot map --memory-fd: {e}")),
        MapError::Refused(e) => (
            "BadMemory",
            format!("--memory-fd is no pool of version {VERSION}: {e:?}"),
        ),
    })?;
    if region.geometry().fronts as usize > options.bell_fds.len() {
        return Err((
            "BadDescriptor",
            format!(
                "{} front threads but {} bells",
                region.geometry().fronts,
                options.bell_fds.len()
            ),
        ));
    }
    sys::tidy_stdio();
    ffi::title_prepare();
    ffi::title_set(&format!("howdah-php: zygote {}", options.pool));
    start_php(options)?;
    sys::set_orphan_patience(options.farewell);
    let child_signals = sys::child_signals().map_err(|e| ("Signals", e.to_string()))?;
    let worker = match options.worker.take() {
        None => None,
        Some(script) => Some(Worker {
            script,
            words: Pair::new()?,
        }),
    };
    Ok(Zygote {
        worker,
        pool: std::mem::take(&mut options.pool),
        region,
        control: options.control_fd,
        child_signals,
        bells: std::mem::take(&mut options.bell_fds),
        pid: sys::own_pid(),
        children: Vec::new(),
        memories: Pair::new()?,
        farewell: options.farewell,
    })
}

/// Becomes the pool's user and starts PHP with its settings.
fn start_php(options: &mut Options) -> Result<(), Failure> {
    identity::assume(options.user.as_deref(), options.group.as_deref()).map_err(|e| match e {
        IdentityError::NoSuchUser(u) => ("NoSuchUser", format!("the system knows no user {u:?}")),
        IdentityError::NoSuchGroup(g) => {
            ("NoSuchGroup", format!("the system knows no group {g:?}"))
        }
        IdentityError::CannotChangeUser(why) => ("CannotChangeUser", why),
    })?;
    let ini = std::mem::take(&mut options.php_ini);
    if let PhpIni::File(path) = &ini {
        sys::readable(path).map_err(|e| {
            (
                "PhpIniUnreadable",
                format!("cannot read {}: {e}", path.to_string_lossy()),
            )
        })?;
    }
    // Before PHP: its startup saves the dispositions and mask it finds.
    let entries = std::mem::take(&mut options.ini_entries);
    let names = setting_names(&entries);
    ffi::php_startup(ini, entries, options.worker.is_some()).map_err(|e| match e {
        StartError::OtherPhp(why) => ("OtherPhp", why),
        StartError::ModuleStartup => (
            "PhpStartup",
            "PHP's module startup failed; the lines before this one say why (php.ini, an \
             extension, opcache.preload)"
                .to_owned(),
        ),
    })?;
    for name in names.iter().filter(|name| !ffi::php_has_setting(name)) {
        eprintln!(
            "howdah-php: SettingUnknown: PHP has no setting `{name}`: is it mistyped, or its extension not loaded?"
        );
    }
    Ok(())
}

/// The settings that lines of a php.ini name; elements of arrays, which are for get_cfg_var(), left out.
fn setting_names(lines: &std::ffi::CStr) -> Vec<String> {
    let text = lines.to_string_lossy();
    let names = text
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0));
    names
        .filter(|n| !n.contains('['))
        .map(str::to_owned)
        .collect()
}

impl Zygote {
    fn serve(mut self) -> ExitCode {
        self.report(
            &Report::Ready {
                version: VERSION,
                php: ffi::php_version(),
                opcache: ffi::php_has_opcache(),
            },
            None,
        );
        let mut buf = vec![0; MAX_MESSAGE];
        loop {
            let words = self.worker.as_ref().map(|w| w.words.ours);
            let fds = [
                Some(self.control),
                Some(self.child_signals),
                words,
                Some(self.memories.ours),
            ];
            let [message, died, spoke, memory] = sys::wait_readable(fds, None);
            if memory {
                self.take_memories();
            }
            if spoke {
                self.hear_workers();
            }
            if died {
                self.reap();
            }
            if !message {
                continue;
            }
            match sys::receive(self.control, &mut buf) {
                Ok(Some(n)) => match Command::parse(&buf[..n]) {
                    Some(command) => self.obey(command),
                    None => eprintln!(
                        "howdah-php: UnknownCommand: {:?}",
                        String::from_utf8_lossy(&buf[..n.min(200)])
                    ),
                },
                Ok(None) => return self.farewell(),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return self.farewell(),
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Spawn {
                child,
                max_requests,
            } => self.spawn(child, max_requests),
            Command::Signal { child, signal } => {
                if let Some(child) = self.child(child) {
                    sys::kill(child.pid, signal);
                }
            }
            Command::Trace { child } => {
                // It has handed its memory over before it took a request.
                self.take_memories();
                let memory = self.child(child).and_then(|c| c.memory);
                let stack = memory.map(ffi::php_trace).unwrap_or_default();
                self.report(&Report::Trace { child, stack }, None);
            }
        }
    }

    fn child(&self, id: ChildId) -> Option<&Child> {
        self.children.iter().find(|c| c.id == id)
    }

    /// Takes what children have handed over since the last call.
    fn take_memories(&mut self) {
        let mut buf = [0; 64];
        while let Ok(Some((n, memory))) = sys::receive_with_fd(self.memories.ours, &mut buf) {
            let pid = std::str::from_utf8(&buf[..n])
                .ok()
                .and_then(|t| t.parse().ok());
            let child = self.children.iter_mut().find(|c| Some(c.pid) == pid);
            match (child, memory) {
                (Some(child), Some(fd)) if child.memory.is_none() => child.memory = Some(fd),
                // It has ended.
                (_, Some(fd)) => sys::close(fd),
                (_, None) => {}
            }
        }
    }

    fn spawn(&mut self, child: ChildId, max_requests: u64) {
        let refuse = |message: String| Report::SpawnFailed { child, message };
        if u32::from(child.index) >= self.region.geometry().children {
            let message = format!("there is no row {} in the scoreboard", child.index);
            return self.report(&refuse(message), None);
        }
        match sys::fork() {
            Ok(Forked::Child) => self.become_child(child, max_requests),
            Ok(Forked::Parent(pid)) => match sys::pidfd_open(pid) {
                Ok(pidfd) => {
                    self.children.push(Child {
                        pid,
                        id: child,
                        memory: None,
                    });
                    self.report(&Report::Spawned { child, pid }, Some(pidfd));
                    sys::close(pidfd);
                }
                Err(e) => {
                    // Without a pidfd the front could not kill it.
                    sys::kill(pid, libc::SIGKILL);
                    self.report(&refuse(format!("pidfd_open: {e}")), None);
                }
            },
            Err(e) => self.report(&refuse(format!("fork: {e}")), None),
        }
    }

    /// Passes on what workers say.
    fn hear_workers(&self) {
        let Some(worker) = &self.worker else {
            return;
        };
        let mut buf = vec![0; MAX_MESSAGE];
        while let Ok(Some(n)) = sys::receive(worker.words.ours, &mut buf) {
            match Word::parse(&buf[..n]) {
                Some(word) => self.report(&Report::Worker(word), None),
                None => eprintln!("howdah-php: UnknownWord: cannot parse a message from a worker"),
            }
        }
    }

    fn become_child(&mut self, me: ChildId, max_requests: u64) -> ! {
        sys::close(self.control);
        sys::close(self.child_signals);
        sys::close(self.memories.ours);
        // Those of its siblings are not for scripts.
        let siblings = self.children.iter().filter_map(|c| c.memory);
        siblings.for_each(sys::close);
        sys::settle_child(self.pid);
        sys::hand_over_memory(self.memories.theirs);
        ffi::title_set(&format!("howdah-php: pool {}", self.pool));
        exchange::set_bells(std::mem::take(&mut self.bells));
        match self.worker.take() {
            None => child::serve(self.region, me, max_requests),
            Some(worker) => {
                sys::close(worker.words.ours);
                let words = worker.words.theirs;
                worker::serve(self.region, me, max_requests, &worker.script, words)
            }
        }
    }

    fn reap(&mut self) {
        sys::drain(self.child_signals);
        // Last words before the end.
        self.hear_workers();
        while let Some((pid, ended)) = sys::reap() {
            let Some(at) = self.children.iter().position(|c| c.pid == pid) else {
                // A process that a preload script or an extension started.
                continue;
            };
            let Child {
                id: child, memory, ..
            } = self.children.swap_remove(at);
            if let Some(fd) = memory {
                sys::close(fd);
            }
            let exit = match ended {
                Ended::Code(code) => Exit::Code(code),
                Ended::Signal(signal) => Exit::Signal(signal),
            };
            self.report(&Report::Exited { child, exit }, None);
        }
    }

    /// Tells the front; that it may be gone is noticed by the end of the file.
    fn report(&self, report: &Report, passed: Option<i32>) {
        let _ = sys::send(self.control, report.encode().as_bytes(), passed);
    }

    /// The front is gone: each child finishes its request and leaves; who takes longer than
    /// `farewell` is killed.
    fn farewell(mut self) -> ExitCode {
        let port = PoolPort::new(self.region);
        for child in &self.children {
            if let Some(word) = port.retire(child.id.index).0 {
                sys::futex_wake(word);
            }
        }
        let deadline = Instant::now() + self.farewell;
        while !self.children.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                for child in &self.children {
                    sys::kill(child.pid, libc::SIGKILL);
                }
                return ExitCode::SUCCESS;
            }
            sys::wait_readable([Some(self.child_signals)], Some(left));
            self.reap();
        }
        ExitCode::SUCCESS
    }
}
