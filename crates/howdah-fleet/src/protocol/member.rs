//! The state machine of a fleet member: reacts to time and messages.

use std::collections::BTreeSet;

use super::message::{Entry, Hint, Incarnation, Name, Outcome, Record, Reply, Request, Session};
use super::peers::Peers;
use super::writes::{Published, Ticket, Writes};
use super::{Moment, Timing};

/// Something the caller must do because of a message. Effects are carried out in order, before any other method of the
/// member is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<E> {
    /// Invalidates pages of this member.
    Apply(Entry<E>),
    /// Tells the author of entries that this member has applied all entries up to `number`.
    Confirm {
        /// The author of the entries.
        to: Session,
        /// This member's session.
        session: Session,
        /// The incarnation that `number` belongs to.
        incarnation: Incarnation,
        /// The number of the last entry applied.
        number: u64,
    },
}

/// A session that the registry knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Joined {
    session: Session,
    incarnation: Incarnation,
    count: u64,
    position: u64,
    /// The number of an entry that a hint announced before this member had all the entries that precede it.
    heard_of: u64,
    peers: Peers,
    /// When the exchange was sent whose reply last showed the rows.
    looked: Moment,
}

/// An exchange without a reply so far.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct InFlight {
    sent: Moment,
    session: Session,
    /// How many of the queued writes the exchange publishes.
    writes: usize,
    /// The members that the exchange forgets.
    forgets: Vec<Name>,
    /// Whether the exchange invalidates everything, on this member as well.
    empties: bool,
    /// Whether the exchange ends the session.
    leaves: bool,
}

/// A member of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member<E> {
    name: Name,
    timing: Timing,
    /// When the registry last replied. The others may rely on this member's pledge for one lease from then.
    heard: Moment,
    /// The end of the lease.
    lease: Moment,
    joined: Option<Joined>,
    in_flight: Option<InFlight>,
    /// Confirmations that arrived before the reply to the exchange that they belong to.
    early: Vec<(Session, Incarnation, u64)>,
    /// When the next exchange is due.
    due: Moment,
    /// The incarnation, when it was first seen, and whether it is settled.
    incarnation: Option<(Incarnation, Moment, bool)>,
    /// The names of the members that have not left.
    known: BTreeSet<Name>,
    /// Whether this member has responded to writes that no other member has heard of.
    let_go: bool,
    /// How many writes were answered without the other members having heard of them.
    lets_go: u64,
    /// Whether a session of this process has joined before.
    was_joined: bool,
    leaving: bool,
    /// Members that the next exchange is to forget.
    forgets: Vec<Name>,
    /// When the last exchange was sent that makes the others rely on this member. `None` if there was none.
    reached: Option<Moment>,
    /// No other member has heard of the last write before this ticket, and its response must not be sent.
    first_unrefused: Ticket,
    writes: Writes<E>,
}

impl<E: Clone + PartialEq> Member<E> {
    /// Creates a member that starts at `now` and does not serve stored pages yet.
    pub fn new(name: Name, timing: Timing, now: Moment) -> Member<E> {
        Member {
            name,
            timing,
            heard: now,
            lease: 0,
            joined: None,
            in_flight: None,
            early: Vec::new(),
            due: now,
            incarnation: None,
            known: BTreeSet::new(),
            let_go: false,
            lets_go: 0,
            was_joined: false,
            leaving: false,
            forgets: Vec::new(),
            reached: None,
            first_unrefused: 0,
            writes: Writes::new(),
        }
    }

    /// Returns the time until which stored pages may be served, as allowed by the messages received so far.
    pub fn lease(&self) -> Moment {
        self.lease
    }

    /// Returns whether the registry knows this member.
    pub fn is_joined(&self) -> bool {
        self.joined.is_some()
    }

    /// Returns whether an exchange is waiting for its reply.
    pub fn awaits_reply(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Returns the members that have not been heard from for a lease. Stored pages are not served because of them.
    pub fn silent(&self, now: Moment) -> Vec<Name> {
        let joined = self.joined.as_ref();
        joined.map_or(Vec::new(), |joined| joined.peers.silent(&self.timing, now))
    }

    /// Forgets a member that an administrator asserts is no longer running.
    pub fn forget(&mut self, name: Name, now: Moment) {
        self.known.remove(&name);
        if !self.forgets.contains(&name) {
            self.forgets.push(name);
        }
        self.due = now;
    }

    /// Returns whether this member has been cut off for so long that the others forget it. It does not respond to
    /// writes that they have not heard of.
    pub fn is_fenced(&self, now: Moment) -> bool {
        now >= self.fenced_from()
    }

    /// Returns the time from which the member is fenced, unless it reaches the registry before.
    pub fn fenced_from(&self) -> Moment {
        match (self.timing.fence, self.reached) {
            (None, _) => Moment::MAX,
            (Some(_), None) => 0,
            (Some(fence), Some(reached)) => reached.saturating_add(fence),
        }
    }

    /// Writes with smaller tickets that become confirmed only now are refused instead: no other member has heard of
    /// them, and their responses must not be sent.
    pub fn first_unrefused(&self) -> Ticket {
        self.first_unrefused
    }

    /// Returns how many writes were answered without any other member having heard of them.
    pub fn let_go(&self) -> u64 {
        self.lets_go
    }

    /// Returns whether the member has left the fleet.
    pub fn has_left(&self) -> bool {
        self.leaving && self.joined.is_none() && self.in_flight.is_none()
    }

    /// Returns the names of the other members. `None` while the registry does not know this one.
    pub fn others(&self) -> Option<&BTreeSet<Name>> {
        self.joined.as_ref().map(|_| &self.known)
    }

    /// Queues a write for publication. The caller has already applied it to this member.
    pub fn publish(&mut self, entry: Entry<E>) -> Ticket {
        self.writes.add(entry)
    }

    /// Returns whether no member serves a page that is older than this write, or than any write before it.
    pub fn is_confirmed(&self, ticket: Ticket) -> bool {
        ticket < self.first_unconfirmed()
    }

    /// Returns the first unconfirmed ticket: writes with smaller tickets are confirmed.
    pub fn first_unconfirmed(&self) -> Ticket {
        self.writes.first_unconfirmed()
    }

    /// Returns the first unpublished ticket: writes with smaller tickets are in the log, or were answered without being
    /// published.
    pub fn first_unpublished(&self) -> Ticket {
        self.writes.first_unpublished()
    }

    /// Returns the last entry whose effects have been handed out. `None` if the registry does not know this member, or
    /// has not been told of writes that were answered without being published.
    pub fn position(&self) -> Option<(&Incarnation, u64)> {
        let joined = self.joined.as_ref().filter(|_| !self.let_go)?;
        Some((&joined.incarnation, joined.position))
    }

    /// Stops serving stored pages, and leaves the fleet once everything is published.
    pub fn leave(&mut self, now: Moment) {
        self.leaving = true;
        self.lease = 0;
        self.due = now;
    }

    /// Returns when [`Member::poll`] must be called again if no message arrives before.
    pub fn wakes_at(&self) -> Moment {
        let mut at = match self.in_flight {
            Some(_) => Moment::MAX,
            None => self.due,
        };
        if let Some(deadline) = self.writes.deadline() {
            at = at.min(deadline);
        }
        if self.writes.queued().len() > 0 {
            at = at.min(self.pledged_until());
        }
        at
    }

    /// Returns the time until which the responses to unpublished writes are held back.
    fn pledged_until(&self) -> Moment {
        self.heard.saturating_add(self.timing.patience)
    }

    /// Advances the time, and returns the exchange to send now, if any. `session` is a new random number.
    pub fn poll(&mut self, now: Moment, session: Session) -> Option<Request<E>> {
        self.writes.expire(now);
        let queued = self.writes.queued().len();
        if queued > 0 && now >= self.pledged_until() {
            let unheard = self.writes.let_go();
            match self.is_fenced(now) {
                true => self.first_unrefused = self.writes.next(),
                false => self.lets_go += unheard,
            }
            self.let_go = true;
            // The first exchange of the next session has to tell the others of these writes.
            self.joined = None;
            self.in_flight = None;
        }
        let publishes = queued > 0 && self.joined.is_some();
        if self.in_flight.is_some() || (now < self.due && !publishes) {
            return None;
        }
        let (request, session, writes) = self.request(now, session)?;
        self.early.clear();
        self.in_flight = Some(InFlight {
            sent: now,
            session,
            writes,
            forgets: self.forgets.clone(),
            empties: request.forgets(),
            leaves: matches!(request, Request::Leave { .. }),
        });
        Some(request)
    }

    fn request(&self, now: Moment, new: Session) -> Option<(Request<E>, Session, usize)> {
        let Some(joined) = &self.joined else {
            if self.leaving {
                return None;
            }
            let join = Request::Join {
                name: self.name.clone(),
                session: new,
                known: self.known.iter().cloned().collect(),
                is_new: !self.was_joined,
            };
            return Some((join, new, 0));
        };
        let (incarnation, session) = (joined.incarnation.clone(), joined.session);
        if self.leaving && self.writes.queued().len() == 0 && !self.let_go {
            let leave = Request::Leave {
                incarnation,
                session,
            };
            return Some((leave, session, 0));
        }
        let own = self.writes.queued();
        let writes = own.len();
        let mut entries: Vec<Entry<E>> = own.cloned().collect();
        let fenced = joined.peers.fenced(&self.timing, now);
        // A forgotten member may have written without the others hearing of it.
        if self.let_go || !self.forgets.is_empty() || !fenced.is_empty() {
            entries.push(Entry::Everything);
        }
        let sync = Request::Sync {
            incarnation,
            session,
            count: joined.count,
            position: joined.position,
            entries,
            settled: self.is_settled(now),
            over: joined.peers.over(&self.timing, now),
            forgets: self.forgets.clone(),
            fenced,
        };
        Some((sync, session, writes))
    }

    /// Returns whether all leases of earlier incarnations have expired.
    fn is_settled(&self, now: Moment) -> bool {
        let seen = self.incarnation.as_ref();
        seen.is_some_and(|(_, since, settled)| {
            *settled || now >= since.saturating_add(self.timing.patience)
        })
    }

    /// The exchange has failed or takes too long. It is unknown whether the registry has carried it out or will do so.
    pub fn lost(&mut self, now: Moment) {
        if self.in_flight.take().is_some() {
            self.due = now.saturating_add(self.timing.renew / 4);
        }
    }

    /// Processes the reply to the exchange.
    pub fn reply(&mut self, now: Moment, reply: Reply<E>) -> Vec<Effect<E>> {
        let Some(flight) = self.in_flight.take() else {
            return Vec::new();
        };
        self.heard = now;
        self.note_incarnation(&reply, now);
        self.due = flight.sent.saturating_add(self.timing.renew).max(now);
        match (reply.outcome, self.joined.take()) {
            (Outcome::Unknown, _) => {
                self.lease = 0;
                self.due = now;
                Vec::new()
            }
            (Outcome::OutOfStep(count), Some(joined)) => {
                self.joined = Some(Joined { count, ..joined });
                self.due = now;
                Vec::new()
            }
            (Outcome::OutOfStep(_), None) => Vec::new(),
            (Outcome::Done(_), None) => {
                self.lease = 0;
                self.join(now, &flight, reply)
            }
            (Outcome::Done(count), Some(joined)) => {
                let joined = Joined { count, ..joined };
                self.synced(now, joined, &flight, reply)
            }
        }
    }

    fn note_incarnation(&mut self, reply: &Reply<E>, now: Moment) {
        match &mut self.incarnation {
            Some((known, _, settled)) if *known == reply.incarnation => *settled |= reply.settled,
            seen => *seen = Some((reply.incarnation.clone(), now, reply.settled)),
        }
    }

    /// Joins the fleet. A new session does not know what was written before, so all pages are invalidated.
    fn join(&mut self, now: Moment, flight: &InFlight, reply: Reply<E>) -> Vec<Effect<E>> {
        let mut peers = Peers::default();
        peers.update(flight.session, &reply.rows, None, now);
        self.know(&reply, flight.session);
        let mut own = reply
            .rows
            .iter()
            .filter(|row| row.session == flight.session);
        // An earlier process of this name may have responded to writes that it could not publish. The first exchange
        // invalidates everything because of that, before the others rely on this member.
        self.let_go |= !self.was_joined && !own.all(|row| row.fresh);
        self.was_joined = true;
        // The next exchange is due at once, because the others rely on a member only from its second exchange.
        self.due = now;
        self.joined = Some(Joined {
            session: flight.session,
            incarnation: reply.incarnation,
            count: 0,
            position: reply.head,
            heard_of: 0,
            peers,
            looked: flight.sent,
        });
        vec![Effect::Apply(Entry::Everything)]
    }

    fn know(&mut self, reply: &Reply<E>, own: Session) {
        let others = reply.rows.iter().filter(|row| row.session != own);
        let others = others.filter(|row| !row.replaced && row.name != self.name);
        self.known = others.map(|row| row.name.clone()).collect();
    }

    fn synced(
        &mut self,
        now: Moment,
        mut joined: Joined,
        flight: &InFlight,
        reply: Reply<E>,
    ) -> Vec<Effect<E>> {
        if flight.leaves {
            self.due = Moment::MAX;
            self.known.clear();
            return Vec::new();
        }
        self.reached = Some(flight.sent);
        let mut effects = joined.catch_up(&reply);
        if flight.empties {
            effects.push(Effect::Apply(Entry::Everything));
        }
        // The hints for these entries may have arrived while entries before them were missing, and were not confirmed
        // then.
        let authors: BTreeSet<Session> = reply.records.iter().map(|r| r.author).collect();
        effects.extend(
            authors
                .iter()
                .filter(|to| **to != joined.session)
                .map(|to| Effect::Confirm {
                    to: *to,
                    session: joined.session,
                    incarnation: reply.incarnation.clone(),
                    number: joined.position,
                }),
        );
        let early = std::mem::take(&mut self.early);
        let before = std::mem::replace(&mut joined.looked, flight.sent);
        joined
            .peers
            .update(joined.session, &reply.rows, Some(before), now);
        self.know(&reply, joined.session);
        self.let_go = false;
        self.forgets.retain(|name| !flight.forgets.contains(name));
        if flight.writes > 0 {
            self.published(now, &joined, flight.writes, &reply);
        }
        for (session, incarnation, number) in early {
            self.writes.confirm(session, &incarnation, number);
        }
        for row in &reply.rows {
            self.writes
                .confirm(row.session, &reply.incarnation, row.position);
        }
        self.writes.expire(now);
        if let Some(pledged) = joined.peers.pledged(&self.timing)
            && !self.leaving
        {
            let own = flight.sent.saturating_add(self.timing.lease);
            self.lease = self.lease.max(own.min(pledged));
        }
        // This is done once: an exchange that is sent after the hint returns the announced entry.
        if std::mem::take(&mut joined.heard_of) > joined.position {
            self.due = now;
        }
        self.joined = Some(joined);
        effects
    }

    /// Records that an exchange has published writes. They wait for all members whose lease may not have expired.
    fn published(&mut self, now: Moment, joined: &Joined, count: usize, reply: &Reply<E>) {
        let first = self.writes.take_published(count);
        let others = reply
            .rows
            .iter()
            .filter(|row| row.session != joined.session);
        let waits = others
            .map(|row| {
                let until = joined.peers.serves_until(row.session, &self.timing);
                (row.session, until)
            })
            .collect();
        let unknown_until = match &self.incarnation {
            Some((_, since, false)) if !self.is_settled(now) => {
                since.saturating_add(self.timing.patience)
            }
            _ => 0,
        };
        self.writes.wait_for(Published {
            first,
            incarnation: reply.incarnation.clone(),
            number: reply.head,
            waits,
            unknown_until,
        });
    }

    /// Processes a hint: another member has published entries.
    pub fn hint(&mut self, now: Moment, hint: Hint<E>) -> Vec<Effect<E>> {
        let mut effects = Vec::new();
        let Some(joined) = &mut self.joined else {
            return effects;
        };
        let (Some(first), Some(last)) = (hint.records.first(), hint.records.last()) else {
            return effects;
        };
        let (first, last, author) = (first.number, last.number, last.author);
        if hint.incarnation != joined.incarnation || author == joined.session {
            return effects;
        }
        if first > joined.position + 1 {
            // Earlier entries have not arrived, and an exchange that is already in flight may not return them.
            joined.heard_of = joined.heard_of.max(last);
            self.due = now;
            return effects;
        }
        if last > joined.position {
            effects = joined.apply(hint.records, last);
        }
        effects.push(Effect::Confirm {
            to: author,
            session: joined.session,
            incarnation: hint.incarnation,
            number: joined.position,
        });
        effects
    }

    /// Processes a confirmation: another member has applied all entries up to `number`.
    pub fn confirmed(
        &mut self,
        now: Moment,
        session: Session,
        incarnation: &Incarnation,
        number: u64,
    ) {
        self.writes.confirm(session, incarnation, number);
        self.writes.expire(now);
        if self
            .in_flight
            .as_ref()
            .is_some_and(|flight| flight.writes > 0)
        {
            self.early.push((session, incarnation.clone(), number));
        }
    }
}

impl Joined {
    /// Applies the log entries after the member's position. Invalidates everything if some of them are missing.
    fn catch_up<E: Clone>(&mut self, reply: &Reply<E>) -> Vec<Effect<E>> {
        let numbers = reply.records.iter().map(|record| record.number);
        let is_whole = numbers.eq(self.position + 1..=reply.head);
        if !is_whole && self.position != reply.head {
            self.position = reply.head;
            return vec![Effect::Apply(Entry::Everything)];
        }
        self.apply(reply.records.clone(), reply.head)
    }

    fn apply<E>(&mut self, records: Vec<Record<E>>, last: u64) -> Vec<Effect<E>> {
        let new = records.into_iter();
        let new = new.filter(|r| r.number > self.position && r.author != self.session);
        let effects = new.map(|record| Effect::Apply(record.entry)).collect();
        self.position = last;
        effects
    }
}
