//! Runs a request through Apache's hooks in their order, with internal redirects and error documents.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::answer::{Action, Answer, Demand, Document, Refusal};
use crate::evaluate::Evaluation;
use crate::expression::Word;
use crate::handle::Handled;
use crate::pattern::{Groups, LimitReached, Regex};
use crate::request::{Consulted, Facts, Request, World};
use crate::table::Table;
use crate::text::lossy;

/// The limit of internal redirects of one request (`LimitInternalRecursion`).
const MOST_REDIRECTS: usize = 10;
/// How deeply subrequests may be nested.
const MOST_DEPTH: usize = 10;
/// The limit of all runs together, including the subrequests for index files and `-F`.
const MOST_RUNS: u32 = 100;
/// How many bytes of text the patterns of one request may examine. A byte takes about a nanosecond.
const MAX_EXAMINED_BYTES: usize = 16 << 20;
/// The number of bytes that each match counts for in addition to its text.
const BYTES_PER_MATCH: usize = 32;

/// Why a run ends early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Status(u16, Refusal),
    Login(Demand),
}

impl From<LimitReached> for Stop {
    fn from(_: LimitReached) -> Stop {
        Stop::Status(500, Refusal::TooCostly)
    }
}

pub(crate) type Step<T = ()> = Result<T, Stop>;

/// The state that all runs of one request share.
pub(crate) struct Engine<'f> {
    pub world: &'f dyn World,
    pub facts: &'f Facts<'f>,
    pub headers_in: Cow<'f, Table>,
    pub consulted: Consulted,
    /// The last directive that made a decision.
    pub because: RefCell<Option<Arc<str>>>,
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
pub fn answer(world: &dyn World, facts: &Facts<'_>) -> Answer {
    let engine = Engine::new(world, facts);
    let request = engine.first();
    engine.run(request)
}

impl<'f> Engine<'f> {
    pub(crate) fn new(world: &'f dyn World, facts: &'f Facts<'f>) -> Engine<'f> {
        Engine {
            world,
            facts,
            headers_in: Cow::Borrowed(&facts.headers),
            consulted: Consulted::default(),
            because: RefCell::default(),
            always: RefCell::default(),
            cookies: RefCell::default(),
            runs: Cell::new(0),
            rules: Cell::new(0),
            examined: Cell::new(0),
        }
    }

    pub(crate) fn first(&self) -> Request {
        Request {
            method: self.facts.method.to_vec(),
            uri: self.facts.path.to_vec(),
            args: self.facts.query.as_ref().map(|query| query.to_vec()),
            ..Request::default()
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
    pub(crate) fn because(&self, origin: &Option<Arc<str>>) {
        self.world.hear(origin.as_deref(), &|| "decides".to_owned());
        self.decided_by(origin);
    }

    /// Does the same as [`Engine::because`] for a directive that has already been traced.
    pub(crate) fn decided_by(&self, origin: &Option<Arc<str>>) {
        *self.because.borrow_mut() = origin.clone();
    }

    pub(crate) fn holds(
        &self,
        request: &mut Request,
        condition: &crate::expression::Condition,
    ) -> Step<bool> {
        let mut evaluation = Evaluation::new(self, request);
        let holds = evaluation.condition(condition)?;
        let vary = evaluation.vary;
        for name in vary {
            request.headers_out.merge(b"Vary", &name);
        }
        Ok(holds)
    }

    pub(crate) fn text(&self, request: &Request, word: &crate::expression::Word) -> Step<Vec<u8>> {
        Ok(Evaluation::new(self, request).word(word)?)
    }

    /// Runs the main request and the requests that it is redirected to.
    fn run(mut self, mut request: Request) -> Answer {
        // The first request that failed. Its error is the response if its error document fails too.
        let mut failed: Option<(Request, u16, Refusal)> = None;
        loop {
            let stop = match self
                .process(&mut request)
                .and_then(|()| self.handle(&request))
            {
                Ok(Handled::Done(action)) => return self.finish(request, action, false),
                Ok(Handled::Redirect(to)) => match self.redirect(&mut request, &to) {
                    Ok(()) => continue,
                    Err(stop) => stop,
                },
                Err(stop) => stop,
            };
            let (status, refusal) = match stop {
                Stop::Login(demand) => {
                    return self.finish(request, Action::Authenticate(demand), false);
                }
                Stop::Status(status, refusal) => (status, refusal),
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
    fn plain(&self, request: &mut Request, status: u16, refusal: Refusal) -> Action {
        match request.headers_out.get(b"Location") {
            Some(to) if (300..400).contains(&status) => Action::Redirect(status, to.to_vec()),
            _ => Action::Refuse(status, refusal),
        }
    }

    fn document(&self, request: &Request, status: u16) -> Option<Document> {
        if request.status != 200 {
            return None;
        }
        let documents = &request.config().core.as_ref()?.error_documents;
        let text = |word: &Word| self.text(request, word).ok();
        documents.get(&status)?.of(text)
    }

    /// Turns `request` into the request for another URL of this site.
    fn redirect(&self, request: &mut Request, to: &[u8]) -> Step {
        if request.redirects >= MOST_REDIRECTS {
            return Err(Stop::Status(500, Refusal::Loop));
        }
        let to_words = || match request.status {
            200 => format!("internal redirect to {}", lossy(to)),
            status => format!("{status} is answered by its document {}", lossy(to)),
        };
        self.world.hear(None, &to_words);
        let mut env = Table::default();
        for (name, value) in request.env.iter() {
            env.set(&[b"REDIRECT_", name].concat(), value);
        }
        env.set(b"REDIRECT_STATUS", request.status.to_string().as_bytes());
        let mut out = Table::default();
        if let Some(vary) = request.headers_out.get(b"Vary") {
            out.set(b"Vary", vary);
        }
        let authorized = (std::mem::take(&mut request.merged), request.user.take());
        let next = Request {
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
            authorized: request.let_in.then_some(authorized),
            ..Request::default()
        };
        *request = next;
        self.set_uri(request, to)
    }

    /// Runs a subrequest for a URL, for an index file or a condition.
    pub(crate) fn sub_request(
        &mut self,
        request: &Request,
        to: &[u8],
    ) -> (Request, Result<(), Stop>) {
        let mut sub = self.new_sub(request);
        let done = match sub.depth > MOST_DEPTH {
            true => Err(Stop::Status(500, Refusal::Loop)),
            false => self
                .set_uri(&mut sub, to)
                .and_then(|()| self.process(&mut sub)),
        };
        (sub, done)
    }

    fn new_sub(&self, request: &Request) -> Request {
        Request {
            method: b"GET".to_vec(),
            env: request.env.clone(),
            is_sub: true,
            depth: request.depth + 1,
            main_uri: Some(request.uri.clone()),
            authorized: request
                .let_in
                .then(|| (request.merged.clone(), request.user.clone())),
            ..Request::default()
        }
    }

    /// Runs every hook between the URL and the handler.
    pub(crate) fn process(&mut self, request: &mut Request) -> Step {
        self.runs.set(self.runs.get() + 1);
        if self.runs.get() > MOST_RUNS {
            return Err(Stop::Status(500, Refusal::Loop));
        }
        self.map_to_storage(request)?;
        self.apply_ifs(request)?;
        if !request.is_sub {
            self.set_environment(request)?;
        }
        self.authorize(request)?;
        request.let_in = true;
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

    fn finish(self, request: Request, action: Action, is_error: bool) -> Answer {
        let core = request.config().core.clone();
        let php = request.config().php.as_ref();
        let php = php.map(|php| &php.values);
        let settings = php
            .into_iter()
            .flatten()
            .filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
        let settings = settings.collect();
        let error_status = Some(request.status).filter(|status| *status != 200 && !is_error);
        let changed = request.method != *self.facts.method;
        let headers = match self.headers_in {
            Cow::Owned(table) => Some(table),
            Cow::Borrowed(_) => None,
        };
        Answer {
            because: self.because.into_inner(),
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
            consulted: self.consulted,
            always: self.always.into_inner(),
            is_error,
            last: Box::new(request),
            action,
        }
    }
}
