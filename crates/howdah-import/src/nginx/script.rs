//! Translates locations with `fastcgi_pass`: which scripts run, and in which pool. No other scripts are run.

use super::files::SCRIPT_REGEX;
use super::location::{Location, LocationKind};
use super::php;
use super::rules::{self, LocationContent, content_of};
use super::scope::NginxScope;
use super::server::ServerTranslation;
use super::variables::{has_variables, replace_constants};
use crate::directive::Directive;
use crate::expression::{compile_path, extensions, may_match};
use crate::pool;
use crate::rule_condition::{PathMatch, RuleCondition};
use crate::stages::RuleStage;
use crate::target::TomlValue;
use crate::time;

/// File name extensions of scripts that a location may be for.
const SCRIPT_EXTENSIONS: &[&str] = &["php", "phtml", "php3", "php4", "php5", "php7", "php8"];

/// Chooses the site's pool: that of `/index.php`, or the first.
pub fn choose_pool(work: &mut ServerTranslation<'_, '_>) {
    let locations = work.locations.clone();
    let is_php = |l: &&Location<'_>| content_of(l.block) == LocationContent::Php;
    let main = locations
        .iter()
        .filter(is_php)
        .find(|l| l.matches_path("/index.php"));
    let Some(main) = main.or_else(|| locations.iter().find(is_php)) else {
        return;
    };
    if let Some((name, pass)) = pool_of(work, main) {
        let place = pass.place.clone();
        work.site.table.set("pool", name.as_str(), Some(&place));
        let fpm = work.context.pools.fpm;
        if let Some(fpm) = fpm.iter().find(|pool| pool.name == name) {
            pool::add_site_settings(fpm, &mut work.site);
        }
    }
}

/// Returns the pool that a location names, and the line.
fn pool_of<'a>(
    work: &mut ServerTranslation<'_, 'a>,
    location: &Location<'a>,
) -> Option<(String, &'a Directive)> {
    let pass = location
        .block
        .inner()
        .iter()
        .rev()
        .find(|d| d.name == "fastcgi_pass")?;
    let context = &mut *work.context;
    match context
        .pools
        .pool_for(pass, &work.constants, context.config, work.ledger)
    {
        Ok(name) => {
            work.ledger.mark_carried(pass.id);
            Some((name, pass))
        }
        Err(need) => {
            work.ledger.mark_missing(pass.id, need);
            None
        }
    }
}

/// Translates a location that runs scripts.
pub fn translate_script_location<'a>(
    work: &mut ServerTranslation<'_, 'a>,
    location: &Location<'a>,
    when: &RuleCondition,
) {
    let ledger = work.ledger;
    let scope = work.scope_of(location);
    let params = scope.all(&["fastcgi_param"]);
    let constants = work.constants.clone();
    php::translate_params(&params, &constants, &mut work.site, ledger);
    let Some((name, pass)) = pool_of(work, location) else {
        // No pool can run these scripts, and their source must not be sent.
        let rule = when.rule("return", 502, &location.block.place);
        return work.push_at(RuleStage::Responses, rule);
    };
    if work.site.table.get("pool") != Some(&TomlValue::Text(name.clone())) {
        let rule = when.rule("pool", name.as_str(), &pass.place);
        work.push_at(RuleStage::Pools, rule);
    }
    translate_read_timeout(work, &scope, &name);
    translate_script_root(work, &params, &name);
    let hidden = scope.all(&["fastcgi_hide_header"]);
    for line in hidden
        .iter()
        .filter(|d| crate::target::is_settable_header(d.arg(0)))
    {
        let nothing = TomlValue::Pairs(vec![(line.arg(0).to_owned(), String::new())]);
        let rule = RuleCondition::default().rule("set_header", nothing, &line.place);
        work.push_at(RuleStage::Headers, rule);
        ledger.mark_carried(line.id);
    }
    super::files::translate_other_directory(work, location, when);
    if let Some(script) = fixed_script(work, &params) {
        let stage = match work.stage {
            RuleStage::LastResort => RuleStage::LastResort,
            _ => RuleStage::MissingFiles,
        };
        work.push_at(stage, when.rule("rewrite", script, &location.block.place));
        return;
    }
    let missing = RuleCondition {
        if_missing: true,
        ..when.clone()
    };
    let tried = location
        .block
        .inner()
        .iter()
        .rev()
        .find(|d| d.name == "try_files");
    match tried.and_then(|line| Some((line, line.args.last()?))) {
        Some((line, last))
            if !matches!(work.stage, RuleStage::MissingFiles | RuleStage::LastResort) =>
        {
            super::files::add_fallback(work, line, last, &missing)
        }
        _ if location.kind != LocationKind::Named && !location.is_catch_all() => {
            let rule = missing.rule("deny", 404, &location.block.place);
            work.push_at(RuleStage::MissingFiles, rule);
        }
        _ => {}
    }
}

/// Translates `fastcgi_read_timeout`: a pool of php-fpm gets the longest one of all locations; Howdah's own processes
/// have `request_terminate_timeout` instead.
fn translate_read_timeout(
    work: &mut ServerTranslation<'_, '_>,
    scope: &NginxScope<'_>,
    pool: &str,
) {
    let Some(line) = scope.last("fastcgi_read_timeout") else {
        return;
    };
    let mut pools = work.context.config.pools.iter_mut();
    let Some((_, table, _)) = pools.find(|(name, ..)| name == pool) else {
        return;
    };
    if table.get("mode") != Some(&TomlValue::from("fastcgi")) {
        let need = "`request_terminate_timeout` in the pool limits a script's time";
        return work.ledger.mark_missing(line.id, need);
    }
    let range = 10..=time::DAY;
    let Some(longest) = time::parse_milliseconds(line.arg(0)) else {
        return work
            .ledger
            .mark_missing(line.id, "use `read_timeout` in the pool");
    };
    let known = match table.get("read_timeout") {
        Some(TomlValue::Text(text)) => time::parse_milliseconds(text).unwrap_or(0),
        _ => 0,
    };
    if longest > known {
        let text = time::format_clamped(longest, &range);
        table.set("read_timeout", text, Some(&line.place));
    }
    match time::range_remark(longest, &range) {
        Some(remark) => work.ledger.mark_different(line.id, remark),
        None => work.ledger.mark_carried(line.id),
    }
}

/// Returns the last line that sets `SCRIPT_FILENAME`, which is the one that takes effect.
pub fn script_filename<'a>(params: &[&'a Directive]) -> Option<&'a Directive> {
    let mut lines = params.iter().rev();
    lines.find(|d| d.arg(0) == "SCRIPT_FILENAME").copied()
}

/// Translates a `SCRIPT_FILENAME` with a directory other than the root: php-fpm has the site there, in a container or
/// on another machine.
fn translate_script_root(work: &mut ServerTranslation<'_, '_>, params: &[&Directive], pool: &str) {
    let line = params.iter().rev().find(|d| d.arg(0) == "SCRIPT_FILENAME");
    let (Some(line), Some(here)) = (line, work.root.clone()) else {
        return;
    };
    let value = replace_constants(line.arg(1), &work.constants);
    let Some(there) = value.strip_suffix("${fastcgi_script_name}") else {
        return;
    };
    let there = there.trim_end_matches('/');
    if !there.starts_with('/') || has_variables(there) || there == here.trim_end_matches('/') {
        return;
    }
    let mut pools = work.context.config.pools.iter_mut();
    let Some((_, table, pairs)) = pools.find(|(name, ..)| name == pool) else {
        return;
    };
    if table.get("mode") != Some(&TomlValue::from("fastcgi")) {
        let need = "the scripts of this pool run from the root: set root to the directory that contains them";
        return work.ledger.mark_missing(line.id, need);
    }
    let known = pairs.entry("script_root").or_default();
    if known.iter().any(|(h, t)| *h == here && t != there) {
        let need = "another site in this pool maps the same directory to a different path: give this site a pool of its own";
        return work.ledger.mark_missing(line.id, need);
    }
    if !known.iter().any(|(h, _)| *h == here) {
        known.push((here, there.to_owned()));
    }
    work.ledger.mark_carried(line.id);
}

/// Returns the one script below the root that a `SCRIPT_FILENAME` without the request's path names.
fn fixed_script(work: &ServerTranslation<'_, '_>, params: &[&Directive]) -> Option<String> {
    let line = script_filename(params)?;
    let value = replace_constants(line.arg(1), &work.constants);
    let roots = ["${document_root}", "${realpath_root}"];
    let rest = roots.iter().find_map(|root| value.strip_prefix(root));
    let rest = rest.or_else(|| value.strip_prefix(work.root.as_deref()?));
    let script = rest?;
    let is_fixed = script.starts_with('/') && !has_variables(script);
    is_fixed.then(|| script.replace('$', "$$"))
}

/// Denies scripts that no location runs: nginx would send their source.
pub fn deny_other_scripts(work: &mut ServerTranslation<'_, '_>) {
    let php: Vec<&Location<'_>> = work
        .locations
        .iter()
        .filter(|l| content_of(l.block) == LocationContent::Php && l.kind != LocationKind::Named)
        .collect();
    let named = work
        .locations
        .iter()
        .any(|l| content_of(l.block) == LocationContent::Php && l.kind == LocationKind::Named);
    if php.is_empty() && !named {
        work.site
            .table
            .set("php_extensions", TomlValue::Texts(Vec::new()), None);
        return;
    }
    let mut endings = vec![".php".to_owned()];
    for ending in SCRIPT_EXTENSIONS.iter().filter(|ending| **ending != "php") {
        let has = |l: &Location<'_>| match extensions(&l.pattern) {
            Some(found) => found.iter().any(|e| e == ending),
            None => {
                l.kind != LocationKind::Prefix
                    && l.kind != LocationKind::PrefixNoRegex
                    && l.matches_path(&format!("/x.{ending}"))
            }
        };
        if php.iter().any(|l| has(l)) {
            endings.push(format!(".{ending}"));
        }
    }
    if endings.len() > 1 {
        work.site
            .table
            .set("php_extensions", TomlValue::Texts(endings), None);
    }
    if php.iter().any(|l| rules::takes_all_scripts(l)) {
        return;
    }
    // `location /api.php/` is for the path info of a script that is run.
    let follows = |l: &&Location<'_>| {
        let script = l.pattern.find(".php/").map(|at| &l.pattern[..at + 4]);
        let is_prefix = matches!(l.kind, LocationKind::Prefix | LocationKind::PrefixNoRegex);
        is_prefix && script.is_some_and(|script| php.iter().any(|l| l.matches_path(script)))
    };
    let following = work.locations.iter().filter(follows);
    let all = php.iter().copied().chain(following);
    let paths: Vec<PathMatch> = all.filter_map(|l| l.paths().ok()).collect();
    let when = RuleCondition::except(PathMatch::Regex(SCRIPT_REGEX.to_owned()), paths);
    let mut rule = when.rule("deny", 404, &work.block.place);
    rule.comment("nginx has no location that runs other scripts.");
    work.push_at(RuleStage::Responses, rule);
}

/// Removes scripts from the index if they would not run under their own name. Howdah applies a rewrite to the path that
/// a client requests, not to the index of a directory. If a rewrite leads scripts of any directory elsewhere, as in
/// Nextcloud's configuration, no script remains an index. `/index.php` stays the home page if it runs under its own
/// name.
pub fn remove_scripts_from_index(work: &mut ServerTranslation<'_, '_>) {
    let leads_away = |location: &Location<'_>, script: &str| {
        let mut lines = location.block.inner().iter();
        lines.any(|d| {
            let expression = compile_path(d.arg(0));
            d.name == "rewrite" && expression.is_ok_and(|e| may_match(&e, script))
        })
    };
    let runs = |script: &str| {
        let location = work.locations.iter().find(|l| l.matches_path(script))?;
        let is_php = content_of(location.block) == LocationContent::Php;
        is_php.then(|| !leads_away(location, script))
    };
    if runs("/x7q/index.php") != Some(false) {
        return;
    }
    let runs = runs("/index.php") == Some(true);
    let Some(TomlValue::Texts(names)) = work.site.table.get("index").cloned() else {
        return;
    };
    let is_script = |name: &String| name.ends_with(".php");
    if !names.iter().any(is_script) {
        return;
    }
    let mut rest: Vec<String> = names.iter().filter(|n| !is_script(n)).cloned().collect();
    if rest.is_empty() {
        rest.push("index.html".to_owned());
    }
    if runs {
        add_home_page(work);
    }
    work.site.table.set("index", TomlValue::Texts(rest), None);
}

/// Adds a rule for the home page if a rewrite leads the first index to a script, because nginx also applies rewrites to
/// the index of a directory.
pub fn add_home_page_of_rewritten_index(work: &mut ServerTranslation<'_, '_>) {
    let Some(TomlValue::Texts(names)) = work.site.table.get("index") else {
        return;
    };
    let index = format!("/{}", names.first().map_or("", String::as_str));
    let within = work.locations.iter().find(|l| l.matches_path(&index));
    let within = within.filter(|l| l.is_catch_all()).map(|l| l.block.inner());
    let lines = work.block.inner().iter().chain(within.unwrap_or_default());
    let mut rewrites = lines.filter(|d| d.name == "rewrite");
    let leads = |d: &&Directive| compile_path(d.arg(0)).is_ok_and(|e| may_match(&e, &index));
    let Some(line) = rewrites.find(leads).filter(|line| line.arg(2) == "last") else {
        return;
    };
    let target = line.arg(1);
    if target.starts_with('/') && target.ends_with(".php") && !has_variables(target) {
        let when = RuleCondition::paths(PathMatch::Path("/".to_owned()));
        let rule = when.rule("rewrite", target, &line.place);
        work.push_at(RuleStage::Rewrites, rule);
    }
}

/// Makes `/index.php` the home page of a site where scripts are not the index of directories.
pub fn add_home_page(work: &mut ServerTranslation<'_, '_>) {
    let Some(TomlValue::Texts(names)) = work.site.table.get("index") else {
        return;
    };
    if !names.iter().any(|name| name == "index.php") {
        return;
    }
    let when = RuleCondition {
        if_missing: names.first().is_some_and(|name| name != "index.php"),
        ..RuleCondition::paths(PathMatch::Path("/".to_owned()))
    };
    let rule = when.rule("rewrite", "/index.php", &work.block.place);
    work.push_at(RuleStage::MissingFiles, rule);
}
