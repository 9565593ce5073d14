//! A file's text into [`Parsed`]: sections with their nesting, and what each line about access says.
//! Lines about anything else are passed over. Pure.
//!
//! What is not understood never opens anything: a directive that Apache 2.4 does not know, a section
//! left open, an expression that does not compile is a [fault](Parsed::fault), which closes a
//! directory below the site's root, as Apache does with its 500.

mod directives;

use super::access::{Methods, Require, Required};
use super::lines::{Line, lines, word, words};
use super::modules::{if_define, if_module, if_version};
use super::pattern::Regex;
use super::rewrite::Condition;
use super::rewrite_lines;
use super::section::{Container, HEAVIEST, Names, Note, Parsed, Section, Unusable, Why};

/// Longer files are not read: it takes a few milliseconds of a thread that serves others.
pub(super) const LONGEST: u64 = 1 << 20;

/// Reads a file as it is on the disk.
pub fn parse_bytes(bytes: &[u8]) -> Parsed {
    match bytes.len() as u64 > LONGEST {
        true => Parsed::unusable(Unusable::TooLong),
        false => parse(&String::from_utf8_lossy(bytes)),
    }
}

/// Reads a file's text.
pub(super) fn parse(text: &str) -> Parsed {
    let (lines, marked) = lines(text);
    let mut parser = Parser {
        parsed: Parsed {
            sections: vec![Section::default()],
            ..Parsed::default()
        },
        ..Parser::default()
    };
    if marked {
        let first = Line {
            number: 1,
            text: "(a byte-order mark)".into(),
        };
        parser.note(&first, Why::Mistake);
    }
    for line in &lines {
        parser.line(line);
    }
    if let Some(open) = parser.open.last() {
        let line = Line {
            number: open.line,
            text: format!("<{}> is never closed", open.name).into(),
        };
        parser.note(&line, Why::Mistake);
        while parser.open.pop().is_some() {}
    }
    while let Some(container) = parser.containers.pop() {
        parser.close_container(container);
    }
    let mut parsed = parser.parsed;
    let weights = parsed.sections.iter().map(Section::weight);
    if weights.fold(0, usize::saturating_add) > HEAVIEST {
        return Parsed::unusable(Unusable::TooHeavy);
    }
    parsed.is_harmless = parsed.fault.is_none() && parsed.sections.iter().all(Section::is_harmless);
    parsed
}

#[derive(Default)]
struct Parser {
    parsed: Parsed,
    open: Vec<OpenSection>,
    /// `<RequireAll>` and its kind, innermost last.
    containers: Vec<Container>,
    /// Number of the section that lines belong to.
    section: usize,
    /// How many sections are open that may or may not be for the request.
    maybe: usize,
    /// How many are open that are not.
    skipped: usize,
    methods: Methods,
    /// The line before denied addresses.
    after_ban: bool,
    /// There was an `<If>` in the section that is open.
    after_if: bool,
    /// `RewriteCond` lines that wait for their rule.
    conditions: Vec<Condition>,
}

/// `Deny from` addresses.
fn is_ban(text: &str) -> bool {
    const START: &[u8] = b"deny from ";
    let bytes = text.as_bytes();
    bytes.len() > START.len()
        && bytes[..START.len()].eq_ignore_ascii_case(START)
        && bytes[START.len()..]
            .split(u8::is_ascii_whitespace)
            .all(|word| word.first().is_some_and(u8::is_ascii_digit))
}

struct OpenSection {
    line: u32,
    /// Lower case, without bracket.
    name: String,
    kind: OpenKind,
    /// There was an `<If>` before it.
    after_if: bool,
}

enum OpenKind {
    /// It holds, and changes nothing.
    Plain,
    Skipped,
    Maybe,
    /// The section that was before.
    Section(usize),
    /// The methods that were before.
    Limit(Methods),
    Container,
}

impl Parser {
    fn line(&mut self, line: &Line<'_>) {
        let text = &*line.text;
        if text.contains('\u{fffd}') && self.skipped == 0 {
            // Not UTF-8: an expression would not be the one that was written.
            self.note(line, Why::NotUnderstood);
        }
        // Ban lists have tens of thousands of lines, and the second says no more than the first.
        let is_ban = is_ban(text);
        if std::mem::replace(&mut self.after_ban, is_ban) && is_ban {
            return;
        }
        if let Some(closed) = text.strip_prefix("</") {
            return self.close(line, closed);
        }
        if let Some(section) = text.strip_prefix('<') {
            return self.open(line, section);
        }
        if self.skipped > 0 {
            return;
        }
        let (name, rest) = word(text);
        let name = name.to_ascii_lowercase();
        if self.directive(line, &name, rest).is_none() {
            self.note(line, Why::Mistake);
        }
    }

    fn note(&mut self, line: &Line<'_>, why: Why) {
        let last = self.parsed.notes.last();
        if last.is_some_and(|last| last.line == line.number && last.why == why) {
            return;
        }
        if why != Why::Visitor {
            self.parsed.fault.get_or_insert(line.number);
        }
        self.quote(line);
        self.parsed.notes.push(Note {
            line: line.number,
            text: line.text.to_string(),
            why,
        });
    }

    fn mistake(&mut self, number: u32, what: &str) {
        let text = what.into();
        self.note(&Line { number, text }, Why::Mistake);
    }

    fn quote(&mut self, line: &Line<'_>) {
        if self
            .parsed
            .quotes
            .last()
            .is_none_or(|(n, _)| *n != line.number)
        {
            let quote = (line.number, line.text.to_string());
            self.parsed.quotes.push(quote);
        }
    }

    fn here(&mut self) -> &mut Section {
        &mut self.parsed.sections[self.section]
    }

    fn open(&mut self, line: &Line<'_>, text: &str) {
        let Some(text) = text.strip_suffix('>') else {
            return self.note(line, Why::Mistake);
        };
        let (name, rest) = word(text);
        let name = name.to_ascii_lowercase();
        let kind = match self.skipped {
            0 => self.kind(line, &name, rest),
            _ => OpenKind::Skipped,
        };
        match kind {
            OpenKind::Skipped => self.skipped += 1,
            OpenKind::Maybe => self.maybe += 1,
            _ => {}
        }
        self.open.push(OpenSection {
            line: line.number,
            name,
            kind,
            after_if: std::mem::take(&mut self.after_if),
        });
    }

    fn kind(&mut self, line: &Line<'_>, name: &str, rest: &str) -> OpenKind {
        let if_true = |holds| match holds {
            true => OpenKind::Plain,
            false => OpenKind::Skipped,
        };
        let argument = rest.trim_ascii();
        match name {
            "ifmodule" => if_true(if_module(&word(argument).0)),
            "ifdefine" => if_true(if_define(&word(argument).0)),
            "ifversion" => match if_version(&words(argument)) {
                Some(holds) => if_true(holds),
                None => OpenKind::Maybe,
            },
            // Apache refuses them inside of `<Limit>`. What they would mean inside of a container of
            // `Require` lines is not known here.
            "files" | "filesmatch" | "if"
                if self.methods != Methods::ALL || !self.containers.is_empty() =>
            {
                self.note(line, Why::Mistake);
                OpenKind::Maybe
            }
            "else" | "elseif" if !self.after_if => {
                self.note(line, Why::Mistake);
                OpenKind::Maybe
            }
            "if" if self.section == 0 && self.maybe == 0 => {
                match rewrite_lines::simple_expression(&word(argument).0) {
                    Some(condition) => self.section(Section {
                        condition: Some(condition),
                        ..Section::default()
                    }),
                    None => OpenKind::Maybe,
                }
            }
            // Asked of the visitor's request, or of the server's machine.
            "if" | "elseif" | "else" | "iffile" | "ifdirective" | "ifsection" => OpenKind::Maybe,
            "files" | "filesmatch" => self.files(line, name == "filesmatch", argument),
            "limit" | "limitexcept" => {
                let except = name == "limitexcept";
                let (methods, known) = Methods::named(&words(argument), except);
                let traces = !except && methods.cover(b"TRACE");
                if !known || traces || self.methods != Methods::ALL {
                    self.note(line, Why::Mistake);
                }
                OpenKind::Limit(std::mem::replace(&mut self.methods, methods))
            }
            "requireall" | "requireany" | "requirenone" => {
                if self.maybe > 0 {
                    self.here().maybe_access.get_or_insert(line.number);
                }
                let container = Container {
                    line: line.number,
                    is_all: name == "requireall",
                    negated: name == "requirenone",
                    methods: self.methods,
                    inside: Vec::new(),
                    maybe: self.maybe,
                    is_used: false,
                };
                self.containers.push(container);
                OpenKind::Container
            }
            _ => {
                self.note(line, Why::NotUnderstood);
                OpenKind::Maybe
            }
        }
    }

    fn files(&mut self, line: &Line<'_>, expression: bool, argument: &str) -> OpenKind {
        if self.here().condition.is_some() {
            return OpenKind::Maybe;
        }
        if self.section != 0 {
            self.note(line, Why::Mistake);
        }
        let (mut name, rest) = word(argument);
        let expression = match (expression, &*name) {
            (false, "~") => {
                name = word(rest).0;
                true
            }
            (expression, _) => expression,
        };
        let names = match expression {
            false => Names::Shell(name),
            true => match Regex::new(&name, false) {
                Some(regex) => Names::Expression(regex),
                None => {
                    self.note(line, Why::Mistake);
                    Names::Any
                }
            },
        };
        self.section(Section {
            names: Some(names),
            maybe: self.maybe > 0,
            ..Section::default()
        })
    }

    /// Lines go there from now on.
    fn section(&mut self, section: Section) -> OpenKind {
        let before = self.section;
        self.section = self.parsed.sections.len();
        self.parsed.sections.push(section);
        OpenKind::Section(before)
    }

    fn close(&mut self, line: &Line<'_>, text: &str) {
        let name = text.trim_end_matches('>').trim_ascii().to_ascii_lowercase();
        if self.open.last().is_none_or(|open| open.name != name) {
            return self.note(line, Why::Mistake);
        }
        let Some(open) = self.open.pop() else { return };
        self.after_if = open.after_if || matches!(&*open.name, "if" | "elseif");
        match open.kind {
            OpenKind::Plain => {}
            OpenKind::Skipped => self.skipped -= 1,
            OpenKind::Maybe => self.maybe -= 1,
            OpenKind::Section(before) => self.section = before,
            OpenKind::Limit(before) => self.methods = before,
            OpenKind::Container => {
                if let Some(container) = self.containers.pop() {
                    self.close_container(container);
                }
            }
        }
    }

    fn close_container(&mut self, container: Container) {
        if !container.is_used {
            self.mistake(container.line, "(nothing is required in it)");
        }
        let what = match container.is_all {
            true => Required::Each(container.inside),
            false => Required::Any(container.inside),
        };
        self.require(
            container.line,
            Require {
                methods: container.methods,
                negated: container.negated,
                what,
            },
        );
    }

    fn require(&mut self, line: u32, require: Require) {
        if require.negated && self.containers.last().is_none_or(|outer| !outer.is_all) {
            self.mistake(line, "(negated, it has no effect outside of <RequireAll>)");
        }
        if let Some(container) = self.containers.last_mut() {
            container.is_used = true;
            if self.maybe == container.maybe {
                container.inside.push(require);
            }
            return;
        }
        // A line that may be in effect and may not is accounted for by `maybe_access` alone.
        if self.maybe > 0 && !self.here().maybe {
            return;
        }
        let nothing = || {
            let what = Required::Any(Vec::new());
            let require = Require {
                methods: Methods::ALL,
                negated: false,
                what,
            };
            (line, require)
        };
        let (_, all) = self.here().require.get_or_insert_with(nothing);
        if let Required::Any(list) = &mut all.what {
            // A line alone is for its methods; where there are several, each says its own.
            all.methods = match list.is_empty() {
                true => require.methods,
                false => Methods::ALL,
            };
            list.push(require);
        }
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
