//! The PHP series that takes part. A machine may have several; all stacks run the series of Howdah's own PHP, so
//! servers are compared and not PHP versions. Programs, files and packages contain the series in their names, as in
//! Debian.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::programs;

/// The directory that contains settings for each installed series.
const SETTINGS_DIRECTORY: &str = "/etc/php";
/// The series to name on a machine without PHP.
const DEFAULT_SERIES: &str = "8.2";

static SERIES: OnceLock<String> = OnceLock::new();

/// Selects the series of the PHP that this `howdah` runs, as `howdah version` prints it. Call it once, before any
/// other function of this module. If the series cannot be determined, nothing is selected.
pub fn select_series(howdah: &Path) {
    let output = Command::new(howdah).arg("version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    if let Some(series) = text.ok().as_deref().and_then(series_in) {
        let _ = SERIES.set(series);
    }
}

/// Parses the series from the output of `howdah version`: `8.4` from the line `php 8.4.24 NTS (PATH)`.
fn series_in(text: &str) -> Option<String> {
    let version = text.lines().find_map(|line| line.strip_prefix("php "))?;
    let mut parts = version.split('.');
    Some(format!("{}.{}", parts.next()?, parts.next()?))
}

/// Returns the selected series, or else the newest one installed for php-fpm.
pub fn series() -> &'static str {
    SERIES.get_or_init(|| {
        newest_series(Path::new(SETTINGS_DIRECTORY)).unwrap_or_else(|| DEFAULT_SERIES.to_owned())
    })
}

/// Replaces `{php}` by the series, and `{extensions}` by the directory of its extensions.
pub fn expand_placeholders(template: &str) -> String {
    let name = template.replace("{php}", series());
    if !name.contains("{extensions}") {
        return name;
    }
    name.replace("{extensions}", &extensions().display().to_string())
}

/// Returns whether OPcache is a part of PHP that no file has to load, as it is since 8.5.
pub fn has_builtin_opcache() -> bool {
    parse_series(series()) >= Some((8, 5))
}

/// Returns the directory in which Debian configures the extensions that php-fpm loads, or else those of the command
/// line.
pub fn extension_settings() -> PathBuf {
    let of_fpm = PathBuf::from(expand_placeholders("/etc/php/{php}/fpm/conf.d"));
    match of_fpm.is_dir() {
        true => of_fpm,
        false => expand_placeholders("/etc/php/{php}/cli/conf.d").into(),
    }
}

/// Returns the directory of the series' extensions (`extension_dir`), as its command line reports it; an empty path if
/// there is no command line.
fn extensions() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let output = programs::find(&format!("php{}", series())).and_then(|php| {
            let words = ["-n", "-r", "echo ini_get('extension_dir');"];
            Command::new(php).args(words).output().ok()
        });
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        PathBuf::from(text.unwrap_or_default())
    })
}

fn newest_series(settings: &Path) -> Option<String> {
    fs::read_dir(settings)
        .ok()?
        .flatten()
        .filter(|entry| entry.path().join("fpm").is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| parse_series(name).is_some())
        .max_by_key(|name| parse_series(name))
}

fn parse_series(series: &str) -> Option<(u32, u32)> {
    let (major, minor) = series.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_series_with_php_fpm_is_selected() {
        let settings = tempfile::tempdir().unwrap();
        let make = |path: &str| fs::create_dir_all(settings.path().join(path)).unwrap();
        assert_eq!(newest_series(settings.path()), None);
        for path in [
            "8.2/fpm",
            "8.10/fpm",
            "8.4/fpm",
            "9.0/cli",
            "mods-available/fpm",
        ] {
            make(path);
        }
        assert_eq!(newest_series(settings.path()).unwrap(), "8.10");
        assert_eq!(newest_series(&settings.path().join("nowhere")), None);
    }

    #[test]
    fn series_is_parsed_from_howdah_version() {
        let text = "howdah 0.1.0\nphp 8.4.24 NTS (/usr/sbin/php-fpm8.4)\n";
        assert_eq!(series_in(text).unwrap(), "8.4");
        // The PHP of this `howdah` is missing.
        assert_eq!(series_in("howdah 0.1.0\n"), None);
    }

    #[test]
    fn placeholders_expand_to_the_installed_series() {
        // Every machine that runs the tests has a PHP.
        assert!(parse_series(series()) >= Some((8, 2)), "{}", series());
        assert_eq!(
            expand_placeholders("apt-get install php{php}-fpm"),
            format!("apt-get install php{}-fpm", series())
        );
        let swoole = expand_placeholders("{extensions}/swoole.so");
        let directory = Path::new(&swoole).parent().unwrap();
        assert!(directory.join("pdo.so").is_file(), "{swoole}");
    }
}
