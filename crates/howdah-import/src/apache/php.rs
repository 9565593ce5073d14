//! Who runs scripts: mod_php, php-fpm by `SetHandler` or `ProxyPassMatch`, mod_fcgid. Nothing else is run.

use std::collections::BTreeMap;

use super::handlers::{ENDINGS, HANDLERS, Handler, is_script, named, proxied, says};
use super::layers::Layer;
use super::region;
use super::site::Work;
use crate::directive::Directive;
use crate::pool;
use crate::stages::Stage;
use crate::target::{Pairs, Table, Value};
use crate::when::{Match, When};

/// What becomes of a script at a path, and the line that says it. A line that keeps PHP off weighs more than
/// those that run it: mod_php's own are behind all others.
fn at<'a>(work: &Work<'_, 'a>, path: &str) -> Option<(Handler, &'a Directive)> {
    let ending = path.rsplit('.').next().unwrap_or_default();
    let layers = work.layers.iter().filter(|layer| layer.has(path));
    let mut found: Option<(Handler, &Directive)> = None;
    let mut engine: Option<(Handler, &Directive)> = None;
    for line in layers.flat_map(|layer| layer.lines) {
        if let Some(handler) = says(line, ending) {
            match line.name.starts_with("php_") {
                true => engine = Some((handler, line)),
                false => found = Some((handler, line)),
            }
        }
    }
    // `ProxyPassMatch ^/(.*\.php)$ fcgi://…` comes before all handlers.
    let passed = work
        .layers
        .iter()
        .flat_map(|layer| layer.lines)
        .find_map(|line| {
            let (pattern, target) = proxied(line)?;
            region::has(&pattern, path).then_some((Handler::At(target), line))
        });
    passed.or(match &found {
        Some((Handler::Own, _)) => engine.or(found),
        _ => found,
    })
}

/// The pool of the whole site: that of `/index.php`, or of any other script.
pub fn choose(work: &mut Work<'_, '_>) {
    let whole_is_known = work.context.knows_modules;
    let main = at(work, "/index.php").filter(|(handler, _)| *handler != Handler::Off);
    let main = main.or_else(|| somewhere(work));
    let Some((handler, line)) = main else {
        if whole_is_known
            || work.layers.iter().any(|layer| {
                layer
                    .lines
                    .iter()
                    .any(|d| HANDLERS[..2].contains(&d.name.as_str()))
            })
        {
            return work
                .site
                .table
                .set("php_extensions", Value::Texts(Vec::new()), None);
        }
        // One site's file: who runs PHP stands elsewhere.
        let name = own_pool(work, None);
        work.site.table.set("pool", name, None);
        return;
    };
    let name = pool(work, &handler, line);
    work.site
        .table
        .set("pool", name.as_str(), Some(&line.place));
    let fpm = work.context.fpm;
    if let Some(fpm) = fpm.iter().find(|pool| pool.name == name) {
        pool::settings_of_site(fpm, &mut work.site);
    }
    let runs = |ending: &&&str| {
        at(work, &format!("/x7q.{ending}")).is_some_and(|(handler, _)| handler != Handler::Off)
    };
    let endings: Vec<String> = ENDINGS
        .iter()
        .filter(runs)
        .map(|ending| format!(".{ending}"))
        .collect();
    if !endings.is_empty() && endings != [".php"] {
        work.site
            .table
            .set("php_extensions", Value::Texts(endings), None);
    }
}

/// Who runs scripts in some part of the site.
fn somewhere<'a>(work: &Work<'_, 'a>) -> Option<(Handler, &'a Directive)> {
    let mut lines = work.layers.iter().flat_map(|layer| layer.lines);
    lines.find_map(|line| {
        let handler = proxied(line)
            .map(|(_, target)| Handler::At(target))
            .or_else(|| says(line, "php"))?;
        (handler != Handler::Off).then_some((handler, line))
    })
}

/// The pool's name.
fn pool(work: &mut Work<'_, '_>, handler: &Handler, line: &Directive) -> String {
    let Handler::At(target) = handler else {
        return own_pool(work, Some(line));
    };
    if let Some(name) = work.context.pools.get(target) {
        return name.clone();
    }
    let hint = pool::hint(target);
    let context = &mut *work.context;
    let name = pool::of_addresses(
        vec![target.clone()],
        &hint,
        &line.place,
        context.fpm,
        context.config,
        work.ledger,
    );
    context.pools.insert(target.clone(), name.clone());
    name
}

/// Howdah's own PHP, as the user that the host names.
fn own_pool(work: &mut Work<'_, '_>, line: Option<&Directive>) -> String {
    let lines = work.host.lines;
    // suexec starts programs; mod_php runs as Apache does.
    let by_mod_php = line.is_none_or(|line| line.arg(0) == "application/x-httpd-php");
    let user = lines.iter().rev().find(|d| match d.name.as_str() {
        "assignuserid" | "ruidgid" => true,
        "suexecusergroup" | "suphp_usergroup" => !by_mod_php,
        _ => false,
    });
    let user = user.map(|line| {
        work.ledger.carried(line.id);
        // `#1000` is a number.
        let words = line.args.iter().map(|word| word.trim_start_matches('#'));
        words.collect::<Vec<_>>().join(":")
    });
    let key = format!("own {}", user.as_deref().unwrap_or_default());
    if let Some(name) = work.context.pools.get(&key) {
        return name.clone();
    }
    let mut table = Table::default();
    if let Some(line) = line {
        table.comment(line.place.to_string());
    }
    table.set("mode", "embed", None);
    let hint = match &user {
        Some(user) => {
            table.set("user", user.as_str(), None);
            user.split(':').next().unwrap_or_default().to_owned()
        }
        None => "www".to_owned(),
    };
    if let Some((requests, place)) = &work.context.max_requests {
        table.set("max_requests", *requests, Some(place));
    }
    let name = pool::free_name(&pool::hint(&hint), work.context.config);
    work.context
        .config
        .pools
        .push((name.clone(), table, BTreeMap::new()));
    work.context.pools.insert(key, name.clone());
    name
}

/// What differs from the site's pool, in parts of the site; then settings.
pub fn write(work: &mut Work<'_, '_>) {
    let has_php = work.site.table.get("pool").is_some();
    let main = at(work, "/index.php").map(|(handler, _)| handler);
    for number in 0..work.layers.len() {
        let layer = work.layers[number].clone();
        for line in layer.lines {
            handler_line(work, number, &layer, line, main.as_ref());
            setting(work, &layer, line);
        }
    }
    if has_php && matches!(main, None | Some(Handler::Off)) {
        elsewhere_none(work);
    }
}

/// A line that says who runs scripts.
fn handler_line(
    work: &mut Work<'_, '_>,
    number: usize,
    layer: &Layer<'_>,
    line: &Directive,
    main: Option<&Handler>,
) {
    let ledger = work.ledger;
    if let Some((paths, target)) = proxied(line) {
        let handler = Handler::At(target);
        if main != Some(&handler) && is_for_scripts(&paths) {
            let name = pool(work, &handler, line);
            work.stages.push(
                Stage::Pools,
                When::paths(paths).rule("pool", name, &line.place),
            );
        }
        return ledger.carried(line.id);
    }
    if !HANDLERS.contains(&line.name.as_str()) {
        return;
    }
    let Some(handler) = says(line, "php") else {
        return other_handler(work, line);
    };
    ledger.carried(line.id);
    if main == Some(&handler) || layer.section.is_none() {
        return;
    }
    // Who takes PHP from a directory means to close it, though Apache's `<FilesMatch>` may run it all the same.
    let closes = handler == Handler::Off && matches!(layer.paths, Match::Prefix(_));
    let below = match &layer.paths {
        Match::All => Some("/x7q.php".to_owned()),
        Match::Prefix(path) => Some(format!("{}/x7q.php", path.trim_end_matches('/'))),
        Match::Path(_) | Match::Regex(_) => None,
    };
    let by_another = |path: &String| at(work, path).is_some_and(|(_, by)| by.id != line.id);
    // `AddHandler` says nothing where a `SetHandler` does.
    if !closes && below.as_ref().is_some_and(by_another) {
        return;
    }
    let when = match closes {
        true => Some(When::paths(layer.paths.clone())),
        false => work.when(number, &["sethandler"]),
    };
    let Some(when) = when else {
        return work.overridden(line);
    };
    match handler {
        Handler::Off => {
            if let Some(scripts) = scripts_of(&when.paths) {
                let when = When {
                    paths: scripts,
                    ..when
                };
                work.stages
                    .push(Stage::Answers, when.rule("deny", 403, &line.place));
            }
        }
        // The main server's `<FilesMatch>`, where a host runs `.php` itself.
        _ if layer.is_main && !work.is_main && main.is_some_and(|main| *main != Handler::Off) => {
            ledger.remark(line.id, "a site's own pool runs all of its scripts");
        }
        handler if is_for_scripts(&when.paths) => {
            let name = pool(work, &handler, line);
            if work.site.table.get("pool") != Some(&Value::Text(name.clone())) {
                work.stages
                    .push(Stage::Pools, when.rule("pool", name, &line.place));
            }
        }
        _ => {}
    }
}

/// Handlers of something else than PHP.
fn other_handler(work: &Work<'_, '_>, line: &Directive) {
    if !matches!(line.name.as_str(), "sethandler" | "addhandler") {
        if matches!(line.name.as_str(), "removehandler" | "removetype") {
            work.ledger.carried(line.id);
        }
        return;
    }
    match line.arg(0).to_ascii_lowercase().as_str() {
        "type-map" | "default-handler" | "none" | "send-as-is" => {
            work.ledger.moot(
                line.id,
                "there is no content negotiation, and no handler for files",
            );
        }
        "cgi-script" => work.ledger.list(
            line.id,
            "a rule with `cgi`, and a pool of mode cgi, for these paths",
        ),
        _ if named(line.arg(0)).is_some() => work.ledger.carried(line.id),
        _ => work.ledger.list(line.id, "Howdah has no such handler"),
    }
}

/// Whether some of the paths may be scripts.
fn is_for_scripts(paths: &Match) -> bool {
    match paths {
        Match::Path(path) => is_script(path),
        Match::Regex(expression) => match crate::expression::extensions(expression) {
            Some(endings) => endings
                .iter()
                .any(|ending| ENDINGS.contains(&ending.as_str())),
            None => true,
        },
        Match::All | Match::Prefix(_) => true,
    }
}

/// The scripts among the paths.
fn scripts_of(paths: &Match) -> Option<Match> {
    const SCRIPT: &str = r"\.(?:php[0-9]?|phtml|phar)(?:/|$)";
    match paths {
        Match::All => Some(Match::Regex(format!("(?i){SCRIPT}"))),
        Match::Path(path) => is_script(path).then(|| paths.clone()),
        Match::Prefix(path) => Some(Match::Regex(format!(
            "(?i)^{}/.*{SCRIPT}",
            regex::escape(path.trim_end_matches('/'))
        ))),
        Match::Regex(_) if !is_for_scripts(paths) => None,
        Match::Regex(expression) => {
            let open = expression.trim_end_matches("(?:/|$)");
            match open.len() < expression.len() {
                true => Some(Match::Regex(format!("(?:{open})/.*{SCRIPT}"))),
                // An expression for names of files.
                false => Some(paths.clone()),
            }
        }
    }
}

/// Scripts run in parts of the site only.
fn elsewhere_none(work: &mut Work<'_, '_>) {
    let mut parts = Vec::new();
    let mut place = None;
    for layer in &work.layers {
        for line in layer.lines {
            let found = match proxied(line) {
                Some((paths, _)) => Some(paths),
                None => says(line, "php")
                    .filter(|handler| *handler != Handler::Off)
                    .map(|_| layer.paths.clone()),
            };
            if let Some(paths) = found.filter(|paths| *paths != Match::All) {
                place.get_or_insert_with(|| line.place.clone());
                parts.push(paths);
            }
        }
    }
    let (Some(scripts), Some(place)) = (scripts_of(&Match::All), place) else {
        return;
    };
    let mut rule = When::except(scripts, parts).rule("deny", 403, &place);
    rule.comment("Other scripts: nothing runs them under Apache.");
    work.stages.push(Stage::Answers, rule);
}

/// `php_value` and its kin.
fn setting(work: &mut Work<'_, '_>, layer: &Layer<'_>, line: &Directive) {
    let ledger = work.ledger;
    let (table, is_flag) = match line.name.as_str() {
        "php_value" => ("php_value", false),
        "php_flag" => ("php_value", true),
        "php_admin_value" => ("php_admin_value", false),
        "php_admin_flag" => ("php_admin_value", true),
        _ => return,
    };
    let name = line.arg(0);
    if name == "engine" {
        return ledger.carried(line.id);
    }
    if work.site.table.get("pool").is_none() {
        return ledger.moot(line.id, "no PHP runs here");
    }
    if pool::holds_for_a_whole_pool(name) {
        return ledger.list(
            line.id,
            "[pool.NAME.php_value]: PHP reads it once, at its start",
        );
    }
    let value = match is_flag {
        true => match line.arg(1).to_ascii_lowercase().as_str() {
            "on" | "yes" | "true" | "1" => "1".to_owned(),
            _ => "0".to_owned(),
        },
        false => match line.arg(1) {
            "none" => String::new(),
            value => value.to_owned(),
        },
    };
    let is_whole =
        layer.paths == Match::All || layer.has("/index.php") && layer.has("/x7q/y9z.php");
    if !is_whole {
        return match table {
            "php_admin_value" => ledger.list_protection(
                line.id,
                "a [[site]] or a pool of its own: php_admin_value holds for a whole site",
            ),
            _ => ledger.list(line.id, "a .user.ini in that directory"),
        };
    }
    let pairs: &mut Pairs = work.site.pairs.entry(table).or_default();
    // The innermost section's value counts.
    crate::target::set_pair(pairs, name.to_owned(), value);
    ledger.carried(line.id);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_found_among_other_files() {
        let has = |paths: Match, path: &str| region::has(&scripts_of(&paths).unwrap(), path);
        assert!(has(Match::Prefix("/up".into()), "/up/a/b.PHP"));
        assert!(!has(Match::Prefix("/up".into()), "/upper/b.php"));
    }
}
