//! The run of a request: Apache's hooks in their order, internal redirects, documents for errors.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::config::{Config, ErrorDocument};
use crate::evaluate::Evaluation;
use crate::expression::Word;
use crate::pattern::LimitReached;
use crate::request::{Consulted, Facts, Handler, Request, Stat, World};
use crate::table::Table;
use crate::text::{is_url, lossy};

/// Internal redirects of one request: `LimitInternalRecursion`.
const MOST_REDIRECTS: usize = 10;
/// Requests within requests.
const MOST_DEPTH: usize = 10;
/// All runs together, with those that index files and `-F` ask for.
const MOST_RUNS: u32 = 100;

/// What is to be done with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send the file of this path below the root.
    File(Vec<u8>),
    /// Run a script.
    Script {
        /// Its path below the root.
        path: Vec<u8>,
        /// What follows it.
        path_info: Vec<u8>,
        /// Its name does not say that it is one: a line does.
        by_handler: bool,
    },
    /// Answer `OPTIONS` for what is no script.
    Options,
    /// Answer with this status and `Location`.
    Redirect(u16, Vec<u8>),
    /// Answer with the page of this status.
    Refuse(u16, Refusal),
    /// Answer with this status and text, which is HTML.
    Text(u16, Vec<u8>),
    /// Ask for a password first, and then again.
    Authenticate(Demand),
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A line refuses it.
    Denied,
    /// A file has a mistake, or cannot be read.
    NotUnderstood,
    /// Internal redirects or rounds of rewriting do not end.
    Loop,
    /// An expression cannot be matched within its limits.
    TooCostly,
    /// Scripts are not run here.
    NoScripts,
    /// A password is wanted, and none or a wrong one was given.
    Unauthorized,
    /// What is asked for needs something that this server does not do.
    Unsupported,
    /// Nothing is there.
    NotFound,
    /// A directory without an index file.
    NoIndex,
    /// The path cannot be one.
    BadPath,
    /// The method is not for files.
    Method,
    /// Something forbids looking there: a link, a permission.
    Forbidden,
    /// A configured status.
    Status,
}

/// What a password is checked against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// `AuthName`
    pub realm: Vec<u8>,
    /// `AuthUserFile`; none if none is configured, which lets nobody in.
    pub user_file: Option<String>,
    /// `AuthGroupFile`
    pub group_file: Option<String>,
    /// The groups that lines name: which of them have the user is asked.
    pub groups: Vec<Vec<u8>>,
}

/// What becomes of a request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What is to be done.
    pub action: Action,
    /// The line or file that decided, for the log.
    pub because: Option<Arc<str>>,
    /// The status of the error that the file or script is the document of.
    pub error_status: Option<u16>,
    /// An internal redirect led to the answer.
    pub redirected: bool,
    /// `REDIRECT_URL` and `REDIRECT_QUERY_STRING`.
    pub redirect: Option<(Vec<u8>, Option<Vec<u8>>)>,
    /// The query that the script gets.
    pub query: Option<Vec<u8>>,
    /// The method that the script gets, if it is another one.
    pub method: Option<&'static str>,
    /// Environment variables for the script, in order: the last of a name counts.
    pub environment: Table,
    /// Settings for PHP.
    pub php: Vec<(String, String)>,
    /// The user whose password was right.
    pub user: Option<Vec<u8>>,
    /// `LimitRequestBody`
    pub body_limit: Option<u64>,
    /// The request's header, if lines changed it.
    pub headers: Option<Table>,
    /// What was looked at.
    pub consulted: Consulted,
    /// What the response's header needs.
    pub(crate) last: Box<Request>,
    pub(crate) always: Table,
    /// The body of an error, which `Header` without `always` does not reach.
    pub(crate) is_error: bool,
}

/// Why a run stops.
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

/// What all runs of one request share.
pub(crate) struct Engine<'f> {
    pub world: &'f dyn World,
    pub facts: &'f Facts<'f>,
    pub headers_in: Cow<'f, Table>,
    pub consulted: Consulted,
    /// The line that decided last.
    pub because: RefCell<Option<Arc<str>>>,
    /// Fields of answers of all kinds, cookies among them.
    pub always: RefCell<Table>,
    /// Names of cookies that rules have set.
    pub cookies: RefCell<Vec<Vec<u8>>>,
    runs: Cell<u32>,
    pub rules: Cell<u32>,
}

/// Finds out what becomes of a request.
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
        }
    }

    fn first(&self) -> Request {
        Request {
            method: self.facts.method.to_vec(),
            uri: self.facts.path.to_vec(),
            args: self.facts.query.as_ref().map(|query| query.to_vec()),
            ..Request::default()
        }
    }

    /// Says which line decided.
    pub(crate) fn because(&self, origin: &Option<Arc<str>>) {
        self.world.hear(origin.as_deref(), &|| "decides".to_owned());
        self.decided_by(origin);
    }

    /// As [`Engine::because`], of a line that has been heard of.
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

    /// Runs the main request, and whatever it is redirected to.
    fn run(mut self, mut request: Request) -> Answer {
        // The first request that failed: its error is answered if its document fails.
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
            // A redirect is no second error: mod_rewrite has made the request a sound one before.
            if request.status != 200
                && let Some((request, status, refusal)) = failed.take()
            {
                return self.finish(request, Action::Refuse(status, refusal), true);
            }
            // What is already the document of an error gets none of its own.
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

    /// The answer to a status without a document.
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

    /// Makes `request` the one for another URL of this site.
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
            authorized: Some(authorized),
            ..Request::default()
        };
        *request = next;
        self.set_uri(request, to)
    }

    /// Asks what would be answered to a URL, for an index file or a condition.
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
            authorized: Some((request.merged.clone(), request.user.clone())),
            ..Request::default()
        }
    }

    /// As [`Engine::sub_request`], for who must not change anything.
    fn look_ahead(&self, request: &Request, to: &[u8]) -> Option<(Request, Result<(), Stop>)> {
        // Some loops end here.
        if request.main_uri.as_ref() == Some(&request.uri) || to.is_empty() {
            return None;
        }
        let mut engine = Engine::new(self.world, self.facts);
        engine.headers_in = self.headers_in.clone();
        engine.runs.set(self.runs.get());
        engine.rules.set(self.rules.get());
        let found = engine.sub_request(request, to);
        self.runs.set(engine.runs.get());
        self.rules.set(engine.rules.get());
        self.consulted.add(&engine.consulted);
        Some(found)
    }

    /// `-U`
    pub(crate) fn url_is_accessible(&self, request: &Request, url: &[u8]) -> bool {
        self.look_ahead(request, url)
            .is_some_and(|(_, done)| match done {
                Ok(()) => true,
                Err(Stop::Status(status, _)) => status < 400,
                Err(Stop::Login(_)) => false,
            })
    }

    /// `-F`
    pub(crate) fn file_is_accessible(&self, request: &Request, file: &[u8]) -> bool {
        let root = &*self.facts.document_root;
        if file.is_empty() {
            return false;
        }
        let below = match file.strip_prefix(root) {
            Some(below) if below.starts_with(b"/") => below.to_vec(),
            _ if file.starts_with(b"/") => return false,
            _ => [crate::text::parent(&request.uri), file].concat(),
        };
        let url = crate::text::escape_uri(&below);
        let found = self.look_ahead(request, &url);
        found.is_some_and(|(sub, done)| {
            done.is_ok()
                && sub.handler != Handler::Redirect
                && matches!(sub.found, Stat::File | Stat::Directory)
        })
    }

    /// `%{LA-U:NAME}`, `%{LA-F:NAME}`
    pub(crate) fn ahead(&self, request: &Request, to: &[u8], name: &[u8]) -> Option<Vec<u8>> {
        let (sub, _) = self.look_ahead(request, to)?;
        Some(self.rewrite_variable(&sub, name))
    }

    /// Everything between the URL and the handler.
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
        self.find_type(request);
        // What Apache calls fixups, in their order.
        self.override_type(request)?;
        self.rewrite(request)?;
        self.redirect_by_alias(request)?;
        self.add_environment(request);
        self.find_index(request)?;
        self.edit_request(request)?;
        self.force_type(request);
        Ok(())
    }

    /// The handler's part, as far as it is decided here.
    fn handle(&self, request: &Request) -> Step<Handled> {
        if request.handler == Handler::Redirect {
            let mut to = request.filename.clone();
            if let Some(args) = &request.args {
                to.push(b'?');
                to.extend_from_slice(args);
            }
            return Ok(Handled::Redirect(to));
        }
        let refuse = |status, refusal| Err(Stop::Status(status, refusal));
        let Some(path) = self.below_root(&request.filename) else {
            return refuse(404, Refusal::NotFound);
        };
        match request.found {
            Stat::File => self.handle_file(request, path),
            _ if matches!(&*request.method, b"OPTIONS") => Ok(Handled::Done(Action::Options)),
            Stat::Directory if request.path_info.is_empty() => match request.handler {
                // No listing is asked of another handler, and it finds no file.
                Handler::Named(_) => refuse(404, Refusal::NotFound),
                _ if request.method == b"POST" => refuse(404, Refusal::NotFound),
                _ => refuse(403, Refusal::NoIndex),
            },
            _ if !matches!(&*request.method, b"GET" | b"HEAD" | b"POST")
                && !self.world.is_script(path) =>
            {
                refuse(405, Refusal::Method)
            }
            _ => refuse(404, Refusal::NotFound),
        }
    }

    fn handle_file(&self, request: &Request, path: &[u8]) -> Step<Handled> {
        let refuse = |status, refusal| Err(Stop::Status(status, refusal));
        let accepts = request
            .config()
            .core
            .as_ref()
            .and_then(|core| core.accept_path_info?);
        let named = self.world.is_script(path);
        let by_handler = match &request.handler {
            Handler::Named(name) => is_php(name),
            _ => request.media_type.as_deref().is_some_and(is_php_type),
        };
        if named || by_handler {
            if let Some(origin) = self.scripts_closed_by(request, named) {
                self.because(&Some(origin));
                return refuse(403, Refusal::NoScripts);
            }
            if accepts == Some(false) && !request.path_info.is_empty() {
                return refuse(404, Refusal::NotFound);
            }
            return Ok(Handled::Done(Action::Script {
                path: path.to_vec(),
                path_info: request.path_info.clone(),
                by_handler: !named,
            }));
        }
        if accepts != Some(true) && !request.path_info.is_empty() {
            return refuse(404, Refusal::NotFound);
        }
        match &*request.method {
            b"GET" | b"HEAD" | b"OPTIONS" => Ok(Handled::Done(Action::File(path.to_vec()))),
            // As Apache: a form that a rule leads to a file gets it.
            b"POST" if request.redirects > 0 => Ok(Handled::Done(Action::File(path.to_vec()))),
            _ => refuse(405, Refusal::Method),
        }
    }

    /// The path below the root of a file name.
    pub(crate) fn below_root<'n>(&self, file: &'n [u8]) -> Option<&'n [u8]> {
        let below = file.strip_prefix(&*self.facts.document_root)?;
        below.starts_with(b"/").then_some(below)
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

enum Handled {
    Done(Action),
    Redirect(Vec<u8>),
}

/// The document of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// This text, which is HTML.
    Text(Vec<u8>),
    /// What this URL of the site leads to.
    Local(Vec<u8>),
    /// The client is sent to this URL.
    Remote(Vec<u8>),
}

impl ErrorDocument {
    /// Word, with its variables replaced by `text`.
    fn of(&self, text: impl Fn(&Word) -> Option<Vec<u8>>) -> Option<Document> {
        match self {
            ErrorDocument::Default => None,
            ErrorDocument::Text(word) => text(word).map(Document::Text),
            ErrorDocument::Target(target) => {
                let target = text(target)?;
                if is_url(&target) {
                    return Some(Document::Remote(target));
                }
                target.starts_with(b"/").then_some(Document::Local(target))
            }
        }
    }
}

impl Answer {
    /// The document for a script that could not answer: of `ErrorDocument` lines that look at nothing.
    pub fn document(&self, status: u16) -> Option<Document> {
        // What is already the document of an error gets none of its own.
        if self.last.status != 200 {
            return None;
        }
        let documents = &self.last.config().core.as_ref()?.error_documents;
        documents.get(&status)?.of(|word| match word {
            Word::Text(text) => Some(text.clone()),
            _ => None,
        })
    }
}

/// A handler by which PHP is run: mod_php's and php-fpm's names for it, and those of hosters.
pub(crate) fn is_php(name: &[u8]) -> bool {
    let name = lossy(name).to_ascii_lowercase();
    (name.contains("php") && !name.contains("source"))
        || name.starts_with("proxy:unix:")
        || name.starts_with("proxy:fcgi:")
        || matches!(&*name, "fcgid-script" | "fastcgi-script")
}

/// A media type by which PHP is run.
pub(crate) fn is_php_type(name: &[u8]) -> bool {
    let name = lossy(name).to_ascii_lowercase();
    name.starts_with("application/x-httpd-") && is_php(name.as_bytes())
}

impl Default for Request {
    fn default() -> Request {
        Request {
            method: Vec::new(),
            uri: Vec::new(),
            args: None,
            filename: Vec::new(),
            path_info: Vec::new(),
            found: Stat::Missing,
            env: Table::default(),
            headers_out: Table::default(),
            config: Arc::new(Config::default()),
            merged: Vec::new(),
            handler: Handler::None,
            media_type: None,
            encoding: None,
            languages: Vec::new(),
            forced_type: None,
            forced_handler: None,
            type_by_table: false,
            closed: None,
            status: 200,
            user: None,
            is_sub: false,
            ended: false,
            redirects: 0,
            depth: 0,
            main_uri: None,
            prev: None,
            authorized: None,
        }
    }
}
