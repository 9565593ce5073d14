//! What HTTP/2 and HTTP/3 have in common, where many requests share a connection: fields become a
//! request's head ([`request`]) and a response's head fields (`response`), `exchange` is one request and
//! its response, `priority` says whose goes first, `allowance` bounds what a client may cause for nothing.

mod allowance;
pub(super) mod exchange;
mod priority;
pub mod request;
mod response;

pub(super) use allowance::{Allowance, Left, RESETS, Resets};
pub(super) use priority::urgency;
pub(super) use response::{complete, is_forbidden, response};

/// Streams of a connection of which each may keep as much as a connection of HTTP/1.1.
pub(super) const FULL_SHARES: usize = 8;
