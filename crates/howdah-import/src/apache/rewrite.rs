//! Translates mod_rewrite in servers and sections: redirects, denials, front controllers, and rewrites to other paths.

use super::front_controller::set_front_controller;
use super::host_context::HostContext;
use super::https_redirect::is_without_tls;
use super::proxy::translate_proxy_rewrite;
use super::redirect::status_rule;
use super::region::split_acme_exception;
use super::requirement::intersection;
use super::rewrite_conditions::{file_test, requests_meeting};
use super::rewrite_rule_syntax::{RewriteFlags, rewrite_target};
use crate::directive::Directive;
use crate::expression::{
    CLIENT_CHOOSES_HOST_REMARK, alternatives, check_groups, client_may_choose_host, compile_path,
};
use crate::rule_condition::{PathMatch, RuleCondition};
use crate::stages::{RuleStage, StagedRules};
use crate::target::{SiteTable, TomlTable, TomlValue};

/// The alternative that the list suggests for lines that are not carried over.
const USE_HTACCESS_REMARK: &str = "or move the lines into an .htaccess file of that directory: htaccess = \"on\" runs them as Apache does";

/// The server or directory whose lines are translated.
struct RewriteContext<'p> {
    /// The URL path of the directory, without a trailing slash; `None` for the server itself.
    directory: Option<&'p str>,
    /// The `RewriteBase`.
    base: Option<String>,
    stage: RuleStage,
}

/// The parts of a site to which rewrites add.
struct RewriteOutput<'r> {
    site: &'r mut SiteTable,
    stages: &'r mut StagedRules,
    /// Rules of rewrites with `[P]`, which are added after the access rules.
    proxied: Vec<TomlTable>,
}

impl RewriteOutput<'_> {
    fn push(&mut self, stage: RuleStage, rules: Vec<TomlTable>) {
        for rule in rules {
            match rule.get("proxy") {
                Some(_) => self.proxied.push(rule),
                None => self.stages.push(stage, rule),
            }
        }
    }
}

/// Translates all lines of a site: first those of the server, then those of its directories. Returns the rules of
/// rewrites with `[P]`, which belong after the access rules.
pub fn write_rewrites(
    context: &HostContext<'_, '_>,
    site: &mut SiteTable,
    stages: &mut StagedRules,
) -> Vec<TomlTable> {
    let mut output = RewriteOutput {
        site,
        stages,
        proxied: Vec::new(),
    };
    for number in 0..context.layers.len() {
        let layer = &context.layers[number];
        let has = |name: &str| layer.directives.iter().any(|d| d.name == name);
        if !has("rewriterule") && !has("rewriteengine") {
            continue;
        }
        let engine = layer
            .directives
            .iter()
            .rev()
            .find(|d| d.name == "rewriteengine");
        let is_on = engine.is_some_and(|line| line.arg(0).eq_ignore_ascii_case("on"));
        for line in layer
            .directives
            .iter()
            .filter(|d| d.name == "rewriteengine")
        {
            context.ledger.mark_carried(line.id);
        }
        let lines: Vec<&Directive> = layer
            .directives
            .iter()
            .filter(|d| matches!(d.name.as_str(), "rewriterule" | "rewritecond"))
            .collect();
        if !is_on || layer.is_main && !context.host.is_main() {
            let why = match is_on {
                true => "a VirtualHost does not inherit the main server's rewrites",
                false => "RewriteEngine is off here",
            };
            lines
                .iter()
                .for_each(|line| context.ledger.mark_irrelevant(line.id, why));
            continue;
        }
        let base = layer
            .directives
            .iter()
            .rev()
            .find(|d| d.name == "rewritebase");
        if let Some(base) = base {
            context.ledger.mark_carried(base.id);
        }
        let base = base.map(|line| line.arg(0).trim_end_matches('/').to_owned());
        let directory = match (&layer.section, &layer.paths) {
            (None, _) => None,
            (Some(_), PathMatch::All) => Some(""),
            (Some(section), PathMatch::Prefix(path)) if section.name == "directory" => {
                Some(path.as_str())
            }
            _ => {
                lines
                    .iter()
                    .for_each(|line| context.ledger.mark_missing(line.id, USE_HTACCESS_REMARK));
                continue;
            }
        };
        let stage = if directory.is_none() {
            RuleStage::Rewrites
        } else {
            RuleStage::MissingFiles
        };
        let place = RewriteContext {
            directory,
            base,
            stage,
        };
        translate_lines(context, &mut output, &lines, &place);
    }
    output.proxied
}

/// Translates the lines of one context, in order.
fn translate_lines(
    context: &HostContext<'_, '_>,
    output: &mut RewriteOutput<'_>,
    lines: &[&Directive],
    place: &RewriteContext<'_>,
) {
    let mut conditions: Vec<&Directive> = Vec::new();
    let mut passed = PassedRequests::default();
    let mut skipped = 0usize;
    let mut chained = false;
    for line in lines {
        if line.name == "rewritecond" {
            conditions.push(line);
            continue;
        }
        let conditions = std::mem::take(&mut conditions);
        let own: Vec<&Directive> = conditions.iter().copied().chain([*line]).collect();
        let flags = RewriteFlags::parse(line.arg(2));
        let was_chained = std::mem::replace(&mut chained, flags.has("c"));
        if let Some(number) = flags.get("s") {
            skipped = number.parse().unwrap_or(0);
        } else if skipped > 0 {
            skipped -= 1;
        } else if !chained && !was_chained && !flags.has("n") {
            match translate_rewrite_rule(
                context,
                output.site,
                &conditions,
                line,
                &flags,
                place,
                &passed,
            ) {
                Ok(RuleTranslation::Rules(rules)) => output.push(place.stage, rules),
                Ok(RuleTranslation::Passes(whens)) => passed.requests.extend(whens),
                Ok(RuleTranslation::FilesPass) => passed.files = true,
                Err(need) => {
                    let closes = flags.has("f")
                        || flags.has("g")
                        || flags.get("r").is_some_and(|r| r.starts_with('4'));
                    for line in own {
                        match closes {
                            true => context.ledger.mark_missing_protection(
                                line.id,
                                format!("{need}; {USE_HTACCESS_REMARK}"),
                            ),
                            false => context
                                .ledger
                                .mark_missing(line.id, format!("{need}; {USE_HTACCESS_REMARK}")),
                        }
                    }
                    continue;
                }
            }
            own.iter()
                .for_each(|line| context.ledger.mark_carried(line.id));
            continue;
        }
        let need = format!("rules have no jumps; {USE_HTACCESS_REMARK}");
        own.iter()
            .for_each(|line| context.ledger.mark_missing(line.id, need.as_str()));
    }
    for line in conditions {
        context
            .ledger
            .mark_irrelevant(line.id, "no RewriteRule follows it");
    }
}

/// The result of translating a line.
enum RuleTranslation {
    /// The line was translated into these rules. There is no rule if the line has no effect, or if an option of the
    /// site has the same effect.
    Rules(Vec<TomlTable>),
    /// Later lines do not apply to these requests.
    Passes(Vec<RuleCondition>),
    /// Later lines do not apply to paths that name a file.
    FilesPass,
}

/// The requests that earlier lines exclude from all later ones.
#[derive(Default)]
struct PassedRequests {
    /// The requests of an earlier `-` with `[L]`.
    requests: Vec<RuleCondition>,
    /// True if an earlier line excludes paths that name a file.
    files: bool,
}

/// Requests that a `RewriteRule` with its conditions matches.
struct MatchedRequests {
    when: RuleCondition,
    /// The values of `%0`, `%1` and so on.
    groups: Vec<String>,
    /// True if the pattern matches every path.
    is_every_path: bool,
}

/// Translates a `RewriteRule` with its conditions. Options with the effect of a rule are set in `site`.
fn translate_rewrite_rule(
    context: &HostContext<'_, '_>,
    site: &mut SiteTable,
    conditions: &[&Directive],
    line: &Directive,
    flags: &RewriteFlags,
    place: &RewriteContext<'_>,
    passed: &PassedRequests,
) -> Result<RuleTranslation, String> {
    let (pattern, target) = (line.arg(0), line.arg(1));
    let only_sets = target == "-"
        && flags
            .0
            .iter()
            .all(|(name, _)| matches!(name.as_str(), "e" | "l" | "ns" | "nc"));
    if only_sets
        && flags.get("e").is_some_and(|set| {
            set.starts_with("HTTP_AUTHORIZATION:") || set.starts_with("REMOTE_USER:")
        })
    {
        context.ledger.mark_irrelevant(
            line.id,
            "PHP gets the Authorization header even without this line",
        );
        return Ok(RuleTranslation::Rules(Vec::new()));
    }
    for name in ["co", "e", "h", "t", "dpi"] {
        if flags.has(name) {
            return Err(format!("rules have no flag {}", name.to_ascii_uppercase()));
        }
    }
    let proofs = split_acme_exception(pattern).filter(|_| place.directory.is_none());
    let (pattern, proofs) = match &proofs {
        Some((wide, proofs)) => (wide.as_str(), Some(proofs)),
        None => (pattern, None),
    };
    let (paths, negated, everything) = pattern_paths(pattern, flags.has("nc"), place)?;
    let mut requests = requests_meeting(conditions, &context.host.names)?;
    for (request, _) in &mut requests {
        let narrowed = match negated {
            true => Some(request.clone().but(RuleCondition::paths(paths.clone()))),
            false => intersection(request, &RuleCondition::paths(paths.clone())),
        };
        let directory = place.directory.filter(|directory| !directory.is_empty());
        let narrowed = match (negated, directory) {
            (true, Some(directory)) => narrowed.and_then(|when| {
                intersection(
                    &when,
                    &RuleCondition::paths(PathMatch::segment_prefix(directory)),
                )
            }),
            _ => narrowed,
        };
        *request = narrowed.ok_or("write one rule that matches the paths of both patterns")?;
    }
    if target == "-" && !flags.has("f") && !flags.has("g") && !flags.has("r") && !flags.has("p") {
        let whens: Vec<RuleCondition> = requests.into_iter().map(|(when, _)| when).collect();
        let asks_for_files = conditions.iter().any(|c| file_test(c) == Some(true));
        return match (asks_for_files, flags.has("l") || flags.has("pt")) {
            (_, false) => Ok(RuleTranslation::Rules(Vec::new())),
            (true, true) if everything => Ok(RuleTranslation::FilesPass),
            (true, true) => Err("write a rule with if_missing".to_owned()),
            (false, true) => match whens
                .iter()
                .all(|when| when.exceptions.is_empty() && !when.if_missing)
            {
                true => Ok(RuleTranslation::Passes(whens)),
                false => Err("use `not` in the rules that follow".to_owned()),
            },
        };
    }
    if conditions.iter().any(|c| file_test(c) == Some(true)) {
        return Err(
            "rules can check whether a file is missing, but not whether it exists".to_owned(),
        );
    }
    let mut rules = Vec::new();
    for (mut when, groups) in requests {
        for pass in &passed.requests {
            when = when.but(pass.clone());
        }
        if let Some(proofs) = proofs {
            when = when.but(RuleCondition::paths(proofs.clone()));
        }
        when.if_missing |= passed.files;
        let matched = MatchedRequests {
            when,
            groups,
            is_every_path: everything,
        };
        rules.extend(rewrite_action(context, site, line, flags, place, &matched)?);
    }
    Ok(RuleTranslation::Rules(rules))
}

/// Returns the rule for these requests, or `None` if an option of the site has the same effect.
fn rewrite_action(
    context: &HostContext<'_, '_>,
    site: &mut SiteTable,
    line: &Directive,
    flags: &RewriteFlags,
    place: &RewriteContext<'_>,
    matched: &MatchedRequests,
) -> Result<Option<TomlTable>, String> {
    let MatchedRequests {
        when,
        groups,
        is_every_path,
    } = matched;
    let everything = *is_every_path;
    let target = line.arg(1);
    let status = match flags.get("r") {
        None => None,
        Some("" | "temp") => Some(302),
        Some("permanent") => Some(301),
        Some("seeother") => Some(303),
        Some(number) => Some(
            number
                .parse::<u64>()
                .map_err(|_| "write the status as a number")?,
        ),
    };
    if flags.has("f") {
        return Ok(Some(when.rule("deny", 403, &line.place)));
    }
    if flags.has("g") {
        return Ok(Some(when.rule("deny", 410, &line.place)));
    }
    if let Some(status) = status.filter(|status| !(300..400).contains(status)) {
        return Ok(Some(status_rule(when, status, line)?));
    }
    if flags.has("p") {
        return translate_proxy_rewrite(context, line, when, everything).map(Some);
    }
    let mut text = rewrite_target(target, groups)?;
    if let Some(root) = context.root.as_deref()
        && let Some(rest) = text.strip_prefix(root)
        && rest.starts_with('/')
    {
        text = rest.to_owned();
    }
    let leads_away = text.contains("://") && !text.starts_with('/');
    if !leads_away
        && !text.starts_with('/')
        && !text.starts_with("$uri")
        && !text.starts_with("$request_uri")
    {
        let base = place.base.as_deref().or(place.directory).unwrap_or("");
        text = format!("{base}/{text}");
    }
    let (path, query) = match text.split_once('?') {
        Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
        None => (text.clone(), None),
    };
    let mut target = path;
    match query.as_deref() {
        None | Some("" | "$query") => {}
        Some(query) => {
            target += &format!("?{query}");
            if flags.has("qsa") && (leads_away || status.is_some()) {
                target += "&$query";
            }
        }
    }
    let drops =
        query.as_deref() == Some("") || flags.has("qsd") || query.is_some() && !flags.has("qsa");
    check_groups(&target, &when.paths)?;
    if leads_away || status.is_some() {
        let status = status.unwrap_or(302);
        let same_by_https = matches!(
            target.as_str(),
            "https://$host$uri" | "https://$host$request_uri" | "https://$host/${1}"
        );
        if same_by_https && everything && is_without_tls(when) {
            site.table
                .set("https_redirect", TomlValue::Bool(true), Some(&line.place));
            return Ok(None);
        }
        if !matches!(status, 301 | 302 | 303 | 307 | 308) {
            return Err("the status of a redirect must be 301, 302, 303, 307 or 308".to_owned());
        }
        if client_may_choose_host(&target, &when.paths) {
            context
                .ledger
                .mark_missing_protection(line.id, CLIENT_CHOOSES_HOST_REMARK);
            return Ok(Some(when.rule("deny", 404, &line.place)));
        }
        let mut rule = when.rule("redirect", target.as_str(), &line.place);
        rule.set("status", status, None);
        if drops && !target.contains('?') {
            context
                .ledger
                .mark_different(line.id, "the query of the request is appended");
        }
        return Ok(Some(rule));
    }
    if drops {
        context
            .ledger
            .mark_different(line.id, "the query of the request is appended");
    }
    // `RewriteRule ^index\.php$ - [L]` prevents a loop in Apache; Howdah's rules do not loop.
    let itself = PathMatch::Regex(format!("^{}$", regex::escape(&target)));
    let mut when = when.clone();
    when.exceptions
        .retain(|other| *other != RuleCondition::paths(itself.clone()));
    if when == RuleCondition::missing()
        && everything
        && !target.contains(['$', '?'])
        && target.ends_with(".php")
    {
        return Ok(set_front_controller(site, &target, line));
    }
    Ok(Some(when.rule("rewrite", target, &line.place)))
}

/// Returns the paths of a pattern, whether the pattern is negated, and whether it matches everything.
fn pattern_paths(
    pattern: &str,
    any_case: bool,
    place: &RewriteContext<'_>,
) -> Result<(PathMatch, bool, bool), String> {
    let (pattern, negated) = match pattern.strip_prefix('!') {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    const EVERYTHING: &[&str] = &[
        "", "^", ".", ".*", "^.*$", "(.*)", "^(.*)$", "^(.*)", "(.*)$", "^/?(.*)$", "^/?(.*)",
        "^/(.*)$", "^/(.*)", "^/.*$", "^.+$", ".+", "(.+)", "^(.+)$", "^/", "^/(.+)$",
    ];
    let everything = EVERYTHING.contains(&pattern) && !negated;
    let flags = if any_case { "(?i)" } else { "" };
    let prefix = regex::escape(place.directory.unwrap_or_default());
    let whole = pattern
        .trim_end_matches('$')
        .trim_start_matches('^')
        .trim_start_matches("/?")
        .trim_start_matches('/');
    let text = match (everything, place.directory) {
        (true, _) if whole.starts_with('(') => {
            let inner = if whole == "(.+)" { "(.+)" } else { "(.*)" };
            // In a server's pattern the slash may be inside the group.
            match place.directory.is_none() && !pattern.contains('/') {
                true => format!("^({prefix}/.*)$"),
                false => format!("^{prefix}/{inner}$"),
            }
        }
        (true, None) => return Ok((PathMatch::All, false, true)),
        (true, Some(directory)) => return Ok((PathMatch::segment_prefix(directory), false, true)),
        (false, None) => pattern.to_owned(),
        (false, Some(_)) => {
            let choice = |choice: &str| match choice.strip_prefix('^') {
                Some(rest) => format!("^{prefix}/{}", rest.trim_start_matches("/?")),
                None => format!("^{prefix}/.*?(?:{choice})"),
            };
            let choices: Vec<String> = alternatives(pattern).into_iter().map(choice).collect();
            choices.join("|")
        }
    };
    let text = format!("{flags}{text}");
    compile_path(&text)?;
    Ok((
        PathMatch::Regex(text),
        negated,
        everything && place.directory.unwrap_or_default().is_empty(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewrite_targets_are_translated() {
        let groups = ["a.org".to_owned(), "a".to_owned()];
        for (text, expected) in [
            (
                "https://%{HTTP_HOST}%{REQUEST_URI}",
                Some("https://$host$uri"),
            ),
            ("/index.php?q=$1", Some("/index.php?q=${1}")),
            ("http://%1.org/$1", Some("http://a.org/${1}")),
            ("/a%20b\\$", Some("/a%20b$$")),
            ("/${map:$1}", None),
            ("/%{TIME_YEAR}", None),
            ("/%5", None),
        ] {
            assert_eq!(
                rewrite_target(text, &groups).ok().as_deref(),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn rewrite_patterns_of_directories_become_paths() {
        let place = |directory| RewriteContext {
            directory,
            base: None,
            stage: RuleStage::MissingFiles,
        };
        let text = |pattern: &str, directory| match pattern_paths(pattern, false, &place(directory))
            .unwrap()
            .0
        {
            PathMatch::Regex(text) => text,
            other => format!("{other:?}"),
        };
        assert_eq!(text(r"^index\.php$", Some("")), r"^/index\.php$");
        assert_eq!(text(r"^a|^b", Some("/x")), r"^/x/a|^/x/b");
        assert_eq!(text(r"\.inc$", Some("/x")), r"^/x/.*?(?:\.inc$)");
        assert_eq!(text("^(.*)$", Some("")), "^/(.*)$");
        assert_eq!(text("(.*)", None), "^(/.*)$");
        assert_eq!(text("^/?(.*)", None), "^/(.*)$");
        assert_eq!(text(".", Some("/x")), "Prefix(\"/x\")");
        assert_eq!(text("^/a$", None), "^/a$");
    }
}
