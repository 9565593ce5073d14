//! Directives of mod_mime.

use std::sync::Arc;

use super::{FileParser, Parsed, one_argument, require_arguments};
use crate::config::{ExtensionAttribute, MimeSettings};
use crate::lines::Line;

impl FileParser<'_> {
    pub(super) fn mime_directive(
        &mut self,
        line: &Line<'_>,
        name: &str,
        all: &[String],
    ) -> Option<Parsed> {
        let done = match name {
            "addtype" | "addcharset" | "addencoding" | "addlanguage" | "addhandler" => {
                require_arguments(2, all).map(|()| self.add(line, name, &all[0], &all[1..]))
            }
            "removetype" | "removecharset" | "removeencoding" | "removelanguage"
            | "removehandler" => require_arguments(1, all).map(|()| self.remove(line, name, all)),
            "defaultlanguage" => one_argument(all).map(|language| {
                self.mime().default_language = Some(language.to_owned());
            }),
            _ => return None,
        };
        Some(done)
    }

    fn mime(&mut self) -> &mut MimeSettings {
        Arc::make_mut(self.settings().mime.get_or_insert_default())
    }

    fn add(&mut self, line: &Line<'_>, name: &str, value: &str, extensions: &[String]) {
        let origin = self.origin(line);
        let value = value.to_ascii_lowercase();
        for extension in extensions {
            let entry = self.mime().extensions.entry(plain(extension)).or_default();
            match name {
                "addtype" => entry.media_type = Some((origin.clone(), value.clone())),
                "addcharset" => entry.charset = Some(value.clone()),
                "addencoding" => entry.encoding = Some(value.clone()),
                "addlanguage" => entry.language = Some(value.clone()),
                _ => {
                    entry.handler = Some((origin.clone(), value.clone()));
                    entry.closed = None;
                }
            }
        }
    }

    fn remove(&mut self, line: &Line<'_>, name: &str, extensions: &[String]) {
        let origin = self.origin(line);
        for extension in extensions {
            let extension = plain(extension);
            let attribute = match name {
                "removetype" => {
                    let entry = self.mime().extensions.entry(extension).or_default();
                    entry.media_type = Some((origin.clone(), String::new()));
                    entry.closed = Some(origin.clone());
                    continue;
                }
                "removecharset" => ExtensionAttribute::Charset,
                "removeencoding" => ExtensionAttribute::Encoding,
                "removelanguage" => ExtensionAttribute::Language,
                _ => ExtensionAttribute::Handler(origin.clone()),
            };
            self.mime().removed.push((extension, attribute));
        }
    }
}

/// Returns the extension without its dot, in lower case.
fn plain(extension: &str) -> String {
    extension
        .strip_prefix('.')
        .unwrap_or(extension)
        .to_ascii_lowercase()
}
