//! The command lines of this program. [`CommandLine`] is the one parser of them all: of a zygote's ([`crate::arguments`])
//! and of those of `howdah-php php` ([`crate::cli`]) and `howdah-php run` ([`crate::run`]). PHP's settings, which all
//! three have, are parsed here.
//!
//! The syntax is that of getopt: `--name VALUE`, `--name=VALUE`, `-d VALUE` and `-dVALUE`, and `--` ends the options.

use std::ffi::{CString, OsString};
use std::fmt::Display;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::ExitCode;

use lexopt::Arg;

use crate::sys;

/// The settings that every command-line PHP has, whatever php.ini contains (`HARDCODED_INI` of sapi/cli).
const COMMAND_LINE_INI: &str = "html_errors=0\nregister_argc_argv=1\nimplicit_flush=1\n\
     output_buffering=0\nmax_execution_time=0\nmax_input_time=-1\n";

/// Why a command line is refused.
#[derive(Debug, PartialEq, Eq)]
pub enum ArgumentError {
    /// The program has no option of this name.
    UnknownOption(String),
    /// The option needs a value and has none.
    MissingValue(String),
    /// The value is not valid for the option.
    BadValue(String, String),
    /// A zygote's option is missing and has no default.
    Required(&'static str),
    /// The script is missing.
    NoScript,
    /// The value is not valid; the sentence begins with the name of the failure.
    Invalid(String),
}

impl Display for ArgumentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ArgumentError::UnknownOption(name) => write!(f, "UnknownOption: {name}"),
            ArgumentError::MissingValue(name) => write!(f, "MissingValue: {name} wants a value"),
            ArgumentError::BadValue(name, value) => {
                write!(f, "BadValue: {name} cannot be {value:?}")
            }
            ArgumentError::Required(name) => write!(
                f,
                "Required: {name} is missing; howdah-php is started by howdah, not by hand"
            ),
            ArgumentError::NoScript => f.write_str("Required: the script to run"),
            ArgumentError::Invalid(sentence) => f.write_str(sentence),
        }
    }
}

impl From<lexopt::Error> for ArgumentError {
    fn from(error: lexopt::Error) -> ArgumentError {
        match error {
            lexopt::Error::MissingValue { option } => {
                ArgumentError::MissingValue(option.unwrap_or_default())
            }
            // The option takes no value, so there is no option of this form.
            lexopt::Error::UnexpectedValue { option, value } => {
                ArgumentError::UnknownOption(format!("{option}={}", value.display()))
            }
            other => ArgumentError::Invalid(other.to_string()),
        }
    }
}

/// Which php.ini PHP reads.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum PhpIniSource {
    /// PHP's own search: `PHPRC`, then the directory compiled into libphp (for Debian's embed library
    /// `/etc/php/8.2/embed`), and `PHP_INI_SCAN_DIR` or its `conf.d`.
    #[default]
    Search,
    /// This file instead of the one that PHP would find. PHP still reads the scan directory.
    File(CString),
    /// No php.ini and no scan directory.
    Disabled,
}

impl PhpIniSource {
    /// Checks that the current user can read the named php.ini, because PHP says nothing about a file that it cannot read.
    pub fn check_readable(&self) -> Result<(), String> {
        let PhpIniSource::File(path) = self else {
            return Ok(());
        };
        sys::check_readable(path)
            .map_err(|error| format!("cannot read {}: {error}", path.to_string_lossy()))
    }
}

/// PHP's settings as given on the command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PhpSettings {
    /// Which php.ini PHP reads.
    pub php_ini: PhpIniSource,
    /// Lines of a php.ini that override the ones in the file.
    pub ini_entries: Vec<u8>,
}

impl PhpSettings {
    /// Returns the settings that PHP as on a command line is started with. Fails if the named php.ini cannot be read.
    pub fn resolve(self) -> Result<(PhpIniSource, CString), String> {
        if let PhpIniSource::File(path) = &self.php_ini {
            sys::check_readable(path).map_err(|error| {
                let path = path.to_string_lossy();
                format!("PhpIniUnreadable: cannot read {path}: {error}")
            })?;
        }
        let entries = CString::new([COMMAND_LINE_INI.as_bytes(), &self.ini_entries].concat())
            .map_err(|_| "BadValue: -d: a setting cannot contain a NUL byte".to_owned())?;
        Ok((self.php_ini, entries))
    }
}

/// Returns the next argument, which is the value of the option `name`.
pub fn option_value(
    name: &str,
    arguments: &mut impl Iterator<Item = OsString>,
) -> Result<OsString, String> {
    let missing = || format!("MissingValue: {name} needs a value");
    arguments.next().ok_or_else(missing)
}

/// Converts an argument to a C string. Fails if it contains a NUL byte.
pub fn c_string(text: OsString) -> Result<CString, String> {
    CString::new(text.into_vec())
        .map_err(|_| "BadValue: an argument cannot contain a NUL byte".to_owned())
}
