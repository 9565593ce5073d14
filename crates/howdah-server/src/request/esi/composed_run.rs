//! A page and its fragments as one run. What precedes a fragment is passed on, and flushed if the fragment has to be
//! waited for, so the client reads it meanwhile, and the page cache learns from the header whether the page can be
//! stored. The fragments run at the same time and are inserted in order.
//!
//! The header of a script's response is passed on before its first fragment is requested: with it, the page cache
//! invalidates what the script has written, so no fragment is older than its page.
//!
//! The page's own script is read to its end while its fragments run, and what does not fit into memory waits in a file.
//! The script never waits for a fragment, because it may hold what the fragment needs: the process, or the lock of the
//! visitor's session. A fragment that is not inserted yet writes to a file when it is long, like any response to a slow
//! client.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use howdah_cache::esi::{self, EsiInclude, EsiParser, EsiPart, EsiRules};
use howdah_cache::object::Object;
use howdah_executor::{ExecError, RunEvent, RunTiming, ScriptHead, ScriptRun};
use howdah_http::memory::allowance;
use howdah_http::turn;

use super::super::context::RequestContext;
use super::composed_head;
use super::fragment::{Fragment, FragmentState};
use super::target::fragment_target;
use super::{EsiScope, MAX_PARALLEL, shown};
use crate::cache::header_slices;
use crate::failure::Failure;
use crate::script::head::{SendFile, instructions};
use crate::script::pump::ResponseOutcome;
use crate::script::spill::{SpillError, SpillFile};

/// How many bytes of a page wait in memory for the fragments before them; fewer if memory is short. The rest waits in a
/// file.
const MAX_WAITING_BYTES: usize = 8 << 20;
/// How many bytes are taken from that file at once.
const REFILL_BYTES: usize = 64 << 10;

/// The page, and the fragments that have been requested for it.
pub(super) struct ComposedRun<'a> {
    ctx: RequestContext<'a>,
    rules: &'a EsiRules,
    scope: EsiScope,
    /// The run of the page's script; `None` for a stored page.
    source: Option<&'a mut dyn ScriptRun>,
    /// The header of a stored page, until it has been passed on.
    head: Option<ScriptHead>,
    state: PageState,
    parser: EsiParser,
    queue: VecDeque<Piece>,
    /// How much memory the queue needs: its texts and its pieces themselves.
    waiting: usize,
    /// What the script has written after the texts in the queue, not parsed yet.
    rest: Option<SpillFile>,
    /// How many fragments the page has had so far; the number of the next one.
    includes: usize,
    /// The fragments in the queue that have not been requested, in order.
    unrequested: VecDeque<Include<'a>>,
    /// The fragments in the queue that have been requested, in order: at most as many as one page may request. A
    /// fragment that is in neither list inserts nothing.
    requested: VecDeque<Include<'a>>,
    /// Whether the header has been sent, so fragments may be requested.
    has_begun: bool,
    /// Whether the header or text has been passed on since the last flush.
    unflushed: bool,
    /// Why the page cannot be completed.
    failure: Option<Failure>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PageState {
    /// The header has not arrived.
    Undecided,
    /// The response is not marked, or cannot be processed. It is passed on unchanged.
    Unchanged,
    /// More of the page will arrive.
    Composing,
    /// The script has ended, but a part of the page may be in the file.
    Written,
    /// The whole page is in the queue.
    Ended,
}

/// A part of the response that has not been passed on.
enum Piece {
    Text(Bytes),
    /// The script has flushed its output.
    Flush,
    /// The fragment with this number, whose tag has URLs of this length.
    Include {
        number: usize,
        url_bytes: usize,
    },
}

impl Piece {
    /// Returns how much memory the piece needs in the queue.
    fn size(&self) -> usize {
        let own = match self {
            Piece::Text(text) => text.len(),
            Piece::Flush => 0,
            Piece::Include { url_bytes, .. } => size_of::<Include<'_>>() + url_bytes,
        };
        size_of::<Piece>() + own
    }
}

/// A fragment to insert.
struct Include<'a> {
    number: usize,
    tag: EsiInclude,
    state: IncludeState<'a>,
    /// Whether a part of the fragment has been inserted, so nothing can replace it.
    has_begun: bool,
}

enum IncludeState<'a> {
    /// It has been requested under this URL of the tag.
    Requested {
        fragment: Fragment<'a>,
        is_alt: bool,
    },
    /// It has not been requested, or nothing is inserted.
    Nothing,
    /// The page cannot be completed without it.
    Failed(Failure),
}

impl<'a> ComposedRun<'a> {
    fn new(ctx: RequestContext<'a>, rules: &'a EsiRules) -> ComposedRun<'a> {
        ComposedRun {
            ctx,
            rules,
            scope: EsiScope::of(ctx),
            source: None,
            head: None,
            state: PageState::Undecided,
            parser: EsiParser::default(),
            queue: VecDeque::new(),
            waiting: 0,
            rest: None,
            includes: 0,
            unrequested: VecDeque::new(),
            requested: VecDeque::new(),
            has_begun: false,
            unflushed: true,
            failure: None,
        }
    }

    /// Creates the run of a page that a script writes.
    pub fn of_run(
        ctx: RequestContext<'a>,
        rules: &'a EsiRules,
        run: &'a mut dyn ScriptRun,
    ) -> ComposedRun<'a> {
        ComposedRun {
            source: Some(run),
            ..ComposedRun::new(ctx, rules)
        }
    }

    /// Creates the run of a stored page.
    pub fn of_page(
        ctx: RequestContext<'a>,
        rules: &'a EsiRules,
        page: &Arc<Object>,
    ) -> ComposedRun<'a> {
        let mut head = ScriptHead {
            status: page.status,
            reason: page.reason.clone(),
            headers: page
                .fields()
                .map(|(name, value)| (name.to_vec(), value.to_vec()))
                .collect(),
            rejected: 0,
            local_redirect: false,
        };
        composed_head::compose(&mut head);
        let mut run = ComposedRun {
            head: Some(head),
            state: PageState::Ended,
            // A stored page has written nothing.
            has_begun: true,
            ..ComposedRun::new(ctx, rules)
        };
        if !run.has_no_body() {
            let parts = page.esi_parts().unwrap_or_default();
            run.enqueue(parts.iter().cloned());
        }
        run
    }

    /// Ends the fragments that are still running because the response has ended, and returns how it has ended.
    pub async fn close(mut self, ended: ResponseOutcome) -> ResponseOutcome {
        let mut left: Vec<Fragment<'a>> = Vec::new();
        for include in self.requested.drain(..) {
            if let IncludeState::Requested { mut fragment, .. } = include.state {
                fragment.abandon();
                left.push(fragment);
            }
        }
        if !left.is_empty() {
            poll_fn(|cx| {
                left.retain_mut(|fragment| !fragment.poll(cx));
                match left.is_empty() {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
        }
        match (ended, self.failure) {
            (ResponseOutcome::Failed(_), Some(failure)) => ResponseOutcome::Failed(failure),
            (ResponseOutcome::CutOff(_), Some(failure)) => ResponseOutcome::CutOff(failure),
            (ended, _) => ended,
        }
    }

    /// Returns the fragment that has to be inserted before anything else can be passed on.
    fn next_fragment(&self) -> Option<&Include<'a>> {
        let Some(Piece::Include { number, .. }) = self.queue.front() else {
            return None;
        };
        let mut first = [&self.requested, &self.unrequested].into_iter();
        first.find_map(|list| list.front().filter(|include| include.number == *number))
    }

    /// Returns whether the next fragment has been requested but not polled yet. It cannot wake the task before it has
    /// been polled. If it has not even been requested, the turn is over, and the task has been woken.
    fn has_unpolled_fragment(&self) -> bool {
        self.next_fragment().is_some_and(|include| {
            matches!(&include.state, IncludeState::Requested { fragment, .. } if !fragment.has_begun())
        })
    }

    fn has_no_body(&self) -> bool {
        self.ctx.request.method() == b"HEAD"
    }

    fn enqueue(&mut self, parts: impl Iterator<Item = EsiPart>) {
        for part in parts {
            match part {
                EsiPart::Text(text) => self.push(Piece::Text(text)),
                EsiPart::Dropped(tag) => EsiScope::note_dropped(self.ctx, &tag.src),
                EsiPart::Include(tag) => {
                    let number = self.includes;
                    let url_bytes = tag.src.len() + tag.alt.as_ref().map_or(0, |alt| alt.len());
                    self.unrequested.push_back(Include {
                        number,
                        tag,
                        state: IncludeState::Nothing,
                        has_begun: false,
                    });
                    self.push(Piece::Include { number, url_bytes });
                    self.includes += 1;
                }
            }
        }
    }

    fn push(&mut self, piece: Piece) {
        self.waiting += piece.size();
        self.queue.push_back(piece);
    }

    fn pop(&mut self) {
        if let Some(piece) = self.queue.pop_front() {
            self.waiting -= piece.size();
        }
    }

    /// Decides whether the response is processed, and edits its header if it is.
    fn decide(&mut self, head: &mut ScriptHead) {
        let instructions = instructions(head);
        let is_replaced = head.local_redirect
            || matches!(
                instructions.send_file,
                Some(SendFile::AccelRedirect(_) | SendFile::Sendfile(_))
            );
        let fields = header_slices(&head.headers);
        let is_processed = !is_replaced
            && esi::is_marked(&fields)
            && esi::is_processable(instructions.status, &fields);
        self.state = match is_processed {
            true => PageState::Composing,
            false => PageState::Unchanged,
        };
        if is_processed {
            composed_head::compose(head);
        }
    }

    /// Reads the page's script as far as possible. Returns an event to pass on at once.
    fn poll_source(&mut self, cx: &mut Context<'_>) -> Result<Option<RunEvent>, ExecError> {
        while self.state != PageState::Ended {
            if turn::is_over() {
                cx.waker().wake_by_ref();
                break;
            }
            let is_full = self.waiting >= self.max_waiting_bytes();
            if !is_full && self.rest.is_some() {
                self.refill()?;
                continue;
            }
            // Only a fragment makes the page wait in a file. Other pieces are passed on first.
            if is_full && (self.state == PageState::Written || self.next_fragment().is_none()) {
                break;
            }
            if self.state == PageState::Written {
                let mut parts = Vec::new();
                self.parser.finish(&mut parts);
                self.enqueue(parts.into_iter());
                self.state = PageState::Ended;
                break;
            }
            let Some(source) = &mut self.source else {
                break;
            };
            let Poll::Ready(event) = source.poll_event(cx)? else {
                break;
            };
            match event {
                RunEvent::Head(mut head) => {
                    self.decide(&mut head);
                    return Ok(Some(RunEvent::Head(head)));
                }
                RunEvent::Body(bytes) if is_full => self.keep(&bytes)?,
                RunEvent::Body(bytes) => self.parse(&bytes),
                // What is in the file waits for a fragment, whether it is flushed or not.
                RunEvent::Flush if is_full => {}
                RunEvent::Flush => self.push(Piece::Flush),
                RunEvent::End => self.state = PageState::Written,
                // The page cache handles this event.
                RunEvent::Effect => {}
                event @ RunEvent::Informational(_) => return Ok(Some(event)),
            }
        }
        Ok(None)
    }

    fn parse(&mut self, bytes: &Bytes) {
        let mut parts = Vec::new();
        self.parser.push(bytes, &mut parts);
        self.enqueue(parts.into_iter());
    }

    fn max_waiting_bytes(&self) -> usize {
        match self.ctx.config.pump.buffers.response_spill {
            0 => MAX_WAITING_BYTES,
            _ => allowance(MAX_WAITING_BYTES),
        }
    }

    /// Appends what the script has written to the file.
    fn keep(&mut self, bytes: &[u8]) -> Result<(), ExecError> {
        let pump = &self.ctx.config.pump;
        let size = self.rest.as_ref().map_or(0, SpillFile::size) + bytes.len() as u64;
        if size > pump.buffers.response_spill {
            return Err(self.fail("it exceeds limits.response_spill"));
        }
        let file = match self.rest.take() {
            Some(file) => Ok(file),
            None => SpillFile::create(&pump.buffers.directory, &pump.room),
        };
        let appended = file.and_then(|mut file| file.append(bytes).map(|()| file));
        self.rest = Some(appended.map_err(|error| self.fail(&error.to_string()))?);
        Ok(())
    }

    /// Parses the next bytes of the file.
    fn refill(&mut self) -> Result<(), ExecError> {
        let Some(file) = &mut self.rest else {
            return Ok(());
        };
        let bytes = file.take(REFILL_BYTES);
        if file.pending() == 0 {
            self.rest = None;
        }
        match bytes {
            Ok(bytes) => self.parse(&bytes),
            Err(error) => return Err(self.fail(&SpillError::Failed(error).to_string())),
        }
        Ok(())
    }

    /// Fails the page because the rest of it cannot be kept. The caller replaces the error by the failure.
    fn fail(&mut self, why: &str) -> ExecError {
        let include = self.next_fragment().map(|include| shown(&include.tag.src));
        self.failure = Some(Failure::EsiFailed {
            url: include.unwrap_or_default().into(),
            why: format!("the rest of the page could not be kept while it waited: {why}").into(),
        });
        ExecError::ResponseMissing
    }

    /// Requests fragments, as many as may run at once, and advances those that run.
    fn poll_fragments(&mut self, cx: &mut Context<'_>) {
        if self.has_no_body() || !self.has_begun {
            return;
        }
        let mut running = 0;
        for include in &mut self.requested {
            running += usize::from(include.poll(cx));
        }
        while running < MAX_PARALLEL
            && let Some(mut include) = self.unrequested.pop_front()
        {
            include.request(self.ctx, self.rules, &self.scope, false);
            if let IncludeState::Requested { .. } = include.state {
                running += usize::from(include.poll(cx));
                self.requested.push_back(include);
            }
            if turn::is_over() {
                cx.waker().wake_by_ref();
                break;
            }
        }
    }

    /// Returns the next event of the composed page; `None` if a fragment or the script has to be waited for.
    fn next_event(&mut self) -> Option<Result<RunEvent, ExecError>> {
        if self.has_no_body() {
            self.queue.clear();
            self.unrequested.clear();
            self.waiting = 0;
        }
        while let Some(piece) = self.queue.front_mut() {
            match piece {
                Piece::Text(text) => {
                    let text = text.clone();
                    self.pop();
                    self.unflushed = true;
                    return Some(Ok(RunEvent::Body(text)));
                }
                Piece::Flush => {
                    self.pop();
                    return Some(Ok(RunEvent::Flush));
                }
                Piece::Include { number, .. } => {
                    let number = *number;
                    match self.take_fragment(number) {
                        FragmentState::Body(bytes) => {
                            self.unflushed = true;
                            return Some(Ok(RunEvent::Body(bytes)));
                        }
                        FragmentState::Complete => {
                            self.requested
                                .pop_front_if(|include| include.number == number);
                            self.pop();
                        }
                        FragmentState::Failed(_) => {
                            // The caller replaces the error by the failure.
                            return Some(Err(ExecError::ResponseMissing));
                        }
                        FragmentState::Pending => {
                            // What is known already is on its way while the fragment runs.
                            let flush = std::mem::take(&mut self.unflushed);
                            self.has_begun |= flush;
                            return flush.then_some(Ok(RunEvent::Flush));
                        }
                    }
                }
            }
        }
        (self.state == PageState::Ended).then_some(Ok(RunEvent::End))
    }

    /// Returns what is to be inserted next for the fragment with this number, which is the first in the queue.
    fn take_fragment(&mut self, number: usize) -> FragmentState {
        let include = self.requested.front_mut();
        if let Some(include) = include.filter(|include| include.number == number) {
            let state = include.take(self.ctx, self.rules, &self.scope);
            if let IncludeState::Failed(failure) = &include.state {
                self.failure = Some(failure.clone());
            }
            return state;
        }
        match self.unrequested.front() {
            Some(next) if next.number == number => FragmentState::Pending,
            _ => FragmentState::Complete,
        }
    }
}

impl<'a> Include<'a> {
    /// Advances the fragment. Returns whether it is still running.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.state {
            IncludeState::Requested { fragment, .. } => !fragment.poll(cx),
            IncludeState::Nothing | IncludeState::Failed(_) => false,
        }
    }

    /// Requests the fragment, or decides that nothing is inserted.
    fn request(
        &mut self,
        ctx: RequestContext<'a>,
        rules: &EsiRules,
        scope: &EsiScope,
        from_alt: bool,
    ) {
        self.state = IncludeState::Nothing;
        let own = (!from_alt).then_some((&self.tag.src, false));
        let alt = self.tag.alt.as_ref().map(|alt| (alt, true));
        for (url, is_alt) in own.into_iter().chain(alt) {
            if scope.is_too_deep() {
                return scope.note(
                    ctx,
                    "EsiTooDeep",
                    url,
                    "fragments include each other too deeply",
                );
            }
            let Some(target) = fragment_target(url, ctx.request, ctx.client, rules) else {
                let why = "the URL is not one of `paths` in [site.esi], so it is not requested";
                scope.note(ctx, "EsiNotAllowed", url, why);
                continue;
            };
            if !scope.take_fragment() {
                return scope.note(
                    ctx,
                    "EsiTooMany",
                    url,
                    "the page includes too many fragments",
                );
            }
            let Some(fragment) = Fragment::new(ctx, scope.inner(&self.tag), &target) else {
                scope.note(
                    ctx,
                    "EsiFailed",
                    url,
                    "the request for the fragment is too large",
                );
                continue;
            };
            self.state = IncludeState::Requested { fragment, is_alt };
            return;
        }
    }

    /// Returns what is to be inserted next. `Failed` means that the page cannot be completed.
    fn take(
        &mut self,
        ctx: RequestContext<'a>,
        rules: &EsiRules,
        scope: &EsiScope,
    ) -> FragmentState {
        let (why, is_alt) = match &mut self.state {
            IncludeState::Nothing => return FragmentState::Complete,
            IncludeState::Failed(_) => return FragmentState::Failed("".into()),
            IncludeState::Requested { fragment, is_alt } => match fragment.take() {
                FragmentState::Failed(why) => (why, *is_alt),
                state => {
                    self.has_begun |= matches!(state, FragmentState::Body(_));
                    return state;
                }
            },
        };
        let url = match (is_alt, &self.tag.alt) {
            (true, Some(alt)) => alt.clone(),
            _ => self.tag.src.clone(),
        };
        if !is_alt && !self.has_begun && self.tag.alt.is_some() {
            scope.note(ctx, "EsiFailed", &url, &why);
            self.request(ctx, rules, scope, true);
            if matches!(self.state, IncludeState::Requested { .. }) {
                return FragmentState::Pending;
            }
        } else if self.tag.continues {
            scope.note(ctx, "EsiFailed", &url, &why);
        }
        if self.tag.continues {
            self.state = IncludeState::Nothing;
            return FragmentState::Complete;
        }
        self.state = IncludeState::Failed(Failure::EsiFailed {
            url: shown(&url).into(),
            why: format!(
                "{why}; the page is sent without the fragment if its tag has onerror=\"continue\""
            )
            .into(),
        });
        FragmentState::Failed(why)
    }
}

impl ScriptRun for ComposedRun<'_> {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<RunEvent, ExecError>> {
        if let Some(head) = self.head.take() {
            return Poll::Ready(Ok(RunEvent::Head(head)));
        }
        loop {
            if self.state == PageState::Unchanged
                && let Some(source) = &mut self.source
            {
                return source.poll_event(cx);
            }
            match self.poll_source(cx) {
                Ok(None) => {}
                Ok(Some(event)) => return Poll::Ready(Ok(event)),
                Err(error) => return Poll::Ready(Err(error)),
            }
            self.poll_fragments(cx);
            if let Some(event) = self.next_event() {
                return Poll::Ready(event);
            }
            if !self.has_unpolled_fragment() {
                return Poll::Pending;
            }
        }
    }

    fn timing(&self) -> RunTiming {
        self.source
            .as_ref()
            .map_or_else(RunTiming::default, |source| source.timing())
    }

    fn process(&self) -> Option<i32> {
        self.source.as_ref().and_then(|source| source.process())
    }

    fn decides_status(&self) -> bool {
        self.source
            .as_ref()
            .is_some_and(|source| source.decides_status())
    }

    fn is_claimed(&self) -> bool {
        self.source
            .as_ref()
            .is_none_or(|source| source.is_claimed())
    }
}
