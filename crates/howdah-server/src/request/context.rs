//! One request while it is handled: the request, what handles it, and what is logged at its end.

use std::sync::Arc;

use howdah_cache::status::CacheVerdict;
use howdah_executor::RunTiming;
use howdah_http::message::RequestHead;
use howdah_http::{ConnectionInfo, Responder};
use howdah_proto::level::LogLevel;

use super::Front;
use super::esi::EsiScope;
use super::limits::AppliedLimits;
use super::pending_response::PendingResponse;
use crate::cache::run_effects::RunEffects;
use crate::cache::{PageCache, SiteCache};
use crate::failure::Failure;
use crate::server_config::ServerConfig;
use crate::site_service::SiteService;
use howdah_log::log::error::RequestDetails;
use howdah_log::traces::TracedRequest;
use howdah_log::traces::recording::Recording;
use howdah_site::client_address::Client;
use howdah_site::site::Site;
use howdah_site::site::condition::RuleRequest;
use howdah_site::site::htaccess::Live;
use howdah_site::site::visitor::Visitor;

/// A request, and everything that is needed to handle it.
#[derive(Clone, Copy)]
pub(super) struct RequestContext<'a> {
    pub front: &'a Front,
    pub config: &'a Arc<ServerConfig>,
    pub site: &'a Arc<Site>,
    pub request: &'a RequestHead,
    /// The trace that the request belongs to, if requests are traced.
    pub traced: Option<&'a TracedRequest>,
    pub conn: &'a ConnectionInfo,
    pub client: &'a Client<'a>,
    /// The number of the request in the logs.
    pub id: u64,
    /// The page that the request is made for, if it is for a fragment of a page.
    pub esi: Option<&'a EsiScope>,
}

impl<'a> RequestContext<'a> {
    /// Returns the visitor, as the site's `.htaccess` files see it.
    pub fn visitor(self) -> Visitor<'a> {
        Visitor {
            client: self.client,
            local: self.conn.local,
            logins: &[],
            trace: None,
        }
    }

    /// Returns the request as a site's rules see it.
    pub fn requested(self) -> RuleRequest<'a> {
        RuleRequest {
            head: self.request,
            visitor: self.visitor(),
        }
    }

    /// Returns what was prepared for the requests of the site.
    pub fn service(self) -> &'a Arc<SiteService> {
        self.config.service(self.site)
    }

    /// Returns the page cache with the site's part of it, if the site has enabled it.
    pub fn page_cache(self) -> Option<(&'a Arc<PageCache>, &'a SiteCache)> {
        let cache = self.config.cache.as_ref()?;
        Some((cache, cache.site(self.site)?))
    }

    /// Writes a line about this request into the error log.
    pub fn log_note(self, level: LogLevel, name: &str, message: &str) {
        let log = &self.front.error_log;
        if !log.is_enabled(level) {
            return;
        }
        let client = match self.client.address {
            Some(address) => address.to_string(),
            None => "unix:".to_owned(),
        };
        let about = RequestDetails {
            method: self.request.method(),
            host: self.request.host(),
            target: self.request.target(),
            client: &client,
            id: self.id,
            trace: self.traced.map(|traced| &traced.context),
        };
        log.request(level, name, message, &about);
    }
}

pub(super) struct ResponseInProgress<'r> {
    /// The connection to the client.
    pub out: &'r mut Responder,
    pub record: RequestRecord,
}

/// What is logged about a request at its end.
#[derive(Default)]
pub(super) struct RequestRecord {
    pub run: RunTiming,
    /// Boxed because every idle connection reserves the room for this record.
    pub failure: Option<Box<Failure>>,
    /// The limits under which the request was counted.
    pub limits: Option<Box<AppliedLimits>>,
    /// What the page cache did, if the site has enabled it.
    pub cache: Option<CacheVerdict>,
    /// The side effects of the run, if the site has enabled the page cache.
    pub effects: Option<Arc<RunEffects>>,
    /// The name of the cookie because of which the request bypassed the page cache.
    pub cookie: Option<Box<str>>,
    /// What the site's `.htaccess` files say about the response.
    pub live: Option<Arc<Live>>,
    /// The rest of the response, if a stored page cannot be sent at once.
    pub later: Option<Box<PendingResponse>>,
    /// What is recorded for a trace.
    pub recording: Option<Box<Recording>>,
}

impl RequestRecord {
    /// Describes why the request bypassed the page cache.
    pub fn cache_cause(&self) -> Option<String> {
        let effects = self.effects.as_ref();
        if let Some(cause) = effects.and_then(|effects| effects.forbidden()) {
            return Some(cause.to_string());
        }
        match (self.cache, &self.cookie) {
            (Some(CacheVerdict::Pass(why)), Some(cookie)) => Some(format!("{why}: {cookie}")),
            _ => None,
        }
    }
}
