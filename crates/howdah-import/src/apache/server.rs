//! The data of the whole server that the translators of hosts read.

use std::path::Path;

use crate::fpm::FpmPool;
use crate::ledger::ImportLedger;
use crate::source::join_path;

/// The server that the hosts belong to, and the outcomes of its directives.
pub struct ServerContext<'a> {
    /// The outcomes of the directives.
    pub ledger: &'a ImportLedger,
    /// The pools of php-fpm, if its configuration was given.
    pub fpm: &'a [FpmPool],
    /// The `ServerRoot`, which relative names are resolved against.
    pub root: &'a Path,
    /// Returns the media type that Howdah gives a file of this name.
    pub media_type: fn(&[u8]) -> &'static str,
    /// True if the files contain the `LoadModule` lines.
    pub knows_modules: bool,
    /// True if all hosts with TLS request client certificates of the same authorities.
    pub one_client_ca: bool,
}

impl ServerContext<'_> {
    /// Resolves a path of the configuration.
    pub fn path(&self, text: &str) -> String {
        join_path(self.root, text)
    }
}
