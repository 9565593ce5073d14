//! Executes a plan: threads with an event loop each, and a collector that merges their counts once a second. The engine
//! sends and counts; it judges nothing.
//!
//! - [`worker`]: one thread and its clients; [`context`]: the state it shares with them; [`connection`]: one client;
//!   [`stream`], [`tls`], [`socket`]: its bytes; [`request`], [`cookies`]: the requests it sends.
//! - [`fleet`]: the clients of a thread, whatever protocol they speak; [`h2`]: those that speak HTTP/2.
//! - [`arrivals`]: when requests are due; [`clock`]: the time. [`recorder`]: counts; [`assemble`]: merges the counts.
//! - [`transcript`]: prints the requests and responses.
//! - [`null`]: a server that does nothing, for the highest rate that the generator can reach. [`machine`],
//!   [`schedstat`]: the resources that the generator itself used.

mod alarm;
mod arrivals;
mod assemble;
mod clock;
mod connection;
mod context;
mod cookies;
mod fleet;
mod h2;
mod machine;
pub mod null;
mod observe;
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
use crate::plan::{Address, Plan, Protocol, Scheme};
use crate::run::{Ended, Run, Second};

use assemble::Collector;
use clock::{Clock, SECOND, seconds};
use context::Shared;
use fleet::{Fleet, Http1Fleet};
use h2::Http2Fleet;
use observe::Observer;
use recorder::Interval;
use request::Requests;
use socket::Peer;
use tls::TlsClient;
use worker::{Finished, Worker};

pub use request::USER_AGENT;
pub use worker::MOST_WAITING;

/// How often the run checks whether it was interrupted.
const LOOK: Duration = Duration::from_millis(50);

/// The arguments of [`run`] besides the plan.
pub struct Control<'a> {
    /// Set this to end the run. The results so far are reported ([`Ended::Interrupted`]).
    pub interrupt: Arc<AtomicBool>,
    /// Called after every second, from the thread that called [`run`].
    pub progress: Option<&'a mut dyn FnMut(&Progress<'_>)>,
    /// The command line, for the report.
    pub command: Vec<String>,
}

impl Default for Control<'_> {
    fn default() -> Self {
        Control {
            interrupt: Arc::new(AtomicBool::new(false)),
            progress: None,
            command: Vec::new(),
        }
    }
}

/// The state of a run in progress.
#[derive(Debug)]
pub struct Progress<'a> {
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
pub fn run(plan: &Plan, control: Control<'_>) -> Result<Run, BenchError> {
    plan.check()?;
    match plan.connection.protocol {
        Protocol::Http10 | Protocol::Http11 => execute::<Http1Fleet>(plan, control),
        Protocol::Http2 => execute::<Http2Fleet>(plan, control),
    }
}

fn execute<F: Fleet>(plan: &Plan, control: Control<'_>) -> Result<Run, BenchError> {
    let peer = find(plan.address())?;
    can_bind(plan, &peer)?;
    allow_descriptors(plan)?;
    let tls = match plan.targets[0].scheme {
        Scheme::Https => Some(Arc::new(TlsClient::new(plan)?)),
        Scheme::Http => None,
    };
    let observer = Observer::new(&plan.observe)?;
    let machine = machine::describe(peer.is_here());
    let requests = Arc::new(Requests::new(plan));
    let plan = Arc::new(plan.clone());
    let (sender, intervals) = channel();
    let shared = Arc::new(shared(&plan));
    let mut workers = Vec::new();
    for thread in 0..plan.threads {
        workers.push(Worker::<F>::new(
            plan.clone(),
            shared.clone(),
            peer.clone(),
            tls.clone(),
            requests.clone(),
            thread,
            sender.clone(),
        )?);
    }
    drop(sender);
    let mut collector = Collector::new(&plan, control.command, machine);
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
            let (over, clock, from) = (over.clone(), shared.clock, shared.from);
            scope.spawn(move || watch(observer, clock, from, &over))
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
    let ended = match (interrupted, shared.until) {
        (true, _) => Ended::Interrupted,
        (false, Some(until)) if finished.iter().any(|f| f.end >= until) => Ended::Time,
        _ => Ended::Requests,
    };
    Ok(collector.finish(finished, ended, shared.first.get(), shared.from))
}

/// Creates the state that the threads of a run share. Its clock starts now.
fn shared(plan: &Plan) -> Shared {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Shared {
        clock: Clock::start(),
        given: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        error: Mutex::new(None),
        reached: AtomicBool::new(false),
        handshook: AtomicBool::new(false),
        first: Arc::new(OnceLock::new()),
        from: nanoseconds(plan.warmup),
        until: plan.stop.time.map(nanoseconds),
    }
}

/// Starts a thread for each worker. If one does not start, the run ends with that error.
fn start<'scope, F: Fleet + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    workers: Vec<Worker<F>>,
    shared: &Shared,
) -> Vec<ScopedJoinHandle<'scope, Finished>> {
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
    intervals: &Receiver<Interval>,
    collector: &mut Collector,
    progress: &mut Option<&mut dyn FnMut(&Progress<'_>)>,
    interrupt: &AtomicBool,
    shared: &Shared,
) -> bool {
    let mut interrupted = false;
    loop {
        match intervals.recv_timeout(LOOK) {
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
fn watch(
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
        std::thread::sleep(LOOK.min(Duration::from_nanos(next.saturating_sub(now))));
    }
}

/// Returns the length in bytes of a plan's first request, header and body, with the placeholders of its template not
/// replaced.
pub fn request_length(plan: &Plan) -> usize {
    Requests::new(plan).constant(1).map_or(0, <[u8]>::len)
}

/// Resolves the address, once per run.
fn find(address: &Address) -> Result<Peer, BenchError> {
    match address {
        Address::Tcp { host, port } => {
            let unknown = |why: String| BenchError::Dns {
                host: host.clone(),
                why,
            };
            let mut found = (host.as_str(), *port)
                .to_socket_addrs()
                .map_err(|e| unknown(e.to_string()))?;
            found
                .next()
                .map(Peer::Tcp)
                .ok_or_else(|| unknown("it has none".to_owned()))
        }
        Address::Unix(path) => Peer::unix(path).map_err(|e| BenchError::System {
            what: format!("naming the socket {}", path.display()),
            why: e.to_string(),
        }),
    }
}

/// Returns an error if the local address does not belong to this machine, or is of another family than the server's.
fn can_bind(plan: &Plan, peer: &Peer) -> Result<(), BenchError> {
    let (Some(local), Peer::Tcp(server)) = (plan.connection.bind, peer) else {
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
fn allow_descriptors(plan: &Plan) -> Result<(), BenchError> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    /// The descriptors for epoll, pipes, standard streams, libraries, and connections that the server is left to close.
    const BESIDES: u64 = 96;
    let wanted = u64::from(plan.arrivals.connections()) + BESIDES * plan.threads as u64;
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
