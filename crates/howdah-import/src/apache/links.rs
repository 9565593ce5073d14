//! Translates `Options`: where symbolic links may lead. Options that Howdah does not support are reported.

use super::aliases;
use super::host_context::HostContext;
use crate::directive::Directive;
use crate::target::SiteTable;

/// The symbolic links that a directory may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SymlinkPolicy {
    /// All links are followed.
    Followed,
    /// Only links to files of the link's owner are followed.
    OwnerMatch,
    /// No link is followed.
    None,
}

/// Translates the effect of `Options` on links, from the root of the file system down.
pub fn translate_options(context: &HostContext<'_, '_>, site: &mut SiteTable) {
    let mut links = SymlinkPolicy::Followed;
    let mut place = None;
    for layer in context.layers.iter() {
        for line in layer.directives.iter().filter(|d| d.name == "options") {
            let own = policy_of_options(line, links);
            let mut missing: Vec<&str> = Vec::new();
            for word in &line.args {
                let word = word.trim_start_matches('+').to_ascii_lowercase();
                match word.as_str() {
                    "indexes" => missing.push("a directory without an index file counts as missing: Howdah has no listings"),
                    "all" => missing.push("Howdah has no listings and no server-side includes, and runs programs only by rules with `cgi`"),
                    "includes" | "includesnoexec" => missing.push("Howdah has no server-side includes"),
                    "multiviews" => missing.push("Howdah has no content negotiation: a URL must contain the full name of its file"),
                    _ => {}
                }
            }
            if layer.matches_path("/") {
                if own != links {
                    place = Some(line.place.clone());
                }
                links = own;
            } else if own != links
                && own != SymlinkPolicy::Followed
                && !applies_to_root(context, line)
            {
                context
                    .ledger
                    .mark_missing_protection(line.id, "a site has only one value of `symlinks`");
            }
            for text in &missing {
                context.ledger.mark_different(line.id, *text);
            }
            if missing.is_empty() {
                context.ledger.mark_carried(line.id);
            }
        }
    }
    let word = match links {
        SymlinkPolicy::Followed => return,
        SymlinkPolicy::OwnerMatch => "owner",
        SymlinkPolicy::None => "beneath",
    };
    match aliases::has_mount_outside_root(context) {
        false => site.table.set("symlinks", word, place.as_ref()),
        // The links that the list asks for lead outside the root.
        true => {
            for layer in context.layers.iter() {
                for line in layer
                    .directives
                    .iter()
                    .filter(|d| d.name == "options" && Some(&d.place) == place.as_ref())
                {
                    let need = format!(
                        "set symlinks = \"{word}\" once the directories of `Alias` are real directories below the root, not links"
                    );
                    context.ledger.mark_missing_protection(line.id, need);
                }
            }
        }
    }
}

/// Returns whether a line applies to the root as well.
fn applies_to_root(context: &HostContext<'_, '_>, line: &Directive) -> bool {
    let mut layers = context
        .layers
        .iter()
        .filter(|layer| layer.matches_path("/"));
    layers.any(|layer| layer.directives.iter().any(|d| d.id == line.id))
}

fn policy_of_options(line: &Directive, before: SymlinkPolicy) -> SymlinkPolicy {
    let relative = line.args.iter().any(|word| word.starts_with(['+', '-']));
    let mut links = if relative {
        before
    } else {
        SymlinkPolicy::None
    };
    for word in &line.args {
        let (adds, word) = match word.strip_prefix('-') {
            Some(word) => (false, word),
            None => (true, word.trim_start_matches('+')),
        };
        links = match (word.to_ascii_lowercase().as_str(), adds) {
            ("followsymlinks" | "all", true) => SymlinkPolicy::Followed,
            ("symlinksifownermatch", true) if links == SymlinkPolicy::None || relative => {
                SymlinkPolicy::OwnerMatch
            }
            ("followsymlinks", false) if links == SymlinkPolicy::Followed => SymlinkPolicy::None,
            ("symlinksifownermatch", false) if links == SymlinkPolicy::OwnerMatch => {
                SymlinkPolicy::None
            }
            ("none", true) => SymlinkPolicy::None,
            (_, _) => links,
        };
    }
    links
}
