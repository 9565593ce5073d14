//! The memory through which the response to a request of the server itself passes from its handler to its reader.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

/// How many bytes of a body wait for the reader before the writer has to wait.
pub(super) const CAPACITY_BYTES: usize = 64 << 10;

/// The stream between the handler and the reader.
#[derive(Default)]
pub(super) struct CapturedStream(Mutex<StreamState>);

#[derive(Default)]
pub(super) struct StreamState {
    /// The status and the header lines of the final response.
    pub(super) head: Option<(u16, Vec<u8>)>,
    pub(super) pieces: VecDeque<Bytes>,
    pub(super) queued: usize,
    pub(super) reader_gone: bool,
    /// The task that writes, or that waits for the reader to disappear.
    pub(super) writer: Option<Waker>,
}

impl CapturedStream {
    /// Locks the state. Writer and reader belong to the same task, so the lock is never contended.
    pub(super) fn state(&self) -> MutexGuard<'_, StreamState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the status and the header lines of the final response.
    pub(super) fn set_head(&self, status: u16, lines: Vec<u8>) {
        self.state().head = Some((status, lines));
    }

    /// Takes as many bytes as there is room for.
    pub(super) fn poll_send(
        &self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.state();
        if state.reader_gone {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = CAPACITY_BYTES.saturating_sub(state.queued);
        if room == 0 {
            state.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let mut taken = 0;
        for part in parts {
            let part = &part[..part.len().min(room - taken)];
            if !part.is_empty() {
                state.pieces.push_back(Bytes::copy_from_slice(part));
                taken += part.len();
            }
        }
        state.queued += taken;
        Poll::Ready(Ok(taken))
    }

    /// Is ready when the reader is gone.
    pub(super) fn poll_reader_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.reader_gone {
            return Poll::Ready(());
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }
}
