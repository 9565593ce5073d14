//! `Options`: where links may lead, and what Howdah does not do.

use super::aliases;
use super::site::Work;
use crate::directive::Directive;

/// Kinds of links that a directory may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Links {
    /// All links are followed.
    Followed,
    /// To files of the link's owner.
    OfOwner,
    /// No link is followed.
    None,
}

/// What `Options` makes of links, from the root of the file system down.
pub fn links(work: &mut Work<'_, '_>) {
    let mut links = Links::Followed;
    let mut place = None;
    for layer in work.layers.clone() {
        for line in layer.lines.iter().filter(|d| d.name == "options") {
            let own = of_options(line, links);
            let mut missing: Vec<&str> = Vec::new();
            for word in &line.args {
                let word = word.trim_start_matches('+').to_ascii_lowercase();
                match word.as_str() {
                    "indexes" => missing.push("a directory without an index is missing: there are no listings"),
                    "all" => missing.push("there are no listings, no server-side includes, and programs run by rules with `cgi` alone"),
                    "includes" | "includesnoexec" => missing.push("there are no server-side includes"),
                    "multiviews" => missing.push("a path names its file in full: no content negotiation"),
                    _ => {}
                }
            }
            if layer.has("/") {
                if own != links {
                    place = Some(line.place.clone());
                }
                links = own;
            } else if own != links && own != Links::Followed && !is_of_root(work, line) {
                work.ledger
                    .list_protection(line.id, "one `symlinks` for the whole site");
            }
            for text in &missing {
                work.ledger.remark(line.id, *text);
            }
            if missing.is_empty() {
                work.ledger.carried(line.id);
            }
        }
    }
    let word = match links {
        Links::Followed => return,
        Links::OfOwner => "owner",
        Links::None => "beneath",
    };
    match aliases::leads_out(work) {
        false => work.site.table.set("symlinks", word, place.as_ref()),
        // The links that the list asks for lead out of the root.
        true => {
            for layer in &work.layers {
                for line in layer
                    .lines
                    .iter()
                    .filter(|d| d.name == "options" && Some(&d.place) == place.as_ref())
                {
                    let need = format!(
                        "symlinks = \"{word}\", once the directories of `Alias` are below the root without links"
                    );
                    work.ledger.list_protection(line.id, need);
                }
            }
        }
    }
}

/// Whether a line counts for the root as well.
fn is_of_root(work: &Work<'_, '_>, line: &Directive) -> bool {
    let mut layers = work.layers.iter().filter(|layer| layer.has("/"));
    layers.any(|layer| layer.lines.iter().any(|d| d.id == line.id))
}

fn of_options(line: &Directive, before: Links) -> Links {
    let relative = line.args.iter().any(|word| word.starts_with(['+', '-']));
    let mut links = if relative { before } else { Links::None };
    for word in &line.args {
        let (adds, word) = match word.strip_prefix('-') {
            Some(word) => (false, word),
            None => (true, word.trim_start_matches('+')),
        };
        links = match (word.to_ascii_lowercase().as_str(), adds) {
            ("followsymlinks" | "all", true) => Links::Followed,
            ("symlinksifownermatch", true) if links == Links::None || relative => Links::OfOwner,
            ("followsymlinks", false) if links == Links::Followed => Links::None,
            ("symlinksifownermatch", false) if links == Links::OfOwner => Links::None,
            ("none", true) => Links::None,
            (_, _) => links,
        };
    }
    links
}
