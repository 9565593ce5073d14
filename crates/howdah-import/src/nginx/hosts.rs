//! Which server answers for which name: nginx chooses by address and name, Howdah by name alone. Servers
//! that only redirect to HTTPS become `https_redirect` of the site that they lead to.

use std::collections::HashMap;

use super::listen;
use super::redirect::{self, ToHttps};
use crate::directive::Directive;
use crate::ledger::Ledger;
use crate::listen::Listen;

/// A `server` block.
#[derive(Debug)]
pub struct Server<'a> {
    /// The block itself.
    pub block: &'a Directive,
    /// Addresses and ports of its `listen` lines.
    pub listens: Vec<Listen>,
    /// The names that it keeps, as Howdah writes them.
    pub hosts: Vec<String>,
    /// It answers for other names as well.
    pub is_default: bool,
    /// Its requests without TLS are redirected to HTTPS by this line.
    pub https_redirect: Option<&'a Directive>,
    /// Some connection to it is encrypted.
    pub tls: bool,
    /// Nothing is left of it.
    pub is_gone: bool,
}

/// All servers, the default one first.
pub fn servers<'a>(blocks: &[&'a Directive], ledger: &Ledger) -> Vec<Server<'a>> {
    let mut servers: Vec<Server<'a>> = blocks.iter().map(|block| server(block, ledger)).collect();
    keep_encrypted(&mut servers, ledger);
    merge_redirects(&mut servers, ledger);
    give_names(&mut servers, ledger);
    let explicit = servers
        .iter()
        .position(|s| !s.is_gone && s.listens.iter().any(|l| l.default && l.tls))
        .or_else(|| {
            let default = |s: &Server<'_>| !s.is_gone && s.listens.iter().any(|l| l.default);
            servers.iter().position(default)
        });
    let first = explicit.or_else(|| servers.iter().position(|server| !server.is_gone));
    // Of several without a name the one with TLS is kept, as of several with the same name.
    let nameless = |s: &Server<'_>| !s.is_gone && s.hosts.is_empty();
    let first = first.map(|first| match nameless(&servers[first]) {
        true => servers
            .iter()
            .position(|s| nameless(s) && s.tls)
            .unwrap_or(first),
        false => first,
    });
    if let Some(first) = first {
        servers[first].is_default = true;
        let default = servers.remove(first);
        servers.insert(0, default);
    }
    for server in &mut servers {
        if !server.is_gone && !server.is_default && server.hosts.is_empty() {
            server.is_gone = true;
            let need = "no request reaches it here: sites are chosen by name alone, not by address or port; a second Howdah can serve it";
            list_all(server.block, need, ledger);
        }
    }
    servers.retain(|server| !server.is_gone);
    servers
}

fn server<'a>(block: &'a Directive, ledger: &Ledger) -> Server<'a> {
    let listens = listen::of_server(block, ledger);
    let mut hosts = Vec::new();
    for names in block.inner().iter().filter(|d| d.name == "server_name") {
        ledger.carried(names.id);
        for name in &names.args {
            match host(name) {
                Ok(found) => hosts.extend(found),
                Err(need) => ledger.list(names.id, need),
            }
        }
    }
    Server {
        block,
        tls: listens.iter().any(|listen| listen.tls),
        listens,
        hosts,
        is_default: false,
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

/// What only addresses with TLS serve is not served without it: Howdah's sites answer at every address.
fn keep_encrypted(servers: &mut [Server<'_>], ledger: &Ledger) {
    let is_plain = |server: &&Server<'_>| server.listens.iter().any(|listen| !listen.tls);
    let plain = servers.iter().filter(is_plain);
    let plain: Vec<Vec<String>> = plain.map(|server| server.hosts.clone()).collect();
    if plain.is_empty() {
        return;
    }
    let meets = |hosts: &[String]| match hosts.is_empty() {
        true => plain.iter().any(Vec::is_empty),
        false => plain.iter().flatten().any(|host| hosts.contains(host)),
    };
    for server in servers.iter_mut().filter(|server| !is_plain(&&**server)) {
        if let Some(line) = server
            .block
            .last("listen")
            .filter(|_| !meets(&server.hosts))
        {
            server.https_redirect = Some(line);
            let remark = "it has no address without TLS: there the client is redirected to HTTPS";
            ledger.remark(server.block.id, remark);
        }
    }
}

/// Names of servers without TLS that lead to HTTPS go to the server with TLS.
fn merge_redirects(servers: &mut [Server<'_>], ledger: &Ledger) {
    let secure: HashMap<String, usize> = servers
        .iter()
        .enumerate()
        .filter(|(_, server)| server.tls)
        .flat_map(|(at, server)| server.hosts.iter().map(move |host| (host.clone(), at)))
        .collect();
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
            continue;
        }
        let leads = |host: &str| {
            let same = found.hosts.is_empty() || found.hosts.iter().any(|h| h == host);
            same.then(|| secure.get(host).copied()).flatten()
        };
        let hosts = servers[at].hosts.clone();
        let mut targets: Vec<Option<usize>> = hosts.iter().map(|host| leads(host)).collect();
        for target in targets.iter().flatten() {
            servers[*target].https_redirect = Some(found.line);
        }
        // The server with TLS sends everybody on to the same place.
        for (host, target) in hosts.iter().zip(&mut targets) {
            let same = |at: &usize| {
                servers[*at]
                    .block
                    .last("return")
                    .is_some_and(|line| line.args == found.line.args)
            };
            *target = target.or_else(|| secure.get(host).copied().filter(same));
        }
        let kept = hosts
            .iter()
            .zip(&targets)
            .filter(|(_, target)| target.is_none());
        let kept: Vec<String> = kept.map(|(host, _)| host.clone()).collect();
        let is_catch_all = hosts.is_empty() && found.hosts.is_empty();
        if is_catch_all {
            for server in servers.iter_mut().filter(|server| server.tls) {
                server.https_redirect = Some(found.line);
            }
            let nameless = |server: &Server<'_>| server.tls && server.hosts.is_empty();
            if servers.iter().any(nameless) {
                // Neither has a name, as is usual in containers: they are one site.
                servers[at].is_gone = true;
                settle(&found, ledger);
                settle_server(servers[at].block, ledger);
            }
        } else if kept.is_empty() && !hosts.is_empty() {
            servers[at].is_gone = true;
            settle(&found, ledger);
            settle_server(servers[at].block, ledger);
        }
        servers[at].hosts = kept;
    }
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

/// Each name belongs to the first server that has it, as under nginx; with TLS first, since Howdah does
/// not choose by port.
fn give_names(servers: &mut [Server<'_>], ledger: &Ledger) {
    let mut taken: HashMap<String, usize> = HashMap::new();
    let mut order: Vec<usize> = (0..servers.len()).collect();
    order.sort_by_key(|at| !servers[*at].tls);
    for at in order {
        if servers[at].is_gone {
            continue;
        }
        let had = !servers[at].hosts.is_empty();
        let mut kept = Vec::new();
        for host in std::mem::take(&mut servers[at].hosts) {
            match taken.get(&host) {
                Some(other) if *other != at => {
                    let by = servers[*other].block.place.clone();
                    let need = format!(
                        "{host} is served as {by} says: sites are chosen by name, not by address or port; a second Howdah can serve this one"
                    );
                    ledger.list(servers[at].block.id, need);
                }
                Some(_) => {}
                None => {
                    taken.insert(host.clone(), at);
                    kept.push(host);
                }
            }
        }
        servers[at].is_gone = had && kept.is_empty();
        servers[at].hosts = kept;
        if servers[at].is_gone {
            list_all(servers[at].block, "its server is not carried over", ledger);
        }
    }
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
