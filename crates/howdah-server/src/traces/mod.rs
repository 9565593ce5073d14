//! Traces: which request belongs to which trace, what of it is recorded, and where the spans go.
//!
//! - [`context`]: `traceparent` and `tracestate`, as bytes and as values.
//! - [`recording`]: what is recorded of one request while it is answered.
//! - `otlp`: a recorded request as OpenTelemetry's spans.
//! - [`exporter`]: a bounded queue, and the thread that sends spans to a collector.
//!
//! Every caller's trace is continued, as Caddy does: its number gives no rights. A caller's decision to record
//! it is followed: always for trusted proxies, [`MOST_FOLLOWED`] times a second for all others together.

pub mod context;
pub mod exporter;
mod otlp;
pub mod recording;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use context::{Parent, SpanContext, TRACEPARENT, TRACESTATE};
use exporter::Exporter;
use howdah_http::message::RequestHead;

/// Requests a second that callers other than trusted proxies can have recorded, all together.
pub const MOST_FOLLOWED: u64 = 100;

/// What decides about traces, and who takes the recorded ones.
pub struct Traces {
    /// Of requests without a parent, those whose random number is not above are recorded. None: none.
    threshold: Option<u64>,
    followed: PerSecond,
    exporter: Arc<Exporter>,
}

/// A request that belongs to a trace.
pub struct Traced {
    /// The request with the fields that name its own span as the parent: whoever gets the request continues
    /// the trace.
    pub head: RequestHead,
    /// The span of the request.
    pub context: SpanContext,
    /// The caller's span.
    pub parent: Option<[u8; 8]>,
    /// The `tracestate` that came with it.
    pub state: Vec<u8>,
    /// Spans of it are recorded.
    pub sampled: bool,
}

impl Traces {
    /// Records this share of the requests without a parent, from 0 to 1.
    pub fn new(sample: f64, exporter: Arc<Exporter>) -> Traces {
        Traces {
            // The cast saturates.
            threshold: (sample > 0.0).then_some((sample * u64::MAX as f64) as u64),
            followed: PerSecond::default(),
            exporter,
        }
    }

    /// Where the spans go.
    pub fn exporter(&self) -> &Arc<Exporter> {
        &self.exporter
    }

    /// Finds or makes the trace that a request belongs to. `trusted`: its fields are those of a proxy that
    /// may speak for others.
    pub fn begin(&self, request: &RequestHead, trusted: bool, now: Instant) -> Traced {
        let [first, second, span] = random();
        let parent = Parent::of(request);
        let sampled = match &parent {
            None => self.threshold.is_some_and(|threshold| second <= threshold),
            Some(parent) if parent.sampled => trusted || self.followed.admits(now),
            Some(_) => false,
        };
        let trace_id = match &parent {
            Some(parent) => parent.context.trace_id,
            None => trace_id(first, second),
        };
        let context = SpanContext {
            trace_id,
            // Zero means none.
            span_id: span.max(1).to_be_bytes(),
        };
        let state = parent.as_ref().map_or(&[][..], |parent| &parent.state);
        let head = request.with_fields(&[
            (TRACEPARENT, &context.traceparent(sampled)),
            (TRACESTATE, state),
        ]);
        Traced {
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

/// Random numbers. The operating system gives many at once to each thread.
fn random<const N: usize>() -> [u64; N] {
    const MANY: usize = 512;
    thread_local!(static LEFT: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) });
    LEFT.with_borrow_mut(|left| {
        std::array::from_fn(|_| {
            if left.is_empty() {
                let mut bytes = [0; 8 * MANY];
                // It ends the process where the system has no random numbers.
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

/// Admits up to [`MOST_FOLLOWED`] a second. Where two threads begin a second at once a few more pass.
#[derive(Default)]
struct PerSecond {
    second: AtomicU64,
    admitted: AtomicU64,
}

impl PerSecond {
    fn admits(&self, now: Instant) -> bool {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        let start = *START.get_or_init(|| now);
        // From 1: the first second is one, too.
        let second = now.saturating_duration_since(start).as_secs() + 1;
        if self.second.fetch_max(second, Ordering::Relaxed) < second {
            self.admitted.store(0, Ordering::Relaxed);
        }
        self.admitted.fetch_add(1, Ordering::Relaxed) < MOST_FOLLOWED
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
    fn a_request_without_a_parent_begins_a_trace_and_is_recorded_by_chance() {
        let plain = request("GET", "/", &[("Host", "h"), ("tracestate", "a=1")]);
        let count = |sample| {
            let traces = traces(sample);
            let mut ids = std::collections::HashSet::new();
            let sampled = (0..2000)
                .filter(|_| {
                    let traced = traces.begin(&plain, false, Instant::now());
                    assert!(ids.insert(traced.context.trace_id));
                    assert_eq!(traced.parent, None);
                    let own = Parent::of(&traced.head).unwrap();
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
    fn a_parents_decision_is_followed_and_its_fields_are_replaced() {
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
        // A wrong one is not passed on.
        let fields = [("traceparent", "00-x"), ("tracestate", "a=1")];
        let traced = traces.begin(&request("GET", "/", &fields), false, now);
        assert_eq!(traced.parent, None);
        assert_eq!(traced.head.header_all(b"traceparent").count(), 1);
        assert_eq!(traced.head.header(b"tracestate"), None);
    }

    #[test]
    fn strangers_have_a_limited_number_of_requests_recorded_and_trusted_proxies_have_all() {
        let traces = traces(0.0);
        let asked = request("GET", "/", &[("traceparent", PARENT)]);
        let start = Instant::now();
        let recorded = |trusted, now| {
            (0..2 * MOST_FOLLOWED)
                .filter(|_| traces.begin(&asked, trusted, now).sampled)
                .count() as u64
        };
        assert_eq!(recorded(true, start), 2 * MOST_FOLLOWED);
        assert_eq!(recorded(false, start), MOST_FOLLOWED);
        let later = start + Duration::from_secs(1);
        assert_eq!(recorded(false, later), MOST_FOLLOWED);
    }
}
