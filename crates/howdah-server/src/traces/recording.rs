//! What is recorded of one request while it is answered. Moments only: nothing is formatted here.

use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use howdah_executor::RunTiming;

use super::Traced;
use super::context::SpanContext;

/// Runs of one request that are recorded: guards, scripts after local redirects.
const MOST_RUNS: usize = 8;
/// Bytes that are kept of a text that the client chose.
const LONGEST_TEXT: usize = 1024;
/// Bytes that spans have of a `tracestate`: what everybody keeps at least (Trace Context §3.3.1.5). Without
/// a limit each span of a request would have 16 KiB of it, and the queue a hundred megabytes.
const LONGEST_STATE: usize = 512;

/// The moments of a request so far.
#[derive(Debug, Default)]
pub struct Recording {
    /// Parts of the answering by somebody else, in order.
    pub(super) runs: Vec<Run>,
    /// When a page was looked for in the page cache, and when that was settled.
    pub(super) cache: Option<(Instant, Option<Instant>)>,
    /// When the response's head was handed to the connection.
    pub(super) first_byte: Option<Instant>,
}

/// A part of the answering: a script or program in a pool, a request to another server.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) by: RunBy,
    pub(super) began: Instant,
    pub(super) ended: Option<Instant>,
    pub(super) timing: RunTiming,
    /// The process that ran it, if it is one of ours.
    pub(super) pid: Option<i32>,
}

/// Who does a part of the answering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunBy {
    /// A process of a pool, with the name of the pool's mode.
    Pool {
        /// The pool's name.
        pool: Box<str>,
        /// What the pool's executor calls its mode.
        mode: &'static str,
    },
    /// Another server, for a `proxy` rule.
    Server,
    /// Who is asked whether the request may be answered.
    Guard,
}

impl Recording {
    /// An empty recording for a request that is sampled.
    pub fn of(traced: Option<&Traced>) -> Option<Box<Recording>> {
        traced.filter(|traced| traced.sampled)?;
        Some(Box::default())
    }

    /// A run begins.
    pub fn begin_run(&mut self, by: RunBy) {
        let now = Instant::now();
        self.settle_cache(now);
        if self.runs.len() < MOST_RUNS {
            self.runs.push(Run {
                by,
                began: now,
                ended: None,
                timing: RunTiming::default(),
                pid: None,
            });
        }
    }

    /// The last run is over.
    pub fn end_run(&mut self, timing: RunTiming, pid: Option<i32>) {
        if let Some(run) = self.runs.last_mut().filter(|run| run.ended.is_none()) {
            (run.ended, run.timing, run.pid) = (Some(Instant::now()), timing, pid);
        }
    }

    /// The page cache is asked.
    pub fn ask_cache(&mut self) {
        self.cache.get_or_insert_with(|| (Instant::now(), None));
    }

    /// What the page cache says is settled.
    pub fn settle_cache(&mut self, now: Instant) {
        if let Some((_, settled)) = &mut self.cache {
            settled.get_or_insert(now);
        }
    }

    /// The response has begun.
    pub fn first_byte(&mut self) {
        self.first_byte.get_or_insert_with(Instant::now);
    }
}

/// A request that has been answered, as the exporter gets it.
#[derive(Debug)]
pub struct Recorded {
    /// The request's own span.
    pub context: SpanContext,
    /// The caller's span.
    pub parent: Option<[u8; 8]>,
    /// The `tracestate` of the request.
    pub state: Vec<u8>,
    /// When the request had been read.
    pub began: Instant,
    /// How long answering it took.
    pub duration: Duration,
    /// The time at its end.
    pub ended: SystemTime,
    /// What happened meanwhile.
    pub recording: Recording,
    /// The request's method.
    pub method: Box<str>,
    /// The path of its target, without the query.
    pub path: Box<str>,
    /// The host it asks for, with its port if it gave one.
    pub host: Box<str>,
    /// The client's connection was encrypted.
    pub https: bool,
    /// `1.1`, `2` and so on.
    pub version: &'static str,
    /// The client; none: whoever is at the other end of a unix socket.
    pub client: Option<IpAddr>,
    /// What the client calls itself.
    pub user_agent: Box<str>,
    /// The status of the answer; 0: the client left before there was one.
    pub status: u16,
    /// Bytes of the answer's body.
    pub bytes: u64,
    /// The site's name in the configuration.
    pub site: Box<str>,
    /// The number of the request in the logs.
    pub id: u64,
    /// What the page cache did, and why.
    pub cache: Option<(&'static str, Option<String>)>,
    /// The one name of what went wrong.
    pub error: Option<&'static str>,
}

/// What a client wrote, as text of bounded length.
pub fn text(bytes: &[u8]) -> Box<str> {
    let bytes = &bytes[..bytes.len().min(LONGEST_TEXT)];
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    // What stands for a wrong byte is three bytes long.
    text.truncate(text.floor_char_boundary(LONGEST_TEXT));
    text.into()
}

/// The first members of a `tracestate`, as many as spans keep. The request is passed on with all of them.
pub fn state(whole: &[u8]) -> Vec<u8> {
    let end = match whole.get(..=LONGEST_STATE) {
        Some(longer) => longer.iter().rposition(|b| *b == b',').unwrap_or(0),
        None => whole.len(),
    };
    whole[..end].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_wrote_is_bounded() {
        assert_eq!(&*text(b"/a"), "/a");
        assert_eq!(text(&[b'a'; 2000]).len(), LONGEST_TEXT);
        let wrong = text(&[0xff; 2000]);
        assert!(wrong.len() <= LONGEST_TEXT && wrong.chars().all(|c| c == '\u{fffd}'));
        assert_eq!(state(b"a=1,b=2"), b"a=1,b=2");
        let member = [&b"a="[..], &[b'v'; 254]].concat();
        let two = [&member[..], b",", &member[..255]].concat();
        assert_eq!((two.len(), state(&two)), (LONGEST_STATE, two.clone()));
        let longer = [&two[..], b",c=3"].concat();
        assert_eq!(state(&longer), two);
        assert_eq!(state(&[&two[..], b"v,c=3"].concat()), member);
    }
}
