//! Turns windows into rows: the figures of each arm at each level. This module has no side effects.

use howdah_bench::report::figures::Figures;
use howdah_bench::stats::mean;
use serde::{Deserialize, Serialize};

use super::arm::AppArm;
use crate::experiment::{ExperimentResult, MeasuredWindow, figures};

/// An arm with a larger share of errors than this is not ranked.
pub const MAX_ERROR_SHARE: f64 = 0.001;

/// The figures of an arm at a level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArmRow {
    /// The arm's name.
    pub arm: String,
    /// The arm's name for readers.
    pub title: String,
    /// The number of children, if it was set.
    pub children: Option<u32>,
    /// Whether the arm is Howdah and not a rival.
    pub ours: bool,
    /// The measured figures.
    #[serde(flatten)]
    pub figures: Figures,
    /// The number of windows.
    pub windows: usize,
}

impl ArmRow {
    /// Returns whether the arm has few enough errors to be ranked.
    pub fn is_healthy(&self) -> bool {
        self.figures.good > 0.0 && self.figures.error_share() < MAX_ERROR_SHARE
    }
}

/// The rows of all arms that were measured at one number of clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LevelRows {
    /// The number of clients.
    pub concurrency: u32,
    /// The rows, in the order of the arms.
    pub rows: Vec<ArmRow>,
}

/// Returns the measured rows at all levels. An arm that failed has no row, because its windows are not a sample of a
/// healthy server.
pub fn levels(arms: &[AppArm], measured: &[&ExperimentResult], clients: &[u32]) -> Vec<LevelRows> {
    let failed = |arm: usize| {
        let mut all = measured.iter().flat_map(|of| &of.failures);
        all.any(|failure| failure.arm == Some(arm))
    };
    let of = |arm: usize, level: u32| -> Vec<&MeasuredWindow> {
        let all = measured.iter().flat_map(|of| &of.windows);
        all.filter(|w| w.arm == arm && !w.control && w.concurrency == level)
            .collect()
    };
    let row = |at: usize, level: u32| {
        let (arm, windows) = (&arms[at], of(at, level));
        (!windows.is_empty()).then(|| ArmRow {
            arm: arm.name.clone(),
            title: arm.title.clone(),
            children: arm.choice().and_then(|choice| choice.children),
            ours: arm.choice().is_some(),
            figures: figures(&windows),
            windows: windows.len(),
        })
    };
    clients
        .iter()
        .map(|level| LevelRows {
            concurrency: *level,
            rows: (0..arms.len())
                .filter(|arm| !failed(*arm))
                .filter_map(|arm| row(arm, *level))
                .collect(),
        })
        .filter(|level| !level.rows.is_empty())
        .collect()
}

/// Returns the memory that one more child takes, in bytes: the slope of the stack's memory over the numbers of children
/// that were set, by least squares. Returns `None` with fewer than two numbers, or if the lab may not read the memory.
pub fn memory_per_child(rows: &[ArmRow]) -> Option<f64> {
    let points: Vec<(f64, f64)> = rows
        .iter()
        .filter(|row| row.figures.memory > 0)
        .filter_map(|row| Some((f64::from(row.children?), row.figures.memory as f64)))
        .collect();
    let x = mean(&points.iter().map(|p| p.0).collect::<Vec<_>>());
    let y = mean(&points.iter().map(|p| p.1).collect::<Vec<_>>());
    let spread: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    let common: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    // A negative slope is noise, not memory.
    (points.len() > 1 && spread > 0.0 && common > 0.0).then(|| common / spread)
}

#[cfg(test)]
pub(super) fn test_row(arm: &str, children: Option<u32>, good: f64, memory: u64) -> ArmRow {
    ArmRow {
        arm: arm.to_owned(),
        title: arm.to_owned(),
        children,
        ours: arm.starts_with("howdah"),
        figures: Figures {
            good,
            requests: 1000,
            memory,
            ..Figures::default()
        },
        windows: 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_per_child_is_the_slope_over_their_number() {
        let mib = 1 << 20;
        let rows: Vec<ArmRow> = [1, 2, 4, 8]
            .map(|n| test_row("howdah", Some(n), 1.0, (30 + 6 * u64::from(n)) * mib))
            .to_vec();
        let slope = memory_per_child(&rows).unwrap();
        assert!((slope / mib as f64 - 6.0).abs() < 1e-9, "{slope}");
        assert_eq!(memory_per_child(&rows[..1]), None);
        let hidden: Vec<ArmRow> = rows
            .into_iter()
            .map(|mut row| {
                row.figures.memory = 0;
                row
            })
            .collect();
        assert_eq!(memory_per_child(&hidden), None);
    }
}
