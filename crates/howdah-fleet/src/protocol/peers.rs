//! The knowledge that a member derives from the rows of the others: the latest time until which each may serve stored
//! pages, and the time until which each is known to keep its pledge.

use std::collections::BTreeMap;

use super::message::{MemberName, MemberRow, SessionId};
use super::{ClockNanoseconds, Timing};

/// The row of another member, observed over time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ObservedPeer {
    name: MemberName,
    count: u64,
    /// When this count was first seen. The exchange itself took place earlier.
    count_seen_at: ClockNanoseconds,
    /// A time before the exchange that produced this count. `None` if no earlier row was seen.
    advanced_after: Option<ClockNanoseconds>,
    /// The corresponding time for the previous count. The peer had received that count when it began the exchange that
    /// produced the current one, so it keeps its pledge for at least one lease from then. A single exchange that
    /// arrives late, after the peer has taken it for lost, does not prolong this.
    heard_after: Option<ClockNanoseconds>,
    /// Whether the member may write, and the fleet therefore waits for it.
    may_write: bool,
    replaced: bool,
}

/// The other members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Peers(BTreeMap<SessionId, ObservedPeer>);

impl Peers {
    /// Updates the peers from the rows of a reply that arrived at `now`. `before` is the time at which the member sent
    /// the last exchange whose reply contained the rows, so the rows can only have changed after it.
    pub fn update(
        &mut self,
        own: SessionId,
        rows: &[MemberRow],
        before: Option<ClockNanoseconds>,
        now: ClockNanoseconds,
    ) {
        self.0
            .retain(|session, _| rows.iter().any(|row| row.session == *session));
        for row in rows.iter().filter(|row| row.session != own) {
            let writes = !(row.replaced || row.fresh && row.count == 0);
            let Some(peer) = self.0.get_mut(&row.session) else {
                let peer = ObservedPeer {
                    name: row.name.clone(),
                    count: row.count,
                    count_seen_at: now,
                    advanced_after: before,
                    // The row did not exist before, so all of its exchanges happened later.
                    heard_after: before.filter(|_| row.count > 0),
                    may_write: writes,
                    replaced: row.replaced,
                };
                self.0.insert(row.session, peer);
                continue;
            };
            peer.may_write = writes;
            peer.replaced = row.replaced;
            if row.count > peer.count {
                peer.heard_after = match row.count - peer.count {
                    1 => peer.advanced_after,
                    _ => before,
                };
                peer.advanced_after = before;
                peer.count = row.count;
                peer.count_seen_at = now;
            }
        }
    }

    /// Returns the time until which all other members keep their pledge. `None` if this is unknown for any of them.
    pub fn pledged_until(&self, timing: &Timing) -> Option<ClockNanoseconds> {
        let writers = self.0.values().filter(|peer| peer.may_write);
        let mut until = ClockNanoseconds::MAX;
        for peer in writers {
            until = until.min(peer.heard_after?.saturating_add(timing.lease));
        }
        Some(until)
    }

    /// Returns the members that have not been heard from for a lease. The lease is not extended because of them.
    pub fn silent_members(&self, timing: &Timing, now: ClockNanoseconds) -> Vec<MemberName> {
        let late = |peer: &&ObservedPeer| {
            let last = peer.heard_after.unwrap_or(peer.count_seen_at);
            peer.may_write && last.saturating_add(timing.lease) <= now
        };
        let silent = self.0.values().filter(late);
        silent.map(|peer| peer.name.clone()).collect()
    }

    /// Returns the replaced sessions that can no longer serve any page.
    pub fn expired_sessions(&self, timing: &Timing, now: ClockNanoseconds) -> Vec<SessionId> {
        let over = |(_, peer): &(&SessionId, &ObservedPeer)| {
            peer.replaced && peer.count_seen_at.saturating_add(timing.patience) <= now
        };
        self.0
            .iter()
            .filter(over)
            .map(|(session, _)| *session)
            .collect()
    }

    /// Returns the silent sessions whose members must have fenced themselves, each with the count for which this holds.
    pub fn fenced_sessions(&self, timing: &Timing, now: ClockNanoseconds) -> Vec<(SessionId, u64)> {
        let Some(fence) = timing.fence else {
            return Vec::new();
        };
        let fence = Timing::patience(fence);
        let fenced = |(_, peer): &(&SessionId, &ObservedPeer)| {
            !peer.replaced && peer.count_seen_at.saturating_add(fence) <= now
        };
        let fenced = self.0.iter().filter(fenced);
        fenced
            .map(|(session, peer)| (*session, peer.count))
            .collect()
    }

    /// Returns the time until which a session may serve the pages that it had when its row was last seen.
    pub fn serves_until(&self, session: SessionId, timing: &Timing) -> ClockNanoseconds {
        let seen = self
            .0
            .get(&session)
            .map_or(ClockNanoseconds::MAX, |peer| peer.count_seen_at);
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

    fn row(count: u64) -> MemberRow {
        MemberRow {
            session: 2,
            name: "b".into(),
            count,
            position: 0,
            replaced: false,
            fresh: false,
        }
    }

    #[test]
    fn pledge_counts_from_the_exchange_before_the_last() {
        let mut peers = Peers::default();
        peers.update(1, &[row(7)], None, 10);
        assert_eq!(
            peers.pledged_until(&TIMING),
            None,
            "nothing is known of its past"
        );
        peers.update(1, &[row(8)], Some(5), 20);
        assert_eq!(
            peers.pledged_until(&TIMING),
            None,
            "that one may have been late"
        );
        peers.update(1, &[row(9)], Some(15), 30);
        assert_eq!(peers.pledged_until(&TIMING), Some(105));
        peers.update(1, &[row(9)], Some(25), 40);
        assert_eq!(peers.pledged_until(&TIMING), Some(105), "it did not move");
        peers.update(1, &[row(12)], Some(35), 50);
        assert_eq!(peers.pledged_until(&TIMING), Some(135));
        assert_eq!(peers.serves_until(2, &TIMING), 160);
    }

    #[test]
    fn fence_of_a_silent_peer_allows_for_clock_rates() {
        let mut peers = Peers::default();
        peers.update(1, &[row(7)], None, 10);
        peers.update(1, &[row(7)], Some(15), 20);
        assert_eq!(peers.fenced_sessions(&TIMING, 660), []);
        assert_eq!(peers.fenced_sessions(&TIMING, 661), [(2, 7)]);
        peers.update(1, &[row(8)], Some(650), 660);
        assert_eq!(peers.fenced_sessions(&TIMING, 1300), []);
    }

    #[test]
    fn pledge_is_unknown_only_after_a_name_is_taken_over() {
        for fresh in [true, false] {
            let mut peers = Peers::default();
            peers.update(1, &[], None, 10);
            let new = MemberRow { fresh, ..row(0) };
            peers.update(1, &[new], Some(5), 20);
            let unknown = (!fresh).then_some(None);
            assert_eq!(
                peers.pledged_until(&TIMING),
                unknown.unwrap_or(Some(ClockNanoseconds::MAX))
            );
            let moved = MemberRow { fresh, ..row(1) };
            peers.update(1, &[moved], Some(15), 30);
            assert_eq!(peers.pledged_until(&TIMING), Some(105));
        }
    }
}
