//! Turns the windows of a comparison into a verdict: which figures are compared, and which
//! conditions make the comparison invalid. The arithmetic is in [`crate::stats::paired`].

use crate::experiment::Comparison;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::run::Run;
use crate::stats::paired::{BetterDirection, FigureQuestion, Judgement, JudgementSettings, judge};
use crate::stats::verdict::ComparisonSide;
use crate::stats::{InvalidReason, quantile, steady};

use super::bottleneck;

/// An arm with a larger share of errors than this is not compared, because its other figures depend on chance.
const MAX_ERROR_SHARE: f64 = 0.001;
/// Arms whose shares of reused connections differ by more than this are not comparable.
const MAX_KEEP_ALIVE_DIFFERENCE: f64 = 0.01;
/// The largest share of the processors that other programs may use.
const MAX_FOREIGN_LOAD: f64 = 0.10;
/// The smallest number of responses in every window with which the p99 of windows is compared.
const MIN_P99_SAMPLES: u64 = 1000;

/// The judgement of one arm against the base.
#[derive(Clone, Debug, PartialEq)]
pub struct ArmJudgement {
    /// The arm's index in the comparison.
    pub arm: usize,
    /// The judged figures, the primary one first.
    pub figures: Vec<Judgement>,
}

impl ArmJudgement {
    /// Returns the figure that decides, which was chosen before the measurement.
    pub fn primary(&self) -> &Judgement {
        &self.figures[0]
    }
}

/// Judges every arm except the base and the control. In a closed loop the good rate decides. In an open loop the median
/// latency decides, because the rate there is the requested one.
pub fn comparison(comparison: &Comparison) -> Vec<ArmJudgement> {
    let control: Vec<(&Run, &Run)> = comparison
        .control()
        .map(|arm| comparison.pairs(arm))
        .unwrap_or_default();
    (1..comparison.arms.len())
        .filter(|arm| !comparison.arms[*arm].control)
        .map(|arm| ArmJudgement {
            arm,
            figures: figures(
                &comparison.pairs(arm),
                &control,
                JudgementSettings {
                    margin: comparison.margin,
                    seed: comparison.seed,
                    ..JudgementSettings::default()
                },
            ),
        })
        .collect()
}

/// Judges pairs of runs, together with the control's pairs.
pub fn figures(
    pairs: &[(&Run, &Run)],
    control: &[(&Run, &Run)],
    settings: JudgementSettings,
) -> Vec<Judgement> {
    type Figure = fn(&Run) -> f64;
    let open = pairs.iter().any(|(a, _)| a.plan.arrivals.is_open());
    let mut wanted: Vec<(&str, BetterDirection, Figure)> = vec![
        (
            "good responses per second",
            BetterDirection::Higher,
            Run::good_rate,
        ),
        ("median latency", BetterDirection::Lower, |run| {
            seconds(run, 50.0)
        }),
    ];
    if open {
        wanted.swap(0, 1);
    }
    if pairs
        .iter()
        .all(|(a, b)| a.good().min(b.good()) >= MIN_P99_SAMPLES)
    {
        wanted.push(("p99 latency", BetterDirection::Lower, |run| {
            seconds(run, 99.0)
        }));
    }
    let of = |pairs: &[(&Run, &Run)], figure: Figure| -> Vec<(f64, f64)> {
        pairs.iter().map(|(a, b)| (figure(a), figure(b))).collect()
    };
    let data: Vec<_> = wanted
        .iter()
        .map(|(_, _, figure)| (of(pairs, *figure), of(control, *figure)))
        .collect();
    let questions: Vec<FigureQuestion<'_>> = wanted
        .iter()
        .zip(&data)
        .enumerate()
        .map(
            |(i, ((metric, better, _), (pairs, control)))| FigureQuestion {
                metric,
                primary: i == 0,
                better: *better,
                pairs,
                control,
            },
        )
        .collect();
    let (base, candidate): (Vec<&Run>, Vec<&Run>) = pairs.iter().copied().unzip();
    judge(&questions, &invalid(&base, &candidate), settings)
}

fn seconds(run: &Run, percentile: f64) -> f64 {
    let latency = run.latency();
    if latency.is_empty() {
        return f64::INFINITY;
    }
    latency.quantile(percentile / 100.0) as f64 / 1e9
}

/// Returns every condition that makes a comparison of these runs invalid.
pub fn invalid(base: &[&Run], candidate: &[&Run]) -> Vec<InvalidReason> {
    let all: Vec<&Run> = base.iter().chain(candidate).copied().collect();
    let conditions = [
        different_plans(&all),
        error_rates(base, candidate),
        wrong_bodies(base, candidate),
        keep_alive(base, candidate),
        protocols(base, candidate),
        generator(&all),
        foreign_load(&all),
        not_steady(ComparisonSide::Base, base),
        not_steady(ComparisonSide::Candidate, candidate),
    ];
    conditions.into_iter().flatten().collect()
}

/// Sums a part and its whole over all runs, and returns the share of the part.
fn share(runs: &[&Run], of: fn(&Run) -> (u64, u64)) -> f64 {
    let counts = runs.iter().map(|run| of(run));
    match counts.fold((0, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1)) {
        (_, 0) => 0.0,
        (part, all) => part as f64 / all as f64,
    }
}

fn different_plans(all: &[&Run]) -> Option<InvalidReason> {
    let first = all.first()?;
    let mut runs = all.iter();
    let what = runs.find_map(|run| plans_differ(&first.plan, &run.plan))?;
    Some(InvalidReason::PlansDiffer { what })
}

fn error_rates(base: &[&Run], candidate: &[&Run]) -> Option<InvalidReason> {
    let errors = |run: &Run| (run.errors(), run.ended_requests());
    let (base, candidate) = (share(base, errors), share(candidate, errors));
    let too_many = base > MAX_ERROR_SHARE || candidate > MAX_ERROR_SHARE;
    too_many.then_some(InvalidReason::ErrorRates { base, candidate })
}

fn wrong_bodies(base: &[&Run], candidate: &[&Run]) -> Option<InvalidReason> {
    let wrong = |runs: &[&Run]| runs.iter().map(|run| run.count(Outcome::WrongBody)).sum();
    let (base, candidate): (u64, u64) = (wrong(base), wrong(candidate));
    (base + candidate > 0).then_some(InvalidReason::WrongBodies { base, candidate })
}

fn keep_alive(base: &[&Run], candidate: &[&Run]) -> Option<InvalidReason> {
    let kept = |run: &Run| (run.connections.kept, run.answers());
    let (base, candidate) = (share(base, kept), share(candidate, kept));
    let differs = (base - candidate).abs() > MAX_KEEP_ALIVE_DIFFERENCE;
    differs.then_some(InvalidReason::KeepAliveDiffers { base, candidate })
}

fn protocols(base: &[&Run], candidate: &[&Run]) -> Option<InvalidReason> {
    let protocol = |runs: &[&Run]| {
        let mut seen = runs.iter();
        seen.find_map(|run| run.connections.protocol.clone())
    };
    let (base, candidate) = (protocol(base)?, protocol(candidate)?);
    (base != candidate).then_some(InvalidReason::ProtocolDiffers { base, candidate })
}

fn generator(all: &[&Run]) -> Option<InvalidReason> {
    let evidence = all.iter().find_map(|run| bottleneck::bound(run))?;
    Some(InvalidReason::GeneratorBound { evidence })
}

fn foreign_load(all: &[&Run]) -> Option<InvalidReason> {
    let foreign = all.iter().map(|run| {
        // If the server runs on this machine, most of the other programs' use is the server's.
        let others = match run.machine.shared_with_server {
            true => 0.0,
            false => run.client.machine_busy_others,
        };
        run.client.steal + others
    });
    let share = foreign.sum::<f64>() / all.len().max(1) as f64;
    (share > MAX_FOREIGN_LOAD).then_some(InvalidReason::ForeignLoad { share })
}

/// Returns whether an arm was warming up within most of its windows. A drift from window to window cancels in the
/// pairs; a warm-up in every window does not.
fn not_steady(arm: ComparisonSide, runs: &[&Run]) -> Option<InvalidReason> {
    let warming = runs
        .iter()
        .filter(|run| {
            matches!(
                super::steadiness::class(run),
                steady::Steadiness::Warming { .. }
            )
        })
        .count();
    (runs.len() >= 2 && warming * 2 > runs.len()).then_some(InvalidReason::NotSteady {
        arm,
        warming,
        of: runs.len(),
    })
}

/// Returns the first difference between two plans, apart from their targets.
pub fn plans_differ(a: &Plan, b: &Plan) -> Option<String> {
    let show = |plan: &Plan| -> Vec<(&'static str, String)> {
        vec![
            ("arrivals", format!("{:?}", plan.arrivals)),
            ("number of requests or time", format!("{:?}", plan.stop)),
            ("method", plan.request.method.clone()),
            ("headers", format!("{:?}", plan.request.headers)),
            ("protocol", format!("{:?}", plan.connection.protocol)),
            ("keep-alive", format!("{}", plan.connection.keep_alive)),
            ("think time", format!("{:?}", plan.think)),
            ("threads", format!("{}", plan.threads)),
            ("expected status", plan.checks.status.to_string()),
        ]
    };
    show(a)
        .into_iter()
        .zip(show(b))
        .find(|((_, a), (_, b))| a != b)
        .map(|((name, a), (_, b))| format!("{name}: {a} and {b}"))
}

/// Merges the latencies of all runs and returns the percentile in nanoseconds, if enough responses lie beyond it.
pub fn merged_percentile(runs: &[&Run], percentile: f64) -> Option<u64> {
    let mut all = crate::histogram::Histogram::new();
    for run in runs {
        all.add(&run.latency());
    }
    quantile::trusted(&all, percentile)
}
