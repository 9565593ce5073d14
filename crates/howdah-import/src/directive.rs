//! What a configuration file says, line by line, whichever program it is for.

use std::fmt;
use std::sync::Arc;

use crate::ledger::EntryId;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceLine {
    /// The file, as it was named.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: usize,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A directive with its arguments and, if it is a block, those within.
#[derive(Clone, Debug)]
pub struct Directive {
    /// Its name; Apache's in lower case.
    pub name: String,
    /// Its arguments, without quotes.
    pub args: Vec<String>,
    /// The directives within, if it is a block.
    pub block: Option<Vec<Directive>>,
    /// File and line of its name.
    pub place: SourceLine,
    /// Its entry in the ledger.
    pub id: EntryId,
}

impl Directive {
    /// An argument; empty if there are fewer.
    pub fn arg(&self, number: usize) -> &str {
        self.args.get(number).map_or("", String::as_str)
    }

    /// The directives within.
    pub fn inner(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }

    /// It and all within it.
    pub fn walk<'d>(&'d self, visit: &mut dyn FnMut(&'d Directive)) {
        visit(self);
        for inner in self.inner() {
            inner.walk(visit);
        }
    }

    /// The last directive of that name directly within.
    pub fn last(&self, name: &str) -> Option<&Directive> {
        self.inner().iter().rev().find(|d| d.name == name)
    }
}

/// Longest text of a directive in the list.
const MAX_SHOWN_CHARS: usize = 120;

/// Name and arguments as they are shown, of bounded length.
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

/// A path as a shell takes it.
pub fn shell_quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@:".contains(c);
    match path.chars().all(plain) {
        true => path.to_owned(),
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}
