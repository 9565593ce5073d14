//! Howdah's configuration as the importer writes it: tables in the order of the reference, each line with
//! the place that it comes from.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use toml_writer::{ToTomlKey, ToTomlValue};

use crate::directive::SourceLine;
use crate::{EMPTY_ROOT, ImportRequest};

/// A value of TOML, as far as the configuration needs them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TomlValue {
    /// A text.
    Text(String),
    /// A number.
    Number(u64),
    /// `true`, `false`
    Bool(bool),
    /// A list of texts.
    Texts(Vec<String>),
    /// Names and values on one line.
    Pairs(Vec<(String, String)>),
    /// Tables on one line.
    Tables(Vec<Vec<(String, TomlValue)>>),
}

impl From<u64> for TomlValue {
    fn from(number: u64) -> TomlValue {
        TomlValue::Number(number)
    }
}

impl From<&str> for TomlValue {
    fn from(text: &str) -> TomlValue {
        TomlValue::Text(text.to_owned())
    }
}

impl From<String> for TomlValue {
    fn from(text: String) -> TomlValue {
        TomlValue::Text(text)
    }
}

/// A table: its lines in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TomlTable {
    /// What stands above it.
    pub comments: Vec<String>,
    /// Keys with values, and where they come from.
    pub pairs: Vec<(String, TomlValue, Option<String>)>,
}

impl TomlTable {
    /// Adds or replaces a value.
    pub fn set(&mut self, key: &str, value: impl Into<TomlValue>, from: Option<&SourceLine>) {
        let line = (key.to_owned(), value.into(), from.map(ToString::to_string));
        match self.pairs.iter_mut().find(|(known, ..)| known == key) {
            Some(there) => *there = line,
            None => self.pairs.push(line),
        }
    }

    /// A value.
    pub fn get(&self, key: &str) -> Option<&TomlValue> {
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
pub type NameValuePairs = Vec<(String, String)>;

/// Sets a value, also one that is there.
pub fn set_pair(pairs: &mut NameValuePairs, name: String, value: String) {
    match pairs.iter_mut().find(|(known, _)| *known == name) {
        Some(there) => there.1 = value,
        None => pairs.push((name, value)),
    }
}

/// Sets a value; one that is there stays, as in php-fpm, which applies its lines from the last to the first.
pub fn set_pair_if_absent(pairs: &mut NameValuePairs, name: String, value: String) {
    if !pairs.iter().any(|(known, _)| *known == name) {
        pairs.push((name, value));
    }
}

/// `[[site]]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteTable {
    /// Its own lines.
    pub table: TomlTable,
    /// `[[site.certificate]]`
    pub certificates: Vec<TomlTable>,
    /// `[[site.rule]]`
    pub rules: Vec<TomlTable>,
    /// `[site.env]` and its kin, by name.
    pub pairs: BTreeMap<&'static str, NameValuePairs>,
}

impl SiteTable {
    /// Adds to a table of names and values; a name that is there keeps its value.
    pub fn set_pair_if_absent(&mut self, table: &'static str, name: &str, value: &str) {
        let pairs = self.pairs.entry(table).or_default();
        set_pair_if_absent(pairs, name.to_owned(), value.to_owned());
    }
}

/// The whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetConfig {
    /// Before the first section.
    pub top: TomlTable,
    /// `[log]`, `[limits]` and so on, by name.
    pub sections: BTreeMap<&'static str, TomlTable>,
    /// `[pool.NAME]`, and its tables of names and values.
    pub pools: Vec<(String, TomlTable, BTreeMap<&'static str, NameValuePairs>)>,
    /// `[[site]]`
    pub sites: Vec<SiteTable>,
    /// A site has no files of its own.
    pub needs_empty_root: bool,
}

impl TargetConfig {
    /// A section.
    pub fn section(&mut self, name: &'static str) -> &mut TomlTable {
        self.sections.entry(name).or_default()
    }

    /// As a file.
    pub fn to_toml(&self, request: &ImportRequest) -> String {
        let paths = request.paths.iter().map(|path| path.display().to_string());
        let paths: Vec<String> = paths.collect();
        let mut out = format!(
            "# Made by `howdah import {}` of {}.\n\
             # What is not here is in {}, line by line.\n\
             # The comments name the file and line that a part comes from.\n\n",
            request.format.name(),
            strip_control_characters(&paths.join(", ")),
            strip_control_characters(&request.list),
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

fn write_head(out: &mut String, table: &TomlTable, head: &str) {
    out.push('\n');
    for comment in &table.comments {
        let _ = writeln!(out, "# {}", strip_control_characters(comment));
    }
    let _ = writeln!(out, "{head}");
}

fn write_table(out: &mut String, table: &TomlTable) {
    for (key, value, from) in &table.pairs {
        let _ = write!(out, "{} = {}", key.to_toml_key(), format_value(value));
        if let Some(from) = from {
            let _ = write!(out, "  # {}", strip_control_characters(from));
        }
        out.push('\n');
    }
}

fn write_pairs(out: &mut String, of: &str, tables: &BTreeMap<&'static str, NameValuePairs>) {
    for (name, pairs) in tables.iter().filter(|(_, pairs)| !pairs.is_empty()) {
        let _ = writeln!(out, "\n[{of}.{name}]");
        for (key, value) in pairs {
            let (key, value) = (key.to_toml_key(), value.to_toml_value());
            let _ = writeln!(out, "{key} = {value}");
        }
    }
}

fn format_value(value: &TomlValue) -> String {
    match value {
        TomlValue::Text(text) => text.to_toml_value(),
        TomlValue::Number(number) => number.to_string(),
        TomlValue::Bool(on) => on.to_string(),
        TomlValue::Texts(texts) => {
            let texts: Vec<String> = texts.iter().map(|text| text.to_toml_value()).collect();
            format!("[{}]", texts.join(", "))
        }
        TomlValue::Pairs(pairs) => {
            let pair = |(key, value): &(String, String)| {
                format!("{} = {}", key.to_toml_key(), value.to_toml_value())
            };
            let pairs: Vec<String> = pairs.iter().map(pair).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        TomlValue::Tables(tables) => {
            let pair = |(key, value): &(String, TomlValue)| {
                format!("{} = {}", key.to_toml_key(), format_value(value))
            };
            let table = |pairs: &Vec<(String, TomlValue)>| {
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
fn strip_control_characters(text: &str) -> String {
    text.replace(char::is_control, "?")
}

/// Whether a rule may set a field of that name.
pub fn is_settable_header(name: &str) -> bool {
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
pub const UPSTREAM_CERTIFICATE_REMARK: &str =
    "its certificate must be valid for its name: Howdah checks it (docs/proxy.md)";
/// A variable in the target of a rule: in braces if `after`, which follows it, would be read as part of
/// its name.
pub fn variable_reference(name: &str, after: &str) -> String {
    match after.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic()) {
        true => format!("${{{name}}}"),
        false => format!("${name}"),
    }
}
