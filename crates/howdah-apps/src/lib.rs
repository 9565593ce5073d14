//! Knowledge about applications, as data. Each application has one file, `apps/NAME.toml`: how it is recognised, which
//! paths are refused, how it receives passwords, what the page cache needs to know, and the advice that commands give.
//! `common.toml` has the log-in requests that belong to no single file.
//!
//! ```text
//! apps/*.toml ─► known_applications ─┬─ layouts ─────► howdah-server: recognition, rules, refusals
//! common.toml ─► login_requests ─────┤─ cache ───────► howdah-cache: presets, writes that change no page
//!                                    ├─ child_memory ► howdah-executor: max_children = auto
//!                                    └─ advice, jobs ► howdah: check, [[job]]
//! ```
//! - `application`: the list of the applications; a new file is added there.
//! - [`profile`], [`cache_profile`]: the keys of the files.
//! - [`name_pattern`]: patterns for the names of cookies and parameters.
//!
//! The files are part of the program and are parsed when they are first used. This crate does no I/O.

#![forbid(unsafe_code)]

mod application;
pub mod cache_profile;
pub mod name_pattern;
pub mod profile;

#[cfg(test)]
mod tests;

use std::sync::LazyLock;

pub use application::Application;
pub use cache_profile::CacheProfile;
pub use name_pattern::NamePattern;
pub use profile::{ApplicationLayout, ApplicationProfile, JobProfile, LoginRequest};

/// An application that has a file.
#[derive(Debug)]
pub struct KnownApplication {
    /// The application that the file describes.
    pub application: Application,
    /// The name of its file, without `.toml`. The cache preset of the application has the same name.
    pub name: &'static str,
    /// The content of its file.
    pub profile: ApplicationProfile,
}

/// One of the layouts in which an application is installed.
#[derive(Clone, Copy, Debug)]
pub struct KnownLayout {
    /// The application that is installed in this layout.
    pub application: Application,
    /// Patterns of the files that are refused in every layout of the application.
    common_denials: &'static [&'static str],
    /// Where the files of the application are, and what its site needs.
    pub layout: &'static ApplicationLayout,
}

impl KnownLayout {
    /// Returns the patterns of the files that are refused: globs, and regular expressions, which begin with `^`.
    pub fn denials(self) -> impl Iterator<Item = &'static str> {
        self.common_denials.iter().chain(&self.layout.deny).copied()
    }
}

static KNOWN_APPLICATIONS: LazyLock<Vec<KnownApplication>> = LazyLock::new(|| {
    let parsed = application::FILES.iter().map(|(application, name, text)| {
        let profile = toml::from_str(text)
            .unwrap_or_else(|error| panic!("apps/{name}.toml, which a test parses: {error}"));
        KnownApplication {
            application: *application,
            name,
            profile,
        }
    });
    parsed.collect()
});

/// `common.toml`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
struct CommonKnowledge {
    #[serde(rename = "login")]
    logins: Vec<LoginRequest>,
}

static COMMON: LazyLock<CommonKnowledge> = LazyLock::new(|| {
    toml::from_str(include_str!("../common.toml"))
        .unwrap_or_else(|error| panic!("common.toml, which a test parses: {error}"))
});

/// Returns all applications that have a file, the more specific ones first.
pub fn known_applications() -> &'static [KnownApplication] {
    &KNOWN_APPLICATIONS
}

/// Returns the layouts of all applications, in the order in which a directory is compared with them.
pub fn layouts() -> impl Iterator<Item = KnownLayout> {
    known_applications().iter().flat_map(|known| {
        known.profile.layouts.iter().map(|layout| KnownLayout {
            application: known.application,
            common_denials: &known.profile.deny,
            layout,
        })
    })
}

/// Returns the requests by which applications receive passwords.
pub fn login_requests() -> impl Iterator<Item = &'static LoginRequest> {
    let own = known_applications().iter();
    own.flat_map(|known| &known.profile.logins)
        .chain(&COMMON.logins)
}

/// Returns the background jobs that applications need.
pub fn jobs() -> impl Iterator<Item = &'static JobProfile> {
    let known = known_applications().iter();
    known.filter_map(|known| known.profile.job.as_ref())
}

/// Returns the memory that a PHP process of the largest application needs, in bytes. A pool does not know which
/// application it runs, so it assumes this one.
pub fn largest_child_memory() -> u64 {
    let known = known_applications().iter();
    let sizes = known.filter_map(|known| known.profile.child_memory_mib);
    sizes.max().expect("a test finds a size") << 20
}
