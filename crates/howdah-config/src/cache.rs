//! Turns `[cache]` and the options of a site that begin with `cache` into the page cache's settings.

use std::path::{Path, PathBuf};

use howdah_executor::PoolMode;
use howdah_server::cache::{CacheConfig, CacheScheme, EsiPath, EsiRules, PRESETS, Preset};
use howdah_site::cache_config::{PurgeAccess, PurgeToken};
use howdah_site::docroot::path::UrlPath;
use howdah_site::site::config::SiteConfig;
use howdah_site::site::recognise::{Application, application};
use howdah_site::site::subfolder;

use super::reader::{ConfigSection, SourcePlace};
use super::server::networks;
use super::suggest;
use crate::arguments::ServeArguments;

/// The configuration of the pages on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheDisk {
    /// The directory of the pages.
    pub path: PathBuf,
    /// The maximum size of all files together, in bytes.
    pub size: u64,
}

/// Returns the settings of the pages on disk, if `cache.path` is set.
pub fn disk(top: &ConfigSection<'_>, sites: &[SiteConfig]) -> Option<CacheDisk> {
    let section = top.section("cache", "cache");
    let size = section.size("disk_size").unwrap_or_default();
    // The path is made absolute, because the server's processes may run in other directories.
    let path = std::path::absolute(section.path("path")?).ok()?;
    let place = section.place_of("path");
    let parent = path.parent().unwrap_or(Path::new("/"));
    // Links are resolved, because a directory that is served must not be reachable by another name either.
    let real = match path.canonicalize() {
        Ok(real) if real.is_dir() => real,
        Ok(_) => {
            let message = format!("path: {} is not a directory", path.display());
            section.file().mistake(place, message);
            return None;
        }
        Err(_) => match parent.canonicalize() {
            Ok(real) => real.join(path.file_name().unwrap_or_default()),
            Err(error) => {
                let message = format!(
                    "path: cannot create {}: {}: {error}",
                    path.display(),
                    parent.display()
                );
                section.file().mistake(place, message);
                return None;
            }
        },
    };
    for site in sites {
        let root = site.root.canonicalize();
        if root.is_ok_and(|root| real.starts_with(&root) || root.starts_with(&real)) {
            let message = format!(
                "path: {} and the root of site `{}` overlap: pages of the cache would be served as files, and files would be read as cached pages",
                path.display(),
                site.name
            );
            section.file().mistake(place, message);
            return None;
        }
    }
    Some(CacheDisk { path, size })
}

/// Returns the scheme that `--cache` or `cache` selects; `None` for off.
fn scheme(word: &str) -> Option<CacheScheme> {
    match word {
        "on" | "dry-run" => Some(CacheScheme::CleanRoom),
        "rfc" => Some(CacheScheme::Rfc),
        _ => None,
    }
}

/// Returns the word from the command line, checked like the option's value.
fn cache_argument(arguments: &ServeArguments, top: &ConfigSection<'_>) -> Option<String> {
    let word = arguments.cache.as_ref()?;
    super::server::checked_argument(top, "--cache", "site", "cache", word)
}

/// Configures the cache of a directory that is served without a `[[site]]`.
pub fn configure_default_site(
    arguments: &ServeArguments,
    top: &ConfigSection<'_>,
    site: &mut SiteConfig,
) {
    let Some(word) = cache_argument(arguments, top) else {
        return;
    };
    let Some(scheme) = scheme(&word) else {
        return;
    };
    let mut cache = CacheConfig::default();
    // A section that is not in the file has every option at its default.
    ConfigSection::new(top.file(), "site", None, None, &[])
        .fill(|spec| spec.target.cache(), &mut cache);
    cache.rules.scheme = scheme;
    cache.rules.preset = preset_of(site);
    cache.dry_run = word == "dry-run";
    site.cache = Some(cache);
    announce_litespeed_cache(site);
    advise(top, None, site);
}

/// Configures the cache of a `[[site]]`. Its own options take precedence over the command line.
pub fn configure_site(
    arguments: &ServeArguments,
    top: &ConfigSection<'_>,
    section: &ConfigSection<'_>,
    site: &mut SiteConfig,
) {
    let typed = cache_argument(arguments, top).filter(|_| !section.has("cache"));
    let word = typed.or_else(|| section.text("cache"));
    let mut cache = CacheConfig::default();
    section.fill(|spec| spec.target.cache(), &mut cache);
    check_ignored_writes(section, &cache.ignore_writes);
    cache.rules.preset = preset(section, site);
    cache.rules.never = never_cached_paths(section);
    cache.rules.esi = esi(section);
    cache.purge = purge_access(section);
    let scheme = word.as_ref().and_then(|word| scheme(word));
    let (Some(word), Some(scheme)) = (word, scheme) else {
        if section.has("esi") {
            let message =
                "esi: Howdah processes ESI tags only if the page cache is on; set `cache`";
            section.file().mistake(section.place_of("esi"), message);
        }
        return;
    };
    cache.rules.scheme = scheme;
    cache.dry_run = word == "dry-run";
    site.cache = Some(cache);
    announce_litespeed_cache(site);
    advise(top, section.place_of("cache"), site);
}

/// Adds advice for modes in which PHP cannot report what a run does besides its response.
pub fn advise_of_mode(
    top: &ConfigSection<'_>,
    place: SourcePlace,
    pools: &[PoolMode],
    site: &SiteConfig,
) {
    if site.cache.is_none() {
        return;
    }
    let mode = pools.iter().find(|pool| pool.name() == site.pool);
    let Some(mode @ (PoolMode::FastCgi(_) | PoolMode::Pool(_) | PoolMode::Cgi(_))) = mode else {
        return;
    };
    let message = format!(
        "cache: pool `{}` runs PHP in mode `{}`, where the cache sees only the headers of a response: it does not notice sessions without a cookie, DONOTCACHEPAGE, fatal errors after output, or database writes, and scripts cannot call `howdah_cache_purge()`; mode `embed` has none of these limits",
        site.pool,
        mode.word()
    );
    top.file().advise(place, message);
}

/// Returns `[site.esi]`, if the site has the table.
fn esi(section: &ConfigSection<'_>) -> Option<EsiRules> {
    if !section.has("esi") {
        return None;
    }
    let section = section.section("esi", "site.esi");
    let mut rules = EsiRules::default();
    for text in section.texts("paths") {
        match EsiPath::parse(&text.value) {
            Ok(path) => rules.paths.push(path),
            Err(why) => section.file().mistake(text.place, format!("paths: {why}")),
        }
    }
    if !section.has("paths") {
        let message = "paths: name the URLs that pages may include, such as `/_fragment`";
        section.file().mistake(section.place.clone(), message);
    }
    for text in section.texts("cookies") {
        if text.value.trim_matches('*').is_empty() {
            let message = format!(
                "cookies: `{}` matches every cookie, so every visitor would get the pages of an anonymous one",
                text.value.escape_debug()
            );
            section.file().mistake(text.place, message);
            continue;
        }
        rules.cookies.push(text.value);
    }
    Some(rules)
}

/// Returns the settings of purging over HTTP.
fn purge_access(section: &ConfigSection<'_>) -> PurgeAccess {
    let mut access = PurgeAccess::default();
    access.networks = networks(section, "cache_purge_from", Some(&mut access.unix));
    if let Some(token) = section.text("cache_purge_token").filter(|t| !t.is_empty()) {
        match PurgeToken::new(&token) {
            Ok(token) => access.token = Some(token),
            Err(why) => {
                let place = section.place_of("cache_purge_token");
                section
                    .file()
                    .mistake(place, format!("cache_purge_token: {why}"));
            }
        }
    }
    if let Some(path) = section.text("cache_purge_path").filter(|t| !t.is_empty()) {
        if !path.starts_with('/') || !path.ends_with('/') || path == "/" {
            let place = section.place_of("cache_purge_path");
            let message = format!(
                "cache_purge_path: `{path}` is not a path below which pages can be purged, such as `/purge/`"
            );
            section.file().mistake(place, message);
        }
        access.path = Some(path);
    }
    access
}

/// Announces to scripts, as OpenLiteSpeed does, that there is a cache which understands `X-LiteSpeed-*`. The plugins
/// for LiteSpeed's cache work when they find these variables (lscache_wp, litespeed-cache.php). The announced edition
/// is one without ESI: with ESI, the plugin relies on private caches of single visitors, which do not exist here.
fn announce_litespeed_cache(site: &mut SiteConfig) {
    for (name, value) in [
        ("X-LSCACHE", "on"),
        ("LSWS_EDITION", "Openlitespeed 1.8 (Howdah)"),
    ] {
        if site.env.iter().all(|(known, _)| known != name) {
            site.env.push((name.to_owned(), value.to_owned()));
        }
    }
}

/// Checks the patterns of tables whose writes change no page. A pattern that matches every table is refused, because
/// pages would then survive every write.
fn check_ignored_writes(section: &ConfigSection<'_>, patterns: &[String]) {
    for pattern in patterns {
        if pattern.trim_matches('*').is_empty() {
            let message = format!(
                "cache_ignore_writes: `{pattern}` matches every table; use `cache_flush_on_write = \"off\"` instead"
            );
            let place = section.place_of("cache_ignore_writes");
            section.file().mistake(place, message);
        }
    }
}

/// Returns `cache_never`. The paths are parsed in the same way as the router parses paths, because they are compared
/// with those.
fn never_cached_paths(section: &ConfigSection<'_>) -> Vec<Vec<u8>> {
    let mut never = Vec::new();
    for path in section.texts("cache_never") {
        match UrlPath::parse(path.value.as_bytes()) {
            Ok(path) => never.push(path.as_bytes().to_vec()),
            Err(_) => {
                let message = format!(
                    "cache_never: `{}` is not a URL path; a path begins with `/`",
                    path.value.escape_debug()
                );
                section.file().mistake(path.place, message);
            }
        }
    }
    never
}

fn preset(section: &ConfigSection<'_>, site: &SiteConfig) -> &'static Preset {
    let name = section.text("cache_preset").unwrap_or_default();
    if name == "auto" || name.is_empty() {
        return preset_of(site);
    }
    let known: Vec<&str> = PRESETS.iter().map(|p| p.name).collect();
    Preset::find(&name).unwrap_or_else(|| {
        let near = suggest::did_you_mean(&name, &known);
        let message = format!(
            "cache_preset: there is no preset `{name}`{near}; known: auto, {}",
            known.join(", ")
        );
        section
            .file()
            .mistake(section.place_of("cache_preset"), message);
        Preset::fallback()
    })
}

/// Returns the preset for the application in the site's root, or in a subfolder of it. If there are several, the first
/// folder wins.
fn preset_of(site: &SiteConfig) -> &'static Preset {
    let own = application(&site.root).ok();
    own.and_then(preset_for)
        .or_else(|| {
            let mut below = subfolder::applications_below(&site.root).into_iter();
            below.find_map(|found| preset_for(found.application))
        })
        .unwrap_or_else(Preset::fallback)
}

fn preset_for(application: Application) -> Option<&'static Preset> {
    Preset::find(application.known()?.name)
}

/// Returns the applications in subfolders that the site's preset is not made for.
fn other_applications_below(site: &SiteConfig, preset: &Preset) -> Vec<String> {
    let below = subfolder::applications_below(&site.root).into_iter();
    below
        .filter(|found| preset_for(found.application).is_some_and(|p| p.name != preset.name))
        .map(|found| format!("{} in /{}", found.application, found.folder))
        .collect()
}

fn advise(top: &ConfigSection<'_>, place: SourcePlace, site: &SiteConfig) {
    let Some(cache) = &site.cache else { return };
    let preset = cache.rules.preset;
    let others = other_applications_below(site, preset);
    if !others.is_empty() {
        let message = format!(
            "cache: the rules for {} are used for the whole site, and the rules for {} are not; create a [[site]] with its own host for each application, or name its paths in cache_never",
            preset.name,
            others.join(", ")
        );
        top.file().advise(place.clone(), message);
    }
    let advice = cache.rules.preset.advice;
    if cache.rules.preset.name != "php" && !advice.is_empty() {
        top.file().advise(place, format!("cache: {advice}"));
    }
}
