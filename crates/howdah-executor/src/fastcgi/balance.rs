//! Assigns requests to backends: the queue, the limits, the kept connections. It decides from the values and times that
//! callers pass in. It connects nothing, reads no clock and calls no waker.
//!
//! A request is granted a backend, or waits in its client's line ([`FairQueue`]). Among the requests of the client
//! whose turn it is, one of the thread that released a backend goes first, so a kept connection stays with the runtime
//! that watches it. If the first request has waited noticeably longer ([`MAX_QUEUE_JUMP`]), it goes first instead. When
//! the queue is full, the newest request of the client with the most requests is refused in favour of a client that has
//! fewer.
//!
//! Limits. A FastCGI backend runs as many requests as it has processes. Further connections wait in the kernel's
//! backlog, whose overflow is an error (EAGAIN) or seconds of silence (TCP). Therefore requests wait here, and a
//! backend is given at most its limit. The limit is configured, or reported by the backend (`FCGI_MAX_CONNS` of
//! php-cgi), or found like a congestion window: it grows with each response while requests wait, and shrinks when the
//! backlog is full.
//!
//! Kept connections. Each one occupies a process of the backend, which does nothing else (`fcgi_read` of main/fastcgi.c
//! blocks without a timeout). Connections are kept only where the limit is known, and count towards it. While a new
//! connection gets no response, connections are closed instead of kept, because the backend may have fewer processes
//! than its limit says.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::backend_state::BackendHealth;
use super::backend_state::BackendState;
use super::ticket::{BackendGrant, BackendTicket};
use crate::common::fair_queue::{FairQueue, QueueClient};

/// How much longer than a request of the own thread another thread's request must have waited to go first.
const MAX_QUEUE_JUMP: Duration = Duration::from_millis(10);
/// How many requests of a line are searched for one of the own thread.
const MAX_SEARCHED_TICKETS: usize = 64;

/// The outcome for a request that asks for a backend.
#[derive(Debug)]
pub enum BackendAdmission<C> {
    /// The request can run now, on the granted backend.
    Granted(BackendGrant<C>),
    /// The request waits in line, and the ticket receives the grant.
    Waits(Arc<BackendTicket<C>>),
    /// The queue is full and the request is refused.
    Full,
}

/// The backends of a pool, and the requests that wait for them.
#[derive(Debug)]
pub struct Balance<C> {
    /// The backends, in the order of the configuration.
    pub backends: Vec<BackendState<C>>,
    queue: FairQueue<Arc<BackendTicket<C>>>,
    /// The highest number of requests that have waited at once.
    pub max_queued: u32,
    /// Requests that had to wait, since the start.
    pub total_waited: u64,
    /// The highest number of requests that have run at once.
    pub max_busy: u32,
    /// The backend at which the search begins, so equals take turns.
    next_backend: usize,
    /// How many more times in a row the search begins there: the weight of the backend.
    turns_left: u32,
    keep: bool,
    /// Whether a supervisor starts and ends the programs behind the backends ([`Balance::set_supervised`]).
    supervised: bool,
}

impl<C> Balance<C> {
    /// Creates a balance with a backend for each of `weights`. `limit` is the limit of each backend, if it is known.
    /// `keep` is whether connections may be kept.
    pub fn new(weights: &[u32], limit: Option<u32>, keep: bool, fronts: usize) -> Balance<C> {
        Balance {
            backends: weights
                .iter()
                .map(|weight| BackendState::new(*weight, limit, fronts))
                .collect(),
            queue: FairQueue::default(),
            max_queued: 0,
            total_waited: 0,
            max_busy: 0,
            next_backend: 0,
            turns_left: weights.first().copied().unwrap_or(1),
            keep,
            supervised: false,
        }
    }

    /// Records that a supervisor starts and ends the programs. Then no backend gets requests until it is opened, work
    /// concentrates on the first ones, and a backend that runs a single request at a time is closed when a request on
    /// it breaks off, since its program may still be running that request.
    pub fn set_supervised(&mut self) {
        self.supervised = true;
        for member in &mut self.backends {
            member.open = false;
        }
    }

    /// Lets the program behind the backend receive requests from now on.
    pub fn open_backend(&mut self, backend: usize, front: usize, wake: &mut Vec<Waker>) {
        self.backends[backend].open = true;
        self.backends[backend].failures_in_a_row = 0;
        self.grant_waiting(front, wake);
    }

    /// Stops sending requests to the backend. Returns its kept connections, which the caller must close.
    pub fn close_backend(&mut self, backend: usize) -> Vec<C> {
        let member = &mut self.backends[backend];
        member.open = false;
        member.kept_count = 0;
        let kept = member.kept.iter_mut().flat_map(std::mem::take);
        kept.map(|(connection, _)| connection).collect()
    }

    /// Records that a request on this backend ended early, whichever side ended it.
    pub fn record_break_off(&mut self, backend: usize) {
        let member = &mut self.backends[backend];
        if self.supervised && member.limit.now == 1 {
            member.open = false;
        }
    }

    /// Returns the number of requests that wait in line now.
    pub fn queued(&self) -> u32 {
        self.queue.len() as u32
    }

    /// Returns how long the oldest request in line has waited.
    pub fn waited(&self, now: Instant) -> Duration {
        self.queue
            .heads()
            .map(|first| now.saturating_duration_since(first.since))
            .max()
            .unwrap_or_default()
    }

    /// Returns the number of requests that run now, on all backends.
    pub fn busy(&self) -> u32 {
        self.backends.iter().map(|m| m.busy).sum()
    }

    /// Returns whether a request that goes to this backend now may leave its connection open.
    pub fn may_keep(&self, backend: usize) -> bool {
        self.keep && self.backends[backend].limit.known
    }

    /// Asks for a backend for a client's request on this thread. The request never overtakes those in line. If another
    /// request is refused to make room for it, that request's waker is added to `wake`.
    pub fn admit(
        &mut self,
        (front, client): (usize, QueueClient),
        fresh: bool,
        size: u32,
        now: Instant,
        wake: &mut Vec<Waker>,
    ) -> BackendAdmission<C> {
        if self.queue.is_empty()
            && let Some(grant) = self.choose(front, fresh, None)
        {
            return BackendAdmission::Granted(grant);
        }
        if self.queued() >= size && !self.make_room_for(client, wake) {
            return BackendAdmission::Full;
        }
        self.total_waited += 1;
        let ticket = BackendTicket::new((front, client), fresh, None, now);
        self.queue.push(client, ticket.clone());
        self.max_queued = self.max_queued.max(self.queued());
        BackendAdmission::Waits(ticket)
    }

    /// Refuses the newest request of the client with the most requests in line, if that client has more than this one
    /// would have. Returns whether it did.
    fn make_room_for(&mut self, client: QueueClient, wake: &mut Vec<Waker>) -> bool {
        let longest = self.queue.longest();
        let longest = longest.filter(|(_, length)| *length > self.queue.len_of(client) + 1);
        let Some(ticket) = longest.and_then(|(longest, _)| self.queue.pop_newest(longest)) else {
            return false;
        };
        let mut slot = ticket.state();
        slot.refused = true;
        wake.extend(slot.waker.take());
        true
    }

    /// Puts back a request whose granted backend did not accept it, before all others. `since` is when it was first
    /// queued.
    pub fn readmit(
        &mut self,
        (front, client): (usize, QueueClient),
        fresh: bool,
        avoid: Option<usize>,
        since: Instant,
    ) -> Arc<BackendTicket<C>> {
        let ticket = BackendTicket::new((front, client), fresh, avoid, since);
        self.queue.put_first(client, ticket.clone());
        self.max_queued = self.max_queued.max(self.queued());
        ticket
    }

    /// Returns whether another backend is up.
    pub fn another_is_up(&self, backend: usize) -> bool {
        let others = self.backends.iter().enumerate();
        others
            .filter(|(at, _)| *at != backend)
            .any(|(_, m)| m.open && m.is_up())
    }

    /// Removes a request from the line. Returns the grant that it may have received meanwhile.
    pub fn withdraw(&mut self, ticket: &Arc<BackendTicket<C>>) -> Option<BackendGrant<C>> {
        self.queue
            .remove(ticket.client, |other| Arc::ptr_eq(other, ticket));
        ticket.state().grant.take()
    }

    /// Returns a grant of the least busy backend with room, except `but`.
    fn choose(&mut self, front: usize, fresh: bool, but: Option<usize>) -> Option<BackendGrant<C>> {
        let count = self.backends.len();
        let mut best: Option<usize> = None;
        for step in 0..count {
            let at = (self.next_backend + step) % count;
            let member = &self.backends[at];
            if !member.has_room() || Some(at) == but {
                continue;
            }
            let better = best.is_none_or(|best| {
                let best = &self.backends[best];
                let (mine, theirs) = (member.busy * best.weight, best.busy * member.weight);
                let has_kept = |m: &BackendState<C>| !m.kept[front].is_empty();
                mine < theirs || (mine == theirs && has_kept(member) && !has_kept(best))
            });
            if better {
                best = Some(at);
            }
        }
        let backend = best?;
        if !self.supervised {
            self.take_turn(backend);
        }
        let member = &mut self.backends[backend];
        let full = member.busy + member.kept_count >= member.limit.now;
        let mut connection = if fresh { None } else { member.take_kept(front) };
        if connection.is_none() && full {
            // All allowed connections are open, so an idle one of another thread is used, or is closed to make room.
            let oldest = member.take_oldest();
            connection = if fresh { None } else { oldest };
        }
        member.busy += 1;
        member.quota = member.quota.map(|left| left.saturating_sub(1));
        let busy = self.busy();
        self.max_busy = self.max_busy.max(busy);
        Some(BackendGrant {
            backend,
            connection,
        })
    }

    /// Records that this backend was chosen.
    fn take_turn(&mut self, chosen: usize) {
        if chosen == self.next_backend && self.turns_left > 1 {
            self.turns_left -= 1;
            return;
        }
        self.next_backend = (chosen + 1) % self.backends.len();
        self.turns_left = self.backends[self.next_backend].weight;
    }

    /// Returns a grant of another backend with room, for a request that cannot go to `but` now.
    pub fn choose_other(
        &mut self,
        front: usize,
        fresh: bool,
        but: usize,
    ) -> Option<BackendGrant<C>> {
        self.choose(front, fresh, Some(but))
    }

    /// Returns a grant, with its connection if that can serve again. Wakers of requests that receive a grant are added
    /// to `wake`.
    pub fn release(
        &mut self,
        front: usize,
        backend: usize,
        connection: Option<C>,
        now: Instant,
        wake: &mut Vec<Waker>,
    ) {
        let keep = self.may_keep(backend);
        let member = &mut self.backends[backend];
        member.busy -= 1;
        if let Some(connection) = connection
            && keep
            && member.open
            && member.is_up()
            && member.busy + member.kept_count < member.limit.now
            && !member.is_starving(now)
        {
            member.kept[front].push((connection, now));
            member.kept_count += 1;
        }
        self.grant_waiting(front, wake);
    }

    /// Grants backends to requests in line, as far as possible, after thread `front` has released a grant.
    pub fn grant_waiting(&mut self, front: usize, wake: &mut Vec<Waker>) {
        while let Some(line) = self.queue.next_line() {
            let first = line.front().map(|first| first.since + MAX_QUEUE_JUMP);
            let own = line.iter().take(MAX_SEARCHED_TICKETS).position(|ticket| {
                ticket.front == front && first.is_some_and(|first| ticket.since <= first)
            });
            let at = own.unwrap_or(0);
            let Some(ticket) = line.get(at).cloned() else {
                return;
            };
            let avoid = ticket.avoid.filter(|at| self.another_is_up(*at));
            let Some(grant) = self.choose(ticket.front, ticket.needs_new_connection, avoid) else {
                return;
            };
            self.queue.pop_at(at);
            let mut slot = ticket.state();
            slot.grant = Some(grant);
            wake.extend(slot.waker.take());
        }
    }

    /// Records that a new connection to a backend is made for this request.
    pub fn record_connect(&mut self, backend: usize, request: u64, now: Instant) {
        let keep = self.may_keep(backend);
        let member = &mut self.backends[backend];
        member.connects += 1;
        if keep {
            member.silent.push((request, now));
        }
    }

    /// Records that the first bytes have arrived on a request's new connection, or that the request has ended.
    pub fn record_first_bytes(&mut self, backend: usize, request: u64) {
        let silent = &mut self.backends[backend].silent;
        silent.retain(|(id, _)| *id != request);
    }

    /// Takes out the kept connections of a backend, because a new connection has been silent for [`SILENT_AFTER`]: it
    /// may be waiting for one of their processes.
    pub fn take_kept_connections(&mut self, backend: usize) -> Vec<C> {
        let member = &mut self.backends[backend];
        member.kept_count = 0;
        let lists = member.kept.iter_mut().flat_map(|list| list.drain(..));
        lists.map(|(connection, _)| connection).collect()
    }

    /// Takes out the kept connections that have been idle since `before`, or all.
    pub fn take_expired(&mut self, before: Option<Instant>) -> Vec<C> {
        let mut out = Vec::new();
        for member in &mut self.backends {
            for list in &mut member.kept {
                let old = |since: &Instant| before.is_none_or(|before| *since <= before);
                let count = list.iter().take_while(|(_, since)| old(since)).count();
                member.kept_count -= count as u32;
                out.extend(list.drain(..count).map(|(connection, _)| connection));
            }
        }
        out
    }

    /// Returns when there is something to do next: a probe, or a kept connection that expires.
    pub fn next_due(&self, keep_for: Duration) -> Option<Instant> {
        let probes = self.backends.iter().filter_map(|m| match &m.health {
            BackendHealth::Down { probe_at, .. } => Some(*probe_at),
            BackendHealth::Up => None,
        });
        let lists = self.backends.iter().flat_map(|m| &m.kept);
        let ends = lists.filter_map(|list| list.first().map(|(_, since)| *since + keep_for));
        probes.chain(ends).min()
    }

    /// Wakes every request in line, since the backend that it waits for may never come.
    pub fn wake_all(&mut self, wake: &mut Vec<Waker>) {
        for ticket in self.queue.iter() {
            wake.extend(ticket.state().waker.take());
        }
    }
}

#[cfg(test)]
#[path = "balance_tests.rs"]
mod tests;
