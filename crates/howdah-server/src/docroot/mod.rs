//! From the bytes of a URL to a file below a directory, or a refusal. Knows no site and no rule.
//!
//! - [`path`]: the path of a URL, decoded once and cleaned; the only way from a URL to a path.
//! - [`root`]: a directory that is served, and what lies below it.

pub mod path;
pub mod root;
