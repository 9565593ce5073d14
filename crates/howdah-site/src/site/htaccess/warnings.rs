//! Warnings about directives of `.htaccess` files that have no effect here or are errors. Each warning is recorded once
//! until the front writes it to the log.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use howdah_htaccess::HtFile;

use super::report::sentences;
use crate::docroot::root::RootDir;
use crate::site::Site;
use crate::site::config::HtaccessMode;

/// The maximum number of different warnings for a site, so a tree full of strange files does not fill the log.
const MAX_WARNINGS: usize = 1000;

/// A site's warnings.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    has_unlogged: AtomicBool,
    seen: Mutex<SeenWarnings>,
}

#[derive(Debug, Default)]
struct SeenWarnings {
    all: HashSet<String>,
    unlogged: Vec<String>,
}

impl Warnings {
    fn add(&self, text: String) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.all.len() < MAX_WARNINGS && seen.all.insert(text.clone()) {
            seen.unlogged.push(text);
            self.has_unlogged.store(true, Ordering::Release);
        }
    }
}

impl Site {
    /// Records the warnings about a file that a request has met for the first time.
    pub(super) fn warn_of_htaccess(&self, root: &RootDir, directory: &[u8], file: &HtFile) {
        let name = root.file_name(&[directory, b".htaccess"].concat());
        let name: PathBuf = Path::new(std::ffi::OsStr::from_bytes(&name)).to_owned();
        let all = sentences(&name, file, self.config.htaccess == HtaccessMode::Deny);
        all.into_iter()
            .for_each(|text| self.htaccess.warnings.add(text));
    }

    /// Returns the warnings about `.htaccess` files since the last call.
    pub fn take_htaccess_warnings(&self) -> Vec<String> {
        let warnings = &self.htaccess.warnings;
        if !warnings.has_unlogged.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut seen = warnings.seen.lock().unwrap_or_else(PoisonError::into_inner);
        warnings.has_unlogged.store(false, Ordering::Release);
        std::mem::take(&mut seen.unlogged)
    }
}
