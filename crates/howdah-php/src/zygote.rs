//! The zygote of a pool: it performs PHP's module startup once, then forks, reaps, signals and traces children at the
//! front's request. It runs no request itself. It is single-threaded because it forks.
//!
//! ```text
//! start → become the pool's user → PHP module startup → Ready ─┬─ Spawn → fork → Spawned
//!                                                     │        ├─ Signal, Trace → Trace
//!                                                   Failed     ├─ SIGCHLD → Exited
//!                                                              └─ end of file → retire all → leave
//! ```

use crate::ExitStatus;
use std::fs::File;
use std::io::{Read, Seek};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use howdah_os::descriptors::take_inherited;
use howdah_os::mapping::PoolMemory;
use howdah_os::output::write_stderr_line;
use howdah_os::signals::SignalDescriptor;
use howdah_proto::control::{
    Exit, MAX_PACKET_BYTES, ScriptsOperation, ZygoteCommand, ZygoteReport,
};
use howdah_proto::shm::{ChildId, PoolPort, Region, VERSION};
use howdah_proto::worker::WorkerMessage;

use crate::arguments::ZygoteOptions;
use crate::ffi::{self, PhpStartError};
use crate::identity;
use crate::sys::{self, ForkResult, ProcessExit};
use crate::{child, current_request, shared_cache, worker};

struct Zygote {
    pool: String,
    region: &'static Region,
    control: OwnedFd,
    child_signals: SignalDescriptor,
    bells: Vec<OwnedFd>,
    worker: Option<WorkerScript>,
    pid: i32,
    children: Vec<ZygoteChild>,
    /// The sockets over which a child passes a descriptor of its memory.
    memory_sockets: PacketPair,
    /// The id of the process that lists or compiles scripts.
    scripts_pid: Option<i32>,
    shutdown_limit: Duration,
}

struct ZygoteChild {
    pid: i32,
    id: ChildId,
    /// Reads the child's memory, for its PHP stack. `None` before the child has sent the descriptor, or if it could not
    /// open one.
    memory_descriptor: Option<OwnedFd>,
}

/// A pair of packet sockets: the zygote keeps one, and its children inherit the other.
struct PacketPair {
    ours: OwnedFd,
    theirs: OwnedFd,
}

impl PacketPair {
    fn new() -> Result<PacketPair, StartFailure> {
        let (ours, theirs) = sys::packet_pair().map_err(|e| ("NoSocket", e.to_string()))?;
        Ok(PacketPair { ours, theirs })
    }
}

/// What the zygote of a worker pool needs in addition.
struct WorkerScript {
    script: PathBuf,
    /// The sockets over which workers report that they have booted, or why they have not.
    messages: PacketPair,
}

/// A failed start: the name of the failure and a sentence.
type StartFailure = (&'static str, String);

/// The control socket while the zygote starts, over which a failure is reported.
static STARTUP_CONTROL: Mutex<Option<OwnedFd>> = Mutex::new(None);

fn set_control(control: Option<OwnedFd>) {
    *STARTUP_CONTROL
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = control;
}

/// What the new process does after a fork.
enum ForkedTask {
    /// A child that serves requests.
    Child { child: ChildId, max_requests: u64 },
    /// A process that lists or compiles scripts.
    Scripts(ScriptsOperation, OwnedFd),
}

/// How many seconds compiling scripts may take. A reload does not wait that long for it.
const MAX_COMPILE_SECONDS: u32 = 30;

/// Runs the zygote until the front closes the control socket.
pub fn run(mut options: ZygoteOptions) -> ExitStatus {
    let started = take_inherited(options.control_fd)
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
            report_failure(name, message);
            1
        }
    }
}

/// Starts PHP as a zygote would and reports whether that succeeded, for `howdah check`.
pub fn try_start(mut options: ZygoteOptions, seconds: u32) -> ExitStatus {
    // An extension that hangs must not block `howdah check`.
    sys::set_exit_alarm(seconds);
    match start_php(&mut options) {
        Ok(()) => 0,
        Err((name, message)) => {
            report_failure(name, message);
            1
        }
    }
}

/// Writes the failure to the log, and sends it to the front if there is one.
fn report_failure(name: &str, message: String) {
    write_stderr_line(&format!("howdah-php: {name}: {message}"));
    let control = STARTUP_CONTROL
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(control) = &*control {
        let report = ZygoteReport::Failed {
            name: name.to_owned(),
            message,
        };
        // If the front is gone, the log line above is the only report.
        let _ = sys::send(control.as_fd(), report.encode().as_bytes(), None);
    }
}

/// Reports a failure and exits. The shim calls this when it has found that PHP's startup would end the process without
/// giving a reason.
pub fn fail_startup(name: &str, message: String) -> ! {
    report_failure(name, message);
    sys::exit_now(1)
}

fn start(options: &mut ZygoteOptions, control: OwnedFd) -> Result<Zygote, StartFailure> {
    // Called before PHP starts, which saves the signal dispositions and the mask that it finds.
    sys::prepare_zygote();
    let io = |what: &str, e: std::io::Error| ("BadDescriptor", format!("{what}: {e}"));
    let bells = options.bell_fds.iter().map(|fd| take_inherited(*fd));
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
    sys::redirect_stdio();
    ffi::prepare_title();
    ffi::set_title(&format!("howdah-php: zygote {}", options.pool));
    shared_cache::open(region);
    start_php(options)?;
    sys::set_orphan_timeout(options.shutdown);
    let child_signals =
        SignalDescriptor::new(&[libc::SIGCHLD]).map_err(|e| ("Signals", e.to_string()))?;
    let worker = match options.worker.take() {
        None => None,
        Some(script) => Some(WorkerScript {
            script,
            messages: PacketPair::new()?,
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
        memory_sockets: PacketPair::new()?,
        scripts_pid: None,
        shutdown_limit: options.shutdown,
    })
}

/// Maps the pool's memory for the lifetime of this process and its children.
fn map_pool(memory: i32) -> Result<&'static Region, StartFailure> {
    let memory = take_inherited(memory)
        .and_then(PoolMemory::map)
        .map_err(|e| ("BadMemory", format!("cannot map --memory-fd: {e}")))?;
    let region = Region::open(Arc::new(memory)).map_err(|e| {
        let message = format!("--memory-fd does not contain a pool of version {VERSION}: {e:?}");
        ("BadMemory", message)
    })?;
    Ok(Box::leak(Box::new(region)))
}

/// Becomes the pool's user and starts PHP with its settings.
fn start_php(options: &mut ZygoteOptions) -> Result<(), StartFailure> {
    identity::assume_identity(options.user.as_deref(), options.group.as_deref())
        .map_err(|e| (e.name(), e.to_string()))?;
    let ini = std::mem::take(&mut options.php_ini);
    ini.check_readable()
        .map_err(|why| ("PhpIniUnreadable", why))?;
    let entries = std::mem::take(&mut options.ini_entries);
    let names = setting_names(&entries);
    ffi::php_startup(ini, entries, options.worker.is_some()).map_err(|e| match e {
        PhpStartError::OtherPhp(why) => ("OtherPhp", why),
        PhpStartError::ModuleStartup => (
            "PhpStartup",
            "PHP's module startup failed; the lines above give the reason (php.ini, an extension, opcache.preload)"
                .to_owned(),
        ),
    })?;
    for name in names.iter().filter(|name| !ffi::php_has_setting(name)) {
        write_stderr_line(&format!(
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
    fn serve(mut self) -> ExitStatus {
        self.report(
            &ZygoteReport::Ready {
                version: VERSION,
                php: ffi::started_php(),
            },
            None,
        );
        let mut buf = vec![0; MAX_PACKET_BYTES];
        loop {
            let fds = [
                Some(self.control.as_fd()),
                Some(self.child_signals.as_fd()),
                self.worker.as_ref().map(|w| w.messages.ours.as_fd()),
                Some(self.memory_sockets.ours.as_fd()),
            ];
            let [message, died, worker_wrote, memory] = sys::wait_readable(fds, None);
            if memory {
                self.receive_memory_descriptors();
            }
            if worker_wrote {
                self.read_worker_messages();
            }
            if died {
                self.reap_children();
            }
            if !message {
                continue;
            }
            match sys::receive_with_fd(self.control.as_fd(), &mut buf) {
                Ok(Some((n, passed))) => match ZygoteCommand::parse(&buf[..n]) {
                    Some(command) => {
                        if let ControlFlow::Break(fork) = self.execute(command, passed) {
                            self.become_child(fork);
                        }
                    }
                    None => write_stderr_line(&format!(
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

    /// Executes a command of the front. Returns `Break` in a process that was forked for the command.
    fn execute(
        &mut self,
        command: ZygoteCommand,
        passed: Option<OwnedFd>,
    ) -> ControlFlow<ForkedTask> {
        match command {
            ZygoteCommand::Spawn {
                child,
                max_requests,
            } => return self.spawn(child, max_requests),
            ZygoteCommand::Signal { child, signal } => {
                if let Some(child) = self.child(child) {
                    sys::send_signal(child.pid, signal);
                }
            }
            ZygoteCommand::Trace { child } => {
                // The child has sent its memory descriptor before it took a request, so it has arrived by now.
                self.receive_memory_descriptors();
                let memory = self.child(child).and_then(|c| c.memory_descriptor.as_ref());
                let stack = memory.map(|memory| ffi::php_trace(memory.as_fd()));
                let stack = stack.unwrap_or_default();
                self.report(&ZygoteReport::Trace { child, stack }, None);
            }
            ZygoteCommand::Scripts(work) => match (passed, sys::fork(|_| ())) {
                (Some(file), Ok(ForkResult::Child)) => {
                    return ControlFlow::Break(ForkedTask::Scripts(work, file));
                }
                (None, Ok(ForkResult::Child)) => sys::exit_now(1),
                (_, Ok(ForkResult::Parent(pid))) => self.scripts_pid = Some(pid),
                (_, Err(_)) => self.report(&ZygoteReport::ScriptsDone, None),
            },
        }
        ControlFlow::Continue(())
    }

    fn child(&self, id: ChildId) -> Option<&ZygoteChild> {
        self.children.iter().find(|c| c.id == id)
    }

    /// Receives the memory descriptors that children have sent since the last call.
    fn receive_memory_descriptors(&mut self) {
        let mut buf = [0; 64];
        while let Ok(Some((n, memory))) =
            sys::receive_with_fd(self.memory_sockets.ours.as_fd(), &mut buf)
        {
            let pid = std::str::from_utf8(&buf[..n])
                .ok()
                .and_then(|t| t.parse().ok());
            let child = self.children.iter_mut().find(|c| Some(c.pid) == pid);
            // A child that has exited needs no descriptor.
            if let Some(child) = child {
                child.memory_descriptor = child.memory_descriptor.take().or(memory);
            }
        }
    }

    fn spawn(&mut self, child: ChildId, max_requests: u64) -> ControlFlow<ForkedTask> {
        let refuse = |message: String| ZygoteReport::SpawnFailed { child, message };
        if u32::from(child.index) >= self.region.geometry().children {
            let message = format!("the scoreboard has no row {}", child.index);
            self.report(&refuse(message), None);
            return ControlFlow::Continue(());
        }
        match sys::fork(|warning| write_stderr_line(&format!("howdah-php: {warning}"))) {
            Ok(ForkResult::Child) => {
                return ControlFlow::Break(ForkedTask::Child {
                    child,
                    max_requests,
                });
            }
            Ok(ForkResult::Parent(pid)) => match sys::pidfd_open(pid) {
                Ok(pidfd) => {
                    self.children.push(ZygoteChild {
                        pid,
                        id: child,
                        memory_descriptor: None,
                    });
                    self.report(&ZygoteReport::Spawned { child, pid }, Some(pidfd.as_fd()));
                }
                Err(e) => {
                    // Without a pidfd the front could not kill the child.
                    sys::send_signal(pid, libc::SIGKILL);
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
        let mut buf = vec![0; MAX_PACKET_BYTES];
        while let Ok(Some(n)) = sys::receive(worker.messages.ours.as_fd(), &mut buf) {
            match WorkerMessage::parse(&buf[..n]) {
                Some(word) => self.report(&ZygoteReport::Worker(word), None),
                None => write_stderr_line(
                    "howdah-php: InvalidWorkerMessage: cannot parse a message from a worker",
                ),
            }
        }
    }

    /// Serves requests or works on scripts in a process that was just forked. Scripts must not reach the zygote's own
    /// descriptors and those of the siblings' memory, which are closed here.
    fn become_child(self, fork: ForkedTask) -> ! {
        let Zygote {
            pool,
            region,
            bells,
            worker,
            pid,
            memory_sockets: memories,
            control,
            child_signals,
            children,
            scripts_pid: _,
            shutdown_limit: _,
        } = self;
        drop((control, child_signals, children, memories.ours));
        let worker = worker.map(|worker| (worker.script, worker.messages.theirs));
        sys::prepare_child(pid);
        let (me, max_requests) = match fork {
            ForkedTask::Child {
                child,
                max_requests,
            } => (child, max_requests),
            ForkedTask::Scripts(work, file) => run_scripts_operation(&pool, work, file.into()),
        };
        shared_cache::enter_child();
        sys::send_memory_descriptor(memories.theirs);
        ffi::set_title(&format!("howdah-php: pool {pool}"));
        current_request::set_bells(bells);
        match worker {
            None => child::serve(region, me, max_requests),
            Some((script, messages)) => worker::serve(region, me, max_requests, &script, messages),
        }
    }

    fn reap_children(&mut self) {
        self.child_signals.take_pending();
        // The last messages of workers are read before their exits are reported.
        self.read_worker_messages();
        while let Some((pid, ended)) = sys::reap_any() {
            if self.scripts_pid == Some(pid) {
                self.scripts_pid = None;
                self.report(&ZygoteReport::ScriptsDone, None);
            }
            let Some(at) = self.children.iter().position(|c| c.pid == pid) else {
                // This process was started by a preload script or an extension.
                continue;
            };
            let child = self.children.swap_remove(at).id;
            shared_cache::child_ended(pid as u32);
            let exit = match ended {
                ProcessExit::Code(code) => Exit::Code(code),
                ProcessExit::Signal(signal) => Exit::Signal(signal),
            };
            self.report(&ZygoteReport::Exited { child, exit }, None);
        }
    }

    /// Sends a report to the front. If the front is gone, the zygote notices that by end of file on the control socket.
    fn report(&self, report: &ZygoteReport, passed: Option<BorrowedFd<'_>>) {
        let _ = sys::send(self.control.as_fd(), report.encode().as_bytes(), passed);
    }

    /// Shuts down after the front has exited: each child finishes its request and exits, and a child that takes longer
    /// than `shutdown_limit` is killed.
    fn shut_down(mut self) -> ExitStatus {
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
                    sys::send_signal(child.pid, libc::SIGKILL);
                }
                return 0;
            }
            sys::wait_readable([Some(self.child_signals.as_fd())], Some(left));
            self.reap_children();
        }
        0
    }
}

/// Lists or compiles scripts, and exits.
fn run_scripts_operation(pool: &str, work: ScriptsOperation, mut file: File) -> ! {
    ffi::set_title(&format!("howdah-php: scripts of {pool}"));
    ffi::php_enter_child();
    // The alarm ends this process even if a file system hangs, so the requester does not wait for ever.
    sys::set_exit_alarm(2 * MAX_COMPILE_SECONDS);
    match work {
        ScriptsOperation::List => ffi::list_scripts(file.as_fd()),
        ScriptsOperation::Compile => {
            let mut paths = Vec::new();
            if file.rewind().is_ok() && file.read_to_end(&mut paths).is_ok() {
                ffi::compile_scripts(&paths, MAX_COMPILE_SECONDS);
            }
        }
    }
    sys::exit_now(0)
}
