//! The directives of a configuration file with their lines, common to all formats.

use std::fmt;
use std::sync::Arc;

use crate::ledger::EntryId;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceLine {
    /// The name of the file, as the configuration or the command line gives it.
    pub file: Arc<str>,
    /// The line number, from 1.
    pub line: usize,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A directive with its arguments and, if it is a block, the directives in it.
#[derive(Clone, Debug)]
pub struct Directive {
    /// The directive's name; names of Apache's directives are in lower case.
    pub name: String,
    /// The arguments, without quotes.
    pub args: Vec<String>,
    /// The directives in the block, if it is a block.
    pub block: Option<Vec<Directive>>,
    /// File and line of the name.
    pub place: SourceLine,
    /// The directive's entry in the ledger.
    pub id: EntryId,
}

impl Directive {
    /// Returns an argument, or an empty string if there are fewer arguments.
    pub fn arg(&self, number: usize) -> &str {
        self.args.get(number).map_or("", String::as_str)
    }

    /// Returns the directives in the block, or an empty slice if the directive is not a block.
    pub fn inner(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }

    /// Visits the directive and, recursively, all directives in it.
    pub fn walk<'d>(&'d self, visit: &mut dyn FnMut(&'d Directive)) {
        visit(self);
        for inner in self.inner() {
            inner.walk(visit);
        }
    }

    /// Returns the last directive of that name directly in this block.
    pub fn last(&self, name: &str) -> Option<&Directive> {
        self.inner().iter().rev().find(|d| d.name == name)
    }
}

/// The maximum length in characters of a directive's text in the list.
const MAX_SHOWN_CHARS: usize = 120;

/// Formats name and arguments for the list, shortened to a maximum length.
pub fn display_text(name: &str, args: &[String], is_block: bool) -> String {
    let mut text = name.to_owned();
    for arg in args {
        text.push(' ');
        match arg.is_empty() || arg.contains([' ', '\t', '\n']) {
            true => text += &format!("\"{}\"", arg.escape_debug()),
            false => text.extend(arg.chars().filter(|c| !c.is_control())),
        }
    }
    if let Some((cut, _)) = text.char_indices().nth(MAX_SHOWN_CHARS) {
        text.truncate(cut);
        text.push('…');
    }
    if is_block {
        text += " { … }";
    }
    text
}
