//! Traces: decides which trace a request belongs to and whether it is recorded, and exports the spans.
//!
//! - [`context`]: parses and writes `traceparent` and `tracestate`.
//! - [`recording`]: what is recorded about one request while it is handled.
//! - `otlp`: a recorded request as OpenTelemetry's spans.
//! - [`exporter`]: a bounded queue, and the thread that sends spans to a collector.
//!
//! A caller's trace is always continued, as in Caddy, because a trace ID grants no rights. A request of such a trace is
//! recorded only if the caller asks for it: always for trusted proxies, and at most [`MAX_FOLLOWED_PER_SECOND`] times a
//! second for all other callers together.

pub mod context;
pub mod exporter;
mod otlp;
pub mod recording;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use context::{SpanContext, TRACEPARENT, TRACESTATE, TraceParent};
use exporter::Exporter;
use howdah_http::message::RequestHead;

/// The maximum number of requests per second that are recorded because callers other than trusted proxies ask for it.
pub const MAX_FOLLOWED_PER_SECOND: u64 = 100;

/// Decides which requests are recorded, and owns the exporter of their spans.
pub struct Traces {
    /// A request without a parent is recorded if its random number is at most this. `None` records no such request.
    threshold: Option<u64>,
    follow_limit: FollowedLimit,
    exporter: Arc<Exporter>,
}

/// A request that belongs to a trace.
pub struct TracedRequest {
    /// The request with headers that name its own span as the parent, so the recipient of the request continues the
    /// trace.
    pub head: RequestHead,
    /// The span of the request.
    pub context: SpanContext,
    /// The caller's span, if the request names one.
    pub parent: Option<[u8; 8]>,
    /// The caller's `tracestate`; empty if there is none.
    pub state: Vec<u8>,
    /// Whether its spans are recorded.
    pub sampled: bool,
}

impl Traces {
    /// Creates the state of tracing. `sample` is the share of the requests without a parent that are recorded, from 0
    /// to 1.
    pub fn new(sample: f64, exporter: Arc<Exporter>) -> Traces {
        Traces {
            // The cast saturates.
            threshold: (sample > 0.0).then_some((sample * u64::MAX as f64) as u64),
            follow_limit: FollowedLimit::default(),
            exporter,
        }
    }

    /// Returns the exporter of the spans.
    pub fn exporter(&self) -> &Arc<Exporter> {
        &self.exporter
    }

    /// Finds or creates the trace that a request belongs to. `trusted` means that its headers come from a trusted
    /// proxy.
    pub fn begin(&self, request: &RequestHead, trusted: bool, now: Instant) -> TracedRequest {
        let [first, second, span] = random();
        let parent = TraceParent::of(request);
        let sampled = match &parent {
            None => self.threshold.is_some_and(|threshold| second <= threshold),
            Some(parent) if parent.sampled => trusted || self.follow_limit.admits(now),
            Some(_) => false,
        };
        let trace_id = match &parent {
            Some(parent) => parent.context.trace_id,
            None => trace_id(first, second),
        };
        let context = SpanContext {
            trace_id,
            // Zero means that there is no span.
            span_id: span.max(1).to_be_bytes(),
        };
        let state = parent.as_ref().map_or(&[][..], |parent| &parent.state);
        let head = request.with_fields(&[
            (TRACEPARENT, &context.traceparent(sampled)),
            (TRACESTATE, state),
        ]);
        TracedRequest {
            head,
            context,
            parent: parent.as_ref().map(|parent| parent.context.span_id),
            state: parent.map(|parent| parent.state).unwrap_or_default(),
            sampled,
        }
    }
}

fn trace_id(first: u64, second: u64) -> [u8; 16] {
    let number = u128::from(first) << 64 | u128::from(second);
    number.max(1).to_be_bytes()
}

/// Returns random numbers. Each thread obtains many of them at once from the operating system.
fn random<const N: usize>() -> [u64; N] {
    const MANY: usize = 512;
    thread_local!(static LEFT: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) });
    LEFT.with_borrow_mut(|left| {
        std::array::from_fn(|_| {
            if left.is_empty() {
                let mut bytes = [0; 8 * MANY];
                // This aborts the process if the system has no random numbers.
                let filled = aws_lc_rs::rand::fill(&mut bytes);
                debug_assert!(filled.is_ok());
                let words = bytes.chunks_exact(8);
                left.extend(words.map(|word| {
                    word.iter()
                        .fold(0, |number, byte| number << 8 | u64::from(*byte))
                }));
            }
            left.pop().unwrap_or_default()
        })
    })
}

/// Admits up to [`MAX_FOLLOWED_PER_SECOND`] requests a second. If two threads begin a second at the same time, a few
/// more are admitted.
#[derive(Default)]
struct FollowedLimit {
    second: AtomicU64,
    admitted: AtomicU64,
}

impl FollowedLimit {
    fn admits(&self, now: Instant) -> bool {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        let start = *START.get_or_init(|| now);
        // Seconds are counted from 1, because 0 is the initial value of `second`.
        let second = now.saturating_duration_since(start).as_secs() + 1;
        if self.second.fetch_max(second, Ordering::Relaxed) < second {
            self.admitted.store(0, Ordering::Relaxed);
        }
        self.admitted.fetch_add(1, Ordering::Relaxed) < MAX_FOLLOWED_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::request;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn traces(sample: f64) -> Traces {
        let config = exporter::ExporterConfig::to("http://127.0.0.1:9").unwrap();
        Traces::new(sample, Exporter::start(config, |_| {}).unwrap())
    }

    #[test]
    fn request_without_a_parent_begins_a_trace_and_is_sampled() {
        let plain = request("GET", "/", &[("Host", "h"), ("tracestate", "a=1")]);
        let count = |sample| {
            let traces = traces(sample);
            let mut ids = std::collections::HashSet::new();
            let sampled = (0..2000)
                .filter(|_| {
                    let traced = traces.begin(&plain, false, Instant::now());
                    assert!(ids.insert(traced.context.trace_id));
                    assert_eq!(traced.parent, None);
                    let own = TraceParent::of(&traced.head).unwrap();
                    assert_eq!((own.context, own.sampled), (traced.context, traced.sampled));
                    assert_eq!(traced.head.header(b"tracestate"), None);
                    assert_eq!(traced.head.header(b"host"), Some(&b"h"[..]));
                    traced.sampled
                })
                .count();
            assert_eq!(ids.len(), 2000);
            sampled
        };
        assert_eq!((count(0.0), count(1.0)), (0, 2000));
        let some = count(0.1);
        assert!((100..=300).contains(&some), "{some}");
    }

    #[test]
    fn parents_sampling_decision_is_followed_and_its_headers_are_replaced() {
        let traces = traces(1.0);
        let now = Instant::now();
        let fields = [("Traceparent", PARENT), ("tracestate", "a=1 , b=2")];
        let traced = traces.begin(&request("GET", "/", &fields), false, now);
        assert_eq!(traced.context.trace().to_string(), PARENT[3..35]);
        assert!(traced.sampled && traced.parent.is_some());
        let named: Vec<_> = traced.head.header_all(b"traceparent").collect();
        assert_eq!(named, [&traced.context.traceparent(true)[..]]);
        assert_eq!(traced.head.header(b"tracestate"), Some(&b"a=1 , b=2"[..]));
        let not = PARENT.replace("-01", "-00");
        let traced = traces.begin(&request("GET", "/", &[("traceparent", &not)]), true, now);
        assert!(!traced.sampled);
        assert_eq!(traced.context.trace().to_string(), PARENT[3..35]);
        // An invalid parent is not passed on.
        let fields = [("traceparent", "00-x"), ("tracestate", "a=1")];
        let traced = traces.begin(&request("GET", "/", &fields), false, now);
        assert_eq!(traced.parent, None);
        assert_eq!(traced.head.header_all(b"traceparent").count(), 1);
        assert_eq!(traced.head.header(b"tracestate"), None);
    }

    #[test]
    fn sampling_is_limited_for_strangers_and_not_for_trusted_proxies() {
        let traces = traces(0.0);
        let asked = request("GET", "/", &[("traceparent", PARENT)]);
        let start = Instant::now();
        let recorded = |trusted, now| {
            (0..2 * MAX_FOLLOWED_PER_SECOND)
                .filter(|_| traces.begin(&asked, trusted, now).sampled)
                .count() as u64
        };
        assert_eq!(recorded(true, start), 2 * MAX_FOLLOWED_PER_SECOND);
        assert_eq!(recorded(false, start), MAX_FOLLOWED_PER_SECOND);
        let later = start + Duration::from_secs(1);
        assert_eq!(recorded(false, later), MAX_FOLLOWED_PER_SECOND);
    }
}
