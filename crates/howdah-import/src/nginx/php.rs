//! `fastcgi_pass` as a pool, and `fastcgi_param` as environment and settings.

use std::collections::BTreeMap;

use super::variables::{Constants, constant, has_variables};
use crate::directive::Directive;
use crate::fpm::FpmPool;
use crate::ledger::Ledger;
use crate::pool;
use crate::target::{Config, Site, set_pair};

/// Pools by what `fastcgi_pass` says.
#[derive(Debug)]
pub struct Pools<'a> {
    /// php-fpm's, if its configuration is there.
    pub fpm: &'a [FpmPool],
    /// `upstream` blocks by name.
    pub upstreams: BTreeMap<&'a str, &'a Directive>,
    names: BTreeMap<String, String>,
}

impl<'a> Pools<'a> {
    /// None yet.
    pub fn new(fpm: &'a [FpmPool], upstreams: BTreeMap<&'a str, &'a Directive>) -> Pools<'a> {
        Pools {
            fpm,
            upstreams,
            names: BTreeMap::new(),
        }
    }

    /// The pool's name, which is made where it is new.
    ///
    /// # Errors
    /// What Howdah cannot connect to.
    pub fn of(
        &mut self,
        pass: &Directive,
        constants: &Constants,
        config: &mut Config,
        ledger: &Ledger,
    ) -> Result<String, String> {
        let target = constant(pass.arg(0), constants);
        if has_variables(&target) {
            return Err(format!(
                "the backend is known at a request only ({target}): name one"
            ));
        }
        if let Some(name) = self.names.get(&target) {
            return Ok(name.clone());
        }
        let upstream = self.upstreams.get(target.as_str()).copied();
        let addresses = match upstream {
            Some(block) => addresses_of(block, ledger),
            None => vec![target.clone()],
        };
        let hint = match upstream {
            Some(_) => target.clone(),
            None => pool::hint(&target),
        };
        let name = pool::of_addresses(addresses, &hint, &pass.place, self.fpm, config, ledger);
        self.names.insert(target, name.clone());
        Ok(name)
    }
}

/// The servers of an `upstream`.
pub fn addresses_of(upstream: &Directive, ledger: &Ledger) -> Vec<String> {
    ledger.carried(upstream.id);
    let mut addresses = Vec::new();
    for line in upstream.inner() {
        match line.name.as_str() {
            "server" => {
                let mut address = line.arg(0).to_owned();
                let mut rest = Vec::new();
                for word in line.args.iter().skip(1) {
                    let weight = word.strip_prefix("weight=");
                    let weight = weight.and_then(|n| n.parse::<u8>().ok());
                    match weight.is_some_and(|n| (1..=100).contains(&n)) {
                        true => address += &format!(" {word}"),
                        false => rest.push(word.as_str()),
                    }
                }
                if line.args.iter().any(|word| word == "down") {
                    ledger.moot(line.id, "it is marked as down");
                    continue;
                }
                match rest.is_empty() {
                    true => ledger.carried(line.id),
                    false => ledger.remark(
                        line.id,
                        format!("without {}: the least busy backend gets a request, one that is down none", rest.join(" ")),
                    ),
                }
                addresses.push(address);
            }
            "least_conn" => ledger.carried(line.id),
            "keepalive" | "keepalive_timeout" | "keepalive_requests" | "zone" => {
                ledger.moot(
                    line.id,
                    "connections are kept as the pool's keep_connections says",
                );
            }
            _ => ledger.list(line.id, "the least busy backend gets a request"),
        }
    }
    addresses
}

/// Variables that Howdah sets for every script.
const SET: &[&str] = &[
    "CONTENT_LENGTH",
    "CONTENT_TYPE",
    "DOCUMENT_ROOT",
    "DOCUMENT_URI",
    "GATEWAY_INTERFACE",
    "HTTPS",
    "HTTP_HOST",
    "HTTP_PROXY",
    "PATH_INFO",
    "PATH_TRANSLATED",
    "QUERY_STRING",
    "REDIRECT_STATUS",
    "REMOTE_ADDR",
    "REMOTE_PORT",
    "REMOTE_USER",
    "REQUEST_METHOD",
    "REQUEST_SCHEME",
    "REQUEST_URI",
    "SCRIPT_FILENAME",
    "SCRIPT_NAME",
    "SERVER_ADDR",
    "SERVER_NAME",
    "SERVER_PORT",
    "SERVER_PROTOCOL",
    "SERVER_SOFTWARE",
];

/// `fastcgi_param` of a location: environment and PHP's settings of the site.
pub fn params(params: &[&Directive], constants: &Constants, site: &mut Site, ledger: &Ledger) {
    for param in params {
        let (name, value) = (param.arg(0), constant(param.arg(1), constants));
        match name {
            "PHP_VALUE" | "PHP_ADMIN_VALUE" => {
                let table = match name {
                    "PHP_VALUE" => "php_value",
                    _ => "php_admin_value",
                };
                settings(param, &value, table, site, ledger);
            }
            "PHP_FLAG" | "PHP_ADMIN_FLAG" => {
                ledger.moot(
                    param.id,
                    "php-fpm does not know it, and it has never had an effect",
                );
            }
            _ if value.contains(|c: char| c.is_ascii_control()) => {
                ledger.list(
                    param.id,
                    "its value has a line end or another control character",
                );
            }
            _ if SET.contains(&name) => ledger.moot(param.id, "Howdah sets it for every script"),
            "modHeadersAvailable" | "front_controller_active" | "MOD_X_ACCEL_REDIRECT_ENABLED"
                if !has_variables(&value) =>
            {
                site.pair("env", name, &value);
                ledger.carried(param.id);
            }
            _ if has_variables(&value) => {
                let need = "its value is known at a request only: most of these PHP has in $_SERVER under another name";
                ledger.list(param.id, need);
            }
            _ => {
                site.pair("env", name, &value);
                ledger.remark(
                    param.id,
                    "it holds for all scripts of the site, and in getenv() as well",
                );
            }
        }
    }
}

fn settings(param: &Directive, value: &str, table: &'static str, site: &mut Site, ledger: &Ledger) {
    let lines = value.split('\n').map(str::trim).filter(|l| !l.is_empty());
    let mut bad = false;
    for line in lines {
        match line.split_once('=') {
            Some((name, value)) if !has_variables(value) => {
                let value = value.trim().trim_matches(['"', '\'']);
                let pairs = site.pairs.entry(table).or_default();
                set_pair(pairs, name.trim().to_owned(), value.to_owned());
            }
            _ => bad = true,
        }
    }
    match bad {
        true => ledger.list(
            param.id,
            "settings with values that are known before a request",
        ),
        false => ledger.carried(param.id),
    }
}
