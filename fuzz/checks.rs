//! What must hold for any bytes, parser by parser. Used by the fuzz targets, and by the test that
//! replays their corpora (`crates/howdah-server/tests/fuzz_corpora.rs`).

use howdah_proto::response::{Frame, Parser};
use howdah_server::http::BadRequest;
use howdah_server::http::chunk::ChunkDecoder;
use howdah_server::http::head::{self, HeadLimits, Parsed};
use howdah_server::http::proxy_protocol;
use howdah_server::site::path::{UrlPath, encode_path};
use howdah_server::static_file::range::{MAX_RANGES, Selected, select};

const LIMITS: HeadLimits = HeadLimits {
    request_line: 512,
    bytes: 2048,
    fields: 20,
};

fn parse(input: &[u8]) -> Result<Option<Parsed>, BadRequest> {
    head::parse(input, &LIMITS, &mut Vec::new())
}

/// A head's end is where it is whatever follows, nothing shorter is a head, its parts are clean,
/// and a refusal is final.
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

/// Where the bytes are cut makes no difference, and data is never longer than what it came in.
pub fn chunked_body(data: &[u8]) {
    let whole = decode(&[data]);
    if let Ok((out, used, done)) = &whole {
        assert!(out.len() <= *used && *used <= data.len());
        assert!(*done || *used == data.len());
    }
    let cut = data.first().map_or(0, |b| usize::from(*b) % data.len());
    assert_eq!(decode(&[&data[..cut], &data[cut..]]), whole);
}

/// A header's end is where it is whatever follows, and nothing shorter is a header.
pub fn proxy_header(data: &[u8]) {
    if let Ok(Some(header)) = proxy_protocol::parse(data) {
        assert!(header.len <= data.len());
        assert_eq!(proxy_protocol::parse(&data[..header.len]), Ok(Some(header)));
        assert_eq!(proxy_protocol::parse(&data[..header.len - 1]), Ok(None));
    }
}

fn frames(pieces: &[&[u8]]) -> Result<(Vec<u8>, usize), String> {
    let (mut parser, mut pending) = (Parser::default(), Vec::new());
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

/// What a PHP process sends means the same however it arrives.
pub fn response_frames(data: &[u8]) {
    let whole = frames(&[data]);
    assert_ne!(whole, Err("no progress".to_owned()));
    let cut = data.last().map_or(0, |b| usize::from(*b) % data.len());
    assert_eq!(frames(&[&data[..cut], &data[cut..]]), whole);
}

/// A path that is accepted is relative to the root and stays below it, is clean for good, and
/// survives being written into a `Location`.
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

/// What is selected exists, and is no more than the file; the first byte is the file's size.
pub fn range(data: &[u8]) {
    let Some((size, range)) = data.split_first() else {
        return;
    };
    let size = u64::from(*size);
    let parts = match select(range, size) {
        Selected::All | Selected::Unsatisfiable => Vec::new(),
        Selected::One(start, end) => vec![(start, end)],
        Selected::Several(parts) => parts,
    };
    assert!(parts.len() <= MAX_RANGES);
    assert!(parts.iter().all(|(start, end)| start < end && *end <= size));
    assert!(parts.iter().map(|(start, end)| end - start).sum::<u64>() <= size);
}
