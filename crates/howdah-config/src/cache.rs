//! Turns `[cache]` and the options of a site that begin with `cache` into the page cache's settings.

use std::path::{Path, PathBuf};

use howdah_executor::PoolMode;
use howdah_server::cache::{
    CacheConfig, CacheRules, CacheScheme, EsiPath, EsiRules, PRESETS, Preset, PrivateRules,
};
use howdah_site::cache_config::{PurgeAccess, PurgeToken};
use howdah_site::docroot::path::UrlPath;
use howdah_site::site::config::SiteConfig;
use howdah_site::site::recognise::{Application, application};
use howdah_site::site::subfolder;

use super::reader::{ConfigSection, SourcePlace};
use super::server::networks;
use super::suggest;
use crate::arguments::ServeArguments;

/// The cookie in which the LiteSpeed Cache plugin keeps the group of a visitor.
const LITESPEED_VARY_COOKIE: &str = "_lscache_vary";
/// The maximum number of cookies by which the pages of a site vary.
const MAX_VARY_COOKIES: usize = 4;

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
    cache.rules.private = private(top, section, &cache);
    check_vary_cookies(section, &cache);
    cache.purge = purge_access(section);
    let scheme = word.as_ref().and_then(|word| scheme(word));
    let (Some(word), Some(scheme)) = (word, scheme) else {
        for (table, message) in [
            (
                "esi",
                "esi: Howdah processes ESI tags only if the page cache is on; set `cache`",
            ),
            (
                "private",
                "private: Howdah stores private pages only if the page cache is on; set `cache`",
            ),
        ] {
            if section.has(table) {
                section.file().mistake(section.place_of(table), message);
            }
        }
        return;
    };
    cache.rules.scheme = scheme;
    cache.dry_run = word == "dry-run";
    if cache.rules.has_litespeed_esi() {
        let names = &mut cache.rules.vary.cookies;
        if !names.iter().any(|name| name == LITESPEED_VARY_COOKIE) {
            names.push(LITESPEED_VARY_COOKIE.to_owned());
        }
    } else {
        advise_of_litespeed_esi(section, &cache.rules);
    }
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

/// Returns `[site.private]`, if the site has the table. `cache` has the site's other settings.
fn private(
    top: &ConfigSection<'_>,
    section: &ConfigSection<'_>,
    cache: &CacheConfig,
) -> Option<PrivateRules> {
    if !section.has("private") {
        return None;
    }
    if top.section("fleet", "fleet").text("valkey").is_some() {
        let message = "private: the members of a fleet do not tell each other what a visitor has written, so they cannot store private pages; remove the table";
        section.file().mistake(section.place_of("private"), message);
    }
    let table = section.section("private", "site.private");
    let mut rules = PrivateRules::default();
    for text in table.texts("cookies") {
        if text.value.trim_matches('*').is_empty() {
            let message = format!(
                "cookies: `{}` matches every cookie, but only some cookies identify a visitor",
                text.value.escape_debug()
            );
            table.file().mistake(text.place, message);
            continue;
        }
        if cache.rules.ignores_cookie(text.value.as_bytes()) {
            let message = format!(
                "cookies: `{}` is also a cookie that the page cache ignores, so it cannot identify a visitor",
                text.value.escape_debug()
            );
            table.file().mistake(text.place, message);
            continue;
        }
        rules.cookies.push(text.value);
    }
    if !table.has("cookies") && cache.rules.preset.visitor_cookies.is_empty() {
        let message = format!(
            "cookies: name the cookies that identify a visitor, such as the session's; the preset `{}` knows none",
            cache.rules.preset.name
        );
        table.file().mistake(table.place.clone(), message);
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

/// Announces to scripts that there is a cache which understands `X-LiteSpeed-*`. The plugins for LiteSpeed's cache work
/// when they find these variables (lscache_wp, litespeed-cache.php). Without an edition, the plugin for WordPress offers
/// its ESI and its crawler. `combine` is never announced: with it, the plugin writes tags that request several fragments
/// at once with POST.
///
/// Other sites announce OpenLiteSpeed, an edition without ESI: if nothing processed the plugin's tags, its pages would
/// lack parts.
fn announce_litespeed_cache(site: &mut SiteConfig) {
    let rules = site.cache.as_ref().map(|cache| &cache.rules);
    let variables: &[(&str, &str)] = match rules.is_some_and(CacheRules::has_litespeed_esi) {
        true => &[("X-LSCACHE", "on,crawler")],
        false => &[
            ("X-LSCACHE", "on"),
            ("LSWS_EDITION", "Openlitespeed 1.8 (Howdah)"),
        ],
    };
    for &(name, value) in variables {
        if site.env.iter().all(|(known, _)| known != name) {
            site.env.push((name.to_owned(), value.to_owned()));
        }
    }
}

/// Explains why the LiteSpeed Cache plugin finds no ESI although its fragments may be included.
fn advise_of_litespeed_esi(section: &ConfigSection<'_>, rules: &CacheRules) {
    let has_fragments = |esi: &EsiRules| esi.has_litespeed_fragments();
    if rules.esi.as_ref().is_some_and(has_fragments) {
        let why = match rules.scheme {
            CacheScheme::CleanRoom => {
                "the site has no table [site.private], so PHP would run for each fragment of a user; add the table"
            }
            CacheScheme::Rfc => "it needs `cache = \"on\"`",
        };
        let message = format!("esi: the LiteSpeed Cache plugin finds no ESI, because {why}");
        section.file().advise(section.place_of("esi"), message);
    }
}

/// Checks that no cookie by which pages vary identifies a visitor or is ignored.
fn check_vary_cookies(section: &ConfigSection<'_>, cache: &CacheConfig) {
    let rules = &cache.rules;
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    for text in section.texts("cache_vary_cookies") {
        let name = text.value.as_bytes();
        let mut sessions = rules.preset.session_cookies.iter();
        let is_visitors =
            rules.is_visitor_cookie(name) || sessions.any(|known| known.matches(name));
        let why = if name.is_empty() || !name.iter().copied().all(is_plain) {
            "is not the name of a cookie, which consists of letters, digits, `_` and `-`"
        } else if is_visitors {
            "identifies a visitor, so its pages cannot be shared"
        } else if rules.ignores_cookie(name) {
            "is also a cookie that the page cache ignores"
        } else if rules.is_cookie_of_fragments(name) {
            "is listed as a cookie that only fragments read, so pages cannot vary by it"
        } else {
            continue;
        };
        let message = format!("cache_vary_cookies: `{}` {why}", text.value.escape_debug());
        section.file().mistake(text.place, message);
    }
    if rules.vary.cookies.len() > MAX_VARY_COOKIES {
        let message =
            format!("cache_vary_cookies: pages can vary by at most {MAX_VARY_COOKIES} cookies");
        let place = section.place_of("cache_vary_cookies");
        section.file().mistake(place, message);
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
