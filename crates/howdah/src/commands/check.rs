//! `howdah check`: everything that can be known before a start, also where a request would go.

use std::path::PathBuf;
use std::process::ExitCode;

use howdah_executor::{Mode, fastcgi};
use howdah_server::site::explain::request;

use crate::arguments::{Check, Serve};
use crate::config::{self, Eyes, Loaded, Source, reference};
use crate::{exit, php};

/// Runs it.
pub fn run(check: &Check) -> ExitCode {
    if let Some(key) = &check.explain {
        return match reference::explain(key) {
            Ok(text) => super::answer(&text),
            Err(why) => {
                eprintln!("howdah: {why}");
                exit::failed()
            }
        };
    }
    let path = check
        .config
        .clone()
        .unwrap_or_else(|| PathBuf::from("howdah.toml"));
    if let Some(request) = &check.route
        && check.config.is_none()
        && !path.exists()
    {
        return route(request, config::load(&Serve::default(), None, Eyes::Master));
    }
    let source = match Source::read(&path) {
        Ok(source) => source,
        Err(why) => {
            eprintln!("howdah: {why}");
            return exit::configuration();
        }
    };
    if let Some(request) = &check.route {
        return route(
            request,
            config::load(&Serve::default(), Some(&source), Eyes::Master),
        );
    }
    let loaded = config::load(&Serve::default(), Some(&source), Eyes::Master);
    for advice in &loaded.advice {
        eprintln!("advice: {advice}");
    }
    let settings = match loaded.settings {
        Ok(settings) => settings,
        Err(mistakes) => {
            for mistake in &mistakes {
                eprintln!("{mistake}");
            }
            let count = mistakes.len();
            let noun = if count == 1 { "mistake" } else { "mistakes" };
            eprintln!("howdah: {} has {count} {noun}", source.name);
            return if loaded.php_unfit && count == 1 {
                exit::php()
            } else {
                exit::configuration()
            };
        }
    };
    let mut mistakes = settings.open_sites().err().unwrap_or_default();
    let php = settings.howdah_php().map(php::check);
    if !matches!(php, Some(Err(_))) {
        mistakes.extend(does_not_start(&settings.pools));
    }
    for mistake in &mistakes {
        eprintln!("howdah: {mistake}");
    }
    match php {
        _ if !mistakes.is_empty() => exit::configuration(),
        Some(Err(why)) => {
            eprintln!("howdah: {why}");
            exit::php()
        }
        _ => {
            for advice in unreachable(&settings.pools) {
                eprintln!("advice: {advice}");
            }
            super::answer(&format!(
                "{}: no mistakes ({} site(s), {} pool(s), {} listener(s))",
                source.name,
                settings.sites.len(),
                settings.pools.len(),
                settings.listen.len()
            ))
        }
    }
}

/// Pools of our own PHP whose settings keep it from starting, php.ini included.
fn does_not_start(pools: &[Mode]) -> Vec<String> {
    let mut mistakes = Vec::new();
    for pool in pools {
        let (Mode::Embed(config) | Mode::Worker(config)) = pool else {
            continue;
        };
        match php::try_settings(config) {
            Ok(said) => {
                for line in said {
                    eprintln!("advice: pool.{}: PHP says: {line}", config.name);
                }
            }
            Err(why) => mistakes.push(format!("pool.{}: {why}", config.name)),
        }
    }
    mistakes
}

/// FastCGI backends that cannot be reached now: they may be later.
fn unreachable(pools: &[Mode]) -> Vec<String> {
    let pools = pools.iter().filter_map(|mode| match mode {
        Mode::FastCgi(config) => Some(config),
        _ => None,
    });
    pools
        .flat_map(|config| config.backends.iter().map(|b| (&config.name, &b.address)))
        .filter_map(|(pool, address)| {
            let why = fastcgi::check(address).err()?;
            Some(format!(
                "pool.{pool}: {address} cannot be reached now: {why}"
            ))
        })
        .collect()
}

/// Where a request goes.
fn route(text: &str, loaded: Loaded) -> ExitCode {
    let sites = loaded.settings.and_then(|settings| settings.open_sites());
    let sites = match sites {
        Ok(sites) => sites,
        Err(mistakes) => {
            for mistake in &mistakes {
                eprintln!("{mistake}");
            }
            return exit::configuration();
        }
    };
    let (method, url) = text.split_once(' ').unwrap_or(("GET", text));
    let (host, target) = match url.split_once("://") {
        Some((_, rest)) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => ("", url),
    };
    let target = if target.is_empty() { "/" } else { target };
    // Without a host it is the default site's.
    let named = if host.is_empty() { "localhost" } else { host };
    let Some(head) = request(method, named, target) else {
        eprintln!(
            "howdah: `{text}` is no request: write `/path`, `http://host/path` or `POST /path`"
        );
        return exit::failed();
    };
    let site = sites.find(host.as_bytes());
    super::answer(&format!(
        "site {}: {}",
        site.config().name,
        site.explain(&head)
    ))
}
