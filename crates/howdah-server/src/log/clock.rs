//! Dates as text, in UTC. Local time is left out on purpose: it needs the time zone database in
//! every process, is ambiguous for an hour a year, and Apache's and nginx' formats carry the offset
//! (`+0000`) anyway.

use std::time::{SystemTime, UNIX_EPOCH};

/// A second of the calendar, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// The year, such as 2026.
    pub year: i64,
    /// The month, from 1 for January to 12.
    pub month: u8,
    /// The day of the month, from 1 to 31.
    pub day: u8,
    /// The hour, from 0 to 23.
    pub hour: u8,
    /// The minute, from 0 to 59.
    pub minute: u8,
    /// The second, from 0 to 59; Unix time has no leap seconds.
    pub second: u8,
    /// The millisecond, from 0 to 999.
    pub milli: u16,
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

impl Civil {
    /// The calendar's view of a time. Times before 1970 count as 1970.
    pub fn of(time: SystemTime) -> Civil {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = since.as_secs();
        let (year, month, day) = date((seconds / 86_400) as i64);
        let of_day = seconds % 86_400;
        Civil {
            year,
            month,
            day,
            hour: (of_day / 3600) as u8,
            minute: (of_day / 60 % 60) as u8,
            second: (of_day % 60) as u8,
            milli: since.subsec_millis() as u16,
        }
    }

    /// `20/Nov/2026:19:13:29 +0000`: the common log format's.
    pub fn common_log(&self, out: &mut Vec<u8>) {
        let month = MONTHS[usize::from(self.month) - 1];
        two(out, self.day);
        out.push(b'/');
        out.extend_from_slice(month.as_bytes());
        out.push(b'/');
        four(out, self.year);
        for part in [self.hour, self.minute, self.second] {
            out.push(b':');
            two(out, part);
        }
        out.extend_from_slice(b" +0000");
    }

    /// `2026-11-20T19:13:29.123Z` (RFC 3339).
    pub fn rfc3339(&self, out: &mut Vec<u8>) {
        four(out, self.year);
        for (before, part) in [
            (b'-', self.month),
            (b'-', self.day),
            (b'T', self.hour),
            (b':', self.minute),
            (b':', self.second),
        ] {
            out.push(before);
            two(out, part);
        }
        out.push(b'.');
        out.push(b'0' + (self.milli / 100) as u8);
        two(out, (self.milli % 100) as u8);
        out.push(b'Z');
    }
}

fn two(out: &mut Vec<u8>, n: u8) {
    out.extend_from_slice(&[b'0' + n / 10, b'0' + n % 10]);
}

fn four(out: &mut Vec<u8>, n: i64) {
    two(out, (n / 100 % 100) as u8);
    two(out, (n % 100) as u8);
}

/// Year, month and day of a day counted from 1970-01-01 (Howard Hinnant's `civil_from_days`).
fn date(days: i64) -> (i64, u8, u8) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * shifted + 2) / 5 + 1) as u8;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    } as u8;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn seconds_become_dates() {
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
            let civil = Civil::of(UNIX_EPOCH + Duration::new(seconds, 42_000_000));
            let (mut a, mut b) = (Vec::new(), Vec::new());
            civil.common_log(&mut a);
            civil.rfc3339(&mut b);
            assert_eq!(String::from_utf8(a).unwrap(), common);
            assert_eq!(String::from_utf8(b).unwrap(), rfc);
        }
    }
}
