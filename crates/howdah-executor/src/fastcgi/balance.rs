//! Who gets which backend, and when: the queue, the limits, the connections kept. Decides on values
//! and times handed in; connects nothing, reads no clock, wakes nobody itself.
//!
//! A request is granted a backend, or waits in its front thread's line; what a thread gives back
//! goes to its own line first, so that a kept connection stays with the runtime that watches it,
//! unless another line's first has waited noticeably longer ([`FAIRNESS`]).
//!
//! Limits. A FastCGI backend runs as many requests as it has processes; what else is connected waits
//! in the kernel's backlog, whose overflow is an error (EAGAIN) or seconds of silence (TCP). So
//! requests wait here, and a backend is given at most its limit: configured, or told by the backend
//! (`FCGI_MAX_CONNS` of php-cgi), or felt out as a congestion window is: more with each answer while
//! requests wait, less when the backlog is full.
//!
//! Kept connections. Each holds a process of the backend, which does nothing else (`fcgi_read` of
//! main/fastcgi.c blocks without a timeout). They are kept only where the limit is known, count
//! towards it, and are closed rather than used again while a new connection gets no answer:
//! perhaps the backend has fewer processes than was said.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// How much longer the first of another thread's line must have waited to go before our own.
const FAIRNESS: Duration = Duration::from_millis(10);
/// A new connection that has been silent for so long may be waiting for a process that a kept
/// connection holds.
pub const SILENCE: Duration = Duration::from_millis(100);
/// Where an unknown limit starts: few enough for any backlog.
const FIRST_LIMIT: u32 = 16;
/// Where it ends: above php-fpm's `listen.backlog` of 511 nothing is gained.
const HIGHEST_LIMIT: u32 = 512;
/// After an overflow it grows by one in this time.
const GROWTH: Duration = Duration::from_secs(1);
/// So many failures in a row take a backend out of the choice while another is up.
const FAILURES_IN_A_ROW: u32 = 3;
/// First and longest time between two attempts to reach a backend that is down.
const PROBE_FIRST: Duration = Duration::from_millis(50);
const PROBE_LAST: Duration = Duration::from_secs(1);

/// A request's place in the line.
#[derive(Debug)]
pub struct Ticket<C> {
    /// Only a new connection will do: the request cannot be repeated.
    pub fresh: bool,
    /// Any other backend than this, while another is up: it has failed the request before.
    pub avoid: Option<usize>,
    /// When it got in line.
    pub since: Instant,
    slot: Mutex<Slot<C>>,
}

#[derive(Debug)]
struct Slot<C> {
    grant: Option<Grant<C>>,
    waker: Option<Waker>,
}

impl<C> Ticket<C> {
    fn new(fresh: bool, avoid: Option<usize>, since: Instant) -> Arc<Ticket<C>> {
        Arc::new(Ticket {
            fresh,
            avoid,
            since,
            slot: Mutex::new(Slot {
                grant: None,
                waker: None,
            }),
        })
    }

    fn slot(&self) -> MutexGuard<'_, Slot<C>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The grant, if it has come; otherwise the waker is called when it does.
    pub fn take(&self, waker: &Waker) -> Option<Grant<C>> {
        let mut slot = self.slot();
        if slot.grant.is_none() && !slot.waker.as_ref().is_some_and(|w| w.will_wake(waker)) {
            slot.waker = Some(waker.clone());
        }
        slot.grant.take()
    }
}

/// The right to run one request on a backend. Given back by [`Balance::release`].
#[derive(Debug)]
pub struct Grant<C> {
    /// Index of the backend.
    pub backend: usize,
    /// A kept connection, or none: make one.
    pub connection: Option<C>,
}

/// What became of a request asking for a backend.
#[derive(Debug)]
pub enum Entry<C> {
    /// It can run now.
    Granted(Grant<C>),
    /// It waits.
    Waits(Arc<Ticket<C>>),
    /// The queue is full.
    Full,
}

/// Whether a backend can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// As far as we know.
    Up,
    /// It could not, or answers nonsense.
    Down {
        /// Since then.
        since: Instant,
        /// When it is tried again.
        probe_at: Instant,
        /// Time between the last two attempts.
        interval: Duration,
        /// What happened.
        why: String,
    },
}

/// How many requests a backend is given at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Now.
    pub now: u32,
    /// Configured, or told by the backend: kept connections are safe.
    pub known: bool,
    /// Configured: nothing the backend says changes it.
    configured: bool,
    /// It has never overflowed: grow with each answer.
    steep: bool,
    grown: Option<Instant>,
}

impl Limit {
    fn new(configured: Option<u32>) -> Limit {
        Limit {
            now: configured.unwrap_or(FIRST_LIMIT),
            known: configured.is_some(),
            configured: configured.is_some(),
            steep: true,
            grown: None,
        }
    }

    fn answered(&mut self, now: Instant) {
        let due = self.grown.is_none_or(|at| now.duration_since(at) >= GROWTH);
        if !self.known && self.now < HIGHEST_LIMIT && (self.steep || due) {
            self.now += 1;
            self.grown = Some(now);
        }
    }

    fn overflowed(&mut self, now: Instant, busy: u32) {
        if !self.known {
            self.now = (busy * 3 / 4).clamp(1, self.now.max(1));
            self.steep = false;
            self.grown = Some(now);
        }
    }
}

/// A backend.
#[derive(Debug)]
pub struct Member<C> {
    weight: u32,
    /// Requests granted and not given back.
    pub busy: u32,
    /// Connections without a request, by front thread, the latest last.
    kept: Vec<Vec<(C, Instant)>>,
    /// How many these are.
    pub kept_count: u32,
    /// See [`Limit`].
    pub limit: Limit,
    /// See [`Health`].
    pub health: Health,
    /// New connections without an answer yet, by request. Only looked after where connections are
    /// kept.
    silent: Vec<(u64, Instant)>,
    failures_in_a_row: u32,
    /// Requests answered.
    pub answered: u64,
    /// Connections made.
    pub connects: u64,
    /// Attempts that failed: connecting, or an answer that broke off or made no sense.
    pub failures: u64,
    /// Times its backlog was full.
    pub overflows: u64,
    /// Gets requests. Only where somebody watches the program ([`Balance::watch`]) it does not.
    pub open: bool,
    /// Requests that ran into `request_terminate_timeout`.
    pub overdue: u64,
}

impl<C> Member<C> {
    fn is_up(&self) -> bool {
        self.health == Health::Up
    }

    fn has_room(&self) -> bool {
        self.open && self.is_up() && self.busy < self.limit.now
    }

    /// Takes a kept connection, own thread's latest first.
    fn take_kept(&mut self, front: usize) -> Option<C> {
        let own = self.kept[front].pop();
        let taken = own.map(|(connection, _)| connection)?;
        self.kept_count -= 1;
        Some(taken)
    }

    /// Takes the connection that has been idle longest, whosever it is.
    fn take_oldest(&mut self) -> Option<C> {
        let oldest = self.kept.iter_mut().filter(|list| !list.is_empty());
        let list = oldest.min_by_key(|list| list[0].1)?;
        self.kept_count -= 1;
        Some(list.remove(0).0)
    }

    fn is_starving(&self, now: Instant) -> bool {
        let long = |(_, since): &(u64, Instant)| now.duration_since(*since) >= SILENCE;
        self.silent.iter().any(long)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Balance<C> {
    /// In the order of the configuration.
    pub members: Vec<Member<C>>,
    lines: Vec<VecDeque<Arc<Ticket<C>>>>,
    /// Requests in line.
    pub queued: u32,
    /// Most there ever were.
    pub most_queued: u32,
    /// Requests that had to wait.
    pub waited: u64,
    /// Most that ever ran at once.
    pub most_busy: u32,
    /// Where the search begins, so that equals take turns.
    turn: usize,
    keep: bool,
    /// See [`Balance::watch`].
    watched: bool,
}

impl<C> Balance<C> {
    /// `weights`: a backend each. `limit`: of each backend, if known. `keep`: whether connections
    /// may be kept.
    pub fn new(weights: &[u32], limit: Option<u32>, keep: bool, fronts: usize) -> Balance<C> {
        let member = |weight: &u32| Member {
            weight: (*weight).max(1),
            busy: 0,
            kept: (0..fronts).map(|_| Vec::new()).collect(),
            kept_count: 0,
            limit: Limit::new(limit),
            health: Health::Up,
            silent: Vec::new(),
            failures_in_a_row: 0,
            answered: 0,
            connects: 0,
            failures: 0,
            overflows: 0,
            open: true,
            overdue: 0,
        };
        Balance {
            members: weights.iter().map(member).collect(),
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

    /// Somebody starts and ends the programs behind the backends: none gets requests until it is
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

    /// It gets none any more. Its kept connections are to be closed.
    pub fn shut(&mut self, backend: usize) -> Vec<C> {
        let member = &mut self.members[backend];
        member.open = false;
        member.kept_count = 0;
        let kept = member.kept.iter_mut().flat_map(std::mem::take);
        kept.map(|(connection, _)| connection).collect()
    }

    /// A request broke off, whoever broke it.
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

    /// Requests running.
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

    /// Something was heard of the request on its new connection, or it has ended.
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

    /// A backend has answered as it should.
    pub fn succeeded(&mut self, backend: usize, now: Instant) {
        let wanted = self.queued > 0;
        let member = &mut self.members[backend];
        member.answered += 1;
        member.failures_in_a_row = 0;
        if wanted && member.busy >= member.limit.now {
            member.limit.answered(now);
        }
    }

    /// A backend's backlog was full.
    pub fn overflowed(&mut self, backend: usize, now: Instant) {
        let member = &mut self.members[backend];
        member.overflows += 1;
        member.limit.overflowed(now, member.busy);
    }

    /// A backend's answer broke off or made no sense. Returns whether that takes it out.
    pub fn failed(&mut self, backend: usize, why: &str, now: Instant) -> bool {
        let other_is_up = self.another_is_up(backend);
        let member = &mut self.members[backend];
        member.failures += 1;
        member.failures_in_a_row += 1;
        let out = member.failures_in_a_row >= FAILURES_IN_A_ROW && other_is_up && member.is_up();
        if out {
            // It was reached: looking again at once would say nothing new.
            self.down_for(backend, why, now, PROBE_LAST);
        }
        out
    }

    /// A backend cannot be reached. Returns whether that is news.
    pub fn down(&mut self, backend: usize, why: &str, now: Instant) -> bool {
        self.members[backend].failures += 1;
        self.down_for(backend, why, now, PROBE_FIRST)
    }

    fn down_for(&mut self, backend: usize, why: &str, now: Instant, interval: Duration) -> bool {
        let member = &mut self.members[backend];
        let news = member.is_up();
        if news {
            member.health = Health::Down {
                since: now,
                probe_at: now + interval,
                interval,
                why: why.to_owned(),
            };
            member.kept.iter_mut().for_each(Vec::clear);
            member.kept_count = 0;
        }
        news
    }

    /// An attempt to reach it failed again.
    pub fn still_down(&mut self, backend: usize, reason: &str, now: Instant) {
        if let Health::Down {
            probe_at,
            interval,
            why,
            ..
        } = &mut self.members[backend].health
        {
            *interval = (*interval * 2).min(PROBE_LAST);
            *probe_at = now + *interval;
            reason.clone_into(why);
        }
    }

    /// It can be reached. `limit`: what it says it can run at once, if it does and nothing is
    /// configured. Returns whether that is news.
    pub fn up(&mut self, backend: usize, limit: Option<u32>) -> bool {
        let member = &mut self.members[backend];
        let news = !member.is_up();
        member.health = Health::Up;
        member.failures_in_a_row = 0;
        if let Some(limit) = limit
            && !member.limit.configured
        {
            member.limit.now = limit.clamp(1, HIGHEST_LIMIT);
            member.limit.known = true;
        }
        news
    }

    /// Since when no backend could be reached, and the last one's reason.
    pub fn all_down(&self) -> Option<(Instant, &str)> {
        let mut last: Option<(Instant, &str)> = None;
        for member in &self.members {
            match &member.health {
                Health::Up => return None,
                Health::Down { since, why, .. } => {
                    if last.is_none_or(|(at, _)| *since > at) {
                        last = Some((*since, why));
                    }
                }
            }
        }
        last
    }

    /// Backends to be tried again now. Each is named once: the attempt tells when to try again, or
    /// is given up after `patience`.
    pub fn take_due(&mut self, now: Instant, patience: Duration) -> Vec<usize> {
        let due = self.due(now);
        for backend in &due {
            if let Health::Down { probe_at, .. } = &mut self.members[*backend].health {
                *probe_at = now + patience;
            }
        }
        due
    }

    fn due(&self, now: Instant) -> Vec<usize> {
        let due =
            |m: &Member<C>| matches!(&m.health, Health::Down { probe_at, .. } if *probe_at <= now);
        let all = self.members.iter().enumerate();
        all.filter(|(_, m)| due(m)).map(|(at, _)| at).collect()
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
