//! The constant parts of a page: learnt from several responses of one stack, then expected in those of the others. This
//! module has no side effects.
//!
//! Pages are never completely constant: they contain times, tokens, counters. Parts that differ between two responses
//! of the same stack may also differ in another stack's; everything else must be identical, byte for byte. If the
//! responses have the same number of words, each word that never changed is constant. Otherwise, the constant parts are
//! the lines that all responses have in common, in order. Nothing is masked by guessing what looks like a number: a
//! site that shows "0 entries" where another one shows 25 is not the same site.

use std::net::SocketAddr;

/// The byte that replaces the stack's own address, which differs between stacks.
const ADDRESS_MARK: u8 = 0x01;
/// The minimum length of a string that can identify a page, in bytes.
const MIN_MARK_BYTES: usize = 8;
/// The maximum length of the part of such a string that is used, in bytes.
const MAX_MARK_BYTES: usize = 120;
/// The maximum number of cells in the table of common lines; if there would be more, only the identical lines at the
/// beginning and end count.
const MAX_TABLE_CELLS: usize = 16 << 20;

/// The constant parts of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageShape {
    pieces: ShapePieces,
    /// The share of constant bytes in the first response, in per cent.
    constant: u8,
    marks: Vec<String>,
    /// The responses it was learnt from.
    samples: Vec<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ShapePieces {
    /// The words of the page; `None` for a word that changed.
    Words(Vec<Option<Vec<u8>>>),
    /// The lines that all responses have in common, in order.
    Lines(Vec<Vec<u8>>),
}

/// Replaces the server's own address in the body by the same byte for all servers.
pub fn normalise(body: &[u8], address: SocketAddr) -> Vec<u8> {
    let own = address.to_string().into_bytes();
    let mut out = Vec::with_capacity(body.len());
    let mut at = 0;
    while at < body.len() {
        if body[at..].starts_with(&own) {
            out.push(ADDRESS_MARK);
            at += own.len();
        } else {
            out.push(body[at]);
            at += 1;
        }
    }
    out
}

/// Splits a body into runs of letters and digits, and single other bytes.
fn words(body: &[u8]) -> Vec<&[u8]> {
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80;
    let mut out = Vec::new();
    let mut at = 0;
    while at < body.len() {
        let run = body[at..].iter().take_while(|b| letter(**b)).count().max(1);
        out.push(&body[at..at + run]);
        at += run;
    }
    out
}

fn lines(body: &[u8]) -> Vec<&[u8]> {
    body.split_inclusive(|b| *b == b'\n').collect()
}

impl PageShape {
    /// Learns from at least one normalised response of one stack.
    pub fn learn(samples: &[Vec<u8>]) -> PageShape {
        let first = samples.first().map_or(&[][..], Vec::as_slice);
        let all: Vec<Vec<&[u8]>> = samples.iter().map(|body| words(body)).collect();
        let same = all.windows(2).all(|two| two[0].len() == two[1].len());
        let (pieces, ranges) = match same {
            true => by_words(&all),
            false => by_lines(first, samples),
        };
        let kept: usize = ranges.iter().map(|range| range.1 - range.0).sum();
        let constant = match first.len() {
            0 => 100,
            length if kept == length => 100,
            length => (kept * 100 / length).min(99) as u8,
        };
        PageShape {
            pieces,
            constant,
            marks: marks(first, &ranges),
            samples: samples.to_vec(),
        }
    }

    /// Learns from one more response: where it differs, responses of other stacks may differ, too.
    pub fn widen(&mut self, body: &[u8]) {
        self.samples.push(body.to_vec());
        *self = PageShape::learn(&std::mem::take(&mut self.samples));
    }

    /// Returns how much of the page is constant, in per cent of its bytes.
    pub fn constant_percent(&self) -> u8 {
        self.constant
    }

    /// Returns strings that all responses of the page contain: the longest one, and the last. There are fewer or none
    /// if the page is short, binary or random.
    pub fn marks(&self) -> &[String] {
        &self.marks
    }

    /// Checks that another stack's response is the same page.
    ///
    /// # Errors
    /// Returns a sentence with the first difference.
    pub fn matches(&self, body: &[u8]) -> Result<(), String> {
        match &self.pieces {
            ShapePieces::Words(expected) => {
                let got = words(body);
                let differs = expected
                    .iter()
                    .zip(&got)
                    .position(|(expected, got)| expected.as_ref().is_some_and(|e| e != got));
                let at = match differs {
                    Some(at) => at,
                    None if expected.len() == got.len() => return Ok(()),
                    None => expected.len().min(got.len()),
                };
                let blank: &[u8] = "…".as_bytes();
                let expected = expected.iter().map(|word| word.as_deref().unwrap_or(blank));
                let expected: Vec<&[u8]> = expected.collect();
                Err(format!(
                    "`{}` instead of `{}`",
                    excerpt(&got, at),
                    excerpt(&expected, at)
                ))
            }
            ShapePieces::Lines(expected) => {
                let got = lines(body);
                let mut rest = got.iter();
                let missing = expected
                    .iter()
                    .find(|line| !rest.any(|got| *got == line.as_slice()));
                match missing {
                    None => Ok(()),
                    Some(line) => Err(format!("the line `{}` is missing", printable(line))),
                }
            }
        }
    }
}

type Ranges = Vec<(usize, usize)>;

fn by_words(all: &[Vec<&[u8]>]) -> (ShapePieces, Ranges) {
    let first = all.first().map_or(&[][..], Vec::as_slice);
    let mut ranges: Ranges = Vec::new();
    let mut offset = 0;
    let mut pieces = Vec::with_capacity(first.len());
    for (at, word) in first.iter().enumerate() {
        let constant = all.iter().all(|other| other[at] == *word);
        if constant {
            extend(&mut ranges, offset, offset + word.len());
        }
        pieces.push(constant.then(|| word.to_vec()));
        offset += word.len();
    }
    (ShapePieces::Words(pieces), ranges)
}

fn by_lines(first: &[u8], samples: &[Vec<u8>]) -> (ShapePieces, Ranges) {
    let own = lines(first);
    let mut kept: Vec<usize> = (0..own.len()).collect();
    for other in samples.iter().skip(1) {
        let mine: Vec<&[u8]> = kept.iter().map(|at| own[*at]).collect();
        let common = longest_common_subsequence(&mine, &lines(other));
        kept = common.into_iter().map(|at| kept[at]).collect();
    }
    let mut starts = Vec::with_capacity(own.len());
    let mut offset = 0;
    for line in &own {
        starts.push(offset);
        offset += line.len();
    }
    let mut ranges: Ranges = Vec::new();
    for at in &kept {
        extend(&mut ranges, starts[*at], starts[*at] + own[*at].len());
    }
    let lines = kept.iter().map(|at| own[*at].to_vec()).collect();
    (ShapePieces::Lines(lines), ranges)
}

fn extend(ranges: &mut Ranges, from: usize, to: usize) {
    match ranges.last_mut() {
        Some(last) if last.1 == from => last.1 = to,
        _ => ranges.push((from, to)),
    }
}

/// Returns the indexes into `a` of a longest common subsequence with `b`.
fn longest_common_subsequence(a: &[&[u8]], b: &[&[u8]]) -> Vec<usize> {
    let head = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let tails = a[head..].iter().rev().zip(b[head..].iter().rev());
    let tail = tails.take_while(|(a, b)| a == b).count();
    let (middle_a, middle_b) = (&a[head..a.len() - tail], &b[head..b.len() - tail]);
    let mut out: Vec<usize> = (0..head).collect();
    let (n, m) = (middle_a.len(), middle_b.len());
    if n > 0 && m > 0 && n * m <= MAX_TABLE_CELLS {
        // The table holds the lengths of the longest common subsequences of the remainders, computed from the end.
        let mut table = vec![0u32; (n + 1) * (m + 1)];
        let at = |i: usize, j: usize| i * (m + 1) + j;
        for i in (0..n).rev() {
            for j in (0..m).rev() {
                table[at(i, j)] = match middle_a[i] == middle_b[j] {
                    true => table[at(i + 1, j + 1)] + 1,
                    false => table[at(i + 1, j)].max(table[at(i, j + 1)]),
                };
            }
        }
        let (mut i, mut j) = (0, 0);
        while i < n && j < m {
            if middle_a[i] == middle_b[j] {
                out.push(head + i);
                i += 1;
                j += 1;
            } else if table[at(i + 1, j)] >= table[at(i, j + 1)] {
                i += 1;
            } else {
                j += 1;
            }
        }
    }
    out.extend(a.len() - tail..a.len());
    out
}

/// Returns the end of the longest constant stretch, which an error page lacks, and the end of the last one, which a
/// truncated page lacks.
fn marks(first: &[u8], ranges: &[(usize, usize)]) -> Vec<String> {
    let texts = ranges
        .iter()
        .flat_map(|(from, to)| first[*from..*to].split(|b| *b == ADDRESS_MARK));
    let texts: Vec<&str> = texts
        .filter_map(|bytes| std::str::from_utf8(bytes).ok())
        .map(str::trim)
        .filter(|text| text.len() >= MIN_MARK_BYTES)
        .collect();
    let end = |text: &str| {
        let mut from = text.len().saturating_sub(MAX_MARK_BYTES);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        text[from..].trim_start().to_owned()
    };
    let longest = texts.iter().max_by_key(|text| text.len());
    let mut marks: Vec<String> = longest.into_iter().map(|text| end(text)).collect();
    if let Some(last) = texts.last().map(|text| end(text))
        && !marks.contains(&last)
    {
        marks.push(last);
    }
    marks
}

/// Returns the surroundings of a word, on one line.
fn excerpt(words: &[&[u8]], at: usize) -> String {
    let from = at.saturating_sub(8);
    let to = (at + 12).min(words.len());
    printable(&words[from.min(to)..to].concat())
}

fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text: Vec<&str> = text.split_whitespace().collect();
    let text = text.join(" ").replace(char::from(ADDRESS_MARK), "ADDRESS");
    let text: String = text.chars().take(90).collect();
    text.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learn(samples: &[&str]) -> PageShape {
        let samples: Vec<Vec<u8>> = samples.iter().map(|s| s.as_bytes().to_vec()).collect();
        PageShape::learn(&samples)
    }

    #[test]
    fn shape_permits_only_changed_words_to_differ() {
        let shape = learn(&[
            "<p>25 entries at 10:00</p>\n",
            "<p>25 entries at 10:01</p>\n",
        ]);
        assert!(shape.constant_percent() < 100 && shape.constant_percent() > 80);
        assert_eq!(shape.matches(b"<p>25 entries at 10:59</p>\n"), Ok(()));
        let why = shape.matches(b"<p>0 entries at 10:00</p>\n").unwrap_err();
        assert!(
            why.contains("<p>0 entries") && why.contains("<p>25 entries"),
            "{why}"
        );
        assert!(
            shape
                .matches(b"<p>25 entries at 10:00</p>\n<b>Warning</b>")
                .is_err()
        );
        assert!(shape.matches(b"").is_err());
    }

    #[test]
    fn shape_learns_from_later_responses() {
        let mut shape = learn(&["at 10:00 sharp", "at 10:00 sharp"]);
        assert!(shape.matches(b"at 10:01 sharp").is_err());
        shape.widen(b"at 10:02 sharp");
        assert_eq!(shape.matches(b"at 10:01 sharp"), Ok(()));
    }

    #[test]
    fn shape_permits_changing_lines() {
        let shape = learn(&[
            "<h1>Shop</h1>\n<p>quote one two</p>\n<p>end</p>\n",
            "<h1>Shop</h1>\n<p>another</p>\n<p>and more of it</p>\n<p>end</p>\n",
        ]);
        assert_eq!(shape.matches(b"<h1>Shop</h1>\n<p>end</p>\n"), Ok(()));
        let why = shape.matches(b"<h1>Shop</h1>\nFatal error").unwrap_err();
        assert_eq!(why, "the line `<p>end</p>` is missing");
    }

    #[test]
    fn shape_of_a_constant_page_requires_identical_bytes() {
        let shape = learn(&["abc def", "abc def"]);
        assert_eq!(shape.constant_percent(), 100);
        assert_eq!(shape.matches(b"abc def"), Ok(()));
        assert!(shape.matches(b"abc  def").is_err());
    }

    #[test]
    fn shape_marks_are_the_longest_and_the_last_text() {
        let shape = learn(&[
            "<title>A caravan of elephants</title><p>1</p></html>",
            "<title>A caravan of elephants</title><p>2</p></html>",
        ]);
        let expected = ["<title>A caravan of elephants</title><p>", "</p></html>"];
        assert_eq!(shape.marks(), expected);
        assert!(learn(&["a1", "b2"]).marks().is_empty());
        let long = "x".repeat(500);
        assert_eq!(learn(&[&long]).marks()[0].len(), 120);
    }

    #[test]
    fn shape_ignores_the_servers_own_address() {
        let one: SocketAddr = "127.0.0.1:81".parse().unwrap();
        let two: SocketAddr = "127.0.0.1:8123".parse().unwrap();
        let page = |address: SocketAddr| format!("<a href=\"http://{address}/\">here is home</a>");
        let shape = PageShape::learn(&[normalise(page(one).as_bytes(), one)]);
        assert_eq!(shape.matches(&normalise(page(two).as_bytes(), two)), Ok(()));
        assert!(shape.marks().iter().all(|mark| !mark.contains('\u{1}')));
    }

    #[test]
    fn longest_common_subsequence_of_lines_is_found() {
        let split = |text: &'static str| text.split(' ').map(str::as_bytes).collect::<Vec<_>>();
        let a = split("a b c d e f");
        let picked = longest_common_subsequence(&a, &split("a x c e b f"));
        let picked: Vec<&[u8]> = picked.into_iter().map(|at| a[at]).collect();
        assert_eq!(picked, split("a c e f"));
    }
}
