//! `X-LiteSpeed-Cache-Control`, which plugins for LiteSpeed's cache send.

use crate::HeaderFields;
use crate::field::{self, members};

/// The content of `X-LiteSpeed-Cache-Control` (OpenLiteSpeed's cachectrl.cpp). It may forbid caching and set a
/// lifetime. Unlike in LiteSpeed, it does not override `private` and `no-store` of `Cache-Control` for public pages.
#[derive(Debug, Default)]
pub(super) struct LiteSpeedControl {
    /// `no-cache` or `no-store`: nothing is stored.
    pub forbids: bool,
    /// `private`: the response may be stored for its own visitor alone.
    pub is_private: bool,
    /// `shared`: with `private`, several visitors have the page in common.
    pub is_shared: bool,
    /// `esi=on`: the page has ESI tags.
    pub has_esi: bool,
    /// `s-maxage` or else `max-age`, in seconds.
    pub lifetime: Option<u64>,
    /// `max-age` or else `s-maxage`, in seconds.
    pub private_lifetime: Option<u64>,
}

/// Parses the header. Returns `None` if the response does not have it.
pub(super) fn parse_litespeed_control(fields: &HeaderFields<'_>) -> Option<LiteSpeedControl> {
    let mut lines = field::all(fields, b"x-litespeed-cache-control").peekable();
    lines.peek()?;
    let mut said = LiteSpeedControl::default();
    let (mut shared, mut own) = (None, None);
    for member in lines.flat_map(members) {
        match &member.to_ascii_lowercase()[..] {
            b"no-cache" | b"no-store" => said.forbids = true,
            b"private" => said.is_private = true,
            b"shared" => said.is_shared = true,
            b"esi=on" => said.has_esi = true,
            other => {
                let time = |name: &[u8]| other.strip_prefix(name).and_then(field::seconds);
                shared = shared.or_else(|| time(b"s-maxage="));
                own = own.or_else(|| time(b"max-age="));
            }
        }
    }
    Some(LiteSpeedControl {
        lifetime: shared.or(own),
        private_lifetime: own.or(shared),
        ..said
    })
}
