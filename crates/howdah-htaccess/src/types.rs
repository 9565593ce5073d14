//! Determines the media type and the handler of a file from its name and the directives that apply to it: mod_mime,
//! `ForceType`, `SetHandler`, and mod_rewrite's `T` and `H` flags.
//!
//! Where directives stop PHP from running files whose names are those of scripts, requests for these files are refused,
//! because the source of a script must never be sent.

use std::sync::Arc;

use crate::engine::{HookResult, RequestEngine};
use crate::handle::is_php;
use crate::request::{EvaluatedRequest, Handler, Stat};
use crate::text::last_segment;

impl RequestEngine<'_> {
    /// Implements mod_mime: evaluates each extension of the name in turn.
    pub(crate) fn find_type(&self, request: &mut EvaluatedRequest) {
        if request.found == Stat::Directory {
            return;
        }
        let Some(mime) = request.config.mime.clone() else {
            return self.find_type_before_unknown(request);
        };
        let name = last_segment(&request.filename).to_vec();
        let start = name.iter().take_while(|b| **b == b'.').count();
        let mut charset = None;
        let mut removed = false;
        for extension in name[start..].split(|b| *b == b'.').skip(1) {
            if extension.is_empty() {
                continue;
            }
            let lower = extension.to_ascii_lowercase();
            let own = std::str::from_utf8(&lower)
                .ok()
                .and_then(|name| mime.extensions.get(name));
            let example = [b"x.", &lower[..]].concat();
            let is_script = self.server.is_script(&example);
            match own.and_then(|own| own.media_type.as_ref()) {
                Some((origin, kind)) if !kind.is_empty() => {
                    request.media_type = Some(kind.clone().into_bytes());
                    request.type_by_table = false;
                    if is_script && makes_text(kind) {
                        request.closed = Some(origin.clone());
                    }
                }
                Some(_) => removed = true,
                None => {
                    if let Some(kind) = self.server.media_type(&example) {
                        request.media_type = Some(kind);
                        request.type_by_table = true;
                    }
                }
            }
            let Some(own) = own else { continue };
            charset = own.charset.as_ref().or(charset);
            request.languages.extend(own.language.clone());
            if let Some(encoding) = &own.encoding {
                request.encoding = Some(match request.encoding.take() {
                    Some(before) => [&before, &b", "[..], encoding.as_bytes()].concat(),
                    None => encoding.clone().into_bytes(),
                });
            }
            if let Some((origin, handler)) = &own.handler {
                self.named_handler(request, origin, handler.as_bytes(), is_script);
            }
            if is_script && let Some(origin) = &own.closed {
                request.closed = Some(origin.clone());
            }
        }
        if request.languages.is_empty() {
            request.languages.extend(mime.default_language.clone());
        }
        if let (Some(charset), Some(kind)) = (charset, &request.media_type) {
            let plain = without_charset(kind);
            request.type_by_table = false;
            request.media_type = Some([&plain, &b"; charset="[..], charset.as_bytes()].concat());
        }
        if removed && request.media_type.is_none() {
            request.media_type = Some(Vec::new());
        }
    }

    /// Determines the type where no directive of mod_mime applies: a name whose last extension is unknown has the type
    /// of the extensions before it, so `app.js.br` is JavaScript.
    fn find_type_before_unknown(&self, request: &mut EvaluatedRequest) {
        let name = last_segment(&request.filename);
        let start = name.iter().take_while(|b| **b == b'.').count();
        let mut rest = &name[start..];
        while let Some(dot) = rest.iter().rposition(|b| *b == b'.') {
            let example = [b"x", &rest[dot..]].concat();
            if let Some(kind) = self.server.media_type(&example) {
                if rest.len() < name.len() - start {
                    request.media_type = Some(kind);
                    request.type_by_table = true;
                }
                return;
            }
            rest = &rest[..dot];
        }
    }

    fn named_handler(
        &self,
        request: &mut EvaluatedRequest,
        origin: &Arc<str>,
        handler: &[u8],
        is_script: bool,
    ) {
        request.handler = Handler::Named(handler.to_vec());
        request.closed = match is_php(handler) {
            true => None,
            false if is_script => Some(origin.clone()),
            false => request.closed.take(),
        };
    }

    /// Applies `ForceType` and `SetHandler`.
    pub(crate) fn override_type(&self, request: &mut EvaluatedRequest) -> HookResult {
        let Some(core) = request.config.core.clone() else {
            return Ok(());
        };
        let is_script = self.server.is_script(&request.filename);
        if let Some((origin, kind)) = &core.force_type
            && !kind.eq_ignore_ascii_case("none")
        {
            request.media_type = Some(kind.clone().into_bytes());
            request.type_by_table = false;
            if is_script && makes_text(kind) {
                request.closed = Some(origin.clone());
            }
        }
        if let Some((origin, word)) = &core.handler {
            let mut handler = self.text(request, word)?;
            handler.make_ascii_lowercase();
            if handler != b"none" {
                self.named_handler(request, origin, &handler, is_script);
            } else if is_script {
                request.closed = Some(origin.clone());
            }
        }
        Ok(())
    }

    /// Applies mod_rewrite's `T` and `H` flags, which override everything else.
    pub(crate) fn force_type(&self, request: &mut EvaluatedRequest) {
        if let Some(kind) = request.forced_type.take() {
            request.media_type = Some(kind);
        }
        if let Some(handler) = request.forced_handler.take() {
            if self.server.is_script(&request.filename) && !is_php(&handler) {
                let origin = self.decided_by.borrow().clone();
                request.closed = Some(origin.unwrap_or_else(|| "a rule with [H]".into()));
            }
            request.handler = Handler::Named(handler);
        }
    }

    /// Returns the directive that keeps scripts from running.
    pub(crate) fn scripts_closed_by(
        &self,
        request: &EvaluatedRequest,
        named: bool,
    ) -> Option<Arc<str>> {
        let php = request.config().php.as_ref();
        match php.and_then(|php| php.engine.as_ref()) {
            Some((origin, false)) => Some(origin.clone()),
            _ if named => request.closed.clone(),
            _ => None,
        }
    }
}

/// Returns true for a media type that users assign to scripts so that they are not run. Any other media type is meant
/// for the pages that the scripts generate.
fn makes_text(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    [
        "text/plain",
        "application/octet-stream",
        "application/x-httpd-php-source",
    ]
    .iter()
    .any(|start| kind.starts_with(start))
}

/// Returns a media type without its `charset`.
pub(crate) fn without_charset(kind: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(kind.len());
    for (number, part) in kind.split(|b| *b == b';').enumerate() {
        let part = part.trim_ascii();
        if number > 0 {
            if part.len() >= 8 && part[..8].eq_ignore_ascii_case(b"charset=") || part.is_empty() {
                continue;
            }
            out.extend_from_slice(b"; ");
        }
        out.extend_from_slice(part);
    }
    out
}
