//! Text with placeholders that are replaced by different values in each request, so that a server cannot gain by
//! caching identical requests. `{seq}` is the request's number in the run, from 1; `{client}` is the client's number,
//! from 1; `{rand:LOW-HIGH}` is a random whole number, both ends included. Any other brace is literal text.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A text and its placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestTemplate {
    text: String,
    parts: Vec<TemplatePart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(Vec<u8>),
    Seq,
    Client,
    Random(u64, u64),
}

/// The values for the placeholders.
#[derive(Debug)]
pub struct PlaceholderValues<'a> {
    /// The request's number in the run, from 1.
    pub seq: u64,
    /// The client's number, from 1.
    pub client: u32,
    /// The source of the random numbers.
    pub random: &'a mut XorshiftRandom,
}

/// The xorshift64* generator: reproducible, and good enough to spread requests and times, but for no other purpose.
#[derive(Clone, Debug)]
pub struct XorshiftRandom(u64);

impl XorshiftRandom {
    /// Creates a generator. The same seed gives the same numbers; different streams of one seed differ.
    pub fn new(seed: u64, stream: u64) -> XorshiftRandom {
        // splitmix64, so that similar seeds give very different states.
        let mut z = seed.wrapping_add(stream.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        XorshiftRandom((z ^ (z >> 31)).max(1))
    }

    /// Returns the next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a random number, at least 0 and less than 1.
    pub fn next_fraction(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a random whole number, both ends included.
    pub fn next_between(&mut self, low: u64, high: u64) -> u64 {
        let span = u128::from(high - low) + 1;
        low + ((u128::from(self.next_u64()) * span) >> 64) as u64
    }
}

impl RequestTemplate {
    /// Parses a text. Never fails: anything that is not a placeholder is text.
    pub fn new(text: impl Into<String>) -> RequestTemplate {
        let text = text.into();
        let (mut parts, mut literal, mut rest) = (Vec::new(), Vec::new(), text.as_str());
        while let Some(open) = rest.find('{') {
            literal.extend_from_slice(&rest.as_bytes()[..open]);
            rest = &rest[open..];
            match place(rest) {
                Some((part, length)) => {
                    if !literal.is_empty() {
                        parts.push(TemplatePart::Text(std::mem::take(&mut literal)));
                    }
                    parts.push(part);
                    rest = &rest[length..];
                }
                None => {
                    literal.push(b'{');
                    rest = &rest[1..];
                }
            }
        }
        literal.extend_from_slice(rest.as_bytes());
        if !literal.is_empty() {
            parts.push(TemplatePart::Text(literal));
        }
        RequestTemplate { text, parts }
    }

    /// Returns whether every request gets the same text.
    pub fn is_constant(&self) -> bool {
        !self
            .parts
            .iter()
            .any(|part| !matches!(part, TemplatePart::Text(_)))
    }

    /// Returns the text as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether the text may be the value of a header: it has no control characters (RFC 9110 §5.5).
    pub fn is_field_value(&self) -> bool {
        self.text
            .bytes()
            .all(|b| b == b'\t' || (b >= b' ' && b != 0x7f))
    }

    /// Writes the text with its placeholders replaced for one request.
    pub fn render(&self, filling: &mut PlaceholderValues<'_>, out: &mut Vec<u8>) {
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => out.extend_from_slice(text),
                TemplatePart::Seq => push_number(out, filling.seq),
                TemplatePart::Client => push_number(out, u64::from(filling.client)),
                TemplatePart::Random(low, high) => {
                    push_number(out, filling.random.next_between(*low, *high))
                }
            }
        }
    }
}

fn place(text: &str) -> Option<(TemplatePart, usize)> {
    let inside = &text[1..text.find('}')?];
    let part = match inside {
        "seq" => TemplatePart::Seq,
        "client" => TemplatePart::Client,
        _ => {
            let (low, high) = inside.strip_prefix("rand:")?.split_once('-')?;
            let (low, high) = (low.parse().ok()?, high.parse().ok()?);
            (low <= high).then_some(TemplatePart::Random(low, high))?
        }
    };
    Some((part, inside.len() + 2))
}

/// Writes a number in decimal.
pub fn push_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

impl std::fmt::Display for RequestTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<&str> for RequestTemplate {
    fn from(text: &str) -> Self {
        RequestTemplate::new(text)
    }
}

impl Serialize for RequestTemplate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for RequestTemplate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(RequestTemplate::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(text: &str, seq: u64) -> String {
        let mut out = Vec::new();
        let mut random = XorshiftRandom::new(7, 0);
        let mut filling = PlaceholderValues {
            seq,
            client: 3,
            random: &mut random,
        };
        RequestTemplate::new(text).render(&mut filling, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn placeholders_are_replaced_and_other_braces_stay() {
        for (template, text) in [
            ("/a", "/a"),
            ("/a?n={seq}", "/a?n=12"),
            ("{client}{seq}", "312"),
            ("{\"a\":{seq}}", "{\"a\":12}"),
            ("/{other}/{rand:5-5}", "/{other}/5"),
            ("{rand:9-1}{", "{rand:9-1}{"),
            ("{rand:x-1}é", "{rand:x-1}é"),
        ] {
            assert_eq!(render(template, 12), text, "{template}");
        }
        assert!(RequestTemplate::new("/{other}").is_constant());
        assert!(!RequestTemplate::new("/{seq}").is_constant());
    }

    #[test]
    fn random_numbers_stay_between_both_ends_and_reach_them() {
        let mut random = XorshiftRandom::new(1, 1);
        let seen: std::collections::BTreeSet<u64> =
            (0..1000).map(|_| random.next_between(3, 6)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6]);
        assert!((0..1000).all(|_| (0.0..1.0).contains(&random.next_fraction())));
    }

    #[test]
    fn push_number_writes_decimal() {
        for number in [0, 7, 10, 1234567890, u64::MAX] {
            let mut out = Vec::new();
            push_number(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
        }
    }
}
