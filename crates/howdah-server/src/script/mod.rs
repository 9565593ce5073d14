//! Turns a request into a script request, and a run into a response.
//!
//! - [`frame`]: the meta-variables.
//! - [`granted_variables`]: variables that guards set.
//! - [`body`]: the request body, whole or as it arrives.
//! - [`pump`]: turns the events of a run into a response; [`coder`]: compresses it; [`backlog`]: holds the output that
//!   the client has not read yet; [`response_sink`]: the connection to the client.
//! - [`head`]: turns the headers of a script's response into those for the client.
//! - [`spill`]: files for what does not fit into memory.
//! - [`stream_permits`]: limits how many processes may read bodies that are still arriving.
//! - [`abandoned_request`]: requests that run although their clients have disconnected.
//! - [`wait`]: limits how long a script waits for its client.

pub mod abandoned_request;
mod backlog;
pub mod body;
mod coder;
pub mod frame;
pub mod granted_variables;
pub mod head;
pub mod pump;
pub mod pump_config;
#[cfg(test)]
mod pump_rig;
pub mod response_sink;
pub mod spill;
pub mod stream_permits;
pub mod wait;
