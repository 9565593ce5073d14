use super::*;

/// Returns the first times after `after`, as the zone's clock shows them, with their offset from UTC.
fn times(expression: &str, zone: &str, after: &str, n: usize) -> Vec<String> {
    let schedule = CronSchedule::parse_expression(expression, Some(zone)).unwrap();
    let after = after.parse::<jiff::civil::DateTime>().unwrap();
    let mut at = after
        .to_zoned(TimeZone::get(zone).unwrap())
        .unwrap()
        .timestamp();
    let mut shown = Vec::new();
    for _ in 0..n {
        at = schedule.next(at).unwrap();
        let zoned = at.to_zoned(schedule.zone.clone());
        shown.push(zoned.strftime("%d %H:%M %:::z").to_string());
    }
    shown
}

/// Berlin: 29 March 2026, 02:00 becomes 03:00; 25 October 2026, 03:00 becomes 02:00.
/// New York: 8 March 2026, 02:00 becomes 03:00; 1 November 2026, 02:00 becomes 01:00.
const BERLIN: (&str, &str, &str) = ("Europe/Berlin", "2026-03-29T00:59", "2026-10-25T00:59");
const NEW_YORK: (&str, &str, &str) = ("America/New_York", "2026-03-08T00:59", "2026-11-01T00:29");

#[test]
fn schedule_runs_a_fixed_time_in_the_gap_once_right_after_it() {
    for (expression, expect) in [
        ("30 2 * * *", ["29 03:00 +02", "30 02:30 +02"]),
        // Lists and ranges are fixed times: those in the gap are one run.
        ("0,15,30 2 * * *", ["29 03:00 +02", "30 02:00 +02"]),
        ("30 2,14 * * *", ["29 03:00 +02", "29 14:30 +02"]),
        ("30 2-3 * * *", ["29 03:00 +02", "29 03:30 +02"]),
        // A time before the gap is not moved, and runs once.
        ("30 1 * * *", ["29 01:30 +01", "30 01:30 +02"]),
        ("0 3 * * *", ["29 03:00 +02", "30 03:00 +02"]),
    ] {
        assert_eq!(
            times(expression, BERLIN.0, BERLIN.1, 2),
            expect,
            "{expression}"
        );
    }
    assert_eq!(
        times("30 2 * * *", NEW_YORK.0, NEW_YORK.1, 2),
        ["08 03:00 -04", "09 02:30 -04"]
    );
}

#[test]
fn schedule_with_stars_continues_over_the_gap() {
    for (expression, expect) in [
        (
            "0 * * * *",
            ["29 01:00 +01", "29 03:00 +02", "29 04:00 +02"],
        ),
        (
            "*/30 * * * *",
            ["29 01:00 +01", "29 01:30 +01", "29 03:00 +02"],
        ),
        // The hour of this schedule does not occur on that day.
        (
            "*/30 2 * * *",
            ["30 02:00 +02", "30 02:30 +02", "31 02:00 +02"],
        ),
    ] {
        assert_eq!(
            times(expression, BERLIN.0, BERLIN.1, 3),
            expect,
            "{expression}"
        );
    }
}

#[test]
fn schedule_runs_a_fixed_time_in_the_repeated_hour_once() {
    for (expression, expect) in [
        ("30 2 * * *", ["25 02:30 +02", "26 02:30 +01"]),
        ("0,30 2 * * *", ["25 02:00 +02", "25 02:30 +02"]),
        ("30 2,14 * * *", ["25 02:30 +02", "25 14:30 +01"]),
        ("30 1-2 * * *", ["25 01:30 +02", "25 02:30 +02"]),
        ("0 3 * * *", ["25 03:00 +01", "26 03:00 +01"]),
    ] {
        assert_eq!(
            times(expression, BERLIN.0, BERLIN.2, 2),
            expect,
            "{expression}"
        );
    }
    assert_eq!(
        times("30 1 * * *", NEW_YORK.0, NEW_YORK.2, 2),
        ["01 01:30 -04", "02 01:30 -05"]
    );
    // The second half of a list does not run again, either.
    assert_eq!(
        times("0,30 2 * * *", BERLIN.0, BERLIN.2, 3)[2],
        "26 02:00 +01"
    );
}

#[test]
fn schedule_with_stars_continues_in_the_repeated_hour() {
    assert_eq!(
        times("30 * * * *", BERLIN.0, BERLIN.2, 4),
        [
            "25 01:30 +02",
            "25 02:30 +02",
            "25 02:30 +01",
            "25 03:30 +01"
        ]
    );
    assert_eq!(
        times("30 * * * *", NEW_YORK.0, NEW_YORK.2, 3),
        ["01 00:30 -04", "01 01:30 -04", "01 01:30 -05"]
    );
}

#[test]
fn schedule_expressions_match_as_in_cron() {
    let utc = |expression: &str, n| times(expression, "UTC", "2026-01-01T00:00", n);
    // If both days are given, either of them matches.
    assert_eq!(
        utc("0 12 13 * FRI", 4),
        [
            "02 12:00 +00",
            "09 12:00 +00",
            "13 12:00 +00",
            "16 12:00 +00"
        ]
    );
    assert_eq!(utc("0 12 13 * *", 1), ["13 12:00 +00"]);
    assert_eq!(utc("0 0 * * 7", 1), utc("0 0 * * sun", 1));
    assert_eq!(utc("0 0 1 feb *", 1), ["01 00:00 +00"]);
    assert_eq!(utc("@daily", 1), ["02 00:00 +00"]);
    assert_eq!(utc("@hourly", 2), ["01 01:00 +00", "01 02:00 +00"]);
    assert_eq!(utc("*/20 9-10 * * *", 4)[3], "01 10:00 +00");
    let schedule = CronSchedule::parse_expression("*/2 * * * * *", Some("UTC")).unwrap();
    let at: Timestamp = "2026-01-01T00:00:01Z".parse().unwrap();
    assert_eq!(
        schedule.next(at).unwrap().to_string(),
        "2026-01-01T00:00:02Z"
    );
}

#[test]
fn schedule_mistake_names_its_field() {
    for (expression, zone, expect) in [
        ("61 * * * *", None, "minute `61`: "),
        ("* 24 * * *", None, "hour `24`: "),
        ("* * 0 * *", None, "day of month `0`: "),
        ("* * * 13 *", None, "month `13`: "),
        ("* * * * MOO", None, "day of week `MOO`: "),
        ("*/0 * * * *", None, "minute `*/0`: "),
        ("* * * *", None, "expected five fields"),
        ("0 0 30 2 *", None, "`0 0 30 2 *` never matches a time"),
        (
            "@reboot",
            None,
            "`@reboot` is not supported; a job without `schedule`",
        ),
        ("@dayly", None, "`@dayly` is not one of @hourly, @daily"),
        (
            "@daily",
            Some("Europe/Berln"),
            "there is no time zone `Europe/Berln`; did you mean `Europe/Berlin`?",
        ),
    ] {
        let why = CronSchedule::parse_expression(expression, zone).unwrap_err();
        assert!(why.starts_with(expect), "{expression}: {why}");
    }
}

#[test]
fn schedule_counts_missed_times() {
    let schedule = CronSchedule::parse_expression("0 * * * *", Some("UTC")).unwrap();
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    let missed = |since, now| schedule.missed(at(since), at(now));
    assert_eq!(missed("2026-01-01T00:00:00Z", "2026-01-01T00:59:59Z"), None);
    assert_eq!(
        missed("2026-01-01T00:00:00Z", "2026-01-01T03:00:00Z"),
        Some((3, at("2026-01-01T03:00:00Z")))
    );
}
