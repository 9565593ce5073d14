//! Checks, in two ways, whether the cache holds what the application would respond now (`howdah_cache::compare`). In a
//! *dry run* (`cache = "dry-run"`) nothing is served from the cache, and each visitor's own response is compared with
//! the page that the cache would have served. In a *shadow* check (`cache_shadow` = N) the page of one in N hits is
//! rendered again in the background. The results are counted and logged; the caller decides what to do about a
//! difference.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use howdah_cache::Object;
use howdah_cache::compare::{self, Likeness, NonceNoise};
use howdah_cache::key::target_of;
use howdah_executor::{ExecError, RunEvent, RunWrapper, ScriptHead, ScriptRun};
use howdah_proto::level::LogLevel;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::{OwnedHeader, PageCache, SiteCache, now};
use crate::gather::Gathered;
use crate::script::head;
use howdah_log::log::error::ErrorLog;

/// The maximum size, in bytes, of a body that is compared on the front thread. A longer one is compared by another
/// thread, because the front thread's other visitors would have to wait.
const MAX_INLINE_COMPARE_BYTES: u64 = 64 << 10;

/// The result of comparing a stored page with the application's response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckFinding {
    /// The application's response has the same bytes as the page.
    Same,
    /// Only words that look like nonces differ.
    Noise(NonceNoise),
    /// The page and the application's response differ; the text says where.
    Different(String),
    /// There is nothing to compare: a partial response, a 304, or a page that was purged meanwhile.
    Unchecked,
}

/// The kind of a check, with its name in log and status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
pub enum CheckKind {
    /// `cache = "dry-run"`
    #[strum(serialize = "DryRunDiffers")]
    DryRun,
    /// `cache_shadow`: a page that was served from the cache is rendered again and compared.
    #[strum(serialize = "ShadowDiffers")]
    Shadow,
}

impl CheckKind {
    /// Returns the name of a difference that this kind of check finds.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// How often a site's pages were compared, by the result.
#[derive(Debug, Default)]
pub struct CacheChecks {
    would_hit: AtomicU64,
    would_miss: AtomicU64,
    same: AtomicU64,
    noise: AtomicU64,
    different: AtomicU64,
    unchecked: AtomicU64,
    turn: AtomicU64,
    last: Mutex<String>,
}

/// The counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecksStatus {
    /// Dry run: requests that would have been served from the cache.
    pub would_hit: u64,
    /// Dry run: requests for which a page would have been rendered.
    pub would_miss: u64,
    /// Comparisons that found no difference.
    pub same: u64,
    /// Comparisons that found only words that look like nonces.
    pub noise: u64,
    /// Comparisons that found a different page, which is an alarm.
    pub different: u64,
    /// Comparisons that had nothing to compare.
    pub unchecked: u64,
    /// A description of the last difference.
    pub last: String,
}

impl CacheChecks {
    /// Counts, for a dry run, whether the cache would have served the page.
    pub fn count_dry_run(&self, hit: bool) {
        match hit {
            true => &self.would_hit,
            false => &self.would_miss,
        }
        .fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether this hit is the one in `one_in` that is checked; with 0 none is.
    pub fn is_due(&self, one_in: u64) -> bool {
        one_in > 0
            && self
                .turn
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(one_in)
    }

    /// Counts a finding about a page, and logs a difference.
    pub fn record(&self, finding: &CheckFinding, way: CheckKind, page: &Object, log: &ErrorLog) {
        let counter = match finding {
            CheckFinding::Same => &self.same,
            CheckFinding::Noise(_) => &self.noise,
            CheckFinding::Different(_) => &self.different,
            CheckFinding::Unchecked => &self.unchecked,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let target = target_of(&page.url_key).escape_ascii();
        match finding {
            CheckFinding::Different(what) => {
                let age = page.freshness.age(now()) / 1000;
                let text = format!("{target}: {what}; the page was stored {age} s ago");
                log.problem(LogLevel::Warning, way.name(), &text);
                *lock(&self.last) = text;
            }
            CheckFinding::Noise(noise) => {
                let text = format!(
                    "{target}: {} words that look like nonces differ ({} bytes in total), the first at byte {}",
                    noise.words, noise.bytes, noise.first
                );
                log.problem(LogLevel::Debug, way.name(), &text);
            }
            CheckFinding::Same | CheckFinding::Unchecked => {}
        }
    }

    /// Returns the current values of the counters.
    pub fn status(&self) -> ChecksStatus {
        let n = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ChecksStatus {
            would_hit: n(&self.would_hit),
            would_miss: n(&self.would_miss),
            same: n(&self.same),
            noise: n(&self.noise),
            different: n(&self.different),
            unchecked: n(&self.unchecked),
            last: lock(&self.last).clone(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Compares a stored page with a fresh one.
pub async fn compare_pages(kept: &Arc<Object>, fresh: &Arc<Object>) -> CheckFinding {
    let (page, other) = (kept.clone(), fresh.clone());
    let look = move || {
        let lines = other.fields().map(|(n, v)| (n.to_vec(), v.to_vec()));
        let lines: Vec<OwnedHeader> = lines.collect();
        compare(&page, other.status, &lines, &other.body)
    };
    match fresh.body.len() as u64 > MAX_INLINE_COMPARE_BYTES {
        // The task fails only when the process exits.
        true => {
            let looked = tokio::task::spawn_blocking(look).await;
            looked.unwrap_or(CheckFinding::Unchecked)
        }
        false => look(),
    }
}

/// Compares a stored page with a fresh response to the same request.
pub fn compare(page: &Object, status: u16, fields: &[OwnedHeader], body: &[u8]) -> CheckFinding {
    let fresh = |name: &str| {
        let line = fields
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes()));
        line.map(|(_, value)| &value[..])
    };
    if matches!(status, 206 | 304) || fresh("content-encoding") != page.field(b"content-encoding") {
        return CheckFinding::Unchecked;
    }
    if status != page.status {
        return CheckFinding::Different(format!(
            "the stored status is {}, but the fresh status is {status}",
            page.status
        ));
    }
    if fresh("set-cookie").is_some() {
        return CheckFinding::Different("the fresh response sets a cookie".to_owned());
    }
    for name in ["Content-Type", "Location"] {
        if fresh(name) != page.field(name.as_bytes()) {
            return CheckFinding::Different(format!("the header {name} differs"));
        }
    }
    match compare::compare_bodies(&page.body, body) {
        Likeness::Same => CheckFinding::Same,
        Likeness::Noise(noise) => CheckFinding::Noise(noise),
        Likeness::Different(place) => {
            let mut text = String::new();
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "the bodies differ, starting at byte {} (line {}): {} bytes of the stored page, {} bytes of the fresh one",
                place.first, place.line, place.stored_bytes, place.fresh_bytes
            );
            CheckFinding::Different(text)
        }
    }
}

/// A comparison of a visitor's response with the page that the cache would have served.
#[derive(Debug)]
pub struct DryRun {
    page: Arc<Object>,
    limit: u64,
    kept: Mutex<CopiedResponse>,
}

#[derive(Debug, Default)]
struct CopiedResponse {
    head: Option<ScriptHead>,
    body: Gathered,
    length: u64,
    ended: bool,
}

impl DryRun {
    /// Returns a dry run that compares the response with `page`; responses longer than `limit` bytes are not compared.
    pub fn new(page: Arc<Object>, limit: u64) -> Arc<DryRun> {
        Arc::new(DryRun {
            page,
            limit,
            kept: Mutex::default(),
        })
    }

    /// Wraps a run to keep a copy of its response.
    pub fn copy(self: &Arc<DryRun>, run: Box<dyn ScriptRun>) -> Box<dyn ScriptRun> {
        Box::new(CopyingRun {
            run,
            dry_run: self.clone(),
        })
    }

    /// Compares the response with the stored page, after the run has ended.
    pub fn judge(self: Arc<DryRun>, cache: &Arc<PageCache>, site: u32, log: &Arc<ErrorLog>) {
        let is_long = lock(&self.kept).length > MAX_INLINE_COMPARE_BYTES;
        let (cache, log) = (cache.clone(), log.clone());
        let look = move || {
            if let Some(part) = cache.site_by_number(site) {
                self.compare_and_record(part, &log);
            }
        };
        match is_long {
            true => drop(tokio::task::spawn_blocking(look)),
            false => look(),
        }
    }

    fn compare_and_record(&self, part: &SiteCache, log: &ErrorLog) {
        let mut kept = lock(&self.kept);
        let body = std::mem::take(&mut kept.body).into_bytes();
        let valid = self.page.state(&part.generations, now()).is_some();
        let finding = match &kept.head {
            Some(head) if valid && kept.ended && kept.length <= self.limit => {
                let status = head::instructions(head).status;
                compare(&self.page, status, &head.headers, &body)
            }
            _ => CheckFinding::Unchecked,
        };
        part.checks
            .record(&finding, CheckKind::DryRun, &self.page, log);
    }
}

struct CopyingRun {
    run: Box<dyn ScriptRun>,
    dry_run: Arc<DryRun>,
}

impl RunWrapper for CopyingRun {
    fn inner(&self) -> &dyn ScriptRun {
        &*self.run
    }

    fn poll_event_around(&mut self, cx: &mut Context<'_>) -> Poll<Result<RunEvent, ExecError>> {
        let event = std::task::ready!(self.run.poll_event(cx))?;
        let mut kept = lock(&self.dry_run.kept);
        match &event {
            RunEvent::Head(head) => kept.head = Some(head.clone()),
            RunEvent::Body(bytes) => {
                kept.length += bytes.len() as u64;
                if kept.length <= self.dry_run.limit {
                    kept.body.push(bytes.clone());
                } else {
                    kept.body.clear();
                }
            }
            RunEvent::End => kept.ended = true,
            _ => {}
        }
        drop(kept);
        Poll::Ready(Ok(event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shadow_check_is_due_for_one_hit_in_so_many() {
        let checks = CacheChecks::default();
        let turns = (0..100).filter(|_| checks.is_due(10)).count();
        assert_eq!(turns, 10);
        assert!((0..10).all(|_| !checks.is_due(0)));
    }
}
