//! Reads a field of a `multipart/form-data` body (RFC 7578), to find out whether the request changes a page. Only bodies
//! are read that have exactly the form in which browsers send them. In any other body, PHP might see other fields, so
//! nothing is said about it.

use crate::cookie::php_name;

/// Returns the value of a field as PHP reads the body, in which the last one counts. The outer `None` means that it is
/// not known which fields PHP sees.
pub fn last_value<'t>(name: &str, boundary: &[u8], body: &'t [u8]) -> Option<Option<&'t [u8]>> {
    let delimiter = [b"\r\n--", boundary].concat();
    let mut rest = body.strip_prefix(&delimiter[2..])?;
    let mut last = None;
    loop {
        if matches!(rest, b"--" | b"--\r\n") {
            return Some(last);
        }
        let part = rest.strip_prefix(b"\r\n")?;
        let (part, behind) = split_at_text(part, &delimiter)?;
        let (head, value) = split_at_text(part, b"\r\n\r\n")?;
        let field = field_name(head)?;
        if php_name(field).ok()? == name.as_bytes() {
            if field != name.as_bytes() {
                return None;
            }
            last = Some(value);
        }
        rest = behind;
    }
}

/// Returns the name of the field of a part. A file is not among the fields, but its name is returned as well, because a
/// file in place of a field is unusual.
fn field_name(head: &[u8]) -> Option<&[u8]> {
    const DISPOSITION: &[u8] = b"Content-Disposition: form-data; name=\"";
    let rest = head.strip_prefix(DISPOSITION)?;
    let is_end = |b: &u8| matches!(b, b'"' | b'\\' | b'\r' | b'\n');
    let end = rest.iter().position(is_end)?;
    let behind = rest[end..].strip_prefix(b"\"")?;
    let is_known = behind.is_empty() || behind.starts_with(b"; filename=\"");
    is_known.then_some(&rest[..end])
}

fn split_at_text<'t>(text: &'t [u8], separator: &[u8]) -> Option<(&'t [u8], &'t [u8])> {
    let mut windows = text.windows(separator.len());
    let at = windows.position(|window| window == separator)?;
    Some((&text[..at], &text[at + separator.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELD: &str = "Content-Disposition: form-data; name=\"add-to-cart\"\r\n\r\n";

    fn value(body: &str) -> Option<Option<&[u8]>> {
        last_value("add-to-cart", b"XyZ", body.as_bytes())
    }

    #[test]
    fn fields_of_a_browser_are_read() {
        let quantity = "--XyZ\r\nContent-Disposition: form-data; name=\"quantity\"\r\n\r\n1\r\n";
        let file = "--XyZ\r\nContent-Disposition: form-data; name=\"photo\"; filename=\"a.html\"\r\n\
                    Content-Type: text/html\r\n\r\n<input name=\"add-to-cart\">\r\n";
        for end in ["--XyZ--\r\n", "--XyZ--"] {
            let button = format!("--XyZ\r\n{FIELD}12\r\n");
            assert_eq!(
                value(&format!("{quantity}{button}{end}")),
                Some(Some(&b"12"[..]))
            );
            let twice = format!("{button}{quantity}--XyZ\r\n{FIELD}7\r\n{end}");
            assert_eq!(
                value(&twice),
                Some(Some(&b"7"[..])),
                "PHP takes the last one"
            );
            // A text in a file is not a field.
            assert_eq!(value(&format!("{quantity}{file}{end}")), Some(None));
        }
    }

    #[test]
    fn nothing_is_said_about_other_bodies() {
        let body = format!("--XyZ\r\n{FIELD}12\r\n--XyZ--\r\n");
        assert_eq!(value(&body), Some(Some(&b"12"[..])));
        for (from, to) in [
            ("--XyZ--\r\n", ""),
            ("--XyZ--\r\n", "--XyZ--\r\nmore"),
            ("--XyZ\r\n", "preamble\r\n--XyZ\r\n"),
            ("--XyZ\r\n", "--XyZ \r\n"),
            ("Content-Disposition", "content-disposition"),
            ("name=\"add-to-cart\"", "name=add-to-cart"),
            ("name=\"add-to-cart\"", "name=\"add-to-cart[]\""),
            ("name=\"add-to-cart\"", "name=\" add-to-cart\""),
            ("name=\"add-to-cart\"", "name=\"a\\\"dd-to-cart\""),
            ("name=\"add-to-cart\"", "name=\"x\"; name=\"add-to-cart\""),
            ("name=\"add-to-cart\"", "name=\"add-to-cart\"\r\nX: y"),
            ("\r\n\r\n", "\n\n"),
        ] {
            let other = body.replacen(from, to, 1);
            assert_ne!(other, body, "{from:?}");
            assert_eq!(value(&other), None, "{other:?}");
        }
    }
}
