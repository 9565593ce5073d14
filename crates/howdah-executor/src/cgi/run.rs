//! Runs one request in mode `cgi`: obtains a permit, starts a program with three pipes, and reads its response.
//! `cleanup` does the work that outlives the run.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use howdah_proto::cgi_response::{CgiError, CgiParser};
use howdah_proto::control::Exit;
use howdah_proto::level::LogLevel;
use howdah_proto::response::ResponseError;
use howdah_proto::spawner::ProgramStart;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::{oneshot, watch};

use super::{CgiShared, ScriptKind, cleanup, input, variables};
use crate::common::event_channel::EventSender;
use crate::error::ExecErrno;
use crate::programs::slot_queue::RequestSummary;
use crate::programs::spawner_client::{ProcessEvent, SpawnRefused, SpawnedProcess, SpawnerClient};
use crate::{ExecError, RunEvent, RunTiming, ScriptRequest};

/// The time between SIGTERM and SIGKILL.
const KILL_GRACE: Duration = Duration::from_secs(1);
/// The spawner terminates a program that exceeds its limit by this much. Usually the front, which also responds to the
/// client, has done so by then.
const SPAWNER_LIMIT_MARGIN: Duration = Duration::from_millis(500);
/// Output is flushed when the program has been silent for this long, as other servers do when a pipe is empty.
const FLUSH_AFTER: Duration = Duration::from_millis(50);
/// How long to wait for the exit of a program after the end of its output. The exit matters because the response of a
/// killed program is not complete.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause before another attempt when the socket to the spawner is full.
const RETRY_PAUSE: Duration = Duration::from_millis(5);
/// The maximum number of bytes in one read of a program's output.
const READ_CHUNK_BYTES: usize = 32 * 1024;

/// Terminates the program if the run is dropped or fails before the program's response is complete.
struct ProgramGuard {
    spawner: Arc<SpawnerClient>,
    id: u64,
    complete: bool,
    /// Whether the program continues after its client has disconnected. It is set once the program has received the
    /// whole of a request that is made for its side effects.
    keeps_running: Arc<AtomicBool>,
    /// Dropped with the guard, which tells the cleanup that no signal follows.
    _over: oneshot::Sender<()>,
}

impl Drop for ProgramGuard {
    fn drop(&mut self) {
        if !self.complete && !self.keeps_running.load(Ordering::Relaxed) {
            self.spawner.terminate(self.id, KILL_GRACE);
        }
    }
}

pub(super) async fn run(
    shared: &Arc<CgiShared>,
    kind: ScriptKind,
    request: ScriptRequest,
    events: EventSender,
) -> Result<(), ExecError> {
    let asked = Instant::now();
    let _in_flight = shared.draining.track_run();
    let frame = Arc::new(request.frame);
    let mut cut = shared.draining.cut();
    let queue_timeout = shared.config.queue_timeout;
    let about = RequestSummary::new(&frame);
    let place = tokio::select! {
        place = shared.slot_queue.acquire(request.client, about, queue_timeout) => place?,
        _ = cut.wait_for(|cut| *cut) => return Err(ExecError::Stopping),
    };
    events.set_timing(RunTiming {
        queued: Some(asked.elapsed()),
        child: Some(place.row().index),
    });
    let limit = shared.config.request_terminate_timeout;
    let deadline = Instant::now() + limit.unwrap_or(Duration::from_secs(365 * 86400));
    let spawners_limit = limit.map_or(0, |limit| (limit + SPAWNER_LIMIT_MARGIN).as_millis() as u64);
    let start = variables::program_start(&frame, kind, spawners_limit)?;
    let warn = |text: String| {
        let (log, pool) = (&shared.log, &shared.config.name);
        log.script(pool, request.id, &frame, LogLevel::Warning, text.as_bytes());
    };
    if let Some(name) = variables::first_omitted(&frame) {
        warn(format!(
            "AuthorizerVariable: {} was dropped from the program's environment; only AUTH*, REMOTE_* and X_* are passed",
            name.escape_ascii()
        ));
    }
    let (stdin, feed) = input::open(request.body)?;
    let (mut stdout, its_stdout) = pipe()?;
    let (stderr, its_stderr) = pipe()?;
    let fds = [stdin, its_stdout, its_stderr];
    let process = spawn(shared, start, fds, queue_timeout).await?;
    let (over, is_over) = oneshot::channel();
    let mut guard = ProgramGuard {
        spawner: shared.spawner.clone(),
        id: process.id,
        complete: false,
        keeps_running: Arc::default(),
        _over: over,
    };
    let (teller, mut fate) = watch::channel(None);
    let about = (request.id, frame.clone());
    let cleanup = cleanup::run(
        shared.clone(),
        about,
        process,
        (place, request.drop_at_end),
        stderr,
        is_over,
        teller,
    );
    tokio::spawn(cleanup);
    let method = frame.variable("REQUEST_METHOD").unwrap_or_default();
    let is_for_its_effect = !matches!(method, b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE");
    let goes_on = guard.keeps_running.clone();
    let has_all = || {
        goes_on.store(is_for_its_effect, Ordering::Relaxed);
        events.set_begun();
    };
    let outcome = tokio::select! {
        outcome = read_response(&mut stdout, feed, &mut fate, &events, has_all) => outcome,
        () = tokio::time::sleep_until(deadline.into()) => Err(ExecError::TerminateTimeout),
        _ = cut.wait_for(|cut| *cut) => Err(ExecError::Stopping),
    };
    // This line is not reached if the client disconnects, because the whole future is dropped then. In every other case
    // the program must not continue.
    guard.keeps_running.store(false, Ordering::Relaxed);
    match outcome {
        Err(ExecError::ChildDied(_)) if Instant::now() >= deadline => {
            Err(ExecError::TerminateTimeout)
        }
        Ok(exit) => {
            guard.complete = true;
            if let Some(Exit::Code(code @ 1..)) = exit {
                warn(format!("ExitStatus: the program exited with code {code}"));
            }
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Creates a pipe. Returns the reading end, and the writing end for the program.
fn pipe() -> Result<(pipe::Receiver, OwnedFd), ExecError> {
    let make = || -> std::io::Result<(pipe::Receiver, OwnedFd)> {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&read, true)?;
        Ok((pipe::Receiver::from_owned_fd(read)?, write))
    };
    make().map_err(|error| ExecError::PoolDown {
        name: "NoPipe".to_owned(),
        message: format!("cannot create a pipe for a program: {error}"),
    })
}

/// Orders the program from the spawner. Waits while a spawner is starting, and while its socket is full.
async fn spawn(
    shared: &CgiShared,
    mut start: ProgramStart,
    fds: [OwnedFd; 3],
    limit: Duration,
) -> Result<SpawnedProcess, ExecError> {
    let asking = async {
        loop {
            shared.spawner.ready().await?;
            let fds = [fds[0].as_fd(), fds[1].as_fd(), fds[2].as_fd()];
            match shared.spawner.spawn(&mut start, &fds) {
                Ok(process) => return Ok(process),
                Err(SpawnRefused::Busy | SpawnRefused::NoSpawner) => {
                    tokio::time::sleep(RETRY_PAUSE).await
                }
                Err(SpawnRefused::TooLarge) => {
                    let errno = rustix::io::Errno::TOOBIG.raw_os_error();
                    return Err(ExecError::CannotExecute(ExecErrno(errno)));
                }
            }
        }
    };
    let asked = tokio::time::timeout(limit, asking).await;
    asked.unwrap_or(Err(ExecError::QueueTimeout))
}

/// Reads the program's response while the program is fed. Returns the exit, if it came in time.
async fn read_response(
    stdout: &mut pipe::Receiver,
    feed: Option<input::StdinFeed>,
    fate: &mut watch::Receiver<Option<ProcessEvent>>,
    events: &EventSender,
    has_all: impl Fn(),
) -> Result<Option<Exit>, ExecError> {
    if feed.is_none() {
        has_all();
    }
    let mut feeding = feed.map(|feed| Box::pin(feed.run()));
    let mut parser = Some(CgiParser::default());
    let mut unsent = false;
    let mut buffer = BytesMut::new();
    loop {
        if buffer.capacity() < READ_CHUNK_BYTES / 4 {
            buffer.reserve(READ_CHUNK_BYTES);
        }
        let read = tokio::select! {
            read = stdout.read_buf(&mut buffer) => read,
            fed = async { feeding.as_mut().expect("guarded").await }, if feeding.is_some() => {
                feeding = None;
                if fed.is_err() {
                    // The client is gone or violated its framing; the server distinguishes the two.
                    return Err(ExecError::BodyUnreadable);
                }
                has_all();
                continue;
            }
            () = tokio::time::sleep(FLUSH_AFTER), if unsent => {
                unsent = false;
                events.send(RunEvent::Flush).await;
                continue;
            }
        };
        if !matches!(read, Ok(1..)) {
            break;
        }
        let mut piece: Bytes = buffer.split().freeze();
        if let Some(head) = &mut parser {
            let fed = head.feed(&piece).map_err(invalid)?;
            let Some(found) = fed else { continue };
            parser = None;
            piece = piece.split_off(found.used);
            events.send(RunEvent::Head(found.head)).await;
        }
        if !piece.is_empty() {
            events.send(RunEvent::Body(piece)).await;
        }
        unsent = true;
    }
    // A program may exit without reading its input and still have sent a complete response.
    drop(feeding);
    let exit = wait_for_exit(fate).await?;
    match parser {
        Some(parser) if parser.is_empty() => Err(ExecError::ResponseMissing),
        Some(_) => Err(invalid(CgiError::HeadUnfinished)),
        None => Ok(exit),
    }
}

/// Returns the program's exit if it came in time, or an error if the program was not started or was killed.
async fn wait_for_exit(
    fate: &mut watch::Receiver<Option<ProcessEvent>>,
) -> Result<Option<Exit>, ExecError> {
    let told = tokio::time::timeout(EXIT_TIMEOUT, fate.wait_for(Option::is_some)).await;
    let told = match told {
        Ok(Ok(fate)) => *fate,
        _ => None,
    };
    match told {
        Some(ProcessEvent::NotStarted(errno)) => Err(not_started(errno)),
        Some(ProcessEvent::Exited(exit @ (Exit::Signal(_) | Exit::Unseen))) => {
            Err(ExecError::ChildDied(exit))
        }
        Some(ProcessEvent::Exited(exit)) => Ok(Some(exit)),
        Some(ProcessEvent::Started(_)) | None => Ok(None),
    }
}

fn invalid(error: CgiError) -> ExecError {
    ExecError::ResponseInvalid(ResponseError::Cgi(error))
}

/// A lack of system resources is an error of the pool; anything else is an error of the script.
fn not_started(errno: i32) -> ExecError {
    use rustix::io::Errno as E;
    match E::from_raw_os_error(errno) {
        error @ (E::AGAIN | E::NOMEM | E::MFILE | E::NFILE) => ExecError::PoolDown {
            name: "SpawnFailed".to_owned(),
            message: format!("cannot start a program: {error}"),
        },
        _ => ExecError::CannotExecute(ExecErrno(errno)),
    }
}
