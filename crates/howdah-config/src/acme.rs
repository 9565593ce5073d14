//! `[acme]` and `--domain`: the names whose certificates Howdah orders by itself. These are the names of sites without
//! a certificate file, if a listener uses TLS.

use howdah_os::account;
use howdah_os::process;
use std::ffi::OsStr;
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use howdah_acme::{AcmeAuthority, names};
use howdah_executor::PoolMode;
use howdah_http::listener::ListenAddress;
use howdah_site::site::SiteConfig;
use howdah_site::site::config::HostPattern;

use super::environment::EnvironmentOptions;
use super::identity::ServerIdentity;
use super::mistake::Mistakes;
use super::reader::{ConfigSection, Validation};
use super::{ConfigSource, ListenSettings};
use crate::arguments::ServeArguments;
use howdah_acme::certificate_directory;

/// The authorities that can be named by a word.
const KNOWN_AUTHORITIES: &[(&str, &str)] = &[
    (
        "letsencrypt",
        "https://acme-v02.api.letsencrypt.org/directory",
    ),
    (
        "letsencrypt-staging",
        "https://acme-staging-v02.api.letsencrypt.org/directory",
    ),
    ("zerossl", "https://acme.zerossl.com/v2/DV90"),
];
/// Adds the addresses and the user that `--domain` implies if they are not configured. Returns what the administrator
/// should know about these choices. It is called once, by the master, so the front reads the same arguments.
pub fn complete_arguments(
    arguments: &mut ServeArguments,
    source: Option<&ConfigSource>,
) -> Vec<String> {
    let mut chosen = Vec::new();
    if arguments.domain.is_empty() {
        return chosen;
    }
    let mut unheard = Mistakes::default();
    let document = source.map(|source| source.document(&mut unheard));
    let environment = EnvironmentOptions::of_process();
    let in_file = |key: &str| document.as_ref().is_some_and(|all| all.contains_key(key));
    let has = |key: &str| in_file(key) || environment.has(key);
    if arguments.listen.is_empty() && !has("listen") {
        arguments.listen = addresses(&arguments.domain);
    }
    if arguments.user.is_none() && !has("user") && process::is_root() {
        let user = account::web_user();
        arguments.user = user.map(str::to_owned);
        chosen.extend(user.map(|name| format!("serves HTTP and runs PHP as the user {name}")));
    }
    chosen
}

fn addresses(domains: &[String]) -> Vec<String> {
    let local = domains
        .iter()
        .all(|name| names::needs_local_authority(&certificate_name(name)));
    let has_ipv6 = || fs::read_to_string("/proc/net/if_inet6").is_ok_and(|text| !text.is_empty());
    let texts: &[&str] = match (local, local && !may_bind(80)) {
        (true, true) => &["127.0.0.1:8443 tls"],
        (true, false) => &["127.0.0.1:443 tls", "127.0.0.1:80"],
        (false, _) if has_ipv6() => &["0.0.0.0:443 tls", "[::]:443 tls", "0.0.0.0:80", "[::]:80"],
        (false, _) => &["0.0.0.0:443 tls", "0.0.0.0:80"],
    };
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn may_bind(port: u16) -> bool {
    let first = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let first = first.ok().and_then(|text| text.trim().parse::<u16>().ok());
    process::is_root() || first.is_some_and(|first| first <= port)
}

/// Makes the site of the command line serve the names of `--domain`, over HTTPS only.
pub fn add_domains_to_site(
    arguments: &ServeArguments,
    top: &ConfigSection<'_>,
    site: &mut SiteConfig,
) {
    for name in &arguments.domain {
        let bracketed = match name.parse::<Ipv6Addr>() {
            Ok(address) => format!("[{address}]"),
            Err(_) => name.clone(),
        };
        match HostPattern::parse(&bracketed) {
            Ok(host) => site.hosts.push(host),
            Err(why) => top.file().mistake(None, format!("--domain: {why}")),
        }
    }
    if let Some(first) = arguments.domain.first() {
        site.name.clone_from(first);
        site.https_redirect = true;
    }
}

/// Checks that `--domain` has an address for HTTPS. Without one, the site would be served without TLS, unnoticed.
pub fn check_command_line(
    arguments: &ServeArguments,
    top: &ConfigSection<'_>,
    listen: &[ListenSettings],
) {
    if let Some(name) = arguments.domain.first()
        && !listen.iter().any(|listen| listen.tls)
    {
        let name = name.escape_debug();
        let message = format!(
            "--domain {name}: no address uses HTTPS; add `tls` to one, as in --listen \"0.0.0.0:443 tls\", or omit --listen"
        );
        top.file().mistake(None, message);
    }
}

/// Returns a host name as certificates contain it: an address has no brackets.
fn certificate_name(text: &str) -> String {
    let text = text.to_ascii_lowercase();
    let inner = text.trim_start_matches('[').trim_end_matches(']');
    match inner.parse::<IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) => text,
    }
}

/// Returns the names that a site's certificates are for.
pub fn certificate_names(site: &SiteConfig) -> impl Iterator<Item = String> + '_ {
    site.hosts.iter().map(|host| match host {
        HostPattern::Exact(name) => certificate_name(name),
        HostPattern::Below(parent) => format!("*{parent}"),
    })
}

/// Returns the default directory of certificates.
pub fn default_directory() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(directory) = set("STATE_DIRECTORY") {
        // systemd lists all state directories of the unit; the first one is used.
        let first = directory.as_encoded_bytes().split(|b| *b == b':').next();
        return OsStr::from_bytes(first.unwrap_or_default()).into();
    }
    if process::is_root() {
        return "/var/lib/howdah".into();
    }
    let state = set("XDG_STATE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(set("HOME").unwrap_or_else(|| "/tmp".into()));
    state
        .unwrap_or_else(|| home().join(".local/state"))
        .join("howdah")
}

/// Returns the settings of ordering certificates for these names, or `None` if there is nothing to order.
pub fn settings(
    top: &ConfigSection<'_>,
    listen: &[ListenSettings],
    wanted: Vec<String>,
    chosen: &mut Vec<String>,
) -> Option<howdah_acme::AcmeSettings> {
    let section = top.section("acme", "acme");
    let file = section.file();
    let hook = section.path("dns_hook");
    let authorities = authorities(&section);
    let ask = section.text("ask");
    if let Some(url) = &ask
        && !["http://", "https://"]
            .iter()
            .any(|scheme| url.starts_with(scheme))
    {
        file.mistake(
            section.place_of("ask"),
            "ask: expected a URL, such as `http://…`",
        );
    }
    if !listen.iter().any(|listen| listen.tls) {
        return None;
    }
    let mut names: Vec<String> = Vec::new();
    for name in wanted {
        if let Err(why) = names::check_name(&name) {
            file.mistake(top.place_of("site"), format!("hosts: {why}"));
        } else if name.starts_with("*.") && !names::needs_local_authority(&name) && hook.is_none() {
            let message = format!(
                "{name}: authorities issue wildcard certificates only with DNS challenges: set `dns_hook` in [acme], or name a certificate in [[site.certificate]]"
            );
            file.advise(top.place_of("site"), message);
        } else if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() && ask.is_none() {
        return None;
    }
    let http = listen
        .iter()
        .any(|listen| !listen.tls && matches!(listen.address, ListenAddress::Tcp(_)));
    let settings = howdah_acme::AcmeSettings {
        directory: section.path("path").unwrap_or_else(default_directory),
        email: section.text("email"),
        authorities,
        dns_hook: hook,
        ask,
        http,
        names,
    };
    describe_choices(&settings, chosen);
    Some(settings)
}

fn authorities(section: &ConfigSection<'_>) -> Vec<AcmeAuthority> {
    let file = section.file();
    let keys = section.pairs("eab");
    let mut found: Vec<AcmeAuthority> = Vec::new();
    for text in section.texts("authorities") {
        let known = KNOWN_AUTHORITIES
            .iter()
            .find(|(name, _)| *name == text.value);
        let (name, url) = match known {
            Some((name, url)) => ((*name).to_owned(), (*url).to_owned()),
            None => {
                let host = text.value.strip_prefix("https://").map(|rest| {
                    let host = rest.split('/').next().unwrap_or(rest);
                    host.to_owned()
                });
                let Some(host) = host.filter(|host| !host.is_empty()) else {
                    let words: Vec<&str> =
                        KNOWN_AUTHORITIES.iter().map(|(name, _)| *name).collect();
                    let words = words.join(", ");
                    let message = format!(
                        "authorities: `{}` is unknown; expected {words}, or the URL of a directory, `https://…`",
                        text.value.escape_debug()
                    );
                    file.mistake(text.place, message);
                    continue;
                };
                (host, text.value)
            }
        };
        let eab = keys.iter().find(|pair| pair.value.0 == name);
        let eab = eab.and_then(|pair| match pair.value.1.split_once(':') {
            Some((id, key)) => Some((id.to_owned(), key.to_owned())),
            None => {
                let message = "eab: expected KEY_ID:HMAC_KEY, the two values that the authority has given you";
                file.mistake(pair.place.clone(), message);
                None
            }
        });
        if name == "zerossl" && eab.is_none() {
            let message = "authorities: zerossl needs an account key: `zerossl = \"KEY_ID:HMAC_KEY\"` in [acme.eab]";
            file.mistake(text.place.clone(), message);
        }
        found.push(AcmeAuthority { name, url, eab });
    }
    for pair in &keys {
        if !found.iter().any(|authority| authority.name == pair.value.0) {
            let message = format!(
                "eab: `{}` is not in `authorities`",
                pair.value.0.escape_debug()
            );
            file.mistake(pair.place.clone(), message);
        }
    }
    found
}

/// Lists what the administrator has to know or do.
fn describe_choices(settings: &howdah_acme::AcmeSettings, chosen: &mut Vec<String>) {
    let (local, public): (Vec<&str>, Vec<&str>) = settings
        .names
        .iter()
        .map(String::as_str)
        .partition(|name| names::needs_local_authority(name));
    if let Some(first) = settings.authorities.first().filter(|_| !public.is_empty()) {
        chosen.push(format!(
            "certificates for {} come from {}, whose terms of service you accept; they are stored in {}",
            public.join(", "),
            first.name,
            settings.directory.display()
        ));
    }
    if !local.is_empty() {
        let root = howdah_acme::local::root_path(&settings.directory);
        chosen.push(format!(
            "the local authority issues certificates for {}; to make this machine trust the authority: sudo cp {} /usr/local/share/ca-certificates/howdah.crt && sudo update-ca-certificates (in browsers, import the file as an authority)",
            local.join(", "),
            root.display()
        ));
    }
}

/// Checks the owner of the directory: no user that runs PHP may read the keys, and root should not order certificates.
pub fn check_owner(
    top: &ConfigSection<'_>,
    settings: &howdah_acme::AcmeSettings,
    identity: &ServerIdentity,
    pools: &[PoolMode],
) {
    if top.file().validation != Validation::Full || !process::may_change_user() {
        return;
    }
    if let Some(why) = certificate_directory::foreseeable_failure(settings) {
        top.file().advise(top.place_of("acme"), why.to_string());
    }
    let Ok(meta) = fs::metadata(&settings.directory) else {
        return;
    };
    let pools = pools.iter().filter_map(PoolMode::user);
    let users = pools.chain(identity.user.as_deref());
    let others = users
        .filter_map(account::find_user)
        .map(|account| account.uid);
    if others.filter(|uid| *uid != 0).any(|uid| uid == meta.uid()) {
        let message = format!(
            "acme: the directory of keys {} is owned by a user that PHP runs as, so scripts could read the keys: change its owner to root, or to howdah's own user",
            settings.directory.display()
        );
        top.file().mistake(top.place_of("acme"), message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domain_opens_only_loopback_for_local_names() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            addresses(&names)
        };
        let https: &[&str] = match may_bind(80) {
            true => &["127.0.0.1:443 tls", "127.0.0.1:80"],
            false => &["127.0.0.1:8443 tls"],
        };
        assert_eq!(of(&["localhost"]), https);
        assert_eq!(of(&["localhost", "shop.localhost"]), https);
        for names in [
            &["shop.example.org"][..],
            &["localhost", "shop.example.org"],
        ] {
            let opened = of(names);
            for address in ["0.0.0.0:443 tls", "0.0.0.0:80"] {
                assert!(opened.iter().any(|a| a == address), "{opened:?}");
            }
            assert_eq!(
                opened.iter().any(|a| a == "[::]:443 tls"),
                opened.iter().any(|a| a == "[::]:80")
            );
        }
    }

    #[test]
    fn every_user_may_bind_the_highest_port() {
        assert!(may_bind(65535));
    }
}
