//! The possible outcomes of asking the fleet for a render. Their names are the same in the log, the metric and the
//! documentation.

use std::sync::atomic::{AtomicU64, Ordering};

/// The outcome of a render that members may share. With every outcome except the first two, this member renders the
/// page for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FleetRenderOutcome {
    /// The page that another member rendered is stored here.
    Taken,
    /// The page was rendered here and handed over.
    Given,
    /// The member that rendered the page did not store it: the page is for one visitor, or the render failed.
    RenderNotShared,
    /// The member that renders the page did not finish within a lease.
    RenderTooSlow,
    /// Pages were invalidated here since the other member's render began.
    RenderOutdated,
    /// A page in Valkey is not signed with the fleet's key, or was stored under the key of another page.
    RenderForged,
    /// A page is older than pages in Valkey can be, or is dated in the future: an old page was put back, or the clocks
    /// differ.
    RenderUntimely,
    /// A signed page is not in the format that this member stores under its key.
    RenderUnreadable,
    /// The page is too long to be handed over.
    RenderTooLong,
    /// Valkey did not answer in time, or refused.
    RenderUnreachable,
    /// Too many renders are waiting for other members.
    RenderBusy,
}

impl FleetRenderOutcome {
    /// All outcomes, each once.
    pub const ALL: [FleetRenderOutcome; 11] = [
        FleetRenderOutcome::Taken,
        FleetRenderOutcome::Given,
        FleetRenderOutcome::RenderNotShared,
        FleetRenderOutcome::RenderTooSlow,
        FleetRenderOutcome::RenderOutdated,
        FleetRenderOutcome::RenderForged,
        FleetRenderOutcome::RenderUntimely,
        FleetRenderOutcome::RenderUnreadable,
        FleetRenderOutcome::RenderTooLong,
        FleetRenderOutcome::RenderUnreachable,
        FleetRenderOutcome::RenderBusy,
    ];

    /// Returns the outcome's name in log, status and metrics.
    pub fn name(self) -> String {
        format!("{self:?}")
    }
}

/// How often each outcome has occurred.
#[derive(Debug, Default)]
pub(super) struct RenderCounters([AtomicU64; FleetRenderOutcome::ALL.len()]);

impl RenderCounters {
    pub fn add(&self, outcome: FleetRenderOutcome) {
        self.0[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn sums(&self) -> Vec<(String, u64)> {
        let sum = |outcome: FleetRenderOutcome| self.0[outcome as usize].load(Ordering::Relaxed);
        FleetRenderOutcome::ALL.map(|o| (o.name(), sum(o))).to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_counted_by_name() {
        let counters = RenderCounters::default();
        for outcome in FleetRenderOutcome::ALL {
            counters.add(outcome);
        }
        assert!(counters.sums().iter().all(|(_, n)| *n == 1));
        assert_eq!(counters.sums()[2].0, "RenderNotShared");
    }
}
