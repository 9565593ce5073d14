//! Turns the bytes of a URL into a file below a directory, or a refusal. This module does not depend on sites or rules.
//!
//! - [`path`]: the path of a URL, decoded once and cleaned. It is the only way from a URL to a path.
//! - [`root`]: a directory that is served, and the files below it.

pub mod path;
pub mod root;
