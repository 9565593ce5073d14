//! Programs that may not be installed. The lab names a missing program with the command that installs it, and reports
//! this in its rows: nothing is omitted silently, and nothing is downloaded.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use howdah_machine::php;
use howdah_machine::programs::{find, is_program};

use crate::LabError;

/// A program or file that a stack needs. In all strings `{php}` is replaced by PHP's series, and `{extensions}` by the
/// directory of its extensions ([`php::named`]).
#[derive(Clone, Copy, Debug)]
pub struct RequiredProgram {
    /// The common name of the program.
    pub what: &'static str,
    /// The places to look in: absolute paths, or names that are looked up in `PATH` and the `sbin` directories.
    pub places: &'static [&'static str],
    /// Returns whether the file found at a place is suitable.
    pub fits: fn(&Path) -> bool,
    /// The command that installs it.
    pub install: &'static str,
}

macro_rules! needs {
    (@fits) => { |_| true };
    (@fits $fits:expr) => { $fits };
    ($($name:ident: $what:literal, [$($place:literal),*] $(if $fits:expr)?, $install:literal;)*) => {
        $(#[doc = $what] pub const $name: RequiredProgram = RequiredProgram {
            what: $what,
            places: &[$($place),*],
            fits: needs!(@fits $($fits)?),
            install: $install,
        };)*
    };
}

needs! {
    NGINX: "nginx", ["nginx"], "apt-get install nginx-light";
    PHP_FPM: "php-fpm {php}", ["php-fpm{php}"], "apt-get install php{php}-fpm";
    PHP_CGI: "php-cgi {php}", ["php-cgi{php}"], "apt-get install php{php}-cgi";
    PHP_CLI: "php {php}", ["php{php}"], "apt-get install php{php}-cli";
    APACHE: "Apache", ["apache2"], "apt-get install apache2-bin";
    MOD_PHP: "mod_php {php}", ["/usr/lib/apache2/modules/libphp{php}.so"], "apt-get install libapache2-mod-php{php}";
    MOD_FCGID: "mod_fcgid", ["/usr/lib/apache2/modules/mod_fcgid.so"], "apt-get install libapache2-mod-fcgid";
    VARNISH: "Varnish", ["varnishd"], "apt-get install varnish";
    GO: "Go", ["go", "/usr/local/go/bin/go", "/usr/lib/go/bin/go"], "apt-get install golang-go";
    FRANKENPHP: "FrankenPHP", ["frankenphp"], "curl https://frankenphp.dev/install.sh | sh, and move the program \
                                               `frankenphp` to a directory in PATH (https://frankenphp.dev/docs/)";
    FRANKENPHP_OPCACHE: "OPcache for FrankenPHP's own PHP, which would otherwise compile the script for every \
                         request,", ["frankenphp"] if has_opcache, "write a file with the line `zend_extension=opcache` into the directory that \
        `frankenphp php-cli -r 'echo PHP_CONFIG_FILE_SCAN_DIR;'` prints";
    ROADRUNNER: "RoadRunner", ["rr"], "composer require spiral/roadrunner-cli && vendor/bin/rr get-binary, and move \
                                       the program `rr` to a directory in PATH \
                                       (https://docs.roadrunner.dev/docs/general/install)";
    ROADRUNNER_PHP: "RoadRunner's PHP side", ["/usr/local/lib/howdah-lab/roadrunner/vendor/autoload.php"], "mkdir -p /usr/local/lib/howdah-lab/roadrunner && composer require --working-dir=/usr/local/lib/howdah-lab/roadrunner spiral/roadrunner-http nyholm/psr7";
    ROADRUNNER_PROTOBUF: "PHP's extension protobuf, which RoadRunner's manual asks for,", ["{extensions}/protobuf.so"], "apt-get install php-pear php{php}-dev && pecl install protobuf";
    SWOOLE: "PHP's extension swoole", ["{extensions}/swoole.so"], "apt-get install php-pear php{php}-dev g++ && pecl install swoole";
    MARIADB: "MariaDB", ["mariadbd"], "apt-get install mariadb-server";
    WORDPRESS: "WordPress", ["/usr/share/wordpress/wp-load.php"], "apt-get install --install-recommends wordpress";
}

impl RequiredProgram {
    /// Returns the path of the program or file.
    pub fn find(&self) -> Result<PathBuf, LabError> {
        let missing = || LabError::NotHere {
            what: php::expand_placeholders(self.what),
            install: php::expand_placeholders(self.install),
        };
        self.places
            .iter()
            .filter_map(|place| find(&php::expand_placeholders(place)))
            .find(|path| (self.fits)(path))
            .ok_or_else(missing)
    }
}

/// Returns the path of the program `howdah`: beside this program, or in `PATH`.
pub fn howdah() -> Result<PathBuf, LabError> {
    let here = std::env::current_exe().map_err(LabError::file("/proc/self/exe"))?;
    let beside = here.with_file_name("howdah");
    if is_program(&beside) {
        return Ok(beside);
    }
    find("howdah").ok_or_else(|| LabError::NotHere {
        what: format!("howdah (neither {} nor in PATH)", beside.display()),
        install: "install the package howdah, or build it with `cargo build --release -p howdah`"
            .to_owned(),
    })
}

/// Returns whether a `frankenphp` loads OPcache. Many builds do not contain it, or leave it to their own `php.ini`,
/// which the lab's replaces (`PHPRC`), so it is not loaded. Only a clear "no" counts. The result is cached, because the
/// query takes a tenth of a second.
fn has_opcache(frankenphp: &Path) -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    let asked = || -> io::Result<Vec<u8>> {
        // Older versions do not support `-r`, and no version reads a script from a pipe.
        let script = std::env::temp_dir().join(format!("howdah-{}.php", std::process::id()));
        let mut file = File::create_new(&script)?;
        let written =
            file.write_all(b"<?php echo extension_loaded('Zend OPcache') ? 'yes' : 'no';");
        let said = written.and_then(|()| {
            let mut php = Command::new(frankenphp);
            php.arg("php-cli").arg(&script).env("PHPRC", "/dev/null");
            php.stdin(Stdio::null()).output()
        });
        fs::remove_file(&script)?;
        Ok(said?.stdout)
    };
    *KNOWN.get_or_init(|| !asked().is_ok_and(|said| said == b"no"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_programs_outside_debian_have_a_command() {
        for (need, command) in [
            (FRANKENPHP, "curl "),
            (FRANKENPHP_OPCACHE, "zend_extension=opcache"),
            (ROADRUNNER, "composer require "),
            (ROADRUNNER_PHP, "composer require "),
            (ROADRUNNER_PROTOBUF, "pecl install "),
            (SWOOLE, "pecl install "),
        ] {
            assert!(need.install.contains(command), "{need:?}");
        }
    }

    #[test]
    fn required_program_is_found_or_reported_with_remedy() {
        let shell = RequiredProgram {
            what: "a shell",
            places: &["no-such-shell", "sh"],
            fits: |path| path.ends_with("sh"),
            install: "-",
        };
        assert!(shell.find().unwrap().is_absolute());
        let unfit = RequiredProgram {
            fits: |_| false,
            ..shell
        };
        let error = unfit.find().unwrap_err().to_string();
        assert_eq!(error, "NotHere: a shell is not installed: -");
        let nothing = RequiredProgram {
            what: "Perfection",
            places: &["/nowhere/perfection", "perfection-server"],
            fits: |_| true,
            install: "apt-get install perfection",
        };
        assert_eq!(
            nothing.find().unwrap_err().to_string(),
            "NotHere: Perfection is not installed: apt-get install perfection"
        );
    }
}
