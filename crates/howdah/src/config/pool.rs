//! `[pool.NAME]` into the executor's pool settings.

use std::path::{Path, PathBuf};
use std::time::Duration;

use howdah_executor::Mode;
use howdah_executor::auto_children::auto_children;
use howdah_executor::config::{PoolConfig, ProcessManager, ProcessTimeouts, WorkerConfig};
use howdah_executor::embed::glob::Glob;

use super::options::Spec;
use super::programs::{cgi, program_ini, program_pool};
use super::reader::{At, Section, Validation};
use super::server::{Identity, identity_of, typed};
use super::{Program, Timeouts, cores};
use crate::arguments::Serve;

/// The pool there is without any section.
pub const DEFAULT_POOL: &str = "www";

/// The least time that a zygote or spawner has for an answer, whatever `timeouts.hang` is.
const LEAST_ANSWER: Duration = Duration::from_secs(10);

/// What the command line says about every pool.
pub struct Overrides {
    /// `--mode`, or the mode that `--worker` or `--fastcgi` means.
    mode: Option<String>,
    /// `--children`; inner none: `auto`.
    pub children: Option<Option<u32>>,
    /// `-d`
    pub defines: Vec<(String, String)>,
    /// `--env`
    environment: Vec<(String, String)>,
}

/// All pools; the one default pool when the file names none.
pub fn pools(
    arguments: &Serve,
    top: &Section<'_, '_, '_>,
    program: &Program<'_, '_, '_, '_>,
    identity: &Identity,
    timeouts: &Timeouts,
) -> Vec<Mode> {
    let sections = sections(top);
    let overrides = Overrides {
        mode: mode_override(arguments, top),
        children: arguments.children.as_ref().and_then(|text| {
            typed(top, "--children", "pool.*", "max_children", text)
                .map(|text| text.parse::<u32>().ok())
        }),
        defines: command_line_defines(arguments, top),
        environment: command_line_environment(arguments, top),
    };
    let usual_mode = top.text("mode").unwrap_or_default();
    let mode_of = |section: &Section<'_, '_, '_>| {
        let own = overrides.mode.clone().or_else(|| section.text("mode"));
        own.unwrap_or_else(|| usual_mode.clone())
    };
    let modes: Vec<String> = sections.iter().map(|(_, s)| mode_of(s)).collect();
    ini_does_not_reach(arguments, top, &sections, &modes);
    let process_timeouts = ProcessTimeouts {
        start: timeouts.start,
        fork: (timeouts.hang / 3).max(LEAST_ANSWER),
        shutdown: timeouts.drain,
    };
    let pool = |((name, section), mode): (&(At<String>, Section<'_, '_, '_>), String)| {
        refuse_options_of_other_modes(section, &mode);
        let name = &name.value;
        match mode.as_str() {
            "fastcgi" => Mode::FastCgi(super::fastcgi::pool(name, section, arguments, &overrides)),
            "pool" | "cgi" => {
                let ini = program_ini(arguments, section, &overrides.defines);
                match mode.as_str() {
                    "pool" => {
                        let mut pool = program_pool(
                            name,
                            section,
                            ini,
                            identity,
                            &overrides,
                            process_timeouts,
                        );
                        pool.identity
                            .environment
                            .extend(overrides.environment.clone());
                        Mode::Pool(pool)
                    }
                    _ => {
                        let mut pool =
                            cgi(name, section, ini, identity, &overrides, process_timeouts);
                        pool.identity
                            .environment
                            .extend(overrides.environment.clone());
                        Mode::Cgi(pool)
                    }
                }
            }
            _ => {
                let is_worker = mode == "worker";
                let mut pool = embed(name, section, identity, &overrides, is_worker);
                pool.program = program.path();
                pool.timeouts = process_timeouts;
                pool.php_ini = php_ini(arguments, section);
                pool.worker = is_worker.then(|| WorkerConfig {
                    script: worker_script(section, arguments),
                });
                Mode::Embed(pool)
            }
        }
    };
    sections.iter().zip(modes).map(pool).collect()
}

/// The tables `[pool.NAME]`, or one that says nothing.
fn sections<'f, 'm, 't>(top: &Section<'f, 'm, 't>) -> Vec<(At<String>, Section<'f, 'm, 't>)> {
    let mut sections = top.named_sections("pool", "pool.*");
    for (name, _) in &sections {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.value.is_empty() || name.value.len() > 32 || !name.value.chars().all(plain) {
            top.file().mistake(
                name.place.clone(),
                format!(
                    "pool.{}: a pool's name has up to 32 letters, digits, `-`, `_`, `.`",
                    name.value.escape_debug()
                ),
            );
        }
    }
    if sections.is_empty() {
        let name = At {
            value: DEFAULT_POOL.to_owned(),
            place: None,
        };
        sections.push((name, Section::new(top.file(), "pool.*", None, None, &[])));
    }
    sections
}

/// The mode that the command line gives every pool: `--worker` and `--fastcgi` mean one, too.
fn mode_override(arguments: &Serve, top: &Section<'_, '_, '_>) -> Option<String> {
    let mut mode = arguments
        .mode
        .as_ref()
        .and_then(|text| typed(top, "--mode", "", "mode", text));
    for (given, argument, meant) in [
        (arguments.worker.is_some(), "--worker", "worker"),
        (arguments.fastcgi.is_some(), "--fastcgi", "fastcgi"),
    ] {
        match &mode {
            _ if !given => {}
            Some(mode) if mode != meant => {
                let message = format!("{argument}: has no effect in mode `{mode}`");
                top.file().mistake(None, message);
            }
            _ => mode = Some(meant.to_owned()),
        }
    }
    mode
}

/// `--php-ini`, `-d` and `--env` count for every pool whose PHP we start. That they reach no other is a mistake
/// when there is nobody else they could be meant for, and advice otherwise.
fn ini_does_not_reach(
    arguments: &Serve,
    top: &Section<'_, '_, '_>,
    sections: &[(At<String>, Section<'_, '_, '_>)],
    modes: &[String],
) {
    let names = sections.iter().zip(modes);
    let elsewhere: Vec<String> = names
        .filter(|(_, mode)| *mode == "fastcgi")
        .map(|((name, _), _)| format!("`{}`", name.value))
        .collect();
    for (given, option) in [
        (arguments.php_ini.is_some(), "--php-ini"),
        (!arguments.define.is_empty(), "-d"),
        (!arguments.env.is_empty(), "--env"),
    ] {
        if !given || elsewhere.is_empty() {
            continue;
        }
        let pools = elsewhere.join(", ");
        let message = format!(
            "{option}: has no effect in mode `fastcgi` (pool {pools}), whose PHP is started elsewhere; say it in php-fpm's pool, or as the site's php_value and env"
        );
        if elsewhere.len() == modes.len() {
            top.file().mistake(None, message);
        } else {
            top.file().advise(None, message);
        }
    }
}

/// An option that has no effect in the pool's mode is a mistake: somebody meant something by it.
fn refuse_options_of_other_modes(section: &Section<'_, '_, '_>, mode: &str) {
    let foreign = |spec: &&Spec| !spec.modes.is_empty() && !spec.modes.contains(&mode);
    for spec in section.given().filter(foreign) {
        let words: Vec<String> = spec.modes.iter().map(|word| format!("`{word}`")).collect();
        let why = match mode {
            "fastcgi" if spec.modes.contains(&"embed") => {
                "; PHP is started elsewhere: say it in php-fpm's pool, or as the site's php_value and env"
            }
            "cgi" if spec.modes.contains(&"embed") => "; its processes live for one request",
            _ => "",
        };
        let message = format!(
            "{}: has no effect in mode `{mode}`; it is for {}{why}",
            spec.key,
            words.join(", ")
        );
        section.file().mistake(section.place_of(spec.key), message);
    }
}

/// The script of a worker pool, absolute; an empty path after a mistake.
fn worker_script(section: &Section<'_, '_, '_>, arguments: &Serve) -> PathBuf {
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

fn command_line_defines(arguments: &Serve, top: &Section<'_, '_, '_>) -> Vec<(String, String)> {
    let mut defines = Vec::new();
    for text in &arguments.define {
        // php's own -d: a name alone is on.
        let (name, value) = text.split_once('=').unwrap_or((text, "1"));
        if name.trim().is_empty() || text.contains(['\0', '\n']) {
            top.file().mistake(
                None,
                format!("-d: `{}` is not NAME=VALUE", text.escape_debug()),
            );
        } else {
            defines.push((name.trim().to_owned(), value.to_owned()));
        }
    }
    defines
}

/// `--env NAME=VALUE`, and `--env NAME` for what the server's environment has.
fn command_line_environment(arguments: &Serve, top: &Section<'_, '_, '_>) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for text in &arguments.env {
        let name = text.split('=').next().unwrap_or_default();
        let value = match text.split_once('=') {
            Some((_, value)) => Ok(value.to_owned()),
            None => std::env::var(name),
        };
        match value {
            Ok(value) if !name.is_empty() && !text.contains('\0') => {
                pairs.push((name.to_owned(), value));
            }
            Ok(_) => {
                let message = format!("--env: `{}` is not NAME=VALUE", text.escape_debug());
                top.file().mistake(None, message);
            }
            Err(why) => {
                let message = format!("--env: `{}`: {why}", name.escape_debug());
                top.file().mistake(None, message);
            }
        }
    }
    pairs
}

pub(super) fn php_ini(arguments: &Serve, section: &Section<'_, '_, '_>) -> Option<PathBuf> {
    let (what, place, ini) = match &arguments.php_ini {
        Some(typed) => ("--php-ini", None, typed.clone()),
        None => {
            let place = section.place_of("php_ini");
            ("php_ini", place, section.path("php_ini")?)
        }
    };
    if section.file().validation == Validation::Full && !ini.is_file() {
        let message = format!("{what}: there is no file {}", ini.display());
        section.file().mistake(place, message);
    }
    Some(ini)
}

/// The user and group that a pool's processes run as; by default the server's.
pub(super) fn pool_identity(section: &Section<'_, '_, '_>, server: &Identity) -> Identity {
    match section.text("user") {
        Some(text) => identity_of(section, "user", section.place_of("user"), &text),
        None => server.clone(),
    }
}

pub(super) fn plain_pairs(section: &Section<'_, '_, '_>, key: &str) -> Vec<(String, String)> {
    let pairs = section.pairs(key).into_iter();
    pairs.map(|pair| pair.value).collect()
}

pub(super) fn max_children(section: &Section<'_, '_, '_>, overrides: &Overrides) -> u32 {
    max_children_or(section, overrides, auto_children)
}

fn max_children_or(
    section: &Section<'_, '_, '_>,
    overrides: &Overrides,
    auto: impl FnOnce() -> u32,
) -> u32 {
    // Read in any case: mistakes in the file are reported although the command line overrides it.
    let in_file = section.number("max_children").map(|n| n as u32);
    overrides.children.unwrap_or(in_file).unwrap_or_else(auto)
}

/// Modes `embed` and `worker`, but for what is looked up outside of the section.
fn embed(
    name: &str,
    section: &Section<'_, '_, '_>,
    identity: &Identity,
    overrides: &Overrides,
    is_worker: bool,
) -> PoolConfig {
    let max_children = max_children_or(section, overrides, || {
        if is_worker {
            // FrankenPHP's: an application in memory is large, and does not wait for its boot.
            (2 * cores()).min(auto_children())
        } else {
            auto_children()
        }
    });
    let identity = pool_identity(section, identity);
    let time = |key| section.time(key);
    let mut defines = plain_pairs(section, "php_value");
    defines.extend(overrides.defines.iter().cloned());
    let mut environment = plain_pairs(section, "env");
    environment.extend(overrides.environment.iter().cloned());
    PoolConfig {
        name: name.to_owned(),
        program: PathBuf::new(),
        pm: process_manager(section, max_children, overrides, is_worker),
        max_children,
        process_idle_timeout: time("process_idle_timeout").unwrap_or_default(),
        max_requests: section.number("max_requests").unwrap_or_default(),
        max_memory: section.size("max_memory"),
        queue_size: section.number("queue_size").unwrap_or_default() as u32,
        queue_timeout: time("queue_timeout").unwrap_or_default(),
        request_terminate_timeout: time("request_terminate_timeout"),
        request_slowlog_timeout: time("request_slowlog_timeout"),
        php_ini: None,
        opcache: !is_opcache_off(&defines),
        defines,
        user: identity.user,
        group: identity.group,
        environment,
        clear_env: section.on("clear_env"),
        watch: section
            .texts("watch")
            .into_iter()
            .inspect(|text| {
                if let Err(why) = Glob::parse(&text.value, Path::new("/")) {
                    section
                        .file()
                        .mistake(text.place.clone(), format!("watch: {why}"));
                }
            })
            .map(|text| match is_worker {
                // From the script's directory, which the executor knows.
                true => text.value,
                false => section.file().path(&text.value).display().to_string(),
            })
            .collect(),
        worker: None,
        timeouts: ProcessTimeouts::default(),
    }
}

/// Whether the pool's own settings switch opcache off: nobody needs to be warned then.
fn is_opcache_off(defines: &[(String, String)]) -> bool {
    let last = defines.iter().rfind(|(name, _)| name == "opcache.enable");
    last.is_some_and(|(_, value)| {
        let words = ["", "0", "off", "no", "false", "none"];
        words.contains(&value.trim().to_ascii_lowercase().as_str())
    })
}

/// `pm`
pub(super) fn process_manager(
    section: &Section<'_, '_, '_>,
    max_children: u32,
    overrides: &Overrides,
    is_worker: bool,
) -> ProcessManager {
    let pm = section.text("pm");
    let is_static = match pm.as_deref() {
        Some("static") => true,
        _ => !section.has("pm") && (is_worker || matches!(overrides.children, Some(Some(_)))),
    };
    // Read in any case: mistakes in them are reported.
    let dynamic = dynamic(section, max_children);
    match pm.as_deref() {
        _ if is_static => ProcessManager::Static,
        Some("ondemand") => ProcessManager::Ondemand,
        _ => dynamic,
    }
}

/// The spares; those that are not given follow from the cores and fit those that are.
fn dynamic(section: &Section<'_, '_, '_>, max_children: u32) -> ProcessManager {
    let given = |key| section.number(key).map(|n| n as u32);
    let (min, max) = (given("min_spare_servers"), given("max_spare_servers"));
    let min_spare = min.unwrap_or_else(|| {
        (cores() / 2)
            .max(1)
            .min(max.unwrap_or(max_children))
            .min(max_children)
    });
    let max_spare = max.unwrap_or_else(|| (2 * cores()).max(4).max(min_spare).min(max_children));
    // php-fpm's rules (fpm_conf_process_all_pools).
    let rule = |holds: bool, key: &str, message: String| {
        if !holds {
            section.file().mistake(section.place_of(key), message);
        }
    };
    rule(
        max_spare <= max_children,
        "max_spare_servers",
        format!("max_spare_servers: {max_spare} is more than max_children = {max_children}"),
    );
    rule(
        min_spare <= max_spare,
        "min_spare_servers",
        format!("min_spare_servers: {min_spare} is more than max_spare_servers = {max_spare}"),
    );
    ProcessManager::Dynamic {
        start_servers: cores().clamp(min_spare.min(max_spare), max_spare),
        min_spare_servers: min_spare,
        max_spare_servers: max_spare,
    }
}
