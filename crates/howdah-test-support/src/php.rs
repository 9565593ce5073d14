//! The PHP program that hosts `howdah-php` in the tests of the lower crates, and the library of this build.

use std::path::PathBuf;
use std::process::Command;

/// Returns the PHP program that `HOWDAH_PHP` names, or else the command-line program of the PHP that the library is
/// built for. That program has every function, whereas distributions build php-fpm without pcntl.
pub fn php_host() -> PathBuf {
    if let Some(path) = std::env::var_os("HOWDAH_PHP") {
        return path.into();
    }
    let config = std::env::var("PHP_CONFIG").unwrap_or_else(|_| "php-config".into());
    let output = Command::new(&config).arg("--php-binary").output();
    let output = output.unwrap_or_else(|error| panic!("{config}: {error}"));
    String::from_utf8_lossy(&output.stdout).trim().into()
}

/// Returns the library, which cargo puts beside the test programs.
pub fn php_library() -> PathBuf {
    let own = std::env::current_exe().expect("the path of this test");
    let library = own.with_file_name("libhowdah_php.so");
    assert!(
        library.is_file(),
        "{} is missing: run `cargo test -p howdah-php --no-run` first",
        library.display()
    );
    library
}

/// Returns a command that runs `howdah-php`.
pub fn howdah_php() -> Command {
    let mut command = Command::new(php_host());
    command.env("LD_PRELOAD", php_library());
    command
}
