//! Apache's `.htaccess` files. The crate `howdah-htaccess` evaluates them; this module provides it with files and
//! requests and acts on its decisions.
//!
//! - `refusals`: `htaccess = "deny"`: the files only refuse requests.
//! - `routing`, `response`: `htaccess = "on"`: the files determine how the request is handled and how the response is
//!   changed.
//! - `evaluation`: the properties of the request that the files may read, and cached results.
//! - `logins`: the passwords that the files demand.
//! - `world`: gives the engine access to the site's files and to the clock.
//! - `file_cache`, with `thread`, `watched` and `result_cache`: the current files, and what a thread caches while the
//!   kernel reports no change.
//! - `catch_all`: the front controller that a file names.
//! - [`report`], `warnings`: directives without effect, for the administrator.

pub(super) mod catch_all;
mod evaluation;
mod file_cache;
mod logins;
#[cfg(test)]
mod random_tests;
mod refusals;
mod report;
mod response;
mod result_cache;
mod routing;
mod thread;
mod warnings;
mod watched;
mod world;

pub use howdah_htaccess::Document;
use howdah_htaccess::HtaccessRefusal;

use crate::refusal::Refusal;

pub use refusals::HtaccessLogin;
pub(crate) use refusals::{Closed, PathQuery};
pub use report::{decides, routes, survey};
pub use response::Live;
pub use thread::watch_directories;

/// The state of a site's `.htaccess` files.
#[derive(Debug, Default)]
pub(crate) struct HtaccessState {
    pub(super) files: file_cache::FileCache,
    logins: logins::Logins,
    warnings: warnings::Warnings,
}

/// Converts a refusal of the engine into one of the server.
fn refusal_of(refusal: HtaccessRefusal) -> Refusal {
    match refusal {
        HtaccessRefusal::Denied => Refusal::HtaccessDenied,
        HtaccessRefusal::NotUnderstood | HtaccessRefusal::TooCostly => {
            Refusal::HtaccessNotUnderstood
        }
        HtaccessRefusal::Loop => Refusal::HtaccessLoop,
        HtaccessRefusal::NoScripts => Refusal::HtaccessNoScripts,
        HtaccessRefusal::Unauthorized => Refusal::HtaccessPassword,
        HtaccessRefusal::Unsupported => Refusal::HtaccessUnsupported,
        HtaccessRefusal::NotFound => Refusal::NotFound,
        HtaccessRefusal::NoIndex => Refusal::NoIndex,
        HtaccessRefusal::BadPath => Refusal::BadTarget,
        HtaccessRefusal::Method => Refusal::MethodNotAllowed,
        HtaccessRefusal::Forbidden => Refusal::Unreadable,
        HtaccessRefusal::Status => Refusal::Returned,
    }
}
