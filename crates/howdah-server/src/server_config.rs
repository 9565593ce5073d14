//! The configuration that handles requests: sites and what is prepared for them, pools, limits, logs. It is one
//! immutable value; a reload makes another and replaces it between two requests.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use howdah_executor::Executor;

use crate::admin::{LimitRow, LimitsStatus, StatusPage};
use crate::cache::{CacheDiskState, PageCache, PageCacheConfig};
use crate::process_state::ProcessState;
use crate::script::pump_config::{BufferLimits, MAX_HELD_BYTES, PumpConfig, RESPONSE_MEMORY_BYTES};
use crate::site_service::{SitePool, SiteService};
use crate::traffic::SiteStatus;
use howdah_log::log::AccessLog;
use howdah_log::traces::Traces;
use howdah_site::client_address::TrustedProxies;
use howdah_site::encoding::EncodingConfig;
use howdah_site::site::config::RuleAction;
use howdah_site::site::{Site, Sites};

/// Settings of the front that do not belong to a site or pool.
#[derive(Clone)]
pub struct FrontSettings {
    /// The HTTPS port, for redirects.
    pub https_port: u16,
    /// `[trusted_proxies]`: the proxies whose headers about the client's address are accepted.
    pub trusted_proxies: TrustedProxies,
    /// `[compression]`: which responses are compressed, and how.
    pub encoding: EncodingConfig,
    /// `[status]`: the status page; `None` if there is no such page.
    pub status: Option<StatusPage>,
    /// `[limits]`: where bodies, and output for slow clients, are buffered.
    pub buffers: BufferLimits,
    /// `cache.memory`: the maximum size of the pages in memory, in bytes.
    pub cache_memory: u64,
    /// `[fleet] release`: the version of the sites' code; members with the same release share renders.
    pub release: Option<Arc<str>>,
}

impl FrontSettings {
    /// Returns settings for tests, benchmarks and examples, which read no options.
    #[doc(hidden)]
    pub fn for_tests() -> FrontSettings {
        FrontSettings {
            https_port: 443,
            trusted_proxies: TrustedProxies::default(),
            encoding: EncodingConfig::all(),
            status: None,
            buffers: BufferLimits {
                response_spill: 1 << 30,
                directory: std::env::temp_dir(),
            },
            cache_memory: 128 << 20,
            release: None,
        }
    }
}

/// The resources that a configuration has opened. A reload takes over those that it does not change.
#[derive(Clone, Default)]
pub struct OpenResources {
    /// The access log; `None` if it is off.
    pub access_log: Option<Arc<AccessLog>>,
    /// `[traces]`: the exporter of traces; `None` if requests are not traced.
    pub traces: Option<Arc<Traces>>,
    /// `cache.path`: the store of pages on disk; `None` if none is configured.
    pub cache_disk: Option<CacheDiskState>,
}

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerConfigError {
    /// A site names a pool that does not exist.
    NoSuchPool {
        /// The name of the site.
        site: String,
        /// The name of the missing pool.
        pool: String,
    },
}

impl fmt::Display for ServerConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServerConfigError::NoSuchPool { site, pool } = self;
        write!(f, "site `{site}`: its pool `{pool}` is not configured")
    }
}

impl std::error::Error for ServerConfigError {}

/// The immutable configuration that handles requests: a reload makes another one.
pub struct ServerConfig {
    /// All sites, indexed by the host that a request names.
    pub sites: Sites,
    /// What is prepared for each site, by the site's number.
    services: Vec<Arc<SiteService>>,
    /// All pools, for the status.
    pub pools: Vec<Arc<dyn Executor>>,
    /// Response buffering and compression.
    pub pump: PumpConfig,
    /// The page cache, if any site has it on.
    pub cache: Option<Arc<PageCache>>,
    /// The settings of the front that belong neither to a site nor to a pool.
    pub settings: FrontSettings,
    /// The logs and stores of this configuration.
    pub resources: OpenResources,
    /// What this configuration shares with all others of the process.
    pub process: Arc<ProcessState>,
}

impl ServerConfig {
    /// Invalidates all values in the shared caches of PHP pools: of the pools that run scripts of the named site, or of
    /// all pools if `site` is `None`.
    pub fn invalidate_shared_caches(&self, site: Option<&str>) {
        let Some(name) = site else {
            return self
                .pools
                .iter()
                .for_each(|pool| pool.invalidate_shared_cache());
        };
        let sites = self.sites.all().iter().zip(&self.services);
        let of_site = sites.filter(|(site, _)| site.config().name == name);
        of_site
            .flat_map(|(_, service)| service.executors())
            .for_each(|pool| pool.invalidate_shared_cache());
    }

    /// Combines sites and pools. The sites' numbers must be their positions in `sites`. Returns all mistakes at once.
    pub fn new(
        settings: FrontSettings,
        resources: OpenResources,
        process: Arc<ProcessState>,
        sites: Sites,
        pools: &HashMap<String, Arc<dyn Executor>>,
    ) -> Result<ServerConfig, Vec<ServerConfigError>> {
        let limiter = &process.limiter;
        let (mut services, mut errors) = (Vec::new(), Vec::new());
        let all: HashMap<&String, SitePool> = pools
            .iter()
            .map(|(name, executor)| (name, SitePool::new(name, executor, limiter)))
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
                Some(pool) => {
                    let traffic = process.traffic.site(&site.config().name, sites.all().len());
                    let service = SiteService::new(site, pool, others, limiter, traffic);
                    services.push(Arc::new(service));
                }
                None => errors.push(none(&site.config().pool)),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let mut names: Vec<_> = pools.keys().collect();
        names.sort();
        let cache_config = PageCacheConfig {
            memory: settings.cache_memory,
            disk: resources.cache_disk.as_ref(),
            release: settings.release.as_ref(),
            encoding: &settings.encoding,
        };
        let cache = PageCache::new(&sites, cache_config, &process.cache).map(Arc::new);
        Ok(ServerConfig {
            cache,
            sites,
            services,
            pools: names.into_iter().map(|name| pools[name].clone()).collect(),
            pump: PumpConfig {
                hold: MAX_HELD_BYTES,
                response_memory: RESPONSE_MEMORY_BYTES,
                buffers: settings.buffers.clone(),
                room: process.spill_room.clone(),
                encoding: settings.encoding.clone(),
            },
            settings,
            resources,
            process,
        })
    }

    /// Returns the limits of all sites, for the status.
    pub fn limits(&self) -> LimitsStatus {
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
        LimitsStatus {
            rows: self.services.iter().flat_map(of).collect(),
            forgotten: self.process.limiter.forgotten(),
        }
    }

    /// Returns the requests of each site in the last hour, for the status.
    pub fn site_statuses(&self) -> Vec<SiteStatus> {
        let of = |service: &Arc<SiteService>| service.traffic.status(&service.site.config().name);
        self.services.iter().map(of).collect()
    }

    /// Returns what is prepared for a site of this configuration.
    pub fn service(&self, site: &Site) -> &Arc<SiteService> {
        &self.services[site.number() as usize]
    }
}
