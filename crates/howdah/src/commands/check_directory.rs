//! `howdah check DIR`: shows in full what `howdah serve DIR` would choose, without serving anything.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use howdah_executor::PoolMode;
use howdah_executor::auto_children::auto_children;
use howdah_executor::config::{PoolConfig, ProcessManager};
use howdah_site::site::application::Application;
use howdah_site::site::config::{RuleAction, SiteConfig, SiteRule};
use howdah_site::site::recognise::recognise;

use howdah_config::ServeSettings;
use howdah_config::job::runs_in_requests;
use howdah_config::php::PhpVersion;

/// Describes the choice, line by line. `php` is the version of PHP, if a pool runs our own.
pub fn describe(settings: &ServeSettings, php: Option<&PhpVersion>) -> String {
    let mut text = settings.chosen.join("\n") + "\n";
    for site in &settings.sites {
        describe_site(&mut text, site);
    }
    for pool in &settings.pools {
        row(&mut text, "PHP", &describe_pool(pool, php));
        let PoolMode::Embed(config) = pool else {
            continue;
        };
        row(&mut text, "PHP settings", &describe_settings(config));
    }
    let listen: Vec<String> = settings
        .listen
        .iter()
        .map(|listen| listen.address.to_string())
        .collect();
    row(&mut text, "listens on", &listen.join(", "));
    text += "All other options have their default values (`howdah check --explain KEY`, docs/configuration.md).";
    text
}

/// Returns the application in a directory, for programs that serve it by other servers as well: its web root, the
/// script for paths that are not a file, and `max_children = auto` on this machine.
///
/// # Errors
///
/// The directory cannot be read.
pub fn describe_json(directory: &Path) -> io::Result<String> {
    let found = recognise(directory, SiteConfig::empty("", directory))?;
    let controller = found.config.front_controller.map(|found| found.script);
    let json = serde_json::json!({
        "application": found.sentence,
        "root": found.config.root,
        "front_controller": controller,
        "max_children": auto_children(),
    });
    Ok(format!("{json:#}"))
}

/// Returns the application of a site that limits no clients, if the location of its login is known.
pub fn unlimited_login(site: &SiteConfig) -> Option<Application> {
    let limits = |rule: &SiteRule| matches!(rule.action, RuleAction::Limit(_));
    if site.rules.iter().any(limits) {
        return None;
    }
    let found = recognise(&site.root, SiteConfig::empty("", "")).ok()?;
    Some(found.application).filter(|application| application.has_login())
}

fn row(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "{name:<18}{value}");
}

fn describe_site(text: &mut String, site: &SiteConfig) {
    row(text, "root", &site.root.display().to_string());
    row(text, "hosts", "all hosts");
    let controller = site.front_controller.as_ref();
    let missing = match controller {
        Some(controller) if controller.path_info => {
            format!(
                "go to {}, which gets the path as PATH_INFO",
                controller.script
            )
        }
        Some(controller) => format!("go to {}", controller.script),
        None => "404".to_owned(),
    };
    row(text, "missing files", &missing);
    row(text, "index", &site.index.join(", "));
    row(text, "scripts", &site.php_extensions.join(", "));
    row(
        text,
        "never sent",
        "sources, dotfiles, backups, databases and project files (docs/guides/files-and-routes.md)",
    );
    let longest = match site.max_body_size {
        0 => "any length".to_owned(),
        bytes if bytes % (1 << 30) == 0 => format!("up to {} GiB", bytes >> 30),
        bytes => format!("up to {bytes} bytes"),
    };
    row(text, "request bodies", &longest);
    if unlimited_login(site).is_some() {
        let advice = "not limited: a rule with limit = \"login\" slows down clients that guess passwords (docs/limits.md)";
        row(text, "log-in pages", advice);
    }
    if let Some(advice) = background_jobs_advice(site) {
        row(text, "background jobs", advice);
    }
    let cache = site.cache.as_ref();
    row(text, "page cache", cache.map_or("off", |_| "on"));
}

/// Returns advice about the background jobs that the site's application needs.
fn background_jobs_advice(site: &SiteConfig) -> Option<&'static str> {
    let found = recognise(&site.root, SiteConfig::empty("", "")).ok()?;
    let job = found.application.profile()?.job.as_ref()?;
    let in_requests = job.in_requests.as_ref();
    let is_missing = in_requests.is_none_or(|own| runs_in_requests(own, &site.root));
    is_missing.then_some(job.check_advice)
}

fn describe_pool(pool: &PoolMode, php: Option<&PhpVersion>) -> String {
    let version = php.map_or(String::new(), |php| format!("{}, ", php.php));
    let PoolMode::Embed(config) = pool else {
        return format!("mode {}", pool.word());
    };
    let many = match config.max_children {
        1 => "1 process".to_owned(),
        many => format!("{many} processes"),
    };
    let manager = match config.pm {
        ProcessManager::Static => "always",
        ProcessManager::Dynamic { .. } | ProcessManager::Ondemand => "at most",
    };
    let user = match &config.user {
        Some(user) => format!(", as {user}"),
        None => String::new(),
    };
    format!("{version}mode {}, {manager} {many}{user}", pool.word())
}

fn describe_settings(config: &PoolConfig) -> String {
    let ini = match &config.php_ini {
        Some(path) => path.display().to_string(),
        None => "the php.ini that PHP finds by itself".to_owned(),
    };
    let mut parts = vec![ini];
    if !config.opcache {
        parts.push("opcache off".to_owned());
    }
    parts.extend(
        config
            .defines
            .iter()
            .map(|(name, value)| format!("{name} = {value}")),
    );
    parts.join(", ")
}
