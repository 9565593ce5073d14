//! What serves: the listening threads, the pools, the logs; and the change from one configuration
//! to the next. New pools start beside the old ones and are waited for; then the configuration is
//! swapped between two requests, and the old pools drain. When anything fails nothing has changed.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use howdah_executor::{Executor, Log, Pool, modes};
use howdah_proto::level::Level;
use howdah_server::admin::{Connections, StatusPage};
use howdah_server::cache::DiskStatus;
use howdah_server::cache::disk_store::{self, Disk, Fault, Notice, OpenError};
use howdah_server::http::proxy_protocol::TrustedPeers;
use howdah_server::listener::{
    Control, ListenerConfig, ListenerId, QuicSockets, Server, ThreadHooks, part_sockets,
};
use howdah_server::log::{AccessFormat, AccessLog, ErrorLog, ErrorStyle, LogTarget, News, Sink};
use howdah_server::memory;
use howdah_server::request::Front;
use howdah_server::server_config::{FrontSettings, ServerConfig};
use howdah_server::tls::CurrentSettings;
use howdah_server::tls::tickets::Tickets;
use howdah_server::traces::Traces;
use howdah_server::traces::exporter::{self, Exporter};

use super::launcher::{Launches, MasterLauncher};
use super::status_server;
use super::{NewConfig, Shared};
use crate::config::{Listen, LogSettings, Settings};

type Pools = HashMap<String, Arc<dyn Pool>>;

/// Longest time that lines of the access log are held back: one write for many lines.
const ACCESS_DELAY: Duration = Duration::from_secs(1);
/// After the last request, how long the processes of a pool may take to leave.
const LEAVING: Duration = Duration::from_secs(2);
/// At the end, how long pages on disk may take to be flushed; the master waits five seconds.
const FLUSHING: Duration = Duration::from_secs(3);

/// The configuration that is served, with all that serves it.
pub struct Running {
    front: Arc<Front>,
    server: Option<Server>,
    control: Control,
    listeners: Vec<(Listen, ListenerId)>,
    pools: Pools,
    access_log: Option<(LogTarget, AccessFormat, Arc<AccessLog>)>,
    threads: u32,
    drain: Duration,
    ending: Ending,
}

/// How far a stop has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The server is not stopping.
    No,
    /// It waits for requests in progress, until then at most.
    Requests(Instant),
    /// It waits for PHP's processes to leave.
    Pools,
}

/// Serves a configuration: as the first, or in place of the one before.
pub fn apply(
    new: NewConfig,
    launches: &Arc<Launches>,
    shared: &Arc<Shared>,
) -> Result<(), Vec<String>> {
    let one = |error: String| vec![error];
    let (error_log, error_file) =
        shared_error_log(&new.settings, new.error_log, shared).map_err(one)?;
    let settings = new.settings;
    let mut sockets = new.listeners;
    let mut status = status_server::take_socket(&settings, &mut sockets);
    if shared.front.get().is_none() {
        // Who probes hears that PHP is being started.
        shared
            .status
            .listen(status.take(), &settings)
            .map_err(one)?;
    }
    let (former_log, threads, awake) = match &*shared.running() {
        Some(running) => {
            let pools = running.pools.iter().filter(|(_, pool)| !pool.is_asleep());
            let awake = pools.map(|(name, _)| name.clone()).collect();
            (running.access_log.clone(), running.threads, awake)
        }
        None => (None, settings.threads, HashSet::new()),
    };
    let access_log = access_log(&settings, new.access_log, former_log, &error_log).map_err(one)?;
    let sites = settings.open_sites()?;
    let launcher = Arc::new(MasterLauncher {
        launches: launches.clone(),
        generation: new.generation,
    });
    let pools = start_pools(&settings, launcher, error_log.clone(), threads, &awake)?;
    let executors: HashMap<String, Arc<dyn Executor>> = pools
        .iter()
        .map(|(name, pool)| (name.clone(), pool.clone() as Arc<dyn Executor>))
        .collect();
    let log = access_log.as_ref().map(|(_, _, log)| log.clone());
    let on_demand = settings
        .acme
        .as_ref()
        .is_some_and(|acme| acme.ask.is_some());
    shared.tls.on_demand.switch(on_demand);
    let tls = shared.tls.apply();
    let tls = tls.map_err(|error| one(format!("cannot set TLS up: {error}")))?;
    let listeners = listeners(&settings, &tls, &shared.tls.tickets, sockets);
    let front_settings =
        front_settings(&settings, &listeners, log, shared, &error_log).map_err(one)?;
    let config = ServerConfig::new(front_settings, sites, &executors)
        .map_err(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    bound(&settings, &config).map_err(one)?;
    let config = Arc::new(config);
    let traced = config.settings.traces.is_some();
    let mut running = shared.running();
    if shared.time_to_stop().is_some() {
        return Err(one("the server is stopping".to_owned()));
    }
    match &mut *running {
        None => {
            let (front, started) = first(
                config, &error_log, &settings, listeners, pools, access_log, shared,
            )
            .map_err(one)?;
            *running = Some(started);
            // Set once: there is one first configuration.
            let _ = shared.front.set(front);
        }
        Some(running) => {
            let log = &settings.log;
            running.exchange_listeners(listeners).map_err(one)?;
            shared.status.listen(status, &settings).map_err(one)?;
            error_log
                .change(
                    &log.error,
                    error_file.map(File::from),
                    style(log),
                    log.level,
                )
                .map_err(|e| one(format!("cannot reopen the error log: {e}")))?;
            running.access_log = access_log;
            running.replace(config, &settings, pools, &executors);
        }
    }
    error_log.show_traces(traced);
    Ok(())
}

/// The error log of the process, which the first configuration opens; and the file that a later one
/// brings for it.
fn shared_error_log(
    settings: &Settings,
    file: Option<OwnedFd>,
    shared: &Shared,
) -> Result<(Arc<ErrorLog>, Option<OwnedFd>), String> {
    if let Some(log) = shared.error_log.get() {
        return Ok((log.clone(), file));
    }
    let log = Arc::new(error_log(settings, file)?);
    let log = shared.error_log.get_or_init(|| log).clone();
    let own = Arc::downgrade(&log);
    log.sink().watch(move |news| {
        // Of what it loses it can tell only afterwards.
        if let (Some(log), News::WorksAgain { .. }) = (own.upgrade(), &news) {
            report_lost_lines(&log, "error log", &news);
        }
    });
    Ok((log, None))
}

/// The sockets of each `listen`, whether it has TLS, and whose PROXY headers are believed there.
fn listeners(
    settings: &Settings,
    tls: &CurrentSettings,
    tickets: &Arc<Tickets>,
    sockets: Vec<Vec<OwnedFd>>,
) -> Vec<(Listen, ListenerConfig)> {
    let listens = settings.listen.iter().cloned().zip(sockets);
    listens
        .map(|(listen, sockets)| {
            let (sockets, udp) = part_sockets(sockets);
            let mut listener = ListenerConfig::from_sockets(&listen.address, sockets);
            if listen.http3 {
                listener.quic = Some(QuicSockets {
                    sockets: udp,
                    tickets: tickets.clone(),
                });
            }
            if listen.proxy_protocol {
                listener.proxies = Some(Arc::new(TrustedPeers {
                    blocks: settings.trusted_proxies.networks.clone(),
                    unix: settings.trusted_proxies.unix,
                }));
            }
            listener.h2c = listen.h2c;
            listener.tls = listen.tls.then(|| tls.clone());
            (listen, listener)
        })
        .collect()
}

fn first(
    config: Arc<ServerConfig>,
    error_log: &Arc<ErrorLog>,
    settings: &Settings,
    listeners: Vec<(Listen, ListenerConfig)>,
    pools: Pools,
    access_log: Option<(LogTarget, AccessFormat, Arc<AccessLog>)>,
    shared: &Shared,
) -> Result<(Arc<Front>, Running), String> {
    let front = Arc::new(Front::new(config, error_log.clone()));
    memory::start_giving_back().map_err(|error| error.to_string())?;
    let (listens, configs): (Vec<Listen>, Vec<ListenerConfig>) = listeners.into_iter().unzip();
    let server = Server::start(
        configs,
        front.clone(),
        settings.threads as usize,
        settings.server.http.clone(),
        ThreadHooks::default(),
    )
    .map_err(|error| error.to_string())?;
    let control = server.control();
    // Set once: there is one first configuration.
    let _ = shared.control.set(control.clone());
    shared
        .status
        .handler
        .serving(front.clone(), control.clone());
    front.show_certificates(shared.tls.certificates.clone());
    let counts = control.clone();
    front.count_connections_by(Box::new(move || {
        let stats = counts.stats();
        Connections {
            open: stats.open,
            accepted: stats.accepted,
            limit: stats.max_connections,
            refused: stats.refused,
        }
    }));
    let ids = server.listeners().to_vec();
    let running = Running {
        front: front.clone(),
        control,
        listeners: listens.into_iter().zip(ids).collect(),
        server: Some(server),
        pools,
        access_log,
        threads: settings.threads,
        drain: settings.server.timeouts.drain,
        ending: Ending::No,
    };
    Ok((front, running))
}

impl Running {
    /// Serves the next requests by `config` and its pools; the old pools drain.
    fn replace(
        &mut self,
        config: Arc<ServerConfig>,
        settings: &Settings,
        pools: Pools,
        executors: &HashMap<String, Arc<dyn Executor>>,
    ) {
        self.control.change(settings.server.http.clone());
        let former = self.front.config();
        self.front.swap(config);
        let drain = std::mem::replace(&mut self.drain, settings.server.timeouts.drain);
        let old = std::mem::replace(&mut self.pools, pools);
        let front = self.front.clone();
        let generations = former.cache.as_ref().map(|cache| cache.generations());
        let outlived = move || {
            if let Some(cache) = &front.config().cache {
                cache.retire_generations(generations.as_deref().unwrap_or_default());
            }
        };
        retire(old, executors, drain, outlived);
    }

    /// Listeners that stay are left alone; the master's sockets are the very same.
    fn exchange_listeners(&mut self, wanted: Vec<(Listen, ListenerConfig)>) -> Result<(), String> {
        let mut old = std::mem::take(&mut self.listeners);
        for (listen, config) in wanted {
            match old.iter().position(|(have, _)| *have == listen) {
                Some(at) => self.listeners.push(old.remove(at)),
                None => match self.control.add_listener(config) {
                    Ok(id) => self.listeners.push((listen, id)),
                    Err(error) => {
                        self.listeners.append(&mut old);
                        return Err(error.to_string());
                    }
                },
            }
        }
        for (_, id) in old {
            self.control.remove_listener(id);
        }
        Ok(())
    }
}

/// The directory of pages, if one is configured. It stays open over reloads that do not move it.
/// What is configured wrongly is refused; a disk that cannot be written is reported, and pages are
/// kept in memory alone.
fn cache_disk(
    settings: &Settings,
    shared: &Shared,
    log: &Arc<ErrorLog>,
) -> Result<Option<Result<Arc<Disk>, DiskStatus>>, String> {
    let Some(wanted) = &settings.cache_disk else {
        return Ok(None);
    };
    if settings.sites.iter().all(|site| site.cache.is_none()) {
        return Ok(None);
    }
    let former = shared.front.get().map(|front| front.config());
    if let Some(disk) = former.and_then(|config| config.settings.cache_disk.clone())
        && disk.path() == wanted.path
    {
        disk.resize(wanted.size);
        return Ok(Some(Ok(disk)));
    }
    let heard = log.clone();
    let mut options =
        disk_store::Options::new(wanted.path.clone(), wanted.size, howdah_server::cache::now);
    options.notify = Box::new(move |notice| match notice {
        Notice::Failed(fault, detail) => {
            let message = format!("page cache: {} {detail}", fault.meaning());
            heard.problem(Level::Warning, fault.name(), message.trim_end());
        }
        Notice::WorksAgain => {
            heard.problem(
                Level::Notice,
                "DiskWorksAgain",
                "page cache: pages are written to disk again",
            );
        }
    });
    match Disk::open(options) {
        Ok(disk) => Ok(Some(Ok(disk))),
        Err(OpenError::Io { what, error }) => {
            let message = format!(
                "page cache: cannot {what} {}: {error}; pages are kept in memory only until the next reload or start",
                wanted.path.display()
            );
            let fault = Fault::DiskUnwritable;
            log.problem(Level::Error, fault.name(), &message);
            Ok(Some(Err(DiskStatus::closed(&wanted.path, fault))))
        }
        Err(error) => Err(format!("cache.path: {}: {error}", wanted.path.display())),
    }
}

fn error_log(settings: &Settings, file: Option<OwnedFd>) -> Result<ErrorLog, String> {
    let sink = sink("error", &settings.log.error, Duration::ZERO, file)
        .map_err(|error| format!("cannot write the error log: {error}"))?;
    let log = &settings.log;
    Ok(ErrorLog::new(sink, style(log), log.level))
}

fn style(log: &LogSettings) -> ErrorStyle {
    match log.error {
        LogTarget::File(_) => ErrorStyle::File,
        LogTarget::Stdout | LogTarget::Stderr => ErrorStyle::Terminal,
        LogTarget::Daemon(_) if log.error.takes_fields() => ErrorStyle::Journal,
        LogTarget::Daemon(_) => ErrorStyle::Syslog,
    }
}

/// A file was opened by the master, which may where we may not.
fn sink(
    log: &'static str,
    target: &LogTarget,
    delay: Duration,
    file: Option<OwnedFd>,
) -> io::Result<Sink> {
    match file {
        Some(file) => {
            let sink = Sink::start(log, LogTarget::Stderr, delay)?;
            sink.move_to(target.clone(), Some(File::from(file)))?;
            Ok(sink)
        }
        None => Sink::start(log, target.clone(), delay),
    }
}

type OpenAccessLog = Option<(LogTarget, AccessFormat, Arc<AccessLog>)>;

fn access_log(
    settings: &Settings,
    file: Option<OwnedFd>,
    former: OpenAccessLog,
    error_log: &Arc<ErrorLog>,
) -> Result<OpenAccessLog, String> {
    let Some(target) = &settings.log.access else {
        return Ok(None);
    };
    let format = settings.log.access_format;
    let failed = |error: io::Error| format!("cannot write the access log: {error}");
    if let Some((old_target, old_format, log)) = former
        && (&old_target, old_format) == (target, format)
    {
        if let Some(file) = file {
            log.sink().reopen_as(file.into()).map_err(failed)?;
        }
        return Ok(Some((old_target, old_format, log)));
    }
    let sink = sink("access", target, ACCESS_DELAY, file).map_err(failed)?;
    let heard = error_log.clone();
    sink.watch(move |news| report_lost_lines(&heard, "access log", &news));
    let fields = target.takes_fields();
    let log = Arc::new(AccessLog::new(sink, format, fields));
    Ok(Some((target.clone(), format, log)))
}

/// That a log loses lines is in the error log: whoever counts on them has to know.
fn report_lost_lines(log: &ErrorLog, which: &str, news: &News) {
    match news {
        News::Losing { why } => {
            let message = format!("{which}: lines are lost: {why}");
            log.problem(Level::Error, "LogLost", &message);
        }
        News::WorksAgain { lost } => {
            let message = format!("{which}: it is written again; {lost} lines were lost");
            log.problem(Level::Notice, "LogWorksAgain", &message);
        }
    }
}

/// What the front needs beside sites and pools. What outlives a configuration comes from the one that is
/// served now.
fn front_settings(
    settings: &Settings,
    listeners: &[(Listen, ListenerConfig)],
    access_log: Option<Arc<AccessLog>>,
    shared: &Shared,
    error_log: &Arc<ErrorLog>,
) -> Result<FrontSettings, String> {
    let (cache_disk, closed_cache_disk) = match cache_disk(settings, shared, error_log)? {
        Some(Ok(disk)) => (Some(disk), None),
        Some(Err(closed)) => (None, Some(closed)),
        None => (None, None),
    };
    let former = shared.front.get().map(|front| front.config());
    let former = former.as_ref().map(|config| &config.settings);
    let former_traces = former.and_then(|f| f.traces.as_ref());
    let traces = traces(settings, former_traces, error_log)
        .map_err(|error| format!("cannot export traces: {error}"))?;
    Ok(FrontSettings {
        https_port: https_port(listeners),
        trusted_proxies: settings.trusted_proxies.clone(),
        encoding: settings.encoding.clone(),
        status: settings.status.path.clone().map(|path| StatusPage {
            path,
            allow: settings.status.allow.clone(),
        }),
        access_log,
        traces,
        buffers: settings.server.buffers.clone(),
        spill_room: former.map(|f| f.spill_room.clone()).unwrap_or_default(),
        cache_memory: settings.cache_memory,
        cache_disk,
        closed_cache_disk,
        limiter: former.map(|f| f.limiter.clone()).unwrap_or_default(),
        challenges: shared.tls.challenges.clone(),
        carried_generations: former
            .map(|f| f.carried_generations.clone())
            .unwrap_or_default(),
    })
}

/// What decides about traces. The exporter stays over reloads that do not change it; another one's
/// former sends what it has.
fn traces(
    settings: &Settings,
    former: Option<&Arc<Traces>>,
    log: &Arc<ErrorLog>,
) -> io::Result<Option<Arc<Traces>>> {
    let Some(wanted) = &settings.traces else {
        return Ok(None);
    };
    let same = former
        .map(|former| former.exporter())
        .filter(|exporter| *exporter.config() == wanted.exporter);
    let exporter = match same {
        Some(exporter) => exporter.clone(),
        None => {
            let heard = log.clone();
            Exporter::start(wanted.exporter.clone(), move |news| {
                report_traces(&heard, &news);
            })?
        }
    };
    Ok(Some(Arc::new(Traces::new(wanted.sample, exporter))))
}

/// Whether spans reach the collector.
fn report_traces(log: &ErrorLog, news: &exporter::News) {
    match news {
        exporter::News::Unreachable(why) => {
            let message = format!("traces: {why}; spans wait, then are dropped");
            log.problem(Level::Warning, "CollectorUnreachable", &message);
        }
        exporter::News::Refused(why) => {
            let message = format!("traces: {why}; spans are dropped");
            log.problem(Level::Warning, "CollectorRefused", &message);
        }
        exporter::News::WorksAgain { dropped } => {
            let message = format!("traces: the collector takes spans; {dropped} were dropped");
            log.problem(Level::Notice, "CollectorWorksAgain", &message);
        }
    }
}

/// Where redirects to HTTPS lead: the usual port, if it is one of those.
fn https_port(listeners: &[(Listen, ListenerConfig)]) -> u16 {
    let tls = listeners.iter().filter(|(listen, _)| listen.tls);
    let mut ports = tls.filter_map(|(_, config)| Some(config.local_addr()?.port()));
    let first = ports.next().unwrap_or(443);
    if ports.any(|port| port == 443) {
        443
    } else {
        first
    }
}

/// Sets how much memory and disk all requests together may take.
fn bound(settings: &Settings, config: &ServerConfig) -> Result<(), String> {
    let (server, room) = (&settings.server, &config.settings.spill_room);
    let directory = &server.buffers.directory;
    let disk = match server.spill_total {
        Some(bytes) => bytes,
        None => room.auto_limit(directory).map_err(|error| {
            let directory = directory.display();
            format!("cannot see how much is free in {directory}: {error}")
        })?,
    };
    room.set_limit(disk);
    let pages = config.cache.as_ref().map_or(0, |_| settings.cache_memory);
    // The front's threads, and the one that gives free pages back.
    let threads = settings.threads as usize + 1;
    let memory = server.memory.unwrap_or_else(|| memory::auto_limit(threads));
    memory::set_limit(memory.saturating_add(pages));
    Ok(())
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
}

/// Starts all pools and waits until each can run scripts. All failures are reported. A pool that is
/// to have no process at rest gets none before its first request, unless the former configuration's
/// of that name was `awake`: its visitors are not to wait for a start.
fn start_pools(
    settings: &Settings,
    launcher: Arc<MasterLauncher>,
    log: Log,
    threads: u32,
    awake: &HashSet<String>,
) -> Result<Pools, Vec<String>> {
    let failed = |name: &str, why: String| format!("pool `{name}`: {why}");
    let runtime = runtime().map_err(|e| vec![e.to_string()])?;
    let (mut pools, mut mistakes) = (Pools::new(), Vec::new());
    for mode in &settings.pools {
        let name = mode.name();
        let may_sleep = !awake.contains(name);
        match modes::start(mode, launcher.clone(), log.clone(), threads, may_sleep) {
            Ok(pool) => {
                pools.insert(name.to_owned(), pool);
            }
            Err(error) => mistakes.push(failed(name, format!("cannot be made: {error}"))),
        }
    }
    let deadline = Instant::now() + settings.server.timeouts.start;
    for (name, pool) in &pools {
        let left = deadline.saturating_duration_since(Instant::now());
        let ready = runtime.block_on(async { tokio::time::timeout(left, pool.ready()).await });
        match ready {
            Ok(Ok(())) => {}
            Ok(Err(error)) => mistakes.push(failed(name, error.to_string())),
            Err(_) => mistakes.push(failed(
                name,
                format!(
                    "StartTimeout: PHP was not ready within timeouts.start = {} s",
                    settings.server.timeouts.start.as_secs()
                ),
            )),
        }
    }
    if mistakes.is_empty() {
        Ok(pools)
    } else {
        Err(mistakes)
    }
}

/// Old pools finish what they have; a request that still comes to one goes on to its successor. A
/// thread of its own keeps them until they are gone, and calls `over` then.
fn retire(
    old: Pools,
    successors: &HashMap<String, Arc<dyn Executor>>,
    drain: Duration,
    over: impl FnOnce() + Send + 'static,
) {
    for (name, pool) in &old {
        pool.drain(successors.get(name).cloned(), drain);
    }
    let waited = std::thread::Builder::new()
        .name("retire".to_owned())
        .spawn(move || {
            if let Ok(runtime) = runtime() {
                runtime.block_on(async {
                    for pool in old.values() {
                        pool.drained().await;
                    }
                });
            }
            drop(old);
            over();
        });
    // Without a thread to be had the pools end at once, as their drop says.
    drop(waited);
}

/// Stops in the time that is left: no more connections, what runs is finished, PHP leaves, logs are
/// written.
pub fn finish(shared: &Shared) {
    let Some((server, pools)) = begin_to_finish(shared) else {
        return;
    };
    if let Some(server) = server {
        server.wait();
    }
    let left = drain_pools(shared);
    if let Ok(runtime) = runtime() {
        let gone = async {
            for pool in pools.values() {
                pool.drained().await;
            }
        };
        // Remaining processes notice their pool's closed sockets.
        let _ = runtime.block_on(async { tokio::time::timeout(left + LEAVING, gone).await });
    }
    if let Some(front) = shared.front.get() {
        let config = front.config();
        if let Some(disk) = &config.settings.cache_disk {
            // What is not flushed by then is not believed after the machine was stopped; it is after a
            // restart.
            disk.close(FLUSHING);
        }
        if let Some(traces) = &config.settings.traces {
            traces.exporter().finish();
        }
        if let Some(log) = &config.settings.access_log {
            log.sink().flush();
        }
    }
    if let Some(log) = shared.error_log.get() {
        log.sink().flush();
    }
}

fn begin_to_finish(shared: &Shared) -> Option<(Option<Server>, Pools)> {
    let mut running = shared.running();
    let running = running.as_mut()?;
    let limit = shared.time_to_stop().unwrap_or_default();
    running.control.stop(limit);
    running.ending = Ending::Requests(Instant::now() + limit);
    Some((running.server.take(), running.pools.clone()))
}

/// The last request is answered: PHP leaves. Returns how long a script that runs on may take.
fn drain_pools(shared: &Shared) -> Duration {
    let mut running = shared.running();
    let Some(running) = running.as_mut() else {
        return Duration::ZERO;
    };
    let left = match running.ending {
        Ending::Requests(deadline) => deadline.saturating_duration_since(Instant::now()),
        Ending::No | Ending::Pools => Duration::ZERO,
    };
    running.ending = Ending::Pools;
    for pool in running.pools.values() {
        pool.drain(None, left);
    }
    left
}

/// A stop in progress gets another limit.
pub fn shorten_deadline(shared: &Shared) {
    let mut running = shared.running();
    let Some(running) = running.as_mut() else {
        return;
    };
    let limit = shared.time_to_stop().unwrap_or_default();
    running.control.stop(limit);
    match running.ending {
        Ending::Pools => {
            for pool in running.pools.values() {
                pool.drain(None, limit);
            }
        }
        Ending::No | Ending::Requests(_) => {
            running.ending = Ending::Requests(Instant::now() + limit);
        }
    }
}
