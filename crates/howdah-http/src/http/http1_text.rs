//! Writes the lines of HTTP/1.1 for the responder (RFC 9112 §4, §7.1).

use super::message::ResponseHead;
use howdah_http1::reason::reason_phrase;

/// Writes a status line such as `HTTP/1.1 404 Not Found`.
pub(super) fn status_line(out: &mut Vec<u8>, head: &ResponseHead) {
    // RFC 9112 §2.3, RFC 9110 §6.2: the version is that of this server, also towards HTTP/1.0 clients.
    out.extend_from_slice(b"HTTP/1.1 ");
    decimal(out, u64::from(head.status));
    out.push(b' ');
    match &head.reason {
        Some(reason) => out.extend_from_slice(reason),
        None => out.extend_from_slice(reason_phrase(head.status).as_bytes()),
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes a decimal number.
pub(super) fn decimal(out: &mut Vec<u8>, mut n: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Writes the line before a chunk of `n` bytes.
pub(super) fn chunk_size(out: &mut Vec<u8>, n: u64) {
    let digits = (64 - n.leading_zeros()).div_ceil(4).max(1);
    for at in (0..digits).rev() {
        out.push(b"0123456789abcdef"[(n >> (at * 4)) as usize & 15]);
    }
    out.extend_from_slice(b"\r\n");
}
