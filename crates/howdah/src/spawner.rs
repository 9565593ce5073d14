//! `howdah spawner`: changes to the pool's user, writes PHP's settings to files, and executes the front's commands
//! (`howdah_executor::programs::spawner`). The master starts the spawner with values from the master's own
//! configuration, so the front cannot choose which program runs. It chooses only the script of a request.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use howdah_executor::programs::spawner::{self, ProgramProtocol, SpawnerSettings};
use howdah_os::files::{create_beside, create_private_directory};
use howdah_os::output::write_stderr_line;
use howdah_proto::spawner::SpawnerReport;

use crate::{exit, sys};
use howdah_config::arguments::SpawnerArguments;

/// Runs `howdah spawner`.
pub fn run(arguments: SpawnerArguments) -> ExitCode {
    let control = match sys::take_inherited(arguments.control_fd) {
        Ok(fd) => fd,
        Err(error) => {
            write_stderr_line(&format!(
                "spawner: this process has no connection to a front ({error}); start `howdah serve` instead"
            ));
            return exit::failed();
        }
    };
    // Other processes of the pool's user must not take our channel to the front, or read the settings.
    if let Err(error) = sys::set_dumpable(false) {
        write_stderr_line(&format!(
            "spawner: cannot protect the memory of this process: {error}"
        ));
        return exit::failed();
    }
    let protocol = match arguments.protocol.as_str() {
        "cgi" => ProgramProtocol::Cgi,
        _ => ProgramProtocol::FastCgi,
    };
    let prepared = become_user(&arguments).and_then(|()| {
        PhpSettingsDirectory::write(&arguments).map_err(|error| {
            let message = format!("cannot write PHP's settings for the programs: {error}");
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
    let settings = SpawnerSettings {
        protocol,
        command: arguments.command,
        environment: php.environment(),
    };
    match spawner::serve(control, settings) {
        Ok(()) => exit::done(),
        Err(error) => {
            write_stderr_line(&format!("spawner: {error}"));
            exit::failed()
        }
    }
}

fn become_user(arguments: &SpawnerArguments) -> Result<(), (&'static str, String)> {
    let cannot = |error: io::Error| {
        let message = format!("cannot drop capabilities: {error}");
        ("CannotChangeUser", message)
    };
    let Some(name) = arguments.user.as_ref().filter(|_| sys::may_change_user()) else {
        return sys::drop_capabilities().map_err(cannot);
    };
    let account =
        sys::find_user(name).ok_or_else(|| ("NoSuchUser", format!("there is no user `{name}`")))?;
    let gid = match &arguments.group {
        Some(group) => sys::find_group(group)
            .ok_or_else(|| ("NoSuchGroup", format!("there is no group `{group}`")))?,
        None => account.gid,
    };
    sys::become_user(&account, gid).map_err(|error| {
        let message = format!("cannot become user `{name}`: {error}");
        ("CannotChangeUser", message)
    })
}

/// The directory of the file with the settings, below the private directory that also contains the link to php.ini.
const SCANNED_DIRECTORY: &str = "conf.d";
/// The file in the private directory that a spawner keeps locked while it runs.
const LOCK_FILE: &str = "lock";

/// PHP's settings as files in a directory of their own, which environment variables point PHP to. Arguments would not
/// work: php-cgi in CGI mode skips its options when the query string begins with `-` (its fix for CVE-2012-1823), so
/// any client could switch `open_basedir` off. A wrapper script that is configured as the command might not pass
/// arguments on, either.
struct PhpSettingsDirectory {
    directory: Option<PathBuf>,
    has_ini: bool,
    /// Marks the directory as being in use.
    _lock: Option<File>,
}

impl PhpSettingsDirectory {
    fn write(arguments: &SpawnerArguments) -> io::Result<PhpSettingsDirectory> {
        let mut this = PhpSettingsDirectory {
            directory: None,
            has_ini: arguments.php_ini.is_some(),
            _lock: None,
        };
        let defines = match arguments.define_stdin {
            true => read_defines(std::io::stdin().lock())?,
            false => Vec::new(),
        };
        if defines.is_empty() && !this.has_ini {
            return Ok(this);
        }
        let temporary = std::env::temp_dir();
        remove_abandoned_directories(&temporary, &arguments.pool);
        let path = create_private_directory(&temporary, &prefix_of(&arguments.pool))?;
        this.directory = Some(path.clone());
        this._lock = Some(lock(&path)?);
        let lines: String = defines.iter().map(|d| ini_line(d)).collect();
        // In a directory of its own: PHP reads every file in a scanned directory, so a php.ini there would be read
        // again, and last.
        std::fs::create_dir(path.join(SCANNED_DIRECTORY))?;
        std::fs::write(path.join(SCANNED_DIRECTORY).join("howdah.ini"), lines)?;
        if let Some(ini) = &arguments.php_ini {
            std::os::unix::fs::symlink(ini, path.join("php.ini"))?;
        }
        Ok(this)
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        let Some(directory) = &self.directory else {
            return Vec::new();
        };
        // An empty part means the directory that PHP was built with. Ours comes last, so it takes precedence.
        let mut scan = std::env::var_os("PHP_INI_SCAN_DIR").unwrap_or_default();
        scan.push(":");
        scan.push(directory.join(SCANNED_DIRECTORY));
        let mut pairs = vec![("PHP_INI_SCAN_DIR".into(), scan)];
        if self.has_ini {
            pairs.push(("PHPRC".into(), directory.clone().into()));
        }
        pairs
    }
}

impl Drop for PhpSettingsDirectory {
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
    let (file, new) = create_beside(&directory.join(LOCK_FILE), 0o600)?;
    file.try_lock()?;
    // The file is renamed only after it is locked, so no process finds it unlocked.
    std::fs::rename(new, directory.join(LOCK_FILE))?;
    Ok(file)
}

/// Removes the directories of spawners that were killed. Directories of other users cannot be removed.
fn remove_abandoned_directories(temporary: &Path, pool: &str) {
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
        // A directory without a lock file is kept, because it may still be being created.
        let lock = File::options()
            .write(true)
            .open(entry.path().join(LOCK_FILE));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Parses the settings in the format of `howdah_executor::launch`.
fn read_defines(mut input: impl io::Read) -> io::Result<Vec<String>> {
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
    fn remove_abandoned_directories_keeps_those_in_use() {
        let temporary = tempfile::tempdir().unwrap();
        let make = || create_private_directory(temporary.path(), &prefix_of("www")).unwrap();
        let (used, left, begun) = (make(), make(), make());
        let _lock = lock(&used).unwrap();
        drop(lock(&left).unwrap());
        // The directory of a process in another container; no process here has its id.
        let theirs = temporary.path().join("howdah-spawner-www-4194399-0");
        std::fs::create_dir(&theirs).unwrap();
        remove_abandoned_directories(temporary.path(), "www");
        let there = [used, left, begun, theirs].map(|path| path.exists());
        assert_eq!(there, [true, false, true, true]);
    }

    #[test]
    fn read_defines_splits_at_nul() {
        let read = |text: &str| read_defines(text.as_bytes()).unwrap();
        assert_eq!(read("a=1\0b=x y\0"), ["a=1", "b=x y"]);
        assert!(read("").is_empty());
    }

    #[test]
    fn ini_line_quotes_as_phps_command_line() {
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
