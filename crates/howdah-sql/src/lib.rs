//! Classifies SQL statements: whether a statement writes, and to which table. The text is tokenized and its keywords
//! are inspected; there is no grammar. A statement that is not known to read counts as a write, a text that cannot be
//! tokenized counts as a write to any table, and a table or a value is reported only when it is certain.
//!
//! The text of a statement does not show triggers, cascading foreign keys, or functions that a `SELECT` calls (except
//! in PostgreSQL, where they are checked). docs/cache.md lists the consequences for the cache.
//!
//! - [`token`]: splits a text into tokens by each database's quoting rules.
//! - [`statement`]: classifies one statement.
//! - [`functions`]: lists PostgreSQL's functions that only read.

#![forbid(unsafe_code)]

mod functions;
mod statement;
mod token;

#[cfg(test)]
mod tests;

pub use functions::CALLED_FUNCTIONS_COLUMN;

/// The maximum length of a reported table name in bytes. A statement with a longer name is reported as a write to any
/// table.
pub const MAX_TABLE_NAME_BYTES: usize = 128;
/// The maximum length of a reported value in bytes. A column with a longer value is omitted.
pub const MAX_VALUE_BYTES: usize = 200;
/// The maximum number of bytes of names and values reported for one statement. Columns that exceed it are omitted.
pub const MAX_REPORTED_BYTES: usize = 1024;

/// The database whose quoting a statement uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Dialect {
    /// MySQL and MariaDB: backslash escapes, `#` comments, backquotes.
    Mysql = 0,
    /// SQLite: no backslash escapes; `[name]` quoting.
    Sqlite = 1,
    /// PostgreSQL: backslash escapes only in `E''`; `$tag$` quoting, nested comments.
    Postgres = 2,
    /// Any other database, read as standard SQL.
    Other = 3,
}

impl Dialect {
    /// Returns the dialect with this number, or [`Dialect::Other`] for an unknown number.
    pub fn from_number(number: u32) -> Dialect {
        match number {
            0 => Dialect::Mysql,
            1 => Dialect::Sqlite,
            2 => Dialect::Postgres,
            _ => Dialect::Other,
        }
    }
}

/// The effect of a statement on data that other connections read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum StatementKind {
    /// Changes nothing that other connections can read.
    Read = 0,
    /// Changes nothing by itself, but may make earlier writes visible: `COMMIT` and similar statements, and statements
    /// that commit implicitly (`BEGIN`, `LOCK TABLES`).
    Control = 1,
    /// Writes, or may write.
    Write = 2,
}

/// The classification of a text with one or more statements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlClassification<'a> {
    /// The effect of the text.
    pub kind: StatementKind,
    /// For a write: its first word in capitals, at most 16 bytes; `MULTI` for several writes, `UNREADABLE` for a text
    /// that ends inside a quote or has a comment that only some servers execute. Empty for everything else.
    pub verb: String,
    /// For a write: the table, without schema and quotes. `None` means any table.
    pub table: Option<&'a [u8]>,
    /// Pairs of column and literal that hold for every row written: for an `INSERT` the values of its rows, for
    /// `UPDATE` and `DELETE` the conditions that must all hold. Either all values of a column are listed, or none of
    /// them. For a statement that writes only through the functions that it calls, the list holds those functions as
    /// values of [`CALLED_FUNCTIONS_COLUMN`].
    pub values: Vec<(&'a [u8], &'a [u8])>,
}

impl SqlClassification<'_> {
    /// Returns the part of a process's report about a write that follows the place in the script: the verb, the table
    /// (empty if it may be any table), then columns and literals in turn, each followed by a NUL byte. Returns an empty
    /// text if the statement is not a write. `howdah_proto::effect::WriteEffect` reads it.
    pub fn description(&self) -> Vec<u8> {
        if self.kind != StatementKind::Write {
            return Vec::new();
        }
        let mut out = Vec::with_capacity(64);
        let mut push = |part: &[u8]| {
            out.extend_from_slice(part);
            out.push(0);
        };
        push(self.verb.as_bytes());
        push(self.table.unwrap_or_default());
        for (column, literal) in &self.values {
            push(column);
            push(literal);
        }
        out
    }

    fn no_write(kind: StatementKind) -> SqlClassification<'static> {
        SqlClassification {
            kind,
            verb: String::new(),
            table: None,
            values: Vec::new(),
        }
    }

    fn any_table(verb: &str) -> SqlClassification<'static> {
        SqlClassification {
            kind: StatementKind::Write,
            verb: verb.to_owned(),
            table: None,
            values: Vec::new(),
        }
    }
}

/// Classifies a text of one or more statements.
pub fn classify(dialect: Dialect, sql: &[u8]) -> SqlClassification<'_> {
    let mut tokens = Vec::new();
    for token in token::SqlTokens::new(dialect, sql) {
        if token == token::SqlToken::Unreadable {
            return SqlClassification::any_table("UNREADABLE");
        }
        tokens.push(token);
        // In most cases the first word decides, because pages read far more than they write.
        if tokens.len() == 1 && statement::is_plain_select(&tokens[0], dialect, sql) {
            return SqlClassification::no_write(StatementKind::Read);
        }
    }
    let mut all: Option<SqlClassification<'_>> = None;
    for part in tokens.split(|token| *token == token::SqlToken::Symbol(b';')) {
        let next = statement::classify(dialect, part);
        all = Some(match all {
            None => next,
            Some(before)
                if before.kind == StatementKind::Write && next.kind == StatementKind::Write =>
            {
                SqlClassification::any_table("MULTI")
            }
            Some(before) if before.kind >= next.kind => before,
            Some(_) => next,
        });
    }
    all.unwrap_or_else(|| SqlClassification::no_write(StatementKind::Read))
}
