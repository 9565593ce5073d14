//! Recorded requests as OpenTelemetry's spans, named by its semantic conventions for HTTP. A request is a span of kind
//! server. Its children are the runs, and the times that it waited. Spans contain neither the query nor cookies.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use prost::Message;

use super::random;
use super::recording::{RecordedRequest, RecordedRun, RunnerKind};
use howdah_site::client_address::split_host;

/// The span flags of OTLP. The first says that it is known whether the parent is in another process, the second that it
/// is, and the third that the trace is sampled.
const PARENT_IS_KNOWN: u32 = 0x100;
const PARENT_IS_REMOTE: u32 = 0x200;
const SAMPLED: u32 = 1;

/// The methods after which spans are named (RFC 9110 §9, RFC 5789).
const METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
];

/// Returns one encoded message for the collector, and the number of spans in it.
pub(super) fn encode_message(service: &str, recorded: &[Box<RecordedRequest>]) -> (Bytes, u64) {
    let spans: Vec<Span> = recorded.iter().flat_map(|one| spans(one)).collect();
    let count = spans.len() as u64;
    (request(service, spans).encode_to_vec().into(), count)
}

fn request(service: &str, spans: Vec<Span>) -> ExportTraceServiceRequest {
    let scope = InstrumentationScope {
        name: "howdah".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource {
                attributes: vec![
                    text("service.name", service),
                    text("service.version", env!("CARGO_PKG_VERSION")),
                ],
                ..Resource::default()
            }),
            scope_spans: vec![ScopeSpans {
                scope: Some(scope),
                spans,
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    }
}

/// Returns how many spans a recorded request has.
pub(super) fn count_spans(recorded: &RecordedRequest) -> u64 {
    let recording = &recorded.recording;
    let of = |run: &RecordedRun| 1 + u64::from(run.timing.queued.is_some());
    1 + u64::from(recording.cache.is_some()) + recording.runs.iter().map(of).sum::<u64>()
}

fn spans(recorded: &RecordedRequest) -> Vec<Span> {
    let end = recorded.began + recorded.duration;
    let recording = &recorded.recording;
    let mut spans = vec![server_span(recorded)];
    if let Some((asked, settled)) = recording.cache {
        let mut span = child_span(recorded, "cache", asked, settled.unwrap_or(end));
        if let Some((verdict, why)) = &recorded.cache {
            span.attributes.push(text("howdah.cache", verdict));
            let why = why.iter().map(|why| text("howdah.cache.reason", why));
            span.attributes.extend(why);
        }
        spans.push(span);
    }
    for run in &recording.runs {
        let ended = run.ended.unwrap_or(end);
        let mut claimed = run.began;
        if let Some(waited) = run.timing.queued {
            claimed = ended.min(run.began + waited);
            spans.push(child_span(recorded, "queue", run.began, claimed));
        }
        let mut span = child_span(recorded, run.by.name(), claimed, ended);
        if let RunnerKind::Pool { pool, mode } = &run.by {
            span.attributes.push(text("howdah.pool", pool));
            span.attributes.push(text("howdah.mode", mode));
        }
        let known = [
            ("process.pid", run.pid.map(i64::from)),
            ("howdah.child", run.timing.child.map(i64::from)),
        ];
        let known = known.into_iter();
        span.attributes
            .extend(known.filter_map(|(key, n)| Some(number(key, n?))));
        if run.by == RunnerKind::Server {
            span.kind = SpanKind::Client.into();
        }
        spans.push(span);
    }
    spans
}

impl RunnerKind {
    fn name(&self) -> &'static str {
        match self {
            RunnerKind::Pool { .. } => "php",
            RunnerKind::Server => "upstream",
            RunnerKind::Guard => "authorize",
        }
    }
}

fn server_span(recorded: &RecordedRequest) -> Span {
    let mut attributes = Vec::with_capacity(16);
    let known = METHODS.contains(&&*recorded.method);
    let method = if known { &*recorded.method } else { "_OTHER" };
    attributes.push(text("http.request.method", method));
    if !known {
        attributes.push(text("http.request.method_original", &recorded.method));
    }
    attributes.push(text("url.path", &recorded.path));
    let scheme = if recorded.https { "https" } else { "http" };
    attributes.push(text("url.scheme", scheme));
    let (host, port) = split_host(recorded.host.as_bytes());
    if !host.is_empty() {
        attributes.push(text("server.address", &String::from_utf8_lossy(host)));
    }
    if let Some(port) = port {
        attributes.push(number("server.port", port.into()));
    }
    if let Some(client) = recorded.client {
        attributes.push(text("client.address", &client.to_string()));
    }
    attributes.push(text("network.protocol.version", recorded.version));
    if !recorded.user_agent.is_empty() {
        attributes.push(text("user_agent.original", &recorded.user_agent));
    }
    if recorded.status != 0 {
        let status = recorded.status.into();
        attributes.push(number("http.response.status_code", status));
    }
    let bytes = i64::try_from(recorded.bytes).unwrap_or(i64::MAX);
    attributes.push(number("http.response.body.size", bytes));
    if let Some(error) = recorded.error {
        attributes.push(text("error.type", error));
    }
    attributes.push(text("howdah.site", &recorded.site));
    let id = i64::try_from(recorded.id).unwrap_or(i64::MAX);
    attributes.push(number("howdah.request", id));
    let began = unix_nanoseconds(recorded, recorded.began);
    let first_byte = recorded.recording.first_byte.map(|at| Event {
        time_unix_nano: unix_nanoseconds(recorded, at),
        name: "first byte".to_owned(),
        ..Event::default()
    });
    Span {
        trace_id: recorded.context.trace_id.to_vec(),
        span_id: recorded.context.span_id.to_vec(),
        parent_span_id: recorded.parent.map_or_else(Vec::new, |id| id.to_vec()),
        trace_state: String::from_utf8_lossy(&recorded.state).into_owned(),
        flags: match recorded.parent {
            Some(_) => SAMPLED | PARENT_IS_KNOWN | PARENT_IS_REMOTE,
            None => SAMPLED,
        },
        name: if known { method } else { "HTTP" }.to_owned(),
        kind: SpanKind::Server.into(),
        start_time_unix_nano: began,
        end_time_unix_nano: unix_nanoseconds(recorded, recorded.began + recorded.duration),
        attributes,
        events: first_byte.into_iter().collect(),
        // A 4xx is a mistake of the client, and not an error of a span of kind server.
        status: (recorded.status >= 500).then(|| Status {
            code: StatusCode::Error.into(),
            ..Status::default()
        }),
        ..Span::default()
    }
}

/// Creates a span below the request's.
fn child_span(recorded: &RecordedRequest, name: &str, began: Instant, ended: Instant) -> Span {
    let [id] = random();
    Span {
        trace_id: recorded.context.trace_id.to_vec(),
        span_id: id.max(1).to_be_bytes().to_vec(),
        parent_span_id: recorded.context.span_id.to_vec(),
        trace_state: String::from_utf8_lossy(&recorded.state).into_owned(),
        flags: SAMPLED | PARENT_IS_KNOWN,
        name: name.to_owned(),
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: unix_nanoseconds(recorded, began),
        end_time_unix_nano: unix_nanoseconds(recorded, ended),
        ..Span::default()
    }
}

/// Converts a moment of a request to wall-clock time, relative to the time that was read at its end.
fn unix_nanoseconds(recorded: &RecordedRequest, at: Instant) -> u64 {
    let end = recorded.began + recorded.duration;
    let time: SystemTime = match end.checked_duration_since(at) {
        Some(before) => recorded.ended - before,
        None => recorded.ended,
    };
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

fn number(key: &str, value: i64) -> KeyValue {
    attribute(key, Value::IntValue(value))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}
