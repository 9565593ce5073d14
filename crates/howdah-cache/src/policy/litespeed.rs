//! `X-LiteSpeed-Cache-Control`, which plugins for LiteSpeed's cache send.

use crate::HeaderFields;
use crate::field::{self, members};

/// The content of `X-LiteSpeed-Cache-Control` (OpenLiteSpeed's cachectrl.cpp). It may forbid caching and set a
/// lifetime. Unlike in LiteSpeed, it does not override `private` and `no-store` of `Cache-Control`.
pub(super) struct LiteSpeedControl {
    pub forbids: bool,
    /// `esi=on`: the page has ESI tags.
    pub has_esi: bool,
    pub lifetime: Option<u64>,
}

/// Parses the header. Returns `None` if the response does not have it.
pub(super) fn parse_litespeed_control(fields: &HeaderFields<'_>) -> Option<LiteSpeedControl> {
    let mut lines = field::all(fields, b"x-litespeed-cache-control").peekable();
    lines.peek()?;
    let (mut forbids, mut has_esi, mut shared, mut own) = (false, false, None, None);
    for member in lines.flat_map(members) {
        match &member.to_ascii_lowercase()[..] {
            // There are no private caches of single visitors here.
            b"no-cache" | b"no-store" | b"private" => forbids = true,
            b"esi=on" => has_esi = true,
            other => {
                let time = |name: &[u8]| other.strip_prefix(name).and_then(field::seconds);
                shared = shared.or_else(|| time(b"s-maxage="));
                own = own.or_else(|| time(b"max-age="));
            }
        }
    }
    let lifetime = shared.or(own);
    Some(LiteSpeedControl {
        forbids,
        has_esi,
        lifetime,
    })
}
