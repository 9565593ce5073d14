//! Formats figures with their units for people.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

/// Returns the sentence with a capital first letter.
pub fn capital(sentence: &str) -> String {
    let mut chars = sentence.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

/// Formats nanoseconds as milliseconds with three significant digits: `0.052`, `4.13`, `1370`.
pub fn ms(nanoseconds: f64) -> String {
    digits(nanoseconds / 1e6)
}

/// Formats a number with about three significant digits, never with an exponent.
pub fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        v if v < 0.9995 => format!("{value:.3}"),
        v if v < 9.995 => format!("{value:.2}"),
        v if v < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Formats seconds in the unit that fits: `52 µs`, `4.13 ms`, `1.37 s`.
pub fn duration(seconds: f64) -> String {
    match seconds.abs() {
        0.0 => "0 s".into(),
        s if s < 0.000_999_5 => format!("{} µs", digits(seconds * 1e6)),
        s if s < 0.999_5 => format!("{} ms", digits(seconds * 1e3)),
        s if s < 119.5 => format!("{} s", digits(seconds)),
        _ => format!("{} min", digits(seconds / 60.0)),
    }
}

/// Formats a share as a percentage: `0 %`, `0.02 %`, `3.4 %`, `86 %`. A share above zero is never written `0 %`, and
/// one below 1 never `100 %`.
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    match value.abs() {
        0.0 => "0 %".into(),
        v if v < 0.005 => "< 0.01 %".into(),
        v if v < 0.095 => format!("{value:.2} %"),
        v if v < 9.95 => format!("{value:.1} %"),
        v if v < 100.0 && v > 99.95 => "99.9 %".into(),
        v if v < 100.0 && v > 99.45 => format!("{:.1} %", value.min(99.9)),
        _ => format!("{value:.0} %"),
    }
}

/// Formats a count without groups, because texts are searched and copied.
pub fn count(value: u64) -> String {
    value.to_string()
}

/// Formats a count with narrow groups of thousands from five digits on, for pages: `9999`, `12 345`.
pub fn grouped(value: u64) -> String {
    let text = value.to_string();
    if text.len() < 5 {
        return text;
    }
    let mut out = String::with_capacity(text.len() + text.len() / 3);
    for (i, digit) in text.chars().enumerate() {
        if i > 0 && (text.len() - i).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// Formats events per second: `52.3`, `788`, `12345`.
pub fn rate(per_second: f64) -> String {
    digits(per_second)
}

/// Formats events per second for pages, where large numbers have groups: `52.3`, `788`, `12 345`.
pub fn grouped_rate(per_second: f64) -> String {
    if per_second.abs() < 999.5 {
        return rate(per_second);
    }
    let sign = if per_second < 0.0 { "-" } else { "" };
    format!("{sign}{}", grouped(per_second.abs().round() as u64))
}

/// Formats bytes in binary units: `512 B`, `1.5 KiB`, `3.2 GiB`.
pub fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = value;
    let mut unit = 0;
    while value >= 1023.5 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{value:.0} B")
    } else {
        format!("{} {}", digits(value), units[unit])
    }
}

/// Formats a count with a noun: `1 pair`, `2 pairs`.
pub fn plural(count: u64, one: &str, many: &str) -> String {
    format!(
        "{} {}",
        self::count(count),
        if count == 1 { one } else { many }
    )
}

/// Formats a date and time in UTC as `ctime(3)` writes it, without the line feed: `Fri Nov 20 21:47:41 2026`.
pub fn ctime(seconds_since_1970: u64) -> String {
    utc(seconds_since_1970)
        .strftime("%a %b %d %H:%M:%S %Y")
        .to_string()
}

/// Formats a date and time in UTC: `2026-11-20 21:47:41 UTC`.
pub fn timestamp(seconds_since_1970: f64) -> String {
    utc(seconds_since_1970.max(0.0) as u64)
        .strftime("%Y-%m-%d %H:%M:%S UTC")
        .to_string()
}

fn utc(seconds_since_1970: u64) -> DateTime {
    let seconds = i64::try_from(seconds_since_1970).unwrap_or(i64::MAX);
    Offset::UTC.to_datetime(Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_writes_three_significant_digits() {
        assert_eq!(ms(52_000.0), "0.052");
        assert_eq!(ms(4_130_000.0), "4.13");
        assert_eq!(ms(1_370_000_000.0), "1370");
        assert_eq!(duration(0.0000521), "52.1 µs");
        assert_eq!(duration(1.37), "1.37 s");
        assert_eq!(duration(600.0), "10.0 min");
        assert_eq!(bytes(1536.0), "1.50 KiB");
        assert_eq!(rate(12_345.4), "12345");
        assert_eq!(grouped(9999), "9999");
        assert_eq!(grouped_rate(52.31), "52.3");
        assert_eq!(grouped_rate(12_345.4), "12\u{202f}345");
        assert_eq!(grouped(1_012_345), "1\u{202f}012\u{202f}345");
    }

    #[test]
    fn percent_never_rounds_to_none_or_all() {
        assert_eq!(percent(0.0), "0 %");
        assert_eq!(percent(0.000_001), "< 0.01 %");
        assert_eq!(percent(0.0002), "0.02 %");
        assert_eq!(percent(0.8603), "86 %");
        assert_eq!(percent(0.999_99), "99.9 %");
        assert_eq!(percent(1.0), "100 %");
    }

    #[test]
    fn ctime_matches_the_c_format() {
        assert_eq!(ctime(0), "Thu Jan 01 00:00:00 1970");
        assert_eq!(ctime(1_795_211_261), "Fri Nov 20 21:47:41 2026");
        assert_eq!(ctime(951_826_496), "Tue Feb 29 12:14:56 2000");
        assert_eq!(timestamp(1_795_211_261.9), "2026-11-20 21:47:41 UTC");
    }
}
