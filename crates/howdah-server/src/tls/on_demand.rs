//! Names that clients ask for and no certificate covers, where certificates are ordered on demand. The
//! client is refused; whoever orders hears of the name, and decides.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A name is reported once in this time.
const AGAIN: Duration = Duration::from_secs(2);
/// Names remembered for that; while there are as many, others are not reported.
const NAMES: usize = 1000;

type Report = Box<dyn Fn(&str) + Send + Sync>;

/// See the module.
#[derive(Default)]
pub struct OnDemand {
    on: AtomicBool,
    report: OnceLock<Report>,
    recent: Mutex<HashMap<String, Instant>>,
}

impl OnDemand {
    /// Who hears of names; must not block. Given once.
    pub fn report_by(&self, report: Report) {
        // A second time is ignored.
        let _ = self.report.set(report);
    }

    /// Whether certificates are ordered on demand, from now on.
    pub fn switch(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    pub(super) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    pub(super) fn note(&self, name: &str, now: Instant) {
        let Some(report) = self.report.get() else {
            return;
        };
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() >= NAMES {
            recent.retain(|_, at| now.duration_since(*at) < AGAIN);
        }
        let known = recent.get(name);
        if known.is_some_and(|at| now.duration_since(*at) < AGAIN) || recent.len() >= NAMES {
            return;
        }
        recent.insert(name.to_owned(), now);
        drop(recent);
        report(name);
    }
}

impl fmt::Debug for OnDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnDemand").field(&self.is_on()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn a_flood_of_names_is_reported_to_a_limit() {
        let demand = OnDemand::default();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        demand.report_by(Box::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        }));
        let start = Instant::now();
        for number in 0..3 * NAMES {
            demand.note(&format!("{number}.example.org"), start);
            demand.note("0.example.org", start);
        }
        assert_eq!(count.load(Ordering::Relaxed), NAMES);
        demand.note("late.example.org", start + AGAIN);
        assert_eq!(count.load(Ordering::Relaxed), NAMES + 1);
    }
}
