//! `Alias` and `ScriptAlias`: directories outside of the root, which a link makes part of it.

use super::region::{self, Places};
use super::site::Work;
use crate::directive::Directive;
use crate::link;
use crate::stages::Stage;
use crate::target::Table;
use crate::when::{Match, When};

fn is_alias(line: &Directive) -> bool {
    matches!(line.name.as_str(), "alias" | "scriptalias") && line.args.len() == 2
}

/// The icons of directory listings, which Debian's Apache has for every host.
fn is_icons(line: &Directive) -> bool {
    line.arg(0).trim_matches('/') == "icons"
        && line.arg(1).trim_end_matches('/').ends_with("/icons")
}

/// The lines of the main server and of the host.
fn lines<'a>(work: &Work<'_, 'a>, main: &'a [Directive]) -> Vec<&'a Directive> {
    let own = if work.is_main {
        &[][..]
    } else {
        work.host.lines
    };
    // A host's own come first.
    own.iter().chain(main).filter(|d| is_alias(d)).collect()
}

/// Notes which directories are shown where.
pub fn mounts<'a>(work: &mut Work<'_, 'a>, main: &'a [Directive]) {
    let mut mounts: Vec<(String, String)> = Vec::new();
    for line in lines(work, main) {
        let url = line.arg(0).trim_end_matches('/').to_owned();
        if is_icons(line) || mounts.iter().any(|(known, _)| *known == url) {
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
    work.places = Places { mounts };
}

/// Rules and links.
pub fn write(work: &mut Work<'_, '_>) {
    for number in 0..work.layers.len() {
        let layer = work.layers[number].clone();
        for line in layer.lines {
            match line.name.as_str() {
                "alias" | "scriptalias" if layer.section.is_none() && is_alias(line) => {
                    alias(work, line)
                }
                "alias" | "scriptalias" | "aliasmatch" | "scriptaliasmatch" => {
                    let need = "a link below the root for each directory, or a [[site]] of its own";
                    work.ledger.list(line.id, need);
                }
                _ => {}
            }
        }
    }
}

fn alias(work: &mut Work<'_, '_>, line: &Directive) {
    let ledger = work.ledger;
    if is_icons(line) {
        return ledger.moot(
            line.id,
            "icons of directory listings, which Howdah does not make",
        );
    }
    let url = line.arg(0).trim_end_matches('/');
    let target = work.context.path(line.arg(1));
    if url.is_empty() {
        return ledger.carried(line.id);
    }
    if work
        .places
        .mounts
        .iter()
        .any(|(known, own)| known == url && *own != target)
    {
        return ledger.moot(line.id, "another line says where this path leads");
    }
    let when = When::paths(Match::segments(url));
    show(work, line, url, &target, &when);
    if line.name == "scriptalias" {
        programs(work, line, &when);
    }
}

/// The directory below the root.
fn show(work: &mut Work<'_, '_>, line: &Directive, url: &str, target: &str, when: &When) {
    let ledger = work.ledger;
    let root = work.root.clone();
    let below = root.as_deref().and_then(|root| target.strip_prefix(root));
    if let Some(below) = below.filter(|below| below.is_empty() || below.starts_with('/')) {
        if below != url {
            let to = format!("{}$1", below.replace('$', "$$"));
            work.stages
                .push(Stage::Rewrites, when.rule("rewrite", to, &line.place));
        }
        return ledger.carried(line.id);
    }
    let Some(root) = root else {
        let need = format!("files of {target} as a [[site]] of their own, or below the root");
        return ledger.list(line.id, need);
    };
    let Some(missing) = link::missing(&root, url, target) else {
        return ledger.carried(line.id);
    };
    if missing.hides {
        work.stages
            .push(Stage::Answers, when.rule("deny", 404, &line.place));
    }
    ledger.list(line.id, missing.need);
}

/// What lies there is executed.
fn programs(work: &mut Work<'_, '_>, line: &Directive, when: &When) {
    const POOL: &str = "cgi";
    let pools = &mut work.context.config.pools;
    if !pools.iter().any(|(name, ..)| name == POOL) {
        let mut table = Table::default();
        table.comment(line.place.to_string());
        table.set("mode", "cgi", None);
        pools.push((POOL.to_owned(), table, Default::default()));
    }
    work.stages
        .push(Stage::Answers, when.rule("cgi", POOL, &line.place));
}

/// Whether links of the list lead out of the root.
pub fn leads_out(work: &Work<'_, '_>) -> bool {
    let root = work.root.as_deref().unwrap_or_default();
    let inside =
        |target: &str| region::covers(&Match::segments(root), &Match::Path(target.to_owned()));
    work.places.mounts.iter().any(|(_, target)| !inside(target))
}
