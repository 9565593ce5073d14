//! W3C Trace Context, Level 1: parses and writes `traceparent` and `tracestate` of a request. A value that does not
//! exactly follow the recommendation counts as absent (§4.3): an invalid `traceparent` invalidates `tracestate` too, an
//! invalid `tracestate` invalidates only itself. The functions are pure.

use std::fmt;

use howdah_http::message::RequestHead;

/// The name of the header with the trace and the caller's span.
pub const TRACEPARENT: &[u8] = b"traceparent";
/// The name of the header with vendor-specific data.
pub const TRACESTATE: &[u8] = b"tracestate";

/// The length of a `traceparent` of version 00.
const TRACEPARENT_LENGTH: usize = 55;
/// The maximum number of list members of a `tracestate` (§3.3.1.1).
const MAX_TRACESTATE_MEMBERS: usize = 32;

/// The identity of a span: its trace ID and its span ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanContext {
    /// The trace ID, which is never all zero.
    pub trace_id: [u8; 16],
    /// The span ID, which is never all zero.
    pub span_id: [u8; 8],
}

impl SpanContext {
    /// Returns the trace ID, in hexadecimal digits.
    pub fn trace(&self) -> HexId<'_> {
        HexId(&self.trace_id)
    }

    /// Returns the span ID, in hexadecimal digits.
    pub fn span(&self) -> HexId<'_> {
        HexId(&self.span_id)
    }

    /// Returns the value of a `traceparent` that names this span as the parent.
    pub fn traceparent(&self, sampled: bool) -> [u8; TRACEPARENT_LENGTH] {
        let mut text = *b"00-________________________________-________________-00";
        write_hex(&self.trace_id, &mut text[3..35]);
        write_hex(&self.span_id, &mut text[36..52]);
        text[54] += u8::from(sampled);
        text
    }
}

/// A trace ID or span ID, which is displayed in lower-case hexadecimal digits.
#[derive(Clone, Copy)]
pub struct HexId<'a>(&'a [u8]);

impl fmt::Display for HexId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 32];
        let text = &mut text[..2 * self.0.len()];
        write_hex(self.0, text);
        f.write_str(std::str::from_utf8(text).unwrap_or_default())
    }
}

fn write_hex(bytes: &[u8], out: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (byte, pair) in bytes.iter().zip(out.chunks_exact_mut(2)) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

/// The trace of a request, as its caller specifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The caller's span.
    pub context: SpanContext,
    /// Whether the caller records the trace.
    pub sampled: bool,
    /// The vendor-specific data, as one header value; empty if there is none.
    pub state: Vec<u8>,
}

impl TraceParent {
    /// Returns the parent that a request names, or `None` if it names none, several, or an invalid one.
    pub fn of(request: &RequestHead) -> Option<TraceParent> {
        let mut named = request.header_all(TRACEPARENT);
        let (context, sampled) = parse_traceparent(named.next()?)?;
        if named.next().is_some() {
            return None;
        }
        let mut state = Vec::new();
        for value in request.header_all(TRACESTATE) {
            if !state.is_empty() {
                state.push(b',');
            }
            state.extend_from_slice(value);
        }
        if !is_tracestate(&state) {
            state.clear();
        }
        Some(TraceParent {
            context,
            sampled,
            state,
        })
    }
}

/// Parses a `traceparent`: the span, and whether its trace is recorded (§3.2). From a value of a future version, it
/// reads the fields that version 00 has (§3.2.4).
pub fn parse_traceparent(value: &[u8]) -> Option<(SpanContext, bool)> {
    let (known, more) = value.split_at_checked(TRACEPARENT_LENGTH)?;
    let [version] = parse_hex(&known[..2])?;
    let fits = match version {
        0 => more.is_empty(),
        0xff => false,
        _ => more.first().is_none_or(|byte| *byte == b'-'),
    };
    let dashed = [2, 35, 52].iter().all(|at| known[*at] == b'-');
    let context = SpanContext {
        trace_id: parse_hex(&known[3..35])?,
        span_id: parse_hex(&known[36..52])?,
    };
    let [flags] = parse_hex(&known[53..])?;
    let named = context.trace_id != [0; 16] && context.span_id != [0; 8];
    (fits && dashed && named).then_some((context, flags & 1 == 1))
}

/// Decodes lower-case hexadecimal digits.
fn parse_hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// Returns whether a `tracestate` is valid: members with different keys, within the limits on their length and number
/// (§3.3.1). Members may be empty.
pub fn is_tracestate(value: &[u8]) -> bool {
    let mut keys: Vec<&[u8]> = Vec::new();
    for member in value.split(|byte| *byte == b',') {
        let member = trim(member);
        if member.is_empty() {
            continue;
        }
        let Some(at) = member.iter().position(|byte| *byte == b'=') else {
            return false;
        };
        let (key, value) = (&member[..at], &member[at + 1..]);
        if !is_key(key)
            || !is_value(value)
            || keys.contains(&key)
            || keys.len() == MAX_TRACESTATE_MEMBERS
        {
            return false;
        }
        keys.push(key);
    }
    true
}

/// Removes optional white space, which is blanks and tabs, at both ends.
fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// Returns whether a key is a `simple-key` or `tenant@system` (§3.3.1.3.1).
fn is_key(key: &[u8]) -> bool {
    let of = |part: &[u8], first: fn(&u8) -> bool, longest: usize| {
        part.first().is_some_and(first)
            && part.len() <= longest
            && part.iter().all(|byte| {
                byte.is_ascii_lowercase()
                    || byte.is_ascii_digit()
                    || matches!(byte, b'_' | b'-' | b'*' | b'/')
            })
    };
    match key.iter().position(|byte| *byte == b'@') {
        None => of(key, u8::is_ascii_lowercase, 256),
        Some(at) => {
            let letter_or_digit = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            of(&key[..at], letter_or_digit, 241) && of(&key[at + 1..], u8::is_ascii_lowercase, 14)
        }
    }
}

/// Returns whether a value consists of up to 256 printable characters without `,` and `=` (§3.3.1.3.2). Blanks at the
/// end have been removed.
fn is_value(value: &[u8]) -> bool {
    (1..=256).contains(&value.len())
        && value
            .iter()
            .all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'='))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn traceparent_is_parsed_and_written() {
        let (context, sampled) = parse_traceparent(VALID.as_bytes()).unwrap();
        assert!(sampled);
        assert_eq!(
            context.trace().to_string(),
            "4bf92f3577b34da6a3ce929d0e0e4736"
        );
        assert_eq!(context.span().to_string(), "00f067aa0ba902b7");
        assert_eq!(&context.traceparent(true), VALID.as_bytes());
        let not = VALID.replace("-01", "-00");
        assert_eq!(&context.traceparent(false), not.as_bytes());
        assert_eq!(parse_traceparent(not.as_bytes()), Some((context, false)));
        // Future levels may use other flags.
        let flags = VALID.replace("-01", "-03");
        assert_eq!(parse_traceparent(flags.as_bytes()), Some((context, true)));
    }

    #[test]
    fn traceparent_is_rejected_if_not_exact() {
        let later = VALID.replacen("00", "cc", 1);
        for valid in [
            later.clone(),
            format!("{later}-what.follows"),
            format!("{later}-"),
        ] {
            assert!(parse_traceparent(valid.as_bytes()).is_some(), "{valid}");
        }
        for wrong in [
            "",
            "00",
            &VALID[..54],
            &VALID.to_uppercase(),
            &format!("{VALID}-"),
            &format!("{VALID} "),
            &format!("{later}."),
            &VALID.replacen("00", "ff", 1),
            &VALID.replacen("00", "0x", 1),
            &VALID.replacen('-', "_", 1),
            &VALID.replace("4736-", "4736 "),
            &VALID.replace("b7-", "b7."),
            &VALID.replace("4bf9", "4Bf9"),
            &VALID.replace("-01", "-0g"),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        ] {
            assert_eq!(parse_traceparent(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn tracestate_has_up_to_32_members_with_different_keys() {
        let of = |count: usize| {
            (0..count)
                .map(|n| format!("k{n}=v"))
                .collect::<Vec<_>>()
                .join(",")
        };
        for valid in [
            "",
            "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
            " a=1\t, ,b=2 b,",
            "0tenant@system=x",
            "a_-*/0=!~",
            &format!("{}={}", "k".repeat(256), "v".repeat(256)),
            &format!("{}@{}=v", "t".repeat(241), "s".repeat(14)),
            &of(32),
        ] {
            assert!(is_tracestate(valid.as_bytes()), "{valid}");
        }
        for wrong in [
            "a",
            "=1",
            "a=",
            "A=1",
            "0a=1",
            "a=1,a=2",
            "a=1=2",
            "a b=1",
            "a=1\u{e4}",
            "a=\t1",
            "tenant@=1",
            "@system=1",
            "tenant@0system=1",
            "a@b@c=1",
            &format!("{}=v", "k".repeat(257)),
            &format!("k={}", "v".repeat(257)),
            &format!("{}@s=v", "t".repeat(242)),
            &format!("t@{}=v", "s".repeat(15)),
            &of(33),
        ] {
            assert!(!is_tracestate(wrong.as_bytes()), "{wrong}");
        }
    }

    #[test]
    fn tracestate_is_dropped_with_an_invalid_traceparent_or_alone() {
        let of = |fields: &[(&str, &str)]| TraceParent::of(&request("GET", "/", fields));
        let parent = of(&[
            ("Traceparent", VALID),
            ("tracestate", "a=1"),
            ("Tracestate", "b=2"),
        ]);
        assert_eq!(parent.unwrap().state, b"a=1,b=2");
        let parent = of(&[("traceparent", VALID), ("tracestate", "a")]).unwrap();
        assert_eq!((parent.state.len(), parent.sampled), (0, true));
        assert_eq!(of(&[("traceparent", "x"), ("tracestate", "a=1")]), None);
        assert_eq!(of(&[("tracestate", "a=1")]), None);
        // An intermediary has added a second header.
        assert_eq!(of(&[("traceparent", VALID), ("traceparent", VALID)]), None);
    }
}
