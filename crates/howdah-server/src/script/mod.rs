//! A request becomes a script request, a run becomes a response.
//!
//! - [`frame`]: the meta-variables.
//! - [`granted`]: variables that guards set.
//! - [`body`]: the request body, whole or as it arrives.
//! - [`pump`]: the run's events become a response; [`coder`]: it is compressed; [`backlog`]: what the
//!   client has not taken yet; [`response_sink`]: the client's side.
//! - [`head`]: the script's response head as the client gets it.
//! - [`spill`]: what does not fit memory.
//! - [`streams`]: how many processes may read bodies that are still arriving.
//! - [`wait`]: a script that waits for its client.

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
