//! What the modes have in common.
//!
//! - [`condition`]: whether a pool can serve. [`pm`]: how many processes it is to have, and when to try
//!   again what has failed.
//! - [`fair_queue`]: requests that wait, each client's in a line of its own.
//! - [`event_channel`]: a run written as a future that gives out events.
//! - [`output`]: what its processes print. [`process`]: their signals, ends and memory.
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
