//! Howdah's configuration as the importer writes it: tables in the order of the reference, each line with the place in
//! the old configuration that it comes from.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use toml_writer::{ToTomlKey, ToTomlValue};

use crate::directive::SourceLine;
use crate::{EMPTY_ROOT, ImportRequest};

/// A TOML value, limited to the kinds that the configuration needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TomlValue {
    /// A string.
    Text(String),
    /// A number.
    Number(u64),
    /// A boolean.
    Bool(bool),
    /// An array of strings.
    Texts(Vec<String>),
    /// An inline table of names and strings.
    Pairs(Vec<(String, String)>),
    /// An array of inline tables; a single one is written without brackets.
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

/// A table with its lines in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TomlTable {
    /// The comments above the table.
    pub comments: Vec<String>,
    /// Keys with values, and where each line comes from.
    pub pairs: Vec<(String, TomlValue, Option<String>)>,
}

impl TomlTable {
    /// Sets a value, and replaces one that is there.
    pub fn set(&mut self, key: &str, value: impl Into<TomlValue>, from: Option<&SourceLine>) {
        let line = (key.to_owned(), value.into(), from.map(ToString::to_string));
        match self.pairs.iter_mut().find(|(known, ..)| known == key) {
            Some(there) => *there = line,
            None => self.pairs.push(line),
        }
    }

    /// Returns a value.
    pub fn get(&self, key: &str) -> Option<&TomlValue> {
        let mut pairs = self.pairs.iter();
        pairs
            .find(|(known, ..)| known == key)
            .map(|(_, value, _)| value)
    }

    /// Adds a comment above the table.
    pub fn comment(&mut self, text: impl Into<String>) {
        self.comments.push(text.into());
    }
}

/// Names and values that are written as a separate table.
pub type NameValuePairs = Vec<(String, String)>;

/// Sets a value, and replaces one that is there.
pub fn set_pair(pairs: &mut NameValuePairs, name: String, value: String) {
    match pairs.iter_mut().find(|(known, _)| *known == name) {
        Some(there) => there.1 = value,
        None => pairs.push((name, value)),
    }
}

/// Sets a value unless the name has one, as in php-fpm, which applies its lines from the last to the first.
pub fn set_pair_if_absent(pairs: &mut NameValuePairs, name: String, value: String) {
    if !pairs.iter().any(|(known, _)| *known == name) {
        pairs.push((name, value));
    }
}

/// A `[[site]]` table with its subtables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteTable {
    /// The lines of the site itself.
    pub table: TomlTable,
    /// The `[[site.certificate]]` tables.
    pub certificates: Vec<TomlTable>,
    /// The `[[site.rule]]` tables.
    pub rules: Vec<TomlTable>,
    /// `[site.env]` and similar tables, by name.
    pub pairs: BTreeMap<&'static str, NameValuePairs>,
}

impl SiteTable {
    /// Adds a pair to a table of names and values, unless the name has a value already.
    pub fn set_pair_if_absent(&mut self, table: &'static str, name: &str, value: &str) {
        let pairs = self.pairs.entry(table).or_default();
        set_pair_if_absent(pairs, name.to_owned(), value.to_owned());
    }
}

/// The whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetConfig {
    /// The lines before the first section.
    pub top: TomlTable,
    /// `[log]`, `[limits]` and other sections, by name.
    pub sections: BTreeMap<&'static str, TomlTable>,
    /// `[pool.NAME]`, with its tables of names and values.
    pub pools: Vec<(String, TomlTable, BTreeMap<&'static str, NameValuePairs>)>,
    /// The `[[site]]` tables.
    pub sites: Vec<SiteTable>,
    /// True if a site has no files of its own.
    pub needs_empty_root: bool,
}

impl TargetConfig {
    /// Returns a section, created if necessary.
    pub fn section(&mut self, name: &'static str) -> &mut TomlTable {
        self.sections.entry(name).or_default()
    }

    /// Formats the configuration as the text of a file.
    pub fn to_toml(&self, request: &ImportRequest) -> String {
        let paths = request.paths.iter().map(|path| path.display().to_string());
        let paths: Vec<String> = paths.collect();
        let mut out = format!(
            "# Made by `howdah import {}` of {}.\n\
             # {} lists everything that was not carried over, line by line.\n\
             # The comments name the file and line that a part comes from.\n\n",
            request.format.name(),
            strip_control_characters(&paths.join(", ")),
            strip_control_characters(&request.list),
        );
        self.write_tables(&mut out);
        out
    }

    /// Appends the tables of the configuration, in the order of the reference.
    pub fn write_tables(&self, out: &mut String) {
        write_table(out, &self.top);
        for (name, table) in &self.sections {
            if !table.pairs.is_empty() {
                write_head(out, table, &format!("[{name}]"));
                write_table(out, table);
            }
        }
        for (name, table, pairs) in &self.pools {
            let key = name.to_toml_key();
            write_head(out, table, &format!("[pool.{key}]"));
            write_table(out, table);
            write_pairs(out, &format!("pool.{key}"), pairs);
        }
        for site in &self.sites {
            write_head(out, &site.table, "[[site]]");
            write_table(out, &site.table);
            for table in &site.certificates {
                write_head(out, table, "[[site.certificate]]");
                write_table(out, table);
            }
            for table in &site.rules {
                write_head(out, table, "[[site.rule]]");
                write_table(out, table);
            }
            write_pairs(out, "site", &site.pairs);
        }
    }

    /// Returns the root of a site without files.
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

/// Replaces control characters: file names may contain any character, and a line break would end the comment.
fn strip_control_characters(text: &str) -> String {
    text.replace(char::is_control, "?")
}

/// Returns whether a rule may set a header of that name.
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

/// The remark in the list for an upstream server that is reached over TLS.
pub const UPSTREAM_CERTIFICATE_REMARK: &str =
    "Howdah checks that the server's certificate is valid for its name (docs/proxy.md)";
/// Formats a variable in the target of a rule: in braces if the following text, `after`, would be read as part of its
/// name.
pub fn variable_reference(name: &str, after: &str) -> String {
    match after.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic()) {
        true => format!("${{{name}}}"),
        false => format!("${name}"),
    }
}
