//! Translates settings of a site's files: root, index, links, `.htaccess` files, front controllers, error pages.

use super::site::HostTranslation;
use crate::directive::Directive;
use crate::rule_condition::{PathMatch, RuleCondition};
use crate::stages::RuleStage;
use crate::target::TomlValue;

/// Sets the root from `DocumentRoot`, or from an `Alias` for all paths.
pub fn set_root(work: &mut HostTranslation<'_, '_>, main: &[Directive]) {
    let of = |lines: &'_ [Directive]| {
        lines
            .iter()
            .rev()
            .find(|d| d.name == "documentroot")
            .cloned()
    };
    let everything = work
        .host
        .lines
        .iter()
        .find(|d| d.name == "alias" && d.arg(0) == "/");
    let line = match everything {
        Some(line) => Some((line.clone(), line.arg(1).to_owned())),
        None => of(work.host.lines).or_else(|| of(main)).map(|line| {
            let path = line.arg(0).to_owned();
            (line, path)
        }),
    };
    let known = line.filter(|(_, path)| !path.contains("${") && !path.is_empty());
    match known {
        Some((line, path)) => {
            let path = work.context.path(&path);
            work.site
                .table
                .set("root", path.as_str(), Some(&line.place));
            work.ledger.mark_carried(line.id);
            work.root = Some(path);
        }
        None => {
            let empty = work.context.config.empty_root();
            work.site.table.set("root", empty, None);
        }
    }
}

/// Translates the settings that apply to a whole site in Howdah. Sections that differ from it are listed.
pub fn write_options(work: &mut HostTranslation<'_, '_>) {
    translate_index(work);
    super::links::translate_options(work);
    translate_allow_override(work);
    translate_body_size(work);
    translate_fallback_resource(work);
    translate_types(work);
}

/// Returns the line of a name that applies to the root, and the lines for other paths.
fn lines_by_scope<'a>(
    work: &HostTranslation<'_, 'a>,
    name: &str,
) -> (Option<&'a Directive>, Vec<(PathMatch, &'a Directive)>) {
    let main = work.line_for("/", name);
    let mut others = Vec::new();
    for (number, layer) in work.layers.iter().enumerate() {
        let replaced =
            layer.matches_path("/") || work.effective_requests(number, &[name]).is_none();
        for line in layer.directives.iter().filter(|d| d.name == name) {
            if main.is_some_and(|main| main.id == line.id) {
                continue;
            }
            match replaced {
                true => work.mark_overridden(line),
                false => others.push((layer.paths.clone(), line)),
            }
        }
    }
    (main, others)
}

fn translate_index(work: &mut HostTranslation<'_, '_>) {
    let (main, others) = lines_by_scope(work, "directoryindex");
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
            true => work.ledger.mark_carried(line.id),
            false => work.ledger.mark_missing(line.id, "index takes names of files in the directory; front_controller takes the script for all other paths"),
        }
    }
    if !plain.is_empty() {
        let names = plain.into_iter().map(str::to_owned).collect();
        let place = main.map(|line| &line.place);
        work.site.table.set("index", TomlValue::Texts(names), place);
    }
    for (_, line) in others {
        match main.is_some_and(|main| main.args == line.args) {
            true => work.ledger.mark_carried(line.id),
            false => work.ledger.mark_missing(line.id, "one index for the whole site: add its names there, or let a rule lead to the script"),
        }
    }
}

/// Translates `AllowOverride`.
fn translate_allow_override(work: &mut HostTranslation<'_, '_>) {
    let reads = |line: &Directive| {
        !line
            .args
            .iter()
            .all(|word| word.eq_ignore_ascii_case("none"))
    };
    let (main, others) = lines_by_scope(work, "allowoverride");
    let mut on = main.is_some_and(reads);
    let mut place = main.map(|line| line.place.clone());
    if let Some(line) = main {
        let whole = line
            .args
            .iter()
            .all(|word| matches!(word.to_ascii_lowercase().as_str(), "all" | "none"));
        match whole {
            true => work.ledger.mark_carried(line.id),
            false => work.ledger.mark_different(
                line.id,
                "htaccess = \"on\": all directives of .htaccess files count",
            ),
        }
    }
    for (paths, line) in others {
        let below_root = work.root.as_deref().is_some_and(|root| {
            let directory = match &paths {
                PathMatch::Path(path) | PathMatch::Prefix(path) => work.mounts.directory_of(path),
                _ => None,
            };
            directory.is_none_or(|directory| directory.starts_with(root))
        });
        match (on, reads(line)) {
            (true, false) if below_root => work.ledger.mark_missing_protection(
                line.id,
                ".htaccess files count in the whole site: see that nobody can write one there",
            ),
            (true, false) => work
                .ledger
                .mark_different(line.id, ".htaccess files count in the whole site"),
            (false, true) => {
                on = true;
                place = Some(line.place.clone());
                work.ledger
                    .mark_different(line.id, ".htaccess files count in the whole site");
            }
            _ => work.ledger.mark_carried(line.id),
        }
    }
    let (name, _) = lines_by_scope(work, "accessfilename");
    if let Some(line) = name {
        match line.args == [".htaccess"] {
            true => work.ledger.mark_carried(line.id),
            false => work
                .ledger
                .mark_missing_protection(line.id, "rename the files to .htaccess"),
        }
    }
    let (list, others) = lines_by_scope(work, "allowoverridelist");
    for line in list
        .into_iter()
        .chain(others.into_iter().map(|(_, line)| line))
    {
        match on || line.arg(0).eq_ignore_ascii_case("none") {
            true => work.ledger.mark_carried(line.id),
            false => work.ledger.mark_missing(
                line.id,
                "htaccess = \"on\", with which all directives count",
            ),
        }
    }
    let word = if on { "on" } else { "off" };
    work.site.table.set("htaccess", word, place.as_ref());
}

fn translate_body_size(work: &mut HostTranslation<'_, '_>) {
    let (main, others) = lines_by_scope(work, "limitrequestbody");
    if let Some(line) = main {
        match line.arg(0).parse::<u64>() {
            Ok(0) => work
                .site
                .table
                .set("max_body_size", "off", Some(&line.place)),
            Ok(bytes) => work.site.table.set(
                "max_body_size",
                TomlValue::Number(bytes.min(1 << 50)),
                Some(&line.place),
            ),
            Err(_) => {
                return work
                    .ledger
                    .mark_missing(line.id, "max_body_size of the site");
            }
        }
        work.ledger.mark_carried(line.id);
    }
    for (_, line) in others {
        work.ledger.mark_missing(
            line.id,
            "one max_body_size for the whole site: raise it there if this is larger",
        );
    }
}

/// Translates `FallbackResource`.
fn translate_fallback_resource(work: &mut HostTranslation<'_, '_>) {
    let (main, others) = lines_by_scope(work, "fallbackresource");
    let leads = |line: &Directive| line.arg(0).starts_with('/');
    if let Some(line) = main {
        match leads(line) {
            true => {
                if let Some(rule) = work.set_front_controller(line.arg(0), line) {
                    work.stages.push(RuleStage::LastResort, rule);
                }
            }
            false if line.arg(0) == "disabled" => {}
            false => {
                return work
                    .ledger
                    .mark_missing(line.id, "front_controller, a path from the root");
            }
        }
        work.ledger.mark_carried(line.id);
    }
    for (paths, line) in others {
        if !leads(line) {
            work.ledger.mark_missing(
                line.id,
                "a rule with if_missing, and the path of the script",
            );
            continue;
        }
        let when = RuleCondition {
            if_missing: true,
            ..RuleCondition::paths(paths)
        };
        let script = line.arg(0).replace('$', "$$");
        work.stages.push(
            RuleStage::MissingFiles,
            when.rule("rewrite", script, &line.place),
        );
        work.ledger.mark_carried(line.id);
    }
}

/// Translates `ForceType`, and `AddType` for media types that Howdah does not have by default.
fn translate_types(work: &mut HostTranslation<'_, '_>) {
    for layer in work.layers.clone() {
        for line in layer.directives {
            match line.name.as_str() {
                "addtype" if !super::handlers::is_php_handler(line.arg(0)) => {
                    for extension in line.args.iter().skip(1) {
                        let extension = extension.trim_start_matches('.').to_ascii_lowercase();
                        let ours = (work.context.media_type)(format!("x.{extension}").as_bytes());
                        if !crate::media_type::is_equivalent(ours, line.arg(0))
                            && !extension.contains('.')
                        {
                            work.site
                                .set_pair_if_absent("types", &extension, line.arg(0));
                        }
                    }
                    match layer.paths == PathMatch::All {
                        true => work.ledger.mark_carried(line.id),
                        false => work.ledger.mark_different(line.id, "for the whole site"),
                    }
                }
                "forcetype" if !super::handlers::is_php_handler(line.arg(0)) => {
                    if line.arg(0).eq_ignore_ascii_case("none") {
                        work.ledger.mark_carried(line.id);
                        continue;
                    }
                    let when = RuleCondition::paths(layer.paths.clone());
                    work.stages.push(
                        RuleStage::Headers,
                        when.rule("type", line.arg(0), &line.place),
                    );
                    work.ledger.mark_carried(line.id);
                }
                "adddefaultcharset" => match line.arg(0).to_ascii_lowercase().as_str() {
                    "utf-8" | "off" => work.ledger.mark_carried(line.id),
                    _ => work.ledger.mark_missing(
                        line.id,
                        "text files are sent as UTF-8; types of the site say another charset",
                    ),
                },
                _ => {}
            }
        }
    }
}

/// Translates `ErrorDocument`.
pub fn translate_error_documents(work: &mut HostTranslation<'_, '_>) {
    for number in (0..work.layers.len()).rev() {
        let layer = work.layers[number].clone();
        for line in layer
            .directives
            .iter()
            .rev()
            .filter(|d| d.name == "errordocument")
        {
            let page = line.arg(1);
            let status = line.arg(0).parse::<u16>().unwrap_or(0);
            if page.eq_ignore_ascii_case("default") {
                work.ledger.mark_carried(line.id);
            } else if !(400..=599).contains(&status)
                || !page.starts_with('/')
                || page.contains(['?', '%'])
                || super::handlers::is_script(page)
            {
                work.ledger.mark_missing(line.id, "error_pages of the site name files; the application answers for what it is asked");
            } else if layer.paths != PathMatch::All {
                work.ledger
                    .mark_missing(line.id, "error_pages hold for a whole site");
            } else {
                work.site.set_pair_if_absent(
                    "error_pages",
                    line.arg(0),
                    page.trim_start_matches('/'),
                );
                work.ledger.mark_carried(line.id);
            }
        }
    }
}
