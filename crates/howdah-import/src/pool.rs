//! Translates php-fpm's pools into pools of Howdah: PHP runs in Howdah's own processes, as the same user.

use std::collections::BTreeMap;

use crate::directive::SourceLine;
use crate::fpm::{FpmLine, FpmPool};
use crate::ledger::ImportLedger;
use crate::target::{
    NameValuePairs, SiteTable, TargetConfig, TomlTable, TomlValue, set_pair_if_absent,
};
use crate::time;

/// The maximum number of children of a pool.
const MAX_CHILDREN: u64 = 1000;

/// Returns whether PHP reads this setting once, at its start, so that it applies to a whole pool.
pub fn is_pool_wide_setting(name: &str) -> bool {
    matches!(
        name,
        "disable_functions" | "disable_classes" | "extension" | "zend_extension" | "extension_dir"
    ) || name.starts_with("opcache.")
        || name.starts_with("realpath_cache")
        || name.starts_with("apc.")
}

/// Adds every pool with all its settings, for a configuration without sites.
pub fn add_all_pools(pools: &[FpmPool], config: &mut TargetConfig, ledger: &ImportLedger) {
    for pool in pools {
        add_embedded_pool(pool, config, ledger);
        let Some((.., pairs)) = config
            .pools
            .iter_mut()
            .find(|(name, ..)| *name == pool.name)
        else {
            continue;
        };
        for line in pool.lines.iter().filter(|line| is_setting(line)) {
            let (name, value) = setting(line);
            if !is_pool_wide_setting(&name) {
                set_pair_if_absent(pairs.entry("php_value").or_default(), name, value);
                if line.key.starts_with("php_admin") {
                    let remark = "scripts may change this setting; to prevent that, set it in `php_admin_value` in the sites that use the pool";
                    ledger.mark_different(line.id, remark);
                }
            }
        }
    }
}

fn is_setting(line: &FpmLine) -> bool {
    let keys = ["php_value", "php_flag", "php_admin_value", "php_admin_flag"];
    keys.contains(&line.key.as_str()) && line.name.is_some()
}

/// Returns a setting's name and value; flags are converted as PHP interprets them.
fn setting(line: &FpmLine) -> (String, String) {
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

/// Adds the pool's per-request settings to a site.
pub fn add_site_settings(pool: &FpmPool, site: &mut SiteTable) {
    for line in pool.lines.iter().filter(|line| is_setting(line)) {
        let (name, value) = setting(line);
        if is_pool_wide_setting(&name) {
            continue;
        }
        let table = match line.key.starts_with("php_admin") {
            true => "php_admin_value",
            false => "php_value",
        };
        set_pair_if_absent(site.pairs.entry(table).or_default(), name, value);
    }
}

/// Adds the pool in mode `embed`, in which Howdah runs PHP itself.
pub fn add_embedded_pool(pool: &FpmPool, config: &mut TargetConfig, ledger: &ImportLedger) {
    let mut table = TomlTable::default();
    let mut pairs: BTreeMap<&'static str, NameValuePairs> = BTreeMap::new();
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
        let remark = "php-fpm sets no limit on a script's time; Howdah's limit is 300 s (request_terminate_timeout)";
        ledger.mark_different(pool.id, remark);
    }
    let dynamic = pool.value("pm").unwrap_or("dynamic") == "dynamic";
    for line in &pool.lines {
        if is_setting(line) {
            let (name, value) = setting(line);
            if is_pool_wide_setting(&name) {
                set_pair_if_absent(pairs.entry("php_value").or_default(), name, value);
            }
            ledger.mark_carried(line.id);
        } else if line.key == "env" {
            let name = line.name.clone().unwrap_or_default();
            let table = pairs.entry("env").or_default();
            set_pair_if_absent(table, name, resolve_environment(&line.value));
            ledger.mark_carried(line.id);
        } else {
            translate_line(line, dynamic, &mut table, ledger);
        }
    }
    config.pools.push((pool.name.clone(), table, pairs));
}

/// Adds the pool for these FastCGI servers, if the configuration has none yet, and returns its name. Howdah runs PHP
/// itself if the servers are a known pool of php-fpm. Otherwise the pool connects to them.
pub fn pool_for_addresses(
    addresses: Vec<String>,
    hint: &str,
    place: &SourceLine,
    fpm: &[FpmPool],
    config: &mut TargetConfig,
    ledger: &ImportLedger,
) -> String {
    let listens = |pool: &&FpmPool| {
        let [only] = &addresses[..] else { return false };
        let only = only.split_whitespace().next().unwrap_or_default();
        pool.listens_at(only.strip_prefix("unix:").unwrap_or(only))
    };
    if let Some(fpm) = fpm.iter().find(listens) {
        if !config.pools.iter().any(|(known, ..)| *known == fpm.name) {
            add_embedded_pool(fpm, config, ledger);
        }
        return fpm.name.clone();
    }
    let name = free_name(hint, config);
    let mut table = TomlTable::default();
    table.comment(place.to_string());
    table.set("mode", "fastcgi", None);
    let backends = addresses
        .iter()
        .map(|a| a.replace("localhost:", "127.0.0.1:"));
    table.set("fastcgi", TomlValue::Texts(backends.collect()), None);
    config.pools.push((name.clone(), table, BTreeMap::new()));
    name
}

/// Derives a pool name from the address of a server.
pub fn name_from_address(address: &str) -> String {
    let base = address.rsplit('/').next().unwrap_or(address);
    let base = base.trim_end_matches(".sock").trim_start_matches("unix:");
    match base.starts_with(|c: char| c.is_ascii_digit()) || base.is_empty() {
        true => format!("php_{base}"),
        false => base.to_owned(),
    }
}

/// Returns a pool name that is not in use, based on `hint`.
pub fn free_name(hint: &str, config: &TargetConfig) -> String {
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

/// If there are several pools, sets `pool` in every site that has none, even if the site runs no script. Without the
/// key, a site uses the pool `www`, and the configuration would be invalid if there is no such pool.
pub fn set_pool_of_all_sites(config: &mut TargetConfig) {
    let [_, _, ..] = &config.pools[..] else {
        return;
    };
    let runs_php = |table: &TomlTable| table.get("mode") != Some(&TomlValue::from("cgi"));
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

/// Resolves `$NAME` to the value in the importer's environment, as php-fpm would in its own.
fn resolve_environment(value: &str) -> String {
    match value.strip_prefix('$') {
        Some(name) => std::env::var(name).unwrap_or_default(),
        None => value.to_owned(),
    }
}

fn translate_line(line: &FpmLine, dynamic: bool, table: &mut TomlTable, ledger: &ImportLedger) {
    let mut carry = |key: &str, value: TomlValue| {
        table.set(key, value, Some(&line.place));
        ledger.mark_carried(line.id);
    };
    let number = line.value.parse::<u64>().ok();
    let key = line.key.as_str();
    match (key, number) {
        ("user" | "group" | "listen", _) => ledger.mark_carried(line.id),
        ("pm", _) if ["static", "dynamic", "ondemand"].contains(&line.value.as_str()) => {
            carry("pm", TomlValue::Text(line.value.clone()));
        }
        ("pm.max_children", Some(n)) => {
            carry("max_children", TomlValue::Number(n.clamp(1, MAX_CHILDREN)));
            if n > MAX_CHILDREN {
                ledger.mark_different(line.id, "a pool has at most 1000 children");
            }
        }
        ("pm.min_spare_servers", Some(n)) if dynamic => {
            carry("min_spare_servers", TomlValue::Number(n.min(MAX_CHILDREN)));
        }
        ("pm.max_spare_servers", Some(n)) if dynamic => {
            carry(
                "max_spare_servers",
                TomlValue::Number(n.clamp(1, MAX_CHILDREN)),
            );
        }
        (
            "pm.min_spare_servers"
            | "pm.max_spare_servers"
            | "pm.start_servers"
            | "pm.max_spawn_rate",
            _,
        ) => {
            ledger.mark_irrelevant(line.id, "processes are started when requests wait");
        }
        ("pm.max_requests", Some(n)) => carry("max_requests", TomlValue::Number(n.min(1 << 40))),
        ("pm.process_idle_timeout", _) => {
            translate_time(line, "process_idle_timeout", table, ledger)
        }
        ("request_terminate_timeout" | "request_slowlog_timeout", _) => {
            translate_time(line, key, table, ledger)
        }
        ("clear_env" | "request_terminate_timeout_track_finished", _) => {
            let on = !matches!(
                line.value.to_ascii_lowercase().as_str(),
                "no" | "off" | "0" | "false"
            );
            carry(key, TomlValue::Bool(on));
        }
        (
            "prefix"
            | "request_slowlog_trace_depth"
            | "slowlog"
            | "catch_workers_output"
            | "decorate_workers_output",
            _,
        ) => {
            ledger.mark_irrelevant(
                line.id,
                "PHP's messages and slow requests go into Howdah's own log",
            );
        }
        ("chdir", _) => ledger.mark_irrelevant(line.id, "a script starts in its own directory"),
        ("security.limit_extensions", _) => {
            ledger.mark_irrelevant(
                line.id,
                "a site runs only scripts whose extensions are in php_extensions",
            );
        }
        ("process.priority" | "process.dumpable" | "pm.max_memory", _) => {
            ledger.mark_irrelevant(
                line.id,
                "php-fpm is not needed: Howdah runs PHP's processes itself",
            );
        }
        (key, _) if key.starts_with("listen.") => {
            ledger.mark_irrelevant(
                line.id,
                "php-fpm is not needed: Howdah runs PHP's processes itself",
            );
        }
        ("chroot", _) => ledger.mark_missing_protection(
            line.id,
            "Howdah has no chroot: use another user, and open_basedir in php_admin_value",
        ),
        ("pm.status_path" | "pm.status_listen", _) => {
            ledger.mark_missing(line.id, "use `howdah status`, or `path` in [status]");
        }
        ("ping.path" | "ping.response", _) => {
            ledger.mark_missing(
                line.id,
                "write a rule with `path`, `return = 200` and `body`, which does not reach PHP",
            );
        }
        ("access.log" | "access.format" | "access.suppress_path[]", _) => {
            ledger.mark_missing(
                line.id,
                "`access` in [log] also contains the requests for files",
            );
        }
        ("rlimit_files" | "rlimit_core", _) => {
            ledger.mark_missing(line.id, "use LimitNOFILE= and LimitCORE= in howdah.service");
        }
        ("apparmor_hat", _) => {
            ledger.mark_missing_protection(line.id, "use AppArmorProfile= in howdah.service")
        }
        _ => {}
    }
}

/// Carries over a time. 0 becomes `off` if the option can be turned off.
fn translate_time(line: &FpmLine, key: &str, table: &mut TomlTable, ledger: &ImportLedger) {
    let Some(time) = time::parse_milliseconds(&line.value) else {
        return;
    };
    let (range, zero) = match key {
        "process_idle_timeout" => (time::SECOND..=time::DAY, None),
        _ => (100..=time::DAY, Some("off".to_owned())),
    };
    let off = zero.filter(|_| time == 0);
    match time::range_remark(time, &range).filter(|_| off.is_none()) {
        Some(remark) => ledger.mark_different(line.id, remark),
        None => ledger.mark_carried(line.id),
    }
    let text = off.unwrap_or_else(|| time::format_clamped(time, &range));
    table.set(key, text, Some(&line.place));
}
