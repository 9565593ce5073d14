//! The grammar of `Range` (RFC 9110 §14.1.2), for stored pages and for files. How many ranges are sent is decided by
//! the callers.

/// Returns the list of ranges in a `Range` header, or `None` if its unit is not bytes.
pub fn range_set(range: &[u8]) -> Option<&[u8]> {
    let (unit, set) = split_once(range, b'=')?;
    unit.eq_ignore_ascii_case(b"bytes").then_some(set)
}

/// A range that does not follow the grammar, for which the whole header is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotARange;

/// Parses `first-last`, `first-` or `-suffix` for a body of `size` bytes, and returns the offset of the first byte and
/// the offset after the last byte. Returns `None` if no part of the range exists.
///
/// # Errors
/// Fails if the text is not a range.
pub fn byte_range(spec: &[u8], size: u64) -> Result<Option<(u64, u64)>, NotARange> {
    let (first, last) = split_once(spec, b'-').ok_or(NotARange)?;
    let (first, last) = (parse_number(first)?, parse_number(last)?);
    match (first, last) {
        (None, None) => Err(NotARange),
        (None, Some(suffix)) => {
            let start = size.saturating_sub(suffix);
            Ok((suffix > 0 && size > 0).then_some((start, size)))
        }
        (Some(first), Some(last)) if last < first => Err(NotARange),
        (Some(first), last) => {
            let end = last.map_or(size, |last| last.saturating_add(1).min(size));
            Ok((first < size).then_some((first, end)))
        }
    }
}

/// Parses digits only. A number beyond 64 bits saturates.
fn parse_number(text: &[u8]) -> Result<Option<u64>, NotARange> {
    if !text.iter().all(u8::is_ascii_digit) {
        return Err(NotARange);
    }
    Ok((!text.is_empty()).then(|| {
        text.iter().fold(0u64, |value, digit| {
            value
                .saturating_mul(10)
                .saturating_add(u64::from(digit - b'0'))
        })
    }))
}

fn split_once(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = text.iter().position(|b| *b == at)?;
    Some((&text[..place], &text[place + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_range_is_limited_to_the_body() {
        for (spec, expected) in [
            ("0-0", Ok(Some((0, 1)))),
            ("2-", Ok(Some((2, 10)))),
            ("5-99999999999999999999", Ok(Some((5, 10)))),
            ("-3", Ok(Some((7, 10)))),
            ("-99", Ok(Some((0, 10)))),
            ("-0", Ok(None)),
            ("10-", Ok(None)),
            ("5-2", Err(NotARange)),
            ("-", Err(NotARange)),
            ("+1-2", Err(NotARange)),
        ] {
            assert_eq!(byte_range(spec.as_bytes(), 10), expected, "{spec}");
        }
        assert_eq!(byte_range(b"-1", 0), Ok(None));
        assert_eq!(range_set(b"Bytes=0-1,4-"), Some(&b"0-1,4-"[..]));
        assert_eq!(range_set(b"lines=0-1"), None);
    }
}
