//! Classifies one statement. Its first word decides; for writes, further words give the table and the values. If a text
//! does not have the expected form, less is reported, never more.

use crate::functions;
use crate::token::SqlToken;
use crate::{
    Dialect, MAX_REPORTED_BYTES, MAX_TABLE_NAME_BYTES, MAX_VALUE_BYTES, SqlClassification,
    StatementKind,
};

const READ_VERBS: [&str; 11] = [
    "SELECT", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "USE", "HELP", "VALUES", "TABLE", "FETCH",
    "CLOSE",
];
const CONTROL_VERBS: [&str; 29] = [
    "BEGIN",
    "START",
    "COMMIT",
    "END",
    "ROLLBACK",
    "ABORT",
    "SAVEPOINT",
    "RELEASE",
    "SET",
    "RESET",
    "LOCK",
    "UNLOCK",
    "XA",
    "PRAGMA",
    "ATTACH",
    "DETACH",
    "ANALYZE",
    "VACUUM",
    "OPTIMIZE",
    "CHECK",
    "REINDEX",
    "LISTEN",
    "UNLISTEN",
    "NOTIFY",
    "DISCARD",
    "DEALLOCATE",
    "KILL",
    // `PREPARE` only compiles a statement; `EXECUTE`, which runs it, counts as a write.
    "PREPARE",
    "CHECKPOINT",
];
const WRITE_VERBS: [&str; 5] = ["INSERT", "UPDATE", "DELETE", "REPLACE", "MERGE"];
const MAX_INSERT_ROWS: usize = 64;
/// Words that may follow a table or its alias, or that end its conditions.
const CLAUSE_KEYWORDS: [&str; 6] = ["ORDER", "LIMIT", "RETURNING", "GROUP", "HAVING", "ON"];

/// Returns whether a text with this first token certainly reads: a `SELECT` in a dialect where a `SELECT` cannot write,
/// in a text without a second statement.
pub(crate) fn is_plain_select(first: &SqlToken<'_>, dialect: Dialect, sql: &[u8]) -> bool {
    matches!(dialect, Dialect::Mysql | Dialect::Sqlite)
        && first.is("SELECT")
        && !sql.contains(&b';')
        && !sql
            .windows(3)
            .any(|window| matches!(window, b"/*!" | b"*M!"))
}

/// The maximum number of function names reported for one statement.
const MAX_REPORTED_FUNCTIONS: usize = 16;

/// Classifies the tokens of one statement.
pub(crate) fn classify<'a>(dialect: Dialect, tokens: &[SqlToken<'a>]) -> SqlClassification<'a> {
    let verdict = classify_by_keywords(dialect, tokens);
    if dialect != Dialect::Postgres {
        return verdict;
    }
    let called = functions::possibly_writing(tokens, verdict.kind == StatementKind::Write);
    if called.is_empty() {
        return verdict;
    }
    // Such functions may write anything else, so no table or value may narrow the report.
    if verdict.kind == StatementKind::Write {
        return SqlClassification::any_table(&verdict.verb);
    }
    let verb = tokens.iter().find_map(|token| match token {
        SqlToken::Word(word) => Some(verb_of(word)),
        _ => None,
    });
    // In the report's format, a zero byte terminates a value.
    let reportable = |name: &&[u8]| {
        name.len() <= MAX_REPORTED_BYTES / MAX_REPORTED_FUNCTIONS && !name.contains(&0)
    };
    let reported = called.len() <= MAX_REPORTED_FUNCTIONS && called.iter().all(reportable);
    let values = called.iter().filter(|_| reported);
    SqlClassification {
        values: values
            .map(|f| (functions::CALLED_FUNCTIONS_COLUMN.as_bytes(), *f))
            .collect(),
        ..SqlClassification::any_table(&verb.unwrap_or_default())
    }
}

fn verb_of(word: &[u8]) -> String {
    let letters = word.iter().take(16);
    letters
        .map(|b| char::from(b.to_ascii_uppercase()))
        .filter(char::is_ascii_alphanumeric)
        .collect()
}

fn classify_by_keywords<'a>(dialect: Dialect, tokens: &[SqlToken<'a>]) -> SqlClassification<'a> {
    let open = tokens
        .iter()
        .position(|t| *t != SqlToken::Symbol(b'('))
        .unwrap_or(tokens.len());
    let tokens = &tokens[open..];
    let Some((first, rest)) = tokens.split_first() else {
        return SqlClassification::no_write(StatementKind::Read);
    };
    let SqlToken::Word(word) = first else {
        return SqlClassification::any_table("");
    };
    // The standard's SELECT INTO creates a table; MySQL's fills a variable or a file.
    let into = first.is("SELECT") && !matches!(dialect, Dialect::Mysql | Dialect::Sqlite);
    if into && rest.iter().any(|t| t.is("INTO")) {
        return SqlClassification::any_table("SELECT");
    }
    if first.is("WITH") || first.is("EXPLAIN") {
        return classify_nested(first.is("WITH"), rest);
    }
    if first.is_any(&READ_VERBS) {
        return SqlClassification::no_write(StatementKind::Read);
    }
    let temporary = rest
        .first()
        .is_some_and(|t| t.is_any(&["TEMPORARY", "TEMP"]));
    // The `WITH` query that fills a temporary table may still write to other tables.
    let temporary = temporary && !(dialect == Dialect::Postgres && writes_within(rest));
    if first.is_any(&CONTROL_VERBS) || (first.is_any(&["CREATE", "DROP"]) && temporary) {
        return SqlClassification::no_write(StatementKind::Control);
    }
    let verb = verb_of(word);
    let mut reader = StatementParser { tokens: rest };
    let (table, values) = match verb.as_str() {
        "INSERT" | "REPLACE" => reader.insert(),
        "UPDATE" => reader.update(),
        "DELETE" => reader.delete(),
        "TRUNCATE" => {
            reader.skip_any(&["TABLE", "ONLY"]);
            (reader.table(), Vec::new())
        }
        "MERGE" => {
            reader.skip_any(&["INTO", "ONLY"]);
            (reader.table(), Vec::new())
        }
        _ => (None, Vec::new()),
    };
    let table = table.filter(|name| {
        !name.is_empty() && name.len() <= MAX_TABLE_NAME_BYTES && !name.contains(&0)
    });
    SqlClassification {
        kind: StatementKind::Write,
        verb,
        values: if table.is_some() {
            reportable_values(values)
        } else {
            Vec::new()
        },
        table,
    }
}

/// Classifies statements that contain others: each part of a `WITH` may write, and `EXPLAIN ANALYZE` runs the statement
/// that it explains.
fn classify_nested<'a>(runs: bool, tokens: &[SqlToken<'a>]) -> SqlClassification<'a> {
    if !runs && !tokens.iter().any(|t| t.is("ANALYZE")) {
        return SqlClassification::no_write(StatementKind::Read);
    }
    if writes_within(tokens) {
        SqlClassification::any_table("WITH")
    } else {
        SqlClassification::no_write(StatementKind::Read)
    }
}

fn writes_within(tokens: &[SqlToken<'_>]) -> bool {
    tokens.iter().enumerate().any(|(at, token)| {
        let before = at.checked_sub(1).map(|at| &tokens[at]);
        let locks = before.is_some_and(|t| t.is_any(&["FOR", "KEY"]));
        let function = tokens.get(at + 1) == Some(&SqlToken::Symbol(b'('));
        let makes = token.is("INTO");
        (token.is_any(&WRITE_VERBS) && !locks && !function) || makes
    })
}

type ColumnValues<'a> = Vec<(&'a [u8], Option<&'a [u8]>)>;

/// Returns the columns all of whose values are known, up to the size limit.
fn reportable_values<'a>(values: ColumnValues<'a>) -> Vec<(&'a [u8], &'a [u8])> {
    let known = |column: &[u8]| {
        let mut all = values
            .iter()
            .filter(|(c, _)| c.eq_ignore_ascii_case(column));
        all.all(|(_, value)| value.is_some_and(|v| v.len() <= MAX_VALUE_BYTES && !v.contains(&0)))
    };
    let size = |column: &[u8]| -> usize {
        let all = values
            .iter()
            .filter(|(c, _)| c.eq_ignore_ascii_case(column));
        all.map(|(c, v)| c.len() + v.map_or(0, <[u8]>::len) + 2)
            .sum()
    };
    let mut columns: Vec<&[u8]> = Vec::new();
    let mut reported = 0;
    for (column, _) in &values {
        let seen = columns.iter().any(|c| c.eq_ignore_ascii_case(column));
        if seen
            || column.contains(&0)
            || !known(column)
            || reported + size(column) > MAX_REPORTED_BYTES
        {
            continue;
        }
        reported += size(column);
        columns.push(column);
    }
    let wanted = |column: &[u8]| columns.iter().any(|c| c.eq_ignore_ascii_case(column));
    let kept = values.iter().filter(|(column, _)| wanted(column));
    kept.filter_map(|(column, value)| Some((*column, (*value)?)))
        .collect()
}

struct StatementParser<'t, 'a> {
    tokens: &'t [SqlToken<'a>],
}

impl<'a> StatementParser<'_, 'a> {
    fn peek(&self) -> Option<&SqlToken<'a>> {
        self.tokens.first()
    }

    fn take(&mut self) -> Option<SqlToken<'a>> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(*first)
    }

    fn take_symbol(&mut self, symbol: u8) -> bool {
        let is = self.peek() == Some(&SqlToken::Symbol(symbol));
        if is {
            self.take();
        }
        is
    }

    fn skip_any(&mut self, keywords: &[&str]) {
        while self.peek().is_some_and(|t| t.is_any(keywords)) {
            self.take();
        }
    }

    /// Skips `OR IGNORE` and the other conflict clauses of SQLite.
    fn skip_or(&mut self) {
        if self.peek().is_some_and(|t| t.is("OR")) {
            self.take();
            self.take();
        }
    }

    fn name(&mut self) -> Option<&'a [u8]> {
        match self.take()? {
            SqlToken::Word(name) | SqlToken::Name(name) => Some(name),
            _ => None,
        }
    }

    /// Reads a name with or without its schema, and returns the last part.
    fn table(&mut self) -> Option<&'a [u8]> {
        let mut name = self.name()?;
        while self.take_symbol(b'.') {
            name = self.name()?;
        }
        Some(name)
    }

    fn insert(&mut self) -> (Option<&'a [u8]>, ColumnValues<'a>) {
        self.skip_or();
        self.skip_any(&["LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE"]);
        self.skip_any(&["INTO", "ONLY"]);
        let table = self.table();
        (table, self.rows().unwrap_or_default())
    }

    /// Reads `(columns) VALUES (row), (row) …`.
    fn rows(&mut self) -> Option<ColumnValues<'a>> {
        let mut columns = Vec::new();
        if !self.take_symbol(b'(') {
            return None;
        }
        loop {
            columns.push(self.name()?);
            match self.take()? {
                SqlToken::Symbol(b',') => {}
                SqlToken::Symbol(b')') => break,
                _ => return None,
            }
        }
        if !self.take()?.is_any(&["VALUES", "VALUE"]) {
            return None;
        }
        let mut values = Vec::new();
        for _ in 0..MAX_INSERT_ROWS {
            if !self.take_symbol(b'(') {
                return None;
            }
            for (at, column) in columns.iter().enumerate() {
                let (value, end) = self.value()?;
                values.push((*column, value));
                let last = at + 1 == columns.len();
                if end != (if last { b')' } else { b',' }) {
                    return None;
                }
            }
            if !self.take_symbol(b',') {
                return Some(values);
            }
        }
        None
    }

    /// Reads one value of a row and the comma or parenthesis after it. The value of an expression is unknown (`None`).
    fn value(&mut self) -> Option<(Option<&'a [u8]>, u8)> {
        let mut value = None;
        let mut depth = 0u32;
        let mut length = 0;
        loop {
            let token = self.take()?;
            match token {
                SqlToken::Symbol(end @ (b',' | b')')) if depth == 0 => {
                    return Some((value.filter(|_| length == 1), end));
                }
                SqlToken::Symbol(b'(') => depth += 1,
                SqlToken::Symbol(b')') => depth -= 1,
                SqlToken::Text(text) if length == 0 => value = text,
                _ => {}
            }
            length += 1;
        }
    }

    fn update(&mut self) -> (Option<&'a [u8]>, ColumnValues<'a>) {
        self.skip_or();
        self.skip_any(&["LOW_PRIORITY", "IGNORE", "ONLY"]);
        let table = self.table();
        // An alias may follow. Any other token means another table.
        if self.peek().is_some_and(|t| t.is("AS")) {
            self.take();
        }
        if !self.peek().is_some_and(|t| t.is("SET")) {
            self.take();
        }
        if !self.take().is_some_and(|t| t.is("SET")) {
            return (None, Vec::new());
        }
        let mut set = Vec::new();
        let mut depth = 0u32;
        let mut at_column = true;
        while let Some(token) = self.peek().copied() {
            if depth == 0 && token.is("WHERE") {
                break;
            }
            // With `FROM`, PostgreSQL and SQLite also choose the rows by another table.
            if depth == 0 && token.is("FROM") {
                return (table, Vec::new());
            }
            if at_column && depth == 0 {
                match self.table() {
                    Some(column) => set.push(column),
                    None => return (table, Vec::new()),
                }
                at_column = false;
                continue;
            }
            self.take();
            match token {
                SqlToken::Symbol(b'(') => depth += 1,
                SqlToken::Symbol(b')') => depth = depth.saturating_sub(1),
                SqlToken::Symbol(b',') if depth == 0 => at_column = true,
                _ => {}
            }
        }
        let mut values = self.conditions();
        // A column that the statement changes no longer has the value by which the row was chosen.
        values.retain(|(column, _)| !set.iter().any(|c| c.eq_ignore_ascii_case(column)));
        (table, values)
    }

    fn delete(&mut self) -> (Option<&'a [u8]>, ColumnValues<'a>) {
        self.skip_any(&["LOW_PRIORITY", "QUICK", "IGNORE"]);
        if !self.take().is_some_and(|t| t.is("FROM")) {
            return (None, Vec::new());
        }
        self.skip_any(&["ONLY"]);
        let table = self.table();
        let alone = |t: &SqlToken<'_>| t.is("WHERE") || t.is_any(&CLAUSE_KEYWORDS);
        if self.peek().is_some_and(|t| t.is("AS")) {
            self.take();
        }
        if self.peek().is_some_and(|t| !alone(t)) {
            // Skips an alias. The clause must begin after it.
            self.take();
            if self.peek().is_some_and(|t| !alone(t)) {
                return (None, Vec::new());
            }
        }
        (table, self.conditions())
    }

    /// Reads the conditions after `WHERE` that have the form `column = 'text'` or `column IN ('text', …)`, if all
    /// conditions must hold.
    fn conditions(&mut self) -> ColumnValues<'a> {
        let mut values = Vec::new();
        if !self.take().is_some_and(|t| t.is("WHERE")) {
            return values;
        }
        loop {
            let before = self.tokens;
            if let Some(found) = self.condition() {
                values.extend(found);
            } else {
                self.tokens = before;
                // Any other condition can only reduce the number of rows.
                let mut depth = 0u32;
                while let Some(token) = self.peek() {
                    match token {
                        SqlToken::Symbol(b'(') => depth += 1,
                        SqlToken::Symbol(b')') => depth = depth.saturating_sub(1),
                        _ if depth > 0 => {}
                        // MySQL's `||` and `&&`, and constructs in which AND has another meaning.
                        SqlToken::Symbol(b'|' | b'&') => return Vec::new(),
                        t if t.is_any(&["OR", "XOR", "BETWEEN", "CASE"]) => return Vec::new(),
                        t if t.is("AND") || t.is_any(&CLAUSE_KEYWORDS) => break,
                        _ => {}
                    }
                    self.take();
                }
            }
            match self.take() {
                None => return values,
                Some(t) if t.is("AND") => {}
                Some(t) if t.is_any(&CLAUSE_KEYWORDS) => return values,
                Some(_) => return Vec::new(),
            }
        }
    }

    /// Reads one condition up to the word that joins it to the next.
    fn condition(&mut self) -> Option<ColumnValues<'a>> {
        let column = self.table()?;
        let mut values = Vec::new();
        match self.take()? {
            SqlToken::Symbol(b'=') => match self.take()? {
                SqlToken::Text(text) => values.push((column, text)),
                _ => return None,
            },
            t if t.is("IN") => {
                if !self.take_symbol(b'(') {
                    return None;
                }
                loop {
                    let (value, end) = self.value()?;
                    values.push((column, value));
                    if end == b')' {
                        break;
                    }
                }
            }
            _ => return None,
        }
        let ends = self
            .peek()
            .is_none_or(|t| t.is("AND") || t.is_any(&CLAUSE_KEYWORDS));
        ends.then_some(values)
    }
}
