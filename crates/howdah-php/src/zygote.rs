//! The zygote of a pool: it performs PHP's module startup once, then forks, reaps, signals and traces children at the
//! front's request. It runs no request itself. It is single-threaded because it forks.
//!
//! ```text
//! start → become the pool's user → PHP module startup → Ready ─┬─ Spawn → fork → Spawned
//!                                                     │        ├─ Signal, Trace → Trace
//!                                                   Failed     ├─ SIGCHLD → Exited
//!                                                              └─ end of file → retire all → leave
//! ```

use std::fs::File;
use std::io::{Read, Seek};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use howdah_os::descriptors::inherited;
use howdah_os::mapping::PoolMemory;
use howdah_os::output::line_to_stderr;
use howdah_os::signals::SignalDescriptor;
use howdah_proto::control::{Command, Exit, MAX_MESSAGE, Report, ScriptsWork};
use howdah_proto::shm::{ChildId, PoolPort, Region, VERSION};
use howdah_proto::worker::WorkerMessage;

use crate::arguments::{PhpIni, ZygoteOptions};
use crate::ffi::{self, StartError};
use crate::identity::{self, IdentityError};
use crate::sys::{self, Forked, ProcessEnd};
use crate::{child, current_request, shared_cache, worker};

struct Zygote {
    pool: String,
    region: &'static Region,
    control: OwnedFd,
    child_signals: SignalDescriptor,
    bells: Vec<OwnedFd>,
    worker: Option<WorkerScript>,
    pid: i32,
    children: Vec<Child>,
    /// The sockets over which a child passes a descriptor of its memory.
    memories: Pair,
    /// The id of the process that lists or compiles scripts.
    scripts: Option<i32>,
    shutdown_limit: Duration,
}

struct Child {
    pid: i32,
    id: ChildId,
    /// Reads the child's memory, for its PHP stack. `None` before the child has sent the descriptor, or if it could not
    /// open one.
    memory: Option<OwnedFd>,
}

/// A pair of packet sockets: the zygote keeps one, and its children inherit the other.
struct Pair {
    ours: OwnedFd,
    theirs: OwnedFd,
}

impl Pair {
    fn new() -> Result<Pair, Failure> {
        let (ours, theirs) = sys::packet_pair().map_err(|e| ("NoSocket", e.to_string()))?;
        Ok(Pair { ours, theirs })
    }
}

/// What the zygote of a worker pool needs in addition.
struct WorkerScript {
    script: PathBuf,
    /// The sockets over which workers report that they have booted, or why they have not.
    messages: Pair,
}

/// A failed start: the name of the failure and a sentence.
type Failure = (&'static str, String);

/// The control socket while the zygote starts, over which a failure is reported.
static CONTROL: Mutex<Option<OwnedFd>> = Mutex::new(None);

fn set_control(control: Option<OwnedFd>) {
    *CONTROL.lock().unwrap_or_else(PoisonError::into_inner) = control;
}

/// What the new process does after a fork.
enum Fork {
    /// A child that serves requests.
    Child { child: ChildId, max_requests: u64 },
    /// A process that lists or compiles scripts.
    Scripts(ScriptsWork, OwnedFd),
}

/// How many seconds compiling scripts may take; longer than a reload waits for it.
const COMPILE: u32 = 30;

/// Runs the zygote until the front closes the control socket.
pub fn run(mut options: ZygoteOptions) -> ExitCode {
    let started = inherited(options.control_fd)
        .and_then(|control| {
            set_control(Some(control.try_clone()?));
            Ok(control)
        })
        .map_err(|e| ("BadDescriptor", format!("--control-fd: {e}")))
        .and_then(|control| start(&mut options, control));
    match started {
        Ok(zygote) => {
            set_control(None);
            zygote.serve()
        }
        Err((name, message)) => {
            fail(name, message);
            ExitCode::FAILURE
        }
    }
}

/// Starts PHP as a zygote would and reports whether that succeeded, for `howdah check`.
pub fn try_start(mut options: ZygoteOptions, seconds: u32) -> ExitCode {
    // An extension that hangs must not block `howdah check`.
    sys::die_after(seconds);
    match start_php(&mut options) {
        Ok(()) => ExitCode::SUCCESS,
        Err((name, message)) => {
            fail(name, message);
            ExitCode::FAILURE
        }
    }
}

/// Writes the failure to the log, and sends it to the front if there is one.
fn fail(name: &str, message: String) {
    line_to_stderr(&format!("howdah-php: {name}: {message}"));
    let control = CONTROL.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(control) = &*control {
        let report = Report::Failed {
            name: name.to_owned(),
            message,
        };
        // If the front is gone, the log line above is the only report.
        let _ = sys::send(control.as_fd(), report.encode().as_bytes(), None);
    }
}

/// Reports a failure and exits. The shim calls this when it has found that PHP's startup would end the process without
/// a reason.
pub fn cannot_start(name: &str, message: String) -> ! {
    fail(name, message);
    sys::leave(1)
}

fn start(options: &mut ZygoteOptions, control: OwnedFd) -> Result<Zygote, Failure> {
    // Called before PHP starts, which saves the signal dispositions and the mask that it finds.
    sys::settle_zygote();
    let io = |what: &str, e: std::io::Error| ("BadDescriptor", format!("{what}: {e}"));
    let bells = options.bell_fds.iter().map(|fd| inherited(*fd));
    let bells: Vec<OwnedFd> = bells
        .collect::<Result<_, _>>()
        .map_err(|e| io("--bell-fds", e))?;
    let region = map_pool(options.memory_fd)?;
    if region.geometry().fronts as usize > bells.len() {
        return Err((
            "BadDescriptor",
            format!(
                "{} front threads but {} bells",
                region.geometry().fronts,
                bells.len()
            ),
        ));
    }
    sys::tidy_stdio();
    ffi::title_prepare();
    ffi::title_set(&format!("howdah-php: zygote {}", options.pool));
    shared_cache::open(region);
    start_php(options)?;
    sys::set_orphan_timeout(options.shutdown);
    let child_signals =
        SignalDescriptor::new(&[libc::SIGCHLD]).map_err(|e| ("Signals", e.to_string()))?;
    let worker = match options.worker.take() {
        None => None,
        Some(script) => Some(WorkerScript {
            script,
            messages: Pair::new()?,
        }),
    };
    Ok(Zygote {
        worker,
        pool: std::mem::take(&mut options.pool),
        region,
        control,
        child_signals,
        bells,
        pid: sys::own_pid(),
        children: Vec::new(),
        memories: Pair::new()?,
        scripts: None,
        shutdown_limit: options.shutdown,
    })
}

/// Maps the pool's memory for the lifetime of this process and its children.
fn map_pool(memory: i32) -> Result<&'static Region, Failure> {
    let memory = inherited(memory)
        .and_then(PoolMemory::map)
        .map_err(|e| ("BadMemory", format!("cannot map --memory-fd: {e}")))?;
    let region = Region::open(Arc::new(memory)).map_err(|e| {
        let message = format!("--memory-fd does not hold a pool of version {VERSION}: {e:?}");
        ("BadMemory", message)
    })?;
    Ok(Box::leak(Box::new(region)))
}

/// Becomes the pool's user and starts PHP with its settings.
fn start_php(options: &mut ZygoteOptions) -> Result<(), Failure> {
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
        line_to_stderr(&format!(
            "howdah-php: SettingUnknown: PHP has no setting `{name}`: is it mistyped, or its extension not loaded?"
        ));
    }
    Ok(())
}

/// Returns the names of the settings in lines of a php.ini. Elements of arrays, which only get_cfg_var() reads, are
/// skipped.
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
            let fds = [
                Some(self.control.as_fd()),
                Some(self.child_signals.as_fd()),
                self.worker.as_ref().map(|w| w.messages.ours.as_fd()),
                Some(self.memories.ours.as_fd()),
            ];
            let [message, died, worker_wrote, memory] = sys::wait_readable(fds, None);
            if memory {
                self.take_memories();
            }
            if worker_wrote {
                self.read_worker_messages();
            }
            if died {
                self.reap();
            }
            if !message {
                continue;
            }
            match sys::receive_with_fd(self.control.as_fd(), &mut buf) {
                Ok(Some((n, passed))) => match Command::parse(&buf[..n]) {
                    Some(command) => {
                        if let ControlFlow::Break(fork) = self.obey(command, passed) {
                            self.become_child(fork);
                        }
                    }
                    None => line_to_stderr(&format!(
                        "howdah-php: UnknownCommand: {:?}",
                        String::from_utf8_lossy(&buf[..n.min(200)])
                    )),
                },
                Ok(None) => return self.shut_down(),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return self.shut_down(),
            }
        }
    }

    /// Executes a command of the front. Breaks in a process that was forked for the command.
    fn obey(&mut self, command: Command, passed: Option<OwnedFd>) -> ControlFlow<Fork> {
        match command {
            Command::Spawn {
                child,
                max_requests,
            } => return self.spawn(child, max_requests),
            Command::Signal { child, signal } => {
                if let Some(child) = self.child(child) {
                    sys::kill(child.pid, signal);
                }
            }
            Command::Trace { child } => {
                // The child has sent its memory descriptor before it took a request, so the descriptor is here by now.
                self.take_memories();
                let memory = self.child(child).and_then(|c| c.memory.as_ref());
                let stack = memory.map(|memory| ffi::php_trace(memory.as_fd()));
                let stack = stack.unwrap_or_default();
                self.report(&Report::Trace { child, stack }, None);
            }
            Command::Scripts(work) => match (passed, sys::fork(|_| ())) {
                (Some(file), Ok(Forked::Child)) => {
                    return ControlFlow::Break(Fork::Scripts(work, file));
                }
                (None, Ok(Forked::Child)) => sys::leave(1),
                (_, Ok(Forked::Parent(pid))) => self.scripts = Some(pid),
                (_, Err(_)) => self.report(&Report::ScriptsDone, None),
            },
        }
        ControlFlow::Continue(())
    }

    fn child(&self, id: ChildId) -> Option<&Child> {
        self.children.iter().find(|c| c.id == id)
    }

    /// Receives the memory descriptors that children have sent since the last call.
    fn take_memories(&mut self) {
        let mut buf = [0; 64];
        while let Ok(Some((n, memory))) = sys::receive_with_fd(self.memories.ours.as_fd(), &mut buf)
        {
            let pid = std::str::from_utf8(&buf[..n])
                .ok()
                .and_then(|t| t.parse().ok());
            let child = self.children.iter_mut().find(|c| Some(c.pid) == pid);
            // A child that has exited needs no descriptor.
            if let Some(child) = child {
                child.memory = child.memory.take().or(memory);
            }
        }
    }

    fn spawn(&mut self, child: ChildId, max_requests: u64) -> ControlFlow<Fork> {
        let refuse = |message: String| Report::SpawnFailed { child, message };
        if u32::from(child.index) >= self.region.geometry().children {
            let message = format!("there is no row {} in the scoreboard", child.index);
            self.report(&refuse(message), None);
            return ControlFlow::Continue(());
        }
        match sys::fork(|warning| line_to_stderr(&format!("howdah-php: {warning}"))) {
            Ok(Forked::Child) => {
                return ControlFlow::Break(Fork::Child {
                    child,
                    max_requests,
                });
            }
            Ok(Forked::Parent(pid)) => match sys::pidfd_open(pid) {
                Ok(pidfd) => {
                    self.children.push(Child {
                        pid,
                        id: child,
                        memory: None,
                    });
                    self.report(&Report::Spawned { child, pid }, Some(pidfd.as_fd()));
                }
                Err(e) => {
                    // Without a pidfd the front could not kill the child.
                    sys::kill(pid, libc::SIGKILL);
                    self.report(&refuse(format!("pidfd_open: {e}")), None);
                }
            },
            Err(e) => self.report(&refuse(format!("fork: {e}")), None),
        }
        ControlFlow::Continue(())
    }

    /// Forwards the messages of workers to the front.
    fn read_worker_messages(&self) {
        let Some(worker) = &self.worker else {
            return;
        };
        let mut buf = vec![0; MAX_MESSAGE];
        while let Ok(Some(n)) = sys::receive(worker.messages.ours.as_fd(), &mut buf) {
            match WorkerMessage::parse(&buf[..n]) {
                Some(word) => self.report(&Report::Worker(word), None),
                None => line_to_stderr(
                    "howdah-php: InvalidWorkerMessage: cannot parse a message from a worker",
                ),
            }
        }
    }

    /// Serves requests or works on scripts in a process that was just forked. Scripts must not reach the zygote's own
    /// descriptors and those of the siblings' memory, which are closed here.
    fn become_child(self, fork: Fork) -> ! {
        let Zygote {
            pool,
            region,
            bells,
            worker,
            pid,
            memories,
            control,
            child_signals,
            children,
            scripts: _,
            shutdown_limit: _,
        } = self;
        drop((control, child_signals, children, memories.ours));
        let worker = worker.map(|worker| (worker.script, worker.messages.theirs));
        sys::settle_child(pid);
        let (me, max_requests) = match fork {
            Fork::Child {
                child,
                max_requests,
            } => (child, max_requests),
            Fork::Scripts(work, file) => do_scripts(&pool, work, file.into()),
        };
        shared_cache::enter_child();
        sys::hand_over_memory(memories.theirs);
        ffi::title_set(&format!("howdah-php: pool {pool}"));
        current_request::set_bells(bells);
        match worker {
            None => child::serve(region, me, max_requests),
            Some((script, messages)) => worker::serve(region, me, max_requests, &script, messages),
        }
    }

    fn reap(&mut self) {
        self.child_signals.take();
        // Read the last messages of workers before their exits are reported.
        self.read_worker_messages();
        while let Some((pid, ended)) = sys::reap() {
            if self.scripts == Some(pid) {
                self.scripts = None;
                self.report(&Report::ScriptsDone, None);
            }
            let Some(at) = self.children.iter().position(|c| c.pid == pid) else {
                // A process that a preload script or an extension started.
                continue;
            };
            let child = self.children.swap_remove(at).id;
            shared_cache::child_ended(pid as u32);
            let exit = match ended {
                ProcessEnd::Code(code) => Exit::Code(code),
                ProcessEnd::Signal(signal) => Exit::Signal(signal),
            };
            self.report(&Report::Exited { child, exit }, None);
        }
    }

    /// Sends a report to the front. If the front is gone, the zygote notices that by end of file on the control socket.
    fn report(&self, report: &Report, passed: Option<BorrowedFd<'_>>) {
        let _ = sys::send(self.control.as_fd(), report.encode().as_bytes(), passed);
    }

    /// Shuts down after the front has exited: each child finishes its request and exits, and a child that takes longer
    /// than `shutdown_limit` is killed.
    fn shut_down(mut self) -> ExitCode {
        let port = PoolPort::new(self.region.clone());
        for child in &self.children {
            if let Some(word) = port.retire(child.id.index).0 {
                sys::futex_wake(word);
            }
        }
        let deadline = Instant::now() + self.shutdown_limit;
        while !self.children.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                for child in &self.children {
                    sys::kill(child.pid, libc::SIGKILL);
                }
                return ExitCode::SUCCESS;
            }
            sys::wait_readable([Some(self.child_signals.as_fd())], Some(left));
            self.reap();
        }
        ExitCode::SUCCESS
    }
}

/// Lists or compiles scripts, and exits.
fn do_scripts(pool: &str, work: ScriptsWork, mut file: File) -> ! {
    ffi::title_set(&format!("howdah-php: scripts of {pool}"));
    ffi::php_enter_child();
    // The requester does not wait for ever, not even if a file system hangs.
    sys::die_after(2 * COMPILE);
    match work {
        ScriptsWork::List => ffi::list_scripts(file.as_fd()),
        ScriptsWork::Compile => {
            let mut paths = Vec::new();
            if file.rewind().is_ok() && file.read_to_end(&mut paths).is_ok() {
                ffi::compile_scripts(&paths, COMPILE);
            }
        }
    }
    sys::leave(0)
}
