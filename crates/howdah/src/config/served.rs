//! What becomes of checked settings in a process that serves, or explains what one would: the sites, opened,
//! and the settings of the front.

use std::path::Path;
use std::sync::Arc;

use howdah_executor::Mode;
use howdah_server::admin::StatusPage;
use howdah_server::server_config::FrontSettings;
use howdah_server::site::{ConfigError, Site, SiteConfig, Sites};

use super::Settings;

impl Settings {
    /// The `howdah-php` programs that pools need, each once.
    pub fn howdah_php(&self) -> Vec<&Path> {
        let mut programs: Vec<&Path> = self.pools.iter().filter_map(Mode::howdah_php).collect();
        programs.sort_unstable();
        programs.dedup();
        programs
    }

    /// Opens the sites' directories: what is served by.
    pub fn open_sites(&self) -> Result<Sites, Vec<String>> {
        self.open_sites_by(Site::new)
    }

    /// Opens each site by a function of [`Site`].
    pub fn open_sites_by(
        &self,
        open: fn(SiteConfig, u32) -> Result<Site, Vec<ConfigError>>,
    ) -> Result<Sites, Vec<String>> {
        let mut sites = Vec::new();
        let mut errors = Vec::new();
        for (number, config) in self.sites.iter().enumerate() {
            match open(config.clone(), number as u32) {
                Ok(site) => sites.push(Arc::new(site)),
                Err(list) => errors.extend(
                    list.iter()
                        .map(|error| format!("site `{}`: {error}", config.name)),
                ),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let common = self.common_listeners.clone();
        Sites::new(sites, common).map_err(|list| list.iter().map(ToString::to_string).collect())
    }

    /// What the front needs beside sites and pools, as far as a configuration says it. The rest is blank:
    /// logs, traces, pages on disk, and what a front keeps over reloads. `tls_ports` are those of the
    /// addresses with TLS, in order.
    pub fn front_settings(&self, tls_ports: impl Iterator<Item = u16>) -> FrontSettings {
        FrontSettings {
            https_port: https_port(tls_ports),
            trusted_proxies: self.trusted_proxies.clone(),
            encoding: self.encoding.clone(),
            status: self.status.path.clone().map(|path| StatusPage {
                path,
                allow: self.status.allow.clone(),
            }),
            access_log: None,
            traces: None,
            buffers: self.server.buffers.clone(),
            spill_room: Arc::default(),
            cache_memory: self.cache_memory,
            cache_disk: None,
            closed_cache_disk: None,
            limiter: Arc::default(),
            challenges: Arc::default(),
            carried_generations: Arc::default(),
            successor: Arc::default(),
            fleet: None,
            release: None,
        }
    }
}

/// Where redirects to HTTPS lead: the usual port, if it is one of those.
pub fn https_port(mut ports: impl Iterator<Item = u16>) -> u16 {
    let first = ports.next().unwrap_or(443);
    match ports.any(|port| port == 443) {
        true => 443,
        false => first,
    }
}
