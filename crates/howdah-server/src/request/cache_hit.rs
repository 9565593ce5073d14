//! Serves a stored page in response to a request.

use std::sync::Arc;
use std::time::Instant;

use howdah_cache::Millis;
use howdah_cache::object::Object;
use howdah_cache::policy::PageState;
use howdah_cache::status::CacheVerdict;
use howdah_http::message::RequestHead;

use super::context::{RequestContext, ResponseInProgress};
use super::esi;
use super::pending_response::PendingResponse;
use crate::cache::{SiteCache, send};

/// A stored page that is the response to a request.
pub(super) struct CacheHit<'p> {
    pub page: &'p Arc<Object>,
    /// Whether the request asks for a part of the page or is conditional.
    pub conditional: bool,
    /// The time of the lookup.
    pub now: Millis,
}

impl CacheHit<'_> {
    /// Serves a page as it was found.
    pub fn serve(
        self,
        ctx: RequestContext<'_>,
        part: &SiteCache,
        state: PageState,
        response: &mut ResponseInProgress<'_>,
    ) {
        let ttl = self.page.freshness.ttl(self.now).div_euclid(1000);
        let verdict = CacheVerdict::Hit {
            ttl: match state {
                PageState::Fresh => ttl,
                // After a soft purge the page's own lifetime may not have expired.
                _ => ttl.min(-1),
            },
        };
        self.deliver(ctx, part, verdict, response);
    }

    /// Serves a page under the given verdict.
    pub fn deliver(
        self,
        ctx: RequestContext<'_>,
        part: &SiteCache,
        verdict: CacheVerdict,
        response: &mut ResponseInProgress<'_>,
    ) {
        part.count(verdict);
        response.record.cache = Some(verdict);
        if let Some(recording) = &mut response.record.recording {
            recording.settle_cache(Instant::now());
            recording.first_byte();
        }
        if esi::is_composed(ctx, self.page) {
            let page = self.page.clone();
            let composed = PendingResponse::Composed { page, verdict };
            response.record.later = Some(Box::new(composed));
            return;
        }
        let encoding = &ctx.config.settings.encoding;
        let reader = send::PageRequest {
            request: ctx.request,
            conditional: self.conditional,
            now: self.now,
        };
        let later = send::send_page(self.page, verdict, reader, encoding, response.out);
        response.record.later = later.map(|page| Box::new(PendingResponse::Form(page)));
    }
}

/// Returns whether a request asks for a part of a page or is conditional.
pub(super) fn is_conditional(request: &RequestHead) -> bool {
    request.headers().any(|(name, _)| {
        name.eq_ignore_ascii_case(b"range")
            || (name.len() > 3 && name[..3].eq_ignore_ascii_case(b"if-"))
    })
}
