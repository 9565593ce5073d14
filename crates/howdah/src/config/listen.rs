//! `listen`: the addresses, and who may be reached by them when everything runs as root.

use std::str::FromStr;

use howdah_server::client_address::TrustedProxies;
use howdah_server::listener::ListenAddress;

use super::Listen;
use super::identity::Identity;
use super::reader::{At, Place, Section, Validation};
use crate::arguments::Serve;
use crate::sys;

/// `listen`
pub fn listen(
    arguments: &Serve,
    top: &Section<'_, '_, '_>,
    trusted: &TrustedProxies,
) -> Vec<Listen> {
    let entries: Vec<At<String>> = if arguments.listen.is_empty() {
        top.texts("listen")
    } else {
        let typed = |value: &String| At {
            value: value.clone(),
            place: None,
        };
        arguments.listen.iter().map(typed).collect()
    };
    if entries.is_empty() {
        top.file().mistake(
            top.place_of("listen"),
            "listen: there is no address to listen on",
        );
    }
    let mut listeners: Vec<Listen> = Vec::new();
    for entry in &entries {
        let what = if entry.place.is_none() && !arguments.listen.is_empty() {
            "--listen"
        } else {
            "listen"
        };
        match parse_listen(&entry.value) {
            Err(why) => top
                .file()
                .mistake(entry.place.clone(), format!("{what}: {why}")),
            Ok(listen) => {
                if listen.proxy_protocol && trusted.networks.is_empty() && !trusted.unix {
                    top.file().mistake(
                        entry.place.clone(),
                        "listen: proxy_protocol needs [trusted_proxies] that say whose header is believed",
                    );
                }
                // Port 0 asks for any port, twice for two.
                let any = matches!(&listen.address, ListenAddress::Tcp(a) if a.port() == 0);
                let same = |other: &Listen| other.address.is_same_place(&listen.address);
                if !any && listeners.iter().any(same) {
                    top.file().mistake(
                        entry.place.clone(),
                        format!("{what}: duplicate address {}", listen.address),
                    );
                }
                check_socket_owner(top, &entry.place, what, &listen);
                listeners.push(listen);
            }
        }
    }
    listeners
}

/// `status.listen`, which only this machine can reach unless it is said who may see what is there.
pub fn status(top: &Section<'_, '_, '_>, sites: &[Listen]) -> Option<Listen> {
    let section = top.section("status", "status");
    let (text, place) = (section.text("listen")?, section.place_of("listen"));
    let mistake = |message: String| {
        top.file()
            .mistake(place.clone(), format!("listen: {message}"))
    };
    let listen = match parse_listen(&text) {
        Ok(listen) => listen,
        Err(why) => {
            mistake(why);
            return None;
        }
    };
    if listen.tls || listen.h2c || listen.proxy_protocol {
        mistake("the status listener speaks HTTP/1.1 without TLS and PROXY header".to_owned());
    }
    if let ListenAddress::Tcp(address) = &listen.address {
        if !address.ip().to_canonical().is_loopback() && !section.has("allow") {
            mistake(format!(
                "StatusExposed: whoever reaches {address} would see what visitors do; name in `allow` who may, or listen on 127.0.0.1"
            ));
        }
        let same = |other: &&Listen| other.address.is_same_place(&listen.address);
        if address.port() != 0 && sites.iter().any(|other| same(&other)) {
            mistake(format!("sites listen on {address}, too"));
        }
    }
    check_socket_owner(top, &place, "listen", &listen);
    Some(Listen {
        status: true,
        ..listen
    })
}

/// Checks that the owner and group of a unix socket exist, and that we may give them a file.
fn check_socket_owner(top: &Section<'_, '_, '_>, place: &Place, what: &str, listen: &Listen) {
    if top.file().validation == Validation::Trusted {
        return;
    }
    let mistake = |message: String| {
        top.file()
            .mistake(place.clone(), format!("{what}: {message}"))
    };
    if let Some(name) = &listen.owner {
        let own = rustix::process::geteuid().as_raw();
        match sys::user(name) {
            None => mistake(format!("owner: there is no user `{name}`")),
            Some(account) if !sys::is_root() && account.uid != own => mistake(format!(
                "owner: only root can give a file to another user (`{name}`); start howdah as root, or leave it out"
            )),
            Some(_) => {}
        }
    }
    if let Some(name) = &listen.group {
        let ours = |gid: u32| {
            let groups = rustix::process::getgroups().unwrap_or_default();
            groups.iter().any(|group| group.as_raw() == gid)
                || rustix::process::getegid().as_raw() == gid
        };
        match sys::group(name) {
            None => mistake(format!("group: there is no group `{name}`")),
            Some(gid) if !sys::is_root() && !ours(gid) => mistake(format!(
                "group: we are not in the group `{name}`; start howdah as root, or as a user of that group"
            )),
            Some(_) => {}
        }
    }
}

fn parse_listen(text: &str) -> Result<Listen, String> {
    let mut words = text.split_whitespace();
    let address = words.next().unwrap_or("");
    let mut listen = Listen::at(ListenAddress::from_str(address).map_err(|e| e.to_string())?);
    for word in words {
        match (word.split_once('='), &mut listen.address) {
            (None, _) if word == "proxy_protocol" => listen.proxy_protocol = true,
            (None, _) if word == "tls" => listen.tls = true,
            (None, _) if word == "h2c" => listen.h2c = true,
            (None, ListenAddress::Tcp(_)) if word == "http3" => listen.http3 = true,
            (Some(("mode", bits)), ListenAddress::Unix { mode, .. }) => {
                *mode = u32::from_str_radix(bits, 8)
                    .ok()
                    .filter(|bits| *bits <= 0o777)
                    .ok_or_else(|| format!("mode `{bits}` is not an octal number such as 0660"))?;
            }
            (Some(("owner", name)), ListenAddress::Unix { .. }) => {
                listen.owner = Some(name.to_owned());
            }
            (Some(("group", name)), ListenAddress::Unix { .. }) => {
                listen.group = Some(name.to_owned());
            }
            (Some((word @ ("mode" | "owner" | "group"), _)), ListenAddress::Tcp(_)) => {
                return Err(format!("{word}= is for unix sockets"));
            }
            _ => {
                return Err(format!(
                    "unknown word `{word}`; known: tls, http3, h2c, proxy_protocol, mode=0660, owner=USER, group=GROUP"
                ));
            }
        }
    }
    if listen.http3 && (!listen.tls || listen.proxy_protocol) {
        let why = match listen.tls {
            false => "http3 needs tls before it: HTTP/3 is always encrypted",
            true => "http3 and proxy_protocol exclude each other: a PROXY header comes by TCP",
        };
        return Err(why.to_owned());
    }
    if listen.tls && listen.h2c {
        let why = "h2c is HTTP/2 without TLS: after tls, clients choose HTTP/2 themselves";
        return Err(why.to_owned());
    }
    Ok(listen)
}

/// A server that runs as root is for this machine alone, unless somebody says that it is meant. A proxy that
/// is named in `[trusted_proxies]` lets others in.
pub fn check_root(
    top: &Section<'_, '_, '_>,
    identity: &Identity,
    listen: &[Listen],
    proxies: &TrustedProxies,
) {
    if identity.user.is_some() || !sys::is_root() || top.file().validation == Validation::Trusted {
        return;
    }
    let open = listen.iter().find(|listen| match &listen.address {
        ListenAddress::Tcp(address) => !address.ip().to_canonical().is_loopback(),
        ListenAddress::Unix { .. } => false,
    });
    let behind_proxy = || !proxies.networks.is_empty() || proxies.unix;
    let whom = match open {
        Some(open) => open.address.to_string(),
        None if behind_proxy() => "the proxies of [trusted_proxies]".to_owned(),
        None => return,
    };
    top.file().mistake(
        None,
        format!(
            "RootRefused: PHP would run with root's rights for whoever reaches {whom}; name a user (`user = \"www-data\"` or --user www-data), or say `--user root` if that is meant"
        ),
    );
}
