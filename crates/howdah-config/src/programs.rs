//! Turns `[pool.NAME]` of the modes that start external programs into the executor's settings.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use howdah_executor::config::{
    CgiConfig, Processes, ProgramIdentity, ProgramIni, ProgramPoolConfig,
};

use super::pool_section::{PoolSection, max_children, php_ini, pool_identity};
use super::process_manager::process_manager;
use super::reader::{ConfigSection, Validation};

/// Completes `config` for mode `cgi` from the rest of its section.
pub fn cgi(mut config: CgiConfig, pool: &PoolSection<'_>) -> CgiConfig {
    set_common_options(&mut config.identity, &mut config.ini, pool);
    // A cache that is lost at the end of the request only costs time: see docs/performance.md. php_value may enable it.
    let opcache_off = ("opcache.enable".to_owned(), "0".to_owned());
    config.ini.defines.insert(0, opcache_off);
    config.command = command(pool.section);
    config.max_children = max_children(pool.section, pool.overrides);
    config.spawner_timeout = pool.timeouts.fork;
    config
}

/// Completes `config` for mode `pool` from the rest of its section.
pub fn program_pool(mut config: ProgramPoolConfig, pool: &PoolSection<'_>) -> ProgramPoolConfig {
    let section = pool.section;
    set_common_options(&mut config.identity, &mut config.ini, pool);
    config.command = command(section);
    let is_php = config
        .command
        .first()
        .and_then(|program| Path::new(program).file_name()?.to_str())
        .is_some_and(|file| file.starts_with("php-cgi"));
    // The option limits the connections to each program, and the executor knows the programs.
    let connections = config.client.max_connections.take();
    config.processes = match section.text("processes").as_deref() {
        Some("shared") => Processes::Shared,
        Some("auto") if is_php => Processes::Shared,
        _ => Processes::Independent {
            connections: connections.unwrap_or(1),
        },
    };
    if config.processes == Processes::Shared {
        refuse_options_of_independent_programs(section);
        config.max_memory = None;
    }
    config.max_children = max_children(section, pool.overrides);
    config.pm = process_manager(section, config.max_children, pool.overrides, false);
    config.spawner_timeout = pool.timeouts.fork;
    config
}

fn refuse_options_of_independent_programs(section: &ConfigSection<'_>) {
    for key in ["pm", "max_memory", "max_connections"] {
        if section.has(key) {
            let message = format!(
                "{key}: has no effect with processes = \"shared\", where PHP forks its children itself; set processes = \"independent\""
            );
            section.file().mistake(section.place_of(key), message);
        }
    }
}

/// Sets the options of both modes: the user that the programs run as, and PHP's settings, those of the command line
/// last.
fn set_common_options(
    identity: &mut ProgramIdentity,
    ini: &mut ProgramIni,
    pool: &PoolSection<'_>,
) {
    let overrides = pool.overrides;
    let account = pool_identity(pool.section, pool.identity);
    (identity.user, identity.group) = (account.user, account.group);
    identity.environment.extend(overrides.environment.clone());
    ini.php_ini = php_ini(pool.arguments, pool.section);
    ini.defines.extend(overrides.defines.clone());
}

/// Returns `command`, with the path of its program looked up. The front does not start the program and does not look it
/// up.
fn command(section: &ConfigSection<'_>) -> Vec<String> {
    let mut words: Vec<String> = section
        .texts("command")
        .into_iter()
        .map(|at| at.value)
        .collect();
    if section.file().validation == Validation::Trusted {
        return words;
    }
    let Some(program) = words.first_mut() else {
        let message = "command: the list is empty; name a program".to_owned();
        section.file().mistake(section.place_of("command"), message);
        return words;
    };
    match find_executable(program) {
        Some(path) => *program = path.to_string_lossy().into_owned(),
        None => {
            let message = missing_program(program);
            section.file().mistake(section.place_of("command"), message);
        }
    }
    words
}

/// Returns the mistake about a program that is not there, with what to do.
pub fn missing_program(program: &str) -> String {
    let words: Vec<String> = program
        .split_whitespace()
        .map(|word| format!("{word:?}"))
        .collect();
    let advice = match program {
        _ if words.len() > 1 => format!(
            "write the program and its arguments as a list: command = [{}]",
            words.join(", ")
        ),
        name if name.contains("php-cgi") => {
            "install it (Debian: apt install php-cgi), or name another `command`".to_owned()
        }
        _ => "name an executable file, or a program in PATH".to_owned(),
    };
    format!(
        "ProgramMissing: command: there is no program `{}`; {advice}",
        program.escape_debug()
    )
}

/// Finds an executable file by path or in PATH.
pub fn find_executable(program: &str) -> Option<PathBuf> {
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
