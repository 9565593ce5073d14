//! Decides what part of a stored page a request gets: all of it, a part, or 304. RFC 9110 §13 (conditions), §14
//! (ranges); RFC 9111 §4.3.2. The decision depends only on the arguments.

use crate::byte_range::{NotARange, byte_range, range_set};
use crate::field::{self, members};
use crate::object::Object;

/// How a stored page answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageReply {
    /// The page, with its own status.
    Full,
    /// 304, because the client has this page already.
    NotModified,
    /// 412, because a condition of the request does not hold.
    PreconditionFailed,
    /// 206 with these bytes of the plain body.
    Part {
        /// Offset of the part's first byte in the plain body.
        start: u64,
        /// Length of the part in bytes.
        length: u64,
    },
    /// 416, because the range lies beyond the body.
    NotSatisfiable,
}

/// The conditions of a request.
#[derive(Clone, Debug, Default)]
pub struct RequestConditions<'a> {
    /// The values of all `If-Match` lines.
    pub if_match: Vec<&'a [u8]>,
    /// The values of all `If-None-Match` lines.
    pub if_none_match: Vec<&'a [u8]>,
    /// `If-Modified-Since`: the client has the page as of this date.
    pub if_modified_since: Option<&'a [u8]>,
    /// `If-Unmodified-Since`: the client wants the page only if it is not newer than this date.
    pub if_unmodified_since: Option<&'a [u8]>,
    /// `Range`: the part of the page that a GET requests.
    pub range: Option<&'a [u8]>,
    /// `If-Range`: the range applies only if this validator still holds.
    pub if_range: Option<&'a [u8]>,
}

impl<'a> RequestConditions<'a> {
    /// Takes one header field of the request into account.
    pub fn add_header(&mut self, name: &[u8], value: &'a [u8]) {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match name.len() {
            5 if is("range") => self.range = Some(value),
            8 if is("if-match") => self.if_match.push(value),
            8 if is("if-range") => self.if_range = Some(value),
            13 if is("if-none-match") => self.if_none_match.push(value),
            17 if is("if-modified-since") => self.if_modified_since = Some(value),
            19 if is("if-unmodified-since") => self.if_unmodified_since = Some(value),
            _ => {}
        }
    }
}

/// Decides in the order of RFC 9110 §13.2.2. Only a page with status 200 becomes a 304, 412 or 206.
pub fn reply(page: &Object, conditions: &RequestConditions<'_>) -> PageReply {
    if page.status != 200 {
        return PageReply::Full;
    }
    let etag = page.field(b"etag");
    let modified = page.field(b"last-modified").and_then(field::date);
    if !conditions.if_match.is_empty() {
        if !lists_etag(&conditions.if_match, etag, true) {
            return PageReply::PreconditionFailed;
        }
    } else if let Some(since) = conditions.if_unmodified_since.and_then(field::date)
        && modified.is_some_and(|at| at > since)
    {
        return PageReply::PreconditionFailed;
    }
    if !conditions.if_none_match.is_empty() {
        if lists_etag(&conditions.if_none_match, etag, false) {
            return PageReply::NotModified;
        }
    } else if let Some(since) = conditions.if_modified_since.and_then(field::date)
        // RFC 9111 §4.3.2: without Last-Modified, Date is used instead.
        && modified.unwrap_or(page.date) <= since
    {
        return PageReply::NotModified;
    }
    match conditions.range {
        Some(range) if range_still_applies(conditions.if_range, etag, modified) => {
            parse_range(range, page.body.len() as u64)
        }
        _ => PageReply::Full,
    }
}

/// Returns whether the lines list the entity tag. §8.8.3.2: strong comparison requires both tags to be strong.
fn lists_etag(lines: &[&[u8]], etag: Option<&[u8]>, strong: bool) -> bool {
    let opaque = |tag: &[u8]| tag.strip_prefix(b"W/").unwrap_or(tag).to_vec();
    lines.iter().flat_map(|line| members(line)).any(|member| {
        if member == b"*" {
            return true;
        }
        let Some(etag) = etag else { return false };
        let weak = member.starts_with(b"W/") || etag.starts_with(b"W/");
        opaque(member) == opaque(etag) && !(strong && weak)
    })
}

/// Returns whether the range applies. §13.1.5: an entity tag must be equal and strong, a date exactly equal.
fn range_still_applies(
    if_range: Option<&[u8]>,
    etag: Option<&[u8]>,
    modified: Option<u64>,
) -> bool {
    match if_range {
        None => true,
        Some(tag @ [b'"', ..]) => etag == Some(tag),
        Some(date) => match (field::date(date), modified) {
            (Some(date), Some(modified)) => date == modified,
            _ => false,
        },
    }
}

/// Parses one range of bytes. Several ranges, or another unit, get the whole page (§14.2 allows that).
fn parse_range(range: &[u8], total: u64) -> PageReply {
    let mut specs = members(range_set(range).unwrap_or_default());
    let (Some(spec), None) = (specs.next(), specs.next()) else {
        return PageReply::Full;
    };
    match byte_range(spec, total) {
        Ok(Some((start, end))) => PageReply::Part {
            start,
            length: end - start,
        },
        Ok(None) => PageReply::NotSatisfiable,
        Err(NotARange) => PageReply::Full,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::tests::page;

    fn ask(fields: &[(&str, &str)]) -> PageReply {
        let page = page(
            &[
                ("ETag", "\"a\""),
                ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ],
            "0123456789",
        );
        let mut conditions = RequestConditions::default();
        for (name, value) in fields {
            conditions.add_header(name.as_bytes(), value.as_bytes());
        }
        reply(&page, &conditions)
    }

    const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";

    #[test]
    fn rfc_9110_13_2_2_conditions_are_asked_in_order() {
        for (fields, expected) in [
            (&[][..], PageReply::Full),
            (&[("If-None-Match", "\"a\"")], PageReply::NotModified),
            (&[("If-None-Match", "W/\"a\"")], PageReply::NotModified),
            (&[("If-None-Match", "\"x\", \"a\"")], PageReply::NotModified),
            (&[("If-None-Match", "*")], PageReply::NotModified),
            (&[("If-None-Match", "\"b\"")], PageReply::Full),
            (&[("If-Modified-Since", SAME)], PageReply::NotModified),
            (&[("If-Modified-Since", EARLIER)], PageReply::Full),
            (&[("If-Modified-Since", "nonsense")], PageReply::Full),
            // If-None-Match takes precedence over If-Modified-Since.
            (
                &[("If-None-Match", "\"b\""), ("If-Modified-Since", SAME)],
                PageReply::Full,
            ),
            (&[("If-Match", "\"b\"")], PageReply::PreconditionFailed),
            (&[("If-Match", "W/\"a\"")], PageReply::PreconditionFailed),
            (&[("If-Match", "\"a\"")], PageReply::Full),
            (
                &[("If-Unmodified-Since", EARLIER)],
                PageReply::PreconditionFailed,
            ),
        ] {
            assert_eq!(ask(fields), expected, "{fields:?}");
        }
    }

    #[test]
    fn rfc_9110_14_one_range_is_a_part_and_anything_else_the_whole() {
        let part = |start, length| PageReply::Part { start, length };
        for (range, expected) in [
            ("bytes=0-3", part(0, 4)),
            ("bytes=8-", part(8, 2)),
            ("bytes=-3", part(7, 3)),
            ("bytes=-30", part(0, 10)),
            ("bytes=5-99999999999999999999999", part(5, 5)),
            ("bytes=10-", PageReply::NotSatisfiable),
            ("bytes=-0", PageReply::NotSatisfiable),
            ("bytes=3-2", PageReply::Full),
            ("bytes=0-1,3-4", PageReply::Full),
            ("lines=0-1", PageReply::Full),
            ("bytes=a-b", PageReply::Full),
            ("bytes", PageReply::Full),
        ] {
            assert_eq!(ask(&[("Range", range)]), expected, "{range}");
        }
        let r = ("Range", "bytes=0-3");
        assert_eq!(ask(&[r, ("If-Range", "\"a\"")]), part(0, 4));
        assert_eq!(ask(&[r, ("If-Range", "\"b\"")]), PageReply::Full);
        assert_eq!(ask(&[r, ("If-Range", SAME)]), part(0, 4));
        assert_eq!(ask(&[r, ("If-Range", EARLIER)]), PageReply::Full);
        assert_eq!(
            ask(&[r, ("If-None-Match", "\"a\"")]),
            PageReply::NotModified
        );
    }
}
