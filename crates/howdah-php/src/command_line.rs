//! What `howdah-php php` and `howdah-php run` have in common: PHP's settings on the command line, and the script after
//! them. Each parses its other options itself ([`crate::cli`], [`crate::run`]).

use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::arguments::{PhpIniSource, push_ini_entry};
use crate::sys;

/// The settings that every command-line PHP has, whatever php.ini contains (`HARDCODED_INI` of sapi/cli).
const COMMAND_LINE_INI: &str = "html_errors=0\nregister_argc_argv=1\nimplicit_flush=1\n\
     output_buffering=0\nmax_execution_time=0\nmax_input_time=-1\n";

/// PHP's settings as given on the command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CommandLineSettings {
    /// Which php.ini PHP reads.
    pub php_ini: PhpIniSource,
    /// Lines of a php.ini that override the ones in the file.
    pub ini_entries: Vec<u8>,
}

impl CommandLineSettings {
    /// Consumes `--php-ini FILE`, `--no-php-ini` and `-d NAME=VALUE`. Returns false if `name` is none of these options.
    pub fn take_option(
        &mut self,
        name: &str,
        value: impl FnOnce() -> Result<OsString, String>,
    ) -> Result<bool, String> {
        match name {
            "--php-ini" => self.php_ini = PhpIniSource::File(c_string(value()?)?),
            "--no-php-ini" => self.php_ini = PhpIniSource::Disabled,
            "-d" => push_ini_entry(&mut self.ini_entries, value()?.as_bytes())
                .map_err(|why| why.to_string())?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the settings that PHP is started with. Fails if the named php.ini cannot be read.
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
