//! The front's side of a pool's memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use howdah_os::mapping::SharedMemory;

use super::layout::{
    BITMAP_WORDS, FrontRing, Geometry, GeometryError, RING_ENTRIES, SlotHead, entry, state,
};
use super::{Bell, ChildId, FutexWake, RING_BYTES, Region, STUCK_AFTER_NS};
use crate::request::{MAX_FRAME_BYTES, RequestFrame};
use crate::shared_cache;

/// The state of a slot, as the front reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// The front may fill the slot with a request.
    Free,
    /// The request is published and no child has claimed it yet.
    Ready,
    /// This child has claimed the request and is working on it.
    Claimed(ChildId),
    /// The child has finished the request; its last bytes are in the response ring.
    Done(ChildId),
    /// An undefined value: the memory is corrupt.
    Corrupt,
}

/// The memory contains an impossible value (a position beyond its ring). Logs name it `ResponseCorrupt`; the child that
/// owns the slot must be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// One front thread's rings and slots. [`Region::create`] makes exactly one for each thread. If a pool keeps it
/// together with the thread's requests, under their lock, then two threads can never publish in one slot. (If they did,
/// the request would be garbled, but no memory would be harmed.)
#[derive(Debug)]
pub struct FrontPort {
    region: Region,
    front: u32,
    /// The position that is filled next. Only this thread writes the copy in shared memory.
    head: AtomicU32,
}

impl Region {
    /// Initialises fresh, zeroed memory. The front calls this once per pool. Returns the only ports of its front
    /// threads.
    ///
    /// # Errors
    /// The geometry is out of range or does not fit the memory, or the memory is in use.
    pub fn create(
        memory: Arc<dyn SharedMemory>,
        geometry: Geometry,
    ) -> Result<(Region, Vec<FrontPort>), GeometryError> {
        let region = Region::initialise(memory, geometry)?;
        let port = |front| FrontPort {
            region: region.clone(),
            front,
            head: AtomicU32::new(0),
        };
        let ports = (0..geometry.fronts).map(port).collect();
        Ok((region, ports))
    }
}

impl FrontPort {
    fn ring(&self) -> &FrontRing {
        self.region.ring(self.front)
    }

    fn slot(&self, slot: u32) -> &SlotHead {
        self.region.slot(self.front, slot)
    }

    /// Returns the number of slots of this front thread.
    pub fn slots(&self) -> u32 {
        self.region.geometry().slots
    }

    /// Returns whether one more request can be published. There is no room if very many requests were cancelled behind
    /// one that waits for a child; there is room again when that one has been claimed or cancelled.
    pub fn has_room(&self) -> bool {
        // Each publication advances the tail as far as it can, so the first comparison nearly always suffices.
        self.ready_ring_length() < RING_ENTRIES as u32 || self.unclaimed() < RING_ENTRIES as u32
    }

    /// Returns the number of entries from the tail to the head. If it exceeds the ring, the tail is invalid.
    fn ready_ring_length(&self) -> u32 {
        let tail = self.ring().tail.0.load(Ordering::Acquire);
        self.head.load(Ordering::Relaxed).wrapping_sub(tail)
    }

    /// Writes a request into a free slot and offers it to the children. The ring must have room. The body, if there is
    /// one, follows with [`FrontPort::write_body`] and [`FrontPort::end_body`]; `body_complete` means that there is
    /// none. Call [`PoolPort::choose_wake`] afterwards.
    pub fn publish(&self, slot: u32, frame: &RequestFrame, body_complete: bool) {
        let bytes = frame.as_bytes();
        assert!(bytes.len() <= MAX_FRAME_BYTES);
        let head = self.slot(slot);
        self.region.frame(self.front, slot).write(0, bytes);
        head.frame_len.store(bytes.len() as u32, Ordering::Relaxed);
        head.aborted.store(0, Ordering::Relaxed);
        head.begun.store(0, Ordering::Relaxed);
        head.body_end
            .store(u32::from(body_complete), Ordering::Relaxed);
        head.child_waiting.store(0, Ordering::Relaxed);
        head.front_wants_body_space.store(0, Ordering::Relaxed);
        for position in [&head.body_w, &head.body_r, &head.resp_w, &head.resp_r] {
            position.0.store(0, Ordering::Relaxed);
        }
        let ring = self.ring();
        let at = self.head.load(Ordering::Relaxed);
        let entry = entry::new(slot, at);
        head.state.store(state::ready(entry), Ordering::Release);
        self.step_over_claimed();
        ring.entries[at as usize % RING_ENTRIES].store(entry, Ordering::Release);
        // SeqCst pairs with the child's parked bit: either the child sees this entry, or the front sees that the child
        // sleeps.
        self.head.store(at.wrapping_add(1), Ordering::Relaxed);
        ring.head.0.store(at.wrapping_add(1), Ordering::SeqCst);
    }

    /// Returns whether the positions of the ready ring are possible. Call it under the lock that publishes.
    pub fn is_intact(&self) -> bool {
        let ring = self.ring();
        let head = self.head.load(Ordering::Relaxed);
        let length = head.wrapping_sub(ring.tail.0.load(Ordering::Acquire));
        ring.head.0.load(Ordering::Relaxed) == head && length as usize <= RING_ENTRIES
    }

    /// Resets this front thread's ring and slots to their initial state, after all processes of the pool have exited.
    /// After this, all slots are free.
    pub fn reset(&self) {
        let ring = self.ring();
        self.head.store(0, Ordering::Relaxed);
        ring.head.0.store(0, Ordering::Relaxed);
        ring.tail.0.store(0, Ordering::Relaxed);
        // Marked as sleeping, so the next notification rings the bell once even if the thread is awake.
        ring.sleeping.0.store(1, Ordering::Relaxed);
        for word in &ring.notify.0 {
            word.store(0, Ordering::Relaxed);
        }
        for slot in 0..self.slots() {
            self.slot(slot).state.store(state::FREE, Ordering::Release);
        }
    }

    /// Advances the tail past entries that are no longer ready.
    fn step_over_claimed(&self) {
        let ring = self.ring();
        let head = self.head.load(Ordering::Relaxed);
        let mut tail = ring.tail.0.load(Ordering::Acquire);
        if head.wrapping_sub(tail) as usize > RING_ENTRIES {
            ring.tail.0.store(head, Ordering::Release);
            return;
        }
        while tail != head {
            let entry = ring.entries[tail as usize % RING_ENTRIES].load(Ordering::Acquire);
            let slot = entry::slot(entry);
            let ready = slot < self.slots()
                && self.slot(slot).state.load(Ordering::Acquire) == state::ready(entry);
            if ready {
                return;
            }
            match ring.tail.0.compare_exchange(
                tail,
                tail.wrapping_add(1),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => tail = tail.wrapping_add(1),
                // A child advanced the tail. A hostile child may write nonsense, so never loop because of its value.
                Err(other) if head.wrapping_sub(other) as usize <= RING_ENTRIES => tail = other,
                Err(_) => {
                    ring.tail.0.store(head, Ordering::Release);
                    return;
                }
            }
        }
    }

    /// Returns whether there are published requests that no child has claimed.
    pub fn has_unclaimed(&self) -> bool {
        self.step_over_claimed();
        self.ready_ring_length() != 0
    }

    /// Returns the number of published requests that no child has claimed, including cancelled ones that lie between
    /// them in the ring.
    pub fn unclaimed(&self) -> u32 {
        self.step_over_claimed();
        self.ready_ring_length().min(RING_ENTRIES as u32)
    }

    /// Cancels a published request, if no child has claimed it. If it returns `true`, the slot is free.
    pub fn cancel(&self, slot: u32) -> bool {
        let state = &self.slot(slot).state;
        let raw = state.load(Ordering::Acquire);
        state::tag(raw) == state::READY
            && state
                .compare_exchange(raw, state::FREE, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
    }

    /// Reads the state of a slot. The child in it is untrusted: the child itself wrote it.
    pub fn state(&self, slot: u32) -> SlotState {
        let raw = self.slot(slot).state.load(Ordering::Acquire);
        match state::tag(raw) {
            state::FREE => SlotState::Free,
            state::READY => SlotState::Ready,
            state::CLAIMED => SlotState::Claimed(state::child(raw)),
            state::DONE => SlotState::Done(state::child(raw)),
            _ => SlotState::Corrupt,
        }
    }

    /// Returns when the child began with this slot's request, according to the child: CLOCK_MONOTONIC nanoseconds, 0
    /// before. Untrusted, like everything that a child writes.
    pub fn begun_ns(&self, slot: u32) -> u64 {
        self.slot(slot).begun.load(Ordering::Relaxed)
    }

    /// Marks a slot as if its child had notified. The front is not finished with the slot but handles others first.
    pub fn notify_again(&self, slot: u32) {
        self.ring().notify.0[slot as usize / 64].fetch_or(1 << (slot % 64), Ordering::SeqCst);
    }

    /// Frees a slot that is done or cancelled, or whose child has been reaped. The used part of its contents is wiped,
    /// because all scripts of a pool have this memory mapped, and the next script must not find a visitor's cookies,
    /// form or page there. A child that writes false positions can prevent the wipe only of data that it could have
    /// copied anyway.
    pub fn free(&self, slot: u32) {
        let head = self.slot(slot);
        let used =
            |position: &AtomicU64| position.load(Ordering::Relaxed).min(RING_BYTES as u64) as usize;
        let frame = head.frame_len.load(Ordering::Relaxed) as usize;
        self.region
            .frame(self.front, slot)
            .wipe(frame.min(MAX_FRAME_BYTES));
        self.region
            .body_ring(self.front, slot)
            .wipe(used(&head.body_w.0));
        // A child that died may have written data that it had not published.
        let died = state::tag(head.state.load(Ordering::Relaxed)) == state::CLAIMED;
        let answered = if died {
            RING_BYTES
        } else {
            used(&head.resp_w.0)
        };
        self.region.response_ring(self.front, slot).wipe(answered);
        head.state.store(state::FREE, Ordering::Release);
    }

    /// Appends the response bytes since the last call to `out`, at most `max`, and releases their room in the ring.
    /// Returns the number of bytes and the child to wake if it waits for room.
    ///
    /// # Errors
    /// The positions in the shared memory are impossible.
    pub fn read_response(
        &self,
        slot: u32,
        out: &mut Vec<u8>,
        max: usize,
    ) -> Result<(usize, FutexWake<'_>), Corrupt> {
        let head = self.slot(slot);
        let w = head.resp_w.0.load(Ordering::Acquire);
        let r = head.resp_r.0.load(Ordering::Relaxed);
        let available = w.wrapping_sub(r);
        if available > RING_BYTES as u64 {
            return Err(Corrupt);
        }
        let take = (available as usize).min(max);
        if take == 0 {
            return Ok((0, FutexWake(None)));
        }
        let start = out.len();
        out.resize(start + take, 0);
        self.region
            .response_ring(self.front, slot)
            .get(r, &mut out[start..]);
        head.resp_r.0.store(r + take as u64, Ordering::SeqCst);
        Ok((take, self.wake_waiting_child(head)))
    }

    /// Copies body bytes into the slot. Returns the number of bytes that fitted and the child to wake. If not all
    /// fitted, the slot notifies as soon as there is room.
    ///
    /// # Errors
    /// The positions in the shared memory are impossible.
    pub fn write_body(&self, slot: u32, bytes: &[u8]) -> Result<(usize, FutexWake<'_>), Corrupt> {
        let head = self.slot(slot);
        let w = head.body_w.0.load(Ordering::Relaxed);
        let mut room = self.body_room(head, w)?;
        if room < bytes.len() {
            head.front_wants_body_space.store(1, Ordering::SeqCst);
            room = self.body_room(head, w)?;
        }
        let take = room.min(bytes.len());
        if take == 0 {
            return Ok((0, FutexWake(None)));
        }
        self.region
            .body_ring(self.front, slot)
            .put(w, &bytes[..take]);
        head.body_w.0.store(w + take as u64, Ordering::SeqCst);
        Ok((take, self.wake_waiting_child(head)))
    }

    fn body_room(&self, head: &SlotHead, w: u64) -> Result<usize, Corrupt> {
        let used = w.wrapping_sub(head.body_r.0.load(Ordering::SeqCst));
        if used > RING_BYTES as u64 {
            return Err(Corrupt);
        }
        Ok(RING_BYTES - used as usize)
    }

    /// Ends the body: it is `complete`, or it is cut off because the client disconnected.
    pub fn end_body(&self, slot: u32, complete: bool) -> FutexWake<'_> {
        let head = self.slot(slot);
        head.body_end
            .store(if complete { 1 } else { 2 }, Ordering::SeqCst);
        self.wake_waiting_child(head)
    }

    /// Tells the child that the client is gone and its response is discarded.
    pub fn abort(&self, slot: u32) -> FutexWake<'_> {
        let head = self.slot(slot);
        head.aborted.store(1, Ordering::SeqCst);
        self.wake_waiting_child(head)
    }

    fn wake_waiting_child<'a>(&self, head: &'a SlotHead) -> FutexWake<'a> {
        fence(Ordering::SeqCst);
        if head.child_waiting.load(Ordering::SeqCst) == 0 {
            return FutexWake(None);
        }
        head.child_waiting.store(0, Ordering::SeqCst);
        head.child_seq.fetch_add(1, Ordering::SeqCst);
        FutexWake(Some(&head.child_seq))
    }

    /// Calls `each` for every slot that was notified since the last call. Returns whether there was any.
    pub fn take_notified(&self, mut each: impl FnMut(u32)) -> bool {
        let words = (self.slots() as usize).div_ceil(64);
        let mut any = false;
        for (i, word) in self.ring().notify.0[..words].iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::SeqCst);
            while bits != 0 {
                let slot = i as u32 * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                if slot < self.slots() {
                    any = true;
                    each(slot);
                }
            }
        }
        any
    }

    /// Announces that the thread will sleep. Returns `false` if something has happened meanwhile; the thread must not
    /// sleep then.
    pub fn go_to_sleep(&self) -> bool {
        let ring = self.ring();
        ring.sleeping.0.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let words = (self.slots() as usize).div_ceil(64);
        if ring.notify.0[..words]
            .iter()
            .any(|w| w.load(Ordering::SeqCst) != 0)
        {
            ring.sleeping.0.store(0, Ordering::SeqCst);
            return false;
        }
        true
    }

    /// Announces that the thread is awake and needs no bell.
    pub fn woke_up(&self) {
        self.ring().sleeping.0.store(0, Ordering::SeqCst);
    }
}

/// Operations on the pool as a whole: which child to wake, the scoreboard.
#[derive(Clone, Debug)]
pub struct PoolPort {
    region: Region,
}

impl PoolPort {
    /// Creates the view of the pool with the memory `region`.
    pub fn new(region: Region) -> PoolPort {
        PoolPort { region }
    }

    /// Decides whether a child must be woken for a request that was just published. Wakes none if no child sleeps, or
    /// if `budget` children (about the number of cores) are awake and not stuck in one job for longer than
    /// [`STUCK_AFTER_NS`], since these check the rings before they sleep. While requests stay unclaimed, call it again
    /// every millisecond or so, because a child that was awake may have become stuck.
    pub fn choose_wake(&self, now_ns: u64, budget: u32) -> FutexWake<'_> {
        fence(Ordering::SeqCst);
        let header = self.region.header();
        let words = (self.region.geometry().children as usize).div_ceil(64);
        let mut sleeper = None;
        let mut awake = 0;
        for i in 0..words {
            let parked = header.parked.0[i].load(Ordering::SeqCst);
            if sleeper.is_none() && parked != 0 {
                sleeper = Some(i);
            }
        }
        let Some(first) = sleeper else {
            return FutexWake(None);
        };
        for i in 0..words {
            let parked = header.parked.0[i].load(Ordering::Relaxed);
            let mut bits = header.live.0[i].load(Ordering::Relaxed) & !parked;
            while bits != 0 {
                let index = i * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if index >= self.region.geometry().children as usize {
                    break;
                }
                let since = self
                    .region
                    .child(index as u16)
                    .busy_since
                    .load(Ordering::Relaxed);
                if since == 0 || now_ns.saturating_sub(since) < STUCK_AFTER_NS {
                    awake += 1;
                    if awake >= budget {
                        return FutexWake(None);
                    }
                }
            }
        }
        for i in first..words {
            loop {
                let parked = header.parked.0[i].load(Ordering::SeqCst);
                if parked == 0 {
                    break;
                }
                let index = i as u32 * 64 + parked.trailing_zeros();
                if index >= self.region.geometry().children {
                    header.parked.0[i].fetch_and(!(1 << (index % 64)), Ordering::SeqCst);
                    continue;
                }
                if let Some(futex) = self.unpark(index as u16) {
                    return FutexWake(Some(futex));
                }
            }
        }
        FutexWake(None)
    }

    /// Returns the number of children that sleep and have not been woken yet.
    pub fn sleepers(&self) -> u32 {
        let words = (self.region.geometry().children as usize).div_ceil(64);
        self.region.header().parked.0[..words]
            .iter()
            .map(|w| w.load(Ordering::SeqCst).count_ones())
            .sum()
    }

    fn unpark(&self, index: u16) -> Option<&AtomicU32> {
        let bit = 1u64 << (index % 64);
        let word = &self.region.header().parked.0[index as usize / 64];
        if word.fetch_and(!bit, Ordering::SeqCst) & bit == 0 {
            return None;
        }
        let park = &self.region.child(index).park;
        park.fetch_add(1, Ordering::SeqCst);
        Some(park)
    }

    /// Invalidates all values of the shared cache.
    pub fn invalidate_shared_cache(&self) {
        let header = self.region.header();
        header.shared_cache_epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the contents and counters of the shared cache, or `None` if the pool has none.
    pub fn shared_cache_info(&self) -> Option<shared_cache::SharedCacheInfo> {
        let parts = shared_cache::SharedCacheParts::of(self.region.shared_cache())?;
        Some(parts.info())
    }

    /// Returns whether children may use the shared cache.
    pub fn shared_cache_is_open(&self) -> bool {
        self.region.shared_cache_is_open()
    }

    /// Allows or forbids children to use the shared cache.
    pub fn set_shared_cache_open(&self, open: bool) {
        let closed = u32::from(!open);
        let header = self.region.header();
        header.shared_cache_closed.store(closed, Ordering::SeqCst);
    }

    /// Prepares a scoreboard row for a process that is about to be forked.
    pub fn prepare_row(&self, child: ChildId) {
        self.remove_child(child.index);
        let entry = self.region.child(child.index);
        entry.retire.store(0, Ordering::Relaxed);
        entry.spent.store(0, Ordering::Relaxed);
        entry.busy_since.store(0, Ordering::Relaxed);
        entry.requests.store(0, Ordering::Relaxed);
        entry
            .incarnation
            .store(u32::from(child.incarnation), Ordering::SeqCst);
    }

    /// Removes a dead process from the scoreboard.
    pub fn remove_child(&self, index: u16) {
        strike(&self.region, index);
    }

    /// Returns whether the constant words of the header still have their initial values.
    pub fn is_intact(&self) -> bool {
        self.region.header_is_intact()
    }

    /// Resets the memory that does not belong to a front thread to its initial state, after all processes of the pool
    /// have exited. `epoch` must be a value that the shared cache has not had yet.
    pub fn reset(&self, epoch: u64) {
        self.region.reset_header(epoch);
    }

    /// Wakes a child that sleeps between jobs, whatever its row says. A child that does not sleep is not disturbed.
    pub fn force_wake(&self, index: u16) -> FutexWake<'_> {
        let park = &self.region.child(index).park;
        park.fetch_add(1, Ordering::SeqCst);
        FutexWake(Some(park))
    }

    /// Asks a child to exit when it is idle, and wakes it if it sleeps.
    pub fn retire(&self, index: u16) -> FutexWake<'_> {
        self.region.child(index).retire.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        FutexWake(self.unpark(index))
    }

    /// Returns a child's row. The child writes it, so it is untrusted: use it for scheduling and display only.
    pub fn child_status(&self, index: u16) -> ChildStatus {
        let entry = self.region.child(index);
        let word = |w: &[AtomicU64; BITMAP_WORDS]| {
            w[index as usize / 64].load(Ordering::Relaxed) & (1 << (index % 64)) != 0
        };
        ChildStatus {
            live: word(&self.region.header().live.0),
            parked: word(&self.region.header().parked.0),
            spent: entry.spent.load(Ordering::Relaxed) != 0,
            busy_since: match entry.busy_since.load(Ordering::Relaxed) {
                0 => None,
                ns => Some(ns),
            },
            requests: entry.requests.load(Ordering::Relaxed),
        }
    }
}

/// A child's row of the scoreboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildStatus {
    /// Whether the child is in its loop and can claim requests.
    pub live: bool,
    /// Whether the child sleeps between jobs and has not been woken yet.
    pub parked: bool,
    /// Whether the child has begun the last of its `max_requests`, or is about to, and wants to be replaced.
    pub spent: bool,
    /// When the child began its current job, in CLOCK_MONOTONIC nanoseconds. The job includes shutdown functions after
    /// `fastcgi_finish_request()`.
    pub busy_since: Option<u64>,
    /// The number of jobs that this process has finished.
    pub requests: u64,
}

/// Removes a process from the scoreboard: it is not awake and is not woken any more. Does nothing for a row that does
/// not exist.
pub(super) fn strike(region: &Region, index: u16) {
    let bit = 1u64 << (index % 64);
    let (header, word) = (region.header(), index as usize / 64);
    if word < BITMAP_WORDS {
        header.live.0[word].fetch_and(!bit, Ordering::SeqCst);
        header.parked.0[word].fetch_and(!bit, Ordering::SeqCst);
    }
}

/// Marks the slot as notified. Returns whether the bell of front thread `front` must be rung because the thread sleeps.
pub(super) fn notify(region: &Region, front: u32, slot: u32) -> Bell {
    let ring = region.ring(front);
    ring.notify.0[slot as usize / 64].fetch_or(1 << (slot % 64), Ordering::SeqCst);
    fence(Ordering::SeqCst);
    Bell(
        ring.sleeping.0.load(Ordering::SeqCst) == 1
            && ring.sleeping.0.swap(0, Ordering::SeqCst) == 1,
    )
}
