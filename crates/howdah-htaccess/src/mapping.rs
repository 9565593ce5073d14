//! `Redirect` and `RedirectMatch` (mod_alias); index files, slashes and `FallbackResource` (mod_dir).

use crate::answer::Refusal;
use crate::config::{Dir, RedirectPath};
use crate::engine::{Engine, Step, Stop};
use crate::request::{Handler, Request, Stat};
use crate::text::{escape_uri, is_url, last_segment, lossy, pregsub};

impl Engine<'_> {
    pub(crate) fn redirect_by_alias(&self, request: &mut Request) -> Step {
        let Some(alias) = request.config.alias.clone() else {
            return Ok(());
        };
        // A redirect does not refuse a request.
        let counts = |status: u16| !request.refusals_only || !(300..400).contains(&status);
        if let Some((origin, status, to)) =
            alias.all.as_ref().filter(|(_, status, _)| counts(*status))
        {
            let to = match to {
                Some(word) => escape_path(&self.text(request, word)?),
                None => Vec::new(),
            };
            self.because(&Some(origin.clone()));
            return self.send_elsewhere(request, *status, to, alias.relative == Some(true));
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
            self.because(&Some(redirect.origin.clone()));
            return self.send_elsewhere(request, redirect.status, to, alias.relative == Some(true));
        }
        Ok(())
    }

    fn send_elsewhere(
        &self,
        request: &mut Request,
        status: u16,
        mut to: Vec<u8>,
        relative: bool,
    ) -> Step {
        if (300..400).contains(&status) {
            if !(relative && to.starts_with(b"/")) {
                if to.starts_with(b"/") {
                    to = [self.facts.origin(), to].concat();
                }
                if !is_url(&to) {
                    return Err(Stop::Status(500, Refusal::NotUnderstood));
                }
            }
            if let Some(args) = request.args.as_ref().filter(|_| !to.contains(&b'?')) {
                to.push(b'?');
                to.extend_from_slice(args);
            }
            request.headers_out.set(b"Location", &to);
        }
        let refusal = match status {
            403 | 404 | 410 => Refusal::Denied,
            _ => Refusal::Status,
        };
        Err(Stop::Status(status, refusal))
    }

    /// Implements mod_dir.
    pub(crate) fn find_index(&mut self, request: &mut Request) -> Step {
        let dir = request.config.dir.clone().unwrap_or_default();
        match request.found {
            Stat::Directory => self.directory(request, &dir),
            Stat::Missing if request.handler == Handler::None => self.fall_back(request, &dir),
            _ => Ok(()),
        }
    }

    fn directory(&mut self, request: &mut Request, dir: &Dir) -> Step {
        if !request.path_info.is_empty() {
            return Ok(());
        }
        if !request.uri.ends_with(b"/") {
            if dir.slash == Some(false) {
                return Ok(());
            }
            let mut to = [self.facts.origin(), escape_uri(&request.uri), b"/".to_vec()].concat();
            if let Some(args) = &request.args {
                to.push(b'?');
                to.extend_from_slice(args);
            }
            request.headers_out.set(b"Location", &to);
            return Err(Stop::Status(301, Refusal::Status));
        }
        if request.handler == Handler::Redirect
            || dir.check_handler == Some(true) && request.handler != Handler::None
        {
            return Ok(());
        }
        let names: Vec<Vec<u8>> = match &dir.index {
            Some(names) => names.iter().map(|name| name.clone().into_bytes()).collect(),
            None => self
                .facts
                .index
                .iter()
                .map(|name| name.clone().into_bytes())
                .collect(),
        };
        let mut error = None;
        for name in &names {
            let (sub, done) = self.ask_for_name("index", name, request);
            match done {
                Ok(()) if sub.found == Stat::File => {
                    if let Some(Some(status)) = dir.index_redirect {
                        let to = [self.facts.origin(), sub.uri].concat();
                        request.headers_out.set(b"Location", &to);
                        return Err(Stop::Status(status, Refusal::Status));
                    }
                    become_sub(request, sub);
                    return Ok(());
                }
                Ok(()) | Err(Stop::Status(404, _)) => {}
                Err(Stop::Status(status, refusal)) if (300..400).contains(&status) => {
                    take_location(request, &sub);
                    return Err(Stop::Status(status, refusal));
                }
                Err(login @ Stop::Login(_)) => return Err(login),
                Err(stop) => error = Some(stop),
            }
        }
        error.map_or(Ok(()), Err)
    }

    fn fall_back(&mut self, request: &mut Request, dir: &Dir) -> Step {
        let target = dir.fallback.as_deref().or(self.facts.fallback.as_deref());
        let Some(target) = target.filter(|name| !name.eq_ignore_ascii_case("disabled")) else {
            return Ok(());
        };
        // A file name of a script has a handler even if the file is missing.
        if self.world.is_script(last_segment(&request.filename)) {
            return Ok(());
        }
        let (sub, done) = self.ask_for_name("front controller", target.as_bytes(), request);
        match done {
            Ok(()) if sub.found == Stat::File => {
                become_sub(request, sub);
                Ok(())
            }
            Ok(()) | Err(Stop::Status(404, _)) => Ok(()),
            Err(stop) => {
                take_location(request, &sub);
                Err(stop)
            }
        }
    }
}

impl Engine<'_> {
    /// Runs a subrequest for a name that a directory or a missing file leads to.
    fn ask_for_name(&mut self, what: &str, name: &[u8], request: &Request) -> (Request, Step) {
        let asks = || format!("asks for {what} {}", lossy(name));
        self.world.hear(None, &asks);
        let (sub, done) = self.sub_request(request, &with_args(name, request));
        let said = || {
            let found = match &done {
                Ok(()) if sub.found == Stat::File => "is there".to_owned(),
                Ok(()) => "is not there".to_owned(),
                Err(Stop::Status(status, _)) => format!("would be answered with {status}"),
                Err(Stop::Login(_)) => "asks for a password".to_owned(),
            };
            format!("{what} {} {found}", lossy(name))
        };
        self.world.hear(None, &said);
        (sub, done)
    }
}

fn with_args(name: &[u8], request: &Request) -> Vec<u8> {
    match &request.args {
        Some(args) => [name, b"?", args].concat(),
        None => name.to_vec(),
    }
}

fn take_location(request: &mut Request, sub: &Request) {
    for (name, value) in sub.headers_out.iter() {
        request.headers_out.set(name, value);
    }
}

/// Implements `ap_internal_fast_redirect`: `request` becomes the subrequest.
fn become_sub(request: &mut Request, sub: Request) {
    let mut headers_out = sub.headers_out;
    headers_out.overlay(&request.headers_out);
    let mut env = sub.env;
    env.overlay(&request.env);
    let main = std::mem::take(request);
    *request = Request {
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
        authorized: main.authorized,
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
    fn an_alias_matches_whole_segments() {
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
