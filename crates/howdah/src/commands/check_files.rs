//! Checks for files that a configuration names and that are missing or not accessible to the server's user: scripts,
//! error pages, roots, logs, settings of PHP. All of them may be created later, so they only cause advice, except for a
//! log.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

use howdah_executor::PoolMode;
use howdah_log::log::LogTarget;
use howdah_os::account::Account;
use howdah_site::site::SiteConfig;

use crate::sys;
use howdah_config::ServeSettings;
use howdah_config::php;
use howdah_config::suggest::nearest;

/// Prints advice about missing files. Returns the number of pieces of advice.
pub fn advise_of_files(settings: &ServeSettings) -> usize {
    let mut all = Vec::new();
    let mut names = KnownSettings::new();
    for site in &settings.sites {
        let about = |said: String| format!("site `{}`: {said}", site.name);
        all.extend(missing_files(site).into_iter().map(about));
        all.extend(unreadable_root(settings, site).map(about));
        all.extend(
            unknown_settings(settings, site, &mut names)
                .into_iter()
                .map(about),
        );
    }
    for advice in &all {
        eprintln!("advice: {advice}");
    }
    all.len()
}

/// Returns a mistake for each log that cannot be opened, because the server does not start without it.
pub fn unwritable_logs(settings: &ServeSettings) -> Vec<String> {
    let log = &settings.log;
    let targets = [
        ("log.error", Some(&log.error)),
        ("log.access", log.access.as_ref()),
    ];
    let files = targets
        .into_iter()
        .filter_map(|(key, target)| match target {
            Some(LogTarget::File(path)) => Some((key, path)),
            _ => None,
        });
    files
        .filter_map(|(key, path)| {
            let why = why_not_writable(path)?;
            Some(format!("{key}: {} cannot be opened: {why}", path.display()))
        })
        .collect()
}

/// Returns why a log cannot be written. Nothing is created: for a log that does not exist, its directory must be
/// writable.
fn why_not_writable(path: &Path) -> Option<String> {
    let may_write = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK);
    match path.metadata() {
        Ok(meta) if meta.is_dir() => Some("the path is a directory".to_owned()),
        Ok(_) => may_write(path).err().map(|why| why.to_string()),
        Err(_) => {
            let directory = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            let directory = directory.unwrap_or(Path::new("."));
            match directory.is_dir() {
                true => may_write(directory).err().map(|why| why.to_string()),
                false => Some(format!("there is no directory {}", directory.display())),
            }
        }
    }
}

fn missing_files(site: &SiteConfig) -> Vec<String> {
    let is_there = |path: &str| site.root.join(path.trim_start_matches('/')).exists();
    let controller = site.front_controller.as_ref();
    let controller = controller.map(|controller| &controller.script);
    let mut found = Vec::new();
    if let Some(script) = controller.filter(|script| !is_there(script)) {
        found.push(format!(
            "front_controller: there is no {script} below {}: requests for missing files get a 404",
            site.root.display()
        ));
    }
    for (status, page) in &site.error_pages {
        if !is_there(page) {
            found.push(format!(
                "error_pages: there is no {page} below {}: responses with status {status} get the server's own page",
                site.root.display()
            ));
        }
    }
    found
}

/// Returns why the user that serves HTTP cannot read the site's files, if a child process that runs as that user can
/// find out.
fn unreadable_root(settings: &ServeSettings, site: &SiteConfig) -> Option<String> {
    if !sys::may_change_user() {
        return None;
    }
    let name = settings.user.as_deref()?;
    let account = sys::find_user(name)?;
    (!may_enter(&account, &site.root)?).then(|| {
        format!(
            "Unreadable: the user `{name}` cannot enter {}, so every file gets a 403; check its mode and the modes of the directories above it (namei -l {})",
            site.root.display(),
            site.root.display()
        )
    })
}

/// Returns whether an account may enter a directory, according to test(1) running as that account.
fn may_enter(account: &Account, directory: &Path) -> Option<bool> {
    let mut command = Command::new("test");
    command.arg("-x").arg(directory);
    howdah_os::descriptors::run_as(&mut command, Some((account, account.gid))).ok()?;
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command.status().ok().map(|status| status.success())
}

/// The settings that a pool's PHP knows, by the name of the pool. PHP is asked once for all sites of a pool. `None` if
/// PHP does not report its settings, which is already a mistake.
type KnownSettings<'a> = HashMap<&'a str, Option<Vec<String>>>;

/// Returns advice about settings of the site that its PHP does not know.
fn unknown_settings<'a>(
    settings: &'a ServeSettings,
    site: &SiteConfig,
    names: &mut KnownSettings<'a>,
) -> Vec<String> {
    let pool = settings.pools.iter().find_map(|pool| match pool {
        PoolMode::Embed(config) if config.name == site.pool => Some(config),
        _ => None,
    });
    let own: Vec<&String> = site
        .php_value
        .iter()
        .chain(&site.php_admin_value)
        .map(|(name, _)| name)
        .collect();
    let Some(pool) = pool.filter(|_| !own.is_empty()) else {
        return Vec::new();
    };
    let asked = || php::setting_names(&pool.program, pool.php_ini.as_deref()).ok();
    let Some(known) = names.entry(&pool.name).or_insert_with(asked) else {
        return Vec::new();
    };
    let unknown = own.iter().filter(|name| !known.contains(name));
    unknown
        .map(|name| {
            let all: Vec<&str> = known.iter().map(String::as_str).collect();
            let near = nearest(name, &all);
            let near = near.map(|near| format!("; did you mean `{near}`?"));
            format!(
                "SettingUnknown: PHP has no setting `{name}`{}",
                near.unwrap_or_default()
            )
        })
        .collect()
}
