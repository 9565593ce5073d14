//! What the modes share.
//!
//! - [`condition`]: whether a pool can serve. [`pm`]: how many processes a pool runs, and when a failed start is
//!   retried.
//! - [`fair_queue`]: waiting requests, with a line for each client.
//! - [`event_channel`]: a run that is written as a future which sends events.
//! - [`output`]: the output of a pool's processes. [`process`]: their signals, exits and memory.
//! - [`refused`]: the run of a request that is refused.
//! - [`sys`]: eventfds, futexes and the clock; the only module of this crate with `unsafe`.

pub(crate) mod condition;
pub(crate) mod event_channel;
pub(crate) mod fair_queue;
pub(crate) mod output;
pub(crate) mod pm;
pub(crate) mod process;
pub(crate) mod refused;
pub(crate) mod sys;
