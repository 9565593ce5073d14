//! Header blocks of the responses that the server itself sends: refusals, failures, static files. The shim writes those
//! of a script's responses.

use howdah_http1::date;
use howdah_http1::reason::reason_phrase;

use super::files::StaticFile;
use super::sys;

/// Returns a complete response without a body that ends the connection.
pub fn closing_response(status: u16, name: &str) -> String {
    format!(
        "HTTP/1.1 {status} {}\r\nHowdah-Error: {name}\r\nDate: {}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        reason_phrase(status),
        date_now(),
    )
}

/// Returns the complete response to a request for a file that does not exist.
pub fn not_found_response(keep: bool) -> String {
    format!(
        "HTTP/1.1 404 Not Found\r\nServer: Howdah\r\nHowdah-Error: NotFound\r\nDate: {}\r\nContent-Length: 0\r\nConnection: {}\r\n\r\n",
        date_now(),
        if keep { "keep-alive" } else { "close" },
    )
}

/// Returns the header block of a file's response.
pub fn file_response_head(found: &StaticFile, keep: bool) -> String {
    let (status, length) = if found.not_modified {
        ("304 Not Modified", String::new())
    } else {
        let length = format!(
            "Content-Length: {}\r\nContent-Type: {}\r\n",
            found.size, found.content_type
        );
        ("200 OK", length)
    };
    format!(
        "HTTP/1.1 {status}\r\nServer: Howdah\r\nDate: {}\r\nLast-Modified: {}\r\n{length}Connection: {}\r\n\r\n",
        date_now(),
        String::from_utf8_lossy(&found.modified),
        if keep { "keep-alive" } else { "close" },
    )
}

/// Returns the current time in the format of `Date`.
fn date_now() -> String {
    let text = date::imf_fixdate(sys::wall_seconds());
    String::from_utf8_lossy(&text).into_owned()
}
