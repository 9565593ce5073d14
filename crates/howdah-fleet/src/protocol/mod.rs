//! The protocol of a fleet (docs/fleet.md). The code in this module runs in production, and the same code is explored
//! by the model checker in `tests/model`. It does no I/O and reads no clock: callers pass in times and messages, and
//! send the requests that [`FleetMember::poll`] returns.
//!
//! Valkey holds a *registry*: a log of numbered entries and a row for each member. A single script reads and changes
//! it, so its steps are totally ordered within one *incarnation*, that is, one process of Valkey that has not been
//! emptied. A member discards everything it knows about a registry when the incarnation changes.
//!
//! Members make two promises, each for the duration of [`Timing::lease`]:
//!
//! - **The lease.** A member serves stored pages for one lease after it *sent* the last exchange by which it had read
//!   and applied the whole log. A member that does not confirm an entry has therefore stopped serving stored pages one
//!   lease after the writer saw its row.
//! - **The pledge.** A member that cannot publish a write holds back the response for one lease after it last *heard*
//!   from the registry. The others rely on this: they extend their own leases only as far as every other member's row
//!   has advanced, so they serve no stored pages when such a response is sent.
//!
//! A member that is gone for good keeps the others from serving stored pages until it is *forgotten*. With
//! [`Timing::fence`], members forget it without an administrator: a member that has not reached the registry for that
//! long fences itself and no longer responds to writes on its own. Every write that it did respond to on its own was
//! therefore answered before the others forget it. The member that forgets another invalidates all pages.
//!
//! Clocks of different members are never compared: each time is compared only with other times of the same member. A
//! writer waits for [`Timing::patience`], which exceeds a lease by the possible difference between the rates of two
//! clocks.

mod member;
mod message;
mod peers;
mod writes;

pub use member::{Effect, FleetMember};
pub use message::{
    EntriesHint, ExchangeOutcome, Incarnation, LogEntry, LogRecord, MemberName, MemberRow,
    RegistryReply, RegistryRequest, SessionId, placeholder_session,
};
pub use writes::WriteTicket;

/// A time on a member's own clock, in nanoseconds. The clock keeps running while the machine is suspended.
pub type ClockNanoseconds = u64;

/// The durations of the promises.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// How long a member serves stored pages after it sent the last exchange that succeeded.
    pub lease: ClockNanoseconds,
    /// How long other members wait for that lease to expire: the lease plus the possible difference between clock
    /// rates.
    pub patience: ClockNanoseconds,
    /// How long a member may be cut off from the registry before it stops responding to writes that the others have not
    /// heard of. After this time, the others forget the member. `None` means that a member always responds.
    pub fence: Option<ClockNanoseconds>,
    /// How often a member exchanges messages with the registry.
    pub renew: ClockNanoseconds,
}

impl Timing {
    /// Returns the timing for a lease of this many nanoseconds. It allows the rates of clocks to differ by one part in
    /// 64, a hundred times the error of a quartz. Six exchanges fit in a lease, so a few may be lost.
    pub fn for_lease(lease: ClockNanoseconds) -> Timing {
        Timing {
            lease,
            patience: Timing::patience(lease),
            fence: None,
            renew: lease / 6,
        }
    }

    /// Returns how long other members wait for something that a member does within `time`.
    pub fn patience(time: ClockNanoseconds) -> ClockNanoseconds {
        time.saturating_add(time / 64 + 1)
    }
}
