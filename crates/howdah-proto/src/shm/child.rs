//! The PHP process's side of a pool's memory. Trusts the front.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::front::{notify, strike};
use super::layout::{ENTRIES, SlotHead, state};
use super::{Bell, ChildId, RING, Region};
use crate::response::{FRAME_HEADER, kind};

/// A child's place in the pool.
#[derive(Clone, Copy, Debug)]
pub struct ChildPort {
    region: Region,
    me: ChildId,
}

/// A claimed request. The slot is this child's until [`Claim::done`].
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    region: Region,
    me: ChildId,
    front: u32,
    slot: u32,
}

impl ChildPort {
    /// The child `me`, whose row the front has prepared. Makes it eligible for wake-ups.
    pub fn enter(region: Region, me: ChildId) -> ChildPort {
        let bit = 1u64 << (me.index % 64);
        region.header().live.0[me.index as usize / 64].fetch_or(bit, Ordering::SeqCst);
        ChildPort { region, me }
    }

    /// The row and incarnation of this child.
    pub fn id(&self) -> ChildId {
        self.me
    }

    /// Claims the oldest ready request of the first front thread that has one, beginning at
    /// `start` (vary it, so that no thread is favoured).
    pub fn claim(&self, start: u32) -> Option<Claim> {
        let fronts = self.region.geometry().fronts;
        (0..fronts).find_map(|i| self.claim_from((start + i) % fronts))
    }

    fn claim_from(&self, front: u32) -> Option<Claim> {
        let ring = self.region.ring(front);
        loop {
            let tail = ring.tail.0.load(Ordering::Acquire);
            if tail == ring.head.0.load(Ordering::SeqCst) {
                return None;
            }
            let slot = ring.entries[tail as usize % ENTRIES].load(Ordering::Acquire);
            let taken = slot < self.region.geometry().slots && {
                let head = self.region.slot(front, slot);
                let mine = state::with_child(state::CLAIMED, self.me);
                head.state
                    .compare_exchange(state::READY, mine, Ordering::AcqRel, Ordering::Acquire)
                    .is_ok()
            };
            // Whoever comes first steps over the entry; that it was us does not matter.
            let _ = ring.tail.0.compare_exchange(
                tail,
                tail.wrapping_add(1),
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            if taken {
                return Some(Claim {
                    region: self.region,
                    me: self.me,
                    front,
                    slot,
                });
            }
        }
    }

    /// Announces sleep; returns the futex word and the value to wait on. The caller must look at
    /// the rings (and [`ChildPort::must_retire`]) once more before it waits, and call
    /// [`ChildPort::unpark`] when it does not wait or has been woken.
    pub fn park(&self) -> (&AtomicU32, u32) {
        let park = &self.region.child(self.me.index).park;
        let seen = park.load(Ordering::SeqCst);
        let bit = 1u64 << (self.me.index % 64);
        self.region.header().parked.0[self.me.index as usize / 64].fetch_or(bit, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        (park, seen)
    }

    /// Takes back the announcement of [`ChildPort::park`].
    pub fn unpark(&self) {
        let bit = 1u64 << (self.me.index % 64);
        self.region.header().parked.0[self.me.index as usize / 64]
            .fetch_and(!bit, Ordering::SeqCst);
    }

    /// How many front threads there are; the bell behind theirs is the supervisor's.
    pub fn fronts(&self) -> u32 {
        self.region.geometry().fronts
    }

    /// Whether the front wants this child to leave.
    pub fn must_retire(&self) -> bool {
        self.region
            .child(self.me.index)
            .retire
            .load(Ordering::SeqCst)
            != 0
    }

    /// Takes this child off the scoreboard: it claims nothing more, and nobody need wait for its end
    /// to see that it is not awake.
    pub fn leave(&self) {
        strike(self.region, self.me.index);
    }

    /// Asks for a replacement: `max_requests` is reached, or is about to be.
    pub fn mark_spent(&self) {
        self.region
            .child(self.me.index)
            .spent
            .store(1, Ordering::Relaxed);
    }

    /// Marks the start of a job, CLOCK_MONOTONIC nanoseconds.
    pub fn begin_job(&self, now_ns: u64) {
        self.region
            .child(self.me.index)
            .busy_since
            .store(now_ns, Ordering::Relaxed);
    }

    /// Marks the end of a job; returns how many this process has done.
    pub fn end_job(&self) -> u64 {
        let entry = self.region.child(self.me.index);
        entry.busy_since.store(0, Ordering::Relaxed);
        let done = entry.requests.load(Ordering::Relaxed) + 1;
        entry.requests.store(done, Ordering::Relaxed);
        done
    }
}

/// What a read of the request body gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyRead {
    /// This many bytes were copied into the buffer.
    Bytes(usize),
    /// No bytes are there yet; the child has to wait for the front.
    Pending,
    /// The script has read the whole body.
    End,
    /// The client went away; the body will never be complete.
    CutOff,
}

impl Claim {
    fn head(&self) -> &SlotHead {
        self.region.slot(self.front, self.slot)
    }

    /// The request frame, in place: valid and unchanging until [`Claim::done`].
    pub fn frame(&self) -> *const u8 {
        self.region.frame_ptr(self.front, self.slot)
    }

    /// Which front thread's bell belongs to this request.
    pub fn front(&self) -> u32 {
        self.front
    }

    /// Tells the front when the request was taken up (the clock of [`ChildPort::begin_job`]): for
    /// the queue time in its access log.
    pub fn begun(&self, now_ns: u64) {
        self.head().begun.store(now_ns, Ordering::Relaxed);
    }

    /// Whether the client is gone.
    pub fn aborted(&self) -> bool {
        self.head().aborted.load(Ordering::Relaxed) != 0
    }

    /// Takes body bytes; the bell tells the front that there is room again.
    pub fn read_body(&self, out: &mut [u8]) -> (BodyRead, Bell) {
        let head = self.head();
        // Order: the end first, so that bytes written before it are never missed.
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

    /// Announces that the child will sleep until the front reads, writes or aborts. The caller
    /// must check once more what it waits for, then `FUTEX_WAIT` on the word for the value.
    pub fn prepare_wait(&self) -> (&AtomicU32, u32) {
        let head = self.head();
        let seen = head.child_seq.load(Ordering::SeqCst);
        head.child_waiting.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        (&head.child_seq, seen)
    }

    /// Takes back the announcement of [`Claim::prepare_wait`].
    pub fn end_wait(&self) {
        self.head().child_waiting.store(0, Ordering::SeqCst);
    }

    /// Hands the slot back. Everything published is the answer; the child may not touch the slot
    /// any more.
    pub fn done(self, writer: &mut ResponseWriter) -> Bell {
        writer.store_position(&self);
        let head = self.head();
        head.state
            .store(state::with_child(state::DONE, self.me), Ordering::Release);
        notify(self.region, self.front, self.slot)
    }
}

/// Writes response frames into a claim's ring. Small writes gather in one body frame; nothing is
/// seen by the front before [`ResponseWriter::publish`].
#[derive(Debug, Default)]
pub struct ResponseWriter {
    /// End of what is written, published or not.
    w: u64,
    /// Position of the open body frame's length field, and its length so far.
    open_body: Option<(u64, u32)>,
}

impl ResponseWriter {
    fn room(&self, claim: &Claim) -> usize {
        let r = claim.head().resp_r.0.load(Ordering::SeqCst);
        RING - (self.w - r) as usize
    }

    fn put(&mut self, claim: &Claim, bytes: &[u8]) {
        claim
            .region
            .response_ring(claim.front, claim.slot)
            .put(self.w, bytes);
        self.w += bytes.len() as u64;
    }

    fn close_body(&mut self, claim: &Claim) {
        if let Some((at, len)) = self.open_body.take() {
            claim
                .region
                .response_ring(claim.front, claim.slot)
                .put(at, &len.to_ne_bytes());
        }
    }

    /// Appends body bytes; returns how many fitted. Zero means: publish, then wait for room.
    pub fn body(&mut self, claim: &Claim, bytes: &[u8]) -> usize {
        let mut room = self.room(claim);
        if self.open_body.is_none() {
            if room <= FRAME_HEADER {
                return 0;
            }
            self.put(claim, &kind::BODY.to_ne_bytes());
            self.open_body = Some((self.w, 0));
            self.put(claim, &[0; 4]);
            room -= FRAME_HEADER;
        }
        let take = room.min(bytes.len());
        self.put(claim, &bytes[..take]);
        if let Some((_, len)) = &mut self.open_body {
            *len += take as u32;
        }
        take
    }

    /// Begins a frame of another kind whose payload of `len` bytes follows by
    /// [`ResponseWriter::payload`]. Returns `false` when there is no room for its header yet.
    pub fn begin(&mut self, claim: &Claim, kind: u32, len: u32) -> bool {
        if self.room(claim) < FRAME_HEADER {
            return false;
        }
        self.close_body(claim);
        self.put(claim, &kind.to_ne_bytes());
        self.put(claim, &len.to_ne_bytes());
        true
    }

    /// Appends payload bytes of a begun frame; returns how many fitted.
    pub fn payload(&mut self, claim: &Claim, bytes: &[u8]) -> usize {
        let take = self.room(claim).min(bytes.len());
        self.put(claim, &bytes[..take]);
        take
    }

    fn store_position(&mut self, claim: &Claim) {
        self.close_body(claim);
        claim.head().resp_w.0.store(self.w, Ordering::Release);
    }

    /// Lets the front see everything written so far when it looks, without telling it to: what a
    /// child has done must not be lost with it, and is not worth a wake-up.
    pub fn show(&mut self, claim: &Claim) {
        self.store_position(claim);
    }

    /// Shows the front everything written so far.
    pub fn publish(&mut self, claim: &Claim) -> Bell {
        self.store_position(claim);
        notify(claim.region, claim.front, claim.slot)
    }

    /// Whether the front has taken everything that was published, or nothing fits any more.
    pub fn has_room(&self, claim: &Claim) -> bool {
        self.room(claim) > FRAME_HEADER
    }
}
