//! What a member knows of the others by their rows: until when they serve stored pages at most, and until
//! when they are known to keep their pledge.

use std::collections::BTreeMap;

use super::message::{Name, Row, Session};
use super::{Moment, Timing};

/// Another member's row over time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Peer {
    name: Name,
    count: u64,
    /// When this count was first seen: the exchange itself was before.
    seen: Moment,
    /// A moment before the exchange that made this count; none: no earlier row was seen.
    after: Option<Moment>,
    /// The same of the count before: the peer had heard of that one when it began the exchange that made
    /// this one, so it keeps its pledge for a lease from then at least. A single exchange that
    /// arrives late, when the peer has long taken it for lost, does not prolong this.
    heard_after: Option<Moment>,
    /// Whether the fleet waits for it: it may write.
    writes: bool,
    replaced: bool,
}

/// The other members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Peers(BTreeMap<Session, Peer>);

impl Peers {
    /// The rows of a reply that came `now`. `before`: when the exchange was sent whose reply showed the rows
    /// last; all that has changed since happened later.
    pub fn update(&mut self, own: Session, rows: &[Row], before: Option<Moment>, now: Moment) {
        self.0
            .retain(|session, _| rows.iter().any(|row| row.session == *session));
        for row in rows.iter().filter(|row| row.session != own) {
            let writes = !(row.replaced || row.fresh && row.count == 0);
            let Some(peer) = self.0.get_mut(&row.session) else {
                let peer = Peer {
                    name: row.name.clone(),
                    count: row.count,
                    seen: now,
                    after: before,
                    // It was not there before: all of its exchanges were later.
                    heard_after: before.filter(|_| row.count > 0),
                    writes,
                    replaced: row.replaced,
                };
                self.0.insert(row.session, peer);
                continue;
            };
            peer.writes = writes;
            peer.replaced = row.replaced;
            if row.count > peer.count {
                peer.heard_after = match row.count - peer.count {
                    1 => peer.after,
                    _ => before,
                };
                peer.after = before;
                peer.count = row.count;
                peer.seen = now;
            }
        }
    }

    /// Until when all others keep their pledge; none: of some this is not known.
    pub fn pledged(&self, timing: &Timing) -> Option<Moment> {
        let writers = self.0.values().filter(|peer| peer.writes);
        let mut until = Moment::MAX;
        for peer in writers {
            until = until.min(peer.heard_after?.saturating_add(timing.lease));
        }
        Some(until)
    }

    /// Members for whom the lease is not extended: they have not been heard of for a lease.
    pub fn silent(&self, timing: &Timing, now: Moment) -> Vec<Name> {
        let late = |peer: &&Peer| {
            let last = peer.heard_after.unwrap_or(peer.seen);
            peer.writes && last.saturating_add(timing.lease) <= now
        };
        let silent = self.0.values().filter(late);
        silent.map(|peer| peer.name.clone()).collect()
    }

    /// Replaced sessions that serve no page any more.
    pub fn over(&self, timing: &Timing, now: Moment) -> Vec<Session> {
        let over = |(_, peer): &(&Session, &Peer)| {
            peer.replaced && peer.seen.saturating_add(timing.patience) <= now
        };
        self.0
            .iter()
            .filter(over)
            .map(|(session, _)| *session)
            .collect()
    }

    /// Silent sessions whose members have fenced themselves, with the count for which that is so.
    pub fn fenced(&self, timing: &Timing, now: Moment) -> Vec<(Session, u64)> {
        let Some(fence) = timing.fence else {
            return Vec::new();
        };
        let fence = Timing::patience(fence);
        let fenced = |(_, peer): &(&Session, &Peer)| {
            !peer.replaced && peer.seen.saturating_add(fence) <= now
        };
        let fenced = self.0.iter().filter(fenced);
        fenced
            .map(|(session, peer)| (*session, peer.count))
            .collect()
    }

    /// Until when a session may serve pages that it had when its row was last seen.
    pub fn serves_until(&self, session: Session, timing: &Timing) -> Moment {
        let seen = self.0.get(&session).map_or(Moment::MAX, |peer| peer.seen);
        seen.saturating_add(timing.patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: Timing = Timing {
        lease: 100,
        patience: 110,
        fence: Some(640),
        renew: 10,
    };

    fn row(count: u64) -> Row {
        Row {
            session: 2,
            name: "b".into(),
            count,
            position: 0,
            replaced: false,
            fresh: false,
        }
    }

    #[test]
    fn a_peer_is_counted_on_from_the_exchange_before_its_last() {
        let mut peers = Peers::default();
        peers.update(1, &[row(7)], None, 10);
        assert_eq!(peers.pledged(&TIMING), None, "nothing is known of its past");
        peers.update(1, &[row(8)], Some(5), 20);
        assert_eq!(peers.pledged(&TIMING), None, "that one may have been late");
        peers.update(1, &[row(9)], Some(15), 30);
        assert_eq!(peers.pledged(&TIMING), Some(105));
        peers.update(1, &[row(9)], Some(25), 40);
        assert_eq!(peers.pledged(&TIMING), Some(105), "it did not move");
        peers.update(1, &[row(12)], Some(35), 50);
        assert_eq!(peers.pledged(&TIMING), Some(135));
        assert_eq!(peers.serves_until(2, &TIMING), 160);
    }

    #[test]
    fn a_peer_that_has_not_moved_is_fenced_a_part_in_64_later_than_it_says() {
        let mut peers = Peers::default();
        peers.update(1, &[row(7)], None, 10);
        peers.update(1, &[row(7)], Some(15), 20);
        assert_eq!(peers.fenced(&TIMING, 660), []);
        assert_eq!(peers.fenced(&TIMING, 661), [(2, 7)]);
        peers.update(1, &[row(8)], Some(650), 660);
        assert_eq!(peers.fenced(&TIMING, 1300), []);
    }

    #[test]
    fn a_new_member_interrupts_nobody_and_one_that_replaces_another_does() {
        for fresh in [true, false] {
            let mut peers = Peers::default();
            peers.update(1, &[], None, 10);
            let new = Row { fresh, ..row(0) };
            peers.update(1, &[new], Some(5), 20);
            let unknown = (!fresh).then_some(None);
            assert_eq!(peers.pledged(&TIMING), unknown.unwrap_or(Some(Moment::MAX)));
            let moved = Row { fresh, ..row(1) };
            peers.update(1, &[moved], Some(15), 30);
            assert_eq!(peers.pledged(&TIMING), Some(105));
        }
    }
}
