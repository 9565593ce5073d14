//! Reads and translates Apache's configuration.
//!
//! - [`reader`], `macros`, `modules`: its files and conditions, based on the line syntax of `howdah_htaccess`; `known`:
//!   directives without a meaning in Howdah.
//! - `addresses`, `host`, `hosts`, `https_redirect`: which hosts become which sites.
//! - `layers`, `region`, `file_name_patterns`: the paths to which each section applies.
//! - `access`, `legacy`, `requirement`, `networks`: access control.
//! - `condition`, `expr`, `variables`, `rewrite_conditions`, `rewrite_rule_syntax`: conditions on requests.
//! - `files`, `front_controller`, `links`, `aliases`, `redirect`, `rewrite`, `headers`, `expires`, `proxy`, `php`,
//!   `handlers`, `tls`: what a host does.
//! - `global`, `global_settings`, `logs`: settings that apply to all hosts. `server_pools`: pools that hosts share.
//! - `outcomes`: the outcomes of directives that nothing else has used.
//!
//! `site` translates a complete host. Each translator reads the `host_context` (the host, its `layers`, and the
//! `server`) and the directives that it is responsible for, records what became of them in the ledger, and returns what
//! it found or adds it to the part of the site that is passed to it: the site's table, its rules, or the pools. No
//! translator changes what another one reads.

mod access;
mod addresses;
mod aliases;
mod condition;
mod expires;
mod expr;
mod file_name_patterns;
mod files;
mod front_controller;
mod global;
mod global_settings;
mod handlers;
mod headers;
mod host;
mod host_context;
mod hosts;
mod https_redirect;
pub(crate) mod known;
mod layers;
mod legacy;
mod links;
mod logs;
mod macros;
mod modules;
mod networks;
mod outcomes;
mod php;
mod proxy;
pub mod reader;
mod redirect;
mod region;
mod requirement;
mod rewrite;
mod rewrite_conditions;
mod rewrite_rule_syntax;
mod server;
mod server_pools;
mod site;
mod tls;
mod variables;

use std::path::{Path, PathBuf};

use self::global_settings::GlobalSettings;
use self::server::ServerContext;
use self::server_pools::ServerPools;
use crate::directive::Directive;
use crate::fpm::FpmPool;
use crate::ledger::ImportLedger;
use crate::source::IncludeChain;
use crate::target::{SiteTable, TargetConfig};
use crate::{ImportError, ImportRequest};

/// The parsed files.
#[derive(Debug)]
pub struct ApacheConfig {
    /// The directives, including those of included files.
    pub tree: Vec<Directive>,
    /// The `ServerRoot`.
    pub root: PathBuf,
    /// True if the files contain the `LoadModule` lines.
    pub knows_modules: bool,
}

/// Reads the files and all files that they include.
///
/// # Errors
/// Returns an error if a file cannot be read or its grammar is wrong.
pub fn read(request: &ImportRequest, ledger: &ImportLedger) -> Result<ApacheConfig, ImportError> {
    let paths: Vec<PathBuf> = request.paths.iter().map(|path| main_file(path)).collect();
    let root = match &request.prefix {
        Some(prefix) => prefix.clone(),
        None => server_root(paths.first().map_or(Path::new("/"), PathBuf::as_path)),
    };
    let mut reader = reader::ApacheReader::new(ledger, root);
    let beside = paths
        .first()
        .and_then(|path| path.parent())
        .map(|directory| directory.join("envvars"));
    for path in beside.into_iter().chain([reader.root.join("envvars")]) {
        if let Ok(text) = std::fs::read_to_string(path) {
            reader.modules.defined.extend(modules::parse_envvars(&text));
            break;
        }
    }
    let defined = request.defined.iter().cloned();
    reader.modules.defined.extend(defined);
    let mut tree = Vec::new();
    for path in &paths {
        tree.append(&mut reader.read_file(path, &IncludeChain::root(path), 0)?);
    }
    Ok(configuration(reader, tree))
}

/// Parses a text that is not in a file.
///
/// # Errors
/// Returns an error if its grammar is wrong.
pub fn read_text(
    text: &crate::source::SourceText,
    ledger: &ImportLedger,
) -> Result<ApacheConfig, ImportError> {
    let mut reader = reader::ApacheReader::new(ledger, "/".into());
    let tree = reader.read_text(text, &IncludeChain::default(), 0)?;
    Ok(configuration(reader, tree))
}

fn configuration(reader: reader::ApacheReader<'_>, tree: Vec<Directive>) -> ApacheConfig {
    ApacheConfig {
        tree,
        knows_modules: reader.modules.are_known(),
        root: reader.root,
    }
}

/// Returns the file that Apache starts with, if the path is a directory.
fn main_file(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let names = ["apache2.conf", "conf/httpd.conf", "httpd.conf"].iter();
    let mut files = names.map(|name| path.join(name));
    files.find(|file| file.is_file()).unwrap_or(path)
}

/// Guesses Apache's compiled-in `ServerRoot` from the path of a file.
fn server_root(path: &Path) -> PathBuf {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let of_parts = [
        "sites-enabled",
        "sites-available",
        "conf-enabled",
        "conf.d",
        "conf",
        "vhosts.d",
        "vhosts",
    ];
    let is_part = directory
        .file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| of_parts.contains(&name));
    match directory.parent() {
        Some(above) if is_part => above.to_owned(),
        _ => directory.to_owned(),
    }
}

/// Adds the translation of the files to the configuration.
pub fn translate(
    read: &ApacheConfig,
    request: &ImportRequest,
    fpm: &[FpmPool],
    ledger: &ImportLedger,
    config: &mut TargetConfig,
) {
    let tree = &read.tree;
    let (hosts, mut hostings, mut common) = hosts::assign_hosts(tree, ledger);
    let served = || hostings.iter().map(|site| &hosts[site.server]);
    let server = ServerContext {
        ledger,
        fpm,
        root: &read.root,
        media_type: request.media_type,
        knows_modules: read.knows_modules,
        one_client_ca: tls::have_same_client_ca(served()),
    };
    let mut settings = GlobalSettings {
        server: &server,
        config,
    };
    global::write_global_settings(tree, &mut common, &mut hostings, &mut settings);
    let mut sites: Vec<SiteTable> = Vec::new();
    let mut pools = ServerPools::new(config, global::max_requests(tree, ledger));
    let (mut needs_empty_root, mut authorities) = (false, Vec::new());
    for answers in &hostings {
        if let Some(number) = answers.first_site {
            sites.push(answers.copy_of_site(&sites[number]));
            continue;
        }
        let host = &hosts[answers.server];
        let found = site::translate_host(host, answers, tree, &server, &mut pools);
        needs_empty_root |= found.needs_empty_root;
        authorities.extend(found.client_authority);
        sites.push(found.site);
    }
    config.sites = sites;
    config.needs_empty_root |= needs_empty_root;
    for authority in authorities {
        authority.write(config.section("tls"));
    }
    outcomes::record_remaining_outcomes(tree, ledger);
    crate::pool::set_pool_of_all_sites(config);
}
