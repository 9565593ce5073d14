//! The thread that starts a spawner, restarts it when it exits, and reads its reports.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use howdah_os::descriptors::packet_socket_pair;
use howdah_proto::level::LogLevel;
use howdah_proto::spawner::{MAX_PACKET_BYTES, SpawnerCommand, SpawnerReport};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::RecvFlags;

use super::{ProcessEvent, SpawnRefused, SpawnerClient};
use crate::common::condition::PoolCondition;
use crate::common::output::ProcessOutput;
use crate::common::pm::Backoff;
use crate::launch::{LaunchedProcess, Launcher, SpawnerFds};
use crate::programs::heartbeat::{Heartbeat, HeartbeatAction};

/// How long a spawner may take to start. To execute it and to check the program takes milliseconds.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// If a spawner lived longer than this, its start was not the reason for its exit.
const STEADY_AFTER: Duration = Duration::from_secs(10);
/// How long a spawner may take to terminate its programs after its socket is closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// The thread that keeps a spawner running.
pub(super) struct ClientThread {
    pub(super) client: Arc<SpawnerClient>,
    pub(super) silence: Duration,
    pub(super) outputs: Vec<ProcessOutput>,
    /// Whether the current spawner has started a program, which shows that it works.
    pub(super) has_started_program: bool,
}

impl ClientThread {
    pub(super) fn run(mut self, launcher: &dyn Launcher) {
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
            let was_ready = *self.client.condition.borrow() == PoolCondition::Ready;
            if self.has_started_program || since.elapsed() >= STEADY_AFTER {
                backoff.record_success();
            }
            // If a spawner could be started before, requests wait for the next one, as in mode `embed`. The state
            // changes before the line is logged, so code that waits for the line never sees the state of the dead
            // spawner.
            let next = match was_ready {
                true => PoolCondition::Starting,
                false => PoolCondition::Down {
                    name: name.clone(),
                    message: message.clone(),
                },
            };
            self.client.condition.send_replace(next);
            let complaint = format!("{name}: {message}");
            if was_ready || complaint != last_complaint {
                let text = format!("{message} (retrying until it succeeds)");
                self.client.log_event(LogLevel::Error, &name, &text);
                last_complaint = complaint;
            }
            // The restart is immediate if the spawner has worked, and delayed more and more if spawners exit repeatedly
            // without having worked.
            let pause = backoff.record_failure() - Duration::from_millis(100);
            self.pause(pause.max(Duration::from_millis(if was_ready { 0 } else { 100 })));
        }
        self.read_outputs();
        self.client.condition.send_replace(PoolCondition::Closed);
    }

    fn closing(&self) -> bool {
        self.client.closing.load(Ordering::Acquire)
    }

    fn launch(&mut self, launcher: &dyn Launcher) -> io::Result<(LaunchedProcess, OwnedFd)> {
        let (ours, theirs) = packet_socket_pair()?;
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&read, true)?;
        // Several frames of the maximum length fit without waiting.
        rustix::net::sockopt::set_socket_send_buffer_size(&ours, 4 * MAX_PACKET_BYTES)?;
        let fds = SpawnerFds {
            control: theirs,
            stderr: write,
        };
        let spawner = launcher.launch_spawner(&self.client.mode, fds)?;
        self.outputs.push(ProcessOutput::new(read));
        Ok((spawner, ours))
    }

    /// Communicates with one spawner until it fails (returns the name and the reason) or the client is closed (`None`).
    fn serve(&mut self, spawner: &LaunchedProcess, control: OwnedFd) -> Option<(String, String)> {
        let link = self.client.clone();
        let control = Arc::new(control);
        let deadline = Instant::now() + START_TIMEOUT;
        self.has_started_program = false;
        let mut ready = false;
        let mut heartbeat = Heartbeat::new(self.silence, Instant::now());
        let why = loop {
            if self.closing() {
                break None;
            }
            let mut wait = Duration::from_secs(1);
            if ready {
                wait = match heartbeat.action_at(Instant::now()) {
                    HeartbeatAction::Wait(left) => left,
                    HeartbeatAction::Ask => {
                        // A full socket also means that the spawner does not read it.
                        let _ = link.send(&SpawnerCommand::Ping, &[]);
                        continue;
                    }
                    HeartbeatAction::Stuck => break Some(kill(spawner, self.silence)),
                };
            }
            if !ready && Instant::now() >= deadline {
                let text = format!(
                    "the spawner was not ready within {} s",
                    START_TIMEOUT.as_secs()
                );
                break Some(("StartTimeout".to_owned(), text));
            }
            let full = self.send_deferred();
            self.sleep(&control, full, wait);
            self.read_outputs();
            let received = receive(&control);
            if let SpawnerMessage::SpawnerReport(_) = received {
                heartbeat.record_message(Instant::now());
            }
            match received {
                SpawnerMessage::Nothing => {}
                SpawnerMessage::Closed => {
                    let pid = spawner.pid;
                    let text =
                        format!("the spawner (pid {pid}) exited, and its programs were killed");
                    break Some(("SpawnerDied".to_owned(), text));
                }
                SpawnerMessage::SpawnerReport(SpawnerReport::Ready) => {
                    ready = true;
                    *link.control() = Some(control.clone());
                    link.condition.send_replace(PoolCondition::Ready);
                }
                SpawnerMessage::SpawnerReport(report) => {
                    if let Err(why) = self.on_report(report) {
                        break Some(why);
                    }
                }
                SpawnerMessage::Malformed => {
                    break Some(protocol_error("a message that cannot be parsed"));
                }
            }
        };
        *link.control() = None;
        link.deferred().clear();
        // The end of the streams tells their receivers that no spawner manages the processes any more.
        link.processes().clear();
        let _ = rustix::net::shutdown(&control, rustix::net::Shutdown::Both);
        why
    }

    /// Handles a report. Returns an error if the spawner must be replaced.
    fn on_report(&mut self, report: SpawnerReport) -> Result<(), (String, String)> {
        match report {
            SpawnerReport::Failed { name, message } => return Err((name, message)),
            SpawnerReport::Started { id, pid } => {
                self.has_started_program = true;
                if !self.client.report_event(id, ProcessEvent::Started(pid)) {
                    return Err(protocol_error("two reports that the same process started"));
                }
            }
            SpawnerReport::NotStarted { id, errno } => {
                self.client
                    .report_event(id, ProcessEvent::NotStarted(errno));
            }
            SpawnerReport::Exited { id, exit } => {
                self.client.report_event(id, ProcessEvent::Exited(exit));
            }
            SpawnerReport::Ready | SpawnerReport::Pong => {}
        }
        Ok(())
    }

    /// Sends the commands for which the socket was full. Returns whether it is still full.
    fn send_deferred(&self) -> bool {
        let mut late = std::mem::take(&mut *self.client.deferred()).into_iter();
        while let Some(command) = late.next() {
            if self.client.send(&command, &[]) == Err(SpawnRefused::Busy) {
                let mut kept = self.client.deferred();
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
            PollFd::new(&self.client.bell, PollFlags::IN),
        ];
        let pipes: Vec<_> = self.outputs.iter().map(ProcessOutput::pipe).collect();
        fds.extend(pipes.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        // Rounded up: waking slightly too early would only spin.
        let wait = wait + Duration::from_millis(1);
        let timeout = Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        let _ = rustix::event::poll(&mut fds, Some(&timeout));
        crate::common::sys::drain_bell(self.client.bell.as_fd());
    }

    fn pause(&self, pause: Duration) {
        let until = Instant::now() + pause;
        while !self.closing() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let mut fds = [PollFd::new(&self.client.bell, PollFlags::IN)];
            let timeout = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let _ = rustix::event::poll(&mut fds, Some(&timeout));
            crate::common::sys::drain_bell(self.client.bell.as_fd());
        }
    }

    fn read_outputs(&mut self) {
        let link = &self.client;
        self.outputs.retain_mut(|output| {
            output.take(|line| link.log_event(LogLevel::Notice, "ProcessOutput", line))
        });
    }

    /// Waits for the exit of a spawner whose socket is closed, and reaps the spawner if it is a child of this process.
    fn shut_down(&mut self, spawner: &LaunchedProcess) {
        let deadline = Instant::now() + EXIT_TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(&spawner.pidfd, PollFlags::IN)];
            let timeout = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            match rustix::event::poll(&mut fds, Some(&timeout)) {
                Ok(0) if left.is_zero() => {
                    // The programs die with it, by the `PR_SET_PDEATHSIG` that
                    // `howdah_os::descriptors::exit_with_parent` sets.
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

/// Kills a spawner that does not respond, and with it its programs, by the `PR_SET_PDEATHSIG` that
/// `howdah_os::descriptors::exit_with_parent` sets. Returns the name and the sentence for the log.
fn kill(spawner: &LaunchedProcess, silence: Duration) -> (String, String) {
    let (pid, silence) = (spawner.pid, silence.as_secs_f64());
    let kill = rustix::process::Signal::KILL;
    let text = match rustix::process::pidfd_send_signal(&spawner.pidfd, kill) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => format!(
            "the spawner (pid {pid}) did not respond for {silence} s, so Howdah kills it together with its programs"
        ),
        Err(error) => format!(
            "the spawner (pid {pid}) did not respond for {silence} s and cannot be killed ({error}): kill it by hand, which also ends its programs"
        ),
    };
    ("SpawnerStuck".to_owned(), text)
}

fn protocol_error(what: &str) -> (String, String) {
    let text = format!("the spawner sent {what}; the spawner is killed and replaced");
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
