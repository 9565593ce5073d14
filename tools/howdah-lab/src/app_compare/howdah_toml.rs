//! Generates the text of `howdah.toml` for an application, with the options of `docs/configuration.md`: both for the
//! configurations that are measured and for the one that is recommended. This module writes no file itself. Its output
//! depends only on its arguments and on which series of PHP the machine has.

use std::fmt::Write as _;
use std::path::Path;

use super::app::{DEFAULT_HOST, TestedApp};
use super::arm::{HowdahMode, HowdahSettings, JIT_SETTINGS};
use howdah_machine::php;

/// The address at which Debian's php-fpm listens.
const DEBIAN_FPM: &str = "unix:/run/php/php{php}-fpm.sock";

/// What the file is generated from.
pub struct ConfigInput<'a> {
    /// The application to serve.
    pub app: &'a TestedApp,
    /// The settings to write.
    pub choice: HowdahSettings,
    /// The address of php-fpm. `None` means the address of Debian's php-fpm.
    pub fastcgi: Option<&'a str>,
    /// The comment at the beginning of the file, by line.
    pub comment: &'a [&'a str],
    /// The reasons for the settings, which become comments.
    pub reasons: &'a SettingReasons,
    /// The value of `user`, which is set when root writes the file.
    pub user: Option<&'a str>,
    /// The value of `php_ini`: the user's own file.
    pub php_ini: Option<&'a Path>,
}

/// The comments above the settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingReasons {
    /// The comment above `mode`.
    pub mode: String,
    /// The comment above `max_children`.
    pub children: String,
    /// The comment above `cache`.
    pub cache: String,
    /// The comment above PHP's settings for the JIT compiler.
    pub jit: String,
}

/// Returns the text of the file.
pub fn config_text(wanted: &ConfigInput<'_>) -> String {
    let app = wanted.app;
    let choice = wanted.choice;
    let mut out = String::new();
    for line in wanted.comment {
        comment(&mut out, line);
    }
    out.push_str("listen = \"127.0.0.1:8080\"\n");
    if let Some(user) = wanted.user {
        let _ = writeln!(out, "user = {}", quoted(user));
    }
    out.push_str("\n[pool.www]\n");
    comment(&mut out, &wanted.reasons.mode);
    let _ = writeln!(out, "mode = {}", quoted(choice.mode.word()));
    comment(&mut out, &wanted.reasons.children);
    match choice.mode {
        HowdahMode::Fastcgi => {
            let debian = php::expand_placeholders(DEBIAN_FPM);
            let address = wanted.fastcgi.unwrap_or(&debian);
            let _ = writeln!(out, "fastcgi = [{}]", quoted(address));
            let children = choice.children.unwrap_or(app.auto_children);
            let _ = writeln!(out, "max_connections = {children}");
        }
        _ => {
            if let Some(children) = choice.children {
                let _ = writeln!(out, "pm = \"static\"\nmax_children = {children}");
            }
        }
    }
    if let (HowdahMode::Worker, Some(script)) = (choice.mode, &app.worker) {
        let _ = writeln!(out, "worker = {}", path(script));
    }
    if let (Some(ini), false) = (wanted.php_ini, choice.mode == HowdahMode::Fastcgi) {
        let _ = writeln!(out, "php_ini = {}", path(ini));
    }
    if choice.jit && choice.mode != HowdahMode::Fastcgi {
        out.push_str("\n[pool.www.php_value]\n");
        comment(&mut out, &wanted.reasons.jit);
        for (name, value) in JIT_SETTINGS {
            let _ = writeln!(out, "{} = {}", quoted(name), quoted(value));
        }
    }
    // In mode `fastcgi`, php-fpm's own configuration sets the environment of its processes.
    if !app.environment.is_empty() && choice.mode != HowdahMode::Fastcgi {
        out.push_str("\n[pool.www.env]\n");
        for (name, value) in &app.environment {
            let _ = writeln!(out, "{name} = {}", quoted(value));
        }
    }
    out.push_str("\n[[site]]\n");
    if app.host != DEFAULT_HOST {
        let _ = writeln!(out, "hosts = [{}]", quoted(app.host_name()));
    }
    let _ = writeln!(out, "root = {}", path(&app.directory));
    out.push_str("recognise = \"on\"\n");
    if let (Some(script), true) = (&app.front_controller, app.front_controller_given) {
        let _ = writeln!(out, "front_controller = {}", quoted(script));
    }
    comment(&mut out, &wanted.reasons.cache);
    let cache = if choice.cache { "on" } else { "off" };
    let _ = writeln!(out, "cache = {}", quoted(cache));
    out
}

/// Writes a comment, wrapped so that its lines have fewer than a hundred columns.
fn comment(out: &mut String, text: &str) {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if line.len() + word.len() > 96 {
            let _ = writeln!(out, "#{line}");
            line.clear();
        }
        line.push(' ');
        line.push_str(word);
    }
    if !line.is_empty() {
        let _ = writeln!(out, "#{line}");
    }
}

/// Quotes a string as a TOML basic string. JSON's escapes are valid in TOML, and no path or value that reaches this
/// function contains DEL.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn path(path: &Path) -> String {
    quoted(&path.display().to_string())
}
