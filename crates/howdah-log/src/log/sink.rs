//! The destination of log lines: they go to memory first, then a thread of the sink writes them. A full disk, a stuck
//! pipe or a slow terminal never makes a request wait; lines beyond [`MAX_BUFFERED_BYTES`] are dropped and counted, and
//! a watcher can be notified ([`LogSink::watch`]). A line that a full disk cuts off is completed when there is room
//! again. This module does not depend on the format of lines.
//!
//! Threads write to different buffers, so two front threads do not compete for one lock. Lines of different threads may
//! be out of order by up to the sink's delay.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::daemon::DaemonTarget;
use super::message::DaemonSender;

/// How many bytes one buffer may hold while the writer is behind; that is 28 000 lines of 150 bytes, the usual length
/// in the combined format.
pub const MAX_BUFFERED_BYTES: usize = 4 << 20;
/// A buffer of this size is written without waiting for the delay.
const WRITE_THRESHOLD_BYTES: usize = 64 << 10;
const BUFFER_SHARDS: usize = 16;

/// The target that a log is written to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogTarget {
    /// A file, opened for appending and created with mode 0640 if it is missing.
    File(PathBuf),
    /// The server's standard output.
    Stdout,
    /// The server's standard error.
    Stderr,
    /// A syslog daemon, or the journal.
    Daemon(DaemonTarget),
}

impl LogTarget {
    /// Returns whether lines should have fields after their text ([`super::message`]).
    pub fn takes_fields(&self) -> bool {
        matches!(self, LogTarget::Daemon(target) if target.takes_fields())
    }

    fn open(&self, log: &'static str) -> io::Result<LogOutput> {
        Ok(match self {
            LogTarget::File(path) => {
                use std::os::unix::fs::OpenOptionsExt;
                let mut options = OpenOptions::new();
                options.append(true).create(true).mode(0o640);
                LogOutput::File(options.open(path)?)
            }
            LogTarget::Stdout => LogOutput::Stdout,
            LogTarget::Stderr => LogOutput::Stderr,
            LogTarget::Daemon(target) => {
                LogOutput::Daemon(Box::new(DaemonSender::open(target, log)?))
            }
        })
    }
}

enum LogOutput {
    File(File),
    Stdout,
    Stderr,
    Daemon(Box<DaemonSender>),
}

impl LogOutput {
    /// Writes some of the bytes, like write(2).
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let written = rustix::io::retry_on_intr(|| match self {
            LogOutput::File(file) => rustix::io::write(file, bytes),
            LogOutput::Stdout => rustix::io::write(io::stdout().as_fd(), bytes),
            LogOutput::Stderr => rustix::io::write(io::stderr().as_fd(), bytes),
            // A daemon receives whole lines; see `OutputWriter::write`.
            LogOutput::Daemon(_) => Err(rustix::io::Errno::INVAL),
        });
        Ok(written?)
    }
}

/// Writes lines to an output.
struct OutputWriter {
    output: LogOutput,
    /// The end of a line that could be written only in part.
    rest: Vec<u8>,
}

impl OutputWriter {
    /// Writes whole lines. The error contains the number of lines that are lost. A line that is cut off is not lost:
    /// its end is kept, and the next call writes it first.
    fn write(&mut self, lines: &[u8]) -> Result<(), (u64, io::Error)> {
        if let LogOutput::Daemon(messages) = &mut self.output {
            return messages.write(lines);
        }
        let rest = std::mem::take(&mut self.rest);
        if let Err((at, error)) = self.write_all(&rest) {
            self.rest = rest[at..].to_vec();
            return Err((count_lines(lines), error));
        }
        self.write_all(lines).map_err(|(at, error)| {
            let mut left = &lines[at..];
            if lines[..at].last().is_some_and(|byte| *byte != b'\n') {
                let end = left.iter().position(|byte| *byte == b'\n');
                let (cut_off, others) = left.split_at(end.map_or(left.len(), |end| end + 1));
                self.rest = cut_off.to_vec();
                left = others;
            }
            (count_lines(left), error)
        })
    }

    /// Writes all of `bytes`. The error contains the number of bytes written before it.
    fn write_all(&self, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        let mut at = 0;
        while at < bytes.len() {
            match self.output.write(&bytes[at..]) {
                Ok(0) => return Err((at, io::ErrorKind::WriteZero.into())),
                Ok(n) => at += n,
                Err(error) => return Err((at, error)),
            }
        }
        Ok(())
    }
}

fn count_lines(lines: &[u8]) -> u64 {
    lines.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// A change in whether lines can be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkEvent {
    /// Lines are lost from now on.
    Losing {
        /// Why lines are lost: the error of a write, or that the log is written too slowly.
        why: String,
    },
    /// Lines are written again.
    Recovered {
        /// How many lines were lost meanwhile.
        lost: u64,
    },
}

type SinkWatcher = Box<dyn Fn(SinkEvent) + Send + Sync>;

struct SinkState {
    log: &'static str,
    delay: Duration,
    shards: [Mutex<Vec<u8>>; BUFFER_SHARDS],
    /// The writer sleeps until a line, a request or the stop flag wakes it.
    asleep: AtomicBool,
    stopping: AtomicBool,
    dropped: AtomicU64,
    /// Set while lines are lost and the watcher has been notified.
    losing: AtomicBool,
    watcher: OnceLock<SinkWatcher>,
    /// Requests to the writer and their outcome; `done` is notified of the outcome.
    requests: Mutex<WriterRequests>,
    done: Condvar,
}

/// The target that the writer continues with when the log is reopened.
enum ReopenTarget {
    /// The same target, opened again.
    Same,
    /// The same target, whose file has already been opened.
    File(File),
    /// Another target, with its file if that is already open.
    Other(LogTarget, Option<File>),
}

#[derive(Default)]
struct WriterRequests {
    flushes_requested: u64,
    flushes_done: u64,
    reopen: Option<ReopenTarget>,
    reopened: u64,
    reopen_result: Option<io::Error>,
}

/// A log's buffers and its writer. Dropping the sink writes the remaining lines.
pub struct LogSink {
    shared: Arc<SinkState>,
    writer: Thread,
    join: Option<JoinHandle<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while a line was being appended leaves at worst half a line.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shard_of_this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static MINE: Cell<Option<usize>> = const { Cell::new(None) });
    MINE.with(|mine| {
        mine.get().unwrap_or_else(|| {
            let index = NEXT.fetch_add(1, Ordering::Relaxed) % BUFFER_SHARDS;
            mine.set(Some(index));
            index
        })
    })
}

impl LogSink {
    /// Opens the target and starts the writer. Lines are written within `delay`, or at once if it is zero. A daemon
    /// receives `log` as the name of the log.
    pub fn start(log: &'static str, target: LogTarget, delay: Duration) -> io::Result<LogSink> {
        let output = target.open(log)?;
        let shared = Arc::new(SinkState {
            log,
            delay,
            shards: std::array::from_fn(|_| Mutex::new(Vec::new())),
            asleep: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            losing: AtomicBool::new(false),
            watcher: OnceLock::new(),
            requests: Mutex::new(WriterRequests::default()),
            done: Condvar::new(),
        });
        let theirs = Arc::clone(&shared);
        let join = std::thread::Builder::new()
            .name("howdah-log".into())
            .spawn(move || write_loop(&theirs, target, output))?;
        Ok(LogSink {
            shared,
            writer: join.thread().clone(),
            join: Some(join),
        })
    }

    /// Appends what `write` puts into the buffer: whole lines with their ends.
    pub fn append(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let soon = {
            let mut buffer = lock(&self.shared.shards[shard_of_this_thread()]);
            if buffer.len() >= MAX_BUFFERED_BYTES {
                drop(buffer);
                self.shared
                    .count_lost(1, || "the log cannot be written fast enough".to_owned());
                return;
            }
            let before = buffer.len();
            write(&mut buffer);
            self.shared.delay.is_zero()
                || (before < WRITE_THRESHOLD_BYTES && buffer.len() >= WRITE_THRESHOLD_BYTES)
        };
        // SeqCst pairs with the writer, which first sets `asleep` and then checks the buffers again.
        if soon || self.shared.asleep.load(Ordering::SeqCst) {
            self.writer.unpark();
        }
    }

    /// Waits until all lines that were appended before have been written (or have failed to be).
    pub fn flush(&self) {
        let mut orders = lock(&self.shared.requests);
        orders.flushes_requested += 1;
        let mine = orders.flushes_requested;
        self.writer.unpark();
        while orders.flushes_done < mine && !self.writer_is_gone() {
            let waited = self
                .shared
                .done
                .wait_timeout(orders, Duration::from_millis(100));
            orders = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Opens the target again by its path, after a log rotation has moved the file away (SIGUSR1). On an error the old
    /// file stays in use.
    pub fn reopen(&self) -> io::Result<()> {
        self.request_reopen(ReopenTarget::Same)
    }

    /// Continues in `file`, for a server that is no longer permitted to open its own logs.
    pub fn reopen_as(&self, file: File) -> io::Result<()> {
        self.request_reopen(ReopenTarget::File(file))
    }

    /// Continues at another target. `file` is that target if it is already open. On an error the old target stays in
    /// use.
    pub fn move_to(&self, target: LogTarget, file: Option<File>) -> io::Result<()> {
        self.request_reopen(ReopenTarget::Other(target, file))
    }

    fn request_reopen(&self, how: ReopenTarget) -> io::Result<()> {
        let mut orders = lock(&self.shared.requests);
        orders.reopen = Some(how);
        let before = orders.reopened;
        self.writer.unpark();
        while orders.reopened == before {
            if self.writer_is_gone() {
                return Err(io::Error::other(
                    "the thread that writes the log has exited",
                ));
            }
            let waited = self
                .shared
                .done
                .wait_timeout(orders, Duration::from_millis(100));
            orders = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        orders.reopen_result.take().map_or(Ok(()), Err)
    }

    /// Calls `watcher` when lines begin to be lost, from any thread, and when they are written again. The watcher must
    /// not block. Only the first watcher that is set is used.
    pub fn watch(&self, watcher: impl Fn(SinkEvent) + Send + Sync + 'static) {
        let _ = self.shared.watcher.set(Box::new(watcher));
    }

    fn writer_is_gone(&self) -> bool {
        self.join.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Returns how many lines have been lost since the start, because the target did not accept them or did not accept
    /// them fast enough.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for LogSink {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.writer.unpark();
        if let Some(join) = self.join.take() {
            // The writer does not panic. If it did, the panic could not be reported anywhere.
            let _ = join.join();
        }
    }
}

impl SinkState {
    fn count_lost(&self, lines: u64, why: impl FnOnce() -> String) {
        self.dropped.fetch_add(lines, Ordering::Relaxed);
        if !self.losing.swap(true, Ordering::Relaxed)
            && let Some(tell) = self.watcher.get()
        {
            tell(SinkEvent::Losing { why: why() });
        }
    }

    /// Notifies the watcher that all lines can be written again, if lines were lost before. `told` is the number of
    /// lost lines that have been reported before.
    fn recovered(&self, told: &mut u64) {
        if self.losing.swap(false, Ordering::Relaxed) {
            let dropped = self.dropped.load(Ordering::Relaxed);
            let lost = dropped - *told;
            *told = dropped;
            if let Some(tell) = self.watcher.get() {
                tell(SinkEvent::Recovered { lost });
            }
        }
    }
}

/// Makes the writer continue in another file, or in a new file of the same name.
fn reopen(
    shared: &SinkState,
    how: ReopenTarget,
    target: &mut LogTarget,
    pen: &mut OutputWriter,
) -> io::Result<()> {
    let (at, file) = match how {
        ReopenTarget::Same => (target.clone(), None),
        ReopenTarget::File(file) => (target.clone(), Some(file)),
        ReopenTarget::Other(other, file) => (other, file),
    };
    let output = file.map_or_else(|| at.open(shared.log), |f| Ok(LogOutput::File(f)))?;
    if !pen.rest.is_empty() {
        // The line that was cut off is lost: its beginning is in the other file.
        shared.dropped.fetch_add(1, Ordering::Relaxed);
    }
    let rest = Vec::new();
    (*pen, *target) = (OutputWriter { output, rest }, at);
    Ok(())
}

fn write_loop(shared: &SinkState, mut target: LogTarget, output: LogOutput) {
    let mut pen = OutputWriter {
        output,
        rest: Vec::new(),
    };
    let mut lines = Vec::new();
    let mut told = 0;
    loop {
        // These are read before the buffers are emptied, so the buffers contain everything that was appended before the
        // request.
        let stopping = shared.stopping.load(Ordering::SeqCst);
        let flush = lock(&shared.requests).flushes_requested;
        let (mut wrote, mut failed) = (false, false);
        for shard in &shared.shards {
            std::mem::swap(&mut *lock(shard), &mut lines);
            if lines.is_empty() {
                continue;
            }
            wrote = true;
            if let Err((lost, error)) = pen.write(&lines) {
                failed = true;
                shared.count_lost(lost, || error.to_string());
            }
            lines.clear();
            if lines.capacity() > 2 * WRITE_THRESHOLD_BYTES {
                lines = Vec::new();
            }
        }
        if wrote && !failed {
            shared.recovered(&mut told);
        }
        let mut orders = lock(&shared.requests);
        if let Some(how) = orders.reopen.take() {
            orders.reopen_result = reopen(shared, how, &mut target, &mut pen).err();
            orders.reopened += 1;
        }
        orders.flushes_done = orders.flushes_done.max(flush);
        let more_asked = orders.flushes_requested > flush;
        drop(orders);
        shared.done.notify_all();
        if stopping {
            return;
        }
        if more_asked {
            continue;
        }
        if wrote && !shared.delay.is_zero() {
            std::thread::park_timeout(shared.delay);
            continue;
        }
        shared.asleep.store(true, Ordering::SeqCst);
        let empty = shared.shards.iter().all(|s| lock(s).is_empty());
        if empty && !shared.stopping.load(Ordering::SeqCst) {
            std::thread::park();
        }
        shared.asleep.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use rustix::param::page_size;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("howdah-sink-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn sink_writes_all_lines_of_many_threads_across_a_rotation() {
        let dir = scratch("rotate");
        let path = dir.join("access.log");
        let sink = LogSink::start(
            "access",
            LogTarget::File(path.clone()),
            Duration::from_secs(60),
        )
        .unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let sink = &sink;
                scope.spawn(move || {
                    for line in 0..1000 {
                        sink.append(|b| b.extend(format!("{thread} {line}\n").into_bytes()));
                    }
                });
            }
        });
        sink.flush();
        std::fs::rename(&path, dir.join("access.log.1")).unwrap();
        sink.reopen().unwrap();
        sink.append(|b| b.extend_from_slice(b"after\n"));
        drop(sink);
        let old = std::fs::read_to_string(dir.join("access.log.1")).unwrap();
        let mut lines: Vec<_> = old.lines().collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), 4000);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "after\n");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn sink_reports_an_unopenable_target_and_counts_lines_lost_on_a_full_one() {
        let missing = PathBuf::from("/nonexistent/howdah.log");
        assert!(LogSink::start("access", LogTarget::File(missing), Duration::ZERO).is_err());
        let full = LogTarget::File(PathBuf::from("/dev/full"));
        let sink = LogSink::start("access", full, Duration::from_secs(60)).unwrap();
        sink.append(|b| b.extend_from_slice(b"one\ntwo\n"));
        sink.flush();
        assert_eq!(sink.dropped(), 2);
    }

    #[test]
    fn move_to_switches_between_two_lines_or_keeps_the_target() {
        let dir = scratch("move");
        let (old, new) = (dir.join("old.log"), dir.join("new.log"));
        let sink = LogSink::start(
            "access",
            LogTarget::File(old.clone()),
            Duration::from_secs(60),
        )
        .unwrap();
        sink.append(|b| b.extend_from_slice(b"one\n"));
        assert!(sink.move_to(LogTarget::File(dir.clone()), None).is_err());
        sink.append(|b| b.extend_from_slice(b"two\n"));
        sink.move_to(LogTarget::File(new.clone()), None).unwrap();
        sink.append(|b| b.extend_from_slice(b"three\n"));
        sink.flush();
        // From now on a rotation concerns the new file.
        std::fs::remove_file(&new).unwrap();
        sink.reopen().unwrap();
        sink.append(|b| b.extend_from_slice(b"four\n"));
        drop(sink);
        assert_eq!(std::fs::read_to_string(old).unwrap(), "one\ntwo\n");
        assert_eq!(std::fs::read_to_string(new).unwrap(), "four\n");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn reopen_failure_keeps_the_old_file() {
        let dir = scratch("gone");
        let path = dir.join("a.log");
        let sink = LogSink::start("access", LogTarget::File(path.clone()), Duration::ZERO).unwrap();
        let kept = dir.with_extension("moved");
        std::fs::rename(&dir, &kept).unwrap();
        assert!(sink.reopen().is_err());
        sink.append(|b| b.extend_from_slice(b"still\n"));
        sink.flush();
        assert_eq!(
            std::fs::read_to_string(kept.join("a.log")).unwrap(),
            "still\n"
        );
        std::fs::remove_dir_all(kept).unwrap();
    }

    /// Returns a pipe that is full. Each page that is read from it frees one page.
    fn full_pipe() -> (io::PipeReader, File) {
        use rustix::pipe::{PipeFlags, pipe_with};
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        while rustix::io::write(&writer, &vec![b'.'; page_size()]).is_ok() {}
        (reader.into(), writer.into())
    }

    fn read(reader: &io::PipeReader, length: usize) -> String {
        let mut bytes = vec![0; length];
        let n = rustix::io::read(reader, &mut bytes).unwrap();
        String::from_utf8(bytes[..n].to_vec()).unwrap()
    }

    #[test]
    fn cut_off_line_is_completed_when_there_is_room_again() {
        let (reader, writer) = full_pipe();
        let mut pen = OutputWriter {
            output: LogOutput::File(writer),
            rest: Vec::new(),
        };
        let (lost, _) = pen.write(b"first\nsecond\n").unwrap_err();
        assert_eq!((lost, pen.rest.len()), (2, 0), "nothing of them is there");
        let all = read(&reader, 1 << 20);
        // There is room for one page: a line and 96 bytes of the next one.
        let capacity = all.len();
        let page = vec![b'.'; page_size()];
        let length = page.len() - 96;
        for _ in 1..capacity / page.len() {
            assert_eq!(pen.output.write(&page).unwrap(), page.len());
        }
        let long = |letter: u8| [vec![letter; length - 1], vec![b'\n']].concat();
        let lines = [long(b'a'), long(b'b'), long(b'c')].concat();
        let (lost, _) = pen.write(&lines).unwrap_err();
        assert_eq!((lost, pen.rest.len()), (1, length - 96));
        read(&reader, capacity - page.len());
        let written = read(&reader, page.len());
        assert!(written.ends_with(&"b".repeat(96)), "{written}");
        pen.write(b"last\n").unwrap();
        let written = read(&reader, 1 << 20);
        assert!(written.starts_with("bbb") && written.ends_with("bbb\nlast\n"));
        assert_eq!(written.len(), length - 96 + 5);
    }

    #[test]
    fn watcher_is_notified_of_lost_lines_and_of_recovery() {
        let dir = scratch("news");
        let full = LogTarget::File(PathBuf::from("/dev/full"));
        let sink = LogSink::start("access", full, Duration::from_secs(60)).unwrap();
        let news = Arc::new(Mutex::new(Vec::new()));
        let heard = news.clone();
        sink.watch(move |what| heard.lock().unwrap().push(what));
        for _ in 0..3 {
            sink.append(|b| b.extend_from_slice(b"one\ntwo\n"));
            sink.flush();
        }
        let target = LogTarget::File(dir.join("a.log"));
        sink.move_to(target, None).unwrap();
        for _ in 0..3 {
            sink.append(|b| b.extend_from_slice(b"three\n"));
            sink.flush();
        }
        let news = news.lock().unwrap().clone();
        let [SinkEvent::Losing { why }, SinkEvent::Recovered { lost: 6 }] = &news[..] else {
            panic!("{news:?}");
        };
        assert!(why.contains("No space left"), "{why}");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
