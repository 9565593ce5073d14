//! Turns `[pool.NAME]` into the executor's pool settings.

use std::time::Duration;

use howdah_executor::PoolMode;
use howdah_executor::config::{
    CgiConfig, FastCgiConfig, PoolConfig, ProcessTimeouts, ProgramPoolConfig,
};

use super::identity::ServerIdentity;
use super::options::OptionSpec;
use super::pool_section::{DEFAULT_POOL, PoolOverrides, PoolSection};
use super::programs::{cgi, program_pool};
use super::reader::{ConfigSection, Located};
use super::server::checked_argument;
use super::{PhpProgramLookup, Timeouts, embed, fastcgi};
use crate::arguments::ServeArguments;

/// The minimum time that a zygote or spawner has for a response, regardless of `timeouts.hang`.
const MIN_RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns all pools, or the one default pool if the file names none.
pub fn pools(
    arguments: &ServeArguments,
    top: &ConfigSection<'_>,
    program: &PhpProgramLookup<'_>,
    identity: &ServerIdentity,
    timeouts: &Timeouts,
) -> Vec<PoolMode> {
    let sections = sections(top);
    let overrides = PoolOverrides {
        mode: mode_override(arguments, top),
        children: arguments.children.as_ref().and_then(|text| {
            checked_argument(top, "--children", "pool.*", "max_children", text)
                .map(|text| text.parse::<u32>().ok())
        }),
        defines: command_line_defines(arguments, top),
        environment: command_line_environment(arguments, top),
    };
    let usual_mode = top.text("mode").unwrap_or_default();
    let mode_of = |section: &ConfigSection<'_>| {
        let own = overrides.mode.clone().or_else(|| section.text("mode"));
        own.unwrap_or_else(|| usual_mode.clone())
    };
    let modes: Vec<String> = sections.iter().map(|(_, s)| mode_of(s)).collect();
    check_ini_arguments(arguments, top, &sections, &modes);
    let process_timeouts = ProcessTimeouts {
        start: timeouts.start,
        fork: (timeouts.hang / 3).max(MIN_RESPONSE_TIMEOUT),
        shutdown: timeouts.drain,
    };
    let pool = |((name, section), mode): (&(Located<String>, ConfigSection<'_>), String)| {
        let filled = fill_options(section, &mode, &name.value);
        let pool = PoolSection {
            arguments,
            section,
            identity,
            overrides: &overrides,
            timeouts: process_timeouts,
        };
        match filled {
            PoolMode::FastCgi(config) => {
                PoolMode::FastCgi(fastcgi::pool(config, section, arguments, &overrides))
            }
            PoolMode::Pool(config) => PoolMode::Pool(program_pool(config, &pool)),
            PoolMode::Cgi(config) => PoolMode::Cgi(cgi(config, &pool)),
            PoolMode::Embed(config) if mode == "worker" => {
                PoolMode::Embed(embed::worker(config, program, &pool))
            }
            PoolMode::Embed(config) => PoolMode::Embed(embed::embed(config, program, &pool)),
        }
    };
    sections.iter().zip(modes).map(pool).collect()
}

/// Returns the tables `[pool.NAME]`, or an empty one if there are none.
fn sections<'c>(top: &ConfigSection<'c>) -> Vec<(Located<String>, ConfigSection<'c>)> {
    let mut sections = top.named_sections("pool", "pool.*");
    for (name, _) in &sections {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.value.is_empty() || name.value.len() > 32 || !name.value.chars().all(plain) {
            top.file().mistake(
                name.place.clone(),
                format!(
                    "pool.{}: the name of a pool has up to 32 letters, digits, `-`, `_` and `.`",
                    name.value.escape_debug()
                ),
            );
        }
    }
    if sections.is_empty() {
        let name = Located {
            value: DEFAULT_POOL.to_owned(),
            place: None,
        };
        sections.push((
            name,
            ConfigSection::new(top.file(), "pool.*", None, None, &[]),
        ));
    }
    sections
}

/// Returns the mode that the command line sets for every pool. `--worker` and `--fastcgi` imply a mode, too.
fn mode_override(arguments: &ServeArguments, top: &ConfigSection<'_>) -> Option<String> {
    let mut mode = arguments
        .mode
        .as_ref()
        .and_then(|text| checked_argument(top, "--mode", "", "mode", text));
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

/// Checks `--php-ini`, `-d` and `--env`, which apply to every pool whose PHP we start. If no pool is left that they can
/// apply to, that is a mistake; if only some pools ignore them, there is advice.
fn check_ini_arguments(
    arguments: &ServeArguments,
    top: &ConfigSection<'_>,
    sections: &[(Located<String>, ConfigSection<'_>)],
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
            "{option}: has no effect in mode `fastcgi` (pool {pools}), whose PHP is started elsewhere; set it in php-fpm's pool, or as the site's php_value and env"
        );
        if elsewhere.len() == modes.len() {
            top.file().mistake(None, message);
        } else {
            top.file().advise(None, message);
        }
    }
}

/// Returns the configuration of a pool of this mode and name, with the values that the table of options stores in it.
/// Refuses options of other modes, because they were set on purpose and have no effect.
fn fill_options(section: &ConfigSection<'_>, mode: &str, name: &str) -> PoolMode {
    let of_other_modes = section
        .given_options()
        .filter(|spec| !spec.is_for_mode(mode));
    for spec in of_other_modes {
        let words: Vec<String> = spec.modes.iter().map(|word| format!("`{word}`")).collect();
        let why = match mode {
            "fastcgi" if spec.modes.contains(&"embed") => {
                "; PHP is started elsewhere: set it in php-fpm's pool, or as the site's php_value and env"
            }
            "cgi" if spec.modes.contains(&"embed") => "; its processes handle only one request",
            _ => "",
        };
        let message = format!(
            "{}: has no effect in mode `{mode}`; it is for {}{why}",
            spec.key,
            words.join(", ")
        );
        section.file().mistake(section.place_of(spec.key), message);
    }
    let mut pool = blank_pool(mode, name.to_owned());
    let setter = |spec: &OptionSpec| spec.target.pool().filter(|_| spec.is_for_mode(mode));
    section.fill(setter, &mut pool);
    pool
}

/// Returns the configuration of a pool in which no option is set yet.
fn blank_pool(mode: &str, name: String) -> PoolMode {
    let client = |name| FastCgiConfig {
        name,
        ..FastCgiConfig::default()
    };
    match mode {
        "fastcgi" => PoolMode::FastCgi(client(name)),
        "pool" => PoolMode::Pool(ProgramPoolConfig {
            client: client(name.clone()),
            name,
            ..ProgramPoolConfig::default()
        }),
        "cgi" => PoolMode::Cgi(CgiConfig {
            name,
            ..CgiConfig::default()
        }),
        _ => PoolMode::Embed(PoolConfig {
            name,
            ..PoolConfig::default()
        }),
    }
}

fn command_line_defines(
    arguments: &ServeArguments,
    top: &ConfigSection<'_>,
) -> Vec<(String, String)> {
    let read = |text: &String| {
        parse_define(text)
            .inspect_err(|why| top.file().mistake(None, why.clone()))
            .ok()
    };
    arguments.define.iter().filter_map(read).collect()
}

/// Parses `-d NAME=VALUE` as php does: a name without a value sets `1`.
pub fn parse_define(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').unwrap_or((text, "1"));
    match name.trim().is_empty() || text.contains(['\0', '\n']) {
        true => Err(format!(
            "-d: expected NAME=VALUE, found `{}`",
            text.escape_debug()
        )),
        false => Ok((name.trim().to_owned(), value.to_owned())),
    }
}

/// Returns the variables of `--env NAME=VALUE`, and of `--env NAME`, which takes the value from the server's
/// environment.
fn command_line_environment(
    arguments: &ServeArguments,
    top: &ConfigSection<'_>,
) -> Vec<(String, String)> {
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
                let message = format!(
                    "--env: expected NAME=VALUE, found `{}`",
                    text.escape_debug()
                );
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

#[cfg(test)]
mod tests {
    use super::super::kind::OptionKind;
    use super::super::mistake::Mistakes;
    use super::super::options;
    use super::super::reader::{ConfigReader, Validation};
    use super::super::source::ConfigSource;
    use super::*;

    #[test]
    fn pool_options_have_a_field_in_each_of_their_modes() {
        let source = ConfigSource::from_text("", "");
        let file = ConfigReader::new(Mistakes::default(), &source, Validation::Trusted);
        let section = ConfigSection::new(&file, "pool.*", None, None, &[]);
        let OptionKind::Word(modes) = options::find("pool.*", "mode").unwrap().kind else {
            panic!("a mode is a word");
        };
        for mode in modes {
            let pool = fill_options(&section, mode, "www");
            let word = if *mode == "worker" { "embed" } else { mode };
            assert_eq!((pool.word(), pool.name()), (word, "www"));
        }
        let PoolMode::Pool(pool) = fill_options(&section, "pool", "www") else {
            panic!("mode `pool`");
        };
        assert_eq!(
            (pool.client.name.as_str(), pool.client.queue_size),
            ("www", 1024)
        );
        assert_eq!(pool.max_memory, Some(512 << 20));
    }
}
