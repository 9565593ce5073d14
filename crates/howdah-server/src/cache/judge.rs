//! Turns a script's head into the form that the policy judges, and into the page that is stored.

use bytes::Bytes;
use howdah_cache::object::{Object, ObjectDraft};
use howdah_cache::policy::private::decide_private;
use howdah_cache::policy::response::{ResponseFacts, decide_storable};
use howdah_cache::tags::LITESPEED_STATUS;
use howdah_cache::{HeaderFields, Millis, Pass, Storable};
use howdah_executor::ScriptHead;
use howdah_http::message::ResponseHead;

use super::body_collector::BodyCollector;
use super::{OwnedHeader, SiteCache, header_slices, now};
use crate::script::head;
use howdah_site::site::{RouteInfo, Site};

/// The head of a response that may be stored.
#[derive(Debug)]
pub struct JudgedHead {
    /// The status, after a `Status:` header has been applied.
    pub status: u16,
    /// The reason phrase; empty if the script gave none.
    pub reason: Vec<u8>,
    /// The headers as clients get them, and the script's instructions to the server.
    pub lines: Vec<OwnedHeader>,
    /// Whether the program names a path of this server whose response replaces its own.
    pub local_redirect: bool,
    /// Whether a line of an `.htaccess` file about the response depends on the visitor.
    pub varies_by_visitor: bool,
    /// When the head was received.
    pub received_at: Millis,
}

impl JudgedHead {
    /// Returns the head for the policy. The site's rules cannot hide a cookie from the policy.
    pub fn new(site: &Site, route: &RouteInfo, script: &ScriptHead) -> JudgedHead {
        const TO_US: [&[u8]; 8] = [
            b"x-accel-expires",
            b"x-accel-redirect",
            b"x-sendfile",
            b"date",
            b"content-length",
            b"connection",
            b"set-cookie",
            b"set-cookie2",
        ];
        let instructions = head::instructions(script);
        let mut ours: ResponseHead = head::for_client(script, &instructions);
        site.edit_headers(route, &mut ours);
        let own = |name: &[u8]| TO_US.iter().any(|n| name.eq_ignore_ascii_case(n));
        let mut lines: Vec<_> = ours
            .fields()
            .filter(|(name, _)| !own(name))
            .map(|(n, v)| (n.to_vec(), v.to_vec()))
            .collect();
        lines.extend(script.headers.iter().filter(|(name, _)| own(name)).cloned());
        JudgedHead {
            status: instructions.status,
            reason: instructions.reason.to_vec(),
            lines,
            local_redirect: script.local_redirect,
            varies_by_visitor: route.htaccess_varies_by_visitor(),
            received_at: now(),
        }
    }

    /// Asks the policy whether a response with this head may be stored. `requested` is the time of the request;
    /// `authorized` says whether it carried a visitor's credentials.
    pub fn judge(
        &self,
        part: &SiteCache,
        requested: Millis,
        authorized: bool,
    ) -> Result<Storable, Pass> {
        self.check_origin()?;
        let fields = header_slices(&self.lines);
        let facts = self.facts(&fields, requested, authorized);
        decide_storable(&facts, part.rules())
    }

    /// Asks the policy whether a response with this head may be stored for its visitor alone, for `lifetime` seconds.
    pub fn judge_private(
        &self,
        part: &SiteCache,
        requested: Millis,
        lifetime: u64,
    ) -> Result<Storable, Pass> {
        self.check_origin()?;
        let fields = header_slices(&self.lines);
        let facts = self.facts(&fields, requested, false);
        decide_private(&facts, part.rules(), lifetime)
    }

    /// Checks that the response belongs to the URL, and that no `.htaccess` file makes it depend on the visitor.
    fn check_origin(&self) -> Result<(), Pass> {
        if self.local_redirect {
            // The response is that of another URL and is handled there.
            return Err(Pass::LocalRedirect);
        }
        match self.varies_by_visitor {
            true => Err(Pass::Htaccess),
            false => Ok(()),
        }
    }

    fn facts<'a>(
        &self,
        fields: &'a HeaderFields<'a>,
        requested: Millis,
        authorized: bool,
    ) -> ResponseFacts<'a> {
        ResponseFacts {
            status: self.status,
            fields,
            authorized,
            requested,
            received: self.received_at,
            effect: None,
        }
    }

    /// Gives a page without validators an entity tag made from its bytes, so a returning visitor gets a 304 from any
    /// application.
    pub fn add_entity_tag(&mut self, body: &BodyCollector) {
        let is_tag = |(name, _): &OwnedHeader| name.eq_ignore_ascii_case(b"etag");
        if self.status == 200 && body.len() > 0 && !self.lines.iter().any(is_tag) {
            self.lines
                .push((b"ETag".to_vec(), body.entity_tag().into_bytes()));
        }
    }

    /// Tells caches in front what the pages of the site vary by. The policy adds that to the key in any case.
    pub fn add_vary(&mut self, part: &SiteCache) {
        if let Some(value) = part.rules().vary.header_value() {
            self.lines.push((b"Vary".to_vec(), value.into()));
        }
    }

    /// Adds the header by which the LiteSpeed Cache plugin recognises a stored page: its crawler skips such a page, and
    /// WordPress' own check of the site finds a page cache.
    pub fn add_litespeed_status(&mut self) {
        let line = (LITESPEED_STATUS.to_vec(), b"hit".to_vec());
        self.lines.push(line);
    }

    /// Returns the page of this head. `born` is the generation in which its run began.
    pub fn page(
        &self,
        storable: &Storable,
        body: Bytes,
        url_key: &[u8],
        born: u64,
    ) -> Result<Object, Pass> {
        let draft = ObjectDraft {
            status: self.status,
            reason: &self.reason,
            fields: &header_slices(&self.lines),
            body,
            url_key,
            born,
        };
        Object::new(storable, draft)
    }
}
