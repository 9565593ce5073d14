//! Options of a `[pool.NAME]` that are read in the same way in every mode, together with the overrides of the command
//! line.

use std::path::PathBuf;

use howdah_executor::auto_children::auto_children;
use howdah_executor::config::ProcessTimeouts;

use super::identity::{ServerIdentity, parse_identity};
use super::reader::{ConfigSection, Validation};
use crate::arguments::ServeArguments;

/// The name of the pool that exists if no section names one.
pub const DEFAULT_POOL: &str = "www";

/// What the command line sets for every pool.
pub struct PoolOverrides {
    /// `--mode`, or the mode that `--worker` or `--fastcgi` implies.
    pub mode: Option<String>,
    /// `--children`; the inner `None` means `auto`.
    pub children: Option<Option<u32>>,
    /// `-d`
    pub defines: Vec<(String, String)>,
    /// `--env`
    pub environment: Vec<(String, String)>,
}

/// The inputs from which a pool's configuration is made, besides the values that the table of options stores in it.
pub struct PoolSection<'c> {
    /// The command line.
    pub arguments: &'c ServeArguments,
    /// The pool's table in the file.
    pub section: &'c ConfigSection<'c>,
    /// The user that the server runs as.
    pub identity: &'c ServerIdentity,
    /// What the command line sets for every pool.
    pub overrides: &'c PoolOverrides,
    /// How long the pool's processes may take to start, to fork and to exit.
    pub timeouts: ProcessTimeouts,
}

/// Returns `--php-ini`, or else `php_ini`.
pub fn php_ini(arguments: &ServeArguments, section: &ConfigSection<'_>) -> Option<PathBuf> {
    let (what, place, ini) = match &arguments.php_ini {
        Some(typed) => ("--php-ini", None, typed.clone()),
        None => {
            let place = section.place_of("php_ini");
            ("php_ini", place, section.path("php_ini")?)
        }
    };
    if section.file().validation == Validation::Full && !ini.is_file() {
        let message = format!("{what}: there is no file {}", ini.display());
        section.file().mistake(place, message);
    }
    Some(ini)
}

/// Returns the user and group that a pool's processes run as; by default the server's.
pub fn pool_identity(section: &ConfigSection<'_>, server: &ServerIdentity) -> ServerIdentity {
    match section.text("user") {
        Some(text) => parse_identity(section, "user", section.place_of("user"), &text),
        None => server.clone(),
    }
}

/// Returns `max_children`; `auto` is derived from cores and memory.
pub fn max_children(section: &ConfigSection<'_>, overrides: &PoolOverrides) -> u32 {
    max_children_or(section, overrides, auto_children)
}

/// Returns `max_children`, where `auto` calls the given function.
pub fn max_children_or(
    section: &ConfigSection<'_>,
    overrides: &PoolOverrides,
    auto: impl FnOnce() -> u32,
) -> u32 {
    // The file's value is read even if the command line overrides it, so mistakes in it are reported.
    let in_file = section.number("max_children").map(|n| n as u32);
    overrides.children.unwrap_or(in_file).unwrap_or_else(auto)
}
