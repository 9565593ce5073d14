//! Determines which server responds at which addresses and for which names. Servers that only redirect to HTTPS become
//! `https_redirect` of the site that they lead to.

use super::listen;
use super::redirect::{self, NginxHttpsRedirect};
use super::scope::NginxScope;
use crate::directive::Directive;
use crate::hosting::{Hosting, SiteHosting};
use crate::ledger::ImportLedger;
use crate::listen::{SiteListen, remove_tls_without_certificate};

/// A `server` block with its addresses and names.
#[derive(Debug)]
pub struct NginxServer<'a> {
    /// The `server` directive.
    pub block: &'a Directive,
    /// The addresses of its `listen` lines.
    pub listens: Vec<SiteListen>,
    /// The names that it specifies, as Howdah writes them.
    names: Vec<String>,
    /// The line that redirects requests without TLS to HTTPS.
    pub https_redirect: Option<&'a Directive>,
    /// True if some address of the server has TLS.
    pub tls: bool,
    /// True if the server was merged into another one.
    is_merged: bool,
}

/// Returns all servers, the sites that they become, in order, and the addresses of the sites without their own.
pub fn assign_servers<'a>(
    blocks: &[&'a Directive],
    http: &NginxScope<'a>,
    ledger: &ImportLedger,
) -> (Vec<NginxServer<'a>>, Vec<SiteHosting>, Vec<SiteListen>) {
    let mut servers: Vec<NginxServer<'a>> = blocks
        .iter()
        .map(|block| parse_server(block, http, ledger))
        .collect();
    let claims: Vec<_> = servers
        .iter()
        .map(|server| (&server.names[..], &server.listens[..]))
        .collect();
    let (mut hosting, lost) = Hosting::new(&claims, &[]);
    for lost in lost {
        let need = lost.message(&servers[lost.owner].block.place);
        ledger.mark_missing(servers[lost.server].block.id, need);
    }
    merge_redirects(&mut servers, &mut hosting, ledger);
    for (at, server) in servers.iter().enumerate() {
        if !server.is_merged && !hosting.is_reached(at) {
            let place_of = |at: usize| &servers[at].block.place;
            let need = hosting.unreached_reason(at, server.names.is_empty(), place_of);
            list_block(server.block, &need, ledger);
        } else if !server.is_merged
            && let Some(remark) = hosting.widened_remark(&server.listens)
        {
            ledger.mark_different(server.block.id, remark);
        }
    }
    let (sites, common) = hosting.sites();
    for site in &sites {
        if let Some(remark) = site.default_remark(|at| &servers[at].block.place) {
            ledger.mark_different(servers[site.server].block.id, remark);
        }
    }
    (servers, sites, common)
}

fn parse_server<'a>(
    block: &'a Directive,
    http: &NginxScope<'a>,
    ledger: &ImportLedger,
) -> NginxServer<'a> {
    let mut listens = listen::server_addresses(block, ledger);
    let mut found_names = Vec::new();
    for names in block.inner().iter().filter(|d| d.name == "server_name") {
        ledger.mark_carried(names.id);
        for name in &names.args {
            match parse_host(name) {
                Ok(found) => found_names.extend(found),
                Err(need) => ledger.mark_missing(names.id, need),
            }
        }
    }
    let certificate = http.inner(block.inner()).last("ssl_certificate");
    let has_certificate = certificate.is_some();
    if let Some(need) = remove_tls_without_certificate(&mut listens, &found_names, has_certificate)
    {
        ledger.mark_missing(block.id, need);
    }
    NginxServer {
        block,
        tls: listens.iter().any(|listen| listen.tls),
        listens,
        names: found_names,
        https_redirect: None,
        is_merged: false,
    }
}

/// Translates a name: into one name, two for `.example.org`, or none for a name such as `_` or `*`.
fn parse_host(name: &str) -> Result<Vec<String>, String> {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let plain = |text: &str| {
        !text.is_empty()
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
            && !text.starts_with('.')
            && !text.contains("..")
    };
    if name.is_empty() || name == "_" || name == "*" || name.starts_with('$') {
        return Ok(Vec::new());
    }
    if let Some(rest) = name.strip_prefix("*.")
        && plain(rest)
    {
        return Ok(vec![name]);
    }
    if let Some(rest) = name.strip_prefix('.')
        && plain(rest)
    {
        return Ok(vec![rest.to_owned(), format!("*.{rest}")]);
    }
    let address = name.parse::<std::net::Ipv6Addr>();
    match (plain(&name), address) {
        (true, _) => Ok(vec![name]),
        (_, Ok(address)) => Ok(vec![format!("[{address}]")]),
        _ if name.starts_with('[') && name.ends_with(']') => Ok(vec![name]),
        _ => Err(format!(
            "`{}` cannot be a host: list the hosts, or write *.DOMAIN",
            name.escape_debug()
        )),
    }
}

/// Moves the names of servers without TLS that redirect to HTTPS to the servers with TLS.
fn merge_redirects(servers: &mut [NginxServer<'_>], hosting: &mut Hosting, ledger: &ImportLedger) {
    let is_secure = |at: &usize| servers[*at].tls && hosting.is_secure(*at);
    let secure: Vec<usize> = (0..servers.len()).filter(is_secure).collect();
    for at in 0..servers.len() {
        let Some(found) = redirect::find_https_redirect(servers[at].block) else {
            continue;
        };
        if servers[at].tls {
            // `if ($scheme = http)` redirects within the same server.
            if found.only_plain {
                servers[at].https_redirect = Some(found.line);
                record_redirect(&found, ledger);
            }
        } else if redirect::is_redirect_only(servers[at].block, &found) && hosting.is_reached(at) {
            match hosting.names(at) {
                names if names.is_empty() => {
                    merge_nameless_redirect(at, &found, &secure, servers, hosting, ledger);
                }
                names => {
                    merge_named_redirect(at, &names, &found, &secure, servers, hosting, ledger)
                }
            }
        }
    }
}

/// Merges a server without names that redirects to HTTPS into all servers with TLS.
fn merge_nameless_redirect<'a>(
    at: usize,
    found: &NginxHttpsRedirect<'a>,
    secure: &[usize],
    servers: &mut [NginxServer<'a>],
    hosting: &mut Hosting,
    ledger: &ImportLedger,
) {
    if !found.hosts.is_empty() {
        return;
    }
    let mut nameless = None;
    for &to in secure {
        servers[to].https_redirect = Some(found.line);
        hosting.add_addresses_of(to, at);
        if hosting.names(to).is_empty() {
            nameless = nameless.or(Some(to));
        }
    }
    if let Some(heir) = nameless {
        // Neither server has a name, as is common in containers: they become one site.
        remove_merged_server(at, heir, found, servers, hosting, ledger);
    }
}

/// Moves the names of a redirecting server to the servers that have them with TLS.
fn merge_named_redirect<'a>(
    at: usize,
    names: &[String],
    found: &NginxHttpsRedirect<'a>,
    secure: &[usize],
    servers: &mut [NginxServer<'a>],
    hosting: &mut Hosting,
    ledger: &ImportLedger,
) {
    let mut heir = None;
    for name in names {
        let has_it = |to: &usize| hosting.names(*to).contains(name);
        let Some(to) = secure.iter().copied().find(has_it) else {
            continue;
        };
        let leads = found.hosts.is_empty() || found.hosts.contains(name);
        // The server with TLS may redirect all clients to the same target.
        let end = servers[to].block.last("return");
        if !leads && end.is_none_or(|line| line.args != found.line.args) {
            continue;
        }
        if leads {
            servers[to].https_redirect = Some(found.line);
        }
        hosting.transfer_name(name, at, to);
        hosting.add_addresses_of(to, at);
        heir = heir.or(Some(to));
    }
    if let Some(heir) = heir
        && hosting.names(at).is_empty()
    {
        remove_merged_server(at, heir, found, servers, hosting, ledger);
    }
}

/// Removes a server that only redirects to HTTPS.
fn remove_merged_server(
    at: usize,
    heir: usize,
    found: &NginxHttpsRedirect<'_>,
    servers: &mut [NginxServer<'_>],
    hosting: &mut Hosting,
    ledger: &ImportLedger,
) {
    hosting.replace_by_heir(at, heir);
    servers[at].is_merged = true;
    record_redirect(found, ledger);
    record_merged_server(servers[at].block, ledger);
}

/// Records that the lines of a redirect to HTTPS are carried over.
fn record_redirect(found: &NginxHttpsRedirect<'_>, ledger: &ImportLedger) {
    for line in &found.lines {
        ledger.mark_carried(line.id);
    }
    if !redirect::keeps_the_path(found.line) {
        ledger.mark_different(found.line.id, "it redirects to the same path over HTTPS");
    }
}

/// Records the outcomes of the other lines of a server that only redirects.
fn record_merged_server(block: &Directive, ledger: &ImportLedger) {
    ledger.mark_carried(block.id);
    for location in block.inner().iter().filter(|d| d.name == "location") {
        let challenge = location
            .args
            .iter()
            .any(|arg| arg.contains("acme-challenge"));
        if challenge {
            let need = "authorities follow the redirect to HTTPS, so the directory of challenges must be below the root of that site (ln -s); without [[site.certificate]], Howdah orders certificates by itself";
            list_block(location, need, ledger);
        } else if !ledger.has_outcome(location.id) {
            list_block(
                location,
                "the server redirects everything to HTTPS here",
                ledger,
            );
        }
    }
    block.walk(&mut |d| {
        if !ledger.has_outcome(d.id) {
            ledger.mark_irrelevant(
                d.id,
                "the server only redirects to HTTPS, as `https_redirect` does",
            );
        }
    });
}

/// Puts a block with everything in it on the list.
pub fn list_block(block: &Directive, need: &str, ledger: &ImportLedger) {
    ledger.mark_missing(block.id, need);
    for inner in block.inner() {
        inner.walk(&mut |d| {
            let moot = super::known::irrelevant_reason(d);
            match moot {
                Some(why) => ledger.mark_irrelevant(d.id, why),
                None => ledger.mark_missing(d.id, "its block is not carried over"),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_names_are_translated_or_refused() {
        assert_eq!(parse_host("_"), Ok(vec![]));
        assert_eq!(
            parse_host(".x.org"),
            Ok(vec!["x.org".into(), "*.x.org".into()])
        );
        assert_eq!(parse_host("WWW.x.org"), Ok(vec!["www.x.org".into()]));
        assert_eq!(parse_host("2001:db8::1"), Ok(vec!["[2001:db8::1]".into()]));
        assert!(parse_host("~^www\\d+").is_err() && parse_host("mail.*").is_err());
    }
}
