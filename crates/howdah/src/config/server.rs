//! The sections about the server itself into typed settings.

use std::str::FromStr;

use howdah_proto::level::Level;
use howdah_server::client_address::{ForwardedStyle, TrustedProxies};
use howdah_server::encoding::{Coding, EncodingConfig};
use howdah_server::listener::ListenAddress;
use howdah_server::log::{AccessFormat, LogTarget};
use howdah_server::network::Network;

use super::options::{self, Kind, Target};
use super::reader::{At, Place, Section, Validation};
use super::value::{self, Scalar};
use super::{Listen, LogSettings, ServerOptions};
use crate::arguments::Serve;
use crate::sys;

/// Who the server and its pools run as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// A user's name or number; none: whoever starts the server.
    pub user: Option<String>,
    /// A group's name or number; none: the user's own.
    pub group: Option<String>,
}

/// `user`
pub fn identity(arguments: &Serve, top: &Section<'_, '_, '_>) -> Identity {
    let identity = match (&arguments.user, top.text("user")) {
        (Some(text), _) => identity_of(top, "--user", None, text),
        (None, Some(text)) => identity_of(top, "user", top.place_of("user"), &text),
        (None, None) => Identity::default(),
    };
    let full = top.file().validation == Validation::Full;
    if identity.user.is_none() && sys::is_root() && full {
        top.file().advise(
            None,
            "running as root: name a user (`user = \"www-data\"` or --user www-data) so that neither HTTP nor PHP is served with root's rights",
        );
    }
    identity
}

/// A server that runs as root is for this machine alone, unless somebody says that it is meant.
pub fn check_root(top: &Section<'_, '_, '_>, identity: &Identity, listen: &[Listen]) {
    if identity.user.is_some() || !sys::is_root() || top.file().validation == Validation::Trusted {
        return;
    }
    let open = listen.iter().find(|listen| match &listen.address {
        ListenAddress::Tcp(address) => !address.ip().to_canonical().is_loopback(),
        ListenAddress::Unix { .. } => false,
    });
    if let Some(open) = open {
        top.file().mistake(
            None,
            format!(
                "RootRefused: PHP would run with root's rights for whoever reaches {}; name a user (`user = \"www-data\"` or --user www-data), or say `--user root` if that is meant",
                open.address
            ),
        );
    }
}

/// Reads `USER` or `USER:GROUP`. Both exist, and this process may become them.
pub fn identity_of(
    section: &Section<'_, '_, '_>,
    what: &str,
    place: Place,
    text: &str,
) -> Identity {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let file = section.file();
    let mistake = |message: String| file.mistake(place.clone(), format!("{what}: {message}"));
    if file.validation == Validation::Full {
        match sys::user(user) {
            None => mistake(format!("there is no user `{}`", user.escape_debug())),
            Some(account)
                if !sys::is_root() && account.uid != rustix::process::geteuid().as_raw() =>
            {
                mistake(format!(
                    "only root can run as another user (`{user}`); start howdah as root, or leave it out"
                ));
            }
            Some(_) => {}
        }
        if let Some(group) = group.filter(|group| sys::group(group).is_none()) {
            mistake(format!("there is no group `{}`", group.escape_debug()));
        }
    }
    Identity {
        user: Some(user.to_owned()),
        group: group.map(str::to_owned),
    }
}

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

/// They exist, and we may give them a file.
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
    let mut listen = Listen {
        address: ListenAddress::from_str(address).map_err(|e| e.to_string())?,
        proxy_protocol: false,
        tls: false,
        owner: None,
        group: None,
    };
    for word in words {
        match (word.split_once('='), &mut listen.address) {
            (None, _) if word == "proxy_protocol" => listen.proxy_protocol = true,
            (None, _) if word == "tls" => listen.tls = true,
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
                    "unknown word `{word}`; known: tls, proxy_protocol, mode=0660, owner=USER, group=GROUP"
                ));
            }
        }
    }
    Ok(listen)
}

/// `[log]`
pub fn log(arguments: &Serve, top: &Section<'_, '_, '_>) -> LogSettings {
    let log = top.section("log", "log");
    let target = |text: &str, from_file: bool| match text {
        "stdout" => LogTarget::Stdout,
        "stderr" => LogTarget::Stderr,
        path if from_file => LogTarget::File(top.file().path(path)),
        path => LogTarget::File(path.into()),
    };
    let access = match &arguments.access_log {
        Some(text) => Some((text.clone(), false)),
        None => log.text("access").map(|text| (text, true)),
    };
    let format = match &arguments.log_format {
        Some(text) => typed(top, "--log-format", "log", "access_format", text),
        None => log.text("access_format"),
    };
    LogSettings {
        error: target(&log.text("error").unwrap_or_default(), true),
        level: log.word(
            "level",
            &[
                ("error", Level::Error),
                ("warning", Level::Warning),
                ("notice", Level::Notice),
                ("info", Level::Info),
                ("debug", Level::Debug),
            ],
        ),
        access: access
            .filter(|(text, _)| text != "off")
            .map(|(text, from_file)| target(&text, from_file)),
        access_format: match format.as_deref() {
            Some("common") => AccessFormat::Common,
            Some("extended") => AccessFormat::Extended,
            Some("json") => AccessFormat::Json,
            _ => AccessFormat::Combined,
        },
    }
}

/// A value of the command line, checked as the option's would be.
pub fn typed(
    top: &Section<'_, '_, '_>,
    argument: &str,
    section: &str,
    key: &str,
    text: &str,
) -> Option<String> {
    let kind = options::find(section, key).map_or(Kind::Text, |spec| spec.kind);
    match value::parse(kind, &Scalar::written(text)) {
        Ok(_) => Some(text.to_owned()),
        Err(why) => {
            top.file().mistake(None, format!("{argument}: {why}"));
            None
        }
    }
}

/// `[limits]` and `[timeouts]`
pub fn options(top: &Section<'_, '_, '_>) -> ServerOptions {
    let mut options = ServerOptions::default();
    for name in ["limits", "timeouts"] {
        top.section(name, name).fill(Target::server, &mut options);
    }
    let directory = &options.buffers.directory;
    if !directory.is_dir() {
        let limits = top.section("limits", "limits");
        limits.file().mistake(
            limits.place_of("spill_directory"),
            format!(
                "spill_directory: {} is not a directory",
                directory.display()
            ),
        );
    }
    options
}

/// `[compression]`
pub fn encoding(top: &Section<'_, '_, '_>) -> EncodingConfig {
    let section = top.section("compression", "compression");
    let mut codings = Vec::new();
    let texts = section.texts("codings");
    let is_off = texts.len() == 1 && texts[0].value == "off";
    for text in texts.into_iter().filter(|_| !is_off) {
        match Coding::from_token(text.value.as_bytes()) {
            Some(coding) => codings.push(coding),
            None => section.file().mistake(
                text.place,
                format!(
                    "codings: expected `zstd`, `br` and `gzip`, or `off` alone, found `{}`",
                    text.value.escape_debug()
                ),
            ),
        }
    }
    let types = section.texts("types").into_iter();
    EncodingConfig {
        codings,
        more_types: types.map(|t| t.value.to_ascii_lowercase()).collect(),
    }
}

/// Addresses and networks. Where it may stand, the word `unix` sets that flag.
pub(super) fn networks(
    section: &Section<'_, '_, '_>,
    key: &str,
    mut unix: Option<&mut bool>,
) -> Vec<Network> {
    let mut networks = Vec::new();
    for text in section.texts(key) {
        match (text.value.as_str(), &mut unix) {
            ("unix", Some(unix)) => **unix = true,
            _ => match text.value.parse() {
                Ok(network) => networks.push(network),
                Err(why) => {
                    let or = if unix.is_some() {
                        ", and not `unix`"
                    } else {
                        ""
                    };
                    let message = format!("{key}: `{}`: {why}{or}", text.value.escape_debug());
                    section.file().mistake(text.place, message);
                }
            },
        }
    }
    networks
}

/// `[trusted_proxies]`
pub fn trusted_proxies(top: &Section<'_, '_, '_>) -> TrustedProxies {
    let section = top.section("trusted_proxies", "trusted_proxies");
    let mut unix = false;
    TrustedProxies {
        networks: networks(&section, "networks", Some(&mut unix)),
        unix,
        style: section.word(
            "header",
            &[
                ("x-forwarded", ForwardedStyle::XForwarded),
                ("forwarded", ForwardedStyle::Forwarded),
            ],
        ),
        host: section.on("host"),
    }
}

/// `[status]`
pub fn status(top: &Section<'_, '_, '_>) -> Option<(String, Vec<Network>)> {
    let section = top.section("status", "status");
    let allow = networks(&section, "allow", None);
    let path = section.text("path")?;
    if !path.starts_with('/') {
        let message = "path: the path of the status page begins with `/`";
        section.file().mistake(section.place_of("path"), message);
    }
    Some((path, allow))
}
