//! Decides from the headers alone whether a response may be compressed, and edits them accordingly. The functions are
//! pure.

use howdah_http::message::{RequestHead, ResponseHead};

use super::negotiate::{self, Coding};

/// The minimum length in bytes of a body that is compressed, if the length is known. A shorter response fits into one
/// packet either way.
pub const MIN_ENCODED_BYTES: u64 = 860;

/// The section `[compression]` of the configuration: which responses are compressed, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodingConfig {
    /// The codings offered, best first; empty if compression is off.
    pub codings: Vec<Coding>,
    /// Media types in addition to those of [`is_text_type`]: `type/subtype`, in lower case.
    pub more_types: Vec<String>,
}

/// Why a response is sent uncompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotEncoded {
    /// Compression is switched off in the configuration.
    Off,
    /// The response has no body, or a status whose body must not be touched (204, 206, 304).
    Status,
    /// The response has a `Content-Encoding` already.
    AlreadyEncoded,
    /// The response has a `Content-Range`, whose offsets count the plain bytes.
    Ranged,
    /// The response has `Cache-Control: no-transform` (RFC 9111 §5.2.2.6).
    NoTransform,
    /// `Content-Type` is not a type that is compressed.
    Type,
    /// The body is shorter than [`MIN_ENCODED_BYTES`].
    Small,
}

/// The parts of a response's header that decide whether it is compressed.
#[derive(Clone, Copy, Debug, Default)]
pub struct EncodingFacts<'a> {
    /// The response's status code.
    pub status: u16,
    /// The value of `Content-Type`, if the response has one.
    pub content_type: Option<&'a [u8]>,
    /// Whether the response has a `Content-Encoding`.
    pub content_encoding: bool,
    /// Whether the response has a `Content-Range`.
    pub content_range: bool,
    /// Whether there is a `Cache-Control` with `no-transform`.
    pub no_transform: bool,
    /// The body's length, if known.
    pub length: Option<u64>,
}

impl<'a> EncodingFacts<'a> {
    /// Takes one header into account.
    pub fn add_header(&mut self, name: &[u8], value: &'a [u8]) {
        match name.len() {
            12 if name.eq_ignore_ascii_case(b"content-type") => self.content_type = Some(value),
            16 if name.eq_ignore_ascii_case(b"content-encoding") => self.content_encoding = true,
            13 if name.eq_ignore_ascii_case(b"content-range") => self.content_range = true,
            13 if name.eq_ignore_ascii_case(b"cache-control") => {
                self.no_transform |= value
                    .split(|b| *b == b',')
                    .any(|d| d.trim_ascii().eq_ignore_ascii_case(b"no-transform"));
            }
            _ => {}
        }
    }
}

/// Returns whether a type is worth compressing: text, and formats that are text under another name.
pub fn is_text_type(media_type: &[u8]) -> bool {
    let is = |name: &[u8]| media_type.eq_ignore_ascii_case(name);
    let prefix = |name: &[u8]| {
        media_type.len() > name.len() && media_type[..name.len()].eq_ignore_ascii_case(name)
    };
    let suffix = |name: &[u8]| {
        media_type.len() > name.len()
            && media_type[media_type.len() - name.len()..].eq_ignore_ascii_case(name)
    };
    // Event streams last for hours and transfer little, and each would occupy a compressor's memory.
    if is(b"text/event-stream") {
        return false;
    }
    prefix(b"text/")
        || suffix(b"+json")
        || suffix(b"+xml")
        || is(b"application/json")
        || is(b"application/javascript")
        || is(b"application/x-javascript")
        || is(b"application/xml")
        || is(b"application/wasm")
        || is(b"application/vnd.ms-fontobject")
        || is(b"font/ttf")
        || is(b"font/otf")
        || is(b"image/bmp")
        || is(b"image/x-icon")
        || is(b"image/vnd.microsoft.icon")
}

impl EncodingConfig {
    /// Returns a configuration with all codings. zstd is first: at its level it makes text about as small as brotli in
    /// a quarter of the time, and every browser that accepts it handles it well.
    pub fn all() -> EncodingConfig {
        EncodingConfig {
            codings: vec![Coding::Zstd, Coding::Brotli, Coding::Gzip],
            more_types: Vec::new(),
        }
    }

    /// Returns the configuration with this coding alone; `None` if it is not offered.
    pub fn only(&self, coding: Coding) -> Option<EncodingConfig> {
        self.codings.contains(&coding).then(|| EncodingConfig {
            codings: vec![coding],
            more_types: self.more_types.clone(),
        })
    }

    /// Returns whether this response would be compressed for a client that accepts it. `Ok` also means that the
    /// response varies by `Accept-Encoding`, whatever this client sent.
    pub fn allows(&self, facts: &EncodingFacts<'_>) -> Result<(), NotEncoded> {
        if self.codings.is_empty() {
            return Err(NotEncoded::Off);
        }
        if matches!(facts.status, 100..200 | 204 | 205 | 206 | 304) {
            return Err(NotEncoded::Status);
        }
        if facts.content_encoding {
            return Err(NotEncoded::AlreadyEncoded);
        }
        if facts.content_range {
            return Err(NotEncoded::Ranged);
        }
        if facts.no_transform {
            return Err(NotEncoded::NoTransform);
        }
        let media_type = facts.content_type.unwrap_or_default();
        let media_type = media_type
            .split(|b| *b == b';')
            .next()
            .unwrap_or_default()
            .trim_ascii();
        let listed = || {
            self.more_types
                .iter()
                .any(|t| media_type.eq_ignore_ascii_case(t.as_bytes()))
        };
        if !is_text_type(media_type) && !listed() {
            return Err(NotEncoded::Type);
        }
        if facts.length.is_some_and(|n| n < MIN_ENCODED_BYTES) {
            return Err(NotEncoded::Small);
        }
        Ok(())
    }
}

/// Decides whether one response, whose headers are otherwise complete, is compressed, and edits them accordingly.
/// Returns the coding that the body must get. `length` is the length of the plain body, if it is known.
pub fn apply(
    head: &mut ResponseHead,
    request: &RequestHead,
    config: &EncodingConfig,
    length: Option<u64>,
) -> Option<Coding> {
    let choice = choose(head, request, config, length)?;
    let coding = choice.coding;
    choice.apply_to(head, coding.is_some());
    coding
}

/// Like [`apply`], but does not change the headers: the body may yet have to be sent uncompressed.
pub fn choose(
    head: &ResponseHead,
    request: &RequestHead,
    config: &EncodingConfig,
    length: Option<u64>,
) -> Option<CodingChoice> {
    let facts = EncodingFacts {
        status: head.status,
        length,
        ..EncodingFacts::default()
    };
    choice(head, request, config, facts)
}

/// Like [`apply`], for a 304: adds the `Vary` and the entity tag of the 200 that it represents (RFC 9110 §15.4.5). The
/// caller passes the facts of the 200.
pub fn apply_to_not_modified(
    head: &mut ResponseHead,
    request: &RequestHead,
    config: &EncodingConfig,
    facts: EncodingFacts<'_>,
) {
    let facts = EncodingFacts {
        status: 200,
        ..facts
    };
    if let Some(choice) = choice(head, request, config, facts) {
        let coded = choice.coding.is_some();
        choice.apply_to(head, coded);
    }
}

/// The coding chosen for one client. Other clients may get the response in another form.
pub struct CodingChoice {
    /// The coding that the client prefers; `None` to send the body uncompressed.
    pub coding: Option<Coding>,
    etag: Option<Vec<u8>>,
    ranges: bool,
    digests: bool,
    varies: bool,
}

/// Completes `facts` with the response's headers and chooses a coding. Returns `None` if no client gets the response in
/// another form.
fn choice<'a>(
    head: &'a ResponseHead,
    request: &RequestHead,
    config: &EncodingConfig,
    mut facts: EncodingFacts<'a>,
) -> Option<CodingChoice> {
    // A small response is never compressed, so its headers need no check.
    if facts
        .length
        .is_some_and(|length| length < MIN_ENCODED_BYTES)
    {
        return None;
    }
    let (mut etag, mut ranges, mut digests, mut varies) = (None, false, false, false);
    for (name, value) in head.fields() {
        facts.add_header(name, value);
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"etag") => etag = Some(value),
            4 if name.eq_ignore_ascii_case(b"vary") => {
                varies |= value.split(|b| *b == b',').any(|member| {
                    let member = member.trim_ascii();
                    member == b"*" || member.eq_ignore_ascii_case(b"accept-encoding")
                });
            }
            6 | 11 | 14 => digests |= is_digest(name),
            13 => ranges |= name.eq_ignore_ascii_case(b"accept-ranges"),
            _ => {}
        }
    }
    config.allows(&facts).ok()?;
    let coding = negotiate::choose_coding(request.header_all(b"accept-encoding"), &config.codings);
    Some(CodingChoice {
        etag: etag.filter(|_| coding.is_some()).map(weakened),
        coding,
        ranges,
        digests,
        varies,
    })
}

/// Returns whether a header contains a digest of the body's bytes (RFC 9530, RFC 3230, RFC 1864).
pub fn is_digest(name: &[u8]) -> bool {
    DIGESTS.iter().any(|known| name.eq_ignore_ascii_case(known))
}

const DIGESTS: [&[u8]; 4] = [b"Content-Digest", b"Content-MD5", b"Digest", b"Repr-Digest"];

impl CodingChoice {
    /// Edits the headers: adds `Vary`, since other clients get another form. If the body is sent `coded`, it also sets
    /// `Content-Encoding`, weakens the entity tag, and removes `Accept-Ranges` and digests, since the offsets and the
    /// digest of the plain bytes do not apply to coded ones. A 304 does not name its coding.
    pub fn apply_to(self, head: &mut ResponseHead, coded: bool) {
        if let Some(coding) = self.coding.filter(|_| coded) {
            if let Some(etag) = self.etag {
                head.remove(b"ETag").header(b"ETag", &etag);
            }
            if self.ranges {
                head.remove(b"Accept-Ranges");
            }
            if self.digests {
                for name in DIGESTS {
                    head.remove(name);
                }
            }
            if head.status != 304 {
                head.header(b"Content-Encoding", coding.token().as_bytes());
            }
        }
        if !self.varies {
            head.header(b"Vary", b"Accept-Encoding");
        }
    }
}

/// Returns the entity tag of the compressed form. The bytes differ, so a strong tag becomes weak (RFC 9110 §8.8.1;
/// nginx does the same).
pub fn weakened(etag: &[u8]) -> Vec<u8> {
    if etag.starts_with(b"W/") {
        return etag.to_vec();
    }
    [b"W/", etag].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        status: u16,
        fields: &[(&str, &str)],
        length: Option<u64>,
        expected: Result<(), NotEncoded>,
    ) {
        let mut facts = EncodingFacts {
            status,
            length,
            ..EncodingFacts::default()
        };
        for (name, value) in fields {
            facts.add_header(name.as_bytes(), value.as_bytes());
        }
        assert_eq!(
            EncodingConfig::all().allows(&facts),
            expected,
            "{status} {fields:?} {length:?}"
        );
    }

    #[test]
    fn encoding_applies_only_to_text_that_permits_it() {
        let html = ("Content-Type", "text/html; charset=UTF-8");
        check(200, &[html], None, Ok(()));
        check(404, &[html], Some(5000), Ok(()));
        check(
            200,
            &[("content-type", "APPLICATION/ld+JSON")],
            None,
            Ok(()),
        );
        check(200, &[("content-type", "image/svg+xml")], None, Ok(()));
        check(200, &[html], Some(859), Err(NotEncoded::Small));
        check(204, &[html], None, Err(NotEncoded::Status));
        check(206, &[html], None, Err(NotEncoded::Status));
        check(304, &[html], None, Err(NotEncoded::Status));
        check(200, &[], None, Err(NotEncoded::Type));
        check(
            200,
            &[("Content-Type", "image/png")],
            None,
            Err(NotEncoded::Type),
        );
        check(
            200,
            &[("Content-Type", "text/event-stream")],
            None,
            Err(NotEncoded::Type),
        );
        check(
            200,
            &[("Content-Type", "text/")],
            None,
            Err(NotEncoded::Type),
        );
        check(
            200,
            &[html, ("CONTENT-ENCODING", "gzip")],
            None,
            Err(NotEncoded::AlreadyEncoded),
        );
        check(
            200,
            &[html, ("Content-Range", "bytes 0-1/2")],
            None,
            Err(NotEncoded::Ranged),
        );
        check(
            200,
            &[html, ("Cache-Control", "public, No-Transform")],
            None,
            Err(NotEncoded::NoTransform),
        );
        let off = EncodingConfig {
            codings: Vec::new(),
            ..EncodingConfig::all()
        };
        assert_eq!(off.allows(&EncodingFacts::default()), Err(NotEncoded::Off));
    }

    #[test]
    fn encoding_edits_the_head() {
        use crate::testing::request;
        let html = ("Content-Type", "text/html");
        let check = |fields: &[(&str, &str)], accept: &str, length, lines: &str, coding| {
            let mut head = ResponseHead::new(200);
            for (name, value) in fields {
                head.header(name.as_bytes(), value.as_bytes());
            }
            let r = request("GET", "/", &[("Accept-Encoding", accept)]);
            let chosen = apply(&mut head, &r, &EncodingConfig::all(), length);
            let got = String::from_utf8(head.lines().to_vec()).unwrap();
            assert_eq!((got.as_str(), chosen), (lines, coding));
        };
        let all = [html, ("etag", "\"x\""), ("Accept-Ranges", "bytes")];
        let plain = "Content-Type: text/html\r\netag: \"x\"\r\nAccept-Ranges: bytes\r\n";
        let vary = "Vary: Accept-Encoding\r\n";
        let coded =
            format!("Content-Type: text/html\r\nETag: W/\"x\"\r\nContent-Encoding: gzip\r\n{vary}");
        check(&all, "gzip", None, &coded, Some(Coding::Gzip));
        check(&all, "", None, &format!("{plain}{vary}"), None);
        check(&all, "gzip", Some(10), plain, None);
        let digests = [
            html,
            ("Content-Digest", "a"),
            ("repr-digest", "b"),
            ("Digest", "c"),
            ("Content-MD5", "d"),
        ];
        let coded = format!("Content-Type: text/html\r\nContent-Encoding: gzip\r\n{vary}");
        check(&digests, "gzip", None, &coded, Some(Coding::Gzip));
        let plain = "Content-Type: text/html\r\nContent-Digest: a\r\nrepr-digest: b\r\nDigest: c\r\nContent-MD5: d\r\n";
        check(&digests, "", None, &format!("{plain}{vary}"), None);
        let cookie = "Content-Type: text/html\r\nVary: Cookie, accept-encoding\r\n";
        check(
            &[html, ("Vary", "Cookie, accept-encoding")],
            "",
            None,
            cookie,
            None,
        );
    }

    #[test]
    fn weakened_tag_of_a_strong_and_a_weak_tag() {
        assert_eq!(weakened(b"\"a\""), b"W/\"a\"");
        assert_eq!(weakened(b"W/\"a\""), b"W/\"a\"");
    }
}
