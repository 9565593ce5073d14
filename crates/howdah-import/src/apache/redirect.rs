//! Translates the redirects of mod_alias: `Redirect`, `RedirectMatch` and similar directives.

use super::host_context::HostContext;
use super::region::{location_match_paths, names_dotfiles, split_acme_exception};
use super::requirement::intersection;
use crate::directive::Directive;
use crate::expression::{CLIENT_CHOOSES_HOST_REMARK, check_groups, client_may_choose_host};
use crate::rule_condition::{PathMatch, RuleCondition};
use crate::stages::{RuleStage, StagedRules};
use crate::target::TomlTable;

/// Translates the lines of all sections.
pub fn write_redirects(context: &HostContext<'_, '_>, stages: &mut StagedRules) {
    for number in 0..context.layers.len() {
        let layer = &context.layers[number];
        if layer.is_main && !context.host.is_main() && layer.section.is_none() {
            // Redirects of the main server apply to hosts as well, after the hosts' own.
            continue;
        }
        translate_lines(context, stages, layer.directives, &layer.paths);
    }
    if !context.host.is_main()
        && let Some(main) = context
            .layers
            .iter()
            .find(|layer| layer.is_main && layer.section.is_none())
    {
        let main = main.directives;
        translate_lines(context, stages, main, &PathMatch::All);
    }
}

fn translate_lines(
    context: &HostContext<'_, '_>,
    stages: &mut StagedRules,
    lines: &[Directive],
    around: &PathMatch,
) {
    for line in lines {
        let default = match line.name.as_str() {
            "redirect" | "redirectmatch" | "redirecttemp" => 302,
            "redirectpermanent" => 301,
            _ => continue,
        };
        if context
            .host
            .https_redirect
            .is_some_and(|redirect| redirect.id == line.id)
        {
            continue;
        }
        match translate_redirect(context, line, default, around) {
            Ok(Some(rule)) => {
                stages.push(RuleStage::Rewrites, rule);
                if !context.ledger.has_outcome(line.id) {
                    context.ledger.mark_carried(line.id);
                }
            }
            Ok(None) => {}
            Err(need) => context.ledger.mark_missing(line.id, need),
        }
    }
}

fn translate_redirect(
    context: &HostContext<'_, '_>,
    line: &Directive,
    default: u64,
    around: &PathMatch,
) -> Result<Option<TomlTable>, String> {
    let takes_status = line.name == "redirect" || line.name == "redirectmatch";
    let (status, rest) = match parse_status(line.arg(0)).filter(|_| takes_status) {
        Some(status) => (status, &line.args[1..]),
        None => (default, &line.args[..]),
    };
    let ends = !(300..400).contains(&status);
    let (path, target) = match rest {
        [path, target] => (Some(path.as_str()), target.as_str()),
        [path] if ends => (Some(path.as_str()), ""),
        [target] if *around != PathMatch::All => (None, target.as_str()),
        [] if ends && *around != PathMatch::All => (None, ""),
        _ => return Err("write a path and its target".to_owned()),
    };
    let (paths, target) = match path {
        None => (around.clone(), escape_dollars(target)),
        Some(path) if line.name == "redirectmatch" => {
            let (paths, target) = translate_redirect_match(path, target)?;
            let both = intersection(
                &RuleCondition::paths(paths),
                &RuleCondition::paths(around.clone()),
            );
            (
                both.ok_or("write one rule that matches the paths of both patterns")?
                    .paths,
                target,
            )
        }
        Some(path) => {
            // The rest of the path is appended to the target.
            let paths = match path {
                "/" => PathMatch::Regex("^/(.*)$".to_owned()),
                path if path.ends_with('/') => {
                    PathMatch::Regex(format!("^{}(.*)$", regex::escape(path)))
                }
                path => PathMatch::segment_prefix(path),
            };
            let group = if path.ends_with('/') { "${1}" } else { "$1" };
            (paths, format!("{}{group}", escape_dollars(target)))
        }
    };
    let mut when = RuleCondition::paths(paths);
    if let Some((_, proofs)) = path
        .and_then(split_acme_exception)
        .filter(|_| line.name == "redirectmatch")
    {
        when = when.but(RuleCondition::paths(proofs));
    }
    if ends {
        if names_dotfiles(&when.paths) {
            context.ledger.mark_irrelevant(
                line.id,
                "files whose names begin with a dot are never sent, except below `/.well-known/`",
            );
            return Ok(None);
        }
        return status_rule(&when, status, line).map(Some);
    }
    if let PathMatch::Regex(_) = &when.paths {
        check_groups(&target, &when.paths)?;
    }
    if client_may_choose_host(&target, &when.paths) {
        context
            .ledger
            .mark_missing_protection(line.id, CLIENT_CHOOSES_HOST_REMARK);
        return Ok(Some(when.rule("deny", 404, &line.place)));
    }
    let mut rule = when.rule("redirect", target, &line.place);
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return Err("the status of a redirect must be 301, 302, 303, 307 or 308".to_owned());
    }
    rule.set("status", status, None);
    Ok(Some(rule))
}

/// Translates `RedirectMatch EXPRESSION TARGET`.
fn translate_redirect_match(expression: &str, target: &str) -> Result<(PathMatch, String), String> {
    let wide = split_acme_exception(expression).map(|(wide, _)| wide);
    let expression = wide.as_deref().unwrap_or(expression);
    let paths = location_match_paths(expression)?;
    let mut out = String::new();
    let mut chars = target.chars();
    while let Some(c) = chars.next() {
        match c {
            '$' => match chars.next() {
                Some(digit) if digit.is_ascii_digit() => out += &format!("${{{digit}}}"),
                other => {
                    out += "$$";
                    out.extend(other);
                }
            },
            '\\' => out.extend(chars.next()),
            '%' if chars.as_str().starts_with('{') => {
                return Err("a rule's target cannot contain this variable".to_owned());
            }
            c => out.push(c),
        }
    }
    Ok((paths, out))
}

/// Creates a rule that responds with a status other than a redirect's.
pub fn status_rule(
    when: &RuleCondition,
    status: u64,
    line: &Directive,
) -> Result<TomlTable, String> {
    match status {
        403 | 404 | 410 => Ok(when.rule("deny", status, &line.place)),
        200..=599 => Ok(when.rule("return", status, &line.place)),
        _ => Err("use a status from 200 to 599".to_owned()),
    }
}

fn parse_status(word: &str) -> Option<u64> {
    match word.to_ascii_lowercase().as_str() {
        "permanent" => Some(301),
        "temp" => Some(302),
        "seeother" => Some(303),
        "gone" => Some(410),
        word => word
            .parse()
            .ok()
            .filter(|status| (100..600).contains(status)),
    }
}

fn escape_dollars(text: &str) -> String {
    text.replace('$', "$$")
}
