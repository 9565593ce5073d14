//! `[pool.NAME]` into the executor's pool settings.

use std::path::PathBuf;

use howdah_executor::auto_children::auto_children;
use howdah_executor::config::{Patience, ProcessManager, WorkerConfig};
use howdah_executor::{Mode, PoolConfig};

use super::programs::{cgi, program_ini, program_pool};
use super::reader::{Eyes, Section};
use super::server::{Identity, Typed, check_identity, typed};
use super::{Program, cores};
use crate::arguments::Serve;

/// The pool there is without any section.
pub const DEFAULT_POOL: &str = "www";

/// All pools; the one default pool when the file names none.
pub fn pools(
    arguments: &Serve,
    top: &Section<'_, '_, '_>,
    program: &Program<'_, '_, '_, '_>,
    identity: &Identity,
) -> Vec<Mode> {
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
        let name = super::reader::At {
            value: DEFAULT_POOL.to_owned(),
            place: None,
        };
        sections.push((name, Section::new(top.file(), "pool.*", None, None, &[])));
    }
    let defines = command_line_defines(arguments, top);
    let environment = command_line_environment(arguments, top);
    let environment = || environment.iter().cloned();
    let children = arguments.children.as_ref().and_then(|text| {
        typed(top, "--children", "pool.*", "max_children", text)
            .map(|text| text.parse::<u32>().ok())
    });
    let patience = patience(top);
    let typed_mode = arguments.mode.as_ref();
    let typed_mode = typed_mode.and_then(|text| typed(top, "--mode", "", "mode", text));
    let typed_mode = match (&arguments.worker, typed_mode) {
        (None, mode) => mode,
        (Some(_), None) => Some("worker".to_owned()),
        (Some(_), Some(mode)) => {
            if mode != "worker" {
                let message = format!("--worker: has no effect in mode `{mode}`");
                top.file().mistake(None, message);
            }
            Some(mode)
        }
    };
    let typed_mode = match (&arguments.fastcgi, typed_mode) {
        (None, mode) => mode,
        (Some(_), None) => Some("fastcgi".to_owned()),
        (Some(_), Some(mode)) => {
            if mode != "fastcgi" {
                let message = format!("--fastcgi: has no effect in mode `{mode}`");
                top.file().mistake(None, message);
            }
            Some(mode)
        }
    };
    let usual_mode = typed_mode.clone().or_else(|| top.text("mode"));
    let mode_of = |section: &Section<'_, '_, '_>| {
        let own = typed_mode.clone().or_else(|| section.text("mode"));
        own.or_else(|| usual_mode.clone()).unwrap_or_default()
    };
    let modes: Vec<String> = sections
        .iter()
        .map(|(_, section)| mode_of(section))
        .collect();
    ini_does_not_reach(arguments, top, &sections, &modes);
    sections
        .iter()
        .zip(modes)
        .map(|((name, section), mode)| {
            refuse_what_does_not_apply(section, &mode);
            if mode == "fastcgi" {
                let pool = super::fastcgi::pool(&name.value, top, section, arguments, children);
                return Mode::FastCgi(pool);
            }
            if mode == "pool" {
                let ini = program_ini(arguments, section, &defines);
                let mut pool =
                    program_pool(&name.value, section, ini, identity, children, patience);
                pool.identity.environment.extend(environment());
                return Mode::Pool(pool);
            }
            if mode == "cgi" {
                let ini = program_ini(arguments, section, &defines);
                let mut pool = cgi(&name.value, section, ini, identity, children, patience);
                pool.identity.environment.extend(environment());
                return Mode::Cgi(pool);
            }
            let worker = mode == "worker";
            let mut pool = embed(&name.value, section, program, identity, children, worker);
            pool.patience = patience;
            pool.php_ini = php_ini(arguments, section);
            pool.defines.splice(0..0, profile(section));
            pool.defines.extend(defines.iter().cloned());
            pool.environment.extend(environment());
            if worker {
                pool.worker = Some(WorkerConfig {
                    script: worker_script(section, arguments),
                });
            }
            Mode::Embed(pool)
        })
        .collect()
}

/// `--php-ini`, `-d` and `--env` count for every pool whose PHP we start. That they reach no other is a mistake
/// when there is nobody else they could be meant for, and advice otherwise.
fn ini_does_not_reach(
    arguments: &Serve,
    top: &Section<'_, '_, '_>,
    sections: &[(super::reader::At<String>, Section<'_, '_, '_>)],
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
            "{option}: has no effect in mode `fastcgi` (pool {pools}), whose processes are somebody else's; say it in php-fpm's pool, or as the site's php_value and env"
        );
        if elsewhere.len() == modes.len() {
            top.file().mistake(None, message);
        } else {
            top.file().advise(None, message);
        }
    }
}

/// The options of a pool that only some modes have; the others are for all. An option that would
/// have no effect is a mistake: somebody meant something by it.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("command", &["pool", "cgi"]),
    ("processes", &["pool"]),
    ("process_lifetime", &["pool"]),
    ("ports", &["pool"]),
    ("worker", &["worker"]),
    ("watch", &["worker", "embed"]),
    ("fastcgi", &["fastcgi"]),
    ("max_connections", &["fastcgi", "pool"]),
    ("keep_connections", &["fastcgi", "pool"]),
    ("keep_timeout", &["fastcgi", "pool"]),
    ("connect_timeout", &["fastcgi", "pool"]),
    ("send_timeout", &["fastcgi", "pool"]),
    ("read_timeout", &["fastcgi", "pool"]),
    ("restart_time", &["fastcgi"]),
    ("script_root", &["fastcgi"]),
    ("request_body_directory", &["fastcgi"]),
];

/// What is about processes of our own, which mode `fastcgi` has none of.
const NOT_IN_FASTCGI: &[&str] = &[
    "pm",
    "max_children",
    "start_servers",
    "min_spare_servers",
    "max_spare_servers",
    "process_idle_timeout",
    "max_requests",
    "max_memory",
    "request_slowlog_timeout",
    "php_ini",
    "php_value",
    "opcache",
    "profile",
    "user",
    "group",
    "env",
    "clear_env",
];

/// What is about processes that live longer than a request.
const NOT_IN_CGI: &[&str] = &[
    "pm",
    "start_servers",
    "min_spare_servers",
    "max_spare_servers",
    "process_idle_timeout",
    "max_requests",
    "max_memory",
    "request_slowlog_timeout",
    "profile",
];

/// What takes a look into PHP.
const NOT_IN_POOL: &[&str] = &["request_slowlog_timeout"];

fn refuse_what_does_not_apply(section: &Section<'_, '_, '_>, mode: &str) {
    let (keys, why) = match mode {
        "fastcgi" => (
            NOT_IN_FASTCGI,
            "whose processes are somebody else's; say it in php-fpm's pool, or as the site's own php_value and env",
        ),
        "pool" => (NOT_IN_POOL, "whose PHP cannot be looked into"),
        "cgi" => (NOT_IN_CGI, "whose processes live for one request"),
        _ => (&[][..], ""),
    };
    for key in keys.iter().filter(|key| section.has(key)) {
        let message = format!("{key}: has no effect in mode `{mode}`, {why}");
        section.file().mistake(section.place_of(key), message);
    }
    for (key, modes) in ONLY_IN {
        if section.has(key) && !modes.contains(&mode) {
            let words: Vec<String> = modes.iter().map(|word| format!("`{word}`")).collect();
            section.file().mistake(
                section.place_of(key),
                format!(
                    "{key}: has no effect in mode `{mode}`; it is for {}",
                    words.join(", ")
                ),
            );
        }
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
    if section.file().eyes == Eyes::Master && !script.is_file() {
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
    if section.file().eyes == Eyes::Master && !ini.is_file() {
        let message = format!("{what}: there is no file {}", ini.display());
        section.file().mistake(place, message);
    }
    Some(ini)
}

/// As whom a pool's processes run; without a word about it as the server.
pub(super) fn user_and_group(
    section: &Section<'_, '_, '_>,
    identity: &Identity,
) -> (Option<String>, Option<String>) {
    let (user, group) = (section.text("user"), section.text("group"));
    check_identity(
        section,
        (user.as_ref(), section.place_of("user")),
        (group.as_ref(), section.place_of("group")),
        Typed::default(),
    );
    match user {
        Some(user) => (Some(user), group),
        None => (identity.user.clone(), identity.group.clone()),
    }
}

/// `profile`: settings that go before all others.
pub(super) fn profile(section: &Section<'_, '_, '_>) -> Option<(String, String)> {
    let setting = |name: &str| Some((name.to_owned(), "0".to_owned()));
    match section.text("profile").as_deref() {
        Some("development") => setting("opcache.revalidate_freq"),
        Some("production") => setting("opcache.validate_timestamps"),
        _ => None,
    }
}

pub(super) fn plain_pairs(section: &Section<'_, '_, '_>, key: &str) -> Vec<(String, String)> {
    let pairs = section.pairs(key).into_iter();
    pairs.map(|pair| pair.value).collect()
}

pub(super) fn max_children(section: &Section<'_, '_, '_>, children: Option<Option<u32>>) -> u32 {
    max_children_or(section, children, auto_children)
}

fn max_children_or(
    section: &Section<'_, '_, '_>,
    children: Option<Option<u32>>,
    auto: impl FnOnce() -> u32,
) -> u32 {
    // Read in any case: mistakes in the file are reported although the command line overrides it.
    let in_file = section.number("max_children").map(|n| n as u32);
    children.unwrap_or(in_file).unwrap_or_else(auto)
}

/// `children`: outer none: not on the command line; inner none: `auto`.
fn embed(
    name: &str,
    section: &Section<'_, '_, '_>,
    program: &Program<'_, '_, '_, '_>,
    identity: &Identity,
    children: Option<Option<u32>>,
    worker: bool,
) -> PoolConfig {
    let max_children = max_children_or(section, children, || {
        if worker {
            // FrankenPHP's: an application in memory is large, and does not wait for its boot.
            (2 * cores()).min(auto_children())
        } else {
            auto_children()
        }
    });
    let pm = process_manager(section, max_children, children, worker);
    let (user, group) = user_and_group(section, identity);
    let time = |key| section.time(key);
    PoolConfig {
        name: name.to_owned(),
        program: program.path(),
        pm,
        max_children,
        process_idle_timeout: time("process_idle_timeout").unwrap_or_default(),
        max_requests: section.number("max_requests").unwrap_or_default(),
        max_memory: section.size("max_memory"),
        queue_size: section.number("queue_size").unwrap_or_default() as u32,
        queue_timeout: time("queue_timeout").unwrap_or_default(),
        request_terminate_timeout: time("request_terminate_timeout"),
        request_slowlog_timeout: time("request_slowlog_timeout"),
        php_ini: None,
        defines: plain_pairs(section, "php_value"),
        opcache: section.on("opcache"),
        user,
        group,
        environment: plain_pairs(section, "env"),
        clear_env: section.on("clear_env"),
        watch: section
            .texts("watch")
            .into_iter()
            .map(|text| match worker {
                // From the script's directory, which the executor knows.
                true => text.value,
                false => section.file().path(&text.value).display().to_string(),
            })
            .collect(),
        worker: None,
        patience: Patience::default(),
    }
}

/// `[timeouts]`, as far as it is about PHP's processes.
fn patience(top: &Section<'_, '_, '_>) -> Patience {
    // Read a second time for this; a mistake noted twice is kept once.
    let timeouts = top.section("timeouts", "timeouts");
    let usual = Patience::default();
    Patience {
        start: timeouts.time("start").unwrap_or(usual.start),
        fork: timeouts.time("fork").unwrap_or(usual.fork),
        farewell: timeouts.time("drain").unwrap_or(usual.farewell),
    }
}

/// `pm`
pub(super) fn process_manager(
    section: &Section<'_, '_, '_>,
    max_children: u32,
    children: Option<Option<u32>>,
    worker: bool,
) -> ProcessManager {
    let pm = section.text("pm");
    let is_static = match pm.as_deref() {
        Some("static") => true,
        _ => !section.has("pm") && (worker || matches!(children, Some(Some(_)))),
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
    let (start, min, max) = (
        given("start_servers"),
        given("min_spare_servers"),
        given("max_spare_servers"),
    );
    let min_spare = min.unwrap_or_else(|| {
        (cores() / 2)
            .max(1)
            .min(max.unwrap_or(max_children))
            .min(max_children)
    });
    let max_spare = max.unwrap_or_else(|| (2 * cores()).max(4).max(min_spare).min(max_children));
    let start = start.unwrap_or_else(|| cores().clamp(min_spare.min(max_spare), max_spare));
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
    rule(
        min_spare > max_spare || (min_spare..=max_spare).contains(&start),
        "start_servers",
        format!(
            "start_servers: {start} is not between min_spare_servers = {min_spare} and max_spare_servers = {max_spare}"
        ),
    );
    ProcessManager::Dynamic {
        start_servers: start,
        min_spare_servers: min_spare,
        max_spare_servers: max_spare,
    }
}
