//! `<Macro>` and `Use`: lines with the arguments in the places of parameters.

use std::borrow::Cow;

use howdah_htaccess::lines::Line;

use super::reader::{DEEPEST, Origin, Reader};
use crate::Problem;
use crate::directive::Directive;
use crate::source::LONGEST_LINE;

/// A `<Macro>`: what stands for its arguments, and its lines.
#[derive(Clone, Debug)]
pub struct Macro {
    parameters: Vec<String>,
    lines: Vec<Line<'static>>,
    file: std::sync::Arc<str>,
}

impl Reader<'_> {
    /// `<Macro NAME PARAMETERS…>`
    pub(super) fn define(
        &mut self,
        section: &Directive,
        lines: &mut &[Line<'_>],
        origin: &Origin<'_>,
    ) -> Result<(), Problem> {
        let is_end = |line: &Line<'_>| {
            let end = line
                .text
                .strip_prefix("</")
                .and_then(|end| end.strip_suffix('>'));
            end.is_some_and(|end| end.trim().eq_ignore_ascii_case("macro"))
        };
        let Some(end) = lines.iter().position(is_end) else {
            return Err(Problem::at(
                &section.place,
                "the section `<Macro>` is not closed by `</Macro>`",
            ));
        };
        let mut parameters = section.args.clone();
        if parameters.is_empty() {
            return Err(Problem::at(&section.place, "`<Macro>` has no name"));
        }
        let name = parameters.remove(0).to_ascii_lowercase();
        let body = Macro {
            parameters,
            lines: lines[..end].iter().map(owned).collect(),
            file: origin.file.clone(),
        };
        *lines = &lines[end + 1..];
        self.macros.insert(name, body);
        self.ledger.carried(section.id);
        Ok(())
    }

    /// `Use NAME ARGUMENTS…`: the macro's lines, with the arguments in the places of its parameters.
    pub(super) fn expand(
        &mut self,
        line: &Directive,
        origin: &Origin<'_>,
    ) -> Result<Vec<Directive>, Problem> {
        let name = line.arg(0).to_ascii_lowercase();
        let Some(body) = self.macros.get(&name).cloned() else {
            let why = format!("there is no macro `{}`", line.arg(0).escape_debug());
            return Err(Problem::at(&line.place, why));
        };
        let values = line.args.get(1..).unwrap_or_default();
        if values.len() != body.parameters.len() {
            let why = format!(
                "the macro `{}` takes {} arguments, not {}",
                name.escape_debug(),
                body.parameters.len(),
                values.len()
            );
            return Err(Problem::at(&line.place, why));
        }
        if origin.depth >= DEEPEST {
            return Err(Problem::at(&line.place, "MacroLoop: macros use each other"));
        }
        let mut pairs: Vec<(&String, &String)> = body.parameters.iter().zip(values).collect();
        pairs.retain(|(parameter, _)| !parameter.is_empty());
        // The longest first: `$name` before `$n`.
        pairs.sort_by_key(|(parameter, _)| std::cmp::Reverse(parameter.len()));
        let filled = |line: &Line<'_>| {
            let mut text = line.text.clone().into_owned();
            for (parameter, value) in &pairs {
                let longer = text.matches(parameter.as_str()).count() * value.len();
                if text.len() + longer > LONGEST_LINE {
                    return None;
                }
                text = text.replace(parameter.as_str(), value);
            }
            Some(text)
        };
        let mut lines = Vec::new();
        for own in &body.lines {
            let Some(text) = filled(own) else {
                return Err(Problem::at(&line.place, "LineTooLong: a line of the macro"));
            };
            lines.push(Line {
                number: own.number,
                text: Cow::Owned(text),
            });
        }
        let origin = Origin {
            file: body.file,
            depth: origin.depth + 1,
            ..origin.clone()
        };
        self.all(&lines, &origin)
    }
}

fn owned(line: &Line<'_>) -> Line<'static> {
    Line {
        number: line.number,
        text: Cow::Owned(line.text.clone().into_owned()),
    }
}
