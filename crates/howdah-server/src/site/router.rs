//! One request, one route: rules, then `try_files`, then the front controller. Looks at files
//! (one `statx` for a script or file that is there); opens and sends nothing.
//!
//! ```text
//! target ─clean─► path ─deny?─► rules, top to bottom, once ─► try_files … ─► front controller ─► 404
//!                                 redirect, deny, return: done
//!                                 rewrite: another path for what follows
//!                                 header: noted
//! ```
//! Rules run once and a rewrite does not start them again: there are no loops, and no limit of
//! ten rounds to hit (nginx's `rewrite or internal redirection cycle`).

use std::borrow::Cow;
use std::time::Duration;

use howdah_http::message::RequestHead;

use super::access::{Named, Purpose, Refused, Wanted};
use super::condition::Requested;
use super::config::Htaccess;
use super::htaccess::{self, Lies, Visitor};
use super::route::{Action, Route, RouteInfo, ScriptTarget, Walk};
use super::script::ScriptPath;
use super::search::{FileView, Found, Searched};
use super::{Site, monotonic};
use crate::client_address::UNKNOWN;
use crate::docroot::path::{UrlPath, encode_path};
use crate::refusal::Refusal;

/// The methods that files answer to.
const FILE_METHODS: &str = "GET, HEAD, OPTIONS";

impl Site {
    /// Decides what a request gets: a file, a script, a redirect or a refusal.
    pub fn route(&self, head: &RequestHead) -> Route {
        self.route_for(head, Visitor::default())
    }

    /// As [`Site::route`], for somebody.
    pub fn route_for(&self, head: &RequestHead, visitor: Visitor<'_>) -> Route {
        self.route_at(head, visitor, monotonic())
    }

    /// As [`Site::route_for`]; `now` is of a clock that only goes forward.
    pub fn route_at(&self, head: &RequestHead, visitor: Visitor<'_>, now: Duration) -> Route {
        if head.path() == b"*" && head.method() == b"OPTIONS" {
            return Route {
                action: Action::Options {
                    allow: FILE_METHODS,
                },
                info: RouteInfo::default(),
            };
        }
        match UrlPath::parse(head.path()) {
            Ok(path) => self.route_path(head, path, visitor, &self.tree_at(now)),
            Err(refusal) => Route {
                action: Action::refused(refusal),
                info: RouteInfo::default(),
            },
        }
    }

    /// Whether an `.htaccess` file refuses this request, or asks who sends it, so that nobody may have
    /// a page that is stored for it.
    pub(crate) fn is_closed_by_htaccess(&self, head: &RequestHead, visitor: Visitor<'_>) -> bool {
        if self.config.htaccess == Htaccess::Off {
            return false;
        }
        let Ok(path) = UrlPath::parse(head.path()) else {
            return false;
        };
        let tree = self.tree_at(monotonic());
        if self.config.htaccess == Htaccess::On {
            let Route { action, info } = self.route_path(head, path, visitor, &tree);
            let everybody = info.live.is_some_and(|live| live.is_for_everybody());
            return !(everybody && matches!(action, Action::Script(_)));
        }
        if !self.htaccess_may_close(&tree.root, &path) {
            return false;
        }
        let Route { action, info } = self.route_path(head, path, visitor, &tree);
        info.authentication.is_some()
            || matches!(action, Action::Refused { refusal, .. } if refusal.is_of_htaccess())
    }

    /// The files as a request sees them that is routed at `now`.
    pub(super) fn tree_at(&self, now: Duration) -> FileView {
        FileView {
            root: self.root_at(now),
            now,
        }
    }

    /// As [`Site::route`], for a request whose `path` has been parsed.
    pub(super) fn route_path(
        &self,
        head: &RequestHead,
        path: UrlPath<'_>,
        visitor: Visitor<'_>,
        tree: &FileView,
    ) -> Route {
        let routes = self.routes_behind_script(path.as_bytes());
        let walk = Walk {
            head,
            client: visitor.client.unwrap_or(&UNKNOWN),
            routes,
            path,
            query: None,
            rewritten: false,
            rules_before: 0,
            pool: None,
            trace: visitor.trace,
        };
        let mut info = RouteInfo::default();
        let asked = walk.asked();
        let action = self.walk(walk, &mut info, visitor, tree);
        self.guard_what_was_found(asked, &action, &mut info);
        Route { action, info }
    }

    fn walk(
        &self,
        mut walk: Walk<'_>,
        info: &mut RouteInfo,
        visitor: Visitor<'_>,
        tree: &FileView,
    ) -> Action {
        if let Some(denied) = self.denied(&walk, true) {
            return denied;
        }
        self.guard(walk.path.as_bytes(), walk.asked(), info);
        for (number, rule) in self.config.rules.iter().enumerate() {
            if let Some(action) = self.apply(number, rule, tree, &mut walk, info) {
                return action;
            }
        }
        if self.config.htaccess == Htaccess::On {
            return self.live(tree, &walk, info, visitor);
        }
        let mut found = self.search(tree, &walk, info);
        if let Err(closed) = self.asked_by_htaccess(tree, &walk, &found) {
            let refused = closed.refused;
            walk.asked().note(|| closed.step());
            info.because = Some(closed.because);
            if refused.refusal != Refusal::HtaccessHidden {
                return Action::refused_with(refused.refusal, refused.status);
            }
            // What lies here is not to be sent: as if it were not there.
            found = self.controlled(tree, &walk, refused.refusal, info);
        }
        match self.admit_found(tree, &walk, &found) {
            Ok(()) => self.finish(found, walk),
            Err(refused) => Action::refused_with(refused.refusal, refused.status),
        }
    }

    /// Refuses what a pattern of `deny` matches: a route behind a script, and with `path` also the path itself.
    pub(super) fn denied(&self, walk: &Walk<'_>, path: bool) -> Option<Action> {
        let path = path.then_some(&walk.path);
        let paths = path.into_iter().map(UrlPath::as_bytes);
        let mut paths = paths.chain(walk.routes.iter().map(Vec::as_slice));
        let denied = paths.find(|path| self.denies(path))?;
        self.note_denial(walk.asked(), denied);
        Some(Action::refused(Refusal::Denied))
    }

    /// Asks the `.htaccess` files on the paths that the request names: the client's own, and what rules
    /// have made of it.
    fn asked_by_htaccess(
        &self,
        tree: &FileView,
        walk: &Walk<'_>,
        found: &Searched,
    ) -> Result<(), htaccess::Closed> {
        let path = walk.path.as_bytes();
        let (name, lies) = match found {
            Searched::Here(Found::File(plan)) if path[1..] == plan.relative[..] => {
                (path.len(), Lies::File)
            }
            Searched::Here(Found::Script(script)) if path.starts_with(script.script_name()) => {
                (script.script_name().len(), Lies::Script)
            }
            Searched::Here(Found::File(_) | Found::Script(_) | Found::NeedsSlash) => {
                (path.len(), Lies::Directory)
            }
            _ => (path.len(), Lies::Nothing),
        };
        self.htaccess_of_request(&tree.root, walk.head, path, name, lies)?;
        if !walk.rewritten {
            return Ok(());
        }
        match UrlPath::parse(walk.head.path()) {
            Ok(path) => {
                let (path, lies) = (path.as_bytes(), Lies::Nothing);
                self.htaccess_of_request(&tree.root, walk.head, path, path.len(), lies)
            }
            Err(_) => Ok(()),
        }
    }

    /// Rewrites, index names and `PATH_INFO` lead to files that another path names.
    fn admit_found(
        &self,
        tree: &FileView,
        walk: &Walk<'_>,
        found: &Searched,
    ) -> Result<(), Refused> {
        match found {
            Searched::Other(script, _) => self.admit_script(tree, walk, script, Named::BySite),
            Searched::Here(Found::Script(script)) => {
                let named = self.named(walk, script.script_name());
                self.admit_script(tree, walk, script, named)
            }
            Searched::Here(Found::File(plan)) => {
                // Mostly the path itself; an index file has a longer one.
                let path = match walk.path.as_bytes()[1..] == plan.relative[..] {
                    true => Cow::Borrowed(walk.path.as_bytes()),
                    false => Cow::Owned([b"/", &plan.relative[..]].concat()),
                };
                self.admit(Wanted {
                    root: &plan.root,
                    path: &path,
                    purpose: Purpose::Send,
                    named: self.named(walk, &path),
                    asked: Some(walk.asked()),
                    head: Some(walk.head),
                })
            }
            Searched::Here(_) | Searched::Status(_) => Ok(()),
        }
    }

    /// Who named what has been found below the root.
    fn named(&self, walk: &Walk<'_>, found: &[u8]) -> Named<'static> {
        let directory = walk.path.is_directory().then(|| walk.path.as_bytes());
        let is_index =
            directory.is_some_and(|path| found.len() > path.len() && found.starts_with(path));
        let controls = |controller: &UrlPath<'_>| controller.as_bytes() == found;
        match is_index && !self.front_controller.as_ref().is_some_and(controls) {
            true => Named::ByDirectory {
                from: walk.rules_before,
            },
            false => walk.named(found, self.config.rules.len()),
        }
    }

    pub(super) fn admit_script(
        &self,
        tree: &FileView,
        walk: &Walk<'_>,
        script: &ScriptPath,
        named: Named<'_>,
    ) -> Result<(), Refused> {
        self.admit(Wanted {
            root: &tree.root,
            path: script.script_name(),
            purpose: Purpose::Run,
            named,
            asked: Some(walk.asked()),
            head: Some(walk.head),
        })
    }

    /// Takes `PATH_TRANSLATED` from a script where a client could not have what it names: programs open
    /// that file. What an authorizer guards is closed to it as well; nobody has been asked yet.
    pub(super) fn judge_translation(&self, script: ScriptPath, asked: Requested<'_>) -> ScriptPath {
        if script.path_info().is_empty() {
            return script;
        }
        let admitted = self.admit(Wanted {
            root: script.root(),
            path: script.path_info(),
            purpose: Purpose::Run,
            named: Named::ByScript { permitted: &[] },
            asked: Some(Requested {
                trace: None,
                ..asked
            }),
            head: None,
        });
        match admitted {
            Ok(()) => script,
            Err(_) => script.untranslated(),
        }
    }

    fn finish(&self, found: Searched, walk: Walk<'_>) -> Action {
        match found {
            Searched::Status(status) => Action::refused_with(Refusal::Returned, status),
            Searched::Other(script, query) => Action::Script(ScriptTarget {
                script: self.judge_translation(script, walk.asked()),
                query: query.or(walk.query),
                redirected: true,
                pool: walk.pool,
                program: false,
                granted: Box::default(),
                permitted: Box::default(),
                apache: None,
            }),
            Searched::Here(Found::Script(script)) => Action::Script(ScriptTarget {
                script: self.judge_translation(script, walk.asked()),
                query: walk.query,
                redirected: walk.rewritten,
                pool: walk.pool,
                program: false,
                granted: Box::default(),
                permitted: Box::default(),
                apache: None,
            }),
            Searched::Here(Found::File(plan)) => match walk.head.method() {
                b"GET" | b"HEAD" => Action::Static(plan),
                b"OPTIONS" => Action::Options {
                    allow: FILE_METHODS,
                },
                _ => Action::Refused {
                    status: Refusal::MethodNotAllowed.status(),
                    refusal: Refusal::MethodNotAllowed,
                    allow: Some(FILE_METHODS),
                },
            },
            Searched::Here(Found::NeedsSlash) => to_the_slash(&walk),
            Searched::Here(Found::Absent(refusal)) => Action::refused(refusal),
        }
    }
}

/// `/dir` → `/dir/`, with the query. A cleaned path begins with one slash and `encode_path` leaves
/// no backslash, so this never names another host. Other methods than GET keep theirs (308).
fn to_the_slash(walk: &Walk<'_>) -> Action {
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
    Action::Redirect { status, location }
}

#[cfg(test)]
#[path = "router_tests.rs"]
mod tests;
