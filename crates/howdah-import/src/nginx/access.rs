//! Translates access restrictions: `allow`, `deny`, `auth_basic`, `internal`, `limit_except`. Access is denied where
//! rules cannot express a restriction.

use super::location::{Location, LocationKind};
use super::networks::{Denial, parse_denials};
use super::resolve_path;
use super::rules::{LocationContent, content_of, may_overlap};
use super::server::ServerTranslation;
use super::variables::{has_variables, replace_constants};
use crate::directive::Directive;
use crate::rule_condition::{PathMatch, RuleCondition};
use crate::stages::RuleStage;

/// Adds the access rules of a block: of a location, or of the server itself.
pub fn translate_access<'a>(
    work: &mut ServerTranslation<'_, 'a>,
    directives: &'a [Directive],
    when: &RuleCondition,
    location: Option<&Location<'a>>,
) {
    if directives.iter().any(|d| d.name == "return") {
        for line in directives
            .iter()
            .filter(|d| is_access_phase_directive(&d.name))
        {
            let why = "the `return` in the same block responds first";
            line.walk(&mut |d| work.ledger.mark_irrelevant(d.id, why));
        }
        if let Some(line) = directives.iter().find(|d| d.name == "internal") {
            translate_internal(work, line, when, location);
        }
        return;
    }
    for line in directives {
        match line.name.as_str() {
            "internal" => translate_internal(work, line, when, location),
            "limit_except" => translate_limit_except(work, line, when),
            "auth_request" => translate_auth_request(work, line, directives, when, location),
            "auth_jwt" => deny_all(
                work,
                line,
                std::slice::from_ref(when),
                "Howdah does not check tokens, so access is denied",
            ),
            _ => {}
        }
    }
    let either = directives
        .iter()
        .find(|d| d.name == "satisfy" && d.arg(0) == "any");
    let lines: Vec<&Directive> = directives
        .iter()
        .filter(|d| matches!(d.name.as_str(), "allow" | "deny"))
        .collect();
    let has_password = directives
        .iter()
        .any(|d| d.name == "auth_basic" && d.arg(0) != "off");
    let denials = parse_denials(&lines);
    let mut exempt = Vec::new();
    let alone = match &denials {
        Ok(steps) => match &steps[..] {
            [denial] if denial.networks.is_empty() => Some(denial.allowed.clone()),
            _ => None,
        },
        Err(_) => None,
    };
    for line in directives.iter().filter(|d| d.name == "satisfy") {
        match either.is_none() || has_password && alone.is_some() {
            true => work.ledger.mark_carried(line.id),
            false => work.ledger.mark_different(
                line.id,
                "a client must now meet all of the requirements; before, one of them was enough",
            ),
        }
    }
    if let (Some(_), true, Some(allowed)) = (either, has_password, alone) {
        // With `satisfy any`, clients from these networks need no password.
        exempt = allowed;
        lines
            .iter()
            .for_each(|line| work.ledger.mark_carried(line.id));
    } else if !lines.is_empty() {
        let whens = inherited_conditions(work, when, location, &["allow", "deny"]);
        match denials {
            Ok(steps) => {
                for when in &whens {
                    steps
                        .iter()
                        .for_each(|step| add_denial(work, step, when, lines[0]));
                }
                lines
                    .iter()
                    .for_each(|line| work.ledger.mark_carried(line.id));
            }
            Err(line) => {
                deny_all(
                    work,
                    line,
                    &whens,
                    "use addresses and networks; until then, access is denied",
                );
                for line in lines {
                    work.ledger.mark_missing_protection(
                        line.id,
                        "use addresses and networks; until then, access is denied",
                    );
                }
            }
        }
    }
    translate_auth_basic(work, directives, when, location, &exempt);
}

/// Returns whether nginx evaluates the directive in its access phase, after all rewrites.
fn is_access_phase_directive(name: &str) -> bool {
    const LINES: &[&str] = &[
        "allow",
        "auth_basic",
        "auth_basic_user_file",
        "auth_jwt",
        "auth_request",
        "deny",
        "limit_except",
        "satisfy",
    ];
    LINES.contains(&name)
}

/// Returns the requests to which a block's own lines apply. Requests for inner locations with lines of their own are
/// excluded, unless another location without such lines takes precedence over the inner location.
fn inherited_conditions(
    work: &ServerTranslation<'_, '_>,
    when: &RuleCondition,
    location: Option<&Location<'_>>,
    names: &[&str],
) -> Vec<RuleCondition> {
    let inside = |l: &Location<'_>| match location {
        None => true,
        Some(outer) => {
            l.around.iter().any(|block| block.id == outer.block.id) && may_overlap(l, outer)
        }
    };
    let has_own = |l: &Location<'_>| {
        l.kind != LocationKind::Named
            && inside(l)
            && l.block
                .inner()
                .iter()
                .any(|d| names.contains(&d.name.as_str()))
    };
    let mut whens = Vec::new();
    let mut all = when.clone();
    for (number, own) in work.locations.iter().enumerate() {
        if !has_own(own) {
            continue;
        }
        // If the inner location takes all remaining paths, both restrictions apply.
        let Ok(paths) = own.paths() else { continue };
        if paths == PathMatch::All {
            continue;
        }
        all = all.but(RuleCondition::paths(paths));
        for (before, other) in work.locations[..number].iter().enumerate() {
            if has_own(other) || !inside(other) || !may_overlap(other, own) {
                continue;
            }
            let Ok(paths) = other.paths() else { continue };
            let preferred = work.locations[..before]
                .iter()
                .filter(|l| has_own(l) && may_overlap(l, other));
            let preferred = preferred
                .filter_map(|l| l.paths().ok())
                .filter(|paths| *paths != PathMatch::All);
            let also = RuleCondition::except(paths, preferred.collect());
            if !whens.contains(&also) {
                whens.push(also);
            }
        }
    }
    whens.insert(0, all);
    whens
}

/// Adds a rule that denies access.
fn add_denial(
    work: &mut ServerTranslation<'_, '_>,
    denial: &Denial,
    when: &RuleCondition,
    line: &Directive,
) {
    let mut own = when.clone();
    own.client_networks.clone_from(&denial.networks);
    if !denial.allowed.is_empty() {
        own.exceptions
            .push(RuleCondition::clients(denial.allowed.clone()));
    }
    work.push_at(RuleStage::Responses, own.rule("deny", 403, &line.place));
}

/// Adds rules that deny access to all clients, and lists what is needed.
fn deny_all(
    work: &mut ServerTranslation<'_, '_>,
    line: &Directive,
    whens: &[RuleCondition],
    need: &str,
) {
    for when in whens {
        work.push_at(RuleStage::Responses, when.rule("deny", 403, &line.place));
    }
    work.ledger.mark_missing_protection(line.id, need);
}

/// Translates `internal`: 404 for clients; scripts may name files there with X-Accel-Redirect.
fn translate_internal(
    work: &mut ServerTranslation<'_, '_>,
    line: &Directive,
    when: &RuleCondition,
    location: Option<&Location<'_>>,
) {
    let Some(location) = location else {
        return deny_all(
            work,
            line,
            std::slice::from_ref(when),
            "`internal` applies to the whole server here, so access to the site is denied",
        );
    };
    work.push_at(
        RuleStage::InternalPaths,
        when.rule("deny", 404, &line.place),
    );
    work.ledger.mark_carried(line.id);
    // nginx also reaches the location through the index of a directory.
    let controls = work.front_controller.as_deref() == Some("/index.php");
    if content_of(location.block) == LocationContent::Php
        && location.matches_path("/index.php")
        && !controls
    {
        super::script::add_home_page(work);
    }
    let is_prefix = matches!(
        location.kind,
        LocationKind::Prefix | LocationKind::PrefixNoRegex
    );
    if !is_prefix
        || content_of(location.block) != LocationContent::Response
        || !location.pattern.ends_with('/')
    {
        return;
    }
    let alias = location.block.last("alias").or(location.block.last("root"));
    let Some(alias) = alias else { return };
    let path = resolve_path(
        &work.context.prefix,
        &replace_constants(alias.arg(0), &work.constants),
    );
    let Some(path) = path else {
        return work.ledger.mark_missing(
            alias.id,
            "[site.sendfile] cannot name a directory that depends on the request",
        );
    };
    let path = match alias.name.as_str() {
        "alias" => path,
        _ => format!("{path}{}", location.pattern.trim_end_matches('/')),
    };
    work.site
        .set_pair_if_absent("sendfile", &location.pattern, &path);
    work.ledger.mark_carried(alias.id);
}

fn translate_limit_except(
    work: &mut ServerTranslation<'_, '_>,
    block: &Directive,
    when: &RuleCondition,
) {
    let mut methods = block.args.clone();
    if methods.iter().any(|method| method == "GET") {
        methods.push("HEAD".to_owned());
    }
    let except = RuleCondition::methods(methods);
    let when = when.clone().but(except);
    let lines: Vec<&Directive> = block.inner().iter().collect();
    let addresses = lines
        .iter()
        .all(|d| matches!(d.name.as_str(), "allow" | "deny"));
    match parse_denials(&lines) {
        Ok(steps) if addresses && !lines.is_empty() => {
            steps
                .iter()
                .for_each(|step| add_denial(work, step, &when, block));
            block.walk(&mut |d| work.ledger.mark_carried(d.id));
        }
        _ => {
            deny_all(
                work,
                block,
                &[when],
                "write a rule with `methods` in `not`; until then, these methods are denied",
            );
            for line in lines {
                work.ledger
                    .mark_missing_protection(line.id, "its block is not carried over");
            }
        }
    }
}

/// Translates `auth_request`, which lets another server decide.
fn translate_auth_request<'a>(
    work: &mut ServerTranslation<'_, 'a>,
    line: &'a Directive,
    directives: &'a [Directive],
    when: &RuleCondition,
    location: Option<&Location<'a>>,
) {
    if line.arg(0) == "off" {
        return work.ledger.mark_carried(line.id);
    }
    let whens = inherited_conditions(work, when, location, &["auth_request"]);
    let url = match super::proxy::auth_request_url(work, line.arg(0)) {
        Ok(url) => url,
        Err(need) => {
            return deny_all(
                work,
                line,
                &whens,
                &format!("`auth_request` in a rule: {need}; until then, access is denied"),
            );
        }
    };
    let mut set = Vec::new();
    for line in directives.iter().filter(|d| d.name == "auth_request_set") {
        let field = line
            .arg(1)
            .trim_start_matches('$')
            .strip_prefix("upstream_http_");
        let variable = work.fastcgi_variable(line.arg(0));
        match (field, variable) {
            (Some(field), Some(variable)) => {
                set.push((variable, field.replace('_', "-")));
                work.ledger.mark_carried(line.id);
            }
            _ => work.ledger.mark_missing(
                line.id,
                "use `auth_request_set = { VARIABLE = \"Header\" }` in the rule to set variables for PHP",
            ),
        }
    }
    for when in whens {
        let mut rule = when.rule("auth_request", url.as_str(), &line.place);
        if !set.is_empty() {
            rule.set(
                "auth_request_set",
                crate::target::TomlValue::Pairs(set.clone()),
                None,
            );
        }
        work.push_at(RuleStage::Responses, rule);
    }
    work.ledger.mark_different(
        line.id,
        "if the authorization server does not respond with 2xx, the client gets its response, whatever the status",
    );
}

fn translate_auth_basic<'a>(
    work: &mut ServerTranslation<'_, 'a>,
    directives: &'a [Directive],
    when: &RuleCondition,
    location: Option<&Location<'a>>,
    exempt: &[String],
) {
    let Some(line) = directives.iter().rev().find(|d| d.name == "auth_basic") else {
        return;
    };
    if line.arg(0) == "off" {
        return work.ledger.mark_carried(line.id);
    }
    let mut whens = inherited_conditions(work, when, location, &["auth_basic"]);
    if !exempt.is_empty() {
        for when in &mut whens {
            when.exceptions
                .push(RuleCondition::clients(exempt.to_vec()));
        }
    }
    let scope = match location {
        Some(location) => work.scope_of(location),
        None => work.scope.clone(),
    };
    let file = scope.last("auth_basic_user_file");
    let path = file.and_then(|file| {
        resolve_path(
            &work.context.directory,
            &replace_constants(file.arg(0), &work.constants),
        )
    });
    let (Some(file), Some(path)) = (file, path) else {
        return deny_all(
            work,
            line,
            &whens,
            "name an auth_basic_user_file that does not depend on the request; until then, access is denied",
        );
    };
    let realm = replace_constants(line.arg(0), &work.constants);
    let realm = if has_variables(&realm) {
        "Restricted".to_owned()
    } else {
        realm
    };
    for when in whens {
        let mut rule = when.rule("auth_basic", realm.as_str(), &line.place);
        rule.set("auth_basic_user_file", path.as_str(), Some(&file.place));
        work.push_at(RuleStage::Responses, rule);
    }
    work.ledger.mark_carried(line.id);
    work.ledger.mark_carried(file.id);
}
