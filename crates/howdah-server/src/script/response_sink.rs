//! The destination of a response as a trait, so tests can see what a client would.

use std::task::{Context, Poll};

use bytes::Bytes;

use howdah_http::message::ResponseHead;
use howdah_http::{ClientGone, Responder, ResponseLength};

/// The connection to the client of a response: [`Responder`], or a list in tests.
pub trait ResponseSink {
    /// See [`Responder::informational`].
    fn informational(&mut self, head: &ResponseHead);
    /// See [`Responder::begin`].
    fn begin(&mut self, head: &ResponseHead, length: ResponseLength);
    /// See [`Responder::push`].
    fn push(&mut self, bytes: Bytes);
    /// See [`Responder::queued`].
    fn queued(&self) -> usize;
    /// See [`Responder::share`].
    fn share(&self, bytes: usize) -> usize;
    /// See [`Responder::taken`].
    fn taken(&self) -> u64;
    /// See [`Responder::set_min_rate`].
    fn set_min_rate(&mut self, rate: u32);
    /// See [`Responder::poll_flush`].
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientGone>>;
    /// See [`Responder::end`].
    fn end(&mut self);
    /// See [`Responder::abort`].
    fn abort(&mut self);
    /// See [`Responder::poll_client_gone`].
    fn poll_client_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

impl ResponseSink for Responder {
    fn informational(&mut self, head: &ResponseHead) {
        Responder::informational(self, head);
    }
    fn begin(&mut self, head: &ResponseHead, length: ResponseLength) {
        Responder::begin(self, head, length);
    }
    fn push(&mut self, bytes: Bytes) {
        Responder::push(self, bytes);
    }
    fn queued(&self) -> usize {
        Responder::queued(self)
    }
    fn share(&self, bytes: usize) -> usize {
        Responder::memory_share(self, bytes)
    }
    fn taken(&self) -> u64 {
        Responder::bytes_taken(self)
    }
    fn set_min_rate(&mut self, rate: u32) {
        Responder::set_min_rate(self, rate);
    }
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientGone>> {
        Responder::poll_flush(self, cx)
    }
    fn end(&mut self) {
        Responder::end(self);
    }
    fn abort(&mut self) {
        Responder::abort(self);
    }
    fn poll_client_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        Responder::poll_client_gone(self, cx)
    }
}
