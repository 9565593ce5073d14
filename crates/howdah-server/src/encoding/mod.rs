//! Compresses responses on the fly: which ones, with what, and the streaming codec. Precompressed
//! files beside a static file are not its business; neither is the framing.
//!
//! - [`negotiate`]: `Accept-Encoding` (RFC 9110 §12.5.3) against what is configured.
//! - [`policy`]: whether a response may be compressed, and what its head becomes.
//! - [`codec`]: bytes in, bytes out, with a flush that lets everything so far be decoded.
//! - `worker`: threads that compress what takes longer than a front thread's turn may; `whole` bodies,
//!   once for all who want them, and pieces of a `stream`.
//!
//! # BREACH
//! A page that reflects what an attacker sends and carries a secret (a CSRF token) leaks the secret
//! through its compressed length over TLS. Compression cannot know; applications mask their tokens
//! (WordPress nonces change, Symfony and Laravel randomise theirs per answer). Where one does not:
//! `Cache-Control: no-transform` or `Content-Encoding: identity` from the script turns it off for
//! that response, `[compression] codings = "off"` for all.

pub mod codec;
pub mod negotiate;
pub mod policy;
pub(crate) mod stream;
pub(crate) mod whole;
mod worker;

pub use codec::Encoder;
pub use negotiate::Coding;
pub use policy::EncodingConfig;
