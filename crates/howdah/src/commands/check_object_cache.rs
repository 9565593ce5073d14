//! Advice about WordPress' object cache: where it is missing although WordPress could read from memory what it requests
//! from the database for each page, and where it may contain stale values.

use howdah_executor::{PoolConfig, PoolMode};
use howdah_site::site::SiteConfig;
use howdah_site::site::recognise::{Application, recognise};

use crate::config::ServeSettings;

const DROP_IN: &str = "wp-content/object-cache.php";

/// Prints advice about sites with WordPress that have no object cache, and about those that use Howdah's in a fleet.
/// Returns the number of these sites.
pub fn advise_of_object_caches(settings: &ServeSettings) -> usize {
    let sites = settings.sites.iter();
    let advice = sites.filter_map(|site| Some((site, advice(settings, site)?)));
    advice
        .map(|(site, advice)| eprintln!("advice: site `{}`: {advice}", site.name))
        .count()
}

fn advice(settings: &ServeSettings, site: &SiteConfig) -> Option<&'static str> {
    let pool = pool_of(settings, site)?;
    let found = recognise(&site.root, SiteConfig::empty("", "")).ok()?;
    if found.application != Application::WordPress {
        return None;
    }
    let drop_in = std::fs::read(site.root.join(DROP_IN)).ok();
    let is_ours = drop_in.as_deref().is_some_and(is_ours);
    match (settings.fleet.is_some(), drop_in, pool.shared_cache) {
        (true, _, Some(_)) => Some(
            "shared_cache belongs to this server only, so it misses the writes of other members of the fleet; use Redis for the object cache (docs/shared-cache.md)",
        ),
        (false, None, _) => Some(
            "WordPress has no object cache; with shared_cache = \"64M\" and Howdah's drop-in, pages for logged-in users are faster (docs/shared-cache.md)",
        ),
        (_, Some(_), None) if is_ours => Some(
            "Howdah's object cache has no effect, because the pool has no shared_cache (docs/shared-cache.md)",
        ),
        _ => None,
    }
}

fn is_ours(drop_in: &[u8]) -> bool {
    String::from_utf8_lossy(drop_in).contains("howdah_cache_info")
}

fn pool_of<'s>(settings: &'s ServeSettings, site: &SiteConfig) -> Option<&'s PoolConfig> {
    settings.pools.iter().find_map(|pool| match pool {
        PoolMode::Embed(config) if config.name == site.pool => Some(config),
        _ => None,
    })
}
