//! `howdah-php php`: PHP as on a command line, for `howdah php`, which starts it and reads what it
//! tells of writes to databases. The options are those of `howdah php`, made plain; no front, no HTTP.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::ExitCode;

use crate::arguments::PhpIni;
use crate::{exchange, ffi, run, sys};

/// As asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    php_ini: PhpIni,
    /// Lines of a php.ini that take precedence.
    ini_entries: Vec<u8>,
    /// PHP code in place of a script.
    code: Option<CString>,
    /// Where effects are written to.
    effects: Option<i32>,
    /// The script (with code: what stands for it) and its arguments.
    arguments: Vec<CString>,
}

/// Runs the script to its end.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let options = match parse(arguments) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("howdah php: {why}");
            return ExitCode::from(2);
        }
    };
    if let PhpIni::File(path) = &options.php_ini
        && let Err(e) = sys::readable(path)
    {
        let path = path.to_string_lossy();
        eprintln!("howdah php: PhpIniUnreadable: cannot read {path}: {e}");
        return ExitCode::FAILURE;
    }
    if let Some(fd) = options.effects {
        if let Err(error) = sys::set_cloexec(fd) {
            eprintln!("howdah php: BadValue: --effects-fd {fd}: {error}");
            return ExitCode::from(2);
        }
        exchange::tell_effects_to(fd);
    }
    let Ok(entries) =
        CString::new([run::COMMAND_LINE_INI.as_bytes(), &options.ini_entries].concat())
    else {
        eprintln!("howdah php: BadValue: -d cannot be a setting with NUL");
        return ExitCode::from(2);
    };
    let tells = options.effects.is_some();
    ffi::run_command_line(
        options.php_ini,
        entries,
        options.code,
        tells,
        options.arguments,
    )
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
            "--php-ini" => options.php_ini = PhpIni::File(string(value()?)?),
            "--no-php-ini" => options.php_ini = PhpIni::Nothing,
            "--code" => options.code = Some(string(value()?)?),
            "--effects-fd" => {
                let number = value()?;
                let number = number.to_str().and_then(|n| n.parse().ok());
                options.effects = Some(number.ok_or("BadValue: --effects-fd is a number")?);
            }
            "-d" => run::setting(&mut options.ini_entries, value()?.as_bytes()),
            "--" => {
                for argument in arguments.by_ref() {
                    options.arguments.push(string(argument)?);
                }
            }
            _ => return Err(format!("UnknownOption: {name}")),
        }
    }
    if options.code.is_some() {
        // What $argv[0] is under php -r.
        options.arguments.insert(0, c"Standard input code".into());
    } else if options.arguments.is_empty() {
        return Err("Required: the script to run".to_owned());
    }
    Ok(options)
}

fn string(text: OsString) -> Result<CString, String> {
    CString::new(text.into_vec()).map_err(|_| "BadValue: an argument with NUL".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Options, String> {
        parse(arguments.iter().map(OsString::from))
    }

    #[test]
    fn what_follows_the_dashes_is_the_scripts() {
        let options = parsed(&["-d", "a", "--effects-fd", "7", "--", "s.php", "-d", "--"]).unwrap();
        assert_eq!(
            (&options.ini_entries[..], options.effects),
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
    fn mistakes_are_named() {
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
