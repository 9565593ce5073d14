//! Escapes foreign bytes for a line of a log, so they can neither forge a line nor control a terminal.

/// Escapes text for the quoted parts of common and combined lines: `"`, `\` and everything except printable ASCII
/// become `\xHH`, like nginx's default `escape=default`.
pub fn quoted(out: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        match byte {
            b'"' | b'\\' | 0..=0x1f | 0x7f..=0xff => hex(out, byte),
            _ => out.push(byte),
        }
    }
}

/// Escapes text for a field between spaces, such as a user name: the space is escaped as well, and an empty field
/// becomes `-`.
pub fn word(out: &mut Vec<u8>, text: &[u8]) {
    if text.is_empty() {
        out.push(b'-');
    }
    for &byte in text {
        match byte {
            b'"' | b'\\' | 0..=0x20 | 0x7f..=0xff => hex(out, byte),
            _ => out.push(byte),
        }
    }
}

/// Escapes free text for the error log: a PHP message keeps its UTF-8, a line end becomes `\n`, and control characters,
/// including those of Unicode (C1, bidirectional overrides, line separators), are written in hexadecimal. At most
/// `limit` bytes of the text are used.
pub fn message(out: &mut Vec<u8>, text: &[u8], limit: usize) {
    let cut = text.len() > limit;
    for chunk in text[..text.len().min(limit)].trim_ascii_end().utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => out.extend_from_slice(b"\\n"),
                '\r' => out.extend_from_slice(b"\\r"),
                '\t' => out.push(b' '),
                '\0'..='\x1f'
                | '\x7f'..='\u{9f}'
                | '\u{200e}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}' => {
                    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                        hex(out, byte);
                    }
                }
                _ => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        for byte in chunk.invalid() {
            hex(out, *byte);
        }
    }
    if cut {
        out.extend_from_slice(b"...");
    }
}

/// Appends a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD, as JSON cannot represent bytes.
pub fn json(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => out.extend_from_slice(b"\\\""),
                '\\' => out.extend_from_slice(b"\\\\"),
                '\n' => out.extend_from_slice(b"\\n"),
                '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                    out.extend_from_slice(format!("\\u{:04x}", c as u32).as_bytes());
                }
                _ => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    out.push(b'"');
}

fn hex(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(&[
        b'\\',
        b'x',
        DIGITS[usize::from(byte >> 4)],
        DIGITS[usize::from(byte & 15)],
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn escaping_keeps_fields_and_lines_intact() {
        let evil = b"a\" 200 1\n\x1b[2J\\\xff";
        assert_eq!(with(|o| quoted(o, evil)), r"a\x22 200 1\x0A\x1B[2J\x5C\xFF");
        assert_eq!(with(|o| word(o, b"a b")), r"a\x20b");
        assert_eq!(with(|o| word(o, b"")), "-");
        let all: Vec<u8> = (0..=255).collect();
        for line in [
            with(|o| quoted(o, &all)),
            with(|o| word(o, &all)),
            with(|o| message(o, &all, 999)),
        ] {
            assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
        }
        let json_line = with(|o| json(o, &all));
        assert!(
            !json_line.contains(|c: char| c.is_control()),
            "{json_line:?}"
        );
        assert!(
            serde_json::from_str::<String>(&json_line)
                .unwrap()
                .starts_with('\0')
        );
    }

    #[test]
    fn message_escaping_keeps_letters_on_one_line() {
        assert_eq!(
            with(|o| message(
                o,
                "Größe\nStack trace:\t#0 \u{202e}x\u{85}\n".as_bytes(),
                99
            )),
            r"Größe\nStack trace: #0 \xE2\x80\xAEx\xC2\x85"
        );
        assert_eq!(with(|o| message(o, b"abcdef", 3)), "abc...");
    }
}
