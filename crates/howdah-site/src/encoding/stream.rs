//! Compresses a response whose end is not known: short pieces immediately, longer ones on another thread, one piece
//! after the other.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::codec::Encoder;
use super::negotiate::Coding;
use super::worker::{self, CompressionWork, SLICE_BYTES};

/// Returns how many plain bytes are compressed at once on the calling thread: about a third of a millisecond of work.
pub fn max_inline_bytes(coding: Coding) -> usize {
    match coding {
        Coding::Gzip => 32 << 10,
        Coding::Brotli => 12 << 10,
        Coding::Zstd => 64 << 10,
    }
}

/// Returns whether a response of this length (if known) should be compressed. While the workers are too busy, a long
/// one is better sent uncompressed.
pub fn is_worth_encoding(coding: Coding, length: Option<u64>) -> bool {
    length.is_some_and(|length| length <= max_inline_bytes(coding) as u64) || !worker::is_busy()
}

/// What the encoder does after the pieces.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum FlushMode {
    /// More pieces follow; the encoder may hold bytes back.
    More,
    /// Everything so far must be decodable.
    Flush,
    /// The response ends here; the encoder finishes its stream.
    End,
}

/// The compressor, unless it has finished its stream, and the coded bytes.
pub(crate) type CodedPieces = io::Result<(Option<Encoder>, Vec<u8>)>;

/// Compresses `pieces`, and then continues, flushes or ends the stream as `then` says.
pub fn encode(encoder: Encoder, pieces: Vec<Bytes>, then: FlushMode) -> Encoding {
    let plain = pieces
        .iter()
        .filter(|piece| !encoder.is_compressed_text(piece));
    let length: usize = plain.map(Bytes::len).sum();
    let is_long =
        encoder.pending_work(length, then != FlushMode::More) > max_inline_bytes(encoder.coding());
    let mut piece = EncodingWork {
        encoder: Some(encoder),
        pieces,
        at: (0, 0),
        then,
        coded: Vec::new(),
        answer: None,
    };
    if !is_long {
        return Encoding(EncodingState::Done(Some(Box::new(piece.encode_all()))));
    }
    let (answer, coded) = oneshot::channel();
    piece.answer = Some(answer);
    // If there are no threads, the channel closes and the future returns an error.
    drop(worker::enqueue(Box::new(piece), length as u64));
    Encoding(EncodingState::OnWorker(coded))
}

/// The compression of some pieces.
pub struct Encoding(EncodingState);

enum EncodingState {
    Done(Option<Box<CodedPieces>>),
    OnWorker(oneshot::Receiver<CodedPieces>),
}

impl Future for Encoding {
    type Output = CodedPieces;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CodedPieces> {
        let gone = || io::Error::other("the compression thread exited");
        match &mut self.0 {
            EncodingState::Done(coded) => {
                Poll::Ready(coded.take().map_or_else(|| Err(gone()), |coded| *coded))
            }
            EncodingState::OnWorker(coded) => Pin::new(coded)
                .poll(cx)
                .map(|coded| coded.unwrap_or_else(|_| Err(gone()))),
        }
    }
}

struct EncodingWork {
    encoder: Option<Encoder>,
    pieces: Vec<Bytes>,
    /// The index of the current piece, and how many of its bytes are done.
    at: (usize, usize),
    then: FlushMode,
    coded: Vec<u8>,
    answer: Option<oneshot::Sender<CodedPieces>>,
}

impl EncodingWork {
    /// Compresses a slice. Returns whether it was the last.
    fn encode_slice(&mut self) -> io::Result<bool> {
        let Some(encoder) = &mut self.encoder else {
            return Ok(true);
        };
        if let Some(piece) = self.pieces.get(self.at.0) {
            if self.at.1 == 0
                && let Some(mut coded) = encoder.insert_text(piece)?
            {
                self.coded.append(&mut coded);
                self.at.0 += 1;
                return Ok(self.then == FlushMode::More && self.at.0 == self.pieces.len());
            }
            let rest = &piece[self.at.1..];
            let slice = &rest[..rest.len().min(SLICE_BYTES)];
            self.coded.append(&mut encoder.write(slice)?);
            self.at = match slice.len() == rest.len() {
                true => (self.at.0 + 1, 0),
                false => (self.at.0, self.at.1 + slice.len()),
            };
            return Ok(self.then == FlushMode::More && self.at.0 == self.pieces.len());
        }
        match self.then {
            FlushMode::More => {}
            FlushMode::Flush => self.coded.append(&mut encoder.flush()?),
            FlushMode::End => {
                if let Some(encoder) = self.encoder.take() {
                    self.coded.append(&mut encoder.finish()?);
                }
            }
        }
        Ok(true)
    }

    fn encode_all(&mut self) -> CodedPieces {
        while !self.encode_slice()? {}
        Ok((self.encoder.take(), std::mem::take(&mut self.coded)))
    }
}

impl CompressionWork for EncodingWork {
    fn step(&mut self) -> bool {
        if self.answer.as_ref().is_none_or(oneshot::Sender::is_closed) {
            return true;
        }
        let coded = match self.encode_slice() {
            Ok(false) => return false,
            Ok(true) => Ok((self.encoder.take(), std::mem::take(&mut self.coded))),
            Err(error) => Err(error),
        };
        if let Some(answer) = self.answer.take() {
            // The receiver is gone if the client has disconnected.
            let _ = answer.send(coded);
        }
        true
    }
}
