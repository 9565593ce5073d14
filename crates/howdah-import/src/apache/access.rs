//! Translates access control: `Require` and its containers, `Order`, `Allow` and `Deny`, `Satisfy`, passwords. Access
//! is denied where rules cannot express a restriction.

use howdah_htaccess::directives::{LEGACY_DIRECTIVES, REQUIRE_DIRECTIVES};

use super::expr::parse_expression;
use super::host_context::HostContext;
use super::legacy::legacy_access_formula;
use super::networks::parse_apache_network;
use super::region::names_dotfiles;
use super::requirement::{AccessFormula, intersection};
use super::variables::any_variable_set;
use crate::directive::Directive;
use crate::rule_condition::RuleCondition;
use crate::stages::{RuleStage, StagedRules};
use crate::target::{TomlTable, TomlValue};

/// Adds the access rules of all sections.
pub fn write_access_rules(context: &HostContext<'_, '_>, stages: &mut StagedRules) {
    for number in 0..context.layers.len() {
        let lines = context.layers[number].directives;
        let satisfy = context.layers.effective_line(number, "satisfy");
        let any = satisfy.is_some_and(|line| line.arg(0).eq_ignore_ascii_case("any"));
        for line in lines.iter().filter(|d| d.name == "satisfy") {
            context.ledger.mark_carried(line.id);
        }
        if any
            && has_any_directive(lines, REQUIRE_DIRECTIVES)
            && has_any_directive(lines, LEGACY_DIRECTIVES)
        {
            let names = [REQUIRE_DIRECTIVES, LEGACY_DIRECTIVES].concat();
            let either = || {
                let parts = vec![
                    legacy_access_formula(context, lines)?,
                    parse_requirements(context, lines)?,
                ];
                Ok(AccessFormula::Any(parts))
            };
            translate_section_access(context, stages, number, &names, either);
        } else {
            translate_section_access(context, stages, number, REQUIRE_DIRECTIVES, || {
                parse_requirements(context, lines)
            });
            translate_section_access(context, stages, number, LEGACY_DIRECTIVES, || {
                legacy_access_formula(context, lines)
            });
        }
        for block in lines
            .iter()
            .filter(|d| matches!(d.name.as_str(), "limit" | "limitexcept"))
        {
            translate_limit(context, stages, number, block);
        }
        for line in lines.iter() {
            translate_other_restriction(context, stages, number, line);
        }
    }
}

fn has_any_directive(lines: &[Directive], names: &[&str]) -> bool {
    lines.iter().any(|d| names.contains(&d.name.as_str()))
}

/// Translates the directives with these names in a section, except for the paths for which later sections replace them.
fn translate_section_access(
    context: &HostContext<'_, '_>,
    stages: &mut StagedRules,
    number: usize,
    names: &[&str],
    formula: impl FnOnce() -> Result<AccessFormula, String>,
) {
    let layer = &context.layers[number];
    let lines: Vec<&Directive> = layer
        .directives
        .iter()
        .filter(|d| names.contains(&d.name.as_str()))
        .collect();
    if lines.is_empty() || layer.section.is_none() {
        return;
    }
    let Some(when) = context.layers.effective_requests(number, names) else {
        for line in lines {
            line.walk(&mut |d| context.mark_overridden(d));
        }
        return;
    };
    let formula = formula();
    deny_others(context, stages, number, &when, formula, &lines);
}

/// Adds rules that deny the requests that a formula does not grant.
fn deny_others(
    context: &HostContext<'_, '_>,
    stages: &mut StagedRules,
    number: usize,
    when: &RuleCondition,
    formula: Result<AccessFormula, String>,
    lines: &[&Directive],
) {
    let place = &lines[0].place;
    let settle = || {
        for line in lines {
            line.walk(&mut |d| context.ledger.mark_carried(d.id));
        }
    };
    let found = formula.and_then(|formula| {
        let cannot = "write rules that do the same (docs/access.md)".to_owned();
        formula.into_demands().map_err(|()| cannot)
    });
    let demands = match found {
        Ok(demands) => demands,
        Err(need) => return deny_all(context, stages, number, when, lines, &need),
    };
    let mut rules = Vec::new();
    for denial in &demands.denials {
        match intersection(when, denial) {
            Some(both) => rules.push(both.rule("deny", 403, place)),
            None => {
                return deny_all(
                    context,
                    stages,
                    number,
                    when,
                    lines,
                    "write one rule that matches the paths of both patterns",
                );
            }
        }
    }
    if let Some(login) = &demands.login {
        let mut asked = when.clone();
        asked.exceptions.extend(login.exempt.iter().cloned());
        match password_rule(context, number, &asked, &login.require, lines[0]) {
            Ok(rule) => rules.push(rule),
            Err(need) => return deny_all(context, stages, number, when, lines, &need),
        }
    }
    settle();
    if !rules.is_empty() && names_dotfiles(&when.paths) {
        for line in lines {
            context.ledger.mark_irrelevant(
                line.id,
                "files whose names begin with a dot are never sent, except below `/.well-known/`",
            );
        }
        return;
    }
    for rule in rules {
        push_denial(context, stages, number, rule);
    }
}

/// Adds a rule that denies access. `<Location>` applies to the path that the client requests, even if a rewrite or an
/// alias leads elsewhere. If the host has rewrites or aliases, the rule is also evaluated before them.
fn push_denial(
    context: &HostContext<'_, '_>,
    stages: &mut StagedRules,
    number: usize,
    rule: TomlTable,
) {
    let section = context.layers[number].section;
    let is_location = section.is_some_and(|section| section.name.starts_with("location"));
    if is_location && context.layers.has_path_mapping() {
        stages.push(RuleStage::InternalPaths, rule.clone());
    }
    // Apache checks the target of a rewrite in a section again.
    if context.layers.rewrites_within_sections() {
        stages.push(RuleStage::Pools, rule.clone());
    }
    stages.push(RuleStage::Responses, rule);
}

/// Denies access to all clients, and lists what is needed.
fn deny_all(
    context: &HostContext<'_, '_>,
    stages: &mut StagedRules,
    number: usize,
    when: &RuleCondition,
    lines: &[&Directive],
    need: &str,
) {
    push_denial(
        context,
        stages,
        number,
        when.rule("deny", 403, &lines[0].place),
    );
    for line in lines {
        line.walk(&mut |d| {
            context
                .ledger
                .mark_missing_protection(d.id, format!("{need}; until then, access is denied"))
        });
    }
}

/// Returns the methods; GET includes HEAD.
fn with_head(words: &[String]) -> Vec<String> {
    let mut methods = words.to_vec();
    if methods.iter().any(|m| m == "GET") && !methods.iter().any(|m| m == "HEAD") {
        methods.push("HEAD".to_owned());
    }
    methods
}

/// Translates `<Limit>` and `<LimitExcept>`: access control for some methods.
fn translate_limit(
    context: &HostContext<'_, '_>,
    stages: &mut StagedRules,
    number: usize,
    block: &Directive,
) {
    let own = RuleCondition::methods(with_head(&block.args));
    let lines: Vec<&Directive> = block.inner().iter().collect();
    let when = RuleCondition::paths(context.layers[number].paths.clone());
    let when = match block.name.as_str() {
        "limit" => intersection(&when, &own),
        _ => Some(when.but(own)),
    };
    let (Some(when), false) = (when, lines.is_empty()) else {
        return context.ledger.mark_carried(block.id);
    };
    context.ledger.mark_carried(block.id);
    let formula = parse_requirements(context, block.inner()).and_then(|require| {
        let legacy = legacy_access_formula(context, block.inner())?;
        let has = |names| has_any_directive(block.inner(), names);
        Ok(match (has(REQUIRE_DIRECTIVES), has(LEGACY_DIRECTIVES)) {
            (true, true) => AccessFormula::All(vec![require, legacy]),
            (true, false) => require,
            (false, true) => legacy,
            (false, false) => return Err("write a rule with `methods`".to_owned()),
        })
    });
    deny_others(context, stages, number, &when, formula, &lines);
}

/// Translates `SSLRequireSSL`, `SSLRequire`, `AllowMethods` and `AuthMerging`.
fn translate_other_restriction(
    context: &HostContext<'_, '_>,
    stages: &mut StagedRules,
    number: usize,
    line: &Directive,
) {
    let when = RuleCondition::paths(context.layers[number].paths.clone());
    match line.name.as_str() {
        "sslrequiressl" => {
            let secure = RuleCondition::https();
            push_denial(
                context,
                stages,
                number,
                when.but(secure).rule("deny", 403, &line.place),
            );
            context.ledger.mark_carried(line.id);
        }
        "sslrequire" => deny_all(
            context,
            stages,
            number,
            &when,
            &[line],
            "write rules that do the same (docs/access.md)",
        ),
        "allowmethods" => {
            let mut methods = line.args.clone();
            if methods.iter().any(|m| m.eq_ignore_ascii_case("reset")) {
                return context.ledger.mark_carried(line.id);
            }
            methods.push("HEAD".to_owned());
            let allowed = RuleCondition::methods(methods);
            push_denial(
                context,
                stages,
                number,
                when.but(allowed).rule("deny", 405, &line.place),
            );
            context.ledger.mark_carried(line.id);
        }
        "authmerging" => match line.arg(0).eq_ignore_ascii_case("or") {
            true => context.ledger.mark_different(
                line.id,
                "a client must now meet all of the requirements; before, one of them was enough",
            ),
            false => context.ledger.mark_carried(line.id),
        },
        _ => {}
    }
}

/// Translates containers and `Require` lines, at least one of which must be met.
fn parse_requirements(
    context: &HostContext<'_, '_>,
    lines: &[Directive],
) -> Result<AccessFormula, String> {
    Ok(AccessFormula::Any(parse_requirement_list(context, lines)?))
}

fn parse_requirement_list(
    context: &HostContext<'_, '_>,
    lines: &[Directive],
) -> Result<Vec<AccessFormula>, String> {
    let mut parts = Vec::new();
    for line in lines {
        parts.push(match line.name.as_str() {
            "requireall" => AccessFormula::All(parse_requirement_list(context, line.inner())?),
            "requireany" => AccessFormula::Any(parse_requirement_list(context, line.inner())?),
            "requirenone" => AccessFormula::Not(Box::new(AccessFormula::Any(
                parse_requirement_list(context, line.inner())?,
            ))),
            "require" => parse_requirement(context, line)?,
            _ => continue,
        });
    }
    Ok(parts)
}

/// Translates a `Require` line.
fn parse_requirement(
    context: &HostContext<'_, '_>,
    line: &Directive,
) -> Result<AccessFormula, String> {
    let (negated, words) = match line.args.split_first() {
        Some((not, words)) if not.eq_ignore_ascii_case("not") => (true, words),
        _ => (false, &line.args[..]),
    };
    let Some((kind, values)) = words.split_first() else {
        return Err("`Require` has no arguments".to_owned());
    };
    let kind = kind.to_ascii_lowercase();
    let named = |what: &str| {
        values
            .iter()
            .map(|value| format!("{what} {value}"))
            .collect()
    };
    let found = match kind.as_str() {
        "all"
            if values
                .first()
                .is_some_and(|v| v.eq_ignore_ascii_case("granted")) =>
        {
            AccessFormula::Granted
        }
        "all" => AccessFormula::Denied,
        "local" => clients_from(&["127.0.0.0/8", "::1/128"]),
        "ip" => {
            let mut found = Vec::new();
            for value in values {
                found.push(
                    parse_apache_network(value)
                        .ok_or_else(|| format!("{value} is not a network"))?,
                );
            }
            AccessFormula::Condition(RuleCondition::clients(found))
        }
        "host" | "forward-dns" if !negated => {
            context.ledger.mark_missing_protection(
                line.id,
                "write addresses instead of host names: Howdah does not look up the names of clients",
            );
            AccessFormula::Denied
        }
        "method" => AccessFormula::Condition(RuleCondition::methods(with_head(values))),
        "env" => any_variable_set(context, values)?,
        "valid-user" => AccessFormula::Login(Vec::new()),
        "user" => AccessFormula::Login(named("user")),
        "group" => AccessFormula::Login(named("group")),
        "expr" => parse_expression(&values.join(" "))?,
        _ => return Err(format!("Howdah has no `Require {kind}`")),
    };
    Ok(match negated {
        true => AccessFormula::Not(Box::new(found)),
        false => found,
    })
}

fn clients_from(networks: &[&str]) -> AccessFormula {
    AccessFormula::Condition(RuleCondition::clients(
        networks.iter().map(|n| (*n).to_owned()).collect(),
    ))
}

/// Returns the rule that requires a password.
fn password_rule(
    context: &HostContext<'_, '_>,
    number: usize,
    when: &RuleCondition,
    require: &[String],
    line: &Directive,
) -> Result<TomlTable, String> {
    let auth = |name: &str| context.layers.effective_line(number, name);
    let word =
        |name: &str| auth(name).map_or(String::new(), |line| line.arg(0).to_ascii_lowercase());
    if word("authtype") != "basic" {
        return Err("use Basic authentication: `auth_basic` in a rule".to_owned());
    }
    let provider = auth("authbasicprovider");
    if provider.is_some_and(|line| line.args != ["file"]) {
        return Err(
            "put users and passwords into a file, and name it in `auth_basic_user_file` in a rule"
                .to_owned(),
        );
    }
    let path = |name: &str| auth(name).map(|line| (line, context.server.path(line.arg(0))));
    let Some((file, users)) = path("authuserfile") else {
        return Err("there is no AuthUserFile: set `auth_basic_user_file` in a rule".to_owned());
    };
    let name = auth("authname").map_or("Restricted", |line| line.arg(0));
    let mut rule = when.rule("auth_basic", name, &line.place);
    rule.set("auth_basic_user_file", users, Some(&file.place));
    if require.iter().any(|who| who.starts_with("group ")) {
        let Some((file, groups)) = path("authgroupfile") else {
            return Err(
                "there is no AuthGroupFile: set `auth_basic_group_file` in a rule".to_owned(),
            );
        };
        rule.set("auth_basic_group_file", groups, Some(&file.place));
        context.ledger.mark_carried(file.id);
    }
    if !require.is_empty() {
        rule.set(
            "auth_basic_require",
            TomlValue::Texts(require.to_vec()),
            None,
        );
    }
    for name in ["authtype", "authname", "authuserfile", "authbasicprovider"] {
        if let Some(line) = auth(name) {
            context.ledger.mark_carried(line.id);
        }
    }
    Ok(rule)
}
