//! Translates `return`, `rewrite` and `if`: what nginx evaluates before it looks for a file or backend.

use super::condition::{checks_not_a_directory, checks_not_a_file, translate_condition};
use super::files;
use super::referers;
use super::server::ServerTranslation;
use super::variables::{has_variables, replace_constants, rule_target, strip_request_query};
use crate::directive::Directive;
use crate::expression::{
    CLIENT_CHOOSES_HOST_REMARK, check_groups, client_may_choose_host, compile_path, intersection,
    limit_to_prefix,
};
use crate::rule_condition::{PathMatch, RuleCondition};
use crate::stages::RuleStage;

/// Statuses with a `Location` header.
const REDIRECT_STATUSES: &[&str] = &["301", "302", "303", "307", "308"];

/// Adds the rules of a block. Returns whether a `return` responds to every request to the block.
pub fn translate_block(
    work: &mut ServerTranslation<'_, '_>,
    directives: &[Directive],
    when: &RuleCondition,
    prefix: &str,
) -> bool {
    for directive in directives {
        let is_done = !work.is_named_location && work.ledger.has_outcome(directive.id);
        match directive.name.as_str() {
            "return" if is_done => return true,
            "return" => {
                translate_return(work, directive, when);
                return true;
            }
            "rewrite" if !is_done => translate_rewrite(work, directive, when, prefix),
            "if" if !is_done => translate_if(work, directive, directives, when, prefix),
            "break" => work
                .ledger
                .mark_irrelevant(directive.id, "rules run once, from top to bottom"),
            _ => {}
        }
    }
    false
}

fn translate_return(work: &mut ServerTranslation<'_, '_>, line: &Directive, when: &RuleCondition) {
    let ledger = work.ledger;
    let (status, text) = match line.args.len() {
        1 if line.arg(0).contains("://") || line.arg(0).starts_with("$scheme") => {
            ("302", line.arg(0))
        }
        _ => (line.arg(0), line.arg(1)),
    };
    let text = replace_constants(text, &work.constants);
    let number: u64 = status.parse().unwrap_or(0);
    if REDIRECT_STATUSES.contains(&status) && !text.is_empty() {
        return redirect(work, line, when, &text, number);
    }
    let rule = match number {
        444 => {
            ledger.mark_different(
                line.id,
                "the client gets 403 instead of a closed connection",
            );
            when.rule("deny", 403, &line.place)
        }
        301..=308 => return ledger.mark_missing(line.id, "a redirect needs a target"),
        403 | 404 | 410 if text.is_empty() => when.rule("deny", number, &line.place),
        200..=599 if has_variables(&text) => {
            let need = "in Howdah, the body of `return` cannot contain variables";
            return ledger.mark_missing(line.id, need);
        }
        200..=599 => {
            let mut rule = when.rule("return", number, &line.place);
            if !text.is_empty() {
                rule.set("body", text.as_str(), None);
                if let Some(kind) = default_type_of(work, line) {
                    rule.set("type", kind, None);
                }
            }
            rule
        }
        _ => return ledger.mark_missing(line.id, "use a status from 200 to 599"),
    };
    work.push(rule);
    ledger.mark_carried(line.id);
}

/// Returns the `default_type` that applies to a `return`.
fn default_type_of(work: &ServerTranslation<'_, '_>, line: &Directive) -> Option<String> {
    let mut around = work.locations.iter();
    let location = around.find(|l| l.block.inner().iter().any(|d| d.id == line.id));
    let scope = location.map_or_else(|| work.scope.clone(), |location| work.scope_of(location));
    let found = scope.last("default_type")?;
    work.ledger.mark_carried(found.id);
    Some(found.arg(0).to_owned())
}

fn redirect(
    work: &mut ServerTranslation<'_, '_>,
    line: &Directive,
    when: &RuleCondition,
    text: &str,
    status: u64,
) {
    let ledger = work.ledger;
    let target = rule_target(text).and_then(|target| {
        check_groups(&target, &when.paths)?;
        Ok(target)
    });
    let target = match target {
        Ok(target) => target,
        Err(need) => return ledger.mark_missing(line.id, need),
    };
    let keeps = ["?$query", "$request_uri"]
        .iter()
        .any(|end| target.ends_with(end));
    let target = strip_request_query(&target).to_owned();
    if client_may_choose_host(&target, &when.paths) {
        work.push(when.rule("deny", 404, &line.place));
        return ledger.mark_missing_protection(line.id, CLIENT_CHOOSES_HOST_REMARK);
    }
    let mut rule = when.rule("redirect", target.as_str(), &line.place);
    rule.set("status", status, None);
    work.push(rule);
    match keeps || target.contains('?') {
        true => ledger.mark_carried(line.id),
        false => ledger.mark_different(line.id, "the query of the request is appended"),
    }
}

/// Translates `rewrite EXPRESSION TARGET FLAG`.
fn translate_rewrite(
    work: &mut ServerTranslation<'_, '_>,
    line: &Directive,
    when: &RuleCondition,
    prefix: &str,
) {
    let ledger = work.ledger;
    let flag = line.arg(2);
    let found = limit_to_prefix(prefix, line.arg(0)).and_then(|expression| {
        // A rule has a single expression for paths, so the location's expression is combined with that of the rewrite.
        let expression = match &when.paths {
            PathMatch::Regex(location) => intersection(location, &expression)?,
            PathMatch::Path(path) => {
                intersection(&format!("^{}$", regex::escape(path)), &expression)?
            }
            PathMatch::Prefix(_) | PathMatch::All => expression,
        };
        let groups = compile_path(&expression)?.groups_len();
        let mut target = rule_target(&replace_constants(line.arg(1), &work.constants))?;
        // In nginx a group that the expression does not have is empty.
        for group in groups..10 {
            target = target.replace(&format!("${{{group}}}"), "");
        }
        let leads_somewhere = ["/", "http://", "https://", "$"];
        match leads_somewhere
            .iter()
            .any(|start| target.starts_with(start))
        {
            true => Ok((expression, target)),
            false => Err("write a target that begins with a slash".to_owned()),
        }
    });
    let (expression, target) = match found {
        Ok(found) => found,
        Err(need) => return ledger.mark_missing(line.id, need),
    };
    let drops_query = target.ends_with('?');
    let target = strip_request_query(target.trim_end_matches('?')).to_owned();
    let leads_away = ["http://", "https://", "//"]
        .iter()
        .any(|mark| target.starts_with(mark));
    let status = match flag {
        "permanent" => Some(301),
        "redirect" => Some(302),
        _ if leads_away => Some(302),
        _ => None,
    };
    let everything = matches!(
        line.arg(0),
        "^" | "." | ".*" | "^.*$" | "(.*)" | "^(.*)$" | "^/(.*)$" | "^/.*$" | "^(.+)$" | "^/(.+)$"
    );
    if status.is_none()
        && when.if_missing
        && when.paths == PathMatch::All
        && everything
        && target == "/index.php"
    {
        ledger.mark_carried(line.id);
        return work.set_front_controller(&target, line);
    }
    let mut own = when.clone();
    own.paths = match everything && !target.contains("${1}") {
        true => when.paths.clone(),
        false => PathMatch::Regex(expression),
    };
    if status.is_some() && client_may_choose_host(&target, &own.paths) {
        work.push(own.rule("deny", 404, &line.place));
        return ledger.mark_missing_protection(line.id, CLIENT_CHOOSES_HOST_REMARK);
    }
    let (action, rule) = match status {
        Some(status) => ("redirect", Some(status)),
        None => ("rewrite", None),
    };
    let mut table = own.rule(action, target.as_str(), &line.place);
    if let Some(status) = rule {
        table.set("status", status, None);
    }
    work.push(table);
    match drops_query && !target.contains('?') {
        true => ledger.mark_different(line.id, "the query of the request is appended"),
        false => ledger.mark_carried(line.id),
    }
}

fn translate_if(
    work: &mut ServerTranslation<'_, '_>,
    block: &Directive,
    beside: &[Directive],
    when: &RuleCondition,
    prefix: &str,
) {
    let ledger = work.ledger;
    let ends = |d: &Directive| d.name == "return" && d.arg(0).starts_with('4') || d.name == "deny";
    let closes = block.inner().iter().any(ends);
    let list = |need: &str| {
        match closes {
            true => ledger.mark_missing_protection(block.id, need),
            false => ledger.mark_missing(block.id, need),
        }
        for inner in block.inner() {
            inner.walk(&mut |d| ledger.mark_missing(d.id, "its `if` is not carried over"));
        }
    };
    if files::checks_script_exists(block) && block.inner().iter().all(files::returns_not_found) {
        return block.walk(&mut |d| {
            ledger.mark_irrelevant(d.id, "a script that does not exist gets a 404")
        });
    }
    if block.inner().iter().all(|d| d.name == "set") {
        return list(
            "rules have no variables; write the condition into each rule that depends on this variable",
        );
    }
    let asked = match referers::is_invalid_referer(block) {
        true => referers::invalid_referer_condition(work, beside),
        false => translate_condition(block, &work.constants),
    };
    let asked = match asked {
        Ok(asked) => asked,
        Err(need) => return list(&need),
    };
    let is_known = |d: &Directive| matches!(d.name.as_str(), "return" | "rewrite" | "break");
    let mut both = asked.clone();
    if both.paths == PathMatch::All {
        both.paths = when.paths.clone();
    } else if when.paths != PathMatch::All {
        return list("write one rule that matches the paths of both patterns");
    }
    both.exceptions.extend(when.exceptions.iter().cloned());
    match checks_not_a_directory(block, &work.constants) {
        true => ledger.mark_different(
            block.id,
            "the rule applies to paths that are neither a file nor a directory",
        ),
        false => ledger.mark_carried(block.id),
    }
    self::translate_block(work, block.inner(), &both, prefix);
    let is_alone = beside.iter().filter(|d| d.name == "if").count() == 1;
    if is_alone && checks_not_a_file(block, &work.constants) {
        add_rules_for_directories(work, block.inner(), both, prefix);
    }
    for other in block.inner().iter().filter(|d| !is_known(d)) {
        let need = "write a rule with this condition";
        other.walk(&mut |d| ledger.mark_missing(d.id, need));
    }
}

/// Adds the rules of an `if (!-f $request_filename)` for directories. nginx applies its rewrites to them whether or not
/// they have an index.
fn add_rules_for_directories(
    work: &mut ServerTranslation<'_, '_>,
    lines: &[Directive],
    mut when: RuleCondition,
    prefix: &str,
) {
    let rewrites = |d: &Directive| match d.name.as_str() {
        "rewrite" => !matches!(d.arg(2), "permanent" | "redirect"),
        name => name == "break",
    };
    let paths = match &when.paths {
        PathMatch::All => Ok("/$".to_owned()),
        PathMatch::Regex(expression) => intersection(expression, "/$"),
        PathMatch::Path(_) | PathMatch::Prefix(_) => return,
    };
    let (true, Ok(paths)) = (lines.iter().all(rewrites), paths) else {
        return;
    };
    when.if_missing = false;
    when.paths = PathMatch::Regex(paths);
    let was_named = std::mem::replace(&mut work.is_named_location, true);
    self::translate_block(work, lines, &when, prefix);
    work.is_named_location = was_named;
}

impl ServerTranslation<'_, '_> {
    /// Sets the script for paths without a file. Adds a rule instead if the server already has another such script, or
    /// if the target is not a script.
    pub fn set_front_controller(&mut self, script: &str, line: &Directive) {
        self.has_fallback = true;
        // A page of a client-side application is a file, not a script.
        let is_php = script.ends_with(".php") && self.runs_scripts();
        match &self.front_controller {
            Some(known) if is_php && known == script => {}
            None if is_php => {
                self.front_controller = Some(script.to_owned());
                self.site
                    .table
                    .set("front_controller", script, Some(&line.place));
            }
            _ => {
                let rule = RuleCondition::missing().rule("rewrite", script, &line.place);
                self.push_at(RuleStage::LastResort, rule);
            }
        }
    }
}
