//! The layout of the shared memory, and [`Region`], the only access to it. Together with [`SharedMemory`], it contains
//! all `unsafe` of this module.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use howdah_os::mapping::SharedMemory;

use super::bytes::{ByteRing, SharedBytes};
use super::{RING_BYTES, VERSION};
use crate::request::MAX_FRAME_BYTES;

const MAGIC: u64 = u64::from_ne_bytes(*b"HOWDAH\x01\0");
/// The alignment of the parts of the memory. It does not depend on the size of the machine's pages, which may be larger.
const PAGE_BYTES: usize = 4096;
pub(super) const BITMAP_WORDS: usize = 16;
/// The number of entries of a ready ring: twice the slots, to leave room for entries that were claimed or cancelled and
/// that the tail has not passed yet. Many cancelled entries behind a ready one may fill the ring.
pub(super) const RING_ENTRIES: usize = 2 * Geometry::MAX_SLOTS as usize;

/// The dimensions of a pool's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The number of front threads, each with its own ready ring.
    pub fronts: u32,
    /// The number of slots of each front thread: how many requests it can have in flight or ready.
    pub slots: u32,
    /// The number of rows of the scoreboard: the maximum number of children that can live at once, including
    /// replacements.
    pub children: u32,
    /// The size of the cache that PHP shares, in words; 0 if there is none.
    pub shared_cache: u64,
}

/// Why a geometry or a mapping is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeometryError {
    /// A count is zero or above its maximum.
    OutOfRange,
    /// The mapping is shorter than the geometry needs.
    TooShort,
    /// The memory is not fresh: a front has already initialised it.
    InUse,
    /// The memory was not initialised by a front.
    NotAPool,
    /// The memory was initialised by a front of this other version.
    OtherVersion(u32),
}

impl Geometry {
    /// The maximum number of front threads.
    pub const MAX_FRONTS: u32 = 256;
    /// The maximum number of slots of one front thread.
    pub const MAX_SLOTS: u32 = 1024;
    /// The maximum number of rows of the scoreboard.
    pub const MAX_CHILDREN: u32 = 1024;
    /// The maximum size of a shared cache, in words.
    pub const MAX_SHARED_CACHE: u64 = 1 << 37;

    /// Checks that each count is at least 1 and at most its maximum.
    pub fn validate(&self) -> Result<(), GeometryError> {
        let ok = (1..=Self::MAX_FRONTS).contains(&self.fronts)
            && (1..=Self::MAX_SLOTS).contains(&self.slots)
            && (1..=Self::MAX_CHILDREN).contains(&self.children)
            && self.shared_cache <= Self::MAX_SHARED_CACHE;
        if ok {
            Ok(())
        } else {
            Err(GeometryError::OutOfRange)
        }
    }

    fn rings_at(&self) -> usize {
        PAGE_BYTES
    }
    fn children_at(&self) -> usize {
        round_up_to_page(self.rings_at() + self.fronts as usize * size_of::<FrontRing>())
    }
    fn slots_at(&self) -> usize {
        round_up_to_page(self.children_at() + self.children as usize * size_of::<ChildEntry>())
    }

    fn shared_cache_at(&self) -> usize {
        self.slots_at() + self.fronts as usize * self.slots as usize * SLOT_LEN
    }

    /// Returns the required length of the mapping in bytes. Most of it is never touched and so uses no physical memory.
    pub fn region_len(&self) -> usize {
        self.shared_cache_at() + self.shared_cache as usize * size_of::<u64>()
    }
}

const fn round_up_to_page(n: usize) -> usize {
    n.div_ceil(PAGE_BYTES) * PAGE_BYTES
}

/// A value in a cache line of its own. It is part of the layout, so its size must be the same everywhere.
#[repr(C, align(64))]
pub(super) struct CacheLine<T>(pub T);

#[repr(C)]
pub(super) struct PoolHeader {
    magic: AtomicU64,
    version: AtomicU32,
    fronts: AtomicU32,
    slots: AtomicU32,
    children: AtomicU32,
    shared_cache: AtomicU64,
    /// Increased by the front to invalidate the values of the shared cache.
    pub shared_cache_epoch: AtomicU64,
    /// 1: the shared cache must not be used, because processes outside the pool change the data that it would hold.
    pub shared_cache_closed: AtomicU32,
    /// One bit per child: it sleeps on its `park` futex and has not been woken yet.
    pub parked: CacheLine<[AtomicU64; BITMAP_WORDS]>,
    /// One bit per child: it is in its loop and can claim requests.
    pub live: CacheLine<[AtomicU64; BITMAP_WORDS]>,
}

#[repr(C)]
pub(super) struct FrontRing {
    /// The next position to fill. Only the front thread writes it.
    pub head: CacheLine<AtomicU32>,
    /// The first position that may hold a ready slot. Any process may advance it.
    pub tail: CacheLine<AtomicU32>,
    /// 1 while the front thread sleeps (or is about to) and needs its bell rung.
    pub sleeping: CacheLine<AtomicU32>,
    /// One bit per slot, set when a child has changed something in it.
    pub notify: CacheLine<[AtomicU64; BITMAP_WORDS]>,
    /// See [`entry`].
    pub entries: [AtomicU32; RING_ENTRIES],
}

/// A child's row in the scoreboard.
#[repr(C, align(128))]
pub(super) struct ChildEntry {
    /// Futex the child sleeps on between jobs.
    pub park: AtomicU32,
    /// 1: the child exits as soon as it is idle.
    pub retire: AtomicU32,
    /// 1: the child has begun the last of its `max_requests` and asks to be replaced.
    pub spent: AtomicU32,
    /// The number of the process that has this row, counted per row.
    pub incarnation: AtomicU32,
    /// CLOCK_MONOTONIC nanoseconds at which the current job began; 0 between jobs.
    pub busy_since: AtomicU64,
    /// The number of jobs that this process has finished.
    pub requests: AtomicU64,
}

#[repr(C, align(64))]
pub(super) struct SlotHead {
    /// The slot's state, encoded by the functions of [`state`].
    pub state: AtomicU32,
    /// Length of the request frame in bytes.
    pub frame_len: AtomicU32,
    /// 1: the client is gone; output is discarded and PHP may abort.
    pub aborted: AtomicU32,
    /// 0: more body may come; 1: `body_w` is the end; 2: the body will never be complete.
    pub body_end: AtomicU32,
    /// Futex the child sleeps on for response space or body bytes.
    pub child_seq: AtomicU32,
    /// 1 while the child sleeps on `child_seq`.
    pub child_waiting: AtomicU32,
    /// 1 while the front waits for space in the body ring.
    pub front_wants_body_space: AtomicU32,
    /// CLOCK_MONOTONIC nanoseconds at which the child began with the request; 0 before.
    pub begun: AtomicU64,
    pub body_w: CacheLine<AtomicU64>,
    pub body_r: CacheLine<AtomicU64>,
    pub resp_w: CacheLine<AtomicU64>,
    pub resp_r: CacheLine<AtomicU64>,
}

/// An entry of a ready ring: bits 0-9 are the slot, and the bits above are the low bits of the entry's position. The
/// slot's state also contains the position. Therefore the entry of a cancelled request is never mistaken for the next
/// request of the same slot, which has its own entry further back.
pub(super) mod entry {
    use super::Geometry;

    const SLOT_BITS: u32 = 10;
    const _: () = assert!(1 << SLOT_BITS == Geometry::MAX_SLOTS);

    pub fn new(slot: u32, position: u32) -> u32 {
        slot | (position << SLOT_BITS)
    }
    pub fn slot(raw: u32) -> u32 {
        raw & (Geometry::MAX_SLOTS - 1)
    }
    /// Returns the part of the position that the slot's state contains.
    pub fn position(raw: u32) -> u32 {
        raw >> SLOT_BITS
    }
}

/// Slot states as they are in memory. Bits 0-3 are the tag. In a ready slot, the bits above are the position of its
/// entry in the ring; in others, bits 4-15 are the child's index and bits 16-31 its incarnation.
pub(super) mod state {
    use super::super::ChildId;
    pub const FREE: u32 = 0;
    pub const READY: u32 = 1;
    pub const CLAIMED: u32 = 2;
    pub const DONE: u32 = 3;
    pub fn ready(entry: u32) -> u32 {
        READY | (super::entry::position(entry) << 4)
    }
    pub fn with_child(tag: u32, child: ChildId) -> u32 {
        tag | (u32::from(child.index) << 4) | (u32::from(child.incarnation) << 16)
    }
    pub fn tag(raw: u32) -> u32 {
        raw & 0xf
    }
    pub fn child(raw: u32) -> ChildId {
        ChildId {
            index: ((raw >> 4) & 0xfff) as u16,
            incarnation: (raw >> 16) as u16,
        }
    }
}

pub(super) const FRAME_AT: usize = 512;
pub(super) const BODY_AT: usize = round_up_to_page(FRAME_AT + MAX_FRAME_BYTES);
pub(super) const RESP_AT: usize = BODY_AT + RING_BYTES;
pub(super) const SLOT_LEN: usize = RESP_AT + RING_BYTES;

const _: () = {
    assert!(size_of::<SlotHead>() <= FRAME_AT);
    assert!(size_of::<PoolHeader>() <= PAGE_BYTES);
    assert!(RING_BYTES.is_power_of_two());
    assert!(
        cfg!(target_endian = "little"),
        "frames are written in one u32 order only"
    );
};

/// A mapped pool. A `Region` guarantees that the memory is at least as long as the geometry needs, page-aligned, zeroed
/// when created, and stays mapped while the value lives. It does not guarantee that the values which another process
/// wrote there make sense.
#[derive(Clone)]
pub struct Region {
    start: NonNull<u8>,
    geometry: Geometry,
    /// Keeps the memory mapped.
    _memory: Arc<dyn SharedMemory>,
}

// SAFETY: `start` points into memory that the value keeps mapped, and all accesses to it are atomic.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Region").field(&self.geometry).finish()
    }
}

impl Region {
    /// Initialises fresh, zeroed memory.
    pub(super) fn initialise(
        memory: Arc<dyn SharedMemory>,
        geometry: Geometry,
    ) -> Result<Region, GeometryError> {
        geometry.validate()?;
        if memory.size() < geometry.region_len() {
            return Err(GeometryError::TooShort);
        }
        let region = Region {
            start: memory.start(),
            geometry,
            _memory: memory,
        };
        if region.header().magic.load(Ordering::Acquire) != 0 {
            return Err(GeometryError::InUse);
        }
        region.write_header();
        Ok(region)
    }

    fn write_header(&self) {
        let (header, geometry) = (self.header(), self.geometry);
        header.fronts.store(geometry.fronts, Ordering::Relaxed);
        header.slots.store(geometry.slots, Ordering::Relaxed);
        header.children.store(geometry.children, Ordering::Relaxed);
        let shared_cache = geometry.shared_cache;
        header.shared_cache.store(shared_cache, Ordering::Relaxed);
        header.version.store(VERSION, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
    }

    /// Returns whether the words that never change after the start still have their initial values.
    pub(super) fn header_is_intact(&self) -> bool {
        let (header, geometry) = (self.header(), self.geometry);
        header.magic.load(Ordering::Relaxed) == MAGIC
            && header.version.load(Ordering::Relaxed) == VERSION
            && header.fronts.load(Ordering::Relaxed) == geometry.fronts
            && header.slots.load(Ordering::Relaxed) == geometry.slots
            && header.children.load(Ordering::Relaxed) == geometry.children
            && header.shared_cache.load(Ordering::Relaxed) == geometry.shared_cache
    }

    /// Resets the header and the scoreboard to their initial state. The values of the shared cache are invalid for all
    /// processes that have seen another `epoch`.
    pub(super) fn reset_header(&self, epoch: u64) {
        let header = self.header();
        for words in [&header.parked.0, &header.live.0] {
            words
                .iter()
                .for_each(|word| word.store(0, Ordering::Relaxed));
        }
        header.shared_cache_epoch.store(epoch, Ordering::Relaxed);
        for index in 0..self.geometry.children {
            let entry = self.child(index as u16);
            for word in [&entry.park, &entry.retire, &entry.spent, &entry.incarnation] {
                word.store(0, Ordering::Relaxed);
            }
            entry.busy_since.store(0, Ordering::Relaxed);
            entry.requests.store(0, Ordering::Relaxed);
        }
        self.write_header();
    }

    /// Opens memory that a front has initialised (in a PHP process).
    ///
    /// # Errors
    /// The memory is too short, or it was not initialised by a front of this version.
    pub fn open(memory: Arc<dyn SharedMemory>) -> Result<Region, GeometryError> {
        if memory.size() < PAGE_BYTES {
            return Err(GeometryError::TooShort);
        }
        let size = memory.size();
        let mut region = Region {
            start: memory.start(),
            geometry: Geometry {
                fronts: 0,
                slots: 0,
                children: 0,
                shared_cache: 0,
            },
            _memory: memory,
        };
        let header = region.header();
        if header.magic.load(Ordering::Acquire) != MAGIC {
            return Err(GeometryError::NotAPool);
        }
        match header.version.load(Ordering::Relaxed) {
            VERSION => {}
            other => return Err(GeometryError::OtherVersion(other)),
        }
        let geometry = Geometry {
            fronts: header.fronts.load(Ordering::Relaxed),
            slots: header.slots.load(Ordering::Relaxed),
            children: header.children.load(Ordering::Relaxed),
            shared_cache: header.shared_cache.load(Ordering::Relaxed),
        };
        geometry.validate()?;
        if size < geometry.region_len() {
            return Err(GeometryError::TooShort);
        }
        region.geometry = geometry;
        Ok(region)
    }

    /// Returns the memory of the cache that PHP shares.
    pub fn shared_cache(&self) -> &[AtomicU64] {
        let words = self.geometry.shared_cache as usize;
        let at = self.geometry.shared_cache_at();
        // SAFETY: in bounds by `region_len`; aligned, since a slot's length is a multiple of a page; words of
        // atomics, mapped while `self` lives.
        unsafe {
            std::slice::from_raw_parts(self.start.add(at).cast::<AtomicU64>().as_ptr(), words)
        }
    }

    /// Returns a number that changes when the front invalidates all values of the pool's shared cache.
    pub fn shared_cache_epoch(&self) -> u64 {
        self.header().shared_cache_epoch.load(Ordering::Acquire)
    }

    /// Returns whether the shared cache may be used.
    pub fn shared_cache_is_open(&self) -> bool {
        self.header().shared_cache_closed.load(Ordering::SeqCst) == 0
    }

    /// Returns the dimensions of the memory.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the shared value at this offset.
    ///
    /// # Safety
    /// A `T` consists of atomics alone, lies within the memory at `offset`, and is aligned there.
    unsafe fn at<T>(&self, offset: usize) -> &T {
        // SAFETY: required by this function; mapped while `self` lives, and initialised, since all-zero bytes are
        // a valid value of every atomic.
        unsafe { self.start.add(offset).cast::<T>().as_ref() }
    }

    pub(super) fn header(&self) -> &PoolHeader {
        // SAFETY: memory that is opened has at least one page, and the header fits in it.
        unsafe { self.at(0) }
    }

    pub(super) fn ring(&self, front: u32) -> &FrontRing {
        assert!(front < self.geometry.fronts);
        let offset = self.geometry.rings_at() + front as usize * size_of::<FrontRing>();
        // SAFETY: in bounds by the assertion and `region_len`; aligned, since `rings_at` is a
        // page and the struct's size a multiple of its alignment.
        unsafe { self.at(offset) }
    }

    pub(super) fn child(&self, index: u16) -> &ChildEntry {
        assert!(u32::from(index) < self.geometry.children);
        let offset = self.geometry.children_at() + index as usize * size_of::<ChildEntry>();
        // SAFETY: as in `ring`.
        unsafe { self.at(offset) }
    }

    fn slot_at(&self, front: u32, slot: u32) -> usize {
        assert!(front < self.geometry.fronts && slot < self.geometry.slots);
        let index = front as usize * self.geometry.slots as usize + slot as usize;
        self.geometry.slots_at() + index * SLOT_LEN
    }

    pub(super) fn slot(&self, front: u32, slot: u32) -> &SlotHead {
        // SAFETY: a slot begins with a SlotHead, page-aligned, and is in bounds by `slot_at`.
        unsafe { self.at(self.slot_at(front, slot)) }
    }

    /// Returns `N` bytes of a slot.
    fn bytes<const N: usize>(&self, front: u32, slot: u32, offset: usize) -> SharedBytes<'_> {
        const { assert!(N.is_multiple_of(8)) };
        assert!(offset.is_multiple_of(8) && offset + N <= SLOT_LEN);
        let words = self
            .start
            .as_ptr()
            .wrapping_add(self.slot_at(front, slot) + offset);
        // SAFETY: within the slot by the assertion, the slot in bounds by `slot_at`, aligned since a
        // slot begins on a page; words of atomics, mapped while `self` lives.
        SharedBytes(unsafe { std::slice::from_raw_parts(words.cast::<AtomicU64>(), N / 8) })
    }

    pub(super) fn frame(&self, front: u32, slot: u32) -> SharedBytes<'_> {
        self.bytes::<MAX_FRAME_BYTES>(front, slot, FRAME_AT)
    }

    pub(super) fn body_ring(&self, front: u32, slot: u32) -> ByteRing<'_> {
        ByteRing(self.bytes::<RING_BYTES>(front, slot, BODY_AT))
    }

    pub(super) fn response_ring(&self, front: u32, slot: u32) -> ByteRing<'_> {
        ByteRing(self.bytes::<RING_BYTES>(front, slot, RESP_AT))
    }
}
