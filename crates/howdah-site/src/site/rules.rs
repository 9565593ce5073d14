//! Applies the rules of a site one by one: decides whether a rule applies to a request, and carries it out.

use howdah_http::message::ResponseHead;

use super::Site;
use super::access::RefusedAccess;
use super::condition::RuleRequest;
use super::config::{HeaderEdit, RuleAction, SiteRule};
use super::htaccess::{Closed, PathQuery};
use super::route::{ProxyTarget, RouteAction, RouteInfo, RoutingState, ScriptTarget};
use super::script::ScriptPath;
use super::search::FileView;
use super::template::TemplateValues;
use crate::docroot::path::UrlPath;
use crate::refusal::Refusal;

impl Site {
    /// Changes a response's headers according to the matched rules and `hsts`.
    pub fn edit_headers(&self, info: &RouteInfo, head: &mut ResponseHead) {
        self.header_edits(info)
            .for_each(|edit| apply_edit(edit, head));
        if let Some(live) = &info.live {
            live.edit(self, head, false);
        }
        if info.https {
            self.add_hsts(head);
        }
    }

    /// Adds the headers of the rules for the client's path to an error response of the server's own, because security
    /// headers belong on every response. Headers about the lifetime and the content of a page are skipped, because they
    /// describe the page that the client did not get.
    pub fn edit_error_headers(&self, asked: RuleRequest<'_>, head: &mut ResponseHead) {
        use HeaderEdit::{Add, Set, Unset};
        const OF_PAGES: [&str; 6] = [
            "cache-control",
            "content-disposition",
            "content-type",
            "etag",
            "expires",
            "last-modified",
        ];
        let Ok(path) = UrlPath::parse(asked.head.path()) else {
            return;
        };
        let asked = asked.untraced();
        for rule in &self.config.rules {
            let RuleAction::Header(edit) = &rule.action else {
                continue;
            };
            let (Add(name, _) | Set(name, _) | Unset(name)) = edit;
            let is_of_pages = OF_PAGES
                .iter()
                .any(|known| name.eq_ignore_ascii_case(known));
            if rule.if_missing || is_of_pages || !self.rule_applies(rule, asked, path.as_bytes()) {
                continue;
            }
            apply_edit(edit, head);
        }
    }

    /// Returns the header changes of the matched rules, in order.
    pub fn header_edits<'s>(&'s self, info: &'s RouteInfo) -> impl Iterator<Item = &'s HeaderEdit> {
        let edits = info.header_rules.iter();
        edits.filter_map(|number| match &self.config.rules[*number].action {
            RuleAction::Header(edit) => Some(edit),
            _ => None,
        })
    }

    /// Adds `Strict-Transport-Security` for a client that uses HTTPS (RFC 6797 §7.2), unless the script has set it.
    pub fn add_hsts(&self, head: &mut ResponseHead) {
        const NAME: &[u8] = b"Strict-Transport-Security";
        if let Some(value) = &self.config.hsts
            && !head
                .fields()
                .any(|(name, _)| name.eq_ignore_ascii_case(NAME))
        {
            head.header(NAME, value.as_bytes());
        }
    }

    /// Records the rules for this path that require authentication or authorization, and those that limit clients. This
    /// is called for the client's path, for each path that a rule rewrites it to, and for the file or script that is
    /// found ([`Site::note_guards_of_found`]). A guarded path is therefore guarded whatever leads to it, and the order
    /// of the rules does not matter. A route behind a script counts like its path.
    pub(super) fn note_guards(&self, path: &[u8], asked: RuleRequest<'_>, info: &mut RouteInfo) {
        if self.guard_rules.is_empty() && self.limit_rules.is_empty() {
            return;
        }
        let routes = self.routes_behind_script(path);
        for (numbers, noted) in [
            (&self.guard_rules, &mut info.guard_rules),
            (&self.limit_rules, &mut info.limit_rules),
        ] {
            for &number in numbers {
                let rule = &self.config.rules[number];
                if noted.contains(&number) {
                    continue;
                }
                let matched = self.matched_path(rule, asked, path, &routes);
                if let Some(matched) = matched {
                    asked.note_rule(number, matched, None);
                    noted.push(number);
                    noted.sort_unstable();
                }
            }
        }
    }

    /// Returns the numbers of the rules that limit requests for this path; empty for a path that is refused anyway.
    pub fn limit_rules_of(&self, asked: RuleRequest<'_>) -> impl Iterator<Item = usize> {
        let path = match self.limit_rules.is_empty() {
            true => None,
            false => UrlPath::parse(asked.head.path()).ok(),
        };
        path.into_iter().flat_map(move |path| {
            let routes = self.routes_behind_script(path.as_bytes());
            let is_for = move |number: &usize| {
                let rule = &self.config.rules[*number];
                self.matched_path(rule, asked, path.as_bytes(), &routes)
                    .is_some()
            };
            self.limit_rules.iter().copied().filter(is_for)
        })
    }

    /// Records the guards of the file that was found; see [`Site::note_guards`].
    pub(super) fn note_guards_of_found(
        &self,
        asked: RuleRequest<'_>,
        action: &RouteAction,
        info: &mut RouteInfo,
    ) {
        if self.guard_rules.is_empty() && self.limit_rules.is_empty() {
            return;
        }
        let name = match action {
            RouteAction::Script(target) => target.script.script_name().to_vec(),
            RouteAction::Static(plan) => [b"/", &plan.relative[..]].concat(),
            _ => return,
        };
        self.note_guards(&name, asked, info);
    }

    /// Returns whether a rule applies to this request, whose path is now `path`, apart from `if_missing`.
    pub(super) fn rule_applies(
        &self,
        rule: &SiteRule,
        asked: RuleRequest<'_>,
        path: &[u8],
    ) -> bool {
        // The method is checked first: most limits are about one method, and expressions cost more.
        rule.conditions.allow_method(asked.head.method())
            && self.first_failed_option(rule, asked, path).is_none()
    }

    /// Returns the path for which a rule applies to this request: the path itself, or one of the routes behind its
    /// script.
    fn matched_path<'p>(
        &self,
        rule: &SiteRule,
        asked: RuleRequest<'_>,
        path: &'p [u8],
        routes: &'p [Vec<u8>],
    ) -> Option<&'p [u8]> {
        if self.rule_applies(rule, asked, path) {
            return Some(path);
        }
        let mut routes = routes.iter().map(Vec::as_slice);
        routes.find(|route| self.rule_applies_to_route(rule, asked, path, route))
    }

    /// Returns whether a rule applies to the route behind the script that `path` names, apart from `if_missing`. If the
    /// pattern matches the path itself, the rule has already been applied to the request, with its exceptions.
    fn rule_applies_to_route(
        &self,
        rule: &SiteRule,
        asked: RuleRequest<'_>,
        path: &[u8],
        route: &[u8],
    ) -> bool {
        !rule.pattern.is_match(path) && self.rule_applies(rule, asked, route)
    }

    /// Returns the option that keeps a rule from applying to this request, apart from `if_missing`.
    fn first_failed_option(
        &self,
        rule: &SiteRule,
        asked: RuleRequest<'_>,
        path: &[u8],
    ) -> Option<&'static str> {
        match rule.pattern.is_match(path) {
            true => rule.conditions.first_failed(asked, path, &self.constants),
            false => Some(rule.pattern.option_name()),
        }
    }

    /// Returns the actions that authenticate or authorize the request before the route is taken, in the order of the
    /// rules, each with the number of its rule.
    pub fn guards<'s>(
        &'s self,
        info: &'s RouteInfo,
    ) -> impl Iterator<Item = (usize, &'s RuleAction)> {
        let rules = info.guard_rules.iter();
        rules.map(|number| (*number, &self.config.rules[*number].action))
    }

    /// Applies one rule. Returns an action if the rule determines what happens to the request.
    pub(super) fn apply_rule(
        &self,
        number: usize,
        rule: &SiteRule,
        tree: &FileView,
        walk: &mut RoutingState<'_>,
        info: &mut RouteInfo,
    ) -> Option<RouteAction> {
        let asked = walk.rule_request();
        // Limits are counted before routing, or recorded by `note_guards`, if they apply to this request.
        if let RuleAction::Limit(_) = rule.action {
            if asked.visitor.trace.is_some()
                && let Some(why_not) = self.first_failed_option(rule, asked, walk.path.as_bytes())
            {
                asked.note_rule(number, walk.path.as_bytes(), Some(why_not));
            }
            return None;
        }
        if let RuleAction::Header(_) = rule.action
            && !rule.if_missing
        {
            let why_not = self.first_failed_option(rule, asked, walk.path.as_bytes());
            asked.note_rule(number, walk.path.as_bytes(), why_not);
            if why_not.is_none() {
                info.header_rules.push(number);
                info.varies_by_visitor |= rule.varies_response_by_client();
            }
            return None;
        }
        if let Some(refused) = self.refuse_behind_script(number, rule, walk, info) {
            return Some(refused);
        }
        let path = walk.path.as_bytes().to_vec();
        let Ok(captures) = rule.pattern.captures(&path) else {
            let why_not = rule.conditions.first_failed(asked, &path, &self.constants);
            asked.note_rule(number, &path, why_not);
            return why_not
                .is_none()
                .then(|| RouteAction::refused(Refusal::RuleUndecided));
        };
        let Some(captures) = captures else {
            asked.note_rule(number, &path, Some(rule.pattern.option_name()));
            return None;
        };
        let mut why_not = rule.conditions.first_failed(asked, &path, &self.constants);
        if why_not.is_none() && rule.if_missing && !self.is_missing(tree, &walk.path) {
            why_not = Some("if_missing");
        }
        // `note_guards` has recorded the rules that guard.
        if why_not.is_some() || !rule.action.is_guard() {
            asked.note_rule(number, &path, why_not);
        }
        if why_not.is_some() {
            return None;
        }
        info.varies_by_visitor |= rule.varies_response_by_client();
        let values = TemplateValues {
            captures: &captures,
            uri: &path,
            query: walk.query(),
            request_uri: &walk.head.path_and_query(),
            host: walk.head.host(),
        };
        match &rule.action {
            RuleAction::Pool(name) => {
                walk.pool = Some(name.clone());
                None
            }
            RuleAction::Header(_) => {
                info.header_rules.push(number);
                None
            }
            // `note_guards` records these rules, whatever their position.
            RuleAction::Authorize(_)
            | RuleAction::AuthRequest(_)
            | RuleAction::Authenticate(_)
            | RuleAction::Limit(_) => None,
            RuleAction::Cgi(pool) => Some(match self.cgi_program(number, tree, walk, info) {
                Ok(script) => RouteAction::Script(ScriptTarget {
                    script,
                    query: walk.query.take(),
                    redirected: walk.rewritten,
                    pool: Some(pool.clone()),
                    program: true,
                    granted_variables: Box::default(),
                    permitting_rules: Box::default(),
                    apache: None,
                }),
                Err(closed) => closed.action(info),
            }),
            RuleAction::Proxy(servers) => Some(RouteAction::Proxy(Box::new(ProxyTarget {
                rule: number,
                servers: servers.clone(),
                path,
                query: walk.query.take(),
            }))),
            RuleAction::Deny(status) => Some(RouteAction::refused_with(Refusal::Denied, *status)),
            RuleAction::Return {
                status,
                content_type,
                body,
            } => Some(if body.is_empty() && *status >= 400 {
                RouteAction::refused_with(Refusal::Returned, *status)
            } else {
                RouteAction::Return {
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
                Some(RouteAction::Redirect {
                    status: *status,
                    location: keep_on_same_host(location, to.literal_start()),
                })
            }
            RuleAction::Rewrite(to) => {
                let (target, own_query) = to.expand_target(&values);
                asked.note_rewrite(&target, own_query.as_deref());
                walk.rules_before = number + 1;
                self.rewrite(&target, own_query, walk, info)
            }
        }
    }

    /// Returns whether the preset or `cache_never` excludes one of these routes from the cache. The cache's own lookup
    /// has checked only the client's path.
    fn never_caches(&self, routes: &[Vec<u8>]) -> bool {
        let cache = self.config.cache.as_ref();
        cache.is_some_and(|cache| routes.iter().any(|route| cache.rules.never_caches(route)))
    }

    /// Refuses a request whose route behind a script is closed by this rule: `/index.php/admin` where `/admin` is
    /// denied.
    fn refuse_behind_script(
        &self,
        number: usize,
        rule: &SiteRule,
        walk: &RoutingState<'_>,
        info: &mut RouteInfo,
    ) -> Option<RouteAction> {
        // A route rarely exists as a file.
        if rule.if_missing {
            return None;
        }
        let action = match rule.action {
            RuleAction::Deny(status) => RouteAction::refused_with(Refusal::Denied, status),
            RuleAction::Return { status, .. } if status >= 400 => {
                RouteAction::refused_with(Refusal::Returned, status)
            }
            _ => return None,
        };
        let asked = walk.rule_request();
        let path = walk.path.as_bytes();
        let mut routes = walk.routes.iter();
        let route = routes.find(|route| self.rule_applies_to_route(rule, asked, path, route))?;
        asked.note_rule(number, route, None);
        info.varies_by_visitor |= rule.varies_response_by_client();
        Some(action)
    }

    /// Returns the program that a `cgi` rule leads to, if it may be run.
    fn cgi_program(
        &self,
        number: usize,
        tree: &FileView,
        walk: &RoutingState<'_>,
        info: &mut RouteInfo,
    ) -> Result<ScriptPath, Closed> {
        let script =
            ScriptPath::resolve_program(&tree.root, &walk.path).map_err(RefusedAccess::from)?;
        let named = walk.named_by(script.script_name(), number);
        info.note_user(self.admit_script(tree, walk, &script, named)?);
        let query = PathQuery {
            root: &tree.root,
            path: walk.path.as_bytes(),
            requested: Some(walk.rule_request()),
            query: walk.query(),
            redirected: false,
            hides: true,
        };
        let user = self
            .ask_htaccess(&query)
            .inspect_err(|closed| walk.rule_request().note(|| closed.step()))?;
        info.note_user(user);
        Ok(self.withhold_path_translated(script, walk.rule_request()))
    }

    /// Continues with another path; the client's query is appended to the target's own.
    fn rewrite(
        &self,
        target: &[u8],
        own_query: Option<Vec<u8>>,
        walk: &mut RoutingState<'_>,
        info: &mut RouteInfo,
    ) -> Option<RouteAction> {
        if let Some(mut own_query) = own_query {
            if let Some(query) = walk.query() {
                if !own_query.is_empty() {
                    own_query.push(b'&');
                }
                own_query.extend_from_slice(query);
            }
            walk.query = Some(own_query);
        }
        match UrlPath::from_decoded(target) {
            Ok(path) => {
                self.note_guards(path.as_bytes(), walk.rule_request(), info);
                walk.routes = self.routes_behind_script(path.as_bytes());
                walk.path = path;
                walk.rewritten = true;
                info.varies_by_visitor |= self.never_caches(&walk.routes);
                self.denied(walk, false)
            }
            Err(refusal) => Some(RouteAction::refused(refusal)),
        }
    }
}

fn apply_edit(edit: &HeaderEdit, head: &mut ResponseHead) {
    use HeaderEdit::{Add, Set, Unset};
    if let Set(name, _) | Unset(name) = edit {
        head.remove(name.as_bytes());
    }
    if let Set(name, value) | Add(name, value) = edit {
        head.header(name.as_bytes(), value.as_bytes());
    }
}

/// Keeps a target that is written as a path on the same host: if captures produce `//evil.example`, slashes are
/// removed. A target that is written as `//host` or `https://host` is left as it is.
fn keep_on_same_host(location: Vec<u8>, literal: &[u8]) -> Vec<u8> {
    let meant = literal.starts_with(b"//") || !literal.is_empty() && !literal.starts_with(b"/");
    let slashes = location.iter().take_while(|b| **b == b'/').count();
    if meant || slashes < 2 {
        location
    } else {
        location[slashes - 1..].to_vec()
    }
}
