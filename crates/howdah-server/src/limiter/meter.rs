//! What is counted of one limit: the same over reloads that do not change it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Limit;
use super::places::Places;
use crate::tally::Tally;

/// Who may wait for a PHP process: how many requests, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub most: usize,
    pub longest: Duration,
}

impl Patience {
    /// Of a client: a browser asks for a page's parts at once.
    pub const OF_A_CLIENT: Patience = Patience {
        most: 64,
        longest: Duration::from_secs(10),
    };
    /// Of all that have left scripts running, together: as a pool's queue has by default.
    pub const OF_LEAVERS: Patience = Patience {
        most: 1024,
        longest: Duration::from_secs(30),
    };
}

/// By what a meter is found again after a reload. A limit of another text is another limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MeterName {
    /// The site's name.
    pub site: String,
    /// The rule's paths and its limit.
    pub text: String,
    /// The how many-th of this text in the site.
    pub number: usize,
}

/// What is counted of one limit.
#[derive(Debug)]
pub struct Meter {
    /// The limit.
    pub limit: Arc<Limit>,
    /// Unlike that of all other meters of the process.
    pub(super) id: u64,
    /// Its clients' requests in progress, if the limit is about them.
    pub(super) connections: Option<Arc<Places>>,
    /// Those that have PHP processes, or wait for one, if it is about them.
    pub(super) processes: Option<Arc<Places>>,
    /// How long these may wait.
    pub longest_wait: Duration,
    /// Requests refused.
    pub(super) refused: Tally,
}

impl Meter {
    pub(super) fn new(limit: Arc<Limit>, patience: Patience) -> Meter {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Meter {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            connections: limit.connections.map(|most| Places::new(most, 0)),
            processes: limit.processes.map(|most| Places::new(most, patience.most)),
            longest_wait: patience.longest,
            limit,
            refused: Tally::default(),
        }
    }

    /// Its number, unlike that of all others.
    pub fn number(&self) -> u64 {
        self.id
    }

    /// Clients' requests that wait for a PHP process.
    pub fn waiting(&self) -> u64 {
        let processes = self.processes.as_ref();
        processes.map_or(0, |places| places.count().1)
    }

    /// How many requests were refused.
    pub fn refused(&self) -> u64 {
        self.refused.sum()
    }
}
