//! `howdah-php run SCRIPT`: runs a script written for Swoole's HTTP server. The script runs as under `php` on a command
//! line until `$server->start()`, which makes this process the manager of forked workers that accept connections
//! themselves: Swoole's BASE mode. The shim (`shim/swoole/*.c`) has the classes and calls the script; the modules here
//! transfer bytes and measure time, and call no PHP.
//!
//! From the inside out: [`timers`], [`worker_manager`] and [`counters`] hold state; [`connection`] is one client,
//! [`output`] is the output that waits for it, [`spill`] manages the files for long output and bodies, [`files`] finds
//! static files, [`mime`] has their types, [`response_heads`] builds the server's own responses; [`worker`] is a
//! worker's event loop; [`listener`] binds the address; [`crate::ffi`] has the functions that the shim calls. [`sys`]
//! is the module with `unsafe`.
//!
//! There is no front here. The connections of a worker that dies are lost, and a script that blocks blocks its worker.
//! `howdah serve` is for everything that is not written for Swoole.

pub mod connection;
pub mod counters;
pub mod files;
pub mod listener;
pub mod log;
pub mod mime;
mod output;
mod response_heads;
mod spill;
pub mod sys;
pub mod timers;
pub mod worker;
pub mod worker_manager;

use crate::ExitStatus;
use std::ffi::{CString, OsString};

use crate::command_line::{Argument, ArgumentError, CommandLine, PhpSettings, refuse};
use crate::ffi;

/// The parsed command line of `howdah-php run`.
#[derive(Debug, Default, PartialEq, Eq)]
struct RunOptions {
    settings: PhpSettings,
    listen: Option<listener::SwooleAddress>,
    /// The script and its arguments.
    arguments: Vec<CString>,
}

/// Runs the script to its end; never returns in a worker.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitStatus {
    let options = match parse(arguments) {
        Ok(options) => options,
        Err(why @ ArgumentError::UnknownOption(_)) => {
            return refuse("run", format!("{why}; write options before the script"), 2);
        }
        Err(why) => return refuse("run", why, 2),
    };
    let (php_ini, entries) = match options.settings.resolve() {
        Ok(resolved) => resolved,
        Err(why) => return refuse("run", why, 1),
    };
    if let Some(address) = options.listen {
        listener::override_listen_address(address);
    }
    ffi::run_script(php_ini, entries, options.arguments)
}

fn parse(arguments: impl Iterator<Item = OsString>) -> Result<RunOptions, ArgumentError> {
    let mut line = CommandLine::new(arguments);
    let mut options = RunOptions::default();
    while let Some(argument) = line.next_argument()? {
        match argument {
            Argument::Word(script) => options.arguments = line.script_and_arguments(script)?,
            Argument::Option(name) if name == "--listen" => {
                let address = line.value()?;
                let address = listener::parse_listen_address(&address.to_string_lossy());
                options.listen = Some(address.map_err(ArgumentError::Invalid)?);
            }
            Argument::Option(name) => return Err(ArgumentError::UnknownOption(name)),
        }
    }
    if options.arguments.is_empty() {
        return Err(ArgumentError::NoScript);
    }
    options.settings = line.settings;
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<RunOptions, String> {
        parse(arguments.iter().map(OsString::from)).map_err(|why| why.to_string())
    }

    #[test]
    fn options_after_the_script_belong_to_it() {
        let options = parsed(&["-d", "a=1", "-d", "b", "s.php", "-d", "x", "--listen"]).unwrap();
        assert_eq!(options.settings.ini_entries, b"a=1\nb=1\n");
        let arguments: Vec<_> = options
            .arguments
            .iter()
            .map(|a| a.to_str().unwrap())
            .collect();
        assert_eq!(arguments, ["s.php", "-d", "x", "--listen"]);
    }

    #[test]
    fn run_option_errors_are_named() {
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
