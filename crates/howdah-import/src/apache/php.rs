//! Determines how scripts are run: by mod_php, by php-fpm through `SetHandler` or `ProxyPassMatch`, or by mod_fcgid. No
//! other scripts are run.

use super::handlers::{
    HANDLER_DIRECTIVES, SCRIPT_EXTENSIONS, ScriptHandler, fastcgi_proxy, handler_by_name,
    handler_set_by, is_script,
};
use super::host_context::HostContext;
use super::layers::{HostLayers, Layer};
use super::region;
use super::server_pools::ServerPools;
use crate::directive::Directive;
use crate::ledger::ImportLedger;
use crate::pool;
use crate::rule_condition::{PathMatch, RuleCondition};
use crate::stages::{RuleStage, StagedRules};
use crate::target::{NameValuePairs, SiteTable, TomlTable, TomlValue};

/// Returns the handler of the script at a path, and the line that decides it. Lines such as `php_flag engine off` only
/// affect scripts that Apache's own PHP would run.
fn handler_at<'a>(
    context: &HostContext<'_, 'a>,
    path: &str,
) -> Option<(ScriptHandler, &'a Directive)> {
    let ending = path.rsplit('.').next().unwrap_or_default();
    let layers = context
        .layers
        .iter()
        .filter(|layer| layer.matches_path(path));
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
    let passed = context
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
pub fn choose_pool(
    context: &HostContext<'_, '_>,
    site: &mut SiteTable,
    pools: &mut ServerPools<'_>,
) {
    let whole_is_known = context.server.knows_modules;
    let main = handler_at(context, "/index.php")
        .filter(|(handler, _)| *handler != ScriptHandler::Disabled);
    let main = main.or_else(|| any_handler(context));
    let Some((handler, line)) = main else {
        if whole_is_known
            || context.layers.iter().any(|layer| {
                layer
                    .directives
                    .iter()
                    .any(|d| HANDLER_DIRECTIVES[..2].contains(&d.name.as_str()))
            })
        {
            return site
                .table
                .set("php_extensions", TomlValue::Texts(Vec::new()), None);
        }
        // This is the file of a single site, and the handler of PHP is configured elsewhere.
        let name = embedded_pool(context, pools, None);
        site.table.set("pool", name, None);
        return;
    };
    let name = pool_of_handler(context, pools, &handler, line);
    site.table.set("pool", name.as_str(), Some(&line.place));
    let fpm = context.server.fpm;
    if let Some(fpm) = fpm.iter().find(|pool| pool.name == name) {
        pool::add_site_settings(fpm, site);
    }
    let runs = |ending: &&&str| {
        handler_at(context, &format!("/x7q.{ending}"))
            .is_some_and(|(handler, _)| handler != ScriptHandler::Disabled)
    };
    let endings: Vec<String> = SCRIPT_EXTENSIONS
        .iter()
        .filter(runs)
        .map(|ending| format!(".{ending}"))
        .collect();
    if !endings.is_empty() && endings != [".php"] {
        site.table
            .set("php_extensions", TomlValue::Texts(endings), None);
    }
}

/// Returns the handler of scripts in some part of the site.
fn any_handler<'a>(context: &HostContext<'_, 'a>) -> Option<(ScriptHandler, &'a Directive)> {
    let mut lines = context.layers.iter().flat_map(|layer| layer.directives);
    lines.find_map(|line| {
        let handler = fastcgi_proxy(line)
            .map(|(_, target)| ScriptHandler::Fastcgi(target))
            .or_else(|| handler_set_by(line, "php"))?;
        (handler != ScriptHandler::Disabled).then_some((handler, line))
    })
}

/// Returns the name of a handler's pool, which is added if it is new.
fn pool_of_handler(
    context: &HostContext<'_, '_>,
    pools: &mut ServerPools<'_>,
    handler: &ScriptHandler,
    line: &Directive,
) -> String {
    match handler {
        ScriptHandler::Fastcgi(target) => pools.of_address(target, &line.place, context.server),
        _ => embedded_pool(context, pools, Some(line)),
    }
}

/// Returns the pool that runs PHP in Howdah's own processes, as the user that the host names.
fn embedded_pool(
    context: &HostContext<'_, '_>,
    pools: &mut ServerPools<'_>,
    line: Option<&Directive>,
) -> String {
    let lines = context.host.lines;
    // suEXEC applies to programs that Apache starts; mod_php runs as Apache's own user.
    let by_mod_php = line.is_none_or(|line| line.arg(0) == "application/x-httpd-php");
    let user = lines.iter().rev().find(|d| match d.name.as_str() {
        "assignuserid" | "ruidgid" => true,
        "suexecusergroup" | "suphp_usergroup" => !by_mod_php,
        _ => false,
    });
    let user = user.map(|line| {
        context.ledger.mark_carried(line.id);
        // `#1000` is a numeric id.
        let words = line.args.iter().map(|word| word.trim_start_matches('#'));
        words.collect::<Vec<_>>().join(":")
    });
    pools.embedded(user.as_deref(), line)
}

/// Adds the rules for parts of the site that do not use the site's pool, and the PHP settings.
pub fn write_php_rules(
    context: &HostContext<'_, '_>,
    site: &mut SiteTable,
    stages: &mut StagedRules,
    pools: &mut ServerPools<'_>,
) {
    let has_php = site.table.get("pool").is_some();
    let main = handler_at(context, "/index.php").map(|(handler, _)| handler);
    for number in 0..context.layers.len() {
        let layer = &context.layers[number];
        for line in layer.directives {
            let own = site.table.get("pool");
            let rule = handler_line_rule(context, pools, number, line, main.as_ref(), own);
            if let Some((stage, rule)) = rule {
                stages.push(stage, rule);
            }
            translate_setting(context.ledger, layer, line, site);
        }
    }
    if has_php
        && matches!(main, None | Some(ScriptHandler::Disabled))
        && let Some(rule) = deny_other_scripts(&context.layers)
    {
        stages.push(RuleStage::Responses, rule);
    }
}

/// Translates a line that sets the handler of scripts. Returns the rule for scripts that do not use the site's pool.
fn handler_line_rule(
    context: &HostContext<'_, '_>,
    pools: &mut ServerPools<'_>,
    number: usize,
    line: &Directive,
    main: Option<&ScriptHandler>,
    own_pool: Option<&TomlValue>,
) -> Option<(RuleStage, TomlTable)> {
    let ledger = context.ledger;
    let layer = &context.layers[number];
    if let Some((paths, target)) = fastcgi_proxy(line) {
        let handler = ScriptHandler::Fastcgi(target);
        ledger.mark_carried(line.id);
        if main == Some(&handler) || !may_include_scripts(&paths) {
            return None;
        }
        let name = pool_of_handler(context, pools, &handler, line);
        let rule = RuleCondition::paths(paths).rule("pool", name, &line.place);
        return Some((RuleStage::Pools, rule));
    }
    if !HANDLER_DIRECTIVES.contains(&line.name.as_str()) {
        return None;
    }
    let Some(handler) = handler_set_by(line, "php") else {
        record_other_handler(ledger, line);
        return None;
    };
    ledger.mark_carried(line.id);
    if main == Some(&handler) || layer.section.is_none() {
        return None;
    }
    // A line that disables PHP in a directory is meant to keep its scripts from running, even if a `<FilesMatch>` of
    // Apache might still run them.
    let closes = handler == ScriptHandler::Disabled && matches!(layer.paths, PathMatch::Prefix(_));
    let below = match &layer.paths {
        PathMatch::All => Some("/x7q.php".to_owned()),
        PathMatch::Prefix(path) => Some(format!("{}/x7q.php", path.trim_end_matches('/'))),
        PathMatch::Path(_) | PathMatch::Regex(_) => None,
    };
    let by_another =
        |path: &String| handler_at(context, path).is_some_and(|(_, by)| by.id != line.id);
    // Another line takes precedence here, such as a `SetHandler` over an `AddHandler`.
    if !closes && below.as_ref().is_some_and(by_another) {
        return None;
    }
    let when = match closes {
        true => Some(RuleCondition::paths(layer.paths.clone())),
        false => context.layers.effective_requests(number, &["sethandler"]),
    };
    let Some(when) = when else {
        context.mark_overridden(line);
        return None;
    };
    match handler {
        ScriptHandler::Disabled => {
            let when = RuleCondition {
                paths: scripts_of(&when.paths)?,
                ..when
            };
            Some((RuleStage::Responses, when.rule("deny", 403, &line.place)))
        }
        // The line is in a `<FilesMatch>` of the main server, and the host runs `.php` with a handler of its own.
        _ if layer.is_main
            && !context.host.is_main()
            && main.is_some_and(|main| *main != ScriptHandler::Disabled) =>
        {
            ledger.mark_different(
                line.id,
                "the site has a pool of its own, which runs all of its scripts",
            );
            None
        }
        handler if may_include_scripts(&when.paths) => {
            let name = pool_of_handler(context, pools, &handler, line);
            let is_own = own_pool == Some(&TomlValue::Text(name.clone()));
            (!is_own).then(|| (RuleStage::Pools, when.rule("pool", name, &line.place)))
        }
        _ => None,
    }
}

/// Records the outcome of handlers for files other than scripts.
fn record_other_handler(ledger: &ImportLedger, line: &Directive) {
    if !matches!(line.name.as_str(), "sethandler" | "addhandler") {
        if matches!(line.name.as_str(), "removehandler" | "removetype") {
            ledger.mark_carried(line.id);
        }
        return;
    }
    match line.arg(0).to_ascii_lowercase().as_str() {
        "type-map" | "default-handler" | "none" | "send-as-is" => {
            ledger.mark_irrelevant(
                line.id,
                "Howdah has no content negotiation, and no handlers for files",
            );
        }
        "cgi-script" => ledger.mark_missing(
            line.id,
            "write a rule with `cgi` for these paths, and a pool of mode cgi",
        ),
        _ if handler_by_name(line.arg(0)).is_some() => ledger.mark_carried(line.id),
        _ => ledger.mark_missing(line.id, "Howdah does not have this handler"),
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

/// Returns a rule that denies all scripts outside the parts of the site in which scripts run, if there are such parts.
fn deny_other_scripts(layers: &HostLayers<'_>) -> Option<TomlTable> {
    let mut parts = Vec::new();
    let mut place = None;
    for layer in layers.iter() {
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
    let scripts = scripts_of(&PathMatch::All)?;
    let mut rule = RuleCondition::except(scripts, parts).rule("deny", 403, &place?);
    rule.comment("Apache does not run any other scripts.");
    Some(rule)
}

/// Translates `php_value` and similar directives.
fn translate_setting(
    ledger: &ImportLedger,
    layer: &Layer<'_>,
    line: &Directive,
    site: &mut SiteTable,
) {
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
    if site.table.get("pool").is_none() {
        return ledger.mark_irrelevant(line.id, "no PHP runs here");
    }
    if pool::is_pool_wide_setting(name) {
        return ledger.mark_missing(
            line.id,
            "set it in [pool.NAME.php_value], because PHP reads it only at its start",
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
                "use a [[site]] or a pool of its own, because `php_admin_value` applies to a whole site",
            ),
            _ => ledger.mark_missing(line.id, "use a .user.ini in that directory"),
        };
    }
    let pairs: &mut NameValuePairs = site.pairs.entry(table).or_default();
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
