//! Which pages a write invalidates. RFC 9111 §4.4 requires this for the URL of a successful unsafe request. Here,
//! unless it is switched off, any write invalidates every page of the site, because a cache that sees only HTTP cannot
//! know which pages show what was written. Presets name the writes that change no page.

use howdah_cache::generation::{Force, Purge};
use howdah_cache::key::{PageKey, QueryRules, Url};
use howdah_cache::preset::FormBody;
use howdah_http::message::{RequestHead, ResponseHead};

use super::SiteCache;
use howdah_site::client_address::Client;
use howdah_site::docroot::path::UrlPath;
use howdah_site::site::Site;

/// What an unsafe request invalidates.
#[derive(Debug)]
pub struct WriteInvalidation {
    /// Whether all pages are invalidated, and not only those of `keys`.
    everything: bool,
    /// The keys of the URL, with its query as sent and as a clean request sees it, and of those that the response names.
    keys: Vec<Vec<u8>>,
    /// The status with which the script has responded, once it has.
    status: Option<u16>,
}

/// Returns what a request invalidates, if it writes. `reports_effects` says whether the cache sees the database writes of
/// its script.
pub fn of_request(
    part: &SiteCache,
    site: &Site,
    request: &RequestHead,
    client: &Client<'_>,
    form: FormBody<'_>,
    reports_effects: bool,
) -> Option<WriteInvalidation> {
    if !may_write(part, request) {
        return None;
    }
    let query = request.query();
    let is_noise = || {
        let preset = part.rules().preset;
        let path = UrlPath::parse(request.path());
        path.is_ok_and(|path| {
            let path = path.as_bytes();
            preset.is_noise(path, query, form)
                || reports_effects && preset.changes_only_database(path)
        })
    };
    Some(WriteInvalidation {
        everything: part.config.flush_on_write && !is_noise(),
        keys: url_keys(part, site, client, request.host(), request.path(), query),
        status: None,
    })
}

/// Returns whether a request writes, according to its method, path and query. The path is parsed as the router parses
/// it.
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

/// Returns the keys of a URL of a site.
pub fn url_keys(
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
            excluded: &[],
        };
        let mut key = PageKey::default();
        if key.make(&url, &rules).is_ok() {
            keys.push(key.as_bytes().to_vec());
        }
    }
    keys.dedup();
    keys
}

impl WriteInvalidation {
    /// Invalidates pages: before the response is sent, so the writer never reads an older page, and again when nothing
    /// runs for the request any more. If the script has responded with a client error, nothing was written. Data may
    /// have been written if the script has responded with a server error, or has not responded at all, whatever status
    /// the client gets or would have got.
    pub fn apply(&self, part: &SiteCache) {
        // RFC 9111 §4.4 requires this for the URL only after a non-error status.
        let is_refused = match self.status {
            // These may come from a file that the script names in place of a body (`X-Sendfile`).
            Some(412 | 416) => false,
            Some(400..500) => true,
            Some(status) => status >= 500 && !self.everything,
            None => false,
        };
        if is_refused {
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

    /// Takes the head of the script's response into account: its status, and the URLs that `Location` and
    /// `Content-Location` name, if they have the same origin (RFC 9111 §4.4).
    pub fn note_head(
        &mut self,
        part: &SiteCache,
        site: &Site,
        (request, client): (&RequestHead, &Client<'_>),
        head: &ResponseHead,
    ) {
        self.status = Some(head.status);
        if self.everything || head.status >= 400 {
            return;
        }
        for (name, value) in head.fields() {
            let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
            if is(b"location") || is(b"content-location") {
                self.add_location(part, site, (request, client), value);
            }
        }
    }

    fn add_location(
        &mut self,
        part: &SiteCache,
        site: &Site,
        (request, client): (&RequestHead, &Client<'_>),
        location: &[u8],
    ) {
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
        self.keys
            .extend(url_keys(part, site, client, host, path, query));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::CacheConfig;

    #[test]
    fn only_the_scripts_own_refusal_means_that_nothing_was_written() {
        for (status, invalidates_all, invalidates_url) in [
            (None, true, true),
            (Some(200), true, true),
            (Some(303), true, true),
            (Some(404), false, false),
            (Some(412), true, true),
            (Some(500), true, false),
        ] {
            for (everything, expected) in [(true, invalidates_all), (false, invalidates_url)] {
                let part = SiteCache::new(CacheConfig::default());
                let before = part.generations.now();
                let write = WriteInvalidation {
                    everything,
                    keys: vec![b"key".to_vec()],
                    status,
                };
                write.apply(&part);
                let has_purged = part.generations.now() != before;
                assert_eq!(has_purged, expected, "{write:?}");
            }
        }
    }
}
