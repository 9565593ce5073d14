//! Translates settings of a site's files: root, index, links, `.htaccess` files, front controllers, error pages.

use super::front_controller::set_front_controller;
use super::handlers::{is_php_handler, is_script};
use super::host::ApacheHost;
use super::host_context::HostContext;
use super::links::translate_options;
use super::server::ServerContext;
use crate::directive::Directive;
use crate::rule_condition::{PathMatch, RuleCondition};
use crate::stages::{RuleStage, StagedRules};
use crate::target::{SiteTable, TomlValue};

/// Returns the root from `DocumentRoot`, or from an `Alias` for all paths, and its line.
pub fn document_root<'a>(
    host: &ApacheHost<'a>,
    main: &'a [Directive],
    server: &ServerContext<'_>,
) -> Option<(String, &'a Directive)> {
    let of = |lines: &'a [Directive]| lines.iter().rev().find(|d| d.name == "documentroot");
    let mut lines = host.lines.iter();
    let everything = lines.find(|d| d.name == "alias" && d.arg(0) == "/");
    let (line, path) = match everything {
        Some(line) => (line, line.arg(1)),
        None => {
            let line = of(host.lines).or_else(|| of(main))?;
            (line, line.arg(0))
        }
    };
    if path.contains("${") || path.is_empty() {
        return None;
    }
    server.ledger.mark_carried(line.id);
    Some((server.path(path), line))
}

/// Translates the settings that apply to a whole site in Howdah. Sections with other settings are put on the list.
pub fn write_options(
    context: &HostContext<'_, '_>,
    site: &mut SiteTable,
    stages: &mut StagedRules,
) {
    translate_index(context, site);
    translate_options(context, site);
    translate_allow_override(context, site);
    translate_body_size(context, site);
    translate_fallback_resource(context, site, stages);
    translate_types(context, site, stages);
}

/// Returns the directive with that name that applies to the root, and the directives for other paths.
fn lines_by_scope<'a>(
    context: &HostContext<'_, 'a>,
    name: &str,
) -> (Option<&'a Directive>, Vec<(PathMatch, &'a Directive)>) {
    let main = context.layers.line_for("/", name);
    let mut others = Vec::new();
    for (number, layer) in context.layers.iter().enumerate() {
        let replaced =
            layer.matches_path("/") || context.layers.effective_requests(number, &[name]).is_none();
        for line in layer.directives.iter().filter(|d| d.name == name) {
            if main.is_some_and(|main| main.id == line.id) {
                continue;
            }
            match replaced {
                true => context.mark_overridden(line),
                false => others.push((layer.paths.clone(), line)),
            }
        }
    }
    (main, others)
}

fn translate_index(context: &HostContext<'_, '_>, site: &mut SiteTable) {
    let (main, others) = lines_by_scope(context, "directoryindex");
    let names: Vec<&str> = main.map_or(vec!["index.html"], |line| {
        line.args.iter().map(String::as_str).collect()
    });
    let plain: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| !name.contains('/') && *name != "disabled")
        .collect();
    if let Some(line) = main {
        match plain.len() == names.len() {
            true => context.ledger.mark_carried(line.id),
            false => context.ledger.mark_missing(line.id, "`index` can name only files in the directory itself; for all other paths, name the script in `front_controller`"),
        }
    }
    if !plain.is_empty() {
        let names = plain.into_iter().map(str::to_owned).collect();
        let place = main.map(|line| &line.place);
        site.table.set("index", TomlValue::Texts(names), place);
    }
    for (_, line) in others {
        match main.is_some_and(|main| main.args == line.args) {
            true => context.ledger.mark_carried(line.id),
            false => context.ledger.mark_missing(line.id, "a site has one `index`: add these names to it, or write a rule that leads to the script"),
        }
    }
}

fn translate_allow_override(context: &HostContext<'_, '_>, site: &mut SiteTable) {
    let reads = |line: &Directive| {
        !line
            .args
            .iter()
            .all(|word| word.eq_ignore_ascii_case("none"))
    };
    let (main, others) = lines_by_scope(context, "allowoverride");
    let mut on = main.is_some_and(reads);
    let mut place = main.map(|line| line.place.clone());
    if let Some(line) = main {
        let whole = line
            .args
            .iter()
            .all(|word| matches!(word.to_ascii_lowercase().as_str(), "all" | "none"));
        match whole {
            true => context.ledger.mark_carried(line.id),
            false => context.ledger.mark_different(
                line.id,
                "with htaccess = \"on\", all directives of .htaccess files apply",
            ),
        }
    }
    for (paths, line) in others {
        let below_root = context.root.as_deref().is_some_and(|root| {
            let directory = match &paths {
                PathMatch::Path(path) | PathMatch::Prefix(path) => {
                    context.mounts.directory_of(path)
                }
                _ => None,
            };
            directory.is_none_or(|directory| directory.starts_with(root))
        });
        match (on, reads(line)) {
            (true, false) if below_root => context.ledger.mark_missing_protection(
                line.id,
                ".htaccess files apply in the whole site: make sure that no other user can write one there",
            ),
            (true, false) => context
                .ledger
                .mark_different(line.id, ".htaccess files apply in the whole site"),
            (false, true) => {
                on = true;
                place = Some(line.place.clone());
                context
                    .ledger
                    .mark_different(line.id, ".htaccess files apply in the whole site");
            }
            _ => context.ledger.mark_carried(line.id),
        }
    }
    let (name, _) = lines_by_scope(context, "accessfilename");
    if let Some(line) = name {
        match line.args == [".htaccess"] {
            true => context.ledger.mark_carried(line.id),
            false => context
                .ledger
                .mark_missing_protection(line.id, "rename the files to .htaccess"),
        }
    }
    let (list, others) = lines_by_scope(context, "allowoverridelist");
    for line in list
        .into_iter()
        .chain(others.into_iter().map(|(_, line)| line))
    {
        match on || line.arg(0).eq_ignore_ascii_case("none") {
            true => context.ledger.mark_carried(line.id),
            false => context.ledger.mark_missing(
                line.id,
                "use htaccess = \"on\", with which all directives apply",
            ),
        }
    }
    let word = if on { "on" } else { "off" };
    site.table.set("htaccess", word, place.as_ref());
}

fn translate_body_size(context: &HostContext<'_, '_>, site: &mut SiteTable) {
    let (main, others) = lines_by_scope(context, "limitrequestbody");
    if let Some(line) = main {
        match line.arg(0).parse::<u64>() {
            Ok(0) => site.table.set("max_body_size", "off", Some(&line.place)),
            Ok(bytes) => site.table.set(
                "max_body_size",
                TomlValue::Number(bytes.min(1 << 50)),
                Some(&line.place),
            ),
            Err(_) => {
                return context
                    .ledger
                    .mark_missing(line.id, "set `max_body_size` in the site");
            }
        }
        context.ledger.mark_carried(line.id);
    }
    for (_, line) in others {
        context.ledger.mark_missing(
            line.id,
            "a site has one max_body_size: raise it if this value is larger",
        );
    }
}

fn translate_fallback_resource(
    context: &HostContext<'_, '_>,
    site: &mut SiteTable,
    stages: &mut StagedRules,
) {
    let (main, others) = lines_by_scope(context, "fallbackresource");
    let leads = |line: &Directive| line.arg(0).starts_with('/');
    if let Some(line) = main {
        match leads(line) {
            true => {
                if let Some(rule) = set_front_controller(site, line.arg(0), line) {
                    stages.push(RuleStage::LastResort, rule);
                }
            }
            false if line.arg(0) == "disabled" => {}
            false => {
                return context
                    .ledger
                    .mark_missing(line.id, "front_controller needs a path from the root");
            }
        }
        context.ledger.mark_carried(line.id);
    }
    for (paths, line) in others {
        if !leads(line) {
            context.ledger.mark_missing(
                line.id,
                "write a rule with `if_missing` and the path of the script",
            );
            continue;
        }
        let when = RuleCondition {
            if_missing: true,
            ..RuleCondition::paths(paths)
        };
        let script = line.arg(0).replace('$', "$$");
        stages.push(
            RuleStage::MissingFiles,
            when.rule("rewrite", script, &line.place),
        );
        context.ledger.mark_carried(line.id);
    }
}

/// Translates `ForceType`, and `AddType` for media types that Howdah does not have by default.
fn translate_types(context: &HostContext<'_, '_>, site: &mut SiteTable, stages: &mut StagedRules) {
    for layer in context.layers.iter() {
        for line in layer.directives {
            match line.name.as_str() {
                "addtype" if !is_php_handler(line.arg(0)) => {
                    for extension in line.args.iter().skip(1) {
                        let extension = extension.trim_start_matches('.').to_ascii_lowercase();
                        let ours = (context.server.media_type)(format!("x.{extension}").as_bytes());
                        if !crate::media_type::is_equivalent(ours, line.arg(0))
                            && !extension.contains('.')
                        {
                            site.set_pair_if_absent("types", &extension, line.arg(0));
                        }
                    }
                    match layer.paths == PathMatch::All {
                        true => context.ledger.mark_carried(line.id),
                        false => context
                            .ledger
                            .mark_different(line.id, "the setting applies to the whole site"),
                    }
                }
                "forcetype" if !is_php_handler(line.arg(0)) => {
                    if line.arg(0).eq_ignore_ascii_case("none") {
                        context.ledger.mark_carried(line.id);
                        continue;
                    }
                    let when = RuleCondition::paths(layer.paths.clone());
                    stages.push(
                        RuleStage::Headers,
                        when.rule("type", line.arg(0), &line.place),
                    );
                    context.ledger.mark_carried(line.id);
                }
                "adddefaultcharset" => match line.arg(0).to_ascii_lowercase().as_str() {
                    "utf-8" | "off" => context.ledger.mark_carried(line.id),
                    _ => context.ledger.mark_missing(
                        line.id,
                        "text files are sent as UTF-8; set another charset in `types` in the site",
                    ),
                },
                _ => {}
            }
        }
    }
}

/// Translates `ErrorDocument`.
pub fn translate_error_documents(context: &HostContext<'_, '_>, site: &mut SiteTable) {
    for number in (0..context.layers.len()).rev() {
        let layer = &context.layers[number];
        for line in layer
            .directives
            .iter()
            .rev()
            .filter(|d| d.name == "errordocument")
        {
            let page = line.arg(1);
            let status = line.arg(0).parse::<u16>().unwrap_or(0);
            if page.eq_ignore_ascii_case("default") {
                context.ledger.mark_carried(line.id);
            } else if !(400..=599).contains(&status)
                || !page.starts_with('/')
                || page.contains(['?', '%'])
                || is_script(page)
            {
                context.ledger.mark_missing(line.id, "`error_pages` in the site can name only static files; let the application create this error page itself");
            } else if layer.paths != PathMatch::All {
                context
                    .ledger
                    .mark_missing(line.id, "`error_pages` apply to a whole site");
            } else {
                site.set_pair_if_absent("error_pages", line.arg(0), page.trim_start_matches('/'));
                context.ledger.mark_carried(line.id);
            }
        }
    }
}
