//! Determines how scripts are run: by mod_php, by php-fpm through `SetHandler` or `ProxyPassMatch`, or by mod_fcgid. No
//! other scripts are run.

use std::collections::BTreeMap;

use super::handlers::{
    HANDLER_DIRECTIVES, SCRIPT_EXTENSIONS, ScriptHandler, fastcgi_proxy, handler_by_name,
    handler_set_by, is_script,
};
use super::layers::Layer;
use super::region;
use super::site::HostTranslation;
use crate::directive::Directive;
use crate::pool;
use crate::rule_condition::{PathMatch, RuleCondition};
use crate::stages::RuleStage;
use crate::target::{NameValuePairs, TomlTable, TomlValue};

/// Returns the handler of the script at a path, and the line that decides it. Lines such as `php_flag engine off` only
/// affect scripts that Apache's own PHP would run.
fn handler_at<'a>(
    work: &HostTranslation<'_, 'a>,
    path: &str,
) -> Option<(ScriptHandler, &'a Directive)> {
    let ending = path.rsplit('.').next().unwrap_or_default();
    let layers = work.layers.iter().filter(|layer| layer.matches_path(path));
    let mut found: Option<(ScriptHandler, &Directive)> = None;
    let mut engine: Option<(ScriptHandler, &Directive)> = None;
    for line in layers.flat_map(|layer| layer.directives) {
        if let Some(handler) = handler_set_by(line, ending) {
            match line.name.starts_with("php_") {
                true => engine = Some((handler, line)),
                false => found = Some((handler, line)),
            }
        }
    }
    // `ProxyPassMatch ^/(.*\.php)$ fcgi://…` takes precedence over all handlers.
    let passed = work
        .layers
        .iter()
        .flat_map(|layer| layer.directives)
        .find_map(|line| {
            let (pattern, target) = fastcgi_proxy(line)?;
            region::contains_path(&pattern, path).then_some((ScriptHandler::Fastcgi(target), line))
        });
    passed.or(match &found {
        Some((ScriptHandler::Embedded, _)) => engine.or(found),
        _ => found,
    })
}

/// Chooses the pool of the whole site: that of `/index.php`, or of any other script.
pub fn choose_pool(work: &mut HostTranslation<'_, '_>) {
    let whole_is_known = work.context.knows_modules;
    let main =
        handler_at(work, "/index.php").filter(|(handler, _)| *handler != ScriptHandler::Disabled);
    let main = main.or_else(|| any_handler(work));
    let Some((handler, line)) = main else {
        if whole_is_known
            || work.layers.iter().any(|layer| {
                layer
                    .directives
                    .iter()
                    .any(|d| HANDLER_DIRECTIVES[..2].contains(&d.name.as_str()))
            })
        {
            return work
                .site
                .table
                .set("php_extensions", TomlValue::Texts(Vec::new()), None);
        }
        // This is the file of a single site, and the handler of PHP is configured elsewhere.
        let name = embedded_pool(work, None);
        work.site.table.set("pool", name, None);
        return;
    };
    let name = pool_of_handler(work, &handler, line);
    work.site
        .table
        .set("pool", name.as_str(), Some(&line.place));
    let fpm = work.context.fpm;
    if let Some(fpm) = fpm.iter().find(|pool| pool.name == name) {
        pool::add_site_settings(fpm, &mut work.site);
    }
    let runs = |ending: &&&str| {
        handler_at(work, &format!("/x7q.{ending}"))
            .is_some_and(|(handler, _)| handler != ScriptHandler::Disabled)
    };
    let endings: Vec<String> = SCRIPT_EXTENSIONS
        .iter()
        .filter(runs)
        .map(|ending| format!(".{ending}"))
        .collect();
    if !endings.is_empty() && endings != [".php"] {
        work.site
            .table
            .set("php_extensions", TomlValue::Texts(endings), None);
    }
}

/// Returns the handler of scripts in some part of the site.
fn any_handler<'a>(work: &HostTranslation<'_, 'a>) -> Option<(ScriptHandler, &'a Directive)> {
    let mut lines = work.layers.iter().flat_map(|layer| layer.directives);
    lines.find_map(|line| {
        let handler = fastcgi_proxy(line)
            .map(|(_, target)| ScriptHandler::Fastcgi(target))
            .or_else(|| handler_set_by(line, "php"))?;
        (handler != ScriptHandler::Disabled).then_some((handler, line))
    })
}

/// Returns the name of a handler's pool, which is added if it is new.
fn pool_of_handler(
    work: &mut HostTranslation<'_, '_>,
    handler: &ScriptHandler,
    line: &Directive,
) -> String {
    let ScriptHandler::Fastcgi(target) = handler else {
        return embedded_pool(work, Some(line));
    };
    if let Some(name) = work.context.pools.get(target) {
        return name.clone();
    }
    let hint = pool::name_from_address(target);
    let context = &mut *work.context;
    let name = pool::pool_for_addresses(
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

/// Returns the pool that runs PHP in Howdah's own processes, as the user that the host names.
fn embedded_pool(work: &mut HostTranslation<'_, '_>, line: Option<&Directive>) -> String {
    let lines = work.host.lines;
    // suEXEC applies to programs that Apache starts; mod_php runs as Apache's own user.
    let by_mod_php = line.is_none_or(|line| line.arg(0) == "application/x-httpd-php");
    let user = lines.iter().rev().find(|d| match d.name.as_str() {
        "assignuserid" | "ruidgid" => true,
        "suexecusergroup" | "suphp_usergroup" => !by_mod_php,
        _ => false,
    });
    let user = user.map(|line| {
        work.ledger.mark_carried(line.id);
        // `#1000` is a numeric id.
        let words = line.args.iter().map(|word| word.trim_start_matches('#'));
        words.collect::<Vec<_>>().join(":")
    });
    let key = format!("own {}", user.as_deref().unwrap_or_default());
    if let Some(name) = work.context.pools.get(&key) {
        return name.clone();
    }
    let mut table = TomlTable::default();
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
    let name = pool::free_name(&pool::name_from_address(&hint), work.context.config);
    work.context
        .config
        .pools
        .push((name.clone(), table, BTreeMap::new()));
    work.context.pools.insert(key, name.clone());
    name
}

/// Adds the rules for parts of the site that do not use the site's pool, and the PHP settings.
pub fn write_php_rules(work: &mut HostTranslation<'_, '_>) {
    let has_php = work.site.table.get("pool").is_some();
    let main = handler_at(work, "/index.php").map(|(handler, _)| handler);
    for number in 0..work.layers.len() {
        let layer = work.layers[number].clone();
        for line in layer.directives {
            translate_handler_line(work, number, &layer, line, main.as_ref());
            translate_setting(work, &layer, line);
        }
    }
    if has_php && matches!(main, None | Some(ScriptHandler::Disabled)) {
        deny_other_scripts(work);
    }
}

/// Translates a line that sets the handler of scripts.
fn translate_handler_line(
    work: &mut HostTranslation<'_, '_>,
    number: usize,
    layer: &Layer<'_>,
    line: &Directive,
    main: Option<&ScriptHandler>,
) {
    let ledger = work.ledger;
    if let Some((paths, target)) = fastcgi_proxy(line) {
        let handler = ScriptHandler::Fastcgi(target);
        if main != Some(&handler) && may_include_scripts(&paths) {
            let name = pool_of_handler(work, &handler, line);
            work.stages.push(
                RuleStage::Pools,
                RuleCondition::paths(paths).rule("pool", name, &line.place),
            );
        }
        return ledger.mark_carried(line.id);
    }
    if !HANDLER_DIRECTIVES.contains(&line.name.as_str()) {
        return;
    }
    let Some(handler) = handler_set_by(line, "php") else {
        return record_other_handler(work, line);
    };
    ledger.mark_carried(line.id);
    if main == Some(&handler) || layer.section.is_none() {
        return;
    }
    // A line that takes PHP away from a directory is meant to close it, even if a `<FilesMatch>` of Apache might still
    // run its scripts.
    let closes = handler == ScriptHandler::Disabled && matches!(layer.paths, PathMatch::Prefix(_));
    let below = match &layer.paths {
        PathMatch::All => Some("/x7q.php".to_owned()),
        PathMatch::Prefix(path) => Some(format!("{}/x7q.php", path.trim_end_matches('/'))),
        PathMatch::Path(_) | PathMatch::Regex(_) => None,
    };
    let by_another = |path: &String| handler_at(work, path).is_some_and(|(_, by)| by.id != line.id);
    // Another line takes precedence here, such as a `SetHandler` over an `AddHandler`.
    if !closes && below.as_ref().is_some_and(by_another) {
        return;
    }
    let when = match closes {
        true => Some(RuleCondition::paths(layer.paths.clone())),
        false => work.effective_requests(number, &["sethandler"]),
    };
    let Some(when) = when else {
        return work.mark_overridden(line);
    };
    match handler {
        ScriptHandler::Disabled => {
            if let Some(scripts) = scripts_of(&when.paths) {
                let when = RuleCondition {
                    paths: scripts,
                    ..when
                };
                work.stages
                    .push(RuleStage::Responses, when.rule("deny", 403, &line.place));
            }
        }
        // The line is in a `<FilesMatch>` of the main server, and the host runs `.php` with a handler of its own.
        _ if layer.is_main
            && !work.is_main
            && main.is_some_and(|main| *main != ScriptHandler::Disabled) =>
        {
            ledger.mark_different(line.id, "a site's own pool runs all of its scripts");
        }
        handler if may_include_scripts(&when.paths) => {
            let name = pool_of_handler(work, &handler, line);
            if work.site.table.get("pool") != Some(&TomlValue::Text(name.clone())) {
                work.stages
                    .push(RuleStage::Pools, when.rule("pool", name, &line.place));
            }
        }
        _ => {}
    }
}

/// Records the outcome of handlers for files other than scripts.
fn record_other_handler(work: &HostTranslation<'_, '_>, line: &Directive) {
    if !matches!(line.name.as_str(), "sethandler" | "addhandler") {
        if matches!(line.name.as_str(), "removehandler" | "removetype") {
            work.ledger.mark_carried(line.id);
        }
        return;
    }
    match line.arg(0).to_ascii_lowercase().as_str() {
        "type-map" | "default-handler" | "none" | "send-as-is" => {
            work.ledger.mark_irrelevant(
                line.id,
                "there is no content negotiation, and no handler for files",
            );
        }
        "cgi-script" => work.ledger.mark_missing(
            line.id,
            "a rule with `cgi`, and a pool of mode cgi, for these paths",
        ),
        _ if handler_by_name(line.arg(0)).is_some() => work.ledger.mark_carried(line.id),
        _ => work
            .ledger
            .mark_missing(line.id, "Howdah has no such handler"),
    }
}

/// Returns whether some of the paths may be scripts.
fn may_include_scripts(paths: &PathMatch) -> bool {
    match paths {
        PathMatch::Path(path) => is_script(path),
        PathMatch::Regex(expression) => match crate::expression::extensions(expression) {
            Some(endings) => endings
                .iter()
                .any(|ending| SCRIPT_EXTENSIONS.contains(&ending.as_str())),
            None => true,
        },
        PathMatch::All | PathMatch::Prefix(_) => true,
    }
}

/// Returns the scripts among the paths.
fn scripts_of(paths: &PathMatch) -> Option<PathMatch> {
    const SCRIPT: &str = r"\.(?:php[0-9]?|phtml|phar)(?:/|$)";
    match paths {
        PathMatch::All => Some(PathMatch::Regex(format!("(?i){SCRIPT}"))),
        PathMatch::Path(path) => is_script(path).then(|| paths.clone()),
        PathMatch::Prefix(path) => Some(PathMatch::Regex(format!(
            "(?i)^{}/.*{SCRIPT}",
            regex::escape(path.trim_end_matches('/'))
        ))),
        PathMatch::Regex(_) if !may_include_scripts(paths) => None,
        PathMatch::Regex(expression) => {
            let open = expression.trim_end_matches("(?:/|$)");
            match open.len() < expression.len() {
                true => Some(PathMatch::Regex(format!("(?:{open})/.*{SCRIPT}"))),
                // The expression is for file names.
                false => Some(paths.clone()),
            }
        }
    }
}

/// Denies all scripts outside the parts of the site in which scripts run.
fn deny_other_scripts(work: &mut HostTranslation<'_, '_>) {
    let mut parts = Vec::new();
    let mut place = None;
    for layer in &work.layers {
        for line in layer.directives {
            let found = match fastcgi_proxy(line) {
                Some((paths, _)) => Some(paths),
                None => handler_set_by(line, "php")
                    .filter(|handler| *handler != ScriptHandler::Disabled)
                    .map(|_| layer.paths.clone()),
            };
            if let Some(paths) = found.filter(|paths| *paths != PathMatch::All) {
                place.get_or_insert_with(|| line.place.clone());
                parts.push(paths);
            }
        }
    }
    let (Some(scripts), Some(place)) = (scripts_of(&PathMatch::All), place) else {
        return;
    };
    let mut rule = RuleCondition::except(scripts, parts).rule("deny", 403, &place);
    rule.comment("Other scripts: nothing runs them under Apache.");
    work.stages.push(RuleStage::Responses, rule);
}

/// Translates `php_value` and similar directives.
fn translate_setting(work: &mut HostTranslation<'_, '_>, layer: &Layer<'_>, line: &Directive) {
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
        return ledger.mark_carried(line.id);
    }
    if work.site.table.get("pool").is_none() {
        return ledger.mark_irrelevant(line.id, "no PHP runs here");
    }
    if pool::is_pool_wide_setting(name) {
        return ledger.mark_missing(
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
    let is_whole = layer.paths == PathMatch::All
        || layer.matches_path("/index.php") && layer.matches_path("/x7q/y9z.php");
    if !is_whole {
        return match table {
            "php_admin_value" => ledger.mark_missing_protection(
                line.id,
                "a [[site]] or a pool of its own: php_admin_value holds for a whole site",
            ),
            _ => ledger.mark_missing(line.id, "a .user.ini in that directory"),
        };
    }
    let pairs: &mut NameValuePairs = work.site.pairs.entry(table).or_default();
    // The value of the innermost section takes precedence.
    crate::target::set_pair(pairs, name.to_owned(), value);
    ledger.mark_carried(line.id);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_of_selects_scripts_below_a_prefix() {
        let has = |paths: PathMatch, path: &str| {
            region::contains_path(&scripts_of(&paths).unwrap(), path)
        };
        assert!(has(PathMatch::Prefix("/up".into()), "/up/a/b.PHP"));
        assert!(!has(PathMatch::Prefix("/up".into()), "/upper/b.php"));
    }
}
