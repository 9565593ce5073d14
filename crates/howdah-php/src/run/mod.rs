//! `howdah-php run SCRIPT`: runs a script written for Swoole's HTTP server. The script runs as under
//! `php` on a command line until `$server->start()`, which makes this process the manager of forked
//! workers that accept connections themselves: Swoole's BASE mode. The shim (`shim/swoole_*.c`) has
//! the classes and calls the script; what is here moves bytes and keeps time, and calls no PHP.
//!
//! From the inside out: [`timers`], [`crew`] and [`score`] keep books; [`connection`] is one
//! client, [`files`] its static files, [`heads`] the server's own answers; [`worker`] is a worker's event loop; [`listener`] the
//! address; [`border`] what the shim calls. [`sys`] and [`border`] are the modules with `unsafe`.
//!
//! Not here: a front. A worker that dies takes its connections along, and a script that blocks,
//! blocks its worker; `howdah serve` is for everything that is not written for Swoole.

mod border;
mod connection;
mod crew;
mod files;
mod heads;
mod listener;
mod log;
mod score;
mod sys;
mod timers;
mod worker;

use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::ExitCode;

use crate::arguments::PhpIni;
use crate::ffi;

/// `howdah-php run`, as asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    php_ini: PhpIni,
    /// Lines of a php.ini that take precedence.
    ini_entries: Vec<u8>,
    listen: Option<listener::Address>,
    /// The script and its arguments.
    arguments: Vec<CString>,
}

/// What every command-line PHP has, whatever php.ini says (`HARDCODED_INI` of sapi/cli).
pub(crate) const COMMAND_LINE_INI: &str = "html_errors=0\nregister_argc_argv=1\nimplicit_flush=1\n\
     output_buffering=0\nmax_execution_time=0\nmax_input_time=-1\n";

/// Runs the script to its end; in a worker, never returns.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let options = match parse(arguments) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("howdah run: {why}");
            return ExitCode::from(2);
        }
    };
    if let PhpIni::File(path) = &options.php_ini
        && let Err(e) = crate::sys::readable(path)
    {
        let path = path.to_string_lossy();
        eprintln!("howdah run: PhpIniUnreadable: cannot read {path}: {e}");
        return ExitCode::FAILURE;
    }
    if let Some(address) = options.listen {
        listener::listen_instead(address);
    }
    let Ok(entries) = CString::new([COMMAND_LINE_INI.as_bytes(), &options.ini_entries].concat())
    else {
        eprintln!("howdah run: BadValue: -d cannot be a setting with NUL");
        return ExitCode::from(2);
    };
    ffi::run_script(options.php_ini, entries, options.arguments)
}

fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        let name = argument.to_string_lossy().into_owned();
        let mut value = || {
            arguments
                .next()
                .ok_or_else(|| format!("MissingValue: {name} wants a value"))
        };
        match name.as_str() {
            "--listen" => {
                options.listen = Some(listener::parse(&value()?.to_string_lossy())?);
            }
            "--php-ini" => {
                let path = CString::new(value()?.into_vec())
                    .map_err(|_| "BadValue: --php-ini cannot be a path with NUL".to_owned())?;
                options.php_ini = PhpIni::File(path);
            }
            "--no-php-ini" => options.php_ini = PhpIni::Nothing,
            "-d" => setting(&mut options.ini_entries, value()?.as_bytes()),
            "--" => {
                options.arguments = strings(arguments)?;
                break;
            }
            _ if name.starts_with('-') => {
                return Err(format!(
                    "UnknownOption: {name}; options go before the script"
                ));
            }
            _ => {
                options.arguments = strings(std::iter::once(argument).chain(arguments))?;
                break;
            }
        }
    }
    if options.arguments.is_empty() {
        return Err("Required: the script to run".to_owned());
    }
    Ok(options)
}

/// Adds a setting of `-d` to the lines of a php.ini.
pub(crate) fn setting(entries: &mut Vec<u8>, setting: &[u8]) {
    entries.extend_from_slice(setting);
    if !setting.contains(&b'=') {
        // As under php: a switch.
        entries.extend_from_slice(b"=1");
    }
    entries.push(b'\n');
}

fn strings(arguments: impl Iterator<Item = OsString>) -> Result<Vec<CString>, String> {
    arguments
        .map(|a| CString::new(a.into_vec()).map_err(|_| "BadValue: an argument with NUL".into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Options, String> {
        parse(arguments.iter().map(OsString::from))
    }

    #[test]
    fn the_scripts_own_options_are_the_scripts() {
        let options = parsed(&["-d", "a=1", "-d", "b", "s.php", "-d", "x", "--listen"]).unwrap();
        assert_eq!(options.ini_entries, b"a=1\nb=1\n");
        let arguments: Vec<_> = options
            .arguments
            .iter()
            .map(|a| a.to_str().unwrap())
            .collect();
        assert_eq!(arguments, ["s.php", "-d", "x", "--listen"]);
    }

    #[test]
    fn mistakes_are_named() {
        for (arguments, name) in [
            (&["--bogus", "s.php"][..], "UnknownOption"),
            (&["--listen"], "MissingValue"),
            (&["--listen", "x", "s.php"], "BadAddress"),
            (&[], "Required"),
        ] {
            let why = parsed(arguments).unwrap_err();
            assert!(why.starts_with(name), "{why}");
        }
    }
}
