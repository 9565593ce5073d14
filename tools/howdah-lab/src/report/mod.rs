//! Reports a result: on a terminal, as a page, and as a section of a document. This module decides nothing.

pub mod html;
pub mod markdown;
pub(crate) mod plots;
pub mod text;
