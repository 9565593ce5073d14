//! The format of the `Date` header: an IMF-fixdate (RFC 9110 §5.6.7). Reads no clock.

use std::io::Write as _;

use jiff::Span;
use jiff::civil::date;

/// The length in bytes of `Sun, 06 Nov 1994 08:49:37 GMT`.
pub const IMF_FIXDATE_LEN: usize = 29;

/// Formats `seconds` since 1970 as an IMF-fixdate. Times outside of the years 0 to 9999 are clamped.
pub fn imf_fixdate(seconds: i64) -> [u8; IMF_FIXDATE_LEN] {
    let seconds = seconds.clamp(-62_167_219_200, 253_402_300_799);
    // jiff's own printer takes a timestamp, which ends a day before the year 9999 does.
    let epoch = date(1970, 1, 1).at(0, 0, 0, 0);
    let time = epoch.saturating_add(Span::new().seconds(seconds));
    let mut out = [b' '; IMF_FIXDATE_LEN];
    // The text of such a year always fits.
    let _ = write!(
        &mut out[..],
        "{}",
        time.strftime("%a, %d %b %Y %H:%M:%S GMT")
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imf_fixdate_matches_rfc_9110() {
        for (seconds, text) in [
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (4_107_542_399, "Sun, 28 Feb 2100 23:59:59 GMT"),
            (-1, "Wed, 31 Dec 1969 23:59:59 GMT"),
            (i64::MIN, "Sat, 01 Jan 0000 00:00:00 GMT"),
            (i64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(std::str::from_utf8(&imf_fixdate(seconds)).unwrap(), text);
        }
    }
}
