//! Which pages a write invalidates. RFC 9111 §4.4 asks for the URL of a successful unsafe request;
//! here, unless it is switched off, every page of the site is invalid after any write, because a
//! cache that sees only HTTP cannot know which pages show what was written. Presets name the writes
//! that change no page.

use howdah_cache::generation::{Force, Purge};
use howdah_cache::key::{Key, QueryRules, Url};
use howdah_cache::preset::FormBody;
use howdah_http::message::RequestHead;

use super::SiteCache;
use crate::client_address::Client;
use crate::docroot::path::UrlPath;
use crate::site::Site;

/// What an unsafe request will make invalid.
#[derive(Debug)]
pub struct Write {
    /// All, or the keys of its URL.
    everything: bool,
    /// The URL's key, with its query as it came and as a clean room sees it.
    keys: Vec<Vec<u8>>,
}

/// Whether a request writes, and what.
pub fn of(
    part: &SiteCache,
    site: &Site,
    request: &RequestHead,
    client: &Client<'_>,
    form: FormBody<'_>,
) -> Option<Write> {
    if !may_write(part, request) {
        return None;
    }
    let query = request.query();
    let is_noise = || {
        let preset = part.rules().preset;
        let path = UrlPath::parse(request.path());
        path.is_ok_and(|path| preset.is_noise(path.as_bytes(), query, form))
    };
    Some(Write {
        everything: part.config.flush_on_write && !is_noise(),
        keys: keys(part, site, client, request.host(), request.path(), query),
    })
}

/// Whether a request writes as far as its method, path and query say. The path is looked at as the
/// router reads it.
pub fn may_write(part: &SiteCache, request: &RequestHead) -> bool {
    match request.method() {
        b"GET" | b"HEAD" => {
            let path = UrlPath::parse(request.path());
            let preset = part.rules().preset;
            path.is_ok_and(|path| preset.get_writes(path.as_bytes(), request.query()))
        }
        b"OPTIONS" | b"TRACE" => false,
        _ => true,
    }
}

/// The keys of a URL of a site.
pub fn keys(
    part: &SiteCache,
    site: &Site,
    client: &Client<'_>,
    host: &[u8],
    path: &[u8],
    query: Option<&[u8]>,
) -> Vec<Vec<u8>> {
    let url = Url {
        site: site.number(),
        https: client.https,
        host: client.host.as_deref().unwrap_or(host),
        path,
        query,
    };
    let mut keys = Vec::new();
    for drop_tracking in [true, false] {
        let rules = QueryRules {
            drop_tracking,
            ignored: &part.rules().ignore_query,
            never: &[],
        };
        let mut key = Key::default();
        if key.make(&url, &rules).is_ok() {
            keys.push(key.as_bytes().to_vec());
        }
    }
    keys.dedup();
    keys
}

impl Write {
    /// Invalidates pages after an answer of this status, before it is sent, so that the writer
    /// never reads an older page, and once more when the script is through. An answer that says the
    /// request was wrong wrote nothing; one that says the server failed may have.
    pub fn happened(&self, part: &SiteCache, status: u16) {
        // RFC 9111 §4.4 asks for the URL after a non-error status only.
        if (400..500).contains(&status) || (status >= 500 && !self.everything) {
            return;
        }
        if self.everything {
            part.generations.purge(&Purge::All, Force::Hard);
        } else {
            for key in &self.keys {
                part.generations
                    .purge(&Purge::Url(key.clone()), Force::Hard);
            }
        }
    }

    /// As [`Write::happened`], for the URL that `Location` or `Content-Location` names, if it is of
    /// the same origin (RFC 9111 §4.4).
    pub fn also(
        &self,
        part: &SiteCache,
        site: &Site,
        client: &Client<'_>,
        request: &RequestHead,
        location: &[u8],
    ) {
        if self.everything {
            return;
        }
        let host = client.host.as_deref().unwrap_or_else(|| request.host());
        let own = [
            if client.https {
                &b"https://"[..]
            } else {
                b"http://"
            },
            host,
        ]
        .concat();
        let target = match location.strip_prefix(&own[..]) {
            Some(rest) => rest,
            None if location.starts_with(b"/") && !location.starts_with(b"//") => location,
            None => return,
        };
        let end = target
            .iter()
            .position(|b| *b == b'#')
            .unwrap_or(target.len());
        let target = &target[..end];
        let mark = target.iter().position(|b| *b == b'?');
        let path = &target[..mark.unwrap_or(target.len())];
        let path = if path.is_empty() { b"/" } else { path };
        let query = mark.map(|at| &target[at + 1..]);
        for key in keys(part, site, client, host, path, query) {
            part.generations.purge(&Purge::Url(key), Force::Hard);
        }
    }
}
