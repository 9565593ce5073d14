//! Tests the validators of files, and tests preconditions against tables of requests.

use super::*;
use crate::docroot::root::FileKind;
use crate::testing::request;

const DAY: &str = "Sat, 14 Nov 2026 10:00:00 GMT";
const BEFORE: &str = "Fri, 13 Nov 2026 10:00:00 GMT";
const AFTER: &str = "Sun, 15 Nov 2026 10:00:00 GMT";
const SECONDS: i64 = 1_794_650_400;

fn meta(mtime: (i64, u32)) -> FileMeta {
    FileMeta {
        kind: FileKind::File,
        size: 0x18,
        mtime,
        ctime: mtime,
        inode: (0, 0, 1),
    }
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(SECONDS as u64 + 1_000_000)
}

fn validators() -> Validators {
    let mut validators = Validators::of(&meta((SECONDS, 5)), "", now());
    assert_eq!(validators.http_date(), DAY);
    validators.etag = Some(b"\"a\"".to_vec());
    validators
}

fn check(fields: &[(&str, &str)], expected: PreconditionResult) {
    let head = request("GET", "/", fields);
    let found = Preconditions::of(&head).evaluate(&head, &validators());
    assert_eq!(found, expected, "{fields:?}");
}

#[test]
fn etag_names_time_and_size() {
    let validators = Validators::of(&meta((0x10, 0xab)), "-br", now());
    assert_eq!(validators.etag.unwrap(), b"\"10.ab-18-br\"");
}

#[test]
fn etag_is_absent_for_a_file_changed_this_moment() {
    let at = |ms: u64| UNIX_EPOCH + Duration::from_millis(SECONDS as u64 * 1000 + ms);
    for (mtime, now, settled) in [
        ((SECONDS, 1), at(0), false),
        ((SECONDS, 1), at(19), false),
        ((SECONDS, 1), at(25), true),
        ((SECONDS, 0), at(1999), false), // a file system that counts whole seconds
        ((SECONDS, 0), at(2000), true),
        ((SECONDS + 9, 1), at(0), false), // the future
        ((-5, 1), at(0), true),
    ] {
        assert_eq!(is_settled(&meta(mtime), now), settled, "{mtime:?} {now:?}");
        assert_eq!(
            Validators::of(&meta(mtime), "", now).etag.is_some(),
            settled
        );
    }
}

#[test]
fn last_modified_in_the_future_becomes_now() {
    let future = meta((SECONDS + 9_000_000, 1));
    assert_eq!(
        Validators::of(&future, "", now()).last_modified,
        SECONDS as u64 + 1_000_000
    );
}

#[test]
fn if_none_match_compares_weakly() {
    for matching in [
        "\"a\"",
        "W/\"a\"",
        "*",
        "\"x\", \"a\"",
        "\"x,y\",W/\"a\"",
        " , \"a\"",
    ] {
        check(
            &[("If-None-Match", matching)],
            PreconditionResult::NotModified,
        );
    }
    for other in ["\"b\"", "a", "\"a", "", "\"x\" a \"a\"", "w/\"a\""] {
        check(&[("If-None-Match", other)], PreconditionResult::Send);
    }
    check(
        &[("If-None-Match", "\"x\""), ("if-none-match", "\"a\"")],
        PreconditionResult::NotModified,
    );
}

#[test]
fn if_match_compares_strongly() {
    check(&[("If-Match", "\"a\"")], PreconditionResult::Send);
    check(&[("If-Match", "*")], PreconditionResult::Send);
    check(
        &[("If-Match", "W/\"a\"")],
        PreconditionResult::PreconditionFailed,
    );
    check(
        &[("If-Match", "\"b\"")],
        PreconditionResult::PreconditionFailed,
    );
}

#[test]
fn precondition_dates_apply_only_without_tags() {
    check(
        &[("If-Modified-Since", DAY)],
        PreconditionResult::NotModified,
    );
    check(
        &[("If-Modified-Since", AFTER)],
        PreconditionResult::NotModified,
    );
    check(&[("If-Modified-Since", BEFORE)], PreconditionResult::Send);
    check(
        &[("If-Modified-Since", "yesterday")],
        PreconditionResult::Send,
    );
    check(
        &[("If-Modified-Since", "Saturday, 14-Nov-26 10:00:00 GMT")],
        PreconditionResult::NotModified,
    );
    check(
        &[("If-Modified-Since", "Sat Nov 14 10:00:00 2026")],
        PreconditionResult::NotModified,
    );
    check(
        &[("If-Modified-Since", DAY), ("If-None-Match", "\"b\"")],
        PreconditionResult::Send,
    );
    check(&[("If-Unmodified-Since", DAY)], PreconditionResult::Send);
    check(
        &[("If-Unmodified-Since", BEFORE)],
        PreconditionResult::PreconditionFailed,
    );
    check(
        &[("If-Unmodified-Since", "never")],
        PreconditionResult::Send,
    );
    check(
        &[("If-Unmodified-Since", BEFORE), ("If-Match", "\"a\"")],
        PreconditionResult::Send,
    );
}

#[test]
fn precondition_steps_are_evaluated_in_order() {
    check(
        &[("If-None-Match", "\"a\""), ("If-Match", "\"b\"")],
        PreconditionResult::PreconditionFailed,
    );
    check(
        &[("If-None-Match", "\"a\""), ("If-Match", "\"a\"")],
        PreconditionResult::NotModified,
    );
}

#[test]
fn if_range_needs_a_strong_match() {
    for (value, applies) in [
        ("\"a\"", true),
        ("W/\"a\"", false),
        ("\"b\"", false),
        (DAY, true),
        (AFTER, false),
        (BEFORE, false),
        ("x", false),
    ] {
        let head = request("GET", "/", &[("If-Range", value), ("Range", "bytes=0-0")]);
        assert_eq!(
            Preconditions::of(&head).range_applies(&validators()),
            applies,
            "{value}"
        );
    }
}

#[test]
fn range_is_for_get_only() {
    let fields = &[("Range", "bytes=0-0")];
    assert!(
        Preconditions::of(&request("GET", "/", fields))
            .range
            .is_some()
    );
    assert!(
        Preconditions::of(&request("HEAD", "/", fields))
            .range
            .is_none()
    );
}
