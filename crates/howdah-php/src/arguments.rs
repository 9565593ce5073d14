//! The command line of a zygote, which the front writes and which people read in `ps`. Every mistake is reported by
//! name, and no unknown option is ignored.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

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

/// Why the command line is refused.
#[derive(Debug, PartialEq, Eq)]
pub enum ZygoteArgumentError {
    /// The program has no option of this name.
    UnknownOption(String),
    /// The option needs a value and has none.
    MissingValue(&'static str),
    /// The value is not valid for the option.
    BadValue(&'static str, String),
    /// The option is missing and has no default.
    Required(&'static str),
}

impl std::fmt::Display for ZygoteArgumentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ZygoteArgumentError::UnknownOption(name) => write!(f, "UnknownOption: {name}"),
            ZygoteArgumentError::MissingValue(name) => {
                write!(f, "MissingValue: {name} needs a value")
            }
            ZygoteArgumentError::BadValue(name, value) => {
                write!(f, "BadValue: {name} cannot be {value:?}")
            }
            ZygoteArgumentError::Required(name) => write!(
                f,
                "Required: {name} is missing; howdah-php is started by howdah, not by hand"
            ),
        }
    }
}

/// Parses the arguments after the program's name. `stdin` is called when an argument says that more settings follow on
/// standard input.
pub fn parse(
    args: impl Iterator<Item = OsString>,
    stdin: impl FnOnce() -> std::io::Result<Vec<u8>>,
) -> Result<Invocation, ZygoteArgumentError> {
    let mut args = args;
    let mut options = ZygoteOptions {
        shutdown: DEFAULT_SHUTDOWN_LIMIT,
        ..ZygoteOptions::default()
    };
    let (mut memory, mut control) = (None, None);
    let mut ini = Vec::new();
    let mut opcache = true;
    let mut trial = None;
    let mut stdin = Some(stdin);
    while let Some(arg) = args.next() {
        let name = arg.to_string_lossy().into_owned();
        let mut value =
            |option: &'static str| args.next().ok_or(ZygoteArgumentError::MissingValue(option));
        match name.as_str() {
            "--version" | "--name-version" => return Ok(Invocation::Version),
            "--pool" => options.pool = utf8_value("--pool", value("--pool")?)?,
            "--memory-fd" => {
                memory = Some(descriptor_value("--memory-fd", &value("--memory-fd")?)?)
            }
            "--control-fd" => {
                control = Some(descriptor_value("--control-fd", &value("--control-fd")?)?)
            }
            "--bell-fds" => {
                let list = utf8_value("--bell-fds", value("--bell-fds")?)?;
                options.bell_fds = list
                    .split(',')
                    .map(|one| descriptor_value("--bell-fds", OsStr::new(one)))
                    .collect::<Result<_, _>>()?;
            }
            "--php-ini" => {
                let path = value("--php-ini")?;
                options.php_ini =
                    PhpIniSource::File(CString::new(path.into_vec()).map_err(|_| {
                        ZygoteArgumentError::BadValue("--php-ini", "a path with a NUL byte".into())
                    })?);
            }
            "--no-php-ini" => options.php_ini = PhpIniSource::Disabled,
            "--user" => options.user = Some(utf8_value("--user", value("--user")?)?),
            "--worker" => options.worker = Some(worker_script_path(value("--worker")?)?),
            "--group" => options.group = Some(utf8_value("--group", value("--group")?)?),
            "--farewell-ms" => {
                let ms = utf8_value("--farewell-ms", value("--farewell-ms")?)?;
                let ms = ms
                    .parse()
                    .map_err(|_| ZygoteArgumentError::BadValue("--farewell-ms", ms))?;
                options.shutdown = Duration::from_millis(ms);
            }
            "--try-seconds" => {
                let seconds = utf8_value("--try-seconds", value("--try-seconds")?)?;
                let number = seconds.parse().ok().filter(|n| *n > 0);
                trial =
                    Some(number.ok_or(ZygoteArgumentError::BadValue("--try-seconds", seconds))?);
            }
            "--opcache" => {
                opcache = match utf8_value("--opcache", value("--opcache")?)?.as_str() {
                    "on" => true,
                    "off" => false,
                    other => return Err(ZygoteArgumentError::BadValue("--opcache", other.into())),
                };
            }
            "-d" => push_ini_entry(&mut ini, value("-d")?.as_bytes())?,
            "--define-stdin" => {
                let unread = |why: String| ZygoteArgumentError::BadValue("--define-stdin", why);
                let stdin = stdin.take().ok_or_else(|| unread("given twice".into()))?;
                let entries = stdin().map_err(|e| unread(e.to_string()))?;
                for entry in entries.split(|b| *b == 0).filter(|entry| !entry.is_empty()) {
                    push_ini_entry(&mut ini, entry)?;
                }
            }
            _ => return Err(ZygoteArgumentError::UnknownOption(name)),
        }
    }
    if !opcache {
        // This line comes first, so an explicit `-d opcache.enable=1` overrides it.
        ini.splice(0..0, *b"opcache.enable=0\n");
    }
    if trial.is_some() {
        // The preload script is application code, which a check of the settings must not run.
        ini.extend_from_slice(b"opcache.preload=\n");
    }
    options.ini_entries = CString::new(ini)
        .map_err(|_| ZygoteArgumentError::BadValue("-d", "a setting with a NUL byte".into()))?;
    if let Some(seconds) = trial {
        return Ok(Invocation::TryStart(options, seconds));
    }
    options.memory_fd = memory.ok_or(ZygoteArgumentError::Required("--memory-fd"))?;
    options.control_fd = control.ok_or(ZygoteArgumentError::Required("--control-fd"))?;
    if options.bell_fds.is_empty() {
        return Err(ZygoteArgumentError::Required("--bell-fds"));
    }
    if options.pool.is_empty() {
        return Err(ZygoteArgumentError::Required("--pool"));
    }
    Ok(Invocation::Serve(options))
}

fn utf8_value(option: &'static str, value: OsString) -> Result<String, ZygoteArgumentError> {
    value
        .into_string()
        .map_err(|v| ZygoteArgumentError::BadValue(option, v.to_string_lossy().into_owned()))
}

fn worker_script_path(value: OsString) -> Result<PathBuf, ZygoteArgumentError> {
    let path = PathBuf::from(value);
    // No file has a path longer than this.
    if path.is_absolute() && path.as_os_str().len() < 4096 {
        Ok(path)
    } else {
        Err(ZygoteArgumentError::BadValue(
            "--worker",
            path.display().to_string(),
        ))
    }
}

fn descriptor_value(option: &'static str, value: &OsStr) -> Result<i32, ZygoteArgumentError> {
    value
        .to_str()
        .and_then(|v| v.parse().ok())
        .filter(|n| *n >= 0)
        .ok_or_else(|| ZygoteArgumentError::BadValue(option, value.to_string_lossy().into_owned()))
}

/// Appends one `-d name=value` as a php.ini line, by the quoting rules of php's own `-d` (`php_ini_builder_define`): a
/// value that begins with a letter, a digit or a quote is written unchanged, any other value is quoted, and a name
/// alone means 1.
pub fn push_ini_entry(out: &mut Vec<u8>, entry: &[u8]) -> Result<(), ZygoteArgumentError> {
    let refuse =
        || ZygoteArgumentError::BadValue("-d", String::from_utf8_lossy(entry).into_owned());
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

    fn read(line: &str) -> Result<Invocation, ZygoteArgumentError> {
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
    fn zygote_argument_errors_are_named() {
        let unknown = ZygoteArgumentError::UnknownOption("--frob".into());
        assert_eq!(read(&format!("{BASE} --frob")), Err(unknown));
        assert_eq!(
            read("--pool"),
            Err(ZygoteArgumentError::MissingValue("--pool"))
        );
        let bad = |option, value: &str| Err(ZygoteArgumentError::BadValue(option, value.into()));
        assert_eq!(read("--memory-fd -1"), bad("--memory-fd", "-1"));
        assert_eq!(read("--bell-fds 1,,2"), bad("--bell-fds", ""));
        assert_eq!(read("--opcache maybe"), bad("--opcache", "maybe"));
        assert_eq!(read("--worker w.php"), bad("--worker", "w.php"));
        assert_eq!(read("-d =1"), bad("-d", "=1"));
        assert_eq!(read("--try-seconds 0"), bad("--try-seconds", "0"));
        assert_eq!(read("--farewell-ms soon"), bad("--farewell-ms", "soon"));
        assert_eq!(
            read("--pool x --memory-fd 1"),
            Err(ZygoteArgumentError::Required("--control-fd"))
        );
    }
}
