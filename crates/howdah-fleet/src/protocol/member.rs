//! The state machine of a fleet member: reacts to time and messages.

use std::collections::BTreeSet;

use super::message::{
    EntriesHint, ExchangeOutcome, Incarnation, LogEntry, LogRecord, MemberName, RegistryReply,
    RegistryRequest, SessionId,
};
use super::peers::Peers;
use super::writes::{OwnWrites, PublishedBatch, WriteTicket};
use super::{ClockNanoseconds, Timing};

/// Something the caller must do because of a message. Effects are carried out in order, before any other method of the
/// member is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<E> {
    /// Invalidates pages of this member.
    Apply(LogEntry<E>),
    /// Tells the author of entries that this member has applied all entries up to `number`.
    Confirm {
        /// The author of the entries.
        to: SessionId,
        /// This member's session.
        session: SessionId,
        /// The incarnation that `number` belongs to.
        incarnation: Incarnation,
        /// The number of the last entry applied.
        number: u64,
    },
}

/// A session that the registry knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct JoinedSession {
    session: SessionId,
    incarnation: Incarnation,
    count: u64,
    position: u64,
    /// The number of an entry that a hint announced before this member had all the entries that precede it.
    announced_entry: u64,
    peers: Peers,
    /// When the member sent the last exchange whose reply contained the rows.
    rows_requested_at: ClockNanoseconds,
}

/// An exchange without a reply so far.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PendingExchange {
    sent_at: ClockNanoseconds,
    session: SessionId,
    /// How many of the queued writes the exchange publishes.
    writes: usize,
    forgets: Vec<MemberName>,
    /// Whether the exchange invalidates everything, on this member as well.
    invalidates_all: bool,
    /// Whether the exchange ends the session.
    ends_session: bool,
}

/// A member of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FleetMember<E> {
    name: MemberName,
    timing: Timing,
    /// When the registry last replied. The others may rely on this member's pledge for one lease from then.
    last_reply_at: ClockNanoseconds,
    /// The end of the lease.
    lease_until: ClockNanoseconds,
    joined: Option<JoinedSession>,
    in_flight: Option<PendingExchange>,
    /// Confirmations that arrived before the reply to the exchange that they belong to.
    early_confirmations: Vec<(SessionId, Incarnation, u64)>,
    /// When the next exchange is due.
    next_exchange_at: ClockNanoseconds,
    /// The incarnation, when it was first seen, and whether it is settled.
    incarnation: Option<(Incarnation, ClockNanoseconds, bool)>,
    /// The names of the members that have not left.
    known_members: BTreeSet<MemberName>,
    /// Whether this member has responded to writes that no other member has heard of.
    has_unheard_writes: bool,
    /// How many writes were answered without the other members having heard of them.
    unheard_writes: u64,
    /// Whether a session of this process has joined before.
    has_joined_before: bool,
    leaving: bool,
    /// Members that the next exchange is to forget.
    members_to_forget: Vec<MemberName>,
    /// When this member sent the last exchange to which the registry replied. The other members rely on this member
    /// until its fence, which is counted from this time. `None` if there was no such exchange.
    last_reached_at: Option<ClockNanoseconds>,
    /// See [`FleetMember::first_unrefused`].
    first_unrefused: WriteTicket,
    writes: OwnWrites<E>,
}

impl<E: Clone + PartialEq> FleetMember<E> {
    /// Creates a member that starts at `now` and does not serve stored pages yet.
    pub fn new(name: MemberName, timing: Timing, now: ClockNanoseconds) -> FleetMember<E> {
        FleetMember {
            name,
            timing,
            last_reply_at: now,
            lease_until: 0,
            joined: None,
            in_flight: None,
            early_confirmations: Vec::new(),
            next_exchange_at: now,
            incarnation: None,
            known_members: BTreeSet::new(),
            has_unheard_writes: false,
            unheard_writes: 0,
            has_joined_before: false,
            leaving: false,
            members_to_forget: Vec::new(),
            last_reached_at: None,
            first_unrefused: 0,
            writes: OwnWrites::new(),
        }
    }

    /// Returns the time until which stored pages may be served, as allowed by the messages received so far.
    pub fn lease_until(&self) -> ClockNanoseconds {
        self.lease_until
    }

    /// Returns whether an exchange is waiting for its reply.
    pub fn awaits_reply(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Returns the members that have not been heard from for a lease. Stored pages are not served because of them.
    pub fn silent_members(&self, now: ClockNanoseconds) -> Vec<MemberName> {
        let joined = self.joined.as_ref();
        joined.map_or(Vec::new(), |joined| {
            joined.peers.silent_members(&self.timing, now)
        })
    }

    /// Forgets a member that an administrator asserts is no longer running.
    pub fn forget(&mut self, name: MemberName, now: ClockNanoseconds) {
        self.known_members.remove(&name);
        if !self.members_to_forget.contains(&name) {
            self.members_to_forget.push(name);
        }
        self.next_exchange_at = now;
    }

    /// Returns whether this member has been cut off for so long that the others forget it. It does not respond to
    /// writes that they have not heard of.
    pub fn is_fenced(&self, now: ClockNanoseconds) -> bool {
        now >= self.fenced_from()
    }

    /// Returns the time from which the member is fenced, unless it reaches the registry before.
    pub fn fenced_from(&self) -> ClockNanoseconds {
        match (self.timing.fence, self.last_reached_at) {
            (None, _) => ClockNanoseconds::MAX,
            (Some(_), None) => 0,
            (Some(fence), Some(reached)) => reached.saturating_add(fence),
        }
    }

    /// Returns the first ticket that is not refused. If a write with a smaller ticket was not confirmed before this
    /// ticket changed, no other member has heard of it, and its response must not be sent.
    pub fn first_unrefused(&self) -> WriteTicket {
        self.first_unrefused
    }

    /// Returns how many writes were answered without any other member having heard of them.
    pub fn unheard_writes(&self) -> u64 {
        self.unheard_writes
    }

    /// Returns whether the member has left the fleet.
    pub fn has_left(&self) -> bool {
        self.leaving && self.joined.is_none() && self.in_flight.is_none()
    }

    /// Returns the names of the other members. `None` while the registry does not know this one.
    pub fn other_members(&self) -> Option<&BTreeSet<MemberName>> {
        self.joined.as_ref().map(|_| &self.known_members)
    }

    /// Queues a write for publication. The caller has already applied it to this member.
    pub fn publish(&mut self, entry: LogEntry<E>) -> WriteTicket {
        self.writes.enqueue(entry)
    }

    /// Returns whether no member serves a page that is older than this write, or than any write before it.
    pub fn is_confirmed(&self, ticket: WriteTicket) -> bool {
        ticket < self.first_unconfirmed()
    }

    /// Returns the first unconfirmed ticket: writes with smaller tickets are confirmed.
    pub fn first_unconfirmed(&self) -> WriteTicket {
        self.writes.first_unconfirmed()
    }

    /// Returns the first unpublished ticket: writes with smaller tickets are in the log, or were answered without being
    /// published.
    pub fn first_unpublished(&self) -> WriteTicket {
        self.writes.first_unpublished()
    }

    /// Returns the last entry whose effects have been handed out. `None` if the registry does not know this member, or
    /// has not been notified of writes whose responses were sent before the writes were published.
    pub fn position(&self) -> Option<(&Incarnation, u64)> {
        let joined = self.joined.as_ref().filter(|_| !self.has_unheard_writes)?;
        Some((&joined.incarnation, joined.position))
    }

    /// Stops serving stored pages, and leaves the fleet once everything is published.
    pub fn leave(&mut self, now: ClockNanoseconds) {
        self.leaving = true;
        self.lease_until = 0;
        self.next_exchange_at = now;
    }

    /// Returns when [`FleetMember::poll`] must be called again if no message arrives before.
    pub fn next_poll_at(&self) -> ClockNanoseconds {
        let mut at = match self.in_flight {
            Some(_) => ClockNanoseconds::MAX,
            None => self.next_exchange_at,
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
    fn pledged_until(&self) -> ClockNanoseconds {
        self.last_reply_at.saturating_add(self.timing.patience)
    }

    /// Advances the time, and returns the exchange to send now, if any. `session` is a new random number.
    pub fn poll(
        &mut self,
        now: ClockNanoseconds,
        session: SessionId,
    ) -> Option<RegistryRequest<E>> {
        self.writes.expire(now);
        let queued = self.writes.queued().len();
        if queued > 0 && now >= self.pledged_until() {
            let unheard = self.writes.drop_queued();
            match self.is_fenced(now) {
                true => self.first_unrefused = self.writes.next_ticket(),
                false => self.unheard_writes += unheard,
            }
            self.has_unheard_writes = true;
            // The first exchange of the next session has to announce these writes to the other members.
            self.joined = None;
            self.in_flight = None;
        }
        let publishes = queued > 0 && self.joined.is_some();
        if self.in_flight.is_some() || (now < self.next_exchange_at && !publishes) {
            return None;
        }
        let (request, session, writes) = self.next_request(now, session)?;
        self.early_confirmations.clear();
        self.in_flight = Some(PendingExchange {
            sent_at: now,
            session,
            writes,
            forgets: self.members_to_forget.clone(),
            invalidates_all: request.forgets_members(),
            ends_session: matches!(request, RegistryRequest::Leave { .. }),
        });
        Some(request)
    }

    fn next_request(
        &self,
        now: ClockNanoseconds,
        new: SessionId,
    ) -> Option<(RegistryRequest<E>, SessionId, usize)> {
        let Some(joined) = &self.joined else {
            if self.leaving {
                return None;
            }
            let join = RegistryRequest::Join {
                name: self.name.clone(),
                session: new,
                known: self.known_members.iter().cloned().collect(),
                is_new: !self.has_joined_before,
            };
            return Some((join, new, 0));
        };
        let (incarnation, session) = (joined.incarnation.clone(), joined.session);
        if self.leaving && self.writes.queued().len() == 0 && !self.has_unheard_writes {
            let leave = RegistryRequest::Leave {
                incarnation,
                session,
            };
            return Some((leave, session, 0));
        }
        let own = self.writes.queued();
        let writes = own.len();
        let mut entries: Vec<LogEntry<E>> = own.cloned().collect();
        let fenced = joined.peers.fenced_sessions(&self.timing, now);
        // A forgotten member may have written without the others hearing of it.
        if self.has_unheard_writes || !self.members_to_forget.is_empty() || !fenced.is_empty() {
            entries.push(LogEntry::Everything);
        }
        let sync = RegistryRequest::Sync {
            incarnation,
            session,
            count: joined.count,
            position: joined.position,
            entries,
            settled: self.is_settled(now),
            over: joined.peers.expired_sessions(&self.timing, now),
            forgets: self.members_to_forget.clone(),
            fenced,
        };
        Some((sync, session, writes))
    }

    /// Returns whether all leases of earlier incarnations have expired.
    fn is_settled(&self, now: ClockNanoseconds) -> bool {
        let seen = self.incarnation.as_ref();
        seen.is_some_and(|(_, since, settled)| {
            *settled || now >= since.saturating_add(self.timing.patience)
        })
    }

    /// Handles an exchange that has failed or takes too long. It is unknown whether the registry has carried it out or
    /// will do so.
    pub fn fail_exchange(&mut self, now: ClockNanoseconds) {
        if self.in_flight.take().is_some() {
            self.next_exchange_at = now.saturating_add(self.timing.renew / 4);
        }
    }

    /// Processes the reply to the exchange.
    pub fn handle_reply(
        &mut self,
        now: ClockNanoseconds,
        reply: RegistryReply<E>,
    ) -> Vec<Effect<E>> {
        let Some(flight) = self.in_flight.take() else {
            return Vec::new();
        };
        self.last_reply_at = now;
        self.note_incarnation(&reply, now);
        self.next_exchange_at = flight.sent_at.saturating_add(self.timing.renew).max(now);
        match (reply.outcome, self.joined.take()) {
            (ExchangeOutcome::Unknown, _) => {
                self.lease_until = 0;
                self.next_exchange_at = now;
                Vec::new()
            }
            (ExchangeOutcome::OutOfStep(count), Some(joined)) => {
                self.joined = Some(JoinedSession { count, ..joined });
                self.next_exchange_at = now;
                Vec::new()
            }
            (ExchangeOutcome::OutOfStep(_), None) => Vec::new(),
            (ExchangeOutcome::Done(_), None) => {
                self.lease_until = 0;
                self.handle_join_reply(now, &flight, reply)
            }
            (ExchangeOutcome::Done(count), Some(joined)) => {
                let joined = JoinedSession { count, ..joined };
                self.handle_sync_reply(now, joined, &flight, reply)
            }
        }
    }

    fn note_incarnation(&mut self, reply: &RegistryReply<E>, now: ClockNanoseconds) {
        match &mut self.incarnation {
            Some((known, _, settled)) if *known == reply.incarnation => *settled |= reply.settled,
            seen => *seen = Some((reply.incarnation.clone(), now, reply.settled)),
        }
    }

    /// Joins the fleet. A new session does not know what was written before, so all pages are invalidated.
    fn handle_join_reply(
        &mut self,
        now: ClockNanoseconds,
        flight: &PendingExchange,
        reply: RegistryReply<E>,
    ) -> Vec<Effect<E>> {
        let mut peers = Peers::default();
        peers.update(flight.session, &reply.rows, None, now);
        self.update_known_members(&reply, flight.session);
        let mut own = reply
            .rows
            .iter()
            .filter(|row| row.session == flight.session);
        // An earlier process of this name may have responded to writes that it could not publish. The first exchange
        // invalidates everything because of that, before the others rely on this member.
        self.has_unheard_writes |= !self.has_joined_before && !own.all(|row| row.fresh);
        self.has_joined_before = true;
        // The next exchange is due at once, because the others rely on a member only from its second exchange.
        self.next_exchange_at = now;
        self.joined = Some(JoinedSession {
            session: flight.session,
            incarnation: reply.incarnation,
            count: 0,
            position: reply.head,
            announced_entry: 0,
            peers,
            rows_requested_at: flight.sent_at,
        });
        vec![Effect::Apply(LogEntry::Everything)]
    }

    fn update_known_members(&mut self, reply: &RegistryReply<E>, own: SessionId) {
        let others = reply.rows.iter().filter(|row| row.session != own);
        let others = others.filter(|row| !row.replaced && row.name != self.name);
        self.known_members = others.map(|row| row.name.clone()).collect();
    }

    fn handle_sync_reply(
        &mut self,
        now: ClockNanoseconds,
        mut joined: JoinedSession,
        flight: &PendingExchange,
        reply: RegistryReply<E>,
    ) -> Vec<Effect<E>> {
        if flight.ends_session {
            self.next_exchange_at = ClockNanoseconds::MAX;
            self.known_members.clear();
            return Vec::new();
        }
        self.last_reached_at = Some(flight.sent_at);
        let mut effects = joined.catch_up(&reply);
        if flight.invalidates_all {
            effects.push(Effect::Apply(LogEntry::Everything));
        }
        // The hints for these entries may have arrived while entries before them were missing, and were not confirmed
        // then.
        let authors: BTreeSet<SessionId> = reply.records.iter().map(|r| r.author).collect();
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
        let early = std::mem::take(&mut self.early_confirmations);
        let before = std::mem::replace(&mut joined.rows_requested_at, flight.sent_at);
        joined
            .peers
            .update(joined.session, &reply.rows, Some(before), now);
        self.update_known_members(&reply, joined.session);
        self.has_unheard_writes = false;
        self.members_to_forget
            .retain(|name| !flight.forgets.contains(name));
        if flight.writes > 0 {
            self.record_published(now, &joined, flight.writes, &reply);
        }
        for (session, incarnation, number) in early {
            self.writes.confirm(session, &incarnation, number);
        }
        for row in &reply.rows {
            self.writes
                .confirm(row.session, &reply.incarnation, row.position);
        }
        self.writes.expire(now);
        if let Some(pledged) = joined.peers.pledged_until(&self.timing)
            && !self.leaving
        {
            let own = flight.sent_at.saturating_add(self.timing.lease);
            self.lease_until = self.lease_until.max(own.min(pledged));
        }
        // This is done once: an exchange that is sent after the hint returns the announced entry.
        if std::mem::take(&mut joined.announced_entry) > joined.position {
            self.next_exchange_at = now;
        }
        self.joined = Some(joined);
        effects
    }

    /// Records that an exchange has published writes. They wait for all members whose lease may not have expired.
    fn record_published(
        &mut self,
        now: ClockNanoseconds,
        joined: &JoinedSession,
        count: usize,
        reply: &RegistryReply<E>,
    ) {
        let first = self.writes.dequeue_published(count);
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
        self.writes.add_published(PublishedBatch {
            first_ticket: first,
            incarnation: reply.incarnation.clone(),
            number: reply.head,
            unconfirmed: waits,
            unknown_until,
        });
    }

    /// Processes a hint: another member has published entries.
    pub fn handle_hint(&mut self, now: ClockNanoseconds, hint: EntriesHint<E>) -> Vec<Effect<E>> {
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
            joined.announced_entry = joined.announced_entry.max(last);
            self.next_exchange_at = now;
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
    pub fn handle_confirmation(
        &mut self,
        now: ClockNanoseconds,
        session: SessionId,
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
            self.early_confirmations
                .push((session, incarnation.clone(), number));
        }
    }
}

impl JoinedSession {
    /// Applies the log entries after the member's position. Invalidates everything if some of them are missing.
    ///
    /// A reply may be older than a hint that has been processed before it. The position then stays where it is: if it
    /// went back, the member would accept renders that began before entries that it has already confirmed.
    fn catch_up<E: Clone>(&mut self, reply: &RegistryReply<E>) -> Vec<Effect<E>> {
        if reply.head <= self.position {
            return Vec::new();
        }
        let numbers = reply.records.iter().map(|record| record.number);
        let new = numbers.filter(|number| *number > self.position);
        if !new.eq(self.position + 1..=reply.head) {
            self.position = reply.head;
            return vec![Effect::Apply(LogEntry::Everything)];
        }
        self.apply(reply.records.clone(), reply.head)
    }

    fn apply<E>(&mut self, records: Vec<LogRecord<E>>, last: u64) -> Vec<Effect<E>> {
        let new = records.into_iter();
        let new = new.filter(|r| r.number > self.position && r.author != self.session);
        let effects = new.map(|record| Effect::Apply(record.entry)).collect();
        self.position = last;
        effects
    }
}
