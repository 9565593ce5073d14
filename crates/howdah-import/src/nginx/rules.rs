//! Translates a location into rules. nginx selects a single location, whereas Howdah evaluates all rules in order. A
//! rule therefore excludes the paths of the locations that take precedence in nginx.

use super::location::{Location, LocationKind};
use super::server::ServerTranslation;
use super::{access, files, headers, proxy, rewrite, script};
use crate::directive::Directive;
use crate::expression::extensions;
use crate::rule_condition::{PathMatch, RuleCondition};
use crate::stages::RuleStage;

/// The source of the response in a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocationContent {
    /// A `return`, or access is denied to all clients.
    Response,
    /// `fastcgi_pass`
    Php,
    /// `proxy_pass` and similar directives.
    Proxy,
    /// Files.
    Files,
}

/// Directives that pass requests to a server by a protocol other than FastCGI.
pub const PROXY_DIRECTIVES: &[&str] = &[
    "proxy_pass",
    "grpc_pass",
    "uwsgi_pass",
    "scgi_pass",
    "memcached_pass",
];

/// Determines the [`LocationContent`] of a location.
pub fn content_of(block: &Directive) -> LocationContent {
    let has = |name: &str| block.inner().iter().any(|d| d.name == name);
    let denies_all = block
        .inner()
        .iter()
        .any(|d| d.name == "deny" && d.arg(0) == "all");
    let any = block
        .inner()
        .iter()
        .any(|d| d.name == "satisfy" && d.arg(0) == "any");
    if has("return") || denies_all && !has("allow") && !any {
        LocationContent::Response
    } else if has("fastcgi_pass") {
        LocationContent::Php
    } else if PROXY_DIRECTIVES.iter().any(|name| has(name)) {
        LocationContent::Proxy
    } else if has("internal") {
        LocationContent::Response
    } else {
        LocationContent::Files
    }
}

/// Returns whether lines of the block itself restrict access.
fn has_access_rules(block: &Directive) -> bool {
    const LINES: &[&str] = &[
        "deny",
        "allow",
        "internal",
        "auth_basic",
        "auth_request",
        "auth_jwt",
        "limit_except",
    ];
    let mut lines = block.inner().iter();
    lines.any(|d| LINES.contains(&d.name.as_str()))
}

/// Returns whether the block denies access to all clients.
fn denies_everyone(block: &Directive) -> bool {
    let refuses = |d: &Directive| d.name == "return" && d.arg(0).starts_with('4');
    block.inner().iter().any(refuses)
}

/// Adds the rules of a location.
pub fn translate_location<'a>(work: &mut ServerTranslation<'_, 'a>, number: usize) {
    let location = work.locations[number].clone();
    let block = location.block;
    if location.kind == LocationKind::Named {
        return record_named_location(work, &location);
    }
    let ledger = work.ledger;
    let paths = match location.paths() {
        Ok(paths) => paths,
        Err(why) => return list_unsupported_location(work, &location, &why),
    };
    ledger.mark_carried(block.id);
    let kind = content_of(block);
    let but = |except| RuleCondition::except(paths.clone(), preceding_paths(work, number, except));
    let when = but(PrecedingLocations::WhatFallsThrough);
    // A closed location stays closed for scripts if only the location of all scripts takes precedence over it.
    let guarded =
        match denies_everyone(block) && kind != LocationContent::Php && !location.is_catch_all() {
            true => but(PrecedingLocations::AllButScripts),
            false => when.clone(),
        };
    // Unlike `return`, access restrictions are inherited by inner locations.
    let accessed = match has_access_rules(block) && kind != LocationContent::Php {
        true => but(PrecedingLocations::OthersButScripts),
        false => but(PrecedingLocations::Others),
    };
    if guarded != when || accessed != but(PrecedingLocations::Others) {
        let remark = "scripts below this location are denied as well, even if nginx would run them because another location matches";
        ledger.mark_different(block.id, remark);
    }
    headers::translate_location_headers(work, &location, &when);
    super::limits::translate_location_limits(work, &location, &when);
    access::translate_access(work, block.inner(), &accessed, Some(&location));
    if has_internal_rewrite(block) {
        let exact = RuleCondition::except(
            paths,
            preceding_paths(work, number, PrecedingLocations::All),
        );
        work.stage = RuleStage::Rewrites;
        let before = work.stages.len(RuleStage::Rewrites);
        let answered = rewrite::translate_block(work, block.inner(), &exact, &location.prefix);
        work.stage = RuleStage::Responses;
        // Paths that another rewrite leads here are handled as well.
        for rule in work.stages.since(RuleStage::Rewrites, before) {
            if rule.get("rewrite").is_none() {
                work.stages.push(RuleStage::Responses, rule);
            }
        }
        if answered {
            return record_unreachable_content(work, block);
        }
    } else if rewrite::translate_block(
        work,
        block.inner(),
        if kind == LocationContent::Response {
            &guarded
        } else {
            &when
        },
        &location.prefix,
    ) {
        return record_unreachable_content(work, block);
    }
    match kind {
        LocationContent::Response => {}
        LocationContent::Php => script::translate_script_location(work, &location, &when),
        LocationContent::Proxy => proxy::translate_proxy_location(work, &location, &when),
        LocationContent::Files => files::translate_file_location(work, &location, &when),
    }
}

/// Returns whether some line gives the request another path within the server.
fn has_internal_rewrite(block: &Directive) -> bool {
    let mut found = false;
    for line in block.inner().iter().filter(|d| d.name != "location") {
        line.walk(&mut |d| {
            found |= d.name == "rewrite" && !matches!(d.arg(2), "permanent" | "redirect")
        });
    }
    found
}

/// Records that the directives after a `return` are never reached.
fn record_unreachable_content(work: &ServerTranslation<'_, '_>, block: &Directive) {
    for line in block.inner() {
        let content = matches!(
            line.name.as_str(),
            "try_files" | "fastcgi_pass" | "root" | "alias"
        );
        if content || PROXY_DIRECTIVES.contains(&line.name.as_str()) {
            work.ledger
                .mark_irrelevant(line.id, "the `return` in the same block responds first");
        }
    }
}

/// Records the outcome of a location whose expression rules do not support.
fn list_unsupported_location(
    work: &mut ServerTranslation<'_, '_>,
    location: &Location<'_>,
    why: &str,
) {
    let (ledger, block) = (work.ledger, location.block);
    if content_of(block) != LocationContent::Response {
        return super::hosts::list_block(block, why, ledger);
    }
    ledger.mark_missing_protection(block.id, why);
    for line in block.inner() {
        ledger.mark_missing_protection(line.id, "its block is not carried over");
    }
}

/// Which of the locations that take precedence a rule excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PrecedingLocations {
    /// All locations that take precedence.
    All,
    /// Locations for which no earlier rule has produced a response.
    WhatFallsThrough,
    /// Like `WhatFallsThrough`, without the locations that take all scripts and do not restrict access.
    AllButScripts,
    /// Like `WhatFallsThrough`, without the locations inside this one.
    Others,
    /// Like `Others`, without the locations that take all scripts and do not restrict access.
    OthersButScripts,
}

/// Returns the paths of the locations that take precedence over this one.
fn preceding_paths(
    work: &ServerTranslation<'_, '_>,
    number: usize,
    except: PrecedingLocations,
) -> Vec<PathMatch> {
    use PrecedingLocations::{All, AllButScripts, Others, OthersButScripts};
    let location = &work.locations[number];
    let within = |other: &Location<'_>| other.around.iter().any(|b| b.id == location.block.id);
    let passes = |other: &&Location<'_>| match content_of(other.block) {
        _ if except == All => true,
        _ if matches!(except, Others | OthersButScripts) && within(other) => false,
        // A location of scripts that restricts access itself keeps its restrictions.
        LocationContent::Php if matches!(except, AllButScripts | OthersButScripts) => {
            has_access_rules(other.block)
                || denies_everyone(other.block)
                || !takes_all_scripts(other)
        }
        LocationContent::Php | LocationContent::Files => true,
        LocationContent::Response | LocationContent::Proxy => false,
    };
    let (before, after) = work.locations.split_at(number);
    let before = before
        .iter()
        .filter(|other| !prefix_overrules_nested(location, other));
    let after = after
        .iter()
        .filter(|other| prefix_overrules_nested(other, location));
    let others = before.filter(passes).chain(after);
    let others = others.filter(|other| may_overlap(other, location));
    let mut found = Vec::new();
    for paths in others.filter_map(|other| other.paths().ok()) {
        if paths != PathMatch::All && !found.contains(&paths) {
            found.push(paths);
        }
    }
    found
}

/// Returns whether a longer prefix takes precedence over an expression nested in a shorter prefix.
fn prefix_overrules_nested(longer: &Location<'_>, nested: &Location<'_>) -> bool {
    let around = nested.around.last().map(|block| block.id);
    let beside = !longer.around.iter().any(|block| Some(block.id) == around);
    nested.kind == LocationKind::NestedRegex
        && matches!(
            longer.kind,
            LocationKind::Prefix | LocationKind::PrefixNoRegex
        )
        && beside
        && longer.pattern.len() > nested.prefix.len()
        && longer.pattern.starts_with(&nested.prefix)
}

/// Returns whether the location takes scripts of any name; two unlikely names are tried.
pub fn takes_all_scripts(location: &Location<'_>) -> bool {
    location.matches_path("/x7q/y9z.php") && location.matches_path("/y9z.php")
}

/// Returns whether some path may match both locations.
pub fn may_overlap(one: &Location<'_>, other: &Location<'_>) -> bool {
    let is_regex =
        |l: &Location<'_>| matches!(l.kind, LocationKind::Regex | LocationKind::NestedRegex);
    match (one.kind, other.kind) {
        (LocationKind::Named, _) | (_, LocationKind::Named) => false,
        (LocationKind::Exact, _) => other.matches_path(&one.pattern),
        (_, LocationKind::Exact) => one.matches_path(&other.pattern),
        _ if is_regex(one) && is_regex(other) => {
            match (extensions(&one.pattern), extensions(&other.pattern)) {
                (Some(one), Some(other)) => one.iter().any(|e| other.contains(e)),
                _ => true,
            }
        }
        _ if is_regex(one) || is_regex(other) => true,
        _ => one.pattern.starts_with(&other.pattern) || other.pattern.starts_with(&one.pattern),
    }
}

/// Puts a named location on the list if no line leads to it. The rules of other named locations were added for the
/// lines that name them.
fn record_named_location(work: &ServerTranslation<'_, '_>, location: &Location<'_>) {
    let ledger = work.ledger;
    if !location.pattern.starts_with('@') {
        return super::hosts::list_block(
            location.block,
            "`location` of a kind that this importer does not know",
            ledger,
        );
    }
    if !ledger.has_outcome(location.block.id) {
        super::hosts::list_block(
            location.block,
            "no try_files that was carried over uses this location",
            ledger,
        );
    }
}
