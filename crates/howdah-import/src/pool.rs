//! php-fpm's pools as pools of Howdah: PHP in Howdah's own processes, as the same user.

use std::collections::BTreeMap;

use crate::directive::Place;
use crate::fpm::{FpmPool, Line};
use crate::ledger::Ledger;
use crate::target::{Config, Pairs, Site, Table, Value, first_pair};
use crate::time;

/// Most children that a pool may have.
const MOST_CHILDREN: u64 = 1000;

/// What PHP reads once, at its start: for a whole pool.
pub fn holds_for_a_whole_pool(name: &str) -> bool {
    matches!(
        name,
        "disable_functions" | "disable_classes" | "extension" | "zend_extension" | "extension_dir"
    ) || name.starts_with("opcache.")
        || name.starts_with("realpath_cache")
        || name.starts_with("apc.")
}

/// Every pool, where there are no sites to share its settings with.
pub fn all(pools: &[FpmPool], config: &mut Config, ledger: &Ledger) {
    for pool in pools {
        embed(pool, config, ledger);
        let Some((.., pairs)) = config
            .pools
            .iter_mut()
            .find(|(name, ..)| *name == pool.name)
        else {
            continue;
        };
        for line in pool.lines.iter().filter(|line| is_setting(line)) {
            let (name, value) = setting(line);
            if !holds_for_a_whole_pool(&name) {
                first_pair(pairs.entry("php_value").or_default(), name, value);
                if line.key.starts_with("php_admin") {
                    let remark = "scripts may change it: php_admin_value of the sites that use the pool keeps them from it";
                    ledger.remark(line.id, remark);
                }
            }
        }
    }
}

fn is_setting(line: &Line) -> bool {
    let keys = ["php_value", "php_flag", "php_admin_value", "php_admin_flag"];
    keys.contains(&line.key.as_str()) && line.name.is_some()
}

/// A setting's name and value; flags as PHP means them.
fn setting(line: &Line) -> (String, String) {
    let name = line.name.clone().unwrap_or_default();
    let value = match line.key.ends_with("flag") {
        true => match line.value.to_ascii_lowercase().as_str() {
            "on" | "yes" | "true" | "1" => "1".to_owned(),
            _ => "0".to_owned(),
        },
        false => line.value.clone(),
    };
    (name, value)
}

/// The pool's settings for a request, as the site's own.
pub fn settings_of_site(pool: &FpmPool, site: &mut Site) {
    for line in pool.lines.iter().filter(|line| is_setting(line)) {
        let (name, value) = setting(line);
        if holds_for_a_whole_pool(&name) {
            continue;
        }
        let table = match line.key.starts_with("php_admin") {
            true => "php_admin_value",
            false => "php_value",
        };
        first_pair(site.pairs.entry(table).or_default(), name, value);
    }
}

/// Adds the pool.
pub fn embed(pool: &FpmPool, config: &mut Config, ledger: &Ledger) {
    let mut table = Table::default();
    let mut pairs: BTreeMap<&'static str, Pairs> = BTreeMap::new();
    table.comment(pool.place.to_string());
    table.set("mode", "embed", None);
    if let Some(user) = pool.value("user") {
        let user = match pool.value("group") {
            Some(group) => format!("{user}:{group}"),
            None => user.to_owned(),
        };
        table.set("user", user, None);
    }
    if pool.value("request_terminate_timeout").is_none() {
        let remark = "php-fpm sets no limit to a script's time; here it is 300 s (request_terminate_timeout)";
        ledger.remark(pool.id, remark);
    }
    let dynamic = pool.value("pm").unwrap_or("dynamic") == "dynamic";
    for line in &pool.lines {
        if is_setting(line) {
            let (name, value) = setting(line);
            if holds_for_a_whole_pool(&name) {
                first_pair(pairs.entry("php_value").or_default(), name, value);
            }
            ledger.carried(line.id);
        } else if line.key == "env" {
            let name = line.name.clone().unwrap_or_default();
            let table = pairs.entry("env").or_default();
            first_pair(table, name, environment(&line.value));
            ledger.carried(line.id);
        } else {
            one_line(line, dynamic, &mut table, ledger);
        }
    }
    config.pools.push((pool.name.clone(), table, pairs));
}

/// The pool for these servers: Howdah's own PHP where php-fpm's pool is known, else php-fpm itself.
pub fn of_addresses(
    addresses: Vec<String>,
    hint: &str,
    place: &Place,
    fpm: &[FpmPool],
    config: &mut Config,
    ledger: &Ledger,
) -> String {
    let listens = |pool: &&FpmPool| {
        let [only] = &addresses[..] else { return false };
        let only = only.split_whitespace().next().unwrap_or_default();
        pool.listens_at(only.strip_prefix("unix:").unwrap_or(only))
    };
    if let Some(fpm) = fpm.iter().find(listens) {
        if !config.pools.iter().any(|(known, ..)| *known == fpm.name) {
            embed(fpm, config, ledger);
        }
        return fpm.name.clone();
    }
    let name = free_name(hint, config);
    let mut table = Table::default();
    table.comment(place.to_string());
    table.set("mode", "fastcgi", None);
    let backends = addresses
        .iter()
        .map(|a| a.replace("localhost:", "127.0.0.1:"));
    table.set("fastcgi", Value::Texts(backends.collect()), None);
    config.pools.push((name.clone(), table, BTreeMap::new()));
    name
}

/// A name for the pool of a server: what is left of its address.
pub fn hint(address: &str) -> String {
    let base = address.rsplit('/').next().unwrap_or(address);
    let base = base.trim_end_matches(".sock").trim_start_matches("unix:");
    match base.starts_with(|c: char| c.is_ascii_digit()) || base.is_empty() {
        true => format!("php_{base}"),
        false => base.to_owned(),
    }
}

/// A name that no pool has.
pub fn free_name(hint: &str, config: &Config) -> String {
    let plain = |c: char| match c.is_ascii_alphanumeric() || c == '-' {
        true => c,
        false => '_',
    };
    let base: String = hint.chars().map(plain).collect();
    let mut name = base.clone();
    let taken = |name: &str| config.pools.iter().any(|(known, ..)| known == name);
    let mut number = 2;
    while taken(&name) {
        name = format!("{base}_{number}");
        number += 1;
    }
    name
}

/// Among several pools every site names one, whether it runs scripts or not.
pub fn name_everywhere(config: &mut Config) {
    let [_, _, ..] = &config.pools[..] else {
        return;
    };
    let runs_php = |table: &Table| table.get("mode") != Some(&Value::from("cgi"));
    let mut pools = config.pools.iter();
    let Some((first, ..)) = pools.find(|(_, table, _)| runs_php(table)) else {
        return;
    };
    for site in &mut config.sites {
        if site.table.get("pool").is_none() {
            site.table.set("pool", first.as_str(), None);
        }
    }
}

/// `$NAME` is the value that php-fpm finds in its own environment.
fn environment(value: &str) -> String {
    match value.strip_prefix('$') {
        Some(name) => std::env::var(name).unwrap_or_default(),
        None => value.to_owned(),
    }
}

fn one_line(line: &Line, dynamic: bool, table: &mut Table, ledger: &Ledger) {
    let mut carry = |key: &str, value: Value| {
        table.set(key, value, Some(&line.place));
        ledger.carried(line.id);
    };
    let number = line.value.parse::<u64>().ok();
    let key = line.key.as_str();
    match (key, number) {
        ("user" | "group" | "listen", _) => ledger.carried(line.id),
        ("pm", _) if ["static", "dynamic", "ondemand"].contains(&line.value.as_str()) => {
            carry("pm", Value::Text(line.value.clone()));
        }
        ("pm.max_children", Some(n)) => {
            carry("max_children", Value::Number(n.clamp(1, MOST_CHILDREN)));
            if n > MOST_CHILDREN {
                ledger.remark(line.id, "at most 1000 children");
            }
        }
        ("pm.min_spare_servers", Some(n)) if dynamic => {
            carry("min_spare_servers", Value::Number(n.min(MOST_CHILDREN)));
        }
        ("pm.max_spare_servers", Some(n)) if dynamic => {
            carry(
                "max_spare_servers",
                Value::Number(n.clamp(1, MOST_CHILDREN)),
            );
        }
        (
            "pm.min_spare_servers"
            | "pm.max_spare_servers"
            | "pm.start_servers"
            | "pm.max_spawn_rate",
            _,
        ) => {
            ledger.moot(line.id, "processes are started when requests wait");
        }
        ("pm.max_requests", Some(n)) => carry("max_requests", Value::Number(n.min(1 << 40))),
        ("pm.process_idle_timeout", _) => time(line, "process_idle_timeout", table, ledger),
        ("request_terminate_timeout" | "request_slowlog_timeout", _) => {
            time(line, key, table, ledger)
        }
        ("clear_env" | "request_terminate_timeout_track_finished", _) => {
            let on = !matches!(
                line.value.to_ascii_lowercase().as_str(),
                "no" | "off" | "0" | "false"
            );
            carry(key, Value::On(on));
        }
        (
            "prefix"
            | "request_slowlog_trace_depth"
            | "slowlog"
            | "catch_workers_output"
            | "decorate_workers_output",
            _,
        ) => {
            ledger.moot(
                line.id,
                "PHP's messages and slow requests go into Howdah's own log",
            );
        }
        ("chdir", _) => ledger.moot(line.id, "a script begins in its own directory"),
        ("security.limit_extensions", _) => {
            ledger.moot(line.id, "only php_extensions of a site are run");
        }
        ("process.priority" | "process.dumpable" | "pm.max_memory", _) => {
            ledger.moot(
                line.id,
                "php-fpm is not needed: Howdah runs PHP's processes itself",
            );
        }
        (key, _) if key.starts_with("listen.") => {
            ledger.moot(
                line.id,
                "php-fpm is not needed: Howdah runs PHP's processes itself",
            );
        }
        ("chroot", _) => ledger.list_protection(
            line.id,
            "no chroot: another user, and open_basedir in php_admin_value",
        ),
        ("pm.status_path" | "pm.status_listen", _) => {
            ledger.list(line.id, "howdah status, or [status] path");
        }
        ("ping.path" | "ping.response", _) => {
            ledger.list(
                line.id,
                "a rule with `path`, `return = 200` and `body`: it does not reach PHP",
            );
        }
        ("access.log" | "access.format" | "access.suppress_path[]", _) => {
            ledger.list(line.id, "[log] access has the requests for files as well");
        }
        ("rlimit_files" | "rlimit_core", _) => {
            ledger.list(line.id, "LimitNOFILE= and LimitCORE= of howdah.service");
        }
        ("apparmor_hat", _) => {
            ledger.list_protection(line.id, "AppArmorProfile= of howdah.service")
        }
        _ => {}
    }
}

/// A time of which 0 means none, if the option can say so.
fn time(line: &Line, key: &str, table: &mut Table, ledger: &Ledger) {
    let Some(time) = time::milliseconds(&line.value) else {
        return;
    };
    let (range, zero) = match key {
        "process_idle_timeout" => (time::SECOND..=time::DAY, None),
        _ => (100..=time::DAY, Some("off".to_owned())),
    };
    let off = zero.filter(|_| time == 0);
    match time::remark(time, &range).filter(|_| off.is_none()) {
        Some(remark) => ledger.remark(line.id, remark),
        None => ledger.carried(line.id),
    }
    let text = off.unwrap_or_else(|| time::within(time, &range));
    table.set(key, text, Some(&line.place));
}
