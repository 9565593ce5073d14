//! The running server: the listening threads, the pools, the logs, and the change from one configuration to the next.
//! New pools are started beside the old ones. When they are ready, the configuration is swapped between two requests,
//! and the old pools drain. If any step fails, nothing has changed.
//!
//! - [`pools`]: starts the pools and waits for them; drains old ones.
//! - [`scripts`]: compiles scripts before the swap.
//! - [`logs`]: opens and changes the error log and the access log.
//! - [`front_settings`]: the settings of the front besides sites and pools.
//! - [`finish`]: the end of the front.

mod finish;
mod front_settings;
mod logs;
mod pools;
mod scripts;

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use howdah_executor::Executor;
use howdah_http::listener::{
    Control, ListenerConfig, ListenerId, QuicSockets, Server, part_sockets,
};
use howdah_http::memory;
use howdah_http::proxy_protocol::TrustedPeers;
use howdah_http::tls::CurrentSettings;
use howdah_http::tls::tickets::Tickets;
use howdah_server::admin::Connections;
use howdah_server::cache::disk_store::Disk;
use howdah_server::front_thread;
use howdah_server::log::ErrorLog;
use howdah_server::request::Front;
use howdah_server::server_config::ServerConfig;

use super::launcher::{Launches, MasterLauncher};
use super::status_server;
use super::{NewConfig, Shared};
use crate::config::{Listen, Settings};
pub use finish::{LEAVING, finish, shorten_deadline};
use front_settings::{bound, front_settings};
use logs::{OpenAccessLog, access_log, shared_error_log};
use pools::{Pools, retire, start_pools};
use scripts::{HeldRoots, Roots};

/// The configuration that is being served, with everything that serves it.
pub struct Running {
    front: Arc<Front>,
    server: Option<Server>,
    control: Control,
    listeners: Vec<(Listen, ListenerId)>,
    pools: Pools,
    roots: Roots,
    access_log: OpenAccessLog,
    threads: u32,
    drain: Duration,
    ending: Ending,
}

/// The progress of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The server is not stopping.
    No,
    /// The front waits for requests in progress, until this deadline at most.
    Requests(Instant),
    /// The front waits for the processes of PHP to exit.
    Pools,
}

/// Serves a configuration, either as the first one or in place of the previous one.
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
        None => (None, settings.threads, Pools::new(), Roots::new()),
    };
    let roots = scripts::roots(&settings);
    let _held = shared
        .front
        .get()
        .map(|front| HeldRoots::of(front.config()));
    let access_log = access_log(&settings, new.access_log, former_log, &error_log).map_err(one)?;
    let sites = settings.open_sites()?;
    let launcher = Arc::new(MasterLauncher {
        launches: launches.clone(),
        generation: new.generation,
    });
    let pools = start_pools(&settings, launcher, error_log.clone(), threads, &former)?;
    scripts::compile(&former, &pools, scripts::moved(&former_roots, &roots));
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
    let front_settings = front_settings(
        &settings,
        &listeners,
        log,
        shared,
        &error_log,
        new.follows_another,
    )
    .map_err(one)?;
    let has_other_disk = shared.front.get().is_some_and(|front| {
        let former = &front.config().settings.cache_disk;
        let path = |disk: &Option<Arc<Disk>>| disk.as_ref().map(|disk| disk.path().to_owned());
        path(former) != path(&front_settings.cache_disk)
    });
    let config = ServerConfig::new(front_settings, sites, &executors)
        .map_err(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    if has_other_disk && let Some(cache) = &config.cache {
        // The pages of this store do not reflect what was written since this process started.
        cache.invalidate_all();
    }
    bound(&settings, &config).map_err(one)?;
    let config = Arc::new(config);
    let traced = config.settings.traces.is_some();
    let mut running = shared.running();
    if shared.time_to_stop().is_some() {
        return Err(one("the server is stopping".to_owned()));
    }
    match &mut *running {
        None => {
            let (front, mut started) = first(
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
            running.exchange_listeners(listeners).map_err(one)?;
            shared.status.listen(status, &settings).map_err(one)?;
            error_log
                .change(
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
    settings: &Settings,
    tls: &CurrentSettings,
    tickets: &Arc<Tickets>,
    sockets: Vec<Vec<OwnedFd>>,
) -> Vec<(Listen, ListenerConfig)> {
    let listens = settings.listen.iter().cloned().zip(sockets);
    listens
        .map(|(mut listen, sockets)| {
            let (sockets, udp) = part_sockets(sockets);
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
    access_log: OpenAccessLog,
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
        front_thread::hooks(),
    )
    .map_err(|error| error.to_string())?;
    let control = server.control();
    // The cell is still empty, because there is only one first configuration.
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
        roots: Roots::new(),
        access_log,
        threads: settings.threads,
        drain: settings.server.timeouts.drain,
        ending: Ending::No,
    };
    Ok((front, running))
}

impl Running {
    /// Serves the next requests with `config` and its pools, and drains the old pools.
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

    /// Replaces the listeners. A listener that has not changed is left alone, because the master's sockets are the
    /// same.
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
