//! Derives the recommended settings, how certain they are, and why, from pairs of windows. This module has no side
//! effects.
//!
//! The default is mode `embed` with the number of children that Howdah chooses, without the page cache and without the
//! JIT compiler. Each of these four settings is compared with the default alone, not together with the others, and so is
//! the best rival. A recommendation differs from the default only if the pairs prove that the other setting is better; a
//! verdict of "cannot tell" keeps the default.

use howdah_bench::report::formatting::capital;
use howdah_bench::report::{bottleneck, formatting, judge};
use howdah_bench::stats::ComparisonVerdict;
use howdah_bench::stats::paired::{Judgement, JudgementSettings};
use howdah_bench::stats::verdict::InvalidReason;
use serde::{Deserialize, Serialize};

use super::arm::{AppArm, DEFAULT, HowdahMode, HowdahSettings, JIT_SETTINGS};
use super::rows::ArmRow;
use crate::adjust::holm_adjust;
use crate::experiment::{ArmFailure, MeasuredWindow};
use crate::table;

/// A smaller difference does not count ([`JudgementSettings::default`]). Of two numbers of children whose rates are
/// this close, the smaller is examined.
const MIN_DIFFERENCE: f64 = 0.03;
/// Confidence level of intervals and tests.
const CONFIDENCE_LEVEL: f64 = 0.95;

/// The maximum number of children that `max_children` permits.
const MAX_CHILDREN: u64 = 1000;

/// A question about the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AppQuestion {
    /// Which `mode` is fastest.
    Mode,
    /// Which `max_children` is fastest.
    Children,
    /// Whether the page cache (`cache`) makes the application faster.
    Cache,
    /// Whether PHP's JIT compiler makes the application faster.
    Jit,
    /// How the best rival compares.
    Rival,
}

impl AppQuestion {
    /// Returns the question that an arm belongs to, or `None` for the default.
    pub fn about(arm: &AppArm) -> Option<AppQuestion> {
        match arm.choice() {
            None => Some(AppQuestion::Rival),
            Some(choice) if choice.cache => Some(AppQuestion::Cache),
            Some(choice) if choice.jit => Some(AppQuestion::Jit),
            Some(choice) if choice.mode != HowdahMode::Embed => Some(AppQuestion::Mode),
            Some(choice) => choice.children.map(|_| AppQuestion::Children),
        }
    }
}

/// All questions, in the order of the report.
pub const QUESTIONS: [AppQuestion; 5] = [
    AppQuestion::Mode,
    AppQuestion::Children,
    AppQuestion::Cache,
    AppQuestion::Jit,
    AppQuestion::Rival,
];

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The question that is answered.
    pub question: AppQuestion,
    /// The arm that was compared with the default; `None` if there was none to compare.
    pub challenger: Option<String>,
    /// The judgement of good responses per second, challenger to default, in pairs; ratios above 1 favour the
    /// challenger. `None` if it was not measured.
    pub judgement: Option<Judgement>,
    /// Whether the challenger is shown to be faster.
    pub better: bool,
    /// The figures in a sentence.
    pub evidence: String,
    /// The conclusion from the figures, in a sentence.
    pub therefore: String,
}

/// The recommended settings, with the reasons for them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// The settings to use.
    pub choice: HowdahSettings,
    /// The answers to the questions, from which the settings follow.
    pub decisions: Vec<Decision>,
    /// The memory that one more child takes, in bytes; `None` if it could not be measured.
    pub memory_per_child: Option<f64>,
    /// The number of children that fit into 60 % of this machine's memory, at most 1000.
    pub children_that_fit: Option<u64>,
}

/// The input of the recommendation.
#[derive(Clone, Debug)]
pub struct AdviceInput<'a> {
    /// All arms that serve the right pages.
    pub arms: &'a [AppArm],
    /// The rows of the look at the deciding level.
    pub look: &'a [ArmRow],
    /// The windows of the decision.
    pub windows: &'a [MeasuredWindow],
    /// Arms that failed in the decision.
    pub failures: &'a [ArmFailure],
    /// Whether requests identify their user.
    pub personal: bool,
    /// Pages that Howdah's page cache stored.
    pub kept_by_cache: &'a [String],
    /// Pages that change from request to request.
    pub changing: &'a [String],
    /// The number of children that `max_children = "auto"` results in.
    pub auto_children: u32,
    /// This machine's memory, in bytes.
    pub machine_memory: u64,
}

/// Selects the arms that are worth a decision, by the look: the fastest for each question; of equally fast numbers of
/// children the smallest.
pub fn challengers<'a>(arms: &'a [AppArm], look: &[ArmRow]) -> Vec<(AppQuestion, &'a AppArm)> {
    let rate = |arm: &AppArm| {
        let row = look
            .iter()
            .find(|row| row.arm == arm.name && row.is_healthy());
        row.map(|row| row.figures.good)
    };
    let of = |question: AppQuestion| {
        let of = arms
            .iter()
            .filter(move |arm| AppQuestion::about(arm) == Some(question));
        of.filter_map(|arm| Some((rate(arm)?, arm)))
    };
    let fastest = |question| of(question).max_by(|a, b| a.0.total_cmp(&b.0));
    let mut out = Vec::new();
    for question in QUESTIONS {
        let Some((most, mut arm)) = fastest(question) else {
            continue;
        };
        if question == AppQuestion::Children {
            let close = of(question).filter(|(rate, _)| *rate >= most / (1.0 + MIN_DIFFERENCE));
            let fewest = close.min_by_key(|(_, arm)| arm.choice().and_then(|c| c.children));
            arm = fewest.map_or(arm, |(_, arm)| arm);
        }
        out.push((question, arm));
    }
    out
}

/// Answers the questions and derives the settings.
pub fn advise(facts: &AdviceInput<'_>) -> Advice {
    let asked = challengers(facts.arms, facts.look);
    let mut judged: Vec<(AppQuestion, Option<(Judgement, bool)>)> = asked
        .iter()
        .map(|(question, arm)| (*question, judge_challenger(facts, &arm.name)))
        .collect();
    adjust_judgements(&mut judged);
    let title = |name: &str| {
        let arm = facts.arms.iter().find(|arm| arm.name == name);
        arm.map_or(name.to_owned(), |arm| arm.title.clone())
    };
    let mut choice = HowdahSettings::DEFAULT_ARM;
    let mut decisions = Vec::new();
    for question in QUESTIONS {
        let arm = asked.iter().find(|(q, _)| *q == question);
        let arm = arm.map(|(_, arm)| *arm);
        let found = judged.iter_mut().find(|(q, _)| *q == question);
        let found = found.and_then(|(_, judgement)| judgement.take());
        let evidence = match (&arm, &found) {
            (Some(arm), Some((judgement, better))) => {
                evidence_sentence(judgement, *better, &title(DEFAULT), &arm.title)
            }
            (Some(arm), None) => {
                format!("{} was not measured together with the default", arm.title)
            }
            (None, _) => match question {
                AppQuestion::Mode => "No other mode was measured",
                AppQuestion::Children => "No other number of children was measured",
                AppQuestion::Cache => "The page cache was not measured",
                AppQuestion::Jit => "The JIT compiler was not measured",
                AppQuestion::Rival => "No rival was measured",
            }
            .to_owned(),
        };
        let (judgement, better) = found.map_or((None, false), |(j, better)| (Some(j), better));
        let settings = arm.and_then(AppArm::choice);
        let therefore = match question {
            AppQuestion::Mode => decide_mode(&mut choice, settings, better),
            AppQuestion::Children => {
                decide_children(facts, &mut choice, settings, judgement.as_ref(), better)
            }
            AppQuestion::Cache => decide_cache(facts, &mut choice, settings, better),
            AppQuestion::Jit => decide_jit(&mut choice, better),
            AppQuestion::Rival => "for comparison only".to_owned(),
        };
        decisions.push(Decision {
            question,
            challenger: arm.map(|arm| arm.title.clone()),
            judgement,
            better,
            evidence,
            therefore,
        });
    }
    let memory_per_child = super::rows::memory_per_child(facts.look);
    Advice {
        choice,
        decisions,
        memory_per_child,
        children_that_fit: memory_per_child
            .map(|bytes| ((facts.machine_memory as f64 * 0.6 / bytes) as u64).min(MAX_CHILDREN)),
    }
}

/// Judges challenger and default in pairs of the same block; the second value is true if the challenger is faster.
fn judge_challenger(facts: &AdviceInput<'_>, challenger: &str) -> Option<(Judgement, bool)> {
    let arm = |name: &str| facts.arms.iter().position(|arm| arm.name == name);
    let (default, challenger) = (arm(DEFAULT)?, arm(challenger)?);
    let of = |arm: usize, control: bool| -> Vec<&MeasuredWindow> {
        let its = |w: &&MeasuredWindow| (w.arm, w.control) == (arm, control);
        facts.windows.iter().filter(its).collect()
    };
    let base = of(default, false);
    let compared = table::run_pairs(&base, &of(challenger, false));
    let mut failures = facts.failures.iter();
    let died = failures.any(|failure| [Some(default), Some(challenger)].contains(&failure.arm));
    if compared.len() < 2 || died {
        return None;
    }
    let figures = judge::figures(
        &compared,
        &table::run_pairs(&base, &of(default, true)),
        JudgementSettings::default(),
    );
    let judgement = figures.into_iter().next()?;
    let base_bound = compared
        .iter()
        .any(|(base, _)| bottleneck::bound(base).is_some());
    let better = is_better(&judgement, base_bound);
    Some((judgement, better))
}

/// Returns whether the challenger is faster, or so fast that the load tester could not keep up: if only the
/// challenger's rate is too low, it is still faster.
fn is_better(judgement: &Judgement, base_bound: bool) -> bool {
    match &judgement.verdict {
        ComparisonVerdict::Faster { .. } => true,
        ComparisonVerdict::Invalid { because } => {
            let bound = |why: &InvalidReason| matches!(why, InvalidReason::GeneratorBound { .. });
            let low = judgement
                .interval
                .as_ref()
                .map_or(0.0, |interval| interval.low);
            because.iter().all(bound)
                && !base_bound
                && low > 1.0 + MIN_DIFFERENCE
                && judgement.p <= 1.0 - CONFIDENCE_LEVEL
        }
        _ => false,
    }
}

/// Applies Holm's adjustment over all questions; a challenger that fails it no longer counts as faster.
fn adjust_judgements(judged: &mut [(AppQuestion, Option<(Judgement, bool)>)]) {
    let mut all: Vec<&mut (Judgement, bool)> =
        judged.iter_mut().filter_map(|(_, j)| j.as_mut()).collect();
    holm_adjust(all.iter_mut().map(|(judgement, _)| judgement));
    for (judgement, better) in all {
        *better &= judgement.p_adjusted <= 1.0 - CONFIDENCE_LEVEL;
    }
}

fn evidence_sentence(judgement: &Judgement, better: bool, base: &str, challenger: &str) -> String {
    let pairs = formatting::plural(judgement.pairs.len() as u64, "pair", "pairs");
    let percent = |ratio: f64| format!("{:+.0} %", (ratio - 1.0) * 100.0);
    let range = judgement
        .interval
        .as_ref()
        .map_or(String::new(), |interval| {
            format!(" [{}, {}]", percent(interval.low), percent(interval.high))
        });
    let figures = format!(
        "{}{range} good responses per second, {pairs}, p {:.3}",
        percent(judgement.ratio),
        judgement.p_adjusted
    );
    let sentence = match (&judgement.verdict, better) {
        (ComparisonVerdict::Invalid { .. }, true) => {
            format!("{challenger} is faster than {base} by more than the load tester could measure")
        }
        (verdict, _) => verdict.sentence(base, challenger),
    };
    format!("{} ({figures})", capital(&sentence))
}

fn decide_mode(
    choice: &mut HowdahSettings,
    settings: Option<HowdahSettings>,
    better: bool,
) -> String {
    match (settings, better) {
        (Some(settings), true) => {
            choice.mode = settings.mode;
            format!("mode {}", settings.mode.word())
        }
        _ => "mode embed, the default".to_owned(),
    }
}

fn decide_children(
    facts: &AdviceInput<'_>,
    choice: &mut HowdahSettings,
    settings: Option<HowdahSettings>,
    judgement: Option<&Judgement>,
    better: bool,
) -> String {
    let auto = facts.auto_children;
    if choice.mode != HowdahMode::Embed {
        return format!(
            "as many as Howdah chooses, at most {auto}: other numbers were measured only in mode embed, but mode {} \
             is recommended",
            choice.mode.word()
        );
    }
    let number = settings.and_then(|settings| settings.children);
    if let (Some(number), true) = (number, better) {
        choice.children = Some(number);
        return format!("max_children = {number}");
    }
    let same = judgement.is_some_and(|j| matches!(j.verdict, ComparisonVerdict::Same { .. }));
    match number {
        Some(number) if same && number < auto => format!(
            "as many as Howdah chooses, at most {auto}, which leaves room for slow requests; if memory is short, \
             {number} are as fast"
        ),
        _ => format!("as many as Howdah chooses, at most {auto}, the default"),
    }
}

fn decide_cache(
    facts: &AdviceInput<'_>,
    choice: &mut HowdahSettings,
    settings: Option<HowdahSettings>,
    better: bool,
) -> String {
    let still = facts
        .kept_by_cache
        .iter()
        .find(|url| facts.changing.contains(url));
    if facts.personal {
        return "off, the default: the requests identify their user, and such pages are never shared"
            .to_owned();
    }
    if settings.is_none() || facts.kept_by_cache.is_empty() {
        return "off, the default: none of the pages was stored; howdah cache explain shows the reason"
            .to_owned();
    }
    if let Some(url) = still {
        return format!(
            "off, the default: {url} changes from request to request, and visitors would get an older version of \
             the page; turn the cache on if that is acceptable"
        );
    }
    if !better {
        return "off, the default".to_owned();
    }
    choice.cache = true;
    format!(
        "on: the cache stored {}; docs/cache.md describes its limits",
        facts.kept_by_cache.join(", ")
    )
}

fn decide_jit(choice: &mut HowdahSettings, better: bool) -> String {
    if !better {
        return "off, the default".to_owned();
    }
    if choice.mode != HowdahMode::Embed {
        return format!(
            "off: measured in mode embed, and mode {} is recommended",
            choice.mode.word()
        );
    }
    choice.jit = true;
    let settings: Vec<String> = JIT_SETTINGS
        .iter()
        .map(|(name, value)| format!("{name} = {value}"))
        .collect();
    format!("on: {}", settings.join(", "))
}

#[cfg(test)]
#[path = "advise_tests.rs"]
mod tests;
