//! What the policy looks at of a response.

use crate::pass::Pass;
use crate::{Fields, Millis};

/// A complete response, as it came.
#[derive(Clone, Copy, Debug)]
pub struct ResponseFacts<'a> {
    /// The response's status code.
    pub status: u16,
    /// The response's header fields.
    pub fields: &'a Fields<'a>,
    /// The request carried `Authorization`.
    pub authorized: bool,
    /// When the request was sent.
    pub requested: Millis,
    /// When the response's head was there.
    pub received: Millis,
    /// What the run did beside answering, if that forbids to store it.
    pub effect: Option<Pass>,
}
