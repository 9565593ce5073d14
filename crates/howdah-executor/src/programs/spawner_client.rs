//! The front's end of a spawner: starts it and starts it again, sends commands, and passes what is
//! reported of a process to whoever waits for that process. A thread of its own a pool, since
//! starting a process and writing logs may block. Runs no request.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use howdah_os::descriptors::packet_pair;
use howdah_proto::control::Exit;
use howdah_proto::level::Level;
use howdah_proto::spawner::{MAX_PACKET, SpawnerCommand, SpawnerReport, Start};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use tokio::sync::{mpsc, watch};

use crate::common::condition::Condition;
use crate::common::output::Output;
use crate::common::pm::Backoff;
use crate::launch::{Launcher, SpawnerFds, Zygote};
use crate::{ExecError, Log, Mode};

use super::heartbeat::{Heartbeat, HeartbeatAction};

/// An exec and a look at the program take milliseconds.
const START_LIMIT: Duration = Duration::from_secs(30);
/// A spawner that lived longer than this did not die of its start.
const STEADY: Duration = Duration::from_secs(10);
/// After its line is closed, how long a spawner may take to end its programs.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);

/// What is known of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The process runs under this process id.
    Started(i32),
    /// The process was not started, for this errno.
    NotStarted(i32),
    /// The process has ended; `Exit::Unseen` if its spawner ended before it said how.
    Exited(Exit),
}

/// A process asked for. Dropping it lets the spawner reap it; it does not end it.
pub(crate) struct Process {
    pub id: u64,
    /// What becomes of it. The end of the stream means that its spawner is gone.
    pub fates: mpsc::UnboundedReceiver<Fate>,
    link: Arc<SpawnerClient>,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.link.processes().remove(&self.id);
        self.link
            .send_reliably(SpawnerCommand::Release { id: self.id });
    }
}

/// Whoever waits for the reports of a process.
struct ProcessWatcher {
    fates: mpsc::UnboundedSender<Fate>,
    /// The start has been reported.
    started: bool,
}

/// Why a command was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpawnRefused {
    /// The line is full: try again in a moment.
    Busy,
    /// No spawner is connected now.
    NoSpawner,
    /// The command does not fit a packet.
    TooLarge,
}

/// The front's connection to a spawner, and the thread that keeps one running.
pub(crate) struct SpawnerClient {
    mode: Mode,
    log: Log,
    control: Mutex<Option<Arc<OwnedFd>>>,
    processes: Mutex<HashMap<u64, ProcessWatcher>>,
    /// Commands that found the line full: sent by the thread, which waits for room.
    late: Mutex<Vec<SpawnerCommand>>,
    next: AtomicU64,
    condition: watch::Sender<Condition>,
    /// An eventfd that wakes the thread.
    bell: OwnedFd,
    closing: std::sync::atomic::AtomicBool,
}

impl SpawnerClient {
    /// Starts the thread, which starts the spawner, and kills it when it has not answered for `silence`.
    pub fn start(
        mode: Mode,
        silence: Duration,
        launcher: Arc<dyn Launcher>,
        log: Log,
    ) -> io::Result<Arc<SpawnerClient>> {
        let link = Arc::new(SpawnerClient {
            log,
            control: Mutex::default(),
            processes: Mutex::default(),
            late: Mutex::default(),
            next: AtomicU64::new(1),
            condition: watch::Sender::new(Condition::Starting),
            bell: crate::common::sys::bell()?,
            closing: false.into(),
            mode,
        });
        let name = format!("spawn-{}", link.mode.name());
        std::thread::Builder::new()
            .name(name.chars().take(15).collect())
            .spawn({
                let link = link.clone();
                move || {
                    ClientThread {
                        link,
                        silence,
                        outputs: Vec::new(),
                        worked: false,
                    }
                    .run(&*launcher)
                }
            })?;
        Ok(link)
    }

    /// The spawner's condition: `Starting`, `Ready`, `Down` or `Closed`.
    pub fn condition(&self) -> watch::Receiver<Condition> {
        self.condition.subscribe()
    }

    /// Waits until processes can be started, or the first attempt to get there has failed.
    pub async fn ready(&self) -> Result<(), ExecError> {
        Condition::settled(self.condition.subscribe()).await
    }

    /// Ends a process that may have been let go of by now.
    pub fn end(&self, id: u64, grace: Duration) {
        let grace_ms = grace.as_millis() as u64;
        self.send_reliably(SpawnerCommand::End { id, grace_ms });
    }

    /// Lets the spawner go: programs that still run are ended.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        crate::common::sys::ring(self.bell.as_fd());
    }

    fn processes(&self) -> MutexGuard<'_, HashMap<u64, ProcessWatcher>> {
        self.processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn control(&self) -> MutexGuard<'_, Option<Arc<OwnedFd>>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn late(&self) -> MutexGuard<'_, Vec<SpawnerCommand>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a process. `start.id` is set here. Never waits.
    pub fn spawn(
        self: &Arc<Self>,
        start: &mut Start,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Process, SpawnRefused> {
        start.id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, fates) = mpsc::unbounded_channel();
        let watcher = ProcessWatcher {
            fates: sender,
            started: false,
        };
        self.processes().insert(start.id, watcher);
        let sent = self.send(&SpawnerCommand::Start(start.clone()), fds);
        if let Err(refused) = sent {
            self.processes().remove(&start.id);
            return Err(refused);
        }
        Ok(Process {
            id: start.id,
            fates,
            link: self.clone(),
        })
    }

    fn send(&self, command: &SpawnerCommand, fds: &[BorrowedFd<'_>]) -> Result<(), SpawnRefused> {
        let packet = command.encode();
        if packet.len() > MAX_PACKET {
            return Err(SpawnRefused::TooLarge);
        }
        let control = self.control().clone().ok_or(SpawnRefused::NoSpawner)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(fds));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = rustix::io::retry_on_intr(|| {
            rustix::net::sendmsg(&control, &[IoSlice::new(&packet)], &mut ancillary, flags)
        });
        match sent {
            Ok(_) => Ok(()),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS) => Err(SpawnRefused::Busy),
            Err(rustix::io::Errno::MSGSIZE) => Err(SpawnRefused::TooLarge),
            Err(_) => Err(SpawnRefused::NoSpawner),
        }
    }

    /// Nothing is lost when the line is full; without a spawner there is nothing to be done.
    fn send_reliably(&self, command: SpawnerCommand) {
        if self.send(&command, &[]) == Err(SpawnRefused::Busy) {
            self.late().push(command);
            crate::common::sys::ring(self.bell.as_fd());
        }
    }

    fn report_fate(&self, id: u64, fate: Fate) -> bool {
        report_fate(&mut self.processes(), id, fate)
    }

    fn say(&self, level: Level, name: &str, message: &str) {
        self.log.pool(self.mode.name(), level, name, message);
    }
}

struct ClientThread {
    link: Arc<SpawnerClient>,
    silence: Duration,
    outputs: Vec<Output>,
    /// The present spawner has started a program, so it is in working order.
    worked: bool,
}

impl ClientThread {
    fn run(mut self, launcher: &dyn Launcher) {
        let mut backoff = Backoff::default();
        let mut last_complaint = String::new();
        while !self.closing() {
            let since = Instant::now();
            let (name, message) = match self.launch(launcher) {
                Ok((spawner, control)) => match self.serve(&spawner, control) {
                    None => {
                        self.shut_down(&spawner);
                        break;
                    }
                    Some(why) => {
                        self.shut_down(&spawner);
                        why
                    }
                },
                Err(error) => ("CannotStart".to_owned(), error.to_string()),
            };
            self.read_outputs();
            let was_ready = *self.link.condition.borrow() == Condition::Ready;
            if self.worked || since.elapsed() >= STEADY {
                backoff.succeeded();
            }
            let complaint = format!("{name}: {message}");
            if was_ready || complaint != last_complaint {
                let text = format!("{message} (retrying until it succeeds)");
                self.link.say(Level::Error, &name, &text);
                last_complaint = complaint;
            }
            // At once when it has worked; later and later when it dies again and again without.
            // Requests wait for one that could be started before, as they do in mode `embed`.
            let pause = backoff.failed() - Duration::from_millis(100);
            let next = match was_ready {
                true => Condition::Starting,
                false => Condition::Down { name, message },
            };
            self.link.condition.send_replace(next);
            self.pause(pause.max(Duration::from_millis(if was_ready { 0 } else { 100 })));
        }
        self.read_outputs();
        self.link.condition.send_replace(Condition::Closed);
    }

    fn closing(&self) -> bool {
        self.link.closing.load(Ordering::Acquire)
    }

    fn launch(&mut self, launcher: &dyn Launcher) -> io::Result<(Zygote, OwnedFd)> {
        let (ours, theirs) = packet_pair()?;
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&read, true)?;
        // Some frames of the longest kind fit without anybody having to wait.
        rustix::net::sockopt::set_socket_send_buffer_size(&ours, 4 * MAX_PACKET)?;
        let fds = SpawnerFds {
            control: theirs,
            stderr: write,
        };
        let spawner = launcher.launch_spawner(&self.link.mode, fds)?;
        self.outputs.push(Output::new(read));
        Ok((spawner, ours))
    }

    /// Hears one spawner until it is gone (its name for why) or is to go (`None`).
    fn serve(&mut self, spawner: &Zygote, control: OwnedFd) -> Option<(String, String)> {
        let link = self.link.clone();
        let control = Arc::new(control);
        let deadline = Instant::now() + START_LIMIT;
        self.worked = false;
        let mut ready = false;
        let mut heartbeat = Heartbeat::new(self.silence, Instant::now());
        let why = loop {
            if self.closing() {
                break None;
            }
            let mut wait = Duration::from_secs(1);
            if ready {
                wait = match heartbeat.at(Instant::now()) {
                    HeartbeatAction::Wait(left) => left,
                    HeartbeatAction::Ask => {
                        // A line that is full, too, is one that nobody reads.
                        let _ = link.send(&SpawnerCommand::Ask, &[]);
                        continue;
                    }
                    HeartbeatAction::Stuck => break Some(kill(spawner, self.silence)),
                };
            }
            if !ready && Instant::now() >= deadline {
                let text = format!(
                    "the spawner was not ready within {} s",
                    START_LIMIT.as_secs()
                );
                break Some(("StartTimeout".to_owned(), text));
            }
            let full = self.send_what_is_late();
            self.sleep(&control, full, wait);
            self.read_outputs();
            let received = receive(&control);
            if let SpawnerMessage::SpawnerReport(_) = received {
                heartbeat.heard(Instant::now());
            }
            match received {
                SpawnerMessage::Nothing => {}
                SpawnerMessage::Closed => {
                    let pid = spawner.pid;
                    let text = format!("the spawner (pid {pid}) ended, and its programs with it");
                    break Some(("SpawnerDied".to_owned(), text));
                }
                SpawnerMessage::SpawnerReport(SpawnerReport::Ready) => {
                    ready = true;
                    *link.control() = Some(control.clone());
                    link.condition.send_replace(Condition::Ready);
                }
                SpawnerMessage::SpawnerReport(report) => {
                    if let Err(why) = self.on_report(report) {
                        break Some(why);
                    }
                }
                SpawnerMessage::Malformed => break Some(protocol_error("what is no report")),
            }
        };
        *link.control() = None;
        link.late().clear();
        // The end of the streams shows that nobody manages the processes any more.
        link.processes().clear();
        let _ = rustix::net::shutdown(&control, rustix::net::Shutdown::Both);
        why
    }

    /// Passes a report on; an error if the spawner is to be replaced.
    fn on_report(&mut self, report: SpawnerReport) -> Result<(), (String, String)> {
        match report {
            SpawnerReport::Failed { name, message } => return Err((name, message)),
            SpawnerReport::Started { id, pid } => {
                self.worked = true;
                if !self.link.report_fate(id, Fate::Started(pid)) {
                    return Err(protocol_error("a second start of one process"));
                }
            }
            SpawnerReport::NotStarted { id, errno } => {
                self.link.report_fate(id, Fate::NotStarted(errno));
            }
            SpawnerReport::Exited { id, exit } => {
                self.link.report_fate(id, Fate::Exited(exit));
            }
            SpawnerReport::Ready | SpawnerReport::Here => {}
        }
        Ok(())
    }

    /// Commands that found the line full; whether it still is.
    fn send_what_is_late(&self) -> bool {
        let mut late = std::mem::take(&mut *self.link.late()).into_iter();
        while let Some(command) = late.next() {
            if self.link.send(&command, &[]) == Err(SpawnRefused::Busy) {
                let mut kept = self.link.late();
                kept.insert(0, command);
                kept.splice(1..1, late);
                return true;
            }
        }
        false
    }

    fn sleep(&self, control: &OwnedFd, full: bool, wait: Duration) {
        let mut interest = PollFlags::IN;
        if full {
            interest |= PollFlags::OUT;
        }
        let mut fds = vec![
            PollFd::new(control, interest),
            PollFd::new(&self.link.bell, PollFlags::IN),
        ];
        let pipes: Vec<_> = self.outputs.iter().map(Output::pipe).collect();
        fds.extend(pipes.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        // Rounded up: waking a moment early would only spin.
        let wait = wait + Duration::from_millis(1);
        let timeout = Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        let _ = rustix::event::poll(&mut fds, Some(&timeout));
        crate::common::sys::silence(self.link.bell.as_fd());
    }

    fn pause(&self, pause: Duration) {
        let until = Instant::now() + pause;
        while !self.closing() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let mut fds = [PollFd::new(&self.link.bell, PollFlags::IN)];
            let timeout = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let _ = rustix::event::poll(&mut fds, Some(&timeout));
            crate::common::sys::silence(self.link.bell.as_fd());
        }
    }

    fn read_outputs(&mut self) {
        let link = &self.link;
        self.outputs.retain_mut(|output| {
            output.take(|line| link.say(Level::Notice, "ProcessOutput", line))
        });
    }

    /// Waits for a spawner whose line is closed; reaps it if it is ours.
    fn shut_down(&mut self, spawner: &Zygote) {
        let deadline = Instant::now() + LEAVE_LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(&spawner.pidfd, PollFlags::IN)];
            let timeout = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            match rustix::event::poll(&mut fds, Some(&timeout)) {
                Ok(0) if left.is_zero() => {
                    // The programs go with it: see PR_SET_PDEATHSIG in `sys`.
                    let kill = rustix::process::Signal::KILL;
                    let _ = rustix::process::pidfd_send_signal(&spawner.pidfd, kill);
                    break;
                }
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => break,
            }
        }
        let _ = rustix::process::waitid(
            rustix::process::WaitId::PidFd(spawner.pidfd.as_fd()),
            rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOHANG,
        );
    }
}

/// Kills a spawner that does not answer, and with it its programs: see `PR_SET_PDEATHSIG` in `sys`.
/// Returns the name and the sentence for the log.
fn kill(spawner: &Zygote, silence: Duration) -> (String, String) {
    let (pid, silence) = (spawner.pid, silence.as_secs_f64());
    let kill = rustix::process::Signal::KILL;
    let text = match rustix::process::pidfd_send_signal(&spawner.pidfd, kill) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => format!(
            "the spawner (pid {pid}) did not answer for {silence} s and is killed, its programs with it"
        ),
        Err(error) => format!(
            "the spawner (pid {pid}) did not answer for {silence} s and cannot be killed ({error}): end it, and its programs end, too"
        ),
    };
    ("SpawnerStuck".to_owned(), text)
}

/// Passes on what the spawner reports of a process; `false` for a second start, which cannot be.
/// Nothing is passed on after a process's end: a spawner, which runs as the pool's user, could otherwise
/// fill our memory or have us ask a program again and again.
fn report_fate(processes: &mut HashMap<u64, ProcessWatcher>, id: u64, fate: Fate) -> bool {
    let Some(heard) = processes.get_mut(&id) else {
        // Nobody waits any more.
        return true;
    };
    let is_start = matches!(fate, Fate::Started(_));
    if is_start && std::mem::replace(&mut heard.started, true) {
        return false;
    }
    let _ = heard.fates.send(fate);
    if !is_start {
        processes.remove(&id);
    }
    true
}

fn protocol_error(what: &str) -> (String, String) {
    let text = format!("the spawner reported {what}; it is killed and replaced");
    ("SpawnerProtocolError".to_owned(), text)
}

enum SpawnerMessage {
    SpawnerReport(SpawnerReport),
    Malformed,
    Nothing,
    Closed,
}

fn receive(control: &OwnedFd) -> SpawnerMessage {
    let mut packet = [0; 8 * 1024];
    let got =
        rustix::io::retry_on_intr(|| rustix::net::recv(control, &mut packet, RecvFlags::DONTWAIT));
    let length = match got {
        Ok((_, length)) if length > 0 => length.min(packet.len()),
        Err(rustix::io::Errno::AGAIN) => return SpawnerMessage::Nothing,
        Ok(_) | Err(_) => return SpawnerMessage::Closed,
    };
    match SpawnerReport::parse(&packet[..length]) {
        Some(report) => SpawnerMessage::SpawnerReport(report),
        None => SpawnerMessage::Malformed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_starts_once_and_after_its_end_nothing_is_told_of_it() {
        let (fates, mut told) = mpsc::unbounded_channel();
        let watcher = ProcessWatcher {
            fates,
            started: false,
        };
        let mut processes = HashMap::from([(7, watcher)]);
        assert!(report_fate(&mut processes, 7, Fate::Started(42)));
        assert!(!report_fate(&mut processes, 7, Fate::Started(42)));
        assert!(report_fate(&mut processes, 7, Fate::Exited(Exit::Code(0))));
        for _ in 0..3 {
            assert!(report_fate(&mut processes, 7, Fate::Exited(Exit::Code(0))));
            assert!(report_fate(&mut processes, 8, Fate::Started(1)));
        }
        assert_eq!(told.try_recv(), Ok(Fate::Started(42)));
        assert_eq!(told.try_recv(), Ok(Fate::Exited(Exit::Code(0))));
        assert!(told.try_recv().is_err());
    }
}
