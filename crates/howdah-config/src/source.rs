//! The text of a configuration: the named file, and the files that its `include` names. They are read as one document
//! whose places count through all files, so a place is enough for a mistake to name its file and line.

use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;

use howdah_os::file_patterns::{glob_files, is_pattern};
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::foreign_syntax::ForeignSyntax;
use super::mistake::Mistakes;

/// A configuration as it was read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConfigSource {
    /// The files; the named one is first.
    files: Vec<ConfigFile>,
    /// Patterns of `include` that no file matches.
    #[serde(default)]
    unmatched: Vec<String>,
}

/// A file of a configuration.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ConfigFile {
    /// The name of the file, for messages.
    pub name: String,
    /// The content of the file.
    pub text: String,
    /// The ends of the lines. They are cached at the first use, because every rule needs them.
    #[serde(skip)]
    line_ends: OnceLock<Vec<usize>>,
}

impl ConfigSource {
    /// Creates a configuration of one text.
    pub fn from_text(name: impl Into<String>, text: impl Into<String>) -> ConfigSource {
        let (name, text) = (name.into(), text.into());
        ConfigSource {
            files: vec![ConfigFile::new(name, text)],
            unmatched: Vec::new(),
        }
    }

    /// Reads the file and the files that it includes.
    pub fn read(path: &Path) -> Result<ConfigSource, String> {
        let first = ConfigFile::read(path)?;
        let directory = path.parent().unwrap_or(Path::new(""));
        let (mut names, mut unmatched) = (Vec::new(), Vec::new());
        for pattern in included_paths(&first.text) {
            let pattern = directory.join(pattern);
            match is_pattern(&pattern.to_string_lossy()) {
                true => {
                    let found = glob_files(&pattern);
                    if found.is_empty() {
                        unmatched.push(pattern.display().to_string());
                    }
                    names.extend(found);
                }
                false => names.push(pattern),
            }
        }
        let mut files = vec![first];
        for name in names {
            files.push(ConfigFile::read(&name)?);
        }
        Ok(ConfigSource { files, unmatched })
    }

    /// Returns the patterns of `include` that no file matches.
    pub fn unmatched_includes(&self) -> &[String] {
        &self.unmatched
    }

    /// Returns the name of the first file.
    pub fn name(&self) -> &str {
        self.files.first().map_or("", |file| &file.name)
    }

    /// Returns the files, and the place where each begins.
    pub fn files(&self) -> impl Iterator<Item = (usize, &ConfigFile)> {
        let mut start = 0;
        self.files.iter().map(move |file| {
            let own = start;
            // The end of a file gets a place of its own, so it differs from the start of the next file.
            start += file.text.len() + 1;
            (own, file)
        })
    }

    /// Returns the first place after all files.
    pub fn end(&self) -> usize {
        self.files.iter().map(|file| file.text.len() + 1).sum()
    }

    /// Returns the file of a place, and the position in it.
    pub fn at(&self, place: usize) -> Option<(&ConfigFile, usize)> {
        let before = self.files().take_while(|(start, _)| *start <= place);
        before.last().map(|(start, file)| (file, place - start))
    }

    /// Returns all files as one document. After a syntax error it contains what could be parsed of the rest, which is
    /// still worth checking.
    pub fn document(&self, mistakes: &mut Mistakes) -> DeTable<'_> {
        let mut all = DeTable::new();
        for (number, (start, file)) in self.files().enumerate() {
            let (table, mut errors) = DeTable::parse_recoverable(&file.text);
            // The first error of a line is its cause.
            errors.sort_by_key(|error| error.span().map(|span| span.start));
            for error in &errors {
                match error.span() {
                    Some(span) => {
                        let (line, place, message) =
                            syntax_error(&file.text, span, error.message());
                        mistakes.add_syntax_error(moved(line, start), moved(place, start), message);
                    }
                    None => mistakes.add_mistake(None, error.message()),
                }
            }
            let table = moved_table(table.into_inner(), start);
            if number == 0 {
                all = table;
                continue;
            }
            if let Some(include) = table.get("include") {
                let message = format!("include is allowed only in {}", self.name());
                mistakes.add_mistake(include.span(), message);
            }
            self.merge(&mut all, table, "", mistakes);
        }
        all
    }

    /// Adds sites and tables. A value that both files set is a mistake, so no rule of precedence is needed.
    fn merge<'t>(
        &self,
        all: &mut DeTable<'t>,
        more: DeTable<'t>,
        table: &str,
        mistakes: &mut Mistakes,
    ) {
        for (key, value) in more {
            let name: &str = key.get_ref();
            if table.is_empty() && name == "include" {
                continue;
            }
            let full = format!("{table}{}", name.escape_debug());
            let Some(there) = all.get_mut(name) else {
                all.insert(key, value);
                continue;
            };
            let before = there.span();
            let span = value.span();
            match (there.get_mut(), value.into_inner()) {
                (DeValue::Table(there), DeValue::Table(more)) => {
                    self.merge(there, more, &format!("{full}."), mistakes);
                }
                (DeValue::Array(there), DeValue::Array(more)) if full == "site" => {
                    for site in more {
                        there.push(site);
                    }
                }
                _ => {
                    let mut message = format!("{full}: set twice");
                    if let Some((file, at)) = self.at(before.start) {
                        message += &format!("; also in {}:{}", file.name, file.line(at));
                    }
                    mistakes.add_mistake(span, message);
                }
            }
        }
    }
}

impl ConfigFile {
    fn new(name: String, text: String) -> ConfigFile {
        ConfigFile {
            name,
            text,
            line_ends: OnceLock::new(),
        }
    }

    fn read(path: &Path) -> Result<ConfigFile, String> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read the configuration {name}: {error}"))?;
        match foreign_syntax(&text) {
            Some(syntax) => Err(syntax.message(&name)),
            None => Ok(ConfigFile::new(name, text)),
        }
    }

    /// Returns the number of the line of a position in this file.
    pub fn line(&self, at: usize) -> usize {
        let ends = self.line_ends.get_or_init(|| {
            let bytes = self.text.bytes().enumerate();
            let ends = bytes.filter(|(_, byte)| *byte == b'\n');
            ends.map(|(at, _)| at).collect()
        });
        ends.partition_point(|end| *end < at) + 1
    }
}

/// Returns the line and the place of a syntax error, and what is wrong. A text without quotes is the most frequent one,
/// and the parser reports what it found in the middle of it.
fn syntax_error(
    text: &str,
    span: Range<usize>,
    message: &str,
) -> (Range<usize>, Range<usize>, String) {
    let at = span.start.min(text.len());
    let begin = text.as_bytes()[..at]
        .iter()
        .rposition(|byte| *byte == b'\n');
    let begin = begin.map_or(0, |end| end + 1);
    let end = text.as_bytes()[at..].iter().position(|byte| *byte == b'\n');
    let end = end.map_or(text.len(), |length| at + length);
    // The end of the line is a place of the line, too.
    let line = begin..end + 1;
    match text.get(begin..end).and_then(unquoted_value) {
        Some((key, value)) => {
            let from = end - value.len();
            let value = value.trim_end();
            let place = from..from + value.len();
            (
                line,
                place,
                format!("a string needs quotes: {key} = {value:?}"),
            )
        }
        None => (line, span, message.to_owned()),
    }
}

/// Returns the key and the value of a line `key = value`, if the value is neither quoted nor a list or table. The value
/// extends to the end of the line.
fn unquoted_value(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once('=')?;
    let (key, value) = (key.trim(), value.trim_start());
    let is_key = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let is_text =
        value.starts_with(|first: char| first.is_alphanumeric() || "/.:*$@~".contains(first));
    let is_assignment = !key.is_empty() && key.bytes().all(is_key);
    (is_assignment && is_text && !value.contains(['"', '\'', '#'])).then_some((key, value))
}

/// Recognises the syntax of a text that is not TOML.
fn foreign_syntax(text: &str) -> Option<ForeignSyntax> {
    let (_, mistakes) = DeTable::parse_recoverable(text);
    match mistakes.is_empty() {
        true => None,
        false => ForeignSyntax::recognise(text),
    }
}

/// Returns the values of `include`, as far as the text can be parsed.
fn included_paths(text: &str) -> Vec<String> {
    let (table, _) = DeTable::parse_recoverable(text);
    let text_of = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
        DeValue::String(text) if !text.is_empty() => Some(text.clone().into_owned()),
        // The reader reports what is wrong with the value.
        _ => None,
    };
    match table.get_ref().get("include") {
        Some(value) => match value.get_ref() {
            DeValue::Array(array) => array.iter().filter_map(text_of).collect(),
            _ => text_of(value).into_iter().collect(),
        },
        None => Vec::new(),
    }
}

fn moved(span: Range<usize>, by: usize) -> Range<usize> {
    span.start + by..span.end + by
}

fn moved_table(table: DeTable<'_>, by: usize) -> DeTable<'_> {
    if by == 0 {
        return table;
    }
    let keys = table.into_iter().map(|(key, value)| {
        let span = moved(key.span(), by);
        (Spanned::new(span, key.into_inner()), moved_value(value, by))
    });
    keys.collect()
}

fn moved_value(value: Spanned<DeValue<'_>>, by: usize) -> Spanned<DeValue<'_>> {
    let span = moved(value.span(), by);
    let value = match value.into_inner() {
        DeValue::Table(table) => DeValue::Table(moved_table(table, by)),
        DeValue::Array(array) => {
            let items = array.into_iter().map(|item| moved_value(item, by));
            DeValue::Array(items.collect::<DeArray<'_>>())
        }
        other => other,
    };
    Spanned::new(span, value)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::{LoadedConfiguration, Validation, load};
    use super::*;
    use crate::arguments::ServeArguments;

    /// Loads `howdah.toml` of these files.
    fn loaded(files: &[(&str, &str)]) -> (tempfile::TempDir, LoadedConfiguration) {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("web")).unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let source = ConfigSource::read(&directory.path().join("howdah.toml")).unwrap();
        let loaded = load(
            &ServeArguments::default(),
            Some(&source),
            Validation::Trusted,
        );
        (directory, loaded)
    }

    const MAIN: &str = "include = [\"conf.d/*.toml\", \"sites.d/*.toml\"]\n";

    #[test]
    fn include_adds_sites_and_tables_in_the_order_of_file_names() {
        let site = |host: &str| format!("[[site]]\nhosts = [\"{host}\"]\nroot = \"web\"\n");
        let (directory, loaded) = loaded(&[
            (
                "howdah.toml",
                &format!("{MAIN}[timeouts]\nstop = \"7s\"\n{}", site("first")),
            ),
            ("sites.d/b.toml", &site("third")),
            ("sites.d/a.toml", &site("second")),
            ("sites.d/.a.toml.swp", "not this"),
            ("conf.d/times.toml", "[timeouts]\ndrain = \"8s\"\n"),
        ]);
        let settings = loaded.settings.unwrap();
        let hosts: Vec<String> = settings
            .sites
            .iter()
            .map(|site| site.name.clone())
            .collect();
        assert_eq!(hosts, ["first", "second", "third"]);
        let timeouts = settings.server.timeouts;
        assert_eq!((timeouts.stop.as_secs(), timeouts.drain.as_secs()), (7, 8));
        let root = directory.path().join("web");
        assert!(settings.sites.iter().all(|site| site.root == root));
    }

    #[test]
    fn include_mistake_names_its_own_file_and_a_key_set_twice_names_both() {
        let (directory, loaded) = loaded(&[
            (
                "howdah.toml",
                &format!("{MAIN}threads = 2\n\n[log]\nlevel = \"info\"\n"),
            ),
            ("conf.d/a.toml", "# a\n[log]\nlevel = \"debug\"\n"),
            ("sites.d/b.toml", "threads = 3\nrot = 1\n"),
            (
                "sites.d/c.toml",
                "[[site]]\nroot = \"web\"\nindx = 1\ninclude = 2\n",
            ),
            ("sites.d/d.toml", "include = \"e.toml\"\n"),
        ]);
        let at = |name: &str| directory.path().join(name).display().to_string();
        let (main, d) = (at("howdah.toml"), at("sites.d/d.toml"));
        let said = loaded.settings.unwrap_err();
        let expected = [
            format!(
                "{}:3:9: log.level: set twice; also in {main}:5",
                at("conf.d/a.toml")
            ),
            format!(
                "{}:1:11: threads: set twice; also in {main}:2",
                at("sites.d/b.toml")
            ),
            format!("{}:2:1: unknown key `rot`", at("sites.d/b.toml")),
            format!("{}:3:1: unknown key `indx` in [site]", at("sites.d/c.toml")),
            format!(
                "{}:4:1: unknown key `include` in [site]",
                at("sites.d/c.toml")
            ),
            format!("{d}:1:11: include is allowed only in {main}"),
        ];
        assert_eq!(said.len(), expected.len(), "{}", said.join("\n"));
        for (said, expected) in said.iter().zip(&expected) {
            assert!(said.starts_with(expected), "{expected}\n{said}");
        }
    }

    #[test]
    fn syntax_error_of_a_line_is_reported_once_and_names_missing_quotes() {
        let said = |text: &str| {
            let text = format!("{text}\n[[site]]\nroot = \"web\"\n");
            loaded(&[("howdah.toml", &text)]).1.settings.unwrap_err()
        };
        for (line, expected) in [
            (
                "listen = 127.0.0.1:8600",
                "howdah.toml:1:10: a string needs quotes: listen = \"127.0.0.1:8600\"\n",
            ),
            (
                "user = www-data  ",
                "howdah.toml:1:8: a string needs quotes: user = \"www-data\"\n",
            ),
        ] {
            let said = said(line);
            assert!(said.len() == 1 && said[0].contains(expected), "{said:?}");
        }
    }

    #[test]
    fn file_in_the_syntax_of_another_server_is_one_mistake() {
        let directory = tempfile::tempdir().unwrap();
        let main = directory.path().join("howdah.toml");
        fs::write(&main, "server {\n    listen 80;\n    root /srv;\n}\n").unwrap();
        let said = ConfigSource::read(&main).unwrap_err();
        let name = main.display();
        assert_eq!(
            said,
            format!(
                "{name} is a configuration of nginx, but Howdah's configuration is TOML; translate it with: howdah import nginx {name} -o NEW.toml"
            )
        );
    }

    #[test]
    fn include_of_a_missing_file_fails_and_of_an_unmatched_pattern_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let main = directory.path().join("howdah.toml");
        fs::write(&main, "include = [\"none/*.toml\"]\n").unwrap();
        assert_eq!(ConfigSource::read(&main).unwrap().files.len(), 1);
        fs::write(&main, "include = \"gone.toml\"\n").unwrap();
        let said = ConfigSource::read(&main).unwrap_err();
        assert!(said.contains("gone.toml: No such file"), "{said}");
    }
}
