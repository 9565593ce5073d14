//! Reads the options of a `[[site]]` that concern its files, its scripts and its pool.

use howdah_executor::PoolMode;
use howdah_site::docroot::root::Symlinks;
use howdah_site::site::config::{
    FrontController, HtaccessMode, InternalLocation, RequestBuffering, SiteConfig, TryFile,
};
use howdah_site::site::pattern::PathPattern;

use super::pool_section::DEFAULT_POOL;
use super::reader::{ConfigSection, Located};
use super::suggest;

/// Returns a site with every option at its default.
pub fn default_site(section: &ConfigSection<'_>) -> SiteConfig {
    let nothing = ConfigSection::new(section.file(), "site", None, None, &[]);
    let mut site = SiteConfig::empty("", "");
    files(&nothing, &mut site);
    scripts(&nothing, &mut site);
    site.max_body_size = max_body_size(&nothing);
    site
}

/// Returns the default pool: the only one, or `www`.
pub fn default_pool(pools: &[PoolMode]) -> String {
    match pools {
        [only] => only.name().to_owned(),
        _ => DEFAULT_POOL.to_owned(),
    }
}

/// Reads `pool`.
pub fn pool(section: &ConfigSection<'_>, pools: &[PoolMode]) -> String {
    let known: Vec<&str> = pools.iter().map(PoolMode::name).collect();
    let (name, place) = match section.text("pool") {
        Some(name) => (name, section.place_of("pool")),
        None => (default_pool(pools), section.place.clone()),
    };
    if !known.contains(&name.as_str()) {
        let near = suggest::did_you_mean(&name, &known);
        let message = format!("pool: there is no [pool.{name}]{near}");
        section.file().mistake(place, message);
    }
    name
}

/// Reads how files are found and sent.
pub fn files(section: &ConfigSection<'_>, site: &mut SiteConfig) {
    let file = section.file();
    let texts = section.texts("index").into_iter();
    site.index = texts.map(|text| text.value).collect();
    site.try_files.clear();
    for text in section.texts("try_files") {
        match TryFile::parse(&text.value) {
            Ok(entry) => site.try_files.push(entry),
            Err(why) => file.mistake(text.place, format!("try_files: {why}")),
        }
    }
    site.htaccess = section.word(
        "htaccess",
        &[
            ("on", HtaccessMode::On),
            ("deny", HtaccessMode::Deny),
            ("off", HtaccessMode::Off),
        ],
    );
    site.symlinks = section.word(
        "symlinks",
        &[
            ("follow", Symlinks::Follow),
            ("owner", Symlinks::Owner),
            ("beneath", Symlinks::Beneath),
        ],
    );
    for (key, list) in [("deny", &mut site.deny), ("expose", &mut site.expose)] {
        for text in section.texts(key) {
            match PathPattern::glob(&text.value) {
                Ok(pattern) => list.push(pattern),
                Err(why) => file.mistake(text.place, format!("{key}: {why}")),
            }
        }
    }
    for pair in section.pairs("sendfile") {
        let (prefix, root) = pair.value;
        let root = file.path(&root);
        site.sendfile_roots.push(root.clone());
        site.internal.push(InternalLocation { prefix, root });
    }
    let types = section.pairs("types").into_iter();
    site.types.extend(types.map(|pair| {
        let (extension, media_type) = pair.value;
        let extension = extension.trim_start_matches('.').to_ascii_lowercase();
        (extension, media_type)
    }));
    for page in section.pairs("error_pages") {
        let (status, path) = page.value;
        match status.parse() {
            Ok(status) => site.error_pages.push((status, path)),
            Err(_) => {
                let message = format!(
                    "error_pages: `{}` is not a status that can have an error page",
                    status.escape_debug()
                );
                file.mistake(page.place, message);
            }
        }
    }
}

/// Reads `front_controller`.
pub fn front_controller(section: &ConfigSection<'_>) -> Option<FrontController> {
    section
        .text("front_controller")
        .map(|script| FrontController {
            script,
            path_info: false,
        })
}

/// Reads how scripts run.
pub fn scripts(section: &ConfigSection<'_>, site: &mut SiteConfig) {
    let texts = section.texts("php_extensions").into_iter();
    site.php_extensions = texts.map(|text| text.value).collect();
    if let Some(controller) = front_controller(section) {
        site.front_controller = Some(controller);
    }
    let pairs = |key| {
        let pairs = section.pairs(key).into_iter();
        pairs.map(|pair: Located<(String, String)>| pair.value)
    };
    site.env.extend(pairs("env"));
    site.php_value.extend(pairs("php_value"));
    site.php_admin_value.extend(pairs("php_admin_value"));
    if section.has("max_body_size") {
        site.max_body_size = max_body_size(section);
    }
    site.request_buffering = section.word(
        "request_buffering",
        &[
            ("on", RequestBuffering::On),
            ("off", RequestBuffering::Off),
            ("auto", RequestBuffering::Auto),
        ],
    );
}

fn max_body_size(section: &ConfigSection<'_>) -> u64 {
    // For the server, 0 means no limit.
    section.size("max_body_size").unwrap_or(0)
}
