//! Who may go where: `Require` and its containers, `Order`, `Allow` and `Deny`, `Satisfy`, passwords. What
//! rules cannot express is closed.

use super::legacy::{legacy, network};
use super::requirement::{Formula, both};
use super::site::Work;
use crate::directive::Directive;
use crate::stages::Stage;
use crate::target::{Table, Value};
use crate::when::{Match, When};

/// Access of Apache 2.4.
const REQUIRE: &[&str] = &["require", "requireall", "requireany", "requirenone"];
/// Access of Apache 2.2, which 2.4 still has.
const LEGACY: &[&str] = &["order", "allow", "deny"];

/// Whether a line restricts who may go somewhere.
pub fn restricts(line: &Directive) -> bool {
    let name = line.name.as_str();
    REQUIRE.contains(&name)
        || LEGACY.contains(&name)
        || matches!(
            name,
            "sslrequiressl" | "sslrequire" | "limit" | "limitexcept" | "allowmethods"
        )
}

/// The rules of all sections.
pub fn write(work: &mut Work<'_, '_>) {
    for number in 0..work.layers.len() {
        let lines = work.layers[number].lines;
        let satisfy = work.effective(number, "satisfy");
        let any = satisfy.is_some_and(|line| line.arg(0).eq_ignore_ascii_case("any"));
        for line in lines.iter().filter(|d| d.name == "satisfy") {
            work.ledger.carried(line.id);
        }
        if any && has(lines, REQUIRE) && has(lines, LEGACY) {
            let names = [REQUIRE, LEGACY].concat();
            let either = |work: &Work<'_, '_>| {
                let parts = vec![legacy(work, lines)?, requirements(work, lines)?];
                Ok(Formula::Any(parts))
            };
            one(work, number, &names, either);
        } else {
            one(work, number, REQUIRE, |work| requirements(work, lines));
            one(work, number, LEGACY, |work| legacy(work, lines));
        }
        for block in lines
            .iter()
            .filter(|d| matches!(d.name.as_str(), "limit" | "limitexcept"))
        {
            limited(work, number, block);
        }
        for line in lines.iter() {
            others(work, number, line);
        }
    }
}

fn has(lines: &[Directive], names: &[&str]) -> bool {
    lines.iter().any(|d| names.contains(&d.name.as_str()))
}

/// The lines of these names in a section, which those of later sections replace.
fn one(
    work: &mut Work<'_, '_>,
    number: usize,
    names: &[&str],
    formula: impl Fn(&Work<'_, '_>) -> Result<Formula, String>,
) {
    let layer = work.layers[number].clone();
    let lines: Vec<&Directive> = layer
        .lines
        .iter()
        .filter(|d| names.contains(&d.name.as_str()))
        .collect();
    if lines.is_empty() || layer.section.is_none() {
        return;
    }
    let Some(when) = work.when(number, names) else {
        for line in lines {
            line.walk(&mut |d| work.overridden(d));
        }
        return;
    };
    let formula = formula(work);
    demand(work, number, &when, formula, &lines);
}

/// Refuses whoever a formula does not let in.
fn demand(
    work: &mut Work<'_, '_>,
    number: usize,
    when: &When,
    formula: Result<Formula, String>,
    lines: &[&Directive],
) {
    let place = &lines[0].place;
    let settle = |work: &Work<'_, '_>| {
        for line in lines {
            line.walk(&mut |d| work.ledger.carried(d.id));
        }
    };
    let found = formula.and_then(|formula| {
        let cannot = "rules that say the same (docs/access.md)".to_owned();
        formula.demands().map_err(|()| cannot)
    });
    let demands = match found {
        Ok(demands) => demands,
        Err(need) => return closed(work, number, when, lines, &need),
    };
    let mut rules = Vec::new();
    for denial in &demands.denials {
        match both(when, denial) {
            Some(both) => rules.push(both.rule("deny", 403, place)),
            None => return closed(work, number, when, lines, "one rule for the paths of both"),
        }
    }
    if let Some(login) = &demands.login {
        let mut asked = when.clone();
        asked.not.extend(login.exempt.iter().cloned());
        match password(work, number, &asked, &login.require, lines[0]) {
            Ok(rule) => rules.push(rule),
            Err(need) => return closed(work, number, when, lines, &need),
        }
    }
    settle(work);
    if !rules.is_empty() && names_dotfiles(&when.paths) {
        for line in lines {
            work.ledger.moot(
                line.id,
                "names that begin with a dot are never sent, `/.well-known/` aside",
            );
        }
        return;
    }
    for rule in rules {
        refuse(work, number, rule);
    }
}

/// Whether all of these paths have a name that begins with a dot.
pub fn names_dotfiles(paths: &Match) -> bool {
    matches!(paths, Match::Regex(expression) if expression.starts_with(r"/\."))
}

/// Adds a rule that refuses. `<Location>` is for the path that the client names, also where a rewrite or
/// an alias leads elsewhere: then it is asked before them, too.
fn refuse(work: &mut Work<'_, '_>, number: usize, rule: Table) {
    let section = work.layers[number].section;
    let is_location = section.is_some_and(|section| section.name.starts_with("location"));
    if is_location && work.leads_elsewhere() {
        work.stages.push(Stage::Inside, rule.clone());
    }
    // Where a section's own rewrites lead is asked about again.
    if work.rewrites_within_sections() {
        work.stages.push(Stage::Pools, rule.clone());
    }
    work.stages.push(Stage::Answers, rule);
}

/// Nobody may go there.
fn closed(work: &mut Work<'_, '_>, number: usize, when: &When, lines: &[&Directive], need: &str) {
    refuse(work, number, when.rule("deny", 403, &lines[0].place));
    for line in lines {
        line.walk(&mut |d| {
            work.ledger
                .list_protection(d.id, format!("{need}; until then this is closed"))
        });
    }
}

/// Who may GET may HEAD.
fn methods(words: &[String]) -> Vec<String> {
    let mut methods = words.to_vec();
    if methods.iter().any(|m| m == "GET") && !methods.iter().any(|m| m == "HEAD") {
        methods.push("HEAD".to_owned());
    }
    methods
}

/// `<Limit>` and `<LimitExcept>`: the same for some methods.
fn limited(work: &mut Work<'_, '_>, number: usize, block: &Directive) {
    let own = When::methods(methods(&block.args));
    let lines: Vec<&Directive> = block.inner().iter().collect();
    let when = When::paths(work.layers[number].paths.clone());
    let when = match block.name.as_str() {
        "limit" => both(&when, &own),
        _ => Some(when.but(own)),
    };
    let (Some(when), false) = (when, lines.is_empty()) else {
        return work.ledger.carried(block.id);
    };
    work.ledger.carried(block.id);
    let formula = requirements(work, block.inner()).and_then(|require| {
        let legacy = legacy(work, block.inner())?;
        let has = |names| has(block.inner(), names);
        Ok(match (has(REQUIRE), has(LEGACY)) {
            (true, true) => Formula::All(vec![require, legacy]),
            (true, false) => require,
            (false, true) => legacy,
            (false, false) => return Err("a rule with `methods`".to_owned()),
        })
    });
    demand(work, number, &when, formula, &lines);
}

/// `SSLRequireSSL` and lines that no rule replaces.
fn others(work: &mut Work<'_, '_>, number: usize, line: &Directive) {
    let when = When::paths(work.layers[number].paths.clone());
    match line.name.as_str() {
        "sslrequiressl" => {
            let secure = When::https();
            refuse(
                work,
                number,
                when.but(secure).rule("deny", 403, &line.place),
            );
            work.ledger.carried(line.id);
        }
        "sslrequire" => closed(
            work,
            number,
            &when,
            &[line],
            "rules that say the same (docs/access.md)",
        ),
        "allowmethods" => {
            let mut methods = line.args.clone();
            if methods.iter().any(|m| m.eq_ignore_ascii_case("reset")) {
                return work.ledger.carried(line.id);
            }
            methods.push("HEAD".to_owned());
            let allowed = When::methods(methods);
            refuse(
                work,
                number,
                when.but(allowed).rule("deny", 405, &line.place),
            );
            work.ledger.carried(line.id);
        }
        "authmerging" => match line.arg(0).eq_ignore_ascii_case("or") {
            true => work
                .ledger
                .remark(line.id, "all of them are asked for, not any"),
            false => work.ledger.carried(line.id),
        },
        _ => {}
    }
}

/// `Require` lines, of which one is enough, and containers.
fn requirements(work: &Work<'_, '_>, lines: &[Directive]) -> Result<Formula, String> {
    Ok(Formula::Any(each(work, lines)?))
}

fn each(work: &Work<'_, '_>, lines: &[Directive]) -> Result<Vec<Formula>, String> {
    let mut parts = Vec::new();
    for line in lines {
        parts.push(match line.name.as_str() {
            "requireall" => Formula::All(each(work, line.inner())?),
            "requireany" => Formula::Any(each(work, line.inner())?),
            "requirenone" => Formula::Not(Box::new(Formula::Any(each(work, line.inner())?))),
            "require" => requirement(work, line)?,
            _ => continue,
        });
    }
    Ok(parts)
}

/// `Require`
fn requirement(work: &Work<'_, '_>, line: &Directive) -> Result<Formula, String> {
    let (negated, words) = match line.args.split_first() {
        Some((not, words)) if not.eq_ignore_ascii_case("not") => (true, words),
        _ => (false, &line.args[..]),
    };
    let Some((kind, values)) = words.split_first() else {
        return Err("`Require` says nothing".to_owned());
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
            Formula::Yes
        }
        "all" => Formula::No,
        "local" => from(&["127.0.0.0/8", "::1/128"]),
        "ip" => {
            let mut found = Vec::new();
            for value in values {
                found.push(network(value).ok_or_else(|| format!("{value} is not a network"))?);
            }
            Formula::Is(When::clients(found))
        }
        "host" | "forward-dns" if !negated => {
            work.ledger.list_protection(
                line.id,
                "addresses in place of host names: Howdah looks up no client",
            );
            Formula::No
        }
        "method" => Formula::Is(When::methods(methods(values))),
        "env" => any_of(work, values)?,
        "valid-user" => Formula::Login(Vec::new()),
        "user" => Formula::Login(named("user")),
        "group" => Formula::Login(named("group")),
        "expr" => super::expr::condition(&values.join(" "))?,
        _ => return Err(format!("Howdah has no `Require {kind}`")),
    };
    Ok(match negated {
        true => Formula::Not(Box::new(found)),
        false => found,
    })
}

fn from(networks: &[&str]) -> Formula {
    Formula::Is(When::clients(
        networks.iter().map(|n| (*n).to_owned()).collect(),
    ))
}

/// Requests for which one of these variables is set.
pub fn any_of(work: &Work<'_, '_>, names: &[String]) -> Result<Formula, String> {
    let mut any = Vec::new();
    for name in names {
        let found = work.variable(name)?;
        any.extend(found.into_iter().map(Formula::Is));
    }
    Ok(Formula::Any(any))
}

/// The rule that asks for a password.
fn password(
    work: &Work<'_, '_>,
    number: usize,
    when: &When,
    require: &[String],
    line: &Directive,
) -> Result<Table, String> {
    let auth = |name: &str| work.effective(number, name);
    let word =
        |name: &str| auth(name).map_or(String::new(), |line| line.arg(0).to_ascii_lowercase());
    if word("authtype") != "basic" {
        return Err("Basic authentication: `auth_basic` of a rule".to_owned());
    }
    let provider = auth("authbasicprovider");
    if provider.is_some_and(|line| line.args != ["file"]) {
        return Err("users and passwords in a file: `auth_basic_user_file` of a rule".to_owned());
    }
    let path = |name: &str| auth(name).map(|line| (line, work.context.path(line.arg(0))));
    let Some((file, users)) = path("authuserfile") else {
        return Err("`auth_basic_user_file` of a rule: there is no AuthUserFile".to_owned());
    };
    let name = auth("authname").map_or("Restricted", |line| line.arg(0));
    let mut rule = when.rule("auth_basic", name, &line.place);
    rule.set("auth_basic_user_file", users, Some(&file.place));
    if require.iter().any(|who| who.starts_with("group ")) {
        let Some((file, groups)) = path("authgroupfile") else {
            return Err("`auth_basic_group_file` of a rule: there is no AuthGroupFile".to_owned());
        };
        rule.set("auth_basic_group_file", groups, Some(&file.place));
        work.ledger.carried(file.id);
    }
    if !require.is_empty() {
        rule.set("auth_basic_require", Value::Texts(require.to_vec()), None);
    }
    for name in ["authtype", "authname", "authuserfile", "authbasicprovider"] {
        if let Some(line) = auth(name) {
            work.ledger.carried(line.id);
        }
    }
    Ok(rule)
}
