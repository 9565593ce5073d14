//! Apache's `.htaccess` files: what they close, and at the start which front controller they name.
//! Everything else in them is passed over.
//!
//! - [`files`]: the files on a path, as they are now; `thread`, with `watched` and `memo`: what a thread
//!   knows of them while the kernel reports no change.
//! - `lines`, `modules`, `names`, `parse`, `rewrite_lines`: a file's text into `section`'s values.
//! - `access`, `rewrite`, `pattern`, `truth`: what a line means for a request.
//! - [`decide`]: Apache's order and inheritance; one [`Verdict`] for a path.
//! - [`door`]: where a site asks.
//! - `catch_all`: the front controller that a file names.
//! - `live`, with `world` and `kept`: `htaccess = "on"`, all of it (`howdah-htaccess`).
//! - [`report`]: the lines that are not applied exactly, for the one who starts the server.
//!
//! The decision fails closed: what is not understood opens nothing. See the head of [`decide`] for
//! where it is stricter than Apache.

mod access;
mod access_query;
pub(super) mod catch_all;
mod decide;
mod demands;
mod door;
mod files;
mod kept;
pub(crate) use howdah_htaccess::Document;
use howdah_htaccess::lines;
mod live;
mod memo;
mod modules;
mod names;
mod parse;
#[cfg(test)]
mod random_tests;
use howdah_htaccess::pattern;
mod report;
mod rewrite;
mod rewrite_lines;
mod section;
mod thread;
mod truth;
mod watched;
mod world;

pub use access_query::{AccessQuery, Lies};
pub use decide::{Because, InDirectory, Verdict, decide};
pub(crate) use door::{Closed, Door};
pub(crate) use files::{Chain, Files};
pub use live::{Live, Visitor};
pub use parse::parse_bytes;
pub use report::{decides, survey, survey_live};
pub use section::{Note, Parsed, Why};
pub(crate) use thread::watch_directories;
