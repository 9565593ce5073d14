//! Two servers measured alternately: from the figures of the pairs to a verdict.
//!
//! The statistic is the log-ratio of a pair, candidate to base. A disturbance that slows both windows of a pair by the
//! same factor does not change it, and "twice as fast" and "half as fast" are equally far from zero. The order within
//! pairs alternates (AB, BA, AB …), so a steady drift changes sign and cancels.
//!
//! "Faster" needs three things: an interval that excludes zero, an exact test below the level (adjusted when several
//! questions are asked), and a difference above the noise floor of the same server against itself. "Same" needs the
//! whole interval within the margin. Everything else is "cannot tell", with the number of pairs that would settle it.
//! Those pairs must be measured in a new comparison from the start, never added until the verdict pleases.

use serde::{Deserialize, Serialize};

use super::bootstrap::{self, ConfidenceInterval};
use super::verdict::{ComparisonSide, ComparisonVerdict, InvalidReason};
use super::{mean, median, sign_flip, standard_deviation};

/// The thresholds and levels of a judgement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JudgementSettings {
    /// Differences below this share (0.03 is 3 %) are called "the same".
    pub margin: f64,
    /// The confidence level of intervals, for example 0.95.
    pub level: f64,
    /// The seed of the resampling.
    pub seed: u64,
}

impl Default for JudgementSettings {
    fn default() -> Self {
        JudgementSettings {
            margin: 0.03,
            level: 0.95,
            seed: 1,
        }
    }
}

/// Whether a higher or a lower value of a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BetterDirection {
    /// More is better, as for throughput.
    Higher,
    /// Less is better, as for latency.
    Lower,
}

/// The judgement of one figure of two servers. Ratios above 1 favour the candidate, also for latencies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The figure that was compared, for example "good responses per second".
    pub metric: String,
    /// Whether this figure was chosen before the run as the one that decides.
    pub primary: bool,
    /// The geometric mean of the pairs' ratios.
    pub ratio: f64,
    /// The interval of the ratio; `None` for fewer than two pairs.
    pub interval: Option<ConfidenceInterval>,
    /// Every pair's ratio, in the order measured.
    pub pairs: Vec<f64>,
    /// The p-value of the exact sign-flip test.
    pub p: f64,
    /// The p-value after Holm's adjustment for all figures of the comparison.
    pub p_adjusted: f64,
    /// The largest ratio that is consistent with comparing the same server with itself (1.02 is 2 %); `None` if no
    /// control was run.
    pub noise_floor: Option<f64>,
    /// The margin below which differences do not count, as a share.
    pub margin: f64,
    /// The indexes of pairs that are far from the others (modified Z over 3.5). They are not excluded.
    pub disturbed: Vec<usize>,
    /// The ratio without the disturbed pairs, to show how much depends on them.
    pub ratio_without_disturbed: Option<f64>,
    /// The verdict on the two servers by this figure.
    pub verdict: ComparisonVerdict,
}

/// One figure to be judged.
#[derive(Clone, Debug)]
pub struct FigureQuestion<'a> {
    /// The figure's name, for example "good responses per second".
    pub metric: &'a str,
    /// Whether this figure was chosen before the run as the one that decides.
    pub primary: bool,
    /// Whether a higher or a lower value is better.
    pub better: BetterDirection,
    /// `(base, candidate)` of each pair, in the order measured.
    pub pairs: &'a [(f64, f64)],
    /// `(base, base again)` of each block with a control. Empty if no control was run.
    pub control: &'a [(f64, f64)],
}

/// Judges all figures of one comparison, adjusted for their number. If there are any `invalid` reasons, the verdict is
/// invalid whatever the ratios are.
pub fn judge(
    questions: &[FigureQuestion<'_>],
    invalid: &[InvalidReason],
    settings: JudgementSettings,
) -> Vec<Judgement> {
    let ratios: Vec<Vec<f64>> = questions
        .iter()
        .map(|q| log_ratios(q.pairs, q.better))
        .collect();
    let raw: Vec<f64> = ratios
        .iter()
        .map(|ratios| sign_flip::p_value(ratios, settings.seed))
        .collect();
    // The primary figure was declared in advance and is asked first: it is tested at the full
    // level, the others as a family (a gatekeeper; Dmitrienko 2003).
    let others: Vec<usize> = (0..questions.len())
        .filter(|i| !questions[*i].primary)
        .collect();
    let adjusted_others = super::holm::adjust(&others.iter().map(|i| raw[*i]).collect::<Vec<_>>());
    let mut adjusted = raw.clone();
    for (place, index) in others.into_iter().enumerate() {
        adjusted[index] = adjusted_others[place];
    }
    questions
        .iter()
        .enumerate()
        .map(|(i, question)| {
            judge_figure(question, &ratios[i], raw[i], adjusted[i], invalid, settings)
        })
        .collect()
}

fn log_ratios(pairs: &[(f64, f64)], better: BetterDirection) -> Vec<f64> {
    pairs
        .iter()
        .map(|(base, candidate)| match better {
            BetterDirection::Higher => (candidate / base).ln(),
            BetterDirection::Lower => (base / candidate).ln(),
        })
        .collect()
}

fn judge_figure(
    question: &FigureQuestion<'_>,
    ratios: &[f64],
    p: f64,
    p_adjusted: f64,
    invalid: &[InvalidReason],
    settings: JudgementSettings,
) -> Judgement {
    let finite = !ratios.is_empty() && ratios.iter().all(|r| r.is_finite());
    let interval = finite
        .then(|| bootstrap::mean_interval(ratios, settings.level, settings.seed))
        .flatten();
    let control = log_ratios(question.control, question.better);
    let control_interval = bootstrap::mean_interval(&control, settings.level, !settings.seed)
        .filter(|i| i.low.is_finite() && i.high.is_finite());
    let floor = control_interval.map(|i| i.low.abs().max(i.high.abs()));
    let margin = settings.margin.ln_1p();

    let mut because = invalid.to_vec();
    if !finite {
        because.push(InvalidReason::NothingGood {
            arm: if question.pairs.iter().any(|(base, _)| *base <= 0.0) {
                ComparisonSide::Base
            } else {
                ComparisonSide::Candidate
            },
        });
    }
    if let Some(control_interval) = control_interval
        && question.primary
        && !control_interval.contains(0.0)
        && mean(&control).abs() > margin
        && sign_flip::p_value(&control, !settings.seed) <= 1.0 - settings.level
    {
        because.push(InvalidReason::ControlDiffers {
            by: percent(mean(&control).abs()),
        });
    }
    let verdict = if because.is_empty() {
        decide(ratios, interval, p_adjusted, floor, margin, settings)
    } else {
        ComparisonVerdict::Invalid { because }
    };

    let disturbed = if finite { outliers(ratios) } else { Vec::new() };
    let kept: Vec<f64> = ratios
        .iter()
        .enumerate()
        .filter(|(i, _)| !disturbed.contains(i))
        .map(|(_, r)| *r)
        .collect();
    Judgement {
        metric: question.metric.to_owned(),
        primary: question.primary,
        ratio: mean(ratios).exp(),
        interval: interval.map(|i| i.map(f64::exp)),
        pairs: ratios.iter().map(|r| r.exp()).collect(),
        p,
        p_adjusted,
        noise_floor: floor.map(f64::exp),
        margin: settings.margin,
        ratio_without_disturbed: (!disturbed.is_empty()).then(|| mean(&kept).exp()),
        disturbed,
        verdict,
    }
}

fn decide(
    ratios: &[f64],
    interval: Option<ConfidenceInterval>,
    p: f64,
    floor: Option<f64>,
    margin: f64,
    settings: JudgementSettings,
) -> ComparisonVerdict {
    let centre = mean(ratios);
    let Some(interval) = interval else {
        return ComparisonVerdict::CannotTell {
            more_pairs: Some(sign_flip::fewest_pairs(1.0 - settings.level) - ratios.len()),
        };
    };
    if interval.within(margin) {
        return ComparisonVerdict::Same {
            within: settings.margin * 100.0,
        };
    }
    let above_noise = floor.is_none_or(|floor| centre.abs() > floor);
    if !interval.contains(0.0) && p <= 1.0 - settings.level && above_noise {
        return if centre > 0.0 {
            ComparisonVerdict::Faster {
                by: percent(centre),
                low: percent(interval.low),
                high: percent(interval.high),
            }
        } else {
            ComparisonVerdict::Slower {
                by: percent(-centre),
                low: percent(-interval.high),
                high: percent(-interval.low),
            }
        };
    }
    ComparisonVerdict::CannotTell {
        more_pairs: additional_pairs_needed(ratios, margin, floor, settings),
    }
}

/// Returns how many more pairs would make the interval narrow enough to exclude zero (and the noise floor, which
/// shrinks with it) or to lie within the margin, whichever takes fewer. `None` beyond a thousand. It is at least one,
/// because the present pairs did not decide.
fn additional_pairs_needed(
    ratios: &[f64],
    margin: f64,
    floor: Option<f64>,
    settings: JudgementSettings,
) -> Option<usize> {
    let have = ratios.len();
    let centre = mean(ratios).abs();
    let spread = standard_deviation(ratios);
    let target = centre.max(margin - centre);
    let tail = (1.0 + settings.level) / 2.0;
    // The quantile of a power of 80 %: an interval that excludes zero only on average would do so in half of the
    // experiments.
    const POWER_QUANTILE: f64 = 0.84;
    // Half the width of an interval of `n` values whose standard deviation is 1.
    let half_width = |n: usize| bootstrap::student_quantile(tail, n - 1) / (n as f64).sqrt();
    let mut needed = have + 1;
    while needed <= have + 1000 {
        let half = (half_width(needed) + POWER_QUANTILE / (needed as f64).sqrt()) * spread;
        let quiet = floor.is_none_or(|floor| {
            centre < margin || floor * half_width(needed) / half_width(have) < centre
        });
        if half <= target && quiet && needed >= sign_flip::fewest_pairs(1.0 - settings.level) {
            return Some(needed - have);
        }
        needed += 1;
    }
    None
}

/// Returns the indices of values whose modified Z-score (Iglewicz and Hoaglin 1993) is over 3.5. With fewer than five
/// values, none can be called unusual.
fn outliers(values: &[f64]) -> Vec<usize> {
    if values.len() < 5 {
        return Vec::new();
    }
    let middle = median(values);
    let distances: Vec<f64> = values.iter().map(|v| (v - middle).abs()).collect();
    let typical = median(&distances);
    if typical <= 0.0 {
        return Vec::new();
    }
    (0..values.len())
        .filter(|i| 0.6745 * distances[*i] / typical > 3.5)
        .collect()
}

/// Returns a log-ratio as a percentage: ln 1.1 is 10.
fn percent(log_ratio: f64) -> f64 {
    log_ratio.exp_m1() * 100.0
}

#[cfg(test)]
#[path = "paired_tests.rs"]
mod tests;
