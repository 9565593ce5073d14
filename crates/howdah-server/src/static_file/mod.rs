//! Sends files: media types, validators and preconditions, ranges, precompressed files, and the
//! small files kept in memory. Decides nothing about which file a URL means (`site`), and writes to
//! no socket: it answers with a header and a plan of the body that the front carries out.
//!
//! - [`plan`]: from a file found by routing to an answer.
//! - [`validators`], [`range`], [`mime`], [`cache`]: its parts.

pub mod cache;
pub(crate) mod coded;
pub mod mime;
pub mod plan;
pub mod range;
pub mod validators;

pub use plan::{BodyPiece, StaticAnswer, StaticBody, StaticPlan};
