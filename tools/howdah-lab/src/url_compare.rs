//! `howdah bench URL --vs OTHER`: an experiment whose arms are servers that are already running. It starts nothing and
//! saves nothing; the first failure ends it.

use howdah_bench::driver::{BenchSession, CompareOptions};
use howdah_bench::error::BenchError;
use howdah_bench::experiment::{self, Comparison, ComparisonArm};
use howdah_bench::plan::Plan;

use crate::LabError;
use crate::experiment::runner::ExperimentRunner;
use crate::experiment::{ArmTurn, Cell, ExperimentSubject, MeasuredWindow};
use crate::stack::RunningStack;

/// The servers, each with the plan of its load.
struct UrlSubject<'a> {
    arms: &'a [ComparisonArm],
    plans: Vec<&'a Plan>,
}

impl ExperimentSubject for UrlSubject<'_> {
    fn title(&self, arm: usize) -> String {
        self.arms[arm].name.clone()
    }

    fn start(&self, _: usize, _: &Cell) -> Result<RunningStack, LabError> {
        Ok(RunningStack::external())
    }

    /// Does nothing, because the plan's own checks decide whether a response is good.
    fn check(&self, _: usize, _: &Cell, _: &RunningStack) -> Result<(), LabError> {
        Ok(())
    }

    fn window_plan(
        &self,
        arm: usize,
        _: &Cell,
        _: u32,
        _: &RunningStack,
    ) -> Result<Plan, LabError> {
        Ok(self.plans[arm].clone())
    }

    /// The plan contains the warm-up that the user asked for.
    fn warm_up_plan(&self, _: &Cell, _: &Plan) -> Option<Plan> {
        None
    }

    fn knows_cpu(&self, _: usize) -> bool {
        false
    }
}

/// Measures the plans in turns; the first one is the base. See [`howdah_bench::driver::CompareFn`].
///
/// # Errors
/// Returns an error if there is nothing to compare, a plan is impossible, or a server could not be measured.
pub fn compare(
    plans: &[Plan],
    options: CompareOptions,
    session: &mut BenchSession<'_>,
) -> Result<Comparison, BenchError> {
    let [base, others @ ..] = plans else {
        return Err(BenchError::Impossible(
            "there is nothing to compare".to_owned(),
        ));
    };
    if options.blocks == 0 {
        return Err(BenchError::Impossible(
            "a comparison needs at least one pair of measurements (--pairs)".to_owned(),
        ));
    }
    plans.iter().try_for_each(Plan::check)?;
    let control = options.control.then_some(base);
    let plans: Vec<&Plan> = plans.iter().chain(control).collect();
    let arms: Vec<ComparisonArm> = (0..plans.len())
        .map(|at| ComparisonArm {
            name: arm_name(at, others.len()),
            url: plans[at].targets[0].text().to_owned(),
            control: at > others.len(),
        })
        .collect();
    let turns: Vec<ArmTurn> = (0..arms.len())
        .map(|at| ArmTurn {
            arm: at,
            control: arms[at].control,
        })
        .collect();
    let mut subject = UrlSubject { arms: &arms, plans };
    let cell = Cell {
        name: String::new(),
        title: String::new(),
        page: 0,
        levels: vec![base.arrivals.connections()],
    };
    let runner = ExperimentRunner {
        journal: None,
        blocks: options.blocks,
        ceilings: 0,
        limit: None,
        deadline: None,
        rerun_failed: false,
        stop_at_failure: true,
    };
    let measured = runner.run(&mut subject, &turns, &[cell], session);
    let measured = measured.map_err(|error| match error {
        LabError::NotMeasured { why, .. } => why,
        other => BenchError::System {
            what: "comparing servers".to_owned(),
            why: other.to_string(),
        },
    })?;
    let window = |window: MeasuredWindow| experiment::ComparisonWindow {
        block: window.block,
        arm: window.arm,
        run: window.run,
    };
    Ok(Comparison {
        windows: measured.windows.into_iter().map(window).collect(),
        arms,
        margin: options.margin,
        seed: options.seed,
    })
}

/// Returns the name of an arm: `A` to `Z`, then a number; the control follows the last server.
fn arm_name(index: usize, last: usize) -> String {
    match u8::try_from(index) {
        _ if index > last => "A again".to_owned(),
        Ok(index @ 0..26) => char::from(b'A' + index).to_string(),
        _ => format!("server {}", index + 1),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use howdah_bench::driver::SessionEvent;
    use howdah_bench::engine::null::{NullServer, RequestEnd};
    use howdah_bench::plan::{Arrivals, LoadTarget, StopLimits};

    use super::*;

    fn server() -> NullServer {
        NullServer::start(RequestEnd::EmptyLine, NullServer::response(24), true).unwrap()
    }

    fn plan(server: &NullServer) -> Plan {
        let target = LoadTarget::parse(&format!("http://{}/", server.address())).unwrap();
        let stop = StopLimits {
            requests: Some(50),
            time: None,
        };
        Plan::new(target, Arrivals::Closed { concurrency: 4 }, stop)
    }

    fn session(watch: &mut dyn FnMut(SessionEvent<'_>)) -> BenchSession<'_> {
        BenchSession {
            interrupt: Arc::new(AtomicBool::new(false)),
            command: vec!["bench".to_owned()],
            watch,
        }
    }

    #[test]
    fn comparison_measures_servers_in_turns_with_a_control() {
        let (a, b) = (server(), server());
        let mut secret = plan(&a);
        secret.request.headers = vec![("Cookie".to_owned(), "a=1".into())];
        let other = Plan {
            targets: plan(&b).targets,
            ..secret.clone()
        };
        let options = CompareOptions {
            blocks: 2,
            ..CompareOptions::default()
        };
        let mut labels = Vec::new();
        let mut watch = |event: SessionEvent<'_>| {
            if let SessionEvent::Begins { label, of, .. } = event {
                assert_eq!(of, Some(6));
                labels.push(label.to_owned());
            }
        };
        let comparison = compare(&[secret, other], options, &mut session(&mut watch)).unwrap();
        assert_eq!(labels, ["A", "B", "A again", "A again", "B", "A"]);
        assert_eq!(comparison.pairs(1).len(), 2);
        assert_eq!(comparison.control(), Some(2));
        for window in &comparison.windows {
            assert_eq!(window.run.good(), 50);
            assert_eq!(window.run.command, ["bench"]);
            // `howdah bench` conceals secrets itself, and only those.
            assert_eq!(window.run.plan.request.headers[0].1.text(), "a=1");
        }
    }

    #[test]
    fn interrupted_comparison_returns_the_complete_windows() {
        let a = server();
        let interrupt = Arc::new(AtomicBool::new(false));
        let flag = interrupt.clone();
        let mut ended = 0;
        let mut watch = |event: SessionEvent<'_>| {
            if let SessionEvent::Ended(_) = event {
                ended += 1;
                flag.store(ended == 4, Ordering::Relaxed);
            }
        };
        let mut session = session(&mut watch);
        session.interrupt = interrupt;
        let plans = [plan(&a), plan(&a)];
        let comparison = compare(&plans, CompareOptions::default(), &mut session).unwrap();
        assert_eq!(comparison.windows.len(), 4);
    }

    #[test]
    fn unreachable_server_ends_the_comparison() {
        let (a, b) = (server(), server());
        let plans = [plan(&a), plan(&b)];
        drop(b);
        let options = CompareOptions::default();
        let error = compare(&plans, options, &mut session(&mut |_| {})).unwrap_err();
        assert_eq!(error.exit_code(), 6, "{error}");
    }
}
