//! Translates `set_real_ip_from`, which names the proxies in front of the server, into `[trusted_proxies]`, which
//! applies to all sites.

use super::NginxContext;
use crate::directive::Directive;
use crate::network::parse_network;
use crate::target::TomlValue;

/// Translates the lines of `http` and of all its servers.
pub fn write_trusted_proxies(directives: &[Directive], context: &mut NginxContext<'_>) {
    let ledger = context.ledger;
    let mut lines = Vec::new();
    for directive in directives {
        directive.walk(&mut |d| lines.push(d));
    }
    let of = |name: &'static str| lines.iter().filter(move |d| d.name == name);
    let fields: Vec<_> = of("real_ip_header").collect();
    let field = fields.last().map_or("x-real-ip", |line| line.arg(0));
    let field = field.to_ascii_lowercase();
    // Howdah uses the address of a PROXY header without further configuration.
    let known = matches!(field.as_str(), "x-forwarded-for" | "proxy_protocol");
    let mut networks: Vec<String> = Vec::new();
    for line in of("set_real_ip_from") {
        let network = match line.arg(0) {
            "unix:" => Some("unix".to_owned()),
            text => parse_network(text),
        };
        let Some(network) = network else {
            let need = "`networks` in [trusted_proxies] can contain only addresses and networks";
            ledger.mark_missing_protection(line.id, need);
            continue;
        };
        if !known {
            let need = format!(
                "[trusted_proxies] reads X-Forwarded-For or Forwarded, not {field}: let the proxy send one of these headers; \
                 until then, every client has the proxy's address"
            );
            ledger.mark_missing_protection(line.id, need);
            continue;
        }
        ledger.mark_different(
            line.id,
            "Howdah also trusts X-Forwarded-Proto of these proxies",
        );
        if !networks.contains(&network) {
            networks.push(network);
        }
    }
    for line in of("real_ip_header").chain(of("real_ip_recursive")) {
        match known {
            true => ledger.mark_carried(line.id),
            false => ledger.mark_missing(line.id, "use `header` in [trusted_proxies]"),
        }
    }
    let takes_proxy_headers =
        |d: &&Directive| d.name == "listen" && d.args.iter().any(|a| a == "proxy_protocol");
    if networks.is_empty()
        && let Some(line) = lines.iter().copied().find(takes_proxy_headers)
    {
        const NEAR: &[&str] = &[
            "127.0.0.0/8",
            "::1/128",
            "10.0.0.0/8",
            "172.16.0.0/12",
            "192.168.0.0/16",
            "fc00::/7",
        ];
        networks.extend(NEAR.iter().map(|n| (*n).to_owned()));
        let need = "name the load balancer in [trusted_proxies]: until then, Howdah trusts all private networks";
        ledger.mark_missing(line.id, need);
    }
    if !networks.is_empty() {
        let table = context.config.section("trusted_proxies");
        table.set("networks", TomlValue::Texts(networks), None);
    }
}
