//! Reads and translates Apache's configuration.
//!
//! - [`reader`], `macros`, `modules`: its files and conditions, based on the line syntax of `howdah_htaccess`; `known`:
//!   directives without a meaning in Howdah.
//! - `addresses`, `hosts`, `to_https`: which hosts become which sites.
//! - `layers`, `region`, `names`: the paths to which each section applies; `site`: a complete host.
//! - `access`, `legacy`, `requirement`: access control.
//! - `condition`, `expr`, `variables`, `rewrite_conditions`: conditions on requests.
//! - `files`, `links`, `aliases`, `redirect`, `rewrite`, `headers`, `expires`, `proxy`, `php`, `tls`: what a host does.
//! - `global`, `logs`: settings that apply to all hosts.

mod access;
mod addresses;
mod aliases;
mod condition;
mod expires;
mod expr;
mod file_name_patterns;
mod files;
mod global;
mod handlers;
mod headers;
mod hosts;
mod https_redirect;
mod known;
mod layers;
mod legacy;
mod links;
mod logs;
mod macros;
mod modules;
mod php;
mod proxy;
pub mod reader;
mod redirect;
mod region;
mod requirement;
mod rewrite;
mod rewrite_conditions;
mod rewrite_rule_syntax;
mod site;
mod tls;
mod variables;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::directive::{Directive, SourceLine};
use crate::fpm::FpmPool;
use crate::ledger::ImportLedger;
use crate::source::{IncludeChain, join_path};
use crate::target::TargetConfig;
use crate::{ImportError, ImportRequest};

/// The state that all hosts share.
struct ApacheContext<'a> {
    ledger: &'a ImportLedger,
    config: &'a mut TargetConfig,
    /// The pools of php-fpm, if its configuration was given.
    fpm: &'a [FpmPool],
    /// The names of pools, by the FastCGI address or user that they are for.
    pools: BTreeMap<String, String>,
    /// The `ServerRoot`, which relative names are resolved against.
    root: PathBuf,
    media_type: fn(&[u8]) -> &'static str,
    /// True if the files contain the `LoadModule` lines.
    knows_modules: bool,
    /// True if all hosts with TLS request client certificates of the same authorities.
    one_client_ca: bool,
    /// The `MaxConnectionsPerChild` of Apache, for pools that run PHP in Howdah's own processes.
    max_requests: Option<(u64, SourceLine)>,
}

impl ApacheContext<'_> {
    /// Resolves a path of the configuration.
    fn path(&self, text: &str) -> String {
        join_path(&self.root, text)
    }
}

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
    let (hosts, mut sites, mut common) = hosts::assign_hosts(tree, ledger);
    let served = || sites.iter().map(|site| &hosts[site.server]);
    let mut context = ApacheContext {
        ledger,
        config,
        fpm,
        pools: BTreeMap::new(),
        root: read.root.clone(),
        media_type: request.media_type,
        knows_modules: read.knows_modules,
        one_client_ca: tls::have_same_client_ca(served()),
        max_requests: None,
    };
    global::write_global_settings(tree, &mut common, &mut sites, &mut context);
    for answers in &sites {
        let site = match answers.first_site {
            Some(number) => answers.copy_of_site(&context.config.sites[number]),
            None => site::translate_host(&hosts[answers.server], answers, tree, &mut context),
        };
        context.config.sites.push(site);
    }
    record_remaining_outcomes(tree, ledger);
    crate::pool::set_pool_of_all_sites(config);
}

/// Records an outcome for each directive that has none yet: it has no meaning in Howdah, or it is put on the list.
fn record_remaining_outcomes(tree: &[Directive], ledger: &ImportLedger) {
    for directive in tree {
        if !ledger.has_outcome(directive.id) {
            if let Some((need, protects)) = known::missing_remark(directive)
                && directive.block.is_some()
            {
                hosts::list_section(directive, need, ledger);
                if protects {
                    ledger.mark_missing_protection(directive.id, need);
                }
            } else if let Some(why) = known::irrelevant_reason(directive) {
                ledger.mark_irrelevant(directive.id, why);
            } else if let Some((need, protects)) = known::missing_remark(directive) {
                match protects {
                    true => ledger.mark_missing_protection(directive.id, need),
                    false => ledger.mark_missing(directive.id, need),
                }
            } else if known::is_directory_section(directive) {
                directive.walk(&mut |d| {
                    if !ledger.has_outcome(d.id) {
                        ledger.mark_irrelevant(d.id, "no site shows files of this directory");
                    }
                });
            }
        }
        record_remaining_outcomes(directive.inner(), ledger);
    }
}
