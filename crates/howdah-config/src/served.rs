//! Turns checked settings into the opened sites and the settings of the front. It is used by a process that serves, and
//! by one that explains what a server would do.

use std::sync::Arc;

use howdah_executor::{PhpProgram, PoolMode};
use howdah_server::admin::StatusPage;
use howdah_server::server_config::FrontSettings;
use howdah_site::site::{ConfigError, Site, SiteConfig, Sites};

use super::ServeSettings;
use super::directory_access::closed_to_this_process;

impl ServeSettings {
    /// Returns the PHP programs that pools need, each once.
    pub fn php_programs(&self) -> Vec<&PhpProgram> {
        let mut programs: Vec<&PhpProgram> = self
            .pools
            .iter()
            .filter_map(PoolMode::php_program)
            .collect();
        programs.sort_unstable();
        programs.dedup();
        programs
    }

    /// Opens the sites' directories, to serve them.
    pub fn open_sites(&self) -> Result<Sites, Vec<String>> {
        self.read_trusted_proxies().map_err(|why| vec![why])?;
        self.open_sites_with(Site::new)
    }

    /// Reads the file of `trusted_proxies`. Until then, no network of that file is trusted.
    pub fn read_trusted_proxies(&self) -> Result<(), String> {
        let file = self.trusted_proxies.file.as_ref();
        let read = file.map_or(Ok(()), |file| file.read());
        read.map_err(|why| format!("trusted_proxies: {why}"))
    }

    /// Opens each site with the given function of [`Site`].
    pub fn open_sites_with(
        &self,
        open: fn(SiteConfig, u32) -> Result<Site, Vec<ConfigError>>,
    ) -> Result<Sites, Vec<String>> {
        let mut sites = Vec::new();
        let mut errors = Vec::new();
        for (number, config) in self.sites.iter().enumerate() {
            match open(config.clone(), number as u32) {
                Ok(site) => sites.push(Arc::new(site)),
                Err(list) => {
                    let errors_of_site = list
                        .iter()
                        .map(|error| format!("site `{}`: {error}", config.name));
                    errors.extend(errors_of_site);
                    let closed = closed_root(config);
                    errors.extend(closed.map(|closed| format!("DirectoryUnreadable: {closed}")));
                }
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let common = self.common_listeners.clone();
        Sites::new(sites, common).map_err(|list| list.iter().map(ToString::to_string).collect())
    }

    /// Returns the settings of the front besides sites and pools. `tls_ports` are the ports of the addresses with TLS,
    /// in order.
    pub fn front_settings(&self, tls_ports: impl Iterator<Item = u16>) -> FrontSettings {
        FrontSettings {
            https_port: https_port(tls_ports),
            trusted_proxies: self.trusted_proxies.clone(),
            encoding: self.encoding.clone(),
            status: self.status.path.clone().map(|path| StatusPage {
                path,
                allow: self.status.allow.clone(),
            }),
            buffers: self.server.buffers.clone(),
            cache_memory: self.cache_memory,
            release: self.release.clone(),
        }
    }
}

/// Returns the port that redirects to HTTPS lead to: 443 if it is among the ports, or else the first one.
pub fn https_port(mut ports: impl Iterator<Item = u16>) -> u16 {
    let first = ports.next().unwrap_or(443);
    match ports.any(|port| port == 443) {
        true => 443,
        false => first,
    }
}

/// Returns which directory keeps this process from the root of a site.
pub fn closed_root(site: &SiteConfig) -> Option<String> {
    let closed = closed_to_this_process(&site.root)?;
    Some(format!("site `{}`: {closed}", site.name))
}
