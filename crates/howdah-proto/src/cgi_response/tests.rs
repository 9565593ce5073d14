//! Header blocks as programs write them, and the heads that the parser makes of them.

use super::*;

fn parse(bytes: &[u8]) -> Result<Option<CgiHead>, CgiError> {
    CgiParser::default().feed(bytes)
}

fn head(bytes: &[u8]) -> CgiHead {
    parse(bytes).unwrap().expect("a whole header block")
}

fn fields(head: &CgiHead) -> Vec<(&str, &str)> {
    let text = |bytes| std::str::from_utf8(bytes).unwrap();
    let pairs = head.head.headers.iter();
    pairs.map(|(n, v)| (text(n), text(v))).collect()
}

#[test]
fn php_header_block_becomes_a_head_and_the_body_follows() {
    let wire = b"Status: 404 Not Found\r\nX-Powered-By: PHP/8.2\r\nContent-type: text/html; charset=UTF-8\r\n\r\n<h1>";
    let got = head(wire);
    assert_eq!(
        (got.head.status, &got.head.reason[..]),
        (404, &b"Not Found"[..])
    );
    assert_eq!(
        fields(&got),
        [
            ("X-Powered-By", "PHP/8.2"),
            ("Content-type", "text/html; charset=UTF-8")
        ]
    );
    assert_eq!(&wire[got.used..], b"<h1>");
    assert!(!got.head.local_redirect);
}

#[test]
fn header_block_split_at_every_byte_parses_the_same() {
    let wire: &[u8] = b"Content-Type: text/plain\nSet-Cookie: a=1\r\nSet-Cookie: b=2\n\r\nbody";
    let whole = head(wire);
    assert_eq!(fields(&whole).len(), 3);
    for cut in 0..wire.len() {
        let mut parser = CgiParser::default();
        let (found, at) = match parser.feed(&wire[..cut]).unwrap() {
            Some(found) => (found, 0),
            None => (parser.feed(&wire[cut..]).unwrap().expect("the rest"), cut),
        };
        assert_eq!(found.head, whole.head, "cut at {cut}");
        assert_eq!(&wire[at + found.used..], b"body", "cut at {cut}");
    }
}

#[test]
fn header_block_arriving_byte_by_byte_is_parsed() {
    let wire = b"A: 1\r\n\r\n";
    let mut parser = CgiParser::default();
    for byte in &wire[..wire.len() - 1] {
        assert_eq!(parser.feed(&[*byte]), Ok(None));
    }
    let got = parser.feed(b"\n").unwrap().expect("the end");
    assert_eq!((got.used, fields(&got)), (1, vec![("A", "1")]));
}

#[test]
fn location_without_a_status_is_a_redirect() {
    let to = |location: &str| {
        let got = head(format!("Location: {location}\n\n").as_bytes());
        (got.head.status, got.head.local_redirect)
    };
    assert_eq!(to("https://example.org/"), (302, false));
    assert_eq!(to("/other.php?x=1"), (302, true));
    assert_eq!(to("//elsewhere/x"), (302, false));
    assert_eq!(to("/page#part"), (302, false));
    let got = head(b"Status: 301 Moved\nLocation: /there\n\n");
    assert_eq!((got.head.status, got.head.local_redirect), (301, false));
}

#[test]
fn missing_status_is_200_and_an_empty_block_is_accepted() {
    assert_eq!(head(b"Content-Type: a/b\n\nx").head.status, 200);
    let bare = head(b"\r\nbody");
    assert_eq!((bare.head.status, bare.used), (200, 2));
    assert_eq!(head(b"\nbody").used, 1);
}

#[test]
fn first_of_two_statuses_counts() {
    assert_eq!(head(b"Status: 404 X\nStatus: 200 OK\n\n").head.status, 404);
}

#[test]
fn status_line_is_accepted_as_the_first_line() {
    let got = head(b"HTTP/1.1 410 Gone Fishing\r\nContent-Type: a/b\r\n\r\n");
    assert_eq!(
        (got.head.status, &got.head.reason[..]),
        (410, &b"Gone Fishing"[..])
    );
    assert_eq!(parse(b"HTTP/1.1\n\n"), Err(CgiError::BadStatus));
}

#[test]
fn invalid_status_is_refused() {
    for bad in [
        "",
        "abc",
        "99",
        "099 x",
        "1000 x",
        "101 Switching",
        "20",
        "200x",
        "+20 x",
    ] {
        let wire = format!("Status: {bad}\n\n");
        assert_eq!(parse(wire.as_bytes()), Err(CgiError::BadStatus), "{bad:?}");
    }
}

#[test]
fn header_lines_that_cannot_be_sent_are_skipped_and_counted() {
    let got = head(b"Good: 1\nBad Name: 2\nNoColon\nEvil: a\rb\n: empty\nNul: a\0b\n\n");
    assert_eq!(fields(&got), [("Good", "1")]);
    assert_eq!(got.head.rejected, 5);
}

#[test]
fn text_is_not_a_response() {
    let warning = b"<br />\nPHP Warning:  something in x.php\n\n";
    assert_eq!(parse(warning), Err(CgiError::NotAResponse));
    assert_eq!(parse(b"hello world\n\n"), Err(CgiError::NotAResponse));
}

#[test]
fn folded_line_is_refused() {
    assert_eq!(parse(b"A: 1\n b\n\n"), Err(CgiError::FoldedLine));
    assert_eq!(parse(b"A: 1\r\n\tb\r\n\r\n"), Err(CgiError::FoldedLine));
}

#[test]
fn header_block_without_an_end_is_refused_at_the_limit() {
    let mut parser = CgiParser::default();
    let line = [b'a'; 4096];
    let verdict = (0..1000).find_map(|_| parser.feed(&line).err());
    assert_eq!(verdict, Some(CgiError::HeadTooLong));
    assert!(parser.block.capacity() <= 4 * MAX_HEAD_BYTES);
    let mut long = vec![b'x'; MAX_HEAD_BYTES];
    long.extend_from_slice(b": y\n\n");
    assert_eq!(parse(&long), Err(CgiError::HeadTooLong));
}
