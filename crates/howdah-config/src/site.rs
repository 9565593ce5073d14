//! Turns `[[site]]`, or what is recognised in a directory, into the server's site settings.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use howdah_executor::PoolMode;
use howdah_site::site::ConfigError;
use howdah_site::site::check::{check, check_rule};
use howdah_site::site::config::{HostPattern, HtaccessMode, RuleAction, SiteConfig, SiteRule};
use howdah_site::site::htaccess;
use howdah_site::site::recognise::{has_scripts, recognise};

use super::acme;
use super::application;
use super::conditions;
use super::directory_access::closed_to_this_process;
use super::listen::ConfiguredListeners;
use super::reader::{ConfigSection, SourcePlace, Validation};
use super::rules::{check_authorizers, check_cgi_rules, rules_of_section};
use super::site_options::{default_pool, default_site, files, front_controller, pool, scripts};
use super::tls::CertificateFiles;
use crate::arguments::ServeArguments;

/// The certificates of all sites.
#[derive(Debug, Default)]
pub struct SiteCertificates {
    /// The certificates from files.
    pub files: Vec<CertificateFiles>,
    /// The names of sites without such files.
    pub wanted: Vec<String>,
}

/// Returns all sites. If the file has none, the directory of the command line is recognised and served.
pub fn sites(
    arguments: &ServeArguments,
    top: &ConfigSection<'_>,
    pools: &[PoolMode],
    listeners: &mut ConfiguredListeners<'_>,
    chosen: &mut Vec<String>,
    certificates: &mut SiteCertificates,
) -> Vec<SiteConfig> {
    let sections = top.sections("site", "site");
    if sections.is_empty() && arguments.dir.is_none() && arguments.config.is_some() {
        // The current directory of a service is `/`, and it must not be served by accident.
        let message = "NoSite: the configuration has no [[site]]; add one with its `root`, or name the directory to serve on the command line";
        top.file().mistake(None, message);
        return Vec::new();
    }
    if sections.is_empty() {
        let directory = arguments.dir.clone().unwrap_or_else(|| PathBuf::from("."));
        let site = recognised_site(top, &directory, None, default_site(top), chosen);
        return site
            .into_iter()
            .map(|mut site| {
                site.pool = default_pool(pools);
                site.worker = booted_worker_script(pools, &site);
                if site.worker.is_none() {
                    enable_own_htaccess(&mut site, chosen);
                }
                warn_of_writable_root(top, &site.root, None);
                advise_of_htaccess(top, &site);
                acme::add_domains_to_site(arguments, top, &mut site);
                certificates.wanted.extend(acme::certificate_names(&site));
                super::cache::configure_default_site(arguments, top, &mut site);
                super::cache::advise_of_mode(top, None, pools, &site);
                site
            })
            .collect();
    }
    if let Some(directory) = &arguments.dir
        && sections.iter().all(|section| section.has("root"))
    {
        let message = format!(
            "the directory {} on the command line would not be served, because every site of the configuration has its own root; remove the directory, or the root of a site",
            directory.display()
        );
        top.file().mistake(None, message);
    }
    if !arguments.domain.is_empty() {
        let message = "--domain: the sites of the configuration have their own `hosts`";
        top.file().mistake(None, message);
    }
    let mut sites: Vec<SiteConfig> = Vec::new();
    let mut claims = SiteClaims::default();
    let mut without_certificate = HashSet::new();
    for (number, section) in sections.iter().enumerate() {
        let Some(mut site) = site(arguments, section, number, pools, chosen) else {
            continue;
        };
        listeners.read_site(section, &mut site);
        super::tls::read_site_options(section, &mut site);
        let files = super::tls::certificates(section, &site);
        if files.is_empty() {
            without_certificate.insert(site.name.clone());
        }
        certificates.files.extend(files);
        super::redirects::advise_of_circles(section, &site, listeners);
        super::cache::configure_site(arguments, top, section, &mut site);
        super::cache::advise_of_mode(top, section.place_of("cache"), pools, &site);
        claims.claim(section, listeners, &site);
        if sites.iter().any(|other| other.name == site.name) {
            let message = format!(
                "name: there are two sites `{}`; give one of them another `name`",
                site.name
            );
            section.file().mistake(section.place_of("name"), message);
        }
        sites.push(site);
    }
    listeners.check_all_used(&sites);
    for site in &sites {
        if without_certificate.contains(&site.name) && !listeners.is_without_tls(site) {
            certificates.wanted.extend(acme::certificate_names(site));
        }
    }
    sites
}

/// The hosts and addresses of the sites that have been read so far.
#[derive(Default)]
struct SiteClaims {
    /// The addresses at which a site is served.
    addresses: HashSet<String>,
    /// The name of the site that has a host at an address.
    hosts: HashMap<(String, HostPattern), String>,
}

impl SiteClaims {
    /// Records the hosts and addresses of a site. It is a mistake if another site has a host at the same address; if no
    /// request reaches the site, there is advice.
    fn claim(
        &mut self,
        section: &ConfigSection<'_>,
        listeners: &ConfiguredListeners<'_>,
        site: &SiteConfig,
    ) {
        let addresses = listeners.addresses_of(site);
        for (host, text) in site.hosts.iter().zip(section.texts("hosts")) {
            let mut taken = None;
            for address in &addresses {
                let other = self
                    .hosts
                    .insert((address.clone(), host.clone()), site.name.clone());
                taken = taken.or(other);
            }
            if let Some(other) = taken {
                let message = format!("hosts: `{}` belongs to site `{other}` already", text.value);
                section.file().mistake(text.place, message);
            }
        }
        let before = self.addresses.len();
        self.addresses.extend(addresses);
        if self.addresses.len() == before && site.hosts.is_empty() {
            let message = "hosts: without hosts, no request reaches this site, because requests for hosts that no site lists go to the first site";
            section.file().advise(section.place.clone(), message);
        }
    }
}

/// Returns the script that the processes of the site's pool have booted, if URLs can name no other script because the
/// root contains none. If the root contains scripts, a missing one gets 404 as in any mode, or leads to the front
/// controller.
fn booted_worker_script(pools: &[PoolMode], site: &SiteConfig) -> Option<PathBuf> {
    let pool = pools.iter().find(|pool| pool.name() == site.pool)?;
    match pool {
        PoolMode::Embed(pool) if !has_scripts(&site.root) => {
            pool.worker.as_ref().map(|worker| worker.script.clone())
        }
        _ => None,
    }
}

fn recognised_site(
    top: &ConfigSection<'_>,
    directory: &Path,
    place: SourcePlace,
    usual: SiteConfig,
    chosen: &mut Vec<String>,
) -> Option<SiteConfig> {
    if is_system_directory(directory) {
        let message = format!(
            "SystemDirectory: {} belongs to the operating system, and all its files would be published; name the directory of the site",
            directory.display()
        );
        top.file().mistake(place, message);
        return None;
    }
    match recognise(directory, usual) {
        Ok(found) => {
            chosen.extend(found.report_lines());
            if top.has("recognise") && !found.has_rules() {
                let message = format!(
                    "recognise: {} contains no application that Howdah knows, so Howdah refuses neither private files of an application nor uploaded scripts; write `deny` for what must not be sent or run",
                    directory.display()
                );
                top.file().advise(top.place_of("recognise"), message);
            }
            Some(found.config)
        }
        Err(error) => {
            let message = format!(
                "cannot serve the directory {}: {error}{}",
                directory.display(),
                closed_hint(directory)
            );
            top.file().mistake(place, message);
            None
        }
    }
}

/// Returns the end of an error message, which names the directory that keeps this process from a root. It is empty if
/// no directory does.
fn closed_hint(root: &Path) -> String {
    let closed = closed_to_this_process(root);
    closed.map_or_else(String::new, |closed| {
        format!("; DirectoryUnreadable: {closed}")
    })
}

/// Returns whether a directory contains files of the system or of several users, so publishing all of it cannot be
/// intended. These are `/`, where services start, and the directories right below it that are no place for a site.
fn is_system_directory(directory: &Path) -> bool {
    const NAMES: [&str; 14] = [
        "bin", "boot", "dev", "etc", "home", "lib", "lib64", "proc", "root", "run", "sbin", "sys",
        "usr", "var",
    ];
    let Ok(real) = directory.canonicalize() else {
        return false;
    };
    match real.parent() {
        None => true,
        Some(parent) if parent == Path::new("/") => real
            .file_name()
            .is_some_and(|name| NAMES.iter().any(|system| name == *system)),
        Some(_) => false,
    }
}

/// Enables `.htaccess` files, as under Apache, if the application brings one and nothing is configured. Paths that are
/// refused for a known application stay refused.
fn enable_own_htaccess(site: &mut SiteConfig, chosen: &mut Vec<String>) {
    let Some(routes) = htaccess::decides(&site.root) else {
        return;
    };
    site.htaccess = HtaccessMode::On;
    chosen.push("  .htaccess files are applied, as in Apache: htaccess = \"on\"".to_owned());
    if routes {
        leave_routes_to_files(site);
    }
}

/// Drops what was recognised about the routing of requests, because an `.htaccess` file defines it.
fn leave_routes_to_files(site: &mut SiteConfig) {
    site.front_controller = None;
    let leads_elsewhere = |rule: &SiteRule| matches!(rule.action, RuleAction::Rewrite(_));
    site.rules.retain(|rule| !leads_elsewhere(rule));
}

fn warn_of_writable_root(section: &ConfigSection<'_>, root: &Path, place: SourcePlace) {
    if let Ok(meta) = root.metadata()
        && meta.mode() & 0o1002 == 0o002
    {
        section.file().advise(
            place,
            format!(
                "every user of this machine can write to {} and so run PHP in this pool; run: chmod o-w {}",
                root.display(),
                root.display()
            ),
        );
    }
}

/// Adds advice about lines of `.htaccess` files that restrict access and are not applied exactly.
fn advise_of_htaccess(section: &ConfigSection<'_>, site: &SiteConfig) {
    let file = section.file();
    if file.validation == Validation::Full {
        let sentences = match site.htaccess {
            HtaccessMode::On => htaccess::survey(&site.root, false),
            HtaccessMode::Deny => htaccess::survey(&site.root, true),
            HtaccessMode::Off => Vec::new(),
        };
        for sentence in sentences {
            // The sentence itself names the file and line.
            file.advise(None, sentence);
        }
    }
}

fn site(
    arguments: &ServeArguments,
    section: &ConfigSection<'_>,
    number: usize,
    pools: &[PoolMode],
    chosen: &mut Vec<String>,
) -> Option<SiteConfig> {
    let file = section.file();
    let root = section
        .path("root")
        .or_else(|| arguments.dir.clone())
        .unwrap_or_else(|| {
            let message = "root: a site needs a root, the directory that it serves";
            file.mistake(section.place.clone(), message);
            PathBuf::from(".")
        });
    let mut hosts = Vec::new();
    for text in section.texts("hosts") {
        match HostPattern::parse(&text.value) {
            Ok(host) => hosts.push(host),
            Err(why) => file.mistake(text.place, format!("hosts: {why}")),
        }
    }
    let name = section.text("name").unwrap_or_else(|| {
        let first = section.texts("hosts").into_iter().next();
        first.map_or_else(|| format!("site{}", number + 1), |text| text.value)
    });
    let mut site = if section.is_on("recognise") {
        // The front controller is set first, because it influences what is recognised about the routing in the root, and
        // so are the extensions of scripts, because uploads with these are refused.
        let extensions = section.texts("php_extensions").into_iter();
        let usual = SiteConfig {
            front_controller: front_controller(section),
            php_extensions: extensions.map(|text| text.value).collect(),
            ..default_site(section)
        };
        recognised_site(section, &root, section.place_of("root"), usual, chosen)?
    } else {
        // The crate that serves sites reports this, too, but here the line is known.
        if let Err(error) = std::fs::read_dir(&root) {
            let message = format!(
                "root: cannot serve the directory {}: {error}{}",
                root.display(),
                closed_hint(&root)
            );
            file.mistake(section.place_of("root"), message);
        }
        SiteConfig {
            // `components` removes the dot of `root = "."`.
            root: root.components().collect(),
            ..default_site(section)
        }
    };
    warn_of_writable_root(section, &site.root, section.place_of("root"));
    site.name = name;
    site.hosts = hosts;
    site.pool = pool(section, pools);
    site.worker = booted_worker_script(pools, &site);
    files(section, &mut site);
    // An `.htaccess` file has the same effect here as without a configuration. A front controller of the section is
    // read afterwards.
    if section.is_on("recognise")
        && site.htaccess == HtaccessMode::On
        && htaccess::routes(&site.root) == Some(true)
    {
        leave_routes_to_files(&mut site);
    }
    scripts(section, &mut site);
    let mut rules = Vec::new();
    for rule in section.sections("rule", "site.rule") {
        let own = rules_of_section(&rule, pools, &mut site.static_rules);
        for error in own.iter().flat_map(check_rule) {
            let places = keys_of_rule(&error).iter().filter(|key| rule.has(key));
            let place = places.map(|key| rule.place_of(key)).next();
            let place = place.unwrap_or_else(|| rule.place());
            file.mistake(place, format!("site `{}`: {error}", site.name));
        }
        rules.extend(own);
    }
    // These rules were added by recognition.
    for error in site.rules.iter().flat_map(check_rule) {
        let place = section.place_of(key_of_error(&error));
        file.mistake(place, format!("site `{}`: {error}", site.name));
    }
    site.server_env = conditions::server_env(&site, &rules);
    check_cgi_rules(section, &rules, pools);
    check_authorizers(section, &rules, pools);
    rules.append(&mut site.rules);
    site.rules = rules;
    check_settings(section, &site, pools);
    if !section.has("recognise") {
        application::close_and_advise(section, &mut site, chosen);
    }
    for error in check(&site) {
        let place = section.place_of(key_of_error(&error));
        file.mistake(place, format!("site `{}`: {error}", site.name));
    }
    advise_of_htaccess(section, &site);
    Some(site)
}

/// Returns whether PHP reads this setting only once, at its start. The list is the same as in `shim/core/settings.c`,
/// which refuses these settings for a request.
fn is_pool_setting(name: &str) -> bool {
    matches!(
        name,
        "disable_functions" | "disable_classes" | "extension" | "zend_extension" | "extension_dir"
    ) || name.starts_with("opcache.preload")
}

/// Checks the PHP settings of a site. A program that runs PHP gets its settings at its start, not with a request; our
/// own PHP accepts most of them with a request. (php-fpm obeys `disable_functions` in mode `fastcgi`.)
fn check_settings(section: &ConfigSection<'_>, site: &SiteConfig, pools: &[PoolMode]) {
    let named = site.rules.iter().filter_map(|rule| match &rule.action {
        RuleAction::Pool(name) => Some(&**name),
        _ => None,
    });
    let names: Vec<&str> = [&*site.pool].into_iter().chain(named).collect();
    let used = || pools.iter().filter(|pool| names.contains(&pool.name()));
    if let Some(mode) = used().find(|pool| matches!(pool, PoolMode::Embed(_))) {
        for key in ["php_value", "php_admin_value"] {
            for pair in section.pairs(key) {
                let (name, _) = &pair.value;
                if is_pool_setting(name) {
                    let message = format!(
                        "{key}: `{name}` has no effect for a site, because PHP reads it only once, at its start; set it for the whole pool: [pool.{}.php_value]",
                        mode.name()
                    );
                    section.file().mistake(pair.place, message);
                }
            }
        }
    }
    let Some(mode) = used().find(|pool| matches!(pool, PoolMode::Cgi(_) | PoolMode::Pool(_)))
    else {
        return;
    };
    for (key, given) in [
        ("php_value", !site.php_value.is_empty()),
        ("php_admin_value", !site.php_admin_value.is_empty()),
    ] {
        if given {
            let message = format!(
                "{key}: settings of a site do not reach PHP in mode `{}`; set it in [pool.{}.php_value], with one pool for each site",
                mode.word(),
                mode.name()
            );
            section.file().mistake(section.place_of(key), message);
        }
    }
}

/// Returns the keys of a rule that a mistake in it may be about.
fn keys_of_rule(error: &ConfigError) -> &'static [&'static str] {
    match error {
        ConfigError::OpenRedirect { .. } | ConfigError::RedirectLoop(_) => &["redirect"],
        ConfigError::Template(_) => &["redirect", "rewrite"],
        ConfigError::RelativeTarget(_) => &["rewrite"],
        ConfigError::BadStatus(..) => &["status", "deny", "return"],
        ConfigError::BadHeaderName(_) | ConfigError::BadHeaderValue(_) => {
            &["set_header", "add_header", "cache_control", "type"]
        }
        _ => &[],
    }
}

/// Returns the key that a mistake is about, to determine the place of a mistake that was found after reading.
fn key_of_error(error: &ConfigError) -> &'static str {
    match error {
        ConfigError::BadHost(_) | ConfigError::DuplicateHost(..) => "hosts",
        ConfigError::BadExtension(_) => "php_extensions",
        ConfigError::BadIndex(_) => "index",
        ConfigError::BadFrontController(_) => "front_controller",
        ConfigError::UnreachableTryFile => "try_files",
        ConfigError::BadInternalPrefix(_) => "sendfile",
        ConfigError::BadErrorPage(..) => "error_pages",
        _ => "root",
    }
}
