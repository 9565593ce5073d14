//! Checks for files that a configuration names and that are missing: scripts, error pages, logs. All of them may be
//! created later, so they only cause advice, except for a log. Settings of sites that PHP does not accept cause advice,
//! too.

use std::collections::HashMap;
use std::path::Path;

use howdah_executor::PoolMode;
use howdah_executor::config::PoolConfig;
use howdah_log::log::LogTarget;
use howdah_site::site::SiteConfig;

use howdah_config::ServeSettings;
use howdah_config::php;
use howdah_config::suggest::did_you_mean;

/// Prints advice about missing files. Returns the number of pieces of advice.
pub fn advise_of_files(settings: &ServeSettings) -> usize {
    let mut all = Vec::new();
    let mut answers = KnownSettings::new();
    for site in &settings.sites {
        let about = |said: String| format!("site `{}`: {said}", site.name);
        all.extend(missing_files(site).into_iter().map(about));
        all.extend(
            refused_settings(settings, site, &mut answers)
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

/// The messages of a pool's PHP about settings. PHP is asked once for all sites of a pool that have the same settings.
#[derive(Default)]
struct PoolAnswers {
    /// The names of all settings; `None` if PHP does not report them, which is already a mistake.
    names: Option<Vec<String>>,
    /// PHP's messages when it starts with the pool's own settings.
    own_messages: Vec<String>,
    /// PHP's further messages when it starts with the settings of a site.
    messages: HashMap<Vec<(String, String)>, Vec<String>>,
}

/// The answers, by the name of the pool.
type KnownSettings<'a> = HashMap<&'a str, PoolAnswers>;

/// Returns advice about settings of the site that its PHP does not know, or whose values it does not understand.
fn refused_settings<'a>(
    settings: &'a ServeSettings,
    site: &SiteConfig,
    answers: &mut KnownSettings<'a>,
) -> Vec<String> {
    let pool = settings.pools.iter().find_map(|pool| match pool {
        PoolMode::Embed(config) if config.name == site.pool => Some(config),
        _ => None,
    });
    let own: Vec<(String, String)> = site
        .php_value
        .iter()
        .chain(&site.php_admin_value)
        .cloned()
        .collect();
    let Some(pool) = pool.filter(|_| !own.is_empty()) else {
        return Vec::new();
    };
    let answers = answers.entry(&pool.name).or_insert_with(|| PoolAnswers {
        names: php::setting_names(&pool.program, pool.php_ini.as_deref()).ok(),
        own_messages: php::try_settings(pool).unwrap_or_default(),
        messages: HashMap::new(),
    });
    let Some(known) = &answers.names else {
        return Vec::new();
    };
    let (own, unknown): (Vec<_>, Vec<_>) =
        own.into_iter().partition(|(name, _)| known.contains(name));
    let mut advice: Vec<String> = unknown
        .iter()
        .map(|(name, _)| unknown_setting(name, known))
        .collect();
    let messages = answers
        .messages
        .entry(own)
        .or_insert_with_key(|own| messages_about(pool, own, &answers.own_messages));
    advice.extend(messages.iter().map(|said| format!("PHP reports: {said}")));
    advice
}

fn unknown_setting(name: &str, known: &[String]) -> String {
    let all: Vec<&str> = known.iter().map(String::as_str).collect();
    let hint = did_you_mean(name, &all);
    format!("SettingUnknown: PHP has no setting `{name}`{hint}")
}

/// Returns what PHP says when it starts with these settings of a site besides those of the pool.
fn messages_about(pool: &PoolConfig, own: &[(String, String)], usual: &[String]) -> Vec<String> {
    // A request sets these as numbers; only php.ini knows the names of the levels.
    let levels = own
        .iter()
        .filter(|(name, value)| name == "error_reporting" && value.parse::<i64>().is_err());
    let mut messages: Vec<String> = levels
        .map(|(_, value)| {
            format!("`error_reporting` must be a number in the settings of a site, not `{value}`; php -r 'echo {value};' prints this number")
        })
        .collect();
    let mut pool = pool.clone();
    pool.defines.extend(own.iter().cloned());
    let said = php::try_settings(&pool).unwrap_or_else(|why| vec![why]);
    messages.extend(said.into_iter().filter(|line| !usual.contains(line)));
    messages
}
