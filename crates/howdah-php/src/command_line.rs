//! The command lines of this program. [`CommandLine`] parses the command line of a zygote ([`crate::arguments`]), of
//! `howdah-php php` ([`crate::cli`]) and of `howdah-php run` ([`crate::run`]). All three accept PHP's settings, which
//! are parsed here.
//!
//! The syntax is that of getopt: `--name VALUE`, `--name=VALUE`, `-d VALUE` and `-dVALUE`, and `--` ends the options.

use crate::ExitStatus;
use std::ffi::{CString, OsString};
use std::fmt::Display;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

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
            ArgumentError::MissingValue(name) => write!(f, "MissingValue: {name} needs a value"),
            ArgumentError::BadValue(name, value) => {
                write!(f, "BadValue: {name} cannot be {value:?}")
            }
            ArgumentError::Required(name) => write!(
                f,
                "Required: {name} is missing; howdah-php is started by howdah, not by hand"
            ),
            ArgumentError::NoScript => f.write_str("Required: name the script to run"),
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
    /// PHP's own search: `PHPRC`, then the directory compiled into the PHP program that hosts this library (for
    /// Debian's php-fpm `/etc/php/8.2/fpm`), and `PHP_INI_SCAN_DIR` or its `conf.d`.
    #[default]
    Search,
    /// This file instead of the one that PHP would find. PHP still reads the scan directory.
    File(CString),
    /// No php.ini and no scan directory.
    Disabled,
}

impl PhpIniSource {
    /// Checks that the current user can read the named php.ini, because PHP says nothing about a file that it cannot
    /// read.
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
        self.php_ini
            .check_readable()
            .map_err(|why| format!("PhpIniUnreadable: {why}"))?;
        let entries = [COMMAND_LINE_INI.as_bytes(), &self.ini_entries].concat();
        let entries = c_string("-d", entries).map_err(|why| why.to_string())?;
        Ok((self.php_ini, entries))
    }
}

/// An argument that is not one of PHP's settings.
#[derive(Debug)]
pub enum Argument {
    /// An option, with its dashes. If it has a value, [`CommandLine::value`] returns it.
    Option(String),
    /// The first argument that is not an option.
    Word(OsString),
}

/// The arguments after the program's name, or after the name of its command.
pub struct CommandLine {
    parser: lexopt::Parser,
    /// The settings of the arguments that have been read.
    pub settings: PhpSettings,
}

impl CommandLine {
    /// Begins to read `arguments`.
    pub fn new(arguments: impl Iterator<Item = OsString>) -> CommandLine {
        CommandLine {
            parser: lexopt::Parser::from_args(arguments),
            settings: PhpSettings::default(),
        }
    }

    /// Returns the next argument that is not one of PHP's settings (`--php-ini FILE`, `--no-php-ini`, `-d NAME=VALUE`),
    /// which it adds to [`CommandLine::settings`].
    pub fn next_argument(&mut self) -> Result<Option<Argument>, ArgumentError> {
        loop {
            let settings = &mut self.settings;
            let argument = match self.parser.next()? {
                Some(Arg::Short('d')) => {
                    push_ini_entry(&mut settings.ini_entries, self.parser.value()?.as_bytes())?;
                    continue;
                }
                Some(Arg::Long("php-ini")) => {
                    let path = self.parser.value()?.into_vec();
                    settings.php_ini = PhpIniSource::File(c_string("--php-ini", path)?);
                    continue;
                }
                Some(Arg::Long("no-php-ini")) => {
                    settings.php_ini = PhpIniSource::Disabled;
                    continue;
                }
                Some(Arg::Short(letter)) => Argument::Option(format!("-{letter}")),
                Some(Arg::Long(name)) => Argument::Option(format!("--{name}")),
                Some(Arg::Value(word)) => Argument::Word(word),
                None => return Ok(None),
            };
            return Ok(Some(argument));
        }
    }

    /// Returns the value of the option that [`CommandLine::next_argument`] has returned.
    pub fn value(&mut self) -> Result<OsString, ArgumentError> {
        Ok(self.parser.value()?)
    }

    /// Returns `script` and all arguments after it, which belong to the script.
    pub fn script_and_arguments(
        &mut self,
        script: OsString,
    ) -> Result<Vec<CString>, ArgumentError> {
        std::iter::once(script)
            .chain(self.parser.raw_args()?)
            .map(|argument| c_string("an argument", argument.into_vec()))
            .collect()
    }
}

/// Converts the value of `option` to a C string. Fails if it contains a NUL byte.
pub fn c_string(option: &str, value: Vec<u8>) -> Result<CString, ArgumentError> {
    CString::new(value).map_err(|_| bad_value(option, "a text with NUL"))
}

/// Returns the error that `value` is not valid for `option`.
pub fn bad_value(option: &str, value: impl Into<String>) -> ArgumentError {
    ArgumentError::BadValue(option.to_owned(), value.into())
}

/// Reports why `howdah php` or `howdah run` does not run the script. Returns the exit status.
pub fn refuse(command: &str, why: impl Display, status: u8) -> ExitStatus {
    eprintln!("howdah {command}: {why}");
    status
}

/// Appends one `-d name=value` as a php.ini line, by the quoting rules of php's own `-d` (`php_ini_builder_define`): a
/// value that begins with a letter, a digit or a quote is written unchanged, any other value is quoted, and a name
/// alone means 1.
pub fn push_ini_entry(out: &mut Vec<u8>, entry: &[u8]) -> Result<(), ArgumentError> {
    let refuse = || bad_value("-d", String::from_utf8_lossy(entry));
    let (name, value) = match entry.iter().position(|b| *b == b'=') {
        Some(at) => (&entry[..at], Some(&entry[at + 1..])),
        None => (entry, None),
    };
    let named = |b: &u8| b.is_ascii_alphanumeric() || b"._-".contains(b);
    // `name[key]=value` sets an element of an array, which scripts read with get_cfg_var().
    let plain = match name.iter().position(|b| *b == b'[') {
        Some(at) if at > 0 && name.ends_with(b"]") => {
            let key = &name[at + 1..name.len() - 1];
            name[..at].iter().all(named) && key.iter().all(named)
        }
        _ => name.iter().all(named),
    };
    if name.is_empty() || !plain || entry.contains(&b'\n') {
        return Err(refuse());
    }
    out.extend_from_slice(name);
    out.push(b'=');
    match value {
        None => out.push(b'1'),
        Some(v) => {
            let bare = v
                .first()
                .is_none_or(|b| b.is_ascii_alphanumeric() || *b == b'"' || *b == b'\'');
            if bare {
                out.extend_from_slice(v);
            } else if v.contains(&b'"') {
                return Err(refuse());
            } else {
                out.push(b'"');
                out.extend_from_slice(v);
                out.push(b'"');
            }
        }
    }
    out.push(b'\n');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ini_entry_accepts_array_elements() {
        for (entry, line) in [("a[1]=x", "a[1]=x\n"), ("a.b[]=y", "a.b[]=y\n")] {
            let mut out = Vec::new();
            assert_eq!(push_ini_entry(&mut out, entry.as_bytes()), Ok(()));
            assert_eq!(String::from_utf8(out).unwrap(), line);
        }
        for nonsense in ["[1]=x", "a[1=x", "a]1[=x", "a[\"]=x", "a[1]b=x"] {
            assert!(
                push_ini_entry(&mut Vec::new(), nonsense.as_bytes()).is_err(),
                "{nonsense}"
            );
        }
    }

    #[test]
    fn command_line_accepts_both_forms_of_a_value() {
        let arguments = ["-da=1", "--php-ini=/x", "--listen=y", "-d=b", "--frob=z"];
        let mut line = CommandLine::new(arguments.map(OsString::from).into_iter());
        let Ok(Some(Argument::Option(name))) = line.next_argument() else {
            panic!("refused");
        };
        assert_eq!((name.as_str(), line.value()), ("--listen", Ok("y".into())));
        assert!(
            matches!(line.next_argument(), Ok(Some(Argument::Option(name))) if name == "--frob")
        );
        assert_eq!(line.settings.ini_entries, b"a=1\nb=1\n");
        assert_eq!(line.settings.php_ini, PhpIniSource::File(c"/x".into()));
        let unread = line.next_argument().map(|_| ());
        assert_eq!(unread, Err(ArgumentError::UnknownOption("--frob=z".into())));
    }
}
