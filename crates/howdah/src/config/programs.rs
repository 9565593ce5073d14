//! `[pool.NAME]` of the modes that start external programs, into the executor's settings.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use howdah_executor::config::{
    CgiConfig, FastCgiConfig, Patience, Processes, ProgramIdentity, ProgramIni, ProgramPoolConfig,
};
use howdah_executor::fastcgi::address::{self, Address, Backend};

use super::pool::{max_children, php_ini, plain_pairs, process_manager, profile, user_and_group};
use super::reader::{Eyes, Section};
use super::server::Identity;
use crate::arguments::Serve;

/// Mode `cgi`.
pub fn cgi(
    name: &str,
    section: &Section<'_, '_, '_>,
    mut ini: ProgramIni,
    identity: &Identity,
    children: Option<Option<u32>>,
    patience: Patience,
) -> CgiConfig {
    // A cache that ends with the request only costs: docs/performance.md.
    if !(section.has("opcache") && section.on("opcache")) {
        ini.defines.insert(0, opcache_off());
    }
    CgiConfig {
        name: name.to_owned(),
        command: command(section),
        identity: program_identity(section, identity),
        ini,
        max_children: max_children(section, children),
        queue_size: section.number("queue_size").unwrap_or_default() as u32,
        queue_timeout: section.time("queue_timeout").unwrap_or_default(),
        request_terminate_timeout: section.time("request_terminate_timeout"),
        spawner_timeout: patience.fork,
    }
}

/// Mode `pool`.
pub fn program_pool(
    name: &str,
    section: &Section<'_, '_, '_>,
    mut ini: ProgramIni,
    identity: &Identity,
    children: Option<Option<u32>>,
    patience: Patience,
) -> ProgramPoolConfig {
    if !section.on("opcache") {
        ini.defines.insert(0, opcache_off());
    }
    let command = command(section);
    let is_php = command
        .first()
        .and_then(|program| Path::new(program).file_name()?.to_str())
        .is_some_and(|file| file.starts_with("php-cgi"));
    let ports = ports(section);
    let processes = match section.text("processes").as_deref() {
        Some("shared") => Processes::Shared,
        Some("auto") if is_php && ports.is_empty() => Processes::Shared,
        _ => Processes::Independent {
            connections: section.number("max_connections").unwrap_or(1) as u32,
        },
    };
    let mut max_children = max_children(section, children);
    let mistake = |key: &str, message: String| {
        section.file().mistake(section.place_of(key), message);
    };
    if processes == Processes::Shared {
        for key in ["pm", "max_memory", "max_connections", "ports"] {
            if section.has(key) {
                mistake(
                    key,
                    format!(
                        "{key}: has no effect with processes = \"shared\", where PHP forks its children itself; say processes = \"independent\""
                    ),
                );
            }
        }
    } else if !ports.is_empty() && max_children as usize > ports.len() {
        let given = section.has("max_children") || matches!(children, Some(Some(_)));
        if given {
            let count = ports.len();
            mistake(
                "ports",
                format!("ports: {count} ports are too few for max_children = {max_children}"),
            );
        }
        max_children = ports.len() as u32;
    }
    let time = |key| section.time(key).unwrap_or_default();
    ProgramPoolConfig {
        name: name.to_owned(),
        command,
        processes,
        pm: process_manager(section, max_children, children, false),
        ports,
        identity: program_identity(section, identity),
        ini,
        max_children,
        process_idle_timeout: time("process_idle_timeout"),
        max_requests: section.number("max_requests").unwrap_or_default(),
        max_memory: section
            .size("max_memory")
            .filter(|_| processes != Processes::Shared),
        process_lifetime: section.time("process_lifetime"),
        spawner_timeout: patience.fork,
        client: FastCgiConfig {
            name: name.to_owned(),
            backends: Vec::new(),
            max_connections: None,
            keep_connections: section.on("keep_connections"),
            keep_timeout: time("keep_timeout"),
            queue_size: section.number("queue_size").unwrap_or_default() as u32,
            queue_timeout: time("queue_timeout"),
            request_terminate_timeout: section.time("request_terminate_timeout"),
            connect_timeout: time("connect_timeout"),
            send_timeout: time("send_timeout"),
            read_timeout: section.time("read_timeout"),
            restart_time: time("restart_time"),
            script_root: Vec::new(),
            request_body_directory: None,
        },
    }
}

/// `HOST:FIRST-LAST`, addresses of this machine.
fn ports(section: &Section<'_, '_, '_>) -> Vec<SocketAddr> {
    let Some(text) = section.text("ports") else {
        return Vec::new();
    };
    let addresses = address::parse(&text).map_err(|error| error.to_string());
    let parsed = addresses.and_then(|backends| {
        let socket = |backend: Backend| match backend.address {
            Address::Tcp(host, port) => host.parse().ok().map(|ip| SocketAddr::new(ip, port)),
            Address::Unix(_) => None,
        };
        let sockets: Option<Vec<_>> = backends.into_iter().map(socket).collect();
        sockets
            .ok_or_else(|| "expected an IP address and ports, as `127.0.0.1:9000-9007`".to_owned())
    });
    parsed.unwrap_or_else(|why| {
        let message = format!("ports: `{}`: {why}", text.escape_debug());
        section.file().mistake(section.place_of("ports"), message);
        Vec::new()
    })
}

fn opcache_off() -> (String, String) {
    ("opcache.enable".to_owned(), "0".to_owned())
}

fn program_identity(section: &Section<'_, '_, '_>, identity: &Identity) -> ProgramIdentity {
    let (user, group) = user_and_group(section, identity);
    ProgramIdentity {
        user,
        group,
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
    let mut all: Vec<(String, String)> = profile(section).into_iter().collect();
    all.extend(plain_pairs(section, "php_value"));
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
    if section.file().eyes == Eyes::Front {
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
