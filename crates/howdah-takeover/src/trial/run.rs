//! The trial of all sites: starts the preview, asks several sites at the same time, and writes the result.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use howdah_os::files::create_beside;
use rustix::fs::{FlockOperation, flock};

use super::configuration::{hash_of, read_files};
use super::endpoint::endpoints;
use super::preview::{Preview, howdah_program};
use super::requests::try_site;
use super::route::RouteExplainer;
use super::site::{SiteTrial, TrialLimits};
use super::{TRIAL_FILE, Trial, TriedSite, UnjudgedReason};
use crate::plan::Plan;

/// How many sites are asked at the same time. Each gets one request at a time.
const SITES_AT_ONCE: usize = 4;
/// The file that a running trial locks.
const LOCK_FILE: &str = "try.lock";

/// The options of a trial.
#[derive(Clone, Debug)]
pub struct TrialOptions {
    /// The directory of the takeover.
    pub directory: PathBuf,
    /// The limits for each site.
    pub limits: TrialLimits,
    /// The first port of the preview; by default, free ports.
    pub first_port: Option<u16>,
}

/// Why a trial has no result.
#[derive(Debug)]
pub enum TrialError {
    /// There is no plan, or it cannot be read.
    PlanUnreadable(String),
    /// The configuration cannot be read.
    ConfigurationUnreadable(String),
    /// Another trial uses the directory.
    TrialInProgress(String),
    /// Howdah does not start with the configuration. Contains its messages.
    PreviewDoesNotStart(String),
    /// Howdah exited during the trial. Contains its messages.
    PreviewExited(String),
    /// No old server accepts connections.
    OldServerUnreachable(String),
    /// The result cannot be written.
    ResultNotWritten(String),
}

impl TrialError {
    /// Returns the name of the error.
    pub fn name(&self) -> &'static str {
        match self {
            TrialError::PlanUnreadable(_) => "PlanUnreadable",
            TrialError::ConfigurationUnreadable(_) => "ConfigurationUnreadable",
            TrialError::TrialInProgress(_) => "TrialInProgress",
            TrialError::PreviewDoesNotStart(_) => "PreviewDoesNotStart",
            TrialError::PreviewExited(_) => "PreviewExited",
            TrialError::OldServerUnreachable(_) => "OldServerUnreachable",
            TrialError::ResultNotWritten(_) => "ResultNotWritten",
        }
    }

    fn message(&self) -> &str {
        match self {
            TrialError::PlanUnreadable(why)
            | TrialError::ConfigurationUnreadable(why)
            | TrialError::TrialInProgress(why)
            | TrialError::PreviewDoesNotStart(why)
            | TrialError::PreviewExited(why)
            | TrialError::OldServerUnreachable(why)
            | TrialError::ResultNotWritten(why) => why,
        }
    }
}

impl fmt::Display for TrialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name(), self.message())
    }
}

impl std::error::Error for TrialError {}

/// Runs the trial and writes `trial.json`. `progress` is called after each site with the number of sites that are done.
/// The calling thread must be the one that the program ends with: see [`Preview::start`].
///
/// # Errors
/// See [`TrialError`]. An earlier result is removed first, so `switch` never uses the result of another trial.
pub fn run(
    options: &TrialOptions,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Trial, TrialError> {
    let directory = std::path::absolute(&options.directory).unwrap_or(options.directory.clone());
    let plan = Plan::read(&directory).map_err(TrialError::PlanUnreadable)?;
    let _lock = lock(&directory)?;
    let files = read_files(&directory).map_err(TrialError::ConfigurationUnreadable)?;
    remove_result(&directory).map_err(|error| not_written(&directory, &error))?;
    let begin = Instant::now();
    let howdah = howdah_program();
    let mut preview = Preview::start(&howdah, &directory, &files, options.first_port)
        .map_err(TrialError::PreviewDoesNotStart)?;
    let explainer = RouteExplainer {
        howdah,
        directory: directory.clone(),
    };
    let sites = try_sites(&plan, &preview, &explainer, options.limits, progress);
    if !preview.is_running() {
        return Err(TrialError::PreviewExited(preview.last_messages()));
    }
    let trial = Trial {
        made_at: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_secs()),
        duration: begin.elapsed().as_secs(),
        configuration_hash: hash_of(&files),
        sites,
        remarks: preview.remarks.clone(),
    };
    drop(preview);
    write(&directory, &trial).map_err(|error| not_written(&directory, &error))?;
    check_reachable(&trial)?;
    Ok(trial)
}

/// Locks the directory: two trials would replace each other's preview.
fn lock(directory: &Path) -> Result<File, TrialError> {
    let path = directory.join(LOCK_FILE);
    let file = File::create(&path).map_err(|error| not_written(directory, &error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(_) => Err(TrialError::TrialInProgress(format!(
            "another `howdah takeover try` uses {}; wait until it has ended",
            directory.display()
        ))),
    }
}

fn not_written(directory: &Path, error: &io::Error) -> TrialError {
    TrialError::ResultNotWritten(format!("{}: {error}", directory.display()))
}

fn remove_result(directory: &Path) -> io::Result<()> {
    match fs::remove_file(directory.join(TRIAL_FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Tries the sites, several at the same time; the results are in the order of the plan.
fn try_sites(
    plan: &Plan,
    preview: &Preview,
    explainer: &RouteExplainer,
    limits: TrialLimits,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Vec<TriedSite> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results: Mutex<Vec<Option<TriedSite>>> = Mutex::new(vec![None; plan.sites.len()]);
    let work = || {
        while let Some(index) =
            Some(next.fetch_add(1, Ordering::Relaxed)).filter(|index| *index < plan.sites.len())
        {
            let site = &plan.sites[index];
            let mut trial = SiteTrial::new(site, &plan.findings, limits, preview.log(), explainer);
            try_site(&mut trial, site, &endpoints(site, &preview.listeners));
            let tried = trial.finish();
            results.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(tried);
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, plan.sites.len());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..SITES_AT_ONCE.min(plan.sites.len()) {
            scope.spawn(work);
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().flatten().collect()
}

fn write(directory: &Path, trial: &Trial) -> io::Result<()> {
    let path = directory.join(TRIAL_FILE);
    let (mut file, new) = create_beside(&path, 0o600)?;
    let written = serde_json::to_string_pretty(trial)
        .map_err(io::Error::other)
        .and_then(|text| file.write_all(text.as_bytes()))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&new, &path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

/// Fails if there are sites and the old server of none of them responds.
fn check_reachable(trial: &Trial) -> Result<(), TrialError> {
    let unreachable = Some(UnjudgedReason::OldServerUnreachable);
    let is_reachable = |site: &TriedSite| site.reason != unreachable;
    if trial.sites.is_empty() || trial.sites.iter().any(is_reachable) {
        return Ok(());
    }
    Err(TrialError::OldServerUnreachable(format!(
        "no address of the {} sites accepts connections; start the old server, or make a new plan with `howdah takeover plan`",
        trial.sites.len()
    )))
}
