//! `howdah-php php`: PHP as on a command line. `howdah php` starts it and reads its reports of database writes. It
//! takes the options of `howdah php` and has no front and no HTTP.

use crate::ExitStatus;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt;

use howdah_os::descriptors::take_inherited;

use crate::command_line::{Argument, ArgumentError, CommandLine, PhpSettings, c_string, refuse};
use crate::{current_request, ffi};

/// The parsed command line of `howdah-php php`.
#[derive(Debug, Default, PartialEq, Eq)]
struct CliOptions {
    settings: PhpSettings,
    /// PHP code to run instead of a script.
    code: Option<CString>,
    /// The descriptor to which effects are written. `None` means that they are not reported.
    effects: Option<i32>,
    /// Whether the script has the functions of requests.
    as_served: bool,
    /// The script, or with `code` the name that PHP shows in its place, followed by the script's arguments.
    arguments: Vec<CString>,
}

/// Runs the script to its end.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitStatus {
    let options = match parse(arguments) {
        Ok(options) => options,
        Err(why) => return refuse("php", why, 2),
    };
    let (php_ini, entries) = match options.settings.resolve() {
        Ok(resolved) => resolved,
        Err(why) => return refuse("php", why, 1),
    };
    if let Some(fd) = options.effects {
        match take_inherited(fd) {
            Ok(fd) => current_request::report_effects_to(fd),
            Err(error) => {
                let why = format!("BadValue: --effects-fd {fd}: {error}");
                return refuse("php", why, 2);
            }
        }
    }
    let reports_effects = options.effects.is_some();
    ffi::run_command_line(
        php_ini,
        entries,
        options.code,
        reports_effects,
        options.as_served,
        options.arguments,
    )
}

fn parse(arguments: impl Iterator<Item = OsString>) -> Result<CliOptions, ArgumentError> {
    let mut line = CommandLine::new(arguments);
    let mut options = CliOptions::default();
    while let Some(argument) = line.next_argument()? {
        match argument {
            Argument::Word(script) => options.arguments = line.script_and_arguments(script)?,
            Argument::Option(name) => match name.as_str() {
                "--code" => options.code = Some(c_string(&name, line.value()?.into_vec())?),
                "--as-served" => options.as_served = true,
                "--effects-fd" => {
                    let number = line.value()?.to_str().and_then(|n| n.parse().ok());
                    options.effects = Some(number.ok_or_else(|| {
                        ArgumentError::Invalid("BadValue: --effects-fd must be a number".into())
                    })?);
                }
                _ => return Err(ArgumentError::UnknownOption(name)),
            },
        }
    }
    options.settings = line.settings;
    if options.code.is_some() {
        // The value of `$argv[0]` under `php -r`.
        options.arguments.insert(0, c"Standard input code".into());
    } else if options.arguments.is_empty() {
        return Err(ArgumentError::NoScript);
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<CliOptions, String> {
        parse(arguments.iter().map(OsString::from)).map_err(|why| why.to_string())
    }

    #[test]
    fn arguments_after_double_dash_belong_to_the_script() {
        let options = parsed(&["-d", "a", "--effects-fd", "7", "--", "s.php", "-d", "--"]).unwrap();
        assert_eq!(
            (&options.settings.ini_entries[..], options.effects),
            (&b"a=1\n"[..], Some(7))
        );
        assert_eq!(
            options.arguments,
            [c"s.php".into(), c"-d".into(), CString::from(c"--")]
        );
        let options = parsed(&["--code", "echo 1;", "--", "a"]).unwrap();
        let arguments = [CString::from(c"Standard input code"), c"a".into()];
        assert_eq!(options.arguments, arguments);
    }

    #[test]
    fn command_line_errors_are_named() {
        for (arguments, name) in [
            (&["-x"][..], "UnknownOption"),
            (&["--"], "Required"),
            (&["--effects-fd", "x"], "BadValue"),
            (&["--code"], "MissingValue"),
        ] {
            assert!(
                parsed(arguments).unwrap_err().starts_with(name),
                "{arguments:?}"
            );
        }
    }
}
