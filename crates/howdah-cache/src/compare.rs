//! Compares two renders of one page, for a dry run before the cache is enabled and for checks afterwards. It
//! distinguishes three cases: the pages are the same; they differ only in words that look like a nonce or token made
//! for each render; or they differ. It reports where they differ, never the text: pages may be private.
//!
//! A number is never noise, because prices and dates are numbers. Pages whose words differ in number or order are
//! different.

/// The result of comparing the stored page with a fresh render.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// Both pages have the same bytes.
    Same,
    /// The pages differ only in words that look like nonces.
    Noise(NonceNoise),
    /// The pages differ beyond such words, first at this place.
    Different(RenderDifference),
}

/// Words that look like nonces and differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NonceNoise {
    /// How many such words differ.
    pub words: u64,
    /// Total bytes of those words in the stored page.
    pub bytes: u64,
    /// Where the first of those words begins in the stored page.
    pub first: u64,
}

/// Where the stored page and the fresh one differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenderDifference {
    /// Offset of the first byte that differs.
    pub first: u64,
    /// Line number of that byte, counted from 1.
    pub line: u64,
    /// Bytes of the stored page from there to the last byte that differs.
    pub stored_bytes: u64,
    /// Bytes of the fresh page from there to the last byte that differs.
    pub fresh_bytes: u64,
}

/// Shortest and longest word that may be a nonce: those of WordPress have 10 characters, Symfony's up to 86.
const NONCE_LENGTHS: std::ops::RangeInclusive<usize> = 8..=128;

/// Compares the stored body with a fresh one. Takes time proportional to their length.
pub fn compare_bodies(kept: &[u8], fresh: &[u8]) -> Likeness {
    if kept == fresh {
        return Likeness::Same;
    }
    match nonce_differences(kept, fresh) {
        Some(noise) => Likeness::Noise(noise),
        None => Likeness::Different(find_difference(kept, fresh)),
    }
}

fn find_difference(kept: &[u8], fresh: &[u8]) -> RenderDifference {
    let alike = |a: &mut dyn Iterator<Item = &u8>, b: &mut dyn Iterator<Item = &u8>| {
        a.zip(b).take_while(|(x, y)| x == y).count()
    };
    let first = alike(&mut kept.iter(), &mut fresh.iter());
    let (a, b) = (&kept[first..], &fresh[first..]);
    let last = alike(&mut a.iter().rev(), &mut b.iter().rev());
    let line = kept[..first].iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
    RenderDifference {
        first: first as u64,
        line,
        stored_bytes: (a.len() - last) as u64,
        fresh_bytes: (b.len() - last) as u64,
    }
}

/// Returns the differences if all of them are nonces.
fn nonce_differences(kept: &[u8], fresh: &[u8]) -> Option<NonceNoise> {
    // A nonce has the same length as the one that it replaces, so no other byte moves.
    if kept.len() != fresh.len() {
        return None;
    }
    let mut noise: Option<NonceNoise> = None;
    let mut at = 0;
    while at < kept.len() {
        if !is_word(kept[at]) {
            if kept[at] != fresh[at] {
                return None;
            }
            at += 1;
            continue;
        }
        let length = |text: &[u8]| text.iter().take_while(|byte| is_word(**byte)).count();
        let end = at + length(&kept[at..]);
        if end != at + length(&fresh[at..]) {
            return None;
        }
        let (a, b) = (&kept[at..end], &fresh[at..end]);
        if a != b {
            if !is_nonce(a) || !is_nonce(b) {
                return None;
            }
            let known = noise.get_or_insert(NonceNoise {
                words: 0,
                bytes: 0,
                first: at as u64,
            });
            known.words += 1;
            known.bytes += a.len() as u64;
        }
        at = end;
    }
    noise
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// Returns whether a word is a random mixture of letters and digits: either hexadecimal, or long and changing often
/// between digits, lower-case and upper-case letters. `2026-11-22`, `1795200000`, `Thursday` and `iPhone16Pro` are not
/// nonces.
fn is_nonce(word: &[u8]) -> bool {
    if !NONCE_LENGTHS.contains(&word.len()) {
        return false;
    }
    let count = |is: fn(&u8) -> bool| word.iter().filter(|byte| is(byte)).count();
    let digits = count(u8::is_ascii_digit);
    let letters = count(u8::is_ascii_alphabetic);
    let kind = |byte: u8| match byte {
        b'0'..=b'9' => Some(0),
        b'a'..=b'z' => Some(1),
        b'A'..=b'Z' => Some(2),
        _ => None,
    };
    let kinds = word.windows(2).map(|pair| (kind(pair[0]), kind(pair[1])));
    let changes = kinds
        .filter(|(a, b)| a.is_some() && b.is_some() && a != b)
        .count();
    let chance = match word.iter().all(u8::is_ascii_hexdigit) {
        true => 2,
        false if word.len() >= 16 => 5,
        false => return false,
    };
    digits >= 2 && letters >= 2 && changes >= chance
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(kept: &str, fresh: &str) -> Likeness {
        compare_bodies(kept.as_bytes(), fresh.as_bytes())
    }

    #[test]
    fn nonces_are_noise_and_are_counted() {
        let page = |nonce: &str, token: &str| {
            format!("<a href=\"?_wpnonce={nonce}\">x</a>\n<input value=\"{token}\">")
        };
        let kept = page("3f09ab12cd", "Zk3_9dQ1xL5-pp70");
        assert_eq!(compare(&kept, &kept), Likeness::Same);
        let fresh = page("77e1c0ffe5", "b8K_1mW2tY6-qa93");
        let noise = NonceNoise {
            words: 2,
            bytes: 26,
            first: 19,
        };
        assert_eq!(compare(&kept, &fresh), Likeness::Noise(noise));
    }

    #[test]
    fn visible_text_is_never_noise() {
        for (kept, fresh) in [
            ("price 19.99", "price 24.99"),
            ("on Thursday.", "on Saturday."),
            ("2026-11-22", "2026-11-23"),
            ("1795200000", "1795200001"),
            ("0123456789", "0123456780"),
            ("order-1234", "order-1235"),
            ("user alice01x", "user bobby01x"),
            ("iPhone15Pro", "iPhone16Pro"),
            ("Hello Jo", "Hello Jane"),
            ("a 3f09ab12cd b", "a 3f09ab12c b"),
            ("3f09ab12cd x", "77e1c0ffe5 y"),
            ("3f09ab12cd", "3f09ab12cd "),
            ("", "x"),
        ] {
            let likeness = compare(kept, fresh);
            assert!(
                matches!(likeness, Likeness::Different(_)),
                "{kept} {fresh} {likeness:?}"
            );
        }
    }

    #[test]
    fn difference_is_reported_by_place_and_size() {
        let place = |kept, fresh| match compare(kept, fresh) {
            Likeness::Different(p) => (p.first, p.line, p.stored_bytes, p.fresh_bytes),
            other => panic!("{other:?}"),
        };
        assert_eq!(place("a\nbXc", "a\nbYYc"), (3, 2, 1, 2));
        assert_eq!(place("aa", "aaa"), (2, 1, 0, 1));
        assert_eq!(place("", "x"), (0, 1, 0, 1));
        assert_eq!(place("x\n\n", ""), (0, 1, 3, 0));
    }

    proptest::proptest! {
        #[test]
        fn any_two_bodies_are_compared(kept in "[a-f0-9 \n]{0,40}", fresh in "[a-f0-9 \n]{0,40}") {
            let likeness = compare_bodies(kept.as_bytes(), fresh.as_bytes());
            proptest::prop_assert_eq!(likeness == Likeness::Same, kept == fresh);
            if let Likeness::Different(p) = likeness {
                let (first, k, f) = (p.first as usize, p.stored_bytes as usize, p.fresh_bytes as usize);
                proptest::prop_assert!(first + k <= kept.len() && first + f <= fresh.len());
                proptest::prop_assert_eq!(&kept[..first], &fresh[..first]);
                proptest::prop_assert_eq!(&kept[first + k..], &fresh[first + f..]);
            }
        }
    }
}
