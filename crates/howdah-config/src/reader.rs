//! Reads a parsed file along the table of options: takes values by key, records what is unknown or of the wrong kind,
//! and continues with the default, so every mistake is found in one pass.

use std::cell::RefCell;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::environment::EnvironmentOptions;
use super::foreign_words::{self, ForeignWord};
use super::kind::OptionKind;
use super::mistake::Mistakes;
use super::options::{self, OPTIONS, OptionSpec};
use super::source::ConfigSource;
use super::suggest;
use super::value::{self, OptionValue, WrittenValue};

mod tables;

/// A place in the file; `None` for values that are not in the file.
pub type SourcePlace = Option<Range<usize>>;

/// A value of the file with its place, for messages about it.
#[derive(Clone, Debug)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// The place in the file.
    pub place: SourcePlace,
}

/// The state that all sections of a configuration share.
pub struct ConfigReader<'c> {
    mistakes: RefCell<Mistakes>,
    source: &'c ConfigSource,
    /// The directory at which relative paths start.
    directory: PathBuf,
    /// How much is looked up in the system.
    pub validation: Validation,
    /// The environment variables that are merged into the file.
    pub environment: EnvironmentOptions,
}

/// How much of a configuration is looked up in the system while it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validation {
    /// Everything is looked up: users, programs and files of PHP. For the master and `howdah check`.
    Full,
    /// The lookups of the master are trusted. For the front, which has threads and no longer has the rights to check
    /// them.
    Trusted,
}

impl<'c> ConfigReader<'c> {
    /// Creates the state of a configuration of these files, whose relative paths start at the first file's directory.
    /// Mistakes are added to those that are known already.
    pub fn new(
        mistakes: Mistakes,
        source: &'c ConfigSource,
        validation: Validation,
    ) -> ConfigReader<'c> {
        let directory = Path::new(source.name()).parent().map(Path::to_owned);
        ConfigReader {
            mistakes: RefCell::new(mistakes),
            source,
            directory: directory.unwrap_or_default(),
            validation,
            environment: EnvironmentOptions::default(),
        }
    }

    /// Adds environment variables to the file.
    pub fn with_environment(mut self, environment: &EnvironmentOptions) -> ConfigReader<'c> {
        self.environment = environment.clone();
        self
    }

    /// Returns the recorded mistakes and advice.
    pub fn into_mistakes(self) -> Mistakes {
        self.mistakes.into_inner()
    }

    /// Returns whether a mistake has been recorded.
    pub fn has_mistakes(&self) -> bool {
        self.mistakes.borrow().has_mistakes()
    }

    /// Returns the files.
    pub fn source(&self) -> &ConfigSource {
        self.source
    }

    /// Records a mistake.
    pub fn mistake(&self, place: SourcePlace, message: impl Into<String>) {
        self.mistakes.borrow_mut().add_mistake(place, message);
    }

    /// Records advice.
    pub fn advise(&self, place: SourcePlace, message: impl Into<String>) {
        self.mistakes.borrow_mut().advise(place, message);
    }

    /// Resolves a path of the file.
    pub fn path(&self, text: &str) -> PathBuf {
        self.directory.join(Path::new(text))
    }
}

/// A table of the file. If the table is absent, everything has its default.
pub struct ConfigSection<'c> {
    file: &'c ConfigReader<'c>,
    name: &'static str,
    /// The name of the table in this file, such as `pool.www`.
    label: String,
    table: Option<&'c DeTable<'c>>,
    /// The place where the table begins.
    pub place: SourcePlace,
}

impl<'c> ConfigSection<'c> {
    /// Opens a table as the section `name` of the options; unknown keys are recorded.
    pub fn new(
        file: &'c ConfigReader<'c>,
        name: &'static str,
        table: Option<&'c DeTable<'c>>,
        place: SourcePlace,
        subtables: &[&'static str],
    ) -> Self {
        let label = name.to_owned();
        ConfigSection::labelled(file, name, label, table, place, subtables)
    }

    fn labelled(
        file: &'c ConfigReader<'c>,
        name: &'static str,
        label: String,
        table: Option<&'c DeTable<'c>>,
        place: SourcePlace,
        subtables: &[&'static str],
    ) -> Self {
        let section = ConfigSection {
            file,
            name,
            label,
            table,
            place,
        };
        for (key, value) in section.table.into_iter().flat_map(DeTable::iter) {
            let text: &str = key.get_ref();
            // Everything is read here once, so mistakes are reported even if the command line or another option makes
            // the value ineffective. A mistake that is recorded twice is stored once.
            match options::find(name, text).map(|spec| spec.kind) {
                Some(OptionKind::Texts) => drop(section.texts(text)),
                Some(OptionKind::Pairs) => drop(section.pairs(text)),
                Some(OptionKind::Table | OptionKind::Sections) => {}
                Some(_) => drop(section.value(text)),
                None if subtables.contains(&text) => {}
                None => section.unknown(text, value.get_ref(), key.span(), subtables),
            }
        }
        section
    }

    fn unknown(
        &self,
        key: &str,
        value: &DeValue<'_>,
        place: Range<usize>,
        subtables: &[&'static str],
    ) {
        let known: Vec<&str> = OPTIONS
            .iter()
            .filter(|spec| spec.section == self.name)
            .map(|spec| spec.key)
            .chain(subtables.iter().copied())
            .collect();
        let mut message = match self.label.as_str() {
            "" => format!("unknown key `{}`", key.escape_debug()),
            label => format!("unknown key `{}` in [{label}]", key.escape_debug()),
        };
        if let Some(instead) = options::replacement_of_removed(self.name, key) {
            message += &format!("; it was removed: {instead}");
        } else if let Some(foreign) = foreign_word(key, value) {
            message += &format!("; {}", foreign.hint());
        } else if let Some(near) = suggest::nearest(key, &known) {
            message += &format!("; did you mean `{near}`?");
        } else if let Some(other) = OPTIONS.iter().find(|spec| spec.key == key) {
            message += &match other.section {
                "" => "; it belongs at the top of the file".to_owned(),
                section => format!("; it belongs in [{section}]"),
            };
        }
        self.file.mistake(Some(place), message);
    }

    /// Returns the file that contains the section.
    pub fn file(&self) -> &'c ConfigReader<'c> {
        self.file
    }

    /// Returns the file and the number of the line where the table begins.
    pub fn line(&self) -> Option<(&'c str, usize)> {
        let (file, at) = self.file.source.at(self.place.as_ref()?.start)?;
        Some((&file.name, file.line(at)))
    }

    fn spec(&self, key: &str) -> &'static OptionSpec {
        options::find(self.name, key)
            .unwrap_or_else(|| panic!("option {}.{key} is not in the table", self.name))
    }

    fn raw(&self, key: &str) -> Option<&'c Spanned<DeValue<'c>>> {
        self.table?.get(key)
    }

    /// Returns whether the file sets this key.
    pub fn has(&self, key: &str) -> bool {
        self.raw(key).is_some()
    }

    /// Returns the place where the table begins.
    pub fn place(&self) -> SourcePlace {
        self.place.clone()
    }

    /// Returns the place of the key's value.
    pub fn place_of(&self, key: &str) -> SourcePlace {
        self.raw(key).map(Spanned::span).or(self.place.clone())
    }

    /// Returns the value or the default; `None` if there is neither.
    fn value(&self, key: &str) -> Option<OptionValue> {
        let spec = self.spec(key);
        if let Some(raw) = self.raw(key) {
            let scalar = scalar(raw.get_ref());
            match value::parse(spec.kind, &scalar) {
                Ok(value) => return Some(value),
                Err(why) => {
                    let foreign = dotted_foreign_word(key, raw.get_ref());
                    let hint = foreign.map(|foreign| format!("; {}", foreign.hint()));
                    let message = format!("{key}: {why}{}", hint.unwrap_or_default());
                    self.file.mistake(Some(raw.span()), message);
                }
            }
        }
        if spec.default.is_empty() {
            return None;
        }
        if spec.kind == OptionKind::Texts {
            let texts = spec.default.split(", ").map(str::to_owned).collect();
            return Some(OptionValue::Texts(texts));
        }
        // A test parses every default of the table.
        value::parse(spec.kind, &WrittenValue::written(spec.default)).ok()
    }

    /// Stores the values of all options of this section for which `setter` returns a setter of a field of `to`.
    pub fn fill<T>(
        &self,
        setter: impl Fn(&OptionSpec) -> Option<fn(&mut T, OptionValue)>,
        to: &mut T,
    ) {
        let specs = OPTIONS.iter().filter(|spec| spec.section == self.name);
        for (spec, put) in specs.filter_map(|spec| Some((spec, setter(spec)?))) {
            let value = match spec.kind {
                OptionKind::Texts => {
                    let texts = self.texts(spec.key).into_iter();
                    Some(OptionValue::Texts(texts.map(|text| text.value).collect()))
                }
                OptionKind::Pairs => {
                    let pairs = self.pairs(spec.key).into_iter();
                    Some(OptionValue::Pairs(pairs.map(|pair| pair.value).collect()))
                }
                OptionKind::Path => self.path(spec.key).map(OptionValue::Path),
                _ => self.value(spec.key),
            };
            if let Some(value) = value {
                put(to, value);
            }
        }
    }

    /// Returns the options that the file sets in this section.
    pub fn given_options(&self) -> impl Iterator<Item = &'static OptionSpec> {
        let specs = OPTIONS.iter().filter(|spec| spec.section == self.name);
        specs.filter(|spec| self.has(spec.key))
    }

    /// Returns whether the option is `on`.
    pub fn is_on(&self, key: &str) -> bool {
        matches!(self.value(key), Some(OptionValue::OnOff(true)))
    }

    /// Returns a number; `None` means `auto`, or that there is neither a value nor a default.
    pub fn number(&self, key: &str) -> Option<u64> {
        match self.value(key) {
            Some(OptionValue::Integer(n)) => Some(n),
            _ => None,
        }
    }

    /// Returns a time; `None` means `off`, or that there is neither a value nor a default.
    pub fn time(&self, key: &str) -> Option<Duration> {
        match self.value(key) {
            Some(OptionValue::Time(time)) => Some(time),
            _ => None,
        }
    }

    /// Returns a size in bytes; `None` means `off`.
    pub fn size(&self, key: &str) -> Option<u64> {
        match self.value(key) {
            Some(OptionValue::Size(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// Returns a string or word.
    pub fn text(&self, key: &str) -> Option<String> {
        match self.value(key) {
            Some(OptionValue::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns the meaning of an option's word. `meanings` must contain every word of the option's row in the table,
    /// and the option must have a default.
    pub fn word<T: Copy>(&self, key: &str, meanings: &[(&str, T)]) -> T {
        let text = self.text(key).unwrap_or_default();
        let meaning = meanings.iter().find(|(word, _)| *word == text);
        let (_, meaning) =
            meaning.unwrap_or_else(|| unreachable!("{key} does not accept the word `{text}`"));
        *meaning
    }

    /// Returns a path.
    pub fn path(&self, key: &str) -> Option<PathBuf> {
        self.text(key).map(|text| self.file.path(&text))
    }

    /// Returns several strings, each with its place.
    pub fn texts(&self, key: &str) -> Vec<Located<String>> {
        if let Some(raw) = self.raw(key)
            && let DeValue::Array(array) = raw.get_ref()
        {
            let texts = array.iter().filter_map(|item| match item.get_ref() {
                DeValue::String(text) => Some(Located {
                    value: text.clone().into_owned(),
                    place: Some(item.span()),
                }),
                other => {
                    let found = type_name(other);
                    let message = format!("{key}: expected a string in quotes, found {found}");
                    self.file.mistake(Some(item.span()), message);
                    None
                }
            });
            return texts.collect();
        }
        let place = self.place_of(key);
        match self.value(key) {
            Some(OptionValue::Texts(texts)) => texts
                .into_iter()
                .map(|value| Located {
                    value,
                    place: place.clone(),
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Returns names and values. Numbers and booleans are converted to the strings they look like, except that `true`
    /// becomes `1` and `false` becomes `0`, as PHP understands them.
    pub fn pairs(&self, key: &str) -> Vec<Located<(String, String)>> {
        let Some(raw) = self.raw(key) else {
            return Vec::new();
        };
        let DeValue::Table(table) = raw.get_ref() else {
            self.value(key);
            return Vec::new();
        };
        let pairs = table.iter().filter_map(|(name, value)| {
            let text = match value.get_ref() {
                DeValue::String(text) => text.clone().into_owned(),
                DeValue::Integer(number) => number.to_string(),
                DeValue::Float(number) => number.as_str().to_owned(),
                DeValue::Boolean(on) => if *on { "1" } else { "0" }.to_owned(),
                other => {
                    let message = format!("{key}: expected a string, found {}", type_name(other));
                    self.file.mistake(Some(value.span()), message);
                    return None;
                }
            };
            if text.contains(['\0', '\n']) || name.get_ref().contains(['\0', '=', '\n']) {
                let message =
                    format!("{key}: a name or value cannot contain a line end or a NUL byte");
                self.file.mistake(Some(value.span()), message);
                return None;
            }
            Some(Located {
                value: (name.get_ref().clone().into_owned(), text),
                place: Some(value.span()),
            })
        });
        pairs.collect()
    }
}

/// Finds the word of another program that equals a key, or from which TOML made the key.
fn foreign_word(key: &str, value: &DeValue<'_>) -> Option<&'static ForeignWord> {
    dotted_foreign_word(key, value).or_else(|| foreign_words::find(key))
}

/// Finds the word of another program that a table was made from: TOML reads `pm.max_children = 5` as a table `pm`.
fn dotted_foreign_word(key: &str, value: &DeValue<'_>) -> Option<&'static ForeignWord> {
    let DeValue::Table(table) = value else {
        return None;
    };
    let mut inner = table.keys();
    inner.find_map(|inner| foreign_words::find(&format!("{key}.{}", inner.get_ref())))
}

fn scalar(value: &DeValue<'_>) -> WrittenValue {
    match value {
        DeValue::String(text) => WrittenValue::Text(text.clone().into_owned()),
        DeValue::Boolean(on) => WrittenValue::Bool(*on),
        DeValue::Integer(number) => match u64::from_str_radix(number.as_str(), number.radix()) {
            Ok(n) => WrittenValue::Number(n.to_string()),
            Err(_) => WrittenValue::Number(number.to_string()),
        },
        other => WrittenValue::Other(type_name(other)),
    }
}

fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "`true` or `false`",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
