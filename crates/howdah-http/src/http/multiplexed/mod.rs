//! The parts that HTTP/2 and HTTP/3 share, where many requests use one connection: [`request`] converts fields to the
//! head of a request, `response` converts the head of a response to fields, `request_response` handles one request and
//! its response, `priority` parses the order of responses, and `allowance` limits the useless work that a client may
//! cause.

mod allowance;
mod priority;
pub mod request;
pub(super) mod request_response;
mod response;

pub(super) use allowance::{Allowance, RESETS, RemainingAllowance, RemainingResets};
pub(super) use priority::urgency;
pub(super) use response::{add_server_fields, is_connection_field, response_head};

/// The number of streams of a connection that may each hold as much memory as an HTTP/1.1 connection.
pub(super) const STREAMS_WITH_FULL_SHARE: usize = 8;
