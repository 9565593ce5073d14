//! The versions of the programs that took part; without them a figure cannot be reproduced.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::need::{self, RequiredProgram};

/// The arguments with which each program prints its version.
const VERSION_ARGUMENTS: &[(RequiredProgram, &[&str])] = &[
    (need::NGINX, &["-v"]),
    (need::PHP_FPM, &["-v"]),
    (need::APACHE, &["-v"]),
    (need::VARNISH, &["-V"]),
    (need::GO, &["version"]),
    (need::MARIADB, &["--version"]),
    (need::FRANKENPHP, &["version"]),
    (need::ROADRUNNER, &["--version"]),
];

/// Returns the version of each installed program, a line each, Howdah first.
pub fn version_lines(howdah: &Path) -> Vec<String> {
    let mut lines: Vec<String> = version_line(howdah, &["version"]).into_iter().collect();
    for (need, words) in VERSION_ARGUMENTS {
        if let Ok(program) = need.find() {
            lines.extend(version_line(&program, words));
        }
    }
    if let (Ok(php), Ok(extension)) = (need::PHP_CLI.find(), need::SWOOLE.find()) {
        let extension = format!("extension={}", extension.display());
        let script = "foreach (['swoole', 'openswoole'] as $name) if (extension_loaded($name)) echo $name, ' ', phpversion($name);";
        lines.extend(version_line(&php, &["-n", "-d", &extension, "-r", script]));
    }
    lines
}

/// Returns the PHP program that this `howdah` runs and the library for it, as `howdah version` prints them.
pub fn php_files(howdah: &Path) -> Vec<PathBuf> {
    let output = Command::new(howdah).arg("version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    let program = text.lines().find(|line| line.starts_with("php "));
    let program = program.and_then(|line| line.split_once('(')?.1.strip_suffix(')'));
    let library = text.lines().find_map(|line| line.strip_prefix("library "));
    program
        .into_iter()
        .chain(library)
        .map(PathBuf::from)
        .collect()
}

/// Returns a sentence if the `howdah` among these [`version_lines`] was built without optimisation, as `cargo build` and
/// `make demo` build it: such a program needs several times the CPU time of the one that people install.
pub fn unoptimised_warning(lines: &[String]) -> Option<String> {
    lines
        .iter()
        .any(|line| line.starts_with("howdah ") && line.ends_with("(not optimised)"))
        .then(|| {
            "This howdah was built without optimisation, so Howdah’s figures are worth nothing: run `make build`, and \
             measure with target/release/howdah."
                .to_owned()
        })
}

fn version_line(program: &Path, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find(|line| !line.trim().is_empty())?;
    Some(line.trim().chars().take(100).collect())
}

#[cfg(test)]
mod tests {
    use super::unoptimised_warning;

    #[test]
    fn only_a_howdah_without_optimisation_is_warned_of() {
        let lines =
            |howdah: &str| vec![howdah.to_owned(), "nginx version: nginx/1.22.1".to_owned()];
        assert_eq!(unoptimised_warning(&lines("howdah 0.1.0")), None);
        let warning = unoptimised_warning(&lines("howdah 0.1.0 (not optimised)"));
        assert!(warning.unwrap().contains("make build"));
    }
}
