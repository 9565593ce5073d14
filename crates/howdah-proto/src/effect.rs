//! The side effects of a run, apart from its response, as its [`crate::response::Frame::Effect`] frames report them.
//! This module defines the names of the effects and the format of the value of a write. For an effect without a value
//! of its own, the value is the place in the script, `file:line`, or empty.
//!
//! ```text
//! write value = where | NUL | verb | NUL | table | NUL | { column | NUL | literal | NUL }*
//! ```
//! An empty table means any table. Like all of a response, an effect is untrusted: a value that cannot be parsed counts
//! as a write to any table, which can only forbid more, never less.

/// The script opened a session.
pub const SESSION: &[u8] = b"session";
/// `DONOTCACHEPAGE` or `LSCACHE_NO_CACHE` was defined.
pub const NO_CACHE: &[u8] = b"nocache";
/// The script ended with a fatal error.
pub const FATAL: &[u8] = b"fatal";
/// A cookie was set, even if the script removed it again.
pub const COOKIE: &[u8] = b"cookie";
/// A write statement is about to be executed. It is reported once per run for the same table and values.
pub const WRITE: &[u8] = b"write";
/// A statement was executed that may have made an earlier [`WRITE`] visible.
pub const WROTE: &[u8] = b"wrote";
/// A worker script wrote while it handled no request, for example while it booted. The worker's next request reports
/// the write although it did not cause it.
pub const OUTSIDE: &[u8] = b"outside";

/// The script requests a purge. The value is a path, a URL, `tag:NAME` or `*`.
pub const PURGE: &[u8] = b"purge";
/// The script tags its page. The value is the tag.
pub const TAG: &[u8] = b"tag";
/// PHP on a command line has called a function that would change a shared cache. All values in the shared caches of the
/// pools must be invalidated.
pub const FORGET: &[u8] = b"forget";
/// The maximum length of the value of a [`PURGE`], in bytes.
pub const MAX_PURGE_BYTES: usize = 4000;
/// The maximum length of the value of a [`TAG`], in bytes.
pub const MAX_TAG_BYTES: usize = 1024;

/// The maximum length, in bytes, of an effect that `howdah-php php` reports to `howdah php`, one message for each (`u32
/// name length | name | value`, native-endian). A longer one is replaced by a write to any table.
pub const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// The maximum length of the part of a [`WRITE`] that follows the place, in bytes: a verb, a table of 128 bytes, and
/// columns and literals of 1024. `howdah_sql::SqlClassification::description` writes it.
pub const MAX_DESCRIPTION_BYTES: usize = 16 + 128 + 1024 + 8;

/// The column of a [`WRITE`] whose literals are the names of the functions that the statement calls.
pub const CALLED_FUNCTIONS_COLUMN: &str = "()";

/// The parsed value of a [`WRITE`] effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteEffect<'a> {
    /// `file:line` of the call, which the `file:line` of its caller may follow. It may be empty.
    pub place: &'a [u8],
    /// The first word of the statement, in capitals.
    pub verb: &'a [u8],
    /// The table that is written. `None` means that it may be any table.
    pub table: Option<&'a [u8]>,
    values: &'a [u8],
}

impl<'a> WriteEffect<'a> {
    /// Parses the value of a [`WRITE`] effect.
    pub fn parse(value: &'a [u8]) -> WriteEffect<'a> {
        let mut parts = value.splitn(4, |b| *b == 0);
        let mut next = || parts.next().unwrap_or_default();
        let (place, verb, table, values) = (next(), next(), next(), next());
        WriteEffect {
            place,
            verb,
            table: (!table.is_empty()).then_some(table),
            values,
        }
    }

    /// Returns columns and literals: the values that every written row has or is selected by
    /// (`howdah_sql::SqlClassification::values`).
    pub fn values(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut parts = self.values.split(|b| *b == 0);
        std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
    }
}

#[cfg(test)]
mod tests {
    use howdah_sql::{Dialect, MAX_TABLE_NAME_BYTES, StatementKind, classify};

    use super::*;

    #[test]
    fn write_description_is_parsed_back() {
        let sql = b"UPDATE o SET v=1 WHERE n IN ('a','b') AND m='c'";
        let verdict = classify(Dialect::Mysql, sql);
        assert_eq!(verdict.kind, StatementKind::Write);
        let told = verdict.description();
        let value = [&b"/srv/a.php:7\0"[..], &told].concat();
        let write = WriteEffect::parse(&value);
        assert_eq!(write.place, b"/srv/a.php:7");
        assert_eq!((write.verb, write.table), (&b"UPDATE"[..], Some(&b"o"[..])));
        let values: Vec<_> = write.values().collect();
        let expected: [(&[u8], &[u8]); 3] = [(b"n", b"a"), (b"n", b"b"), (b"m", b"c")];
        assert_eq!(values, expected);
    }

    #[test]
    fn malformed_write_means_any_table() {
        for value in [&b""[..], b"x", b"\0\0\0", b"a\0b"] {
            let write = WriteEffect::parse(value);
            assert_eq!(write.table, None, "{value:?}");
            assert!(write.values().count() <= 1);
        }
    }

    #[test]
    fn write_description_stays_within_its_limit() {
        let column = "c".repeat(200);
        let value = "v".repeat(200);
        let conditions: Vec<_> = (0..40).map(|n| format!("{column}{n}='{value}'")).collect();
        let table = "t".repeat(MAX_TABLE_NAME_BYTES);
        let sql = format!("UPDATE {table} SET a=1 WHERE {}", conditions.join(" AND "));
        let told = classify(Dialect::Mysql, sql.as_bytes()).description();
        assert!(told.len() <= MAX_DESCRIPTION_BYTES, "{}", told.len());
    }

    #[test]
    fn column_of_called_functions_is_that_of_the_classifier() {
        assert_eq!(CALLED_FUNCTIONS_COLUMN, howdah_sql::CALLED_FUNCTIONS_COLUMN);
    }
}
