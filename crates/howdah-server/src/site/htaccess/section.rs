//! What a file says, understood: its own lines and those of each `<Files>` section, what could not be
//! understood, and what is to be reported. Values only; made by `parse.rs`, asked by `decide.rs`.

use super::access::{Lists, Methods, Require};
use super::access_query::SetEnvIf;
use super::pattern::{LimitReached, Regex, fnmatch};
use super::rewrite::{Condition, RewriteRule};

/// What a file says, as far as it is understood.
#[derive(Debug, Default)]
pub struct Parsed {
    /// The first is the directory's own; then those of `<Files>`, `<FilesMatch>` and `<If>`, in order.
    pub(super) sections: Vec<Section>,
    /// The file could not be read: nothing is known of what it closes.
    pub(super) unusable: Option<Unusable>,
    /// The first line that makes Apache refuse everything (500), or that is not understood and may
    /// refuse something.
    pub(super) fault: Option<u32>,
    /// What is not applied exactly.
    pub(super) notes: Vec<Note>,
    /// The lines that close or hide something, to be quoted when they do.
    pub(super) quotes: Vec<(u32, String)>,
    /// Nothing here is about access: the usual file.
    pub(super) is_harmless: bool,
}

/// Why a file could not be read. Apache answers 403 below such a file; so is it here, in the root as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// The server's user may not, a link leads nowhere good, the disk fails.
    Unreadable,
    /// A directory, a pipe, a device.
    NotAFile,
    /// Longer than what is read.
    TooLong,
    /// Its patterns are longer than [`HEAVIEST`] together.
    TooHeavy,
}

/// All patterns of a file, each with its repetitions written out. They are compiled when they are first
/// asked, while others wait: thousands of the usual ones fit, and take less than half a second.
pub(super) const HEAVIEST: usize = 512 << 10;
/// What each pattern counts more.
const EACH: usize = 32;

impl Parsed {
    /// Of a file that could not be read.
    pub(super) fn unusable(why: Unusable) -> Parsed {
        let text = match why {
            Unusable::Unreadable => "(it cannot be read)",
            Unusable::NotAFile => "(it is no regular file)",
            Unusable::TooLong => "(it is longer than 1 MiB)",
            Unusable::TooHeavy => "(its patterns are longer than 512 KiB together)",
        };
        Parsed {
            unusable: Some(why),
            notes: vec![Note {
                line: 0,
                text: text.to_owned(),
                why: Why::Unusable,
            }],
            quotes: vec![(0, text.to_owned())],
            ..Parsed::default()
        }
    }

    /// The line is what makes the file one that cannot be obeyed.
    pub fn is_fault(&self, line: u32) -> bool {
        self.unusable.is_some() || self.fault == Some(line)
    }

    /// Everything in it that is about access is understood.
    pub fn is_understood(&self) -> bool {
        self.fault.is_none() && self.unusable.is_none()
    }

    /// Nothing in it is about access.
    pub fn is_harmless(&self) -> bool {
        self.is_harmless && self.is_understood()
    }

    /// What is not applied exactly.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The text of a line that decides.
    pub(super) fn quote(&self, line: u32) -> &str {
        let found = self.quotes.iter().find(|(number, _)| *number == line);
        found.map_or("", |(_, text)| text)
    }
}

/// A line that restricts something and is not applied exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its number; 0 for the file as a whole.
    pub line: u32,
    /// The line itself.
    pub text: String,
    /// Why it is not applied exactly.
    pub why: Why,
}

/// Why a line is not applied exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It depends on who asks: address, password, environment.
    Visitor,
    /// Its meaning is not known here.
    NotUnderstood,
    /// Apache refuses the file for it.
    Mistake,
    /// The whole file cannot be read.
    Unusable,
}

/// The lines of a directory, of a `<Files>` or of an `<If>` section.
#[derive(Debug, Default)]
pub(super) struct Section {
    /// Which files it is for; all of the directory's without.
    pub names: Option<Names>,
    /// It is an `<If>` whose condition is understood.
    pub condition: Option<Condition>,
    /// It stands in a section that may or may not be for the request.
    pub maybe: bool,
    pub require: Option<(u32, Require)>,
    pub merging: Merging,
    pub lists: Option<(u32, Lists)>,
    /// Lines that refuse some visitors by other means (`SSLRequireSSL`).
    pub demand: Option<u32>,
    /// Lines about access in a section that may or may not be for the request.
    pub maybe_access: Option<u32>,
    pub variables: Vec<SetEnvIf>,
    pub redirects: Vec<Redirect>,
    pub handlers: Vec<HandlerLine>,
    pub engine: Option<bool>,
    pub has_rewrite: bool,
    pub inherits: Option<Inherits>,
    pub rules: Vec<RewriteRule>,
    /// `FallbackResource`: looked at for a front controller only.
    pub fallback: Option<String>,
}

/// `AuthMerging`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Merging {
    /// As `Off`, for a section with `Require` lines.
    #[default]
    Unset,
    /// In a section without `Require` lines: none of those above are in effect.
    Off,
    And,
    Or,
}

/// `RewriteOptions`: whose rules a directory has beside its own. As in Apache the lines of a file add up, and
/// a directory without any has its parent's options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Inherits(u8);

/// Where the parent's rules stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parents {
    Behind,
    Before,
}

impl Inherits {
    const BEHIND: u8 = 1;
    const BEFORE: u8 = 2;
    /// The same two for the directories below, by so many bits to the left.
    const DOWN: u8 = 2;
    const IGNORED: u8 = 16;

    /// One more option, in lower case. Others than these say nothing here.
    pub(super) fn add(&mut self, option: &str) {
        self.0 |= match option {
            "inherit" => Inherits::BEHIND,
            "inheritbefore" => Inherits::BEFORE,
            "inheritdown" => Inherits::BEHIND << Inherits::DOWN,
            "inheritdownbefore" => Inherits::BEFORE << Inherits::DOWN,
            "ignoreinherit" => Inherits::IGNORED,
            _ => 0,
        };
    }

    /// Whether a directory below one with the options `parent` has its rules, too.
    pub(super) fn from(self, parent: Inherits) -> Option<Parents> {
        let by_parent = match self.0 & Inherits::IGNORED {
            0 => parent.0 >> Inherits::DOWN,
            _ => 0,
        };
        match self.0 | by_parent {
            all if all & Inherits::BEHIND != 0 => Some(Parents::Behind),
            all if all & Inherits::BEFORE != 0 => Some(Parents::Before),
            _ => None,
        }
    }
}

/// The names a `<Files>` section is for.
#[derive(Debug)]
pub(super) enum Names {
    Shell(String),
    Expression(Regex),
    /// Not understood: it may be for any.
    Any,
}

impl Names {
    pub(super) fn are(&self, name: &[u8]) -> Result<bool, LimitReached> {
        match self {
            Names::Shell(pattern) => Ok(fnmatch(pattern.as_bytes(), name)),
            Names::Expression(regex) => regex.is_match(name),
            Names::Any => Ok(true),
        }
    }
}

/// `Redirect` or `RedirectMatch` with a status of 400 or above.
#[derive(Debug)]
pub(super) struct Redirect {
    pub line: u32,
    pub status: u16,
    pub path: RedirectPath,
    pub maybe: bool,
}

#[derive(Debug)]
pub(super) enum RedirectPath {
    /// The path and what is below it.
    Below(String),
    Matches(Regex),
}

/// A line about how a file is handled.
#[derive(Debug)]
pub(super) struct HandlerLine {
    pub line: u32,
    pub says: HandlerSays,
    pub maybe: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum HandlerSays {
    /// `php_flag engine`
    Engine(bool),
    /// `SetHandler`, `ForceType`: is it PHP?
    All(bool),
    /// `AddHandler`, `AddType`, `RemoveHandler`, `RemoveType` for names with such a dot-less
    /// extension.
    Extensions(bool, Vec<String>),
}

impl Section {
    pub(super) fn lists(&mut self, line: u32) -> &mut Lists {
        &mut self.lists.get_or_insert_with(|| (line, Lists::default())).1
    }

    /// What its patterns weigh (see [`HEAVIEST`]), without those that are never compiled.
    pub(super) fn weight(&self) -> usize {
        let names = self.names.iter().map(|names| match names {
            Names::Shell(pattern) => pattern.len(),
            Names::Expression(regex) => regex.weight(),
            Names::Any => 0,
        });
        let variables = self.variables.iter().map(|set| set.expression.weight());
        let redirects = self
            .redirects
            .iter()
            .filter_map(|redirect| match &redirect.path {
                RedirectPath::Below(_) => None,
                RedirectPath::Matches(regex) => Some(regex.weight()),
            });
        let asked = self.rules.iter().filter(|rule| !rule.is_passed_over());
        let rules = asked.clone().map(|rule| rule.pattern.weight());
        let conditions = asked.flat_map(|rule| &rule.conditions);
        let all = names
            .chain(variables)
            .chain(redirects)
            .chain(rules)
            .chain(conditions.chain(&self.condition).map(Condition::weight));
        all.fold(0, |sum, weight| {
            sum.saturating_add(weight).saturating_add(EACH)
        })
    }

    /// Nothing here is about access.
    pub(super) fn is_harmless(&self) -> bool {
        self.require.is_none()
            && self.merging == Merging::Unset
            && self.lists.is_none()
            && self.demand.is_none()
            && self.maybe_access.is_none()
            && self.redirects.is_empty()
            && self.handlers.is_empty()
            && self.variables.is_empty()
            && !self.has_rewrite
    }
}

/// `Require` lines are collected in the containers they stand in.
#[derive(Debug)]
pub(super) struct Container {
    pub line: u32,
    pub is_all: bool,
    pub negated: bool,
    pub methods: Methods,
    pub inside: Vec<Require>,
    /// How many sections it stands in that may or may not be for the request.
    pub maybe: usize,
    /// Something is required in it, if only in a section that may not be for the request.
    pub is_used: bool,
}
