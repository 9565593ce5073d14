//! Servers that not everybody reaches: by their address under nginx, by a rule here.

use std::net::{IpAddr, SocketAddr};

use super::hosts::Server;
use super::listen::Listen;
use super::server::Work;
use super::stages::Stage;
use crate::when::When;

/// A server that only this machine, or a private network, reaches by its address: here its name would open
/// it to everybody.
pub fn keep_private(work: &mut Work<'_, '_>, server: &Server<'_>) {
    const LOOPBACK: &[&str] = &["127.0.0.0/8", "::1/128", "unix"];
    const PRIVATE: &[&str] = &[
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "fc00::/7",
        "fe80::/10",
    ];
    let own = widest(&server.listens);
    if own >= work.context.widest {
        return;
    }
    let mut from: Vec<String> = LOOPBACK.iter().map(|n| (*n).to_owned()).collect();
    if own == 1 {
        from.extend(PRIVATE.iter().map(|n| (*n).to_owned()));
    }
    let when = When {
        not: vec![When {
            from,
            ..When::default()
        }],
        ..When::default()
    };
    let mut rule = when.rule("deny", 403, &server.block.place);
    rule.comment("Its address is private; here its name alone would lead to it.");
    work.push_at(Stage::Inside, rule);
    let remark = "for clients of this machine or of private networks only: sites are chosen by name, not by address";
    work.ledger.remark(server.block.id, remark);
}

/// How far the widest of these addresses reaches: 0 this machine, 1 private networks, 2 everybody.
pub fn widest(listens: &[Listen]) -> u8 {
    listens.iter().map(reach).max().unwrap_or(2)
}

fn reach(listen: &Listen) -> u8 {
    match listen
        .address
        .parse::<SocketAddr>()
        .map(|address| address.ip())
    {
        Ok(ip) if ip.is_loopback() => 0,
        Ok(IpAddr::V4(ip)) if ip.is_private() || ip.is_link_local() => 1,
        Ok(IpAddr::V6(ip)) if ip.is_unique_local() || ip.is_unicast_link_local() => 1,
        Ok(_) => 2,
        // A unix socket.
        Err(_) => 0,
    }
}
