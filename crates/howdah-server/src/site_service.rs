//! Everything that is prepared for the requests of a site when a configuration is loaded: its pools, the servers that
//! its rules forward requests to, and what every request frame contains.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use howdah_executor::{ExecError, Executor, ScriptRequest, ScriptRun};
use howdah_proto::request::IniKind;

use crate::failure::Failure;
use crate::proxy::ServerGroup;
use crate::script::body::PROGRESS_NAME;
use crate::script::frame::SiteVariables;
use crate::script::stream_permits::StreamPermits;
use crate::traffic::SiteTraffic;
use howdah_site::limiter::Limiter;
use howdah_site::limiter::meter::{Meter, MeterName};
use howdah_site::site::config::{Authorizer, RuleAction};
use howdah_site::site::{ScriptTarget, Site};

/// What the requests of a site need, prepared when the configuration is loaded.
pub struct SiteService {
    /// The site.
    pub site: Arc<Site>,
    pool: SitePool,
    /// The pools that the site's rules name, by name.
    rule_pools: HashMap<Arc<str>, SitePool>,
    /// The servers of `proxy` and `auth_request` rules, by the number of the rule.
    server_groups: HashMap<usize, Arc<ServerGroup>>,
    /// The meters of the site's limits, by the number of the rule.
    meters: Vec<(usize, Arc<Meter>)>,
    /// The variables and settings of the site that every request frame gets.
    pub variables: SiteVariables,
    /// The maximum size of a request body, in bytes.
    pub body_limit: u64,
    /// `session.upload_progress.name`: the form field that asks for PHP's upload progress.
    pub progress_name: Vec<u8>,
    /// The counters of the site's recent requests.
    pub traffic: Arc<SiteTraffic>,
}

/// A pool, and what all sites that use it share.
#[derive(Clone)]
pub(crate) struct SitePool {
    executor: Arc<dyn Executor>,
    streams: Arc<StreamPermits>,
    /// The limit for clients that disconnect while their scripts run, if the pool has processes to share.
    abandon_limit: Option<Arc<Meter>>,
}

impl SitePool {
    pub(crate) fn new(name: &str, executor: &Arc<dyn Executor>, limiter: &Limiter) -> SitePool {
        let processes = executor.max_processes();
        SitePool {
            executor: executor.clone(),
            streams: StreamPermits::for_pool(processes),
            abandon_limit: processes.and_then(|processes| limiter.abandon_meter(name, processes)),
        }
    }
}

impl SiteService {
    /// Prepares what the requests of `site` need. `pool` is the site's own pool; `others` are the pools that its rules
    /// name.
    pub(crate) fn new(
        site: &Arc<Site>,
        pool: &SitePool,
        others: HashMap<Arc<str>, SitePool>,
        limiter: &Limiter,
        traffic: Arc<SiteTraffic>,
    ) -> SiteService {
        let config = site.config();
        let mut settings = Vec::new();
        for (kind, entries) in [
            (IniKind::Value, &config.php_value),
            (IniKind::AdminValue, &config.php_admin_value),
            (IniKind::Environment, &config.env),
        ] {
            let bytes = |(name, value): &(String, String)| {
                (kind, name.clone().into_bytes(), value.clone().into_bytes())
            };
            settings.extend(entries.iter().map(bytes));
        }
        let progress_name = settings
            .iter()
            .rev()
            .find(|(kind, name, _)| {
                *kind != IniKind::Environment && name == b"session.upload_progress.name"
            })
            .map_or_else(|| PROGRESS_NAME.to_vec(), |(_, _, value)| value.clone());
        SiteService {
            site: site.clone(),
            pool: pool.clone(),
            rule_pools: others,
            server_groups: server_groups(site),
            meters: meters(site, limiter),
            variables: SiteVariables {
                number: site.number(),
                hosts: config.hosts.clone(),
                settings,
                effects: config.cache.is_some(),
                esi: config
                    .cache
                    .as_ref()
                    .is_some_and(|cache| cache.rules.esi.is_some()),
                vary_mobile: config
                    .cache
                    .as_ref()
                    .is_some_and(|cache| cache.rules.vary.mobile),
            },
            body_limit: match config.max_body_size {
                0 => u64::MAX,
                limit => limit,
            },
            progress_name,
            traffic,
        }
    }

    /// Returns the executors that run the site's scripts.
    pub fn executors(&self) -> impl Iterator<Item = &Arc<dyn Executor>> {
        let others = self.rule_pools.values();
        [&self.pool]
            .into_iter()
            .chain(others)
            .map(|pool| &pool.executor)
    }

    fn pool(&self, target: &ScriptTarget) -> &SitePool {
        let other = target
            .pool
            .as_ref()
            .and_then(|name| self.rule_pools.get(name));
        other.unwrap_or(&self.pool)
    }

    /// Returns the servers of a `proxy` or `auth_request` rule of the site.
    pub fn server_group(&self, rule: usize) -> &Arc<ServerGroup> {
        &self.server_groups[&rule]
    }

    /// Returns the meter of the limit of this rule.
    pub fn meter(&self, rule: usize) -> Option<&Arc<Meter>> {
        let mut meters = self.meters.iter();
        let found = meters.find(|(number, _)| *number == rule);
        found.map(|(_, meter)| meter)
    }

    /// Returns the meter of each limit, with the number of its first rule.
    pub fn meters(&self) -> impl Iterator<Item = (usize, &Arc<Meter>)> {
        let first = |at: usize, meter: &Arc<Meter>| {
            let mut before = self.meters[..at].iter();
            !before.any(|(_, known)| Arc::ptr_eq(known, meter))
        };
        let all = self.meters.iter().enumerate();
        all.filter(move |(at, (_, meter))| first(*at, meter))
            .map(|(_, (number, meter))| (*number, meter))
    }

    /// Returns the executor of the script's pool: the one that a rule has named, else the site's own.
    pub fn executor(&self, target: &ScriptTarget) -> &Arc<dyn Executor> {
        &self.pool(target).executor
    }

    /// Returns the limit for clients that disconnect while their scripts run, if this client has done so in the
    /// script's pool.
    pub fn abandon_limit(&self, target: &ScriptTarget, client: IpAddr) -> Option<&Arc<Meter>> {
        let pool = self.pool(target);
        let leavers = pool.abandon_limit.as_ref()?;
        pool.executor.abandons_scripts(client).then_some(leavers)
    }

    /// Returns the name of the script's pool in the configuration.
    pub fn pool_name<'s>(&'s self, target: &'s ScriptTarget) -> &'s str {
        target.pool.as_deref().unwrap_or(&self.site.config().pool)
    }

    /// Returns the permits for request bodies that are still arriving in the script's pool.
    pub fn streams(&self, target: &ScriptTarget) -> &Arc<StreamPermits> {
        &self.pool(target).streams
    }

    /// Starts the run of an authorizer. The configuration check guarantees that its pool exists.
    pub fn authorize(
        &self,
        authorizer: &Authorizer,
        request: ScriptRequest,
    ) -> Result<Box<dyn ScriptRun>, Failure> {
        match self.rule_pools.get(&authorizer.pool) {
            Some(pool) => Ok(pool.executor.start(request)),
            None => Err(Failure::Run(ExecError::Stopping)),
        }
    }

    /// Starts the run of a script or a program.
    pub fn start(&self, target: &ScriptTarget, request: ScriptRequest) -> Box<dyn ScriptRun> {
        self.executor(target).start(request)
    }
}

/// Returns the servers that a site's rules forward requests to, by the number of the rule.
fn server_groups(site: &Site) -> HashMap<usize, Arc<ServerGroup>> {
    let rules = site.config().rules.iter().enumerate();
    let groups = rules.filter_map(|(number, rule)| {
        let config = match &rule.action {
            RuleAction::Proxy(servers) => servers,
            RuleAction::AuthRequest(server) => &server.servers,
            _ => return None,
        };
        Some((number, Arc::new(ServerGroup::new(config))))
    });
    groups.collect()
}

/// Returns the meters of a site's limits. Rules that share a limit share its meter.
fn meters(site: &Site, limiter: &Limiter) -> Vec<(usize, Arc<Meter>)> {
    let mut meters: Vec<(usize, Arc<Meter>)> = Vec::new();
    let mut texts: HashMap<String, usize> = HashMap::new();
    for (number, rule) in site.config().rules.iter().enumerate() {
        let RuleAction::Limit(limit) = &rule.action else {
            continue;
        };
        let shared = meters
            .iter()
            .find(|(_, meter)| Arc::ptr_eq(&meter.limit, limit));
        let meter = match shared {
            Some((_, meter)) => meter.clone(),
            None => {
                let text = format!("{:?} {limit:?}", rule.pattern);
                let seen = texts.entry(text.clone()).or_default();
                let name = MeterName {
                    site: site.config().name.clone(),
                    text,
                    number: std::mem::replace(seen, *seen + 1),
                };
                limiter.meter(name, limit)
            }
        };
        meters.push((number, meter));
    }
    meters
}
