//! Evaluates the `.htaccess` files for a request. A result that is the same for every visitor is cached until one of
//! the files that it depends on changes.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use howdah_htaccess::{self as apache, EvaluationInput, RequestDecision, Table};
use howdah_http::message::RequestHead;

use super::result_cache::CacheKey;
use super::thread;
use super::watched::Watched;
use super::world::{Seen, SiteWorld};
use crate::docroot::root::RootDir;
use crate::refusal::Refusal;
use crate::site::Site;
use crate::site::route::RoutingState;
use crate::site::search::FileView;
use crate::site::visitor::Visitor;

/// A cached result, and the state of the files that it depends on.
pub(super) struct CachedResult<T> {
    result: T,
    /// The files whose state must be unchanged.
    seen: Vec<Seen>,
    is_repeated: bool,
}

impl<T: Clone> CachedResult<T> {
    pub(super) fn new(result: T, seen: Box<[Seen]>) -> CachedResult<T> {
        CachedResult {
            result,
            seen: seen.into(),
            is_repeated: false,
        }
    }

    /// Returns the result if the files that it depends on are unchanged.
    pub(super) fn get(
        &mut self,
        world: &SiteWorld<'_>,
        watched: &mut Option<Watched>,
    ) -> Option<T> {
        if !self.seen.iter().all(|seen| world.is_still(seen)) {
            return None;
        }
        if !self.is_repeated {
            self.is_repeated = true;
            if let Some(watched) = watched {
                self.trust(world.root, watched);
            }
        }
        Some(self.result.clone())
    }

    /// Drops the names that need no further check, because the kernel reports their changes. This is done only when a
    /// result is used again.
    fn trust(&mut self, root: &RootDir, watched: &mut Watched) {
        let mut missing: Vec<Box<[u8]>> = Vec::new();
        self.seen.retain(|(name, found)| {
            let trusts = watched.trusts(root, name, *found);
            if trusts && found.is_err() {
                missing.push(name.clone());
            }
            !trusts
        });
        // Names below a missing directory need not be checked.
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

/// The scheme, host and port of a URL of the site.
pub(super) struct Origin<'a> {
    pub(super) host: &'a [u8],
    pub(super) https: bool,
    pub(super) port: u16,
}

impl<'a> Origin<'a> {
    pub(super) fn of(head: &'a RequestHead, visitor: Visitor<'a>) -> Origin<'a> {
        let client = visitor.client;
        let host = client.host.as_deref().unwrap_or_else(|| head.host());
        let https = client.https;
        let standard = if https { 443 } else { 80 };
        let proxied = client.proxied;
        let port = match visitor.local {
            Some(local) if !proxied => local.port(),
            _ => crate::client_address::split_host(host)
                .1
                .unwrap_or(standard),
        };
        Origin { host, https, port }
    }

    /// Adds to the key everything that a result may depend on, apart from the visitor and the other request headers
    /// ([`RequestDecision::is_cacheable_by_url`]).
    pub(super) fn add_to(&self, head: &RequestHead, visitor: Visitor<'_>, key: &mut CacheKey) {
        let address = visitor.local.map(|local| match local.ip().to_canonical() {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        });
        let address = address.unwrap_or_default().to_ne_bytes();
        key.number(u64::from(self.port) * 2 + u64::from(self.https))
            .text(&address)
            .text(head.version().as_str().as_bytes())
            .text(self.host)
            .text(head.method())
            .text(head.target());
    }
}

/// Returns the properties of the request that the files may read. The caller adds the path, the query and the document
/// root.
pub(super) fn request_facts<'a>(
    head: &'a RequestHead,
    visitor: Visitor<'a>,
    origin: &Origin<'_>,
) -> EvaluationInput<'a> {
    let Origin { host, https, port } = *origin;
    let client = visitor.client;
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
    EvaluationInput {
        method: Cow::Borrowed(head.method()),
        target: Cow::Borrowed(head.target()),
        protocol: head.version().as_str(),
        headers,
        https,
        address: client.address,
        port: client.port,
        local: visitor.local,
        server_port: port,
        server_name: Cow::Borrowed(b"localhost"),
        logins: visitor.logins.to_vec(),
        ..EvaluationInput::default()
    }
}

/// Caches a decision that is the same for every visitor.
fn cache(key: &CacheKey, answer: &Arc<RequestDecision>, world: &SiteWorld<'_>) {
    let Some((since, seen)) = world.looked_at().filter(|_| answer.is_cacheable_by_url()) else {
        return;
    };
    let found = CachedResult::new(answer.clone(), seen);
    thread::with(|thread| {
        let watched = &thread.watched;
        thread.answers.insert(watched, key.as_bytes(), since, found);
    });
}

impl Site {
    /// Evaluates the files for a request, or returns the cached decision. Also returns the properties of the request
    /// that the directives for the response need, if they need any.
    pub(super) fn live_answer(
        &self,
        tree: &FileView,
        walk: &RoutingState<'_>,
        world: &SiteWorld<'_>,
    ) -> (Arc<RequestDecision>, Option<Box<EvaluationInput<'static>>>) {
        let visitor = walk.visitor;
        let origin = Origin::of(walk.head, visitor);
        let mut key = None;
        // `howdah explain` always evaluates the files.
        if !walk.rewritten && visitor.logins.is_empty() && visitor.trace.is_none() {
            let mut own = thread::with(|thread| std::mem::take(&mut thread.key));
            own.begin(tree.root.id());
            origin.add_to(walk.head, visitor, &mut own);
            key = Some(own);
        }
        let known = key.as_ref().and_then(|key| {
            thread::with(|thread| {
                thread.begin();
                let known = thread.answers.get(&thread.watched, key.as_bytes())?;
                known.get(world, &mut thread.watched)
            })
        });
        let asks = |answer: &RequestDecision| answer.edits() && answer.edits_depend_on_request();
        let found = match known {
            Some(answer) if !asks(&answer) => (answer, None),
            known => {
                let facts = self.facts(tree, walk, &origin);
                let answer = known.unwrap_or_else(|| {
                    let answer = Arc::new(apache::decide(world, &facts));
                    if let Some(key) = &key {
                        cache(key, &answer, world);
                    }
                    answer
                });
                let facts = asks(&answer).then(|| Box::new(facts.into_owned()));
                (answer, facts)
            }
        };
        if let Some(key) = key {
            thread::with(|thread| thread.key = key);
        }
        found
    }
}
