//! `Cache-Status` (RFC 9211) and `X-Cache`: one line each that reports what the cache did for a response.

use crate::pass::Pass;

/// How the cache treated a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheVerdict {
    /// The response came from the store, with this many seconds to live.
    Hit {
        /// Seconds; negative for a page served beyond its lifetime.
        ttl: i64,
    },
    /// The response is a private page of this visitor, with this many seconds to live.
    PrivateHit {
        /// The seconds that are left of the page's lifetime.
        ttl: i64,
    },
    /// The response was made for this visitor, and stored for this visitor alone.
    PrivateStored,
    /// The page was rendered and stored.
    Stored {
        /// Whether this request waited for another request's render.
        collapsed: bool,
    },
    /// The stored page was too old, and the application confirmed that it is still valid.
    Validated,
    /// The response did not come from the cache, and was not stored.
    Pass(Pass),
}

impl CacheVerdict {
    /// Returns whether the response came from the store.
    pub fn is_hit(self) -> bool {
        matches!(
            self,
            CacheVerdict::Hit { .. } | CacheVerdict::PrivateHit { .. }
        )
    }

    /// Returns `HIT`, `MISS`, `STALE` or `PASS`, for `X-Cache`, the log and the metrics.
    pub fn label(self) -> &'static str {
        match self {
            CacheVerdict::Hit { ttl } if ttl < 0 => "STALE",
            CacheVerdict::Hit { .. } | CacheVerdict::PrivateHit { .. } => "HIT",
            CacheVerdict::Stored { .. } | CacheVerdict::PrivateStored | CacheVerdict::Validated => {
                "MISS"
            }
            // The page is rendered for the cache at the next visit.
            CacheVerdict::Pass(Pass::NotYetAdmitted) => "MISS",
            CacheVerdict::Pass(_) => "PASS",
        }
    }

    /// Appends both headers.
    pub fn append_headers(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"Cache-Status: Howdah");
        match self {
            CacheVerdict::Hit { ttl } => {
                out.extend_from_slice(b"; hit; ttl=");
                append_number(out, ttl);
            }
            CacheVerdict::PrivateHit { ttl } => {
                out.extend_from_slice(b"; hit; ttl=");
                append_number(out, ttl);
                out.extend_from_slice(b"; detail=private");
            }
            CacheVerdict::PrivateStored => {
                out.extend_from_slice(b"; fwd=miss; stored; detail=private");
            }
            CacheVerdict::Stored { collapsed: false } => {
                out.extend_from_slice(b"; fwd=miss; stored")
            }
            CacheVerdict::Stored { collapsed: true } => {
                out.extend_from_slice(b"; fwd=miss; stored; collapsed");
            }
            CacheVerdict::Validated => out.extend_from_slice(b"; fwd=stale; fwd-status=304"),
            CacheVerdict::Pass(why) => {
                let fwd: &[u8] = match why {
                    Pass::Method => b"; fwd=method; detail=",
                    _ if why.is_from_request() => b"; fwd=bypass; detail=",
                    _ => b"; fwd=miss; detail=",
                };
                out.extend_from_slice(fwd);
                out.extend_from_slice(why.name().as_bytes());
            }
        }
        out.extend_from_slice(b"\r\nX-Cache: ");
        out.extend_from_slice(self.label().as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends a number in digits, without the formatter, because this is on the path of every hit.
pub fn append_number(out: &mut Vec<u8>, n: i64) {
    if n < 0 {
        out.push(b'-');
    }
    let mut digits = [0; 20];
    let (mut at, mut left) = (digits.len(), n.unsigned_abs());
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_status_reports_the_verdict() {
        for (verdict, line) in [
            (CacheVerdict::Hit { ttl: 55 }, "Howdah; hit; ttl=55|HIT"),
            (
                CacheVerdict::PrivateHit { ttl: 55 },
                "Howdah; hit; ttl=55; detail=private|HIT",
            ),
            (
                CacheVerdict::PrivateStored,
                "Howdah; fwd=miss; stored; detail=private|MISS",
            ),
            (CacheVerdict::Hit { ttl: -3 }, "Howdah; hit; ttl=-3|STALE"),
            (
                CacheVerdict::Stored { collapsed: false },
                "Howdah; fwd=miss; stored|MISS",
            ),
            (
                CacheVerdict::Stored { collapsed: true },
                "Howdah; fwd=miss; stored; collapsed|MISS",
            ),
            (
                CacheVerdict::Validated,
                "Howdah; fwd=stale; fwd-status=304|MISS",
            ),
            (
                CacheVerdict::Pass(Pass::Method),
                "Howdah; fwd=method; detail=Method|PASS",
            ),
            (
                CacheVerdict::Pass(Pass::SessionCookie),
                "Howdah; fwd=bypass; detail=SessionCookie|PASS",
            ),
            (
                CacheVerdict::Pass(Pass::SetCookie),
                "Howdah; fwd=miss; detail=SetCookie|PASS",
            ),
        ] {
            let mut out = Vec::new();
            verdict.append_headers(&mut out);
            let (status, cache) = line.split_once('|').unwrap();
            let expected = format!("Cache-Status: {status}\r\nX-Cache: {cache}\r\n");
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
