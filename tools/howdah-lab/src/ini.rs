//! The common `php.ini` of all stacks. Debian's SAPIs read files of their own (`/etc/php/8.4/{fpm,apache2,cgi,cli}`);
//! a benchmark that used them would compare configurations.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use howdah_machine::php;

use crate::LabError;
use crate::folder::RunFolder;

/// A written `php.ini` and the directory that loads its extensions.
#[derive(Clone, Debug)]
pub struct PhpIniFile {
    /// The path of the written `php.ini`.
    pub file: PathBuf,
    /// Value for `PHP_INI_SCAN_DIR`: a copy of [`php::extension_settings`].
    pub scan_directory: PathBuf,
}

/// Debian's production values where they differ from PHP's defaults.
const SHARED_SETTINGS: &str = "\
[PHP]
display_errors = Off
log_errors = On
error_reporting = E_ALL & ~E_DEPRECATED
variables_order = GPCS
request_order = GP
output_buffering = 4096
memory_limit = 128M
max_execution_time = 30
expose_php = On
date.timezone = UTC
session.gc_probability = 0
";

impl PhpIniFile {
    /// Writes the file. `opcache` turns on the opcode cache, which takes the place of the posts' eAccelerator.
    pub fn write(
        folder: &RunFolder,
        opcache: bool,
        more: &[(&str, &str)],
    ) -> Result<PhpIniFile, LabError> {
        let name = if opcache { "php" } else { "php-no-opcache" };
        let folder = folder.directory(name)?;
        let sessions = folder.directory("sessions")?;
        let temporary = folder.directory("tmp")?;
        let mut text = String::from(SHARED_SETTINGS);
        let mut line = |name: &str, value: &str| writeln!(text, "{name} = {value}");
        let quoted = |path: &Path| format!("\"{}\"", path.display());
        let onoff = if opcache { "1" } else { "0" };
        let own = [
            ("opcache.enable", onoff.to_owned()),
            ("session.save_path", quoted(sessions.path())),
            ("sys_temp_dir", quoted(temporary.path())),
            ("upload_tmp_dir", quoted(temporary.path())),
        ];
        for (name, value) in &own {
            let _ = line(name, value);
        }
        for (name, value) in more {
            let _ = line(name, value);
        }
        let file = folder.write("php.ini", text)?;
        let from = php::extension_settings();
        if !from.is_dir() {
            return Err(LabError::NotHere {
                what: format!("{}, which names PHP's extensions,", from.display()),
                install: php::expand_placeholders("apt-get install php{php}-fpm"),
            });
        }
        let scan_directory = match folder.join("conf.d") {
            kept if kept.is_dir() => kept,
            _ => folder.copy_tree(&from, "conf.d")?,
        };
        let loaded = || loads_opcache(&scan_directory).map_err(LabError::file(&scan_directory));
        if opcache && !php::has_builtin_opcache() && !loaded()? {
            return Err(LabError::NotHere {
                what: format!("OPcache, which {} does not load,", from.display()),
                install: php::expand_placeholders(
                    "apt-get install php{php}-opcache && phpenmod -v {php} opcache",
                ),
            });
        }
        Ok(PhpIniFile {
            file,
            scan_directory,
        })
    }

    /// Returns the directory of the file, for programs that take a directory.
    pub fn directory(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("/"))
    }
}

/// Returns whether a file in this directory loads OPcache. Without this check, both halves of a comparison might
/// measure plain PHP unnoticed.
fn loads_opcache(directory: &Path) -> std::io::Result<bool> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "ini") {
            let text = std::fs::read_to_string(&path)?;
            let mut settings = text.lines().filter_map(|line| line.split_once('='));
            if settings
                .any(|(name, value)| name.trim() == "zend_extension" && value.contains("opcache"))
            {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_opcache_recognises_the_extension_line() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(directory.path().join(name), text).unwrap();
            loads_opcache(directory.path()).unwrap()
        };
        assert!(!write("20-gd.ini", "extension=gd.so\n"));
        assert!(!write(
            "10-opcache.ini",
            "; zend_extension=opcache.so\nopcache.jit=off\n"
        ));
        assert!(!write(
            "opcache.ini.disabled",
            "zend_extension=opcache.so\n"
        ));
        assert!(write(
            "10-opcache.ini",
            "; priority=10\nzend_extension = opcache.so\n"
        ));
    }
}
