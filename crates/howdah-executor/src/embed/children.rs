//! The children of a pool as its supervisor sees them: each has one state and occupies a row of the scoreboard. This
//! module sends no signals and makes no decisions.

use std::os::fd::OwnedFd;
use std::time::Instant;

use howdah_proto::shm::ChildId;
use strum::IntoStaticStr;

/// The state of a child. For a `Serving` child, the scoreboard distinguishes `Idle` and `Busy`.
#[derive(Debug, IntoStaticStr)]
pub(crate) enum ChildState {
    /// The zygote has been asked to fork the child.
    Starting,
    /// A worker whose script is running and has not asked for a request yet.
    Booting,
    /// The child accepts requests.
    Serving {
        /// When the child was last seen to be busy.
        idle_since: Instant,
        /// The number of requests that it had finished at the last check.
        seen_requests: u64,
        /// The replacement that has been ordered. The child retires once the replacement serves.
        replaced_by: Option<ChildId>,
    },
    /// The child has been asked to exit when it is idle.
    Retiring,
    /// The child has been sent SIGTERM, and will be sent SIGKILL.
    Terminating {
        /// When to send SIGKILL; `None` after it was sent.
        kill_at: Option<Instant>,
        /// The name of the reason in the log and in the failed request.
        why: &'static str,
    },
}

/// A child of the pool, from the command to fork it until it has been reaped.
#[derive(Debug)]
pub(crate) struct PoolChild {
    pub id: ChildId,
    /// The process id; 0 until the zygote has reported the fork.
    pub pid: i32,
    /// The descriptor from the zygote's report of the fork; `None` before that.
    pub pidfd: Option<OwnedFd>,
    /// The number of the zygote that forked it.
    pub generation: u64,
    pub state: ChildState,
    pub since: Instant,
    pub born: Instant,
    /// When its process was found to have exited although the zygote has not reported it.
    pub died: Option<Instant>,
}

/// The pool's children by scoreboard row, and the last incarnation of each row.
#[derive(Debug)]
pub(crate) struct Children {
    rows: Vec<Option<PoolChild>>,
    incarnations: Vec<u16>,
}

impl Children {
    pub fn new(rows: u32) -> Children {
        Children {
            rows: (0..rows).map(|_| None).collect(),
            incarnations: vec![0; rows as usize],
        }
    }

    /// Takes the lowest free row for a child that is about to be forked. Low rows are woken first, so work concentrates
    /// on few warm processes. Returns `None` if all rows are taken.
    pub fn reserve_row(&mut self, generation: u64, now: Instant) -> Option<ChildId> {
        let index = self.rows.iter().position(Option::is_none)?;
        self.incarnations[index] = self.incarnations[index].wrapping_add(1);
        let id = ChildId {
            index: index as u16,
            incarnation: self.incarnations[index],
        };
        self.rows[index] = Some(PoolChild {
            id,
            pid: 0,
            pidfd: None,
            generation,
            state: ChildState::Starting,
            since: now,
            born: now,
            died: None,
        });
        Some(id)
    }

    /// Returns the child, if it still exists.
    pub fn get(&mut self, id: ChildId) -> Option<&mut PoolChild> {
        self.rows
            .get_mut(id.index as usize)?
            .as_mut()
            .filter(|c| c.id == id)
    }

    /// Frees the child's row. Returns `None` if the child no longer exists.
    pub fn remove(&mut self, id: ChildId) -> Option<PoolChild> {
        self.get(id)?;
        self.rows[id.index as usize].take()
    }

    pub fn iter(&self) -> impl Iterator<Item = &PoolChild> {
        self.rows.iter().flatten()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut PoolChild> {
        self.rows.iter_mut().flatten()
    }

    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

impl ChildState {
    /// Returns the state of a child that accepts requests from `now` on.
    pub fn serving(now: Instant) -> ChildState {
        ChildState::Serving {
            idle_since: now,
            seen_requests: 0,
            replaced_by: None,
        }
    }
}

impl PoolChild {
    /// Changes the child's state, beginning at `now`.
    pub fn set_state(&mut self, life: ChildState, now: Instant) {
        self.state = life;
        self.since = now;
    }
}
