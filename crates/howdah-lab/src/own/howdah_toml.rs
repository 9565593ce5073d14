//! `howdah.toml` for an application, in the words of `docs/configuration.md`. Pure, but for the series of PHP. The file that is
//! measured and the one that is recommended come from here alike.

use std::fmt::Write as _;
use std::path::Path;

use super::app::{App, LOCALHOST};
use super::arm::{Choice, Mode};
use crate::php;

/// Where Debian's php-fpm listens.
const DEBIAN_FPM: &str = "unix:/run/php/php{php}-fpm.sock";

/// What is to be written.
pub struct Wanted<'a> {
    /// The application.
    pub app: &'a App,
    /// The settings.
    pub choice: Choice,
    /// Where php-fpm listens; none: where Debian's does.
    pub fastcgi: Option<&'a str>,
    /// The head of the file, a line each.
    pub comment: &'a [&'a str],
    /// Why each setting is as it is.
    pub reasons: &'a Reasons,
    /// `user`, when root wrote it.
    pub user: Option<&'a str>,
    /// `php_ini`.
    pub php_ini: Option<&'a Path>,
}

/// A comment above each setting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reasons {
    /// Above `mode`.
    pub mode: String,
    /// Above `max_children`.
    pub children: String,
    /// Above `cache`.
    pub cache: String,
}

/// The file.
pub fn text(wanted: &Wanted<'_>) -> String {
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
        Mode::Fastcgi => {
            let debian = php::named(DEBIAN_FPM);
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
    if let (Mode::Worker, Some(script)) = (choice.mode, &app.worker) {
        let _ = writeln!(out, "worker = {}", path(script));
    }
    if let (Some(ini), false) = (wanted.php_ini, choice.mode == Mode::Fastcgi) {
        let _ = writeln!(out, "php_ini = {}", path(ini));
    }
    // php-fpm's processes have the environment that its own configuration says.
    if !app.environment.is_empty() && choice.mode != Mode::Fastcgi {
        out.push_str("\n[pool.www.env]\n");
        for (name, value) in &app.environment {
            let _ = writeln!(out, "{name} = {}", quoted(value));
        }
    }
    out.push_str("\n[[site]]\n");
    if app.host != LOCALHOST {
        let _ = writeln!(out, "hosts = [{}]", quoted(app.host_name()));
    }
    let _ = writeln!(out, "default = \"on\"\nroot = {}", path(&app.directory));
    out.push_str("recognise = \"on\"\n");
    if let (Some(script), true) = (&app.front_controller, app.front_controller_given) {
        let _ = writeln!(out, "front_controller = {}", quoted(script));
    }
    comment(&mut out, &wanted.reasons.cache);
    let cache = if choice.cache { "on" } else { "off" };
    let _ = writeln!(out, "cache = {}", quoted(cache));
    out
}

/// Wrapped at a hundred columns.
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

/// A basic string; JSON's escapes are among TOML's, and DEL is in no path or value that gets here.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn path(path: &Path) -> String {
    quoted(&path.display().to_string())
}
