//! Howdah's configuration as the importer writes it: tables in the order of the reference, each line with
//! the place that it comes from.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use toml_writer::{ToTomlKey, ToTomlValue};

use crate::directive::Place;
use crate::{EMPTY_ROOT, Request};

/// A value of TOML, as far as the configuration needs them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A number.
    Number(u64),
    /// `true`, `false`
    On(bool),
    /// A list of texts.
    Texts(Vec<String>),
    /// Names and values on one line.
    Pairs(Vec<(String, String)>),
    /// Tables on one line.
    Tables(Vec<Vec<(String, Value)>>),
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

/// A table: its lines in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// What stands above it.
    pub comments: Vec<String>,
    /// Keys with values, and where they come from.
    pub pairs: Vec<(String, Value, Option<String>)>,
}

impl Table {
    /// Adds or replaces a value.
    pub fn set(&mut self, key: &str, value: impl Into<Value>, from: Option<&Place>) {
        let line = (key.to_owned(), value.into(), from.map(ToString::to_string));
        match self.pairs.iter_mut().find(|(known, ..)| known == key) {
            Some(there) => *there = line,
            None => self.pairs.push(line),
        }
    }

    /// A value.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let mut pairs = self.pairs.iter();
        pairs
            .find(|(known, ..)| known == key)
            .map(|(_, value, _)| value)
    }

    /// A line above the table.
    pub fn comment(&mut self, text: impl Into<String>) {
        self.comments.push(text.into());
    }
}

/// Names and values that become a table of their own.
pub type Pairs = Vec<(String, String)>;

/// Sets a value, also one that is there.
pub fn set_pair(pairs: &mut Pairs, name: String, value: String) {
    match pairs.iter_mut().find(|(known, _)| *known == name) {
        Some(there) => there.1 = value,
        None => pairs.push((name, value)),
    }
}

/// Sets a value; one that is there stays, as in php-fpm, which applies its lines from the last to the first.
pub fn first_pair(pairs: &mut Pairs, name: String, value: String) {
    if !pairs.iter().any(|(known, _)| *known == name) {
        pairs.push((name, value));
    }
}

/// `[[site]]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Its own lines.
    pub table: Table,
    /// `[[site.certificate]]`
    pub certificates: Vec<Table>,
    /// `[[site.rule]]`
    pub rules: Vec<Table>,
    /// `[site.env]` and its kin, by name.
    pub pairs: BTreeMap<&'static str, Pairs>,
}

impl Site {
    /// Adds to a table of names and values; a name that is there keeps its value.
    pub fn pair(&mut self, table: &'static str, name: &str, value: &str) {
        let pairs = self.pairs.entry(table).or_default();
        first_pair(pairs, name.to_owned(), value.to_owned());
    }
}

/// The whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Before the first section.
    pub top: Table,
    /// `[log]`, `[limits]` and so on, by name.
    pub sections: BTreeMap<&'static str, Table>,
    /// `[pool.NAME]`, and its tables of names and values.
    pub pools: Vec<(String, Table, BTreeMap<&'static str, Pairs>)>,
    /// `[[site]]`
    pub sites: Vec<Site>,
    /// A site has no files of its own.
    pub needs_empty_root: bool,
}

impl Config {
    /// A section.
    pub fn section(&mut self, name: &'static str) -> &mut Table {
        self.sections.entry(name).or_default()
    }

    /// As a file.
    pub fn to_toml(&self, request: &Request) -> String {
        let paths = request.paths.iter().map(|path| path.display().to_string());
        let paths: Vec<String> = paths.collect();
        let mut out = format!(
            "# Made by `howdah import {}` of {}.\n\
             # What is not here is in {}, line by line.\n\
             # The comments name the file and line that a part comes from.\n\n",
            request.format.name(),
            one_line(&paths.join(", ")),
            one_line(&request.list),
        );
        write_table(&mut out, &self.top);
        for (name, table) in &self.sections {
            if !table.pairs.is_empty() {
                write_head(&mut out, table, &format!("[{name}]"));
                write_table(&mut out, table);
            }
        }
        for (name, table, pairs) in &self.pools {
            let key = name.to_toml_key();
            write_head(&mut out, table, &format!("[pool.{key}]"));
            write_table(&mut out, table);
            write_pairs(&mut out, &format!("pool.{key}"), pairs);
        }
        for site in &self.sites {
            write_head(&mut out, &site.table, "[[site]]");
            write_table(&mut out, &site.table);
            for table in &site.certificates {
                write_head(&mut out, table, "[[site.certificate]]");
                write_table(&mut out, table);
            }
            for table in &site.rules {
                write_head(&mut out, table, "[[site.rule]]");
                write_table(&mut out, table);
            }
            write_pairs(&mut out, "site", &site.pairs);
        }
        out
    }

    /// The root of a site without files.
    pub fn empty_root(&mut self) -> &'static str {
        self.needs_empty_root = true;
        EMPTY_ROOT
    }
}

fn write_head(out: &mut String, table: &Table, head: &str) {
    out.push('\n');
    for comment in &table.comments {
        let _ = writeln!(out, "# {}", one_line(comment));
    }
    let _ = writeln!(out, "{head}");
}

fn write_table(out: &mut String, table: &Table) {
    for (key, value, from) in &table.pairs {
        let _ = write!(out, "{} = {}", key.to_toml_key(), toml(value));
        if let Some(from) = from {
            let _ = write!(out, "  # {}", one_line(from));
        }
        out.push('\n');
    }
}

fn write_pairs(out: &mut String, of: &str, tables: &BTreeMap<&'static str, Pairs>) {
    for (name, pairs) in tables.iter().filter(|(_, pairs)| !pairs.is_empty()) {
        let _ = writeln!(out, "\n[{of}.{name}]");
        for (key, value) in pairs {
            let (key, value) = (key.to_toml_key(), value.to_toml_value());
            let _ = writeln!(out, "{key} = {value}");
        }
    }
}

fn toml(value: &Value) -> String {
    match value {
        Value::Text(text) => text.to_toml_value(),
        Value::Number(number) => number.to_string(),
        Value::On(on) => on.to_string(),
        Value::Texts(texts) => {
            let texts: Vec<String> = texts.iter().map(|text| text.to_toml_value()).collect();
            format!("[{}]", texts.join(", "))
        }
        Value::Pairs(pairs) => {
            let pair = |(key, value): &(String, String)| {
                format!("{} = {}", key.to_toml_key(), value.to_toml_value())
            };
            let pairs: Vec<String> = pairs.iter().map(pair).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        Value::Tables(tables) => {
            let pair =
                |(key, value): &(String, Value)| format!("{} = {}", key.to_toml_key(), toml(value));
            let table = |pairs: &Vec<(String, Value)>| {
                let pairs: Vec<String> = pairs.iter().map(pair).collect();
                format!("{{ {} }}", pairs.join(", "))
            };
            let tables: Vec<String> = tables.iter().map(table).collect();
            match &tables[..] {
                [only] => only.clone(),
                _ => format!("[{}]", tables.join(", ")),
            }
        }
    }
}

/// Names of files may hold anything; a comment ends with its line.
fn one_line(text: &str) -> String {
    text.replace(char::is_control, "?")
}

/// Whether a rule may set a field of that name.
pub fn is_settable(name: &str) -> bool {
    const OWN: &[&str] = &[
        "connection",
        "content-length",
        "date",
        "keep-alive",
        "transfer-encoding",
        "upgrade",
    ];
    let plain = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !name.is_empty()
        && name.chars().all(plain)
        && !OWN.iter().any(|own| name.eq_ignore_ascii_case(own))
}

/// What the list says of a server that is spoken to with TLS.
pub const CERTIFICATE: &str =
    "its certificate must be valid for its name: Howdah checks it (docs/proxy.md)";
/// A variable in the target of a rule: in braces if `after`, which follows it, would be read as part of
/// its name.
pub fn variable(name: &str, after: &str) -> String {
    match after.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic()) {
        true => format!("${{{name}}}"),
        false => format!("${name}"),
    }
}
