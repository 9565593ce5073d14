//! The running server: the listening threads, the pools, the logs, and the change from one configuration to the next.
//! New pools are started beside the old ones. When they are ready, the configuration is swapped between two requests,
//! and the old pools drain. If any step fails, nothing has changed.
//!
//! - [`pools`]: starts the pools and waits for them; drains old ones.
//! - [`precompile`]: compiles scripts before the swap.
//! - [`logs`]: opens and changes the error log and the access log.
//! - [`resources`]: what a configuration opens besides sites and pools, and what all configurations share.
//! - [`finish`]: the end of the front.

mod finish;
mod logs;
mod pools;
mod precompile;
mod resources;

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use howdah_executor::Executor;
use howdah_http::listener::{
    HttpServer, ListenerConfig, ListenerId, QuicSockets, ServerControl, split_by_transport,
};
use howdah_http::memory;
use howdah_http::proxy_protocol::TrustedPeers;
use howdah_http::tls::CurrentSettings;
use howdah_http::tls::tickets::TicketKeys;
use howdah_log::log::ErrorLog;
use howdah_proto::level::LogLevel;
use howdah_server::admin::Connections;
use howdah_server::cache::CacheDiskState;
use howdah_server::front_thread;
use howdah_server::request::Front;
use howdah_server::server_config::ServerConfig;

use super::launcher::{Launches, MasterLauncher};
use super::status_server;
use super::{FrontShared, ReceivedConfiguration};
pub use finish::{LEAVE_TIMEOUT, finish, shorten_deadline};
use howdah_config::served::closed_root;
use howdah_config::{ListenSettings, ServeSettings};
use logs::{OpenAccessLog, access_log, shared_error_log};
use pools::{PoolsByName, retire, start_pools};
use precompile::{HeldRoots, ResolvedRoots};
use resources::{open_resources, process_state, set_limits};

/// The configuration that is being served, with everything that serves it.
pub struct RunningServer {
    front: Arc<Front>,
    server: Option<HttpServer>,
    control: ServerControl,
    listeners: Vec<(ListenSettings, ListenerId)>,
    pools: PoolsByName,
    roots: ResolvedRoots,
    access_log: OpenAccessLog,
    threads: u32,
    drain: Duration,
    stop_progress: StopProgress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopProgress {
    /// The server is not stopping.
    NotStopping,
    /// The front waits for requests in progress, until this deadline at most.
    WaitsForRequests(Instant),
    /// The front waits for the processes of PHP to exit.
    WaitsForPools,
}

/// Serves a configuration, either as the first one or in place of the previous one.
pub fn apply(
    new: ReceivedConfiguration,
    launches: &Arc<Launches>,
    shared: &Arc<FrontShared>,
) -> Result<(), Vec<String>> {
    let one = |error: String| vec![error];
    let (error_log, error_file) =
        shared_error_log(&new.settings, new.error_log, shared).map_err(one)?;
    let settings = new.settings;
    let mut sockets = new.listeners;
    let mut status = status_server::take_socket(&settings, &mut sockets);
    if shared.front.get().is_none() {
        // Probes receive the response that PHP is being started.
        shared
            .status
            .listen(status.take(), &settings)
            .map_err(one)?;
    }
    let (former_log, threads, former, former_roots) = match &*shared.running() {
        Some(running) => (
            running.access_log.clone(),
            running.threads,
            running.pools.clone(),
            running.roots.clone(),
        ),
        None => (
            None,
            settings.threads,
            PoolsByName::new(),
            ResolvedRoots::new(),
        ),
    };
    let roots = precompile::resolve_roots(&settings);
    let _held = shared
        .front
        .get()
        .map(|front| HeldRoots::hold(front.config()));
    let access_log = access_log(&settings, new.access_log, former_log, &error_log).map_err(one)?;
    let sites = settings.open_sites()?;
    for closed in settings.sites.iter().filter_map(closed_root) {
        error_log.problem(LogLevel::Warning, "DirectoryUnreadable", &closed);
    }
    let launcher = Arc::new(MasterLauncher {
        launches: launches.clone(),
        generation: new.generation,
    });
    let pools = start_pools(&settings, launcher, error_log.clone(), threads, &former)?;
    precompile::compile_in_new_pools(
        &former,
        &pools,
        precompile::moved_directories(&former_roots, &roots),
    );
    let executors: HashMap<String, Arc<dyn Executor>> = pools
        .iter()
        .map(|(name, pool)| (name.clone(), pool.clone() as Arc<dyn Executor>))
        .collect();
    let log = access_log.as_ref().map(|(_, _, log)| log.clone());
    let on_demand = settings
        .acme
        .as_ref()
        .is_some_and(|acme| acme.ask.is_some());
    shared.tls.on_demand.set_enabled(on_demand);
    let tls = shared.tls.apply();
    let tls = tls.map_err(|error| one(format!("cannot set up TLS: {error}")))?;
    let listeners = listeners(&settings, &tls, &shared.tls.tickets, sockets);
    let resources = open_resources(&settings, log, shared, &error_log, new.follows_another);
    let resources = resources.map_err(one)?;
    let process = process_state(&settings, shared, &error_log).map_err(one)?;
    let tls = listeners.iter().filter(|(listen, _)| listen.tls);
    let tls_ports = tls.filter_map(|(_, config)| Some(config.local_addr()?.port()));
    let front_settings = settings.front_settings(tls_ports);
    let has_other_disk = shared.front.get().is_some_and(|front| {
        let former = &front.config().resources.cache_disk;
        let path = |disk: &Option<CacheDiskState>| {
            let store = disk.as_ref().and_then(CacheDiskState::store);
            store.map(|store| store.path().to_owned())
        };
        path(former) != path(&resources.cache_disk)
    });
    let config = ServerConfig::new(front_settings, resources, process, sites, &executors)
        .map_err(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    if has_other_disk && let Some(cache) = &config.cache {
        // The pages of this store do not reflect what was written since this process started.
        cache.invalidate_all();
    }
    set_limits(&settings, &config).map_err(one)?;
    let config = Arc::new(config);
    let traced = config.resources.traces.is_some();
    let mut running = shared.running();
    if shared.time_to_stop().is_some() {
        return Err(one("the server is stopping".to_owned()));
    }
    match &mut *running {
        None => {
            let (front, mut started) = start_server(
                config, &error_log, &settings, listeners, pools, access_log, shared,
            )
            .map_err(one)?;
            started.roots = roots;
            *running = Some(started);
            // The cell is still empty, because there is only one first configuration.
            let _ = shared.front.set(front);
        }
        Some(running) => {
            let log = &settings.log;
            running.replace_listeners(listeners).map_err(one)?;
            shared.status.listen(status, &settings).map_err(one)?;
            error_log
                .reconfigure(
                    &log.error,
                    error_file.map(File::from),
                    crate::error_log::style(&log.error),
                    log.level,
                )
                .map_err(|e| one(format!("cannot reopen the error log: {e}")))?;
            running.access_log = access_log;
            running.roots = roots;
            running.replace(config, &settings, pools, &executors);
        }
    }
    error_log.show_traces(traced);
    Ok(())
}

/// Returns the sockets of each `listen` entry, whether it uses TLS, and whose PROXY headers are trusted there.
fn listeners(
    settings: &ServeSettings,
    tls: &CurrentSettings,
    tickets: &Arc<TicketKeys>,
    sockets: Vec<Vec<OwnedFd>>,
) -> Vec<(ListenSettings, ListenerConfig)> {
    let listens = settings.listen.iter().cloned().zip(sockets);
    listens
        .map(|(mut listen, sockets)| {
            let (sockets, udp) = split_by_transport(sockets);
            // After an upgrade, the previous front holds the UDP sockets until its last request has finished.
            listen.http3 &= !udp.is_empty();
            let mut listener = ListenerConfig::from_sockets(&listen.address, sockets);
            if listen.http3 {
                listener.quic = Some(QuicSockets {
                    sockets: udp,
                    tickets: tickets.clone(),
                });
            }
            if listen.proxy_protocol {
                let proxies = settings.trusted_proxies.clone();
                let trusts = move |peer| proxies.trusts(peer);
                listener.proxies = Some(Arc::new(TrustedPeers::new(trusts)));
            }
            listener.h2c = listen.h2c;
            listener.tls = listen.tls.then(|| tls.clone());
            (listen, listener)
        })
        .collect()
}

fn start_server(
    config: Arc<ServerConfig>,
    error_log: &Arc<ErrorLog>,
    settings: &ServeSettings,
    listeners: Vec<(ListenSettings, ListenerConfig)>,
    pools: PoolsByName,
    access_log: OpenAccessLog,
    shared: &FrontShared,
) -> Result<(Arc<Front>, RunningServer), String> {
    let front = Arc::new(Front::new(config, error_log.clone()));
    memory::start_trim_thread().map_err(|error| error.to_string())?;
    let (listens, configs): (Vec<ListenSettings>, Vec<ListenerConfig>) =
        listeners.into_iter().unzip();
    let server = HttpServer::start(
        configs,
        front.clone(),
        settings.threads as usize,
        settings.server.http.clone(),
        front_thread::hooks(),
    )
    .map_err(|error| error.to_string())?;
    let control = server.control();
    // The cell is still empty, because there is only one first configuration.
    let _ = shared.control.set(control.clone());
    shared
        .status
        .handler
        .set_serving(front.clone(), control.clone());
    front.set_certificates(shared.tls.certificates.clone());
    let counts = control.clone();
    front.set_connection_count_source(Box::new(move || {
        let stats = counts.stats();
        Connections {
            open: stats.open,
            accepted: stats.accepted,
            limit: stats.max_connections,
            refused: stats.refused,
        }
    }));
    front
        .start_history_thread()
        .map_err(|error| error.to_string())?;
    let ids = server.listeners().to_vec();
    let running = RunningServer {
        front: front.clone(),
        control,
        listeners: listens.into_iter().zip(ids).collect(),
        server: Some(server),
        pools,
        roots: ResolvedRoots::new(),
        access_log,
        threads: settings.threads,
        drain: settings.server.timeouts.drain,
        stop_progress: StopProgress::NotStopping,
    };
    Ok((front, running))
}

impl RunningServer {
    /// Serves the next requests with `config` and its pools, and drains the old pools.
    fn replace(
        &mut self,
        config: Arc<ServerConfig>,
        settings: &ServeSettings,
        pools: PoolsByName,
        executors: &HashMap<String, Arc<dyn Executor>>,
    ) {
        self.control.set_config(settings.server.http.clone());
        let former = self.front.config();
        self.front.replace_config(config);
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

    /// Replaces the listeners. A listener that has not changed is left alone, because the master's sockets are the
    /// same.
    fn replace_listeners(
        &mut self,
        wanted: Vec<(ListenSettings, ListenerConfig)>,
    ) -> Result<(), String> {
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
