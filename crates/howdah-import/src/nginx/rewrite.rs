//! `return`, `rewrite` and `if`: what nginx does before it looks for anything.

use super::condition::{asks_for_no_directory, asks_for_no_file, condition};
use super::files;
use super::referers;
use super::server::Work;
use super::variables::{constant, has_variables, template, without_query};
use crate::directive::Directive;
use crate::expression::{
    CHOOSES_THE_HOST, below, both, compile_path, has_groups, may_choose_the_host,
};
use crate::stages::Stage;
use crate::when::{Match, When};

/// Statuses with a `Location`.
const REDIRECTS: &[&str] = &["301", "302", "303", "307", "308"];

/// The rules of a block. Whether a `return` ends every request that comes there.
pub fn block(work: &mut Work<'_, '_>, directives: &[Directive], when: &When, prefix: &str) -> bool {
    for directive in directives {
        let is_done = !work.is_named && work.ledger.is_settled(directive.id);
        match directive.name.as_str() {
            "return" if is_done => return true,
            "return" => {
                answer(work, directive, when);
                return true;
            }
            "rewrite" if !is_done => rewrite(work, directive, when, prefix),
            "if" if !is_done => conditional(work, directive, directives, when, prefix),
            "break" => work
                .ledger
                .moot(directive.id, "rules run once, from top to bottom"),
            _ => {}
        }
    }
    false
}

/// `return`
fn answer(work: &mut Work<'_, '_>, line: &Directive, when: &When) {
    let ledger = work.ledger;
    let (status, text) = match line.args.len() {
        1 if line.arg(0).contains("://") || line.arg(0).starts_with("$scheme") => {
            ("302", line.arg(0))
        }
        _ => (line.arg(0), line.arg(1)),
    };
    let text = constant(text, &work.constants);
    let number: u64 = status.parse().unwrap_or(0);
    if REDIRECTS.contains(&status) && !text.is_empty() {
        return redirect(work, line, when, &text, number);
    }
    let rule = match number {
        444 => {
            ledger.remark(
                line.id,
                "403 in place of a connection that is closed without an answer",
            );
            when.rule("deny", 403, &line.place)
        }
        301..=308 => return ledger.list(line.id, "a redirect says where to"),
        403 | 404 | 410 if text.is_empty() => when.rule("deny", number, &line.place),
        200..=599 if has_variables(&text) => {
            let need = "the body of `return` is a plain text here";
            return ledger.list(line.id, need);
        }
        200..=599 => {
            let mut rule = when.rule("return", number, &line.place);
            if !text.is_empty() {
                rule.set("body", text.as_str(), None);
                if let Some(kind) = default_type(work, line) {
                    rule.set("type", kind, None);
                }
            }
            rule
        }
        _ => return ledger.list(line.id, "a status from 200 to 599"),
    };
    work.push(rule);
    ledger.carried(line.id);
}

/// `default_type` beside a `return`.
fn default_type(work: &Work<'_, '_>, line: &Directive) -> Option<String> {
    let mut around = work.locations.iter();
    let location = around.find(|l| l.block.inner().iter().any(|d| d.id == line.id));
    let scope = location.map_or_else(|| work.scope.clone(), |location| work.scope_of(location));
    let found = scope.one("default_type")?;
    work.ledger.carried(found.id);
    Some(found.arg(0).to_owned())
}

fn redirect(work: &mut Work<'_, '_>, line: &Directive, when: &When, text: &str, status: u64) {
    let ledger = work.ledger;
    let target = template(text).and_then(|target| {
        has_groups(&target, &when.paths)?;
        Ok(target)
    });
    let target = match target {
        Ok(target) => target,
        Err(need) => return ledger.list(line.id, need),
    };
    let keeps = ["?$query", "$request_uri"]
        .iter()
        .any(|end| target.ends_with(end));
    let target = without_query(&target).to_owned();
    if may_choose_the_host(&target, &when.paths) {
        work.push(when.rule("deny", 404, &line.place));
        return ledger.list_protection(line.id, CHOOSES_THE_HOST);
    }
    let mut rule = when.rule("redirect", target.as_str(), &line.place);
    rule.set("status", status, None);
    work.push(rule);
    match keeps || target.contains('?') {
        true => ledger.carried(line.id),
        false => ledger.remark(line.id, "the query of the request is added"),
    }
}

/// `rewrite EXPRESSION TARGET FLAG`
fn rewrite(work: &mut Work<'_, '_>, line: &Directive, when: &When, prefix: &str) {
    let ledger = work.ledger;
    let flag = line.arg(2);
    let found = below(prefix, line.arg(0)).and_then(|expression| {
        // The expression of its location is gone behind its own, unless both are asked for.
        let expression = match &when.paths {
            Match::Regex(location) => both(location, &expression)?,
            Match::Path(path) => both(&format!("^{}$", regex::escape(path)), &expression)?,
            Match::Prefix(_) | Match::All => expression,
        };
        let groups = compile_path(&expression)?.groups_len();
        let mut target = template(&constant(line.arg(1), &work.constants))?;
        // nginx has nothing for a group that its expression has not.
        for group in groups..10 {
            target = target.replace(&format!("${{{group}}}"), "");
        }
        let leads_somewhere = ["/", "http://", "https://", "$"];
        match leads_somewhere
            .iter()
            .any(|start| target.starts_with(start))
        {
            true => Ok((expression, target)),
            false => Err("a target that begins with a slash".to_owned()),
        }
    });
    let (expression, target) = match found {
        Ok(found) => found,
        Err(need) => return ledger.list(line.id, need),
    };
    let drops_query = target.ends_with('?');
    let target = without_query(target.trim_end_matches('?')).to_owned();
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
        && when.missing
        && when.paths == Match::All
        && everything
        && target == "/index.php"
    {
        ledger.carried(line.id);
        return work.set_controller(&target, line);
    }
    let mut own = when.clone();
    own.paths = match everything && !target.contains("${1}") {
        true => when.paths.clone(),
        false => Match::Regex(expression),
    };
    if status.is_some() && may_choose_the_host(&target, &own.paths) {
        work.push(own.rule("deny", 404, &line.place));
        return ledger.list_protection(line.id, CHOOSES_THE_HOST);
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
        true => ledger.remark(line.id, "the query of the request is added"),
        false => ledger.carried(line.id),
    }
}

/// `if`
fn conditional(
    work: &mut Work<'_, '_>,
    block: &Directive,
    beside: &[Directive],
    when: &When,
    prefix: &str,
) {
    let ledger = work.ledger;
    let ends = |d: &Directive| d.name == "return" && d.arg(0).starts_with('4') || d.name == "deny";
    let closes = block.inner().iter().any(ends);
    let list = |need: &str| {
        match closes {
            true => ledger.list_protection(block.id, need),
            false => ledger.list(block.id, need),
        }
        for inner in block.inner() {
            inner.walk(&mut |d| ledger.list(d.id, "its `if` is not carried over"));
        }
    };
    if files::asks_for_the_script(block) && block.inner().iter().all(files::is_not_found) {
        return block.walk(&mut |d| ledger.moot(d.id, "a script that is not there is a 404"));
    }
    if block.inner().iter().all(|d| d.name == "set") {
        return list(
            "rules have no variables; where this one decides something, write its condition into that rule",
        );
    }
    let asked = match referers::asks(block) {
        true => referers::condition(work, beside),
        false => condition(block, &work.constants),
    };
    let asked = match asked {
        Ok(asked) => asked,
        Err(need) => return list(&need),
    };
    let is_known = |d: &Directive| matches!(d.name.as_str(), "return" | "rewrite" | "break");
    let mut both = asked.clone();
    if both.paths == Match::All {
        both.paths = when.paths.clone();
    } else if when.paths != Match::All {
        return list("one rule for the paths of both");
    }
    both.not.extend(when.not.iter().cloned());
    match asks_for_no_directory(block, &work.constants) {
        true => ledger.remark(block.id, "for what is no file and no directory"),
        false => ledger.carried(block.id),
    }
    self::block(work, block.inner(), &both, prefix);
    let is_alone = beside.iter().filter(|d| d.name == "if").count() == 1;
    if is_alone && asks_for_no_file(block, &work.constants) {
        directories_as_well(work, block.inner(), both, prefix);
    }
    for other in block.inner().iter().filter(|d| !is_known(d)) {
        let need = "a rule with this condition";
        other.walk(&mut |d| ledger.list(d.id, need));
    }
}

/// Rewrites behind `if (!-f $request_filename)` are for directories, too, whether or not they have an index.
fn directories_as_well(work: &mut Work<'_, '_>, lines: &[Directive], mut when: When, prefix: &str) {
    let rewrites = |d: &Directive| match d.name.as_str() {
        "rewrite" => !matches!(d.arg(2), "permanent" | "redirect"),
        name => name == "break",
    };
    let paths = match &when.paths {
        Match::All => Ok("/$".to_owned()),
        Match::Regex(expression) => both(expression, "/$"),
        Match::Path(_) | Match::Prefix(_) => return,
    };
    let (true, Ok(paths)) = (lines.iter().all(rewrites), paths) else {
        return;
    };
    when.missing = false;
    when.paths = Match::Regex(paths);
    let was_named = std::mem::replace(&mut work.is_named, true);
    self::block(work, lines, &when, prefix);
    work.is_named = was_named;
}

impl Work<'_, '_> {
    /// Makes this the script for paths without a file, by a rule if there is one already.
    pub fn set_controller(&mut self, script: &str, line: &Directive) {
        self.rest_leads_on = true;
        // A page for a script of the browser is a file.
        let is_php = script.ends_with(".php") && self.runs_scripts();
        match &self.controller {
            Some(known) if is_php && known == script => {}
            None if is_php => {
                self.controller = Some(script.to_owned());
                self.site
                    .table
                    .set("front_controller", script, Some(&line.place));
            }
            _ => {
                let rule = When::missing().rule("rewrite", script, &line.place);
                self.push_at(Stage::LastResort, rule);
            }
        }
    }
}
