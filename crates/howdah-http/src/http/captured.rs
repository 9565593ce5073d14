//! The response to a request that the server makes itself: a handler writes it as it does for a client, and the caller
//! reads it from memory. The stream holds a bounded number of bytes. A handler that writes more waits, as for a slow
//! client, but without a time limit of its own: the caller's client has one.

use std::sync::Arc;

use bytes::Bytes;

use super::body::RequestBody;
use super::captured_stream::CapturedStream;
use super::channel::Channel;
use super::config::HttpConfig;
use super::lifecycle::FrontThreadConnections;
use super::message::HttpVersion;
use super::request_io::RequestIo;
use super::responder::{Responder, ResponseEnd};

/// The reader of a response that the server has requested itself. When it is dropped, the handler finds that its client
/// has gone.
pub struct CapturedResponse(Arc<CapturedStream>);

impl CapturedResponse {
    /// Returns the status of the response, once its head has been written.
    pub fn status(&self) -> Option<u16> {
        self.0.state().head.as_ref().map(|(status, _)| *status)
    }

    /// Returns whether the response has a header of this name and value, in any case.
    pub fn has_header(&self, name: &[u8], matches: impl Fn(&[u8]) -> bool) -> bool {
        let state = self.0.state();
        let Some((_, lines)) = &state.head else {
            return false;
        };
        lines.split(|b| *b == b'\n').any(|line| {
            let Some(colon) = line.iter().position(|b| *b == b':') else {
                return false;
            };
            line[..colon].eq_ignore_ascii_case(name) && matches(line[colon + 1..].trim_ascii())
        })
    }

    /// Returns the next bytes of the body, if there are any now. The handler has to be polled for more.
    pub fn take(&mut self) -> Option<Bytes> {
        let mut state = self.0.state();
        let piece = state.pieces.pop_front()?;
        state.queued -= piece.len();
        if let Some(writer) = state.writer.take() {
            writer.wake();
        }
        Some(piece)
    }
}

impl Drop for CapturedResponse {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.reader_gone = true;
        state.pieces.clear();
        if let Some(writer) = state.writer.take() {
            writer.wake();
        }
    }
}

impl Responder {
    /// Returns a responder for a request that the server makes itself, without a body, and the reader of the response.
    pub fn captured() -> (Responder, RequestBody, CapturedResponse) {
        let stream = Arc::new(CapturedStream::default());
        let io = Arc::new(RequestIo::new(
            Channel::Captured(stream.clone()),
            Arc::new(HttpConfig::default()),
            Arc::new(FrontThreadConnections::default()),
            None,
        ));
        let mut out = Responder::new(io.clone());
        // With this version, the body has no framing of its own.
        out.prepare(HttpVersion::Http2, false, true);
        (out, RequestBody::new(io), CapturedResponse(stream))
    }

    /// Passes the rest of a captured response to its reader. Returns whether the response is complete.
    pub async fn finish_captured(&mut self) -> bool {
        let complete = matches!(self.outcome(), ResponseEnd::Complete { .. });
        self.flush().await.is_ok() && complete
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::super::captured_stream::CAPACITY_BYTES;
    use super::super::message::ResponseHead;
    use super::super::responder::ResponseLength;
    use super::*;

    fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn captured_response_is_read_without_framing() {
        for length in [ResponseLength::Known(5), ResponseLength::Unknown] {
            let (mut out, body, mut read) = Responder::captured();
            assert_eq!(body.delimiter(), super::super::BodyKind::None);
            assert_eq!(read.status(), None);
            let mut head = ResponseHead::new(201);
            head.header(b"X-A", b"1");
            out.begin(&head, length);
            out.push(Bytes::from_static(b"hello"));
            out.end();
            assert_eq!(poll_once(out.finish_captured()), Poll::Ready(true));
            assert_eq!(read.status(), Some(201));
            assert!(read.has_header(b"x-a", |value| value == b"1"));
            assert_eq!(read.take().as_deref(), Some(&b"hello"[..]));
            assert_eq!(read.take(), None);
        }
    }

    #[test]
    fn stored_response_is_captured_with_its_head() {
        let (mut out, _body, mut read) = Responder::captured();
        let head = b"HTTP/1.1 200 OK\r\nX-A: 1\r\n";
        out.begin_stored(200, head, |lines| lines.extend_from_slice(b"Age: 3\r\n"), 1);
        out.push(Bytes::from_static(b"x"));
        out.end();
        assert_eq!(poll_once(out.finish_captured()), Poll::Ready(true));
        assert!(read.has_header(b"X-A", |_| true) && read.has_header(b"Age", |v| v == b"3"));
        assert_eq!(
            (read.status(), read.take().as_deref()),
            (Some(200), Some(&b"x"[..]))
        );
    }

    #[test]
    fn writer_waits_for_the_reader_and_notices_that_it_has_gone() {
        let (mut out, _body, mut read) = Responder::captured();
        out.begin(&ResponseHead::new(200), ResponseLength::Unknown);
        let long = vec![0; 3 * CAPACITY_BYTES];
        out.push(Bytes::from(long));
        out.end();
        let mut taken = 0;
        {
            let mut finish = pin!(out.finish_captured());
            let mut cx = Context::from_waker(Waker::noop());
            assert!(finish.as_mut().poll(&mut cx).is_pending());
            assert_eq!(read.0.state().queued, CAPACITY_BYTES);
            while finish.as_mut().poll(&mut cx).is_pending() {
                taken += read.take().map_or(0, |piece| piece.len());
            }
        }
        while let Some(piece) = read.take() {
            taken += piece.len();
        }
        assert_eq!(taken, 3 * CAPACITY_BYTES);
        assert!(poll_once(poll_fn(|cx| out.poll_client_gone(cx))).is_pending());
        drop(read);
        assert!(poll_once(poll_fn(|cx| out.poll_client_gone(cx))).is_ready());
    }

    #[test]
    fn response_that_is_cut_off_is_not_complete() {
        let (mut out, _body, _read) = Responder::captured();
        out.begin(&ResponseHead::new(200), ResponseLength::Known(9));
        out.push(Bytes::from_static(b"half"));
        out.end();
        assert_eq!(poll_once(out.finish_captured()), Poll::Ready(false));
        let (mut silent, _body, _read) = Responder::captured();
        assert_eq!(poll_once(silent.finish_captured()), Poll::Ready(false));
    }
}
