//! Executes a plan: threads with an event loop each, and a collector that merges their counts once a second. The engine
//! sends and counts; it judges nothing.
//!
//! - [`worker`]: one thread and its clients; [`context`]: the state it shares with them; [`connection`]: one client;
//!   [`stream`], [`tls`], [`socket`]: its bytes; [`request`], [`cookies`]: the requests it sends.
//! - [`client_fleet`]: the clients of a thread, whatever protocol they speak; [`multiplex`]: those that share
//!   connections, over [`h2`] or [`h3`].
//! - [`page_load`]: the order of a page and its parts.
//! - [`arrivals`]: when requests are due; [`clock`]: the time. [`recorder`]: counts; [`collector`]: merges the counts.
//! - [`transcript`]: prints the requests and responses.
//! - [`null`]: a server that does nothing, for the highest rate that the generator can reach. [`machine`],
//!   [`schedstat`]: the resources that the generator itself used.

mod alarm;
mod arrivals;
mod client_fleet;
mod clock;
mod collector;
mod connection;
mod context;
mod cookies;
mod h2;
mod h3;
mod machine;
mod multiplex;
pub mod null;
mod observe;
mod page_load;
mod recorder;
mod request;
mod schedstat;
mod socket;
mod stream;
mod tls;
pub mod transcript;
mod worker;

use std::net::ToSocketAddrs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::BenchError;
use crate::plan::{HttpProtocol, Plan, TargetAddress, UrlScheme};
use crate::replay::reader::LogReader;
use crate::run::{Run, RunEnd, Second};

use client_fleet::{ClientFleet, Http1ClientFleet};
use clock::{Clock, SECOND, seconds};
use collector::CountCollector;
use context::RunState;
use h2::Http2ClientFleet;
use h3::Http3ClientFleet;
use observe::Observer;
use recorder::RecordedSecond;
use request::Requests;
use socket::ServerPeer;
use tls::TlsClient;
use worker::{LoadWorker, WorkerResult, WorkerShare};

pub use clock::SECOND as NANOSECONDS_PER_SECOND;
pub use worker::MAX_WAITING_ARRIVALS;

/// How often the run checks whether it was interrupted.
const INTERRUPT_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The arguments of [`run`] besides the plan.
pub struct RunControl<'a> {
    /// Set this to end the run. The results so far are reported ([`RunEnd::Interrupted`]).
    pub interrupt: Arc<AtomicBool>,
    /// Called after every second, from the thread that called [`run`].
    pub progress: Option<&'a mut dyn FnMut(&RunProgress<'_>)>,
    /// The command line, for the report.
    pub command: Vec<String>,
}

impl Default for RunControl<'_> {
    fn default() -> Self {
        RunControl {
            interrupt: Arc::new(AtomicBool::new(false)),
            progress: None,
            command: Vec::new(),
        }
    }
}

/// The state of a run in progress.
#[derive(Debug)]
pub struct RunProgress<'a> {
    /// The second that has just ended.
    pub second: &'a Second,
    /// The number of good responses so far.
    pub good: u64,
    /// The number of requests so far that ended with another outcome.
    pub errors: u64,
    /// The share of the run that has passed, 0 to 1, estimated from its plan.
    pub done: f64,
}

/// Executes a plan. Returns when it is fulfilled, interrupted, or impossible.
pub fn run(plan: &Plan, control: RunControl<'_>) -> Result<Run, BenchError> {
    plan.check()?;
    match plan.connection.protocol {
        HttpProtocol::Http10 | HttpProtocol::Http11 => execute::<Http1ClientFleet>(plan, control),
        HttpProtocol::Http2 => execute::<Http2ClientFleet>(plan, control),
        HttpProtocol::Http3 => execute::<Http3ClientFleet>(plan, control),
    }
}

fn execute<F: ClientFleet>(plan: &Plan, control: RunControl<'_>) -> Result<Run, BenchError> {
    let peer = resolve_address(plan.address())?;
    check_local_address(plan, &peer)?;
    raise_descriptor_limit(plan)?;
    let tls = match plan.targets[0].scheme {
        UrlScheme::Https => Some(Arc::new(TlsClient::new(plan)?)),
        UrlScheme::Http => None,
    };
    let observer = Observer::new(&plan.observe)?;
    let machine = machine::describe(peer.is_local());
    let requests = Arc::new(Requests::new(plan));
    let plan = Arc::new(plan.clone());
    let (log, mut log_arrivals) = match LogReader::start(&plan)? {
        Some((log, arrivals)) => (Some(log), arrivals.into_iter()),
        None => (None, Vec::new().into_iter()),
    };
    let (sender, intervals) = channel();
    let shared = Arc::new(new_run_state(&plan));
    let mut workers = Vec::new();
    for thread in 0..plan.threads {
        workers.push(LoadWorker::<F>::new(
            plan.clone(),
            shared.clone(),
            peer.clone(),
            tls.clone(),
            requests.clone(),
            WorkerShare {
                thread,
                log: log_arrivals.next(),
            },
            sender.clone(),
        )?);
    }
    drop(sender);
    let mut collector = CountCollector::new(&plan, control.command, machine);
    let started = SystemTime::now() + plan.warmup;
    collector.started = started
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |time| time.as_secs_f64());
    let mut progress = control.progress;
    let mut interrupted = false;
    let finished = std::thread::scope(|scope| {
        let threads = start(scope, workers, &shared);
        let over = Arc::new(AtomicBool::new(false));
        let watching = observer.map(|observer| {
            let (over, clock, from) = (over.clone(), shared.clock, shared.measured_from);
            scope.spawn(move || sample_server(observer, clock, from, &over))
        });
        interrupted = collect(
            &intervals,
            &mut collector,
            &mut progress,
            &control.interrupt,
            &shared,
        );
        over.store(true, Ordering::Relaxed);
        if let Some(Ok(samples)) = watching.map(|thread| thread.join()) {
            collector.server = samples;
        }
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.collect::<Result<Vec<_>, _>>()
    });
    let finished = finished.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let mut error = shared.error.lock().unwrap_or_else(|e| e.into_inner());
    if let Some(error) = error.take() {
        return Err(error);
    }
    let ended = match (interrupted, shared.ends_at) {
        (true, _) => RunEnd::Interrupted,
        (false, Some(until)) if finished.iter().any(|f| f.end >= until) => RunEnd::Time,
        _ => RunEnd::Requests,
    };
    let mut run = collector.finish(finished, ended, shared.first.get(), shared.measured_from);
    if let Some(log) = log {
        // The workers are gone, so the reader has ended, too.
        run.replay.get_or_insert_default().log = log.finish();
    }
    Ok(run)
}

/// Creates the state that the threads of a run share. Its clock starts now.
fn new_run_state(plan: &Plan) -> RunState {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    RunState {
        clock: Clock::start(),
        issued: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        error: Mutex::new(None),
        reached: AtomicBool::new(false),
        handshook: AtomicBool::new(false),
        first: Arc::new(OnceLock::new()),
        measured_from: nanoseconds(plan.warmup),
        ends_at: plan.stop.time.map(nanoseconds),
    }
}

/// Starts a thread for each worker. If one does not start, the run ends with that error.
fn start<'scope, F: ClientFleet + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    workers: Vec<LoadWorker<F>>,
    shared: &RunState,
) -> Vec<ScopedJoinHandle<'scope, WorkerResult>> {
    let mut threads = Vec::new();
    for (index, worker) in workers.into_iter().enumerate() {
        let thread = std::thread::Builder::new()
            .name(format!("bench-{index}"))
            .spawn_scoped(scope, move || worker.run());
        match thread {
            Ok(thread) => threads.push(thread),
            Err(error) => shared.fail(BenchError::System {
                what: "starting a thread".to_owned(),
                why: error.to_string(),
            }),
        }
    }
    threads
}

/// Collects the counts of all threads until they have ended. Returns whether the run was interrupted.
fn collect(
    intervals: &Receiver<RecordedSecond>,
    collector: &mut CountCollector,
    progress: &mut Option<&mut dyn FnMut(&RunProgress<'_>)>,
    interrupt: &AtomicBool,
    shared: &RunState,
) -> bool {
    let mut interrupted = false;
    loop {
        match intervals.recv_timeout(INTERRUPT_CHECK_INTERVAL) {
            Ok(interval) => {
                for ended in collector.take(interval) {
                    if let Some(progress) = progress {
                        progress(&collector.progress(ended));
                    }
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return interrupted,
        }
        if interrupt.load(Ordering::Relaxed) && !interrupted {
            interrupted = true;
            shared.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Samples the server at every full second of the measured part, and once more at its end unless
/// the last sample is fresh.
fn sample_server(
    mut observer: Observer,
    clock: Clock,
    from: u64,
    over: &AtomicBool,
) -> Vec<crate::run::ServerSample> {
    let (mut samples, mut next, mut sampled) = (Vec::new(), from, 0);
    loop {
        let last = over.load(Ordering::Relaxed);
        let now = clock.now();
        let stale = samples.is_empty() || now.saturating_sub(sampled) > SECOND / 2;
        if now >= next || (last && now > from && stale) {
            let sample = observer.sample(seconds(now - from));
            // The first sample only sets the point from which CPU time is counted, so it is used only if there is no
            // other.
            if sampled > 0 || last {
                samples.push(sample);
            }
            sampled = now;
            next = now + SECOND - (now - from) % SECOND;
        }
        if last {
            return samples;
        }
        std::thread::sleep(
            INTERRUPT_CHECK_INTERVAL.min(Duration::from_nanos(next.saturating_sub(now))),
        );
    }
}

/// Returns the length in bytes of a plan's first request, header and body, with the placeholders of its template not
/// replaced.
pub fn request_length(plan: &Plan) -> usize {
    Requests::new(plan).constant(1).map_or(0, <[u8]>::len)
}

/// Resolves the address, once per run.
fn resolve_address(address: &TargetAddress) -> Result<ServerPeer, BenchError> {
    match address {
        TargetAddress::Tcp { host, port } => {
            let unknown = |why: String| BenchError::Dns {
                host: host.clone(),
                why,
            };
            let mut found = (host.as_str(), *port)
                .to_socket_addrs()
                .map_err(|e| unknown(e.to_string()))?;
            found
                .next()
                .map(ServerPeer::Tcp)
                .ok_or_else(|| unknown("the resolver found none".to_owned()))
        }
        TargetAddress::Unix(path) => ServerPeer::unix(path).map_err(|e| BenchError::System {
            what: format!("preparing the address of the socket {}", path.display()),
            why: e.to_string(),
        }),
    }
}

/// Returns an error if the local address does not belong to this machine, or is of another family than the server's.
fn check_local_address(plan: &Plan, peer: &ServerPeer) -> Result<(), BenchError> {
    let (Some(local), ServerPeer::Tcp(server)) = (plan.connection.bind, peer) else {
        return Ok(());
    };
    if local.is_ipv4() != server.is_ipv4() {
        return Err(BenchError::Impossible(format!(
            "{local} (-B) cannot reach {server}: one is IPv4 and the other IPv6"
        )));
    }
    std::net::UdpSocket::bind((local, 0))
        .map(drop)
        .map_err(|e| BenchError::Impossible(format!("cannot send from {local} (-B): {e}")))
}

/// Raises the limit of open files to the number that the run needs, or returns an error if it cannot.
fn raise_descriptor_limit(plan: &Plan) -> Result<(), BenchError> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    /// The number of descriptors for epoll, pipes, standard streams, libraries, and connections that the server is left
    /// to close.
    const RESERVED_DESCRIPTORS: u64 = 96;
    let wanted =
        u64::from(plan.arrivals.connections()) + RESERVED_DESCRIPTORS * plan.threads as u64;
    let limits = getrlimit(Resource::Nofile);
    if limits.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let raised = Rlimit {
        current: limits
            .maximum
            .map_or(Some(wanted), |most| Some(most.min(wanted))),
        maximum: limits.maximum,
    };
    let done = setrlimit(Resource::Nofile, raised);
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if done.is_err() || limit < wanted {
        return Err(BenchError::TooFewDescriptors {
            wanted: u64::from(plan.arrivals.connections()),
            limit,
        });
    }
    Ok(())
}
