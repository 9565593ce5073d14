//! Findings about addresses: those of sites at which no server listens, and those of servers that no site has.

use std::net::SocketAddr;

use super::super::addresses::{parse_listen, receives, serving_sockets};
use super::super::combination::CombinedConfiguration;
use super::super::imports::ServerImport;
use super::super::processes::Processes;
use super::super::servers::{FoundServer, kind_of_master};
use super::super::sockets::{ListeningSockets, socket_inodes};
use super::{Findings, finding};
use crate::plan::{ListenAddress, ServerKind, Severity};

/// Adds the findings about the addresses of all sites and servers.
pub fn report(
    all: &CombinedConfiguration,
    imports: &[ServerImport],
    servers: &[FoundServer],
    processes: &Processes,
    sockets: &ListeningSockets,
    findings: &mut Findings,
) {
    let used = used_addresses(all, imports);
    for (own, address) in &used {
        let server = &servers[*own];
        if !serving_sockets(&server.server, *address).is_empty()
            || server.server.listeners.is_empty()
        {
            continue;
        }
        let owner = sockets
            .tcp()
            .find(|(socket, _)| receives(*socket, *address) || receives(*address, *socket));
        match owner {
            Some((_, inode)) => report_taken(*address, &owner_of(inode, processes), findings),
            None => findings.add(
                Severity::Risk,
                "AddressNotServed",
                format!(
                    "the configuration of {} has sites at {address}, where it does not listen now",
                    server.display()
                ),
                "Reload the server if its configuration has changed. Howdah will listen on this address.",
            ),
        }
    }
    report_unused(&used, servers, findings);
    report_others(servers, processes, sockets, findings);
}

/// Returns the addresses of sites, each with the index of the server that serves the site.
fn used_addresses(
    all: &CombinedConfiguration,
    imports: &[ServerImport],
) -> Vec<(usize, SocketAddr)> {
    let mut used: Vec<(usize, SocketAddr)> = Vec::new();
    for site in &all.sites {
        let server = imports[site.import].server;
        let listens = site
            .listens
            .iter()
            .filter_map(|listen| parse_listen(listen));
        used.extend(listens.map(|listen| (server, listen.address)));
    }
    used.sort();
    used.dedup();
    used
}

fn report_taken(address: SocketAddr, owner: &str, findings: &mut Findings) {
    findings.add(
        Severity::Blocks,
        "AddressInUse",
        format!("sites are to respond at {address}, where {owner} listens"),
        "Stop this program, or remove the address from the sites.",
    );
}

/// Returns how messages name the process that has a socket.
fn owner_of(inode: u64, processes: &Processes) -> String {
    let has = |pid: u32| socket_inodes(pid).is_some_and(|inodes| inodes.contains(&inode));
    let all = processes.all();
    let owner = all.into_iter().find(|process| has(process.pid));
    match owner {
        Some(process) => {
            let name = process.name().escape_debug();
            format!("{name} (process {})", process.pid)
        }
        None => "a program that is not visible".to_owned(),
    }
}

/// Adds a note for each socket of a web server that no site uses.
fn report_unused(used: &[(usize, SocketAddr)], servers: &[FoundServer], findings: &mut Findings) {
    for (number, found) in servers.iter().enumerate() {
        if found.server.kind == ServerKind::PhpFpm || found.stays {
            continue;
        }
        for listener in &found.server.listeners {
            let ListenAddress::Tcp(socket) = listener.address else {
                continue;
            };
            let serves = |(server, address): &(usize, SocketAddr)| {
                *server == number && (receives(socket, *address) || receives(*address, socket))
            };
            if !used.iter().any(serves) {
                findings.push(finding(
                    Severity::Risk,
                    "ListenerWithoutSite",
                    format!("{} listens on {socket}, where Howdah has no site", found.display()),
                    "Find out what it serves there: a mail or TCP proxy (`mail`, `stream`) remains with the old server.",
                ));
            }
        }
    }
}

/// Adds a note for each program at a web server's usual port that is not taken over.
fn report_others(
    servers: &[FoundServer],
    processes: &Processes,
    sockets: &ListeningSockets,
    findings: &mut Findings,
) {
    let known = |inode: u64| {
        let mut listeners = servers.iter().flat_map(|found| &found.server.listeners);
        listeners.any(|listener| listener.inode == inode)
    };
    for (address, inode) in sockets.tcp() {
        if !matches!(address.port(), 80 | 443) || known(inode) {
            continue;
        }
        let is_server = processes.all().into_iter().any(|process| {
            kind_of_master(process, processes).is_some()
                && socket_inodes(process.pid).is_some_and(|inodes| inodes.contains(&inode))
        });
        if !is_server {
            let owner = owner_of(inode, processes);
            findings.add(
                Severity::Note,
                "OtherServer",
                format!("{owner} listens on {address}, and is not taken over"),
                "",
            );
        }
    }
}
