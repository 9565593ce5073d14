//! `htaccess = "on"`: the `.htaccess` files determine how a request is handled, as under Apache (`howdah-htaccess`).
//! This module describes the request to the engine, and turns the engine's decision into a route.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use howdah_htaccess::{
    self as apache, EvaluationInput, HtFile, HtFileChain, RequestDecision, Table,
};
use howdah_http::message::RequestHead;

use super::evaluation::{Origin, request_facts};
use super::refusal_of;
use super::response::Live;
use super::world::{SiteWorld, document_root};
use crate::docroot::path::UrlPath;
use crate::docroot::root::RootDir;
use crate::refusal::Refusal;
use crate::site::Site;
use crate::site::access::{AccessCheck, NamedBy, Purpose};
use crate::site::config::HtaccessMode;
use crate::site::route::{ApacheRequest, RouteAction, RouteInfo, RoutingState, ScriptTarget};
use crate::site::script::ScriptPath;
use crate::site::search::FileView;
use crate::site::visitor::Visitor;

impl Site {
    /// Returns the combined `.htaccess` files on the way to a directory. Warnings about a new file are recorded for the
    /// log.
    pub(super) fn live_files(
        &self,
        root: &RootDir,
        directory: &[u8],
    ) -> (Option<Duration>, Arc<HtFileChain>) {
        let met = |directory: &[u8], file: &HtFile| self.warn_of_htaccess(root, directory, file);
        self.htaccess.files.chain(root, directory, met)
    }

    /// Decides about a request by the `.htaccess` files alone.
    pub(in crate::site) fn live(
        &self,
        tree: &FileView,
        walk: &RoutingState<'_>,
        info: &mut RouteInfo,
    ) -> RouteAction {
        // As in Apache, an escaped slash is not a separator, and no file name contains one.
        let raw = walk.head.path();
        if !walk.rewritten && raw.windows(3).any(|w| w.eq_ignore_ascii_case(b"%2f")) {
            return RouteAction::refused(Refusal::NotFound);
        }
        let world = SiteWorld::new(self, &tree.root).traced_by(walk.visitor.trace);
        let (answer, facts) = self.live_answer(tree, walk, &world);
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
            apache::Action::Options => RouteAction::Options {
                allow: "GET, HEAD, OPTIONS",
            },
            apache::Action::Redirect(status, to) => RouteAction::Redirect {
                status: *status,
                location: to.clone(),
            },
            apache::Action::Text(status, text) => RouteAction::Return {
                status: *status,
                content_type: "text/html; charset=iso-8859-1".to_owned(),
                body: String::from_utf8_lossy(text).into_owned(),
            },
            apache::Action::Refuse(status, refusal) => RouteAction::Refused {
                status: *status,
                refusal: refusal_of(*refusal),
                allow: (*status == 405).then_some("GET, HEAD, OPTIONS"),
            },
            // A caller that can wait checks the password; for all others, this refuses the request.
            apache::Action::Authenticate(_) => RouteAction::Refused {
                status: 401,
                refusal: Refusal::HtaccessPassword,
                allow: None,
            },
        };
        if let RouteAction::Refused { refusal, .. } = &action
            && refusal.is_from_htaccess()
        {
            info.htaccess_line = answer.decided_by.as_deref().map(Into::into);
        }
        info.live = Some(Arc::new(Live {
            answer,
            facts,
            root: tree.root.clone(),
            changed,
            looked_at_visitor: AtomicBool::new(false),
        }));
        action
    }

    /// Returns the number of changed `.htaccess` files that requests have found, or `None` if the files do not decide.
    pub fn htaccess_changes(&self) -> Option<u64> {
        (self.config.htaccess == HtaccessMode::On).then(|| self.htaccess.files.changes())
    }

    pub(super) fn facts<'w>(
        &'w self,
        tree: &'w FileView,
        walk: &'w RoutingState<'_>,
        origin: &Origin<'_>,
    ) -> EvaluationInput<'w> {
        EvaluationInput {
            path: Cow::Borrowed(walk.path.as_bytes()),
            query: walk.query().map(Cow::Borrowed),
            document_root: Cow::Borrowed(document_root(&tree.root)),
            index: Cow::Borrowed(&self.config.index),
            fallback: self
                .config
                .front_controller
                .as_ref()
                .map(|controller| Cow::Borrowed(&*controller.script)),
            ..request_facts(walk.head, walk.visitor, origin)
        }
    }

    fn live_file_action(
        &self,
        tree: &FileView,
        walk: &RoutingState<'_>,
        world: &SiteWorld<'_>,
        path: &[u8],
        changed: &mut Option<i64>,
    ) -> RouteAction {
        let meta = match world.stat_below(&path[1..]) {
            Ok(meta) => meta,
            Err(refusal) => return RouteAction::refused(refusal),
        };
        *changed = Some(meta.mtime.0);
        let wanted = self.wanted(tree, walk, path, Purpose::Send);
        if let Err(refused) = self.admit(wanted) {
            return RouteAction::refused_with(refused.refusal, refused.status);
        }
        match walk.head.method() {
            b"OPTIONS" => RouteAction::Options {
                allow: "GET, HEAD, OPTIONS",
            },
            _ => RouteAction::Static(self.serving.plan(tree.root.clone(), path, meta)),
        }
    }

    fn wanted<'w>(
        &self,
        tree: &'w FileView,
        walk: &'w RoutingState<'_>,
        path: &'w [u8],
        purpose: Purpose,
    ) -> AccessCheck<'w> {
        AccessCheck {
            root: &tree.root,
            path,
            purpose,
            named: self.named_by_files(walk, path),
            request: Some(walk.rule_request()),
            query: walk.query(),
        }
    }

    /// Returns whether the site's configuration or an `.htaccess` file has named the path of a response. The
    /// configuration names the target of its own rules and its front controller.
    fn named_by_files(&self, walk: &RoutingState<'_>, path: &[u8]) -> NamedBy<'static> {
        let controls = |controller: &UrlPath<'_>| controller.as_bytes() == path;
        let by_site = match walk.path.as_bytes().strip_prefix(path) {
            Some([]) => true,
            Some([b'/', ..]) => walk.rewritten,
            _ => self.front_controller.as_ref().is_some_and(controls),
        };
        match by_site {
            true => NamedBy::BySite,
            false => NamedBy::ByHtaccess,
        }
    }

    fn live_script(
        &self,
        tree: &FileView,
        walk: &RoutingState<'_>,
        answer: &RequestDecision,
        path: &[u8],
        path_info: &[u8],
        by_handler: bool,
    ) -> RouteAction {
        let wanted = self.wanted(tree, walk, path, Purpose::Run);
        if let Err(refused) = self.admit(wanted) {
            return RouteAction::refused_with(refused.refusal, refused.status);
        }
        let script = ScriptPath::from_found_file(&tree.root, path, path_info);
        let environment = environment(&answer.environment);
        let script = match by_handler {
            // The file's name does not mark it as a script, so the text after it is not a file's path either.
            true => script.without_path_translated(),
            false => self.withhold_path_translated(script, walk.rule_request()),
        };
        RouteAction::Script(ScriptTarget {
            script,
            query: Some(answer.query.clone().unwrap_or_default()),
            redirected: false,
            pool: walk.pool.clone(),
            program: false,
            granted_variables: Box::default(),
            permitting_rules: Box::default(),
            apache: Some(Box::new(ApacheRequest {
                environment,
                php: answer.php.clone(),
                redirect: answer.redirect.clone(),
                status: answer.error_status.filter(|_| answer.redirect.is_some()),
                method: answer.method,
                headers: answer.headers.clone(),
                user: answer.user.clone(),
                // Zero means no limit in Apache.
                body_limit: answer.body_limit.filter(|limit| *limit > 0),
            })),
        })
    }

    /// Returns true if an anonymous client could fetch the file that a script wants to send.
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
        let walk = RoutingState {
            head,
            visitor: Visitor::default(),
            path,
            routes: Vec::new(),
            query: None,
            rewritten: false,
            rules_before: 0,
            pool: None,
        };
        let world = SiteWorld::new(self, root);
        let mut facts = self.facts(&tree, &walk, &Origin::of(head, walk.visitor));
        facts.method = Cow::Borrowed(b"GET");
        let answer = apache::decide(&world, &facts);
        let wanted = walk.path.as_bytes();
        matches!(&answer.action, apache::Action::File(found) if found == wanted)
            && !self.is_password_file(wanted)
    }
}

/// Returns the variables for a script; the last one of a name counts. Names that PHP's interfaces treat as settings are
/// excluded. Variables that the server sets itself are excluded later.
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
