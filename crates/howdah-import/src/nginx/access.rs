//! Who may go where: `allow`, `deny`, `auth_basic`, `internal`, `limit_except`. What rules cannot express
//! is closed.

use super::location::{Kind, Location};
use super::networks::{Denial, networks};
use super::resolve;
use super::rules::{Content, content, may_meet};
use super::server::Work;
use super::variables::{constant, has_variables};
use crate::directive::Directive;
use crate::stages::Stage;
use crate::when::{Match, When};

/// The rules of a block: of a location, or of the server itself.
pub fn of_block<'a>(
    work: &mut Work<'_, 'a>,
    directives: &'a [Directive],
    when: &When,
    location: Option<&Location<'a>>,
) {
    if directives.iter().any(|d| d.name == "return") {
        for line in directives.iter().filter(|d| is_asked_later(&d.name)) {
            let why = "the `return` beside it answers before";
            line.walk(&mut |d| work.ledger.moot(d.id, why));
        }
        if let Some(line) = directives.iter().find(|d| d.name == "internal") {
            internal(work, line, when, location);
        }
        return;
    }
    for line in directives {
        match line.name.as_str() {
            "internal" => internal(work, line, when, location),
            "limit_except" => limit_except(work, line, when),
            "auth_request" => auth_request(work, line, directives, when, location),
            "auth_jwt" => closed(
                work,
                line,
                std::slice::from_ref(when),
                "authentication by tokens; this is closed",
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
    let denials = networks(&lines);
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
            true => work.ledger.carried(line.id),
            false => work
                .ledger
                .remark(line.id, "all of them are asked for, not any"),
        }
    }
    if let (Some(_), true, Some(allowed)) = (either, has_password, alone) {
        // Either of both: whoever comes from these networks needs no password.
        exempt = allowed;
        lines.iter().for_each(|line| work.ledger.carried(line.id));
    } else if !lines.is_empty() {
        let whens = inherited(work, when, location, &["allow", "deny"]);
        match denials {
            Ok(steps) => {
                for when in &whens {
                    steps
                        .iter()
                        .for_each(|step| refuse(work, step, when, lines[0]));
                }
                lines.iter().for_each(|line| work.ledger.carried(line.id));
            }
            Err(line) => {
                closed(
                    work,
                    line,
                    &whens,
                    "addresses and networks; until then this is closed",
                );
                for line in lines {
                    work.ledger.list_protection(
                        line.id,
                        "addresses and networks; until then this is closed",
                    );
                }
            }
        }
    }
    passwords(work, directives, when, location, &exempt);
}

/// Whether nginx asks for it in its access phase, after all rewrites.
fn is_asked_later(name: &str) -> bool {
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

/// Where a block's own lines hold: not in the locations inside with lines of their own, but in others that
/// nginx prefers to those.
fn inherited(
    work: &Work<'_, '_>,
    when: &When,
    location: Option<&Location<'_>>,
    names: &[&str],
) -> Vec<When> {
    let inside = |l: &Location<'_>| match location {
        None => true,
        Some(outer) => {
            l.around.iter().any(|block| block.id == outer.block.id) && may_meet(l, outer)
        }
    };
    let has_own = |l: &Location<'_>| {
        l.kind != Kind::Named
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
        // Both hold for what no other location is for.
        let Ok(paths) = own.paths() else { continue };
        if paths == Match::All {
            continue;
        }
        all = all.but(When::paths(paths));
        for (before, other) in work.locations[..number].iter().enumerate() {
            if has_own(other) || !inside(other) || !may_meet(other, own) {
                continue;
            }
            let Ok(paths) = other.paths() else { continue };
            let preferred = work.locations[..before]
                .iter()
                .filter(|l| has_own(l) && may_meet(l, other));
            let preferred = preferred
                .filter_map(|l| l.paths().ok())
                .filter(|paths| *paths != Match::All);
            let also = When::except(paths, preferred.collect());
            if !whens.contains(&also) {
                whens.push(also);
            }
        }
    }
    whens.insert(0, all);
    whens
}

/// A rule that refuses.
fn refuse(work: &mut Work<'_, '_>, denial: &Denial, when: &When, line: &Directive) {
    let mut own = when.clone();
    own.from.clone_from(&denial.networks);
    if !denial.allowed.is_empty() {
        own.not.push(When::clients(denial.allowed.clone()));
    }
    work.push_at(Stage::Answers, own.rule("deny", 403, &line.place));
}

/// Nobody may go there.
fn closed(work: &mut Work<'_, '_>, line: &Directive, whens: &[When], need: &str) {
    for when in whens {
        work.push_at(Stage::Answers, when.rule("deny", 403, &line.place));
    }
    work.ledger.list_protection(line.id, need);
}

/// `internal`: 404 for clients; scripts may name files there.
fn internal(
    work: &mut Work<'_, '_>,
    line: &Directive,
    when: &When,
    location: Option<&Location<'_>>,
) {
    let Some(location) = location else {
        return closed(
            work,
            line,
            std::slice::from_ref(when),
            "`internal` of a whole server; it is closed",
        );
    };
    work.push_at(Stage::Inside, when.rule("deny", 404, &line.place));
    work.ledger.carried(line.id);
    // nginx comes there by the index of a directory, too.
    let controls = work.controller.as_deref() == Some("/index.php");
    if content(location.block) == Content::Php && location.has("/index.php") && !controls {
        super::script::home(work);
    }
    let is_prefix = matches!(location.kind, Kind::Prefix | Kind::Firm);
    if !is_prefix || content(location.block) != Content::Answer || !location.pattern.ends_with('/')
    {
        return;
    }
    let alias = location.block.last("alias").or(location.block.last("root"));
    let Some(alias) = alias else { return };
    let path = resolve(
        &work.context.prefix,
        &constant(alias.arg(0), &work.constants),
    );
    let Some(path) = path else {
        return work.ledger.list(
            alias.id,
            "[site.sendfile] names directories that are known before a request",
        );
    };
    let path = match alias.name.as_str() {
        "alias" => path,
        _ => format!("{path}{}", location.pattern.trim_end_matches('/')),
    };
    work.site.pair("sendfile", &location.pattern, &path);
    work.ledger.carried(alias.id);
}

/// `limit_except`
fn limit_except(work: &mut Work<'_, '_>, block: &Directive, when: &When) {
    let mut methods = block.args.clone();
    if methods.iter().any(|method| method == "GET") {
        methods.push("HEAD".to_owned());
    }
    let except = When::methods(methods);
    let when = when.clone().but(except);
    let lines: Vec<&Directive> = block.inner().iter().collect();
    let addresses = lines
        .iter()
        .all(|d| matches!(d.name.as_str(), "allow" | "deny"));
    match networks(&lines) {
        Ok(steps) if addresses && !lines.is_empty() => {
            steps
                .iter()
                .for_each(|step| refuse(work, step, &when, block));
            block.walk(&mut |d| work.ledger.carried(d.id));
        }
        _ => {
            closed(
                work,
                block,
                &[when],
                "a rule with `methods` in `not`; these methods are closed",
            );
            for line in lines {
                work.ledger
                    .list_protection(line.id, "its block is not carried over");
            }
        }
    }
}

/// `auth_request`: another server is asked.
fn auth_request<'a>(
    work: &mut Work<'_, 'a>,
    line: &'a Directive,
    directives: &'a [Directive],
    when: &When,
    location: Option<&Location<'a>>,
) {
    if line.arg(0) == "off" {
        return work.ledger.carried(line.id);
    }
    let whens = inherited(work, when, location, &["auth_request"]);
    let url = match super::proxy::url_of(work, line.arg(0)) {
        Ok(url) => url,
        Err(need) => {
            return closed(
                work,
                line,
                &whens,
                &format!("auth_request of a rule: {need}; until then this is closed"),
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
                work.ledger.carried(line.id);
            }
            _ => work.ledger.list(
                line.id,
                "auth_request_set = { VARIABLE = \"Field\" } of the rule, for variables of PHP",
            ),
        }
    }
    for when in whens {
        let mut rule = when.rule("auth_request", url.as_str(), &line.place);
        if !set.is_empty() {
            rule.set(
                "auth_request_set",
                crate::target::Value::Pairs(set.clone()),
                None,
            );
        }
        work.push_at(Stage::Answers, rule);
    }
    work.ledger
        .remark(line.id, "any answer but 2xx is the client's");
}

/// `auth_basic`
fn passwords<'a>(
    work: &mut Work<'_, 'a>,
    directives: &'a [Directive],
    when: &When,
    location: Option<&Location<'a>>,
    exempt: &[String],
) {
    let Some(line) = directives.iter().rev().find(|d| d.name == "auth_basic") else {
        return;
    };
    if line.arg(0) == "off" {
        return work.ledger.carried(line.id);
    }
    let mut whens = inherited(work, when, location, &["auth_basic"]);
    if !exempt.is_empty() {
        for when in &mut whens {
            when.not.push(When::clients(exempt.to_vec()));
        }
    }
    let scope = match location {
        Some(location) => work.scope_of(location),
        None => work.scope.clone(),
    };
    let file = scope.one("auth_basic_user_file");
    let path = file.and_then(|file| {
        resolve(
            &work.context.directory,
            &constant(file.arg(0), &work.constants),
        )
    });
    let (Some(file), Some(path)) = (file, path) else {
        return closed(
            work,
            line,
            &whens,
            "auth_basic_user_file, known before a request; until then this is closed",
        );
    };
    let realm = constant(line.arg(0), &work.constants);
    let realm = if has_variables(&realm) {
        "Restricted".to_owned()
    } else {
        realm
    };
    for when in whens {
        let mut rule = when.rule("auth_basic", realm.as_str(), &line.place);
        rule.set("auth_basic_user_file", path.as_str(), Some(&file.place));
        work.push_at(Stage::Answers, rule);
    }
    work.ledger.carried(line.id);
    work.ledger.carried(file.id);
}
