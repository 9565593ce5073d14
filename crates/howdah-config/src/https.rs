//! Advice about sites that look as if they had HTTPS, but are served without it.

use std::net::SocketAddr;

use howdah_acme::names;
use howdah_http::listener::ListenAddress;
use howdah_site::client_address::TrustedProxies;
use howdah_site::site::SiteConfig;
use howdah_site::site::config::HostPattern;

use super::ListenSettings;
use super::reader::ConfigSection;

/// Adds advice if no address has TLS although sites have public hosts, or options that are for HTTPS. A proxy that is
/// named in `[trusted_proxies]` may handle TLS.
pub fn advise_of_missing_tls(
    top: &ConfigSection<'_>,
    listen: &[ListenSettings],
    proxies: &TrustedProxies,
    sites: &[SiteConfig],
) {
    let has_proxy = proxies.unix || !proxies.networks.is_empty();
    if has_proxy || listen.iter().any(|listen| listen.tls) {
        return;
    }
    let instead = "append `tls` to an address, as in listen = [\"0.0.0.0:443 tls\", \"0.0.0.0:80\"], or name the proxy that handles TLS in [trusted_proxies]";
    for site in sites {
        let option = match (site.https_redirect, &site.hsts) {
            (true, _) => "https_redirect",
            (false, Some(_)) => "hsts",
            (false, None) => continue,
        };
        let message = format!(
            "NoHttps: site `{}` has `{option}`, but no address has `tls`; {instead}",
            site.name
        );
        top.file().advise(top.place_of("listen"), message);
    }
    let is_reachable = |listen: &ListenSettings| match &listen.address {
        ListenAddress::Tcp(address) => is_public(address),
        ListenAddress::Unix { .. } => false,
    };
    let host = sites
        .iter()
        .flat_map(|site| &site.hosts)
        .find_map(|host| match host {
            HostPattern::Exact(name) if !names::needs_local_authority(name) => Some(name),
            _ => None,
        });
    if let Some(host) = host.filter(|_| listen.iter().any(is_reachable)) {
        let message = format!(
            "NoHttps: {host} is served without encryption, because no address has `tls`; {instead}"
        );
        top.file().advise(top.place_of("listen"), message);
    }
}

/// Returns whether other machines can reach this address.
fn is_public(address: &SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}
