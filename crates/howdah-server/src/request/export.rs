//! Hands the record of a request to the exporter of spans.

use std::time::{Duration, Instant, SystemTime};

use howdah_cache::status::CacheVerdict;
use howdah_http::Responder;
use howdah_http::message::HttpVersion;

use super::Front;
use super::context::{RequestContext, RequestRecord};
use crate::failure::Failure;
use howdah_log::traces::recording::{RecordedRequest, Recording, bounded_state, bounded_text};

impl Front {
    /// Sends the spans of a request. It is marked cold because most requests are not recorded.
    #[cold]
    pub(super) fn export(
        &self,
        ctx: RequestContext<'_>,
        record: &RequestRecord,
        recording: Recording,
        out: &Responder,
        (began, duration): (Instant, Duration),
    ) {
        let (Some(traces), Some(traced)) = (&ctx.config.resources.traces, ctx.traced) else {
            return;
        };
        let request = ctx.request;
        let cache = record.cache.map(|verdict| {
            let why = match verdict {
                CacheVerdict::Pass(why) => record.cache_cause().or_else(|| Some(why.to_string())),
                _ => None,
            };
            (verdict.label(), why)
        });
        let host = ctx.client.host.as_deref();
        traces.exporter().send(Box::new(RecordedRequest {
            context: traced.context,
            parent: traced.parent,
            state: bounded_state(&traced.state),
            began,
            duration,
            ended: SystemTime::now(),
            recording,
            method: bounded_text(request.method()),
            path: bounded_text(request.path()),
            host: bounded_text(host.unwrap_or_else(|| request.host())),
            https: ctx.client.https,
            version: match request.version() {
                HttpVersion::Http10 => "1.0",
                HttpVersion::Http11 => "1.1",
                HttpVersion::Http2 => "2",
                HttpVersion::Http3 => "3",
            },
            client: ctx.client.address,
            user_agent: bounded_text(request.header(b"user-agent").unwrap_or_default()),
            status: out.status(),
            bytes: out.body_bytes_sent(),
            site: ctx.site.config().name.as_str().into(),
            id: ctx.id,
            cache,
            error: record.failure.as_deref().map(Failure::name),
        }));
    }
}
