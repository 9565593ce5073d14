//! `howdah import`: reads the configuration of nginx, Apache or php-fpm as those programs do, and writes
//! one for Howdah, with a list of everything that it could not carry over.
//!
//! - [`source`]: files, within bounds; [`directive`]: what they say, with file and line.
//! - [`ledger`]: what became of each directive.
//! - [`nginx`], [`apache`], [`fpm`]: a format's grammar, and what its directives mean here.
//! - [`hosting`]: which server answers at which addresses, for which names.
//! - [`verify`]: whether two servers answer alike.
//! - [`target`]: Howdah's configuration as it is written; [`report`]: the list.
//!
//! Where access is restricted in a way that Howdah cannot express, the place is closed, not opened.

pub mod apache;
pub mod directive;
pub mod expression;
pub mod fpm;
pub mod hosting;
pub mod ledger;
mod link;
pub mod listen;
pub mod media_type;
pub mod network;
pub mod nginx;
pub mod pool;
mod reasons;
pub mod report;
pub mod rule_condition;
pub mod source;
pub mod stages;
pub mod target;
mod time;
pub mod verify;

use std::fmt;
use std::path::PathBuf;

use directive::SourceLine;
use ledger::{ImportLedger, OutcomeCounts};
use target::TargetConfig;

/// Whose configuration is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigFormat {
    /// nginx.conf, or files of `server` blocks.
    Nginx,
    /// apache2.conf or httpd.conf, or files of hosts.
    Apache,
    /// php-fpm.conf, or files of pools.
    PhpFpm,
}

impl ConfigFormat {
    /// As the program is called.
    pub fn name(self) -> &'static str {
        match self {
            ConfigFormat::Nginx => "nginx",
            ConfigFormat::Apache => "apache",
            ConfigFormat::PhpFpm => "php-fpm",
        }
    }
}

/// What is to be imported.
#[derive(Clone, Debug)]
pub struct ImportRequest {
    /// Whose configuration it is.
    pub format: ConfigFormat,
    /// The files, in order.
    pub paths: Vec<PathBuf>,
    /// The directory that relative paths count from, in place of the program's own.
    pub prefix: Option<PathBuf>,
    /// php-fpm's configuration: its pools become pools here.
    pub php_fpm: Vec<PathBuf>,
    /// Name of the list's file, for a comment.
    pub list: String,
    /// The media type that Howdah gives a file name.
    pub media_type: fn(&[u8]) -> &'static str,
    /// The user that a configuration gets which names none, as the file of a single site.
    pub user: Option<String>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct ImportResult {
    /// The text of `howdah.toml`.
    pub configuration: String,
    /// The text of the list.
    pub list: String,
    /// What became of each directive, by file and line.
    pub entries: Vec<ledger::LedgerEntry>,
    /// How many directives went where.
    pub counts: OutcomeCounts,
    /// How many sites there are.
    pub sites: usize,
    /// How many pools there are.
    pub pools: usize,
    /// Some site serves no files: its root is the directory of this name beside the configuration.
    pub needs_empty_root: bool,
}

/// Name of the directory that is the root of sites without files.
pub const EMPTY_ROOT: &str = "empty-root";

/// Why a configuration cannot be read: file, line, and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportError {
    /// The line that has it.
    pub place: SourceLine,
    /// What is wrong with it.
    pub message: String,
}

impl ImportError {
    /// A problem at a place.
    pub fn at(place: &SourceLine, message: impl Into<String>) -> ImportError {
        ImportError {
            place: place.clone(),
            message: message.into(),
        }
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl std::error::Error for ImportError {}

/// Reads the configuration and translates it.
///
/// # Errors
/// What keeps it from being understood at all: it cannot be read, or its grammar is wrong.
pub fn import(request: &ImportRequest) -> Result<ImportResult, ImportError> {
    let ledger = ImportLedger::default();
    let pools = fpm::read_pools(&request.php_fpm, &ledger)?;
    let read = match request.format {
        ConfigFormat::Nginx => ParsedConfig::Nginx(nginx::read(request, &ledger)?),
        ConfigFormat::Apache => ParsedConfig::Apache(apache::read(request, &ledger)?),
        ConfigFormat::PhpFpm => ParsedConfig::PhpFpm(fpm::read_pools(&request.paths, &ledger)?),
    };
    Ok(translate(request, &pools, &ledger, &read))
}

/// The same of a text that is in no file.
///
/// # Errors
/// See [`import`].
pub fn import_text(format: ConfigFormat, text: &str) -> Result<ImportResult, ImportError> {
    let ledger = ImportLedger::default();
    let request = ImportRequest {
        format,
        paths: vec!["text".into()],
        prefix: Some("/".into()),
        php_fpm: Vec::new(),
        list: "text.notes".to_owned(),
        media_type: |_| "application/octet-stream",
        user: None,
    };
    let text = source::SourceText {
        name: "text".into(),
        text: text.to_owned(),
    };
    let read = match format {
        ConfigFormat::Nginx => {
            let mut parser = nginx::parser::NginxParser::new(&ledger, "/".into());
            ParsedConfig::Nginx(nginx::NginxConfig {
                tree: parser.parse_text(&text, &source::IncludeChain::default())?,
                directory: "/".into(),
            })
        }
        ConfigFormat::Apache => ParsedConfig::Apache(apache::read_text(&text, &ledger)?),
        ConfigFormat::PhpFpm => ParsedConfig::PhpFpm(fpm::parse_pools(&text, &ledger)?),
    };
    Ok(translate(&request, &[], &ledger, &read))
}

/// What was read.
enum ParsedConfig {
    Nginx(nginx::NginxConfig),
    Apache(apache::ApacheConfig),
    PhpFpm(Vec<fpm::FpmPool>),
}

fn translate(
    request: &ImportRequest,
    pools: &[fpm::FpmPool],
    ledger: &ImportLedger,
    read: &ParsedConfig,
) -> ImportResult {
    let mut config = TargetConfig::default();
    match read {
        ParsedConfig::Nginx(read) => nginx::translate(read, request, pools, ledger, &mut config),
        ParsedConfig::Apache(read) => apache::translate(read, request, pools, ledger, &mut config),
        ParsedConfig::PhpFpm(pools) => pool::add_all_pools(pools, &mut config, ledger),
    }
    if let Some(user) = &request.user
        && config.top.get("user").is_none()
    {
        config.top.set("user", user.as_str(), None);
    }
    let entries = ledger.entries();
    let counts = ledger::counts(&entries);
    ImportResult {
        configuration: config.to_toml(request),
        list: report::format_list(request, &entries, counts),
        entries,
        counts,
        sites: config.sites.len(),
        pools: config.pools.len(),
        needs_empty_root: config.needs_empty_root,
    }
}
