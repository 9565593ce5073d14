//! Recognises what changes in a response from one request to the next (nonces, times, the duration of the request), by
//! comparing several responses of one server, and compares another server's response with what stays the same.
//!
//! A body is a sequence of tokens: words, white space, and single other characters. A [`BodyMask`] has the tokens that
//! all responses have in common, in order, and the gaps between them.

use std::ops::Range;

/// The maximum number of differences between two bodies that are looked for. Bodies with more have little in common.
const MAX_EDITS: usize = 1000;
/// How many more tokens than in the responses of the old server a gap may have, at most.
const MAX_GAP_GROWTH: usize = 64;
/// The length of the excerpts in differences, in tokens and in characters.
const EXCERPT_TOKENS: usize = 24;
const EXCERPT_CHARS: usize = 100;

/// What stays the same in a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyMask {
    tokens: Vec<String>,
    /// Before each token, and at the end: the most tokens that were there and are not in `tokens`; none if there is no
    /// gap.
    gaps: Vec<Option<usize>>,
    /// The length of the first body, in bytes.
    length: usize,
}

/// Where two bodies differ first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyMismatch {
    /// The text of the old server.
    pub old: String,
    /// The text of the new server.
    pub new: String,
}

impl BodyMask {
    /// Returns the mask of one response, in which everything stays the same.
    pub fn new(body: &str) -> BodyMask {
        let tokens: Vec<String> = tokens(body).iter().map(ToString::to_string).collect();
        BodyMask {
            gaps: vec![None; tokens.len() + 1],
            tokens,
            length: body.len(),
        }
    }

    /// Takes another response of the same server into account. Returns false if it has little in common with the
    /// others.
    #[must_use]
    pub fn widen(&mut self, body: &str) -> bool {
        let other = tokens(body);
        let own: Vec<&str> = self.tokens.iter().map(String::as_str).collect();
        let Some(pairs) = common_tokens(&own, &other) else {
            return false;
        };
        let mut kept = Vec::with_capacity(pairs.len());
        let mut gaps = Vec::with_capacity(pairs.len() + 1);
        let (mut own_at, mut other_at) = (0, 0);
        let ends = (self.tokens.len(), other.len());
        for (own_next, other_next) in pairs.iter().copied().chain([ends]) {
            gaps.push(self.gap(own_at..own_next, other_next - other_at));
            if let Some(token) = self.tokens.get(own_next) {
                kept.push(token.clone());
            }
            (own_at, other_at) = (own_next + 1, other_next + 1);
        }
        self.tokens = kept;
        self.gaps = gaps;
        2 * self.tokens.iter().map(String::len).sum::<usize>() >= self.length
    }

    /// Returns the gap in place of some of our tokens, which another response replaces by `inserted` tokens.
    fn gap(&self, own: Range<usize>, inserted: usize) -> Option<usize> {
        let before = self.gaps[own.start..=own.end].iter();
        let earlier = before.flatten().copied().sum::<usize>();
        let is_gap = !own.is_empty() || inserted > 0 || self.gaps[own.start].is_some();
        is_gap.then(|| (own.len() + earlier).max(inserted))
    }

    /// Compares the response of another server.
    pub fn mismatch(&self, body: &str) -> Option<BodyMismatch> {
        let other = tokens(body);
        let mut at = 0;
        let mut begin = 0;
        while begin <= self.tokens.len() {
            let end = self.segment_end(begin);
            let segment = &self.tokens[begin..end];
            let is_last = end == self.tokens.len();
            let room = self.gaps[begin].map_or(0, |most| 4 * most + MAX_GAP_GROWTH);
            let latest = (at + room).min(other.len());
            let ends_open = self.gaps[self.tokens.len()].is_some();
            let found = match is_last && !(ends_open && begin < end) {
                // The rest has to be this segment, at the end; after a gap at the end, nothing is left.
                true => other.len().checked_sub(segment.len()).filter(|start| {
                    (at..=latest).contains(start) && fits(segment, &other[*start..])
                }),
                false => (at..=latest).find(|start| fits(segment, &other[*start..])),
            };
            let Some(start) = found else {
                let most = |start: &usize| common_length(segment, &other[*start..]);
                let nearest = (at..=latest).rev().max_by_key(most).unwrap_or(at);
                return Some(describe(segment, &other[nearest..]));
            };
            at = start + segment.len();
            if is_last && (begin == end || !ends_open) {
                return None;
            }
            begin = end;
        }
        None
    }

    /// Returns the end of the tokens without a gap that begin at a position.
    fn segment_end(&self, begin: usize) -> usize {
        let mut end = begin;
        while end < self.tokens.len() && (end == begin || self.gaps[end].is_none()) {
            end += 1;
        }
        end
    }
}

fn fits(segment: &[String], other: &[&str]) -> bool {
    segment.len() <= other.len() && segment.iter().zip(other).all(|(one, other)| one == other)
}

fn common_length(segment: &[String], other: &[&str]) -> usize {
    let pairs = segment.iter().zip(other);
    pairs.take_while(|(one, other)| one == *other).count()
}

/// Returns excerpts that begin shortly before the first token that differs.
fn describe(segment: &[String], other: &[&str]) -> BodyMismatch {
    let from = common_length(segment, other).saturating_sub(4);
    let old: Vec<&str> = segment.iter().map(String::as_str).collect();
    BodyMismatch {
        old: excerpt(old.get(from..).unwrap_or_default()),
        new: excerpt(other.get(from..).unwrap_or_default()),
    }
}

fn excerpt(tokens: &[&str]) -> String {
    let text: String = tokens.iter().take(EXCERPT_TOKENS).copied().collect();
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(EXCERPT_CHARS).collect()
}

/// Splits a string into words, white space, and single other characters. A number with its separators is one word
/// (`0.25`, `12:30:00`, `2026-11-29`): of two times that differ in one digit, no part is certain to stay the same.
pub fn tokens(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut begin = 0;
    let mut before = None;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let before_it = &text.as_bytes()[..at];
        let follows_digit = match before_it {
            // An exponent: 5.9E-6.
            [.., digit, b'E' | b'e'] => digit.is_ascii_digit(),
            _ => before_it.last().is_some_and(u8::is_ascii_digit),
        };
        let digit_follows = chars.peek().is_some_and(|(_, next)| next.is_ascii_digit());
        let kind = match c {
            '.' | ':' | ',' | '-' if follows_digit && digit_follows => TokenKind::Word,
            c if c.is_alphanumeric() || c == '_' => TokenKind::Word,
            c if c.is_whitespace() => TokenKind::Space,
            _ => TokenKind::Other,
        };
        if at > begin && (before != Some(kind) || kind == TokenKind::Other) {
            found.push(&text[begin..at]);
            begin = at;
        }
        before = Some(kind);
    }
    if begin < text.len() {
        found.push(&text[begin..]);
    }
    found
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum TokenKind {
    Word,
    Space,
    Other,
}

/// Returns the positions of a longest common subsequence, after E. Myers, "An O(ND) Difference Algorithm and Its
/// Variations" (1986); none if there are more than [`MAX_EDITS`] differences.
fn common_tokens(one: &[&str], other: &[&str]) -> Option<Vec<(usize, usize)>> {
    let offset = MAX_EDITS + 1;
    let mut furthest = vec![0usize; 2 * offset + 1];
    let mut trace: Vec<Vec<usize>> = Vec::new();
    for edits in 0..=MAX_EDITS {
        // Only the diagonals -edits-1..=edits+1 are read later.
        trace.push(furthest[offset - edits - 1..=offset + edits + 1].to_vec());
        for step in 0..=edits {
            let diagonal = offset - edits + 2 * step;
            let down =
                step == 0 || (step != edits && furthest[diagonal - 1] < furthest[diagonal + 1]);
            let mut x = match down {
                true => furthest[diagonal + 1],
                false => furthest[diagonal - 1] + 1,
            };
            let Some(mut y) = (x + offset).checked_sub(diagonal) else {
                continue;
            };
            while x < one.len() && y < other.len() && one[x] == other[y] {
                (x, y) = (x + 1, y + 1);
            }
            furthest[diagonal] = x;
            if x >= one.len() && y >= other.len() {
                return Some(walk_back(one.len(), other.len(), &trace));
            }
        }
    }
    None
}

/// Follows the recorded positions back to the beginning, and collects the pairs that are equal.
fn walk_back(one: usize, other: usize, trace: &[Vec<usize>]) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    let (mut x, mut y) = (one, other);
    for (edits, furthest) in trace.iter().enumerate().rev() {
        // Index of a diagonal d in this record: d + edits + 1.
        let index = |d: isize| (d + edits as isize + 1) as usize;
        let diagonal = x as isize - y as isize;
        let bound = edits as isize;
        let down = diagonal == -bound
            || (diagonal != bound && furthest[index(diagonal - 1)] < furthest[index(diagonal + 1)]);
        let before = if down { diagonal + 1 } else { diagonal - 1 };
        let (before_x, before_y) = match edits {
            0 => (0, 0),
            _ => {
                let x = furthest[index(before)];
                (x, (x as isize - before) as usize)
            }
        };
        while x > before_x && y > before_y {
            (x, y) = (x - 1, y - 1);
            pairs.push((x, y));
        }
        (x, y) = (before_x, before_y);
    }
    pairs.reverse();
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(bodies: &[&str]) -> BodyMask {
        let mut mask = BodyMask::new(bodies[0]);
        for body in &bodies[1..] {
            assert!(mask.widen(body), "{body}");
        }
        mask
    }

    #[test]
    fn body_without_changes_is_compared_exactly() {
        let mask = mask(&["<p>Hello, world</p>\n", "<p>Hello, world</p>\n"]);
        assert_eq!(mask.mismatch("<p>Hello, world</p>\n"), None);
        for other in [
            "<p>Hello, World</p>\n",
            "",
            "<p>Hello, world</p>\n!",
            "x<p>Hello, world</p>\n",
        ] {
            assert!(mask.mismatch(other).is_some(), "{other:?}");
        }
        let found = mask.mismatch("<p>Hello, World</p>\n").unwrap();
        assert_eq!(found.old, ">Hello, world</p>");
        assert_eq!(found.new, ">Hello, World</p>");
    }

    #[test]
    fn body_parts_that_change_are_masked() {
        let page = |nonce: &str, time: &str, end: &str| {
            format!(
                "<html><input value=\"{nonce}\"><p>The rest of the page is always the same.</p>\n<!-- {time} s --></html>{end}"
            )
        };
        let first = page("a1b2c3", "0.123", "");
        let second = page("99+f/0=", "0.2", "");
        let mask = mask(&[&first, &second]);
        assert_eq!(mask.mismatch(&page("77e", "1.5", "")), None);
        assert_eq!(mask.mismatch(&page("a1b2c3", "0.123", "")), None);
        assert!(mask.mismatch(&page("77e", "1.5", "Warning")).is_some());
        let broken = page("77e", "1.5", "").replace("always", "never");
        let found = mask.mismatch(&broken).unwrap();
        assert!(
            found.old.contains("always") && found.new.contains("never"),
            "{found:?}"
        );
        // A gap does not hide an error message.
        let noisy = page(&"Fatal error: x in y. ".repeat(40), "1.5", "");
        assert!(mask.mismatch(&noisy).is_some());
    }

    #[test]
    fn page_with_times_is_masked() {
        let page = |token: &str, time: &str, took: &str| {
            format!(
                "<html><body><input type=\"hidden\" name=\"csrf\" value=\"{token}\">\n<p>A text that never changes, however often a visitor asks for it.</p>\n<footer>It is {time}; the page took {took} s.</footer></body></html>\n"
            )
        };
        let first = page(
            "80c4a30a9e3fbd8b9ae01e9a4ae9a3bd",
            "16:44:03",
            "5.0067901611328E-6",
        );
        let second = page(
            "17c6bd35f8e0a1b92f2ac77d1a3ab5c1",
            "16:44:03",
            "5.9604644775391E-6",
        );
        let mask = mask(&[&first, &second]);
        assert_eq!(mask.mismatch(&page("f3", "16:44:03", "0.00012")), None);
    }

    #[test]
    fn body_that_begins_or_ends_with_a_change_is_masked_there() {
        let stable = "the same text in every response ";
        let body = |word: &str| format!("{word} {stable}{word}");
        let mask = mask(&[&body("one"), &body("two")]);
        assert_eq!(mask.mismatch(&body("three")), None);
        assert!(
            mask.mismatch(&body("three").replace("every", "no"))
                .is_some()
        );
    }

    #[test]
    fn bodies_without_much_in_common_cannot_be_compared() {
        let mut mask = BodyMask::new("0a1b2c3d4e5f");
        assert!(!mask.widen("99aa88bb77cc"));
        let words = |seed: u64| -> String {
            let next = |n: u64| n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed);
            let numbers = std::iter::successors(Some(seed), |n| Some(next(*n))).take(3000);
            numbers.map(|n| format!("{n} ")).collect()
        };
        let mut long = BodyMask::new(&words(1));
        assert!(!long.widen(&words(2)));
    }

    #[test]
    fn numbers_with_separators_are_one_token() {
        let text = "At 12:30:05 on 2026-11-29, 1.5 s.";
        let expected = [
            "At",
            " ",
            "12:30:05",
            " ",
            "on",
            " ",
            "2026-11-29",
            ",",
            " ",
            "1.5",
            " ",
            "s",
            ".",
        ];
        assert_eq!(tokens(text), expected);
        assert_eq!(tokens("é-1--"), ["é", "-", "1", "-", "-"]);
    }

    #[test]
    fn common_tokens_are_a_longest_common_subsequence() {
        let one = ["a", "b", "c", "a", "b", "b", "a"];
        let other = ["c", "b", "a", "b", "a", "c"];
        let pairs = common_tokens(&one, &other).unwrap();
        assert_eq!(pairs.len(), 4);
        assert!(pairs.iter().all(|(x, y)| one[*x] == other[*y]));
        assert!(pairs.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1));
        assert_eq!(common_tokens(&[], &other), Some(vec![]));
        assert_eq!(common_tokens(&one, &one).unwrap().len(), one.len());
    }
}
