//! `[pool.NAME]` into the executor's pool settings.

use std::path::Path;

use howdah_executor::PoolConfig;
use howdah_executor::auto_children::auto_children;
use howdah_executor::config::ProcessManager;

use super::cores;
use super::reader::{Eyes, Section};
use super::server::{Identity, check_identity, typed};
use crate::arguments::Serve;

/// The pool there is without any section.
pub const DEFAULT_POOL: &str = "www";

/// All pools; the one default pool when the file names none.
pub fn pools(
    arguments: &Serve,
    top: &Section<'_, '_, '_>,
    program: &Path,
    identity: &Identity,
) -> Vec<PoolConfig> {
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
    let children = arguments.children.as_ref().and_then(|text| {
        typed(top, "--children", "pool.*", "max_children", text)
            .map(|text| text.parse::<u32>().ok())
    });
    sections
        .iter()
        .map(|(name, section)| {
            let mut pool = pool(&name.value, section, program, identity, children);
            if let Some(ini) = &arguments.php_ini {
                pool.php_ini = Some(ini.clone());
            }
            if let Some(ini) = &pool.php_ini
                && top.file().eyes == Eyes::Master
                && !ini.is_file()
            {
                let place = section.place_of("php_ini");
                let message = format!("php_ini: there is no file {}", ini.display());
                top.file().mistake(place, message);
            }
            pool.defines.extend(defines.iter().cloned());
            pool
        })
        .collect()
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

/// `children`: outer none: not on the command line; inner none: `auto`.
fn pool(
    name: &str,
    section: &Section<'_, '_, '_>,
    program: &Path,
    identity: &Identity,
    children: Option<Option<u32>>,
) -> PoolConfig {
    let max_children = match children {
        Some(Some(n)) => n,
        Some(None) => auto_children(),
        None => section
            .number("max_children")
            .map_or_else(auto_children, |n| n as u32),
    };
    let pm = section.text("pm");
    let is_static = match pm.as_deref() {
        Some("static") => true,
        _ => !section.has("pm") && matches!(children, Some(Some(_))),
    };
    let dynamic = dynamic(section, max_children);
    let (user, group) = (section.text("user"), section.text("group"));
    check_identity(
        section,
        user.as_ref(),
        section.place_of("user"),
        group.as_ref(),
        section.place_of("group"),
    );
    let (user, group) = match user {
        Some(user) => (Some(user), group),
        None => (identity.user.clone(), identity.group.clone()),
    };
    let plain = |key| {
        let pairs = section.pairs(key).into_iter();
        pairs.map(|pair| pair.value).collect()
    };
    let time = |key| section.time(key);
    PoolConfig {
        name: name.to_owned(),
        program: program.to_owned(),
        pm: if is_static {
            ProcessManager::Static
        } else if pm.as_deref() == Some("ondemand") {
            ProcessManager::Ondemand
        } else {
            dynamic
        },
        max_children,
        process_idle_timeout: time("process_idle_timeout").unwrap_or_default(),
        max_requests: section.number("max_requests").unwrap_or_default(),
        max_memory: section.size("max_memory"),
        queue_size: section.number("queue_size").unwrap_or_default() as u32,
        queue_timeout: time("queue_timeout").unwrap_or_default(),
        request_terminate_timeout: time("request_terminate_timeout"),
        request_slowlog_timeout: time("request_slowlog_timeout"),
        php_ini: section.path("php_ini"),
        defines: plain("php_value"),
        opcache: section.on("opcache"),
        user,
        group,
        environment: plain("env"),
        clear_env: section.on("clear_env"),
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
