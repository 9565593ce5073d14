//! Translates `RewriteCond` lines into the requests that meet them.

use super::condition::{TranslatedCondition, VariableTest, translate_test};
use super::requirement::intersection;
use super::rewrite_rule_syntax::RewriteFlags;
use crate::directive::Directive;
use crate::expression::compile;
use crate::rule_condition::RuleCondition;

/// The maximum number of rules that one line becomes because of `[OR]`.
const MAX_ALTERNATIVES: usize = 16;

/// Returns whether a condition tests for a file: `true` if it requires one, `false` if it requires that there is none,
/// `None` for another condition.
pub fn file_test(condition: &Directive) -> Option<bool> {
    let subject = condition
        .arg(0)
        .replace("%{DOCUMENT_ROOT}/", "%{DOCUMENT_ROOT}");
    let known = [
        "%{REQUEST_FILENAME}",
        "%{SCRIPT_FILENAME}",
        "%{DOCUMENT_ROOT}%{REQUEST_URI}",
        "%{DOCUMENT_ROOT}$1",
        "%{DOCUMENT_ROOT}%{SCRIPT_FILENAME}",
        "%{LA-U:REQUEST_FILENAME}",
    ];
    if !known.contains(&subject.as_str()) {
        return None;
    }
    match condition.arg(1) {
        "-f" | "-d" | "-s" | "-l" | "-F" => Some(true),
        "!-f" | "!-d" | "!-s" | "!-l" | "!-F" => Some(false),
        _ => None,
    }
}

/// Returns the requests that meet all conditions, each with the values of `%0`, `%1` and so on.
pub fn requests_meeting(
    conditions: &[&Directive],
    hosts: &[String],
) -> Result<Vec<(RuleCondition, Vec<String>)>, String> {
    let mut all = vec![(RuleCondition::default(), Vec::new())];
    let mut either: Vec<(RuleCondition, Vec<String>)> = Vec::new();
    let mut always = false;
    for (number, condition) in conditions.iter().enumerate() {
        let flags = RewriteFlags::parse(condition.arg(2));
        let more = flags.has("or") && number + 1 < conditions.len();
        for asked in translate_condition(condition, &flags, hosts)? {
            match asked {
                (TranslatedCondition::Always(holds), _) => always |= holds,
                (TranslatedCondition::Requests(when), groups) => either.push((when, groups)),
                (TranslatedCondition::OtherRequests(when), groups) => {
                    either.push((RuleCondition::default().but(when), groups))
                }
                (TranslatedCondition::FileExists(there), groups) => either.push((
                    RuleCondition {
                        if_missing: !there,
                        ..RuleCondition::default()
                    },
                    groups,
                )),
            }
        }
        if more {
            continue;
        }
        let group = std::mem::take(&mut either);
        if std::mem::take(&mut always) {
            continue;
        }
        let mut next = Vec::new();
        for (when, groups) in &all {
            for (other, own) in &group {
                let both = intersection(when, other).ok_or("write one rule for both conditions")?;
                let groups = if own.is_empty() {
                    groups.clone()
                } else {
                    own.clone()
                };
                next.push((both, groups));
            }
        }
        all = next;
        if all.len() > MAX_ALTERNATIVES {
            return Err("join fewer conditions with [OR]".to_owned());
        }
    }
    Ok(all)
}

/// Translates a `RewriteCond`. A condition on host names with groups is translated separately for each matching host of
/// the site.
fn translate_condition(
    condition: &Directive,
    flags: &RewriteFlags,
    hosts: &[String],
) -> Result<Vec<(TranslatedCondition, Vec<String>)>, String> {
    if let Some(there) = file_test(condition) {
        return Ok(vec![(TranslatedCondition::FileExists(there), Vec::new())]);
    }
    let (subject, pattern) = (condition.arg(0), condition.arg(1));
    let variable = subject
        .strip_prefix("%{")
        .and_then(|rest| rest.strip_suffix('}'));
    let Some(variable) = variable.filter(|name| !name.contains('{')) else {
        return Err("write a condition on one variable".to_owned());
    };
    if pattern.eq_ignore_ascii_case("expr") || subject == "expr" {
        return Err("write conditions of rules instead of this expression".to_owned());
    }
    let (pattern, negated) = match pattern.strip_prefix('!') {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let any_case = flags.has("nc");
    let comparison = match pattern.strip_prefix('=') {
        Some(text) => VariableTest::Equals(text.trim_matches('"').to_owned(), any_case),
        None if pattern.starts_with(['<', '>', '-']) && pattern.len() > 1 => {
            return Err(format!("rules cannot compare with {pattern}"));
        }
        None => VariableTest::Matches(format!("{}{pattern}", if any_case { "(?i)" } else { "" })),
    };
    let is_host = matches!(
        variable.to_ascii_uppercase().as_str(),
        "HTTP_HOST" | "SERVER_NAME"
    );
    if let (true, false, VariableTest::Matches(expression)) = (is_host, negated, &comparison) {
        let regex = compile(expression)?;
        if regex.captures_len() > 1
            && !hosts.is_empty()
            && hosts.iter().all(|host| !host.contains('*'))
        {
            let mut found = Vec::new();
            for host in hosts {
                let Some(captures) = regex.captures(host.as_bytes()) else {
                    continue;
                };
                let group = |group: Option<regex::bytes::Match<'_>>| {
                    group.map_or(String::new(), |group| {
                        String::from_utf8_lossy(group.as_bytes()).into_owned()
                    })
                };
                let TranslatedCondition::Requests(when) =
                    translate_test(variable, &VariableTest::Equals(host.clone(), true))?
                else {
                    continue;
                };
                found.push((
                    TranslatedCondition::Requests(when),
                    captures.iter().map(group).collect(),
                ));
            }
            return Ok(match found.is_empty() {
                true => vec![(TranslatedCondition::Always(false), Vec::new())],
                false => found,
            });
        }
    }
    let asked = translate_test(variable, &comparison)?;
    Ok(vec![(
        if negated { asked.not() } else { asked },
        Vec::new(),
    )])
}
