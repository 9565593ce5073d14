//! Assigns requests to backends: the queue, the limits, the kept connections. Decides on values and
//! times passed in; connects nothing, reads no clock and wakes nobody.
//!
//! A request is granted a backend, or waits in its front thread's line; what a thread gives back
//! goes to its own line first, so that a kept connection stays with the runtime that watches it,
//! unless another line's first has waited noticeably longer ([`FAIRNESS`]).
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

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::member::Health;
use super::member::Member;
use super::ticket::{Grant, Ticket};

/// How much longer the first of another thread's line must have waited to go before our own.
const FAIRNESS: Duration = Duration::from_millis(10);

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
    lines: Vec<VecDeque<Arc<Ticket<C>>>>,
    /// Requests waiting in line now.
    pub queued: u32,
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
            lines: (0..fronts).map(|_| VecDeque::new()).collect(),
            queued: 0,
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
    pub fn open(&mut self, backend: usize, front: usize, now: Instant, wake: &mut Vec<Waker>) {
        self.members[backend].open = true;
        self.members[backend].failures_in_a_row = 0;
        self.serve(front, now, wake);
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

    /// How long the first in line has waited.
    pub fn waited(&self, now: Instant) -> Duration {
        let firsts = self.lines.iter().filter_map(VecDeque::front);
        firsts
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

    /// A request asks to run. Nobody overtakes those in line.
    pub fn enter(&mut self, front: usize, fresh: bool, size: u32, now: Instant) -> Entry<C> {
        if self.queued == 0
            && let Some(grant) = self.choose(front, fresh, None)
        {
            return Entry::Granted(grant);
        }
        if self.queued >= size {
            return Entry::Full;
        }
        self.waited += 1;
        let ticket = Ticket::new(fresh, None, now);
        self.lines[front].push_back(ticket.clone());
        self.lined_up();
        Entry::Waits(ticket)
    }

    /// A request that was granted a backend which did not take it goes back to where it came from:
    /// before all others of its thread. `since`: when it first got in line.
    pub fn enter_again(
        &mut self,
        front: usize,
        fresh: bool,
        avoid: Option<usize>,
        since: Instant,
    ) -> Arc<Ticket<C>> {
        let ticket = Ticket::new(fresh, avoid, since);
        self.lines[front].push_front(ticket.clone());
        self.lined_up();
        ticket
    }

    fn lined_up(&mut self) {
        self.queued += 1;
        self.most_queued = self.most_queued.max(self.queued);
    }

    /// Whether a backend other than this is up.
    pub fn another_is_up(&self, backend: usize) -> bool {
        let others = self.members.iter().enumerate();
        others
            .filter(|(at, _)| *at != backend)
            .any(|(_, m)| m.open && m.is_up())
    }

    /// A request leaves the line. What it was granted meanwhile is returned.
    pub fn leave(&mut self, front: usize, ticket: &Arc<Ticket<C>>) -> Option<Grant<C>> {
        let before = self.lines[front].len();
        self.lines[front].retain(|t| !Arc::ptr_eq(t, ticket));
        self.queued -= (before - self.lines[front].len()) as u32;
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
        let wanted = self.queued > 0;
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
        if wanted {
            self.serve(front, now, wake);
        }
    }

    /// Grants to those in line what can be granted.
    pub fn serve(&mut self, front: usize, now: Instant, wake: &mut Vec<Waker>) {
        while self.queued > 0 {
            let waited = |line: &VecDeque<Arc<Ticket<C>>>| {
                line.front()
                    .map(|first| now.saturating_duration_since(first.since))
            };
            let own = waited(&self.lines[front]).map(|w| w + FAIRNESS);
            let lines = self.lines.iter().enumerate();
            let longest = lines
                .filter(|(at, _)| *at != front)
                .filter_map(|(at, line)| Some((waited(line)?, at)))
                .max();
            let next = match (own, longest) {
                (Some(own), Some((other, at))) if other > own => at,
                (Some(_), _) => front,
                (None, Some((_, at))) => at,
                (None, None) => return,
            };
            let Some((fresh, avoid)) = self.lines[next].front().map(|t| (t.fresh, t.avoid)) else {
                return;
            };
            let avoid = avoid.filter(|at| self.another_is_up(*at));
            let Some(grant) = self.choose(next, fresh, avoid) else {
                return;
            };
            let Some(ticket) = self.lines[next].pop_front() else {
                return;
            };
            self.queued -= 1;
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
        for ticket in self.lines.iter().flatten() {
            wake.extend(ticket.slot().waker.take());
        }
    }
}

#[cfg(test)]
#[path = "balance_tests.rs"]
mod tests;
