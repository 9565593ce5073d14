//! The front's side of a pool's memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::layout::{
    ENTRIES, FrontRing, Geometry, GeometryError, SharedMemory, SlotHead, WORDS, entry, state,
};
use super::{Bell, ChildId, RING, Region, STUCK_AFTER_NS, Wake};
use crate::request::{MAX_FRAME, RequestFrame};
use crate::shared_cache;

/// What a slot is in, as the front reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// The front may fill the slot with a request.
    Free,
    /// The request is published and no child has claimed it yet.
    Ready,
    /// This child has claimed the request and works on it.
    Claimed(ChildId),
    /// The child has finished the request; its last bytes are in the response ring.
    Done(ChildId),
    /// A value nobody writes: the memory is corrupt.
    Corrupt,
}

/// The memory said something impossible (a position beyond its ring). Named `ResponseCorrupt` in
/// logs; the child that owns the slot is to be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// One front thread's rings and slots. [`Region::create`] makes one for each thread, and there is no
/// other: a pool that keeps it with the thread's requests, under their lock, keeps two threads from
/// publishing in one slot. (If they did, its request would be garbled, and no memory harmed.)
#[derive(Debug)]
pub struct FrontPort {
    region: Region,
    front: u32,
    /// The position that is filled next: what stands in the memory is written by this thread alone.
    head: AtomicU32,
}

impl Region {
    /// Initialises fresh, zeroed memory (the front, once per pool), and hands out the ports of its front
    /// threads: there are no others.
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

    /// Number of slots of this front thread.
    pub fn slots(&self) -> u32 {
        self.region.geometry().slots
    }

    /// Whether one more request can be offered. Not, if very many were cancelled behind one that waits for
    /// a child; there is room again when it has been claimed or cancelled.
    pub fn has_room(&self) -> bool {
        // Each publication steps over what it can: nearly always that is enough.
        self.length() < ENTRIES as u32 || self.unclaimed() < ENTRIES as u32
    }

    /// Entries from the tail to the head. More than there are: the tail is nonsense.
    fn length(&self) -> u32 {
        let tail = self.ring().tail.0.load(Ordering::Acquire);
        self.head.load(Ordering::Relaxed).wrapping_sub(tail)
    }

    /// Writes a request into a free slot and offers it to the children; the ring has room. The body, if any, is
    /// fed by [`FrontPort::write_body`] and [`FrontPort::end_body`]; `body_complete` says there
    /// is none. Follow with [`PoolPort::choose_wake`].
    pub fn publish(&self, slot: u32, frame: &RequestFrame, body_complete: bool) {
        let bytes = frame.as_bytes();
        assert!(bytes.len() <= MAX_FRAME);
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
        ring.entries[at as usize % ENTRIES].store(entry, Ordering::Release);
        // SeqCst pairs with the child's parked bit: either it sees this entry, or we see it asleep.
        self.head.store(at.wrapping_add(1), Ordering::Relaxed);
        ring.head.0.store(at.wrapping_add(1), Ordering::SeqCst);
    }

    /// Whether the positions of the ready ring are possible. Under the lock that publishes.
    pub fn is_intact(&self) -> bool {
        let ring = self.ring();
        let head = self.head.load(Ordering::Relaxed);
        let length = head.wrapping_sub(ring.tail.0.load(Ordering::Acquire));
        ring.head.0.load(Ordering::Relaxed) == head && length as usize <= ENTRIES
    }

    /// Writes this front thread's ring and slots as they were at the start, once no process of the pool is
    /// left. All slots are free.
    pub fn renew(&self) {
        let ring = self.ring();
        self.head.store(0, Ordering::Relaxed);
        ring.head.0.store(0, Ordering::Relaxed);
        ring.tail.0.store(0, Ordering::Relaxed);
        // Whoever sleeps is rung for, once.
        ring.sleeping.0.store(1, Ordering::Relaxed);
        for word in &ring.notify.0 {
            word.store(0, Ordering::Relaxed);
        }
        for slot in 0..self.slots() {
            self.slot(slot).state.store(state::FREE, Ordering::Release);
        }
    }

    /// Moves the tail over entries that are no longer ready.
    fn step_over_claimed(&self) {
        let ring = self.ring();
        let head = self.head.load(Ordering::Relaxed);
        let mut tail = ring.tail.0.load(Ordering::Acquire);
        if head.wrapping_sub(tail) as usize > ENTRIES {
            ring.tail.0.store(head, Ordering::Release);
            return;
        }
        while tail != head {
            let entry = ring.entries[tail as usize % ENTRIES].load(Ordering::Acquire);
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
                // A child wrote it. A hostile one may write nonsense: never loop on its word.
                Err(other) if head.wrapping_sub(other) as usize <= ENTRIES => tail = other,
                Err(_) => {
                    ring.tail.0.store(head, Ordering::Release);
                    return;
                }
            }
        }
    }

    /// Whether published requests wait that nobody has claimed.
    pub fn has_unclaimed(&self) -> bool {
        self.step_over_claimed();
        self.length() != 0
    }

    /// How many published requests nobody has claimed, cancelled ones that still stand between
    /// them included.
    pub fn unclaimed(&self) -> u32 {
        self.step_over_claimed();
        self.length().min(ENTRIES as u32)
    }

    /// Takes a published request back, if no child has claimed it. On `true` the slot is free.
    pub fn cancel(&self, slot: u32) -> bool {
        let state = &self.slot(slot).state;
        let raw = state.load(Ordering::Acquire);
        state::tag(raw) == state::READY
            && state
                .compare_exchange(raw, state::FREE, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
    }

    /// Reads the state of a slot; the child in it is its own claim.
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

    /// When the child says that it began with this slot's request: CLOCK_MONOTONIC nanoseconds, 0
    /// before. Untrusted, like all that a child says.
    pub fn begun_ns(&self, slot: u32) -> u64 {
        self.slot(slot).begun.load(Ordering::Relaxed)
    }

    /// Marks a slot as if its child had notified: it is not done with, but others come first.
    pub fn notify_again(&self, slot: u32) {
        self.ring().notify.0[slot as usize / 64].fetch_or(1 << (slot % 64), Ordering::SeqCst);
    }

    /// Frees a slot that is done, taken back, or whose child has been reaped. What is in it is
    /// wiped, as far as it was used: all scripts of a pool have this memory mapped, and the next one
    /// is not to find a visitor's cookies, form or page there. A child that writes false positions
    /// keeps from the wipe what it could have copied.
    pub fn free(&self, slot: u32) {
        let head = self.slot(slot);
        let used =
            |position: &AtomicU64| position.load(Ordering::Relaxed).min(RING as u64) as usize;
        let frame = head.frame_len.load(Ordering::Relaxed) as usize;
        self.region
            .frame(self.front, slot)
            .wipe(frame.min(MAX_FRAME));
        self.region
            .body_ring(self.front, slot)
            .wipe(used(&head.body_w.0));
        // One that died may have written what it had not published.
        let died = state::tag(head.state.load(Ordering::Relaxed)) == state::CLAIMED;
        let answered = if died { RING } else { used(&head.resp_w.0) };
        self.region.response_ring(self.front, slot).wipe(answered);
        head.state.store(state::FREE, Ordering::Release);
    }

    /// Appends what the child has answered since the last call to `out`, at most `max` bytes, and
    /// gives the room back. Returns the number of bytes and the child to wake if it waits for room.
    pub fn read_response(
        &self,
        slot: u32,
        out: &mut Vec<u8>,
        max: usize,
    ) -> Result<(usize, Wake<'_>), Corrupt> {
        let head = self.slot(slot);
        let w = head.resp_w.0.load(Ordering::Acquire);
        let r = head.resp_r.0.load(Ordering::Relaxed);
        let available = w.wrapping_sub(r);
        if available > RING as u64 {
            return Err(Corrupt);
        }
        let take = (available as usize).min(max);
        if take == 0 {
            return Ok((0, Wake(None)));
        }
        let start = out.len();
        out.resize(start + take, 0);
        self.region
            .response_ring(self.front, slot)
            .get(r, &mut out[start..]);
        head.resp_r.0.store(r + take as u64, Ordering::SeqCst);
        Ok((take, self.wake_waiting_child(head)))
    }

    /// Copies body bytes into the slot; returns how many fitted and whom to wake. When not all
    /// fitted, the slot notifies as soon as there is room.
    pub fn write_body(&self, slot: u32, bytes: &[u8]) -> Result<(usize, Wake<'_>), Corrupt> {
        let head = self.slot(slot);
        let w = head.body_w.0.load(Ordering::Relaxed);
        let mut room = self.body_room(head, w)?;
        if room < bytes.len() {
            head.front_wants_body_space.store(1, Ordering::SeqCst);
            room = self.body_room(head, w)?;
        }
        let take = room.min(bytes.len());
        if take == 0 {
            return Ok((0, Wake(None)));
        }
        self.region
            .body_ring(self.front, slot)
            .put(w, &bytes[..take]);
        head.body_w.0.store(w + take as u64, Ordering::SeqCst);
        Ok((take, self.wake_waiting_child(head)))
    }

    fn body_room(&self, head: &SlotHead, w: u64) -> Result<usize, Corrupt> {
        let used = w.wrapping_sub(head.body_r.0.load(Ordering::SeqCst));
        if used > RING as u64 {
            return Err(Corrupt);
        }
        Ok(RING - used as usize)
    }

    /// Says that no more body comes: `complete`, or cut off because the client went away.
    pub fn end_body(&self, slot: u32, complete: bool) -> Wake<'_> {
        let head = self.slot(slot);
        head.body_end
            .store(if complete { 1 } else { 2 }, Ordering::SeqCst);
        self.wake_waiting_child(head)
    }

    /// Tells the child that nobody reads its answer any more.
    pub fn abort(&self, slot: u32) -> Wake<'_> {
        let head = self.slot(slot);
        head.aborted.store(1, Ordering::SeqCst);
        self.wake_waiting_child(head)
    }

    fn wake_waiting_child<'a>(&self, head: &'a SlotHead) -> Wake<'a> {
        fence(Ordering::SeqCst);
        if head.child_waiting.load(Ordering::SeqCst) == 0 {
            return Wake(None);
        }
        head.child_waiting.store(0, Ordering::SeqCst);
        head.child_seq.fetch_add(1, Ordering::SeqCst);
        Wake(Some(&head.child_seq))
    }

    /// Takes the slots at which something happened since the last call.
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

    /// Announces sleep. Returns `false` when something has happened meanwhile: then do not sleep.
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

    /// Announces that the thread is awake: no bell needed.
    pub fn woke_up(&self) {
        self.ring().sleeping.0.store(0, Ordering::SeqCst);
    }
}

/// What concerns the pool as a whole: which child to wake, the scoreboard.
#[derive(Clone, Debug)]
pub struct PoolPort {
    region: Region,
}

impl PoolPort {
    /// Creates the view of the pool whose memory `region` is.
    pub fn new(region: Region) -> PoolPort {
        PoolPort { region }
    }

    /// Decides whether a child must be woken for a request just published: none if nobody
    /// sleeps, or if `budget` children (about the number of cores) are awake and not stuck in
    /// one job for longer than [`STUCK_AFTER_NS`]; they look at the rings before they sleep.
    /// While requests stay unclaimed, ask again every millisecond or so: a child that was awake
    /// may have got stuck.
    pub fn choose_wake(&self, now_ns: u64, budget: u32) -> Wake<'_> {
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
            return Wake(None);
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
                        return Wake(None);
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
                    return Wake(Some(futex));
                }
            }
        }
        Wake(None)
    }

    /// How many children sleep and nobody has woken yet.
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

    /// Makes all values of the shared cache old.
    pub fn forget_shared_cache(&self) {
        let header = self.region.header();
        header.shared_cache_epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// What the shared cache holds; none if the pool has none.
    pub fn shared_cache_info(&self) -> Option<shared_cache::Info> {
        let parts = shared_cache::Parts::of(self.region.shared_cache())?;
        Some(parts.info())
    }

    /// Whether children may use the shared cache.
    pub fn shared_cache_is_open(&self) -> bool {
        self.region.shared_cache_is_open()
    }

    /// Lets children use the shared cache, or not.
    pub fn open_shared_cache(&self, open: bool) {
        let closed = u32::from(!open);
        let header = self.region.header();
        header.shared_cache_closed.store(closed, Ordering::SeqCst);
    }

    /// Prepares a scoreboard row for a process about to be forked.
    pub fn enlist(&self, child: ChildId) {
        self.strike(child.index);
        let entry = self.region.child(child.index);
        entry.retire.store(0, Ordering::Relaxed);
        entry.spent.store(0, Ordering::Relaxed);
        entry.busy_since.store(0, Ordering::Relaxed);
        entry.requests.store(0, Ordering::Relaxed);
        entry
            .incarnation
            .store(u32::from(child.incarnation), Ordering::SeqCst);
    }

    /// Takes a dead process off the scoreboard.
    pub fn strike(&self, index: u16) {
        strike(&self.region, index);
    }

    /// Whether the words that nobody changes are what they were.
    pub fn is_intact(&self) -> bool {
        self.region.header_is_intact()
    }

    /// Writes what is not a front thread's as it was at the start, once no process of the pool is left.
    /// `epoch`: one that the shared cache has not had yet.
    pub fn renew(&self, epoch: u64) {
        self.region.renew_header(epoch);
    }

    /// Wakes a child that sleeps between jobs, whatever the memory says of it. One that does not sleep is not
    /// disturbed.
    pub fn rouse(&self, index: u16) -> Wake<'_> {
        let park = &self.region.child(index).park;
        park.fetch_add(1, Ordering::SeqCst);
        Wake(Some(park))
    }

    /// Asks a child to leave when it is idle, and wakes it if it sleeps.
    pub fn retire(&self, index: u16) -> Wake<'_> {
        self.region.child(index).retire.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Wake(self.unpark(index))
    }

    /// A child's row: what it says of itself (untrusted, for scheduling and display).
    pub fn child(&self, index: u16) -> ChildStatus {
        let entry = self.region.child(index);
        let word = |w: &[AtomicU64; WORDS]| {
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

/// What a child's row of the scoreboard says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildStatus {
    /// The child is in its loop and can claim requests.
    pub live: bool,
    /// The child sleeps between jobs and nobody has woken it yet.
    pub parked: bool,
    /// Has begun the last of its `max_requests`, or is about to, and wants to be replaced.
    pub spent: bool,
    /// CLOCK_MONOTONIC nanoseconds since when it runs its present job (shutdown functions after
    /// `fastcgi_finish_request()` included).
    pub busy_since: Option<u64>,
    /// Number of jobs this process has finished.
    pub requests: u64,
}

/// Takes a process off the scoreboard: it is neither awake nor to be woken. Does nothing for a row that
/// does not exist.
pub(super) fn strike(region: &Region, index: u16) {
    let bit = 1u64 << (index % 64);
    let (header, word) = (region.header(), index as usize / 64);
    if word < WORDS {
        header.live.0[word].fetch_and(!bit, Ordering::SeqCst);
        header.parked.0[word].fetch_and(!bit, Ordering::SeqCst);
    }
}

/// Rings the bell of front thread `front` if it sleeps; the child's half of the doorbell, and the
/// front's own when one thread has work for another.
pub(super) fn notify(region: &Region, front: u32, slot: u32) -> Bell {
    let ring = region.ring(front);
    ring.notify.0[slot as usize / 64].fetch_or(1 << (slot % 64), Ordering::SeqCst);
    fence(Ordering::SeqCst);
    Bell(
        ring.sleeping.0.load(Ordering::SeqCst) == 1
            && ring.sleeping.0.swap(0, Ordering::SeqCst) == 1,
    )
}
