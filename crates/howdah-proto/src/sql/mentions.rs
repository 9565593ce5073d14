//! Which tables a statement can read or write: every one that stands in it, and perhaps more, or the
//! reason why that is not known. Not a grammar: a table stands where the grammars of MySQL 8, MariaDB
//! and SQLite have a table, which is behind `FROM`, `JOIN`, `INTO`, `UPDATE`, `TABLE`, SQLite's `IN`, and
//! behind a comma or a parenthesis within a list of tables. What is not plain there (a string, a
//! parameter, a function) is not understood, nor is a call of a function that is not the database's own,
//! since a stored function reads what it likes. A word too many does no harm: pages made of the
//! statement are old sooner than they need be.
//!
//! A table goes by its last name in small letters: two of one name in different databases are one here,
//! so that neither `USE` nor a connection's default has to be known. What is behind a table (a view, a
//! trigger, a foreign key that cascades) cannot be seen in a text; who believes the list answers for that
//! (docs/cache.md, "Table versions").

use super::token::{Token, Tokens};
use super::{Dialect, Kind, MAX_NAME, classify, own_functions};

/// Most tables of one statement.
pub const MAX_MENTIONED: usize = 64;

/// Why the tables of a statement are not known: for people.
pub type Unclear = &'static str;

/// Databases that say how others are, which changes without a write.
const SYSTEM: [&str; 4] = ["information_schema", "performance_schema", "mysql", "sys"];
/// Behind these a table stands, whatever the list. The table of an `INSERT` without `INTO` is the
/// write's own, which is known.
const INTRODUCERS: [&str; 7] = [
    "FROM",
    "JOIN",
    "STRAIGHT_JOIN",
    "INTO",
    "TABLE",
    "UPDATE",
    "USING",
];
/// Words that are reserved in all three and stand in a table's place without being one.
const NO_TABLES: [&str; 6] = ["SELECT", "VALUES", "SET", "FROM", "INTO", "TABLE"];
/// These end a list of tables: words that are reserved in all three, so that none is an alias.
const ENDS: [&str; 9] = [
    "SELECT", "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "SET", "UNION", "VALUES",
];

/// `UPDATE` behind these begins nothing.
const DOES_NOT_UPDATE: [&str; 3] = ["KEY", "FOR", "DO"];

/// The tables of a text of one statement, in small letters, each once.
pub fn mentioned(dialect: Dialect, sql: &[u8]) -> Result<Vec<Vec<u8>>, Unclear> {
    if !matches!(dialect, Dialect::Mysql | Dialect::Sqlite) {
        return Err("a database of another kind");
    }
    // Servers differ in what of these is a blank, or the end.
    let control = |b: &u8| (*b < b' ' && !b"\t\n\r".contains(b)) || *b == 0x7f;
    if sql.iter().any(control) {
        return Err("a statement with a control character in it");
    }
    // Executed, and a table may be joined by it.
    let executed = |three: &[u8]| three == b"/*!" || three == b"*M!";
    if dialect == Dialect::Mysql && sql.windows(3).any(executed) {
        return Err("a comment that is executed");
    }
    let tokens: Vec<_> = Tokens::new(dialect, sql).collect();
    for token in &tokens {
        match token {
            Token::Unreadable => return Err("a statement that cannot be read"),
            // Some character sets have blanks and quotes there.
            Token::Word(word) if !word.is_ascii() => return Err("a word that is not ASCII"),
            _ => {}
        }
    }
    let mut rest = &tokens[..];
    while let [before @ .., Token::Symbol(b';')] = rest {
        rest = before;
    }
    if rest.contains(&Token::Symbol(b';')) {
        return Err("several statements");
    }
    let open = rest.iter().position(|t| *t != Token::Symbol(b'('));
    let Some(first) = open.map(|at| rest[at]) else {
        return match rest.is_empty() {
            true => Ok(Vec::new()),
            false => Err("a statement that cannot be read"),
        };
    };
    let behind = &rest[1..];
    let mut list = List::new(dialect);
    if first.is_any(&["SELECT", "WITH"]) {
        let verdict = classify(dialect, sql);
        if verdict.kind != Kind::Read {
            return Err("a WITH that writes");
        }
        list.select = true;
    } else if first.is_any(&["INSERT", "REPLACE", "UPDATE", "DELETE"]) {
        let verdict = classify(dialect, sql);
        let target = verdict.table.ok_or("a write to more than one table")?;
        list.put(target)?;
    } else if first.is("SHOW") {
        return show(behind);
    } else if first.is("SET") {
        return set(behind);
    } else if first.is("PRAGMA") {
        return pragma(behind);
    } else if first.is_any(&[
        "BEGIN",
        "START",
        "COMMIT",
        "END",
        "ROLLBACK",
        "SAVEPOINT",
        "RELEASE",
    ]) {
        return transaction(behind);
    } else {
        return Err("a statement of another kind");
    }
    list.read(rest)?;
    Ok(list.names)
}

/// What columns and tables there are changes by statements that make all pages old.
fn show(rest: &[Token<'_>]) -> Result<Vec<Vec<u8>>, Unclear> {
    let rest = match rest {
        [full, rest @ ..] if full.is_any(&["FULL", "SESSION"]) => rest,
        _ => rest,
    };
    let known = ["COLUMNS", "FIELDS", "TABLES", "VARIABLES"];
    match rest.first() {
        Some(what) if what.is_any(&known) && !rest.contains(&Token::Symbol(b'(')) => Ok(Vec::new()),
        _ => Err("SHOW"),
    }
}

/// Settings of the connection that change nothing about how statements are read, here and there.
fn set(rest: &[Token<'_>]) -> Result<Vec<Vec<u8>>, Unclear> {
    const MODES: [&[u8]; 4] = [b"ANSI", b"BACKSLASH", b"ORACLE", b"POSTGRESQL"];
    const OTHER_MODES: [&[u8]; 3] = [b"DB2", b"MAXDB", b"MSSQL"];
    const SETS: [&[u8]; 6] = [
        b"utf8", b"utf8mb3", b"utf8mb4", b"latin1", b"ascii", b"binary",
    ];
    let plain = |t: &Token<'_>| {
        matches!(t, Token::Word(_) | Token::Text(Some(_)) | Token::Other)
            || matches!(t, Token::Symbol(b'=' | b',' | b'.'))
    };
    if !rest.iter().all(plain) || rest.iter().any(|t| t.is("SELECT")) {
        return Err("SET of something computed");
    }
    let rest = match rest {
        [scope, rest @ ..] if scope.is_any(&["SESSION", "LOCAL"]) => rest,
        _ => rest,
    };
    let set_is_known = |token: Option<&Token<'_>>| match token {
        Some(Token::Word(set) | Token::Text(Some(set))) => {
            SETS.iter().any(|known| set.eq_ignore_ascii_case(known))
        }
        _ => false,
    };
    let known = match rest {
        [names, rest @ ..] if names.is("NAMES") => set_is_known(rest.first()),
        [mode, Token::Symbol(b'='), Token::Text(Some(text))] if mode.is("SQL_MODE") => {
            let holds = |word: &&[u8]| {
                let mut windows = text.windows(word.len());
                windows.any(|w| w.eq_ignore_ascii_case(word))
            };
            !MODES.iter().any(holds) && !OTHER_MODES.iter().any(holds)
        }
        [name, Token::Symbol(b'='), _] => name.is_any(&[
            "AUTOCOMMIT",
            "TIME_ZONE",
            "WAIT_TIMEOUT",
            "SQL_BIG_SELECTS",
            "GROUP_CONCAT_MAX_LEN",
            "LC_TIME_NAMES",
        ]),
        [transaction, ..] => transaction.is("TRANSACTION"),
        [] => false,
    };
    match known {
        true => Ok(Vec::new()),
        false => Err("SET"),
    }
}

/// Settings of a connection to SQLite. What reads something, but for the schema, is not here.
fn pragma(rest: &[Token<'_>]) -> Result<Vec<Vec<u8>>, Unclear> {
    const KNOWN: [&str; 12] = [
        "foreign_keys",
        "journal_mode",
        "synchronous",
        "busy_timeout",
        "cache_size",
        "temp_store",
        "mmap_size",
        "encoding",
        "query_only",
        "table_info",
        "case_sensitive_like",
        "automatic_index",
    ];
    match rest.first() {
        Some(name) if name.is_any(&KNOWN) => Ok(Vec::new()),
        _ => Err("PRAGMA"),
    }
}

fn transaction(rest: &[Token<'_>]) -> Result<Vec<Vec<u8>>, Unclear> {
    let blocks = |t: &Token<'_>| t.is("ATOMIC") || t.is_any(&["SLAVE", "REPLICA", "SELECT"]);
    match rest.iter().any(blocks) {
        true => Err("a block of statements"),
        false => Ok(Vec::new()),
    }
}

/// Goes through one statement.
struct List {
    dialect: Dialect,
    /// It only reads.
    select: bool,
    names: Vec<Vec<u8>>,
}

impl List {
    fn new(dialect: Dialect) -> List {
        List {
            dialect,
            select: false,
            names: Vec::new(),
        }
    }

    fn put(&mut self, name: &[u8]) -> Result<(), Unclear> {
        if name.is_empty() || name.len() > MAX_NAME || !name.is_ascii() {
            return Err("a table with a name that is long, empty or not ASCII");
        }
        let name = name.to_ascii_lowercase();
        if self.dialect == Dialect::Sqlite
            && [&b"sqlite_"[..], b"pragma_"]
                .iter()
                .any(|p| name.starts_with(p))
        {
            return Err("a table of SQLite's own");
        }
        if !self.names.contains(&name) {
            self.names.push(name);
        }
        match self.names.len() > MAX_MENTIONED {
            true => Err("more tables than are told"),
            false => Ok(()),
        }
    }

    fn read(&mut self, tokens: &[Token<'_>]) -> Result<(), Unclear> {
        // Of each parenthesis that is open: whether a list of tables is being read there.
        let mut levels = vec![false];
        let mut before: Option<Token<'_>> = None;
        // A word behind a name's full stop is a name, whatever it is elsewhere.
        let mut is_part = false;
        let mut at = 0;
        while let Some(token) = tokens.get(at).copied() {
            let in_list = levels.last().copied().unwrap_or(false);
            let introduced = !is_part && self.introduces(before.as_ref(), in_list);
            let called = tokens.get(at + 1) == Some(&Token::Symbol(b'('));
            let mut next = token;
            match token {
                Token::Symbol(b'@') => {
                    let system = tokens.get(at + 1) == Some(&Token::Symbol(b'@'))
                        && matches!(tokens.get(at + 2), Some(Token::Word(_)));
                    if introduced || !system {
                        return Err("a variable of the connection");
                    }
                    at += 2;
                    next = tokens[at];
                }
                Token::Symbol(b'{' | b'}') => return Err("an ODBC escape"),
                // MariaDB reads `\NFROM` as NULL FROM.
                Token::Symbol(b'\\') | Token::Mixed => return Err("a word that is none"),
                Token::Symbol(b'(') => {
                    let no_list = ["USING", "IN", "INTO", "TABLE"];
                    levels.push(introduced && !before.is_some_and(|t| t.is_any(&no_list)));
                }
                Token::Symbol(b')') => {
                    if introduced || levels.len() == 1 {
                        return Err("a statement that cannot be read");
                    }
                    levels.pop();
                }
                Token::Symbol(_) | Token::Text(_) | Token::Other if introduced => {
                    return Err("a table that is not named plainly");
                }
                // A number may end in a full stop, and a word be at its heels.
                Token::Symbol(b'.')
                    if !matches!(before, Some(Token::Word(_) | Token::Name(_)))
                        && matches!(tokens.get(at + 1), Some(Token::Word(_) | Token::Name(_))) =>
                {
                    return Err("a word that is none");
                }
                // A name in quotes of another kind, or with quotes in it.
                Token::Text(_) | Token::Other if called => {
                    return Err("a function that is not the database's own");
                }
                Token::Word(word) if !is_part && (!introduced || token.is_any(&NO_TABLES)) => {
                    self.keyword(token, before.as_ref(), &mut levels)?;
                    if called && !own_functions::is_known(self.dialect, word) {
                        return Err("a function that is not the database's own");
                    }
                    // Of `FOR UPDATE`, and of what is done with a double key.
                    if token.is("UPDATE") && before.is_some_and(|t| t.is_any(&DOES_NOT_UPDATE)) {
                        next = Token::Other;
                    }
                }
                Token::Word(_) | Token::Name(_) if introduced => {
                    at = self.table(tokens, at, before.as_ref())?;
                    next = tokens[at];
                    // Not a word of the language.
                    if matches!(next, Token::Word(_)) {
                        next = Token::Name(b"");
                    }
                }
                Token::Word(_) | Token::Name(_) if called => {
                    return Err("a function that is not the database's own");
                }
                Token::Word(_) if is_part => next = Token::Name(b""),
                _ => {}
            }
            is_part = token == Token::Symbol(b'.');
            before = Some(next);
            at += 1;
        }
        let in_list = levels.last().copied().unwrap_or(false);
        match levels.len() == 1 && !self.introduces(before.as_ref(), in_list) {
            true => Ok(()),
            false => Err("a statement that cannot be read"),
        }
    }

    /// Whether what follows is a table, or begins a list of some.
    fn introduces(&self, before: Option<&Token<'_>>, in_list: bool) -> bool {
        match before {
            Some(Token::Symbol(b',' | b'(')) => in_list,
            Some(word) => {
                word.is_any(&INTRODUCERS) || (self.dialect == Dialect::Sqlite && word.is("IN"))
            }
            None => false,
        }
    }

    fn keyword(
        &self,
        word: Token<'_>,
        before: Option<&Token<'_>>,
        levels: &mut [bool],
    ) -> Result<(), Unclear> {
        let Some(level) = levels.last_mut() else {
            return Ok(());
        };
        // `USE INDEX FOR ORDER BY (…)` is within a list.
        let hint = before.is_some_and(|t| t.is("FOR"));
        if word.is_any(&ENDS) && !(hint && word.is_any(&["ORDER", "GROUP"])) {
            *level = false;
        } else if word.is_any(&["FROM", "JOIN", "STRAIGHT_JOIN", "USING"])
            || (word.is("UPDATE") && !before.is_some_and(|t| t.is_any(&DOES_NOT_UPDATE)))
        {
            *level = true;
        } else if word.is_any(&["PROCEDURE", "HANDLER"]) {
            return Err("a procedure");
        } else if word.is_any(&["NEXT", "PREVIOUS"]) {
            return Err("a sequence");
        } else if self.select && word.is("INTO") {
            return Err("SELECT INTO");
        }
        Ok(())
    }

    /// The table at `at`, with its schema if it has one; gives where its last part is.
    fn table(
        &mut self,
        tokens: &[Token<'_>],
        at: usize,
        before: Option<&Token<'_>>,
    ) -> Result<usize, Unclear> {
        let mut at = at;
        while tokens.get(at + 1) == Some(&Token::Symbol(b'.')) {
            let schema = match tokens.get(at) {
                Some(Token::Word(name) | Token::Name(name)) => *name,
                _ => b"",
            };
            let is = |known: &str| schema.eq_ignore_ascii_case(known.as_bytes());
            if SYSTEM.iter().any(|known| is(known)) {
                return Err("a table of the database's own");
            }
            at += 2;
        }
        let (Some(Token::Word(name)) | Some(Token::Name(name))) = tokens.get(at) else {
            return Err("a table that is not named plainly");
        };
        // Only the table of an INSERT has a parenthesis behind it: the columns.
        let columns = before.is_some_and(|t| !t.is_any(&["FROM", "JOIN", "USING", "IN"]))
            && !self.select
            && matches!(before, Some(Token::Word(_)));
        if tokens.get(at + 1) == Some(&Token::Symbol(b'(')) && !columns {
            return Err("a function in a table's place");
        }
        self.put(name)?;
        Ok(at)
    }
}
