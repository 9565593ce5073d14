//! Apache's `.htaccess` files. The crate `howdah-htaccess` evaluates them; this module provides it with files and
//! requests and acts on its decisions.
//!
//! - `refusals`: `htaccess = "deny"`: the files only refuse requests.
//! - `routing`, `response`: `htaccess = "on"`: the files decide about the request and the response.
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
use howdah_htaccess::Refusal as ApacheRefusal;

use crate::refusal::Refusal;

pub use refusals::HtaccessLogin;
pub(crate) use refusals::{Closed, PathQuery};
pub use report::{decides, survey};
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
fn refusal_of(refusal: ApacheRefusal) -> Refusal {
    match refusal {
        ApacheRefusal::Denied => Refusal::HtaccessDenied,
        ApacheRefusal::NotUnderstood | ApacheRefusal::TooCostly => Refusal::HtaccessNotUnderstood,
        ApacheRefusal::Loop => Refusal::HtaccessLoop,
        ApacheRefusal::NoScripts => Refusal::HtaccessNoScripts,
        ApacheRefusal::Unauthorized => Refusal::HtaccessPassword,
        ApacheRefusal::Unsupported => Refusal::HtaccessUnsupported,
        ApacheRefusal::NotFound => Refusal::NotFound,
        ApacheRefusal::NoIndex => Refusal::NoIndex,
        ApacheRefusal::BadPath => Refusal::BadTarget,
        ApacheRefusal::Method => Refusal::MethodNotAllowed,
        ApacheRefusal::Forbidden => Refusal::Unreadable,
        ApacheRefusal::Status => Refusal::Returned,
    }
}
