//! The fronts of programs before an upgrade. Each serves until the new front does, then finishes its requests and
//! exits. They are never started again.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use howdah_server::cache::admin::AdminCommand;

use super::process::kill;
use super::unconfirmed_writes::UnconfirmedWrites;
use super::{FRONT_EXIT_TIMEOUT, print_message};
use crate::process_channel::{ProcessChannel, ReceiveOutcome, ToFront, ToMaster, read_text};

/// The maximum number of messages of one front that are received in one turn.
const MAX_MESSAGES_PER_TURN: usize = 64;

/// A front of a previous program.
pub struct Predecessor {
    /// Its process id.
    pub pid: i32,
    /// The channel to the front.
    pub link: ProcessChannel,
    /// Whether the front has closed the channel. SIGCHLD follows when it has exited.
    hung_up: bool,
    /// When the front is killed if it has not exited; `None` while it serves because the new front does not yet.
    deadline: Option<Instant>,
}

/// All fronts of previous programs that are still running.
#[derive(Default)]
pub struct Predecessors {
    fronts: Vec<Predecessor>,
}

impl Predecessors {
    /// Adds a front.
    pub fn add(&mut self, pid: i32, link: ProcessChannel) {
        self.fronts.push(Predecessor {
            pid,
            link,
            hung_up: false,
            deadline: None,
        });
    }

    /// Returns whether all fronts have exited.
    pub fn is_empty(&self) -> bool {
        self.fronts.is_empty()
    }

    /// Iterates over the fronts that are still running.
    pub fn iter(&self) -> impl Iterator<Item = &Predecessor> {
        self.fronts.iter()
    }

    /// Returns the descriptors to poll.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let talking = self.fronts.iter().filter(|front| !front.hung_up);
        talking.map(|front| front.link.fd())
    }

    /// Returns when the next front is killed if it has not exited.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.fronts.iter().filter_map(|front| front.deadline).min()
    }

    /// Asks all fronts to finish their requests within this time and to exit. `followed` says whether the new front
    /// serves.
    pub fn stop(&mut self, limit: Duration, followed: bool) {
        let message = ToFront::Stop {
            limit: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            followed,
        };
        let deadline = Instant::now() + limit + FRONT_EXIT_TIMEOUT;
        for front in &mut self.fronts {
            front.deadline = Some(front.deadline.map_or(deadline, |at| at.min(deadline)));
            // A front that accepts no messages is killed when the time is over.
            let _ = front.link.send_now(&message, &[]);
        }
    }

    /// Kills the fronts whose time is over.
    pub fn kill_overdue(&mut self, now: Instant) {
        for front in &mut self.fronts {
            if front.deadline.take_if(|at| now >= *at).is_some() {
                print_message(format!(
                    "StopTimeout: the previous front (process {}) did not exit in time after the upgrade, so Howdah kills it",
                    front.pid
                ));
                kill(front.pid);
            }
        }
    }

    /// Kills all fronts.
    pub fn kill(&self) {
        self.fronts.iter().for_each(|front| kill(front.pid));
    }

    /// Returns whether the process that exited was one of these fronts.
    pub fn reaped(&mut self, pid: i32) -> bool {
        let before = self.fronts.len();
        self.fronts.retain(|front| front.pid != pid);
        self.fronts.len() < before
    }

    /// Receives the fronts' messages. The purges of their last scripts are put into `unnoted`.
    pub fn receive(&mut self, unnoted: &mut UnconfirmedWrites) {
        for front in &mut self.fronts {
            for _ in 0..MAX_MESSAGES_PER_TURN {
                if front.hung_up {
                    break;
                }
                match front.link.receive_now::<ToMaster>() {
                    ReceiveOutcome::Nothing => break,
                    ReceiveOutcome::Closed => front.hung_up = true,
                    ReceiveOutcome::Message(message, fds) => {
                        front.handle_message(message, fds, unnoted)
                    }
                }
            }
        }
    }

    /// Confirms to this process that the new front has applied its purges up to this number.
    pub fn confirm(&self, pid: i32, number: u64) {
        if let Some(front) = self.fronts.iter().find(|front| front.pid == pid) {
            // A front that accepts no messages waits until it is killed.
            let _ = front.link.send_now(&ToFront::Carried { number }, &[]);
        }
    }
}

impl Predecessor {
    fn handle_message(
        &self,
        message: ToMaster,
        fds: Vec<OwnedFd>,
        unnoted: &mut UnconfirmedWrites,
    ) {
        match message {
            ToMaster::Purged { number } => {
                let text = fds.into_iter().next().and_then(|fd| read_text(fd).ok());
                let purges = text.and_then(|text| serde_json::from_str(&text).ok());
                // A message that cannot be read may purge anything, so everything is purged.
                let purges = purges.unwrap_or_else(|| vec![String::new()]);
                unnoted.add_report(AdminCommand::Relayed { purges }, (self.pid, number));
            }
            ToMaster::Launch { id, .. } => {
                let message = "a new program has taken over in an upgrade".to_owned();
                let _ = self
                    .link
                    .send_now(&ToFront::NotLaunched { id, message }, &[]);
            }
            // Other messages were meant for the master before the upgrade.
            _ => {}
        }
    }
}
