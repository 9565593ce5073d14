//! What the router finds out about a request: the action, and what goes with it.

use std::sync::Arc;

use howdah_http::message::RequestHead;

use super::access::Named;
use super::condition::Requested;
use super::htaccess::{HtaccessLogin, Live};
use super::script::ScriptPath;
use super::visitor::Visitor;
use crate::docroot::path::UrlPath;
use crate::proxy::Proxy;
use crate::refusal::Refusal;
use crate::static_file::StaticPlan;
use howdah_cache::Pass;
use howdah_htaccess::{Demand, Table};

/// Where the router sends a request, and what else it found on the way.
#[derive(Debug)]
pub struct Route {
    /// What the server does with the request.
    pub action: Action,
    /// What else the router found out.
    pub info: RouteInfo,
}

/// What the router found out beside the action: for the log, the response's head, and the permission
/// that the action needs.
#[derive(Debug, Default)]
pub struct RouteInfo {
    /// The path names something that is never sent, and the search went on: for the log.
    pub passed_over: Option<Refusal>,
    /// The line of an `.htaccess` file that has refused the path, or led it elsewhere.
    pub because: Option<Box<str>>,
    /// The client asked by HTTPS.
    pub https: bool,
    /// A rule matched that is for some visitors only: the answer is not everybody's.
    pub personal: bool,
    /// Numbers of the header rules that matched.
    pub(super) edits: Vec<usize>,
    /// Numbers of the rules by which somebody is to be asked first, in order.
    pub(super) guards: Vec<usize>,
    /// Numbers of the rules that limit the client.
    pub(super) limits: Vec<usize>,
    /// The password that `.htaccess` files demand, where they only refuse requests.
    pub login: Option<Box<HtaccessLogin>>,
    /// What `.htaccess` files have made of the request, where they decide all of it.
    pub live: Option<Arc<Live>>,
}

impl RouteInfo {
    /// Somebody is to be asked before the action is taken.
    pub fn needs_permission(&self) -> bool {
        !self.guards.is_empty() || self.login.is_some()
    }

    /// The password that `.htaccess` files demand before anything else is decided.
    pub fn demand(&self) -> Option<&Demand> {
        match self.login.as_deref() {
            Some(HtaccessLogin::Check(demand)) => Some(demand),
            _ => self.live.as_ref().and_then(|live| live.demand()),
        }
    }

    /// Notes the user whom `.htaccess` files have let in by a password.
    pub(super) fn note_user(&mut self, user: Option<Box<[u8]>>) {
        if let Some(user) = user {
            self.login = Some(Box::new(HtaccessLogin::User(user)));
        }
    }

    /// `.htaccess` files look at who asks: the answer may differ for others.
    pub fn is_for_some(&self) -> bool {
        self.live
            .as_ref()
            .is_some_and(|live| !live.is_for_everybody())
    }

    /// Everybody who asks for this page takes this route, and nobody is asked first.
    pub(crate) fn is_for_everybody(&self, action: &Action) -> bool {
        matches!(action, Action::Script(_)) && !self.personal && !self.needs_permission()
    }

    /// Numbers of the rules that limit the client, whatever led to their paths.
    pub(crate) fn limits(&self) -> &[usize] {
        &self.limits
    }

    /// Numbers of the rules by which somebody is to be asked.
    pub fn guarding_rules(&self) -> &[usize] {
        &self.guards
    }

    /// Why the answer may not be kept for others in the page cache, by its route alone.
    pub(crate) fn keeps_from_cache(&self) -> Option<Pass> {
        if self.needs_permission() {
            return Some(Pass::Authorization);
        }
        if self.personal {
            return Some(Pass::Rule);
        }
        self.is_for_some().then_some(Pass::Htaccess)
    }
}

/// What the server does with a request.
#[derive(Debug)]
pub enum Action {
    /// Send a file; the method is GET or HEAD.
    Static(StaticPlan),
    /// Run a script, whatever the method.
    Script(ScriptTarget),
    /// Have another server answer, whatever the method.
    Proxy(Box<ProxyTarget>),
    /// Answer with this status and `Location`.
    Redirect {
        /// The status code: 301, 302, 303, 307 or 308.
        status: u16,
        /// The value of `Location`, encoded.
        location: Vec<u8>,
    },
    /// Answer with the text of a `return` rule.
    Return {
        /// The status code of the answer.
        status: u16,
        /// The value of `Content-Type`.
        content_type: String,
        /// The body of the answer.
        body: String,
    },
    /// Answer with the page of this status.
    Refused {
        /// The status; mostly the refusal's own.
        status: u16,
        /// Why the router refused the request.
        refusal: Refusal,
        /// The value of `Allow`, for a 405; otherwise none.
        allow: Option<&'static str>,
    },
    /// Answer OPTIONS: 204 with this `Allow`.
    Options {
        /// The value of `Allow`.
        allow: &'static str,
    },
}

/// The servers that a `proxy` rule sends a request to.
#[derive(Debug)]
pub struct ProxyTarget {
    /// Chooses the server, and keeps connections to it.
    pub proxy: Arc<Proxy>,
    /// The path that the rules have led to, cleaned.
    pub path: Vec<u8>,
    /// The query, if a rewrite has changed it; the request's otherwise.
    pub query: Option<Vec<u8>>,
}

/// A script that the router found for a request.
#[derive(Debug)]
pub struct ScriptTarget {
    /// The path of the script, and what follows it in the URL.
    pub script: ScriptPath,
    /// `QUERY_STRING`, if a rewrite has changed it; the request's otherwise.
    pub query: Option<Vec<u8>>,
    /// Whether a rewrite or the front controller led here, not the request's own path (where Apache
    /// sets `REDIRECT_URL`).
    pub redirected: bool,
    /// The pool a rule has named; the site's otherwise.
    pub pool: Option<Arc<str>>,
    /// Whether it is a program of a `cgi` rule, which is executed as it is.
    pub program: bool,
    /// Variables for it that those have set who were asked first. The router leaves it empty.
    pub granted: Box<[(Vec<u8>, Vec<u8>)]>,
    /// Numbers of the rules by which somebody was asked, and has allowed the request. The router leaves it empty.
    pub permitted: Box<[usize]>,
    /// What `.htaccess` files say to it, where they decide all of a request.
    pub apache: Option<Box<ApacheRequest>>,
}

/// What a script gets beside the request, where `.htaccess` files decide.
#[derive(Debug)]
pub struct ApacheRequest {
    /// Environment variables.
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// Settings of PHP.
    pub php: Vec<(String, String)>,
    /// Path and query that an internal redirect came from.
    pub redirect: Option<(Vec<u8>, Option<Vec<u8>>)>,
    /// The status of the error that the script is the document of.
    pub status: Option<u16>,
    /// The method, if it is another than the client's.
    pub method: Option<&'static str>,
    /// The request's header, if lines have changed it.
    pub headers: Option<Table>,
    /// The user whose password was right.
    pub user: Option<Vec<u8>>,
    /// The longest request body in bytes (`LimitRequestBody`). `None` leaves the site's limit in force.
    pub body_limit: Option<u64>,
}

impl Action {
    pub(super) fn refused(refusal: Refusal) -> Action {
        Action::refused_with(refusal, refusal.status())
    }

    pub(super) fn refused_with(refusal: Refusal, status: u16) -> Action {
        Action::Refused {
            status,
            refusal,
            allow: None,
        }
    }
}

/// The request while it is routed: rules change path and query.
pub(super) struct Walk<'r> {
    pub(super) head: &'r RequestHead,
    pub(super) visitor: Visitor<'r>,
    pub(super) path: UrlPath<'r>,
    /// The routes that an application may take from `path` ([`Site::routes_behind_script`]).
    ///
    /// [`Site::routes_behind_script`]: super::Site::routes_behind_script
    pub(super) routes: Vec<Vec<u8>>,
    pub(super) query: Option<Vec<u8>>,
    pub(super) rewritten: bool,
    /// How many of the rules have been asked about other paths than this one, which the last of them made.
    pub(super) rules_before: usize,
    pub(super) pool: Option<Arc<str>>,
}

impl<'r> Walk<'r> {
    /// The request as conditions see it.
    pub(super) fn asked(&self) -> Requested<'r> {
        Requested {
            head: self.head,
            visitor: self.visitor,
        }
    }

    pub(super) fn query(&self) -> Option<&[u8]> {
        self.query.as_deref().or_else(|| self.head.query())
    }

    /// Who named `found`, when `rules` of the rules have been asked about the path.
    pub(super) fn named(&self, found: &[u8], rules: usize) -> Named<'static> {
        let path = self.path.as_bytes();
        if self.rewritten {
            Named::BySite
        } else if path == found {
            Named::ByClient
        } else if path.starts_with(found) {
            Named::InFrontOfPathInfo { rules }
        } else {
            Named::BySite
        }
    }
}
