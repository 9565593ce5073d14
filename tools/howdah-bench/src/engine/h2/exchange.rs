//! A request on a stream of HTTP/2.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use h2::RecvStream;
use h2::client::ResponseFuture;
use http::Response;

use super::super::multiplex::{StreamExchange, StreamFailure};
use crate::outcome::Outcome;

/// A request that has been sent.
pub enum Http2Exchange {
    /// The header of the response has not arrived.
    Head(ResponseFuture),
    /// The header of the response has arrived.
    Body(RecvStream),
}

impl StreamExchange for Http2Exchange {
    fn poll_head(&mut self) -> Poll<Result<Response<()>, StreamFailure>> {
        let Http2Exchange::Head(response) = self else {
            return Poll::Pending;
        };
        let mut waker = Context::from_waker(Waker::noop());
        match Pin::new(response).poll(&mut waker) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(response)) => {
                let (head, stream) = response.into_parts();
                *self = Http2Exchange::Body(stream);
                Poll::Ready(Ok(Response::from_parts(head, ())))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(failure(&error, false))),
        }
    }

    fn poll_body(&mut self, mut take: impl FnMut(&[u8])) -> Poll<Result<(), StreamFailure>> {
        let Http2Exchange::Body(stream) = self else {
            return Poll::Pending;
        };
        let mut waker = Context::from_waker(Waker::noop());
        loop {
            match stream.poll_data(&mut waker) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(data))) => {
                    take(&data);
                    // This fails only if more is released than was received.
                    let _ = stream.flow_control().release_capacity(data.len());
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(failure(&error, true))),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
            }
        }
    }
}

/// Returns the outcome of a failed stream. `head` says whether the response had begun.
fn failure(error: &h2::Error, head: bool) -> StreamFailure {
    let outcome = if error.is_library() || (error.is_go_away() && !error.is_remote()) {
        Outcome::ProtocolError
    } else if head {
        Outcome::Truncated
    } else if error.is_io() {
        Outcome::ClosedEarly
    } else {
        Outcome::Reset
    };
    StreamFailure {
        outcome,
        why: error.to_string(),
    }
}
