//! Durations as nginx and php-fpm write them and as Howdah's options take them.

use std::ops::RangeInclusive;

/// One second, in milliseconds.
pub const SECOND: u64 = 1000;
/// One day, in milliseconds.
pub const DAY: u64 = 24 * 3600 * SECOND;

/// Parses `30d`, `1h 30m` or `500ms` into milliseconds; a number without a unit is in seconds.
pub fn parse_milliseconds(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    let mut total = None;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let end = after.find(|c: char| c.is_ascii_digit() || c == ' ');
        let (unit, after) = after.split_at(end.unwrap_or(after.len()));
        let unit = match unit {
            "ms" => 1,
            "" | "s" => SECOND,
            "m" => 60 * SECOND,
            "h" => 3600 * SECOND,
            "d" => DAY,
            "w" => 7 * DAY,
            "M" => 30 * DAY,
            "y" => 365 * DAY,
            _ => return None,
        };
        let more = number.parse::<u64>().ok()?.checked_mul(unit)?;
        total = Some(total.unwrap_or(0u64).checked_add(more)?);
        rest = after.trim_start();
    }
    total
}

/// Formats a duration as the value of an option, clamped to the option's range.
pub fn format_clamped(milliseconds: u64, range: &RangeInclusive<u64>) -> String {
    let time = milliseconds.clamp(*range.start(), *range.end());
    let units = [
        ("d", DAY),
        ("h", 3600 * SECOND),
        ("m", 60 * SECOND),
        ("s", SECOND),
    ];
    let fits = |(_, unit): &&(&str, u64)| time > 0 && time.is_multiple_of(*unit);
    match units.iter().find(fits) {
        Some((name, unit)) => format!("{}{name}", time / unit),
        None => format!("{time}ms"),
    }
}

/// Returns the remark in the list for a duration outside the range of its option, or `None` if it is within.
pub fn range_remark(milliseconds: u64, range: &RangeInclusive<u64>) -> Option<String> {
    let all = 0..=u64::MAX;
    let (least, most) = (
        format_clamped(*range.start(), &all),
        format_clamped(*range.end(), &all),
    );
    (!range.contains(&milliseconds)).then(|| format!("Howdah allows values from {least} to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_as_in_nginx() {
        for (text, expected) in [
            ("30d", Some(2_592_000_000)),
            ("1h 30m", Some(5_400_000)),
            ("1h30m", Some(5_400_000)),
            ("600", Some(600_000)),
            ("500ms", Some(500)),
            ("1y", Some(31_536_000_000)),
            ("@15h", None),
            ("", None),
            ("1x", None),
            ("99999999999999999999y", None),
            ("18446744073709551615d", None),
        ] {
            assert_eq!(parse_milliseconds(text), expected, "{text}");
        }
    }

    #[test]
    fn durations_are_clamped_to_the_range() {
        let range = 100..=DAY;
        for (time, expected) in [
            (0, "100ms"),
            (1500, "1500ms"),
            (65_000, "65s"),
            (5_400_000, "90m"),
            (7 * DAY, "1d"),
        ] {
            assert_eq!(format_clamped(time, &range), expected);
            let is_within = range.contains(&time);
            assert_eq!(range_remark(time, &range).is_none(), is_within, "{time}");
        }
        assert_eq!(format_clamped(0, &(0..=DAY)), "0ms");
        assert_eq!(
            range_remark(0, &range).unwrap(),
            "Howdah allows values from 100ms to 1d"
        );
    }
}
