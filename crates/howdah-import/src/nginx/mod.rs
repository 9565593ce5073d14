//! nginx' configuration.
//!
//! - [`lexer`], [`parser`]: its grammar; `known`: directives without a meaning here.
//! - `scope`, `variables`: how directives are inherited, and what stands for what.
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
use crate::ledger::Ledger;
use crate::source::joined;
use crate::target::Config;
use crate::{Problem, Request};
use php::Pools;

/// Where Debian's nginx was built to look for files.
const PREFIX: &str = "/usr/share/nginx";

/// What all servers share.
struct Context<'a> {
    ledger: &'a Ledger,
    config: &'a mut Config,
    pools: Pools<'a>,
    /// Relative roots count from here.
    prefix: PathBuf,
    /// Relative names of certificates count from here.
    directory: PathBuf,
    media_type: fn(&[u8]) -> &'static str,
    /// What limits count.
    zones: limits::Zones,
    /// Variables that a `map` gives one value.
    constants: variables::Constants,
}

/// Files as they were read.
#[derive(Debug)]
pub struct Configuration {
    /// Their directives, with those of included files.
    pub tree: Vec<Directive>,
    /// Relative names of certificates count from here.
    pub directory: PathBuf,
}

/// Reads the files with all that they include.
///
/// # Errors
/// One cannot be read, or its grammar is wrong.
pub fn read(request: &Request, ledger: &Ledger) -> Result<Configuration, Problem> {
    let mut tree = Vec::new();
    let mut directory = PathBuf::new();
    for (number, path) in request.paths.iter().enumerate() {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let own = match &request.prefix {
            Some(prefix) => prefix.clone(),
            None => path.parent().unwrap_or(Path::new("/")).to_owned(),
        };
        // Files of servers lie in a directory of nginx' own.
        let own = match own.file_name().and_then(|name| name.to_str()) {
            Some("sites-enabled" | "sites-available" | "conf.d") => {
                own.parent().unwrap_or(&own).to_owned()
            }
            _ => own,
        };
        let mut parser = parser::Parser::new(ledger, own.clone());
        tree.extend(parser.file(&path)?);
        if number == 0 {
            directory = own;
        }
    }
    Ok(Configuration { tree, directory })
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
    let https: Vec<&Directive> = tree.iter().filter(|d| d.name == "http").collect();
    for http in &https {
        ledger.carried(http.id);
    }
    // Without an `http` block these are files that one includes.
    let lists: Vec<&[Directive]> = match https.is_empty() {
        true => vec![tree],
        false => https.iter().map(|http| http.inner()).collect(),
    };
    let upstreams = lists.iter().flat_map(|list| list.iter());
    let upstreams: BTreeMap<&str, &Directive> = upstreams
        .filter(|d| d.name == "upstream")
        .map(|d| (d.arg(0), d))
        .collect();
    let mut context = Context {
        ledger,
        config,
        pools: Pools::new(fpm, upstreams),
        prefix: request.prefix.clone().unwrap_or_else(|| PREFIX.into()),
        directory: read.directory.clone(),
        media_type: request.media_type,
        zones: limits::Zones::new(),
        constants: variables::Constants::new(),
    };
    http::main(tree, &mut context);
    for list in lists {
        http::block(list, &mut context);
    }
    settle_rest(tree, ledger);
    crate::pool::name_everywhere(config);
}

/// Blocks whose unknown lines belong to what they are, not to nginx' directives.
const TABLES: &[&str] = &["map", "geo", "types", "split_clients", "geoip2", "upstream"];

/// What has not been accounted for is without a meaning, or on the list.
fn settle_rest(tree: &[Directive], ledger: &Ledger) {
    for directive in tree {
        let settled = ledger.is_settled(directive.id);
        if let Some(why) = known::moot(directive) {
            if !settled {
                ledger.moot(directive.id, why);
            }
            for inner in directive.inner() {
                ledger.moot(inner.id, why);
            }
        } else if !settled && let Some((need, protects)) = known::need(&directive.name) {
            match protects {
                true => ledger.list_protection(directive.id, need),
                false => ledger.list(directive.id, need),
            }
        }
        if TABLES.contains(&directive.name.as_str()) {
            for inner in directive.inner() {
                if !ledger.is_settled(inner.id) {
                    ledger.list(inner.id, "its block is not carried over");
                }
            }
        }
        settle_rest(directive.inner(), ledger);
    }
}

/// A path of the configuration; none if it has variables.
fn resolve(base: &Path, text: &str) -> Option<String> {
    (!variables::has_variables(text)).then(|| joined(base, text))
}
