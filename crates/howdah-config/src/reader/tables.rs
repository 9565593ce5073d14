//! Reads the tables within a table. Each of them becomes a section of its own.

use toml::Spanned;
use toml::de::DeValue;

use super::{ConfigSection, Located, type_name};

impl<'c> ConfigSection<'c> {
    /// Returns the table `key` below this one as a section. If the table is absent, all its options have their
    /// defaults.
    pub fn section(&self, key: &str, name: &'static str) -> ConfigSection<'c> {
        let raw = self.raw(key);
        let table = raw.and_then(|raw| match raw.get_ref() {
            DeValue::Table(table) => Some(table),
            other => {
                let found = type_name(other);
                let message = format!("{key}: expected a table, found {found}");
                self.file.mistake(Some(raw.span()), message);
                None
            }
        });
        ConfigSection::new(self.file, name, table, raw.map(Spanned::span), &[])
    }

    /// Returns the tables `[key.NAME]`, each with its `NAME`. Their keys are those of the section `name` of the
    /// options.
    pub fn named_sections(
        &self,
        key: &str,
        name: &'static str,
    ) -> Vec<(Located<String>, ConfigSection<'c>)> {
        let Some(raw) = self.raw(key) else {
            return Vec::new();
        };
        let DeValue::Table(table) = raw.get_ref() else {
            let message = format!("{key}: expected tables `[{key}.NAME]`");
            self.file.mistake(Some(raw.span()), message);
            return Vec::new();
        };
        let mut sections = Vec::new();
        for (label, value) in table.iter() {
            let label = Located {
                value: label.get_ref().clone().into_owned(),
                place: Some(label.span()),
            };
            match value.get_ref() {
                DeValue::Table(table) => {
                    let place = label.place.clone();
                    let full = format!("{key}.{}", label.value);
                    let section =
                        ConfigSection::labelled(self.file, name, full, Some(table), place, &[]);
                    sections.push((label, section));
                }
                other => self.file.mistake(
                    Some(value.span()),
                    format!(
                        "{key}.{}: expected a table `[{key}.NAME]`, found {}",
                        label.value,
                        type_name(other)
                    ),
                ),
            }
        }
        // The sections are sorted into the order of the file.
        sections.sort_by_key(|(label, _)| label.place.as_ref().map(|p| p.start));
        sections
    }

    /// Does the same as [`ConfigSection::sections`], but also accepts a single table: `key = { … }`.
    pub fn one_or_more_sections(&self, key: &str, name: &'static str) -> Vec<ConfigSection<'c>> {
        match self.raw(key).map(Spanned::get_ref) {
            Some(DeValue::Table(_)) => vec![self.section(key, name)],
            _ => self.sections(key, name),
        }
    }

    /// Returns the tables `[[key]]`. Their keys are those of the section `name` of the options.
    pub fn sections(&self, key: &str, name: &'static str) -> Vec<ConfigSection<'c>> {
        let Some(raw) = self.raw(key) else {
            return Vec::new();
        };
        let wrong = |value: &Spanned<DeValue<'_>>| {
            let found = type_name(value.get_ref());
            let message = format!("expected tables `[[{name}]]`, found {found}");
            self.file.mistake(Some(value.span()), message);
        };
        let DeValue::Array(array) = raw.get_ref() else {
            wrong(raw);
            return Vec::new();
        };
        let mut sections = Vec::new();
        for item in array.iter() {
            match item.get_ref() {
                DeValue::Table(table) => sections.push(ConfigSection::new(
                    self.file,
                    name,
                    Some(table),
                    Some(item.span()),
                    &[],
                )),
                _ => wrong(item),
            }
        }
        sections
    }
}
