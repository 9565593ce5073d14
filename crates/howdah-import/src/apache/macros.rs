//! Expands `<Macro>` and `Use`.

use std::borrow::Cow;

use howdah_htaccess::lines::Line;

use super::reader::{ApacheReader, ConfigLineOrigin, MAX_NESTING_DEPTH};
use crate::ImportError;
use crate::directive::Directive;
use crate::source::MAX_LINE_BYTES;

/// The parameters and lines of a `<Macro>`.
#[derive(Clone, Debug)]
pub struct Macro {
    parameters: Vec<String>,
    lines: Vec<Line<'static>>,
    file: std::sync::Arc<str>,
}

impl ApacheReader<'_> {
    /// Defines the macro of `<Macro NAME PARAMETERS…>`.
    pub(super) fn define_macro(
        &mut self,
        section: &Directive,
        lines: &mut &[Line<'_>],
        origin: &ConfigLineOrigin<'_>,
    ) -> Result<(), ImportError> {
        let is_end = |line: &Line<'_>| {
            let end = line
                .text
                .strip_prefix("</")
                .and_then(|end| end.strip_suffix('>'));
            end.is_some_and(|end| end.trim().eq_ignore_ascii_case("macro"))
        };
        let Some(end) = lines.iter().position(is_end) else {
            return Err(ImportError::at(
                &section.place,
                "the section `<Macro>` is not closed by `</Macro>`",
            ));
        };
        let mut parameters = section.args.clone();
        if parameters.is_empty() {
            return Err(ImportError::at(&section.place, "`<Macro>` has no name"));
        }
        let name = parameters.remove(0).to_ascii_lowercase();
        let body = Macro {
            parameters,
            lines: lines[..end].iter().map(owned).collect(),
            file: origin.file.clone(),
        };
        *lines = &lines[end + 1..];
        self.macros.insert(name, body);
        self.ledger.mark_carried(section.id);
        Ok(())
    }

    /// Expands `Use NAME ARGUMENTS…` into the macro's lines, with the parameters replaced by the arguments.
    pub(super) fn expand_macro(
        &mut self,
        line: &Directive,
        origin: &ConfigLineOrigin<'_>,
    ) -> Result<Vec<Directive>, ImportError> {
        let name = line.arg(0).to_ascii_lowercase();
        let Some(body) = self.macros.get(&name).cloned() else {
            let why = format!("there is no macro `{}`", line.arg(0).escape_debug());
            return Err(ImportError::at(&line.place, why));
        };
        let values = line.args.get(1..).unwrap_or_default();
        if values.len() != body.parameters.len() {
            let why = format!(
                "the macro `{}` takes {} arguments, not {}",
                name.escape_debug(),
                body.parameters.len(),
                values.len()
            );
            return Err(ImportError::at(&line.place, why));
        }
        if origin.depth >= MAX_NESTING_DEPTH {
            return Err(ImportError::at(
                &line.place,
                "MacroLoop: macros use each other",
            ));
        }
        let mut pairs: Vec<(&String, &String)> = body.parameters.iter().zip(values).collect();
        pairs.retain(|(parameter, _)| !parameter.is_empty());
        // Longer names are replaced first: `$name` before `$n`.
        pairs.sort_by_key(|(parameter, _)| std::cmp::Reverse(parameter.len()));
        let filled = |line: &Line<'_>| {
            let mut text = line.text.clone().into_owned();
            for (parameter, value) in &pairs {
                let longer = text.matches(parameter.as_str()).count() * value.len();
                if text.len() + longer > MAX_LINE_BYTES {
                    return None;
                }
                text = text.replace(parameter.as_str(), value);
            }
            Some(text)
        };
        let mut lines = Vec::new();
        for own in &body.lines {
            let Some(text) = filled(own) else {
                return Err(ImportError::at(
                    &line.place,
                    "LineTooLong: a line of the macro",
                ));
            };
            lines.push(Line {
                number: own.number,
                text: Cow::Owned(text),
            });
        }
        let origin = ConfigLineOrigin {
            file: body.file,
            depth: origin.depth + 1,
            ..origin.clone()
        };
        self.read_lines(&lines, &origin)
    }
}

fn owned(line: &Line<'_>) -> Line<'static> {
    Line {
        number: line.number,
        text: Cow::Owned(line.text.clone().into_owned()),
    }
}
