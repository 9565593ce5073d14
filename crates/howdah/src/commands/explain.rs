//! `howdah explain`: shows what a server with this configuration would do with a request. It needs no running server.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use howdah_executor::Executor;
use howdah_http::listener::ListenAddress;
use howdah_log::log::{ErrorLog, ErrorStyle, LogSink, LogTarget};
use howdah_proto::level::LogLevel;
use howdah_server::request::Front;
use howdah_server::request::explain::{ExplainRequest, NoPool, explain};
use howdah_server::server_config::{FrontSettings, OpenResources, ServerConfig};
use howdah_site::site::Site;

use super::check_access::check_access;
use crate::exit;
use howdah_config::arguments::{ExplainArguments, ServeArguments};
use howdah_config::{self, ConfigSource, ServeSettings, Validation};

/// The address of an unknown client, from a range that is reserved for documentation (RFC 5737).
pub(super) const UNKNOWN_CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// The size of the store for pages, in bytes. There are no pages.
const PAGE_STORE_BYTES: u64 = 1 << 20;

/// Runs `howdah explain`.
pub fn run(arguments: &ExplainArguments) -> ExitCode {
    let from = match arguments.from.as_deref() {
        None => Some(UNKNOWN_CLIENT),
        Some("unix:") => None,
        Some(text) => match text.parse() {
            Ok(address) => Some(address),
            Err(_) => {
                let text = text.escape_debug();
                eprintln!("howdah: --from: `{text}` is neither an IP address nor `unix:`");
                return exit::failed();
            }
        },
    };
    let settings = match settings(arguments) {
        Ok(settings) => settings,
        Err(mistakes) => {
            for mistake in &mistakes {
                eprintln!("{mistake}");
            }
            return exit::configuration();
        }
    };
    let access = check_access(&settings);
    for finding in access.mistakes.iter().chain(&access.advice) {
        eprintln!("advice: {finding}");
    }
    let front = match explaining_front(&settings) {
        Ok(front) => front,
        Err(mistakes) => {
            for mistake in &mistakes {
                eprintln!("howdah: {mistake}");
            }
            return exit::configuration();
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(why) => {
            eprintln!("howdah: cannot start: {why}");
            return exit::failed();
        }
    };
    let question = ExplainRequest {
        method: &arguments.method,
        url: &arguments.url,
        fields: &arguments.header,
        from,
    };
    let explained = match runtime.block_on(explain(&front, &question)) {
        Ok(explained) => explained,
        Err(why) => {
            eprintln!("howdah: {why}");
            return exit::failed();
        }
    };
    if !arguments.json {
        return super::print_output(&explained.to_string());
    }
    match serde_json::to_string_pretty(&explained) {
        Ok(text) => super::print_output(&text),
        Err(why) => {
            eprintln!("howdah: cannot write the output: {why}");
            exit::failed()
        }
    }
}

/// Returns the settings of the named file, of `howdah.toml`, or those that `howdah serve DIR` would choose.
fn settings(arguments: &ExplainArguments) -> Result<ServeSettings, Vec<String>> {
    let named = arguments.config.clone();
    let path = named.unwrap_or_else(|| PathBuf::from("howdah.toml"));
    let has_file = arguments.config.is_some() || arguments.dir.is_none() && path.exists();
    let source = match has_file {
        true => Some(ConfigSource::read(&path).map_err(|why| vec![format!("howdah: {why}")])?),
        false => None,
    };
    let serve = ServeArguments {
        dir: arguments.dir.clone(),
        config: arguments.config.clone(),
        ..ServeArguments::default()
    };
    // The command may run as any user; users, keys and PHP only concern the server.
    let loaded = howdah_config::load(&serve, source.as_ref(), Validation::Trusted);
    loaded.settings
}

/// Returns a front that routes requests with these settings but runs nothing.
pub(super) fn explaining_front(settings: &ServeSettings) -> Result<Front, Vec<String>> {
    let of_sites = settings.sites.iter().flat_map(Site::unreadable_files);
    let of_sites = of_sites.map(|why| why.to_string());
    for why in of_sites.chain(settings.read_trusted_proxies().err()) {
        eprintln!("advice: {why}; the result assumes that the server cannot read this file either");
    }
    let sites = settings.open_sites_with(Site::open)?;
    let tls = settings.listen.iter().filter(|listen| listen.tls);
    let ports = tls.filter_map(|listen| match &listen.address {
        ListenAddress::Tcp(address) => Some(address.port()),
        ListenAddress::Unix { .. } => None,
    });
    let front_settings = FrontSettings {
        cache_memory: PAGE_STORE_BYTES,
        ..settings.front_settings(ports)
    };
    let pools = settings.pools.iter();
    let pools: HashMap<String, Arc<dyn Executor>> = pools
        .map(|pool| {
            (
                pool.name().to_owned(),
                Arc::new(NoPool) as Arc<dyn Executor>,
            )
        })
        .collect();
    let (resources, process) = (OpenResources::default(), Arc::default());
    let config = ServerConfig::new(front_settings, resources, process, sites, &pools)
        .map_err(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    let sink = LogSink::start("error", LogTarget::Stderr, Duration::ZERO);
    let sink = sink.map_err(|why| vec![format!("cannot write to the standard error: {why}")])?;
    // Only the explanation of the request matters here, so nothing is logged.
    let log = ErrorLog::new(sink, ErrorStyle::Terminal, LogLevel::Emergency);
    Ok(Front::new(Arc::new(config), Arc::new(log)))
}
