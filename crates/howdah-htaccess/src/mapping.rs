//! `Redirect` and `RedirectMatch` (mod_alias); index files, slashes and `FallbackResource` (mod_dir).

use crate::config::{DirSettings, RedirectPath};
use crate::decision::HtaccessRefusal;
use crate::engine::{HookError, HookResult, RequestEngine};
use crate::request::{EvaluatedRequest, Handler, Stat};
use crate::text::{escape_uri, is_url, last_segment, lossy, pregsub};

impl RequestEngine<'_> {
    pub(crate) fn redirect_by_alias(&self, request: &mut EvaluatedRequest) -> HookResult {
        let Some(alias) = request.config.alias.clone() else {
            return Ok(());
        };
        // With `refusals_only`, redirects are skipped, because a redirect does not refuse a request.
        let counts = |status: u16| !request.refusals_only || !(300..400).contains(&status);
        if let Some((origin, status, to)) =
            alias.all.as_ref().filter(|(_, status, _)| counts(*status))
        {
            let to = match to {
                Some(word) => escape_path(&self.text(request, word)?),
                None => Vec::new(),
            };
            self.trace_decision(&Some(origin.clone()));
            return self.apply_redirect(request, *status, to, alias.relative == Some(true));
        }
        for redirect in alias
            .redirects
            .iter()
            .filter(|redirect| counts(redirect.status))
        {
            let to = match &redirect.path {
                RedirectPath::Matches(regex) => match self.groups(regex, &request.uri)? {
                    None => continue,
                    Some(found) => match &redirect.to {
                        Some(to) => escape_path(&pregsub(to.as_bytes(), &request.uri, &found)),
                        None => Vec::new(),
                    },
                },
                RedirectPath::Below(path) => match alias_matches(&request.uri, path.as_bytes()) {
                    0 => continue,
                    length => {
                        let to = redirect.to.as_deref().unwrap_or_default();
                        [to.as_bytes(), &escape_uri(&request.uri[length..])].concat()
                    }
                },
            };
            self.trace_decision(&Some(redirect.origin.clone()));
            return self.apply_redirect(request, redirect.status, to, alias.relative == Some(true));
        }
        Ok(())
    }

    fn apply_redirect(
        &self,
        request: &mut EvaluatedRequest,
        status: u16,
        mut to: Vec<u8>,
        relative: bool,
    ) -> HookResult {
        if (300..400).contains(&status) {
            if !(relative && to.starts_with(b"/")) {
                if to.starts_with(b"/") {
                    to = [self.input.origin(), to].concat();
                }
                if !is_url(&to) {
                    return Err(HookError::Status(500, HtaccessRefusal::NotUnderstood));
                }
            }
            if let Some(args) = request.args.as_ref().filter(|_| !to.contains(&b'?')) {
                to.push(b'?');
                to.extend_from_slice(args);
            }
            request.headers_out.set(b"Location", &to);
        }
        let refusal = match status {
            403 | 404 | 410 => HtaccessRefusal::Denied,
            _ => HtaccessRefusal::Status,
        };
        Err(HookError::Status(status, refusal))
    }

    /// Implements mod_dir.
    pub(crate) fn find_index(&mut self, request: &mut EvaluatedRequest) -> HookResult {
        let dir = request.config.dir.clone().unwrap_or_default();
        match request.found {
            Stat::Directory => self.directory(request, &dir),
            Stat::Missing if request.handler == Handler::None => self.fall_back(request, &dir),
            _ => Ok(()),
        }
    }

    fn directory(&mut self, request: &mut EvaluatedRequest, dir: &DirSettings) -> HookResult {
        if !request.path_info.is_empty() {
            return Ok(());
        }
        if !request.uri.ends_with(b"/") {
            if dir.slash == Some(false) {
                return Ok(());
            }
            let mut to = [self.input.origin(), escape_uri(&request.uri), b"/".to_vec()].concat();
            if let Some(args) = &request.args {
                to.push(b'?');
                to.extend_from_slice(args);
            }
            request.headers_out.set(b"Location", &to);
            return Err(HookError::Status(301, HtaccessRefusal::Status));
        }
        if request.handler == Handler::Redirect
            || dir.check_handler == Some(true) && request.handler != Handler::None
        {
            return Ok(());
        }
        let names: Vec<Vec<u8>> = match &dir.index {
            Some(names) => names.iter().map(|name| name.clone().into_bytes()).collect(),
            None => self
                .input
                .index
                .iter()
                .map(|name| name.clone().into_bytes())
                .collect(),
        };
        let mut error = None;
        for name in &names {
            let (sub, done) = self.run_subrequest("index", name, request);
            match done {
                Ok(()) if sub.found == Stat::File => {
                    if let Some(Some(status)) = dir.index_redirect {
                        let to = [self.input.origin(), sub.uri].concat();
                        request.headers_out.set(b"Location", &to);
                        return Err(HookError::Status(status, HtaccessRefusal::Status));
                    }
                    replace_by_subrequest(request, sub);
                    return Ok(());
                }
                Ok(()) | Err(HookError::Status(404, _)) => {}
                Err(HookError::Status(status, refusal)) if (300..400).contains(&status) => {
                    take_location(request, &sub);
                    return Err(HookError::Status(status, refusal));
                }
                Err(login @ HookError::Login(_)) => return Err(login),
                Err(stop) => error = Some(stop),
            }
        }
        error.map_or(Ok(()), Err)
    }

    fn fall_back(&mut self, request: &mut EvaluatedRequest, dir: &DirSettings) -> HookResult {
        let target = dir.fallback.as_deref().or(self.input.fallback.as_deref());
        let Some(target) = target.filter(|name| !name.eq_ignore_ascii_case("disabled")) else {
            return Ok(());
        };
        // A file name of a script has a handler even if the file is missing.
        if self.server.is_script(last_segment(&request.filename)) {
            return Ok(());
        }
        let (sub, done) = self.run_subrequest("front controller", target.as_bytes(), request);
        match done {
            Ok(()) if sub.found == Stat::File => {
                replace_by_subrequest(request, sub);
                Ok(())
            }
            Ok(()) | Err(HookError::Status(404, _)) => Ok(()),
            Err(stop) => {
                take_location(request, &sub);
                Err(stop)
            }
        }
    }
}

impl RequestEngine<'_> {
    /// Runs a subrequest for a name that a directory or a missing file leads to.
    fn run_subrequest(
        &mut self,
        what: &str,
        name: &[u8],
        request: &EvaluatedRequest,
    ) -> (EvaluatedRequest, HookResult) {
        let asks = || format!("asks for {what} {}", lossy(name));
        self.server.trace(None, &asks);
        let (sub, done) = self.sub_request(request, &with_args(name, request));
        let message = || {
            let found = match &done {
                Ok(()) if sub.found == Stat::File => "exists".to_owned(),
                Ok(()) => "does not exist".to_owned(),
                Err(HookError::Status(status, _)) => format!("would get status {status}"),
                Err(HookError::Login(_)) => "asks for a password".to_owned(),
            };
            format!("{what} {} {found}", lossy(name))
        };
        self.server.trace(None, &message);
        (sub, done)
    }
}

fn with_args(name: &[u8], request: &EvaluatedRequest) -> Vec<u8> {
    match &request.args {
        Some(args) => [name, b"?", args].concat(),
        None => name.to_vec(),
    }
}

fn take_location(request: &mut EvaluatedRequest, sub: &EvaluatedRequest) {
    for (name, value) in sub.headers_out.iter() {
        request.headers_out.set(name, value);
    }
}

/// Implements `ap_internal_fast_redirect`: `request` becomes the subrequest.
fn replace_by_subrequest(request: &mut EvaluatedRequest, sub: EvaluatedRequest) {
    let mut headers_out = sub.headers_out;
    headers_out.overlay(&request.headers_out);
    let mut env = sub.env;
    env.overlay(&request.env);
    let main = std::mem::take(request);
    *request = EvaluatedRequest {
        headers_out,
        env,
        method: main.method,
        status: main.status,
        user: main.user,
        is_sub: main.is_sub,
        redirects: main.redirects,
        depth: main.depth,
        main_uri: main.main_uri,
        prev: main.prev,
        authorized_as: main.authorized_as,
        ended: main.ended || sub.ended,
        ..sub
    };
}

/// Returns the length of the part of `uri` that an alias's path matches; slashes may be doubled.
fn alias_matches(uri: &[u8], alias: &[u8]) -> usize {
    let (mut at, mut fake) = (0, 0);
    let slash = |text: &[u8], at: usize| text.get(at) == Some(&b'/');
    while fake < alias.len() {
        if slash(alias, fake) {
            if !slash(uri, at) {
                return 0;
            }
            while slash(alias, fake) {
                fake += 1;
            }
            while slash(uri, at) {
                at += 1;
            }
        } else {
            if uri.get(at) != alias.get(fake) {
                return 0;
            }
            (at, fake) = (at + 1, fake + 1);
        }
    }
    if alias.last() != Some(&b'/') && at < uri.len() && !slash(uri, at) {
        return 0;
    }
    at
}

/// Escapes a URL except for its query and fragment.
fn escape_path(url: &[u8]) -> Vec<u8> {
    let end = url
        .iter()
        .position(|b| matches!(b, b'?' | b'#'))
        .unwrap_or(url.len());
    let mut out = escape_uri(&url[..end]);
    out.extend_from_slice(&url[end..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alias_matches_whole_segments() {
        for (uri, alias, length) in [
            ("/a/b", "/a", 2),
            ("/a", "/a", 2),
            ("/ab", "/a", 0),
            ("//a//b", "/a/", 5),
            ("/a", "/a/", 0),
            ("/x", "/", 1),
        ] {
            assert_eq!(
                alias_matches(uri.as_bytes(), alias.as_bytes()),
                length,
                "{uri} {alias}"
            );
        }
    }
}
