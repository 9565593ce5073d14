//! Sends files: media types, validators and preconditions, ranges, precompressed files, and small files in memory.
//! `site` decides which file a URL means. This module does not write to a socket: it returns the headers and a plan of
//! the body that the front carries out.
//!
//! - [`plan`]: turns a file found by routing into a response.
//! - [`validators`], [`range`], [`mime`], [`cache`]: its steps.

pub mod cache;
pub mod coded_cache;
pub mod plan;
pub mod range;
pub mod validators;

pub use howdah_http1::mime;
pub use plan::{BodyPiece, StaticBody, StaticPlan, StaticResponse};
