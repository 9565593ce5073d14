//! The pools that hosts need, each of which several hosts may share.

use std::collections::BTreeMap;

use super::server::ServerContext;
use crate::directive::{Directive, SourceLine};
use crate::pool;
use crate::target::{TargetConfig, TomlTable};

/// The name of the pool of CGI programs.
const CGI_POOL: &str = "cgi";

/// Adds pools to the configuration.
pub struct ServerPools<'c> {
    config: &'c mut TargetConfig,
    /// The names of pools, by the FastCGI address or the user whose requests they serve.
    names: BTreeMap<String, String>,
    /// The `MaxConnectionsPerChild` of Apache, for pools that run PHP in Howdah's own processes.
    max_requests: Option<(u64, SourceLine)>,
}

impl<'c> ServerPools<'c> {
    /// Creates an empty collection that adds its pools to `config`. Howdah's own processes exit after `max_requests`.
    pub fn new(
        config: &'c mut TargetConfig,
        max_requests: Option<(u64, SourceLine)>,
    ) -> ServerPools<'c> {
        ServerPools {
            config,
            names: BTreeMap::new(),
            max_requests,
        }
    }

    /// Returns the name of the pool for a FastCGI address.
    pub fn of_address(
        &mut self,
        address: &str,
        place: &SourceLine,
        server: &ServerContext<'_>,
    ) -> String {
        if let Some(name) = self.names.get(address) {
            return name.clone();
        }
        let hint = pool::name_from_address(address);
        let addresses = vec![address.to_owned()];
        let (fpm, ledger) = (server.fpm, server.ledger);
        let name = pool::pool_for_addresses(addresses, &hint, place, fpm, self.config, ledger);
        self.names.insert(address.to_owned(), name.clone());
        name
    }

    /// Returns the name of the pool that runs PHP in Howdah's own processes, as this user. The line is the reason for
    /// the pool.
    pub fn embedded(&mut self, user: Option<&str>, line: Option<&Directive>) -> String {
        let key = format!("own {}", user.unwrap_or_default());
        if let Some(name) = self.names.get(&key) {
            return name.clone();
        }
        let mut table = TomlTable::default();
        if let Some(line) = line {
            table.comment(line.place.to_string());
        }
        table.set("mode", "embed", None);
        let hint = match user {
            Some(user) => {
                table.set("user", user, None);
                user.split(':').next().unwrap_or_default()
            }
            None => "www",
        };
        if let Some((requests, place)) = &self.max_requests {
            table.set("max_requests", *requests, Some(place));
        }
        let name = pool::free_name(&pool::name_from_address(hint), self.config);
        let pool = (name.clone(), table, BTreeMap::new());
        self.config.pools.push(pool);
        self.names.insert(key, name.clone());
        name
    }

    /// Returns the name of the pool of CGI programs.
    pub fn cgi(&mut self, line: &Directive) -> &'static str {
        let pools = &mut self.config.pools;
        if !pools.iter().any(|(name, ..)| name == CGI_POOL) {
            let mut table = TomlTable::default();
            table.comment(line.place.to_string());
            table.set("mode", "cgi", None);
            pools.push((CGI_POOL.to_owned(), table, BTreeMap::new()));
        }
        CGI_POOL
    }
}
