//! How long and how often a comparison measures, so that a quick one ends in time. This module has no side effects.
//!
//! There are two stages. The *look* starts every arm once or more and measures each at every level: it shows the shapes
//! of the curves, and selects the arms that are worth a decision. The *decision* measures those few and the default in
//! new pairs, at one level: the figures that selected the best of ten arms would overstate its advantage.

use std::time::Duration;

use howdah_bench::report::formatting;
use serde::{Deserialize, Serialize};

use super::advise::{AppQuestion, QUESTIONS};

/// The time and the measurements that the user asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppBudget {
    /// The time that the whole comparison may take, in seconds; `None` for no limit.
    pub budget: Option<f64>,
    /// The number of pairs for each question of the decision; `None` for as many as significance needs.
    pub blocks: Option<u32>,
    /// The length of a window, in seconds; `None` if the schedule chooses it.
    pub window: Option<f64>,
    /// The numbers of clients; empty if the schedule chooses them.
    pub levels: Vec<u32>,
}

/// The schedule that follows from the budget, the pages and the arms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppSchedule {
    /// Numbers of clients, ascending.
    pub levels: Vec<u32>,
    /// The level of the decision, chosen before anything is measured.
    pub deciding: u32,
    /// The number of blocks of the look.
    pub looks: u32,
    /// The number of blocks of the decision.
    pub blocks: u32,
    /// The length of a window, in seconds.
    pub window: f64,
    /// The length of the warm-up before each window, in seconds.
    pub warmup: f64,
    /// The names of arms that are omitted for lack of time.
    pub left_out: Vec<String>,
}

/// The time that an arm needs.
#[derive(Clone, Debug, PartialEq)]
pub struct ArmCost {
    /// The arm's name.
    pub name: String,
    /// The time to start and end it, in seconds.
    pub start: f64,
    /// The arm with the highest number is omitted first; an arm with 0 never is.
    pub omission_priority: u32,
    /// The question that the arm belongs to; `None` for the default.
    pub question: Option<AppQuestion>,
}

/// The number of pairs. With Holm's adjustment for five questions, eight pairs can reach 0.05 (5 / 2^7), seven cannot.
pub const DECISION_PAIRS: u32 = 8;
/// A window has room for this many responses of a slow page on each core.
const RESPONSES_PER_CORE: f64 = 10.0;
/// How often the warm-up is typically repeated until the rate no longer rises.
pub const TYPICAL_WARM_UPS: f64 = 3.0;
/// The shortest window that is worth starting a stack for, in seconds.
const MIN_WINDOW_SECONDS: f64 = 0.3;
const MAX_QUICK_WINDOW_SECONDS: f64 = 1.5;
/// The share of the remaining time that is planned, because programs take longer to start on a busy machine.
const PLANNED_SHARE: f64 = 0.9;
/// The longest window that a slow page gets, in seconds.
const MAX_WINDOW_SECONDS: f64 = 30.0;

impl AppBudget {
    /// Returns a budget that ends within two minutes.
    pub fn quick() -> AppBudget {
        AppBudget {
            budget: Some(112.0),
            blocks: None,
            window: None,
            levels: Vec::new(),
        }
    }

    /// Returns a budget of one or several hours, for a night.
    pub fn full() -> AppBudget {
        AppBudget {
            budget: None,
            blocks: Some(30),
            window: Some(5.0),
            levels: Vec::new(),
        }
    }

    /// Creates the schedule for these arms. `service` is the time that a page takes without concurrency, in seconds;
    /// `left` is the rest of the budget, in seconds.
    pub fn schedule(
        &self,
        cores: u32,
        service: f64,
        costs: &[ArmCost],
        left: Option<f64>,
    ) -> AppSchedule {
        let quick = left.is_some();
        let deciding = 8 * cores;
        let mut levels = match (self.levels.is_empty(), quick) {
            (false, _) => self.levels.clone(),
            (true, true) => vec![cores, deciding],
            (true, false) => vec![1, cores, 4 * cores, deciding, 32 * cores],
        };
        levels.sort_unstable();
        levels.dedup();
        let deciding = match self.levels.is_empty() {
            true => deciding,
            false => levels.last().copied().unwrap_or(deciding),
        };
        let least = (RESPONSES_PER_CORE * service).clamp(MIN_WINDOW_SECONDS, MAX_WINDOW_SECONDS);
        let mut schedule = AppSchedule {
            levels,
            deciding,
            looks: match quick {
                true => 1,
                false => self.blocks.unwrap_or(DECISION_PAIRS).min(5),
            },
            blocks: self.blocks.unwrap_or(DECISION_PAIRS),
            window: self.window.unwrap_or(least),
            warmup: 0.0,
            left_out: Vec::new(),
        };
        // Every client gets one response before anything is counted.
        let once = f64::from(deciding) * service / f64::from(cores);
        schedule.warm_up(once);
        let Some(left) = left else {
            return schedule;
        };
        let left = left * PLANNED_SHARE;
        let mut costs = costs.to_vec();
        costs.sort_by_key(|cost| cost.omission_priority);
        // If the budget is too small, the schedule drops in this order: arms that seldom win, the lower levels, half of
        // the window, pairs.
        while schedule.total_seconds(&costs) > left {
            if let Some(last) = costs.pop_if(|cost| cost.omission_priority > 0) {
                schedule.left_out.push(last.name);
            } else if schedule.levels.len() > 1 {
                schedule.levels.retain(|level| *level == deciding);
            } else if schedule.window > (least * 0.5).max(MIN_WINDOW_SECONDS)
                && self.window.is_none()
            {
                schedule.window = (least * 0.5).max(MIN_WINDOW_SECONDS);
                schedule.warm_up(once);
            } else if schedule.blocks > 2 && self.blocks.is_none() {
                schedule.blocks -= 1;
            } else {
                break;
            }
        }
        // The remaining time makes the windows longer.
        if self.window.is_none() {
            for tenths in (1..=(MAX_QUICK_WINDOW_SECONDS * 20.0) as u32).rev() {
                let mut longer = schedule.clone();
                longer.window = f64::from(tenths) / 20.0;
                longer.warm_up(once);
                if longer.window > schedule.window && longer.total_seconds(&costs) <= left {
                    schedule = longer;
                    break;
                }
            }
        }
        schedule
    }

    /// Returns when the whole comparison has to end, counted from its start; `None` for no limit.
    pub fn limit(&self) -> Option<Duration> {
        self.budget.map(Duration::from_secs_f64)
    }
}

impl AppSchedule {
    fn warm_up(&mut self, once: f64) {
        self.warmup = (self.window * 0.4).clamp(0.15, 2.0).max(once);
    }

    /// Returns how long the whole comparison will take, in seconds.
    pub fn total_seconds(&self, costs: &[ArmCost]) -> f64 {
        let measuring = TYPICAL_WARM_UPS * self.warmup + self.window;
        let levels = self.levels.len() as f64;
        let starts: f64 = costs.iter().map(|cost| cost.start).sum();
        let look = starts + costs.len() as f64 * levels * measuring;
        let mean = starts / costs.len().max(1) as f64;
        // The default is measured twice, and a challenger for each question that can be asked.
        let asked = |question: &&AppQuestion| costs.iter().any(|c| c.question == Some(**question));
        let turns = 2 + QUESTIONS.iter().filter(asked).count();
        let decision = turns as f64 * (mean + measuring);
        f64::from(self.looks) * look + f64::from(self.blocks) * decision
    }

    /// Returns the schedule of the decision if the look took longer than planned: the windows become shorter, so all
    /// pairs fit. `overhead` is the time of a turn besides its windows, in seconds; `left` is the remaining time, in
    /// seconds.
    pub fn for_decision(&self, overhead: f64, turns: usize, left: f64) -> AppSchedule {
        let all = f64::from(self.blocks) * turns.max(1) as f64;
        let each = left * PLANNED_SHARE / all - overhead;
        let share = (each / (self.window + TYPICAL_WARM_UPS * self.warmup)).clamp(0.0, 1.0);
        AppSchedule {
            window: (self.window * share).max(MIN_WINDOW_SECONDS.min(self.window)),
            warmup: (self.warmup * share).max(0.1),
            ..self.clone()
        }
    }

    /// Returns the schedule as a sentence.
    pub fn sentence(&self) -> String {
        let clients: Vec<String> = self.levels.iter().map(u32::to_string).collect();
        format!(
            "{} of {} s for each stack at {} clients, then {} at {} clients for the stacks in question",
            formatting::plural(self.looks.into(), "window", "windows"),
            formatting::digits(self.window),
            clients.join(", "),
            formatting::plural(self.blocks.into(), "pair", "pairs"),
            self.deciding
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(n: usize, start: f64) -> Vec<ArmCost> {
        (0..n)
            .map(|at| ArmCost {
                name: format!("arm{at}"),
                start,
                omission_priority: at.saturating_sub(5) as u32,
                question: (at > 0).then(|| QUESTIONS[at % QUESTIONS.len()]),
            })
            .collect()
    }

    #[test]
    fn quick_schedule_fits_its_time() {
        for start in [0.1, 0.4, 1.0, 2.0] {
            for service in [0.0005, 0.01, 0.1] {
                for arms in [3, 8, 14] {
                    let costs = costs(arms, start);
                    let schedule = AppBudget::quick().schedule(2, service, &costs, Some(100.0));
                    let kept: Vec<ArmCost> = costs
                        .into_iter()
                        .filter(|cost| !schedule.left_out.contains(&cost.name))
                        .collect();
                    let takes = schedule.total_seconds(&kept);
                    assert!(takes <= 100.0, "{start} {service} {arms}: {takes}");
                    assert!(schedule.blocks >= 2 && schedule.window >= MIN_WINDOW_SECONDS);
                }
            }
        }
    }

    #[test]
    fn schedule_with_enough_time_omits_nothing_and_extends_windows() {
        let schedule = AppBudget::quick().schedule(2, 0.002, &costs(11, 0.3), Some(100.0));
        assert_eq!(schedule.left_out, Vec::<String>::new());
        assert_eq!((schedule.blocks, schedule.deciding), (DECISION_PAIRS, 16));
        assert_eq!(schedule.levels, [2, 16]);
        assert!(schedule.window > MIN_WINDOW_SECONDS, "{schedule:?}");
    }

    #[test]
    fn schedule_of_the_decision_shortens_windows_after_a_slow_look() {
        let schedule = AppBudget::quick().schedule(2, 0.002, &costs(11, 0.3), Some(100.0));
        assert_eq!(schedule.for_decision(0.3, 6, 1000.0), schedule);
        let shorter = schedule.for_decision(0.3, 6, 45.0);
        assert!(shorter.window < schedule.window && shorter.window >= MIN_WINDOW_SECONDS);
        assert_eq!(shorter.blocks, DECISION_PAIRS);
        let turns = f64::from(DECISION_PAIRS) * 6.0;
        assert!(
            turns * (0.3 + shorter.window + shorter.warmup) <= 45.0,
            "{shorter:?}"
        );
        assert_eq!(
            schedule.for_decision(0.3, 6, 0.0).window,
            MIN_WINDOW_SECONDS
        );
    }

    #[test]
    fn schedule_extends_windows_of_slow_pages() {
        let full = AppBudget {
            window: None,
            ..AppBudget::full()
        };
        assert_eq!(full.schedule(2, 1.0, &costs(5, 0.3), None).window, 10.0);
        let schedule = AppBudget::full().schedule(2, 0.01, &costs(5, 0.3), None);
        assert_eq!((schedule.window, schedule.blocks), (5.0, 30));
        assert_eq!(schedule.levels, [1, 2, 8, 16, 64]);
    }

    #[test]
    fn decision_pairs_suffice_for_five_questions() {
        let least = |pairs: u32| QUESTIONS.len() as f64 * 2f64.powi(1 - pairs as i32);
        assert!(least(DECISION_PAIRS) <= 0.05 && least(DECISION_PAIRS - 1) > 0.05);
    }
}
