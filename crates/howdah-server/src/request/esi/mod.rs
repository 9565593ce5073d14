//! Edge side includes: the front replaces the ESI tags of a page while it sends the page, for each delivery again. The
//! parser is `howdah_cache::esi`; here are the decisions.
//!
//! - [`target`]: which fragment a tag names, and whether it may be included.
//! - [`fragment`]: a request that the server makes itself, with the visitor's headers, through the whole handler.
//! - [`composed_run`]: a page with its fragments as a run, so the pump sends it like the response of a script: buffered,
//!   compressed, at the client's pace.
//! - [`composed_head`]: the header of such a response.
//!
//! A page that is in the cache is stored with its tags, and so is a fragment. Only a response that the application has
//! marked is processed. What a visitor types into a page is never a reason to request anything but the paths that the
//! site names in `[site.esi]`.

mod composed_head;
mod composed_run;
mod fragment;
mod target;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use howdah_cache::esi::parser::MAX_INCLUDE_TAGS;
use howdah_cache::esi::{DeflatedTexts, EsiInclude, EsiPart, EsiRules};
use howdah_cache::object::Object;
use howdah_cache::status::CacheVerdict;
use howdah_executor::ScriptRun;
use howdah_http::message::ResponseHead;
use howdah_proto::level::LogLevel;
use howdah_site::encoding::texts::deflate_texts;
use howdah_site::encoding::{Coding, negotiate};

use super::context::{RequestContext, ResponseInProgress};
use super::script::{self, BodyForwarding, ResponseEdit};
use crate::cache::send::add_status_fields;
use crate::failure::Failure;
use crate::script::pump::ResponseOutcome;
use composed_run::ComposedRun;

/// How deep fragments may include fragments: a page, its fragments, theirs, and theirs again. Layouts in use have two
/// levels; each further one multiplies what one request can start.
const MAX_DEPTH: u8 = 3;
/// The maximum number of fragments that are requested for one page, including those of its fragments.
const MAX_FRAGMENTS: u32 = 64;
/// The maximum number of fragments of one response that are requested at once. The next one starts when one has ended.
const MAX_PARALLEL: usize = 8;

/// The maximum number of lines that the error log gets about the tags of one page: a visitor may have written them.
const MAX_LOG_LINES: u32 = 8;

/// The maximum number of bytes of a tag's URL in such a line.
const MAX_LOGGED_URL_BYTES: usize = 200;

/// What a request knows about the page that it is made for.
#[derive(Debug)]
pub(super) struct EsiScope {
    /// How many pages are around this one: 0 for the page that the visitor has requested.
    depth: u8,
    /// Whether the tag that includes this response has `cache-control="private"`.
    includes_as_private: bool,
    /// The target of the page that the visitor has requested.
    page: Arc<[u8]>,
    budget: Arc<EsiBudget>,
}

/// What the visitor's page and all of its fragments share.
#[derive(Debug)]
struct EsiBudget {
    /// How many fragments may still be requested.
    fragments: AtomicU32,
    /// How many lines may still be logged.
    log_lines: AtomicU32,
}

/// Takes one from a number. Returns false if it is 0.
fn take_one(number: &AtomicU32) -> bool {
    let fewer = |left: u32| left.checked_sub(1);
    number
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer)
        .is_ok()
}

impl EsiScope {
    /// Returns the scope of the tags in the response to a request.
    fn of(ctx: RequestContext<'_>) -> EsiScope {
        match ctx.esi {
            Some(scope) => EsiScope {
                depth: scope.depth,
                includes_as_private: false,
                page: scope.page.clone(),
                budget: scope.budget.clone(),
            },
            None => EsiScope {
                depth: 0,
                includes_as_private: false,
                page: ctx.request.target().into(),
                budget: Arc::new(EsiBudget {
                    fragments: AtomicU32::new(MAX_FRAGMENTS),
                    log_lines: AtomicU32::new(MAX_LOG_LINES),
                }),
            },
        }
    }

    /// Returns whether the tag that includes the response says that it is its visitor's own.
    pub fn includes_as_private(&self) -> bool {
        self.includes_as_private
    }

    /// Returns the scope of the fragment of a tag in this page.
    fn inner(&self, tag: &EsiInclude) -> EsiScope {
        EsiScope {
            depth: self.depth + 1,
            includes_as_private: tag.is_private,
            page: self.page.clone(),
            budget: self.budget.clone(),
        }
    }

    /// Returns whether the page may include anything.
    fn is_too_deep(&self) -> bool {
        self.depth >= MAX_DEPTH
    }

    /// Takes one of the fragments that may be requested. Returns false if none is left.
    fn take_fragment(&self) -> bool {
        take_one(&self.budget.fragments)
    }

    /// Counts and logs that a page has more tags than Howdah processes, whatever else is logged about it.
    fn note_dropped(ctx: RequestContext<'_>, url: &[u8]) {
        const NAME: &str = "EsiTooManyTags";
        ctx.front.counters.count_failure(NAME);
        let message = format!(
            "the page has more than {MAX_INCLUDE_TAGS} <esi:include> tags, so nothing is inserted from the tag of {} on",
            shown(url)
        );
        ctx.log_note(LogLevel::Warning, NAME, &message);
    }

    /// Counts and logs why the fragment of a tag is not inserted.
    fn note(&self, ctx: RequestContext<'_>, name: &'static str, url: &[u8], why: &str) {
        ctx.front.counters.count_failure(name);
        if take_one(&self.budget.log_lines) {
            let message = format!("<esi:include> of {}: {why}", shown(url));
            ctx.log_note(LogLevel::Warning, name, &message);
        }
    }
}

/// Returns a tag's URL for the log.
fn shown(url: &[u8]) -> String {
    let start = &url[..url.len().min(MAX_LOGGED_URL_BYTES)];
    start.escape_ascii().to_string()
}

/// Returns the target of the page that includes the response to a request, if the site's application reads it: the
/// LiteSpeed Cache plugin makes a fragment for the page that is around it. A response that is stored for others is made
/// without this target.
pub(super) fn including_page(ctx: RequestContext<'_>) -> Option<&[u8]> {
    let scope = ctx.esi?;
    let (_, part) = ctx.page_cache()?;
    part.rules().has_litespeed_esi().then_some(&scope.page)
}

/// Returns the site's settings, if it has ESI tags processed.
pub(super) fn rules(ctx: RequestContext<'_>) -> Option<&EsiRules> {
    let (_, part) = ctx.page_cache()?;
    part.rules().esi.as_ref()
}

/// Returns whether a stored page is composed for each delivery.
pub(super) fn is_composed(ctx: RequestContext<'_>, page: &Object) -> bool {
    rules(ctx).is_some() && page.esi_parts().is_some()
}

/// Passes the response of a script on, with its ESI tags processed if the application has marked it.
pub(super) async fn relay<'a>(
    ctx: RequestContext<'a>,
    rules: &'a EsiRules,
    run: &'a mut dyn ScriptRun,
    edit: ResponseEdit<'a>,
    upload: Option<BodyForwarding<'a>>,
    response: &'a mut ResponseInProgress<'_>,
) -> ResponseOutcome {
    let mut composed = ComposedRun::of_run(ctx, rules, run);
    let ended = script::relay_response(ctx, &mut composed, edit, upload, response).await;
    composed.close(ended).await
}

/// Returns the texts of a stored page in the form in which they are inserted into a gzip stream, if they have been
/// compressed. Otherwise begins to compress them, for the deliveries after this one.
fn compressed_texts<'p>(
    ctx: RequestContext<'_>,
    page: &'p Arc<Object>,
) -> Option<&'p Arc<DeflatedTexts>> {
    let accept = ctx.request.header_all(b"accept-encoding");
    if !ctx.config.pump.encoding.codings.contains(&Coding::Gzip) {
        return None;
    }
    negotiate::choose_coding(accept, &[Coding::Gzip])?;
    if let Some(permit) = page.begin_deflation() {
        let texts = page.esi_parts()?.iter().filter_map(|part| match part {
            EsiPart::Text(text) => Some(text),
            EsiPart::Include(_) | EsiPart::Dropped(_) => None,
        });
        deflate_texts(texts, |texts| permit.complete(texts));
    }
    page.deflated_texts()
}

/// Sends a stored page with its fragments.
///
/// # Errors
/// Why the page could not be sent completely.
pub(super) async fn send_page(
    ctx: RequestContext<'_>,
    page: &Arc<Object>,
    verdict: CacheVerdict,
    response: &mut ResponseInProgress<'_>,
) -> Result<(), Failure> {
    let Some(rules) = rules(ctx) else {
        return Ok(());
    };
    let mut composed = ComposedRun::of_page(ctx, rules, page);
    let edit = |head: &mut ResponseHead| add_status_fields(head, verdict);
    let edit = ResponseEdit {
        texts: compressed_texts(ctx, page),
        ..ResponseEdit::of(&edit)
    };
    let ended = script::relay_response(ctx, &mut composed, edit, None, response).await;
    match composed.close(ended).await {
        ResponseOutcome::Failed(failure) | ResponseOutcome::CutOff(failure) => Err(failure),
        // A stored page names no file and no other path.
        ResponseOutcome::Complete
        | ResponseOutcome::SendFile(_)
        | ResponseOutcome::LocalRedirect(_) => Ok(()),
    }
}
