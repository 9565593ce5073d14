//! The PHP process's side of a pool's memory. It trusts the front.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::front::{notify, strike};
use super::layout::{RING_ENTRIES, SlotHead, entry, state};
use super::{Bell, ChildId, RING_BYTES, Region};
use crate::request::MAX_FRAME_BYTES;
use crate::response::{FRAME_HEADER_BYTES, kind};

/// A child's access to the pool.
#[derive(Clone, Copy, Debug)]
pub struct ChildPort {
    region: &'static Region,
    me: ChildId,
}

/// A claimed request, and the writer of its response. The slot belongs to this child until [`RequestClaim::done`],
/// which consumes the claim; the owner of a claim may read its frame.
///
/// Response frames go into the slot's ring. Small writes are collected in one body frame. The front sees nothing before
/// [`RequestClaim::make_visible`] or [`RequestClaim::publish`].
#[derive(Debug)]
pub struct RequestClaim {
    region: &'static Region,
    me: ChildId,
    front: u32,
    slot: u32,
    /// Position after the last written byte, whether or not the front can see it yet.
    written: u64,
    /// Position of the open body frame's length field, and the frame's length so far.
    open_body: Option<(u64, u32)>,
}

impl ChildPort {
    /// Enters the pool as the child `me`, whose row the front has prepared, and makes the child eligible for wake-ups.
    /// The child has the memory mapped for its whole life.
    pub fn enter(region: &'static Region, me: ChildId) -> ChildPort {
        let bit = 1u64 << (me.index % 64);
        region.header().live.0[me.index as usize / 64].fetch_or(bit, Ordering::SeqCst);
        ChildPort { region, me }
    }

    /// Returns the row and incarnation of this child.
    pub fn id(&self) -> ChildId {
        self.me
    }

    /// Claims the oldest ready request of the first front thread that has one, beginning at `start`. Vary `start`, so
    /// that no thread is favoured.
    pub fn claim(&self, start: u32) -> Option<RequestClaim> {
        let fronts = self.region.geometry().fronts;
        (0..fronts).find_map(|i| self.claim_from((start + i) % fronts))
    }

    fn claim_from(&self, front: u32) -> Option<RequestClaim> {
        let ring = self.region.ring(front);
        loop {
            let tail = ring.tail.0.load(Ordering::Acquire);
            if tail == ring.head.0.load(Ordering::SeqCst) {
                return None;
            }
            let entry = ring.entries[tail as usize % RING_ENTRIES].load(Ordering::Acquire);
            let slot = entry::slot(entry);
            let taken = slot < self.region.geometry().slots && {
                let head = self.region.slot(front, slot);
                let mine = state::with_child(state::CLAIMED, self.me);
                head.state
                    .compare_exchange(
                        state::ready(entry),
                        mine,
                        Ordering::AcqRel,
                        Ordering::Acquire,
                    )
                    .is_ok()
            };
            // One process advances the tail past the entry; it does not matter which.
            let _ = ring.tail.0.compare_exchange(
                tail,
                tail.wrapping_add(1),
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            if taken {
                return Some(RequestClaim {
                    region: self.region,
                    me: self.me,
                    front,
                    slot,
                    written: 0,
                    open_body: None,
                });
            }
        }
    }

    /// Announces that the child will sleep. Returns the futex word and the value to wait on. The caller must check the
    /// rings (and [`ChildPort::is_retiring`]) again before it waits, and must call [`ChildPort::unpark`] if it does not
    /// wait or after it was woken.
    pub fn park(&self) -> (&'static AtomicU32, u32) {
        let park = &self.region.child(self.me.index).park;
        let seen = park.load(Ordering::SeqCst);
        let bit = 1u64 << (self.me.index % 64);
        self.region.header().parked.0[self.me.index as usize / 64].fetch_or(bit, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        (park, seen)
    }

    /// Withdraws the announcement of [`ChildPort::park`].
    pub fn unpark(&self) {
        let bit = 1u64 << (self.me.index % 64);
        self.region.header().parked.0[self.me.index as usize / 64]
            .fetch_and(!bit, Ordering::SeqCst);
    }

    /// Returns the number of front threads. The bell after theirs is the supervisor's.
    pub fn fronts(&self) -> u32 {
        self.region.geometry().fronts
    }

    /// Returns whether the front wants this child to exit.
    pub fn is_retiring(&self) -> bool {
        self.region
            .child(self.me.index)
            .retire
            .load(Ordering::SeqCst)
            != 0
    }

    /// Removes this child from the scoreboard. It claims no more requests and no longer counts as awake, even before it
    /// has exited.
    pub fn leave(&self) {
        strike(self.region, self.me.index);
    }

    /// Asks for a replacement, because `max_requests` is reached or is about to be.
    pub fn mark_spent(&self) {
        self.region
            .child(self.me.index)
            .spent
            .store(1, Ordering::Relaxed);
    }

    /// Records the start of a job, in CLOCK_MONOTONIC nanoseconds.
    pub fn begin_job(&self, now_ns: u64) {
        self.region
            .child(self.me.index)
            .busy_since
            .store(now_ns, Ordering::Relaxed);
    }

    /// Records the end of a job. Returns the number of jobs that this process has finished.
    pub fn end_job(&self) -> u64 {
        let entry = self.region.child(self.me.index);
        entry.busy_since.store(0, Ordering::Relaxed);
        let done = entry.requests.load(Ordering::Relaxed) + 1;
        entry.requests.store(done, Ordering::Relaxed);
        done
    }
}

/// The result of reading the request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyRead {
    /// This many bytes were copied into the buffer.
    Bytes(usize),
    /// No bytes are available yet; the child has to wait for the front.
    Pending,
    /// The script has read the whole body.
    End,
    /// The client disconnected; the body will never be complete.
    CutOff,
}

impl RequestClaim {
    fn head(&self) -> &'static SlotHead {
        self.region.slot(self.front, self.slot)
    }

    /// Returns the address of the request frame in shared memory, for PHP. The frame is valid and unchanging until
    /// [`RequestClaim::done`].
    pub fn frame(&self) -> *const u8 {
        self.region.frame(self.front, self.slot).0.as_ptr().cast()
    }

    /// Returns a copy of the request frame.
    pub fn frame_bytes(&self) -> Vec<u8> {
        let len = self.head().frame_len.load(Ordering::Relaxed) as usize;
        let mut bytes = vec![0; len.min(MAX_FRAME_BYTES)];
        self.region.frame(self.front, self.slot).read(0, &mut bytes);
        bytes
    }

    /// Returns the front thread whose bell belongs to this request.
    pub fn front(&self) -> u32 {
        self.front
    }

    /// Records when the child began with the request (by the clock of [`ChildPort::begin_job`]). The front logs the
    /// queue time from it.
    pub fn record_begin(&self, now_ns: u64) {
        self.head().begun.store(now_ns, Ordering::Relaxed);
    }

    /// Returns whether the client is gone.
    pub fn aborted(&self) -> bool {
        self.head().aborted.load(Ordering::Relaxed) != 0
    }

    /// Reads body bytes. The bell informs the front that there is room again.
    pub fn read_body(&self, out: &mut [u8]) -> (BodyRead, Bell) {
        let head = self.head();
        // The end is loaded first, so bytes written before it are never missed.
        let end = head.body_end.load(Ordering::SeqCst);
        let w = head.body_w.0.load(Ordering::SeqCst);
        let r = head.body_r.0.load(Ordering::Relaxed);
        let take = ((w - r) as usize).min(out.len());
        if take == 0 {
            let read = match end {
                _ if out.is_empty() => BodyRead::Bytes(0),
                0 => BodyRead::Pending,
                1 => BodyRead::End,
                _ => BodyRead::CutOff,
            };
            return (read, Bell(false));
        }
        self.region
            .body_ring(self.front, self.slot)
            .get(r, &mut out[..take]);
        head.body_r.0.store(r + take as u64, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let wanted = head.front_wants_body_space.load(Ordering::SeqCst) != 0;
        let bell = if wanted {
            head.front_wants_body_space.store(0, Ordering::SeqCst);
            notify(self.region, self.front, self.slot)
        } else {
            Bell(false)
        };
        (BodyRead::Bytes(take), bell)
    }

    /// Announces that the child will sleep until the front reads, writes or aborts. The caller must check its
    /// condition again, and then call `FUTEX_WAIT` with the word and the value.
    pub fn prepare_wait(&self) -> (&'static AtomicU32, u32) {
        let head = self.head();
        let seen = head.child_seq.load(Ordering::SeqCst);
        head.child_waiting.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        (&head.child_seq, seen)
    }

    /// Withdraws the announcement of [`RequestClaim::prepare_wait`].
    pub fn end_wait(&self) {
        self.head().child_waiting.store(0, Ordering::SeqCst);
    }

    fn room(&self) -> usize {
        let r = self.head().resp_r.0.load(Ordering::SeqCst);
        RING_BYTES - (self.written - r) as usize
    }

    fn put(&mut self, bytes: &[u8]) {
        self.region
            .response_ring(self.front, self.slot)
            .put(self.written, bytes);
        self.written += bytes.len() as u64;
    }

    fn close_body(&mut self) {
        if let Some((at, len)) = self.open_body.take() {
            self.region
                .response_ring(self.front, self.slot)
                .put(at, &len.to_ne_bytes());
        }
    }

    /// Appends body bytes. Returns the number of bytes that fitted. If it is zero, publish and then wait for room.
    pub fn write_body(&mut self, bytes: &[u8]) -> usize {
        let mut room = self.room();
        if self.open_body.is_none() {
            if room <= FRAME_HEADER_BYTES {
                return 0;
            }
            self.put(&kind::BODY.to_ne_bytes());
            self.open_body = Some((self.written, 0));
            self.put(&[0; 4]);
            room -= FRAME_HEADER_BYTES;
        }
        let take = room.min(bytes.len());
        self.put(&bytes[..take]);
        if let Some((_, len)) = &mut self.open_body {
            *len += take as u32;
        }
        take
    }

    /// Begins a frame of another kind. Its payload of `len` bytes follows with [`RequestClaim::write_payload`]. Returns
    /// `false` if there is no room for its header yet.
    pub fn begin_frame(&mut self, kind: u32, len: u32) -> bool {
        if self.room() < FRAME_HEADER_BYTES {
            return false;
        }
        self.close_body();
        self.put(&kind.to_ne_bytes());
        self.put(&len.to_ne_bytes());
        true
    }

    /// Appends payload bytes to a begun frame. Returns the number of bytes that fitted.
    pub fn write_payload(&mut self, bytes: &[u8]) -> usize {
        let take = self.room().min(bytes.len());
        self.put(&bytes[..take]);
        take
    }

    /// Makes everything written so far visible to the front without waking it. This is for data that is not worth a
    /// wake-up but must survive the child.
    pub fn make_visible(&mut self) {
        self.close_body();
        self.head().resp_w.0.store(self.written, Ordering::Release);
    }

    /// Makes everything written so far visible to the front and notifies it.
    pub fn publish(&mut self) -> Bell {
        self.make_visible();
        notify(self.region, self.front, self.slot)
    }

    /// Returns whether there is room for a frame header and more in the response ring.
    pub fn has_room(&self) -> bool {
        self.room() > FRAME_HEADER_BYTES
    }

    /// Returns the slot to the front. Everything written so far is the response.
    pub fn done(mut self) -> Bell {
        self.make_visible();
        self.head()
            .state
            .store(state::with_child(state::DONE, self.me), Ordering::Release);
        notify(self.region, self.front, self.slot)
    }
}
