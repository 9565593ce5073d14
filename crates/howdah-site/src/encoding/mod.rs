//! Compresses responses on the fly: decides which ones and with which coding, and contains the streaming codec.
//! Precompressed files next to a static file and the framing are handled elsewhere.
//!
//! - [`negotiate`]: compares `Accept-Encoding` (RFC 9110 §12.5.3) with the configuration.
//! - [`policy`]: decides whether a response may be compressed, and edits its headers.
//! - [`codec`]: compresses bytes, with a flush that makes everything so far decodable. [`stitched`]: a gzip stream into
//!   which texts are inserted that have been compressed before, by [`texts`].
//! - `worker`: threads that compress what takes too long for a front thread: `whole` bodies, once for all requests that
//!   want them, and pieces of a `stream`.
//!
//! # BREACH
//! A page that reflects what an attacker sends and contains a secret (a CSRF token) leaks the secret through its
//! compressed length over TLS. The compression cannot detect that; applications mask their tokens (WordPress nonces
//! change, Symfony and Laravel randomise theirs with each response). For an application that does not, `Cache-Control:
//! no-transform` or `Content-Encoding: identity` from the script disables compression for that response, and
//! `[compression] codings = "off"` for all.

pub mod codec;
pub mod negotiate;
pub mod policy;
mod stitched;
pub mod stream;
pub mod texts;
pub mod whole;
mod worker;

pub use codec::Encoder;
pub use negotiate::Coding;
pub use policy::EncodingConfig;
