//! Records points in time and properties of one request while it is handled. Nothing is formatted here.

use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use howdah_executor::RunTiming;

use super::TracedRequest;
use super::context::SpanContext;

/// The maximum number of runs that are recorded for one request. A request has several runs if guards check it, or if a
/// script redirects it locally.
const MAX_RECORDED_RUNS: usize = 8;
/// The maximum length of a recorded text from the client, in bytes.
const MAX_TEXT_BYTES: usize = 1024;
/// The maximum number of bytes of a `tracestate` that a span contains. It is the minimum that every participant should
/// propagate (Trace Context §3.3.1.5). Without a limit, each span of a request could contain 16 KiB of it, and the
/// queue a hundred megabytes.
const MAX_STATE_BYTES: usize = 512;

/// The moments of a request so far.
#[derive(Debug, Default)]
pub struct Recording {
    /// The runs of the request, in order.
    pub(super) runs: Vec<RecordedRun>,
    /// When the page cache was consulted, and when its result was final.
    pub(super) cache: Option<(Instant, Option<Instant>)>,
    /// When the response's header was handed to the connection.
    pub(super) first_byte: Option<Instant>,
}

/// A part of handling the request: a script or program in a pool, a request to another server.
#[derive(Debug)]
pub(super) struct RecordedRun {
    pub(super) by: RunnerKind,
    pub(super) began: Instant,
    pub(super) ended: Option<Instant>,
    pub(super) timing: RunTiming,
    /// The process that ran it, if it belongs to this server.
    pub(super) pid: Option<i32>,
}

/// The component that carries out a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunnerKind {
    /// A process of a pool, with the name of the pool's mode.
    Pool {
        /// The pool's name.
        pool: Box<str>,
        /// The name of the executor's mode.
        mode: &'static str,
    },
    /// Another server, for a `proxy` rule.
    Server,
    /// A guard that decides whether the request is permitted.
    Guard,
}

impl Recording {
    /// Returns an empty recording if the request is sampled, and `None` otherwise.
    pub fn of(traced: Option<&TracedRequest>) -> Option<Box<Recording>> {
        traced.filter(|traced| traced.sampled)?;
        Some(Box::default())
    }

    /// Records that a run begins.
    pub fn begin_run(&mut self, by: RunnerKind) {
        let now = Instant::now();
        self.settle_cache(now);
        if self.runs.len() < MAX_RECORDED_RUNS {
            self.runs.push(RecordedRun {
                by,
                began: now,
                ended: None,
                timing: RunTiming::default(),
                pid: None,
            });
        }
    }

    /// Records that the last run has ended.
    pub fn end_run(&mut self, timing: RunTiming, pid: Option<i32>) {
        if let Some(run) = self.runs.last_mut().filter(|run| run.ended.is_none()) {
            (run.ended, run.timing, run.pid) = (Some(Instant::now()), timing, pid);
        }
    }

    /// Records that the page cache is consulted.
    pub fn begin_cache(&mut self) {
        self.cache.get_or_insert_with(|| (Instant::now(), None));
    }

    /// Records that the result of the page cache is final.
    pub fn settle_cache(&mut self, now: Instant) {
        if let Some((_, settled)) = &mut self.cache {
            settled.get_or_insert(now);
        }
    }

    /// Records that the response has begun.
    pub fn first_byte(&mut self) {
        self.first_byte.get_or_insert_with(Instant::now);
    }
}

/// A request that has been answered, as it is handed to the exporter.
#[derive(Debug)]
pub struct RecordedRequest {
    /// The request's own span.
    pub context: SpanContext,
    /// The caller's span.
    pub parent: Option<[u8; 8]>,
    /// The `tracestate` of the request.
    pub state: Vec<u8>,
    /// When the request had been read.
    pub began: Instant,
    /// How long handling it took.
    pub duration: Duration,
    /// The time at its end.
    pub ended: SystemTime,
    /// The moments in between.
    pub recording: Recording,
    /// The request's method.
    pub method: Box<str>,
    /// The path of its target, without the query.
    pub path: Box<str>,
    /// The requested host, with its port if one was given.
    pub host: Box<str>,
    /// Whether the client's connection was encrypted.
    pub https: bool,
    /// `1.1`, `2` and so on.
    pub version: &'static str,
    /// The client; `None` for the peer of a unix socket.
    pub client: Option<IpAddr>,
    /// The value of `User-Agent`.
    pub user_agent: Box<str>,
    /// The status of the response; 0 if the client disconnected before there was one.
    pub status: u16,
    /// The number of bytes of the response body.
    pub bytes: u64,
    /// The site's name in the configuration.
    pub site: Box<str>,
    /// The number of the request in the logs.
    pub id: u64,
    /// What the page cache did, and why.
    pub cache: Option<(&'static str, Option<String>)>,
    /// The name of the failure.
    pub error: Option<&'static str>,
}

/// Converts bytes from the client to text of bounded length.
pub fn bounded_text(bytes: &[u8]) -> Box<str> {
    let bytes = &bytes[..bytes.len().min(MAX_TEXT_BYTES)];
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    // The replacement for an invalid byte is three bytes long.
    text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
    text.into()
}

/// Returns the first members of a `tracestate`, as many as spans contain. The request itself is forwarded with all of
/// them.
pub fn bounded_state(whole: &[u8]) -> Vec<u8> {
    let end = match whole.get(..=MAX_STATE_BYTES) {
        Some(longer) => longer.iter().rposition(|b| *b == b',').unwrap_or(0),
        None => whole.len(),
    };
    whole[..end].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded_text_and_state_are_cut() {
        assert_eq!(&*bounded_text(b"/a"), "/a");
        assert_eq!(bounded_text(&[b'a'; 2000]).len(), MAX_TEXT_BYTES);
        let wrong = bounded_text(&[0xff; 2000]);
        assert!(wrong.len() <= MAX_TEXT_BYTES && wrong.chars().all(|c| c == '\u{fffd}'));
        assert_eq!(bounded_state(b"a=1,b=2"), b"a=1,b=2");
        let member = [&b"a="[..], &[b'v'; 254]].concat();
        let two = [&member[..], b",", &member[..255]].concat();
        assert_eq!(
            (two.len(), bounded_state(&two)),
            (MAX_STATE_BYTES, two.clone())
        );
        let longer = [&two[..], b",c=3"].concat();
        assert_eq!(bounded_state(&longer), two);
        assert_eq!(bounded_state(&[&two[..], b"v,c=3"].concat()), member);
    }
}
