//! The protocol of a fleet (docs/fleet.md), as the code that runs and that `tests/model.rs` explores.
//! No I/O, no clock: callers hand in moments and messages, and send what [`Member::poll`] asks for.
//!
//! Valkey keeps a *registry*: a log of numbered entries and a row for each member. One script reads and
//! changes it, so its steps have one order, for as long as it is one *incarnation*: one process of
//! Valkey that has not been emptied. Everything a member knows of another incarnation counts for nothing.
//!
//! Two promises hold for as long as [`Timing::lease`]:
//!
//! - **A lease.** A member serves stored pages for one lease after it *sent* the last exchange by which it
//!   had read and applied the whole log. So the page of a member that does not confirm an entry is
//!   out of use one lease after the writer saw its row.
//! - **A pledge.** A member that cannot publish a write keeps the answer for one lease after it last *heard*
//!   from the registry. Others count on that: they extend their own leases only as far as every other
//!   member's row has moved, and so serve nothing when such an answer leaves.
//!
//! A member that is gone for good keeps the others from serving stored pages, until it is *forgotten*. With
//! [`Timing::fence`] they need nobody's word for that: a member that has reached the registry so long ago answers
//! no write by itself any more, so that what it writes unheard has been answered before the others forget
//! it. Who forgets makes everything old.
//!
//! Nobody compares clocks: each moment is compared with others of the same member. A writer waits
//! [`Timing::patience`], which is longer than a lease by what clocks may differ in their rates.

mod member;
mod message;
mod peers;
mod writes;

pub use member::{Effect, Member};
pub use message::{
    Entry, Hint, Incarnation, Name, Outcome, Record, Reply, Request, Row, Session, absent,
};
pub use writes::Ticket;

/// A moment of a member's own clock, in nanoseconds; the clock goes on while the machine is suspended.
pub type Moment = u64;

/// How long promises hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// How long a member serves stored pages after it sent the last exchange that succeeded.
    pub lease: Moment,
    /// How long others wait for that: the lease and what clocks may differ in their rates.
    pub patience: Moment,
    /// After how long apart from the registry a member answers no write that the others have not heard of; they
    /// forget it then. None: it always answers.
    pub fence: Option<Moment>,
    /// How often a member exchanges messages with the registry.
    pub renew: Moment,
}

impl Timing {
    /// For a lease of this many nanoseconds. Clocks' rates may differ by a part in 64, which is a hundred
    /// times what a quartz does; six exchanges fit a lease, so that a few may be lost.
    pub fn of(lease: Moment) -> Timing {
        Timing {
            lease,
            patience: Timing::patience(lease),
            fence: None,
            renew: lease / 6,
        }
    }

    /// How long others wait for what a member does within `time`.
    pub fn patience(time: Moment) -> Moment {
        time.saturating_add(time / 64 + 1)
    }
}
