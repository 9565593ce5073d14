//! A user's application as the subject of an experiment: how each arm is started, the check that it serves the right
//! pages, and the load on them.

use std::net::SocketAddr;
use std::time::Duration;

use howdah_bench::error::BenchError;
use howdah_bench::plan::check::{BodyCheck, BodyPattern};
use howdah_bench::plan::{Arrivals, LoadTarget, Plan, RequestTemplate, StopLimits};

use super::app::TestedApp;
use super::arm::AppArm;
use super::check::{self, CheckedPage};
use super::schedule::AppSchedule;
use crate::LabError;
use crate::experiment::{Cell, ExperimentSubject};
use crate::folder::RunFolder;
use crate::stack::{RunningStack, StackJob};

/// The maximum number of requests of a warm-up, unless there are more clients.
const MAX_WARM_UP_REQUESTS: u64 = 10_000;

/// How often a warm-up is repeated at most: each repetition gives every client a response, and a PHP process is slow
/// for its first few requests.
const MAX_WARM_UPS: u32 = 8;

/// The application, and the settings that its windows share.
pub struct AppSubject<'a> {
    /// The application that is measured.
    pub app: &'a TestedApp,
    /// The arms, by index.
    pub arms: &'a [AppArm],
    /// The job that every arm is started with.
    pub job: &'a StackJob,
    /// The application's pages.
    pub pages: &'a [CheckedPage],
    /// The length of the windows.
    pub schedule: AppSchedule,
    /// The folder of generated files.
    pub folder: &'a RunFolder,
}

impl ExperimentSubject for AppSubject<'_> {
    fn title(&self, arm: usize) -> String {
        self.arms[arm].title.clone()
    }

    fn start(&self, arm: usize, _: &Cell) -> Result<RunningStack, LabError> {
        self.arms[arm].start(self.app, self.job, self.folder)
    }

    fn check(&self, arm: usize, _: &Cell, running: &RunningStack) -> Result<(), LabError> {
        check::recheck(self.app, &self.arms[arm], running, self.pages)
    }

    fn window_plan(
        &self,
        arm: usize,
        _: &Cell,
        level: u32,
        running: &RunningStack,
    ) -> Result<Plan, LabError> {
        let plan = plan(self.app, self.pages, &self.schedule, running.address, level);
        plan.map_err(|why| LabError::NotMeasured {
            stack: self.title(arm),
            why,
        })
    }

    fn warm_up_plan(&self, _: &Cell, window: &Plan) -> Option<Plan> {
        Some(warm_up(window, self.pages, &self.schedule, self.app.cores))
    }

    fn max_warm_ups(&self) -> u32 {
        MAX_WARM_UPS
    }
}

fn plan(
    app: &TestedApp,
    pages: &[CheckedPage],
    schedule: &AppSchedule,
    address: SocketAddr,
    level: u32,
) -> Result<Plan, BenchError> {
    let target = |page: &CheckedPage| LoadTarget::parse(&format!("http://{address}{}", page.url));
    let targets: Vec<LoadTarget> = pages.iter().map(target).collect::<Result<_, _>>()?;
    let first = targets.first().cloned();
    let first = first.ok_or_else(|| BenchError::Impossible("there is no page".to_owned()))?;
    let stop = StopLimits {
        requests: None,
        time: Some(Duration::from_secs_f64(schedule.window)),
    };
    let mut plan = Plan::new(first, Arrivals::Closed { concurrency: level }, stop);
    plan.targets = targets;
    let host = [("Host".to_owned(), RequestTemplate::new(&app.host))];
    let sent = app
        .headers
        .iter()
        .map(|(n, v)| (n.clone(), RequestTemplate::new(v)));
    plan.request.headers = host.into_iter().chain(sent).collect();
    plan.checks.body = body_checks(pages)?;
    Ok(plan)
}

/// Returns the plan of a warm-up: a separate run that ends after a number of responses. A server that still works for
/// clients that have disconnected would be slow in the window.
fn warm_up(plan: &Plan, pages: &[CheckedPage], schedule: &AppSchedule, cores: u32) -> Plan {
    let mut warm = plan.clone();
    let service = mean_service_time(pages).max(1e-4);
    let fit = (schedule.warmup * f64::from(cores) / service) as u64;
    let clients = u64::from(plan.arrivals.connections());
    let requests = fit.clamp(clients, clients.max(MAX_WARM_UP_REQUESTS));
    let expected = requests as f64 * service / f64::from(cores);
    warm.stop = StopLimits {
        requests: Some(requests),
        // A limit for a server that hangs or is many times slower than the reference.
        time: Some(Duration::from_secs_f64((4.0 * expected).clamp(2.0, 120.0))),
    };
    warm
}

/// Returns the mean time that a page takes without concurrency, in seconds.
pub fn mean_service_time(pages: &[CheckedPage]) -> f64 {
    let sum: f64 = pages.iter().map(|page| page.service).sum();
    sum / pages.len().max(1) as f64
}

/// Returns checks that a response contains the characteristic text of a page, and its end. With several pages, the text
/// of any page and the end of any page suffice. There are no checks if a page has no constant text: in that case only
/// the status decides.
fn body_checks(pages: &[CheckedPage]) -> Result<Vec<BodyCheck>, BenchError> {
    if pages.iter().any(|page| page.shape.marks().is_empty()) {
        return Ok(Vec::new());
    }
    if let [page] = pages {
        let marks = page.shape.marks().iter().cloned();
        return Ok(marks.map(BodyCheck::Contains).collect());
    }
    let any = |pick: fn(&[String]) -> Option<&String>| {
        let texts = pages.iter().filter_map(|page| pick(page.shape.marks()));
        let mut texts: Vec<String> = texts.map(|text| regex::escape(text)).collect();
        texts.sort();
        texts.dedup();
        BodyPattern::new(&texts.join("|")).map(BodyCheck::Matches)
    };
    Ok(vec![
        any(|marks| marks.first())?,
        any(|marks| marks.last())?,
    ])
}

#[cfg(test)]
mod tests {
    use super::super::shape::PageShape;
    use super::*;

    fn page(url: &str, body: &str) -> CheckedPage {
        CheckedPage {
            url: url.to_owned(),
            media_type: "text/html".to_owned(),
            bytes: body.len(),
            shape: PageShape::learn(&[body.as_bytes().to_vec()]),
            service: 0.01,
        }
    }

    #[test]
    fn body_checks_refuse_responses_of_other_pages() {
        let one = page("/a", "<h1>Elephants (all) of $5</h1>\n<p>bye</p>");
        let two = page("/b", "<h1>Tigers [none]*</h1>\n");
        for pages in [vec![one.clone()], vec![one, two]] {
            let checks = body_checks(&pages).unwrap();
            let passes = |body: &str| checks.iter().all(|check| check.passes(body.as_bytes()));
            assert!(passes("<h1>Elephants (all) of $5</h1>\n<p>bye</p>"));
            assert_eq!(passes("<h1>Tigers [none]*</h1>"), pages.len() == 2);
            assert!(!passes("<h1>Tigers n*</h1>"));
            assert!(!passes("<b>Fatal error</b>"));
        }
        assert!(body_checks(&[page("/", "1")]).unwrap().is_empty());
    }
}
