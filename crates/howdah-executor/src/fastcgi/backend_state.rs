//! One backend: its limit of requests, its kept connections and its counters. Only [`super::balance`] and
//! [`super::health`] change it.

use std::time::{Duration, Instant};

/// A new connection that has been silent for this long may be waiting for a process that a kept connection occupies.
pub const SILENT_AFTER: Duration = Duration::from_millis(100);
/// The initial value of a limit that is not known. It is small enough for any backlog.
pub(super) const FIRST_LIMIT: u32 = 16;
/// The maximum value of a limit that is not known. More than php-fpm's `listen.backlog` of 511 gains nothing.
pub(super) const MAX_LIMIT: u32 = 512;
/// The time in which the limit grows by one after an overflow.
const GROWTH_INTERVAL: Duration = Duration::from_secs(1);

/// How many requests a backend is given at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendLimit {
    /// The current maximum number of requests that the backend is given at once.
    pub now: u32,
    /// Whether the limit is configured or was reported by the backend. Connections are kept only if it is.
    pub known: bool,
    /// Whether the limit is configured. Reports of the backend do not change a configured limit.
    pub(super) configured: bool,
    /// Whether the limit grows with each response. It does until the backlog overflows for the first time.
    grows_with_each_response: bool,
    grown: Option<Instant>,
}

impl BackendLimit {
    pub(super) fn new(configured: Option<u32>) -> BackendLimit {
        BackendLimit {
            now: configured.unwrap_or(FIRST_LIMIT),
            known: configured.is_some(),
            configured: configured.is_some(),
            grows_with_each_response: true,
            grown: None,
        }
    }

    pub(super) fn record_response(&mut self, now: Instant) {
        let due = self
            .grown
            .is_none_or(|at| now.duration_since(at) >= GROWTH_INTERVAL);
        if !self.known && self.now < MAX_LIMIT && (self.grows_with_each_response || due) {
            self.now += 1;
            self.grown = Some(now);
        }
    }

    pub(super) fn record_overflow(&mut self, now: Instant, busy: u32) {
        if !self.known {
            self.now = (busy * 3 / 4).clamp(1, self.now.max(1));
            self.grows_with_each_response = false;
            self.grown = Some(now);
        }
    }
}

/// Whether a backend is reachable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendHealth {
    /// The backend is assumed to be reachable, since no attempt has shown otherwise.
    Up,
    /// The backend was not reachable, or its responses were invalid.
    Down {
        /// When the backend was found to be down.
        since: Instant,
        /// When the next attempt to reach it is due.
        probe_at: Instant,
        /// The delay between the last attempt and the next one.
        interval: Duration,
        /// The error of the last attempt.
        why: String,
    },
}

/// One backend, as the balance sees it.
#[derive(Debug)]
pub struct BackendState<C> {
    pub(super) weight: u32,
    /// The number of requests that have been granted and not released.
    pub busy: u32,
    /// Connections without a request, by front thread, the most recent last.
    pub(super) kept: Vec<Vec<(C, Instant)>>,
    /// Number of connections in `kept`.
    pub kept_count: u32,
    /// How many requests the backend may be given at once.
    pub limit: BackendLimit,
    /// Whether the backend is reachable.
    pub health: BackendHealth,
    /// New connections without a response yet, by the number of their request. They are recorded only if connections to
    /// this backend may be kept.
    pub(super) silent: Vec<(u64, Instant)>,
    pub(super) failures_in_a_row: u32,
    /// The number of correct responses from the backend.
    pub served: u64,
    /// The number of connections that have been opened to the backend.
    pub connects: u64,
    /// The number of failed attempts: connecting failed, or the response broke off or was invalid.
    pub failures: u64,
    /// How often the backend's backlog was full.
    pub overflows: u64,
    /// Whether the backend gets requests. This is always true in a pool without a supervisor
    /// ([`super::balance::Balance::set_supervised`]).
    pub open: bool,
    /// The number of requests that reached `request_terminate_timeout`.
    pub timeouts: u64,
    /// How many more requests the program behind the backend may be granted; `None` means any number. A request counts
    /// from the moment at which it is granted: if only its response counted, too many requests could be granted.
    pub quota: Option<u64>,
}

impl<C> BackendState<C> {
    pub(super) fn new(weight: u32, limit: Option<u32>, fronts: usize) -> BackendState<C> {
        BackendState {
            weight: weight.max(1),
            busy: 0,
            kept: (0..fronts).map(|_| Vec::new()).collect(),
            kept_count: 0,
            limit: BackendLimit::new(limit),
            health: BackendHealth::Up,
            silent: Vec::new(),
            failures_in_a_row: 0,
            served: 0,
            connects: 0,
            failures: 0,
            overflows: 0,
            open: true,
            timeouts: 0,
            quota: None,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.health == BackendHealth::Up
    }

    pub(super) fn has_room(&self) -> bool {
        self.open && self.is_up() && self.busy < self.limit.now && self.quota != Some(0)
    }

    /// Takes the most recent kept connection of this thread.
    pub(super) fn take_kept(&mut self, front: usize) -> Option<C> {
        let own = self.kept[front].pop();
        let taken = own.map(|(connection, _)| connection)?;
        self.kept_count -= 1;
        Some(taken)
    }

    /// Takes the connection that has been idle longest, of any thread.
    pub(super) fn take_oldest(&mut self) -> Option<C> {
        let oldest = self.kept.iter_mut().filter(|list| !list.is_empty());
        let list = oldest.min_by_key(|list| list[0].1)?;
        self.kept_count -= 1;
        Some(list.remove(0).0)
    }

    pub(super) fn is_starving(&self, now: Instant) -> bool {
        let long = |(_, since): &(u64, Instant)| now.duration_since(*since) >= SILENT_AFTER;
        self.silent.iter().any(long)
    }
}
