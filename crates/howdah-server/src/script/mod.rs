//! Turns a request into a script request, and a run into a response.
//!
//! - [`frame`]: the meta-variables.
//! - [`granted`]: variables that guards set.
//! - [`body`]: the request body, whole or as it arrives.
//! - [`pump`]: turns the events of a run into a response; [`coder`]: compresses it; [`backlog`]: holds the output that
//!   the client has not read yet; [`response_sink`]: the connection to the client.
//! - [`head`]: turns the script's response header into the client's.
//! - [`spill`]: files for what does not fit into memory.
//! - [`streams`]: limits how many processes may read bodies that are still arriving.
//! - [`left_behind`]: requests that run although their clients have disconnected.
//! - [`wait`]: limits how long a script waits for its client.

mod backlog;
pub mod body;
mod coder;
pub mod frame;
pub mod granted;
pub mod head;
pub mod left_behind;
pub mod pump;
pub mod pump_config;
pub mod response_sink;
#[cfg(test)]
mod rig;
pub mod spill;
pub mod streams;
pub mod wait;
