//! `[pool.NAME]` of the modes that start external programs, into the executor's settings.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use howdah_executor::config::{
    CgiConfig, FastCgiConfig, ProcessTimeouts, Processes, ProgramIdentity, ProgramIni,
    ProgramPoolConfig,
};

use super::fastcgi::client;
use super::pool::{Overrides, max_children, php_ini, plain_pairs, pool_identity, process_manager};
use super::reader::{Section, Validation};
use super::server::Identity;
use crate::arguments::Serve;

/// Mode `cgi`.
pub fn cgi(
    name: &str,
    section: &Section<'_, '_, '_>,
    mut ini: ProgramIni,
    identity: &Identity,
    overrides: &Overrides,
    process_timeouts: ProcessTimeouts,
) -> CgiConfig {
    // A cache that ends with the request only costs: see docs/performance.md. php_value may say otherwise.
    let opcache_off = ("opcache.enable".to_owned(), "0".to_owned());
    ini.defines.insert(0, opcache_off);
    CgiConfig {
        name: name.to_owned(),
        command: command(section),
        identity: program_identity(section, identity),
        ini,
        max_children: max_children(section, overrides),
        queue_size: section.number("queue_size").unwrap_or_default() as u32,
        queue_timeout: section.time("queue_timeout").unwrap_or_default(),
        request_terminate_timeout: section.time("request_terminate_timeout"),
        spawner_timeout: process_timeouts.fork,
    }
}

/// Mode `pool`.
pub fn program_pool(
    name: &str,
    section: &Section<'_, '_, '_>,
    ini: ProgramIni,
    identity: &Identity,
    overrides: &Overrides,
    process_timeouts: ProcessTimeouts,
) -> ProgramPoolConfig {
    let command = command(section);
    let is_php = command
        .first()
        .and_then(|program| Path::new(program).file_name()?.to_str())
        .is_some_and(|file| file.starts_with("php-cgi"));
    let processes = match section.text("processes").as_deref() {
        Some("shared") => Processes::Shared,
        Some("auto") if is_php => Processes::Shared,
        _ => Processes::Independent {
            connections: section.number("max_connections").unwrap_or(1) as u32,
        },
    };
    let max_children = max_children(section, overrides);
    let mistake = |key: &str, message: String| {
        section.file().mistake(section.place_of(key), message);
    };
    if processes == Processes::Shared {
        for key in ["pm", "max_memory", "max_connections"] {
            if section.has(key) {
                mistake(
                    key,
                    format!(
                        "{key}: has no effect with processes = \"shared\", where PHP forks its children itself; say processes = \"independent\""
                    ),
                );
            }
        }
    }
    ProgramPoolConfig {
        name: name.to_owned(),
        command,
        processes,
        pm: process_manager(section, max_children, overrides, false),
        identity: program_identity(section, identity),
        ini,
        max_children,
        process_idle_timeout: section.time("process_idle_timeout").unwrap_or_default(),
        max_requests: section.number("max_requests").unwrap_or_default(),
        max_memory: section
            .size("max_memory")
            .filter(|_| processes != Processes::Shared),
        spawner_timeout: process_timeouts.fork,
        client: FastCgiConfig {
            max_connections: None,
            ..client(name, section)
        },
    }
}

fn program_identity(section: &Section<'_, '_, '_>, identity: &Identity) -> ProgramIdentity {
    let identity = pool_identity(section, identity);
    ProgramIdentity {
        user: identity.user,
        group: identity.group,
        environment: plain_pairs(section, "env"),
        clear_env: section.on("clear_env"),
    }
}

/// PHP's settings: the pool's, then those of the command line.
pub fn program_ini(
    arguments: &Serve,
    section: &Section<'_, '_, '_>,
    defines: &[(String, String)],
) -> ProgramIni {
    let mut all = plain_pairs(section, "php_value");
    all.extend(defines.iter().cloned());
    ProgramIni {
        php_ini: php_ini(arguments, section),
        defines: all,
    }
}

/// `command`, its program looked up. The front does not start it and does not look.
fn command(section: &Section<'_, '_, '_>) -> Vec<String> {
    let mut words: Vec<String> = section
        .texts("command")
        .into_iter()
        .map(|at| at.value)
        .collect();
    if section.file().validation == Validation::Trusted {
        return words;
    }
    let Some(program) = words.first_mut() else {
        let message = "command: names no program".to_owned();
        section.file().mistake(section.place_of("command"), message);
        return words;
    };
    match find(program) {
        Some(path) => *program = path.to_string_lossy().into_owned(),
        None => {
            let advice = match program.contains("php-cgi") {
                true => "; install it (Debian: apt install php-cgi), or name another `command`",
                false => "; name an executable file, or one in PATH",
            };
            let message =
                format!("ProgramMissing: command: there is no program `{program}`{advice}");
            section.file().mistake(section.place_of("command"), message);
        }
    }
    words
}

/// An executable file, by path or in PATH.
pub fn find(program: &str) -> Option<PathBuf> {
    let is_program = |path: &Path| {
        path.metadata()
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        let path = std::path::absolute(program).ok()?;
        return is_program(&path).then_some(path);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|path| is_program(path))
}
