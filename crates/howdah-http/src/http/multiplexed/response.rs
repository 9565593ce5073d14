//! Converts a response's head to the form of HTTP/2 and HTTP/3: its lines become fields, except for those that these
//! versions forbid (RFC 9113 §8.2.2).

use http::header::{CONNECTION, CONTENT_LENGTH, DATE, SERVER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderName, HeaderValue, Response, StatusCode};

use super::super::date;

/// Creates a head with this status and the fields of `lines`, in which each field is written as `Name: value\r\n`.
pub(in crate::http) fn response_head(status: u16, lines: &[u8]) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    let fields = response.headers_mut();
    for line in lines.split(|b| *b == b'\n') {
        let Some(line) = line.strip_suffix(b"\r") else {
            continue;
        };
        let Some(colon) = line.iter().position(|b| *b == b':') else {
            continue;
        };
        // The code that wrote the line has checked it, so no line is lost here.
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(&line[..colon]),
            HeaderValue::from_bytes(line[colon + 1..].trim_ascii()),
        ) && !is_connection_field(&name)
        {
            fields.append(name, value);
        }
    }
    response
}

/// Adds the server's own fields, which every response has, and the length.
pub(in crate::http) fn add_server_fields(response: &mut Response<()>, length: Option<u64>) {
    let fields = response.headers_mut();
    fields.insert(SERVER, HeaderValue::from_static("Howdah"));
    if let Ok(date) = HeaderValue::from_bytes(&date::now()) {
        fields.insert(DATE, date);
    }
    if let Some(length) = length {
        fields.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
}

/// Returns whether a field concerns an HTTP/1.1 connection, so HTTP/2 and HTTP/3 forbid it.
pub(in crate::http) fn is_connection_field(name: &HeaderName) -> bool {
    *name == CONNECTION
        || *name == TRANSFER_ENCODING
        || *name == UPGRADE
        || *name == "keep-alive"
        || *name == "proxy-connection"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_fields_keep_their_order_without_connection_fields() {
        let lines = b"X-A: 1\r\nSet-Cookie: a=1\r\nConnection: close\r\nKeep-Alive: 5\r\n\
            Upgrade: h2c\r\nTransfer-Encoding: chunked\r\nSet-Cookie: b=\xe9\r\nX-Empty: \r\n";
        let response = response_head(201, lines);
        assert_eq!(response.status(), 201);
        let fields: Vec<(&str, &[u8])> = response
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        let expected: [(&str, &[u8]); 4] = [
            ("x-a", b"1"),
            ("set-cookie", b"a=1"),
            ("set-cookie", b"b=\xe9"),
            ("x-empty", b""),
        ];
        assert_eq!(fields, expected);
    }
}
