//! `howdah check`: everything that can be known before a start.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::arguments::{Check, Serve};
use crate::config::{self, Source, reference};
use crate::{exit, php};

/// Runs it.
pub fn run(check: &Check) -> ExitCode {
    if let Some(key) = &check.explain {
        return match reference::explain(key) {
            Ok(text) => {
                print!("{text}");
                exit::done()
            }
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
    let source = match Source::read(&path) {
        Ok(source) => source,
        Err(why) => {
            eprintln!("howdah: {why}");
            return exit::configuration();
        }
    };
    let loaded = config::load(&Serve::default(), Some(&source));
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
    let sites = settings.open_sites();
    let php = settings.pools.first().map(|pool| php::check(&pool.program));
    match (sites, php) {
        (Err(mistakes), _) => {
            for mistake in &mistakes {
                eprintln!("howdah: {mistake}");
            }
            exit::configuration()
        }
        (_, Some(Err(why))) => {
            eprintln!("howdah: {why}");
            exit::php()
        }
        _ => {
            println!(
                "{}: no mistakes ({} site(s), {} pool(s), {} listener(s))",
                source.name,
                settings.sites.len(),
                settings.pools.len(),
                settings.listen.len()
            );
            exit::done()
        }
    }
}
