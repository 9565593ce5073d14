//! Searches in a piece of a page: where a mark, an end tag or the end of a tag is, and whether more bytes are needed to
//! say so. Knows no tags.

/// What begins at a `<`, if an end tag is looked for.
pub enum EndTag {
    /// The end tag, with this length.
    OfLength(usize),
    /// More bytes are needed.
    Incomplete,
    /// The bytes are no end tag of this name.
    Other,
}

/// Where a tag ends.
pub enum TagEnd {
    /// The tag has this length.
    At(usize),
    /// A quotation mark is not closed before the next tag begins. The tag has this length, up to its first `>`.
    Unquoted(usize),
    /// The tag has not ended, or is too long.
    Missing,
}

/// Returns whether the bytes begin with `mark`; `None` if more bytes are needed to say so.
pub fn prefix_match(bytes: &[u8], mark: &[u8]) -> Option<bool> {
    match bytes.len() < mark.len() {
        true => (!mark.starts_with(bytes)).then_some(false),
        false => Some(bytes.starts_with(mark)),
    }
}

/// Returns the position of `end`; otherwise the number of bytes in which it certainly does not begin.
pub fn find(bytes: &[u8], end: &[u8]) -> Result<usize, usize> {
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|b| *b == end[0]) {
        if bytes[from + at..].starts_with(end) {
            return Ok(from + at);
        }
        from += at + 1;
    }
    let partial = (1..end.len()).rev().find(|n| bytes.ends_with(&end[..*n]));
    Err(bytes.len() - partial.unwrap_or(0))
}

/// Returns whether the bytes begin with the end tag that begins with `name` and has at most `max` further bytes.
pub fn end_tag(bytes: &[u8], name: &[u8], max: usize) -> EndTag {
    match prefix_match(bytes, name) {
        Some(true) => {}
        Some(false) => return EndTag::Other,
        None => return EndTag::Incomplete,
    }
    let rest = &bytes[name.len()..];
    let mut near = rest.iter().take(max);
    match near.position(|b| !b.is_ascii_whitespace()) {
        Some(at) if rest[at] == b'>' => EndTag::OfLength(name.len() + at + 1),
        None if rest.len() < max => EndTag::Incomplete,
        _ => EndTag::Other,
    }
}

/// Returns the start and the end of the next such end tag; otherwise the number of bytes in which it certainly does not
/// begin.
pub fn find_end_tag(bytes: &[u8], name: &[u8], max: usize) -> Result<(usize, usize), usize> {
    let mut from = 0;
    loop {
        let start = from + find(&bytes[from..], name).map_err(|length| from + length)?;
        match end_tag(&bytes[start..], name, max) {
            EndTag::OfLength(length) => return Ok((start, start + length)),
            EndTag::Incomplete => return Err(start),
            EndTag::Other => from = start + 1,
        }
    }
}

/// Returns where a tag of at most `max` bytes ends: at the first `>` outside of quotation marks. A quoted value may
/// contain a `>`; if a `<` follows it, the closing mark is missing, since XML 1.0 §3.1 allows no `<` in a value.
pub fn tag_end(tag: &[u8], max: usize) -> TagEnd {
    let (mut quote, mut first) = (None, None);
    for (at, byte) in tag.iter().enumerate().take(max) {
        match (quote, byte) {
            (None, b'>') => return TagEnd::At(at + 1),
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), byte) if open == byte => (quote, first) = (None, None),
            (Some(_), b'>') => first = first.or(Some(at + 1)),
            (Some(_), b'<') => {
                if let Some(length) = first {
                    return TagEnd::Unquoted(length);
                }
            }
            _ => {}
        }
    }
    TagEnd::Missing
}
