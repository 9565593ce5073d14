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
//!
//! A directory without an index file, and a file that is never sent, count as not there, so the
//! search goes on to the front controller: the application answers with its own page, and nobody
//! learns that a `.env` exists.

use std::sync::Arc;
use std::time::Duration;

use super::config::{Rule, RuleAction, TryFile};
use super::hidden::{hidden_segment, never_sent};
use super::path::{UrlPath, encode_path};
use super::pattern::{Match, Pattern};
use super::refusal::Refusal;
use super::root::{Kind, RootDir};
use super::script::ScriptPath;
use super::template::Values;
use super::{Site, monotonic};
use crate::http::message::{RequestHead, ResponseHead};
use crate::static_file::StaticPlan;

/// What files answer to.
const FILE_METHODS: &str = "GET, HEAD, OPTIONS";

/// Where a request goes.
#[derive(Debug)]
pub struct Route {
    /// What is to be done.
    pub action: Action,
    /// The path names something that is never sent, and the search went on: for the log.
    pub passed_over: Option<Refusal>,
    /// Numbers of the header rules that matched.
    edits: Vec<usize>,
}

/// What is to be done.
#[derive(Debug)]
pub enum Action {
    /// Send a file; the method is GET or HEAD.
    Static(StaticPlan),
    /// Run a script, whatever the method.
    Script(ScriptTarget),
    /// Answer with this status and `Location`.
    Redirect {
        /// 301, 302, 303, 307 or 308.
        status: u16,
        /// The value, encoded.
        location: Vec<u8>,
    },
    /// Answer with this.
    Return {
        /// The status.
        status: u16,
        /// `Content-Type`
        content_type: String,
        /// The body.
        body: String,
    },
    /// Answer with the page of this status.
    Refused {
        /// The status; mostly the refusal's own.
        status: u16,
        /// Why.
        refusal: Refusal,
        /// `Allow`, for 405.
        allow: Option<&'static str>,
    },
    /// Answer OPTIONS: 204 with this `Allow`.
    Options {
        /// The value of `Allow`.
        allow: &'static str,
    },
}

/// A script to run.
#[derive(Debug)]
pub struct ScriptTarget {
    /// The script.
    pub script: ScriptPath,
    /// `QUERY_STRING`, if a rewrite has changed it; the request's otherwise.
    pub query: Option<Vec<u8>>,
    /// A rewrite or the front controller led here, not the request's own path (where Apache sets
    /// `REDIRECT_URL`).
    pub redirected: bool,
}

impl Action {
    fn refused(refusal: Refusal) -> Action {
        Action::refused_with(refusal, refusal.status())
    }

    fn refused_with(refusal: Refusal, status: u16) -> Action {
        Action::Refused {
            status,
            refusal,
            allow: None,
        }
    }
}

/// What a path names.
enum Found {
    File(StaticPlan),
    Script(ScriptPath),
    /// A directory with an index, named without its slash.
    NeedsSlash,
    Absent(Refusal),
}

/// The files as this request sees them.
struct Tree {
    root: Arc<RootDir>,
    now: Duration,
}

/// The request while it is routed: rules change path and query.
struct Walk<'r> {
    head: &'r RequestHead,
    path: UrlPath<'r>,
    query: Option<Vec<u8>>,
    rewritten: bool,
}

impl Walk<'_> {
    fn query(&self) -> Option<&[u8]> {
        self.query.as_deref().or_else(|| self.head.query())
    }
}

impl Site {
    /// Routes a request.
    pub fn route(&self, head: &RequestHead) -> Route {
        self.route_at(head, monotonic())
    }

    /// As [`Site::route`]; `now` is of a clock that only goes forward.
    pub fn route_at(&self, head: &RequestHead, now: Duration) -> Route {
        let mut route = Route {
            action: Action::Options {
                allow: FILE_METHODS,
            },
            passed_over: None,
            edits: Vec::new(),
        };
        if head.path() == b"*" && head.method() == b"OPTIONS" {
            return route;
        }
        route.action = match UrlPath::parse(head.path()) {
            Ok(path) => {
                let walk = Walk {
                    head,
                    path,
                    query: None,
                    rewritten: false,
                };
                self.walk(walk, &mut route, now)
            }
            Err(refusal) => Action::refused(refusal),
        };
        route
    }

    /// Changes a response's header as the matched rules say.
    pub fn edit_headers(&self, route: &Route, head: &mut ResponseHead) {
        use super::config::HeaderEdit::{Add, Set, Unset};
        for &number in &route.edits {
            let RuleAction::Header(edit) = &self.config.rules[number].action else {
                continue;
            };
            if let Set(name, _) | Unset(name) = edit {
                head.remove(name.as_bytes());
            }
            if let Set(name, value) | Add(name, value) = edit {
                head.header(name.as_bytes(), value.as_bytes());
            }
        }
    }

    fn walk(&self, mut walk: Walk<'_>, route: &mut Route, now: Duration) -> Action {
        if self.denies(walk.path.as_bytes()) {
            return Action::refused(Refusal::Denied);
        }
        let tree = &Tree {
            root: self.root_at(now),
            now,
        };
        for (number, rule) in self.config.rules.iter().enumerate() {
            if let Some(action) = self.apply(number, rule, tree, &mut walk, route) {
                return action;
            }
        }
        let found = self.search(tree, &walk, route);
        if let Some(status) = self.denies_found(&found, &walk) {
            return Action::refused_with(Refusal::Denied, status);
        }
        self.finish(found, walk)
    }

    /// Rewrites, index files and `PATH_INFO` may lead to a file that another path names. `deny`
    /// holds for the file whatever led there. A rule's `deny` holds for the script a client named
    /// with something behind it (`/up/x.php/y` must not pass `deny` of `*.php`), but not for what
    /// the site's own rules chose: `/index.php` may be denied to clients and still be the front
    /// controller.
    fn denies_found(&self, found: &Searched, walk: &Walk<'_>) -> Option<u16> {
        let name = match found {
            Searched::Here(Found::Script(script)) | Searched::Other(script, _) => {
                script.script_name()
            }
            Searched::Here(Found::File(plan)) => {
                // The request's own path has been asked about already.
                let same = !walk.rewritten && walk.path.as_bytes()[1..] == plan.relative[..];
                let denied = !same && self.denies(&[b"/", &plan.relative[..]].concat());
                return denied.then_some(Refusal::Denied.status());
            }
            _ => return None,
        };
        if self.denies(name) {
            return Some(Refusal::Denied.status());
        }
        let named_by_client = !walk.rewritten
            && matches!(found, Searched::Here(_))
            && walk.path.as_bytes().len() > name.len();
        if !named_by_client || !walk.path.as_bytes().starts_with(name) {
            return None;
        }
        self.config.rules.iter().find_map(|rule| match rule.action {
            RuleAction::Deny(status)
                if !rule.if_missing
                    && rule.is_for(walk.head.method())
                    && rule.pattern.is_match(name) =>
            {
                Some(status)
            }
            _ => None,
        })
    }

    fn denies(&self, path: &[u8]) -> bool {
        self.config
            .deny
            .iter()
            .any(|pattern| pattern.is_match(path))
    }

    /// One rule; `Some` if it answers.
    fn apply(
        &self,
        number: usize,
        rule: &Rule,
        tree: &Tree,
        walk: &mut Walk<'_>,
        route: &mut Route,
    ) -> Option<Action> {
        if !rule.is_for(walk.head.method()) {
            return None;
        }
        if let RuleAction::Header(_) = rule.action
            && !rule.if_missing
        {
            if rule.pattern.is_match(walk.path.as_bytes()) {
                route.edits.push(number);
            }
            return None;
        }
        let path = walk.path.as_bytes().to_vec();
        let captures = rule.pattern.captures(&path)?;
        if rule.if_missing && !self.is_missing(tree, &walk.path) {
            return None;
        }
        let values = Values {
            captures: &captures,
            uri: &path,
            query: walk.query(),
            request_uri: walk.head.target(),
            host: walk.head.host(),
        };
        match &rule.action {
            RuleAction::Header(_) => {
                route.edits.push(number);
                None
            }
            RuleAction::Deny(status) => Some(Action::refused_with(Refusal::Denied, *status)),
            RuleAction::Return {
                status,
                content_type,
                body,
            } => Some(if body.is_empty() && *status >= 400 {
                Action::refused_with(Refusal::Returned, *status)
            } else {
                Action::Return {
                    status: *status,
                    content_type: content_type.clone(),
                    body: body.clone(),
                }
            }),
            RuleAction::Redirect { status, to } => {
                let mut location = to.expand_location(&values);
                if let Some(query) = walk.query()
                    && !location.contains(&b'?')
                {
                    location.push(b'?');
                    location.extend_from_slice(query);
                }
                Some(Action::Redirect {
                    status: *status,
                    location: same_host(location, to.literal_start()),
                })
            }
            RuleAction::Rewrite(to) => {
                let (target, own_query) = to.expand_target(&values);
                if let Some(mut own_query) = own_query {
                    if let Some(query) = walk.query() {
                        if !own_query.is_empty() {
                            own_query.push(b'&');
                        }
                        own_query.extend_from_slice(query);
                    }
                    walk.query = Some(own_query);
                }
                match UrlPath::from_decoded(&target) {
                    Ok(path) => {
                        walk.path = path;
                        walk.rewritten = true;
                        None
                    }
                    Err(refusal) => Some(Action::refused(refusal)),
                }
            }
        }
    }

    fn script(&self, tree: &Tree, path: &UrlPath<'_>) -> Option<Result<ScriptPath, Refusal>> {
        ScriptPath::resolve(&tree.root, path, &self.config.php_extensions, tree.now)
    }

    fn is_missing(&self, tree: &Tree, path: &UrlPath<'_>) -> bool {
        matches!(self.look(tree, path, true), Found::Absent(_))
    }

    /// `try_files` and the front controller.
    fn search(&self, tree: &Tree, walk: &Walk<'_>, route: &mut Route) -> Searched {
        let mut absent = Refusal::NotFound;
        let mut entries = self.config.try_files.iter().peekable();
        while let Some(entry) = entries.next() {
            let found = match entry {
                // The usual pair takes one look at the file system.
                TryFile::File => {
                    let directories = entries.next_if_eq(&&TryFile::Directory).is_some();
                    self.look(tree, &walk.path, directories)
                }
                TryFile::Directory => self.look_at_directory(tree, &walk.path),
                TryFile::Status(status) => return Searched::Status(*status),
                TryFile::Target(template) => {
                    let values = Values {
                        captures: &Match::Whole(walk.path.as_bytes()),
                        uri: walk.path.as_bytes(),
                        query: walk.query(),
                        request_uri: walk.head.target(),
                        host: walk.head.host(),
                    };
                    let (target, query) = template.expand_target(&values);
                    let Ok(target) = UrlPath::from_decoded(&target) else {
                        continue;
                    };
                    match self.look(tree, &target, true) {
                        // To a file that was looked for under another name there is no slash to
                        // redirect to.
                        Found::NeedsSlash => continue,
                        Found::Script(script) => return Searched::Other(script, query),
                        found => found,
                    }
                }
            };
            match found {
                Found::Absent(refusal) => {
                    if is_final(refusal) {
                        return Searched::Here(Found::Absent(refusal));
                    }
                    if absent == Refusal::NotFound {
                        absent = refusal;
                    }
                }
                found => return Searched::Here(found),
            }
        }
        let Some(path) = &self.front_controller else {
            return Searched::Here(Found::Absent(absent));
        };
        if absent != Refusal::NotFound && absent != Refusal::NoIndex {
            route.passed_over = Some(absent);
        }
        match self.script(tree, path) {
            Some(Ok(script)) => {
                let wants_path = self.config.front_controller.as_ref();
                Searched::Other(
                    if wants_path.is_some_and(|controller| controller.path_info) {
                        script.with_path_info(&walk.path)
                    } else {
                        script
                    },
                    None,
                )
            }
            Some(Err(refusal)) => Searched::Here(Found::Absent(refusal)),
            None => Searched::Here(Found::Absent(absent)),
        }
    }

    /// What `path` names. `directories`: with index files too.
    fn look(&self, tree: &Tree, path: &UrlPath<'_>, directories: bool) -> Found {
        if let Some(found) = self.script(tree, path) {
            return match found {
                Ok(script) => Found::Script(script),
                Err(refusal) => Found::Absent(refusal),
            };
        }
        if path.is_directory() {
            return if directories {
                self.index_of(tree, path)
            } else {
                Found::Absent(Refusal::NotFound)
            };
        }
        if let Some(refusal) = self.hidden(path.as_bytes()) {
            return Found::Absent(refusal);
        }
        match tree.root.stat(path) {
            Ok(meta) => match meta.kind {
                Kind::File => {
                    let plan = self.serving.plan(tree.root.clone(), path.as_bytes(), meta);
                    Found::File(plan)
                }
                Kind::Directory if directories => self.index_of(tree, path),
                Kind::Directory => Found::Absent(Refusal::NotFound),
                Kind::Other => Found::Absent(Refusal::NotRegular),
            },
            Err(refusal) => Found::Absent(refusal),
        }
    }

    /// `path` as a directory, whether it ends in a slash or not.
    fn look_at_directory(&self, tree: &Tree, path: &UrlPath<'_>) -> Found {
        if path.is_directory() {
            return self.index_of(tree, path);
        }
        match tree.root.stat(path) {
            Ok(meta) if meta.kind == Kind::Directory => self.index_of(tree, path),
            Ok(_) => Found::Absent(Refusal::NotFound),
            Err(refusal) => Found::Absent(refusal),
        }
    }

    /// The index file of `path`: known to be a directory if it has no slash at its end.
    fn index_of(&self, tree: &Tree, path: &UrlPath<'_>) -> Found {
        if let Some(refusal) = hidden_segment(path.as_bytes()) {
            return Found::Absent(refusal);
        }
        let mut name = path.as_bytes().to_vec();
        if !path.is_directory() {
            name.push(b'/');
        } else if path.as_bytes() != b"/" {
            // Asked first, so that what does not exist (a permalink, mostly) costs one look and
            // not one for each index name.
            match tree.root.stat(path) {
                Ok(meta) if meta.kind == Kind::Directory => {}
                Ok(_) => return Found::Absent(Refusal::NotFound),
                Err(refusal) => return Found::Absent(refusal),
            }
        }
        let length = name.len();
        for index in &self.config.index {
            name.truncate(length);
            name.extend_from_slice(index.as_bytes());
            let Ok(file) = UrlPath::from_decoded(&name) else {
                continue;
            };
            match self.look(tree, &file, false) {
                Found::Absent(refusal) if is_final(refusal) => return Found::Absent(refusal),
                Found::Absent(_) | Found::NeedsSlash => {}
                _ if !path.is_directory() => return Found::NeedsSlash,
                found => return found,
            }
        }
        Found::Absent(Refusal::NoIndex)
    }

    /// By its name: is this never sent?
    fn hidden(&self, path: &[u8]) -> Option<Refusal> {
        let name = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
        let refusal = hidden_segment(path).or_else(|| never_sent(name))?;
        let exposed = |pattern: &Pattern| pattern.is_match(path);
        (!self.config.expose.iter().any(exposed)).then_some(refusal)
    }

    fn finish(&self, found: Searched, walk: Walk<'_>) -> Action {
        match found {
            Searched::Status(status) => Action::refused_with(Refusal::Returned, status),
            Searched::Other(script, query) => Action::Script(ScriptTarget {
                script,
                query: query.or(walk.query),
                redirected: true,
            }),
            Searched::Here(Found::Script(script)) => Action::Script(ScriptTarget {
                script,
                query: walk.query,
                redirected: walk.rewritten,
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

enum Searched {
    /// What the path itself names.
    Here(Found),
    /// A script that stands for the path, with its query if the target has one.
    Other(ScriptPath, Option<Vec<u8>>),
    Status(u16),
}

/// These end the search: something is there, and may not be used.
fn is_final(refusal: Refusal) -> bool {
    matches!(
        refusal,
        Refusal::NotRegular
            | Refusal::Unreadable
            | Refusal::SymlinkOwner
            | Refusal::SymlinkEscape
            | Refusal::ReadFailed
    )
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

/// A target written as a path stays one: what captures made of `//evil.example` loses a slash.
/// One written as `//host` or `https://host` is meant.
fn same_host(location: Vec<u8>, literal: &[u8]) -> Vec<u8> {
    let meant = literal.starts_with(b"//") || !literal.is_empty() && !literal.starts_with(b"/");
    let slashes = location.iter().take_while(|b| **b == b'/').count();
    if meant || slashes < 2 {
        location
    } else {
        location[slashes - 1..].to_vec()
    }
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
