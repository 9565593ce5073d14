//! What is looked for on the disk: `try_files`, `alias`, another `root`, named locations.

use super::location::{Kind, Location};
use super::rules::{self, Content, content};
use super::server::Work;
use super::variables::{constant, has_variables, template, without_query};
use super::{proxy, resolve, rewrite, script};
use crate::directive::Directive;
use crate::expression::{compile_path, has_groups};
use crate::link;
use crate::stages::Stage;
use crate::target::Value;
use crate::when::{Match, When};

/// The search of the whole site: that of `location /`, or of a server without one.
pub fn search(work: &mut Work<'_, '_>) {
    let rest = work.rest();
    let line = match &rest {
        Some(rest) if content(rest.block) != Content::Files => None,
        Some(rest) => rest.block.last("try_files"),
        None => work.block.last("try_files"),
    };
    let Some(line) = line else {
        return not_found_leads(work);
    };
    let Some((last, before)) = line.args.split_last() else {
        return;
    };
    work.rest_leads_on = last != "=404";
    let mut names = Vec::new();
    for name in before {
        match template(&constant(name, &work.constants)) {
            Ok(name) if name.contains("$uri") => names.push(name),
            // A page for all paths, if it is there, as for maintenance.
            Ok(name)
                if name.starts_with('/')
                    && !name.contains(['$', '?'])
                    && !name.contains(".php") =>
            {
                names.push(name);
            }
            Ok(_) => work
                .ledger
                .list(line.id, "entries of try_files are made of $uri"),
            Err(need) => work.ledger.list(line.id, need),
        }
    }
    if names.is_empty() {
        // Nothing but the last: every path leads there.
        names.push("=404".to_owned());
        fallback(work, line, last, &When::default());
    } else {
        fallback(work, line, last, &When::missing());
    }
    let place = &line.place;
    work.site
        .table
        .set("try_files", Value::Texts(names), Some(place));
    work.ledger.carried(line.id);
}

/// `error_page 404 = @name`: a front controller of old configurations. Without `=` the answer stays a 404.
fn not_found_leads(work: &mut Work<'_, '_>) {
    let rest = work.rest();
    let scope = match &rest {
        Some(rest) if content(rest.block) != Content::Files => return,
        Some(rest) => work.scope_of(rest),
        None => work.scope.clone(),
    };
    let lines = scope.all(&["error_page"]);
    let leads = |line: &&&Directive| {
        let words: Vec<&str> = line.args.iter().map(String::as_str).collect();
        matches!(words[..], ["404", "=" | "=200", to] if to.starts_with(['@', '/']))
    };
    let Some(line) = lines.iter().find(leads) else {
        return;
    };
    let target = line.args.last().map_or("", String::as_str);
    if target.starts_with('/') && !target.contains(".php") {
        return;
    }
    work.rest_leads_on = true;
    fallback(work, line, target, &When::missing());
    let usual = ["$uri", "$uri/"].map(str::to_owned).to_vec();
    let place = &line.place;
    work.site
        .table
        .set("try_files", Value::Texts(usual), Some(place));
}

/// The last entry of `try_files`, for these requests.
pub fn fallback(work: &mut Work<'_, '_>, line: &Directive, last: &str, when: &When) {
    let ledger = work.ledger;
    if let Some(status) = last.strip_prefix('=') {
        let number: u64 = status.parse().unwrap_or(404);
        // 404 is what a site without a front controller answers.
        let usual = number == 404 && when.paths == Match::All && when.missing;
        if !usual {
            let action = if matches!(number, 403 | 404 | 410) {
                "deny"
            } else {
                "return"
            };
            work.push_at(Stage::Missing, when.rule(action, number, &line.place));
        }
        return ledger.carried(line.id);
    }
    if last.starts_with('@') {
        return match work.named(last) {
            Some(named) => {
                ledger.carried(line.id);
                named_location(work, &named, when);
            }
            None => ledger.list(line.id, format!("the location {last} does not exist")),
        };
    }
    let target = template(&constant(last, &work.constants)).and_then(|target| {
        has_groups(&target, &when.paths)?;
        Ok(target)
    });
    let target = match target {
        Ok(target) => without_query(&target).to_owned(),
        Err(need) => return leads_nowhere(work, line, when, &need),
    };
    // nginx finds no location for a target without a slash but by an expression; what is meant is clear.
    let target = match target.starts_with(['/', '$', '=']) {
        true => target,
        false => format!("/{target}"),
    };
    let (path, _) = target.split_once('?').unwrap_or((&target, ""));
    if !has_variables(path) && refuses(work, path) {
        let need = format!("{path} is closed to some here, and this would lead around it");
        return leads_nowhere(work, line, when, &need);
    }
    ledger.carried(line.id);
    if when.paths == Match::All
        && when.missing
        && when.not.is_empty()
        && !target.contains(['?', '$'])
    {
        return work.set_controller(&target, line);
    }
    let stage = match when.paths == Match::All {
        true => Stage::LastResort,
        false => Stage::Missing,
    };
    work.push_at(stage, when.rule("rewrite", target, &line.place));
}

/// Nothing answers, rather than something else.
fn leads_nowhere(work: &mut Work<'_, '_>, line: &Directive, when: &When, need: &str) {
    work.push_at(Stage::Missing, when.rule("deny", 404, &line.place));
    work.ledger.list(line.id, format!("{need}; 404 here"));
}

/// Whether the location of a path refuses some requests by rules, which an inner redirect would pass by.
fn refuses(work: &Work<'_, '_>, path: &str) -> bool {
    let chosen = work.locations.iter().find(|location| location.has(path));
    chosen.is_some_and(|location| location.block.inner().iter().any(may_refuse))
}

/// Whether a directive of a location may answer a request in place of its script. An `if` that only sets
/// variables, as page caches have it, does not; neither does one that answers 404 where the script is missing,
/// which Howdah does by itself.
fn may_refuse(directive: &Directive) -> bool {
    match directive.name.as_str() {
        "deny" | "return" | "limit_except" => true,
        "if" => {
            let block = directive.inner();
            let is_harmless = |d: &Directive| matches!(d.name.as_str(), "set" | "add_header");
            let answers = !block.iter().all(is_harmless);
            answers && !(asks_for_the_script(directive) && block.iter().all(is_not_found))
        }
        _ => false,
    }
}

/// `if (!-f $document_root$fastcgi_script_name)`, as nginx' own documentation advises it.
pub fn asks_for_the_script(directive: &Directive) -> bool {
    let mut condition = String::new();
    for number in 0.. {
        match directive.arg(number) {
            "" => break,
            word => condition += word,
        }
    }
    let condition = condition.trim_matches(['(', ')']);
    ["!-f", "!-e"].iter().any(|test| {
        condition.strip_prefix(test).is_some_and(|file| {
            matches!(
                file,
                "$document_root$fastcgi_script_name"
                    | "$document_root/$fastcgi_script_name"
                    | "$realpath_root$fastcgi_script_name"
                    | "$request_filename"
            )
        })
    })
}

pub fn is_not_found(directive: &Directive) -> bool {
    directive.name == "return" && directive.arg(0) == "404"
}

/// What `location @name` does, done where it is named.
fn named_location<'a>(work: &mut Work<'_, 'a>, named: &Location<'a>, when: &When) {
    let ledger = work.ledger;
    ledger.carried(named.block.id);
    // What other locations are for is missing there, and does not lead here.
    let own = match when.paths == Match::All {
        true => Stage::LastResort,
        false => Stage::Missing,
    };
    let stage = std::mem::replace(&mut work.stage, own);
    let was_named = std::mem::replace(&mut work.is_named, true);
    let answered = rewrite::block(work, named.block.inner(), when, "");
    work.is_named = was_named;
    if !answered {
        match content(named.block) {
            Content::Proxy => proxy::location(work, named, when),
            Content::Php => script::location(work, named, when),
            Content::Answer | Content::Files => {}
        }
    }
    work.stage = stage;
}

/// A location of files.
pub fn location<'a>(work: &mut Work<'_, 'a>, location: &Location<'a>, when: &When) {
    without_scripts(work, location);
    let elsewhere = elsewhere(work, location, when);
    if location.is_rest() {
        return;
    }
    let missing = When {
        missing: true,
        ..when.clone()
    };
    let Some(line) = location.block.last("try_files") else {
        let others_answer = work.rest_leads_on || !work.rest_is_files();
        if others_answer || elsewhere {
            let place = location.block.place.clone();
            work.push_at(Stage::Missing, missing.rule("deny", 404, &place));
        }
        return;
    };
    let (last, before) = match line.args.split_last() {
        Some(split) => split,
        None => return,
    };
    let usual = |name: &String| {
        matches!(
            constant(name, &work.constants).as_str(),
            "${uri}" | "${uri}/" | "$uri" | "$uri/"
        )
    };
    if before.is_empty() || !before.iter().all(usual) {
        let need = "entries other than $uri and $uri/ hold for a whole site";
        work.ledger.list(line.id, need);
    }
    let own = if before.is_empty() {
        when.clone()
    } else {
        missing
    };
    fallback(work, line, last, &own);
}

/// `alias`, and a root that is not the site's: a link below the root does the same. Whether there is one.
pub fn elsewhere(work: &mut Work<'_, '_>, location: &Location<'_>, when: &When) -> bool {
    let ledger = work.ledger;
    let line = location
        .block
        .inner()
        .iter()
        .find(|d| matches!(d.name.as_str(), "alias" | "root"));
    let Some(line) = line else { return false };
    let text = constant(line.arg(0), &work.constants);
    let prefix = match location.kind {
        Kind::Exact | Kind::Firm | Kind::Prefix => location.pattern.trim_end_matches('/'),
        _ => "",
    };
    let Some(path) = resolve(&work.context.prefix, &text) else {
        close(work, line, when);
        ledger.list(
            line.id,
            "a directory that is known before a request; 404 here",
        );
        return true;
    };
    if line.name == "root" && work.root.as_deref() == Some(&path) {
        ledger.carried(line.id);
        return false;
    }
    let Some(root) = work.root.clone().filter(|_| !prefix.is_empty()) else {
        close(work, line, when);
        let need =
            format!("files of {path} as a [[site]] of their own, or below the root; 404 here");
        ledger.list(line.id, need);
        return true;
    };
    let target = match line.name.as_str() {
        "alias" => path,
        _ => format!("{}{prefix}", path.trim_end_matches('/')),
    };
    let Some(missing) = link::missing(&root, prefix, &target) else {
        ledger.carried(line.id);
        return false;
    };
    if missing.hides {
        close(work, line, when);
    }
    ledger.list(line.id, missing.need);
    true
}

fn close(work: &mut Work<'_, '_>, line: &Directive, when: &When) {
    work.push_at(Stage::Answers, when.rule("deny", 404, &line.place));
}

/// nginx would send scripts here as files, where this location is preferred to those of PHP: they are
/// neither sent nor run.
fn without_scripts(work: &mut Work<'_, '_>, location: &Location<'_>) {
    let number = work
        .locations
        .iter()
        .position(|l| l.block.id == location.block.id);
    let number = number.unwrap_or_default();
    let is_php =
        |l: &&Location<'_>| content(l.block) == Content::Php && rules::may_meet(l, location);
    if !work.locations[number + 1..].iter().any(|l| is_php(&l)) {
        return;
    }
    let scripts = match (location.kind, location.pattern.as_str()) {
        (Kind::Exact, path) if !path.ends_with(".php") => return,
        (Kind::Exact, path) => Match::Path(path.to_owned()),
        (Kind::Regex | Kind::NestedRegex, pattern) => {
            let open = pattern.trim_end_matches(".*$").trim_end_matches(".*");
            let open = open.strip_suffix('$').unwrap_or(open);
            // `\.(css|js)$` is for no script.
            if crate::expression::extensions(pattern)
                .is_some_and(|found| !found.contains(&"php".to_owned()))
            {
                return;
            }
            Match::Regex(format!("(?:{open}).*{SCRIPT}"))
        }
        (_, prefix) => Match::Regex(format!("^{}.*{SCRIPT}", regex::escape(prefix))),
    };
    if let Match::Regex(expression) = &scripts
        && compile_path(expression).is_err()
    {
        return;
    }
    let before = work.locations[..number].iter().filter(is_php);
    let before = before.filter_map(|l| l.paths().ok()).collect();
    let rule = When::except(scripts, before).rule("deny", 403, &location.block.place);
    work.push_at(Stage::Answers, rule);
}

/// A script, with or without what follows it.
pub const SCRIPT: &str = r"\.php(?:/|$)";
