//! The result of the router for a request: the action, and the information that goes with it.

use std::sync::Arc;

use howdah_http::message::RequestHead;

use super::access::NamedBy;
use super::condition::RuleRequest;
use super::htaccess::{HtaccessLogin, Live};
use super::script::ScriptPath;
use super::visitor::Visitor;
use crate::docroot::path::UrlPath;
use crate::proxy_config::ServerGroupConfig;
use crate::refusal::Refusal;
use crate::static_file::StaticPlan;
use howdah_cache::Pass;
use howdah_htaccess::{Demand, Table};

/// The route of a request.
#[derive(Debug)]
pub struct Route {
    /// What the server does with the request.
    pub action: RouteAction,
    /// The information that goes with the action.
    pub info: RouteInfo,
}

/// Information in addition to the action: for the log, the response's headers, and the permission that the action
/// needs.
#[derive(Debug, Default)]
pub struct RouteInfo {
    /// The refusal of a file that is never sent, if the search continued past it: for the log.
    pub skipped_refusal: Option<Refusal>,
    /// The line of an `.htaccess` file that has refused the path, or rewritten it.
    pub htaccess_line: Option<Box<str>>,
    /// Whether the client uses HTTPS.
    pub https: bool,
    /// Whether a rule matched that applies to some visitors only. The response is then not the same for everyone.
    pub varies_by_visitor: bool,
    /// Numbers of the header rules that matched.
    pub(super) header_rules: Vec<usize>,
    /// Numbers of the rules that require authentication or authorization first, in order.
    pub(super) guard_rules: Vec<usize>,
    /// Numbers of the rules that limit the client.
    pub(super) limit_rules: Vec<usize>,
    /// The password that `.htaccess` files demand, where they only refuse requests.
    pub login: Option<Box<HtaccessLogin>>,
    /// The result of the `.htaccess` files, if they determine how the whole request is handled.
    pub live: Option<Arc<Live>>,
}

impl RouteInfo {
    /// Returns whether authentication or authorization is required before the action.
    pub fn needs_permission(&self) -> bool {
        !self.guard_rules.is_empty() || self.login.is_some()
    }

    /// Returns the password that `.htaccess` files demand before anything else is decided.
    pub fn demand(&self) -> Option<&Demand> {
        match self.login.as_deref() {
            Some(HtaccessLogin::Check(demand)) => Some(demand),
            _ => self.live.as_ref().and_then(|live| live.demand()),
        }
    }

    /// Notes the user whose password `.htaccess` files have accepted.
    pub(super) fn note_user(&mut self, user: Option<Box<[u8]>>) {
        if let Some(user) = user {
            self.login = Some(Box::new(HtaccessLogin::User(user)));
        }
    }

    /// Returns whether `.htaccess` files depend on the visitor, so the response may differ between visitors.
    pub fn htaccess_varies_by_visitor(&self) -> bool {
        self.live
            .as_ref()
            .is_some_and(|live| !live.is_for_everybody())
    }

    /// Returns whether every visitor takes this route for the page, without authentication or authorization.
    pub fn is_same_for_everyone(&self, action: &RouteAction) -> bool {
        matches!(action, RouteAction::Script(_))
            && !self.varies_by_visitor
            && !self.needs_permission()
    }

    /// Returns the numbers of the rules that limit the client, for all paths that the request has led to.
    pub fn limit_rules(&self) -> &[usize] {
        &self.limit_rules
    }

    /// Returns the numbers of the rules that require authentication or authorization.
    pub fn guard_rules(&self) -> &[usize] {
        &self.guard_rules
    }

    /// Returns why the page cache may not store the response, by its route alone.
    pub fn cache_pass_reason(&self) -> Option<Pass> {
        if self.needs_permission() {
            return Some(Pass::Authorization);
        }
        if self.varies_by_visitor {
            return Some(Pass::Rule);
        }
        self.htaccess_varies_by_visitor().then_some(Pass::Htaccess)
    }
}

/// What the server does with a request.
#[derive(Debug)]
pub enum RouteAction {
    /// Sends a file; the method is GET or HEAD.
    Static(StaticPlan),
    /// Runs a script, whatever the method.
    Script(ScriptTarget),
    /// Passes the request to another server, whatever the method.
    Proxy(Box<ProxyTarget>),
    /// Responds with this status and `Location`.
    Redirect {
        /// The status code: 301, 302, 303, 307 or 308.
        status: u16,
        /// The value of `Location`, encoded.
        location: Vec<u8>,
    },
    /// Responds with the text of a `return` rule.
    Return {
        /// The status code of the response.
        status: u16,
        /// The value of `Content-Type`.
        content_type: String,
        /// The body of the response.
        body: String,
    },
    /// Responds with the page of this status.
    Refused {
        /// The status; usually the refusal's own.
        status: u16,
        /// Why the router refused the request.
        refusal: Refusal,
        /// The value of `Allow`, for status 405; otherwise `None`.
        allow: Option<&'static str>,
    },
    /// Responds to OPTIONS with status 204 and this `Allow`.
    Options {
        /// The value of `Allow`.
        allow: &'static str,
    },
}

/// The servers that a `proxy` rule sends a request to.
#[derive(Debug)]
pub struct ProxyTarget {
    /// The number of the rule, by which the site's service finds the connections to the servers.
    pub rule: usize,
    /// The servers, as configured.
    pub servers: Arc<ServerGroupConfig>,
    /// The path after all rewrites, cleaned.
    pub path: Vec<u8>,
    /// The query, if a rewrite has changed it; `None` for the request's own.
    pub query: Option<Vec<u8>>,
}

/// A script that the router found for a request.
#[derive(Debug)]
pub struct ScriptTarget {
    /// The path of the script, and the path info that follows it in the URL.
    pub script: ScriptPath,
    /// `QUERY_STRING`, if a rewrite has changed it; `None` for the request's own.
    pub query: Option<Vec<u8>>,
    /// Whether a rewrite or the front controller led to the script, and not the request's own path (where Apache sets
    /// `REDIRECT_URL`).
    pub redirected: bool,
    /// The pool that a rule has named; `None` for the site's pool.
    pub pool: Option<Arc<str>>,
    /// Whether the script is a program of a `cgi` rule, which is executed directly.
    pub program: bool,
    /// Variables for the script that authorizers have set. The router leaves this empty.
    pub granted_variables: Box<[(Vec<u8>, Vec<u8>)]>,
    /// Numbers of the rules whose authentication or authorization has allowed the request. The router leaves this
    /// empty.
    pub permitting_rules: Box<[usize]>,
    /// What `.htaccess` files set for the script, if they determine how the whole request is handled.
    pub apache: Option<Box<ApacheRequest>>,
}

/// What a script receives in addition to the request, if `.htaccess` files decide.
#[derive(Debug)]
pub struct ApacheRequest {
    /// Environment variables.
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// PHP settings.
    pub php: Vec<(String, String)>,
    /// Path and query before an internal redirect.
    pub redirect: Option<(Vec<u8>, Option<Vec<u8>>)>,
    /// The status of the error whose document the script is.
    pub status: Option<u16>,
    /// The method, if it differs from the client's.
    pub method: Option<&'static str>,
    /// The request's headers, if `.htaccess` lines have changed them.
    pub headers: Option<Table>,
    /// The user who was authenticated.
    pub user: Option<Vec<u8>>,
    /// The maximum size of the request body in bytes (`LimitRequestBody`). `None` leaves the site's limit in force.
    pub body_limit: Option<u64>,
}

impl RouteAction {
    pub(super) fn refused(refusal: Refusal) -> RouteAction {
        RouteAction::refused_with(refusal, refusal.status())
    }

    pub(super) fn refused_with(refusal: Refusal, status: u16) -> RouteAction {
        RouteAction::Refused {
            status,
            refusal,
            allow: None,
        }
    }
}

/// The state of a request while it is routed: rules change path and query.
pub(super) struct RoutingState<'r> {
    pub(super) head: &'r RequestHead,
    pub(super) visitor: Visitor<'r>,
    pub(super) path: UrlPath<'r>,
    /// The routes that an application may take from `path` ([`Site::routes_behind_script`]).
    ///
    /// [`Site::routes_behind_script`]: super::Site::routes_behind_script
    pub(super) routes: Vec<Vec<u8>>,
    pub(super) query: Option<Vec<u8>>,
    pub(super) rewritten: bool,
    /// How many of the rules were applied to earlier paths, up to and including the rewrite that led to this one.
    pub(super) rules_before: usize,
    pub(super) pool: Option<Arc<str>>,
}

impl<'r> RoutingState<'r> {
    /// Returns the request as conditions see it.
    pub(super) fn rule_request(&self) -> RuleRequest<'r> {
        RuleRequest {
            head: self.head,
            visitor: self.visitor,
        }
    }

    pub(super) fn query(&self) -> Option<&[u8]> {
        self.query.as_deref().or_else(|| self.head.query())
    }

    /// Returns what named `found`, if the first `rules` rules have been applied to the path.
    pub(super) fn named_by(&self, found: &[u8], rules: usize) -> NamedBy<'static> {
        let path = self.path.as_bytes();
        if self.rewritten {
            NamedBy::BySite
        } else if path == found {
            NamedBy::ByClient
        } else if path.starts_with(found) {
            NamedBy::InFrontOfPathInfo { rules }
        } else {
            NamedBy::BySite
        }
    }
}
