//! Which PHP the servers run, and whether Howdah can run it.

use std::path::{Path, PathBuf};

use howdah_import::ImportParts;
use howdah_import::ledger::LedgerEntry;
use howdah_import::target::{NameValuePairs, TomlTable, set_pair_if_absent};

use super::command::ask;
use super::findings::Findings;
use super::servers::FoundServer;
use crate::plan::{ServerKind, Severity};

/// The oldest series of PHP that Howdah runs.
const OLDEST_SERIES: (u32, u32) = (8, 2);

/// The php-fpm programs whose pools become pools of Howdah.
#[derive(Debug, Default)]
pub struct HostedPhp {
    /// The main file and the program of each php-fpm.
    programs: Vec<(PathBuf, PathBuf)>,
}

impl HostedPhp {
    /// Finds the php-fpm programs that Howdah can run. The pools of all others remain in their php-fpm, to which Howdah
    /// connects.
    pub fn find(servers: &[FoundServer], findings: &mut Findings) -> HostedPhp {
        let mut hosted = HostedPhp::default();
        let fpms = servers
            .iter()
            .filter(|found| found.server.kind == ServerKind::PhpFpm);
        for found in fpms {
            let program = &found.server.program;
            match series(program) {
                Some(series) if series < OLDEST_SERIES => findings.add(
                    Severity::Risk,
                    "PhpTooOld",
                    format!(
                        "{} is PHP {}.{}, which Howdah does not run: its pools stay, and Howdah connects to them (mode fastcgi)",
                        found.display(),
                        series.0,
                        series.1
                    ),
                    "Leave this php-fpm running after the switch, or move its sites to PHP 8.2 or newer.",
                ),
                _ => hosted.programs.push((found.paths.file.clone(), program.clone())),
            }
        }
        hosted
    }

    /// Returns the main files of the programs.
    pub fn configurations(&self) -> Vec<PathBuf> {
        self.programs.iter().map(|(file, _)| file.clone()).collect()
    }

    /// Returns the program whose main file this is.
    pub fn program_of(&self, file: &Path) -> Option<&Path> {
        let mut programs = self.programs.iter();
        programs
            .find(|(known, _)| known == file)
            .map(|(_, program)| program.as_path())
    }
}

/// Returns the series of a PHP program, from its name (`php-fpm8.2`) or by asking it.
fn series(program: &Path) -> Option<(u32, u32)> {
    let name = program.file_name()?.to_str()?;
    let of_text = |text: &str| {
        let mut numbers = text.split('.');
        let major = numbers.next()?.parse().ok()?;
        let minor: String = numbers
            .next()?
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        Some((major, minor.parse().ok()?))
    };
    of_text(name.trim_start_matches("php-fpm")).or_else(|| {
        let said = ask(program, "-v")?;
        of_text(said.trim_start().strip_prefix("PHP ")?)
    })
}

/// Sets in a pool of mod_php the PHP and the php.ini that Apache has loaded. Debian's Apache has a php.ini and a list of
/// extensions of its own.
pub fn set_php_of_apache(
    parts: &ImportParts,
    variables: &[(String, String)],
    table: &mut TomlTable,
    environment: &mut NameValuePairs,
) {
    let Some(series) = mod_php_series(&parts.entries) else {
        return;
    };
    table.set("php", series.as_str(), None);
    let debian = PathBuf::from(format!("/etc/php/{series}/apache2"));
    let named = parts
        .tree
        .iter()
        .rev()
        .find(|line| line.name == "phpinidir");
    let ini = named
        .map_or(debian.clone(), |line| PathBuf::from(line.arg(0)))
        .join("php.ini");
    if ini.is_file() {
        table.set(
            "php_ini",
            ini.display().to_string(),
            named.map(|line| &line.place),
        );
    }
    // PHP searches this directory wherever its php.ini is.
    const SCAN_DIRECTORY: &str = "PHP_INI_SCAN_DIR";
    let named = variables.iter().find(|(name, _)| name == SCAN_DIRECTORY);
    let directory = match named {
        Some((_, value)) => Some(value.clone()),
        None => Some(debian.join("conf.d"))
            .filter(|path| path.is_dir())
            .map(|path| path.display().to_string()),
    };
    if let Some(directory) = directory {
        set_pair_if_absent(environment, SCAN_DIRECTORY.to_owned(), directory);
    }
}

/// Returns whether Apache runs PHP itself.
pub fn has_mod_php(entries: &[LedgerEntry]) -> bool {
    mod_php_file(entries).is_some()
}

/// Returns the file of the module that Apache has loaded: `LoadModule php_module /usr/lib/apache2/modules/libphp8.2.so`.
fn mod_php_file(entries: &[LedgerEntry]) -> Option<&str> {
    entries
        .iter()
        .filter(|entry| entry.outcome.carried)
        .find_map(|entry| {
            let mut words = entry.text.split_whitespace();
            let is_load = words.next()?.eq_ignore_ascii_case("LoadModule");
            let is_php = words.next()?.starts_with("php");
            words.next().filter(|_| is_load && is_php)
        })
}

/// Returns the series of the module, if its name contains it.
fn mod_php_series(entries: &[LedgerEntry]) -> Option<String> {
    let file = Path::new(mod_php_file(entries)?).file_name()?.to_str()?;
    let series = file.strip_prefix("libphp")?.strip_suffix(".so")?;
    let (major, minor) = series.split_once('.')?;
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    (is_number(major) && is_number(minor)).then(|| series.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_is_read_from_the_name_of_a_program() {
        let of = |name: &str| series(Path::new(name));
        assert_eq!(of("/usr/sbin/php-fpm8.2"), Some((8, 2)));
        assert_eq!(of("/usr/sbin/php-fpm7.4"), Some((7, 4)));
        assert_eq!(of("/nonexistent/php-fpm"), None);
    }
}
