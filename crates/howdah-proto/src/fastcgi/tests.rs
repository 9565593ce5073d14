//! Encoding and decoding of records, compared with their bytes on the wire.

use super::encode::*;
use super::*;

fn record(kind: u8, id: u16, content: &[u8], padding: u8) -> Vec<u8> {
    let mut out = header(kind, id, content.len()).to_vec();
    out[6] = padding;
    out.extend_from_slice(content);
    out.extend(std::iter::repeat_n(0xee, padding.into()));
    out
}

const COMPLETE: [u8; 8] = [0, 0, 0, 0, 0, 0, 0, 0];

/// STDOUT, STDERR and the end of the request.
type DecodedStreams = (Vec<u8>, Vec<u8>, Option<EndStatus>);

/// Decodes a response that arrives in these pieces.
fn decode_all(pieces: &[&[u8]]) -> Result<DecodedStreams, RecordError> {
    let (mut decoder, mut pending) = (RecordDecoder::default(), Vec::new());
    let (mut out, mut err, mut end) = (Vec::new(), Vec::new(), None);
    for piece in pieces {
        pending.extend_from_slice(piece);
        loop {
            let (piece, used) = decoder.next(&pending)?;
            let more = piece.is_some();
            match piece {
                Some(DecodedPiece::Stdout(bytes)) => out.extend_from_slice(bytes),
                Some(DecodedPiece::Stderr(bytes)) => err.extend_from_slice(bytes),
                Some(DecodedPiece::End(how)) => end = Some(how),
                Some(DecodedPiece::Values(_)) | None => {}
            }
            pending.drain(..used);
            if !more {
                break;
            }
        }
    }
    Ok((out, err, end))
}

#[test]
fn request_records_match_the_specification() {
    let mut out = Vec::new();
    begin(&mut out, FastCgiRole::Responder, true);
    let mut params = Params::new(&mut out);
    params.pair(b"A", b"xy").unwrap();
    params.finish();
    stdin(&mut out, b"body");
    stdin_end(&mut out);
    let expected: &[&[u8]] = &[
        &[1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0],
        &[1, 4, 0, 1, 0, 5, 0, 0, 1, 2, b'A', b'x', b'y'],
        &[1, 4, 0, 1, 0, 0, 0, 0],
        &[1, 5, 0, 1, 0, 4, 0, 0, b'b', b'o', b'd', b'y'],
        &[1, 5, 0, 1, 0, 0, 0, 0],
    ];
    assert_eq!(out, expected.concat());
}

#[test]
fn params_without_variables_are_one_empty_record() {
    let mut out = Vec::new();
    Params::new(&mut out).finish();
    assert_eq!(out, [1, 4, 0, 1, 0, 0, 0, 0]);
}

type NameValuePair = (Vec<u8>, Vec<u8>);

/// Parses each PARAMS record on its own, as `fcgi_get_params` does. Returns the pairs and the number of records.
fn read_as_php(mut wire: &[u8]) -> (Vec<NameValuePair>, usize) {
    let (mut found, mut records) = (Vec::new(), 0);
    while let [1, 4, 0, 1, high, low, 0, 0, rest @ ..] = wire {
        let length = usize::from(*high) << 8 | usize::from(*low);
        let (content, rest) = rest.split_at(length);
        let before: usize = found.len();
        found.extend(pairs(content).map(|(n, v)| (n.to_vec(), v.to_vec())));
        let size = |(n, v): &NameValuePair| {
            let of = |l: usize| if l < 128 { 1 } else { 4 };
            of(n.len()) + of(v.len()) + n.len() + v.len()
        };
        let read: usize = found[before..].iter().map(size).sum();
        assert_eq!(read, length, "a pair straddles the record's end");
        records += 1;
        wire = rest;
    }
    assert!(wire.is_empty(), "not PARAMS: {wire:?}");
    (found, records)
}

#[test]
fn params_pair_never_straddles_two_records() {
    let sizes = [
        0, 1, 126, 127, 128, 129, 8000, 40_000, 30_000, 65_000, 500, 28,
    ];
    let mut out = Vec::new();
    let mut params = Params::new(&mut out);
    for (i, size) in sizes.iter().enumerate() {
        params
            .parts(format!("N{i}").as_bytes(), &[&vec![b'v'; *size], b"!"])
            .unwrap();
    }
    params.finish();
    let (found, records) = read_as_php(&out);
    let lengths: Vec<usize> = found.iter().map(|(_, v)| v.len() - 1).collect();
    assert_eq!(lengths, sizes);
    assert!(records >= 4, "{records}");
}

#[test]
fn params_pair_longer_than_a_record_is_refused() {
    let mut out = Vec::new();
    let mut params = Params::new(&mut out);
    let fits = MAX_CONTENT_BYTES - 1 - 4 - 1;
    assert_eq!(params.pair(b"A", &vec![0; fits]), Ok(()));
    let refused = params.pair(b"A", &vec![0; fits + 1]);
    let length = MAX_CONTENT_BYTES + 1;
    assert_eq!(refused, Err(VariableTooLong { length }));
}

#[test]
fn stdin_body_is_split_into_records_that_php_accepts() {
    let mut out = Vec::new();
    stdin(&mut out, &vec![7; MAX_CONTENT_BYTES + 10]);
    assert_eq!(out.len(), MAX_CONTENT_BYTES + 10 + 2 * HEADER_BYTES);
    assert_eq!(out[..6], [1, 5, 0, 1, 0xff, 0xf8]);
    assert_eq!(
        out[HEADER_BYTES + MAX_CONTENT_BYTES..][..6],
        [1, 5, 0, 1, 0, 10]
    );
}

#[test]
fn response_split_at_every_byte_decodes_the_same() {
    let wire = [
        record(kind::STDERR, 1, b"PHP Warning", 5),
        record(kind::STDOUT, 1, b"Content-Type: a/b\r\n", 0),
        record(kind::STDERR, 1, b" again", 0),
        record(kind::STDOUT, 1, b"\r\nbody", 2),
        record(kind::STDOUT, 1, b"", 8),
        record(kind::END_REQUEST, 1, &COMPLETE, 3),
    ]
    .concat();
    for cut in 0..=wire.len() {
        let (out, err, end) = decode_all(&[&wire[..cut], &wire[cut..]]).unwrap();
        assert_eq!(out, b"Content-Type: a/b\r\n\r\nbody");
        assert_eq!(err, b"PHP Warning again");
        assert_eq!(
            end,
            Some(EndStatus::Complete { app_status: 0 }),
            "cut at {cut}"
        );
    }
}

#[test]
fn end_request_without_stream_ends_completes_the_response() {
    let wire = [
        record(kind::STDOUT, 1, b"x", 7),
        record(kind::END_REQUEST, 1, &COMPLETE, 0),
    ]
    .concat();
    let (out, _, end) = decode_all(&[&wire]).unwrap();
    assert_eq!(
        (&out[..], end),
        (&b"x"[..], Some(EndStatus::Complete { app_status: 0 }))
    );
}

#[test]
fn end_request_gives_the_protocol_status() {
    let end = |content: [u8; 8]| decode_all(&[&record(kind::END_REQUEST, 1, &content, 0)]);
    let is = |content, how| assert_eq!(end(content).unwrap().2, Some(how));
    is(
        [0, 0, 1, 2, 0, 0, 0, 0],
        EndStatus::Complete { app_status: 258 },
    );
    is([0, 0, 0, 0, 1, 0, 0, 0], EndStatus::CantMultiplex);
    is([0, 0, 0, 0, 2, 0, 0, 0], EndStatus::Overloaded);
    is([0, 0, 0, 0, 3, 0, 0, 0], EndStatus::UnknownRole);
    assert_eq!(
        end([0, 0, 0, 0, 4, 0, 0, 0]),
        Err(RecordError::BadProtocolStatus(4))
    );
}

#[test]
fn malformed_records_are_named() {
    let is = |wire: &[u8], why| assert_eq!(decode_all(&[wire]), Err(why));
    is(b"HTTP/1.1 400 Bad", RecordError::Version(b'H'));
    is(b"\0", RecordError::Version(0));
    is(
        &record(kind::STDOUT, 2, b"x", 0),
        RecordError::UnknownRequest(2),
    );
    is(
        &record(kind::PARAMS, 1, b"x", 0),
        RecordError::UnexpectedType(4),
    );
    is(
        &record(kind::UNKNOWN_TYPE, 0, &COMPLETE, 0),
        RecordError::UnexpectedType(11),
    );
    is(
        &record(kind::END_REQUEST, 1, b"123", 0),
        RecordError::BadLength(3),
    );
    let after = [
        record(kind::STDOUT, 1, b"", 0),
        record(kind::STDOUT, 1, b"x", 0),
    ];
    is(&after.concat(), RecordError::AfterStreamEnd);
    let more = [
        record(kind::END_REQUEST, 1, &COMPLETE, 0),
        record(kind::STDOUT, 1, b"x", 0),
    ];
    is(&more.concat(), RecordError::AfterEnd);
    let lying = [&header(kind::GET_VALUES_RESULT, 0, 60_000)[..], &[0; 100]].concat();
    is(&lying, RecordError::BadLength(60_000));
}

#[test]
fn get_values_round_trips() {
    let mut question = Vec::new();
    get_values(&mut question, &["FCGI_MAX_CONNS"]);
    assert_eq!(question[..HEADER_BYTES], [1, 9, 0, 0, 0, 16, 0, 0]);
    let answer = record(kind::GET_VALUES_RESULT, 0, b"\x0e\x01FCGI_MAX_CONNS8", 7);
    let mut decoder = RecordDecoder::default();
    let (piece, _) = decoder.next(&answer).unwrap();
    let Some(DecodedPiece::Values(content)) = piece else {
        panic!("{piece:?}");
    };
    let found: Vec<_> = pairs(content).collect();
    assert_eq!(found, [(&b"FCGI_MAX_CONNS"[..], &b"8"[..])]);
}
