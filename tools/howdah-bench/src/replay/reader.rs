//! The thread that reads a log, and the arrivals that it gives to the workers.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use flate2::read::MultiGzDecoder;

use super::ReplayedRequest;
use super::line::{self, LineFault, LoggedRequest};
use super::order::{ArrivalOrder, TimedRequest};
use crate::error::BenchError;
use crate::plan::{Arrivals, Plan};
use crate::run::replay::{FaultyLines, LogSummary};

/// The maximum length of a line, in bytes.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// How many arrivals wait for a worker before the reader waits for it.
const MAX_QUEUED: usize = 4096;

/// The maximum number of other methods that are counted by name. A client may make up any number of them.
const MAX_METHODS: usize = 16;

/// A request of the log, and when it is due.
#[derive(Debug)]
pub struct LogArrival {
    /// In nanoseconds from the first request of the log, at the speed of the replay.
    pub due: u64,
    /// What to request.
    pub request: Box<ReplayedRequest>,
}

/// The arrivals of one worker.
#[derive(Debug)]
pub struct LogArrivals {
    receiver: Receiver<LogArrival>,
    next: Option<LogArrival>,
    has_ended: bool,
}

impl LogArrivals {
    /// Waits until the reader has found the worker's first request, or the end of the log.
    fn new(receiver: Receiver<LogArrival>) -> LogArrivals {
        let next = receiver.recv().ok();
        LogArrivals {
            receiver,
            has_ended: next.is_none(),
            next,
        }
    }

    /// Returns when the next request is due. `None` if there are no more, or the reader has not found it yet
    /// ([`LogArrivals::has_ended`]).
    pub fn peek(&self) -> Option<u64> {
        self.next.as_ref().map(|arrival| arrival.due)
    }

    /// Returns whether there are no more requests.
    pub fn has_ended(&self) -> bool {
        self.has_ended && self.next.is_none()
    }

    /// Looks for the next request, if there is none at hand.
    pub fn fill(&mut self) {
        if self.next.is_none() && !self.has_ended {
            match self.receiver.try_recv() {
                Ok(arrival) => self.next = Some(arrival),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => self.has_ended = true,
            }
        }
    }

    /// Takes the next request.
    pub fn take(&mut self) -> Option<LogArrival> {
        let taken = self.next.take();
        self.fill();
        taken
    }
}

/// A log that is being read.
#[derive(Debug)]
pub struct LogReader {
    thread: JoinHandle<LogSummary>,
    path: PathBuf,
}

impl LogReader {
    /// Starts to read the log of a plan. Returns the reader and the arrivals of each worker, or `None` if the plan has
    /// no log. Fails if the file cannot be read or has no request to replay.
    pub fn start(plan: &Plan) -> Result<Option<(LogReader, Vec<LogArrivals>)>, BenchError> {
        let (Some(log), Arrivals::Log { speed, .. }) = (&plan.log, plan.arrivals) else {
            return Ok(None);
        };
        let input = open(&log.path).map_err(|e| BenchError::MissingFile {
            path: log.path.clone(),
            why: e.to_string(),
        })?;
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..plan.threads).map(|_| sync_channel(MAX_QUEUED)).unzip();
        let feed = Feed {
            senders,
            speed,
            limit: plan.stop.requests.unwrap_or(u64::MAX),
            sent: 0,
            first: None,
            last: 0,
            is_over: false,
        };
        let thread = std::thread::Builder::new()
            .name("bench-log".to_owned())
            .spawn(move || read(input, feed))
            .map_err(|e| BenchError::System {
                what: "starting a thread".to_owned(),
                why: e.to_string(),
            })?;
        let arrivals: Vec<_> = receivers.into_iter().map(LogArrivals::new).collect();
        let reader = LogReader {
            thread,
            path: log.path.clone(),
        };
        if arrivals.iter().all(LogArrivals::has_ended) {
            let path = reader.path.clone();
            let summary = reader.finish();
            return Err(BenchError::Impossible(format!(
                "{} has no request that can be replayed (GET or HEAD, with a time, a path and a status): {}",
                path.display(),
                summary.skipped_sentence()
            )));
        }
        Ok(Some((reader, arrivals)))
    }

    /// Waits for the end of the thread, which ends as soon as no worker takes requests any more, and returns what it
    /// has read.
    pub fn finish(self) -> LogSummary {
        let summary = self.thread.join();
        summary.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Opens a log, which may be compressed with gzip.
fn open(path: &Path) -> io::Result<Box<dyn BufRead + Send>> {
    let mut file = BufReader::with_capacity(256 << 10, File::open(path)?);
    let is_compressed = file.fill_buf()?.starts_with(&[0x1f, 0x8b]);
    Ok(if is_compressed {
        // A log that was rotated and appended to has several members.
        Box::new(BufReader::with_capacity(
            256 << 10,
            MultiGzDecoder::new(file),
        ))
    } else {
        Box::new(file)
    })
}

/// Distributes requests among the workers in turn.
struct Feed {
    senders: Vec<SyncSender<LogArrival>>,
    speed: f64,
    /// The maximum number of requests.
    limit: u64,
    sent: u64,
    /// The arrival of the first and the last request, in nanoseconds since 1970.
    first: Option<i64>,
    last: i64,
    /// Whether the limit is reached, or a worker takes no more requests.
    is_over: bool,
}

impl Feed {
    fn send(&mut self, at: i64, request: ReplayedRequest) {
        if self.is_over || self.sent >= self.limit {
            self.is_over = true;
            return;
        }
        let first = *self.first.get_or_insert(at);
        let offset = at.saturating_sub(first).max(0);
        let arrival = LogArrival {
            due: (offset as f64 / self.speed) as u64,
            request: Box::new(request),
        };
        let worker = (self.sent % self.senders.len() as u64) as usize;
        if self.senders[worker].send(arrival).is_err() {
            self.is_over = true;
            return;
        }
        self.sent += 1;
        self.last = at;
    }
}

fn read(mut input: impl BufRead, mut feed: Feed) -> LogSummary {
    let mut summary = LogSummary::default();
    let mut order = ArrivalOrder::default();
    let mut bytes = Vec::new();
    while !feed.is_over {
        bytes.clear();
        match next_line(&mut input, &mut bytes) {
            Ok(false) => break,
            Ok(true) => {}
            Err(error) => {
                summary.read_error = Some(error.to_string());
                break;
            }
        }
        summary.lines += 1;
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        let parsed = if bytes.len() as u64 > MAX_LINE_BYTES {
            Err(LineFault::TooLong)
        } else {
            line::parse(&bytes)
        };
        let line = match parsed {
            Ok(line) => line,
            Err(fault) => {
                let faulty = summary.faulty.entry(fault).or_insert(FaultyLines {
                    count: 0,
                    first: summary.lines,
                });
                faulty.count += 1;
                continue;
            }
        };
        match line.request {
            LoggedRequest::Page { head, target } => {
                summary.whole_seconds |= line.whole_second;
                let request = TimedRequest {
                    time: line.time,
                    whole_second: line.whole_second,
                    duration: line.duration,
                    request: ReplayedRequest {
                        head,
                        target,
                        status: line.status,
                        line: summary.lines,
                    },
                };
                order.push(request, &mut |at, request| feed.send(at, request));
            }
            LoggedRequest::OtherMethod(method) => {
                let known = summary.other_methods.len() < MAX_METHODS
                    || summary.other_methods.contains_key(&method);
                let name = if known { method } else { "others".to_owned() };
                *summary.other_methods.entry(name).or_default() += 1;
            }
            LoggedRequest::NoPath => summary.no_path += 1,
        }
    }
    order.finish(&mut |at, request| feed.send(at, request));
    summary.clock_jumps = order.clock_jumps;
    summary.moved = order.moved;
    summary.released = feed.sent;
    summary.first = feed.first.map(|at| at as f64 / 1e9);
    summary.last = feed.first.map(|_| feed.last as f64 / 1e9);
    summary
}

/// Reads a line without its line feed. Of a line that is too long, a part is kept that is also too long. Returns false
/// at the end.
fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    let length = input
        .by_ref()
        .take(MAX_LINE_BYTES + 1)
        .read_until(b'\n', line)?;
    if length == 0 {
        return Ok(false);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if length as u64 > MAX_LINE_BYTES {
        input.skip_until(b'\n')?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read_all(log: &[u8], speed: f64, limit: u64) -> (Vec<(u64, String)>, LogSummary) {
        let (sender, receiver) = sync_channel(10_000);
        let feed = Feed {
            senders: vec![sender],
            speed,
            limit,
            sent: 0,
            first: None,
            last: 0,
            is_over: false,
        };
        let summary = read(log, feed);
        let taken = receiver.iter();
        let taken = taken.map(|arrival| (arrival.due / 1_000_000, arrival.request.target));
        (taken.collect(), summary)
    }

    fn line(time: &str, request: &str, status: u16) -> String {
        format!("::1 - - [29/Nov/2026:09:{time} +0000] \"{request}\" {status} 1\n")
    }

    #[test]
    fn log_is_read_to_arrivals_at_a_speed() {
        let mut log = line("00:00", "GET /a HTTP/1.1", 200);
        log += &line("00:00", "POST /form HTTP/1.1", 303);
        log += &line("00:00", "HEAD /b HTTP/1.1", 200);
        log += "\nnonsense\n";
        log += &line("00:04", "GET /c HTTP/1.1", 304);
        log += &line("00:04", "GET http://other.example/ HTTP/1.1", 200);
        log += &line("00:05", "GET /d HTTP/1.1", 200);
        log.truncate(log.len() - 1);
        for (speed, factor) in [(1.0, 1), (10.0, 10), (2.0, 2)] {
            let (arrivals, summary) = read_all(log.as_bytes(), speed, u64::MAX);
            let due = [(0, "/a"), (500, "/b"), (4000, "/c"), (5000, "/d")];
            let due = due.map(|(due, target)| (due / factor, target.to_owned()));
            assert_eq!(arrivals, due, "{speed}");
            assert_eq!((summary.lines, summary.released), (8, 4));
            assert_eq!(summary.other_methods["POST"], 1);
            assert_eq!(summary.no_path, 1);
            let faulty = FaultyLines { count: 1, first: 5 };
            assert_eq!(summary.faulty[&LineFault::NoTime], faulty);
            assert!(summary.whole_seconds && summary.read_error.is_none());
        }
        assert_eq!(read_all(log.as_bytes(), 1.0, 2).0.len(), 2);
        assert_eq!(read_all(b"", 1.0, 2).1.lines, 0);
    }

    #[test]
    fn compressed_log_is_read_and_a_damaged_one_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log.1.gz");
        let mut bytes = Vec::new();
        for part in ["00:00", "00:01"] {
            let mut gz = flate2::write::GzEncoder::new(bytes, flate2::Compression::fast());
            gz.write_all(line(part, "GET / HTTP/1.1", 200).as_bytes())
                .unwrap();
            bytes = gz.finish().unwrap();
        }
        std::fs::write(&path, &bytes).unwrap();
        let read_file = || {
            let mut text = Vec::new();
            let result = open(&path).unwrap().read_to_end(&mut text);
            result.map(|_| text)
        };
        let (arrivals, _) = read_all(&read_file().unwrap(), 1.0, u64::MAX);
        assert_eq!(arrivals.len(), 2);
        std::fs::write(&path, &bytes[..bytes.len() - 9]).unwrap();
        assert!(read_file().is_err());
    }

    #[test]
    fn long_lines_are_skipped() {
        let mut log = "x".repeat(3 * MAX_LINE_BYTES as usize);
        log.push('\n');
        log += &line("00:00", "GET /a HTTP/1.1", 200);
        let (arrivals, summary) = read_all(log.as_bytes(), 1.0, u64::MAX);
        assert_eq!(arrivals.len(), 1);
        assert_eq!(summary.lines, 2);
        assert_eq!(summary.faulty[&LineFault::TooLong].count, 1);
    }
}
