//! The data that the translators of a host read: its lines, the layers of its sections, and the directories that it
//! shows.

use super::host::ApacheHost;
use super::layers::HostLayers;
use super::region::UrlMounts;
use super::server::ServerContext;
use crate::directive::Directive;
use crate::ledger::ImportLedger;

/// A host and everything that is known about it before its directives are translated.
pub struct HostContext<'w, 'a> {
    /// The server that the host belongs to.
    pub server: &'w ServerContext<'a>,
    /// The outcomes of the directives.
    pub ledger: &'a ImportLedger,
    /// The host that is translated.
    pub host: &'w ApacheHost<'a>,
    /// The layers of directives, the widest first.
    pub layers: HostLayers<'a>,
    /// The mapping of URL paths to directories.
    pub mounts: UrlMounts,
    /// The document root; `None` for a host without files.
    pub root: Option<String>,
}

/// The reason for a line that other sections override.
const OVERRIDDEN_REASON: &str =
    "other sections override this line for all the files that it applies to";

impl HostContext<'_, '_> {
    /// Records that other sections override the line.
    pub fn mark_overridden(&self, line: &Directive) {
        if !self.ledger.has_outcome(line.id) {
            self.ledger.mark_irrelevant(line.id, OVERRIDDEN_REASON);
        }
    }
}
