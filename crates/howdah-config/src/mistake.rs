//! Mistakes and advice about a configuration, and how they are displayed: `file:line:column: message`, the line, and a
//! caret under the text in question. Mistakes are collected, and all of them are reported at once.

use std::ops::Range;

use super::source::ConfigSource;

/// The severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The configuration cannot be served.
    Mistake,
    /// The configuration can be served, but the administrator should know about this.
    Advice,
}

/// A message about a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The severity.
    pub severity: Severity,
    /// The place in the files, in bytes. A place beyond their end is a variable of the environment; `None` is the
    /// command line or the system.
    pub place: Option<Range<usize>>,
    /// The message, with what to do instead.
    pub message: String,
}

/// All messages about a configuration.
#[derive(Debug, Default)]
pub struct Mistakes {
    list: Vec<Mistake>,
    /// The lines with a syntax error. Their values are not checked, because the parser may have misread them.
    broken_lines: Vec<Range<usize>>,
}

impl Mistakes {
    /// Adds a mistake, at a place in the files if it has one.
    pub fn add_mistake(
        &mut self,
        place: impl Into<Option<Range<usize>>>,
        message: impl Into<String>,
    ) {
        self.add(Severity::Mistake, place.into(), message.into());
    }

    /// Adds a syntax error in a line. Only the first error of a line is reported, and nothing else about it.
    pub fn add_syntax_error(&mut self, line: Range<usize>, place: Range<usize>, message: String) {
        self.add(Severity::Mistake, Some(place), message);
        self.broken_lines.push(line);
    }

    /// Adds advice.
    pub fn advise(&mut self, place: impl Into<Option<Range<usize>>>, message: impl Into<String>) {
        self.add(Severity::Advice, place.into(), message.into());
    }

    fn add(&mut self, weight: Severity, place: Option<Range<usize>>, message: String) {
        if let Some(place) = &place
            && self
                .broken_lines
                .iter()
                .any(|line| line.contains(&place.start))
        {
            return;
        }
        let mistake = Mistake {
            severity: weight,
            place,
            message,
        };
        if !self.list.contains(&mistake) {
            self.list.push(mistake);
        }
    }

    /// Returns whether there is a mistake, so the configuration cannot be served.
    pub fn has_mistakes(&self) -> bool {
        self.list.iter().any(|m| m.severity == Severity::Mistake)
    }

    /// Returns all messages of this severity as they are displayed, in the order of the files; messages without a place
    /// come first. The place of `variables[n]` is the end of the files plus `n`.
    pub fn shown(
        &self,
        weight: Severity,
        source: &ConfigSource,
        variables: &[&str],
    ) -> Vec<String> {
        let mut list: Vec<&Mistake> = self.list.iter().filter(|m| m.severity == weight).collect();
        list.sort_by_key(|m| m.place.as_ref().map(|p| p.start));
        list.iter().map(|m| show(m, source, variables)).collect()
    }
}

fn show(mistake: &Mistake, source: &ConfigSource, variables: &[&str]) -> String {
    let Some(place) = &mistake.place else {
        return mistake.message.clone();
    };
    let number = place.start.checked_sub(source.end());
    if let Some(variable) = number.and_then(|number| variables.get(number)) {
        return format!("{variable}: {}", mistake.message);
    }
    let Some((file, start)) = source.at(place.start) else {
        return mistake.message.clone();
    };
    let (name, text) = (&file.name, &file.text);
    let at = char_boundary_before(text, start);
    let line_start = text[..at].rfind('\n').map_or(0, |n| n + 1);
    let line = text[line_start..].lines().next().unwrap_or("");
    let line_end = line_start + line.len();
    let number = file.line(at);
    let column = text[line_start..at].chars().count() + 1;
    let end = char_boundary_before(text, start + place.len()).clamp(at, line_end.max(at));
    let width = text[at..end].chars().count().max(1);
    // A tab stays a tab, so the caret is below the right column.
    let indent: String = text[line_start..at]
        .chars()
        .map(|c| if c == '\t' { '\t' } else { ' ' })
        .collect();
    let gutter = " ".repeat(number.to_string().len());
    format!(
        "{name}:{number}:{column}: {}\n  {number} | {line}\n  {gutter} | {indent}{}",
        mistake.message,
        "^".repeat(width)
    )
}

/// Returns the character boundary at or before `at`.
fn char_boundary_before(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistake_is_shown_with_its_line_and_a_caret() {
        let text = "listen = []\n\tpm = \"é\" # x\nlast";
        let source = ConfigSource::from_text("a.toml", text);
        let mut mistakes = Mistakes::default();
        mistakes.add_mistake(18..22, "not this");
        mistakes.add_mistake(100..200, "beyond");
        mistakes.add_mistake(None, "--children: no");
        mistakes.advise(0..6, "think");
        assert_eq!(
            mistakes.shown(Severity::Mistake, &source, &[]),
            [
                "--children: no",
                "a.toml:2:7: not this\n  2 | \tpm = \"é\" # x\n    | \t     ^^^",
                "a.toml:3:5: beyond\n  3 | last\n    |     ^",
            ]
        );
        assert_eq!(mistakes.shown(Severity::Advice, &source, &[]).len(), 1);
        assert!(mistakes.has_mistakes());
    }
}
