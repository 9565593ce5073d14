//! Reads `<Macro>` and expands it.

use std::borrow::Cow;
use std::sync::Arc;

use howdah_htaccess::lines::Line;

use crate::ImportError;
use crate::directive::Directive;
use crate::source::MAX_LINE_BYTES;

/// The parameters and lines of a `<Macro>`.
#[derive(Clone, Debug)]
pub struct Macro {
    /// The name in lower case.
    pub name: String,
    /// The file that defines the macro.
    pub file: Arc<str>,
    parameters: Vec<String>,
    lines: Vec<Line<'static>>,
}

impl Macro {
    /// Reads the macro of `<Macro NAME PARAMETERS…>` and its lines up to `</Macro>`, which are removed from `lines`.
    ///
    /// # Errors
    /// Returns an error if the section has no name or no end.
    pub fn read(
        section: &Directive,
        lines: &mut &[Line<'_>],
        file: Arc<str>,
    ) -> Result<Macro, ImportError> {
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
        let body = lines[..end].iter().map(owned).collect();
        *lines = &lines[end + 1..];
        Ok(Macro {
            name,
            file,
            parameters,
            lines: body,
        })
    }

    /// Returns the parameters with the arguments of `Use NAME ARGUMENTS…`.
    ///
    /// # Errors
    /// Returns an error if the number of arguments is not the number of parameters.
    pub fn bind<'m>(
        &'m self,
        line: &'m Directive,
    ) -> Result<Vec<(&'m String, &'m String)>, ImportError> {
        let values = line.args.get(1..).unwrap_or_default();
        if values.len() != self.parameters.len() {
            let why = format!(
                "the macro `{}` takes {} arguments, not {}",
                self.name.escape_debug(),
                self.parameters.len(),
                values.len()
            );
            return Err(ImportError::at(&line.place, why));
        }
        let mut pairs: Vec<(&String, &String)> = self.parameters.iter().zip(values).collect();
        pairs.retain(|(parameter, _)| !parameter.is_empty());
        // Longer names are replaced first: `$name` before `$n`.
        pairs.sort_by_key(|(parameter, _)| std::cmp::Reverse(parameter.len()));
        Ok(pairs)
    }

    /// Returns the lines with the parameters replaced by their values, for the line that uses the macro.
    ///
    /// # Errors
    /// Returns an error if a line becomes too long.
    pub fn expand(
        &self,
        pairs: &[(&String, &String)],
        line: &Directive,
    ) -> Result<Vec<Line<'static>>, ImportError> {
        let filled = |own: &Line<'static>| {
            let mut text = own.text.clone().into_owned();
            for (parameter, value) in pairs {
                let longer = text.matches(parameter.as_str()).count() * value.len();
                if text.len() + longer > MAX_LINE_BYTES {
                    let why = "LineTooLong: a line of the macro is too long with its arguments";
                    return Err(ImportError::at(&line.place, why));
                }
                text = text.replace(parameter.as_str(), value);
            }
            Ok(Line {
                number: own.number,
                text: Cow::Owned(text),
            })
        };
        self.lines.iter().map(filled).collect()
    }
}

fn owned(line: &Line<'_>) -> Line<'static> {
    Line {
        number: line.number,
        text: Cow::Owned(line.text.clone().into_owned()),
    }
}
