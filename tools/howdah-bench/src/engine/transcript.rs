//! Prints requests and responses on standard error (ab's `-v 3` and `-v 4`). Printing takes time, so the figures of
//! such a run are not a measurement, and the report says so.

use std::fmt::Write as _;
use std::io::Write as _;

use serde::{Deserialize, Serialize};

/// How much is shown. Headers are shown in full, including passwords and cookies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transcript {
    /// Shows neither requests nor responses; the default.
    #[default]
    Silent,
    /// Shows the status of every response.
    Statuses,
    /// Shows the headers of all requests and responses.
    Heads,
}

impl Transcript {
    /// Shows the header of a request that is being sent.
    pub fn request(self, seq: u64, bytes: &[u8]) {
        if self >= Transcript::Heads {
            let end = memchr::memmem::find(bytes, b"\r\n\r\n").unwrap_or(bytes.len());
            print(&lines(&format!("request {seq}"), '>', &bytes[..end]));
        }
    }

    /// Shows the header of a response, including interim ones. `head` is only called if headers are shown.
    pub fn answer(self, seq: u64, status: u16, head: impl FnOnce() -> Vec<u8>) {
        match self {
            Transcript::Silent => {}
            Transcript::Statuses => print(&format!("response {seq}: {status}\n")),
            Transcript::Heads => print(&lines(
                &format!("response {seq}"),
                '<',
                head().trim_ascii_end(),
            )),
        }
    }
}

/// Prints a header with a single write, so that the lines of threads are not mixed.
fn print(text: &str) {
    // Standard error may be closed, in which case the message cannot be written anywhere.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Returns a title and the lines of a header, without characters that control a terminal.
fn lines(title: &str, mark: char, head: &[u8]) -> String {
    let mut text = format!("{title}\n");
    for line in head.split(|b| *b == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let _ = writeln!(text, "{mark} {}", line.escape_ascii());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transcript_cannot_control_the_terminal() {
        let head = b"HTTP/1.1 200 OK\r\nX: \x1b[2J\xe9\r\nY: 1";
        assert_eq!(
            lines("response 7", '<', head),
            "response 7\n< HTTP/1.1 200 OK\n< X: \\x1b[2J\\xe9\n< Y: 1\n"
        );
    }
}
