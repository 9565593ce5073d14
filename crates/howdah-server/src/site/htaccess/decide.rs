//! Whether the files on a path's directories permit it: Apache's order of evaluation and inheritance.
//! Pure: takes what the files say, and what is asked.
//!
//! As in Apache the directories' sections count from the root down, then the `<Files>` sections that
//! are for the name, then `<If>`, in the same order (`ap_directory_walk`, `ap_file_walk`, `ap_if_walk`). Of access rules the last section
//! that has any replaces the ones before it, unless `AuthMerging` says otherwise. `RewriteRule` lines
//! are those of the deepest directory that has any. `Redirect` lines add up.
//!
//! Two things are stricter than Apache, on purpose. What depends on the visitor, or is not understood,
//! closes a directory below the site's root to everybody; in the root, where ban lists and rules
//! against robots live, it counts as for a stranger ([`Truth`]): who must be on a list, or have a
//! password, is refused, and who must not be on one is not. And a directory in which Apache would not
//! run PHP does not send its source either.

use std::sync::Arc;

use super::access_query::{AccessQuery, Lies, Variables};
use super::pattern::LimitReached;
use super::rewrite::{self, RewriteOutcome, RewriteRule};
use super::section::{HandlerSays, Inherits, Merging, Parents, Parsed, RedirectPath, Section};
use super::truth::Truth;

/// A directory that has a file, and what the file says.
#[derive(Clone, Debug)]
pub struct InDirectory {
    /// The directory's URL path, with its slash.
    pub path: Arc<[u8]>,
    /// What its file says.
    pub parsed: Arc<Parsed>,
}

impl InDirectory {
    fn is_root(&self) -> bool {
        &*self.path == b"/"
    }
}

/// What the files say of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may be answered.
    Open,
    /// It is refused, with this status.
    Closed(Because, u16),
    /// Files may be sent, scripts are not run.
    NoScripts(Because),
    /// Another path's answer is to be sent: what lies here is not.
    Hidden(Because),
}

/// The line that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Because {
    /// The file's place in the chain.
    pub file: usize,
    /// The line's number; 0 for the file as a whole.
    pub line: u32,
}

/// A section that is for the path.
struct Applying<'c> {
    file: usize,
    at_root: bool,
    section: &'c Section,
    /// Whether it is for the path is not certain.
    maybe: bool,
}

/// Decides. `chain` has the directories that have files, from the root down.
pub fn decide(chain: &[InDirectory], asked: &AccessQuery<'_>) -> Verdict {
    if chain.iter().all(|file| file.parsed.is_harmless()) {
        return Verdict::Open;
    }
    for (number, file) in chain.iter().enumerate() {
        let because = |line| Because { file: number, line };
        if file.parsed.unusable.is_some() {
            return Verdict::Closed(because(0), 403);
        }
        if let (Some(line), false) = (file.parsed.fault, file.is_root()) {
            return Verdict::Closed(because(line), 403);
        }
    }
    let sections = match applying(chain, asked) {
        Ok(sections) => sections,
        Err(because) => return Verdict::Closed(because, 403),
    };
    let variables = sections
        .iter()
        .flat_map(|applying| &applying.section.variables);
    let variables = Variables::new(variables.collect());
    let asked = AccessQuery {
        variables: Some(&variables),
        ..*asked
    };
    if let Some(because) = access(&sections, &asked) {
        return Verdict::Closed(because, 403);
    }
    if let Some(closed) = redirects(&sections, &asked) {
        return closed;
    }
    let hidden = match rules(chain, &asked) {
        Some(hidden @ Verdict::Hidden(_)) => Some(hidden),
        Some(other) => return other,
        None => None,
    };
    if asked.lies == Lies::Script
        && let Some(because) = no_scripts(&sections, asked.file_name())
    {
        return Verdict::NoScripts(because);
    }
    hidden.unwrap_or(Verdict::Open)
}

/// The kinds of sections, in the order in which they count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SectionKind {
    Directory,
    Files,
    If,
}

fn kind_of(section: &Section) -> SectionKind {
    match (&section.names, &section.condition) {
        (Some(_), _) => SectionKind::Files,
        (None, Some(_)) => SectionKind::If,
        (None, None) => SectionKind::Directory,
    }
}

/// The sections that are for the path, in the order in which they count.
fn applying<'c>(
    chain: &'c [InDirectory],
    asked: &AccessQuery<'_>,
) -> Result<Vec<Applying<'c>>, Because> {
    let mut sections = Vec::new();
    let each = |kind: SectionKind| {
        chain.iter().enumerate().flat_map(move |(number, file)| {
            let own = file.parsed.sections.iter();
            own.filter(move |section| kind_of(section) == kind)
                .map(move |section| (number, file, section))
        })
    };
    let ordered = each(SectionKind::Directory)
        .chain(each(SectionKind::Files))
        .chain(each(SectionKind::If));
    for (number, file, section) in ordered {
        let is_for = match (&section.names, &section.condition) {
            (Some(names), _) => names.are(asked.file_name()),
            (None, Some(condition)) => rewrite::holds(condition, asked).map(|truth| truth.stranger),
            (None, None) => Ok(true),
        };
        match is_for {
            Ok(false) => {}
            Ok(true) => sections.push(Applying {
                file: number,
                at_root: file.is_root(),
                section,
                maybe: section.maybe,
            }),
            Err(LimitReached) => {
                return Err(Because {
                    file: number,
                    line: 0,
                });
            }
        }
    }
    Ok(sections)
}

/// Access of both generations; the line that refuses.
fn access(sections: &[Applying<'_>], asked: &AccessQuery<'_>) -> Option<Because> {
    let mut require = (Truth::YES, None);
    let mut is_required = true;
    let mut lists = (Truth::YES, None);
    let mut satisfy_any = false;
    let mut doubt = None;
    for applying in sections {
        let Applying {
            section, at_root, ..
        } = applying;
        let because = |line: u32| {
            Some(Because {
                file: applying.file,
                line,
            })
        };
        let settle = |truth: Truth| match at_root {
            true => truth.as_for_a_stranger(),
            false => truth,
        };
        let replaces = section.require.is_some() || section.lists.is_some();
        // In the root what may not be in effect is not; elsewhere it is doubtful who may come.
        if applying.maybe && replaces {
            if !at_root {
                doubt = because(first_line(section));
            }
            continue;
        }
        // Stays whatever deeper directories say: Apache asks `<If>` last.
        if let (Some(line), false) = (section.maybe_access, *at_root) {
            doubt = because(line);
        }
        if let Some((line, own)) = &section.require {
            // Lines for other methods only require nothing, and grant nothing that is merged.
            let covers = own.methods.cover(asked.method);
            let own = settle(own.evaluate(asked));
            let merged = match section.merging {
                Merging::And => require.0.and(own),
                Merging::Or if is_required && covers => require.0.or(own),
                Merging::Or if is_required => require.0,
                Merging::Or | Merging::Unset | Merging::Off => own,
            };
            let merges = matches!(section.merging, Merging::And | Merging::Or);
            require = (merged, because(*line));
            is_required = covers || merges && is_required;
        } else if section.merging == Merging::Off {
            // What was required stays so, but opens nothing by `Or`.
            is_required = false;
        }
        if let Some((line, own)) = &section.lists {
            lists = (settle(own.evaluate(asked)), because(*line));
            satisfy_any = own.satisfies_any(asked.method);
        }
        if let (Some(line), false) = (section.demand, *at_root) {
            return because(line);
        }
    }
    let both = match satisfy_any {
        true => require.0.or(lists.0),
        false => require.0.and(lists.0),
    };
    if !both.is_yes() {
        return match require.0.is_yes() {
            true => lists.1,
            false => require.1.or(lists.1),
        };
    }
    doubt
}

fn first_line(section: &Section) -> u32 {
    let require = section.require.as_ref().map(|(line, _)| *line);
    let lists = section.lists.as_ref().map(|(line, _)| *line);
    require.into_iter().chain(lists).min().unwrap_or_default()
}

/// `Redirect` and `RedirectMatch` with an error's status.
fn redirects(sections: &[Applying<'_>], asked: &AccessQuery<'_>) -> Option<Verdict> {
    for applying in sections {
        for redirect in &applying.section.redirects {
            if applying.at_root && (redirect.maybe || applying.maybe) {
                continue;
            }
            let matches = match &redirect.path {
                RedirectPath::Below(path) => is_below(asked.path, path.as_bytes()),
                RedirectPath::Matches(regex) => regex.is_match(asked.path).unwrap_or(true),
            };
            if matches {
                let because = Because {
                    file: applying.file,
                    line: redirect.line,
                };
                return Some(Verdict::Closed(because, redirect.status));
            }
        }
    }
    None
}

/// `path` is `above`, or below it, as `alias_matches` compares.
fn is_below(path: &[u8], above: &[u8]) -> bool {
    match path.strip_prefix(above) {
        Some(rest) => above.ends_with(b"/") || rest.is_empty() || rest[0] == b'/',
        None => false,
    }
}

/// The rules of the deepest directory that has any, and its parents' where it inherits them.
fn rules(chain: &[InDirectory], asked: &AccessQuery<'_>) -> Option<Verdict> {
    let own = |file: &'_ InDirectory| file.parsed.sections.first().is_some_and(|s| s.has_rewrite);
    let mut on = false;
    let mut rules: Vec<(usize, &RewriteRule)> = Vec::new();
    let mut base = None;
    let mut options = Inherits::default();
    for (number, file) in chain.iter().enumerate().filter(|(_, file)| own(file)) {
        let Some(section) = file.parsed.sections.first() else {
            continue;
        };
        on = section.engine.unwrap_or(on);
        let own = section.inherits.unwrap_or(options);
        let parents = std::mem::take(&mut rules);
        let of_file = section.rules.iter().map(|rule| (number, rule));
        rules = match own.from(options) {
            None => of_file.collect(),
            Some(Parents::Behind) => of_file.chain(parents).collect(),
            Some(Parents::Before) => parents.into_iter().chain(of_file).collect(),
        };
        options = own;
        base = Some((number, file));
    }
    let (number, file) = base.filter(|_| on && !rules.is_empty())?;
    // An inherited rule is refused for by its number alone: close enough to name the file it ends in.
    let file_of = |line: u32| {
        let found = rules.iter().find(|(_, rule)| rule.line == line);
        found.map_or(number, |(file, _)| *file)
    };
    let list: Vec<&RewriteRule> = rules.iter().map(|(_, rule)| *rule).collect();
    let because = |line| Because {
        file: file_of(line),
        line,
    };
    match rewrite::apply(&list, &file.path, file.is_root(), asked) {
        RewriteOutcome::Nothing => None,
        RewriteOutcome::Refused { line, status } => Some(Verdict::Closed(because(line), status)),
        RewriteOutcome::Hidden { line } => Some(Verdict::Hidden(because(line))),
        RewriteOutcome::NoScript { line } => Some(Verdict::NoScripts(because(line))),
    }
}

/// The line by which scripts of this name are not run.
fn no_scripts(sections: &[Applying<'_>], name: &[u8]) -> Option<Because> {
    let (mut engine, mut handler) = (None, None);
    for applying in sections {
        for line in &applying.section.handlers {
            let maybe = line.maybe || applying.maybe;
            let off = |says: bool| {
                let because = Because {
                    file: applying.file,
                    line: line.line,
                };
                (!says).then_some(because)
            };
            let (place, says) = match &line.says {
                HandlerSays::Engine(on) => (&mut engine, *on),
                HandlerSays::All(php) => (&mut handler, *php),
                HandlerSays::Extensions(php, list) if has_one(name, list) => (&mut handler, *php),
                HandlerSays::Extensions(..) => continue,
            };
            match maybe {
                false => *place = off(says),
                // What may be is believed where it closes, and below the root only.
                true if !says && !applying.at_root => *place = off(says),
                true => {}
            }
        }
    }
    engine.or(handler)
}

/// One of the name's extensions is in the list: mod_mime looks at all of them.
fn has_one(name: &[u8], list: &[String]) -> bool {
    name.split(|b| *b == b'.')
        .skip(1)
        .any(|own| list.iter().any(|e| e.as_bytes().eq_ignore_ascii_case(own)))
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
