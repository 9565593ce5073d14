//! Checks before the measurement that every stack serves the same pages. The reference is the most common set-up that
//! is installed. Its responses show which parts of each page are constant ([`super::shape`]); a stack that responds
//! differently is reported with the first difference, and is not measured.

use std::net::SocketAddr;
use std::time::Instant;

use howdah_bench::report::formatting;
use serde::{Deserialize, Serialize};

use super::advise::AppQuestion;
use super::app::TestedApp;
use super::arm::{AppArm, ArmKind, DEFAULT};
use super::fetch::{self, FetchedResponse};
use super::schedule::ArmCost;
use super::shape::{PageShape, normalise};
use crate::LabError;
use crate::folder::RunFolder;
use crate::stack::{RunningStack, StackJob};

/// The number of responses of the reference from which a page's shape is learnt.
const REFERENCE_SAMPLES: usize = 3;
/// The number of responses requested from every other stack: a page cache stores a page at its second request and
/// serves it at the third.
const STACK_SAMPLES: usize = 3;

/// A page as the reference serves it.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedPage {
    /// The path and the query.
    pub url: String,
    /// `Content-Type` without parameters.
    pub media_type: String,
    /// The length of the body, in bytes.
    pub bytes: usize,
    /// The page's constant parts.
    pub shape: PageShape,
    /// The time of the fastest of the first responses, in seconds.
    pub service: f64,
}

/// An arm that is not measured, or is no longer measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedArm {
    /// The arm's name.
    pub arm: String,
    /// The arm's name for readers.
    pub title: String,
    /// The error's name: `NotHere`, `WrongPage`, `Died` …
    pub name: String,
    /// The error's whole message.
    pub message: String,
}

impl FailedArm {
    /// Creates the record of an arm that failed with this error.
    pub fn new(arm: &AppArm, error: &LabError) -> FailedArm {
        FailedArm {
            arm: arm.name.clone(),
            title: arm.title.clone(),
            name: error.name().to_owned(),
            message: error.to_string(),
        }
    }
}

/// The result of the check.
#[derive(Clone, Debug)]
pub struct CheckResult {
    /// The stack the others were compared with.
    pub reference: String,
    /// The pages as the reference serves them.
    pub pages: Vec<CheckedPage>,
    /// The arms that serve all pages correctly.
    pub fit: Vec<AppArm>,
    /// The time that each of these arms needs to start.
    pub costs: Vec<ArmCost>,
    /// The arms that failed, and why.
    pub failed: Vec<FailedArm>,
    /// Pages that Howdah's page cache stored.
    pub kept_by_cache: Vec<String>,
}

/// Requests every page from every arm. After `until`, only the default is still checked.
///
/// # Errors
/// Returns an error if a page does not exist (404 …), or no arm can serve the pages. The failure of a single arm is in
/// the result.
pub fn check_arms(
    app: &TestedApp,
    arms: &[AppArm],
    job: &StackJob,
    folder: &RunFolder,
    until: Option<Instant>,
    report: &mut dyn FnMut(&AppArm, Option<&LabError>),
) -> Result<CheckResult, LabError> {
    let mut checked = CheckResult {
        reference: String::new(),
        pages: Vec::new(),
        fit: Vec::new(),
        costs: Vec::new(),
        failed: Vec::new(),
        kept_by_cache: Vec::new(),
    };
    // Rivals come first, because the common set-up defines the page.
    let is_rival = |arm: &&AppArm| matches!(arm.way, ArmKind::Rival(_));
    let order = arms.iter().filter(is_rival);
    let order = order.chain(arms.iter().filter(|arm| !is_rival(arm)));
    let mut reference: Option<RunningStack> = None;
    for arm in order {
        // The number of children does not change the page; each arm is checked again before its windows.
        if is_sweep(arm) {
            apply_default_result(arm, &mut checked);
            continue;
        }
        if is_past(until) && reference.is_some() && arm.name != DEFAULT {
            checked.failed.push(omitted_arm(arm));
            continue;
        }
        report(arm, None);
        let begun = Instant::now();
        let result = arm
            .check_installed()
            .and_then(|()| arm.start(app, job, folder));
        let result = result.and_then(|running| match &reference {
            None => {
                checked.pages = learn_pages(app, arm, &running, until)?;
                checked.reference = arm.title.clone();
                Ok(Some(running))
            }
            Some(of) => {
                let cached = compare_pages(app, arm, &running, of.address, &mut checked.pages)?;
                if arm.choice().is_some_and(|choice| choice.cache) {
                    checked.kept_by_cache = cached;
                }
                drop(running);
                Ok(None)
            }
        });
        match result {
            Ok(running) => {
                if let Some(running) = running {
                    reference = Some(running);
                }
                checked.fit.push(arm.clone());
                checked.costs.push(ArmCost {
                    name: arm.name.clone(),
                    start: begun.elapsed().as_secs_f64(),
                    omission_priority: 0,
                    question: AppQuestion::about(arm),
                });
            }
            // An error page is the same on every stack, so nothing can be measured.
            Err(error @ LabError::OwnApp { .. }) => return Err(error),
            Err(error) => {
                report(arm, Some(&error));
                checked.failed.push(FailedArm::new(arm, &error));
            }
        }
    }
    match checked.fit.is_empty() {
        true => Err(no_stack_error(&checked)),
        false => Ok(checked),
    }
}

fn omitted_arm(arm: &AppArm) -> FailedArm {
    FailedArm {
        arm: arm.name.clone(),
        title: arm.title.clone(),
        name: "LeftOut".to_owned(),
        message: "LeftOut: the pages are too slow to check every stack in the time of --quick; --full checks every \
                  stack".to_owned(),
    }
}

fn no_stack_error(checked: &CheckResult) -> LabError {
    let said = checked.failed.iter();
    let mut mistakes = vec!["no installed stack can serve the application".to_owned()];
    mistakes.extend(said.map(|failed| format!("{}: {}", failed.title, failed.message)));
    LabError::OwnApp { mistakes }
}

fn is_past(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

fn is_sweep(arm: &AppArm) -> bool {
    arm.choice().is_some_and(|choice| choice.children.is_some())
}

/// Applies the default's result to an arm that is the default with another number of children.
fn apply_default_result(arm: &AppArm, checked: &mut CheckResult) {
    match checked.costs.iter().find(|cost| cost.name == DEFAULT) {
        Some(cost) => {
            let cost = ArmCost {
                name: arm.name.clone(),
                question: AppQuestion::about(arm),
                ..cost.clone()
            };
            checked.costs.push(cost);
            checked.fit.push(arm.clone());
        }
        None => checked.failed.push(FailedArm {
            arm: arm.name.clone(),
            title: arm.title.clone(),
            name: "WrongPage".to_owned(),
            message:
                "the page is wrong for the same reason as with the number of children that Howdah \
                 chooses"
                    .to_owned(),
        }),
    }
}

/// Learns the pages from the reference, each from several responses.
fn learn_pages(
    app: &TestedApp,
    arm: &AppArm,
    running: &RunningStack,
    until: Option<Instant>,
) -> Result<Vec<CheckedPage>, LabError> {
    let mut pages = Vec::new();
    let mut mistakes = Vec::new();
    for url in &app.urls {
        let mut samples = Vec::new();
        let mut service = f64::INFINITY;
        let mut last = FetchedResponse::default();
        for _ in 0..REFERENCE_SAMPLES {
            if is_past(until) {
                mistakes.push(format!(
                    "--url {url}: the pages before this one took all the time that --quick has for checks: use \
                     --full, or give fewer pages"
                ));
                return Err(LabError::OwnApp { mistakes });
            }
            last = fetch_page(app, arm, running, url)?;
            if !(200..300).contains(&last.status) {
                break;
            }
            service = service.min(last.took);
            samples.push(normalise(&last.body, running.address));
        }
        if samples.len() < REFERENCE_SAMPLES {
            mistakes.push(page_error(url, &last, arm));
            continue;
        }
        pages.push(CheckedPage {
            url: url.clone(),
            media_type: last.media_type,
            bytes: last.body.len(),
            shape: PageShape::learn(&samples),
            service,
        });
    }
    match mistakes.is_empty() {
        true => Ok(pages),
        false => Err(LabError::OwnApp { mistakes }),
    }
}

/// Returns why a page with a status other than 2xx is not measured, and what to do.
fn page_error(url: &str, answer: &FetchedResponse, arm: &AppArm) -> String {
    let status = answer.status;
    let remedy = match (&answer.location, status) {
        (Some(location), 300..=399) => format!(
            "the page redirects to {location}: give that URL instead (if its host differs, as --url http://HOST/…)"
        ),
        (_, 401 | 403) => {
            "the page needs a login (--cookie or --header), or the user that the stacks run as cannot read its \
             files".to_owned()
        }
        (_, 404) => {
            "there is no such page: give another --url, or name the script for paths that are not files with --front-controller /index.php".to_owned()
        }
        (_, 500..) => {
            "the application failed: its log is in the directory of the results; use --env or --php-ini if PHP \
             needs other settings".to_owned()
        }
        _ => "only pages with a status of 2xx are measured".to_owned(),
    };
    format!(
        "--url {url}: {} responds with {status}: {remedy}",
        arm.title
    )
}

/// Requests all pages from an arm; returns those that came from a page cache.
fn compare_pages(
    app: &TestedApp,
    arm: &AppArm,
    running: &RunningStack,
    reference: SocketAddr,
    pages: &mut [CheckedPage],
) -> Result<Vec<String>, LabError> {
    let mut cached = Vec::new();
    for page in pages {
        for question in 0..STACK_SAMPLES {
            let answer = fetch_page(app, arm, running, &page.url)?;
            let got = normalise(&answer.body, running.address);
            if let Err(mut why) = check_response(page, &answer, &got) {
                // Text that changes with the clock may not have changed while the shape was learnt.
                let again = fetch::fetch(reference, &app.host, &page.url, &app.headers);
                let same = again.is_ok_and(|again| {
                    let lesson = normalise(&again.body, reference);
                    page.shape.widen(&lesson);
                    match check_response(page, &answer, &got) {
                        Ok(()) => true,
                        Err(still) => {
                            why = still;
                            false
                        }
                    }
                });
                if !same {
                    let mut error = wrong_page(arm, running, &page.url, why);
                    // A page that merely differs leaves nothing in the log.
                    if let (LabError::WrongPage { log, .. }, 200..=299) =
                        (&mut error, answer.status)
                    {
                        log.clear();
                    }
                    return Err(error);
                }
            }
            if question + 1 == STACK_SAMPLES && answer.from_cache {
                cached.push(page.url.clone());
            }
        }
    }
    Ok(cached)
}

/// Fails with a description if a response is not the page.
fn check_response(
    page: &CheckedPage,
    answer: &FetchedResponse,
    normalised: &[u8],
) -> Result<(), String> {
    if !(200..300).contains(&answer.status) {
        return Err(format!("status {}", answer.status));
    }
    if answer.media_type != page.media_type {
        return Err(format!(
            "Content-Type `{}` instead of `{}`",
            answer.media_type, page.media_type
        ));
    }
    page.shape.matches(normalised).map_err(|why| {
        format!(
            "another page than the reference ({} instead of {}): {why}",
            formatting::bytes(answer.body.len() as f64),
            formatting::bytes(page.bytes as f64)
        )
    })
}

/// Checks one response for every page of a stack that has just been started.
///
/// # Errors
/// [`LabError::WrongPage`] if a response is not the page.
pub fn recheck(
    app: &TestedApp,
    arm: &AppArm,
    running: &RunningStack,
    pages: &[CheckedPage],
) -> Result<(), LabError> {
    for page in pages {
        let answer = fetch_page(app, arm, running, &page.url)?;
        // The whole shape was compared before; clocks in the page have advanced since.
        let known = |mark: &String| {
            let bytes = mark.as_bytes();
            answer.body.windows(bytes.len()).any(|at| at == bytes)
        };
        let right = (200..300).contains(&answer.status) && page.shape.marks().iter().all(known);
        if !right {
            let why = format!("status {}, without the page's text", answer.status);
            return Err(wrong_page(arm, running, &page.url, why));
        }
    }
    Ok(())
}

fn fetch_page(
    app: &TestedApp,
    arm: &AppArm,
    running: &RunningStack,
    url: &str,
) -> Result<FetchedResponse, LabError> {
    fetch::fetch(running.address, &app.host, url, &app.headers).map_err(|why| {
        wrong_page(
            arm,
            running,
            url,
            format!("no usable response: the server {why}"),
        )
    })
}

fn wrong_page(arm: &AppArm, running: &RunningStack, url: &str, got: String) -> LabError {
    LabError::WrongPage {
        stack: arm.title.clone(),
        url: url.to_owned(),
        got,
        log: running.log_tails(),
    }
}
