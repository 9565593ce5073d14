//! The sections about the server itself into typed settings.

use std::str::FromStr;

use howdah_proto::level::Level;
use howdah_server::client_address::{ForwardedStyle, TrustedProxies};
use howdah_server::encoding::{Coding, EncodingConfig};
use howdah_server::http::HttpConfig;
use howdah_server::listener::ListenAddress;
use howdah_server::log::{AccessFormat, LogTarget};
use howdah_server::network::Network;

use super::options::{self, Kind};
use super::reader::{At, Eyes, Place, Section};
use super::value::{self, Scalar};
use super::{Listen, LogSettings, Patience, Spill};
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

/// `user`, `group`
pub fn identity(arguments: &Serve, top: &Section<'_, '_, '_>) -> Identity {
    let user = arguments.user.clone().or_else(|| top.text("user"));
    let group = arguments.group.clone().or_else(|| top.text("group"));
    let (user_place, group_place) = (top.place_of("user"), top.place_of("group"));
    let typed = Typed {
        user: arguments.user.is_some(),
        group: arguments.group.is_some(),
    };
    check_identity(
        top,
        (user.as_ref(), user_place),
        (group.as_ref(), group_place),
        typed,
    );
    if user.is_none() && sys::is_root() && top.file().eyes == Eyes::Master {
        top.file().advise(
            None,
            "running as root: name a user (`user = \"www-data\"` or --user www-data) so that neither HTTP nor PHP is served with root's rights",
        );
    }
    Identity { user, group }
}

/// A server that runs as root is for this machine alone, unless somebody says that it is meant.
pub fn check_root(top: &Section<'_, '_, '_>, identity: &Identity, listen: &[Listen]) {
    if identity.user.is_some() || !sys::is_root() || top.file().eyes == Eyes::Front {
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

/// Which of the names were typed on the command line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Typed {
    /// `--user` was.
    pub user: bool,
    /// `--group` was.
    pub group: bool,
}

/// They exist, and we may become them.
pub fn check_identity(
    section: &Section<'_, '_, '_>,
    (user, user_place): (Option<&String>, Place),
    (group, group_place): (Option<&String>, Place),
    typed: Typed,
) {
    let (the_user, user_place) = match typed.user {
        true => ("--user", None),
        false => ("user", user_place),
    };
    let (the_group, group_place) = match typed.group {
        true => ("--group", None),
        false => ("group", group_place),
    };
    let file = section.file();
    if file.eyes == Eyes::Front {
        return;
    }
    if let Some(name) = user {
        match sys::user(name) {
            None => file.mistake(user_place, format!("{the_user}: there is no user `{name}`")),
            Some(account)
                if !sys::is_root() && account.uid != rustix::process::geteuid().as_raw() =>
            {
                file.mistake(
                    user_place,
                    format!("{the_user}: only root can run as another user (`{name}`); start howdah as root, or leave it out"),
                );
            }
            Some(_) => {}
        }
    }
    if let Some(name) = group {
        if sys::group(name).is_none() {
            file.mistake(
                group_place,
                format!("{the_group}: there is no group `{name}`"),
            );
        } else if user.is_none() {
            file.mistake(group_place, format!("{the_group}: needs a user beside it"));
        }
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
    if top.file().eyes == Eyes::Front {
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
        owner: None,
        group: None,
    };
    for word in words {
        match (word.split_once('='), &mut listen.address) {
            (None, _) if word == "proxy_protocol" => listen.proxy_protocol = true,
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
                    "unknown word `{word}`; known: proxy_protocol, mode=0660, owner=USER, group=GROUP"
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
        level: match log.text("level").as_deref() {
            Some("error") => Level::Error,
            Some("warning") => Level::Warning,
            Some("info") => Level::Info,
            Some("debug") => Level::Debug,
            _ => Level::Notice,
        },
        access: access
            .filter(|(text, _)| text != "off")
            .map(|(text, from_file)| target(&text, from_file)),
        access_format: match format.as_deref() {
            Some("common") => AccessFormat::Common,
            Some("extended") => AccessFormat::Extended,
            Some("json") => AccessFormat::Json,
            _ => AccessFormat::Combined,
        },
        access_delay: log.time("access_delay").unwrap_or_default(),
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
pub fn http(top: &Section<'_, '_, '_>) -> (HttpConfig, Patience) {
    let limits = top.section("limits", "limits");
    let timeouts = top.section("timeouts", "timeouts");
    let size = |key| limits.size(key).unwrap_or_default();
    let time = |key| timeouts.time(key).unwrap_or_default();
    let http = HttpConfig {
        max_request_line: size("request_line") as usize,
        max_header_bytes: size("header") as usize,
        max_headers: limits.number("headers").unwrap_or_default() as usize,
        header_timeout: time("header"),
        body_timeout: time("body"),
        min_body_rate: limits.number("body_rate").unwrap_or_default() as u32,
        min_send_rate: limits.number("send_rate").unwrap_or_default() as u32,
        keepalive_timeout: time("keepalive"),
        keepalive_requests: limits.number("keepalive_requests").unwrap_or_default(),
        send_timeout: time("send"),
        max_connections: limits.number("connections").map(|n| n as u32),
        max_discarded_body: size("discarded_body"),
        lingering_time: time("lingering"),
    };
    let patience = Patience {
        stop: time("stop"),
        drain: time("drain"),
        start: time("start"),
        hang: time("hang"),
    };
    (http, patience)
}

/// What waits in memory and what in files; `[limits]`.
pub fn spill(top: &Section<'_, '_, '_>) -> Spill {
    // A second look at the section would note its mistakes twice; equal ones are kept once.
    let limits = top.section("limits", "limits");
    let directory = limits.path("spill_directory").unwrap_or_default();
    if !directory.is_dir() {
        limits.file().mistake(
            limits.place_of("spill_directory"),
            format!(
                "spill_directory: {} is not a directory",
                directory.display()
            ),
        );
    }
    Spill {
        body_memory: limits.size("body_memory").unwrap_or_default(),
        response_memory: limits.size("response_memory").unwrap_or_default(),
        response_spill: limits.size("response_spill").unwrap_or_default(),
        total: limits.size("spill_total"),
        memory: limits.size("memory"),
        directory,
    }
}

/// `[compression]`
pub fn encoding(top: &Section<'_, '_, '_>) -> EncodingConfig {
    let section = top.section("compression", "compression");
    let mut codings = Vec::new();
    for text in section.texts("codings") {
        match Coding::from_token(text.value.as_bytes()) {
            Some(coding) => codings.push(coding),
            None => section.file().mistake(
                text.place,
                format!(
                    "codings: expected `zstd`, `br` or `gzip`, found `{}`",
                    text.value
                ),
            ),
        }
    }
    if !section.on("enable") {
        codings.clear();
    }
    let level = |key| section.number(key).unwrap_or_default() as u32;
    EncodingConfig {
        codings,
        min_size: section.size("min_size").unwrap_or_default(),
        more_types: section
            .texts("types")
            .into_iter()
            .map(|t| t.value.to_ascii_lowercase())
            .collect(),
        gzip_level: level("gzip_level"),
        brotli_level: level("brotli_level"),
        zstd_level: level("zstd_level") as i32,
    }
}

fn networks(section: &Section<'_, '_, '_>, key: &str) -> Vec<Network> {
    let texts = section.texts(key).into_iter();
    texts
        .filter_map(|text| match text.value.parse() {
            Ok(network) => Some(network),
            Err(why) => {
                let message = format!("{key}: `{}`: {why}", text.value);
                section.file().mistake(text.place, message);
                None
            }
        })
        .collect()
}

/// `[trusted_proxies]`
pub fn trusted_proxies(top: &Section<'_, '_, '_>) -> TrustedProxies {
    let section = top.section("trusted_proxies", "trusted_proxies");
    TrustedProxies {
        networks: networks(&section, "networks"),
        unix: section.on("unix"),
        style: match section.text("header").as_deref() {
            Some("forwarded") => ForwardedStyle::Forwarded,
            _ => ForwardedStyle::XForwarded,
        },
        host: section.on("host"),
        port: section.on("port"),
    }
}

/// `[status]`
pub fn status(top: &Section<'_, '_, '_>) -> Option<(String, Vec<Network>)> {
    let section = top.section("status", "status");
    let allow = networks(&section, "allow");
    let path = section.text("path")?;
    if !path.starts_with('/') {
        let message = "path: the path of the status page begins with `/`";
        section.file().mistake(section.place_of("path"), message);
    }
    Some((path, allow))
}
