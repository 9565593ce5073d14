//! Finds the one route of a request: first the rules, then `try_files`, then the front controller. Files are looked up
//! (one `statx` for a script or file that exists), but nothing is opened or sent.
//!
//! ```text
//! target ─clean─► path ─deny?─► rules, top to bottom, once ─► try_files … ─► front controller ─► 404
//!                                 redirect, deny, return: done
//!                                 rewrite: another path for what follows
//!                                 header: noted
//! ```
//! Rules run once and a rewrite does not start them again. There are no loops, and no limit of ten rounds to reach
//! (nginx's `rewrite or internal redirection cycle`).

use std::borrow::Cow;
use std::time::Duration;

use howdah_http::message::RequestHead;

use super::access::{AccessCheck, NamedBy, Purpose};
use super::condition::RuleRequest;
use super::config::HtaccessMode;
use super::htaccess::{Closed, PathQuery};
use super::route::{Route, RouteAction, RouteInfo, RoutingState, ScriptTarget};
use super::script::ScriptPath;
use super::search::{FileView, PathLookup, SearchResult};
use super::visitor::Visitor;
use super::{Site, monotonic};
use crate::docroot::path::{UrlPath, encode_path};
use crate::refusal::Refusal;

/// The methods that are allowed for files.
const FILE_METHODS: &str = "GET, HEAD, OPTIONS";

impl Site {
    /// Returns the route of a request: a file, a script, a redirect or a refusal.
    pub fn route(&self, head: &RequestHead) -> Route {
        self.route_for(head, Visitor::default())
    }

    /// Like [`Site::route`], for a given visitor.
    pub fn route_for(&self, head: &RequestHead, visitor: Visitor<'_>) -> Route {
        self.route_at(head, visitor, monotonic())
    }

    /// Like [`Site::route_for`]; `now` is a time of the monotonic clock.
    pub fn route_at(&self, head: &RequestHead, visitor: Visitor<'_>, now: Duration) -> Route {
        if head.path() == b"*" && head.method() == b"OPTIONS" {
            return Route {
                action: RouteAction::Options {
                    allow: FILE_METHODS,
                },
                info: RouteInfo::default(),
            };
        }
        match UrlPath::parse(head.path()) {
            Ok(path) => self.route_path(head, path, visitor, &self.file_view_at(now)),
            Err(refusal) => Route {
                action: RouteAction::refused(refusal),
                info: RouteInfo::default(),
            },
        }
    }

    /// Returns whether an `.htaccess` file refuses this request or makes the response depend on who sends it, so no
    /// client may receive a stored page for it.
    pub fn is_closed_by_htaccess(&self, head: &RequestHead, visitor: Visitor<'_>) -> bool {
        if self.config.htaccess == HtaccessMode::Off {
            return false;
        }
        let Ok(path) = UrlPath::parse(head.path()) else {
            return false;
        };
        let tree = self.file_view_at(monotonic());
        if self.config.htaccess == HtaccessMode::On {
            let Route { action, info } = self.route_path(head, path, visitor, &tree);
            let everybody = info.live.is_some_and(|live| live.is_for_everybody());
            return !(everybody && matches!(action, RouteAction::Script(_)));
        }
        if !self.htaccess_may_refuse(&tree.root, &path) {
            return false;
        }
        let Route { action, info } = self.route_path(head, path, visitor, &tree);
        info.login.is_some()
            || matches!(action, RouteAction::Refused { refusal, .. } if refusal.is_from_htaccess())
    }

    /// Returns the view of the files for a request that is routed at `now`.
    pub(super) fn file_view_at(&self, now: Duration) -> FileView {
        FileView {
            root: self.root_at(now),
            now,
        }
    }

    /// Like [`Site::route`], for a request whose `path` has been parsed.
    pub(super) fn route_path(
        &self,
        head: &RequestHead,
        path: UrlPath<'_>,
        visitor: Visitor<'_>,
        tree: &FileView,
    ) -> Route {
        let routes = self.routes_behind_script(path.as_bytes());
        let walk = RoutingState {
            head,
            visitor,
            routes,
            path,
            query: None,
            rewritten: false,
            rules_before: 0,
            pool: None,
        };
        let mut info = RouteInfo::default();
        let asked = walk.rule_request();
        let action = self.apply_rules_and_search(walk, &mut info, tree);
        self.note_guards_of_found(asked, &action, &mut info);
        Route { action, info }
    }

    fn apply_rules_and_search(
        &self,
        mut walk: RoutingState<'_>,
        info: &mut RouteInfo,
        tree: &FileView,
    ) -> RouteAction {
        let denied = self.denied(&walk, true);
        if let Some(denied) = denied.or_else(|| self.denied_file(tree, &walk)) {
            return denied;
        }
        self.note_guards(walk.path.as_bytes(), walk.rule_request(), info);
        for (number, rule) in self.config.rules.iter().enumerate() {
            if let Some(action) = self.apply_rule(number, rule, tree, &mut walk, info) {
                return action;
            }
        }
        if self.config.htaccess == HtaccessMode::On {
            return self.live(tree, &walk, info);
        }
        let mut found = self.search(tree, &walk, info);
        match self.ask_htaccess_of_request(tree, &walk, &found) {
            Ok(user) => info.note_user(user),
            Err(closed) => {
                walk.rule_request().note(|| closed.step());
                if closed.refused.refusal != Refusal::HtaccessHidden {
                    return closed.action(info);
                }
                info.htaccess_line = closed.because;
                // The file that was found must not be sent, so the request is routed as if the file did not exist.
                found = self.front_controller_for(tree, &walk, closed.refused.refusal, info);
            }
        }
        match self.admit_found(tree, &walk, &found) {
            Ok(user) => {
                info.note_user(user);
                self.action_for(found, walk)
            }
            Err(closed) => closed.action(info),
        }
    }

    /// Refuses the request if a pattern of `deny` matches a route behind a script or, with `path`, the path itself.
    pub(super) fn denied(&self, walk: &RoutingState<'_>, path: bool) -> Option<RouteAction> {
        let path = path.then_some(&walk.path);
        let paths = path.into_iter().map(UrlPath::as_bytes);
        let mut paths = paths.chain(walk.routes.iter().map(Vec::as_slice));
        let denied = paths.find(|path| self.denies(path))?;
        self.note_denial(walk.rule_request(), denied);
        Some(RouteAction::refused(Refusal::Denied))
    }

    /// Refuses the request if files at its path are refused for the recognised application. The response does not
    /// depend on whether the file exists, so no client can search for the names of logs or backups. But if the first
    /// directory of the path does not exist, there is nothing to protect, and the application may have a page at the
    /// path: `/logs/today`, although a directory `/logs` would be refused. The same holds for the routes behind a
    /// script, which are pages: `/index.php/logs/today`. If a request leads to a refused file in any other way,
    /// `Site::admit` refuses it.
    fn denied_file(&self, tree: &FileView, walk: &RoutingState<'_>) -> Option<RouteAction> {
        let path = walk.path.as_bytes();
        if !self.denies_file(path) {
            return None;
        }
        let top = path[1..].split(|byte| *byte == b'/').next();
        if tree.root.stat_relative(top.unwrap_or_default()).err() == Some(Refusal::NotFound) {
            return None;
        }
        self.note_denial(walk.rule_request(), path);
        Some(RouteAction::refused(Refusal::Denied))
    }

    /// Checks the `.htaccess` files on the paths that the request names: the client's own path, and the path that rules
    /// have rewritten it to.
    fn ask_htaccess_of_request(
        &self,
        tree: &FileView,
        walk: &RoutingState<'_>,
        found: &SearchResult,
    ) -> Result<Option<Box<[u8]>>, Closed> {
        let path = walk.path.as_bytes();
        let hides = match found {
            SearchResult::AtPath(PathLookup::File(plan)) => path[1..] == plan.relative[..],
            SearchResult::AtPath(PathLookup::Script(script)) => {
                path.starts_with(script.script_name())
            }
            _ => false,
        };
        let query = PathQuery {
            root: &tree.root,
            path,
            requested: Some(walk.rule_request()),
            query: walk.query(),
            redirected: false,
            hides,
        };
        // The client's own path is checked even if the path that rules have made of it is hidden.
        let mut user = None;
        if walk.rewritten
            && let Ok(path) = UrlPath::parse(walk.head.path())
        {
            user = self.ask_htaccess(&PathQuery {
                path: path.as_bytes(),
                query: walk.head.query(),
                hides: false,
                ..query
            })?;
        }
        Ok(self.ask_htaccess(&query)?.or(user))
    }

    /// Checks access to the file that was found, because rewrites, index names and `PATH_INFO` lead to files other than
    /// the one that the request's path names.
    fn admit_found(
        &self,
        tree: &FileView,
        walk: &RoutingState<'_>,
        found: &SearchResult,
    ) -> Result<Option<Box<[u8]>>, Closed> {
        match found {
            SearchResult::OtherScript(script, _) => {
                self.admit_script(tree, walk, script, NamedBy::BySite)
            }
            SearchResult::AtPath(PathLookup::Script(script)) => {
                let named = self.named_by(walk, script.script_name());
                self.admit_script(tree, walk, script, named)
            }
            SearchResult::AtPath(PathLookup::File(plan)) => {
                // Usually this is the path itself; the path of an index file is longer.
                let path = match walk.path.as_bytes()[1..] == plan.relative[..] {
                    true => Cow::Borrowed(walk.path.as_bytes()),
                    false => Cow::Owned([b"/", &plan.relative[..]].concat()),
                };
                self.admit_or_ask(AccessCheck {
                    root: &plan.root,
                    path: &path,
                    purpose: Purpose::Send,
                    named: self.named_by(walk, &path),
                    request: Some(walk.rule_request()),
                    query: walk.query(),
                })
            }
            SearchResult::AtPath(_) | SearchResult::Status(_) => Ok(None),
        }
    }

    /// Returns what named the path that was found below the root.
    fn named_by(&self, walk: &RoutingState<'_>, found: &[u8]) -> NamedBy<'static> {
        let directory = walk.path.is_directory().then(|| walk.path.as_bytes());
        let is_index =
            directory.is_some_and(|path| found.len() > path.len() && found.starts_with(path));
        let controls = |controller: &UrlPath<'_>| controller.as_bytes() == found;
        match is_index && !self.front_controller.as_ref().is_some_and(controls) {
            true => NamedBy::ByDirectory {
                from: walk.rules_before,
            },
            false => walk.named_by(found, self.config.rules.len()),
        }
    }

    pub(super) fn admit_script(
        &self,
        tree: &FileView,
        walk: &RoutingState<'_>,
        script: &ScriptPath,
        named: NamedBy<'_>,
    ) -> Result<Option<Box<[u8]>>, Closed> {
        self.admit_or_ask(AccessCheck {
            root: &tree.root,
            path: script.script_name(),
            purpose: Purpose::Run,
            named,
            request: Some(walk.rule_request()),
            query: walk.query(),
        })
    }

    /// Removes `PATH_TRANSLATED` from a script if the client may not have the file that it names, because programs open
    /// that file. A file behind an authorizer is also withheld, since no authorizer has been asked yet.
    pub(super) fn withhold_path_translated(
        &self,
        script: ScriptPath,
        asked: RuleRequest<'_>,
    ) -> ScriptPath {
        if script.path_info().is_empty() {
            return script;
        }
        let admitted = self.admit(AccessCheck {
            root: script.root(),
            path: script.path_info(),
            purpose: Purpose::Run,
            named: NamedBy::ByScript { permitted: &[] },
            request: Some(asked.untraced()),
            query: None,
        });
        match admitted {
            Ok(()) => script,
            Err(_) => script.without_path_translated(),
        }
    }

    fn action_for(&self, found: SearchResult, walk: RoutingState<'_>) -> RouteAction {
        match found {
            SearchResult::Status(status) => RouteAction::refused_with(Refusal::Returned, status),
            SearchResult::OtherScript(script, query) => RouteAction::Script(ScriptTarget {
                script: self.withhold_path_translated(script, walk.rule_request()),
                query: query.or(walk.query),
                redirected: true,
                pool: walk.pool,
                program: false,
                granted_variables: Box::default(),
                permitting_rules: Box::default(),
                apache: None,
            }),
            SearchResult::AtPath(PathLookup::Script(script)) => RouteAction::Script(ScriptTarget {
                script: self.withhold_path_translated(script, walk.rule_request()),
                query: walk.query,
                redirected: walk.rewritten,
                pool: walk.pool,
                program: false,
                granted_variables: Box::default(),
                permitting_rules: Box::default(),
                apache: None,
            }),
            SearchResult::AtPath(PathLookup::File(plan)) => match walk.head.method() {
                b"GET" | b"HEAD" => RouteAction::Static(plan),
                b"OPTIONS" => RouteAction::Options {
                    allow: FILE_METHODS,
                },
                _ => RouteAction::Refused {
                    status: Refusal::MethodNotAllowed.status(),
                    refusal: Refusal::MethodNotAllowed,
                    allow: Some(FILE_METHODS),
                },
            },
            SearchResult::AtPath(PathLookup::NeedsSlash) => redirect_to_directory(&walk),
            SearchResult::AtPath(PathLookup::Absent(refusal)) => RouteAction::refused(refusal),
        }
    }
}

/// Redirects `/dir` to `/dir/`, with the query. A cleaned path begins with one slash and `encode_path` leaves no
/// backslash, so the target never names another host. Methods other than GET and HEAD are preserved by status 308.
fn redirect_to_directory(walk: &RoutingState<'_>) -> RouteAction {
    let mut location = Vec::new();
    encode_path(walk.path.as_bytes(), &mut location);
    location.push(b'/');
    if let Some(query) = walk.query() {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    let status = match walk.head.method() {
        b"GET" | b"HEAD" => 301,
        _ => 308,
    };
    RouteAction::Redirect { status, location }
}

#[cfg(test)]
#[path = "router_tests.rs"]
mod tests;
