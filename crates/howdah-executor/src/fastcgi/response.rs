//! Parses a response: records become a head, a body, and messages for the log. This module reads from no socket.

use bytes::{Bytes, BytesMut};
use howdah_proto::cgi_response::{CgiError, CgiParser};
use howdah_proto::fastcgi::{DecodedPiece, EndStatus, RecordDecoder, RecordError};
use howdah_proto::level::LogLevel;
use howdah_proto::response::ResponseError;

use crate::{ExecError, ScriptHead};

/// The maximum length of a logged message in bytes. A longer message is split.
const MAX_MESSAGE_BYTES: usize = 16 << 10;
/// The maximum number of message bytes that are accepted from one request. The rest is dropped, which the log says.
const MAX_STDERR_BYTES: usize = 1 << 20;
/// The text that php-fpm writes before each message, and between two messages.
const MESSAGE_PREFIX: &[u8] = b"PHP message: ";
const MESSAGE_SEPARATOR: &[u8] = b"; PHP message: ";

/// The part of a response that has been received.
#[derive(Debug, Default)]
pub struct FastCgiResponse {
    decoder: RecordDecoder,
    cgi: CgiParser,
    /// The beginning of a record that has not arrived completely.
    pending: Vec<u8>,
    head: Option<ScriptHead>,
    saw_head: bool,
    body: BytesMut,
    /// How the application ended the request; `None` before END_REQUEST.
    end: Option<EndStatus>,
    stderr: Vec<u8>,
    stderr_bytes: usize,
    /// Whether any byte has arrived.
    has_received: bool,
}

/// Receives each line that the application logs, with its level.
pub type LogLineSink<'s> = &'s mut dyn FnMut(LogLevel, &[u8]);

impl FastCgiResponse {
    /// Parses the bytes that were just read. Passes lines for the log to `log`.
    pub fn feed(&mut self, bytes: &[u8], log: LogLineSink<'_>) -> Result<(), ExecError> {
        self.has_received |= !bytes.is_empty();
        let joined;
        let mut input = bytes;
        if !self.pending.is_empty() {
            let mut all = std::mem::take(&mut self.pending);
            all.extend_from_slice(bytes);
            joined = all;
            input = &joined;
        }
        loop {
            let (piece, used) = self.decoder.next(input).map_err(not_fastcgi)?;
            input = &input[used..];
            match piece {
                None => break,
                Some(DecodedPiece::Stdout(bytes)) => self.stdout(bytes)?,
                Some(DecodedPiece::Stderr(bytes)) => self.stderr(bytes, log),
                Some(DecodedPiece::End(end)) => {
                    self.flush_log(log);
                    self.end = Some(end);
                }
                // GET_VALUES was not sent on this connection.
                Some(DecodedPiece::Values(_)) => {
                    let kind = howdah_proto::fastcgi::kind::GET_VALUES_RESULT;
                    return Err(not_fastcgi(RecordError::UnexpectedType(kind)));
                }
            }
        }
        self.pending.extend_from_slice(input);
        Ok(())
    }

    fn stdout(&mut self, bytes: &[u8]) -> Result<(), ExecError> {
        if self.saw_head {
            self.body.extend_from_slice(bytes);
            return Ok(());
        }
        if let Some(found) = self.cgi.feed(bytes).map_err(not_cgi)? {
            self.saw_head = true;
            self.head = Some(found.head);
            self.body.extend_from_slice(&bytes[found.used..]);
        }
        Ok(())
    }

    fn stderr(&mut self, bytes: &[u8], log: LogLineSink<'_>) {
        let room = MAX_STDERR_BYTES - self.stderr_bytes;
        let taken = &bytes[..bytes.len().min(room)];
        self.stderr_bytes += taken.len();
        self.stderr.extend_from_slice(taken);
        while let Some(at) = message_end(&self.stderr) {
            let rest = self.stderr.split_off(at);
            let message = std::mem::replace(&mut self.stderr, rest);
            write_log(&message, log);
        }
        if taken.len() < bytes.len() && room > 0 {
            self.flush_log(log);
            log(
                LogLevel::Warning,
                b"one request wrote more than 1 MiB of messages; the rest is dropped",
            );
        }
    }

    /// Logs the remaining messages, after the last bytes have arrived.
    pub fn flush_log(&mut self, log: LogLineSink<'_>) {
        write_log(&std::mem::take(&mut self.stderr), log);
    }

    /// Returns the response head, if it has arrived and has not been taken yet.
    pub fn take_head(&mut self) -> Option<ScriptHead> {
        self.head.take()
    }

    /// Returns the part of the body that has arrived since the last call.
    pub fn take_body(&mut self) -> Option<Bytes> {
        if self.body.is_empty() {
            return None;
        }
        Some(self.body.split().freeze())
    }

    /// Returns how the application ended the request, or `None` before END_REQUEST.
    pub fn end(&self) -> Option<EndStatus> {
        self.end
    }

    /// Returns whether a head has arrived. The request cannot be repeated after that.
    pub fn saw_head(&self) -> bool {
        self.saw_head
    }

    /// Returns whether any byte has arrived, which means that the backend has accepted the request.
    pub fn has_received(&self) -> bool {
        self.has_received
    }

    /// Returns whether the response is complete if the connection is closed now. It is if the application has ended its
    /// STDOUT, even without END_REQUEST.
    pub fn is_complete_at_close(&self) -> bool {
        self.saw_head && self.decoder.stdout_ended()
    }

    /// Returns the error of a response that has ended without a head.
    pub fn missing_head_error(&self) -> ExecError {
        match self.cgi.is_empty() {
            true => ExecError::ResponseMissing,
            false => not_cgi(CgiError::HeadUnfinished),
        }
    }
}

fn not_fastcgi(error: RecordError) -> ExecError {
    ExecError::ResponseInvalid(ResponseError::FastCgi(error))
}

fn not_cgi(error: CgiError) -> ExecError {
    ExecError::ResponseInvalid(ResponseError::Cgi(error))
}

/// Returns where the first message ends, if that is known: where php-fpm begins another message, or at the maximum
/// length.
fn message_end(bytes: &[u8]) -> Option<usize> {
    let next = bytes
        .windows(MESSAGE_SEPARATOR.len())
        .position(|w| w == MESSAGE_SEPARATOR);
    next.map(|at| at + 2)
        .filter(|at| *at <= MAX_MESSAGE_BYTES)
        .or((bytes.len() > MAX_MESSAGE_BYTES).then_some(MAX_MESSAGE_BYTES))
}

fn write_log(message: &[u8], log: LogLineSink<'_>) {
    let message = message.strip_suffix(b"; ").unwrap_or(message);
    let message = message
        .strip_prefix(MESSAGE_PREFIX)
        .unwrap_or(message)
        .trim_ascii();
    if !message.is_empty() {
        log(level_of(message), message);
    }
}

/// Returns the syslog level of a message, by the word that PHP puts before it. A message without such a word is a
/// notice, like those of `error_log()`.
fn level_of(message: &[u8]) -> LogLevel {
    let Some(rest) = message.strip_prefix(b"PHP ") else {
        return LogLevel::Notice;
    };
    let begins = |word: &str| rest.starts_with(word.as_bytes());
    match () {
        () if begins("Fatal") || begins("Parse") || begins("Recoverable") => LogLevel::Error,
        () if begins("Core error") || begins("Compile error") => LogLevel::Error,
        () if begins("Warning") || begins("Core warning") || begins("Compile warning") => {
            LogLevel::Warning
        }
        () => LogLevel::Notice,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_proto::fastcgi::{encode, kind};

    fn record(kind: u8, content: &[u8]) -> Vec<u8> {
        let mut out = encode::header(kind, 1, content.len()).to_vec();
        out.extend_from_slice(content);
        out
    }

    fn feed(pieces: &[&[u8]]) -> (FastCgiResponse, Vec<(LogLevel, String)>) {
        let (mut answer, mut lines) = (FastCgiResponse::default(), Vec::new());
        for piece in pieces {
            answer
                .feed(piece, &mut |level, text| {
                    lines.push((level, String::from_utf8_lossy(text).into_owned()));
                })
                .unwrap();
        }
        (answer, lines)
    }

    #[test]
    fn head_split_over_records_and_messages_is_one_head() {
        let wire = [
            record(kind::STDOUT, b"X-A: 1\r\nX-"),
            record(kind::STDERR, b"PHP message: PHP Warning:  a in b on line 1"),
            record(kind::STDERR, b"; "),
            record(kind::STDERR, b"PHP message: hello\nworld"),
            record(kind::STDOUT, b"B: 2\r\n"),
            record(kind::STDOUT, b"\r\nbo"),
            record(kind::STDOUT, b"dy"),
            record(kind::END_REQUEST, &[0; 8]),
        ]
        .concat();
        let (mut whole, lines) = feed(&[&wire]);
        let expected = [
            (
                LogLevel::Warning,
                "PHP Warning:  a in b on line 1".to_owned(),
            ),
            (LogLevel::Notice, "hello\nworld".to_owned()),
        ];
        assert_eq!(lines, expected);
        assert_eq!(whole.take_head().unwrap().headers.len(), 2);
        assert_eq!(whole.take_body().unwrap(), "body");
        assert!(whole.end().is_some());
        let bytes: Vec<&[u8]> = wire.chunks(1).collect();
        let (mut slow, lines) = feed(&bytes);
        assert_eq!(lines, expected);
        assert_eq!(slow.take_head().unwrap().headers.len(), 2);
        assert_eq!(slow.take_body().unwrap(), "body");
    }

    #[test]
    fn messages_are_limited() {
        let record = record(kind::STDERR, &[b'x'; 60_000]);
        let many: Vec<&[u8]> = (0..30).map(|_| &record[..]).collect();
        let (mut answer, mut lines) = feed(&many);
        answer.flush_log(&mut |level, text| lines.push((level, text.len().to_string())));
        let total: usize = lines
            .iter()
            .filter(|(l, _)| *l == LogLevel::Notice)
            .map(|(_, t)| t.len())
            .sum();
        assert!(
            total <= MAX_STDERR_BYTES && total > MAX_STDERR_BYTES - 60_000,
            "{total}"
        );
        assert_eq!(
            lines
                .iter()
                .filter(|(level, _)| *level == LogLevel::Warning)
                .count(),
            1
        );
    }

    #[test]
    fn response_without_a_head_is_named() {
        let (answer, _) = feed(&[&record(kind::END_REQUEST, &[0; 8])]);
        assert_eq!(answer.missing_head_error(), ExecError::ResponseMissing);
        let wire = [
            record(kind::STDOUT, b"A: b\r\n"),
            record(kind::END_REQUEST, &[0; 8]),
        ];
        let (answer, _) = feed(&[&wire.concat()]);
        assert_eq!(
            answer.missing_head_error(),
            not_cgi(CgiError::HeadUnfinished)
        );
    }
}
