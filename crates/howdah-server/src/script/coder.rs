//! Compresses one response piece by piece, perhaps on another thread. Bytes that arrive meanwhile are gathered for the
//! next piece. This module does not depend on the response's header or its client.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use howdah_site::encoding::Encoder;
use howdah_site::encoding::stream::{self, Encoding, FlushMode};

/// The compression of one response.
pub struct ResponseCoder {
    /// `None` while a piece is compressed, and after the last one.
    encoder: Option<Encoder>,
    under_way: Option<(Encoding, FlushMode)>,
    pieces: Vec<Bytes>,
    then: FlushMode,
}

impl ResponseCoder {
    /// Creates the compression of a response with this encoder.
    pub fn new(encoder: Encoder) -> ResponseCoder {
        ResponseCoder {
            encoder: Some(encoder),
            under_way: None,
            pieces: Vec::new(),
            then: FlushMode::More,
        }
    }

    /// Takes more bytes to compress.
    pub fn push(&mut self, bytes: Bytes) {
        self.pieces.push(bytes);
    }

    /// Sets how the compressor is flushed after the bytes taken so far.
    pub fn set_flush_mode(&mut self, then: FlushMode) {
        self.then = then;
    }

    /// Returns the next compressed bytes, and whether they are the last; `None` if there is nothing to compress.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<(Bytes, bool)>>> {
        let (encoding, then) = match (&mut self.under_way, self.encoder.take()) {
            (Some(under_way), _) => under_way,
            (None, Some(encoder)) if !self.pieces.is_empty() || self.then != FlushMode::More => {
                let then = std::mem::replace(&mut self.then, FlushMode::More);
                let pieces = std::mem::take(&mut self.pieces);
                let encoding = stream::encode(encoder, pieces, then);
                self.under_way.insert((encoding, then))
            }
            (None, encoder) => {
                self.encoder = encoder;
                return Poll::Ready(None);
            }
        };
        let (encoded, then) = (ready!(Pin::new(encoding).poll(cx)), *then);
        self.under_way = None;
        Poll::Ready(Some(encoded.map(|(encoder, coded)| {
            self.encoder = encoder;
            (Bytes::from(coded), then == FlushMode::End)
        })))
    }
}
