//! The side effects of a run, as the embedded PHP reports them: they forbid storing the run's page, and invalidate the
//! site's pages when the run writes. PHP reports them immediately, even if no client waits for the run any more (after
//! `fastcgi_finish_request()`, or when the client has disconnected).
//!
//! The order that keeps a page from being older than a write (docs/cache.md): a render's generation is taken before PHP
//! starts; a write invalidates pages when it is announced, when the writer's head is sent, after each later statement,
//! and when the run has ended. So every page that was rendered before the write could be read is invalid by the time
//! the writer's response is sent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use howdah_cache::generation::{Force, Purge, WriteInProgress};
use howdah_cache::noise;
use howdah_cache::tags::Tags;
use howdah_cache::{Pass, Storable, purge};
use howdah_executor::EffectSink;
use howdah_proto::effect;
use howdah_proto::effect::CALLED_FUNCTIONS_COLUMN;

use super::visitor_effects::VisitorEffects;
use super::write::WriteInvalidation;
use super::{PageCache, SiteCache};
use crate::script::pump::Confirmation;
use howdah_site::site::Site;

/// The maximum length of a cause's text, in bytes; usual file names fit.
const MAX_CAUSE_BYTES: usize = 1200;

/// The effects that PHP reports about a run in progress, applied to the site's cache.
#[derive(Debug)]
pub struct RunEffects {
    cache: Arc<PageCache>,
    site: u32,
    has_written: AtomicBool,
    /// Whether the run has invalidated pages since the last call of [`RunEffects::confirmation`].
    unconfirmed: AtomicBool,
    /// Set while the run writes or may write: if the process dies meanwhile, the next one must not use older pages.
    write_in_progress: OnceLock<WriteInProgress>,
    /// The first event that forbids storing the page.
    forbidden: OnceLock<Cause>,
    /// What the request itself writes, whatever PHP reports.
    request_write: Mutex<Option<WriteInvalidation>>,
    /// The tags that the script set with `howdah_cache_tag()`.
    tags: Mutex<Tags>,
    /// What the run changes for the visitor of its request.
    pub visitor: VisitorEffects,
}

/// Why a page is not stored, and what caused it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Why the page is not stored.
    pub pass: Pass,
    /// A description of what the script did: `INSERT wp_posts at /srv/…/class-wpdb.php:2351 < /srv/…/post.php:4562`;
    /// empty if nothing is known.
    pub text: Arc<str>,
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &*self.text {
            "" => write!(f, "{}", self.pass),
            text => write!(f, "{}: {text}", self.pass),
        }
    }
}

impl RunEffects {
    /// Returns the effects of one run of a script of `site`, which has the cache on.
    pub fn new(cache: &Arc<PageCache>, site: &Site) -> Arc<RunEffects> {
        Arc::new(RunEffects {
            cache: cache.clone(),
            site: site.number(),
            has_written: AtomicBool::new(false),
            unconfirmed: AtomicBool::new(false),
            write_in_progress: OnceLock::new(),
            forbidden: OnceLock::new(),
            request_write: Mutex::default(),
            tags: Mutex::default(),
            visitor: VisitorEffects::default(),
        })
    }

    /// Records that the run may write. This must be called before the run starts.
    pub fn may_write(&self) {
        if let Some(part) = self.cache.site_by_number(self.site) {
            self.write_in_progress
                .get_or_init(|| part.generations.begin_write());
        }
    }

    /// Adds the tags that the script set with `howdah_cache_tag()` to a page that is to be stored.
    pub fn add_tags(&self, storable: &mut Storable) -> Result<(), Pass> {
        let tags = self.tags.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tags = tags.as_slice().iter();
        tags.try_for_each(|tag| storable.add_tag(tag))
    }

    /// Carries out a purge by a script. It applies to the script's own site only, whatever host the purged URL names.
    fn purge(&self, part: &SiteCache, value: &[u8]) {
        let asked = std::str::from_utf8(value).ok().map(purge::parse_argument);
        let what = match asked {
            Some(Ok(asked)) => asked.what,
            // PHP checks the text. A purge that cannot be parsed here purges more pages, never fewer.
            _ => Purge::All,
        };
        part.generations.purge(&what, Force::Hard);
        self.note_invalidation();
    }

    /// Returns the event that forbids storing the page, if there has been one.
    pub fn forbidden(&self) -> Option<&Cause> {
        self.forbidden.get()
    }

    /// Returns whether the run has announced a write that may change pages.
    pub fn has_written(&self) -> bool {
        self.has_written.load(Ordering::SeqCst)
    }

    /// Returns what the request itself writes. This is set before the run starts, and the head of the response is noted
    /// in it.
    pub fn request_write(&self) -> MutexGuard<'_, Option<WriteInvalidation>> {
        let write = self.request_write.lock();
        write.unwrap_or_else(PoisonError::into_inner)
    }

    /// Invalidates pages again if the run has written. This is called before output of the run becomes visible, and
    /// when the run has ended, because other requests may only now be able to read what it wrote.
    pub fn settle(&self) {
        self.settle_visitor(false);
        let Some(part) = self.cache.site_by_number(self.site) else {
            return;
        };
        if !self.settle_reported_writes(part)
            && let Some(write) = &*self.request_write()
        {
            write.apply(part);
        }
    }

    /// Invalidates pages again if PHP has reported that the run has written. Returns whether all pages of the site were
    /// invalidated.
    fn settle_reported_writes(&self, part: &SiteCache) -> bool {
        let all = self.has_written() && part.config.flush_on_write;
        if all {
            invalidate_site(part);
        }
        all
    }

    /// Forgets the visitor's private pages if the run has changed what they show. `has_ended` says that the run has
    /// ended without a head. Called before output of the run becomes visible, and when the run has ended.
    pub fn settle_visitor(&self, has_ended: bool) {
        if let Some(part) = self.cache.site_by_number(self.site) {
            self.visitor.settle(&self.cache, part, has_ended);
        }
    }

    /// Records that the run, or its request, has invalidated pages.
    pub fn note_invalidation(&self) {
        self.unconfirmed.store(true, Ordering::SeqCst);
    }

    /// Returns a future that waits until every server of the fleet has carried out the invalidations of the run so far;
    /// `None` if there is nothing to wait for. This must be called before any part of the response is sent.
    pub fn confirmation(&self) -> Option<Confirmation> {
        let part = self.cache.site_by_number(self.site)?;
        let is_due = self.unconfirmed.swap(false, Ordering::SeqCst);
        is_due.then(|| part.confirmation()).flatten()
    }

    fn forbid(&self, pass: Pass, text: &str) {
        let cause = Cause {
            pass,
            text: text.into(),
        };
        // A visitor's own page may show what is in the visitor's session.
        if pass != Pass::SessionOpened {
            self.visitor.forbid(cause.clone());
        }
        // Only the first cause counts.
        let _ = self.forbidden.set(cause);
    }

    /// Takes a write into account that may change the visitor's own pages, such as a basket, even if no other page shows
    /// it.
    fn write_for_visitor(&self, part: &SiteCache, write: &effect::WriteEffect<'_>) {
        self.visitor.note_change();
        self.visitor.forbid(Cause {
            pass: Pass::DatabaseWrite,
            text: describe(write).into(),
        });
        self.visitor.settle(&self.cache, part, false);
    }

    fn write(&self, part: &SiteCache, value: &[u8]) {
        let write = effect::WriteEffect::parse(value);
        if part.rules().private.is_some() && !is_ignored(part, &write) {
            self.write_for_visitor(part, &write);
        }
        if is_noise(part, &write) {
            return;
        }
        let text = describe(&write);
        part.reasons.record_write(&text, super::now());
        self.forbid(Pass::DatabaseWrite, &text);
        self.has_written.store(true, Ordering::SeqCst);
        self.may_write();
        // The other servers are notified when the run settles: before the response is sent, and at the latest when the
        // run ends.
        if part.config.flush_on_write {
            part.generations.purge_locally(&Purge::All, Force::Hard);
        }
        self.note_invalidation();
    }
}

/// The last owner drops the value when the run has ended or its process has died, which may be long after the end of the
/// response: the executor holds the value, too.
impl Drop for RunEffects {
    fn drop(&mut self) {
        self.settle();
        self.settle_visitor(true);
    }
}

impl EffectSink for RunEffects {
    fn effect(&self, name: &[u8], value: &[u8]) {
        let Some(part) = self.cache.site_by_number(self.site) else {
            return;
        };
        match name {
            effect::WRITE => self.write(part, value),
            effect::WROTE => {
                self.settle_visitor(false);
                self.settle_reported_writes(part);
            }
            effect::OUTSIDE => apply_worker_write(part),
            effect::PURGE => self.purge(part, value),
            effect::TAG => {
                let mut tags = self.tags.lock().unwrap_or_else(PoisonError::into_inner);
                if let Err(why) = tags.add(value) {
                    self.forbid(why, "");
                }
            }
            effect::SESSION => {
                self.visitor.note_session();
                self.forbid(Pass::SessionOpened, &place(value));
            }
            effect::COOKIE => self.forbid(Pass::SetCookie, &place(value)),
            effect::FATAL => self.forbid(Pass::FatalError, &place(value)),
            // An unknown effect forbids storing the page as well.
            _ => self.forbid(Pass::DoNotCachePage, &place(value)),
        }
    }
}

/// Returns the functions that a statement calls, if it names no table, so that it can write only through these
/// functions.
fn called_functions<'a>(
    write: &effect::WriteEffect<'a>,
) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let functions = |(column, name)| (column == CALLED_FUNCTIONS_COLUMN.as_bytes()).then_some(name);
    let none_but = write.table.is_none();
    write
        .values()
        .filter_map(functions)
        .take_while(move |_| none_but)
}

/// Returns whether a write changes no page of the site, according to its preset or to `cache_ignore_writes`.
pub fn is_noise(part: &SiteCache, write: &effect::WriteEffect<'_>) -> bool {
    if is_ignored(part, write) {
        return true;
    }
    if called_functions(write).next().is_some() {
        return false;
    }
    // The values are collected because the list of noise iterates over them more than once.
    let values: Vec<_> = write.values().collect();
    noise::is_noise(part.rules().preset.name, write.table, values.into_iter())
}

/// Returns whether a write changes no page, not even a visitor's own, according to `cache_ignore_writes`.
fn is_ignored(part: &SiteCache, write: &effect::WriteEffect<'_>) -> bool {
    let patterns = &part.config.ignore_writes;
    let ignored = |table| patterns.iter().any(|p| noise::matches_pattern(p, table));
    let is_ignored = |function| {
        let mut functions = patterns
            .iter()
            .filter_map(|p| p.strip_suffix(CALLED_FUNCTIONS_COLUMN));
        functions.any(|pattern| noise::matches_pattern(pattern, function))
    };
    match called_functions(write).next() {
        Some(_) => called_functions(write).all(is_ignored),
        None => write.table.is_some_and(ignored),
    }
}

/// Invalidates pages because of a write by PHP that this server does not run, unless the write is noise.
pub fn apply_outside_write(part: &SiteCache, value: &[u8]) {
    let write = effect::WriteEffect::parse(value);
    if !is_noise(part, &write) {
        part.reasons.record_write(&describe(&write), super::now());
        invalidate_site(part);
    }
}

/// Handles a write by a worker script outside of its requests. All pages are invalidated again, including the page of
/// this run, because the run began before the write was known. The worker's next page may be stored.
fn apply_worker_write(part: &SiteCache) {
    let text = "a worker script, outside of its requests";
    part.reasons.record_write(text, super::now());
    invalidate_site(part);
}

/// Invalidates every page of a site, if the site is configured for that.
fn invalidate_site(part: &SiteCache) {
    if part.config.flush_on_write {
        part.generations.purge(&Purge::All, Force::Hard);
    }
}

/// Returns the text that logs and `howdah cache explain` show for a write.
pub fn describe(write: &effect::WriteEffect<'_>) -> String {
    let verb = readable(write.verb);
    let functions: Vec<String> = called_functions(write)
        .map(|name| readable(name) + CALLED_FUNCTIONS_COLUMN)
        .collect();
    let any = || match functions.is_empty() {
        true => "any table".to_owned(),
        false => functions.join(", "),
    };
    let table = write.table.map_or_else(any, readable);
    match place(write.place) {
        at if at.is_empty() => format!("{verb} {table}"),
        at => format!("{verb} {table} {at}"),
    }
}

/// Returns the text for a position in a script; empty if the position is unknown.
fn place(value: &[u8]) -> String {
    if value.is_empty() {
        return String::new();
    }
    format!("at {}", readable(value))
}

/// Returns bytes from a process as one line of text.
fn readable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_CAUSE_BYTES)]);
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_description_is_one_line() {
        let write = effect::WriteEffect::parse(b"/a\n.php:7\0INSERT\0t\x1b\0");
        assert_eq!(describe(&write), "INSERT t? at /a?.php:7");
        assert_eq!(
            describe(&effect::WriteEffect::parse(b"\0X\0\0")),
            "X any table"
        );
    }
}
