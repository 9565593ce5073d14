//! The last of Apache's hooks: decides which file is sent, or which script runs.

use crate::decision::{Action, HtaccessRefusal};
use crate::engine::{HookError, HookResult, RequestEngine};
use crate::request::{EvaluatedRequest, Handler, Stat};
use crate::text::lossy;

pub(crate) enum HandlerResult {
    /// The decision is final.
    Done(Action),
    /// The request continues as an internal redirect to this URL.
    Redirect(Vec<u8>),
}

impl RequestEngine<'_> {
    /// Runs the handler, as far as this crate decides its result.
    pub(crate) fn handle(&self, request: &EvaluatedRequest) -> HookResult<HandlerResult> {
        if request.handler == Handler::Redirect {
            let mut to = request.filename.clone();
            if let Some(args) = &request.args {
                to.push(b'?');
                to.extend_from_slice(args);
            }
            return Ok(HandlerResult::Redirect(to));
        }
        let refuse = |status, refusal| Err(HookError::Status(status, refusal));
        let Some(path) = self.below_root(&request.filename) else {
            return refuse(404, HtaccessRefusal::NotFound);
        };
        match request.found {
            Stat::File => self.handle_file(request, path),
            _ if matches!(&*request.method, b"OPTIONS") => Ok(HandlerResult::Done(Action::Options)),
            Stat::Directory if request.path_info.is_empty() => match request.handler {
                // Other handlers do not list directories, and they find no file here.
                Handler::Named(_) => refuse(404, HtaccessRefusal::NotFound),
                _ if request.method == b"POST" => refuse(404, HtaccessRefusal::NotFound),
                _ => refuse(403, HtaccessRefusal::NoIndex),
            },
            _ if !matches!(&*request.method, b"GET" | b"HEAD" | b"POST")
                && !self.server.is_script(path) =>
            {
                refuse(405, HtaccessRefusal::Method)
            }
            _ => refuse(404, HtaccessRefusal::NotFound),
        }
    }

    fn handle_file(&self, request: &EvaluatedRequest, path: &[u8]) -> HookResult<HandlerResult> {
        let refuse = |status, refusal| Err(HookError::Status(status, refusal));
        let accepts = request
            .config()
            .core
            .as_ref()
            .and_then(|core| core.accept_path_info?);
        if let Some(named) = self.runs_php(request)? {
            if accepts == Some(false) && !request.path_info.is_empty() {
                return refuse(404, HtaccessRefusal::NotFound);
            }
            return Ok(HandlerResult::Done(Action::Script {
                path: path.to_vec(),
                path_info: request.path_info.clone(),
                by_handler: !named,
            }));
        }
        if accepts != Some(true) && !request.path_info.is_empty() {
            return refuse(404, HtaccessRefusal::NotFound);
        }
        match &*request.method {
            b"GET" | b"HEAD" | b"OPTIONS" => Ok(HandlerResult::Done(Action::File(path.to_vec()))),
            // As in Apache, the response to a `POST` that a rule leads to a file is the file.
            b"POST" if request.redirects > 0 => {
                Ok(HandlerResult::Done(Action::File(path.to_vec())))
            }
            _ => refuse(405, HtaccessRefusal::Method),
        }
    }

    /// Returns whether PHP runs the file because of its name (`Some(true)`) or because of a line (`Some(false)`). Fails
    /// for a script that lines keep from running, whose source is not sent either.
    pub(crate) fn runs_php(&self, request: &EvaluatedRequest) -> HookResult<Option<bool>> {
        let named = self.server.is_script(&request.filename);
        let by_handler = match &request.handler {
            Handler::Named(name) => is_php(name),
            _ => request.media_type.as_deref().is_some_and(is_php_type),
        };
        if !named && !by_handler {
            return Ok(None);
        }
        if let Some(origin) = self.scripts_closed_by(request, named) {
            self.trace_decision(&Some(origin));
            return Err(HookError::Status(403, HtaccessRefusal::NoScripts));
        }
        Ok(Some(named))
    }

    /// Returns the path of a file name below the document root.
    pub(crate) fn below_root<'n>(&self, file: &'n [u8]) -> Option<&'n [u8]> {
        let below = file.strip_prefix(&*self.input.document_root)?;
        below.starts_with(b"/").then_some(below)
    }
}

/// Returns true for a handler that runs PHP: the names of mod_php and php-fpm, and those that hosters use.
pub(crate) fn is_php(name: &[u8]) -> bool {
    let name = lossy(name).to_ascii_lowercase();
    (name.contains("php") && !name.contains("source"))
        || name.starts_with("proxy:unix:")
        || name.starts_with("proxy:fcgi:")
        || matches!(&*name, "fcgid-script" | "fastcgi-script")
}

/// Returns true for a media type that runs PHP.
pub(crate) fn is_php_type(name: &[u8]) -> bool {
    let name = lossy(name).to_ascii_lowercase();
    name.starts_with("application/x-httpd-") && is_php(name.as_bytes())
}
