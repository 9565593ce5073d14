//! Makes one configuration of those of several servers. Howdah has one user, one `listen` and one set of limits for all
//! sites, so settings that differ between the servers are moved to the sites and pools where that is possible, and are
//! findings where it is not.

mod sections;
mod sites;

use std::collections::BTreeMap;

use howdah_import::target::{NameValuePairs, SiteTable, TargetConfig, TomlTable, TomlValue};

use super::findings::{Findings, finding};
use super::imports::{ServerImport, text};
use super::php::{HostedPhp, has_mod_php, set_php_of_apache};
use super::servers::FoundServer;
use crate::plan::{ServerKind, Severity};

/// A pool with its tables of names and values.
type Pool = (String, TomlTable, BTreeMap<&'static str, NameValuePairs>);

/// The configuration of all servers together.
#[derive(Debug, Default)]
pub struct CombinedConfiguration {
    /// The configuration, with all sites in order.
    pub config: TargetConfig,
    /// Facts about each site of `config`, in the same order.
    pub sites: Vec<CombinedSite>,
    /// How each pool of `config` runs PHP: `php-fpm pool www`, `mod_php`.
    pub pool_origins: BTreeMap<String, String>,
}

/// Facts about a site.
#[derive(Clone, Debug)]
pub struct CombinedSite {
    /// The index of the import that it comes from.
    pub import: usize,
    /// Its name, which no other site has.
    pub name: String,
    /// The addresses at which it responds, as values of `listen`.
    pub listens: Vec<String>,
}

/// Combines the imports. The settings of the server with the most sites apply to all of Howdah.
pub fn combine(
    imports: &[ServerImport],
    servers: &[FoundServer],
    php: &HostedPhp,
    findings: &mut Findings,
) -> CombinedConfiguration {
    let mut all = CombinedConfiguration::default();
    for number in by_number_of_sites(imports) {
        let import = &imports[number];
        let mut config = import.parts.config.clone();
        if text(&config.top, "user").is_none() {
            config.top.set("user", import.user.as_str(), None);
        }
        set_php(
            &mut config,
            import,
            servers,
            php,
            &mut all.pool_origins,
            findings,
        );
        sections::merge_top(
            &mut all.config,
            &mut config,
            &servers[import.server],
            findings,
        );
        sections::merge_sections(&mut all.config, &config, &servers[import.server], findings);
        let renamed = merge_pools(&mut all, config.pools, &servers[import.server]);
        let is_first = all.sites.is_empty();
        for mut site in config.sites {
            rename_pools(&mut site, &renamed);
            sites::add(&mut all, site, number, &config.top, is_first);
        }
        all.config.needs_empty_root |= config.needs_empty_root;
    }
    howdah_import::pool::set_pool_of_all_sites(&mut all.config);
    sites::resolve_contradictions(&mut all, imports, servers, findings);
    all
}

/// Returns the indexes of the imports, that with the most sites first.
fn by_number_of_sites(imports: &[ServerImport]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..imports.len()).collect();
    order.sort_by_key(|import| std::cmp::Reverse(imports[*import].parts.config.sites.len()));
    order
}

/// Sets in each pool the PHP that its sites have now.
fn set_php(
    config: &mut TargetConfig,
    import: &ServerImport,
    servers: &[FoundServer],
    php: &HostedPhp,
    origins: &mut BTreeMap<String, String>,
    findings: &mut Findings,
) {
    let of_fpm = |name: &str| import.parts.pools.iter().find(|pool| pool.name == name);
    for (name, table, pairs) in &mut config.pools {
        let mode = text(table, "mode").unwrap_or_default().to_owned();
        let origin = match (mode.as_str(), of_fpm(name)) {
            ("embed", Some(pool)) => {
                if let Some(program) = php.program_of(&pool.main_file) {
                    table.set("php", program.display().to_string(), None);
                }
                warn_of_root(pool.value("user"), &pool.place.to_string(), name, findings);
                format!("php-fpm pool {name}")
            }
            ("embed", None) => {
                let environment = pairs.entry("env").or_default();
                let variables = &servers[import.server].paths.defined;
                set_php_of_apache(&import.parts, variables, table, environment);
                match servers[import.server].server.kind {
                    ServerKind::Apache if has_mod_php(&import.parts.entries) => {
                        "mod_php".to_owned()
                    }
                    ServerKind::Apache => "mod_fcgid".to_owned(),
                    _ => "Howdah's own PHP".to_owned(),
                }
            }
            ("fastcgi", _) => format!("FastCGI server {name}, which stays"),
            (mode, _) => format!("mode {mode}"),
        };
        pairs.retain(|_, pairs| !pairs.is_empty());
        origins.insert(name.clone(), origin);
    }
}

fn warn_of_root(user: Option<&str>, place: &str, pool: &str, findings: &mut Findings) {
    if user == Some("root") {
        findings.push(
            finding(
                Severity::Risk,
                "PoolRunsAsRoot",
                format!("the scripts of the pool {pool} run as root, as they do now"),
                "Give the pool a user of its own.",
            )
            .at(place),
        );
    }
}

/// Adds pools. A pool that has the name of a different pool gets a number. Returns the new names.
fn merge_pools(
    all: &mut CombinedConfiguration,
    pools: Vec<Pool>,
    server: &FoundServer,
) -> BTreeMap<String, String> {
    let mut renamed = BTreeMap::new();
    for (name, table, pairs) in pools {
        let same = |(known, other, with): &Pool| {
            *known == name && other.pairs == table.pairs && *with == pairs
        };
        if all.config.pools.iter().any(same) {
            continue;
        }
        let new = howdah_import::pool::free_name(&name, &all.config);
        if new != name {
            let origin = all.pool_origins.get(&name).cloned().unwrap_or_default();
            all.pool_origins.insert(new.clone(), origin);
            renamed.insert(name, new.clone());
        }
        let mut table = table;
        table.comment(format!("from {}", server.display()));
        all.config.pools.push((new, table, pairs));
    }
    renamed
}

fn rename_pools(site: &mut SiteTable, renamed: &BTreeMap<String, String>) {
    for table in std::iter::once(&mut site.table).chain(&mut site.rules) {
        for (key, value, _) in &mut table.pairs {
            if let ("pool", TomlValue::Text(name)) = (key.as_str(), value)
                && let Some(new) = renamed.get(name)
            {
                name.clone_from(new);
            }
        }
    }
}

#[cfg(test)]
mod tests;
