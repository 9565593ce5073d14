//! Translates `fastcgi_pass` into a pool, and `fastcgi_param` into environment variables and settings.

use std::collections::BTreeMap;

use super::variables::{Constants, has_variables, replace_constants};
use crate::directive::Directive;
use crate::fpm::FpmPool;
use crate::ledger::ImportLedger;
use crate::pool;
use crate::target::{SiteTable, TargetConfig, set_pair};

/// The pools, by the target of `fastcgi_pass`.
#[derive(Debug)]
pub struct FastcgiPools<'a> {
    /// The pools of php-fpm, if its configuration was given.
    pub fpm: &'a [FpmPool],
    /// The `upstream` blocks, by name.
    pub upstreams: BTreeMap<&'a str, &'a Directive>,
    names: BTreeMap<String, String>,
}

impl<'a> FastcgiPools<'a> {
    /// Creates the collection without any translated pool.
    pub fn new(
        fpm: &'a [FpmPool],
        upstreams: BTreeMap<&'a str, &'a Directive>,
    ) -> FastcgiPools<'a> {
        FastcgiPools {
            fpm,
            upstreams,
            names: BTreeMap::new(),
        }
    }

    /// Returns the pool's name, and adds the pool if it is new.
    ///
    /// # Errors
    /// Returns a sentence if Howdah cannot connect to the target.
    pub fn pool_for(
        &mut self,
        pass: &Directive,
        constants: &Constants,
        config: &mut TargetConfig,
        ledger: &ImportLedger,
    ) -> Result<String, String> {
        let target = replace_constants(pass.arg(0), constants);
        if has_variables(&target) {
            return Err(format!(
                "the backend depends on the request ({target}): name one backend"
            ));
        }
        if let Some(name) = self.names.get(&target) {
            return Ok(name.clone());
        }
        let upstream = self.upstreams.get(target.as_str()).copied();
        let addresses = match upstream {
            Some(block) => upstream_addresses(block, ledger),
            None => vec![target.clone()],
        };
        let hint = match upstream {
            Some(_) => target.clone(),
            None => pool::name_from_address(&target),
        };
        let name =
            pool::pool_for_addresses(addresses, &hint, &pass.place, self.fpm, config, ledger);
        self.names.insert(target, name.clone());
        Ok(name)
    }
}

/// Returns the servers of an `upstream`.
pub fn upstream_addresses(upstream: &Directive, ledger: &ImportLedger) -> Vec<String> {
    ledger.mark_carried(upstream.id);
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
                    ledger.mark_irrelevant(line.id, "this backend is marked as down");
                    continue;
                }
                match rest.is_empty() {
                    true => ledger.mark_carried(line.id),
                    false => ledger.mark_different(
                        line.id,
                        format!("{} is not carried over: each request goes to the least busy backend that is not down", rest.join(" ")),
                    ),
                }
                addresses.push(address);
            }
            "least_conn" => ledger.mark_carried(line.id),
            "keepalive" | "keepalive_timeout" | "keepalive_requests" | "zone" => {
                ledger.mark_irrelevant(
                    line.id,
                    "`keep_connections` in the pool determines whether idle connections are kept open",
                );
            }
            _ => ledger.mark_missing(line.id, "each request goes to the least busy backend"),
        }
    }
    addresses
}

/// Variables that Howdah sets for every script.
const VARIABLES_SET_BY_HOWDAH: &[&str] = &[
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

/// Translates the `fastcgi_param` lines of a location into environment variables and PHP settings of the site.
pub fn translate_params(
    params: &[&Directive],
    constants: &Constants,
    site: &mut SiteTable,
    ledger: &ImportLedger,
) {
    for param in params {
        let (name, value) = (param.arg(0), replace_constants(param.arg(1), constants));
        match name {
            "PHP_VALUE" | "PHP_ADMIN_VALUE" => {
                let table = match name {
                    "PHP_VALUE" => "php_value",
                    _ => "php_admin_value",
                };
                translate_settings(param, &value, table, site, ledger);
            }
            "PHP_FLAG" | "PHP_ADMIN_FLAG" => {
                ledger.mark_irrelevant(
                    param.id,
                    "php-fpm does not know this parameter, so it has never had an effect",
                );
            }
            _ if value.contains(|c: char| c.is_ascii_control()) => {
                ledger.mark_missing(
                    param.id,
                    "its value has a line end or another control character",
                );
            }
            _ if VARIABLES_SET_BY_HOWDAH.contains(&name) => {
                ledger.mark_irrelevant(param.id, "Howdah sets this variable for every script")
            }
            "modHeadersAvailable" | "front_controller_active" | "MOD_X_ACCEL_REDIRECT_ENABLED"
                if !has_variables(&value) =>
            {
                site.set_pair_if_absent("env", name, &value);
                ledger.mark_carried(param.id);
            }
            _ if has_variables(&value) => {
                let need = "its value depends on the request; PHP has most such values in $_SERVER under another name";
                ledger.mark_missing(param.id, need);
            }
            _ => {
                site.set_pair_if_absent("env", name, &value);
                ledger.mark_different(
                    param.id,
                    "the variable applies to all scripts of the site, and getenv() returns it as well",
                );
            }
        }
    }
}

fn translate_settings(
    param: &Directive,
    value: &str,
    table: &'static str,
    site: &mut SiteTable,
    ledger: &ImportLedger,
) {
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
        true => ledger.mark_missing(
            param.id,
            "use settings whose values do not depend on the request",
        ),
        false => ledger.mark_carried(param.id),
    }
}
