//! Feeds a request body into its slot as the child makes room. It reads the body from where the server stored it and
//! does not know HTTP framing.

use std::os::unix::fs::FileExt;
use std::task::{Context, Poll};

use bytes::Bytes;
use howdah_proto::shm::FrontPort;

use crate::common::sys;
use crate::{ExecError, ScriptBody};

/// The maximum number of bytes in one read from a spooled body.
const READ_CHUNK_BYTES: usize = 32 * 1024;

/// The maximum number of bytes that one call moves into the slot, so one body does not hold up its thread.
const MAX_BYTES_PER_PUMP: usize = 4 * howdah_proto::shm::RING_BYTES;

/// The part of a body that has not been passed to the child yet.
#[derive(Debug)]
pub(crate) enum BodyFeed {
    /// The whole body was passed on, or the child has been told that no more comes.
    Complete,
    /// A piece in memory, and the source of the rest.
    Source(Bytes, BodySource),
}

/// The source of the next piece.
#[derive(Debug)]
pub(crate) enum BodySource {
    /// No source: the piece in memory is the last one.
    Nothing,
    /// A file, from this offset to this length.
    File(std::fs::File, u64, u64),
    /// A body that is still arriving from the client.
    Stream(tokio::sync::mpsc::Receiver<Result<Bytes, crate::BodyCutOff>>),
}

impl BodyFeed {
    pub fn new(body: ScriptBody) -> BodyFeed {
        match body {
            ScriptBody::Empty => BodyFeed::Complete,
            ScriptBody::Memory(bytes) if bytes.is_empty() => BodyFeed::Complete,
            ScriptBody::Memory(bytes) => BodyFeed::Source(bytes, BodySource::Nothing),
            ScriptBody::File(_, 0) => BodyFeed::Complete,
            ScriptBody::File(file, len) => {
                BodyFeed::Source(Bytes::new(), BodySource::File(file, 0, len))
            }
            ScriptBody::Stream(stream) => {
                BodyFeed::Source(Bytes::new(), BodySource::Stream(stream))
            }
        }
    }

    /// Returns whether nothing is left to feed.
    pub fn is_complete(&self) -> bool {
        matches!(self, BodyFeed::Complete)
    }

    /// Returns whether the server has received the whole body, so what is left of it does not depend on the client.
    pub fn has_arrived(&self) -> bool {
        !matches!(self, BodyFeed::Source(_, BodySource::Stream(_)))
    }

    /// Moves as many bytes as fit into the slot. The task of `cx` is woken when a stream has more bytes. The slot
    /// notifies when it has room again. Returns whether the call stopped although the slot has room, because the child
    /// reads as fast as this thread writes; the caller must call again, after other tasks have run.
    pub fn pump(
        &mut self,
        port: &FrontPort,
        slot: u32,
        cx: &mut Context<'_>,
    ) -> Result<bool, ExecError> {
        let mut moved = 0;
        while let BodyFeed::Source(piece, rest) = self {
            if moved >= MAX_BYTES_PER_PUMP {
                return Ok(true);
            }
            if !piece.is_empty() {
                let (n, wake) = port
                    .write_body(slot, piece)
                    .map_err(|_| ExecError::ResponseCorrupt)?;
                sys::wake(wake);
                if n == 0 {
                    return Ok(false);
                }
                let _ = piece.split_to(n);
                moved += n;
                continue;
            }
            let complete = match rest {
                BodySource::Nothing => true,
                BodySource::File(_, at, len) if at == len => true,
                BodySource::File(file, at, len) => {
                    let mut chunk = vec![0; READ_CHUNK_BYTES.min((*len - *at) as usize)];
                    if file.read_exact_at(&mut chunk, *at).is_err() {
                        sys::wake(port.end_body(slot, false));
                        *self = BodyFeed::Complete;
                        return Err(ExecError::BodyUnreadable);
                    }
                    *at += chunk.len() as u64;
                    *piece = Bytes::from(chunk);
                    continue;
                }
                BodySource::Stream(stream) => match stream.poll_recv(cx) {
                    Poll::Pending => return Ok(false),
                    Poll::Ready(Some(Ok(bytes))) => {
                        *piece = bytes;
                        continue;
                    }
                    Poll::Ready(None) => true,
                    Poll::Ready(Some(Err(crate::BodyCutOff))) => false,
                },
            };
            sys::wake(port.end_body(slot, complete));
            *self = BodyFeed::Complete;
        }
        Ok(false)
    }
}
