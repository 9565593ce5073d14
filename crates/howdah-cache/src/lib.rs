//! The page cache: which pages may be stored, which stored pages are fresh, and where they are. The policy is pure: it
//! does no I/O and takes `now` as an argument. The crate knows nothing of PHP: the effects of a run reach it as data.
//!
//! ```text
//! request ─► policy::request ─► key ─► store ─┬─ fresh ─► serve (304, range, Age, Cache-Status)
//!               │ Pass(name)                  ├─ stale ─► served within its grace, refreshed in the background
//!               ▼                             └─ none ──► one render, the others wait
//!            not cached                                      │
//!                                     policy::response ◄─────┘
//!                                       │ Pass(name)   └─► Storable ─► Object ─► store
//! ```
//! - [`field`]: lists, dates and numbers in header values; [`control`]: `Cache-Control` and related headers.
//! - [`policy`]: RFC 9111 for a shared cache, and the rules that are stricter here.
//! - [`pass`]: every reason to bypass the cache, by name.
//! - [`cookie`], [`key`]: the parts of a request, read as PHP reads them.
//! - [`preset`]: knowledge about WordPress, MediaWiki and others; [`noise`]: which of their database writes change no
//!   page.
//! - [`tags`]: names by which pages can be purged; [`purge`]: how applications and people express purges.
//! - [`generation`]: purges in constant time, by a number that is compared when a page is read.
//! - [`admission`]: which pages are rendered; [`coalescer`]: by which request. [`object`]: a stored response;
//!   [`store`]: where it is stored.
//! - [`serve`]: conditional requests and ranges, whose grammar is [`byte_range`]; [`status`]: `Cache-Status`.
//! - [`esi`]: edge side includes: tags in a page that are processed for each delivery.
//! - [`vary`]: cookies and kinds of browsers that shared pages vary by.
//! - [`visitor`]: whom a request comes from, for private pages ([`store::private`]).
//! - [`compare`]: whether a fresh render equals the stored page.
//!
//! Times are milliseconds of Unix time ([`Millis`]): a stored page outlives the process, so a monotonic clock would
//! have no meaning for it. A clock that is set back makes pages look older than they are (RFC 9111 §4.2.3 takes the
//! larger age), never younger.

#![forbid(unsafe_code)]

pub mod admission;
pub mod byte_range;
pub mod coalescer;
pub mod compare;
pub mod control;
pub mod cookie;
pub mod esi;
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
pub mod vary;
pub mod visitor;

/// Milliseconds of Unix time.
pub type Millis = u64;

/// Header fields in order, each with name and value.
pub type HeaderFields<'a> = [(&'a [u8], &'a [u8])];

pub use object::Object;
pub use pass::Pass;
pub use policy::{CacheRules, Storable};
