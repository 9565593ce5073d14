//! Translates `Alias` and `ScriptAlias`: directories outside the root, which a link makes part of it.

use super::region::{self, UrlMounts};
use super::site::HostTranslation;
use crate::directive::Directive;
use crate::link;
use crate::rule_condition::{PathMatch, RuleCondition};
use crate::stages::RuleStage;
use crate::target::TomlTable;

fn is_alias(line: &Directive) -> bool {
    matches!(line.name.as_str(), "alias" | "scriptalias") && line.args.len() == 2
}

/// Recognises the icons of directory listings, which Debian's Apache configures for every host.
fn is_listing_icons(line: &Directive) -> bool {
    line.arg(0).trim_matches('/') == "icons"
        && line.arg(1).trim_end_matches('/').ends_with("/icons")
}

/// Returns the alias lines of the host and of the main server.
fn alias_lines<'a>(work: &HostTranslation<'_, 'a>, main: &'a [Directive]) -> Vec<&'a Directive> {
    let own = if work.is_main {
        &[][..]
    } else {
        work.host.lines
    };
    // The host's own lines take precedence.
    own.iter().chain(main).filter(|d| is_alias(d)).collect()
}

/// Records which directories are mapped to which URL paths.
pub fn record_mounts<'a>(work: &mut HostTranslation<'_, 'a>, main: &'a [Directive]) {
    let mut mounts: Vec<(String, String)> = Vec::new();
    for line in alias_lines(work, main) {
        let url = line.arg(0).trim_end_matches('/').to_owned();
        if is_listing_icons(line) || mounts.iter().any(|(known, _)| *known == url) {
            continue;
        }
        let target = work.context.path(line.arg(1));
        mounts.push((url, target));
    }
    mounts.sort_by_key(|(url, _)| std::cmp::Reverse(url.len()));
    if let Some(root) = &work.root
        && !mounts.iter().any(|(url, _)| url.is_empty())
    {
        mounts.push((String::new(), root.clone()));
    }
    work.mounts = UrlMounts { mounts };
}

/// Adds the rules of aliases, and lists the links that are needed.
pub fn write_aliases(work: &mut HostTranslation<'_, '_>) {
    for number in 0..work.layers.len() {
        let layer = work.layers[number].clone();
        for line in layer.directives {
            match line.name.as_str() {
                "alias" | "scriptalias" if layer.section.is_none() && is_alias(line) => {
                    translate_alias(work, line)
                }
                "alias" | "scriptalias" | "aliasmatch" | "scriptaliasmatch" => {
                    let need = "a link below the root for each directory, or a [[site]] of its own";
                    work.ledger.mark_missing(line.id, need);
                }
                _ => {}
            }
        }
    }
}

fn translate_alias(work: &mut HostTranslation<'_, '_>, line: &Directive) {
    let ledger = work.ledger;
    if is_listing_icons(line) {
        return ledger.mark_irrelevant(
            line.id,
            "icons of directory listings, which Howdah does not make",
        );
    }
    let url = line.arg(0).trim_end_matches('/');
    let target = work.context.path(line.arg(1));
    if url.is_empty() {
        return ledger.mark_carried(line.id);
    }
    if work
        .mounts
        .mounts
        .iter()
        .any(|(known, own)| known == url && *own != target)
    {
        return ledger.mark_irrelevant(line.id, "another line says where this path leads");
    }
    let when = RuleCondition::paths(PathMatch::segment_prefix(url));
    map_directory(work, line, url, &target, &when);
    if line.name == "scriptalias" {
        add_cgi_rule(work, line, &when);
    }
}

/// Maps the directory to a path below the root: by a rewrite if it is in the root, otherwise by a link on the list.
fn map_directory(
    work: &mut HostTranslation<'_, '_>,
    line: &Directive,
    url: &str,
    target: &str,
    when: &RuleCondition,
) {
    let ledger = work.ledger;
    let root = work.root.clone();
    let below = root.as_deref().and_then(|root| target.strip_prefix(root));
    if let Some(below) = below.filter(|below| below.is_empty() || below.starts_with('/')) {
        if below != url {
            let to = format!("{}$1", below.replace('$', "$$"));
            work.stages
                .push(RuleStage::Rewrites, when.rule("rewrite", to, &line.place));
        }
        return ledger.mark_carried(line.id);
    }
    let Some(root) = root else {
        let need = format!("files of {target} as a [[site]] of their own, or below the root");
        return ledger.mark_missing(line.id, need);
    };
    let Some(missing) = link::missing_link(&root, url, target) else {
        return ledger.mark_carried(line.id);
    };
    if missing.is_occupied {
        work.stages
            .push(RuleStage::Responses, when.rule("deny", 404, &line.place));
    }
    ledger.mark_missing(line.id, missing.command);
}

/// Adds a rule that runs the files in the directory as CGI programs.
fn add_cgi_rule(work: &mut HostTranslation<'_, '_>, line: &Directive, when: &RuleCondition) {
    const POOL: &str = "cgi";
    let pools = &mut work.context.config.pools;
    if !pools.iter().any(|(name, ..)| name == POOL) {
        let mut table = TomlTable::default();
        table.comment(line.place.to_string());
        table.set("mode", "cgi", None);
        pools.push((POOL.to_owned(), table, Default::default()));
    }
    work.stages
        .push(RuleStage::Responses, when.rule("cgi", POOL, &line.place));
}

/// Returns whether an alias leads to a directory outside the root.
pub fn has_mount_outside_root(work: &HostTranslation<'_, '_>) -> bool {
    let root = work.root.as_deref().unwrap_or_default();
    let inside = |target: &str| {
        region::covers(
            &PathMatch::segment_prefix(root),
            &PathMatch::Path(target.to_owned()),
        )
    };
    work.mounts.mounts.iter().any(|(_, target)| !inside(target))
}
