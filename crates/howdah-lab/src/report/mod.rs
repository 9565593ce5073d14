//! How a result is told: on a terminal, and as a page. Decides nothing.

pub mod html;
pub mod text;
