//! The shared memory of one pool. It carries a request to an idle PHP process and the response back, without queueing
//! behind a busy process and with few wake-ups.
//!
//! The front has several threads. Each is the only producer of its own [`FrontPort`]: a ring of ready slots, which
//! *any* idle child claims in order, by one compare-and-swap. A slot holds one request frame, a ring for its body and a
//! ring for its response. Wake-ups are the main cost of an exchange. Both sides therefore announce when they sleep and
//! are woken only then, and the front wakes no more children than there are cores to run them, unless the awake ones
//! are stuck in a long job.
//!
//! ```text
//! PoolHeader | FrontRing[fronts] | ChildEntry[children] | Slot[fronts * slots]
//! Slot = SlotHead | frame (96 KiB) | body ring (64 KiB) | response ring (64 KiB)
//! ```
//!
//! The caller makes the system calls: functions that may need one return [`FutexWake`] or [`Bell`]. The front does not
//! trust what a child writes: it reads every shared value once, checks it, and copies it before use. The children trust
//! the front.
//!
//! The life of a slot: `Free` → (front publishes) `Ready` → (child claims) `Claimed{child}` → (child finishes) `Done` →
//! (front) `Free`. When a child has died, the front finds its requests by [`FrontPort::state`] and in its own records,
//! since a dying process may have written nonsense here, and responds to those clients with 502.

mod bytes;
mod child;
mod front;
mod layout;

pub use child::{BodyRead, ChildPort, RequestClaim};
pub use front::{ChildStatus, FrontPort, PoolPort, SlotState};
pub use howdah_os::mapping::SharedMemory;
pub use layout::{Geometry, GeometryError, Region};

/// The version of this layout together with the frames and [`crate::variables::NAMES`]. If a front and a `howdah-php`
/// have different versions, they refuse each other with a named error instead of misreading memory.
pub const VERSION: u32 = 3;

/// The size of a slot's body ring, and of its response ring, in bytes. It is a power of two.
pub const RING_BYTES: usize = 64 * 1024;

/// A child that runs one job for longer than this many nanoseconds no longer counts as awake when the front decides
/// whether another child must be woken.
pub const STUCK_AFTER_NS: u64 = 100_000;

/// The futex word to wake (`FUTEX_WAKE`, shared, one waiter), or `None` if nothing is to be done.
#[must_use = "a child may sleep for ever if the futex is not woken"]
#[derive(Clone, Copy, Debug)]
pub struct FutexWake<'a>(pub Option<&'a std::sync::atomic::AtomicU32>);

/// Whether the eventfd of a front thread must be written.
#[must_use = "the front may sleep for ever if its bell is not rung"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bell(pub bool);

/// Exit status of a child that exits because PHP bailed out of its last request.
pub const EXIT_BAILED_OUT: i32 = 72;

/// Exit status of a child whose PHP is not usable any more after a bailout, because the bailout escaped PHP's own
/// shutdown or ended a worker's script.
pub const EXIT_BROKEN: i32 = 70;

/// A child's index in the scoreboard together with the number of the process that has it. An index is reused; the pair
/// is not (within 65 536 processes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChildId {
    /// Index in the scoreboard, below `Geometry::children`.
    pub index: u16,
    /// Number of the process that has this index now, counted per index.
    pub incarnation: u16,
}

#[cfg(test)]
mod tests;
