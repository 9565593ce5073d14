//! `howdah check`: checks everything that can be determined before a start, and shows what `howdah serve DIR` would
//! choose (`check_directory.rs`).

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use howdah_executor::status::PhpUpdateStatus;
use howdah_executor::{PoolMode, fastcgi};
use howdah_os::output::counted;
use howdah_server::admin::ServerStatus;
use serde::Deserialize;

use super::check_access::check_access;
use super::check_directory::{describe, describe_json, unlimited_login};
use super::check_files::{advise_of_files, unwritable_logs};
use super::check_object_cache::advise_of_object_caches;
use super::check_sessions::advise_of_sessions;
use super::client::{ResponseWait, send_request};
use crate::exit;
use crate::master::control::ControlRequest;
use howdah_config::arguments::{CheckArguments, ServeArguments, ServerTarget};
use howdah_config::php;
use howdah_config::php::{PhpUnfit, PhpVersion};
use howdah_config::{
    self, ConfigSource, LoadedConfiguration, ServeSettings, Validation, reference, schema,
};

/// How long to wait for the status of a running server.
const STATUS_TIMEOUT: Duration = Duration::from_secs(3);

/// Runs `howdah check`.
pub fn run(check: &CheckArguments) -> ExitCode {
    if check.schema {
        return super::print_output(&schema::json_schema());
    }
    if let Some(key) = &check.explain {
        return match reference::explain(key) {
            Ok(text) => super::print_output(&text),
            Err(why) => {
                eprintln!("howdah: {why}");
                exit::failed()
            }
        };
    }
    let named = check.config.clone();
    let path = named.unwrap_or_else(|| PathBuf::from("howdah.toml"));
    let without_a_file = check.config.is_none() && !path.exists();
    if let Some(directory) = check.dir.as_deref().filter(|_| check.json) {
        return match describe_json(directory) {
            Ok(text) => super::print_output(&text),
            Err(error) => {
                eprintln!("howdah: {}: {error}", directory.display());
                exit::configuration()
            }
        };
    }
    if check.dir.is_some() {
        let serve = ServeArguments {
            dir: check.dir.clone(),
            ..ServeArguments::default()
        };
        return directory(howdah_config::load(&serve, None, Validation::Full));
    }
    if without_a_file {
        eprintln!(
            "howdah: there is no howdah.toml in this directory: `howdah check --config FILE` checks a file elsewhere, and `howdah check DIR` (`howdah check .`) shows what `howdah serve DIR` would choose without a file"
        );
        return exit::configuration();
    }
    let source = match ConfigSource::read(&path) {
        Ok(source) => source,
        Err(why) => {
            eprintln!("howdah: {why}");
            return exit::configuration();
        }
    };
    let serve = ServeArguments {
        config: check.config.clone(),
        ..ServeArguments::default()
    };
    let loaded = howdah_config::load(&serve, Some(&source), Validation::Full);
    let advice = loaded.advice.len();
    match report_configuration(loaded, Some(source.name())) {
        Err(code) => code,
        Ok((settings, versions, printed)) => {
            let advice = advice
                + printed
                + advise_of_php(&versions)
                + advise_of_updates(&path)
                + advise_of_logins(&settings)
                + advise_of_sessions(&settings)
                + advise_of_object_caches(&settings)
                + advise_of_files(&settings);
            let chosen: String = settings.chosen.iter().flat_map(|l| [l, "\n"]).collect();
            super::print_output(&format!(
                "{chosen}{}: no mistakes{} ({}, {}, {})",
                source.name(),
                match advice {
                    0 => String::new(),
                    1 => ", 1 piece of advice".to_owned(),
                    many => format!(", {many} pieces of advice"),
                },
                counted(settings.sites.len(), "site"),
                counted(settings.pools.len(), "pool"),
                counted(settings.listen.len(), "listener"),
            ))
        }
    }
}

/// Prints advice about versions of PHP with known security holes. Returns the number of these versions.
fn advise_of_php(versions: &[PhpVersion]) -> usize {
    let advice = php::advice_about(versions);
    for advice in &advice {
        eprintln!("advice: {advice}");
    }
    advice.len()
}

/// Prints advice about PHP that was updated while a server runs with this configuration. Returns the number of pools
/// that still have the old PHP in memory.
fn advise_of_updates(config: &Path) -> usize {
    let target = ServerTarget {
        control: None,
        config: Some(config.to_owned()),
    };
    let wait = ResponseWait::AtMost(STATUS_TIMEOUT);
    // Without a server, no PHP is in memory.
    let Ok(answer) = send_request(&target, &ControlRequest::Status, wait) else {
        return 0;
    };
    let runs_with = answer.server.and_then(|facts| facts.config);
    let status = answer.status.as_ref().map(ServerStatus::deserialize);
    let (Some(runs_with), Some(Ok(status))) = (runs_with, status) else {
        return 0;
    };
    if config.canonicalize().ok() != Some(runs_with) {
        return 0;
    }
    let updates = status
        .pools
        .iter()
        .filter_map(|pool| Some((pool, pool.php_update.as_ref()?)));
    updates
        .map(|(pool, update)| {
            eprintln!(
                "advice: pool.{}: {}: {}",
                pool.pool,
                PhpUpdateStatus::both_versions(&pool.php, &update.version),
                update.state
            );
        })
        .count()
}

/// Prints advice about sites where passwords can be guessed without a limit. Returns the number of these sites.
fn advise_of_logins(settings: &ServeSettings) -> usize {
    let unlimited = |site| Some((site, unlimited_login(site)?));
    let sites = settings.sites.iter().filter_map(unlimited);
    sites
        .map(|(site, application)| {
            eprintln!(
                "advice: site `{}`: nothing limits how fast a client can guess passwords of {application}; add a [[site.rule]] with limit = \"login\" (docs/limits.md)",
                site.name
            );
        })
        .count()
}

/// Returns all mistakes of a configuration file, as they are displayed.
pub fn mistakes(path: &Path) -> Vec<String> {
    let source = match ConfigSource::read(path) {
        Ok(source) => source,
        Err(why) => return vec![why],
    };
    let serve = ServeArguments {
        config: Some(path.to_owned()),
        ..ServeArguments::default()
    };
    let settings = match howdah_config::load(&serve, Some(&source), Validation::Full).settings {
        Ok(settings) => settings,
        Err(mistakes) => return mistakes,
    };
    let found = inspect_sites_and_php(&settings);
    let mut mistakes = found.mistakes;
    mistakes.extend(found.php.err().map(|why| why.to_string()));
    mistakes
}

/// Runs `howdah check DIR`.
fn directory(loaded: LoadedConfiguration) -> ExitCode {
    match report_configuration(loaded, None) {
        Err(code) => code,
        Ok((settings, versions, _)) => {
            advise_of_php(&versions);
            super::print_output(&describe(&settings, versions.first()))
        }
    }
}

/// Prints the advice and the mistakes of a configuration. If `file` names it, the number of mistakes is printed, too.
/// Also returns the versions of the PHPs that this server starts, and how many pieces of advice about the system were
/// printed.
fn report_configuration(
    loaded: LoadedConfiguration,
    file: Option<&str>,
) -> Result<(ServeSettings, Vec<PhpVersion>, usize), ExitCode> {
    for advice in &loaded.advice {
        eprintln!("advice: {advice}");
    }
    let settings = loaded.settings.map_err(|mistakes| {
        for mistake in &mistakes {
            eprintln!("{mistake}");
        }
        if let Some(file) = file {
            eprintln!("howdah: {file} has {}", counted(mistakes.len(), "mistake"));
        }
        match loaded.php_unfit && mistakes.len() == 1 {
            true => exit::php(),
            false => exit::configuration(),
        }
    })?;
    let (php, advice) = report_sites_and_php(&settings)?;
    Ok((settings, php, advice))
}

/// Findings that need directories to be opened and PHP to be started.
struct SystemFindings {
    mistakes: Vec<String>,
    advice: Vec<String>,
    /// The versions of the PHPs that this server starts.
    php: Result<Vec<PhpVersion>, PhpUnfit>,
}

fn inspect_sites_and_php(settings: &ServeSettings) -> SystemFindings {
    let mut mistakes = settings.open_sites().err().unwrap_or_default();
    let access = check_access(settings);
    mistakes.extend(access.mistakes);
    mistakes.extend(unwritable_logs(settings));
    let mut advice = access.advice;
    let php = php::check_all(&settings.php_programs());
    if php.is_ok() {
        try_pools(&settings.pools, &mut mistakes, &mut advice);
        advice.extend(unreachable_backends(&settings.pools));
    }
    SystemFindings {
        mistakes,
        advice,
        php,
    }
}

/// Prints what [`inspect_sites_and_php`] finds. Returns the versions of the PHPs that this server starts, and the
/// number of pieces of advice.
fn report_sites_and_php(settings: &ServeSettings) -> Result<(Vec<PhpVersion>, usize), ExitCode> {
    let found = inspect_sites_and_php(settings);
    for advice in &found.advice {
        eprintln!("advice: {advice}");
    }
    for mistake in &found.mistakes {
        eprintln!("howdah: {mistake}");
    }
    match found.php {
        _ if !found.mistakes.is_empty() => Err(exit::configuration()),
        Err(why) => {
            eprintln!("howdah: {why}");
            Err(exit::php())
        }
        Ok(versions) => Ok((versions, found.advice.len())),
    }
}

/// Starts PHP with the settings of each pool of our own, including php.ini. A pool that does not start is a mistake.
fn try_pools(pools: &[PoolMode], mistakes: &mut Vec<String>, advice: &mut Vec<String>) {
    for pool in pools {
        let PoolMode::Embed(config) = pool else {
            continue;
        };
        let name = &config.name;
        match php::try_settings(config) {
            Ok(said) => {
                let said = said.into_iter();
                advice.extend(said.map(|line| format!("pool.{name}: PHP reports: {line}")));
            }
            Err(why) => mistakes.push(format!("pool.{name}: {why}")),
        }
    }
}

/// Returns advice about FastCGI backends that cannot be reached at present. They may be reachable later.
fn unreachable_backends(pools: &[PoolMode]) -> Vec<String> {
    let pools = pools.iter().filter_map(|mode| match mode {
        PoolMode::FastCgi(config) => Some(config),
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
