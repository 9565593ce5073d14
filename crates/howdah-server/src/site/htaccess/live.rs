//! `htaccess = "on"`: the `.htaccess` files decide what becomes of a request, as Apache's do
//! (`howdah-htaccess`). Here a request is put into words for them, and their answer into a route.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use howdah_htaccess::{
    self as apache, Answer, Demand, Facts, Fields, HtFile, Login, Problem, Table,
};
use howdah_proto::response::{is_field_value, is_token};

use super::world::{SiteWorld, document_root};
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
}

/// What the `.htaccess` files have made of a request, for its response.
#[derive(Debug)]
pub struct Live {
    answer: Answer,
    facts: Facts<'static>,
    root: Arc<RootDir>,
    /// When the file that is sent changed.
    changed: Option<i64>,
}

impl Live {
    /// The password that is to be asked for first.
    pub fn demand(&self) -> Option<&Demand> {
        match &self.answer.action {
            apache::Action::Authenticate(demand) => Some(demand),
            _ => None,
        }
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
        if !self.answer.edits() {
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
        let bodiless = head.status == 304;
        let world = SiteWorld::new(site, &self.root);
        let made_here = made_here || !(is_file || is_script);
        self.answer
            .finish(&world, &self.facts, &mut fields, made_here);
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
            // A 304 says nothing of the content's form (RFC 9110 §15.4.5).
            let of_content = name.len() > 8 && name[..8].eq_ignore_ascii_case(b"content-");
            if fits && !framing && !(bodiless && of_content) {
                edited.header(name, value);
            }
        }
        *head = edited;
    }
}

impl Site {
    /// The `.htaccess` file of a directory; what there is to be said of a new one is kept for the log.
    pub(super) fn live_file(&self, root: &RootDir, directory: &[u8]) -> Option<Arc<HtFile>> {
        let (file, is_new) = self.htaccess.kept.of(root, directory)?;
        if is_new {
            self.note_live(root, directory, &file);
        }
        Some(file)
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
        super::files::begin();
        let world = SiteWorld::new(self, &tree.root);
        let facts = self.facts(tree, walk, visitor);
        let answer = apache::answer(&world, &facts);
        info.because = answer.because.clone().map(|because| (*because).into());
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
        let of_file =
            matches!(&action, Action::Refused { refusal, .. } if refusal.is_of_htaccess());
        if !of_file {
            info.because = None;
        }
        let facts = match answer.edits() {
            true => facts.into_owned(),
            false => Facts::default(),
        };
        info.live = Some(Arc::new(Live {
            answer,
            facts,
            root: tree.root.clone(),
            changed,
        }));
        action
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
    ) -> Facts<'w> {
        let (head, client) = (walk.head, visitor.client);
        let host = client
            .and_then(|client| client.host.as_deref())
            .unwrap_or_else(|| head.host());
        let https = client.is_some_and(|client| client.https);
        let standard = if https { 443 } else { 80 };
        let proxied = client.is_none_or(|client| client.proxied);
        let server_port = match visitor.local {
            Some(local) if !proxied => local.port(),
            _ => crate::client_address::split_host(host)
                .1
                .unwrap_or(standard),
        };
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
            server_port,
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
        };
        let world = SiteWorld::new(self, root);
        let mut facts = self.facts(&tree, &walk, Visitor::default());
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
