//! Turns the windows of a comparison into a verdict: which figures are compared, and which
//! conditions make the comparison invalid. The arithmetic is in [`crate::stats::paired`].

use crate::experiment::Comparison;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::run::Run;
use crate::stats::paired::{Better, Judgement, Question, Settings, judge};
use crate::stats::verdict::Side;
use crate::stats::{Invalid, quantile, steady};

use super::bottleneck;

/// An arm with a larger share of errors than this is not compared: the rest of its figures is
/// chance.
const ERRORS: f64 = 0.001;
/// Arms whose shares of kept connections differ by more than this are not comparable.
const KEPT: f64 = 0.01;
/// Largest share of the processors that other programs may take.
const FOREIGN: f64 = 0.10;
/// Fewest answers in every window for a p99 of windows to be compared.
const P99_SAMPLES: u64 = 1000;

/// One arm against the base.
#[derive(Clone, Debug, PartialEq)]
pub struct Against {
    /// The arm's index in the comparison.
    pub arm: usize,
    /// The judged figures, the primary one first.
    pub figures: Vec<Judgement>,
}

impl Against {
    /// The figure that decides; it was chosen before the measurement.
    pub fn primary(&self) -> &Judgement {
        &self.figures[0]
    }
}

/// Judges every arm but the base and the control. In a closed loop the good rate decides, in an
/// open one the median latency does: there the rate is what was asked for.
pub fn comparison(comparison: &Comparison) -> Vec<Against> {
    let control: Vec<(&Run, &Run)> = comparison
        .control()
        .map(|arm| comparison.pairs(arm))
        .unwrap_or_default();
    (1..comparison.arms.len())
        .filter(|arm| !comparison.arms[*arm].control)
        .map(|arm| Against {
            arm,
            figures: figures(
                &comparison.pairs(arm),
                &control,
                Settings {
                    margin: comparison.margin,
                    seed: comparison.seed,
                    ..Settings::default()
                },
            ),
        })
        .collect()
}

/// Judges pairs of runs, with the control's pairs beside them.
pub fn figures(
    pairs: &[(&Run, &Run)],
    control: &[(&Run, &Run)],
    settings: Settings,
) -> Vec<Judgement> {
    type Figure = fn(&Run) -> f64;
    let open = pairs.iter().any(|(a, _)| a.plan.arrivals.is_open());
    let mut wanted: Vec<(&str, Better, Figure)> = vec![
        ("good answers per second", Better::Higher, Run::good_rate),
        ("median latency", Better::Lower, |run| seconds(run, 50.0)),
    ];
    if open {
        wanted.swap(0, 1);
    }
    if pairs
        .iter()
        .all(|(a, b)| a.good().min(b.good()) >= P99_SAMPLES)
    {
        wanted.push(("p99 latency", Better::Lower, |run| seconds(run, 99.0)));
    }
    let of = |pairs: &[(&Run, &Run)], figure: Figure| -> Vec<(f64, f64)> {
        pairs.iter().map(|(a, b)| (figure(a), figure(b))).collect()
    };
    let data: Vec<_> = wanted
        .iter()
        .map(|(_, _, figure)| (of(pairs, *figure), of(control, *figure)))
        .collect();
    let questions: Vec<Question<'_>> = wanted
        .iter()
        .zip(&data)
        .enumerate()
        .map(|(i, ((metric, better, _), (pairs, control)))| Question {
            metric,
            primary: i == 0,
            better: *better,
            pairs,
            control,
        })
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

/// Every condition that makes a comparison of these runs invalid.
pub fn invalid(base: &[&Run], candidate: &[&Run]) -> Vec<Invalid> {
    let mut found = Vec::new();
    if let Some(what) = base
        .iter()
        .chain(candidate)
        .find_map(|run| plans_differ(&base[0].plan, &run.plan))
    {
        found.push(Invalid::PlansDiffer { what });
    }
    let share = |runs: &[&Run], of: fn(&Run) -> (u64, u64)| {
        let (part, all) = runs
            .iter()
            .map(|run| of(run))
            .fold((0, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
        if all == 0 {
            0.0
        } else {
            part as f64 / all as f64
        }
    };
    let errors = |run: &Run| (run.errors(), run.ended_requests());
    let (a, b) = (share(base, errors), share(candidate, errors));
    if a > ERRORS || b > ERRORS {
        found.push(Invalid::ErrorRates {
            base: a,
            candidate: b,
        });
    }
    let wrong = |runs: &[&Run]| runs.iter().map(|run| run.count(Outcome::WrongBody)).sum();
    let (a, b): (u64, u64) = (wrong(base), wrong(candidate));
    if a + b > 0 {
        found.push(Invalid::WrongBodies {
            base: a,
            candidate: b,
        });
    }
    let kept = |run: &Run| (run.connections.kept, run.answers());
    let (a, b) = (share(base, kept), share(candidate, kept));
    if (a - b).abs() > KEPT {
        found.push(Invalid::KeepAliveDiffers {
            base: a,
            candidate: b,
        });
    }
    let protocol = |runs: &[&Run]| {
        let mut seen = runs
            .iter()
            .filter_map(|run| run.connections.protocol.clone());
        seen.next()
    };
    if let (Some(a), Some(b)) = (protocol(base), protocol(candidate))
        && a != b
    {
        found.push(Invalid::ProtocolDiffers {
            base: a,
            candidate: b,
        });
    }
    if let Some(evidence) = base
        .iter()
        .chain(candidate)
        .find_map(|run| bottleneck::bound(run))
    {
        found.push(Invalid::GeneratorBound { evidence });
    }
    let all: Vec<&&Run> = base.iter().chain(candidate).collect();
    let foreign = all
        .iter()
        .map(|run| {
            // If the server runs on this machine, it uses most of what other programs use.
            let others = if run.machine.shared_with_server {
                0.0
            } else {
                run.client.machine_busy_others
            };
            run.client.steal + others
        })
        .sum::<f64>()
        / all.len().max(1) as f64;
    if foreign > FOREIGN {
        found.push(Invalid::ForeignLoad { share: foreign });
    }
    for (arm, runs) in [(Side::Base, base), (Side::Candidate, candidate)] {
        found.extend(not_steady(arm, runs));
    }
    found
}

/// Whether an arm was warming up within most of its windows. A drift from window to window cancels
/// in the pairs; a warm-up in every window does not.
fn not_steady(arm: Side, runs: &[&Run]) -> Option<Invalid> {
    let warming = runs
        .iter()
        .filter(|run| {
            matches!(
                super::text::steady_class(run),
                steady::Steadiness::Warming { .. }
            )
        })
        .count();
    (runs.len() >= 2 && warming * 2 > runs.len()).then_some(Invalid::NotSteady {
        arm,
        warming,
        of: runs.len(),
    })
}

/// The first difference between two plans, apart from their targets.
pub fn plans_differ(a: &Plan, b: &Plan) -> Option<String> {
    let show = |plan: &Plan| -> Vec<(&'static str, String)> {
        vec![
            ("arrivals", format!("{:?}", plan.arrivals)),
            ("requests or time", format!("{:?}", plan.stop)),
            ("method", plan.request.method.clone()),
            ("header fields", format!("{:?}", plan.request.headers)),
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

/// Latencies of all runs together, and the percentile if enough answers lie beyond it, in
/// nanoseconds.
pub fn merged_percentile(runs: &[&Run], percentile: f64) -> Option<u64> {
    let mut all = crate::histogram::Histogram::new();
    for run in runs {
        all.add(&run.latency());
    }
    quantile::trusted(&all, percentile)
}
