//! The facts about a response on which the policy decides.

use crate::pass::Pass;
use crate::{HeaderFields, Millis};

/// A complete response, as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct ResponseFacts<'a> {
    /// The response's status code.
    pub status: u16,
    /// The response's header fields.
    pub fields: &'a HeaderFields<'a>,
    /// Whether the request carried `Authorization`.
    pub authorized: bool,
    /// When the request was sent.
    pub requested: Millis,
    /// When the response's header section had arrived.
    pub received: Millis,
    /// An effect of the run that forbids storing the response.
    pub effect: Option<Pass>,
}
