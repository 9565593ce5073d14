//! Reads and translates nginx's configuration.
//!
//! - [`lexer`], [`parser`]: its grammar; `known`: directives without a meaning in Howdah.
//! - `scope`, `variables`: how directives are inherited, and what variables contain.
//! - `hosts`, `listen`, `redirect`: which servers become which sites.
//! - `server`, `location`, `rules`, `rewrite`, `files`, `headers`, `php`: what a server does.

mod access;
mod condition;
mod error_pages;
mod files;
mod headers;
mod hosts;
mod http;
pub mod known;
pub mod lexer;
mod limits;
mod listen;
mod location;
mod networks;
pub mod parser;
mod php;
mod proxy;
mod real_ip;
mod redirect;
mod referers;
mod rewrite;
mod rules;
mod scope;
mod script;
mod server;
mod variables;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::directive::Directive;
use crate::fpm::FpmPool;
use crate::ledger::ImportLedger;
use crate::source::join_path;
use crate::target::TargetConfig;
use crate::{ImportError, ImportRequest};
use php::FastcgiPools;

/// The prefix for relative paths of Debian's build of nginx.
const DEBIAN_PREFIX: &str = "/usr/share/nginx";

/// The state that all servers share.
struct NginxContext<'a> {
    ledger: &'a ImportLedger,
    config: &'a mut TargetConfig,
    pools: FastcgiPools<'a>,
    /// The directory that relative roots are resolved against.
    prefix: PathBuf,
    /// The directory that relative names of certificates are resolved against.
    directory: PathBuf,
    media_type: fn(&[u8]) -> &'static str,
    /// The zones of the request and connection limits.
    zones: limits::LimitZones,
    /// Variables to which a `map` gives a single value.
    constants: variables::Constants,
}

/// The parsed files.
#[derive(Debug)]
pub struct NginxConfig {
    /// The directives, including those of included files.
    pub tree: Vec<Directive>,
    /// The directory that relative names of certificates are resolved against.
    pub directory: PathBuf,
}

/// Reads the files and all files that they include.
///
/// # Errors
/// Returns an error if a file cannot be read or its grammar is wrong.
pub fn read(request: &ImportRequest, ledger: &ImportLedger) -> Result<NginxConfig, ImportError> {
    let mut tree = Vec::new();
    let mut directory = PathBuf::new();
    for (number, path) in request.paths.iter().enumerate() {
        let path = main_file(path);
        let own = match &request.prefix {
            Some(prefix) => prefix.clone(),
            None => path.parent().unwrap_or(Path::new("/")).to_owned(),
        };
        // Files of servers are in a subdirectory of nginx's configuration directory.
        let own = match own.file_name().and_then(|name| name.to_str()) {
            Some("sites-enabled" | "sites-available" | "conf.d") => {
                own.parent().unwrap_or(&own).to_owned()
            }
            _ => own,
        };
        let mut parser = parser::NginxParser::new(ledger, own.clone());
        tree.extend(parser.parse_file(&path)?);
        if number == 0 {
            directory = own;
        }
    }
    Ok(NginxConfig { tree, directory })
}

/// Returns the file that nginx starts with, if the path is a directory.
fn main_file(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut files = ["nginx.conf", "conf/nginx.conf"]
        .iter()
        .map(|name| path.join(name));
    files.find(|file| file.is_file()).unwrap_or(path)
}

/// Adds the translation of the files to the configuration.
pub fn translate(
    read: &NginxConfig,
    request: &ImportRequest,
    fpm: &[FpmPool],
    ledger: &ImportLedger,
    config: &mut TargetConfig,
) {
    let tree = &read.tree;
    let https: Vec<&Directive> = tree.iter().filter(|d| d.name == "http").collect();
    for http in &https {
        ledger.mark_carried(http.id);
    }
    // Without an `http` block, these are files that another file includes in its `http` block.
    let lists: Vec<&[Directive]> = match https.is_empty() {
        true => vec![tree],
        false => https.iter().map(|http| http.inner()).collect(),
    };
    let upstreams = lists.iter().flat_map(|list| list.iter());
    let upstreams: BTreeMap<&str, &Directive> = upstreams
        .filter(|d| d.name == "upstream")
        .map(|d| (d.arg(0), d))
        .collect();
    let mut context = NginxContext {
        ledger,
        config,
        pools: FastcgiPools::new(fpm, upstreams),
        prefix: request
            .root_prefix
            .clone()
            .or_else(|| request.prefix.clone())
            .unwrap_or_else(|| DEBIAN_PREFIX.into()),
        directory: read.directory.clone(),
        media_type: request.media_type,
        zones: limits::LimitZones::new(),
        constants: variables::Constants::new(),
    };
    http::translate_main(tree, &mut context);
    for list in lists {
        http::translate_http(list, &mut context);
    }
    record_remaining_outcomes(tree, ledger);
    crate::pool::set_pool_of_all_sites(config);
}

/// Blocks whose inner lines are data of the block, not nginx directives.
const DATA_BLOCKS: &[&str] = &["map", "geo", "types", "split_clients", "geoip2", "upstream"];

/// Records an outcome for each directive that has none yet: it has no meaning in Howdah, or it is put on the list.
fn record_remaining_outcomes(tree: &[Directive], ledger: &ImportLedger) {
    for directive in tree {
        let settled = ledger.has_outcome(directive.id);
        if let Some(why) = known::irrelevant_reason(directive) {
            if !settled {
                ledger.mark_irrelevant(directive.id, why);
            }
            for inner in directive.inner() {
                ledger.mark_irrelevant(inner.id, why);
            }
        } else if !settled && let Some((need, protects)) = known::missing_remark(&directive.name) {
            match protects {
                true => ledger.mark_missing_protection(directive.id, need),
                false => ledger.mark_missing(directive.id, need),
            }
        }
        if DATA_BLOCKS.contains(&directive.name.as_str()) {
            for inner in directive.inner() {
                if !ledger.has_outcome(inner.id) {
                    ledger.mark_missing(inner.id, "its block is not carried over");
                }
            }
        }
        record_remaining_outcomes(directive.inner(), ledger);
    }
}

/// Resolves a path of the configuration; returns `None` if it contains variables.
fn resolve_path(base: &Path, text: &str) -> Option<String> {
    (!variables::has_variables(text)).then(|| join_path(base, text))
}
