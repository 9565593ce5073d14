//! A virtual host as the files describe it.

use crate::directive::{Directive, SourceLine};
use crate::listen::SiteListen;

/// A `<VirtualHost>`, or the main server.
#[derive(Clone, Debug)]
pub struct ApacheHost<'a> {
    /// The section; `None` for the main server.
    pub block: Option<&'a Directive>,
    /// File and line of the section.
    pub place: SourceLine,
    /// The directives in the section.
    pub lines: &'a [Directive],
    /// The addresses of the host.
    pub listens: Vec<SiteListen>,
    /// The names that it specifies, as Howdah writes them.
    pub names: Vec<String>,
    /// True if its connections use TLS.
    pub tls: bool,
    /// The line that redirects requests without TLS to HTTPS.
    pub https_redirect: Option<&'a Directive>,
    /// True if the host was merged into another one, or is not reachable.
    pub is_removed: bool,
}

impl ApacheHost<'_> {
    /// Returns true for the main server, which is not a `<VirtualHost>`.
    pub fn is_main(&self) -> bool {
        self.block.is_none()
    }
}
