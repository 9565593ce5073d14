//! Finds the PHP to use and the library of Howdah that fits it. This program does not link PHP: it starts a PHP program
//! of the machine with the library in it ([`PhpProgram`]).
//!
//! - [`releases`]: which versions of PHP have known security holes.
//! - `search`: the PHP programs of the machine.

pub mod releases;
mod search;

use std::collections::BTreeSet;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};

use howdah_executor::php_host::{NotAHost, PhpHost};
use howdah_executor::{PhpProgram, PoolConfig, exit_text};
use howdah_proto::control::Exit;

use crate::installed;

/// The name of the PHP processes, and of the crate that builds the library.
const PROGRAM_NAME: &str = "howdah-php";
/// The library as cargo builds it, in the directory of this program, for whichever PHP it was built.
const BUILT_LIBRARY: &str = "deps/libhowdah_php.so";
/// The environment variable with a series or a path, as the option `php` has it.
const PHP_VARIABLE: &str = "HOWDAH_PHP";
/// The oldest PHP that is supported.
const OLDEST: [u32; 2] = [8, 2];

/// The reason why PHP is not available.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::enum_variant_names,
    reason = "the variants are the names people see"
)]
pub enum PhpUnfit {
    /// No PHP program of this series (or none at all) was found in these directories.
    PhpMissing(Option<String>, Vec<PathBuf>),
    /// The file at the configured path cannot be read, with the reason.
    PhpFileMissing(PathBuf, String),
    /// The file at the configured path is not a PHP program.
    PhpUnknown(PathBuf),
    /// The program is for another processor or for 32 bits.
    PhpOtherMachine(PathBuf),
    /// The program is linked statically.
    PhpStatic(PathBuf),
    /// The program is a debug build.
    PhpDebug(PathBuf),
    /// The program's PHP is older than 8.2: its version.
    PhpTooOld(PathBuf, String),
    /// No library was built for this PHP: its version, the library's name, and where that was searched.
    PhpLibraryMissing(PathBuf, String, String, Vec<PathBuf>),
    /// The dynamic linker did not load the library into the program, with what it printed.
    PhpIgnoresPreload(PathBuf, String),
    /// The program exists but does not start, with the reason.
    PhpDoesNotStart(PathBuf, String),
    /// The library was built from another version of Howdah: its version, and ours.
    PhpOtherVersion(PathBuf, String, String),
}

impl fmt::Display for PhpUnfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PhpUnfit::PhpMissing(series, directories) => {
                let (which, package) = match series {
                    Some(series) => (format!("PHP {series}"), format!("php{series}-fpm")),
                    None => ("PHP".to_owned(), "php-fpm".to_owned()),
                };
                write!(
                    f,
                    "PhpMissing: there is no {which} program (php-fpm, php-cgi or php) in {}; install one (Debian: apt install {package}), or name its path with `php` or in {PHP_VARIABLE}",
                    list(directories)
                )
            }
            PhpUnfit::PhpFileMissing(path, why) => write!(
                f,
                "PhpMissing: there is no {}: {why}; name a php-fpm, php-cgi or php",
                path.display()
            ),
            PhpUnfit::PhpUnknown(path) => write!(
                f,
                "PhpUnknown: {} is not a PHP program; name a php-fpm, php-cgi or php, not a script that starts one",
                path.display()
            ),
            PhpUnfit::PhpOtherMachine(path) => write!(
                f,
                "PhpOtherMachine: {} is a PHP for another processor or for 32 bits; install a PHP that was built for this machine ({})",
                path.display(),
                std::env::consts::ARCH
            ),
            PhpUnfit::PhpStatic(path) => write!(
                f,
                "PhpStatic: {} is linked statically, so Howdah cannot load its library into it; use a PHP that is linked dynamically, as distributions build it",
                path.display()
            ),
            PhpUnfit::PhpDebug(path) => write!(
                f,
                "PhpDebug: {} is a debug build of PHP; use the release build (configure without --enable-debug)",
                path.display()
            ),
            PhpUnfit::PhpTooOld(path, version) => write!(
                f,
                "PhpTooOld: {} is PHP {version}; Howdah needs PHP {}.{} or newer",
                path.display(),
                OLDEST[0],
                OLDEST[1]
            ),
            PhpUnfit::PhpLibraryMissing(path, version, library, places) => write!(
                f,
                "PhpLibraryMissing: {} is PHP {version}, for which Howdah needs {library}, but this file is not in {}; build it: install PHP's development files, run `make php-library PHP_CONFIG=php-config`, and copy {library} to one of these directories",
                path.display(),
                list(places)
            ),
            PhpUnfit::PhpIgnoresPreload(path, said) => {
                write!(
                    f,
                    "PhpIgnoresPreload: {} starts without the library that LD_PRELOAD names",
                    path.display()
                )?;
                match said.is_empty() {
                    true => f.write_str("; the dynamic linker ignores it for programs with capabilities or the setuid bit, and where SELinux changes the domain: use a copy of the program without them, or another PHP"),
                    false => write!(f, ": {said}"),
                }
            }
            PhpUnfit::PhpDoesNotStart(path, why) => {
                write!(f, "PhpDoesNotStart: {}: {why}", path.display())
            }
            PhpUnfit::PhpOtherVersion(path, theirs, ours) => write!(
                f,
                "PhpOtherVersion: {} belongs to howdah {theirs}, but this is howdah {ours}; install both from the same build",
                path.display()
            ),
        }
    }
}

impl std::error::Error for PhpUnfit {}

fn list(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    paths.join(", ")
}

/// The PHP that a configuration names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PhpChoice {
    /// A series of PHP, such as `8.4`.
    Series(String),
    /// The program at this path.
    Path(PathBuf),
}

impl PhpChoice {
    /// Parses the value of `php = "…"`; `path` completes a relative path.
    pub fn parse(text: &str, path: impl FnOnce(&str) -> PathBuf) -> PhpChoice {
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        match text.split_once('.') {
            Some((major, minor)) if is_number(major) && is_number(minor) => {
                PhpChoice::Series(text.to_owned())
            }
            _ => PhpChoice::Path(path(text)),
        }
    }
}

/// The purpose of a PHP program, which decides between the programs of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhpUse {
    /// Serve requests: php-fpm is preferred, so that a site that comes from it keeps its php.ini.
    Serve,
    /// Run a script as on a command line: `php` is preferred, whose php.ini is for that. Unlike distributions' php-fpm,
    /// it has pcntl.
    CommandLine,
}

/// Returns the configured PHP, or else that of `HOWDAH_PHP`, or else the preferred one of the machine, with the library
/// for it.
///
/// # Errors
/// Fails if there is no such PHP, or if no library fits it. If there are several candidates, the error is about the
/// preferred one.
pub fn find(configured: Option<&PhpChoice>, purpose: PhpUse) -> Result<PhpProgram, PhpUnfit> {
    let named = std::env::var(PHP_VARIABLE)
        .ok()
        .filter(|text| !text.is_empty());
    let named = named.map(|text| PhpChoice::parse(&text, |path| PathBuf::from(path)));
    let series = match configured.or(named.as_ref()) {
        Some(PhpChoice::Path(path)) => return fit_file(path),
        Some(PhpChoice::Series(series)) => Some(series.as_str()),
        None => None,
    };
    let mut candidates = search::programs(purpose)
        .filter(|(_, host)| series.is_none_or(|series| host.series() == series));
    let Some((path, host)) = candidates.next() else {
        let series = series.map(str::to_owned);
        return Err(PhpUnfit::PhpMissing(series, search::directories()));
    };
    fit(&path, &host).or_else(|why| {
        let mut others = candidates.filter_map(|(path, host)| fit(&path, &host).ok());
        others.next().ok_or(why)
    })
}

/// Returns the program at this path with the library for it.
fn fit_file(path: &Path) -> Result<PhpProgram, PhpUnfit> {
    let host = read_host(path)?;
    if !search::is_program(path) {
        let why = "it is not executable, or its file system is mounted with `noexec`".to_owned();
        return Err(PhpUnfit::PhpDoesNotStart(path.to_owned(), why));
    }
    fit(path, &host)
}

fn read_host(path: &Path) -> Result<PhpHost, PhpUnfit> {
    let own = path.to_owned();
    PhpHost::read(path).map_err(|why| match why {
        NotAHost::Unreadable(why) => PhpUnfit::PhpFileMissing(own, why),
        NotAHost::NoPhp => PhpUnfit::PhpUnknown(own),
        NotAHost::OtherMachine => PhpUnfit::PhpOtherMachine(own),
        NotAHost::Static => PhpUnfit::PhpStatic(own),
    })
}

fn fit(path: &Path, host: &PhpHost) -> Result<PhpProgram, PhpUnfit> {
    if host.numbers()[..2] < OLDEST[..] {
        return Err(PhpUnfit::PhpTooOld(path.to_owned(), host.version.clone()));
    }
    if host.is_debug {
        return Err(PhpUnfit::PhpDebug(path.to_owned()));
    }
    let name = host.library_name();
    let places = installed::candidate_paths(&name);
    let library = places.iter().find(|library| library.is_file()).cloned();
    let library = library.or_else(|| built_library(&name)).ok_or_else(|| {
        let directories = places.iter().filter_map(|place| place.parent());
        PhpUnfit::PhpLibraryMissing(
            path.to_owned(),
            host.version.clone(),
            name,
            directories.map(Path::to_owned).collect(),
        )
    })?;
    Ok(PhpProgram {
        host: path.to_owned(),
        library,
    })
}

/// Returns the library that cargo has built if it was built for this PHP: it then contains the name that packages give
/// it, because `--version` prints that.
fn built_library(name: &str) -> Option<PathBuf> {
    let library = installed::own_directory().join(BUILT_LIBRARY);
    let bytes = std::fs::read(&library).ok()?;
    memchr::memmem::find(&bytes, name.as_bytes()).map(|_| library)
}

/// The versions that the program reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhpVersion {
    /// PHP's version.
    pub php: String,
    /// `NTS` or `ZTS`: whether PHP is built for threads.
    pub thread_safety: String,
}

/// Starts PHP with a pool's settings and stops it again. Fails with the reason if PHP does not start. The warnings of
/// PHP in the meantime, for example about a missing extension, are returned as advice.
pub fn try_settings(pool: &PoolConfig) -> Result<Vec<String>, String> {
    let output = howdah_executor::launch::trial_command(pool)
        .and_then(|mut command| command.output())
        .map_err(|error| format!("cannot start {}: {error}", pool.program))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let (ours, theirs): (Vec<&str>, Vec<&str>) = said
        .lines()
        .filter(|line| !line.trim().is_empty())
        .partition(|line| line.starts_with("howdah-php: "));
    if output.status.success() {
        let ours = ours.iter().map(|line| &line["howdah-php: ".len()..]);
        // No script runs, so PHP names no file.
        let theirs = theirs
            .into_iter()
            .map(|line| line.strip_suffix(" in Unknown on line 0").unwrap_or(line));
        return Ok(ours.chain(theirs).map(str::to_owned).collect());
    }
    if let Some(line) = ours.last() {
        return Err(line["howdah-php: ".len()..].to_owned());
    }
    Err(format!(
        "PhpStartup: PHP cannot start with these settings: {}",
        why_it_failed(output.status, &theirs.join("; "))
    ))
}

/// Returns why a PHP program failed: its output, and its exit status or signal if it has written nothing or a signal
/// has killed it.
fn why_it_failed(status: ExitStatus, said: &str) -> String {
    let how = match (status.code(), status.signal()) {
        (_, Some(signal)) => format!("it was killed by {}", exit_text(Exit::Signal(signal))),
        (Some(_), None) if !said.is_empty() => return said.to_owned(),
        (code, None) => format!(
            "it exited with {}",
            exit_text(Exit::Code(code.unwrap_or(0)))
        ),
    };
    match said.is_empty() {
        true => how,
        false => format!("{said}; {how}"),
    }
}

/// Returns the names of all settings of this PHP with that php.ini, including those of its extensions.
pub fn setting_names(program: &PhpProgram, php_ini: Option<&Path>) -> Result<Vec<String>, String> {
    let code = "echo implode(\"\\n\", array_keys(ini_get_all(null, false)));";
    let output = run_code(program, php_ini, code)?;
    // Extensions may have written warnings to standard output; such a line is not the name of a setting.
    let names = String::from_utf8_lossy(&output.stdout);
    let names: Vec<String> = names.lines().map(str::to_owned).collect();
    match output.status.success() && names.iter().any(|name| name == "memory_limit") {
        true => Ok(names),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            let why = format!("{} does not list its settings", program);
            Err(format!("{why} ({}): {}", output.status, said.trim()))
        }
    }
}

/// Returns the values of settings of this PHP with that php.ini.
pub fn setting_values(
    program: &PhpProgram,
    php_ini: Option<&Path>,
    names: &[&str],
) -> Result<Vec<String>, String> {
    let values = names.iter().map(|name| format!("ini_get('{name}')"));
    let values: Vec<String> = values.collect();
    let code = format!("echo json_encode([{}]);", values.join(", "));
    let output = run_code(program, php_ini, &code)?;
    let said = String::from_utf8_lossy(&output.stdout);
    let last = said.lines().last().unwrap_or_default();
    serde_json::from_str(last)
        .map_err(|why| format!("{} does not report its settings: {why}", program))
}

fn run_code(program: &PhpProgram, php_ini: Option<&Path>, code: &str) -> Result<Output, String> {
    let started = |error| format!("cannot start {program}: {error}");
    let mut command = program.command_here().map_err(started)?;
    command.arg("php");
    if let Some(file) = php_ini {
        command.arg("--php-ini").arg(file);
    }
    command.args(["--code", code, "--"]);
    let output = command.stdin(Stdio::null()).output();
    output.map_err(started)
}

/// Checks several programs and returns the version of each.
pub fn check_all(programs: &[&PhpProgram]) -> Result<Vec<PhpVersion>, PhpUnfit> {
    programs.iter().copied().map(version).collect()
}

/// Checks a program ([`check`]) and returns its version.
pub fn version(program: &PhpProgram) -> Result<PhpVersion, PhpUnfit> {
    check(program)?;
    let host = read_host(&program.host)?;
    let thread_safety = if host.is_thread_safe { "ZTS" } else { "NTS" };
    Ok(PhpVersion {
        php: host.version,
        thread_safety: thread_safety.to_owned(),
    })
}

/// Returns advice about those of these versions that have known security holes.
pub fn advice_about(versions: &[PhpVersion]) -> Vec<String> {
    let versions: BTreeSet<&str> = versions.iter().map(|version| &*version.php).collect();
    versions.into_iter().filter_map(releases::warning).collect()
}

/// Starts the program and compares the version of its library with ours.
pub fn check(program: &PhpProgram) -> Result<(), PhpUnfit> {
    let unfit = |why: String| PhpUnfit::PhpDoesNotStart(program.host.clone(), why);
    let output = program
        .command_here()
        .and_then(|mut command| command.arg("--version").stdin(Stdio::null()).output())
        .map_err(|error| unfit(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(unfit(why_it_failed(output.status, said.trim())));
    }
    let fact = |name: &str| {
        said.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
            .map(str::to_owned)
    };
    let (Some(howdah), Some(shm)) = (fact(PROGRAM_NAME), fact("shm")) else {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().find(|line| line.contains("LD_PRELOAD"));
        return Err(PhpUnfit::PhpIgnoresPreload(
            program.host.clone(),
            said.unwrap_or_default().to_owned(),
        ));
    };
    let theirs = format!("{howdah} (exchange {shm})");
    let ours = format!(
        "{} (exchange {})",
        env!("CARGO_PKG_VERSION"),
        howdah_proto::shm::VERSION
    );
    if theirs != ours {
        let library = program.library.clone();
        return Err(PhpUnfit::PhpOtherVersion(library, theirs, ours));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn php_choice_distinguishes_a_series_from_a_path() {
        let read = |text: &str| PhpChoice::parse(text, |path| Path::new("/etc/howdah").join(path));
        assert_eq!(read("8.4"), PhpChoice::Series("8.4".to_owned()));
        for text in ["/opt/php", "8.4/php", "8", "8.x", "./8.4"] {
            let path = Path::new("/etc/howdah").join(text);
            assert_eq!(read(text), PhpChoice::Path(path), "{text}");
        }
        let missing = find(Some(&read("9.99")), PhpUse::Serve)
            .unwrap_err()
            .to_string();
        assert!(missing.contains("apt install php9.99-fpm"), "{missing}");
    }

    #[test]
    fn file_that_is_not_php_is_named() {
        let choice = PhpChoice::Path("/bin/sh".into());
        let why = find(Some(&choice), PhpUse::Serve).unwrap_err().to_string();
        assert!(
            why.starts_with("PhpUnknown: /bin/sh is not a PHP program"),
            "{why}"
        );
        let choice = PhpChoice::Path("/nowhere/php".into());
        let why = find(Some(&choice), PhpUse::Serve).unwrap_err().to_string();
        assert!(
            why.contains("/nowhere/php") && why.contains("No such file"),
            "{why}"
        );
    }
}
