//! Turns the sections about the server itself into typed settings.

use std::sync::Arc;

use howdah_http::network::AddressBlock;
use howdah_log::log::{AccessFormat, DaemonTarget, LogTarget};
use howdah_proto::level::LogLevel;
use howdah_site::client_address::{ForwardedStyle, TrustedProxies};
use howdah_site::encoding::{Coding, EncodingConfig};
use howdah_site::network_file::NetworkFile;

use super::kind::OptionKind;
use super::options;
use super::reader::{ConfigSection, Validation};
use super::value::{self, WrittenValue};
use super::{LogSettings, ServerOptions, StatusSettings};
use crate::arguments::ServeArguments;

/// Reads `[log]`.
pub fn log(arguments: &ServeArguments, top: &ConfigSection<'_>) -> LogSettings {
    let log = top.section("log", "log");
    let target = |key: &str, text: &str, from_file: bool| match text {
        "stdout" => LogTarget::Stdout,
        "stderr" => LogTarget::Stderr,
        text => match DaemonTarget::parse(text) {
            Some(Ok(daemon)) => LogTarget::Daemon(daemon),
            Some(Err(why)) => {
                let place = if from_file { log.place_of(key) } else { None };
                log.file().mistake(place, format!("{key}: {why}"));
                LogTarget::Stderr
            }
            None if from_file => LogTarget::File(top.file().path(text)),
            None => LogTarget::File(text.into()),
        },
    };
    let access = match &arguments.access_log {
        Some(text) => Some((text.clone(), false)),
        None => log.text("access").map(|text| (text, true)),
    };
    let format = match &arguments.log_format {
        Some(text) => checked_argument(top, "--log-format", "log", "access_format", text),
        None => log.text("access_format"),
    };
    LogSettings {
        error: target("error", &log.text("error").unwrap_or_default(), true),
        level: log.word(
            "level",
            &[
                ("error", LogLevel::Error),
                ("warning", LogLevel::Warning),
                ("notice", LogLevel::Notice),
                ("info", LogLevel::Info),
                ("debug", LogLevel::Debug),
            ],
        ),
        access: access
            .filter(|(text, _)| text != "off")
            .map(|(text, from_file)| target("access", &text, from_file)),
        access_format: match format.as_deref() {
            Some("common") => AccessFormat::Common,
            Some("extended") => AccessFormat::Extended,
            Some("json") => AccessFormat::Json,
            _ => AccessFormat::Combined,
        },
    }
}

/// Returns a value of the command line, checked like the option's value.
pub fn checked_argument(
    top: &ConfigSection<'_>,
    argument: &str,
    section: &str,
    key: &str,
    text: &str,
) -> Option<String> {
    let kind = options::find(section, key).map_or(OptionKind::Text, |spec| spec.kind);
    match value::parse(kind, &WrittenValue::written(text)) {
        Ok(_) => Some(text.to_owned()),
        Err(why) => {
            top.file().mistake(None, format!("{argument}: {why}"));
            None
        }
    }
}

/// Reads `[limits]` and `[timeouts]`.
pub fn options(top: &ConfigSection<'_>) -> ServerOptions {
    let mut options = ServerOptions::default();
    for name in ["limits", "timeouts"] {
        top.section(name, name)
            .fill(|spec| spec.target.server(), &mut options);
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

/// Reads `[compression]`.
pub fn encoding(top: &ConfigSection<'_>) -> EncodingConfig {
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

/// Reads addresses and networks. If `unix` is given, the word `unix` is allowed and sets that flag.
pub(super) fn networks(
    section: &ConfigSection<'_>,
    key: &str,
    mut unix: Option<&mut bool>,
) -> Vec<AddressBlock> {
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

/// Reads a file of networks, and reports its mistakes.
pub(super) fn network_file(section: &ConfigSection<'_>, key: &str) -> Option<Arc<NetworkFile>> {
    let file = Arc::new(NetworkFile::new(section.path(key)?));
    if section.file().validation == Validation::Full
        && let Err(why) = file.read()
    {
        let message = format!("{key}: {why}");
        section.file().mistake(section.place_of(key), message);
    }
    Some(file)
}

/// Reads `[trusted_proxies]`.
pub fn trusted_proxies(top: &ConfigSection<'_>) -> TrustedProxies {
    let section = top.section("trusted_proxies", "trusted_proxies");
    let mut unix = false;
    TrustedProxies {
        networks: networks(&section, "networks", Some(&mut unix)),
        unix,
        file: network_file(&section, "networks_file"),
        style: section.word(
            "header",
            &[
                ("x-forwarded", ForwardedStyle::XForwarded),
                ("forwarded", ForwardedStyle::Forwarded),
            ],
        ),
        host: section.is_on("host"),
    }
}

/// Reads `[status]`, except for its listener.
pub fn status(top: &ConfigSection<'_>) -> StatusSettings {
    let section = top.section("status", "status");
    let path = section.text("path");
    if path.as_ref().is_some_and(|path| !path.starts_with('/')) {
        let message = "path: the path of the status page must begin with `/`";
        section.file().mistake(section.place_of("path"), message);
    }
    StatusSettings {
        path,
        allow: networks(&section, "allow", None),
    }
}
