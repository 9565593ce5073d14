//! Reads an HTTP/1.1 response from a connection: its head, and a limited part of its body.

use std::io::{self, Read};
use std::time::Instant;

use howdah_http1::chunk::ChunkDecoder;

use super::client::{FullResponse, VerifiedResponseHead};

/// The maximum size of a response head, in bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Reads a body (RFC 9112 §6.3); `rest` is the part of it that has arrived with the head.
pub fn read_body(
    stream: &mut impl Read,
    mut rest: Vec<u8>,
    limit: usize,
    until: Instant,
    response: &mut FullResponse,
) -> io::Result<()> {
    let header = |name| response.head.header(name);
    let chunked = header("transfer-encoding").is_some_and(|value| value.contains("chunked"));
    let length = header("content-length").and_then(|value| value.parse::<u64>().ok());
    let length = length.filter(|_| !chunked);
    let mut decoder = chunked.then(ChunkDecoder::default);
    let body = &mut response.body;
    loop {
        let room = limit - body.len();
        let used = match &mut decoder {
            Some(decoder) => decoder
                .decode(&rest, body, room)
                .map_err(|error| io::Error::other(format!("the chunked body: {error:?}")))?,
            None => {
                let used = rest.len().min(room);
                body.extend_from_slice(&rest[..used]);
                used
            }
        };
        let is_done = match &decoder {
            Some(decoder) => decoder.is_done(),
            None => length.is_some_and(|length| body.len() as u64 >= length),
        };
        if is_done {
            return Ok(());
        }
        if used < rest.len() || body.len() == limit {
            response.is_complete = false;
            return Ok(());
        }
        rest = read_piece(stream, Some(until))?;
        if rest.is_empty() {
            return match chunked || length.is_some() {
                true => Err(io::Error::other(
                    "the connection was closed within the body",
                )),
                false => Ok(()),
            };
        }
    }
}

/// Reads the next bytes; none at the end of the connection. TLS may end without a notification.
fn read_piece(stream: &mut impl Read, until: Option<Instant>) -> io::Result<Vec<u8>> {
    if until.is_some_and(|until| Instant::now() >= until) {
        return Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the response was not complete in time",
        ));
    }
    let mut piece = vec![0; 16 << 10];
    let read = match stream.read(&mut piece) {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
        // The error of a timeout (socket(7)).
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let text = "the server did not respond in time";
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        Err(error) => return Err(error),
    };
    piece.truncate(read);
    Ok(piece)
}

/// Reads the head of the final response; returns it with the bytes of the body that arrived with it.
pub fn read_head(
    stream: &mut impl Read,
    until: Option<Instant>,
) -> io::Result<(VerifiedResponseHead, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        let piece = read_piece(stream, until)?;
        bytes.extend_from_slice(&piece);
        while let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let head =
                parse(&bytes[..end]).ok_or_else(|| io::Error::other("the response is not HTTP"))?;
            bytes.drain(..end + 4);
            if head.status >= 200 {
                return Ok((head, bytes));
            }
        }
        if piece.is_empty() {
            return Err(io::Error::other(
                "the connection was closed without a response",
            ));
        }
        if bytes.len() > MAX_HEAD_BYTES {
            return Err(io::Error::other(
                "the header of the response is longer than 64 KiB",
            ));
        }
    }
}

fn parse(head: &[u8]) -> Option<VerifiedResponseHead> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.split("\r\n");
    let status = lines
        .next()?
        .strip_prefix("HTTP/1.")?
        .get(2..5)?
        .parse()
        .ok()?;
    let fields = lines.filter_map(|line| line.split_once(':'));
    let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()));
    Some(VerifiedResponseHead {
        status,
        headers: fields.collect(),
    })
}
