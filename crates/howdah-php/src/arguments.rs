//! The command line of a zygote, which the front writes and which people read in `ps`. Every mistake is reported by
//! name, and no unknown option is ignored.

use std::ffi::{CString, OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use crate::command_line::{
    Argument, ArgumentError, CommandLine, PhpIniSource, bad_value, c_string, push_ini_entry,
};

/// How long children may take to finish their requests unless the command line sets another limit.
const DEFAULT_SHUTDOWN_LIMIT: Duration = Duration::from_secs(60);

/// The operation that the command line requests.
#[derive(Debug, PartialEq, Eq)]
pub enum Invocation {
    /// Print the versions of Howdah and PHP and exit.
    Version,
    /// Run as the zygote of a pool.
    Serve(ZygoteOptions),
    /// Only check whether PHP starts with these settings, within this many seconds.
    TryStart(ZygoteOptions, u32),
}

/// The options of a zygote.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ZygoteOptions {
    /// Name of the pool, for process titles and messages.
    pub pool: String,
    /// The shared memory, which the front has initialised.
    pub memory_fd: i32,
    /// A connected `SOCK_SEQPACKET` socket that speaks `howdah_proto::control`.
    pub control_fd: i32,
    /// One eventfd per front thread.
    pub bell_fds: Vec<i32>,
    /// Which php.ini PHP reads.
    pub php_ini: PhpIniSource,
    /// `--opcache off` and the `-d` settings, as lines of a php.ini.
    pub ini_entries: CString,
    /// The user to become, by name or number. `None` keeps the current user.
    pub user: Option<String>,
    /// The group to become. `None` means the user's group.
    pub group: Option<String>,
    /// How long children may take to finish their requests after the front has exited, before they get SIGKILL.
    pub shutdown: Duration,
    /// The script that the children boot once for many requests. `None` means that each request names its own script.
    pub worker: Option<PathBuf>,
}

/// Parses the arguments after the program's name. `stdin` is called when an argument says that more settings follow on
/// standard input.
pub fn parse(
    arguments: impl Iterator<Item = OsString>,
    stdin: impl FnOnce() -> std::io::Result<Vec<u8>>,
) -> Result<Invocation, ArgumentError> {
    let mut line = CommandLine::new(arguments);
    let mut options = ZygoteOptions {
        shutdown: DEFAULT_SHUTDOWN_LIMIT,
        ..ZygoteOptions::default()
    };
    let (mut memory, mut control) = (None, None);
    let mut opcache = true;
    let mut trial = None;
    let mut stdin = Some(stdin);
    while let Some(argument) = line.next_argument()? {
        let name = match argument {
            Argument::Option(name) => name,
            Argument::Word(word) => {
                let word = word.to_string_lossy().into_owned();
                return Err(ArgumentError::UnknownOption(word));
            }
        };
        match name.as_str() {
            "--version" => return Ok(Invocation::Version),
            "--pool" => options.pool = utf8_value(&name, line.value()?)?,
            "--memory-fd" => memory = Some(descriptor_value(&name, &line.value()?)?),
            "--control-fd" => control = Some(descriptor_value(&name, &line.value()?)?),
            "--bell-fds" => {
                let list = utf8_value(&name, line.value()?)?;
                options.bell_fds = list
                    .split(',')
                    .map(|one| descriptor_value(&name, OsStr::new(one)))
                    .collect::<Result<_, _>>()?;
            }
            "--user" => options.user = Some(utf8_value(&name, line.value()?)?),
            "--worker" => options.worker = Some(worker_script_path(line.value()?)?),
            "--group" => options.group = Some(utf8_value(&name, line.value()?)?),
            "--farewell-ms" => {
                let ms = utf8_value(&name, line.value()?)?;
                let ms = ms.parse().map_err(|_| bad_value(&name, ms))?;
                options.shutdown = Duration::from_millis(ms);
            }
            "--try-seconds" => {
                let seconds = utf8_value(&name, line.value()?)?;
                let number = seconds.parse().ok().filter(|n| *n > 0);
                trial = Some(number.ok_or_else(|| bad_value(&name, seconds))?);
            }
            "--opcache" => {
                opcache = match utf8_value(&name, line.value()?)?.as_str() {
                    "on" => true,
                    "off" => false,
                    other => return Err(bad_value(&name, other)),
                };
            }
            "--define-stdin" => {
                let stdin = stdin
                    .take()
                    .ok_or_else(|| bad_value(&name, "given twice"))?;
                let entries = stdin().map_err(|e| bad_value(&name, e.to_string()))?;
                for entry in entries.split(|b| *b == 0).filter(|entry| !entry.is_empty()) {
                    push_ini_entry(&mut line.settings.ini_entries, entry)?;
                }
            }
            _ => return Err(ArgumentError::UnknownOption(name)),
        }
    }
    options.php_ini = line.settings.php_ini;
    let mut ini = line.settings.ini_entries;
    if !opcache {
        // This line comes first, so an explicit `-d opcache.enable=1` overrides it.
        ini.splice(0..0, *b"opcache.enable=0\n");
    }
    if trial.is_some() {
        // The preload script is application code, which a check of the settings must not run.
        ini.extend_from_slice(b"opcache.preload=\n");
    }
    options.ini_entries = c_string("-d", ini)?;
    if let Some(seconds) = trial {
        return Ok(Invocation::TryStart(options, seconds));
    }
    options.memory_fd = memory.ok_or(ArgumentError::Required("--memory-fd"))?;
    options.control_fd = control.ok_or(ArgumentError::Required("--control-fd"))?;
    if options.bell_fds.is_empty() {
        return Err(ArgumentError::Required("--bell-fds"));
    }
    if options.pool.is_empty() {
        return Err(ArgumentError::Required("--pool"));
    }
    Ok(Invocation::Serve(options))
}

fn utf8_value(option: &str, value: OsString) -> Result<String, ArgumentError> {
    value
        .into_string()
        .map_err(|value| bad_value(option, value.to_string_lossy()))
}

fn worker_script_path(value: OsString) -> Result<PathBuf, ArgumentError> {
    let path = PathBuf::from(value);
    // No file has a path longer than this.
    if path.is_absolute() && path.as_os_str().len() < 4096 {
        Ok(path)
    } else {
        Err(bad_value("--worker", path.display().to_string()))
    }
}

fn descriptor_value(option: &str, value: &OsStr) -> Result<i32, ArgumentError> {
    value
        .to_str()
        .and_then(|v| v.parse().ok())
        .filter(|n| *n >= 0)
        .ok_or_else(|| bad_value(option, value.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Invocation, ArgumentError> {
        parse(line.split_whitespace().map(OsString::from), || {
            Ok(b"mysqli.default_pw=a b\0x=1\0".to_vec())
        })
    }

    const BASE: &str = "--pool www --memory-fd 5 --control-fd 6 --bell-fds 7,8";

    #[test]
    fn zygote_command_line_is_parsed() {
        let Ok(Invocation::Serve(options)) = read(&format!(
            "{BASE} -d memory_limit=64M -d error_log=/x -d a.flag --opcache off --user www-data"
        )) else {
            panic!("refused");
        };
        assert_eq!(options.bell_fds, [7, 8]);
        assert_eq!(
            options.ini_entries.as_bytes(),
            b"opcache.enable=0\nmemory_limit=64M\nerror_log=\"/x\"\na.flag=1\n"
        );
        assert_eq!(options.user.as_deref(), Some("www-data"));
    }

    #[test]
    fn try_start_needs_no_front_and_disables_preloading() {
        let Ok(Invocation::TryStart(options, 60)) =
            read("--try-seconds 60 -d opcache.preload=app.php")
        else {
            panic!("refused");
        };
        assert_eq!(
            options.ini_entries.as_bytes(),
            b"opcache.preload=app.php\nopcache.preload=\n"
        );
    }

    #[test]
    fn define_stdin_adds_settings() {
        let Ok(Invocation::Serve(options)) = read(&format!("{BASE} -d a=1 --define-stdin -d b=2"))
        else {
            panic!("refused");
        };
        assert_eq!(
            options.ini_entries.as_bytes(),
            b"a=1\nmysqli.default_pw=a b\nx=1\nb=2\n"
        );
        assert!(read(&format!("{BASE} --define-stdin --define-stdin")).is_err());
    }

    #[test]
    fn zygote_argument_errors_are_named() {
        let unknown = ArgumentError::UnknownOption("--frob".into());
        assert_eq!(read(&format!("{BASE} --frob")), Err(unknown));
        assert_eq!(
            read("--pool"),
            Err(ArgumentError::MissingValue("--pool".into()))
        );
        let bad = |option: &str, value| Err(bad_value(option, value));
        assert_eq!(read("--memory-fd -1"), bad("--memory-fd", "-1"));
        assert_eq!(read("--bell-fds 1,,2"), bad("--bell-fds", ""));
        assert_eq!(read("--opcache maybe"), bad("--opcache", "maybe"));
        assert_eq!(read("--worker w.php"), bad("--worker", "w.php"));
        assert_eq!(read("-d =1"), bad("-d", "=1"));
        assert_eq!(read("--try-seconds 0"), bad("--try-seconds", "0"));
        assert_eq!(read("--farewell-ms soon"), bad("--farewell-ms", "soon"));
        assert_eq!(
            read("--pool x --memory-fd 1"),
            Err(ArgumentError::Required("--control-fd"))
        );
    }
}
