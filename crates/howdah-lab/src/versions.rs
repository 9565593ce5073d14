//! Versions of the programs that took part; without them a figure cannot be reproduced.

use std::path::Path;
use std::process::Command;

use crate::need::{self, Need};

/// The arguments with which each program prints its version.
const WORDS: &[(Need, &[&str])] = &[
    (need::NGINX, &["-v"]),
    (need::PHP_FPM, &["-v"]),
    (need::APACHE, &["-v"]),
    (need::VARNISH, &["-V"]),
    (need::GO, &["version"]),
    (need::MARIADB, &["--version"]),
    (need::FRANKENPHP, &["version"]),
    (need::ROADRUNNER, &["--version"]),
];

/// The version of each program that is installed, a line each, Howdah first.
pub fn lines(howdah: &Path) -> Vec<String> {
    let mut lines: Vec<String> = said(howdah, &["version"]).into_iter().collect();
    for (need, words) in WORDS {
        if let Ok(program) = need.find() {
            lines.extend(said(&program, words));
        }
    }
    if let (Ok(php), Ok(extension)) = (need::PHP_CLI.find(), need::SWOOLE.find()) {
        let extension = format!("extension={}", extension.display());
        let script = "foreach (['swoole', 'openswoole'] as $name) if (extension_loaded($name)) echo $name, ' ', phpversion($name);";
        lines.extend(said(&php, &["-n", "-d", &extension, "-r", script]));
    }
    lines
}

fn said(program: &Path, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find(|line| !line.trim().is_empty())?;
    Some(line.trim().chars().take(100).collect())
}
