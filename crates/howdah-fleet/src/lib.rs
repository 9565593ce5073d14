//! One page cache on several servers: a write on any server invalidates pages on all of them before the response to
//! that write is sent. This crate does not depend on pages, sites or HTTP. Invalidations are opaque strings that it
//! transports.
//!
//! - [`protocol`]: the state machine of a fleet member, a value without I/O or a clock.
//! - [`fleet`]: a running member: its thread, and the interface that the server uses.
//! - [`position`]: a member's position in the log.
//! - [`renders`]: sharing one render of a page between all members.
//! - [`questions`]: questions that one member asks the others on behalf of an administrator.
//! - [`valkey`]: the address of Valkey, and how to connect to it.
//! - [`jobs`]: decides which member runs a scheduled job, by rows in Valkey (`jobs.lua`).
//! - [`Registry`]: encodes the requests of the protocol as calls of `registry.lua`.

#![forbid(unsafe_code)]

pub mod fleet;
pub mod jobs;
pub mod position;
pub mod protocol;
pub mod questions;
mod registry;
pub mod renders;
pub mod valkey;

pub use fleet::{Fenced, Fleet, FleetConfig, FleetEvent, FleetStatus};
pub use position::LogPosition;
pub use registry::{EVERYTHING, InvalidationText, Registry};
pub use renders::Renders;
pub use renders::outcome::FleetRenderOutcome;
pub use renders::seal::RenderKey;
pub use valkey::Valkey;
