//! The output of a response that the client has not read yet: up to a limit in memory, more in a file, so a client that
//! is slower than its script does not occupy the PHP process. This module decides when the script waits, and when the
//! client is too slow for that.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use howdah_http::memory::allowance;
use tokio::time::Sleep;

use super::pump_config::PumpConfig;
use super::response_sink::ResponseSink;
use super::spill::{SpillError, SpillFile};
use super::wait::ScriptWait;
use crate::failure::Failure;

/// How many bytes are taken from the file at once. The queue is refilled when it holds less than that.
const REFILL_BYTES: usize = 64 << 10;

/// Returns how many bytes are taken from the file at once. When memory is short, the amount is smaller, and all streams
/// of a connection share it.
pub fn refill_bytes(out: &impl ResponseSink) -> usize {
    match allowance(REFILL_BYTES) {
        REFILL_BYTES => REFILL_BYTES,
        little => out.share(little).max(MIN_REFILL_BYTES),
    }
}

/// The minimum that is taken from a file at once.
const MIN_REFILL_BYTES: usize = 2 << 10;

/// How long a client may take to read everything that is in memory, once that memory is full, before the file is used.
/// A client on the same machine or network takes less, and it does no harm if a PHP process waits that long. Mere
/// progress does not count: a client at 10 MB/s makes some progress all the time, and would occupy the process for the
/// whole download.
const SPILL_DELAY: Duration = Duration::from_millis(20);

/// The output of one response that waits for the client, in the queue and in a file.
pub struct Backlog<'a> {
    config: &'a PumpConfig,
    spill: Spill,
    stalled: Option<Pin<Box<Sleep>>>,
    /// Created when the script has to wait. Boxed because every connection reserves the room for a pump.
    waits: Option<Box<ScriptWait>>,
    /// Why the rest cannot be kept in a file, until the caller takes it.
    error: Option<Box<SpillError>>,
    /// Whether there has been an error. Only the first one is reported.
    failed: bool,
}

/// Where bytes beyond the queue go.
enum Spill {
    /// The client keeps up, so there is no file.
    No,
    /// Bytes are appended to the file, or queued after its content. Boxed because every connection reserves the room
    /// for a pump.
    Yes(Box<SpilledOutput>),
    /// There is no file: it is disabled, or it cannot be created.
    Never,
}

/// Output on its way through a file.
struct SpilledOutput {
    file: SpillFile,
    /// Pieces that did not fit on the disk. They follow the file's content.
    after: VecDeque<Bytes>,
}

/// Whether the backlog can take another event of the script.
pub enum Room {
    /// The backlog has room now.
    Yes,
    /// There is no room, but there may be shortly, in memory or in a file.
    Perhaps,
    /// There is no room until the client reads something. The script waits for it.
    No,
}

impl<'a> Backlog<'a> {
    /// Creates the backlog of a response of which nothing has been sent.
    pub fn new(config: &'a PumpConfig) -> Backlog<'a> {
        Backlog {
            config,
            spill: match config.buffers.response_spill {
                0 => Spill::Never,
                _ => Spill::No,
            },
            stalled: None,
            waits: None,
            error: None,
            failed: false,
        }
    }

    /// Returns whether bytes wait outside of the response's queue.
    pub fn is_spilling(&self) -> bool {
        matches!(self.spill, Spill::Yes(_))
    }

    /// See [`super::pump::Pump::take_spill_error`].
    pub fn take_error(&mut self) -> Option<SpillError> {
        self.error.take().map(|error| *error)
    }

    fn note_error(&mut self, error: SpillError) {
        if !std::mem::replace(&mut self.failed, true) {
            self.error = Some(Box::new(error));
        }
    }

    /// Notes that the client has read everything in the queue.
    pub fn queue_drained(&mut self) {
        self.stalled = None;
    }

    /// Appends bytes in the form in which the client will get them.
    pub fn push(&mut self, bytes: Bytes, out: &mut impl ResponseSink) {
        if bytes.is_empty() {
            return;
        }
        self.spill_under_pressure(bytes.len(), out);
        match &mut self.spill {
            // After a piece that did not fit on the disk, all further pieces follow that piece in memory.
            Spill::Yes(spilled) if !spilled.after.is_empty() => spilled.after.push_back(bytes),
            Spill::Yes(spilled) => {
                if let Err(error) = spilled.file.append(&bytes) {
                    spilled.after.push_back(bytes);
                    self.note_error(error);
                }
            }
            Spill::No | Spill::Never => out.push(bytes),
        }
    }

    /// When memory is short, moves a piece that does not fit next to the queued output to a file. This includes the
    /// last piece, after which [`Backlog::room`] is not called any more: a complete response waits for its client, too.
    fn spill_under_pressure(&mut self, more: usize, out: &impl ResponseSink) {
        let room = allowance(usize::MAX);
        if !matches!(self.spill, Spill::No) || out.queued().saturating_add(more) <= room {
            return;
        }
        self.create_file();
    }

    /// Creates the file for further output. Returns whether there is one.
    fn create_file(&mut self) -> bool {
        self.stalled = None;
        match SpillFile::create(&self.config.buffers.directory, &self.config.room) {
            Ok(file) => {
                let after = VecDeque::new();
                self.spill = Spill::Yes(Box::new(SpilledOutput { file, after }));
                true
            }
            // The script then waits for the client, which is slower but correct.
            Err(error) => {
                self.spill = Spill::Never;
                self.note_error(error);
                false
            }
        }
    }

    /// Moves output from the file to the queue, as far as the client has made room there.
    pub fn refill(
        &mut self,
        out: &mut impl ResponseSink,
        moved: &mut usize,
    ) -> Result<(), Failure> {
        let Spill::Yes(spilled) = &mut self.spill else {
            return Ok(());
        };
        out.set_min_rate(self.config.room.min_rate());
        let refill = refill_bytes(out);
        while out.queued() < refill {
            let piece = if spilled.file.pending() > 0 {
                let failed = |e: std::io::Error| Failure::SpillFailed(e.to_string());
                spilled.file.take(refill).map_err(failed)?
            } else if let Some(piece) = spilled.after.pop_front() {
                piece
            } else {
                self.spill = Spill::No;
                return Ok(());
            };
            *moved += piece.len();
            out.push(piece);
        }
        Ok(())
    }

    /// Returns whether another event may be requested. With `unbuffered` the script does not want a file. If there is
    /// no room, the task is woken once there may be some.
    pub fn room(
        &mut self,
        cx: &mut Context<'_>,
        out: &impl ResponseSink,
        unbuffered: bool,
    ) -> Room {
        let room = self.find_room(cx, out, unbuffered);
        if let (Room::Yes, Some(waits)) = (&room, &mut self.waits) {
            waits.end();
        }
        room
    }

    fn find_room(
        &mut self,
        cx: &mut Context<'_>,
        out: &impl ResponseSink,
        unbuffered: bool,
    ) -> Room {
        match &self.spill {
            Spill::Yes(spilled) => {
                let more = spilled.file.size() < self.config.buffers.response_spill;
                if more && spilled.after.is_empty() {
                    Room::Yes
                } else {
                    Room::No
                }
            }
            _ if out.queued() < allowance(out.share(self.config.response_memory)) => Room::Yes,
            Spill::Never => Room::No,
            Spill::No if unbuffered => Room::No,
            Spill::No => {
                let stalled = self
                    .stalled
                    .get_or_insert_with(|| Box::pin(tokio::time::sleep(SPILL_DELAY)));
                if stalled.as_mut().poll(cx).is_pending() {
                    return Room::Perhaps;
                }
                match self.create_file() {
                    true => Room::Yes,
                    false => Room::No,
                }
            }
        }
    }

    /// Resolves when the client is too slow for its script to keep waiting. Poll this while there is [`Room::No`].
    pub fn poll_too_slow(&mut self, out: &impl ResponseSink, cx: &mut Context<'_>) -> Poll<()> {
        let waits = self.waits.get_or_insert_with(Box::default);
        waits.poll(out.taken(), cx)
    }

    /// Simulates that memory was full and that the file is on a full disk.
    #[cfg(test)]
    pub fn simulate_full_disk(&mut self) {
        let (file, after) = (SpillFile::full(), VecDeque::new());
        self.spill = Spill::Yes(Box::new(SpilledOutput { file, after }));
    }
}

#[cfg(test)]
#[path = "backlog_tests.rs"]
mod tests;
