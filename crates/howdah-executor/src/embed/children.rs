//! The children of a pool as its supervisor knows them: one state each, and the rows of the
//! scoreboard they occupy. Sends no signals and makes no decisions.

use std::os::fd::OwnedFd;
use std::time::Instant;

use howdah_proto::shm::ChildId;
use strum::IntoStaticStr;

/// The state of a child. `Idle` and `Busy` are what the scoreboard says of a `Serving` one.
#[derive(Debug, IntoStaticStr)]
pub(crate) enum Life {
    /// The zygote has been asked to fork the child.
    Starting,
    /// A worker whose script runs and has not asked for a request yet.
    Booting,
    /// The child takes requests.
    Serving {
        /// When the child was last seen to be busy.
        idle_since: Instant,
        /// Number of requests it had finished at the last look.
        seen_requests: u64,
        /// The replacement that has been asked for; the child retires once it serves.
        replaced_by: Option<ChildId>,
    },
    /// The child has been asked to leave when it is idle.
    Retiring,
    /// Has been sent SIGTERM; SIGKILL follows at that time, if it has not before.
    Terminating {
        /// When to send SIGKILL; `None` when it was sent.
        kill_at: Option<Instant>,
        /// The name of the reason, as the log and the failed request give it.
        why: &'static str,
    },
}

/// A child of the pool, from the command to fork it until it has been reaped.
#[derive(Debug)]
pub(crate) struct Child {
    pub id: ChildId,
    /// Its process id; 0 until the zygote has reported the fork.
    pub pid: i32,
    /// The descriptor that came with the zygote's report of the fork; `None` before that.
    pub pidfd: Option<OwnedFd>,
    /// Number of the zygote that forked it.
    pub generation: u64,
    pub life: Life,
    pub since: Instant,
    pub born: Instant,
    /// When its process was seen to be gone although the zygote has not reported it.
    pub died: Option<Instant>,
}

/// The pool's children by scoreboard row, and the last incarnation of each row.
#[derive(Debug)]
pub(crate) struct Children {
    rows: Vec<Option<Child>>,
    incarnations: Vec<u16>,
}

impl Children {
    pub fn new(rows: u32) -> Children {
        Children {
            rows: (0..rows).map(|_| None).collect(),
            incarnations: vec![0; rows as usize],
        }
    }

    /// Takes the lowest free row for a child about to be forked: low rows are woken first, so
    /// work gathers on few warm processes. `None` when all rows are taken.
    pub fn begin(&mut self, generation: u64, now: Instant) -> Option<ChildId> {
        let index = self.rows.iter().position(Option::is_none)?;
        self.incarnations[index] = self.incarnations[index].wrapping_add(1);
        let id = ChildId {
            index: index as u16,
            incarnation: self.incarnations[index],
        };
        self.rows[index] = Some(Child {
            id,
            pid: 0,
            pidfd: None,
            generation,
            life: Life::Starting,
            since: now,
            born: now,
            died: None,
        });
        Some(id)
    }

    /// The child, if it still lives.
    pub fn get(&mut self, id: ChildId) -> Option<&mut Child> {
        self.rows
            .get_mut(id.index as usize)?
            .as_mut()
            .filter(|c| c.id == id)
    }

    /// Frees the child's row; `None` if it no longer lives.
    pub fn remove(&mut self, id: ChildId) -> Option<Child> {
        self.get(id)?;
        self.rows[id.index as usize].take()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Child> {
        self.rows.iter().flatten()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Child> {
        self.rows.iter_mut().flatten()
    }

    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

impl Life {
    /// The state of a child that takes requests from `now` on.
    pub fn serving(now: Instant) -> Life {
        Life::Serving {
            idle_since: now,
            seen_requests: 0,
            replaced_by: None,
        }
    }
}

impl Child {
    /// Puts the child into another state, which it is in since `now`.
    pub fn become_(&mut self, life: Life, now: Instant) {
        self.life = life;
        self.since = now;
    }
}
