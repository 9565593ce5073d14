//! Sends one GET on a connection of its own and reads the complete response, to compare the responses of stacks. This
//! module measures nothing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use howdah_bench::response::{ConnectionEndEffect, ResponsePartSink, ResponseReader};

/// The maximum time that a response may take.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum length of a response that is compared, in bytes, including the head.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// A complete response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FetchedResponse {
    /// The status code.
    pub status: u16,
    /// `Content-Type` without parameters, in lower case.
    pub media_type: String,
    /// The value of the `Location` header.
    pub location: Option<String>,
    /// The value of the `Content-Encoding` header, in lower case.
    pub coding: Option<String>,
    /// The value of the `ETag` header.
    pub etag: Option<String>,
    /// The value of the `Last-Modified` header.
    pub last_modified: Option<String>,
    /// Whether a page cache reports a hit (`X-Cache: HIT`).
    pub from_cache: bool,
    /// The body, without chunk framing.
    pub body: Vec<u8>,
    /// How long the response took, in seconds.
    pub took: f64,
}

#[derive(Default)]
struct ResponseParts {
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

impl ResponsePartSink for ResponseParts {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        self.fields
            .push((text(name).to_ascii_lowercase(), text(value)));
    }

    fn body(&mut self, bytes: &[u8]) {
        self.body.extend_from_slice(bytes);
    }
}

/// Requests `path` of `host` at `address`.
///
/// # Errors
/// Returns a sentence if there is no response, an incomplete response, or no response within 30 s.
pub fn fetch(
    address: SocketAddr,
    host: &str,
    path: &str,
    headers: &[(String, String)],
) -> Result<FetchedResponse, String> {
    let begun = Instant::now();
    // The request is written at once, because some servers hang up on a request that arrives in pieces.
    let mut request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    request += "\r\n";
    let mut stream = TcpStream::connect(address).map_err(|e| format!("cannot be reached: {e}"))?;
    stream
        .write_all(request.as_bytes())
        .map_err(|e| format!("did not accept the request: {e}"))?;
    let mut parts = ResponseParts::default();
    let mut reader = ResponseReader::default();
    reader.begin(false);
    let mut bytes = vec![0; 64 << 10];
    let mut total = 0;
    while !reader.is_done() {
        let left = RESPONSE_TIMEOUT.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Err(format!(
                "did not respond within {} s",
                RESPONSE_TIMEOUT.as_secs()
            ));
        }
        stream
            .set_read_timeout(Some(left))
            .map_err(|e| e.to_string())?;
        let length = match stream.read(&mut bytes) {
            Ok(length) => length,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(format!("did not respond: {error}")),
        };
        if length == 0 {
            match reader.end() {
                ConnectionEndEffect::Complete => break,
                ConnectionEndEffect::Nothing => {
                    return Err("closed the connection without a response".to_owned());
                }
                ConnectionEndEffect::Truncated => return Err("broke off its response".to_owned()),
            }
        }
        total += length;
        if total > MAX_RESPONSE_BYTES {
            return Err(format!("sent more than {} MiB", MAX_RESPONSE_BYTES >> 20));
        }
        // A head that arrives in pieces is reported again from its beginning.
        if reader.head().is_none() {
            parts.fields.clear();
        }
        reader
            .feed(&bytes[..length], &mut parts)
            .map_err(|fault| format!("sent something other than HTTP: {}", fault.description()))?;
    }
    let field = |name: &str| {
        let found = parts.fields.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.clone())
    };
    let media_type = field("content-type").unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default();
    Ok(FetchedResponse {
        status: reader.head().map_or(0, |head| head.status),
        media_type: media_type.trim().to_ascii_lowercase(),
        location: field("location"),
        coding: field("content-encoding").map(|coding| coding.to_ascii_lowercase()),
        etag: field("etag"),
        last_modified: field("last-modified"),
        from_cache: field("x-cache").is_some_and(|word| word.eq_ignore_ascii_case("hit")),
        body: parts.body,
        took: begun.elapsed().as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Responds to one connection with these bytes and closes it.
    fn answer(bytes: &'static [u8]) -> Result<FetchedResponse, String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(bytes).unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let got = fetch(address, "shop.test", "/a?b", &[("X-A".into(), "1".into())]);
        let request = server.join().unwrap();
        assert!(request.starts_with("GET /a?b HTTP/1.1\r\nHost: shop.test\r\n"));
        assert!(request.contains("\r\nX-A: 1\r\n"));
        got
    }

    #[test]
    fn fetch_reads_complete_responses_in_every_framing() {
        let chunked = answer(
            b"HTTP/1.1 200 OK\r\nContent-Type: Text/HTML; charset=x\r\nX-Cache: HIT\r\n\
              Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
        )
        .unwrap();
        assert_eq!(
            (chunked.status, chunked.media_type.as_str()),
            (200, "text/html")
        );
        assert!(chunked.from_cache);
        assert_eq!(chunked.body, b"abc");
        let moved = answer(b"HTTP/1.1 301 X\r\nLocation: /c\r\n\r\nrest").unwrap();
        assert_eq!(moved.location.as_deref(), Some("/c"));
        assert_eq!(moved.body, b"rest");
    }

    #[test]
    fn fetch_refuses_truncated_responses() {
        let error = answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc").unwrap_err();
        assert_eq!(error, "broke off its response");
        let error = answer(b"").unwrap_err();
        assert_eq!(error, "closed the connection without a response");
        assert!(answer(b"hello").is_err());
    }
}
