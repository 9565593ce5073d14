//! How long and how often a comparison measures: `--quick`, `--full` and `--as-posted`. Data and arithmetic; this
//! module starts nothing.

use std::time::Duration;

use howdah_bench::plan::StopLimits;
use serde::{Deserialize, Serialize};

use crate::suite::{BudgetChanges, Suite, SuitePage};

/// How long and how often a benchmark measures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunBudget {
    /// How many times each stack is measured in each cell.
    pub blocks: u32,
    /// When a window ends.
    pub until: WindowEnd,
    /// The length of the unmeasured warm-up before each window.
    pub warmup: Duration,
    /// The maximum number of concurrency levels, which are spread over the suite's.
    pub levels: usize,
    /// The time after which the measuring of a suite ends, with fewer blocks; `None` for no limit.
    pub limit: Option<Duration>,
}

/// The approximate time to start a stack, check its page and stop it, without any measurement.
const TURN_OVERHEAD: Duration = Duration::from_millis(1000);

/// When a window ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WindowEnd {
    /// After a time, the same for all stacks, however many requests it allows.
    Time(Duration),
    /// After the post's own number of requests, as with ab's `-n`; at the latest after
    /// [`POSTED_LIMIT`].
    Posted,
}

/// A window that needs longer for the post's requests is cut off at this time, and the report says so.
pub const POSTED_LIMIT: Duration = Duration::from_secs(120);

impl RunBudget {
    /// Returns a budget of minutes. It has nine windows, because fewer cannot prove anything once eight questions are
    /// adjusted for (2^-8 is the smallest p that nine pairs can have). They are short, because the number of windows
    /// matters and not their length.
    pub fn quick() -> RunBudget {
        RunBudget {
            blocks: 9,
            until: WindowEnd::Time(Duration::from_millis(600)),
            warmup: Duration::from_millis(200),
            levels: 3,
            limit: None,
        }
    }

    /// Returns a budget of hours, which is needed to prove a difference of a few per cent.
    pub fn full() -> RunBudget {
        RunBudget {
            blocks: 12,
            until: WindowEnd::Time(Duration::from_secs(4)),
            warmup: Duration::from_secs(1),
            levels: usize::MAX,
            limit: None,
        }
    }

    /// Returns the post's budget: its number of requests, once, without a warm-up.
    pub fn as_posted() -> RunBudget {
        RunBudget {
            blocks: 1,
            until: WindowEnd::Posted,
            warmup: Duration::ZERO,
            levels: usize::MAX,
            limit: None,
        }
    }

    /// Returns this budget with the changes that the suite specifies.
    pub fn with(mut self, extent: &BudgetChanges) -> RunBudget {
        if let Some(blocks) = extent.blocks {
            self.blocks = blocks;
        }
        if let Some(window) = extent.window {
            self.until = WindowEnd::Time(Duration::from_secs_f64(window));
        }
        if extent.posted {
            self.until = WindowEnd::Posted;
        }
        if let Some(warmup) = extent.warmup {
            self.warmup = Duration::from_secs_f64(warmup);
        }
        if let Some(levels) = extent.levels {
            self.levels = levels;
        }
        if let Some(minutes) = extent.minutes {
            self.limit = Some(Duration::from_secs_f64(minutes * 60.0));
        }
        self
    }

    /// Returns the levels to measure: the suite's first, its last and some between; if only one, the first, which most
    /// posts report.
    pub fn pick_levels(&self, levels: &[u32]) -> Vec<u32> {
        let all = levels.len();
        if all <= self.levels {
            return levels.to_vec();
        }
        if self.levels <= 1 {
            return levels.first().copied().into_iter().collect();
        }
        let last = self.levels - 1;
        let pick = |n: usize| levels[n * (all - 1) / last];
        (0..=last).map(pick).collect()
    }

    /// Returns how long a window of a page lasts at a level, or `None` if the number of its requests ends it. Windows
    /// are longer for a slow page with many clients, because a window in which only some of them get a response counts
    /// only the fast ones.
    pub fn window(&self, page: &SuitePage, level: u32) -> Option<Duration> {
        let least = Duration::from_secs_f64(page.seconds_per_client * f64::from(level));
        match self.until {
            WindowEnd::Time(window) => Some(window.max(least)),
            WindowEnd::Posted => None,
        }
    }

    /// Returns approximately how long a stack's turn takes at a page and a level, to distribute the available time.
    pub fn turn(&self, page: &SuitePage, level: u32) -> Duration {
        let posted = Duration::from_secs_f64(page.seconds_per_client * f64::from(level));
        TURN_OVERHEAD + self.warmup + self.window(page, level).unwrap_or(posted)
    }

    /// Returns when the warm-up before a window ends, or `None` if there is none. It has no more clients than PHP has
    /// processes, so requests that are cut off at its end leave no queue for the window. A slow page is requested until
    /// every process has responded twice.
    pub fn warm_up(&self, page: &SuitePage, clients: u32) -> Option<StopLimits> {
        if self.warmup.is_zero() {
            return None;
        }
        let slow = page.seconds_per_client > 0.0;
        Some(StopLimits {
            requests: slow.then_some(2 * u64::from(clients)),
            time: Some(if slow { POSTED_LIMIT } else { self.warmup }),
        })
    }

    /// Returns the budget in words, with the reason for each difference from the post.
    pub fn sentences(&self, suite: &Suite) -> Vec<String> {
        let load = &suite.load;
        let plural = |n: u32| if n == 1 { "" } else { "s" };
        let blocks = format!("{} block{}", self.blocks, plural(self.blocks));
        let keep = if load.keepalive {
            " with keep-alive"
        } else {
            ""
        };
        let limit = self.limit.map(|limit| {
            format!(
                "The measurement ends after {} minutes; if that is too short, fewer blocks are measured, and this \
                 report says so.",
                limit.as_secs_f64() / 60.0
            )
        });
        let WindowEnd::Time(window) = self.until else {
            let mut said = vec![format!(
                "{blocks} with the post's own number of requests ({}{keep}), {} a warm-up; a block is cut off \
                 after {} s.",
                load.requests,
                if self.warmup.is_zero() {
                    "without"
                } else {
                    "after"
                },
                POSTED_LIMIT.as_secs()
            )];
            said.extend(limit);
            return said;
        };
        let mut said = vec![format!(
            "{blocks} with windows of {} s, each after {} s of warm-up.",
            window.as_secs_f64(),
            self.warmup.as_secs_f64()
        )];
        said.extend(limit);
        for page in suite
            .pages
            .iter()
            .filter(|page| page.seconds_per_client > 0.0)
        {
            said.push(format!(
                "The windows of {} have at least {} s for each client, so that every client gets a response.",
                page.name, page.seconds_per_client
            ));
        }
        if suite.post.is_none() {
            return said;
        }
        said.push(format!(
            "The post ended each run after {} requests{keep}; here, windows end after a fixed time, so that a fast \
             stack is measured for as long as a slow one, and a disturbance affects all stacks alike. To measure \
             with the post's number of requests, run howdah compare {} --as-posted",
            load.requests, suite.name
        ));
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::FIVE;

    #[test]
    fn quick_budget_picks_first_last_and_middle_levels() {
        let all = [10, 30, 50, 100, 150, 200, 250, 300, 400, 500];
        assert_eq!(RunBudget::quick().pick_levels(&all), [10, 150, 500]);
        assert_eq!(RunBudget::quick().pick_levels(&[5, 10]), [5, 10]);
        assert_eq!(RunBudget::full().pick_levels(&all), all);
        assert_eq!(RunBudget::as_posted().pick_levels(&all), all);
        let one = RunBudget {
            levels: 1,
            ..RunBudget::quick()
        };
        assert_eq!(one.pick_levels(&[5, 10]), [5]);
    }

    #[test]
    fn windows_of_slow_pages_last_long_enough_for_all_clients() {
        let page = Suite::built_in("b4").unwrap().pages.remove(0);
        let seconds = |n: f64| Some(Duration::from_secs_f64(n));
        let quick = RunBudget::quick();
        assert_eq!(quick.window(&page, 10), seconds(0.6));
        assert_eq!(quick.window(&page, 500), seconds(10.0));
        assert_eq!(quick.warm_up(&page, 100).unwrap().requests, Some(200));
        let posted = RunBudget::as_posted();
        assert_eq!(posted.window(&page, 500), None);
        assert_eq!(posted.warm_up(&page, 100), None);
    }

    #[test]
    fn quick_budget_of_all_five_ends_within_25_minutes() {
        // Preparing their sites takes half a minute, and the last blocks exceed the limit by a few seconds.
        let limits = FIVE.iter().map(|name| {
            let suite = Suite::built_in(name).unwrap();
            RunBudget::quick().with(&suite.quick).limit.unwrap()
        });
        assert!(limits.sum::<Duration>() <= Duration::from_secs(24 * 60));
        assert_eq!(RunBudget::full().limit, None);
    }

    #[test]
    fn quick_budget_can_prove_each_question() {
        // The fourth benchmark asks which rates stay flat, which is a ratio of levels and needs no pairs; its windows
        // are long, so there are few of them.
        for name in [
            "b1",
            "b2",
            "b3",
            "b5",
            "hello",
            "cache",
            "cache-miss",
            "web",
        ] {
            let suite = Suite::built_in(name).unwrap();
            let budget = RunBudget::quick().with(&suite.quick);
            let all = suite.pages.len();
            let pages = suite.quick.pages.as_ref().map_or(all, Vec::len);
            let cells = pages * budget.pick_levels(&suite.load.concurrency).len();
            // Holm's first step, with the smallest p that so many pairs can have.
            let smallest = 2f64.powi(1 - budget.blocks as i32) * (suite.asked.len() * cells) as f64;
            assert!(smallest <= 0.05, "{name}: {smallest}");
        }
    }
}
