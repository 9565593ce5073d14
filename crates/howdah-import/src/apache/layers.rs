//! What is said of a site, in Apache's order of merging: the widest first.

use howdah_htaccess::rule_expression::RuleExpression;

use super::site::Work;
use super::{hosts, names, region};
use crate::directive::Directive;
use crate::expression::{compile, compile_path, matches, widened};
use crate::when::Match;

/// What is said of some paths, in one place.
#[derive(Clone, Debug)]
pub struct Layer<'a> {
    /// The paths that the section is for.
    pub paths: Match,
    /// Without these, where other directories are shown.
    pub but: Vec<Match>,
    /// What is said.
    pub lines: &'a [Directive],
    /// The section; none: outside of all, for the whole server.
    pub section: Option<&'a Directive>,
    /// It is of the main server, not of a `<VirtualHost>`.
    pub is_main: bool,
    /// The paths' expression.
    regex: Option<RuleExpression>,
}

impl<'a> Layer<'a> {
    fn new(
        (paths, but): (Match, Vec<Match>),
        lines: &'a [Directive],
        section: Option<&'a Directive>,
        is_main: bool,
    ) -> Layer<'a> {
        let regex = match &paths {
            Match::Regex(text) => compile_path(text).ok(),
            Match::All | Match::Path(_) | Match::Prefix(_) => None,
        };
        Layer {
            paths,
            but,
            lines,
            section,
            is_main,
            regex,
        }
    }

    /// Whether a path is among its own.
    pub fn has(&self, path: &str) -> bool {
        let is_own = match &self.regex {
            Some(regex) => matches(regex, path),
            None => region::has(&self.paths, path),
        };
        is_own && !self.but.iter().any(|but| region::has(but, path))
    }

    /// Whether it leaves out paths of another layer.
    pub fn lacks_some_of(&self, other: &Layer<'_>) -> bool {
        let mut but = self.but.iter();
        but.any(|but| !other.but.contains(but) && region::may_meet(but, &other.paths))
    }

    /// Whether all paths of another layer are among its own.
    pub fn covers(&self, other: &Layer<'_>) -> bool {
        region::covers(&self.paths, &other.paths) && !self.lacks_some_of(other)
    }
}

/// A section's kind, and what it is for.
fn argument(section: &Directive) -> (bool, &str) {
    match section.args.first().map(String::as_str) {
        Some("~") => (true, section.arg(1)),
        _ => (section.name.ends_with("match"), section.arg(0)),
    }
}

/// All that is said of a host, in Apache's order of merging.
pub fn layers<'a>(main: &'a [Directive], work: &mut Work<'_, 'a>) -> Vec<Layer<'a>> {
    let own = work.host.lines;
    let everywhere = (Match::All, Vec::new());
    let sources: Vec<(&'a [Directive], bool)> = match work.is_main {
        true => vec![(main, true)],
        false => vec![(main, true), (own, false)],
    };
    let mut all: Vec<Layer<'a>> = Vec::new();
    for (lines, is_main) in &sources {
        all.push(Layer::new((Match::All, Vec::new()), lines, None, *is_main));
    }
    let sections = |kinds: &'static [&'static str]| {
        let of = |(lines, is_main): &(&'a [Directive], bool)| {
            let is_main = *is_main;
            lines
                .iter()
                .filter(|d| kinds.contains(&d.name.as_str()))
                .map(move |d| (d, is_main))
                .collect::<Vec<_>>()
        };
        sources.iter().flat_map(of).collect::<Vec<_>>()
    };
    // Directories from the root down, then expressions.
    let mut directories = sections(&["directory", "directorymatch"]);
    directories.sort_by_key(|(section, _)| match argument(section) {
        (true, _) => usize::MAX,
        (false, path) => path.split('/').filter(|s| !s.is_empty()).count(),
    });
    for (section, is_main) in directories {
        add(work, &mut all, section, is_main, &everywhere);
    }
    // Files of servers, then those within directories.
    for (section, is_main) in sections(&["files", "filesmatch"]) {
        add(work, &mut all, section, is_main, &everywhere);
    }
    for number in 0..all.len() {
        let outer = all[number].clone();
        if outer
            .section
            .is_none_or(|section| !section.name.starts_with("directory"))
        {
            continue;
        }
        for section in outer.lines.iter().filter(|d| d.name.starts_with("files")) {
            let around = (outer.paths.clone(), outer.but.clone());
            add(work, &mut all, section, outer.is_main, &around);
        }
    }
    for (section, is_main) in sections(&["location", "locationmatch"]) {
        add(work, &mut all, section, is_main, &everywhere);
    }
    all
}

/// A section as layers, one for each place where the site shows what it is for.
fn add<'a>(
    work: &mut Work<'_, 'a>,
    all: &mut Vec<Layer<'a>>,
    section: &'a Directive,
    is_main: bool,
    around: &(Match, Vec<Match>),
) {
    let ledger = work.ledger;
    let (is_expression, text) = argument(section);
    // Directories become paths of the site, which an expression that looks around does not survive.
    let is_directory = section.name.starts_with("directory");
    let looks_around = is_directory && is_expression && compile(text).is_err();
    let text = match looks_around && closes(section) {
        true => {
            let wide = widened(text);
            if wide != text {
                ledger.remark(
                    section.id,
                    "closed for more paths than before: an expression for directories cannot look around",
                );
            }
            wide
        }
        false => text.to_owned(),
    };
    let within = |file: String| Ok(vec![(region::both(&around.0, &file)?, around.1.clone())]);
    let whole = |paths: Match| vec![(paths, Vec::new())];
    let found = match (section.name.as_str(), is_expression) {
        ("directory" | "directorymatch", true) => work.places.of_directory_match(&text),
        ("directory" | "directorymatch", false) => {
            let text = work.context.path(&text);
            work.places.of_directory(&text)
        }
        ("files" | "filesmatch", true) => names::file_expression(&text).and_then(within),
        ("files" | "filesmatch", false) => names::file_name(&text).and_then(within),
        (_, true) => region::location_match(&text).map(whole),
        (_, false) => region::location(&text).map(whole),
    };
    let found = match found {
        Ok(found) => found,
        Err(why) => return hosts::list_all(section, &why, ledger),
    };
    if let Some(why) = shows_the_server(section) {
        ledger.list(section.id, why);
        let nothing = "there is no such page here";
        return section
            .inner()
            .iter()
            .for_each(|line| line.walk(&mut |d| ledger.moot(d.id, nothing)));
    }
    for paths in found {
        ledger.carried(section.id);
        all.push(Layer::new(paths, section.inner(), Some(section), is_main));
    }
}

/// Whether a section does nothing but close.
fn closes(section: &Directive) -> bool {
    let denies = |d: &Directive| match d.name.as_str() {
        "require" => d.args.join(" ").eq_ignore_ascii_case("all denied"),
        "deny" => d.args.join(" ").eq_ignore_ascii_case("from all"),
        "order" | "satisfy" => true,
        _ => false,
    };
    !section.inner().is_empty() && section.inner().iter().all(denies)
}

/// What a section shows of Apache itself.
fn shows_the_server(section: &Directive) -> Option<&'static str> {
    let handler = section.inner().iter().find(|d| d.name == "sethandler")?;
    match handler.arg(0).to_ascii_lowercase().as_str() {
        "server-status" | "server-info" | "balancer-manager" | "ldap-status" => {
            Some("howdah status, or [status] path")
        }
        _ => None,
    }
}
