//! Finds `howdah-php` and checks whether this program can use it. This program does not link PHP itself; it asks
//! `howdah-php` for its versions.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use howdah_executor::PoolConfig;

use crate::installed;

const PROGRAM_NAME: &str = "howdah-php";
/// The environment variable with the program's path.
const PATH_VARIABLE: &str = "HOWDAH_PHP";

/// The reason why PHP is not available.
#[derive(Debug, PartialEq, Eq)]
#[allow(
    clippy::enum_variant_names,
    reason = "the variants are the names people see"
)]
pub enum PhpUnfit {
    /// The program does not exist at any of these paths.
    PhpMissing(Vec<PathBuf>),
    /// The program exists but does not start, with the reason.
    PhpDoesNotStart(PathBuf, String),
    /// The program was built from another version of Howdah: its version, and ours.
    PhpOtherVersion(PathBuf, String, String),
    /// The program's output is not that of `howdah-php`.
    PhpUnknown(PathBuf, String),
}

impl fmt::Display for PhpUnfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PhpUnfit::PhpMissing(places) => {
                let name = places.first().and_then(|path| path.file_name());
                let name = name.unwrap_or(PROGRAM_NAME.as_ref()).display();
                let places: Vec<String> = places.iter().map(|p| p.display().to_string()).collect();
                write!(
                    f,
                    "PhpMissing: there is no {name} at {}; install the package {name}, or build it (cargo build -p {PROGRAM_NAME}) and put it next to howdah, or name it with `php` or in {PATH_VARIABLE}",
                    places.join(", ")
                )
            }
            PhpUnfit::PhpDoesNotStart(path, why) => {
                write!(f, "PhpDoesNotStart: {}: {why}", path.display())?;
                match embed_package(why) {
                    Some(package) => {
                        write!(f, "; install PHP's embed library: apt install {package}")
                    }
                    None => Ok(()),
                }
            }
            PhpUnfit::PhpOtherVersion(path, theirs, ours) => write!(
                f,
                "PhpOtherVersion: {} belongs to howdah {theirs}, but this is howdah {ours}; install both from the same build",
                path.display()
            ),
            PhpUnfit::PhpUnknown(path, said) => write!(
                f,
                "PhpUnknown: {} does not respond like {PROGRAM_NAME} (--version prints `{}`)",
                path.display(),
                said.escape_debug()
            ),
        }
    }
}

impl std::error::Error for PhpUnfit {}

/// Returns the Debian package of the library that the loader misses: `libphp8.4-embed` contains `libphp8.4.so`.
fn embed_package(why: &str) -> Option<String> {
    let library = &why[why.find("libphp")?..];
    let name = library.split(".so").next().unwrap_or_default();
    let is_versioned = name["libphp".len()..].starts_with(|c: char| c.is_ascii_digit());
    let name = if is_versioned { name } else { "libphp" };
    Some(format!("{name}-embed"))
}

/// The program that a configuration names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PhpChoice {
    /// The program for a series of PHP, such as `8.4`: `howdah-php8.4`, as packages install it.
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

/// Returns the program: the configured one, or else `HOWDAH_PHP`, or else the one beside this program or in its
/// `libexec` or `lib/howdah`.
pub fn find(configured: Option<&PhpChoice>) -> Result<PathBuf, PhpUnfit> {
    let named = || std::env::var_os(PATH_VARIABLE).map(PathBuf::from);
    let places = match configured {
        Some(PhpChoice::Path(path)) => vec![path.clone()],
        Some(PhpChoice::Series(series)) => {
            installed::candidate_paths(&format!("{PROGRAM_NAME}{series}"))
        }
        None => named().map_or_else(
            || installed::candidate_paths(PROGRAM_NAME),
            |path| vec![path],
        ),
    };
    match places.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.clone()),
        None => Err(PhpUnfit::PhpMissing(places)),
    }
}

/// The versions that the program reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhpVersion {
    /// PHP's version.
    pub php: String,
    /// `NTS`
    pub thread_safety: String,
}

/// Starts PHP with a pool's settings and stops it again. Fails with the reason if PHP does not start. The warnings of
/// PHP in the meantime, for example about a missing extension, are returned as advice.
pub fn try_settings(pool: &PoolConfig) -> Result<Vec<String>, String> {
    let output = howdah_executor::launch::trial_command(pool)
        .and_then(|mut command| command.output())
        .map_err(|error| format!("cannot start {}: {error}", pool.program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let (ours, theirs): (Vec<&str>, Vec<&str>) = said
        .lines()
        .filter(|line| !line.trim().is_empty())
        .partition(|line| line.starts_with("howdah-php: "));
    if output.status.success() {
        let ours = ours.iter().map(|line| &line["howdah-php: ".len()..]);
        return Ok(ours.chain(theirs).map(str::to_owned).collect());
    }
    if let Some(line) = ours.last() {
        return Err(line["howdah-php: ".len()..].to_owned());
    }
    let why = match theirs.is_empty() {
        true => format!("it exited with {}", output.status),
        false => theirs.join("; "),
    };
    Err(format!(
        "PhpStartup: PHP cannot start with these settings: {why}"
    ))
}

/// Returns the names of all settings of this PHP with that php.ini, including those of its extensions.
pub fn setting_names(program: &Path, php_ini: Option<&Path>) -> Result<Vec<String>, String> {
    let code = "echo implode(\"\\n\", array_keys(ini_get_all(null, false)));";
    let output = run_code(program, php_ini, code)?;
    // Extensions may have written warnings to standard output; such a line is not the name of a setting.
    let names = String::from_utf8_lossy(&output.stdout);
    let names: Vec<String> = names.lines().map(str::to_owned).collect();
    match output.status.success() && names.iter().any(|name| name == "memory_limit") {
        true => Ok(names),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            let why = format!("{} does not list its settings", program.display());
            Err(format!("{why} ({}): {}", output.status, said.trim()))
        }
    }
}

/// Returns the values of settings of this PHP with that php.ini.
pub fn setting_values(
    program: &Path,
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
        .map_err(|why| format!("{} does not report its settings: {why}", program.display()))
}

fn run_code(program: &Path, php_ini: Option<&Path>, code: &str) -> Result<Output, String> {
    let mut command = Command::new(program);
    command.arg("php");
    if let Some(file) = php_ini {
        command.arg("--php-ini").arg(file);
    }
    command.args(["--code", code, "--"]);
    let output = command.stdin(Stdio::null()).output();
    output.map_err(|error| format!("cannot start {}: {error}", program.display()))
}

/// Does the same as [`check`] for several programs and returns the versions of the first. Returns `None` for an empty
/// list.
pub fn check_all(programs: &[&Path]) -> Result<Option<PhpVersion>, PhpUnfit> {
    let versions: Result<Vec<PhpVersion>, _> = programs.iter().copied().map(check).collect();
    Ok(versions?.into_iter().next())
}

/// Asks the program for its versions and compares them with ours.
pub fn check(program: &Path) -> Result<PhpVersion, PhpUnfit> {
    let unfit = |why: String| PhpUnfit::PhpDoesNotStart(program.to_owned(), why);
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| unfit(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        let why = why.trim();
        return Err(unfit(if why.is_empty() {
            format!("it exited with {}", output.status)
        } else {
            why.to_owned()
        }));
    }
    let fact = |name: &str| {
        said.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
            .map(str::to_owned)
    };
    let (Some(howdah), Some(shm), Some(php), Some(thread_safety)) = (
        fact(PROGRAM_NAME),
        fact("shm"),
        fact("php"),
        fact("thread-safety"),
    ) else {
        return Err(PhpUnfit::PhpUnknown(program.to_owned(), said));
    };
    let theirs = format!("{howdah} (exchange {shm})");
    let ours = format!(
        "{} (exchange {})",
        env!("CARGO_PKG_VERSION"),
        howdah_proto::shm::VERSION
    );
    if theirs != ours {
        return Err(PhpUnfit::PhpOtherVersion(program.to_owned(), theirs, ours));
    }
    Ok(PhpVersion { php, thread_safety })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn php_choice_distinguishes_a_series_from_a_path() {
        let read = |text: &str| PhpChoice::parse(text, |path| Path::new("/etc/howdah").join(path));
        assert_eq!(read("8.4"), PhpChoice::Series("8.4".to_owned()));
        for text in ["/opt/howdah-php", "8.4/howdah-php", "8", "8.x", "./8.4"] {
            let path = Path::new("/etc/howdah").join(text);
            assert_eq!(read(text), PhpChoice::Path(path), "{text}");
        }
        let missing = find(Some(&read("9.99"))).unwrap_err().to_string();
        assert!(
            missing.contains("install the package howdah-php9.99"),
            "{missing}"
        );
    }

    #[test]
    fn embed_package_is_that_of_the_missing_library() {
        let said =
            "error while loading shared libraries: libphp8.4.so: cannot open shared object file";
        assert_eq!(embed_package(said).unwrap(), "libphp8.4-embed");
        let own = "error while loading shared libraries: libphp.so: cannot open shared object file";
        assert_eq!(embed_package(own).unwrap(), "libphp-embed");
        assert_eq!(embed_package("Permission denied"), None);
    }
}
