//! Prints what goes over the wire on standard error (ab's `-v 3` and `-v 4`). Printing takes time,
//! so the figures of such a run are no measurement; the report says so.

use std::fmt::Write as _;
use std::io::Write as _;

use serde::{Deserialize, Serialize};

/// How much is shown. Heads are shown in full, passwords and cookies included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transcript {
    /// Shows neither requests nor answers; the default.
    #[default]
    Silent,
    /// Shows the status of every answer.
    Statuses,
    /// Shows the heads of all requests and answers.
    Heads,
}

impl Transcript {
    /// Shows the head of a request that is being sent.
    pub fn request(self, seq: u64, bytes: &[u8]) {
        if self >= Transcript::Heads {
            let end = memchr::memmem::find(bytes, b"\r\n\r\n").unwrap_or(bytes.len());
            print(&lines(&format!("request {seq}"), '>', &bytes[..end]));
        }
    }

    /// Shows the head of an answer, interim ones included. `head` is only called if heads are
    /// shown.
    pub fn answer(self, seq: u64, status: u16, head: impl FnOnce() -> Vec<u8>) {
        match self {
            Transcript::Silent => {}
            Transcript::Statuses => print(&format!("answer {seq}: {status}\n")),
            Transcript::Heads => print(&lines(
                &format!("answer {seq}"),
                '<',
                head().trim_ascii_end(),
            )),
        }
    }
}

/// Prints a head with a single write, so that threads do not mix their lines.
fn print(text: &str) {
    // Standard error may be closed; then there is no place for the message.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// A title and the lines of a head, without characters that control a terminal.
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
    fn heads_are_shown_line_by_line_and_cannot_drive_a_terminal() {
        let head = b"HTTP/1.1 200 OK\r\nX: \x1b[2J\xe9\r\nY: 1";
        assert_eq!(
            lines("answer 7", '<', head),
            "answer 7\n< HTTP/1.1 200 OK\n< X: \\x1b[2J\\xe9\n< Y: 1\n"
        );
    }
}
