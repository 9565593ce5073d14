//! The name under which a page is counted: its path without the parts that differ from one visitor or object to the
//! next. `/orders/4711/edit` and `/orders/4712/edit` are both `/orders/*/edit`, so a shop with a million orders has few
//! names, and no number, token or address of a visitor is kept.

/// The maximum length of a name in bytes. A longer path is cut off there.
const MAX_NAME_BYTES: usize = 96;
/// From this length on, a word of hexadecimal digits is taken for a hash.
const MIN_HASH_CHARS: usize = 8;
/// From this length on, a word of letters and digits is taken for a token.
const MIN_TOKEN_CHARS: usize = 16;

/// A normalised path, on the stack: every request creates one.
pub(super) struct PageName {
    bytes: [u8; MAX_NAME_BYTES],
    length: usize,
}

impl PageName {
    /// Returns the name of the page at this path. The path has no query.
    pub(super) fn of(path: &[u8]) -> PageName {
        let mut name = PageName {
            bytes: [0; MAX_NAME_BYTES],
            length: 0,
        };
        // Most paths have none of the parts that are replaced, each of which has a digit or an `@`.
        if !path
            .iter()
            .any(|byte| byte.is_ascii_digit() || *byte == b'@')
        {
            name.append(path);
            return name;
        }
        for (number, segment) in path.split(|byte| *byte == b'/').enumerate() {
            if number > 0 {
                name.append(b"/");
            }
            name.append_segment(segment);
            if name.length == MAX_NAME_BYTES {
                break;
            }
        }
        name
    }

    /// Returns the name's bytes.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn append(&mut self, text: &[u8]) {
        let end = (self.length + text.len()).min(MAX_NAME_BYTES);
        let room = end - self.length;
        self.bytes[self.length..end].copy_from_slice(&text[..room]);
        self.length = end;
    }

    fn append_segment(&mut self, segment: &[u8]) {
        if is_uuid(segment) || is_mail_address(segment) {
            return self.append(b"*");
        }
        let mut rest = segment;
        while !rest.is_empty() {
            let word = rest.iter().take_while(|byte| is_word_byte(**byte)).count();
            let (word, after) = rest.split_at(word);
            self.append(if is_variable(word) { b"*" } else { word });
            let between = after
                .iter()
                .take_while(|byte| !is_word_byte(**byte))
                .count();
            let (between, after) = after.split_at(between);
            self.append(between);
            rest = after;
        }
    }
}

/// Returns whether this byte is part of a word. An escape such as `%C3` belongs to the word that it is in.
fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'%' || !byte.is_ascii()
}

/// Returns whether a word is a number, a hash or a token.
fn is_variable(word: &[u8]) -> bool {
    let digits = word.iter().filter(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return false;
    }
    digits == word.len()
        || (word.len() >= MIN_HASH_CHARS && word.iter().all(u8::is_ascii_hexdigit))
        || (word.len() >= MIN_TOKEN_CHARS && word.iter().all(u8::is_ascii_alphanumeric))
}

/// Returns whether a segment is a UUID (RFC 9562 §4) with at least one digit.
fn is_uuid(segment: &[u8]) -> bool {
    segment.len() == 36
        && segment.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

fn is_mail_address(segment: &[u8]) -> bool {
    segment.contains(&b'@') || segment.windows(3).any(|escape| escape == b"%40")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_name_has_no_numbers_hashes_or_addresses() {
        for (path, name) in [
            ("/", "/"),
            ("/hello.php", "/hello.php"),
            ("/orders/4711/edit", "/orders/*/edit"),
            ("/2024/05/31/my-post/", "/*/*/*/my-post/"),
            ("/blog/page-12.html", "/blog/page-*.html"),
            ("/mp3/h1/c3po", "/mp3/h1/c3po"),
            ("/app.3f2a9c1b.js", "/app.*.js"),
            ("/deadbeef/cafe", "/deadbeef/cafe"),
            ("/u/550e8400-e29b-41d4-a716-446655440000/x", "/u/*/x"),
            ("/reset/aGVsbG8gd29ybGQgMTIz4", "/reset/*"),
            ("/unsubscribe/anna@example.org", "/unsubscribe/*"),
            ("/unsubscribe/anna%40example.org", "/unsubscribe/*"),
            ("/caf%C3%A9/men%C3%BC", "/caf%C3%A9/men%C3%BC"),
        ] {
            let got = PageName::of(path.as_bytes());
            assert_eq!(String::from_utf8_lossy(got.as_bytes()), name, "{path}");
        }
    }

    #[test]
    fn page_name_of_a_long_path_is_cut_off() {
        let path = format!("/{}", "long/".repeat(1000));
        let name = PageName::of(path.as_bytes());
        assert_eq!(name.as_bytes(), &path.as_bytes()[..MAX_NAME_BYTES]);
    }
}
