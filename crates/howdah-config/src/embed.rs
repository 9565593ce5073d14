//! A pool of mode `embed` or `worker`: the settings that the table of options does not fill in by itself.

use std::path::{Path, PathBuf};

use howdah_executor::auto_children::auto_children;
use howdah_executor::config::{PoolConfig, WorkerConfig};
use howdah_executor::embed::glob::Glob;

use super::pool_section::{PoolSection, max_children, max_children_or, php_ini, pool_identity};
use super::process_manager::process_manager;
use super::reader::{ConfigSection, Validation};
use super::{PhpProgramLookup, available_cores, php_variables};
use crate::arguments::ServeArguments;

/// Completes `config` for mode `embed` from the rest of its section.
pub fn embed(
    mut config: PoolConfig,
    program: &PhpProgramLookup<'_>,
    pool: &PoolSection<'_>,
) -> PoolConfig {
    set_common_options(&mut config, program, pool);
    config.max_children = max_children(pool.section, pool.overrides);
    config.pm = process_manager(pool.section, config.max_children, pool.overrides, false);
    let file = pool.section.file();
    let absolute = |pattern: String| file.path(&pattern).display().to_string();
    config.watch = watch_patterns(pool.section)
        .into_iter()
        .map(absolute)
        .collect();
    config
}

/// Completes `config` for mode `worker` from the rest of its section.
pub fn worker(
    mut config: PoolConfig,
    program: &PhpProgramLookup<'_>,
    pool: &PoolSection<'_>,
) -> PoolConfig {
    set_common_options(&mut config, program, pool);
    // FrankenPHP's default: a booted application needs much memory, and its requests do not wait for a boot.
    let auto = || (2 * available_cores()).min(auto_children());
    config.max_children = max_children_or(pool.section, pool.overrides, auto);
    config.pm = process_manager(pool.section, config.max_children, pool.overrides, true);
    // The patterns are relative to the script's directory, which the executor knows.
    config.watch = watch_patterns(pool.section);
    config.worker = Some(WorkerConfig {
        script: worker_script(pool.section, pool.arguments),
    });
    config
}

/// Sets the options of both modes: the user that PHP runs as, and its settings, those of the command line last.
fn set_common_options(
    config: &mut PoolConfig,
    program: &PhpProgramLookup<'_>,
    pool: &PoolSection<'_>,
) {
    let identity = pool_identity(pool.section, pool.identity);
    (config.user, config.group) = (identity.user, identity.group);
    config
        .environment
        .extend(pool.overrides.environment.clone());
    config.php_ini = php_ini(pool.arguments, pool.section);
    config.program = program.program(pool.section);
    config
        .defines
        .extend(settings_of_variables(config, pool.section));
    config.defines.extend(pool.overrides.defines.clone());
    config.opcache = !is_opcache_off(&config.defines);
    config.timeouts = pool.timeouts;
}

/// Returns the settings from a container's `PHP_…` variables. Only the master needs them, because it starts PHP.
fn settings_of_variables(
    config: &PoolConfig,
    section: &ConfigSection<'_>,
) -> Vec<(String, String)> {
    let file = section.file();
    if !config.program.host.is_file() {
        return Vec::new();
    }
    let variables = &file.environment.php;
    match php_variables::settings_of_variables(
        variables,
        &config.program,
        config.php_ini.as_deref(),
    ) {
        Ok(meaning) => {
            for advice in meaning.advice {
                file.advise(None, advice);
            }
            meaning.settings
        }
        Err(why) => {
            file.mistake(None, why);
            Vec::new()
        }
    }
}

/// Returns the patterns of `watch` as they are written.
fn watch_patterns(section: &ConfigSection<'_>) -> Vec<String> {
    let patterns = section.texts("watch").into_iter();
    patterns
        .inspect(|text| {
            if let Err(why) = Glob::parse(&text.value, Path::new("/")) {
                let message = format!("watch: {why}");
                section.file().mistake(text.place.clone(), message);
            }
        })
        .map(|text| text.value)
        .collect()
}

/// Returns the absolute path of a worker pool's script; an empty path after a mistake.
fn worker_script(section: &ConfigSection<'_>, arguments: &ServeArguments) -> PathBuf {
    let (place, script) = match &arguments.worker {
        Some(script) => (None, Some(script.clone())),
        None => (section.place_of("worker"), section.path("worker")),
    };
    let Some(script) = script else {
        section.file().mistake(
            section.place_of("mode"),
            "mode `worker` needs a script: `worker = \"public/worker.php\"`, or `--worker SCRIPT`"
                .to_owned(),
        );
        return PathBuf::new();
    };
    let script = std::path::absolute(&script).unwrap_or(script);
    if section.file().validation == Validation::Full && !script.is_file() {
        let message = format!("worker: there is no file {}", script.display());
        section.file().mistake(place, message);
    }
    script
}

/// Returns whether the pool's own settings switch opcache off, so no warning about that is needed.
fn is_opcache_off(defines: &[(String, String)]) -> bool {
    let last = defines.iter().rfind(|(name, _)| name == "opcache.enable");
    last.is_some_and(|(_, value)| {
        let words = ["", "0", "off", "no", "false", "none"];
        words.contains(&value.trim().to_ascii_lowercase().as_str())
    })
}
