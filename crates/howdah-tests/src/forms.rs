//! Handles HTML forms as a browser does: finds the forms of a page, determines the values that they would send if no
//! field were changed, and encodes request bodies. The tags are read with a small scanner, which is not a conforming
//! HTML parser but suffices for the forms of the applications that the tests use.

use std::fmt::Write as _;

/// A form as the page contains it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// The `action`, unresolved; empty if it is absent.
    pub action: String,
    /// The method in upper case; GET if it is absent.
    pub method: String,
    /// The `id`, otherwise the `name`; empty if the form has neither.
    pub id: String,
    /// The fields that would be sent if none were changed: names and values in document order. Submit buttons are not
    /// included; add the pressed button with [`Form::set`].
    pub fields: Vec<(String, String)>,
}

impl Form {
    /// Fills in a field: replaces its value if the field exists, otherwise adds the field.
    pub fn set(mut self, name: &str, value: impl Into<String>) -> Self {
        let value = value.into();
        match self.fields.iter_mut().find(|(have, _)| have == name) {
            Some((_, old)) => *old = value,
            None => self.fields.push((name.to_owned(), value)),
        }
        self
    }

    /// Returns the value that would be sent for `name`.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(have, _)| have == name)
            .map(|(_, value)| value.as_str())
    }
}

/// A file for a multipart form.
#[derive(Clone, Debug)]
pub struct File {
    /// The name of the form field.
    pub field: String,
    /// The file's name as the browser sends it.
    pub name: String,
    /// Its media type.
    pub kind: String,
    /// Its contents.
    pub bytes: Vec<u8>,
}

/// Returns every form of a page, in order.
pub fn forms(page: &str) -> Vec<Form> {
    let mut found = Vec::new();
    let mut open: Option<Form> = None;
    let mut select: Option<(String, Option<String>, Option<String>)> = None;
    let mut rest = page;
    while let Some(tag) = next_tag(&mut rest) {
        match tag.name.as_str() {
            "form" => {
                found.extend(open.take());
                open = Some(Form {
                    action: tag.attribute("action").unwrap_or_default(),
                    method: tag
                        .attribute("method")
                        .unwrap_or("GET".into())
                        .to_uppercase(),
                    id: tag
                        .attribute("id")
                        .or(tag.attribute("name"))
                        .unwrap_or_default(),
                    fields: Vec::new(),
                });
            }
            "/form" => found.extend(open.take()),
            "textarea" => {
                let text = rest.find("</textarea").map_or("", |end| &rest[..end]);
                if let (Some(form), Some(name)) = (&mut open, tag.attribute("name")) {
                    // The first newline is not part of the value (HTML §13.1.2.5).
                    let text = text
                        .strip_prefix("\r\n")
                        .or(text.strip_prefix('\n'))
                        .unwrap_or(text);
                    form.fields.push((name, decode_entities(text)));
                }
            }
            "input" => {
                let kind = tag.attribute("type").unwrap_or_default().to_lowercase();
                let ticked = !matches!(kind.as_str(), "checkbox" | "radio") || tag.has("checked");
                let sent = !matches!(
                    kind.as_str(),
                    "submit" | "button" | "image" | "reset" | "file"
                );
                if let (Some(form), Some(name)) = (&mut open, tag.attribute("name"))
                    && ticked
                    && sent
                    && !tag.has("disabled")
                {
                    let absent = if ticked && matches!(kind.as_str(), "checkbox" | "radio") {
                        "on"
                    } else {
                        ""
                    };
                    form.fields
                        .push((name, tag.attribute("value").unwrap_or(absent.into())));
                }
            }
            "select" => select = tag.attribute("name").map(|name| (name, None, None)),
            "option" => {
                if let Some((_, chosen, first)) = &mut select {
                    let text = rest.find('<').map_or("", |end| rest[..end].trim());
                    let value = tag
                        .attribute("value")
                        .unwrap_or_else(|| decode_entities(text));
                    if tag.has("selected") {
                        *chosen = Some(value.clone());
                    }
                    first.get_or_insert(value);
                }
            }
            "/select" => {
                if let (Some(form), Some((name, chosen, first))) = (&mut open, select.take())
                    && let Some(value) = chosen.or(first)
                {
                    form.fields.push((name, value));
                }
            }
            _ => {}
        }
    }
    found.extend(open);
    found
}

/// Returns the values of an attribute of all tags with this name, e.g. every `href` of `a`.
pub fn attributes(page: &str, tag_name: &str, attribute: &str) -> Vec<String> {
    let mut rest = page;
    let mut found = Vec::new();
    while let Some(tag) = next_tag(&mut rest) {
        if tag.name == tag_name {
            found.extend(tag.attribute(attribute));
        }
    }
    found
}

struct HtmlTag {
    name: String,
    attributes: Vec<(String, String)>,
}

impl HtmlTag {
    fn attribute(&self, name: &str) -> Option<String> {
        self.attributes
            .iter()
            .find(|(have, _)| have == name)
            .map(|(_, value)| value.clone())
    }

    fn has(&self, name: &str) -> bool {
        self.attributes.iter().any(|(have, _)| have == name)
    }
}

/// Takes the next tag off `rest`; comments and the contents of scripts and styles are skipped.
fn next_tag(rest: &mut &str) -> Option<HtmlTag> {
    loop {
        *rest = &rest[rest.find('<')? + 1..];
        if let Some(comment) = rest.strip_prefix("!--") {
            *rest = comment.find("-->").map_or("", |end| &comment[end + 3..]);
            continue;
        }
        let length = rest
            .find(|c: char| c.is_whitespace() || c == '>')
            .unwrap_or(rest.len());
        let name = rest[..length].trim_end_matches('/').to_lowercase();
        *rest = &rest[length..];
        let attributes = take_attributes(rest);
        if name == "script" || name == "style" {
            let end = format!("</{name}");
            *rest = rest.find(&end).map_or("", |at| &rest[at..]);
        }
        if !name.is_empty() {
            return Some(HtmlTag { name, attributes });
        }
    }
}

fn take_attributes(rest: &mut &str) -> Vec<(String, String)> {
    let mut attributes = Vec::new();
    loop {
        *rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '/');
        if rest.is_empty() {
            return attributes;
        }
        if let Some(after) = rest.strip_prefix('>') {
            *rest = after;
            return attributes;
        }
        let length = rest
            .find(|c: char| c.is_whitespace() || matches!(c, '=' | '>' | '/'))
            .unwrap_or(rest.len())
            .max(rest.chars().next().map_or(0, char::len_utf8));
        let name = rest[..length].to_lowercase();
        *rest = rest[length..].trim_start();
        let mut value = "";
        if let Some(after) = rest.strip_prefix('=') {
            let after = after.trim_start();
            (value, *rest) = match after.chars().next() {
                Some(quote @ ('"' | '\'')) => {
                    after[1..].split_once(quote).unwrap_or((&after[1..], ""))
                }
                _ => after.split_at(
                    after
                        .find(|c: char| c.is_whitespace() || c == '>')
                        .unwrap_or(after.len()),
                ),
            };
        }
        attributes.push((name, decode_entities(value)));
    }
}

/// Resolves the character references that applications write into attributes and texts.
pub fn decode_entities(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let reference = rest[1..]
            .find(';')
            .filter(|end| *end <= 8)
            .map(|end| &rest[1..=end]);
        let decoded = reference.and_then(|name| match name {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            "nbsp" => Some('\u{a0}'),
            _ => {
                let number = name.strip_prefix('#')?;
                match number.strip_prefix(['x', 'X']) {
                    Some(hex) => u32::from_str_radix(hex, 16).ok(),
                    None => number.parse().ok(),
                }
                .and_then(char::from_u32)
            }
        });
        match (decoded, reference) {
            (Some(character), Some(name)) => {
                out.push(character);
                rest = &rest[name.len() + 2..];
            }
            _ => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// Percent-encodes everything except the unreserved characters of RFC 3986.
pub fn percent_encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Encodes fields as `application/x-www-form-urlencoded`.
pub fn urlencoded(fields: &[(String, String)]) -> String {
    let pairs: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{}={}", percent_encode(name), percent_encode(value)))
        .collect();
    pairs.join("&")
}

/// The boundary that [`multipart`] writes; it is long enough not to occur in the data that tests send.
pub const BOUNDARY: &str = "----howdah-tests-7f3e19c2a55b0d64";

/// Encodes fields and files as `multipart/form-data` (RFC 7578) with [`BOUNDARY`].
pub fn multipart(fields: &[(String, String)], files: &[File]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in fields {
        body.extend_from_slice(
            format!(
                "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
            )
            .as_bytes(),
        );
    }
    for file in files {
        let File {
            field,
            name,
            kind,
            bytes,
        } = file;
        body.extend_from_slice(
            format!(
                "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{field}\"; filename=\"{name}\"\r\nContent-Type: {kind}\r\n\r\n"
            )
            .as_bytes(),
        );
        body.extend_from_slice(bytes);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_sends_what_the_page_preset() {
        let page = r#"<form id=f action="/save?a=1&amp;b=2" method=post>
            <input type="hidden" name="token" value="a&quot;b"><input name=plain value=x>
            <input type=checkbox name=off value=1><input type=checkbox name=on checked>
            <textarea name="text">
one &lt; two</textarea><select name="s"><option value="1">a<option value="2" selected>b</select>
            <input type="submit" name="go" value="Go"/></form>
            <!-- <form id="dead"> --><script>"<form id='dead'>"</script>"#;
        let found = forms(page);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].action.as_str(), found[0].method.as_str()),
            ("/save?a=1&b=2", "POST")
        );
        let fields: Vec<String> = found[0]
            .fields
            .iter()
            .map(|(n, v)| format!("{n}={v}"))
            .collect();
        assert_eq!(
            fields,
            ["token=a\"b", "plain=x", "on=on", "text=one < two", "s=2"]
        );
    }

    #[test]
    fn urlencoding_keeps_only_unreserved_characters() {
        let fields = [("a[]".to_owned(), "é &=+".to_owned())];
        assert_eq!(urlencoded(&fields), "a%5B%5D=%C3%A9%20%26%3D%2B");
    }
}
