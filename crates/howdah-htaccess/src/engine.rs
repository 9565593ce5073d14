//! Runs a request through Apache's hooks in their order, with internal redirects and error documents.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::decision::{Action, Demand, Document, HtaccessRefusal, RequestDecision};
use crate::evaluate::Evaluation;
use crate::expression::Word;
use crate::handle::HandlerResult;
use crate::pattern::{Groups, LimitReached, Regex};
use crate::request::{EvaluatedRequest, EvaluationInput, InputDependencies, ServerContext};
use crate::table::Table;
use crate::text::lossy;

/// The limit of internal redirects of one request (`LimitInternalRecursion`).
const MAX_REDIRECTS: usize = 10;
/// How deeply subrequests may be nested.
const MAX_SUBREQUEST_DEPTH: usize = 10;
/// The maximum number of runs through the hooks for one request, including the subrequests for index files and `-F`.
const MAX_RUNS: u32 = 100;
/// How many bytes of text the patterns of one request may examine. A byte takes about a nanosecond.
const MAX_EXAMINED_BYTES: usize = 16 << 20;
/// The number of bytes that each match counts for in addition to its text.
const BYTES_PER_MATCH: usize = 32;

/// Why a run ends early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HookError {
    Status(u16, HtaccessRefusal),
    Login(Demand),
}

impl From<LimitReached> for HookError {
    fn from(_: LimitReached) -> HookError {
        HookError::Status(500, HtaccessRefusal::TooCostly)
    }
}

pub(crate) type HookResult<T = ()> = Result<T, HookError>;

/// The state that all runs of one request share.
pub(crate) struct RequestEngine<'f> {
    pub server: &'f dyn ServerContext,
    pub input: &'f EvaluationInput<'f>,
    pub headers_in: Cow<'f, Table>,
    pub dependencies: InputDependencies,
    /// The last directive that made a decision.
    pub decided_by: RefCell<Option<Arc<str>>>,
    /// Header fields for responses of any status, cookies among them.
    pub always: RefCell<Table>,
    /// The names of the cookies that rules have set.
    pub cookies: RefCell<Vec<Vec<u8>>>,
    pub runs: Cell<u32>,
    pub rules: Cell<u32>,
    /// How many bytes the patterns have examined.
    pub examined: Cell<usize>,
}

/// Decides what to do with a request.
pub fn decide(server: &dyn ServerContext, input: &EvaluationInput<'_>) -> RequestDecision {
    let engine = RequestEngine::new(server, input);
    let request = engine.first();
    engine.run(request)
}

impl<'f> RequestEngine<'f> {
    pub(crate) fn new(
        server: &'f dyn ServerContext,
        input: &'f EvaluationInput<'f>,
    ) -> RequestEngine<'f> {
        RequestEngine {
            server,
            input,
            headers_in: Cow::Borrowed(&input.headers),
            dependencies: InputDependencies::default(),
            decided_by: RefCell::default(),
            always: RefCell::default(),
            cookies: RefCell::default(),
            runs: Cell::new(0),
            rules: Cell::new(0),
            examined: Cell::new(0),
        }
    }

    pub(crate) fn first(&self) -> EvaluatedRequest {
        EvaluatedRequest {
            method: self.input.method.to_vec(),
            uri: self.input.path.to_vec(),
            args: self.input.query.as_ref().map(|query| query.to_vec()),
            ..EvaluatedRequest::default()
        }
    }

    /// Matches a pattern, unless the request's patterns have already examined too much text: a visitor chooses the
    /// length of a path or header, and a file may have thousands of patterns.
    pub(crate) fn groups(
        &self,
        regex: &Regex,
        text: &[u8],
    ) -> Result<Option<Groups>, LimitReached> {
        let examined = self.examined.get() + text.len() + BYTES_PER_MATCH;
        if examined > MAX_EXAMINED_BYTES {
            return Err(LimitReached);
        }
        self.examined.set(examined);
        regex.groups(text)
    }

    /// Records and traces the directive that decided.
    pub(crate) fn trace_decision(&self, origin: &Option<Arc<str>>) {
        self.server
            .trace(origin.as_deref(), &|| "decides".to_owned());
        self.record_decision(origin);
    }

    /// Does the same as [`RequestEngine::trace_decision`] for a directive that has already been traced.
    pub(crate) fn record_decision(&self, origin: &Option<Arc<str>>) {
        *self.decided_by.borrow_mut() = origin.clone();
    }

    pub(crate) fn holds(
        &self,
        request: &mut EvaluatedRequest,
        condition: &crate::expression::Condition,
    ) -> HookResult<bool> {
        let mut evaluation = Evaluation::new(self, request);
        let holds = evaluation.condition(condition)?;
        let vary = evaluation.vary;
        for name in vary {
            request.headers_out.merge(b"Vary", &name);
        }
        Ok(holds)
    }

    pub(crate) fn text(
        &self,
        request: &EvaluatedRequest,
        word: &crate::expression::Word,
    ) -> HookResult<Vec<u8>> {
        Ok(Evaluation::new(self, request).word(word)?)
    }

    /// Runs the main request and the requests that it is redirected to.
    fn run(mut self, mut request: EvaluatedRequest) -> RequestDecision {
        // The first request that failed. Its error is the response if its error document fails too.
        let mut failed: Option<(EvaluatedRequest, u16, HtaccessRefusal)> = None;
        loop {
            let stop = match self
                .process(&mut request)
                .and_then(|()| self.handle(&request))
            {
                Ok(HandlerResult::Done(action)) => return self.finish(request, action, false),
                Ok(HandlerResult::Redirect(to)) => match self.redirect(&mut request, &to) {
                    Ok(()) => continue,
                    Err(stop) => stop,
                },
                Err(stop) => stop,
            };
            let (status, refusal) = match stop {
                HookError::Login(demand) => {
                    return self.finish(request, Action::Authenticate(demand), false);
                }
                HookError::Status(status, refusal) => (status, refusal),
            };
            // A redirect is not a second error, because mod_rewrite has set the request's status back to success.
            if request.status != 200
                && let Some((request, status, refusal)) = failed.take()
            {
                return self.finish(request, Action::Refuse(status, refusal), true);
            }
            // An error document that fails itself does not get another one.
            match self.document(&request, status) {
                None => {
                    let action = self.plain(&mut request, status, refusal);
                    return self.finish(request, action, true);
                }
                Some(Document::Text(text)) => {
                    return self.finish(request, Action::Text(status, text), true);
                }
                Some(Document::Remote(to)) => {
                    return self.finish(request, Action::Redirect(302, to), true);
                }
                Some(Document::Local(to)) => {
                    let original = request.clone();
                    request.status = status;
                    let method = std::mem::replace(&mut request.method, b"GET".to_vec());
                    request.env.set(b"REQUEST_METHOD", &method);
                    if self.redirect(&mut request, &to).is_err() {
                        return self.finish(original, Action::Refuse(status, refusal), true);
                    }
                    failed = Some((original, status, refusal));
                }
            }
        }
    }

    /// Returns the action for a status without an error document.
    fn plain(
        &self,
        request: &mut EvaluatedRequest,
        status: u16,
        refusal: HtaccessRefusal,
    ) -> Action {
        match request.headers_out.get(b"Location") {
            Some(to) if (300..400).contains(&status) => Action::Redirect(status, to.to_vec()),
            _ => Action::Refuse(status, refusal),
        }
    }

    fn document(&self, request: &EvaluatedRequest, status: u16) -> Option<Document> {
        if request.status != 200 {
            return None;
        }
        let documents = &request.config().core.as_ref()?.error_documents;
        let text = |word: &Word| self.text(request, word).ok();
        documents.get(&status)?.of(text)
    }

    /// Turns `request` into the request for another URL of this site.
    fn redirect(&self, request: &mut EvaluatedRequest, to: &[u8]) -> HookResult {
        if request.redirects >= MAX_REDIRECTS {
            return Err(HookError::Status(500, HtaccessRefusal::Loop));
        }
        let to_words = || match request.status {
            200 => format!("internal redirect to {}", lossy(to)),
            status => format!("the ErrorDocument of status {status} is {}", lossy(to)),
        };
        self.server.trace(None, &to_words);
        let mut env = Table::default();
        for (name, value) in request.env.iter() {
            env.set(&[b"REDIRECT_", name].concat(), value);
        }
        env.set(b"REDIRECT_STATUS", request.status.to_string().as_bytes());
        let mut out = Table::default();
        if let Some(vary) = request.headers_out.get(b"Vary") {
            out.set(b"Vary", vary);
        }
        let authorized_as = (std::mem::take(&mut request.merged), request.user.take());
        let next = EvaluatedRequest {
            method: request.method.clone(),
            env,
            headers_out: out,
            status: request.status,
            ended: request.ended,
            redirects: request.redirects + 1,
            depth: request.depth,
            is_sub: request.is_sub,
            prev: Some((std::mem::take(&mut request.uri), request.args.take())),
            // The error document of a refused request is not authorized by anything yet.
            authorized_as: request.is_authorized.then_some(authorized_as),
            ..EvaluatedRequest::default()
        };
        *request = next;
        self.set_uri(request, to)
    }

    /// Runs a subrequest for a URL, for an index file or a condition.
    pub(crate) fn sub_request(
        &mut self,
        request: &EvaluatedRequest,
        to: &[u8],
    ) -> (EvaluatedRequest, Result<(), HookError>) {
        let mut sub = self.new_sub(request);
        let done = match sub.depth > MAX_SUBREQUEST_DEPTH {
            true => Err(HookError::Status(500, HtaccessRefusal::Loop)),
            false => self
                .set_uri(&mut sub, to)
                .and_then(|()| self.process(&mut sub)),
        };
        (sub, done)
    }

    fn new_sub(&self, request: &EvaluatedRequest) -> EvaluatedRequest {
        EvaluatedRequest {
            method: b"GET".to_vec(),
            env: request.env.clone(),
            is_sub: true,
            depth: request.depth + 1,
            main_uri: Some(request.uri.clone()),
            authorized_as: request
                .is_authorized
                .then(|| (request.merged.clone(), request.user.clone())),
            ..EvaluatedRequest::default()
        }
    }

    /// Runs every hook between the URL and the handler.
    pub(crate) fn process(&mut self, request: &mut EvaluatedRequest) -> HookResult {
        self.runs.set(self.runs.get() + 1);
        if self.runs.get() > MAX_RUNS {
            return Err(HookError::Status(500, HtaccessRefusal::Loop));
        }
        self.map_to_storage(request)?;
        self.apply_ifs(request)?;
        if !request.is_sub {
            self.set_environment(request)?;
        }
        self.authorize(request)?;
        request.is_authorized = true;
        self.find_type(request);
        // Apache's fixups hooks, in their order.
        self.override_type(request)?;
        self.rewrite(request)?;
        self.redirect_by_alias(request)?;
        if !request.refusals_only {
            self.add_environment(request);
            self.find_index(request)?;
            self.edit_request(request)?;
        }
        self.force_type(request);
        Ok(())
    }

    fn finish(self, request: EvaluatedRequest, action: Action, is_error: bool) -> RequestDecision {
        let core = request.config().core.clone();
        let php = request.config().php.as_ref();
        let php = php.map(|php| &php.values);
        let settings = php
            .into_iter()
            .flatten()
            .filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
        let settings = settings.collect();
        let error_status = Some(request.status).filter(|status| *status != 200 && !is_error);
        let changed = request.method != *self.input.method;
        let headers = match self.headers_in {
            Cow::Owned(table) => Some(table),
            Cow::Borrowed(_) => None,
        };
        RequestDecision {
            decided_by: self.decided_by.into_inner(),
            error_status,
            redirected: request.redirects > 0,
            redirect: request.prev.clone(),
            query: request.args.clone(),
            method: (changed && request.method == b"GET").then_some("GET"),
            environment: request.env.clone(),
            php: settings,
            user: request.user.clone(),
            body_limit: core.and_then(|core| core.body_limit),
            headers,
            dependencies: self.dependencies,
            always: self.always.into_inner(),
            is_error,
            final_request: Box::new(request),
            action,
        }
    }
}
