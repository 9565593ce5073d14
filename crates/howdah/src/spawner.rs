//! `howdah spawner`: changes to the pool's user, writes PHP's settings to files, and executes the front's commands
//! (`howdah_executor::programs::spawner`). The master starts it with values from its own configuration, so the front
//! can choose no program but only the script of a request.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use howdah_executor::programs::spawner::{self, Protocol, Settings};
use howdah_os::files::{create_beside, private_directory};
use howdah_os::output::line_to_stderr;
use howdah_proto::spawner::SpawnerReport;

use crate::arguments::Spawner;
use crate::{exit, sys};

/// Runs `howdah spawner`.
pub fn run(arguments: Spawner) -> ExitCode {
    let control = match sys::inherited(arguments.control_fd) {
        Ok(fd) => fd,
        Err(error) => {
            line_to_stderr(&format!(
                "spawner: no line to a front ({error}); start `howdah serve` instead"
            ));
            return exit::failed();
        }
    };
    // Other processes of the pool's user must not take our channel to the front, or read the settings.
    if let Err(error) = sys::set_dumpable(false) {
        line_to_stderr(&format!("spawner: cannot close our memory: {error}"));
        return exit::failed();
    }
    let protocol = match arguments.protocol.as_str() {
        "cgi" => Protocol::Cgi,
        _ => Protocol::FastCgi,
    };
    let prepared = become_user(&arguments).and_then(|()| {
        PhpSettings::write(&arguments).map_err(|error| {
            let message = format!("cannot write down PHP's settings for the programs: {error}");
            ("SettingsNotWritten", message)
        })
    });
    let php = match prepared {
        Ok(php) => php,
        Err((name, message)) => {
            let name = name.to_owned();
            let report = SpawnerReport::Failed { name, message }.encode();
            // A front that has exited needs no report.
            let _ = rustix::net::send(&control, &report, rustix::net::SendFlags::NOSIGNAL);
            return exit::failed();
        }
    };
    let settings = Settings {
        protocol,
        command: arguments.command,
        environment: php.environment(),
    };
    match spawner::serve(control, settings) {
        Ok(()) => exit::done(),
        Err(error) => {
            line_to_stderr(&format!("spawner: {error}"));
            exit::failed()
        }
    }
}

fn become_user(arguments: &Spawner) -> Result<(), (&'static str, String)> {
    let cannot = |error: io::Error| {
        let message = format!("cannot give up capabilities: {error}");
        ("CannotChangeUser", message)
    };
    let Some(name) = arguments.user.as_ref().filter(|_| sys::may_change_user()) else {
        return sys::give_up_capabilities().map_err(cannot);
    };
    let account =
        sys::user(name).ok_or_else(|| ("NoSuchUser", format!("there is no user `{name}`")))?;
    let gid = match &arguments.group {
        Some(group) => sys::group(group)
            .ok_or_else(|| ("NoSuchGroup", format!("there is no group `{group}`")))?,
        None => account.gid,
    };
    sys::become_user(&account, gid).map_err(|error| {
        let message = format!("cannot become user `{name}`: {error}");
        ("CannotChangeUser", message)
    })
}

/// The directory of the settings, beside the link to php.ini.
const SCANNED: &str = "conf.d";
/// The file in the same directory that a running spawner has locked.
const LOCK: &str = "lock";

/// PHP's settings as files in a directory of their own, which environment variables point PHP to. Arguments would not
/// work: php-cgi in CGI mode skips its options when the query string begins with `-` (its fix for CVE-2012-1823), so
/// any client could switch `open_basedir` off. A wrapper would not pass them on, either.
struct PhpSettings {
    directory: Option<PathBuf>,
    has_ini: bool,
    /// Marks the directory as being in use.
    _lock: Option<File>,
}

impl PhpSettings {
    fn write(arguments: &Spawner) -> io::Result<PhpSettings> {
        let mut this = PhpSettings {
            directory: None,
            has_ini: arguments.php_ini.is_some(),
            _lock: None,
        };
        let defines = match arguments.define_stdin {
            true => defines_from(std::io::stdin().lock())?,
            false => Vec::new(),
        };
        if defines.is_empty() && !this.has_ini {
            return Ok(this);
        }
        let temporary = std::env::temp_dir();
        clean_up_after_the_dead(&temporary, &arguments.pool);
        let path = private_directory(&temporary, &prefix_of(&arguments.pool))?;
        this.directory = Some(path.clone());
        this._lock = Some(lock(&path)?);
        let lines: String = defines.iter().map(|d| ini_line(d)).collect();
        // In a directory of its own: PHP reads every file in a scanned directory, so a php.ini there would be read
        // again, and last.
        std::fs::create_dir(path.join(SCANNED))?;
        std::fs::write(path.join(SCANNED).join("howdah.ini"), lines)?;
        if let Some(ini) = &arguments.php_ini {
            std::os::unix::fs::symlink(ini, path.join("php.ini"))?;
        }
        Ok(this)
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        let Some(directory) = &self.directory else {
            return Vec::new();
        };
        // An empty part stands for the directory that PHP was built with. Ours comes last, so it takes precedence.
        let mut scan = std::env::var_os("PHP_INI_SCAN_DIR").unwrap_or_default();
        scan.push(":");
        scan.push(directory.join(SCANNED));
        let mut pairs = vec![("PHP_INI_SCAN_DIR".into(), scan)];
        if self.has_ini {
            pairs.push(("PHPRC".into(), directory.clone().into()));
        }
        pairs
    }
}

impl Drop for PhpSettings {
    fn drop(&mut self) {
        if let Some(directory) = &self.directory {
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

fn prefix_of(pool: &str) -> String {
    format!("howdah-spawner-{pool}-")
}

/// Marks a directory as used while the file is open. A process id would not suffice: the id of a process in another
/// container that shares `/tmp` means nothing here.
fn lock(directory: &Path) -> io::Result<File> {
    let (file, new) = create_beside(&directory.join(LOCK), 0o600)?;
    file.try_lock()?;
    // The file is renamed only after it is locked, so no process finds it unlocked.
    std::fs::rename(new, directory.join(LOCK))?;
    Ok(file)
}

/// Removes the directories of spawners that were killed. Directories of other users cannot be removed.
fn clean_up_after_the_dead(temporary: &Path, pool: &str) {
    let prefix = prefix_of(pool);
    let entries = std::fs::read_dir(temporary).into_iter().flatten().flatten();
    for entry in entries {
        if !entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(prefix.as_bytes())
        {
            continue;
        }
        // A directory without a lock is still being created.
        let lock = File::options().write(true).open(entry.path().join(LOCK));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Parses the settings in the format of `howdah_executor::launch`.
fn defines_from(mut input: impl io::Read) -> io::Result<Vec<String>> {
    let mut text = String::new();
    input.read_to_string(&mut text)?;
    Ok(text.split_terminator('\0').map(str::to_owned).collect())
}

/// Formats a setting as a line of php.ini, as `php -d` does (php-src `php_ini_builder_define`): a value that does not
/// begin with a letter, a digit or a quote is quoted.
fn ini_line(define: &str) -> String {
    let (name, value) = define.split_once('=').unwrap_or((define, "1"));
    let plain = value
        .chars()
        .next()
        .is_none_or(|c| c.is_ascii_alphanumeric() || matches!(c, '"' | '\''));
    match plain {
        true => format!("{name}={value}\n"),
        false => format!("{name}=\"{value}\"\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_directory_whose_spawner_has_died_is_removed() {
        let temporary = tempfile::tempdir().unwrap();
        let make = || private_directory(temporary.path(), &prefix_of("www")).unwrap();
        let (used, left, begun) = (make(), make(), make());
        let _lock = lock(&used).unwrap();
        drop(lock(&left).unwrap());
        // The directory of a process in another container; no process here has its id.
        let theirs = temporary.path().join("howdah-spawner-www-4194399-0");
        std::fs::create_dir(&theirs).unwrap();
        clean_up_after_the_dead(temporary.path(), "www");
        let there = [used, left, begun, theirs].map(|path| path.exists());
        assert_eq!(there, [true, false, true, true]);
    }

    #[test]
    fn settings_are_taken_apart_at_their_ends() {
        let read = |text: &str| defines_from(text.as_bytes()).unwrap();
        assert_eq!(read("a=1\0b=x y\0"), ["a=1", "b=x y"]);
        assert!(read("").is_empty());
    }

    #[test]
    fn settings_read_as_on_phps_command_line() {
        assert_eq!(ini_line("memory_limit=64M"), "memory_limit=64M\n");
        assert_eq!(ini_line("open_basedir=/srv"), "open_basedir=\"/srv\"\n");
        assert_eq!(
            ini_line("error_reporting=E_ALL & ~E_NOTICE"),
            "error_reporting=E_ALL & ~E_NOTICE\n"
        );
        assert_eq!(ini_line("display_errors"), "display_errors=1\n");
        assert_eq!(ini_line("auto_prepend_file="), "auto_prepend_file=\n");
    }
}
