//! Assigns requests to backends: the queue, the limits, the kept connections. Decides on values and
//! times passed in; connects nothing, reads no clock and wakes nobody.
//!
//! A request is granted a backend, or waits in its client's line ([`FairQueue`]). Of the client whose turn it
//! is, a request of the thread that gives a backend back goes first, so that a kept connection stays with the
//! runtime that watches it, unless the first has waited noticeably longer ([`FAIRNESS`]). When the queue is
//! full, the newest request of the client that has most of them makes room for a client that has fewer.
//!
//! Limits. A FastCGI backend runs as many requests as it has processes; what else is connected
//! waits in the kernel's backlog, whose overflow is an error (EAGAIN) or seconds of silence (TCP).
//! So requests wait here, and a backend is given at most its limit: configured, or reported by the
//! backend (`FCGI_MAX_CONNS` of php-cgi), or felt out as a congestion window is: more with each
//! answer while requests wait, less when the backlog is full.
//!
//! Kept connections. Each holds a process of the backend, which does nothing else (`fcgi_read` of
//! main/fastcgi.c blocks without a timeout). They are kept only where the limit is known, count
//! towards it, and are closed rather than used again while a new connection gets no answer:
//! perhaps the backend has fewer processes than was said.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::member::Health;
use super::member::Member;
use super::ticket::{Grant, Ticket};
use crate::common::fair_queue::{Client, FairQueue};

/// How much longer another thread's request must have waited to go before our own.
const FAIRNESS: Duration = Duration::from_millis(10);
/// How many of a line are looked at for one of our own.
const NEAR: usize = 64;

/// What became of a request asking for a backend.
#[derive(Debug)]
pub enum Entry<C> {
    /// The request can run now, on the granted backend.
    Granted(Grant<C>),
    /// The request waits in line; the ticket gets the grant.
    Waits(Arc<Ticket<C>>),
    /// The queue is full and the request is refused.
    Full,
}

/// The backends of a pool, and the requests that wait for them.
#[derive(Debug)]
pub struct Balance<C> {
    /// The backends, in the order of the configuration.
    pub members: Vec<Member<C>>,
    queue: FairQueue<Arc<Ticket<C>>>,
    /// Most requests that ever waited at once.
    pub most_queued: u32,
    /// Requests that had to wait, since the start.
    pub waited: u64,
    /// Most requests that ever ran at once.
    pub most_busy: u32,
    /// Where the search begins, so that equals take turns.
    turn: usize,
    keep: bool,
    /// Whether somebody starts and ends the programs behind the backends ([`Balance::watch`]).
    watched: bool,
}

impl<C> Balance<C> {
    /// `weights`: a backend each. `limit`: of each backend, if known. `keep`: whether connections
    /// may be kept.
    pub fn new(weights: &[u32], limit: Option<u32>, keep: bool, fronts: usize) -> Balance<C> {
        Balance {
            members: weights
                .iter()
                .map(|weight| Member::new(*weight, limit, fronts))
                .collect(),
            queue: FairQueue::default(),
            most_queued: 0,
            waited: 0,
            most_busy: 0,
            turn: 0,
            keep,
            watched: false,
        }
    }

    /// Tells the balance that a supervisor starts and ends the programs: none gets requests until it is
    /// opened, work gathers on the first, and one that runs a single request at a time is closed when
    /// a request on it breaks off, since its program may still be running it.
    pub fn watch(&mut self) {
        self.watched = true;
        for member in &mut self.members {
            member.open = false;
        }
    }

    /// The program behind the backend takes requests from now on.
    pub fn open(&mut self, backend: usize, front: usize, wake: &mut Vec<Waker>) {
        self.members[backend].open = true;
        self.members[backend].failures_in_a_row = 0;
        self.serve(front, wake);
    }

    /// The backend gets no more requests. The caller closes the returned connections, which were kept.
    pub fn shut(&mut self, backend: usize) -> Vec<C> {
        let member = &mut self.members[backend];
        member.open = false;
        member.kept_count = 0;
        let kept = member.kept.iter_mut().flat_map(std::mem::take);
        kept.map(|(connection, _)| connection).collect()
    }

    /// Notes that a request on this backend ended early, whichever side ended it.
    pub fn broke_off(&mut self, backend: usize) {
        let member = &mut self.members[backend];
        if self.watched && member.limit.now == 1 {
            member.open = false;
        }
    }

    /// Requests waiting in line now.
    pub fn queued(&self) -> u32 {
        self.queue.len() as u32
    }

    /// How long the first in line has waited.
    pub fn waited(&self, now: Instant) -> Duration {
        self.queue
            .firsts()
            .map(|first| now.saturating_duration_since(first.since))
            .max()
            .unwrap_or_default()
    }

    /// Requests running now, on all backends.
    pub fn busy(&self) -> u32 {
        self.members.iter().map(|m| m.busy).sum()
    }

    /// Whether a request that goes to this backend now may leave its connection open.
    pub fn may_keep(&self, backend: usize) -> bool {
        self.keep && self.members[backend].limit.known
    }

    /// A client's request on this thread asks to run. Nobody overtakes those in line. A request that makes
    /// room for it is added to `wake`.
    pub fn enter(
        &mut self,
        (front, client): (usize, Client),
        fresh: bool,
        size: u32,
        now: Instant,
        wake: &mut Vec<Waker>,
    ) -> Entry<C> {
        if self.queue.is_empty()
            && let Some(grant) = self.choose(front, fresh, None)
        {
            return Entry::Granted(grant);
        }
        if self.queued() >= size && !self.make_room_for(client, wake) {
            return Entry::Full;
        }
        self.waited += 1;
        let ticket = Ticket::new((front, client), fresh, None, now);
        self.queue.push(client, ticket.clone());
        self.most_queued = self.most_queued.max(self.queued());
        Entry::Waits(ticket)
    }

    /// Refuses the newest request of the client that has most in line, if that is more than this client would
    /// have.
    fn make_room_for(&mut self, client: Client, wake: &mut Vec<Waker>) -> bool {
        let longest = self.queue.longest();
        let longest = longest.filter(|(_, length)| *length > self.queue.len_of(client) + 1);
        let Some(ticket) = longest.and_then(|(longest, _)| self.queue.pop_newest(longest)) else {
            return false;
        };
        let mut slot = ticket.slot();
        slot.refused = true;
        wake.extend(slot.waker.take());
        true
    }

    /// A request that was granted a backend which did not take it goes back to where it came from:
    /// before all others. `since`: when it first got in line.
    pub fn enter_again(
        &mut self,
        (front, client): (usize, Client),
        fresh: bool,
        avoid: Option<usize>,
        since: Instant,
    ) -> Arc<Ticket<C>> {
        let ticket = Ticket::new((front, client), fresh, avoid, since);
        self.queue.put_first(client, ticket.clone());
        self.most_queued = self.most_queued.max(self.queued());
        ticket
    }

    /// Whether a backend other than this is up.
    pub fn another_is_up(&self, backend: usize) -> bool {
        let others = self.members.iter().enumerate();
        others
            .filter(|(at, _)| *at != backend)
            .any(|(_, m)| m.open && m.is_up())
    }

    /// A request leaves the line. What it was granted meanwhile is returned.
    pub fn leave(&mut self, ticket: &Arc<Ticket<C>>) -> Option<Grant<C>> {
        self.queue
            .remove(ticket.client, |other| Arc::ptr_eq(other, ticket));
        ticket.slot().grant.take()
    }

    /// The least busy backend that has room, `but` excepted.
    fn choose(&mut self, front: usize, fresh: bool, but: Option<usize>) -> Option<Grant<C>> {
        let count = self.members.len();
        let mut best: Option<usize> = None;
        for step in 0..count {
            let at = (self.turn + step) % count;
            let member = &self.members[at];
            if !member.has_room() || Some(at) == but {
                continue;
            }
            let better = best.is_none_or(|best| {
                let best = &self.members[best];
                let (mine, theirs) = (member.busy * best.weight, best.busy * member.weight);
                let has_kept = |m: &Member<C>| !m.kept[front].is_empty();
                mine < theirs || (mine == theirs && has_kept(member) && !has_kept(best))
            });
            if better {
                best = Some(at);
            }
        }
        let backend = best?;
        if !self.watched {
            self.turn = (backend + 1) % count;
        }
        let member = &mut self.members[backend];
        let full = member.busy + member.kept_count >= member.limit.now;
        let mut connection = if fresh { None } else { member.take_kept(front) };
        if connection.is_none() && full {
            // All that is allowed is open: one that is idle elsewhere is used, or makes room.
            let oldest = member.take_oldest();
            connection = if fresh { None } else { oldest };
        }
        member.busy += 1;
        member.quota = member.quota.map(|left| left.saturating_sub(1));
        let busy = self.busy();
        self.most_busy = self.most_busy.max(busy);
        Some(Grant {
            backend,
            connection,
        })
    }

    /// Another backend with room for a request that cannot go to `but` now.
    pub fn instead_of(&mut self, front: usize, fresh: bool, but: usize) -> Option<Grant<C>> {
        self.choose(front, fresh, Some(but))
    }

    /// A grant comes back, with a connection that could serve again. Whoever is to be woken for it
    /// is added to `wake`.
    pub fn release(
        &mut self,
        front: usize,
        backend: usize,
        connection: Option<C>,
        now: Instant,
        wake: &mut Vec<Waker>,
    ) {
        let keep = self.may_keep(backend);
        let member = &mut self.members[backend];
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
        self.serve(front, wake);
    }

    /// Grants to those in line what can be granted, after thread `front` has given something back.
    pub fn serve(&mut self, front: usize, wake: &mut Vec<Waker>) {
        while let Some(line) = self.queue.next_line() {
            let first = line.front().map(|first| first.since + FAIRNESS);
            let own = line.iter().take(NEAR).position(|ticket| {
                ticket.front == front && first.is_some_and(|first| ticket.since <= first)
            });
            let at = own.unwrap_or(0);
            let Some(ticket) = line.get(at).cloned() else {
                return;
            };
            let avoid = ticket.avoid.filter(|at| self.another_is_up(*at));
            let Some(grant) = self.choose(ticket.front, ticket.fresh, avoid) else {
                return;
            };
            self.queue.pop_at(at);
            let mut slot = ticket.slot();
            slot.grant = Some(grant);
            wake.extend(slot.waker.take());
        }
    }

    /// A new connection to a backend is made for this request.
    pub fn connected(&mut self, backend: usize, request: u64, now: Instant) {
        let keep = self.may_keep(backend);
        let member = &mut self.members[backend];
        member.connects += 1;
        if keep {
            member.silent.push((request, now));
        }
    }

    /// The first bytes have come on a request's new connection, or the request has ended.
    pub fn heard(&mut self, backend: usize, request: u64) {
        let silent = &mut self.members[backend].silent;
        silent.retain(|(id, _)| *id != request);
    }

    /// A new connection has been silent for [`SILENCE`]: takes out what is kept, whose processes may
    /// be the ones it waits for.
    pub fn make_room(&mut self, backend: usize) -> Vec<C> {
        let member = &mut self.members[backend];
        member.kept_count = 0;
        let lists = member.kept.iter_mut().flat_map(|list| list.drain(..));
        lists.map(|(connection, _)| connection).collect()
    }

    /// Takes out the kept connections that have been idle since `before`, or all.
    pub fn expire(&mut self, before: Option<Instant>) -> Vec<C> {
        let mut out = Vec::new();
        for member in &mut self.members {
            for list in &mut member.kept {
                let old = |since: &Instant| before.is_none_or(|before| *since <= before);
                let count = list.iter().take_while(|(_, since)| old(since)).count();
                member.kept_count -= count as u32;
                out.extend(list.drain(..count).map(|(connection, _)| connection));
            }
        }
        out
    }

    /// When there is something to do next: a probe, or a kept connection's end.
    pub fn next_due(&self, keep_for: Duration) -> Option<Instant> {
        let probes = self.members.iter().filter_map(|m| match &m.health {
            Health::Down { probe_at, .. } => Some(*probe_at),
            Health::Up => None,
        });
        let lists = self.members.iter().flat_map(|m| &m.kept);
        let ends = lists.filter_map(|list| list.first().map(|(_, since)| *since + keep_for));
        probes.chain(ends).min()
    }

    /// Wakes everybody in line: what they wait for may never come.
    pub fn wake_all(&mut self, wake: &mut Vec<Waker>) {
        for ticket in self.queue.iter() {
            wake.extend(ticket.slot().waker.take());
        }
    }
}

#[cfg(test)]
#[path = "balance_tests.rs"]
mod tests;
