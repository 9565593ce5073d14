//! The configuration a request is answered by: sites with what was made ready for them, pools,
//! limits, logs. One value, never changed; a reload makes another and swaps it in between two
//! requests.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use howdah_cache::store::disk::Disk;
use howdah_executor::Executor;
use howdah_fleet::Fleet;
use howdah_http::tls::challenges::Challenges;

use crate::admin::{LimitRow, Limits, StatusPage};
use crate::cache::carried_generations::CarriedGenerations;
use crate::cache::successor::Successor;
use crate::cache::{DiskStatus, PageCache, Stores};
use crate::client_address::TrustedProxies;
use crate::encoding::EncodingConfig;
use crate::limiter::Limiter;
use crate::log::AccessLog;
use crate::script::pump_config::{Buffers, HOLD, PumpConfig, RESPONSE_MEMORY};
use crate::script::spill::SpillRoom;
use crate::site::config::RuleAction;
use crate::site::{Site, Sites};
use crate::site_service::{Pool, SiteService};
use crate::traces::Traces;

/// Settings of the front beside sites and pools.
#[derive(Clone)]
pub struct FrontSettings {
    /// The port of HTTPS, for redirects to it.
    pub https_port: u16,
    /// `[trusted_proxies]`: whose statements about the client's address are believed.
    pub trusted_proxies: TrustedProxies,
    /// `[compression]`: which responses are compressed, and how.
    pub encoding: EncodingConfig,
    /// `[status]`: the status page; none if there is no such page.
    pub status: Option<StatusPage>,
    /// The access log; none: off. Kept over a reload that does not change it.
    pub access_log: Option<Arc<AccessLog>>,
    /// `[traces]`: none: requests are not traced.
    pub traces: Option<Arc<Traces>>,
    /// `[limits]`: where bodies and output wait for slow clients.
    pub buffers: Buffers,
    /// How much all of those may take together: one for all configurations of the process.
    pub spill_room: Arc<SpillRoom>,
    /// `cache.memory`: bytes of pages kept in memory.
    pub cache_memory: u64,
    /// `cache.path`: pages on disk; one for all configurations of the process.
    pub cache_disk: Option<Arc<Disk>>,
    /// Why there is none although one is configured, for the status.
    pub closed_cache_disk: Option<DiskStatus>,
    /// What is counted of clients: one for all configurations of the process.
    pub limiter: Arc<Limiter>,
    /// The proofs that certificate authorities look for; one for all configurations of the process.
    pub challenges: Arc<Challenges>,
    /// What the page cache hands over from one configuration to the next: one for all of them.
    pub carried_generations: Arc<CarriedGenerations>,
    /// `[fleet]`: one membership for all configurations of the process.
    pub fleet: Option<Arc<Fleet>>,
    /// The process that takes over at an upgrade: one for all configurations of the process.
    pub successor: Arc<Successor>,
    /// `[fleet] release`: which code the sites run; members of one release share renders.
    pub release: Option<Arc<str>>,
}

impl FrontSettings {
    /// Values for tests, benchmarks and examples, which have no options.
    #[doc(hidden)]
    pub fn for_tests() -> FrontSettings {
        FrontSettings {
            https_port: 443,
            trusted_proxies: TrustedProxies::default(),
            encoding: EncodingConfig::all(),
            status: None,
            access_log: None,
            traces: None,
            buffers: Buffers {
                response_spill: 1 << 30,
                directory: std::env::temp_dir(),
            },
            spill_room: Arc::default(),
            cache_memory: 128 << 20,
            cache_disk: None,
            closed_cache_disk: None,
            limiter: Arc::default(),
            challenges: Arc::default(),
            carried_generations: Arc::default(),
            fleet: None,
            successor: Arc::default(),
            release: None,
        }
    }
}

/// Why a configuration cannot be served by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerConfigError {
    /// A site names a pool that is not there.
    NoSuchPool {
        /// The name of the site.
        site: String,
        /// The name of the pool, which no pool has.
        pool: String,
    },
}

impl fmt::Display for ServerConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServerConfigError::NoSuchPool { site, pool } = self;
        write!(
            f,
            "site `{site}` names the pool `{pool}`, which is not configured"
        )
    }
}

impl std::error::Error for ServerConfigError {}

/// What requests are answered by, never changed: a reload makes another one.
pub struct ServerConfig {
    /// All sites, found by the host a request names.
    pub sites: Sites,
    /// What was made ready for each site, by the site's number.
    services: Vec<Arc<SiteService>>,
    /// All pools, for the status.
    pub pools: Vec<Arc<dyn Executor>>,
    /// Response buffering and compression.
    pub pump: PumpConfig,
    /// The page cache, if any site has it on.
    pub cache: Option<Arc<PageCache>>,
    /// The settings of the front that are not a site's or a pool's.
    pub settings: FrontSettings,
}

impl ServerConfig {
    /// Makes all values old that PHP keeps in the shared caches of pools: of those that run scripts of the site
    /// of this name; none: of all.
    pub fn forget_shared_caches(&self, site: Option<&str>) {
        let Some(name) = site else {
            return self
                .pools
                .iter()
                .for_each(|pool| pool.forget_shared_cache());
        };
        let sites = self.sites.all().iter().zip(&self.services);
        let of_site = sites.filter(|(site, _)| site.config().name == name);
        of_site
            .flat_map(|(_, service)| service.executors())
            .for_each(|pool| pool.forget_shared_cache());
    }

    /// Joins sites and pools. The sites' numbers must be their places in `sites`. All mistakes at
    /// once.
    pub fn new(
        settings: FrontSettings,
        sites: Sites,
        pools: &HashMap<String, Arc<dyn Executor>>,
    ) -> Result<ServerConfig, Vec<ServerConfigError>> {
        let (mut services, mut errors) = (Vec::new(), Vec::new());
        let all: HashMap<&String, Pool> = pools
            .iter()
            .map(|(name, executor)| (name, Pool::new(name, executor, &settings.limiter)))
            .collect();
        for (place, site) in sites.all().iter().enumerate() {
            debug_assert_eq!(site.number() as usize, place);
            let none = |pool: &str| ServerConfigError::NoSuchPool {
                site: site.config().name.clone(),
                pool: pool.to_owned(),
            };
            let mut others = HashMap::new();
            for rule in &site.config().rules {
                let name = match &rule.action {
                    RuleAction::Pool(name) | RuleAction::Cgi(name) => Some(name),
                    RuleAction::Authorize(authorizer) => Some(&authorizer.pool),
                    _ => None,
                };
                if let Some(name) = name {
                    match all.get(&name.to_string()) {
                        Some(pool) => drop(others.insert(name.clone(), pool.clone())),
                        None => errors.push(none(name)),
                    }
                }
            }
            match all.get(&site.config().pool) {
                Some(pool) => services.push(Arc::new(SiteService::new(
                    site,
                    pool,
                    others,
                    &settings.limiter,
                ))),
                None => errors.push(none(&site.config().pool)),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let mut names: Vec<_> = pools.keys().collect();
        names.sort();
        let stores = Stores {
            memory: settings.cache_memory,
            disk: settings.cache_disk.clone(),
            closed_disk: settings.closed_cache_disk.clone(),
            carried: settings.carried_generations.clone(),
            fleet: settings.fleet.clone(),
            successor: settings.successor.clone(),
            release: settings.release.clone(),
        };
        let cache = PageCache::new(&sites, stores, &settings.encoding).map(Arc::new);
        Ok(ServerConfig {
            cache,
            sites,
            services,
            pools: names.into_iter().map(|name| pools[name].clone()).collect(),
            pump: PumpConfig {
                hold: HOLD,
                response_memory: RESPONSE_MEMORY,
                buffers: settings.buffers.clone(),
                room: settings.spill_room.clone(),
                encoding: settings.encoding.clone(),
            },
            settings,
        })
    }

    /// The limits of all sites, for the status.
    pub fn limits(&self) -> Limits {
        let of = |service: &Arc<SiteService>| -> Vec<LimitRow> {
            let config = service.site.config();
            let rows = service.meters().map(|(rule, meter)| LimitRow {
                site: config.name.clone(),
                line: config.rules[rule].line.unwrap_or_default(),
                limit: meter.limit.to_string(),
                waiting: meter.waiting(),
                refused: meter.refused(),
            });
            rows.collect()
        };
        Limits {
            rows: self.services.iter().flat_map(of).collect(),
            forgotten: self.settings.limiter.forgotten(),
        }
    }

    /// What was made ready for a site of this configuration.
    pub fn service(&self, site: &Site) -> &Arc<SiteService> {
        &self.services[site.number() as usize]
    }
}
