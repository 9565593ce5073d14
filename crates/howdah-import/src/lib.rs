//! `howdah import`: reads the configuration of nginx, Apache or php-fpm as those programs read it, and writes a
//! configuration for Howdah together with a list of everything that could not be carried over.
//!
//! - [`source`]: reads files within size limits; [`directive`]: the directives in them, with file and line.
//! - [`ledger`]: records what became of each directive.
//! - [`nginx`], [`apache`], [`fpm`]: the grammar of each format, and the translation of its directives.
//! - [`hosting`]: which server responds at which addresses, for which host names.
//! - [`verify`]: compares the responses of two servers.
//! - [`target`]: Howdah's configuration as it is written; [`report`]: the list.
//!
//! Where the old configuration restricts access in a way that Howdah cannot express, the importer denies access to that
//! part of the site instead of opening it.

pub mod apache;
#[cfg(test)]
mod coming_from;
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

/// The program whose configuration is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigFormat {
    /// nginx.conf, or files with `server` blocks.
    Nginx,
    /// apache2.conf or httpd.conf, or files with virtual hosts.
    Apache,
    /// php-fpm.conf, or files with pools.
    PhpFpm,
}

impl ConfigFormat {
    /// Returns the program's name.
    pub fn name(self) -> &'static str {
        match self {
            ConfigFormat::Nginx => "nginx",
            ConfigFormat::Apache => "apache",
            ConfigFormat::PhpFpm => "php-fpm",
        }
    }
}

/// The input and options of an import.
#[derive(Clone, Debug)]
pub struct ImportRequest {
    /// The program whose configuration is read.
    pub format: ConfigFormat,
    /// The configuration files, in order.
    pub paths: Vec<PathBuf>,
    /// The directory that relative paths are resolved against, instead of the program's compiled-in prefix.
    pub prefix: Option<PathBuf>,
    /// The directory that relative `root` and `alias` paths of nginx are resolved against, if it is not `prefix`: nginx
    /// resolves the names of included files and certificates against the directory of its main file instead.
    pub root_prefix: Option<PathBuf>,
    /// Variables of Apache that its command line (`-D`) or its environment defines, with their values.
    pub defined: Vec<(String, String)>,
    /// Configuration files of php-fpm: its pools become pools of Howdah.
    pub php_fpm: Vec<PathBuf>,
    /// The file name of the list, which a comment in the configuration mentions.
    pub list: String,
    /// Returns the media type that Howdah gives a file of this name.
    pub media_type: fn(&[u8]) -> &'static str,
    /// The user to set if the configuration names none, as is usual for the file of a single site.
    pub user: Option<String>,
}

/// The result of an import.
#[derive(Clone, Debug)]
pub struct ImportResult {
    /// The text of `howdah.toml`.
    pub configuration: String,
    /// The text of the list.
    pub list: String,
    /// The outcome of each directive, sorted by file and line.
    pub entries: Vec<ledger::LedgerEntry>,
    /// How many directives had each outcome.
    pub counts: OutcomeCounts,
    /// The number of sites.
    pub sites: usize,
    /// The number of pools.
    pub pools: usize,
    /// True if some site serves no files: its root is the directory named [`EMPTY_ROOT`] beside the configuration.
    pub needs_empty_root: bool,
}

/// The parts of an import, for a program that combines several of them.
#[derive(Debug)]
pub struct ImportParts {
    /// The configuration of Howdah.
    pub config: TargetConfig,
    /// The directives of nginx or Apache. The first comment of a site in `config` is the place of its block here.
    pub tree: Vec<directive::Directive>,
    /// The pools of `php_fpm`.
    pub pools: Vec<fpm::FpmPool>,
    /// The outcome of each directive, sorted by file and line.
    pub entries: Vec<ledger::LedgerEntry>,
    /// The files that were read.
    pub files: Vec<PathBuf>,
}

/// The name of the directory that is the root of sites without files.
pub const EMPTY_ROOT: &str = "empty-root";

/// An error that prevents a configuration from being read: file, line, and message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportError {
    /// The line with the error.
    pub place: SourceLine,
    /// The description of the error.
    pub message: String,
}

impl ImportError {
    /// Creates an error at a line of a file.
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

/// Reads the configuration files and translates them.
///
/// # Errors
/// Returns an error if a file cannot be read or its grammar is wrong.
pub fn import(request: &ImportRequest) -> Result<ImportResult, ImportError> {
    let ImportParts {
        config, entries, ..
    } = import_parts(request)?;
    Ok(result(request, &config, entries))
}

/// Reads the configuration files and translates them, without formatting the result.
///
/// # Errors
/// See [`import`].
pub fn import_parts(request: &ImportRequest) -> Result<ImportParts, ImportError> {
    let ledger = ImportLedger::default();
    let pools = fpm::read_pools(&request.php_fpm, &ledger)?;
    let read = match request.format {
        ConfigFormat::Nginx => ParsedConfig::Nginx(nginx::read(request, &ledger)?),
        ConfigFormat::Apache => ParsedConfig::Apache(apache::read(request, &ledger)?),
        ConfigFormat::PhpFpm => ParsedConfig::PhpFpm(fpm::read_pools(&request.paths, &ledger)?),
    };
    let config = translate(request, &pools, &ledger, &read);
    Ok(ImportParts {
        config,
        tree: match read {
            ParsedConfig::Nginx(read) => read.tree,
            ParsedConfig::Apache(read) => read.tree,
            ParsedConfig::PhpFpm(_) => Vec::new(),
        },
        pools,
        entries: ledger.entries(),
        files: ledger.files(),
    })
}

/// Translates configuration text that is not in a file; see [`import`].
///
/// # Errors
/// See [`import`].
pub fn import_text(format: ConfigFormat, text: &str) -> Result<ImportResult, ImportError> {
    let ledger = ImportLedger::default();
    let request = ImportRequest {
        format,
        paths: vec!["text".into()],
        prefix: Some("/".into()),
        root_prefix: None,
        defined: Vec::new(),
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
    let config = translate(&request, &[], &ledger, &read);
    Ok(result(&request, &config, ledger.entries()))
}

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
) -> TargetConfig {
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
    config
}

fn result(
    request: &ImportRequest,
    config: &TargetConfig,
    entries: Vec<ledger::LedgerEntry>,
) -> ImportResult {
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
