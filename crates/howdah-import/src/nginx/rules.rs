//! A location as rules. nginx chooses one location, Howdah asks all rules in order: a rule excepts the
//! paths of the locations that nginx prefers.

use super::location::{Kind, Location};
use super::server::Work;
use super::{access, files, headers, proxy, rewrite, script};
use crate::directive::Directive;
use crate::expression::extensions;
use crate::stages::Stage;
use crate::when::{Match, When};

/// What answers in a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// `return`, or nobody may go there.
    Answer,
    /// `fastcgi_pass`
    Php,
    /// `proxy_pass` and its kin.
    Proxy,
    /// Files.
    Files,
}

/// Directives that pass requests on, FastCGI aside.
pub const PROXIES: &[&str] = &[
    "proxy_pass",
    "grpc_pass",
    "uwsgi_pass",
    "scgi_pass",
    "memcached_pass",
];

/// See [`Content`].
pub fn content(block: &Directive) -> Content {
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
        Content::Answer
    } else if has("fastcgi_pass") {
        Content::Php
    } else if PROXIES.iter().any(|name| has(name)) {
        Content::Proxy
    } else if has("internal") {
        Content::Answer
    } else {
        Content::Files
    }
}

/// Whether lines of its own say who may go there.
fn restricts(block: &Directive) -> bool {
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

/// Whether nobody may go there.
fn refuses(block: &Directive) -> bool {
    let refuses = |d: &Directive| d.name == "return" && d.arg(0).starts_with('4');
    block.inner().iter().any(refuses)
}

/// Adds the rules of a location.
pub fn location<'a>(work: &mut Work<'_, 'a>, number: usize) {
    let location = work.locations[number].clone();
    let block = location.block;
    if location.kind == Kind::Named {
        return named(work, &location);
    }
    let ledger = work.ledger;
    let paths = match location.paths() {
        Ok(paths) => paths,
        Err(why) => return unexpressed(work, &location, &why),
    };
    ledger.carried(block.id);
    let kind = content(block);
    let but = |except| When::except(paths.clone(), preferred(work, number, except));
    let when = but(Except::WhatFallsThrough);
    // What is closed stays closed for scripts, where only the location of all scripts is preferred to it.
    let guarded = match refuses(block) && kind != Content::Php && !location.is_rest() {
        true => but(Except::AllButScripts),
        false => when.clone(),
    };
    // Unlike `return`, access is inherited by the locations within.
    let accessed = match restricts(block) && kind != Content::Php {
        true => but(Except::OthersButScripts),
        false => but(Except::Others),
    };
    if guarded != when || accessed != but(Except::Others) {
        let remark =
            "scripts below it are closed as well; nginx runs them where another location says so";
        ledger.remark(block.id, remark);
    }
    headers::of_location(work, &location, &when);
    super::limits::of_location(work, &location, &when);
    access::of_block(work, block.inner(), &accessed, Some(&location));
    if rewrites(block) {
        let exact = When::except(paths, preferred(work, number, Except::All));
        work.stage = Stage::Rewrites;
        let before = work.stages.len(Stage::Rewrites);
        let answered = rewrite::block(work, block.inner(), &exact, &location.prefix);
        work.stage = Stage::Answers;
        // Whatever another rewrite leads here is answered, too.
        for rule in work.stages.since(Stage::Rewrites, before) {
            if rule.get("rewrite").is_none() {
                work.stages.push(Stage::Answers, rule);
            }
        }
        if answered {
            return settle_content(work, block);
        }
    } else if rewrite::block(
        work,
        block.inner(),
        if kind == Content::Answer {
            &guarded
        } else {
            &when
        },
        &location.prefix,
    ) {
        return settle_content(work, block);
    }
    match kind {
        Content::Answer => {}
        Content::Php => script::location(work, &location, &when),
        Content::Proxy => proxy::location(work, &location, &when),
        Content::Files => files::location(work, &location, &when),
    }
}

/// Whether some line gives the request another path within the server.
fn rewrites(block: &Directive) -> bool {
    let mut found = false;
    for line in block.inner().iter().filter(|d| d.name != "location") {
        line.walk(&mut |d| {
            found |= d.name == "rewrite" && !matches!(d.arg(2), "permanent" | "redirect")
        });
    }
    found
}

/// What stands behind a `return` is never reached.
fn settle_content(work: &Work<'_, '_>, block: &Directive) {
    for line in block.inner() {
        let content = matches!(
            line.name.as_str(),
            "try_files" | "fastcgi_pass" | "root" | "alias"
        );
        if content || PROXIES.contains(&line.name.as_str()) {
            work.ledger
                .moot(line.id, "the `return` beside it answers before");
        }
    }
}

/// A location whose expression rules cannot have.
fn unexpressed(work: &mut Work<'_, '_>, location: &Location<'_>, why: &str) {
    let (ledger, block) = (work.ledger, location.block);
    if content(block) != Content::Answer {
        return super::hosts::list_all(block, why, ledger);
    }
    ledger.list_protection(block.id, why);
    for line in block.inner() {
        ledger.list_protection(line.id, "its block is not carried over");
    }
}

/// Which of the preferred locations a rule excepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Except {
    /// All of them.
    All,
    /// Those for which no rule before has answered.
    WhatFallsThrough,
    /// Those of them that are not for all scripts.
    AllButScripts,
    /// Those for which no rule has answered and that are not within this location.
    Others,
    /// Those of them that are not for all scripts.
    OthersButScripts,
}

/// Paths of the locations that nginx prefers to this one.
fn preferred(work: &Work<'_, '_>, number: usize, except: Except) -> Vec<Match> {
    use Except::{All, AllButScripts, Others, OthersButScripts};
    let location = &work.locations[number];
    let within = |other: &Location<'_>| other.around.iter().any(|b| b.id == location.block.id);
    let passes = |other: &&Location<'_>| match content(other.block) {
        _ if except == All => true,
        _ if matches!(except, Others | OthersButScripts) && within(other) => false,
        // One that is for clients of another kind keeps its own.
        Content::Php if matches!(except, AllButScripts | OthersButScripts) => {
            restricts(other.block) || refuses(other.block) || !is_for_all_scripts(other)
        }
        Content::Php | Content::Files => true,
        Content::Answer | Content::Proxy => false,
    };
    let (before, after) = work.locations.split_at(number);
    let before = before.iter().filter(|other| !overrules(location, other));
    let after = after.iter().filter(|other| overrules(other, location));
    let others = before.filter(passes).chain(after);
    let others = others.filter(|other| may_meet(other, location));
    let mut found = Vec::new();
    for paths in others.filter_map(|other| other.paths().ok()) {
        if paths != Match::All && !found.contains(&paths) {
            found.push(paths);
        }
    }
    found
}

/// Whether the longer prefix keeps its paths from an expression that stands within a shorter one.
fn overrules(longer: &Location<'_>, nested: &Location<'_>) -> bool {
    let around = nested.around.last().map(|block| block.id);
    let beside = !longer.around.iter().any(|block| Some(block.id) == around);
    nested.kind == Kind::NestedRegex
        && matches!(longer.kind, Kind::Prefix | Kind::Firm)
        && beside
        && longer.pattern.len() > nested.prefix.len()
        && longer.pattern.starts_with(&nested.prefix)
}

/// Whether it is for scripts of any name, of which two unlikely ones are tried.
pub fn is_for_all_scripts(location: &Location<'_>) -> bool {
    location.has("/x7q/y9z.php") && location.has("/y9z.php")
}

/// Whether some path may be for both.
pub fn may_meet(one: &Location<'_>, other: &Location<'_>) -> bool {
    let is_regex = |l: &Location<'_>| matches!(l.kind, Kind::Regex | Kind::NestedRegex);
    match (one.kind, other.kind) {
        (Kind::Named, _) | (_, Kind::Named) => false,
        (Kind::Exact, _) => other.has(&one.pattern),
        (_, Kind::Exact) => one.has(&other.pattern),
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

/// `location @name`: what it does is done where it is named; the rest is on the list.
fn named(work: &Work<'_, '_>, location: &Location<'_>) {
    let ledger = work.ledger;
    if !location.pattern.starts_with('@') {
        return super::hosts::list_all(
            location.block,
            "`location` of a kind that this importer does not know",
            ledger,
        );
    }
    if !ledger.is_settled(location.block.id) {
        super::hosts::list_all(
            location.block,
            "no try_files that is carried over leads there",
            ledger,
        );
    }
}
