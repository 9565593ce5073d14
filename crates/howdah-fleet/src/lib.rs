//! One page cache on several servers: a write on one of them makes pages old on all of them before its
//! answer leaves. Knows nothing of pages, sites or HTTP: what is made old is text that it hands on.
//!
//! - [`protocol`]: what a member of the fleet does, as a value without I/O and clock.
//! - [`fleet`]: a member that runs: a thread, and what the server asks it.
//! - [`position`]: where a member is in the log.
//! - [`renders`]: one render of a page for all members.
//! - [`questions`]: what members ask each other for people.
//! - [`valkey`]: where Valkey is, and how it is reached.
//! - [`jobs`]: which member runs a scheduled job, by rows in Valkey (`jobs.lua`).
//! - `exchange`: a request of the protocol as a call of `registry.lua`.

#![forbid(unsafe_code)]

mod exchange;
pub mod fleet;
pub mod jobs;
pub mod position;
pub mod protocol;
pub mod questions;
pub mod renders;
pub mod valkey;

pub use exchange::{EVERYTHING, Registry, Text};
pub use fleet::{Fenced, Fleet, FleetConfig, FleetStatus, News};
pub use position::Position;
pub use renders::Renders;
pub use renders::outcome::Outcome as RenderOutcome;
pub use renders::seal::RenderKey;
pub use valkey::Valkey;
