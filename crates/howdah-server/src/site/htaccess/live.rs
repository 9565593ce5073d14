//! `htaccess = "on"`: the `.htaccess` files decide what becomes of a request, as Apache's do
//! (`howdah-htaccess`). Here a request is put into words for them, and their answer into a route.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use howdah_htaccess::{
    self as apache, Answer, Chain, Demand, Document, Facts, Fields, HtFile, Login, PlainEdit,
    Problem, Table,
};
use howdah_proto::response::{is_field_value, is_token};

use super::memo::Question;
use super::thread;
use super::watched::Watched;
use super::world::{Seen, SiteWorld, document_root};
use crate::client_address::{Client, UNKNOWN};
use crate::docroot::path::UrlPath;
use crate::docroot::root::RootDir;
use crate::http::message::{RequestHead, ResponseHead};
use crate::refusal::Refusal;
use crate::site::Site;
use crate::site::access::{Named, Purpose, Wanted};
use crate::site::config::Htaccess;
use crate::site::route::{Action, ApacheRequest, RouteInfo, ScriptTarget, Walk};
use crate::site::script::ScriptPath;
use crate::site::search::FileView;
use crate::site::trace::Trace;
use crate::static_file::mime;

/// Fields that say how a message is framed, which no line changes.
const FRAMING: [&[u8]; 5] = [
    b"content-length",
    b"transfer-encoding",
    b"connection",
    b"date",
    b"upgrade",
];

/// Who asks, as far as the files of a site may look at it.
#[derive(Clone, Copy, Default)]
pub struct Visitor<'a> {
    /// The client; none where nobody in particular asks.
    pub client: Option<&'a Client<'a>>,
    /// The address that the client asked; none: a unix socket.
    pub local: Option<SocketAddr>,
    /// What the check of a password has found; none before.
    pub login: Option<&'a Login>,
    /// Where it is noted what was asked, for who wants it explained.
    pub trace: Option<&'a Trace>,
}

/// What the `.htaccess` files have made of a request, for its response.
#[derive(Debug)]
pub struct Live {
    answer: Arc<Answer>,
    /// What the lines about the response look at; none if nothing.
    facts: Option<Box<Facts<'static>>>,
    root: Arc<RootDir>,
    /// When the file that is sent changed.
    changed: Option<i64>,
}

/// An answer, and what was found where it looked.
pub(super) struct Answered {
    answer: Arc<Answer>,
    /// What is to be looked at again.
    seen: Vec<Seen>,
    is_repeated: bool,
}

impl Answered {
    /// The answer, if nothing has changed where it looked.
    fn again(
        &mut self,
        world: &SiteWorld<'_>,
        watched: &mut Option<Watched>,
    ) -> Option<Arc<Answer>> {
        if !self.seen.iter().all(|seen| world.is_still(seen)) {
            return None;
        }
        if !self.is_repeated {
            self.is_repeated = true;
            if let Some(watched) = watched {
                self.trust(world.root, watched);
            }
        }
        Some(self.answer.clone())
    }

    /// Leaves out what will be reported if it changes. Not for an answer that is asked for once.
    fn trust(&mut self, root: &RootDir, watched: &mut Watched) {
        let mut missing: Vec<Box<[u8]>> = Vec::new();
        self.seen.retain(|(name, found)| {
            let trusts = watched.trusts(root, name, *found);
            if trusts && found.is_err() {
                missing.push(name.clone());
            }
            !trusts
        });
        // Nothing is below what is not there.
        let below = |name: &[u8]| {
            let mut above = missing
                .iter()
                .filter_map(|above| name.strip_prefix(&**above));
            above.any(|rest| rest.starts_with(b"/"))
        };
        self.seen
            .retain(|(name, found)| *found != Err(Refusal::NotFound) || !below(name));
    }
}

/// What a URL of the site begins with.
struct Origin<'a> {
    host: &'a [u8],
    https: bool,
    port: u16,
}

impl<'a> Origin<'a> {
    fn of(walk: &Walk<'a>, visitor: Visitor<'a>) -> Origin<'a> {
        let client = visitor.client;
        let host = client
            .and_then(|client| client.host.as_deref())
            .unwrap_or_else(|| walk.head.host());
        let https = client.is_some_and(|client| client.https);
        let standard = if https { 443 } else { 80 };
        let proxied = client.is_none_or(|client| client.proxied);
        let port = match visitor.local {
            Some(local) if !proxied => local.port(),
            _ => crate::client_address::split_host(host)
                .1
                .unwrap_or(standard),
        };
        Origin { host, https, port }
    }

    /// Puts into a question what an answer may depend on, but for the rest of the request's header and who
    /// sends it ([`Answer::is_by_url`]).
    fn ask(&self, root: u64, head: &RequestHead, visitor: Visitor<'_>, question: &mut Question) {
        let address = visitor.local.map(|local| match local.ip().to_canonical() {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        });
        let address = address.unwrap_or_default().to_ne_bytes();
        question
            .begin(root)
            .number(u64::from(self.port) * 2 + u64::from(self.https))
            .text(&address)
            .text(head.version().as_str().as_bytes())
            .text(self.host)
            .text(head.method())
            .text(head.target());
    }
}

/// Keeps an answer, if it is the same whoever asks.
fn keep(question: &Question, answer: &Arc<Answer>, world: &SiteWorld<'_>) {
    let Some((since, seen)) = world.looked_at().filter(|_| answer.is_by_url()) else {
        return;
    };
    let kept = Answered {
        answer: answer.clone(),
        seen: seen.into(),
        is_repeated: false,
    };
    thread::with(|thread| {
        let watched = &thread.watched;
        thread
            .answers
            .keep(watched, question.as_bytes(), since, kept);
    });
}

impl Live {
    /// The password that is to be asked for first.
    pub fn demand(&self) -> Option<&Demand> {
        match &self.answer.action {
            apache::Action::Authenticate(demand) => Some(demand),
            _ => None,
        }
    }

    /// The document for a status of the server's own, as that of a PHP process that dies.
    pub(crate) fn document(&self, status: u16) -> Option<Document> {
        self.answer.document(status)
    }

    /// The answer is the same for everybody who asks for this method, host, path and query.
    pub fn is_for_everybody(&self) -> bool {
        self.answer.consulted.is_nothing() && self.answer.user.is_none()
    }

    /// Changes a response's header as the files say. `made_here`: it is a page of the server's own.
    pub(crate) fn edit(&self, site: &Site, head: &mut ResponseHead, made_here: bool) {
        let is_file = matches!(self.answer.action, apache::Action::File(_));
        let is_script = matches!(self.answer.action, apache::Action::Script { .. });
        if let Some(status) = self.answer.error_status
            && head.status == 200
            && (is_file || is_script)
        {
            head.status = status;
        }
        let made_here = made_here || !(is_file || is_script);
        // A 304 says nothing of the content's form (RFC 9110 §15.4.5).
        let bodiless = head.status == 304;
        if !bodiless && let Some(edits) = self.answer.plain_edits(made_here) {
            edits.for_each(|edit| edit_plainly(edit, head));
            return;
        }
        let mut fields = Fields {
            status: head.status,
            is_file: is_file && !made_here,
            changed: self.changed,
            ..Fields::default()
        };
        for (name, value) in head.fields() {
            match name.eq_ignore_ascii_case(b"content-type") {
                true => fields.media_type = Some(value.to_vec()),
                false => fields.table.add(name, value),
            }
        }
        // Apache knows no type for such a name, and says nothing.
        let guessed =
            fields.is_file && fields.media_type.as_deref() == Some(mime::DEFAULT.as_bytes());
        if guessed {
            fields.media_type = None;
        }
        let world = SiteWorld::new(site, &self.root);
        let nothing = Facts::default();
        let facts = self.facts.as_deref().unwrap_or(&nothing);
        self.answer.finish(&world, facts, &mut fields, made_here);
        if guessed && !self.answer.takes_type() {
            let default = || mime::DEFAULT.as_bytes().to_vec();
            fields.media_type.get_or_insert_with(default);
        }
        let mut edited = ResponseHead::new(head.status);
        edited.reason = head.reason.take();
        if let Some(kind) = fields.media_type.filter(|_| !bodiless)
            && is_field_value(&kind)
        {
            edited.header(b"Content-Type", &kind);
        }
        for (name, value) in fields.table.iter() {
            let fits = is_token(name) && is_field_value(value);
            let framing = FRAMING.iter().any(|known| name.eq_ignore_ascii_case(known));
            let of_content = name.len() > 8 && name[..8].eq_ignore_ascii_case(b"content-");
            if fits && !framing && !(bodiless && of_content) {
                edited.header(name, value);
            }
        }
        *head = edited;
    }
}

/// Carries out a change that looks at nothing.
fn edit_plainly(edit: PlainEdit<'_>, head: &mut ResponseHead) {
    let name = edit.name();
    let framing = FRAMING.iter().any(|known| name.eq_ignore_ascii_case(known));
    if framing || !is_token(name) {
        return;
    }
    if edit.replaces() {
        head.remove(name);
    }
    if let PlainEdit::Set(_, value) | PlainEdit::Add(_, value) = edit
        && is_field_value(value)
    {
        head.header(name, value);
    }
}

impl Site {
    /// What the `.htaccess` files say on the way to a directory; what there is to be said of a new one is
    /// kept for the log.
    pub(super) fn live_files(
        &self,
        root: &RootDir,
        directory: &[u8],
    ) -> (Option<Duration>, Arc<Chain>) {
        let met = |directory: &[u8], file: &HtFile| self.note_live(root, directory, file);
        self.htaccess.kept.chain(root, directory, met)
    }

    /// What becomes of a request, by the `.htaccess` files alone.
    pub(in crate::site) fn live(
        &self,
        tree: &FileView,
        walk: &Walk<'_>,
        info: &mut RouteInfo,
        visitor: Visitor<'_>,
    ) -> Action {
        // As Apache: a slash that is escaped is none, and no file has it in its name.
        let raw = walk.head.path();
        if !walk.rewritten && raw.windows(3).any(|w| w.eq_ignore_ascii_case(b"%2f")) {
            return Action::refused(Refusal::NotFound);
        }
        let world = SiteWorld::new(self, &tree.root).traced_by(walk.trace);
        let (answer, facts) = self.live_answer(tree, walk, &world, visitor);
        let mut changed = None;
        let action = match &answer.action {
            apache::Action::File(path) => {
                self.live_file_action(tree, walk, &world, path, &mut changed)
            }
            apache::Action::Script {
                path,
                path_info,
                by_handler,
            } => self.live_script(tree, walk, &answer, path, path_info, *by_handler),
            apache::Action::Options => Action::Options {
                allow: "GET, HEAD, OPTIONS",
            },
            apache::Action::Redirect(status, to) => Action::Redirect {
                status: *status,
                location: to.clone(),
            },
            apache::Action::Text(status, text) => Action::Return {
                status: *status,
                content_type: "text/html; charset=iso-8859-1".to_owned(),
                body: String::from_utf8_lossy(text).into_owned(),
            },
            apache::Action::Refuse(status, refusal) => Action::Refused {
                status: *status,
                refusal: refusal_of(*refusal),
                allow: (*status == 405).then_some("GET, HEAD, OPTIONS"),
            },
            // Asked by whoever can wait; whoever cannot is refused.
            apache::Action::Authenticate(_) => Action::Refused {
                status: 401,
                refusal: Refusal::HtaccessPassword,
                allow: None,
            },
        };
        if let Action::Refused { refusal, .. } = &action
            && refusal.is_of_htaccess()
        {
            info.because = answer.because.as_deref().map(Into::into);
        }
        info.live = Some(Arc::new(Live {
            answer,
            facts,
            root: tree.root.clone(),
            changed,
        }));
        action
    }

    /// The answer, and what the lines about the response need of the request. An answer that is the same
    /// whoever asks is kept until something changes that it is made of.
    fn live_answer(
        &self,
        tree: &FileView,
        walk: &Walk<'_>,
        world: &SiteWorld<'_>,
        visitor: Visitor<'_>,
    ) -> (Arc<Answer>, Option<Box<Facts<'static>>>) {
        let origin = Origin::of(walk, visitor);
        let mut question = None;
        // What is explained is found out anew.
        if !walk.rewritten && visitor.login.is_none() && walk.trace.is_none() {
            let mut own = thread::with(|thread| std::mem::take(&mut thread.question));
            origin.ask(tree.root.id(), walk.head, visitor, &mut own);
            question = Some(own);
        }
        let known = question.as_ref().and_then(|question| {
            thread::with(|thread| {
                thread.begin();
                let known = thread.answers.of(&thread.watched, question.as_bytes())?;
                known.again(world, &mut thread.watched)
            })
        });
        let asks = |answer: &Answer| answer.edits() && answer.edits_by_request();
        let found = match known {
            Some(answer) if !asks(&answer) => (answer, None),
            known => {
                let facts = self.facts(tree, walk, visitor, &origin);
                let answer = known.unwrap_or_else(|| {
                    let answer = Arc::new(apache::answer(world, &facts));
                    if let Some(question) = &question {
                        keep(question, &answer, world);
                    }
                    answer
                });
                let facts = asks(&answer).then(|| Box::new(facts.into_owned()));
                (answer, facts)
            }
        };
        if let Some(question) = question {
            thread::with(|thread| thread.question = question);
        }
        found
    }

    /// How often `.htaccess` files have changed, as far as requests have met them; none where they do not
    /// decide.
    pub(crate) fn htaccess_changes(&self) -> Option<u64> {
        (self.config.htaccess == Htaccess::On).then(|| self.htaccess.kept.changes())
    }

    fn facts<'w>(
        &'w self,
        tree: &'w FileView,
        walk: &'w Walk<'_>,
        visitor: Visitor<'w>,
        origin: &Origin<'_>,
    ) -> Facts<'w> {
        let (head, client) = (walk.head, visitor.client);
        let Origin { host, https, port } = *origin;
        let mut headers = Table::default();
        if !host.is_empty() {
            headers.add(b"Host", host);
        }
        for (name, value) in head.headers() {
            if name.eq_ignore_ascii_case(b"host") {
                continue;
            }
            let joined = match headers.get(name) {
                None => {
                    headers.add(name, value);
                    continue;
                }
                Some(before) => {
                    let separator: &[u8] = match name.eq_ignore_ascii_case(b"cookie") {
                        true => b"; ",
                        false => b", ",
                    };
                    [before, separator, value].concat()
                }
            };
            headers.set(name, &joined);
        }
        Facts {
            method: Cow::Borrowed(head.method()),
            target: Cow::Borrowed(head.target()),
            path: Cow::Borrowed(walk.path.as_bytes()),
            query: walk.query().map(Cow::Borrowed),
            protocol: head.version().as_str(),
            headers,
            https,
            address: client.and_then(|client| client.address),
            port: client.and_then(|client| client.port),
            local: visitor.local,
            server_port: port,
            server_name: Cow::Borrowed(b"localhost"),
            document_root: Cow::Borrowed(document_root(&tree.root)),
            index: Cow::Borrowed(&self.config.index),
            fallback: self
                .config
                .front_controller
                .as_ref()
                .map(|controller| Cow::Borrowed(&*controller.script)),
            login: visitor.login.cloned(),
        }
    }

    fn live_file_action(
        &self,
        tree: &FileView,
        walk: &Walk<'_>,
        world: &SiteWorld<'_>,
        path: &[u8],
        changed: &mut Option<i64>,
    ) -> Action {
        let meta = match world.stat_below(&path[1..]) {
            Ok(meta) => meta,
            Err(refusal) => return Action::refused(refusal),
        };
        *changed = Some(meta.mtime.0);
        let wanted = self.wanted(tree, walk, path, Purpose::Send);
        if let Err(refused) = self.admit(wanted) {
            return Action::refused_with(refused.refusal, refused.status);
        }
        match walk.head.method() {
            b"OPTIONS" => Action::Options {
                allow: "GET, HEAD, OPTIONS",
            },
            _ => Action::Static(self.serving.plan(tree.root.clone(), path, meta)),
        }
    }

    fn wanted<'w>(
        &self,
        tree: &'w FileView,
        walk: &Walk<'w>,
        path: &'w [u8],
        purpose: Purpose,
    ) -> Wanted<'w> {
        Wanted {
            root: &tree.root,
            path,
            purpose,
            named: Named::BySite,
            asked: Some(walk.asked()),
            head: Some(walk.head),
        }
    }

    fn live_script(
        &self,
        tree: &FileView,
        walk: &Walk<'_>,
        answer: &Answer,
        path: &[u8],
        path_info: &[u8],
        by_handler: bool,
    ) -> Action {
        let wanted = self.wanted(tree, walk, path, Purpose::Run);
        if let Err(refused) = self.admit(wanted) {
            return Action::refused_with(refused.refusal, refused.status);
        }
        let script = ScriptPath::found(&tree.root, path, path_info);
        let environment = environment(&answer.environment);
        let script = match by_handler {
            // Its name says nothing: what follows it is no path of a file either.
            true => script.untranslated(),
            false => self.judge_translation(script, walk.asked()),
        };
        Action::Script(ScriptTarget {
            script,
            query: Some(answer.query.clone().unwrap_or_default()),
            redirected: false,
            pool: walk.pool.clone(),
            program: false,
            granted: Box::default(),
            permitted: Box::default(),
            apache: Some(Box::new(ApacheRequest {
                environment,
                php: answer.php.clone(),
                redirect: answer.redirect.clone(),
                status: answer.error_status.filter(|_| answer.redirect.is_some()),
                method: answer.method,
                headers: answer.headers.clone(),
                user: answer.user.clone(),
            })),
        })
    }

    /// Whether a client that a script sends to a file could have it: nobody in particular asks.
    pub(in crate::site) fn live_admits(
        &self,
        root: &Arc<RootDir>,
        head: &RequestHead,
        path: &[u8],
    ) -> bool {
        let Ok(path) = UrlPath::from_decoded(path) else {
            return false;
        };
        let tree = FileView {
            root: root.clone(),
            now: crate::site::monotonic(),
        };
        let walk = Walk {
            head,
            client: &UNKNOWN,
            path,
            query: None,
            rewritten: false,
            pool: None,
            trace: None,
        };
        let world = SiteWorld::new(self, root);
        let visitor = Visitor::default();
        let mut facts = self.facts(&tree, &walk, visitor, &Origin::of(&walk, visitor));
        facts.method = Cow::Borrowed(b"GET");
        let answer = apache::answer(&world, &facts);
        let wanted = walk.path.as_bytes();
        matches!(&answer.action, apache::Action::File(found) if found == wanted)
            && !self.holds_passwords(wanted)
    }

    fn note_live(&self, root: &RootDir, directory: &[u8], file: &HtFile) {
        let name = super::door::file_name(root, directory);
        for text in sentences(&name, file) {
            self.htaccess.report(text);
        }
    }
}

/// What there is to be said of a file: its mistake, and lines without effect.
pub(super) fn sentences(name: &std::path::Path, file: &HtFile) -> Vec<String> {
    let name = name.display();
    let mut sentences = Vec::new();
    match &file.problem {
        Some(Problem::Mistake(note)) => sentences.push(format!(
            "{name}:{}: `{}`: {}: everything below is answered with 500",
            note.line,
            note.text.escape_debug(),
            note.why
        )),
        Some(Problem::TooLong) => {
            sentences.push(format!(
                "{name} is longer than 1 MiB: everything below is answered with 500"
            ));
        }
        Some(Problem::Unreadable | Problem::NotAFile) => {
            sentences.push(format!("{name} cannot be read: everything below is closed"));
        }
        None => {}
    }
    let notes = file.notes.iter();
    sentences.extend(notes.map(|note| {
        format!(
            "{name}:{}: `{}`: {}",
            note.line,
            note.text.escape_debug(),
            note.why
        )
    }));
    sentences
}

/// Variables for a script: the last of a name counts. What the server says itself stays, and so does what
/// PHP's interfaces take for settings.
fn environment(table: &Table) -> Vec<(Vec<u8>, Vec<u8>)> {
    const TAKEN: [&[u8]; 5] = [
        b"PHP_VALUE",
        b"PHP_ADMIN_VALUE",
        b"REQUEST_BODY_FILE",
        b"FCGI_ROLE",
        b"HTTP_PROXY",
    ];
    let mut all: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for (name, value) in table.iter() {
        if TAKEN.contains(&name) || name.is_empty() || name.contains(&0) || value.contains(&0) {
            continue;
        }
        all.retain(|(known, _)| known != name);
        all.push((name.to_vec(), value.to_vec()));
    }
    all
}

fn refusal_of(refusal: apache::Refusal) -> Refusal {
    match refusal {
        apache::Refusal::Denied => Refusal::HtaccessDenied,
        apache::Refusal::NotUnderstood | apache::Refusal::TooCostly => {
            Refusal::HtaccessNotUnderstood
        }
        apache::Refusal::Loop => Refusal::HtaccessLoop,
        apache::Refusal::NoScripts => Refusal::HtaccessNoScripts,
        apache::Refusal::Unauthorized => Refusal::HtaccessPassword,
        apache::Refusal::Unsupported => Refusal::HtaccessUnsupported,
        apache::Refusal::NotFound => Refusal::NotFound,
        apache::Refusal::NoIndex => Refusal::NoIndex,
        apache::Refusal::BadPath => Refusal::BadTarget,
        apache::Refusal::Method => Refusal::MethodNotAllowed,
        apache::Refusal::Forbidden => Refusal::Unreadable,
        apache::Refusal::Status => Refusal::Returned,
    }
}
