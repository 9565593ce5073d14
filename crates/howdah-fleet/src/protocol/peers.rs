//! The knowledge that a member derives from the rows of the others: the latest time until which each may serve stored
//! pages, and the time until which each is known to keep its pledge.

use std::collections::BTreeMap;

use super::message::{Name, Row, Session};
use super::{Moment, Timing};

/// The row of another member, observed over time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Peer {
    name: Name,
    count: u64,
    /// When this count was first seen. The exchange itself took place earlier.
    seen: Moment,
    /// A time before the exchange that produced this count. `None` if no earlier row was seen.
    after: Option<Moment>,
    /// The corresponding time for the previous count. The peer had received that count when it began the exchange that
    /// produced the current one, so it keeps its pledge for at least one lease from then. A single exchange that
    /// arrives late, after the peer has taken it for lost, does not prolong this.
    heard_after: Option<Moment>,
    /// Whether the member may write, and the fleet therefore waits for it.
    writes: bool,
    replaced: bool,
}

/// The other members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Peers(BTreeMap<Session, Peer>);

impl Peers {
    /// Updates the peers from the rows of a reply that arrived at `now`. `before` is the time at which the exchange was
    /// sent whose reply last showed the rows; every change since then happened after it.
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
                    // The row did not exist before, so all of its exchanges happened later.
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

    /// Returns the time until which all other members keep their pledge. `None` if this is unknown for any of them.
    pub fn pledged(&self, timing: &Timing) -> Option<Moment> {
        let writers = self.0.values().filter(|peer| peer.writes);
        let mut until = Moment::MAX;
        for peer in writers {
            until = until.min(peer.heard_after?.saturating_add(timing.lease));
        }
        Some(until)
    }

    /// Returns the members that have not been heard from for a lease. The lease is not extended because of them.
    pub fn silent(&self, timing: &Timing, now: Moment) -> Vec<Name> {
        let late = |peer: &&Peer| {
            let last = peer.heard_after.unwrap_or(peer.seen);
            peer.writes && last.saturating_add(timing.lease) <= now
        };
        let silent = self.0.values().filter(late);
        silent.map(|peer| peer.name.clone()).collect()
    }

    /// Returns the replaced sessions that can no longer serve any page.
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

    /// Returns the silent sessions whose members must have fenced themselves, each with the count for which this holds.
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

    /// Returns the time until which a session may serve the pages that it had when its row was last seen.
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
