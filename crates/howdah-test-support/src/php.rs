//! The PHP program that hosts `howdah-php` in the tests of the lower crates, and the library of this build.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the PHP program of `HOWDAH_PHP`, or else that of `php-config`, for which the library is built: its php-fpm if
/// that is installed.
pub fn php_host() -> PathBuf {
    if let Some(path) = std::env::var_os("HOWDAH_PHP") {
        return path.into();
    }
    let config = std::env::var("PHP_CONFIG").unwrap_or_else(|_| "php-config".into());
    let ask = |flag: &str| {
        let output = Command::new(&config).arg(flag).output();
        let output = output.unwrap_or_else(|error| panic!("{config}: {error}"));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let version = ask("--version");
    let series: Vec<&str> = version.split('.').take(2).collect();
    let fpm = PathBuf::from(format!("/usr/sbin/php-fpm{}", series.join(".")));
    match fpm.is_file() {
        true => fpm,
        false => ask("--php-binary").into(),
    }
}

/// Returns the library, which cargo puts beside the test programs.
pub fn php_library() -> PathBuf {
    let own = std::env::current_exe().expect("the path of this test");
    let beside = own.with_file_name("libhowdah_php.so");
    let above = own.ancestors().nth(2).unwrap_or(Path::new(""));
    let uplifted = above.join("libhowdah_php.so");
    [beside, uplifted]
        .into_iter()
        .find(|library| library.is_file())
        .expect("libhowdah_php.so: run `cargo build -p howdah-php` first")
}

/// Returns a command that runs `howdah-php`.
pub fn howdah_php() -> Command {
    let mut command = Command::new(php_host());
    command.env("LD_PRELOAD", php_library());
    command
}
