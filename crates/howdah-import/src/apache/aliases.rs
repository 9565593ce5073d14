//! Translates `Alias` and `ScriptAlias`. A directory in the root becomes the target of a rewrite. For a directory
//! outside the root, the list asks for a symbolic link in the root.

use super::host::ApacheHost;
use super::host_context::HostContext;
use super::region::{self, UrlMounts};
use super::server::ServerContext;
use super::server_pools::ServerPools;
use crate::directive::Directive;
use crate::link;
use crate::rule_condition::{PathMatch, RuleCondition};
use crate::stages::{RuleStage, StagedRules};

fn is_alias(line: &Directive) -> bool {
    matches!(line.name.as_str(), "alias" | "scriptalias") && line.args.len() == 2
}

/// Recognises the icons of directory listings, which Debian's Apache configures for every host.
fn is_listing_icons(line: &Directive) -> bool {
    line.arg(0).trim_matches('/') == "icons"
        && line.arg(1).trim_end_matches('/').ends_with("/icons")
}

/// Returns the alias lines of the host and of the main server.
fn alias_lines<'a>(host: &ApacheHost<'a>, main: &'a [Directive]) -> Vec<&'a Directive> {
    let own = if host.is_main() { &[][..] } else { host.lines };
    // The host's own lines take precedence.
    own.iter().chain(main).filter(|d| is_alias(d)).collect()
}

/// Returns which directories are mapped to which URL paths.
pub fn url_mounts<'a>(
    host: &ApacheHost<'a>,
    main: &'a [Directive],
    root: Option<&str>,
    server: &ServerContext<'_>,
) -> UrlMounts {
    let mut mounts: Vec<(String, String)> = Vec::new();
    for line in alias_lines(host, main) {
        let url = line.arg(0).trim_end_matches('/').to_owned();
        if is_listing_icons(line) || mounts.iter().any(|(known, _)| *known == url) {
            continue;
        }
        let target = server.path(line.arg(1));
        mounts.push((url, target));
    }
    mounts.sort_by_key(|(url, _)| std::cmp::Reverse(url.len()));
    if let Some(root) = root
        && !mounts.iter().any(|(url, _)| url.is_empty())
    {
        mounts.push((String::new(), root.to_owned()));
    }
    UrlMounts { mounts }
}

/// Adds the rules of aliases, and lists the links that are needed.
pub fn write_aliases(
    context: &HostContext<'_, '_>,
    stages: &mut StagedRules,
    pools: &mut ServerPools<'_>,
) {
    for number in 0..context.layers.len() {
        let layer = &context.layers[number];
        for line in layer.directives {
            match line.name.as_str() {
                "alias" | "scriptalias" if layer.section.is_none() && is_alias(line) => {
                    translate_alias(context, stages, pools, line)
                }
                "alias" | "scriptalias" | "aliasmatch" | "scriptaliasmatch" => {
                    let need = "create a link below the root for each directory, or give it a [[site]] of its own";
                    context.ledger.mark_missing(line.id, need);
                }
                _ => {}
            }
        }
    }
}

fn translate_alias(
    context: &HostContext<'_, '_>,
    stages: &mut StagedRules,
    pools: &mut ServerPools<'_>,
    line: &Directive,
) {
    let ledger = context.ledger;
    if is_listing_icons(line) {
        return ledger.mark_irrelevant(
            line.id,
            "these icons are for directory listings, which Howdah does not have",
        );
    }
    let url = line.arg(0).trim_end_matches('/');
    let target = context.server.path(line.arg(1));
    if url.is_empty() {
        return ledger.mark_carried(line.id);
    }
    if context
        .mounts
        .mounts
        .iter()
        .any(|(known, own)| known == url && *own != target)
    {
        return ledger.mark_irrelevant(
            line.id,
            "another directive maps this path to a different directory",
        );
    }
    let when = RuleCondition::paths(PathMatch::segment_prefix(url));
    map_directory(context, stages, line, url, &target, &when);
    if line.name == "scriptalias" {
        // The files in the directory are CGI programs.
        let rule = when.rule("cgi", pools.cgi(line), &line.place);
        stages.push(RuleStage::Responses, rule);
    }
}

/// Maps the directory to a path below the root: by a rewrite if it is in the root, otherwise by a symbolic link that
/// the list asks for.
fn map_directory(
    context: &HostContext<'_, '_>,
    stages: &mut StagedRules,
    line: &Directive,
    url: &str,
    target: &str,
    when: &RuleCondition,
) {
    let ledger = context.ledger;
    let root = context.root.clone();
    let below = root.as_deref().and_then(|root| target.strip_prefix(root));
    if let Some(below) = below.filter(|below| below.is_empty() || below.starts_with('/')) {
        if below != url {
            let to = format!("{}$1", below.replace('$', "$$"));
            stages.push(RuleStage::Rewrites, when.rule("rewrite", to, &line.place));
        }
        return ledger.mark_carried(line.id);
    }
    let Some(root) = root else {
        let need = format!(
            "serve the files of {target} from a [[site]] of their own, or move them below the root"
        );
        return ledger.mark_missing(line.id, need);
    };
    let Some(missing) = link::missing_link(&root, url, target) else {
        return ledger.mark_carried(line.id);
    };
    if missing.is_occupied {
        stages.push(RuleStage::Responses, when.rule("deny", 404, &line.place));
    }
    ledger.mark_missing(line.id, missing.command);
}

/// Returns whether an alias leads to a directory outside the root.
pub fn has_mount_outside_root(context: &HostContext<'_, '_>) -> bool {
    let root = context.root.as_deref().unwrap_or_default();
    let inside = |target: &str| {
        region::covers(
            &PathMatch::segment_prefix(root),
            &PathMatch::Path(target.to_owned()),
        )
    };
    context
        .mounts
        .mounts
        .iter()
        .any(|(_, target)| !inside(target))
}
