//! Addresses that the switch does not take over: those of HTTP/3 (UDP), and Unix sockets. They are removed from Howdah's
//! configuration, because Howdah does not start while another program has them.

use std::net::SocketAddr;
use std::path::Path;

use howdah_import::target::{TomlTable, TomlValue};

use super::combination::CombinedConfiguration;
use super::findings::{Findings, finding};
use super::imports::texts;
use super::sockets::ListeningSockets;
use crate::plan::{Finding, HTTP3_NOT_SWITCHED, Severity};

const UNIX_SOCKET_NOT_SWITCHED: &str = "UnixSocketNotSwitched";

/// Removes these addresses, with a finding for each. A site without another address keeps them, and prevents the switch.
pub fn remove(
    all: &mut CombinedConfiguration,
    sockets: &ListeningSockets,
    findings: &mut Findings,
) {
    let keeps_an_address = |listens: &[String]| {
        let mut kept = listens.iter().filter_map(|listen| kept(listen, sockets));
        listens.is_empty() || kept.next().is_some()
    };
    let top = texts(&all.config.top, "listen").to_vec();
    if keeps_an_address(&top) {
        set(&mut all.config.top, &top, sockets);
    }
    for (table, site) in all.config.sites.iter_mut().zip(&mut all.sites) {
        if !keeps_an_address(&site.listens) {
            findings.push(without_other_address(&site.listens).of_site(&site.name));
            continue;
        }
        for listen in &site.listens {
            if let Some(found) = report(listen, &site.name, sockets) {
                findings.push(found);
            }
        }
        let own = texts(&table.table, "listen").to_vec();
        set(&mut table.table, &own, sockets);
        let listens = site.listens.iter();
        site.listens = listens.filter_map(|listen| kept(listen, sockets)).collect();
    }
}

/// Sets the addresses of a table that remain, if some do not.
fn set(table: &mut TomlTable, listens: &[String], sockets: &ListeningSockets) {
    let remaining = listens.iter().filter_map(|listen| kept(listen, sockets));
    let remaining: Vec<String> = remaining.collect();
    if remaining != listens {
        table.set("listen", TomlValue::Texts(remaining), None);
    }
}

/// Returns what remains of a value of `listen`.
fn kept(listen: &str, sockets: &ListeningSockets) -> Option<String> {
    if is_taken_unix_socket(listen, sockets) {
        return None;
    }
    match taken_udp_address(listen, sockets) {
        Some(_) => {
            let words = listen.split_whitespace().filter(|word| *word != "http3");
            Some(words.collect::<Vec<_>>().join(" "))
        }
        None => Some(listen.to_owned()),
    }
}

fn is_taken_unix_socket(listen: &str, sockets: &ListeningSockets) -> bool {
    let address = listen.split_whitespace().next().unwrap_or_default();
    let path = address.strip_prefix("unix:");
    path.is_some_and(|path| sockets.has_unix(Path::new(path)))
}

/// Returns the address of HTTP/3, if a program has it.
fn taken_udp_address(listen: &str, sockets: &ListeningSockets) -> Option<SocketAddr> {
    let mut words = listen.split_whitespace();
    let address: SocketAddr = words.next()?.parse().ok()?;
    let is_taken = words.any(|word| word == "http3") && sockets.has_udp(address);
    is_taken.then_some(address)
}

fn report(listen: &str, site: &str, sockets: &ListeningSockets) -> Option<Finding> {
    if is_taken_unix_socket(listen, sockets) {
        let message = format!(
            "the switch takes over only TCP addresses: the clients of {listen} stay with the old server"
        );
        let remedy = "Let them connect to a TCP address of the site, such as 127.0.0.1:8081, before the old server is stopped.";
        return Some(
            finding(Severity::Risk, UNIX_SOCKET_NOT_SWITCHED, message, remedy).of_site(site),
        );
    }
    let address = taken_udp_address(listen, sockets)?;
    Some(finding(
        Severity::Risk,
        HTTP3_NOT_SWITCHED,
        format!(
            "the switch takes over only TCP addresses: HTTP/3 at {address} (UDP) stays with the program that has this port, and Howdah offers HTTP/2 there"
        ),
        "After the switch, when the old server has been stopped, add `http3` to this address in `listen`, and run `howdah reload`.",
    ))
}

fn without_other_address(listens: &[String]) -> Finding {
    finding(
        Severity::Blocks,
        UNIX_SOCKET_NOT_SWITCHED,
        format!(
            "the switch takes over only TCP addresses, and this site responds only at {}",
            listens.join(", ")
        ),
        "Give the site a TCP address in the old configuration, such as 127.0.0.1:8081, reload the old server, let the clients of the socket connect to that address, and make the plan again.",
    )
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::unix::net::UnixListener;

    use howdah_test_support::scratch::Scratch;

    use super::*;

    #[test]
    fn only_addresses_that_a_program_has_are_removed() {
        let scratch = Scratch::new("unswitched");
        let socket = scratch.join("web.sock");
        let _unix = UnixListener::bind(&socket).unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (address, path) = (udp.local_addr().unwrap(), socket.display());
        let sockets = ListeningSockets::read();
        let check = |listen: String, expected: Option<String>| {
            assert_eq!(kept(&listen, &sockets), expected, "{listen}");
            let is_reported = report(&listen, "a.test", &sockets).is_some();
            assert_eq!(is_reported, expected != Some(listen));
        };
        check(
            format!("{address} tls http3"),
            Some(format!("{address} tls")),
        );
        let wildcard = format!("0.0.0.0:{} tls", address.port());
        check(format!("{wildcard} http3"), Some(wildcard));
        let tcp = format!("{address} tls");
        check(tcp.clone(), Some(tcp));
        check(format!("unix:{path}"), None);
        let free = format!("unix:{path}.free");
        check(free.clone(), Some(free));
        drop(udp);
        let http3 = format!("{address} tls http3");
        assert_eq!(kept(&http3, &ListeningSockets::read()), Some(http3));
    }
}
