//! A request on a stream of HTTP/3.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use h3::client::RequestStream;
use h3::error::{Code, StreamError};
use http::Response;
use quinn_proto::ConnectionError;

use super::super::multiplex::{StreamExchange, StreamFailure};
use super::quic::{QuicHandle, QuicStream};
use crate::outcome::Outcome;

/// A request that has been sent.
pub struct Http3Exchange {
    pub stream: RequestStream<QuicStream, Bytes>,
    pub handle: QuicHandle,
    /// Whether the body is complete, so that only trailers can follow.
    pub in_trailers: bool,
}

impl StreamExchange for Http3Exchange {
    fn poll_head(&mut self) -> Poll<Result<Response<()>, StreamFailure>> {
        let mut waker = Context::from_waker(Waker::noop());
        loop {
            // All state is in the stream, so a future that is not ready can be dropped.
            let polled = pin!(self.stream.recv_response()).poll(&mut waker);
            match polled {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(response)) if response.status().is_informational() => {}
                Poll::Ready(Ok(response)) => return Poll::Ready(Ok(response)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(self.failure(error, false))),
            }
        }
    }

    fn poll_body(&mut self, mut take: impl FnMut(&[u8])) -> Poll<Result<(), StreamFailure>> {
        let mut waker = Context::from_waker(Waker::noop());
        while !self.in_trailers {
            let error = match self.stream.poll_recv_data(&mut waker) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(Some(mut data))) => {
                    while data.has_remaining() {
                        let length = data.chunk().len();
                        take(data.chunk());
                        data.advance(length);
                    }
                    continue;
                }
                Poll::Ready(Ok(None)) => {
                    self.in_trailers = true;
                    continue;
                }
                Poll::Ready(Err(error)) => error,
            };
            return Poll::Ready(Err(self.failure(error, true)));
        }
        match self.stream.poll_recv_trailers(&mut waker) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(_)) => Poll::Ready(Ok(())),
            Poll::Ready(Err(error)) => Poll::Ready(Err(self.failure(error, true))),
        }
    }
}

impl Http3Exchange {
    /// Returns the outcome of a failed stream. `head` says whether the response had begun.
    fn failure(&self, error: StreamError, head: bool) -> StreamFailure {
        let begun = |outcome: Outcome| if head { Outcome::Truncated } else { outcome };
        let (outcome, why) = match &error {
            StreamError::RemoteTerminate { code, .. } => (
                begun(Outcome::Reset),
                format!("the server reset the stream ({})", code_name(*code)),
            ),
            StreamError::ConnectionError { .. } => {
                let state = self.handle.state();
                match state.lost.as_ref().map(lost_outcome) {
                    Some(Some(failure)) => (begun(failure.outcome), failure.why),
                    Some(None) => (begun(Outcome::ClosedEarly), String::new()),
                    None => (Outcome::ProtocolError, error.to_string()),
                }
            }
            _ => (Outcome::ProtocolError, error.to_string()),
        };
        StreamFailure { outcome, why }
    }
}

fn code_name(code: Code) -> String {
    code.to_string()
}

/// Returns whether a code of QUIC is an alert of TLS (RFC 9001 §4.8).
pub fn is_tls_alert(code: u64) -> bool {
    (0x100..0x200).contains(&code)
}

/// Returns why an established connection ended; `None` if the server closed it without an error.
pub fn lost_outcome(error: &ConnectionError) -> Option<StreamFailure> {
    let (outcome, why) = match error {
        ConnectionError::ApplicationClosed(close) => {
            let code = Code::from(close.error_code.into_inner());
            if code == Code::H3_NO_ERROR {
                return None;
            }
            let why = format!("the server closed the connection ({})", code_name(code));
            (Outcome::Reset, why)
        }
        ConnectionError::ConnectionClosed(close) => match u64::from(close.error_code) {
            0 => return None,
            code if is_tls_alert(code) => (Outcome::Tls, close.to_string()),
            _ => (
                Outcome::Reset,
                format!("the server closed the connection ({close})"),
            ),
        },
        ConnectionError::Reset => (
            Outcome::Reset,
            "the server no longer knows the connection (stateless reset)".to_owned(),
        ),
        ConnectionError::TimedOut => (
            Outcome::Reset,
            "no packet arrived during the idle timeout of QUIC".to_owned(),
        ),
        other => (Outcome::ProtocolError, other.to_string()),
    };
    Some(StreamFailure { outcome, why })
}
