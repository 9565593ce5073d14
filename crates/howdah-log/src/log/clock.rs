//! Dates as text, in UTC. Local time is not supported on purpose: it needs the time zone database in every process, is
//! ambiguous for an hour a year, and the formats of Apache and nginx contain the offset (`+0000`) anyway.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

/// A date and time in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UtcDateTime(DateTime);

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

impl UtcDateTime {
    /// Converts a time. Times before 1970 count as 1970, times after 9999 as the end of that year.
    pub fn of(time: SystemTime) -> UtcDateTime {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        let timestamp = Timestamp::new(seconds, since.subsec_nanos() as i32);
        UtcDateTime(Offset::UTC.to_datetime(timestamp.unwrap_or(Timestamp::MAX)))
    }

    /// Appends the common log format: `20/Nov/2026:19:13:29 +0000`.
    pub fn common_log(&self, out: &mut Vec<u8>) {
        let month = MONTHS[self.0.month() as usize - 1];
        push_two_digits(out, self.0.day());
        out.push(b'/');
        out.extend_from_slice(month.as_bytes());
        out.push(b'/');
        push_four_digits(out, self.0.year());
        for part in [self.0.hour(), self.0.minute(), self.0.second()] {
            out.push(b':');
            push_two_digits(out, part);
        }
        out.extend_from_slice(b" +0000");
    }

    /// Appends the format of RFC 3164, `Nov 20 19:13:29`. Syslog daemons on this machine replace it by their own time.
    pub fn syslog(&self, out: &mut Vec<u8>) {
        let month = MONTHS[self.0.month() as usize - 1];
        out.extend_from_slice(month.as_bytes());
        out.push(b' ');
        let day = self.0.day();
        match day < 10 {
            true => out.extend_from_slice(&[b' ', b'0' + day.unsigned_abs()]),
            false => push_two_digits(out, day),
        }
        for (before, part) in [
            (b' ', self.0.hour()),
            (b':', self.0.minute()),
            (b':', self.0.second()),
        ] {
            out.push(before);
            push_two_digits(out, part);
        }
    }

    /// Appends the format of RFC 3339: `2026-11-20T19:13:29.123Z`.
    pub fn rfc3339(&self, out: &mut Vec<u8>) {
        push_four_digits(out, self.0.year());
        for (before, part) in [
            (b'-', self.0.month()),
            (b'-', self.0.day()),
            (b'T', self.0.hour()),
            (b':', self.0.minute()),
            (b':', self.0.second()),
        ] {
            out.push(before);
            push_two_digits(out, part);
        }
        out.push(b'.');
        let milli = self.0.millisecond();
        out.push(b'0' + (milli / 100) as u8);
        push_two_digits(out, (milli % 100) as i8);
        out.push(b'Z');
    }
}

fn push_two_digits(out: &mut Vec<u8>, n: i8) {
    let n = n.unsigned_abs();
    out.extend_from_slice(&[b'0' + n / 10, b'0' + n % 10]);
}

fn push_four_digits(out: &mut Vec<u8>, n: i16) {
    push_two_digits(out, (n / 100 % 100) as i8);
    push_two_digits(out, (n % 100) as i8);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn utc_date_time_formats_seconds() {
        for (seconds, common, rfc) in [
            (0, "01/Jan/1970:00:00:00 +0000", "1970-01-01T00:00:00.042Z"),
            (
                951_827_696,
                "29/Feb/2000:12:34:56 +0000",
                "2000-02-29T12:34:56.042Z",
            ),
            (
                1_795_202_009,
                "20/Nov/2026:19:13:29 +0000",
                "2026-11-20T19:13:29.042Z",
            ),
            (
                4_107_542_399,
                "28/Feb/2100:23:59:59 +0000",
                "2100-02-28T23:59:59.042Z",
            ),
        ] {
            let civil = UtcDateTime::of(UNIX_EPOCH + Duration::new(seconds, 42_000_000));
            let (mut a, mut b) = (Vec::new(), Vec::new());
            civil.common_log(&mut a);
            civil.rfc3339(&mut b);
            assert_eq!(String::from_utf8(a).unwrap(), common);
            assert_eq!(String::from_utf8(b).unwrap(), rfc);
        }
    }
}
