//! Invariants of the parsers for arbitrary bytes. Used by the fuzz targets, and by the test that replays their corpora
//! (`crates/howdah-server/tests/fuzz_corpora.rs`).

use howdah_http::http2_request;
use howdah_http::message::HttpVersion;
use howdah_http::proxy_protocol;
use howdah_http::{BadRequest, BodyKind};
use howdah_http1::chunk::ChunkDecoder;
use howdah_http1::head::{self, HeadLimits, ParsedHead};
use howdah_proto::cgi_response::{CgiError, CgiHead, CgiParser};
use howdah_proto::effect::{MAX_DESCRIPTION_BYTES, WriteEffect};
use howdah_proto::fastcgi::{DecodedPiece, EndStatus, Params, RecordDecoder, RecordError, encode};
use howdah_proto::response::{Frame, ResponseParser};
use howdah_site::docroot::path::{UrlPath, encode_path};
use howdah_site::static_file::range::{MAX_RANGES, SelectedRanges, select};
use howdah_sql::{Dialect, StatementKind, classify};

const LIMITS: HeadLimits = HeadLimits {
    request_line: 512,
    bytes: 2048,
    fields: 20,
};

fn parse(input: &[u8]) -> Result<Option<ParsedHead>, BadRequest> {
    head::parse(input, &LIMITS, &mut Vec::new())
}

/// Checks that the bytes after a request head do not change its end, that no prefix of it is a head, that its parts are
/// valid, and that an error is final.
pub fn request_head(data: &[u8]) {
    let mut fields = Vec::new();
    match head::parse(data, &LIMITS, &mut fields) {
        Ok(Some(parsed)) => {
            let len = parsed.len;
            assert!(len <= data.len() && len <= LIMITS.bytes);
            assert_eq!(parse(&data[..len]).map(|p| p.map(|p| p.len)), Ok(Some(len)));
            assert!(matches!(parse(&data[..len - 1]), Ok(None)));
            let head = parsed.into_head(data, Vec::new(), fields);
            let clean = |bytes: &[u8]| !bytes.iter().any(|b| matches!(b, b'\r' | b'\n' | 0));
            assert!(!head.method().is_empty() && clean(head.method()));
            assert!(clean(head.target()) && !head.target().contains(&b' '));
            assert!(head.path() == b"*" || head.path().starts_with(b"/"));
            assert!(head.query().is_none_or(clean) && clean(head.host()));
            assert!(head.headers().count() <= LIMITS.fields);
            for (name, value) in head.headers() {
                assert!(howdah_proto::response::is_token(name));
                assert!(howdah_proto::response::is_field_value(value));
                assert_eq!(value.trim_ascii(), value);
            }
        }
        Ok(None) => assert!(data.len() <= LIMITS.bytes),
        Err(why) => {
            let longer = [data, b"\r\n\r\n"].concat();
            assert!(parse(&longer).is_err(), "{why} was taken back");
        }
    }
}

/// Checks that a request of HTTP/2 or HTTP/3, given as `METHOD URI` and lines of fields, is either refused or converted
/// to a head that is equivalent and valid.
pub fn http2_request(data: &[u8]) {
    let mut lines = data.split(|b| *b == b'\n');
    let first = lines.next().unwrap_or_default();
    let (method, uri) = match first.iter().position(|b| *b == b' ') {
        Some(at) => (&first[..at], &first[at + 1..]),
        None => (first, &b""[..]),
    };
    let mut request = http::Request::builder().method(method).uri(uri);
    for line in lines {
        let colon = line.iter().position(|b| *b == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        request = request.header(&line[..colon], value);
    }
    // The h2 crate refuses what this type does not accept.
    let Ok(request) = request.body(()) else {
        return;
    };
    let (parts, ()) = request.into_parts();
    let has_body = data.len() % 2 == 1;
    let version = match data.len() % 3 {
        0 => HttpVersion::Http3,
        _ => HttpVersion::Http2,
    };
    let converted = http2_request::convert_request(&parts, has_body, version, &LIMITS);
    let Ok((head, framing)) = converted else {
        return;
    };
    let path = parts.uri.path_and_query().expect("a head has a target");
    assert_eq!(head.target(), path.as_str().as_bytes());
    assert_eq!(head.method(), parts.method.as_str().as_bytes());
    assert_eq!(head.version(), version);
    assert_eq!(head.header_all(b"host").count(), 1);
    let named = |name: &str| head.header_all(name.as_bytes()).count();
    for name in parts.headers.keys().filter(|name| *name != "host") {
        let values: Vec<&[u8]> = parts
            .headers
            .get_all(name)
            .iter()
            .map(|v| v.as_bytes())
            .collect();
        if name == "cookie" {
            let pieces: Vec<&[u8]> = values.into_iter().filter(|v| !v.is_empty()).collect();
            assert_eq!(head.header(b"cookie"), Some(&pieces.join(&b"; "[..])[..]));
        } else {
            assert_eq!(named(name.as_str()), values.len());
        }
    }
    assert!(head.headers().count() <= LIMITS.fields);
    for (name, value) in head.headers() {
        assert!(howdah_proto::response::is_token(name));
        assert!(howdah_proto::response::is_field_value(value));
        assert_eq!(value.trim_ascii(), value);
    }
    if let BodyKind::Length(length) = framing.body {
        let said = head.header(b"content-length").expect("who says it");
        assert_eq!(std::str::from_utf8(said).unwrap().parse(), Ok(length));
    }
}

fn decode(pieces: &[&[u8]]) -> Result<(Vec<u8>, usize, bool), BadRequest> {
    let (mut decoder, mut out, mut used) = (ChunkDecoder::default(), Vec::new(), 0);
    for piece in pieces {
        let mut at = 0;
        while at < piece.len() && !decoder.is_done() {
            let n = decoder.decode(&piece[at..], &mut out, 1000)?;
            assert!(n > 0, "no progress");
            at += n;
        }
        used += at;
    }
    Ok((out, used, decoder.is_done()))
}

/// Checks that the result does not depend on where the bytes are cut, and that the data is not longer than its
/// encoding.
pub fn chunked_body(data: &[u8]) {
    let whole = decode(&[data]);
    if let Ok((out, used, done)) = &whole {
        assert!(out.len() <= *used && *used <= data.len());
        assert!(*done || *used == data.len());
    }
    let cut = data.first().map_or(0, |b| usize::from(*b) % data.len());
    assert_eq!(decode(&[&data[..cut], &data[cut..]]), whole);
}

/// Checks that the bytes after a header do not change its end, and that a header without its last byte is incomplete.
pub fn proxy_header(data: &[u8]) {
    if let Ok(Some(header)) = proxy_protocol::parse(data) {
        assert!(header.len <= data.len());
        assert_eq!(proxy_protocol::parse(&data[..header.len]), Ok(Some(header)));
        assert_eq!(proxy_protocol::parse(&data[..header.len - 1]), Ok(None));
    }
}

fn frames(pieces: &[&[u8]]) -> Result<(Vec<u8>, usize), String> {
    let (mut parser, mut pending) = (ResponseParser::default(), Vec::new());
    let (mut body, mut others) = (Vec::new(), 0);
    for piece in pieces {
        pending.extend_from_slice(piece);
        while let Some((frame, used)) = parser.parse(&pending).map_err(|e| format!("{e:?}"))? {
            assert!(used <= pending.len());
            match frame {
                Frame::Body(bytes) => body.extend_from_slice(bytes),
                _ => others += 1,
            }
            if used == 0 {
                return Err("no progress".to_owned());
            }
            pending.drain(..used);
        }
    }
    Ok((body, others))
}

/// Checks that the messages of a PHP process do not depend on where the bytes are cut.
pub fn response_frames(data: &[u8]) {
    let whole = frames(&[data]);
    assert_ne!(whole, Err("no progress".to_owned()));
    let cut = data.last().map_or(0, |b| usize::from(*b) % data.len());
    assert_eq!(frames(&[&data[..cut], &data[cut..]]), whole);
}

/// Checks that an accepted path stays below the root, that it is normalized, and that it is unchanged after it has been
/// written into a `Location` and parsed again.
pub fn url_path(data: &[u8]) {
    for path in [UrlPath::parse(data), UrlPath::from_decoded(data)]
        .into_iter()
        .flatten()
    {
        let bytes = path.as_bytes();
        assert!(bytes[0] == b'/' && !bytes.contains(&0));
        let relative = path.relative();
        if !relative.is_empty() {
            for segment in relative.split(|b| *b == b'/') {
                assert!(!matches!(segment, b"" | b"." | b".."));
            }
        }
        assert_eq!(UrlPath::from_decoded(bytes).as_ref(), Ok(&path));
        let mut location = Vec::new();
        encode_path(bytes, &mut location);
        assert!(!location.starts_with(b"//") && location.iter().all(u8::is_ascii_graphic));
        assert_eq!(
            UrlPath::parse(&location).map(|p| p.as_bytes().to_vec()),
            Ok(bytes.to_vec())
        );
    }
}

/// Checks that the selected ranges lie within the file and are not longer than it in total. The first byte is the
/// file's size.
pub fn range(data: &[u8]) {
    let Some((size, range)) = data.split_first() else {
        return;
    };
    let size = u64::from(*size);
    let parts = match select(range, size) {
        SelectedRanges::All | SelectedRanges::Unsatisfiable => Vec::new(),
        SelectedRanges::One(start, end) => vec![(start, end)],
        SelectedRanges::Several(parts) => parts,
    };
    assert!(parts.len() <= MAX_RANGES);
    assert!(parts.iter().all(|(start, end)| start < end && *end <= size));
    assert!(parts.iter().map(|(start, end)| end - start).sum::<u64>() <= size);
}

fn cgi_head(pieces: &[&[u8]]) -> Result<Option<CgiHead>, CgiError> {
    let (mut parser, mut before) = (CgiParser::default(), 0);
    for piece in pieces {
        if let Some(mut found) = parser.feed(piece)? {
            assert!(found.used <= piece.len());
            found.used += before;
            return Ok(Some(found));
        }
        before += piece.len();
    }
    Ok(None)
}

/// Checks that the result does not depend on where the bytes are cut, and that an accepted head can be sent.
pub fn cgi_response(data: &[u8]) {
    let whole = cgi_head(&[data]);
    if let Ok(Some(found)) = &whole {
        let head = &found.head;
        assert!((200..=999).contains(&head.status));
        assert!(howdah_proto::response::is_field_value(&head.reason));
        for (name, value) in &head.headers {
            assert!(howdah_proto::response::is_token(name));
            assert!(howdah_proto::response::is_field_value(value));
            assert!(!name.eq_ignore_ascii_case(b"status"));
        }
        let block = &data[..found.used];
        assert_eq!(cgi_head(&[block]).as_ref(), Ok(&Some(found.clone())));
    }
    let cut = data.last().map_or(0, |b| usize::from(*b) % data.len());
    assert_eq!(cgi_head(&[&data[..cut], &data[cut..]]), whole);
}

#[derive(Debug, Default, PartialEq)]
struct Answer {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    end: Option<EndStatus>,
}

fn records(pieces: &[&[u8]]) -> Result<Answer, RecordError> {
    let (mut decoder, mut pending, mut answer) =
        (RecordDecoder::default(), Vec::new(), Answer::default());
    for piece in pieces {
        pending.extend_from_slice(piece);
        loop {
            let (piece, used) = decoder.next(&pending)?;
            let more = piece.is_some();
            match piece {
                Some(DecodedPiece::Stdout(bytes)) => answer.stdout.extend_from_slice(bytes),
                Some(DecodedPiece::Stderr(bytes)) => answer.stderr.extend_from_slice(bytes),
                Some(DecodedPiece::End(end)) => answer.end = Some(end),
                Some(DecodedPiece::Values(values)) => {
                    assert!(encode::pairs(values).count() <= 1024)
                }
                None => {}
            }
            assert!(used > 0 || !more, "no progress");
            pending.drain(..used);
            if !more {
                break;
            }
        }
    }
    assert_eq!(answer.end.is_some(), decoder.is_complete());
    Ok(answer)
}

/// Checks that a response does not depend on where the bytes are cut, and that variables taken from the same bytes are
/// written to PARAMS records in order, with every pair whole.
pub fn fastcgi_records(data: &[u8]) {
    let whole = records(&[data]);
    let cut = data.last().map_or(0, |b| usize::from(*b) % data.len());
    assert_eq!(records(&[&data[..cut], &data[cut..]]), whole);

    let given: Vec<(&[u8], &[u8])> = encode::pairs(data).collect();
    let mut wire = Vec::new();
    let mut params = Params::new(&mut wire);
    let mut written = given;
    written.retain(|(name, value)| params.pair(name, value).is_ok());
    params.finish();
    let (mut read, mut rest) = (Vec::new(), &wire[..]);
    while let [1, 4, 0, 1, high, low, _, _, behind @ ..] = rest {
        let (content, behind) = behind.split_at(usize::from(*high) << 8 | usize::from(*low));
        read.extend(encode::pairs(content));
        rest = behind;
    }
    assert!(rest.is_empty());
    assert_eq!(read, written);
}

/// Checks that a parsed message is encoded to an equivalent one, and that a start command names an absolute path or no
/// file.
pub fn spawner_messages(data: &[u8]) {
    use howdah_proto::spawner::{ProgramToStart, SpawnerCommand, SpawnerReport};
    if let Some(command) = SpawnerCommand::parse(data) {
        assert_eq!(
            SpawnerCommand::parse(&command.encode()),
            Some(command.clone())
        );
        if let SpawnerCommand::Start(start) = command {
            assert!(
                matches!(&start.program, ProgramToStart::Configured)
                    || matches!(&start.program, ProgramToStart::File(file) if file.starts_with(b"/"))
            );
            assert!(start.environment.iter().all(|pair| pair.contains(&b'=')));
        }
    }
    if let Some(report) = SpawnerReport::parse(data) {
        assert_eq!(SpawnerReport::parse(&report.encode()), Some(report));
    }
}

/// Checks that the parsed messages of a zygote and its workers are encoded to equivalent ones.
pub fn zygote_messages(data: &[u8]) {
    use howdah_proto::control::{ZygoteCommand, ZygoteReport};
    use howdah_proto::worker::WorkerMessage;
    if let Some(command) = ZygoteCommand::parse(data) {
        assert_eq!(
            ZygoteCommand::parse(command.encode().as_bytes()),
            Some(command)
        );
    }
    if let Some(report) = ZygoteReport::parse(data) {
        assert_eq!(
            ZygoteReport::parse(report.encode().as_bytes()),
            Some(report)
        );
    }
    if let Some(message) = WorkerMessage::parse(data) {
        assert_eq!(
            WorkerMessage::parse(message.encode().as_bytes()),
            Some(message)
        );
    }
}

/// Checks that a request that is received in pieces does not depend on where the bytes are cut.
pub fn received_request(data: &[u8]) {
    use howdah_http1::receiver::{ReceiveProgress, Receiver, RequestLimits};
    let limits = RequestLimits {
        head: LIMITS,
        body: 64,
        uploads: 96,
    };
    let receive = |pieces: [&[u8]; 2]| {
        let (mut receiver, mut pending, mut complete) = (Receiver::default(), Vec::new(), false);
        for piece in pieces {
            pending.extend_from_slice(piece);
            if !complete {
                let (used, received) = receiver.consume(&pending, &limits)?;
                assert!(used <= pending.len() && receiver.received() <= limits.uploads);
                pending.drain(..used);
                complete = received == ReceiveProgress::Complete;
            }
        }
        Ok((complete, receiver.body().to_vec(), pending))
    };
    let whole: Result<_, howdah_http1::receiver::ReceiveRefusal> = receive([data, b""]);
    let cut = data.first().map_or(0, |b| usize::from(*b) % data.len());
    match (receive([&data[..cut], &data[cut..]]), whole) {
        (Ok(pieces), Ok(whole)) => assert_eq!(pieces, whole),
        (pieces, whole) => assert_eq!(pieces.is_err(), whole.is_err()),
    }
}

/// Checks that the description of a statement matches its classification and is of bounded length, and that a write
/// that follows any statement is recognised.
pub fn sql_statement(data: &[u8]) {
    let Some((dialect, sql)) = data.split_first() else {
        return;
    };
    let dialect = Dialect::from_number(u32::from(dialect & 3));
    let verdict = classify(dialect, sql);
    let (kind, told) = (verdict.kind, verdict.description());
    assert!(told.len() <= MAX_DESCRIPTION_BYTES);
    if kind == StatementKind::Write {
        let value = [&b"\0"[..], &told].concat();
        let write = WriteEffect::parse(&value);
        assert_eq!(write.verb, verdict.verb.as_bytes());
        assert_eq!(write.table, verdict.table);
        assert!(write.values().eq(verdict.values.iter().copied()));
    } else {
        assert!(told.is_empty() && verdict.table.is_none());
    }
    let more = [sql, b"\n;DELETE FROM t"].concat();
    assert_eq!(classify(dialect, &more).kind, StatementKind::Write);
}
