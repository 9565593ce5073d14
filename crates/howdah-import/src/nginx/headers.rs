//! Fields of answers (`add_header`, `expires`), and media types.

use super::files;
use super::location::Location;
use super::rules::{self, Content, content};
use super::scope::Scope;
use super::server::Work;
use super::variables::{constant, has_variables};
use crate::directive::Directive;
use crate::media_type;
use crate::stages::Stage;
use crate::target::{Value, is_settable};
use crate::time::{SECOND, milliseconds};
use crate::when::{Match, When};

/// `Strict-Transport-Security` without what browsers overlook in it: a semicolon at the end, quotes around the
/// number of seconds (RFC 6797 §6.1 allows both).
fn without_mistakes(value: &str) -> String {
    let directives = value.split(';').map(str::trim);
    let directives = directives.filter(|directive| !directive.is_empty());
    let directives: Vec<String> = directives
        .map(|directive| directive.replace('"', ""))
        .collect();
    directives.join("; ")
}

/// Fields of the whole server.
pub fn of_server(work: &mut Work<'_, '_>) {
    let scope = work.scope.clone();
    let lines = scope.all(&["add_header"]);
    let everything = When::default();
    for line in &lines {
        if line
            .arg(0)
            .eq_ignore_ascii_case("strict-transport-security")
            && !has_variables(line.arg(1))
        {
            let value = without_mistakes(line.arg(1));
            work.site.table.set("hsts", &*value, Some(&line.place));
            work.ledger
                .remark(line.id, "in answers by HTTPS only, as RFC 6797 wants it");
        } else {
            field(work, line, &everything);
        }
    }
    if let Some(line) = scope.one("expires") {
        expires(work, line, &[], &everything);
    }
}

/// Fields of a location.
pub fn of_location<'a>(work: &mut Work<'_, 'a>, location: &Location<'a>, when: &When) {
    let own = Scope::outermost(location.block.inner());
    let lines = own.all(&["add_header"]);
    let is_php = content(location.block) == Content::Php;
    let everywhere = is_php || location.is_rest();
    // Scripts are reached by way of other paths, too: those of directories, and those that no file has.
    let reached = match (everywhere, is_php && rules::is_for_all_scripts(location)) {
        (true, true) => vec![
            When::paths(Match::Regex(format!("(?:{}|/$)", files::SCRIPT))),
            When {
                not: vec![When::paths(Match::Regex(files::SCRIPT.to_owned()))],
                ..When::missing()
            },
        ],
        (true, false) => vec![When::default()],
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
            field(work, line, when);
        }
        if reached.len() > 1 {
            work.ledger
                .remark(line.id, "also for the files that directories show");
        } else if everywhere {
            work.ledger.remark(
                line.id,
                "for all answers of the site: files, and what scripts make of other paths",
            );
        }
    }
    match own.one("expires") {
        Some(_) if is_php => {
            for line in location
                .block
                .inner()
                .iter()
                .filter(|d| d.name == "expires")
            {
                work.ledger
                    .list(line.id, "scripts set their own Cache-Control");
            }
        }
        Some(line) => expires(work, line, &control, &reached[0]),
        None if !control.is_empty() => {
            let line = control[0];
            expires(work, line, &control, &reached[0]);
        }
        None => {}
    }
}

/// `add_header`
fn field(work: &mut Work<'_, '_>, line: &Directive, when: &When) {
    let ledger = work.ledger;
    let (name, value) = (line.arg(0), constant(line.arg(1), &work.constants));
    if has_variables(&value) {
        return ledger.list(line.id, "set_header of a rule, with a text");
    }
    if !is_settable(name) || value.chars().any(char::is_control) {
        return ledger.list(
            line.id,
            "a field that the server sets itself, or that is none",
        );
    }
    if name.eq_ignore_ascii_case("alt-svc") {
        return ledger.moot(line.id, "Howdah announces HTTP/3 by itself");
    }
    if value.is_empty() {
        return ledger.moot(line.id, "nginx adds no empty fields");
    }
    let repeats = ["link", "set-cookie", "vary"]
        .iter()
        .any(|n| name.eq_ignore_ascii_case(n));
    let action = if repeats { "add_header" } else { "set_header" };
    let pairs = Value::Pairs(vec![(name.to_owned(), value)]);
    work.push_at(Stage::Fields, when.rule(action, pairs, &line.place));
    match line.arg(2) {
        "always" => ledger.carried(line.id),
        _ => ledger.remark(
            line.id,
            "for every status, and once: a script's own field of that name is replaced",
        ),
    }
}

/// `expires`, with the `Cache-Control` fields beside it.
fn expires(work: &mut Work<'_, '_>, line: &Directive, fields: &[&Directive], when: &When) {
    let ledger = work.ledger;
    let mut words: Vec<String> = fields.iter().map(|d| d.arg(1).to_owned()).collect();
    if line.name == "expires" {
        let word = match line.args.last().map_or("", String::as_str) {
            "off" if fields.is_empty() => {
                return ledger.moot(line.id, "there is no Cache-Control by default");
            }
            "off" => None,
            "epoch" => Some("no-cache".to_owned()),
            "max" => Some("max-age=315360000".to_owned()),
            text if text.starts_with('-') => Some("no-cache".to_owned()),
            text => match milliseconds(text) {
                Some(time) if line.args.len() == 1 => Some(format!("max-age={}", time / SECOND)),
                _ => {
                    return ledger
                        .list(line.id, "cache_control of a rule, with max-age in seconds");
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
            ledger.list(line.id, "cache_control of a rule, with a text");
        }
        return;
    }
    // The first such rule counts: those of the locations that nginx prefers are before this one.
    let paths = When::paths(when.paths.clone());
    let value = words.join(", ");
    work.push_at(
        Stage::Fields,
        paths.rule("cache_control", value, &line.place),
    );
    if paths != *when {
        let remark = "also for paths of locations that nginx prefers, if these set none";
        ledger.remark(line.id, remark);
    }
    for line in fields.iter().chain([&line]) {
        ledger.remark(
            line.id,
            "Cache-Control of files, without Expires; scripts set their own",
        );
    }
}

/// `types`: those that Howdah does not know by itself.
pub fn types(work: &mut Work<'_, '_>) {
    let scope = work.scope.clone();
    for block in scope.all(&["types"]) {
        work.ledger.carried(block.id);
        for line in block.inner() {
            for extension in &line.args {
                let name = format!("x.{extension}");
                let ours = (work.context.media_type)(name.as_bytes());
                if !media_type::is_same(ours, &line.name) && !is_script(extension) {
                    work.site.pair("types", extension, &line.name);
                }
            }
            work.ledger.carried(line.id);
        }
    }
    for line in scope.all(&["default_type"]) {
        match line.arg(0) {
            "application/octet-stream" => work.ledger.carried(line.id),
            _ => work
                .ledger
                .list(line.id, "types of the site, for each extension"),
        }
    }
    for line in scope.all(&["charset"]) {
        match line.arg(0).eq_ignore_ascii_case("utf-8") {
            true => work.ledger.carried(line.id),
            false => work.ledger.list(
                line.id,
                "text files are sent as UTF-8; types of the site say another charset",
            ),
        }
    }
}

fn is_script(extension: &str) -> bool {
    extension.starts_with("php") || extension == "phtml"
}
