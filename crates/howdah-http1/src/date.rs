//! The format of the `Date` header: an IMF-fixdate (RFC 9110 §5.6.7). Reads no clock.

use jiff::Span;
use jiff::civil::date;

/// The length in bytes of `Sun, 06 Nov 1994 08:49:37 GMT`.
pub const IMF_FIXDATE_LEN: usize = 29;

/// Formats `seconds` since 1970 as an IMF-fixdate. Times outside of the years 0 to 9999 are clamped.
pub fn imf_fixdate(seconds: i64) -> [u8; IMF_FIXDATE_LEN] {
    const DAYS: &[u8; 21] = b"MonTueWedThuFriSatSun";
    const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let seconds = seconds.clamp(-62_167_219_200, 253_402_300_799);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let date = date(1970, 1, 1).saturating_add(Span::new().days(days));
    let year = i64::from(date.year());

    let mut out = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    let weekday = date.weekday().to_monday_zero_offset() as usize * 3;
    out[..3].copy_from_slice(&DAYS[weekday..weekday + 3]);
    write_two_digits(&mut out[5..7], date.day().into());
    let month = (date.month() as usize - 1) * 3;
    out[8..11].copy_from_slice(&MONTHS[month..month + 3]);
    write_two_digits(&mut out[12..14], year / 100);
    write_two_digits(&mut out[14..16], year % 100);
    write_two_digits(&mut out[17..19], second / 3600);
    write_two_digits(&mut out[20..22], second / 60 % 60);
    write_two_digits(&mut out[23..25], second % 60);
    out
}

fn write_two_digits(out: &mut [u8], n: i64) {
    out[0] = b'0' + (n / 10) as u8;
    out[1] = b'0' + (n % 10) as u8;
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
            (i64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(std::str::from_utf8(&imf_fixdate(seconds)).unwrap(), text);
        }
    }
}
