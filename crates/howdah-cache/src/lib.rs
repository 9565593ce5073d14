//! The page cache: may this page be kept, is this one fresh, where is it. Policy is pure: it does
//! no I/O and takes `now` as an argument. Knows nothing of PHP: what a run did reaches it as data.
//!
//! ```text
//! request ─► policy::request ─► key ─► store ─┬─ fresh ─► serve (304, range, Age, Cache-Status)
//!               │ Pass(name)                  ├─ stale ─► served within its grace, refreshed in the background
//!               ▼                             └─ none ──► one render, the others wait
//!            not cached                                      │
//!                                     policy::response ◄─────┘
//!                                       │ Pass(name)   └─► Storable ─► Object ─► store
//! ```
//! - [`field`]: lists, dates and numbers in header fields; [`control`]: `Cache-Control` and its kin.
//! - [`policy`]: RFC 9111 for a shared cache, and what is stricter here.
//! - [`pass`]: every no, by name.
//! - [`cookie`], [`key`]: what a request is, read as PHP reads it.
//! - [`preset`]: knowledge about WordPress, MediaWiki and others; [`noise`]: which of their
//!   database writes change no page.
//! - [`tags`]: names pages go by; [`purge`]: how applications and people say what is to be purged.
//! - [`generation`]: purges in constant time: a number compared when a page is read.
//! - [`admission`]: which pages are rendered; [`coalescer`]: by whom. [`object`]: a stored response;
//!   [`store`]: where it is kept.
//! - [`serve`]: conditional requests and ranges; [`status`]: `Cache-Status`.
//! - [`compare`]: whether a fresh render is what was kept.
//!
//! Times are milliseconds of Unix time ([`Millis`]): a stored page outlives the process, so a
//! monotonic clock would mean nothing to it. A clock set back makes pages older than they are
//! (RFC 9111 §4.2.3 takes the larger age), never younger.

#![forbid(unsafe_code)]

pub mod admission;
pub mod coalescer;
pub mod compare;
pub mod control;
pub mod cookie;
pub mod field;
pub mod generation;
pub mod key;
pub mod noise;
pub mod object;
pub mod pass;
pub mod policy;
pub mod preset;
pub mod purge;
pub mod serve;
pub mod status;
pub mod store;
pub mod tags;

/// Milliseconds of Unix time.
pub type Millis = u64;

/// Header fields in order: name and value.
pub type Fields<'a> = [(&'a [u8], &'a [u8])];

pub use object::Object;
pub use pass::Pass;
pub use policy::{Rules, Storable};
