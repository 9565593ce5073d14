//! The shared memory of one pool: how a request reaches an idle PHP process and its answer comes
//! back, without a queue behind a busy process and with few wake-ups.
//!
//! The front has several threads, each the only producer of its own [`FrontPort`]: a ring of
//! ready slots that *any* idle child claims from by one compare-and-swap, in order. A slot holds
//! one request frame, a ring for its body and a ring for its response. Wake-ups are what an
//! exchange costs, so both sides announce when they sleep and are rung only then; the front
//! wakes no more children than there are cores to run them, unless those awake are stuck in a
//! long job.
//!
//! ```text
//! PoolHeader | FrontRing[fronts] | ChildEntry[children] | Slot[fronts * slots]
//! Slot = SlotHead | frame (96 KiB) | body ring (64 KiB) | response ring (64 KiB)
//! ```
//!
//! System calls are the caller's: functions that may need one say so by their result
//! ([`Wake`], [`Bell`]). What a child writes is untrusted by the front: every shared value is
//! read once, checked, and copied before use. The front is trusted by the children.
//!
//! Slot life: `Free` → (front publishes) `Ready` → (child claims) `Claimed{child}` → (child is
//! through) `Done` → (front) `Free`. When a child has died, the front looks for its requests by
//! [`FrontPort::state`] and in its own records, since a dying process may have written nonsense
//! here, and answers those clients with 502.

mod bytes;
mod child;
mod front;
mod layout;

pub use child::{BodyRead, ChildPort, Claim};
pub use front::{ChildStatus, FrontPort, PoolPort, SlotState};
pub use layout::{Geometry, GeometryError, Region, SharedMemory};

/// Version of this layout together with the frames and [`crate::variables::NAMES`]. A front and a
/// `howdah-php` of different versions refuse each other by name instead of misreading memory.
pub const VERSION: u32 = 3;

/// Bytes of a slot's body ring and of its response ring. A power of two.
pub const RING: usize = 64 * 1024;

/// A child running one job for longer than this many nanoseconds no longer counts as awake when
/// the front decides whether another child must be woken.
pub const STUCK_AFTER_NS: u64 = 100_000;

/// The futex word to wake (`FUTEX_WAKE`, shared, one waiter), or nothing to do.
#[must_use = "a child may sleep for ever if the futex is not woken"]
#[derive(Clone, Copy, Debug)]
pub struct Wake<'a>(pub Option<&'a std::sync::atomic::AtomicU32>);

/// Whether the eventfd of a front thread must be written.
#[must_use = "the front may sleep for ever if its bell is not rung"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bell(pub bool);

/// Exit status of a child that leaves because PHP bailed out of its last request.
pub const EXIT_BAILED_OUT: i32 = 72;

/// Exit status of a child whose PHP a bailout has left in a state not fit for anything more: it escaped
/// PHP's own shutdown, or ended a worker's script.
pub const EXIT_BROKEN: i32 = 70;

/// A child's index in the scoreboard together with the number of its life there. An index is
/// reused, the pair is not (within 65 536 lives).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChildId {
    /// Index in the scoreboard, below `Geometry::children`.
    pub index: u16,
    /// Number of the process that has this index now, counted per index.
    pub incarnation: u16,
}

#[cfg(test)]
mod tests;
