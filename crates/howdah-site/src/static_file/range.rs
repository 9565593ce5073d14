//! Parses `Range` (RFC 9110 §14.1.2) and decides what is sent. The functions are pure.
//!
//! Against range attacks (§17.15; Apache's CVE-2011-3192): a request for more than [`MAX_RANGES`] ranges, or for ranges
//! that together are longer than the file, gets the whole file, as §14.2 permits. Therefore no request makes the server
//! send more than the file and a few part headers.

use howdah_cache::byte_range::{NotARange, byte_range, range_set};

/// The maximum number of ranges that are sent as parts. PDF viewers request a handful; no client needs more.
pub const MAX_RANGES: usize = 16;

/// The part of the file to send. Offsets are in bytes, and the end is exclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectedRanges {
    /// The whole file: 200. `Range` is absent, in another unit, not grammatical, or requests too much.
    All,
    /// One part: 206 with `Content-Range`.
    One(u64, u64),
    /// Several: 206 with `multipart/byteranges`.
    Several(Vec<(u64, u64)>),
    /// None of the ranges is in the file: 416.
    Unsatisfiable,
}

/// Selects the ranges of a file of `size` bytes.
pub fn select(range: &[u8], size: u64) -> SelectedRanges {
    let Some(set) = range_set(range) else {
        return SelectedRanges::All;
    };
    let mut ranges = Vec::new();
    let mut count = 0;
    for spec in set.split(|b| *b == b',') {
        let spec = spec.trim_ascii();
        if spec.is_empty() {
            continue; // §5.6.1.2: empty list members are ignored
        }
        count += 1;
        if count > MAX_RANGES {
            return SelectedRanges::All;
        }
        match byte_range(spec, size) {
            Ok(Some(range)) => ranges.push(range),
            Ok(None) => {}
            Err(NotARange) => return SelectedRanges::All,
        }
    }
    let asked = ranges
        .iter()
        .fold(0u64, |sum, (start, end)| sum.saturating_add(end - start));
    match ranges[..] {
        _ if count == 0 => SelectedRanges::All,
        [] => SelectedRanges::Unsatisfiable,
        [(start, end)] => SelectedRanges::One(start, end),
        _ if asked > size => SelectedRanges::All,
        _ => SelectedRanges::Several(ranges),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SelectedRanges::*;
    use proptest::prelude::*;

    fn check(range: &str, size: u64, expected: SelectedRanges) {
        assert_eq!(
            select(range.as_bytes(), size),
            expected,
            "{range} of {size}"
        );
    }

    #[test]
    fn range_single() {
        check("bytes=0-0", 10, One(0, 1));
        check("bytes=0-9", 10, One(0, 10));
        check("bytes=2-", 10, One(2, 10));
        check("bytes=5-99", 10, One(5, 10));
        check("bytes=-3", 10, One(7, 10));
        check("bytes=-99", 10, One(0, 10));
        check("Bytes=0-1", 10, One(0, 2));
        check("bytes=0-99999999999999999999999", 10, One(0, 10));
    }

    #[test]
    fn range_outside_the_file_is_unsatisfiable() {
        check("bytes=10-", 10, Unsatisfiable);
        check("bytes=10-20,30-", 10, Unsatisfiable);
        check("bytes=-0", 10, Unsatisfiable);
        check("bytes=0-", 0, Unsatisfiable);
        check("bytes=-1", 0, Unsatisfiable);
        check("bytes=10-20,0-1", 10, One(0, 2));
    }

    #[test]
    fn range_several() {
        check(
            "bytes=0-1, 4-5 ,,8-",
            10,
            Several(vec![(0, 2), (4, 6), (8, 10)]),
        );
        check("bytes=-1,0-0", 10, Several(vec![(9, 10), (0, 1)]));
    }

    #[test]
    fn range_that_is_invalid_is_ignored() {
        for range in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "lines=0-1",
            "bytes=a-b",
            "bytes=5-2",
            "bytes=-",
            "bytes=1",
            "bytes= 0-1x",
            "bytes=+1-2",
            "bytes=0 - 1",
            "bytes=0x1-2",
            "bytes=0-1;2-3",
        ] {
            check(range, 10, All);
        }
    }

    #[test]
    fn range_that_is_too_greedy_gets_the_whole_file() {
        check("bytes=0-,0-", 10, All);
        check("bytes=0-8,1-9", 10, All);
        let many = format!("bytes={}", vec!["0-0"; MAX_RANGES + 1].join(","));
        check(&many, 1000, All);
        let just = format!("bytes={}", vec!["0-0"; MAX_RANGES].join(","));
        check(&just, 1000, Several(vec![(0, 1); MAX_RANGES]));
    }

    proptest! {
        #[test]
        fn what_is_selected_exists_and_is_no_more_than_the_file(
            range in "(bytes=)?[0-9,\\- ]{0,40}|.{0,20}", size in 0u64..200
        ) {
            let parts = match select(range.as_bytes(), size) {
                All | Unsatisfiable => vec![],
                One(start, end) => vec![(start, end)],
                Several(parts) => parts,
            };
            prop_assert!(parts.len() <= MAX_RANGES);
            prop_assert!(parts.iter().all(|(start, end)| start < end && *end <= size));
            prop_assert!(parts.iter().map(|(start, end)| end - start).sum::<u64>() <= size);
        }
    }
}
