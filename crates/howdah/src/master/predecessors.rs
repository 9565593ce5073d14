//! The fronts of programs before an upgrade: each serves until the new front does, then finishes its requests
//! and ends. None is started again.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use howdah_server::cache::admin::AdminCommand;

use super::process::kill;
use super::unnoted::Unnoted;
use super::{LEAVING, say};
use crate::link::{Link, Received, ToFront, ToMaster, read_text};

/// Messages of one taken at once.
const MESSAGES: usize = 64;

/// A front of a program before.
pub struct Predecessor {
    /// Its process id.
    pub pid: i32,
    /// The line to it.
    pub link: Link,
    /// It has closed the line: SIGCHLD shows the rest.
    hung_up: bool,
    /// It is to have ended by then; none: it serves until the new front does.
    deadline: Option<Instant>,
}

/// See the module.
#[derive(Default)]
pub struct Predecessors {
    all: Vec<Predecessor>,
}

impl Predecessors {
    /// One more.
    pub fn add(&mut self, pid: i32, link: Link) {
        self.all.push(Predecessor {
            pid,
            link,
            hung_up: false,
            deadline: None,
        });
    }

    /// All have ended.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Those that are there.
    pub fn iter(&self) -> impl Iterator<Item = &Predecessor> {
        self.all.iter()
    }

    /// To wait on.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let talking = self.all.iter().filter(|front| !front.hung_up);
        talking.map(|front| front.link.fd())
    }

    /// When one that has not ended is killed.
    pub fn wake(&self) -> Option<Instant> {
        self.all.iter().filter_map(|front| front.deadline).min()
    }

    /// Has them finish what they have within this time, and end; `followed`: the new front serves.
    pub fn stop(&mut self, limit: Duration, followed: bool) {
        let message = ToFront::Stop {
            limit: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            followed,
        };
        let deadline = Instant::now() + limit + LEAVING;
        for front in &mut self.all {
            front.deadline = Some(front.deadline.map_or(deadline, |at| at.min(deadline)));
            // One that takes no messages is killed when the time is over.
            let _ = front.link.send_now(&message, &[]);
        }
    }

    /// Kills those whose time is over.
    pub fn act(&mut self, now: Instant) {
        for front in &mut self.all {
            if front.deadline.take_if(|at| now >= *at).is_some() {
                say(format!(
                    "StopTimeout: the front before the upgrade (process {}) did not leave in time and is killed",
                    front.pid
                ));
                kill(front.pid);
            }
        }
    }

    /// Kills all.
    pub fn kill(&self) {
        self.all.iter().for_each(|front| kill(front.pid));
    }

    /// Whether the process that ended was one of them.
    pub fn reaped(&mut self, pid: i32) -> bool {
        let before = self.all.len();
        self.all.retain(|front| front.pid != pid);
        self.all.len() < before
    }

    /// Takes what they say: what their last scripts purge is put into `unnoted`.
    pub fn hear(&mut self, unnoted: &mut Unnoted) {
        for front in &mut self.all {
            for _ in 0..MESSAGES {
                if front.hung_up {
                    break;
                }
                match front.link.receive_now::<ToMaster>() {
                    Received::Nothing => break,
                    Received::Closed => front.hung_up = true,
                    Received::Message(message, fds) => front.take(message, fds, unnoted),
                }
            }
        }
    }

    /// The front has noted what this process has passed on, up to this number.
    pub fn noted(&self, pid: i32, number: u64) {
        if let Some(front) = self.all.iter().find(|front| front.pid == pid) {
            // One that takes no messages waits until it is killed.
            let _ = front.link.send_now(&ToFront::Carried { number }, &[]);
        }
    }
}

impl Predecessor {
    fn take(&self, message: ToMaster, fds: Vec<OwnedFd>, unnoted: &mut Unnoted) {
        match message {
            ToMaster::Purged { number } => {
                let text = fds.into_iter().next().and_then(|fd| read_text(fd).ok());
                let purges = text.and_then(|text| serde_json::from_str(&text).ok());
                // What cannot be read may be anything.
                let purges = purges.unwrap_or_else(|| vec![String::new()]);
                unnoted.put(AdminCommand::Relayed { purges }, (self.pid, number));
            }
            ToMaster::Launch { id, .. } => {
                let message = "another program serves since the upgrade".to_owned();
                let _ = self
                    .link
                    .send_now(&ToFront::NotLaunched { id, message }, &[]);
            }
            // What it says to the master that it had.
            _ => {}
        }
    }
}
