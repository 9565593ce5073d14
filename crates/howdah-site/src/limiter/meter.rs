//! The counters of one limit, which are kept over reloads that do not change it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::ClientLimit;
use super::permits::ClientPermits;
use crate::sharded_counter::ShardedCounter;

/// How many requests may wait for a PHP process, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitLimits {
    pub max_waiting: usize,
    pub max_wait: Duration,
}

impl WaitLimits {
    /// The limits for one client. They allow for browsers, which request all parts of a page at once.
    pub const PER_CLIENT: WaitLimits = WaitLimits {
        max_waiting: 64,
        max_wait: Duration::from_secs(10),
    };
    /// The limits for all clients together that disconnected while their scripts were running: the defaults of a pool's
    /// queue.
    pub const ABANDONED_SCRIPTS: WaitLimits = WaitLimits {
        max_waiting: 1024,
        max_wait: Duration::from_secs(30),
    };
}

/// The identity of a meter across reloads. A limit with another text is a different limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MeterName {
    /// The site's name.
    pub site: String,
    /// The rule's paths and its limit.
    pub text: String,
    /// The position among the site's limits with the same text, from 0.
    pub number: usize,
}

/// The counters of one limit.
#[derive(Debug)]
pub struct Meter {
    /// The limit.
    pub limit: Arc<ClientLimit>,
    /// A number that no other meter of the process has.
    pub id: u64,
    /// The permits of clients' requests in progress, if the limit restricts their number.
    pub(super) connections: Option<Arc<ClientPermits>>,
    /// The permits of requests that have or wait for a PHP process, if the limit restricts their number.
    pub(super) processes: Option<Arc<ClientPermits>>,
    /// How long a request may wait for a PHP process.
    pub max_wait: Duration,
    /// The number of refused requests.
    pub(super) refused: ShardedCounter,
}

impl Meter {
    pub(super) fn new(limit: Arc<ClientLimit>, patience: WaitLimits) -> Meter {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Meter {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            connections: limit.connections.map(|most| ClientPermits::new(most, 0)),
            processes: limit
                .processes
                .map(|most| ClientPermits::new(most, patience.max_waiting)),
            max_wait: patience.max_wait,
            limit,
            refused: ShardedCounter::default(),
        }
    }

    /// Returns how many requests wait for a PHP process.
    pub fn waiting(&self) -> u64 {
        let processes = self.processes.as_ref();
        processes.map_or(0, |places| places.taken_and_waiting().1)
    }

    /// Returns how many requests were refused.
    pub fn refused(&self) -> u64 {
        self.refused.sum()
    }
}
