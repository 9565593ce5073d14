//! Creates request headers for unit tests from a method, a target and headers. This is not a parser: the caller has to
//! ensure what [`RequestHead`] promises.

use howdah_http::message::{ByteSpan, HttpVersion, RequestHead};

/// Returns the parsed header of an HTTP/1.1 request.
pub fn request(method: &str, target: &str, fields: &[(&str, &str)]) -> RequestHead {
    let mut buf = Vec::new();
    let mut put = |text: &str| {
        let start = buf.len() as u32;
        buf.extend_from_slice(text.as_bytes());
        ByteSpan {
            start,
            end: buf.len() as u32,
        }
    };
    let method = put(method);
    let target = put(target);
    let fields = fields.iter().map(|(n, v)| (put(n), put(v))).collect();
    RequestHead::new(buf, method, target, HttpVersion::Http11, fields)
}
