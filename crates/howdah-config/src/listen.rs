//! `listen`: the addresses, and which clients may reach them when everything runs as root.

use howdah_os::account;
use howdah_os::process;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::str::FromStr;

use howdah_http::listener::ListenAddress;
use howdah_site::client_address::TrustedProxies;
use howdah_site::site::SiteConfig;

use super::identity::ServerIdentity;
use super::reader::{ConfigSection, Located, SourcePlace, Validation};
use super::{ListenSettings, served, suggest};
use crate::arguments::ServeArguments;

/// The addresses of the server and of its sites, while they are read.
pub struct ConfiguredListeners<'c> {
    top: &'c ConfigSection<'c>,
    trusted: &'c TrustedProxies,
    /// Whether the addresses of the server are configured, not the default.
    chosen: bool,
    common: Vec<(ListenSettings, SourcePlace)>,
    /// The addresses that only sites name.
    own: Vec<ListenSettings>,
}

impl<'c> ConfiguredListeners<'c> {
    /// Reads the addresses of the server: the top-level `listen`, or `--listen`.
    pub fn new(
        arguments: &ServeArguments,
        top: &'c ConfigSection<'c>,
        trusted: &'c TrustedProxies,
    ) -> Self {
        let typed = !arguments.listen.is_empty();
        let mut listeners = ConfiguredListeners {
            top,
            trusted,
            chosen: typed || top.has("listen"),
            common: Vec::new(),
            own: Vec::new(),
        };
        let entries: Vec<Located<String>> = match typed {
            false => top.texts("listen"),
            true => {
                let values = arguments.listen.iter().cloned();
                values.map(|value| Located { value, place: None }).collect()
            }
        };
        if entries.is_empty() {
            listeners.mistake(top.place_of("listen"), "there is no address to listen on");
        }
        for entry in entries {
            let Some(listen) = listeners.parse(&entry) else {
                continue;
            };
            // Port 0 requests any free port, so two addresses with port 0 do not conflict.
            let same = |(other, _): &(ListenSettings, SourcePlace)| {
                other.address.conflicts_with(&listen.address)
            };
            if !is_any_port(&listen) && listeners.common.iter().any(same) {
                let message = format!("duplicate address {}", listen.address);
                listeners.mistake(entry.place.clone(), &message);
            }
            listeners.common.push((listen, entry.place));
        }
        listeners
    }

    /// Reads the `listen` of a site, which then is served only at these addresses.
    pub fn read_site(&mut self, section: &ConfigSection<'_>, site: &mut SiteConfig) {
        if !section.has("listen") {
            return;
        }
        let entries = section.texts("listen");
        if entries.is_empty() {
            let message = "the list of addresses is empty; remove `listen` to use the addresses of the server";
            self.mistake(section.place_of("listen"), message);
        }
        let mut ports = Vec::new();
        for entry in entries {
            let Some(listen) = self.parse(&entry) else {
                continue;
            };
            let name = listen.address.to_string();
            if is_any_port(&listen) {
                self.mistake(
                    entry.place,
                    "an address of a site needs a port other than 0",
                );
                continue;
            }
            if site.listen.contains(&name) {
                self.mistake(entry.place, &format!("duplicate address {name}"));
                continue;
            }
            match &listen.address {
                ListenAddress::Tcp(address) if listen.tls => ports.push(address.port()),
                _ => {}
            }
            site.listen.push(name);
            self.add_own(listen, entry.place);
        }
        site.https_port = (!ports.is_empty()).then(|| served::https_port(ports.into_iter()));
    }

    fn known(&self) -> impl Iterator<Item = &ListenSettings> {
        let common = self.common.iter().map(|(listen, _)| listen);
        common.chain(&self.own)
    }

    /// Adds an address of a site, unless another site or the server already has it.
    fn add_own(&mut self, listen: ListenSettings, place: SourcePlace) {
        let same = |other: &&ListenSettings| other.address.conflicts_with(&listen.address);
        let is_equal = self.known().find(same).map(|other| *other == listen);
        match is_equal {
            Some(true) => {}
            Some(false) => {
                let message = format!(
                    "{} also appears elsewhere, but followed by other parameters; write the same parameters, such as `tls`, after it everywhere",
                    listen.address
                );
                self.mistake(place, &message);
            }
            None => self.own.push(listen),
        }
    }

    /// Parses one address and the words after it.
    fn parse(&self, entry: &Located<String>) -> Option<ListenSettings> {
        let listen = match parse_listen(&entry.value) {
            Ok(listen) => listen,
            Err(why) => {
                self.mistake(entry.place.clone(), &why);
                return None;
            }
        };
        if listen.proxy_protocol && self.trusted.are_none() {
            let message = "proxy_protocol needs [trusted_proxies], which names the proxies whose header is trusted";
            self.mistake(entry.place.clone(), message);
        }
        for other in self.known() {
            if let Some((part, whole)) = overlapping_addresses(&listen.address, &other.address) {
                let message = format!(
                    "{whole} includes {part}, so Howdah cannot open both; name each address of the machine instead of {whole}, or choose another port"
                );
                self.mistake(entry.place.clone(), &message);
            }
        }
        check_socket_owner(self.top, &entry.place, option_name(&entry.place), &listen);
        Some(listen)
    }

    fn mistake(&self, place: SourcePlace, message: &str) {
        let message = format!("{}: {message}", option_name(&place));
        self.top.file().mistake(place, message);
    }

    /// Returns the addresses at which a site is served, as [`ListenAddress`] displays them. Several listeners with port
    /// 0 count as one address, since their ports are not known yet.
    pub fn addresses_of(&self, site: &SiteConfig) -> BTreeSet<String> {
        match site.listen.is_empty() {
            true => self.server_addresses().into_iter().collect(),
            false => site.listen.iter().cloned().collect(),
        }
    }

    /// Returns whether there is a listener with TLS, but none at which the site is served.
    pub fn is_without_tls(&self, site: &SiteConfig) -> bool {
        let own = self.addresses_of(site);
        let mut with_tls = self.known().filter(|listen| listen.tls).peekable();
        with_tls.peek().is_some()
            && with_tls.all(|listen| !own.contains(&listen.address.to_string()))
    }

    /// Returns whether the site is served at an address with TLS, or at one without.
    pub fn serves_with_tls(&self, site: &SiteConfig, tls: bool) -> bool {
        let own = self.addresses_of(site);
        self.known()
            .any(|listen| listen.tls == tls && own.contains(&listen.address.to_string()))
    }

    /// Checks that a site is served at each address of the server. If every site has its own addresses, the server's
    /// default address is removed.
    pub fn check_all_used(&mut self, sites: &[SiteConfig]) {
        if sites.iter().any(|site| site.listen.is_empty()) {
            return;
        }
        if !self.chosen {
            self.common.clear();
        }
        for (listen, place) in &self.common {
            let name = listen.address.to_string();
            if !sites.iter().any(|site| site.listen.contains(&name)) {
                let message = format!(
                    "no site uses {name}, because every site has its own `listen`; remove this address from the top-level `listen`, or remove the `listen` of a site"
                );
                self.mistake(place.clone(), &message);
            }
        }
    }

    /// Returns the addresses of the server, as [`ListenAddress`] displays them.
    pub fn server_addresses(&self) -> Vec<String> {
        let all = self.common.iter();
        all.map(|(listen, _)| listen.address.to_string()).collect()
    }

    /// Returns all addresses to listen on: those of the server, then those that only sites name.
    pub fn all(self) -> Vec<ListenSettings> {
        let common = self.common.into_iter().map(|(listen, _)| listen);
        common.chain(self.own).collect()
    }
}

/// Returns the name of an address in a mistake. An address of the command line has no place in the file.
fn option_name(place: &SourcePlace) -> &'static str {
    match place {
        None => "--listen",
        Some(_) => "listen",
    }
}

fn is_any_port(listen: &ListenSettings) -> bool {
    matches!(&listen.address, ListenAddress::Tcp(address) if address.port() == 0)
}

/// Returns the two addresses if one of them is part of the other: first the part, then the wildcard.
fn overlapping_addresses<'a>(
    one: &'a ListenAddress,
    two: &'a ListenAddress,
) -> Option<(&'a SocketAddr, &'a SocketAddr)> {
    let (ListenAddress::Tcp(one), ListenAddress::Tcp(two)) = (one, two) else {
        return None;
    };
    let related = one.port() == two.port() && one.port() != 0 && one.is_ipv4() == two.is_ipv4();
    match (one.ip().is_unspecified(), two.ip().is_unspecified()) {
        (false, true) if related => Some((one, two)),
        (true, false) if related => Some((two, one)),
        _ => None,
    }
}

/// Returns the listener of `status.listen`. It must be on loopback unless `allow` names who may see the status.
pub fn status(top: &ConfigSection<'_>, sites: &[ListenSettings]) -> Option<ListenSettings> {
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
        mistake(
            "the status listener supports only HTTP/1.1, without TLS and without a PROXY header"
                .to_owned(),
        );
    }
    if let ListenAddress::Tcp(address) = &listen.address {
        if !address.ip().to_canonical().is_loopback() && !section.has("allow") {
            mistake(format!(
                "StatusExposed: any client that reaches {address} would see what visitors do; name the permitted clients in `allow`, or listen on 127.0.0.1"
            ));
        }
        let same = |other: &&ListenSettings| other.address.conflicts_with(&listen.address);
        if address.port() != 0 && sites.iter().any(|other| same(&other)) {
            mistake(format!("sites also listen on {address}"));
        }
    }
    check_socket_owner(top, &place, "listen", &listen);
    Some(ListenSettings {
        status: true,
        ..listen
    })
}

/// Checks that the owner and group of a unix socket exist, and that we may give them a file.
fn check_socket_owner(
    top: &ConfigSection<'_>,
    place: &SourcePlace,
    what: &str,
    listen: &ListenSettings,
) {
    if top.file().validation == Validation::Trusted {
        return;
    }
    let mistake = |message: String| {
        top.file()
            .mistake(place.clone(), format!("{what}: {message}"))
    };
    if let Some(name) = &listen.owner {
        let own = rustix::process::geteuid().as_raw();
        match account::find_user(name) {
            None => mistake(format!("owner: there is no user `{name}`")),
            Some(account) if !process::is_root() && account.uid != own => mistake(format!(
                "owner: only root can change the owner of a file to another user (`{name}`); start howdah as root, or remove the parameter"
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
        match account::find_group(name) {
            None => mistake(format!("group: there is no group `{name}`")),
            Some(gid) if !process::is_root() && !ours(gid) => mistake(format!(
                "group: this process is not in the group `{name}`; start howdah as root, or as a user in that group"
            )),
            Some(_) => {}
        }
    }
}

/// The parameters without a value that may follow an address.
const LISTEN_WORDS: [&str; 4] = ["tls", "http3", "h2c", "proxy_protocol"];

/// Returns what to write instead of a parameter of another server.
fn hint_for_word(word: &str) -> Option<&'static str> {
    Some(match word {
        "ssl" | "https" => "write `tls`",
        "http2" | "h2" => "remove it: `tls` includes HTTP/2, and `h2c` is HTTP/2 without TLS",
        "quic" | "h3" => "write `tls http3`",
        "default_server" | "default" => {
            "remove it: the first [[site]] at an address handles all other hosts"
        }
        "reuseport" | "deferred" | "ipv6only=on" | "ipv6only=off" => {
            "remove it: Howdah does not need this parameter"
        }
        _ => return None,
    })
}

fn parse_listen(text: &str) -> Result<ListenSettings, String> {
    let mut words = text.split_whitespace();
    let address = words.next().unwrap_or("");
    let mut listen =
        ListenSettings::at(ListenAddress::from_str(address).map_err(|e| e.to_string())?);
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
                return Err(format!("{word}= is allowed only for unix sockets"));
            }
            _ => {
                let hint = hint_for_word(word).map(|hint| format!("; {hint}"));
                let hint = hint.unwrap_or_else(|| suggest::did_you_mean(word, &LISTEN_WORDS));
                return Err(format!(
                    "unknown parameter `{word}`{hint}; known: {}, mode=0660, owner=USER, group=GROUP",
                    LISTEN_WORDS.join(", ")
                ));
            }
        }
    }
    if listen.http3 && (!listen.tls || listen.proxy_protocol) {
        let why = match listen.tls {
            false => "http3 needs tls before it: HTTP/3 is always encrypted",
            true => "http3 and proxy_protocol cannot be combined: a PROXY header is sent over TCP",
        };
        return Err(why.to_owned());
    }
    if listen.tls && listen.h2c {
        let why = "h2c is HTTP/2 without TLS: with tls, clients negotiate HTTP/2 themselves";
        return Err(why.to_owned());
    }
    Ok(listen)
}

/// Refuses a server that runs as root and is reachable from other machines, unless `--user root` states that this is
/// intended. A proxy that is named in `[trusted_proxies]` makes the server reachable, too.
pub fn refuse_reachable_root(
    top: &ConfigSection<'_>,
    identity: &ServerIdentity,
    listen: &[ListenSettings],
    proxies: &TrustedProxies,
) {
    if identity.user.is_some()
        || !process::is_root()
        || top.file().validation == Validation::Trusted
    {
        return;
    }
    let open = listen.iter().find(|listen| match &listen.address {
        ListenAddress::Tcp(address) => !address.ip().to_canonical().is_loopback(),
        ListenAddress::Unix { .. } => false,
    });
    let whom = match open {
        Some(open) => open.address.to_string(),
        None if !proxies.are_none() => "the proxies of [trusted_proxies]".to_owned(),
        None => return,
    };
    top.file().mistake(
        None,
        format!(
            "RootRefused: PHP would run with root's rights for every client that reaches {whom}; name a user (`user = \"www-data\"` or --user www-data), or use `--user root` if you want that"
        ),
    );
}
