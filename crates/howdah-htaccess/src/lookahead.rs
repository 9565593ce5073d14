//! Subrequests for other URLs that change no state: `-U`, `-F`, `%{LA-U:…}`.

use crate::engine::{HookError, RequestEngine};
use crate::request::{EvaluatedRequest, Handler, Stat};

impl RequestEngine<'_> {
    /// Runs [`RequestEngine::sub_request`] in a separate engine, so this engine keeps its state.
    fn run_lookahead(
        &self,
        request: &EvaluatedRequest,
        to: &[u8],
    ) -> Option<(EvaluatedRequest, Result<(), HookError>)> {
        // This ends some loops.
        if request.main_uri.as_ref() == Some(&request.uri) || to.is_empty() {
            return None;
        }
        let mut engine = RequestEngine::new(self.server, self.input);
        engine.headers_in = self.headers_in.clone();
        engine.runs.set(self.runs.get());
        engine.rules.set(self.rules.get());
        let found = engine.sub_request(request, to);
        self.runs.set(engine.runs.get());
        self.rules.set(engine.rules.get());
        self.dependencies.add(&engine.dependencies);
        Some(found)
    }

    /// Implements `-U`.
    pub(crate) fn url_is_accessible(&self, request: &EvaluatedRequest, url: &[u8]) -> bool {
        self.run_lookahead(request, url)
            .is_some_and(|(_, done)| match done {
                Ok(()) => true,
                Err(HookError::Status(status, _)) => status < 400,
                Err(HookError::Login(_)) => false,
            })
    }

    /// Implements `-F`.
    pub(crate) fn file_is_accessible(&self, request: &EvaluatedRequest, file: &[u8]) -> bool {
        let root = &*self.input.document_root;
        if file.is_empty() {
            return false;
        }
        let below = match file.strip_prefix(root) {
            Some(below) if below.starts_with(b"/") => below.to_vec(),
            _ if file.starts_with(b"/") => return false,
            _ => [crate::text::parent(&request.uri), file].concat(),
        };
        let url = crate::text::escape_uri(&below);
        let found = self.run_lookahead(request, &url);
        found.is_some_and(|(sub, done)| {
            done.is_ok()
                && sub.handler != Handler::Redirect
                && matches!(sub.found, Stat::File | Stat::Directory)
        })
    }

    /// Implements `%{LA-U:NAME}` and `%{LA-F:NAME}`.
    pub(crate) fn lookahead_variable(
        &self,
        request: &EvaluatedRequest,
        to: &[u8],
        name: &[u8],
    ) -> Option<Vec<u8>> {
        let (sub, _) = self.run_lookahead(request, to)?;
        Some(self.rewrite_variable(&sub, name))
    }
}
