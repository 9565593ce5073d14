//! The systemd unit that serves one configuration on a machine without Howdah's package. It is derived from the
//! package's unit, `packaging/howdah.service`, so it has the same restrictions; only what has to differ is replaced.
//!
//! The package's master may change users, because root owns its configuration. This configuration is stored with the
//! application, and a user who may write it must not become another user that way. So master, front and PHP all run as
//! one user, with the right to listen on ports below 1024 and no other right.

use std::path::Path;

const PACKAGED_UNIT: &str = include_str!("../../../../../packaging/howdah.service");

const HEAD_COMMENT: &str = "\
# Serves one application. Created by `howdah init` from the unit in Howdah's package. Its directories, such as
# /run/NAME, have the name of this file.
";
/// The comment above `User`.
const USER_COMMENT: &str = "\
# All processes run as this user, which must be able to read the application, and to write where the application
# writes. The only additional right is to listen on ports below 1024. If you need pools with their own users, or keys
# that PHP cannot read, install the package.
";
/// The comment above `ProtectSystem`.
const WRITABLE_PATHS_COMMENT: &str =
    "# The directories that the application writes to; add more with another ReadWritePaths.\n";

/// The values in which the unit differs from the package's.
pub struct UnitInput<'a> {
    /// The name of the application.
    pub name: &'a str,
    /// The path of this program.
    pub program: &'a str,
    /// The path of the configuration.
    pub configuration: &'a str,
    /// The application's directory.
    pub directory: &'a str,
    /// The user that everything runs as.
    pub user: &'a str,
}

/// Returns the text of the unit.
pub fn unit_text(wanted: &UnitInput<'_>) -> String {
    let mut out = String::new();
    // Comments belong to the line below them.
    let mut comments = String::new();
    for line in PACKAGED_UNIT.lines() {
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        if line.starts_with('#') {
            comments += &format!("{line}\n");
            continue;
        }
        match replaced(key, value, wanted) {
            LineReplacement::As(new) => {
                let above = match key {
                    "[Unit]" => HEAD_COMMENT,
                    "User" => USER_COMMENT,
                    "ProtectSystem" => WRITABLE_PATHS_COMMENT,
                    _ => &comments,
                };
                out += &format!("{above}{new}\n");
                if key == "ReadWritePaths" {
                    let directory = quoted_path(wanted.directory);
                    out += &format!("ReadWritePaths={directory}\n");
                }
            }
            LineReplacement::Omitted => {}
        }
        comments.clear();
    }
    out + &comments
}

enum LineReplacement {
    As(String),
    Omitted,
}

fn replaced(key: &str, value: &str, wanted: &UnitInput<'_>) -> LineReplacement {
    let program = || command_line_word(wanted.program);
    let configuration = || command_line_word(wanted.configuration);
    let value = match key {
        "Description" => format!("Howdah serving {}", wanted.name.replace('%', "%%")),
        "ExecStartPre" => format!("{} check --config {}", program(), configuration()),
        "ExecStart" => format!(
            "{} serve --config {} --control %t/%N/control.sock",
            program(),
            configuration()
        ),
        "ExecReload" => format!("{} reload --control %t/%N/control.sock", program()),
        "User" => wanted.user.to_owned(),
        "AmbientCapabilities" | "CapabilityBoundingSet" => "CAP_NET_BIND_SERVICE".to_owned(),
        "RuntimeDirectory" | "LogsDirectory" | "CacheDirectory" | "StateDirectory" => {
            "%N".to_owned()
        }
        // The state directory, because systemd creates that directory for the user before it changes to the working
        // directory.
        "WorkingDirectory" => "%S/%N".to_owned(),
        // The package's manual and sockets do not exist. The group is the user's own.
        "Documentation" | "Requires" | "Also" | "Group" => return LineReplacement::Omitted,
        "After" if value.contains(".socket") => return LineReplacement::Omitted,
        _ if value.is_empty() => return LineReplacement::As(key.to_owned()),
        _ => value.to_owned(),
    };
    LineReplacement::As(format!("{key}={value}"))
}

/// Formats a path for a list in a unit: quoted if necessary, and with specifiers escaped.
fn quoted_path(path: &str) -> String {
    let path = path.replace('%', "%%");
    let plain = |c: char| !c.is_whitespace() && !"\"'\\;#".contains(c);
    match path.chars().all(plain) {
        true => path,
        false => format!("\"{}\"", path.replace('\\', r"\\").replace('"', "\\\"")),
    }
}

/// Formats a path for a command line of a unit, where variables are replaced.
fn command_line_word(path: &str) -> String {
    quoted_path(path).replace('$', "$$")
}

/// Returns whether a unit can name this path.
pub fn can_name(path: &Path) -> bool {
    let text = path.to_str();
    text.is_some_and(|text| !text.contains(char::is_control))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const WANTED: UnitInput<'_> = UnitInput {
        name: "shop",
        program: "/usr/bin/env",
        configuration: "/srv/shop/howdah.toml",
        directory: "/srv/shop",
        user: "www-data",
    };

    fn directives(text: &str) -> Vec<&str> {
        let lines = text.lines().filter(|line| line.contains('='));
        lines.filter(|line| !line.starts_with('#')).collect()
    }

    #[test]
    fn unit_has_the_restrictions_of_the_packaged_unit() {
        let unit = unit_text(&WANTED);
        let ours = directives(&unit);
        let differs = |line: &&str| !ours.contains(line);
        let missing: Vec<&str> = directives(PACKAGED_UNIT)
            .into_iter()
            .filter(differs)
            .collect();
        let keys: Vec<&str> = missing
            .iter()
            .map(|line| line.split_once('=').unwrap().0)
            .collect();
        let expected = [
            "Description",
            "Documentation",
            "Requires",
            "After",
            "WorkingDirectory",
            "ExecStartPre",
            "ExecStart",
            "ExecReload",
            "User",
            "Group",
            "AmbientCapabilities",
            "CapabilityBoundingSet",
            "RuntimeDirectory",
            "LogsDirectory",
            "CacheDirectory",
            "StateDirectory",
            "Also",
        ];
        assert_eq!(keys, expected, "{unit}");
        let theirs = directives(PACKAGED_UNIT);
        let own: Vec<&str> = ours
            .into_iter()
            .filter(|line| !theirs.contains(line))
            .collect();
        let expected = [
            "Description=Howdah serving shop",
            "WorkingDirectory=%S/%N",
            "ExecStartPre=/usr/bin/env check --config /srv/shop/howdah.toml",
            "ExecStart=/usr/bin/env serve --config /srv/shop/howdah.toml --control %t/%N/control.sock",
            "ExecReload=/usr/bin/env reload --control %t/%N/control.sock",
            "User=www-data",
            "AmbientCapabilities=CAP_NET_BIND_SERVICE",
            "CapabilityBoundingSet=CAP_NET_BIND_SERVICE",
            "RuntimeDirectory=%N",
            "LogsDirectory=%N",
            "CacheDirectory=%N",
            "StateDirectory=%N",
            "ReadWritePaths=/srv/shop",
        ];
        assert_eq!(own, expected, "{unit}");
        assert!(!unit.contains("howdah.toml names"), "{unit}");
    }

    #[test]
    #[cfg_attr(not(feature = "packages"), ignore = "needs systemd")]
    fn unit_is_valid_for_systemd_with_unusual_paths() {
        let directory = tempfile::tempdir().unwrap();
        let odd = directory.path().join("a 100% \"$HOME\" \\ it's; #1");
        std::fs::create_dir(&odd).unwrap();
        let odd = odd.to_str().unwrap();
        let file = directory.path().join("howdah.service");
        for wanted in [
            WANTED,
            UnitInput {
                name: "100% shop",
                configuration: &format!("{odd}/howdah.toml"),
                directory: odd,
                ..WANTED
            },
        ] {
            std::fs::write(&file, unit_text(&wanted)).unwrap();
            let verify = Command::new("systemd-analyze")
                .arg("verify")
                .arg(&file)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&verify.stderr);
            let about: Vec<&str> = said
                .lines()
                .filter(|line| line.contains("howdah.service"))
                .collect();
            assert!(verify.status.success() && about.is_empty(), "{said}");
        }
    }
}
