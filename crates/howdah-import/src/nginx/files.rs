//! Translates what nginx looks for on disk: `try_files`, `alias`, another `root`, named locations.

use super::location::{Location, LocationKind};
use super::rules::{self, LocationContent, content_of};
use super::server::ServerTranslation;
use super::variables::{has_variables, replace_constants, rule_target, strip_request_query};
use super::{proxy, resolve_path, rewrite, script};
use crate::directive::Directive;
use crate::expression::{check_groups, compile_path};
use crate::link;
use crate::rule_condition::{PathMatch, RuleCondition};
use crate::stages::RuleStage;
use crate::target::TomlValue;

/// Translates the file search of the whole site: that of `location /`, or that of the server if it has no such
/// location.
pub fn translate_search(work: &mut ServerTranslation<'_, '_>) {
    let rest = work.catch_all();
    let line = match &rest {
        Some(rest) if content_of(rest.block) != LocationContent::Files => None,
        Some(rest) => rest.block.last("try_files"),
        None => work.block.last("try_files"),
    };
    let Some(line) = line else {
        return translate_not_found_page(work);
    };
    let Some((last, before)) = line.args.split_last() else {
        return;
    };
    work.has_fallback = last != "=404";
    let mut names = Vec::new();
    for name in before {
        match rule_target(&replace_constants(name, &work.constants)) {
            Ok(name) if name.contains("$uri") => names.push(name),
            // A page that is sent for all paths while its file exists, as used for maintenance.
            Ok(name)
                if name.starts_with('/')
                    && !name.contains(['$', '?'])
                    && !name.contains(".php") =>
            {
                names.push(name);
            }
            Ok(_) => work.ledger.mark_missing(
                line.id,
                "an entry of try_files must contain $uri, or be the path of a file",
            ),
            Err(need) => work.ledger.mark_missing(line.id, need),
        }
    }
    if names.is_empty() {
        // There is only the fallback, so every path leads to it.
        names.push("=404".to_owned());
        add_fallback(work, line, last, &RuleCondition::default());
    } else {
        add_fallback(work, line, last, &RuleCondition::missing());
    }
    let place = &line.place;
    work.site
        .table
        .set("try_files", TomlValue::Texts(names), Some(place));
    work.ledger.mark_carried(line.id);
}

/// Translates `error_page 404 = @name`, which old configurations use as a front controller. Without `=` the response
/// keeps the status 404.
fn translate_not_found_page(work: &mut ServerTranslation<'_, '_>) {
    let rest = work.catch_all();
    let scope = match &rest {
        Some(rest) if content_of(rest.block) != LocationContent::Files => return,
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
    work.has_fallback = true;
    add_fallback(work, line, target, &RuleCondition::missing());
    let usual = ["$uri", "$uri/"].map(str::to_owned).to_vec();
    let place = &line.place;
    work.site
        .table
        .set("try_files", TomlValue::Texts(usual), Some(place));
}

/// Translates the last entry of `try_files`, for these requests.
pub fn add_fallback(
    work: &mut ServerTranslation<'_, '_>,
    line: &Directive,
    last: &str,
    when: &RuleCondition,
) {
    let ledger = work.ledger;
    if let Some(status) = last.strip_prefix('=') {
        let number: u64 = status.parse().unwrap_or(404);
        // 404 is the default of a site without a front controller.
        let usual = number == 404 && when.paths == PathMatch::All && when.if_missing;
        if !usual {
            let action = if matches!(number, 403 | 404 | 410) {
                "deny"
            } else {
                "return"
            };
            work.push_at(
                RuleStage::MissingFiles,
                when.rule(action, number, &line.place),
            );
        }
        return ledger.mark_carried(line.id);
    }
    if last.starts_with('@') {
        return match work.named(last) {
            Some(named) => {
                ledger.mark_carried(line.id);
                add_named_location(work, &named, when);
            }
            None => ledger.mark_missing(line.id, format!("the location {last} does not exist")),
        };
    }
    let target = rule_target(&replace_constants(last, &work.constants)).and_then(|target| {
        check_groups(&target, &when.paths)?;
        Ok(target)
    });
    let target = match target {
        Ok(target) => strip_request_query(&target).to_owned(),
        Err(need) => return deny_fallback(work, line, when, &need),
    };
    // In nginx, only a regular expression can match a target without a leading slash. The author certainly meant the
    // path with the slash.
    let target = match target.starts_with(['/', '$', '=']) {
        true => target,
        false => format!("/{target}"),
    };
    let (path, _) = target.split_once('?').unwrap_or((&target, ""));
    if !has_variables(path) && location_may_refuse(work, path) {
        let need =
            format!("access to {path} is limited here, and this fallback would bypass the limit");
        return deny_fallback(work, line, when, &need);
    }
    ledger.mark_carried(line.id);
    if when.paths == PathMatch::All
        && when.if_missing
        && when.exceptions.is_empty()
        && !target.contains(['?', '$'])
    {
        return work.set_front_controller(&target, line);
    }
    let stage = match when.paths == PathMatch::All {
        true => RuleStage::LastResort,
        false => RuleStage::MissingFiles,
    };
    work.push_at(stage, when.rule("rewrite", target, &line.place));
}

/// Responds with 404 instead of something that the old server would not have sent.
fn deny_fallback(
    work: &mut ServerTranslation<'_, '_>,
    line: &Directive,
    when: &RuleCondition,
    need: &str,
) {
    work.push_at(RuleStage::MissingFiles, when.rule("deny", 404, &line.place));
    work.ledger.mark_missing(
        line.id,
        format!("{need}; until then, the response is a 404"),
    );
}

/// Returns whether the location of a path denies some requests with rules, which an internal redirect would bypass.
fn location_may_refuse(work: &ServerTranslation<'_, '_>, path: &str) -> bool {
    let chosen = work
        .locations
        .iter()
        .find(|location| location.matches_path(path));
    chosen.is_some_and(|location| location.block.inner().iter().any(may_refuse))
}

/// Returns whether a directive of a location may produce a response instead of the script. An `if` that only sets
/// variables, as used for page caches, does not. Neither does one that returns 404 if the script is missing, which
/// Howdah does by default.
fn may_refuse(directive: &Directive) -> bool {
    match directive.name.as_str() {
        "deny" | "return" | "limit_except" => true,
        "if" => {
            let block = directive.inner();
            let is_harmless = |d: &Directive| matches!(d.name.as_str(), "set" | "add_header");
            let answers = !block.iter().all(is_harmless);
            answers && !(checks_script_exists(directive) && block.iter().all(returns_not_found))
        }
        _ => false,
    }
}

/// Recognises `if (!-f $document_root$fastcgi_script_name)`, which nginx's own documentation recommends.
pub fn checks_script_exists(directive: &Directive) -> bool {
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

pub fn returns_not_found(directive: &Directive) -> bool {
    directive.name == "return" && directive.arg(0) == "404"
}

/// Adds the rules of `location @name`, for requests that lead there.
fn add_named_location<'a>(
    work: &mut ServerTranslation<'_, 'a>,
    named: &Location<'a>,
    when: &RuleCondition,
) {
    let ledger = work.ledger;
    ledger.mark_carried(named.block.id);
    // A path without a file that belongs to another location gets its response there, and does not lead to the named
    // location.
    let own = match when.paths == PathMatch::All {
        true => RuleStage::LastResort,
        false => RuleStage::MissingFiles,
    };
    let stage = std::mem::replace(&mut work.stage, own);
    let was_named = std::mem::replace(&mut work.is_named_location, true);
    let answered = rewrite::translate_block(work, named.block.inner(), when, "");
    work.is_named_location = was_named;
    if !answered {
        match content_of(named.block) {
            LocationContent::Proxy => proxy::translate_proxy_location(work, named, when),
            LocationContent::Php => script::translate_script_location(work, named, when),
            LocationContent::Response | LocationContent::Files => {}
        }
    }
    work.stage = stage;
}

/// Translates a location that serves files.
pub fn translate_file_location<'a>(
    work: &mut ServerTranslation<'_, 'a>,
    location: &Location<'a>,
    when: &RuleCondition,
) {
    deny_scripts(work, location);
    let elsewhere = translate_other_directory(work, location, when);
    if location.is_catch_all() {
        return;
    }
    let missing = RuleCondition {
        if_missing: true,
        ..when.clone()
    };
    let Some(line) = location.block.last("try_files") else {
        let others_answer = work.has_fallback || !work.catch_all_is_files();
        if others_answer || elsewhere {
            let place = location.block.place.clone();
            work.push_at(RuleStage::MissingFiles, missing.rule("deny", 404, &place));
        }
        return;
    };
    let (last, before) = match line.args.split_last() {
        Some(split) => split,
        None => return,
    };
    let usual = |name: &String| {
        matches!(
            replace_constants(name, &work.constants).as_str(),
            "${uri}" | "${uri}/" | "$uri" | "$uri/"
        )
    };
    if before.is_empty() || !before.iter().all(usual) {
        let need = "entries other than $uri and $uri/ apply to a whole site";
        work.ledger.mark_missing(line.id, need);
    }
    let own = if before.is_empty() {
        when.clone()
    } else {
        missing
    };
    add_fallback(work, line, last, &own);
}

/// Translates `alias`, or a root that differs from the site's: a link below the root has the same effect. Returns
/// whether the location has such a directory.
pub fn translate_other_directory(
    work: &mut ServerTranslation<'_, '_>,
    location: &Location<'_>,
    when: &RuleCondition,
) -> bool {
    let ledger = work.ledger;
    let line = location
        .block
        .inner()
        .iter()
        .find(|d| matches!(d.name.as_str(), "alias" | "root"));
    let Some(line) = line else { return false };
    let text = replace_constants(line.arg(0), &work.constants);
    let prefix = match location.kind {
        LocationKind::Exact | LocationKind::PrefixNoRegex | LocationKind::Prefix => {
            location.pattern.trim_end_matches('/')
        }
        _ => "",
    };
    let Some(path) = resolve_path(&work.context.prefix, &text) else {
        deny_with_404(work, line, when);
        ledger.mark_missing(
            line.id,
            "name a directory that does not depend on the request; until then, the response is a 404",
        );
        return true;
    };
    if line.name == "root" && work.root.as_deref() == Some(&path) {
        ledger.mark_carried(line.id);
        return false;
    }
    let Some(root) = work.root.clone().filter(|_| !prefix.is_empty()) else {
        deny_with_404(work, line, when);
        let need = format!(
            "serve the files of {path} from a [[site]] of their own, or move them below the root; until then, the response is a 404"
        );
        ledger.mark_missing(line.id, need);
        return true;
    };
    let target = match line.name.as_str() {
        "alias" => path,
        _ => format!("{}{prefix}", path.trim_end_matches('/')),
    };
    let Some(missing) = link::missing_link(&root, prefix, &target) else {
        ledger.mark_carried(line.id);
        return false;
    };
    if missing.is_occupied {
        deny_with_404(work, line, when);
    }
    ledger.mark_missing(line.id, missing.command);
    true
}

fn deny_with_404(work: &mut ServerTranslation<'_, '_>, line: &Directive, when: &RuleCondition) {
    work.push_at(RuleStage::Responses, when.rule("deny", 404, &line.place));
}

/// Denies the scripts in a location of files. nginx would send them as files if the location takes precedence over the
/// locations of PHP. Howdah neither sends nor runs them.
fn deny_scripts(work: &mut ServerTranslation<'_, '_>, location: &Location<'_>) {
    let number = work
        .locations
        .iter()
        .position(|l| l.block.id == location.block.id);
    let number = number.unwrap_or_default();
    let is_php = |l: &&Location<'_>| {
        content_of(l.block) == LocationContent::Php && rules::may_overlap(l, location)
    };
    if !work.locations[number + 1..].iter().any(|l| is_php(&l)) {
        return;
    }
    let scripts = match (location.kind, location.pattern.as_str()) {
        (LocationKind::Exact, path) if !path.ends_with(".php") => return,
        (LocationKind::Exact, path) => PathMatch::Path(path.to_owned()),
        (LocationKind::Regex | LocationKind::NestedRegex, pattern) => {
            let open = pattern.trim_end_matches(".*$").trim_end_matches(".*");
            let open = open.strip_suffix('$').unwrap_or(open);
            // `\.(css|js)$` matches no script.
            if crate::expression::extensions(pattern)
                .is_some_and(|found| !found.contains(&"php".to_owned()))
            {
                return;
            }
            PathMatch::Regex(format!("(?:{open}).*{SCRIPT_REGEX}"))
        }
        (_, prefix) => PathMatch::Regex(format!("^{}.*{SCRIPT_REGEX}", regex::escape(prefix))),
    };
    if let PathMatch::Regex(expression) = &scripts
        && compile_path(expression).is_err()
    {
        return;
    }
    let before = work.locations[..number].iter().filter(is_php);
    let before = before.filter_map(|l| l.paths().ok()).collect();
    let rule = RuleCondition::except(scripts, before).rule("deny", 403, &location.block.place);
    work.push_at(RuleStage::Responses, rule);
}

/// The expression for a script, with or without path info.
pub const SCRIPT_REGEX: &str = r"\.php(?:/|$)";
