//! Classifies SQL statements: does this one write, and to which table? It tokenizes the text and looks at
//! keywords; it has no grammar. A statement that is not known to read counts as a write, a text that cannot
//! be tokenized counts as a write to any table, and a table or a value is reported only when it is certain.
//!
//! The text of a statement does not show triggers, cascading foreign keys, or functions that a `SELECT`
//! calls (except in PostgreSQL, where they are checked). docs/cache.md lists what that means for the cache.
//!
//! - [`token`]: splits a text into tokens by each database's quoting rules.
//! - [`statement`]: classifies one statement.
//! - [`functions`]: PostgreSQL's functions that only read.

#![forbid(unsafe_code)]

mod functions;
mod statement;
mod token;

#[cfg(test)]
mod tests;

pub use functions::CALLED;

/// Longest table name reported, in bytes; a longer one is reported as any table.
pub const MAX_NAME: usize = 128;
/// Longest value reported, in bytes; the values of a column with a longer one are left out.
pub const MAX_VALUE: usize = 200;
/// Most bytes of names and values reported of one statement; columns beyond it are left out.
pub const MAX_REPORTED: usize = 1024;

/// The database whose quoting a statement uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Dialect {
    /// MySQL and MariaDB: backslashes escape, `#` comments, backquotes.
    Mysql = 0,
    /// SQLite: no backslashes; `[name]`.
    Sqlite = 1,
    /// PostgreSQL: no backslashes but in `E''`, `$tag$` quoting, nested comments.
    Postgres = 2,
    /// Any other database, read as standard SQL.
    Other = 3,
}

impl Dialect {
    /// By its number; an unknown one is [`Dialect::Other`].
    pub fn from_number(number: u32) -> Dialect {
        match number {
            0 => Dialect::Mysql,
            1 => Dialect::Sqlite,
            2 => Dialect::Postgres,
            _ => Dialect::Other,
        }
    }
}

/// What a statement does to what others read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum StatementKind {
    /// It changes nothing that others read.
    Read = 0,
    /// It changes nothing by itself, but may make visible what was written before: `COMMIT` and the
    /// like, and whatever commits implicitly (`BEGIN`, `LOCK TABLES`).
    Control = 1,
    /// It writes, or may write.
    Write = 2,
}

/// A statement, or several in one text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict<'a> {
    /// Whether the text reads or writes.
    pub kind: StatementKind,
    /// Of a write: its first word in capitals, at most 16 bytes; `MULTI` for several, `UNREADABLE`
    /// for a text that ends inside a quote, empty otherwise.
    pub verb: String,
    /// Of a write: the table, without schema and quotes; none: any.
    pub table: Option<&'a [u8]>,
    /// Values that every row written has, or is chosen by, as columns and literals: of an `INSERT`
    /// its rows, of `UPDATE` and `DELETE` the conditions that all must hold. All values of a column
    /// are here, or none. Of a statement that writes only if the functions it calls do, these, as values
    /// of [`CALLED`].
    pub values: Vec<(&'a [u8], &'a [u8])>,
}

impl Verdict<'_> {
    fn no_write(kind: StatementKind) -> Verdict<'static> {
        Verdict {
            kind,
            verb: String::new(),
            table: None,
            values: Vec::new(),
        }
    }

    fn any_table(verb: &str) -> Verdict<'static> {
        Verdict {
            kind: StatementKind::Write,
            verb: verb.to_owned(),
            table: None,
            values: Vec::new(),
        }
    }
}

/// Reads a text of one or more statements.
pub fn classify(dialect: Dialect, sql: &[u8]) -> Verdict<'_> {
    let mut tokens = Vec::new();
    for token in token::Tokens::new(dialect, sql) {
        if token == token::Token::Unreadable {
            return Verdict::any_table("UNREADABLE");
        }
        tokens.push(token);
        // What stands first decides for most: a page reads far more than it writes.
        if tokens.len() == 1 && statement::is_plain_select(&tokens[0], dialect, sql) {
            return Verdict::no_write(StatementKind::Read);
        }
    }
    let mut all: Option<Verdict<'_>> = None;
    for part in tokens.split(|token| *token == token::Token::Symbol(b';')) {
        let next = statement::classify(dialect, part);
        all = Some(match all {
            None => next,
            Some(before)
                if before.kind == StatementKind::Write && next.kind == StatementKind::Write =>
            {
                Verdict::any_table("MULTI")
            }
            Some(before) if before.kind >= next.kind => before,
            Some(_) => next,
        });
    }
    all.unwrap_or_else(|| Verdict::no_write(StatementKind::Read))
}
