//! The parts that all pages share: the document with the style sheet, the head with the conclusion, badges for the
//! conditions of a measurement, plots with their legends, the list of measurements that were not made, and the report
//! as text. Pages are self-contained: they need no script and no network, and are readable in dark and light mode, on a
//! phone and on paper.

use std::fmt::Write;

/// The style sheet of every page.
const STYLE: &str = include_str!("style.css");

/// Escapes text for HTML and SVG.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Control characters are not allowed in HTML at all, but a server's header may contain them.
            c if c.is_control() && c != '\n' && c != '\t' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Returns the document with this title; `body` is markup.
pub fn document(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<meta name=\"generator\" content=\"howdah-bench {}\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        env!("CARGO_PKG_VERSION"),
        escape(title),
    )
}

/// Writes the head of a page: what was measured and when, the conclusion, and a sentence about it, if any.
pub fn heading(out: &mut String, kicker: &[&str], conclusion: &str, about: &str) {
    let _ = writeln!(
        out,
        "<p class=\"kicker\">{}</p>\n<h1>{}</h1>",
        escape(&kicker.join(" · ")),
        escape(conclusion)
    );
    if !about.is_empty() {
        let _ = writeln!(out, "<p class=\"sub\">{}</p>", escape(about));
    }
}

/// A condition of a measurement, shown as a coloured badge: its class (empty for good, `warn`,
/// `bad`) and its text.
pub type Badge = (&'static str, String);

/// Makes a badge.
pub fn badge(class: &'static str, text: impl Into<String>) -> Badge {
    (class, text.into())
}

/// Writes the row of badges.
pub fn badges(out: &mut String, badges: &[Badge]) {
    out.push_str("<ul class=\"badges\">");
    for (class, text) in badges {
        let _ = write!(out, "<li class=\"{class}\">{}</li>", escape(text));
    }
    out.push_str("</ul>\n");
}

/// An entry of a legend: colour class and name.
pub type LegendKey = (&'static str, String);

/// Returns a drawing with its title, a sentence that says how to read it, and a legend if it has several keys.
pub fn figure(title: &str, how: &str, keys: &[LegendKey], drawing: &str) -> String {
    let mut out = format!(
        "<figure>\n<figcaption><h3>{}</h3><p>{}</p></figcaption>\n{drawing}",
        escape(title),
        escape(how)
    );
    if keys.len() > 1 {
        out.push_str("<ul class=\"legend\">");
        for (class, name) in keys {
            let _ = write!(out, "<li><i class=\"{class}\"></i>{}</li>", escape(name));
        }
        out.push_str("</ul>\n");
    }
    out.push_str("</figure>\n");
    out
}

/// Writes figures side by side, or nothing if there are none.
pub fn plots(out: &mut String, figures: &[String]) {
    if figures.iter().any(|figure| !figure.is_empty()) {
        let _ = writeln!(out, "<div class=\"plots\">\n{}</div>", figures.concat());
    }
}

/// Writes a list of the measurements that were not made, each with its reason, or nothing if the list is empty.
pub fn not_measured(out: &mut String, items: impl Iterator<Item = (String, String)>) {
    let mut list = String::new();
    for (title, reason) in items {
        let _ = write!(
            list,
            "<li><strong>{}</strong><pre>{}</pre></li>",
            escape(&title),
            escape(&reason)
        );
    }
    if !list.is_empty() {
        let _ = writeln!(
            out,
            "<section><h2>Not measured</h2><ul>{list}</ul></section>"
        );
    }
}

/// Writes the report as on the terminal, folded.
pub fn as_text(out: &mut String, text: &str) {
    let _ = writeln!(
        out,
        "<details><summary>The report as text</summary><pre>{}</pre></details>",
        escape(text)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_prevents_markup_from_servers() {
        assert_eq!(
            escape("<script>alert('x')</script>\u{1b}"),
            "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;\u{fffd}"
        );
    }
}
