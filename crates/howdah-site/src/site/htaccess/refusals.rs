//! `htaccess = "deny"`: the requests that `.htaccess` files refuse, for a site that routes its requests itself. The
//! site checks the path that the client requested, and the file or script that is about to be sent or run, whatever has
//! led to it ([`Site::admit`](crate::site::Site::admit)).

use std::borrow::Cow;
use std::sync::Arc;

use howdah_htaccess::{
    self as apache, AccessOutcome, Demand, EvaluationInput, MAX_FILE_NAME_BYTES,
};

use super::evaluation::{CachedResult, Origin, request_facts};
use super::result_cache::CacheKey;
use super::thread;
use super::world::{SiteWorld, document_root};
use crate::docroot::path::UrlPath;
use crate::docroot::root::RootDir;
use crate::refusal::Refusal;
use crate::site::Site;
use crate::site::access::RefusedAccess;
use crate::site::condition::RuleRequest;
use crate::site::config::HtaccessMode;
use crate::site::route::{RouteAction, RouteInfo};
use crate::site::trace::TraceStep;

/// A path below a site's root, and the request that leads to it.
#[derive(Clone, Copy)]
pub(crate) struct PathQuery<'a> {
    /// The root that the path is below.
    pub root: &'a RootDir,
    /// The path: normalized, decoded, with its leading slash.
    pub path: &'a [u8],
    /// The request; `None` for a page that is served to many requests.
    pub requested: Option<RuleRequest<'a>>,
    /// The query that goes with the path.
    pub query: Option<&'a [u8]>,
    /// Whether another path has led to this one, like an internal redirect in Apache.
    pub redirected: bool,
    /// Whether exactly this file or script is about to be sent or run. A rule that leads to another path then hides it.
    pub hides: bool,
}

/// A password check that the decision depends on, or its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HtaccessLogin {
    /// The password must be checked, and then the request must be routed again with the result.
    Check(Demand),
    /// The password is missing or wrong; this is the value of `WWW-Authenticate`.
    Challenge(Box<str>),
    /// The password of this user is right.
    User(Box<[u8]>),
}

/// A request that `.htaccess` files refuse, and the directive that refuses it.
#[derive(Debug)]
pub(crate) struct Closed {
    /// The reason and the status.
    pub refused: RefusedAccess,
    /// The directive with its file and line number.
    pub because: Option<Box<str>>,
    /// The password that the directive demands.
    pub login: Option<Box<HtaccessLogin>>,
}

impl From<RefusedAccess> for Closed {
    fn from(refused: RefusedAccess) -> Closed {
        Closed {
            refused,
            because: None,
            login: None,
        }
    }
}

impl Closed {
    /// Returns the trace step for this refusal.
    pub(in crate::site) fn step(&self) -> TraceStep {
        TraceStep::Htaccess {
            line: self.because.as_deref().map(str::to_owned),
            outcome: self.refused.refusal.name().to_owned(),
        }
    }

    /// Converts the refusal into an action, and records the details for the password check and the log.
    pub(in crate::site) fn action(self, info: &mut RouteInfo) -> RouteAction {
        info.htaccess_line = self.because.or(info.htaccess_line.take());
        info.login = self.login;
        RouteAction::refused_with(self.refused.refusal, self.refused.status)
    }

    /// Returns the refusal for a context in which the client cannot be asked for a password.
    pub(in crate::site) fn without_login(self) -> RefusedAccess {
        match self.login {
            Some(_) => Refusal::HtaccessDenied.into(),
            None => self.refused,
        }
    }
}

impl Site {
    /// Checks a path against the `.htaccess` files. Returns the user if access required a password.
    pub(in crate::site) fn ask_htaccess(
        &self,
        query: &PathQuery<'_>,
    ) -> Result<Option<Box<[u8]>>, Closed> {
        if self.config.htaccess != HtaccessMode::Deny {
            return Ok(None);
        }
        if query.root.path().len() + query.path.len() > MAX_FILE_NAME_BYTES {
            return match query.hides || query.redirected {
                true => Err(RefusedAccess::from(Refusal::HtaccessNotUnderstood).into()),
                // No file of this name can exist.
                false => Ok(None),
            };
        }
        let world = SiteWorld::new(self, query.root).traced_by(
            query
                .requested
                .and_then(|requested| requested.visitor.trace),
        );
        match self.htaccess_verdict(query, &world) {
            None => Ok(None),
            Some(verdict) => judge(query, &verdict),
        }
    }

    /// Returns the verdict of the files, or `None` if there are no files on the way to the path.
    fn htaccess_verdict(
        &self,
        query: &PathQuery<'_>,
        world: &SiteWorld<'_>,
    ) -> Option<Arc<apache::AccessVerdict>> {
        let mut key = thread::with(|thread| std::mem::take(&mut thread.key));
        let has_files = has_htaccess_files(world, query.path, &mut key);
        let verdict = has_files.then(|| self.evaluate_refusals(query, world, &mut key));
        thread::with(|thread| thread.key = key);
        verdict
    }

    fn evaluate_refusals(
        &self,
        query: &PathQuery<'_>,
        world: &SiteWorld<'_>,
        key: &mut CacheKey,
    ) -> Arc<apache::AccessVerdict> {
        let origin = query
            .requested
            .map(|requested| Origin::of(requested.head, requested.visitor));
        // `howdah explain` and requests with a password always evaluate the files.
        let may_cache = query.requested.is_none_or(|requested| {
            requested.visitor.trace.is_none() && requested.visitor.logins.is_empty()
        });
        key.begin(query.root.id())
            .text(b"refusals")
            .text(query.path)
            .text(query.query.unwrap_or_default())
            .number(u64::from(query.query.is_some()) * 2 + u64::from(query.redirected));
        if let (Some(origin), Some(requested)) = (&origin, query.requested) {
            origin.add_to(requested.head, requested.visitor, key);
        }
        if may_cache {
            let known = thread::with(|thread| {
                let known = thread.verdicts.get(&thread.watched, key.as_bytes())?;
                known.get(world, &mut thread.watched)
            });
            if let Some(verdict) = known {
                return verdict;
            }
        }
        let facts = self.refusal_facts(query, origin.as_ref());
        let verdict = Arc::new(apache::refusals(world, &facts, query.redirected));
        let by_url = verdict.dependencies.depends_only_on_url()
            && !matches!(verdict.outcome, AccessOutcome::Authenticate(_));
        if may_cache
            && by_url
            && let Some((since, seen)) = world.looked_at()
        {
            thread::with(|thread| {
                let found = CachedResult::new(verdict.clone(), seen);
                thread
                    .verdicts
                    .insert(&thread.watched, key.as_bytes(), since, found);
            });
        }
        verdict
    }

    fn refusal_facts<'q>(
        &self,
        query: &PathQuery<'q>,
        origin: Option<&Origin<'q>>,
    ) -> EvaluationInput<'q> {
        let of_path = EvaluationInput {
            method: Cow::Borrowed(b"GET"),
            path: Cow::Borrowed(query.path),
            query: query.query.map(Cow::Borrowed),
            protocol: "HTTP/1.1",
            server_port: 80,
            server_name: Cow::Borrowed(b"localhost"),
            document_root: Cow::Borrowed(document_root(query.root)),
            ..EvaluationInput::default()
        };
        match (query.requested, origin) {
            (Some(requested), Some(origin)) => EvaluationInput {
                path: of_path.path,
                query: of_path.query,
                document_root: of_path.document_root,
                ..request_facts(requested.head, requested.visitor, origin)
            },
            _ => of_path,
        }
    }

    /// Returns true if a request must be routed before a cached page may be served: a file on the way may refuse it, or
    /// the script for it is not known without routing.
    pub(in crate::site) fn htaccess_may_refuse(&self, root: &RootDir, path: &UrlPath<'_>) -> bool {
        if self.config.leads_to_other_scripts() {
            return true;
        }
        let path = path.as_bytes();
        let applies = |path: &[u8]| {
            let world = SiteWorld::new(self, root);
            let mut key = thread::with(|thread| std::mem::take(&mut thread.key));
            let has_files = has_htaccess_files(&world, path, &mut key);
            thread::with(|thread| thread.key = key);
            has_files
        };
        if applies(path) {
            return true;
        }
        let controller = self.front_controller.as_ref().map(UrlPath::as_bytes);
        controller.is_some_and(|script| {
            // The root's file applies to every path.
            !path.starts_with(directory_of(script)) && applies(script)
        })
    }
}

/// Returns whether there are files on the way to a path of a site.
fn has_htaccess_files(world: &SiteWorld<'_>, path: &[u8], key: &mut CacheKey) -> bool {
    key.begin(world.root.id()).text(b"files").text(path);
    let known = thread::with(|thread| {
        thread.begin();
        let known = thread.has_files.get(&thread.watched, key.as_bytes())?;
        known.get(world, &mut thread.watched)
    });
    known.unwrap_or_else(|| {
        let chain = apache::chain_at(world, document_root(world.root), path);
        let has_files = !chain.is_empty();
        if let Some((since, seen)) = world.looked_at() {
            let found = CachedResult::new(has_files, seen);
            thread::with(|thread| {
                let cache = &mut thread.has_files;
                cache.insert(&thread.watched, key.as_bytes(), since, found);
            });
        }
        has_files
    })
}

/// Converts the verdict about a path into a refusal.
fn judge(
    query: &PathQuery<'_>,
    verdict: &apache::AccessVerdict,
) -> Result<Option<Box<[u8]>>, Closed> {
    let mut login = None;
    let refused = match &verdict.outcome {
        AccessOutcome::Elsewhere if query.hides => Refusal::HtaccessHidden.into(),
        AccessOutcome::Open | AccessOutcome::Elsewhere => {
            return Ok(verdict.user.clone().map(Vec::into_boxed_slice));
        }
        AccessOutcome::Refused(status, refusal) => {
            if let Some(challenge) = &verdict.challenge {
                let challenge = String::from_utf8_lossy(challenge).into_owned();
                login = Some(HtaccessLogin::Challenge(challenge.into()));
            }
            RefusedAccess {
                refusal: super::refusal_of(*refusal),
                status: *status,
            }
        }
        AccessOutcome::Authenticate(demand) => {
            login = Some(HtaccessLogin::Check(demand.clone()));
            Refusal::HtaccessPassword.into()
        }
    };
    Err(Closed {
        refused,
        because: verdict.decided_by.as_deref().map(Into::into),
        login: login.map(Box::new),
    })
}

/// Returns `/app/` for `/app/index.php`.
fn directory_of(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|b| *b == b'/');
    &path[..end.map_or(0, |slash| slash + 1)]
}
