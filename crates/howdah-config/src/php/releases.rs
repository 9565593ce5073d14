//! Knows which versions of PHP have security holes that PHP's own later releases have fixed. At each security release
//! of PHP, change [`TABLE_DATE`] and [`SERIES`].

use std::time::SystemTime;

use howdah_executor::php_host::version_numbers;
use jiff::Timestamp;
use jiff::civil::{Date, date};
use jiff::tz::TimeZone;

/// The date of the newest release in [`SERIES`].
const TABLE_DATE: Date = date(2026, 11, 19);

/// A series of PHP that gets security fixes, or got them until recently.
struct Series {
    numbers: [u32; 2],
    /// The last part of the version number of the newest release that fixed security holes.
    safe_since: u32,
    /// The last day on which PHP's developers fix security holes (php.net/supported-versions).
    supported_until: Date,
}

/// The series, from the oldest to the newest. Any older series is not supported any more.
const SERIES: [Series; 5] = [
    Series {
        numbers: [8, 2],
        safe_since: 36,
        supported_until: date(2026, 12, 31),
    },
    Series {
        numbers: [8, 3],
        safe_since: 37,
        supported_until: date(2027, 12, 31),
    },
    Series {
        numbers: [8, 4],
        safe_since: 28,
        supported_until: date(2028, 12, 31),
    },
    Series {
        numbers: [8, 5],
        safe_since: 13,
        supported_until: date(2029, 12, 31),
    },
    Series {
        numbers: [8, 6],
        safe_since: 0,
        supported_until: date(2030, 12, 31),
    },
];

/// Returns whether this is a version before a release, such as `8.6.0RC3`.
fn is_pre_release(version: &str) -> bool {
    let after = version.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    ["alpha", "beta", "RC", "-dev"]
        .iter()
        .any(|word| after.starts_with(word))
}

/// Returns advice about a version of PHP that has known security holes or gets no fixes any more. The version alone
/// does not prove either, because distributions fix holes without changing it.
pub fn warning(version: &str) -> Option<String> {
    let now = Timestamp::try_from(SystemTime::now()).ok()?;
    warning_on(version, now.to_zoned(TimeZone::UTC).date())
}

fn warning_on(version: &str, today: Date) -> Option<String> {
    let [major, minor, release] = version_numbers(version)?;
    let backports =
        "Distributions fix holes without changing the version: keep the packages up to date";
    let series = SERIES.iter().find(|s| s.numbers == [major, minor]);
    let is_older = [major, minor] < SERIES[0].numbers;
    if is_older || series.is_some_and(|s| s.supported_until < today) {
        return Some(format!(
            "PhpOutdated: PHP {version}: PHP's developers no longer fix security holes in PHP {major}.{minor}. {backports}, or move to a newer series"
        ));
    }
    let safe_since = series?.safe_since;
    let has_holes = release < safe_since || release == safe_since && is_pre_release(version);
    has_holes.then(|| {
        format!(
            "PhpOutdated: PHP {version} has security holes that are fixed in PHP {major}.{minor}.{safe_since} (as of {TABLE_DATE}). {backports}, or install a newer PHP"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn php_before_the_last_security_release_is_outdated() {
        let today = date(2026, 11, 29);
        for (version, is_outdated) in [
            ("8.2.35", true),
            ("8.2.36", false),
            ("8.2.36-1+deb12u1", false),
            ("8.3.6", true),
            ("8.4.28", false),
            ("8.5.12", true),
            ("8.5.14", false),
            ("8.5.13RC1", true),
            ("8.5.14-dev", false),
            ("8.6.0-dev", true),
            ("8.6.0RC3", true),
            ("8.6.0", false),
            ("8.6.0-1", false),
            ("9.0.0", false),
            ("8.2-simulated", false),
        ] {
            let said = warning_on(version, today);
            assert_eq!(said.is_some(), is_outdated, "{version}: {said:?}");
        }
        let said = warning_on("8.3.6", today).unwrap();
        assert!(said.starts_with("PhpOutdated: PHP 8.3.6 has"), "{said}");
        assert!(
            said.contains("PHP 8.3.37") && said.contains("as of 2026-11-19"),
            "{said}"
        );
        assert!(said.contains("Distributions fix holes"), "{said}");
    }

    #[test]
    fn series_without_fixes_is_outdated_whatever_its_release() {
        assert!(warning_on("8.1.99", date(2026, 11, 29)).is_some());
        assert!(warning_on("8.2.99", date(2026, 12, 31)).is_none());
        let said = warning_on("8.2.99", date(2027, 1, 1)).unwrap();
        assert!(
            said.contains("no longer fix security holes in PHP 8.2"),
            "{said}"
        );
    }
}
