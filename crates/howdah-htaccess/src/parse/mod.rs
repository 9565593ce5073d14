//! Parses a file into [`HtFile`]: tracks the nesting of sections, and adds each directive to the settings of the scope
//! that it is in.
//!
//! As in Apache, an error anywhere makes the whole file erroneous, even in a section that applies to no request: every
//! request below the file's directory gets status 500.

mod access;
mod core;
mod headers;
mod mime;
mod sections;

use std::sync::Arc;

use crate::config::{Config, Require};
use crate::directives::{self, HtaccessRole};
use crate::limits::Methods;
use crate::lines::{Line, lines, word, words};
use crate::pattern;
use crate::rules::{Rule, Test};
use crate::table::Table;
use crate::text::{absolute_uri, printable};

/// The maximum size of a file in bytes. Parsing a longer one would block a thread that serves other requests for too
/// long.
pub const MAX_FILE_BYTES: u64 = 1 << 20;
/// The maximum total weight of a file's patterns. The patterns of real files weigh less than this.
const MAX_PATTERN_WEIGHT: usize = 1 << 20;
/// The maximum nesting depth of sections. Deeper nesting is an error.
const MAX_SECTION_DEPTH: usize = 64;

/// A parsed `.htaccess` file.
#[derive(Clone, Debug, Default)]
pub struct HtFile {
    /// The settings of the file.
    pub(crate) config: Arc<Config>,
    /// Why no request below the file's directory is served.
    pub problem: Option<Problem>,
    /// Directives that have no effect here.
    pub notes: Vec<Note>,
    /// The password and group files that its directives name, as they are written.
    pub password_files: Vec<String>,
}

/// Why a file blocks everything below its directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Apache reports an error in this line: status 500.
    Mistake(Note),
    /// The file is too long: status 500.
    TooLong,
    /// The file exists but cannot be read: status 403.
    Unreadable,
    /// A directory or another non-regular file has its name: status 403.
    NotAFile,
}

/// A line and a remark about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The line's number, counted from 1.
    pub line: u32,
    /// The text of the line.
    pub text: Box<str>,
    /// The error, or why the directive has no effect.
    pub why: &'static str,
    /// Whether the directive was meant to deny access.
    pub refuses: bool,
}

impl HtFile {
    /// Returns true if the file itself selects the script for paths without a file, by rules or by `FallbackResource`.
    pub fn routes(&self) -> bool {
        let rewrite = self.config.rewrite.as_ref();
        let dir = self.config.dir.as_ref();
        rewrite.is_some_and(|rewrite| rewrite.engine == Some(true) && !rewrite.rules.is_empty())
            || dir.is_some_and(|dir| dir.fallback.is_some())
    }

    /// Returns true if the file routes requests or changes responses. Other files at most refuse requests, or have
    /// settings that matter only together with these.
    pub fn does_more_than_refuse(&self) -> bool {
        self.config.does_more_than_refuse()
    }

    /// Returns the rules outside of sections, in order.
    pub fn rewrite_rules(&self) -> impl Iterator<Item = RuleView<'_>> {
        let rewrite = self.config.rewrite.as_ref();
        let rules = rewrite.into_iter().flat_map(|rewrite| &rewrite.rules);
        rules.map(|rule| RuleView(rule))
    }

    /// Returns the script of `FallbackResource`.
    pub fn fallback(&self) -> Option<&str> {
        let dir = self.config.dir.as_ref()?;
        let name = dir.fallback.as_deref()?;
        (!name.eq_ignore_ascii_case("disabled")).then_some(name)
    }

    /// Returns the value for a file that could not be read or parsed.
    pub fn unusable(problem: Problem) -> HtFile {
        HtFile {
            problem: Some(problem),
            ..HtFile::default()
        }
    }
}

/// A view of a `RewriteRule` with the properties that show which script is an application's front controller.
#[derive(Clone, Copy, Debug)]
pub struct RuleView<'f>(&'f Rule);

/// A view of a `RewriteCond` for the same purpose.
#[derive(Clone, Copy, Debug)]
pub struct ConditionView<'f> {
    /// The text that is tested.
    pub input: &'f [u8],
    /// Whether the test checks for a regular file (`-f`).
    pub is_file_test: bool,
    /// Whether the test begins with `!`.
    pub negated: bool,
}

impl<'f> RuleView<'f> {
    /// Returns the rule's pattern, unless it is negated or needs PCRE2.
    pub fn pattern(self) -> Option<&'f str> {
        self.0.regex.text().filter(|_| !self.0.flags.negated)
    }

    /// Returns the substitution if it is a path and the rule neither redirects nor refuses; an empty one for `-`.
    pub fn internal_target(self) -> Option<&'f [u8]> {
        let flags = &self.0.flags;
        let moves = flags.redirect || flags.status || flags.proxy;
        let absolute = absolute_uri(&self.0.output).0 > 0;
        match flags.no_sub {
            true if !flags.status => Some(b""),
            _ if moves || absolute => None,
            _ => Some(&self.0.output),
        }
    }

    /// Returns the rule's conditions, in order.
    pub fn conditions(self) -> impl Iterator<Item = ConditionView<'f>> {
        self.0.conditions.iter().map(|cond| ConditionView {
            input: &cond.input,
            is_file_test: matches!(*cond.test, Test::File(b'f')),
            negated: cond.negated,
        })
    }
}

impl Problem {
    /// Formats the problem as `/dir/.htaccess:3: TEXT: WHY`.
    pub(crate) fn describe(&self, directory: &[u8]) -> Arc<str> {
        let file = format!("{}.htaccess", String::from_utf8_lossy(directory));
        match self {
            Problem::Mistake(note) => {
                format!(
                    "{file}:{}: `{}`: {}",
                    note.line,
                    printable(&note.text),
                    note.why
                )
            }
            Problem::TooLong => format!("{file} is too long"),
            Problem::Unreadable => format!("{file} cannot be read"),
            Problem::NotAFile => format!("{file} is not a regular file"),
        }
        .into()
    }
}

/// Parses a file's content. `directory` is the file name of its directory, with a trailing slash; `env` is the server's
/// environment, for `PassEnv`.
pub fn parse(bytes: &[u8], directory: &[u8], env: &Table) -> HtFile {
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return HtFile::unusable(Problem::TooLong);
    }
    let text = String::from_utf8_lossy(bytes);
    let (lines, marked) = lines(&text);
    pattern::start_weighing();
    let mut parser = FileParser {
        scopes: vec![Scope::new(directory)],
        open: Vec::new(),
        skipped: 0,
        methods: Methods::ALL,
        containers: Vec::new(),
        file: HtFile::default(),
        env,
        directory: String::from_utf8_lossy(directory).into_owned(),
    };
    let mut result = match marked {
        true => Err("a byte-order mark precedes the first directive"),
        false => Ok(()),
    };
    let first = Line {
        number: 1,
        text: "".into(),
    };
    let mut at = &first;
    for line in &lines {
        if result.is_err() {
            break;
        }
        at = line;
        result = parser.line(line);
        if result.is_ok() && pattern::weight() > MAX_PATTERN_WEIGHT {
            result = Err(
                "the patterns up to this line are too long once their repetitions are expanded",
            );
        }
    }
    if let (Ok(()), Some(open)) = (result, parser.open.last()) {
        result = Err("a section is never closed");
        if let Some(line) = lines.iter().find(|line| line.number == open.line) {
            at = line;
        }
    }
    if let Err(why) = result {
        let note = note(at, why);
        return HtFile {
            notes: parser.file.notes,
            ..HtFile::unusable(Problem::Mistake(note))
        };
    }
    let mut file = parser.file;
    if let Some(scope) = parser.scopes.pop() {
        file.config = Arc::new(scope.config);
    }
    file
}

fn note(line: &Line<'_>, why: &'static str) -> Note {
    let text: String = line.text.chars().take(200).collect();
    Note {
        line: line.number,
        text: text.into(),
        why,
        refuses: false,
    }
}

/// The error is the reason for which Apache would refuse the line.
type Parsed = Result<(), &'static str>;

/// The scope whose settings the directives change.
struct Scope {
    config: Config,
    /// The directory as mod_rewrite sees it.
    directory: Arc<[u8]>,
    /// Whether `<Else>` may follow.
    after_if: bool,
}

impl Scope {
    fn new(directory: &[u8]) -> Scope {
        Scope {
            config: Config::default(),
            directory: directory.into(),
            after_if: false,
        }
    }
}

struct OpenSection {
    line: u32,
    /// The name in lower case, without the bracket.
    name: String,
    kind: sections::SectionKind,
}

/// A `<RequireAll>` or similar section.
struct RequireContainer {
    all: bool,
    negated: bool,
    methods: Methods,
    inside: Vec<Arc<Require>>,
}

struct FileParser<'e> {
    scopes: Vec<Scope>,
    open: Vec<OpenSection>,
    /// The number of open sections that do not apply to this server.
    skipped: usize,
    methods: Methods,
    /// The open containers, innermost last.
    containers: Vec<RequireContainer>,
    file: HtFile,
    env: &'e Table,
    /// The directory of the file, for messages.
    directory: String,
}

impl FileParser<'_> {
    fn line(&mut self, line: &Line<'_>) -> Parsed {
        let text = &*line.text;
        if let Some(closed) = text.strip_prefix("</") {
            return self.close(closed);
        }
        if let Some(section) = text.strip_prefix('<') {
            return self.open(line, section);
        }
        if self.skipped > 0 {
            return Ok(());
        }
        let (name, rest) = word(text);
        let name = name.to_ascii_lowercase();
        if !self.containers.is_empty() && !directives::of_authorization(&name) {
            return Err("the directive is not allowed here");
        }
        self.directive(line, &name, rest)
    }

    fn directive(&mut self, line: &Line<'_>, name: &str, rest: &str) -> Parsed {
        let all = words(rest);
        let known = self
            .core_directive(line, name, rest, &all)
            .or_else(|| self.access_directive(line, name, rest, &all))
            .or_else(|| self.header_directive(line, name, rest, &all))
            .or_else(|| self.mime_directive(line, name, &all));
        if let Some(parsed) = known {
            return parsed;
        }
        match directives::htaccess_role(name) {
            HtaccessRole::WithoutEffect => Ok(()),
            HtaccessRole::Unsupported => {
                let note = note(line, "is not supported and has no effect");
                let refuses = directives::of_authorization(name) || name.starts_with("ssl");
                self.file.notes.push(Note { refuses, ..note });
                Ok(())
            }
            HtaccessRole::ServerOnly => Err("the directive is not allowed in an .htaccess file"),
            HtaccessRole::Implemented | HtaccessRole::Unknown => {
                Err("Apache has no such directive")
            }
        }
    }

    fn settings(&mut self) -> &mut Config {
        // The file's own scope exists until the end.
        let last = self.scopes.len() - 1;
        &mut self.scopes[last].config
    }

    /// Returns the line with the file's name, for messages.
    fn origin(&self, line: &Line<'_>) -> Arc<str> {
        let text: String = line.text.chars().take(120).collect();
        let text = printable(&text);
        format!("{}.htaccess:{}: {text}", self.directory, line.number).into()
    }
}

/// Returns the only argument.
fn one_argument(all: &[String]) -> Result<&str, &'static str> {
    match all {
        [one_argument] => Ok(one_argument),
        _ => Err("the directive takes one argument"),
    }
}

fn two_arguments(all: &[String]) -> Result<(&str, &str), &'static str> {
    match all {
        [one_argument, two_arguments] => Ok((one_argument, two_arguments)),
        _ => Err("the directive takes two arguments"),
    }
}

/// Parses `On` or `Off`.
fn on_or_off(all: &[String]) -> Result<bool, &'static str> {
    match all {
        [one_argument] if one_argument.eq_ignore_ascii_case("on") => Ok(true),
        [one_argument] if one_argument.eq_ignore_ascii_case("off") => Ok(false),
        _ => Err("the directive takes On or Off"),
    }
}

/// Checks the minimum number of arguments.
fn require_arguments(count: usize, all: &[String]) -> Parsed {
    match all.len() >= count {
        true => Ok(()),
        false => Err("the directive has too few arguments"),
    }
}

#[cfg(test)]
mod tests;
