//! Apache's `.htaccess` files. One engine (`howdah-htaccess`) evaluates them; this module asks it and acts on
//! what it says.
//!
//! - `refusals`: `htaccess = "deny"`: what the files refuse.
//! - `routing`, `response`: `htaccess = "on"`: the files decide about the request and the response.
//! - `evaluation`: what the files may read of a request, and cached results.
//! - `logins`: the passwords that the files demand.
//! - `world`: the site's files and clock, as the engine asks for them.
//! - `file_cache`, with `thread`, `watched` and `result_cache`: the files as they are now, and what a thread
//!   knows of them while the kernel reports no change.
//! - `catch_all`: the front controller that a file names.
//! - [`report`], `warnings`: lines without effect, for the administrator.

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

pub(crate) use howdah_htaccess::Document;
use howdah_htaccess::Refusal as ApacheRefusal;

use crate::refusal::Refusal;

pub use refusals::HtaccessLogin;
pub(crate) use refusals::{Closed, PathQuery};
pub use report::{decides, survey};
pub use response::Live;
pub(crate) use thread::watch_directories;

/// What a site knows of its `.htaccess` files.
#[derive(Debug, Default)]
pub(crate) struct HtaccessState {
    pub(super) files: file_cache::FileCache,
    logins: logins::Logins,
    warnings: warnings::Warnings,
}

/// The name of a refusal.
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
