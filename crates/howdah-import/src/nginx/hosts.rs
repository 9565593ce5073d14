//! Which server answers where and for which names. Servers that only redirect to HTTPS become
//! `https_redirect` of the site that they lead to.

use super::listen;
use super::redirect::{self, ToHttps};
use super::scope::Scope;
use crate::directive::Directive;
use crate::hosting::{Answers, Hosting};
use crate::ledger::Ledger;
use crate::listen::{Listen, close_without_certificate};

/// A `server` block.
#[derive(Debug)]
pub struct Server<'a> {
    /// The block itself.
    pub block: &'a Directive,
    /// Addresses and ports of its `listen` lines.
    pub listens: Vec<Listen>,
    /// The names that it says, as Howdah writes them.
    names: Vec<String>,
    /// Its requests without TLS are redirected to HTTPS by this line.
    pub https_redirect: Option<&'a Directive>,
    /// Some connection to it is encrypted.
    pub tls: bool,
    /// Nothing is left of it.
    is_gone: bool,
}

/// All servers, the sites that they become, in order, and the addresses of those without their own.
pub fn servers<'a>(
    blocks: &[&'a Directive],
    http: &Scope<'a>,
    ledger: &Ledger,
) -> (Vec<Server<'a>>, Vec<Answers>, Vec<Listen>) {
    let mut servers: Vec<Server<'a>> = blocks
        .iter()
        .map(|block| server(block, http, ledger))
        .collect();
    let claims: Vec<_> = servers
        .iter()
        .map(|server| (&server.names[..], &server.listens[..]))
        .collect();
    let (mut hosting, lost) = Hosting::new(&claims, &[]);
    for lost in lost {
        let need = lost.need(&servers[lost.by].block.place);
        ledger.list(servers[lost.server].block.id, need);
    }
    merge_redirects(&mut servers, &mut hosting, ledger);
    for (at, server) in servers.iter().enumerate() {
        if !server.is_gone && !hosting.is_reached(at) {
            let place_of = |at: usize| &servers[at].block.place;
            let need = hosting.why_unreached(at, server.names.is_empty(), place_of);
            list_all(server.block, &need, ledger);
        } else if !server.is_gone
            && let Some(remark) = hosting.widened(&server.listens)
        {
            ledger.remark(server.block.id, remark);
        }
    }
    let (sites, common) = hosting.sites();
    for site in &sites {
        if let Some(remark) = site.remark(|at| &servers[at].block.place) {
            ledger.remark(servers[site.server].block.id, remark);
        }
    }
    (servers, sites, common)
}

fn server<'a>(block: &'a Directive, http: &Scope<'a>, ledger: &Ledger) -> Server<'a> {
    let mut listens = listen::of_server(block, ledger);
    let mut found_names = Vec::new();
    for names in block.inner().iter().filter(|d| d.name == "server_name") {
        ledger.carried(names.id);
        for name in &names.args {
            match host(name) {
                Ok(found) => found_names.extend(found),
                Err(need) => ledger.list(names.id, need),
            }
        }
    }
    let certificate = http.inner(block.inner()).one("ssl_certificate");
    let has_certificate = certificate.is_some();
    if let Some(need) = close_without_certificate(&mut listens, &found_names, has_certificate) {
        ledger.list(block.id, need);
    }
    Server {
        block,
        tls: listens.iter().any(|listen| listen.tls),
        listens,
        names: found_names,
        https_redirect: None,
        is_gone: false,
    }
}

/// A name as Howdah writes it: one, two for `.example.org`, or none for a name such as `_` or `*`.
fn host(name: &str) -> Result<Vec<String>, String> {
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
            "`{}`: name the hosts, or *.DOMAIN",
            name.escape_debug()
        )),
    }
}

/// Names of servers without TLS that lead to HTTPS go to the server with TLS.
fn merge_redirects(servers: &mut [Server<'_>], hosting: &mut Hosting, ledger: &Ledger) {
    let is_secure = |at: &usize| servers[*at].tls && hosting.is_secure(*at);
    let secure: Vec<usize> = (0..servers.len()).filter(is_secure).collect();
    for at in 0..servers.len() {
        let Some(found) = redirect::to_https(servers[at].block) else {
            continue;
        };
        if servers[at].tls {
            // `if ($scheme = http)`: of the server itself.
            if found.only_plain {
                servers[at].https_redirect = Some(found.line);
                settle(&found, ledger);
            }
        } else if redirect::is_all(servers[at].block, &found) && hosting.is_reached(at) {
            match hosting.names(at) {
                names if names.is_empty() => {
                    lead_all(at, &found, &secure, servers, hosting, ledger);
                }
                names => lead_names(at, &names, &found, &secure, servers, hosting, ledger),
            }
        }
    }
}

/// A server without names leads to HTTPS: to all servers that are there alone.
fn lead_all<'a>(
    at: usize,
    found: &ToHttps<'a>,
    secure: &[usize],
    servers: &mut [Server<'a>],
    hosting: &mut Hosting,
    ledger: &Ledger,
) {
    if !found.hosts.is_empty() {
        return;
    }
    let mut nameless = None;
    for &to in secure {
        servers[to].https_redirect = Some(found.line);
        hosting.join(to, at);
        if hosting.names(to).is_empty() {
            nameless = nameless.or(Some(to));
        }
    }
    if let Some(heir) = nameless {
        // Neither has a name, as is usual in containers: they are one site.
        leave(at, heir, found, servers, hosting, ledger);
    }
}

/// The names of a server lead to the servers that have them by HTTPS.
fn lead_names<'a>(
    at: usize,
    names: &[String],
    found: &ToHttps<'a>,
    secure: &[usize],
    servers: &mut [Server<'a>],
    hosting: &mut Hosting,
    ledger: &Ledger,
) {
    let mut heir = None;
    for name in names {
        let has_it = |to: &usize| hosting.names(*to).contains(name);
        let Some(to) = secure.iter().copied().find(has_it) else {
            continue;
        };
        let leads = found.hosts.is_empty() || found.hosts.contains(name);
        // The server with TLS may send everybody on to the same place.
        let end = servers[to].block.last("return");
        if !leads && end.is_none_or(|line| line.args != found.line.args) {
            continue;
        }
        if leads {
            servers[to].https_redirect = Some(found.line);
        }
        hosting.hand_over(name, at, to);
        hosting.join(to, at);
        heir = heir.or(Some(to));
    }
    if let Some(heir) = heir
        && hosting.names(at).is_empty()
    {
        leave(at, heir, found, servers, hosting, ledger);
    }
}

/// Nothing is left of a server that redirects to HTTPS.
fn leave(
    at: usize,
    heir: usize,
    found: &ToHttps<'_>,
    servers: &mut [Server<'_>],
    hosting: &mut Hosting,
    ledger: &Ledger,
) {
    hosting.leave(at, heir);
    servers[at].is_gone = true;
    settle(found, ledger);
    settle_server(servers[at].block, ledger);
}

/// The lines that make a redirect to HTTPS are carried over.
fn settle(found: &ToHttps<'_>, ledger: &Ledger) {
    for line in &found.lines {
        ledger.carried(line.id);
    }
    if !redirect::keeps_the_path(found.line) {
        ledger.remark(found.line.id, "to the same path by HTTPS");
    }
}

/// The rest of a server that only redirects serves nothing.
fn settle_server(block: &Directive, ledger: &Ledger) {
    ledger.carried(block.id);
    for location in block.inner().iter().filter(|d| d.name == "location") {
        let challenge = location
            .args
            .iter()
            .any(|arg| arg.contains("acme-challenge"));
        if challenge {
            let need = "authorities follow the redirect to HTTPS: the directory of challenges must be below that site's root (ln -s); or leave [[site.certificate]] out, and Howdah orders certificates by itself";
            list_all(location, need, ledger);
        } else if !ledger.is_settled(location.id) {
            list_all(
                location,
                "its server redirects everything to HTTPS here",
                ledger,
            );
        }
    }
    block.walk(&mut |d| {
        if !ledger.is_settled(d.id) {
            ledger.moot(d.id, "its server only redirects to HTTPS: https_redirect");
        }
    });
}

/// Everything in a block is on the list.
pub fn list_all(block: &Directive, need: &str, ledger: &Ledger) {
    ledger.list(block.id, need);
    for inner in block.inner() {
        inner.walk(&mut |d| {
            let moot = super::known::moot(d);
            match moot {
                Some(why) => ledger.moot(d.id, why),
                None => ledger.list(d.id, "its block is not carried over"),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_hosts_or_said_not_to_be() {
        assert_eq!(host("_"), Ok(vec![]));
        assert_eq!(host(".x.org"), Ok(vec!["x.org".into(), "*.x.org".into()]));
        assert_eq!(host("WWW.x.org"), Ok(vec!["www.x.org".into()]));
        assert_eq!(host("2001:db8::1"), Ok(vec!["[2001:db8::1]".into()]));
        assert!(host("~^www\\d+").is_err() && host("mail.*").is_err());
    }
}
