//! Compares the head parser with another one: httparse accepts every head that ours accepts, with the same parts.

use howdah_http1::head::{self, HeadLimits};
use proptest::prelude::*;

const LIMITS: HeadLimits = HeadLimits {
    request_line: 8 << 10,
    bytes: 32 << 10,
    fields: 100,
};

fn agree(input: &[u8]) -> Result<bool, TestCaseError> {
    let mut fields = Vec::new();
    let Ok(Some(parsed)) = head::parse(input, &LIMITS, &mut fields) else {
        return Ok(false);
    };
    let ours = parsed.into_head(input, Vec::new(), fields);
    // The only difference: httparse requires UTF-8 in a target, while PHP gets all bytes that nginx would pass on.
    if std::str::from_utf8(ours.target()).is_err() {
        return Ok(false);
    }
    let mut space = [httparse::EMPTY_HEADER; 100];
    let mut theirs = httparse::Request::new(&mut space);
    let status = theirs.parse(input);
    prop_assert_eq!(status, Ok(httparse::Status::Complete(parsed.len)));
    prop_assert_eq!(theirs.method.map(str::as_bytes), Some(ours.method()));
    prop_assert_eq!(theirs.path.map(str::as_bytes), Some(ours.target()));
    let headers: Vec<_> = theirs
        .headers
        .iter()
        .map(|h| (h.name.as_bytes(), h.value))
        .collect();
    prop_assert_eq!(headers, ours.headers().collect::<Vec<_>>());
    Ok(true)
}

/// Returns valid and invalid pieces of requests, whose random combinations are often nearly valid.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    const KNOWN: &[&str] = &[
        "GET",
        "POST",
        " ",
        "/",
        "/a?b",
        "*",
        "http://h/",
        " HTTP/1.1",
        " HTTP/1.0",
        "\r\n",
        "\r\n",
        "\r\n",
        "Host: a",
        "host:b",
        "X: y",
        "X:",
        ":",
        "\n",
        "\r",
        "\t",
        " ",
        "\0",
        "Content-Length: 1",
        "Transfer-Encoding: chunked",
        "Connection: close",
        "\u{e9}",
        "\u{7f}",
        "Expect: 100-continue",
    ];
    prop_oneof![
        8 => prop::sample::select(KNOWN).prop_map(|s| s.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 1..4),
    ]
}

proptest! {
    #[test]
    fn accepted_request_means_the_same_to_httparse(
        front in prop::sample::select(&["", "GET / HTTP/1.1\r\nHost: a\r\n", "GET /"][..]),
        pieces in prop::collection::vec(piece(), 0..12),
        end in prop::sample::select(&["", "\r\n\r\n"][..]),
    ) {
        agree(&[front.as_bytes(), &pieces.concat(), end.as_bytes()].concat())?;
    }

    #[test]
    fn request_with_one_changed_byte_is_refused_or_means_the_same_to_httparse(
        at in 0usize..75,
        byte in any::<u8>(),
    ) {
        let mut wire = b"POST /a/b?c HTTP/1.1\r\nHost: example\r\nContent-Length: 5\r\nX-Y: z \r\n\r\nhello".to_vec();
        let at = at % wire.len();
        wire[at] = byte;
        agree(&wire)?;
    }
}

#[test]
fn httparse_comparison_distinguishes_accepted_from_refused_requests() {
    let wire = b"GET /\xc3\xa9?\"<>^`{|}\\ HTTP/1.0\r\nA:\t b \t\r\nC: \xe9\r\n\r\nrest";
    assert!(agree(wire).unwrap());
    assert!(!agree(b"GET / HTTP/1.1\nHost: a\n\n").unwrap());
}
