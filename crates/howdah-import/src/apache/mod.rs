//! Apache's configuration.
//!
//! - [`reader`], `macros`, `modules`: its files and conditions, of the lines that `howdah_htaccess` reads;
//!   `known`: directives without a meaning here.
//! - `addresses`, `hosts`, `to_https`: which hosts become which sites.
//! - `layers`, `region`, `names`: which section is for which paths; `site`: all of a host.
//! - `access`, `legacy`, `requirement`: who may go where.
//! - `condition`, `expr`, `variables`, `rewrite_conditions`: what is asked of a request.
//! - `files`, `links`, `aliases`, `redirect`, `rewrite`, `headers`, `expires`, `proxy`, `php`, `tls`:
//!   what a host does.
//! - `global`, `logs`: what holds for all of them.

mod access;
mod addresses;
mod aliases;
mod condition;
mod expires;
mod expr;
mod files;
mod global;
mod handlers;
mod headers;
mod hosts;
mod known;
mod layers;
mod legacy;
mod links;
mod logs;
mod macros;
mod modules;
mod names;
mod php;
mod proxy;
pub mod reader;
mod redirect;
mod region;
mod requirement;
mod rewrite;
mod rewrite_conditions;
mod rewrite_words;
mod site;
mod tls;
mod to_https;
mod variables;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::directive::{Directive, Place};
use crate::fpm::FpmPool;
use crate::ledger::Ledger;
use crate::source::{Chain, joined};
use crate::target::Config;
use crate::{Problem, Request};

/// What all hosts share.
struct Context<'a> {
    ledger: &'a Ledger,
    config: &'a mut Config,
    /// php-fpm's pools, if its configuration is there.
    fpm: &'a [FpmPool],
    /// Pools by what leads to them.
    pools: BTreeMap<String, String>,
    /// `ServerRoot`: relative names count from here.
    root: PathBuf,
    media_type: fn(&[u8]) -> &'static str,
    /// The files say which modules are loaded.
    knows_modules: bool,
    /// All hosts with TLS ask for the same certificates of clients.
    one_client_ca: bool,
    /// `MaxConnectionsPerChild` of the server that runs PHP itself.
    max_requests: Option<(u64, Place)>,
}

impl Context<'_> {
    /// A path of the configuration.
    fn path(&self, text: &str) -> String {
        joined(&self.root, text)
    }
}

/// Files as they were read.
#[derive(Debug)]
pub struct Configuration {
    /// Their directives, with those of included files.
    pub tree: Vec<Directive>,
    /// `ServerRoot`
    pub root: PathBuf,
    /// The files say which modules are loaded.
    pub knows_modules: bool,
}

/// Reads the files with all that they include.
///
/// # Errors
/// One cannot be read, or its grammar is wrong.
pub fn read(request: &Request, ledger: &Ledger) -> Result<Configuration, Problem> {
    let paths: Vec<PathBuf> = request.paths.iter().map(|path| main_file(path)).collect();
    let root = match &request.prefix {
        Some(prefix) => prefix.clone(),
        None => server_root(paths.first().map_or(Path::new("/"), PathBuf::as_path)),
    };
    let mut reader = reader::Reader::new(ledger, root);
    let beside = paths
        .first()
        .and_then(|path| path.parent())
        .map(|directory| directory.join("envvars"));
    for path in beside.into_iter().chain([reader.root.join("envvars")]) {
        if let Ok(text) = std::fs::read_to_string(path) {
            reader.modules.defined.extend(modules::envvars(&text));
            break;
        }
    }
    let mut tree = Vec::new();
    for path in &paths {
        tree.append(&mut reader.file(path, &Chain::of(path), 0)?);
    }
    Ok(configuration(reader, tree))
}

/// The directives of a text that is in no file.
///
/// # Errors
/// Its grammar is wrong.
pub fn read_text(text: &crate::source::Text, ledger: &Ledger) -> Result<Configuration, Problem> {
    let mut reader = reader::Reader::new(ledger, "/".into());
    let tree = reader.text(text, &Chain::default(), 0)?;
    Ok(configuration(reader, tree))
}

fn configuration(reader: reader::Reader<'_>, tree: Vec<Directive>) -> Configuration {
    Configuration {
        tree,
        knows_modules: reader.modules.are_known(),
        root: reader.root,
    }
}

/// Of a directory, the file that Apache begins with.
fn main_file(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let names = ["apache2.conf", "conf/httpd.conf", "httpd.conf"].iter();
    let mut files = names.map(|name| path.join(name));
    files.find(|file| file.is_file()).unwrap_or(path)
}

/// Where Apache was built to look for files, as far as a file's own place shows it.
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

/// Adds what the files say to the configuration.
pub fn translate(
    read: &Configuration,
    request: &Request,
    fpm: &[FpmPool],
    ledger: &Ledger,
    config: &mut Config,
) {
    let tree = &read.tree;
    let (hosts, mut sites, mut common) = hosts::hosts(tree, ledger);
    let served = || sites.iter().map(|site| &hosts[site.server]);
    let mut context = Context {
        ledger,
        config,
        fpm,
        pools: BTreeMap::new(),
        root: read.root.clone(),
        media_type: request.media_type,
        knows_modules: read.knows_modules,
        one_client_ca: tls::is_one_for_all(served()),
        max_requests: None,
    };
    global::write(tree, &mut common, &mut sites, &mut context);
    for answers in &sites {
        let site = match answers.same_as {
            Some(number) => answers.again(&context.config.sites[number]),
            None => site::site(&hosts[answers.server], answers, tree, &mut context),
        };
        context.config.sites.push(site);
    }
    settle_rest(tree, ledger);
    crate::pool::name_everywhere(config);
}

/// What has not been accounted for is without a meaning, or on the list.
fn settle_rest(tree: &[Directive], ledger: &Ledger) {
    for directive in tree {
        if !ledger.is_settled(directive.id) {
            if let Some((need, protects)) = known::need(directive)
                && directive.block.is_some()
            {
                hosts::list_all(directive, need, ledger);
                if protects {
                    ledger.list_protection(directive.id, need);
                }
            } else if let Some(why) = known::moot(directive) {
                ledger.moot(directive.id, why);
            } else if let Some((need, protects)) = known::need(directive) {
                match protects {
                    true => ledger.list_protection(directive.id, need),
                    false => ledger.list(directive.id, need),
                }
            } else if known::is_of_no_site(directive) {
                directive.walk(&mut |d| {
                    if !ledger.is_settled(d.id) {
                        ledger.moot(d.id, "no site shows files of this directory");
                    }
                });
            }
        }
        settle_rest(directive.inner(), ledger);
    }
}
