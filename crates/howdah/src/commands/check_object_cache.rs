//! Advice about an application's object cache, such as that of WordPress: where it is missing although the application
//! could read from memory what it requests from the database for each page, and where it may contain stale values.

use howdah_executor::{PoolConfig, PoolMode};
use howdah_site::site::SiteConfig;
use howdah_site::site::recognise::recognise;

use howdah_config::ServeSettings;

/// Prints advice about sites whose application could have an object cache but has none, and about those that use
/// Howdah's in a fleet. Returns the number of these sites.
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
    let cache = found.application.profile()?.object_cache.as_ref()?;
    let drop_in = std::fs::read(site.root.join(cache.drop_in)).ok();
    let is_ours = drop_in.as_deref().is_some_and(|drop_in| {
        String::from_utf8_lossy(drop_in).contains(cache.own_drop_in_contains)
    });
    match (settings.fleet.is_some(), drop_in, pool.shared_cache) {
        (true, _, Some(_)) => Some(cache.advice_in_fleet),
        (false, None, _) => Some(cache.advice_if_missing),
        (_, Some(_), None) if is_ours => Some(cache.advice_if_unused),
        _ => None,
    }
}

fn pool_of<'s>(settings: &'s ServeSettings, site: &SiteConfig) -> Option<&'s PoolConfig> {
    settings.pools.iter().find_map(|pool| match pool {
        PoolMode::Embed(config) if config.name == site.pool => Some(config),
        _ => None,
    })
}
