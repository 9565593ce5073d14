//! What a configuration needs besides sites and pools: the directory of stored pages, the exporter of traces, the
//! membership in a fleet, and how much memory and disk space all requests may use.

use std::io;
use std::sync::Arc;

use howdah_fleet::protocol::LogEntry;
use howdah_fleet::{Fleet, FleetConfig, FleetEvent, FleetRenderOutcome, InvalidationText};
use howdah_http::memory;
use howdah_log::log::{AccessLog, ErrorLog};
use howdah_log::traces::Traces;
use howdah_log::traces::exporter::{self, Exporter};
use howdah_proto::level::LogLevel;
use howdah_server::cache::disk_store::{self, DiskFault, DiskNotice, DiskStore, OpenError};
use howdah_server::cache::fleet::UnknownSites;
use howdah_server::cache::{CacheDiskState, CacheProcessState, DiskStatus};
use howdah_server::process_state::ProcessState;
use howdah_server::server_config::{OpenResources, ServerConfig};

use super::super::FrontShared;
use howdah_config::ServeSettings;

/// Opens what the configuration names, besides sites and pools. Whatever it does not change is taken over from the
/// configuration that is being served.
pub(super) fn open_resources(
    settings: &ServeSettings,
    access_log: Option<Arc<AccessLog>>,
    shared: &FrontShared,
    error_log: &Arc<ErrorLog>,
    follows_another: bool,
) -> Result<OpenResources, String> {
    let former = shared.front.get().map(|front| front.config());
    let former = former.as_ref().map(|config| &config.resources);
    let former_disk = former.and_then(|f| f.cache_disk.as_ref());
    let former_disk = former_disk.and_then(CacheDiskState::store);
    let cache_disk = cache_disk(settings, former_disk, error_log, follows_another)?;
    let former_traces = former.and_then(|f| f.traces.as_ref());
    let traces = traces(settings, former_traces, error_log)
        .map_err(|error| format!("cannot export traces: {error}"))?;
    Ok(OpenResources {
        access_log,
        traces,
        cache_disk,
    })
}

/// Returns what all configurations of the process share: the state of the configuration that is being served, or a new
/// one for the first configuration. Fails if the configuration changes an option that only a restart can change.
pub(super) fn process_state(
    settings: &ServeSettings,
    shared: &FrontShared,
    error_log: &Arc<ErrorLog>,
) -> Result<Arc<ProcessState>, String> {
    if let Some(front) = shared.front.get() {
        let state = front.config().process.clone();
        check_fleet(settings, state.cache.fleet.as_ref())?;
        return Ok(state);
    }
    let cache = CacheProcessState {
        fleet: join_fleet(settings, shared, error_log)?,
        successor: shared.successor.clone(),
        ..CacheProcessState::default()
    };
    Ok(Arc::new(ProcessState {
        challenges: shared.tls.challenges.clone(),
        cache: Arc::new(cache),
        ..ProcessState::default()
    }))
}

/// Returns `[fleet]` if any site has a page cache, which is what members share.
fn fleet_config(settings: &ServeSettings) -> Option<&FleetConfig> {
    let is_cached = settings.sites.iter().any(|site| site.cache.is_some());
    settings.fleet.as_ref().filter(|_| is_cached)
}

/// Fails if a reload changes the membership in a fleet. This needs a restart, because scripts that are still running
/// would publish their writes to the former fleet.
fn check_fleet(settings: &ServeSettings, joined: Option<&Arc<Fleet>>) -> Result<(), String> {
    let refused = match (fleet_config(settings), joined) {
        (None, None) => return Ok(()),
        (Some(wanted), Some(joined)) if joined.config() == wanted => return Ok(()),
        (Some(_), Some(_)) => "a change of [fleet] takes effect only with a restart",
        (Some(_), None) => "adding [fleet] takes effect only with a restart",
        (None, Some(_)) => {
            "removing [fleet], or the last `cache = \"on\"` of its sites, takes effect only with a restart"
        }
    };
    Err(refused.to_owned())
}

/// Joins the fleet that the first configuration names, if it names one. The membership stays over reloads.
fn join_fleet(
    settings: &ServeSettings,
    shared: &FrontShared,
    log: &Arc<ErrorLog>,
) -> Result<Option<Arc<Fleet>>, String> {
    let Some(wanted) = fleet_config(settings) else {
        return Ok(None);
    };
    let (front, heard) = (shared.front.clone(), log.clone());
    let unknown = UnknownSites::default();
    let apply = move |entry: &LogEntry<InvalidationText>| {
        // The front has no stored pages before it serves.
        let Some(front) = front.get() else { return };
        let config = front.config();
        let Some(cache) = &config.cache else { return };
        if let Some(site) = cache.apply_fleet_entry(&config.sites, entry, &unknown) {
            let message = format!(
                "fleet: this member has no site `{site}`, so the site's writes invalidate all pages. Give sites the same names on all members, and give each fleet its own name"
            );
            heard.problem(LogLevel::Warning, "FleetUnknownSite", &message);
        }
    };
    let heard = log.clone();
    let report = move |news| report_fleet(&heard, &news);
    let heard = log.clone();
    let report_render = move |outcome: FleetRenderOutcome, detail: &str| {
        let message = format!("fleet: {detail}; this member renders its own pages");
        heard.problem(LogLevel::Warning, &outcome.name(), &message);
    };
    let front = shared.front.clone();
    let answer = move |question: &str| {
        let Some(front) = front.get() else {
            return "the server is starting".to_owned();
        };
        let config = front.config();
        match &config.cache {
            Some(cache) => cache.explain_for_member(&config.sites, question),
            None => "no site uses the page cache".to_owned(),
        }
    };
    let fleet = Fleet::start(
        wanted,
        Box::new(apply),
        Box::new(report),
        Box::new(report_render),
        Box::new(answer),
    );
    let fleet = fleet.map_err(|error| format!("cannot join the fleet: {error}"))?;
    Ok(Some(fleet))
}

/// Logs whether stored pages are served, and the reason if they are not.
fn report_fleet(log: &ErrorLog, news: &FleetEvent) {
    match news {
        FleetEvent::Unreachable(why) => {
            let message = format!("fleet: {why}; until this is resolved, no stored page is served");
            log.problem(LogLevel::Warning, "FleetUnreachable", &message);
        }
        FleetEvent::Silent(names) => {
            let message = format!(
                "fleet: {} may write without notifying this server, so no stored page is served; once you are sure that such a member no longer runs, run: howdah cache forget NAME",
                names.join(", ")
            );
            log.problem(LogLevel::Warning, "FleetMemberSilent", &message);
        }
        FleetEvent::WriteUnheard => {
            let message = "fleet: the other members could not be notified of a write; its response was held back until no member served stored pages";
            log.problem(LogLevel::Warning, "FleetWriteUnheard", message);
        }
        FleetEvent::Fenced => {
            let message = "fleet: Valkey has been unreachable for `forget_after`; requests that write get a 503 until it responds again";
            log.problem(LogLevel::Warning, "FleetFenced", message);
        }
        FleetEvent::Leased => {
            log.problem(
                LogLevel::Notice,
                "FleetLeased",
                "fleet: stored pages are served again",
            );
        }
    }
}

/// Returns the settings of traces. The exporter stays over reloads that do not change it. An exporter that is replaced
/// still sends what it has collected.
fn traces(
    settings: &ServeSettings,
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

/// Logs whether spans reach the collector.
fn report_traces(log: &ErrorLog, news: &exporter::ExporterEvent) {
    match news {
        exporter::ExporterEvent::Unreachable(why) => {
            let message = format!("traces: {why}; spans are kept for a while and then dropped");
            log.problem(LogLevel::Warning, "CollectorUnreachable", &message);
        }
        exporter::ExporterEvent::Refused(why) => {
            let message = format!("traces: {why}; spans are dropped");
            log.problem(LogLevel::Warning, "CollectorRefused", &message);
        }
        exporter::ExporterEvent::Recovered { dropped } => {
            let message =
                format!("traces: the collector accepts spans again; {dropped} spans were dropped");
            log.problem(LogLevel::Notice, "CollectorWorksAgain", &message);
        }
    }
}

/// Sets how much memory and disk space all requests together may use.
pub(super) fn set_limits(settings: &ServeSettings, config: &ServerConfig) -> Result<(), String> {
    let (server, room) = (&settings.server, &config.process.spill_room);
    let directory = &server.buffers.directory;
    let disk = match server.spill_total {
        Some(bytes) => bytes,
        None => room.auto_limit(directory).map_err(|error| {
            let directory = directory.display();
            format!("cannot determine the free space in {directory}: {error}")
        })?,
    };
    room.set_limit(disk);
    let pages = config.cache.as_ref().map_or(0, |_| settings.cache_memory);
    // The front's threads, and the thread that returns free pages to the system.
    let threads = settings.threads as usize + 1;
    let memory = server.memory.unwrap_or_else(|| memory::auto_limit(threads));
    memory::set_limit(memory.saturating_add(pages));
    Ok(())
}

/// Returns the store of pages on disk, if one is configured. It stays open over reloads that do not move it. A wrong
/// configuration is refused. A disk that cannot be written is reported, and pages are stored in memory only.
fn cache_disk(
    settings: &ServeSettings,
    former: Option<&Arc<DiskStore>>,
    log: &Arc<ErrorLog>,
    follows_another: bool,
) -> Result<Option<CacheDiskState>, String> {
    let Some(wanted) = &settings.cache_disk else {
        return Ok(None);
    };
    if settings.sites.iter().all(|site| site.cache.is_none()) {
        return Ok(None);
    }
    if let Some(disk) = former
        && disk.path() == wanted.path
    {
        disk.resize(wanted.size);
        return Ok(Some(CacheDiskState::Open(disk.clone())));
    }
    let closed = |fault| CacheDiskState::Closed(DiskStatus::closed(&wanted.path, fault));
    if follows_another {
        return Ok(Some(closed(DiskFault::DiskHeld)));
    }
    let heard = log.clone();
    let mut options =
        disk_store::DiskOptions::new(wanted.path.clone(), wanted.size, howdah_server::cache::now);
    options.notify = Box::new(move |notice| match notice {
        DiskNotice::Failed(fault, detail) => {
            let message = format!("page cache: {} {detail}", fault.meaning());
            heard.problem(LogLevel::Warning, fault.name(), message.trim_end());
        }
        DiskNotice::Recovered => {
            heard.problem(
                LogLevel::Notice,
                "DiskWorksAgain",
                "page cache: pages are written to disk again",
            );
        }
    });
    match DiskStore::open(options) {
        Ok(disk) => Ok(Some(CacheDiskState::Open(disk))),
        Err(OpenError::Io { what, error }) => {
            let message = format!(
                "page cache: cannot {what} {}: {error}; pages are kept only in memory until the next reload or start",
                wanted.path.display()
            );
            let fault = DiskFault::DiskUnwritable;
            log.problem(LogLevel::Error, fault.name(), &message);
            Ok(Some(closed(fault)))
        }
        Err(error) => Err(format!("cache.path: {}: {error}", wanted.path.display())),
    }
}
