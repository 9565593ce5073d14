//! Parses `Accept-Encoding` and picks a coding. The functions are pure.

/// A content coding that the server can produce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// `gzip` (RFC 1952).
    Gzip,
    /// `br` (RFC 7932).
    Brotli,
    /// `zstd` (RFC 8878), with a window of at most 8 MiB (RFC 9659).
    Zstd,
}

impl Coding {
    /// Returns the name of the coding in `Content-Encoding`.
    pub fn token(self) -> &'static str {
        match self {
            Coding::Gzip => "gzip",
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
        }
    }

    /// Returns the coding of that name, if it is supported. `x-gzip` is gzip (RFC 9110 §8.4.1.3).
    pub fn from_token(token: &[u8]) -> Option<Coding> {
        [
            (&b"gzip"[..], Coding::Gzip),
            (b"x-gzip", Coding::Gzip),
            (b"br", Coding::Brotli),
            (b"zstd", Coding::Zstd),
        ]
        .into_iter()
        .find(|(name, _)| token.eq_ignore_ascii_case(name))
        .map(|(_, coding)| coding)
    }
}

/// Parses a weight into thousandths. Returns `None` if it is not a `qvalue` (RFC 9110 §12.4.2).
pub fn parse_weight(text: &[u8]) -> Option<u16> {
    let (whole, fraction) = match text {
        [whole] => (*whole, &[][..]),
        [whole, b'.', fraction @ ..] if fraction.len() <= 3 => (*whole, fraction),
        _ => return None,
    };
    let mut value = 0u16;
    for place in 0..3 {
        let digit = fraction.get(place).copied().unwrap_or(b'0');
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + u16::from(digit - b'0');
    }
    match whole {
        b'0' => Some(value),
        b'1' if value == 0 => Some(1000),
        _ => None,
    }
}

/// Picks from `offered` (in the server's order of preference) the coding with the client's highest weight; among equals
/// the server's order decides. Returns `None` if the response should be sent uncompressed, because the header is
/// absent, names no supported coding, or prefers `identity`. A member that is not grammatical is skipped.
pub fn choose_coding<'a>(
    accept: impl Iterator<Item = &'a [u8]>,
    offered: &[Coding],
) -> Option<Coding> {
    let mut named: [Option<u16>; 3] = [None; 3];
    let (mut any, mut identity) = (None, None);
    for member in accept.flat_map(|line| line.split(|b| *b == b',')) {
        let mut parts = member.split(|b| *b == b';').map(<[u8]>::trim_ascii);
        let token = parts.next().unwrap_or_default();
        let q = match parts.next() {
            None => Some(1000),
            Some([b'q' | b'Q', b'=', value @ ..]) => parse_weight(value),
            Some(_) => None,
        };
        let Some(q) = q else { continue };
        if token == b"*" {
            any = Some(q);
        } else if token.eq_ignore_ascii_case(b"identity") {
            identity = Some(q);
        } else if let Some(coding) = Coding::from_token(token) {
            named[coding as usize] = Some(q);
        }
    }
    let mut best: Option<(Coding, u16)> = None;
    for coding in offered {
        let q = named[*coding as usize].or(any).unwrap_or(0);
        if q > 0 && best.is_none_or(|(_, most)| q > most) {
            best = Some((*coding, q));
        }
    }
    best.filter(|(_, q)| identity.is_none_or(|i| *q >= i))
        .map(|(coding, _)| coding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Coding::{Brotli, Gzip, Zstd};

    #[test]
    fn client_weights_precede_the_servers_order() {
        let ours = [Zstd, Brotli, Gzip];
        for (header, expected) in [
            ("gzip, deflate, br, zstd", Some(Zstd)),
            ("gzip, deflate, br", Some(Brotli)),
            ("gzip", Some(Gzip)),
            ("x-gzip", Some(Gzip)),
            ("GZIP;Q=0.5", Some(Gzip)),
            ("gzip;q=1.0, br;q=0.9", Some(Gzip)),
            ("br;q=0, gzip;q=0.001", Some(Gzip)),
            ("*", Some(Zstd)),
            ("*;q=0, gzip", Some(Gzip)),
            ("zstd;q=0, *;q=0.5", Some(Brotli)),
            ("identity, gzip;q=0.5", None),
            ("identity;q=0.5, gzip;q=0.5", Some(Gzip)),
            ("gzip;q=0", None),
            ("gzip;q=1.001", None),
            ("gzip;q=0.1234", None),
            ("gzip;level=9", None),
            ("deflate", None),
            ("", None),
            ("gzipped", None),
        ] {
            let got = choose_coding([header.as_bytes()].into_iter(), &ours);
            assert_eq!(got, expected, "{header:?}");
        }
        assert_eq!(choose_coding(std::iter::empty(), &ours), None);
        assert_eq!(
            choose_coding([&b"br"[..], b"gzip"].into_iter(), &[Gzip, Brotli]),
            Some(Gzip)
        );
        assert_eq!(choose_coding([&b"br"[..]].into_iter(), &[Gzip]), None);
    }
}
