//! Translates response headers (`add_header`, `expires`) and media types.

use super::files;
use super::location::Location;
use super::rules::{self, LocationContent, content_of};
use super::scope::NginxScope;
use super::server::ServerTranslation;
use super::variables::{has_variables, replace_constants};
use crate::directive::Directive;
use crate::media_type;
use crate::rule_condition::{PathMatch, RuleCondition};
use crate::stages::RuleStage;
use crate::target::{TomlValue, is_settable_header};
use crate::time::{SECOND, parse_milliseconds};

/// Removes from `Strict-Transport-Security` what browsers tolerate: a semicolon at the end, and quotes around the
/// number of seconds (RFC 6797 §6.1 allows both).
fn normalize_hsts(value: &str) -> String {
    let directives = value.split(';').map(str::trim);
    let directives = directives.filter(|directive| !directive.is_empty());
    let directives: Vec<String> = directives
        .map(|directive| directive.replace('"', ""))
        .collect();
    directives.join("; ")
}

/// Translates the headers of the whole server.
pub fn translate_server_headers(work: &mut ServerTranslation<'_, '_>) {
    let scope = work.scope.clone();
    let lines = scope.all(&["add_header"]);
    let everything = RuleCondition::default();
    for line in &lines {
        if line
            .arg(0)
            .eq_ignore_ascii_case("strict-transport-security")
            && !has_variables(line.arg(1))
        {
            let value = normalize_hsts(line.arg(1));
            work.site.table.set("hsts", &*value, Some(&line.place));
            work.ledger.mark_different(
                line.id,
                "the header is sent only in responses over HTTPS, as RFC 6797 requires",
            );
        } else {
            translate_add_header(work, line, &everything);
        }
    }
    if let Some(line) = scope.last("expires") {
        translate_expires(work, line, &[], &everything);
    }
}

/// Translates the headers of a location.
pub fn translate_location_headers<'a>(
    work: &mut ServerTranslation<'_, 'a>,
    location: &Location<'a>,
    when: &RuleCondition,
) {
    let own = NginxScope::outermost(location.block.inner());
    let lines = own.all(&["add_header"]);
    let is_php = content_of(location.block) == LocationContent::Php;
    let everywhere = is_php || location.is_catch_all();
    // Scripts are also reached through other paths: those of directories, and those without a file.
    let reached = match (everywhere, is_php && rules::takes_all_scripts(location)) {
        (true, true) => vec![
            RuleCondition::paths(PathMatch::Regex(format!("(?:{}|/$)", files::SCRIPT_REGEX))),
            RuleCondition {
                exceptions: vec![RuleCondition::paths(PathMatch::Regex(
                    files::SCRIPT_REGEX.to_owned(),
                ))],
                ..RuleCondition::missing()
            },
        ],
        (true, false) => vec![RuleCondition::default()],
        (false, _) => vec![when.clone()],
    };
    let is_control = |d: &&&Directive| d.arg(0).eq_ignore_ascii_case("cache-control");
    let control: Vec<&Directive> = match is_php {
        true => Vec::new(),
        false => lines.iter().filter(is_control).copied().collect(),
    };
    for line in &lines {
        if control.iter().any(|d| d.id == line.id) {
            continue;
        }
        for when in &reached {
            translate_add_header(work, line, when);
        }
        if reached.len() > 1 {
            work.ledger.mark_different(
                line.id,
                "the header also applies to the index files of directories",
            );
        } else if everywhere {
            work.ledger.mark_different(
                line.id,
                "the header applies to all responses of the site, both of files and of scripts",
            );
        }
    }
    match own.last("expires") {
        Some(_) if is_php => {
            for line in location
                .block
                .inner()
                .iter()
                .filter(|d| d.name == "expires")
            {
                work.ledger
                    .mark_missing(line.id, "scripts set their own Cache-Control");
            }
        }
        Some(line) => translate_expires(work, line, &control, &reached[0]),
        None if !control.is_empty() => {
            let line = control[0];
            translate_expires(work, line, &control, &reached[0]);
        }
        None => {}
    }
}

/// Translates `add_header`.
fn translate_add_header(
    work: &mut ServerTranslation<'_, '_>,
    line: &Directive,
    when: &RuleCondition,
) {
    let ledger = work.ledger;
    let (name, value) = (line.arg(0), replace_constants(line.arg(1), &work.constants));
    if has_variables(&value) {
        return ledger.mark_missing(line.id, "use `set_header` in a rule, with a fixed value");
    }
    if !is_settable_header(name) || value.chars().any(char::is_control) {
        return ledger.mark_missing(
            line.id,
            "the server sets this header itself, or the name is not valid",
        );
    }
    if name.eq_ignore_ascii_case("alt-svc") {
        return ledger.mark_irrelevant(line.id, "Howdah announces HTTP/3 by itself");
    }
    if value.is_empty() {
        return ledger.mark_irrelevant(line.id, "nginx does not add an empty header");
    }
    let repeats = ["link", "set-cookie", "vary"]
        .iter()
        .any(|n| name.eq_ignore_ascii_case(n));
    let action = if repeats { "add_header" } else { "set_header" };
    let pairs = TomlValue::Pairs(vec![(name.to_owned(), value)]);
    work.push_at(RuleStage::Headers, when.rule(action, pairs, &line.place));
    match line.arg(2) {
        "always" => ledger.mark_carried(line.id),
        _ => ledger.mark_different(
            line.id,
            "the header is set for every status, and replaces a script's own header of that name",
        ),
    }
}

/// Translates `expires` together with the `Cache-Control` headers beside it.
fn translate_expires(
    work: &mut ServerTranslation<'_, '_>,
    line: &Directive,
    fields: &[&Directive],
    when: &RuleCondition,
) {
    let ledger = work.ledger;
    let mut words: Vec<String> = fields.iter().map(|d| d.arg(1).to_owned()).collect();
    if line.name == "expires" {
        let word = match line.args.last().map_or("", String::as_str) {
            "off" if fields.is_empty() => {
                return ledger.mark_irrelevant(line.id, "Howdah sends no Cache-Control by default");
            }
            "off" => None,
            "epoch" => Some("no-cache".to_owned()),
            "max" => Some("max-age=315360000".to_owned()),
            text if text.starts_with('-') => Some("no-cache".to_owned()),
            text => match parse_milliseconds(text) {
                Some(time) if line.args.len() == 1 => Some(format!("max-age={}", time / SECOND)),
                _ => {
                    return ledger.mark_missing(
                        line.id,
                        "use `cache_control` in a rule, with max-age in seconds",
                    );
                }
            },
        };
        let said = |word: &String| {
            let mut words = words.iter();
            words.any(|w| w.contains("max-age") || w.contains(word.as_str()))
        };
        let word = word.filter(|word| !said(word));
        words.splice(0..0, word);
    }
    if words.iter().any(|word| has_variables(word)) {
        for line in fields.iter().chain([&line]) {
            ledger.mark_missing(line.id, "use `cache_control` in a rule, with a fixed value");
        }
        return;
    }
    // The first rule that sets `Cache-Control` applies, and rules of the locations that nginx prefers precede this one.
    let paths = RuleCondition::paths(when.paths.clone());
    let value = words.join(", ");
    work.push_at(
        RuleStage::Headers,
        paths.rule("cache_control", value, &line.place),
    );
    if paths != *when {
        let remark = "the header also applies to paths that another location of nginx handles, unless that location sets headers of its own";
        ledger.mark_different(line.id, remark);
    }
    for line in fields.iter().chain([&line]) {
        ledger.mark_different(
            line.id,
            "files get Cache-Control but not Expires; scripts set their own headers",
        );
    }
}

/// Translates `types`: only the media types that Howdah does not have by default.
pub fn translate_types(work: &mut ServerTranslation<'_, '_>) {
    let scope = work.scope.clone();
    for block in scope.all(&["types"]) {
        work.ledger.mark_carried(block.id);
        for line in block.inner() {
            for extension in &line.args {
                let name = format!("x.{extension}");
                let ours = (work.context.media_type)(name.as_bytes());
                if !media_type::is_equivalent(ours, &line.name) && !is_script(extension) {
                    work.site.set_pair_if_absent("types", extension, &line.name);
                }
            }
            work.ledger.mark_carried(line.id);
        }
    }
    for line in scope.all(&["default_type"]) {
        match line.arg(0) {
            "application/octet-stream" => work.ledger.mark_carried(line.id),
            _ => work
                .ledger
                .mark_missing(line.id, "use `types` in the site, for each extension"),
        }
    }
    for line in scope.all(&["charset"]) {
        match line.arg(0).eq_ignore_ascii_case("utf-8") {
            true => work.ledger.mark_carried(line.id),
            false => work.ledger.mark_missing(
                line.id,
                "text files are sent as UTF-8; set another charset in `types` in the site",
            ),
        }
    }
}

fn is_script(extension: &str) -> bool {
    extension.starts_with("php") || extension == "phtml"
}
