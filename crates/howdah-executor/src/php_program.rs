//! A PHP program of the machine (php-fpm, php-cgi or php), and the library that makes it a process of Howdah. The
//! dynamic linker loads the library before the program starts (`LD_PRELOAD`, ld.so(8)), and the library's `main` runs
//! in place of the program's. PHP's engine, extensions and php.ini are those of the program.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use howdah_os::descriptors::inherit;
use rustix::fs::{Mode, OFlags, open};
use serde::{Deserialize, Serialize};

/// The variable in which the dynamic linker finds the library. The library removes itself from it before PHP runs.
const PRELOAD: &str = "LD_PRELOAD";

/// A PHP program and the library for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PhpProgram {
    /// The PHP program: php-fpm, php-cgi or php.
    pub host: PathBuf,
    /// The library for its API, thread-safety and C library.
    pub library: PathBuf,
}

impl PhpProgram {
    /// Returns a command that runs this program. The caller must call [`PhpProgram::preload`] once the command's
    /// environment is complete.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.host);
        command.arg0("howdah-php");
        command
    }

    /// Returns a command that runs this program with the environment of this process.
    ///
    /// # Errors
    /// As [`PhpProgram::preload`].
    pub fn command_here(&self) -> io::Result<Command> {
        let mut command = self.command();
        self.preload(&mut command, false)?;
        Ok(command)
    }

    /// Adds the library to the environment of a command, in front of the libraries that the user preloads. These come
    /// from the command's environment. If it does not set `LD_PRELOAD`, they come from this process, unless the
    /// command's environment is cleared.
    ///
    /// # Errors
    /// The library cannot be opened. It is opened only if its path contains a blank or a colon, because these
    /// characters separate paths in `LD_PRELOAD`; the program then inherits a descriptor of the library.
    pub fn preload(&self, command: &mut Command, is_cleared: bool) -> io::Result<()> {
        let mut list = OsString::from(&self.library);
        if list.as_bytes().iter().any(|byte| b" \t\n:".contains(byte)) {
            let library = open(
                &self.library,
                OFlags::RDONLY | OFlags::CLOEXEC,
                Mode::empty(),
            )?;
            list = descriptor_path(&library);
            inherit(command, vec![library]);
        }
        let named = command
            .get_envs()
            .find(|(name, _)| *name == PRELOAD)
            .map(|(_, value)| value.map(OsString::from));
        let others = named.unwrap_or_else(|| match is_cleared {
            true => None,
            false => std::env::var_os(PRELOAD),
        });
        if let Some(others) = others.filter(|others| !others.is_empty()) {
            list.push(":");
            list.push(others);
        }
        command.env(PRELOAD, list);
        Ok(())
    }
}

/// Returns the path under which the process that inherits this descriptor finds the file.
fn descriptor_path(file: &OwnedFd) -> OsString {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

impl fmt::Display for PhpProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.host.display().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preloaded(program: &PhpProgram, environment: &[(&str, &str)], is_cleared: bool) -> String {
        let mut command = program.command();
        command.envs(environment.iter().copied());
        program.preload(&mut command, is_cleared).unwrap();
        let (_, value) = command
            .get_envs()
            .find(|(name, _)| *name == PRELOAD)
            .unwrap();
        value.unwrap().to_string_lossy().into_owned()
    }

    #[test]
    fn preloaded_libraries_of_the_user_follow_ours() {
        let program = PhpProgram {
            host: "/usr/bin/php".into(),
            library: "/usr/lib/howdah/a.so".into(),
        };
        assert_eq!(preloaded(&program, &[], true), "/usr/lib/howdah/a.so");
        assert_eq!(
            preloaded(&program, &[(PRELOAD, "/usr/lib/jemalloc.so")], true),
            "/usr/lib/howdah/a.so:/usr/lib/jemalloc.so"
        );
    }

    #[test]
    fn library_in_a_path_with_a_separator_is_passed_as_a_descriptor() {
        let directory = tempfile::tempdir().unwrap();
        let library = directory.path().join("a b:c.so");
        std::fs::write(&library, "").unwrap();
        let program = PhpProgram {
            host: "/usr/bin/php".into(),
            library,
        };
        let value = preloaded(&program, &[], true);
        assert!(value.starts_with("/proc/self/fd/"), "{value}");
    }
}
