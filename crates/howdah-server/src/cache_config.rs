//! What a site has configured about the page cache, and who may purge it over HTTP.

use std::fmt;

use howdah_cache::policy::Rules;

use howdah_http::network::Network;

/// What a site has configured about the cache.
#[derive(Clone, Debug, Default)]
pub struct CacheConfig {
    /// What the site has configured for the cache policy.
    pub rules: Rules,
    /// `cache_flush_on_write`: a write over HTTP makes every page of the site old.
    pub flush_on_write: bool,
    /// Which clients may send purge requests over HTTP.
    pub purge: PurgeAccess,
    /// `cache_ignore_writes`: tables whose writes change no page, beside those of the preset.
    pub ignore_writes: Vec<String>,
    /// `cache = "dry-run"`: nothing is served from the cache.
    pub dry_run: bool,
    /// `cache_shadow`: one hit in this many is checked by a fresh render; 0: none.
    pub shadow: u64,
}

/// The clients that may purge over HTTP. By default none.
#[derive(Clone, Debug, Default)]
pub struct PurgeAccess {
    /// `cache_purge_from`: clients of these addresses.
    pub networks: Vec<Network>,
    /// `cache_purge_from` names `unix`: who connects to a unix socket.
    pub unix: bool,
    /// `cache_purge_token`: clients that send this secret may purge.
    pub token: Option<PurgeToken>,
    /// `cache_purge_path`: a GET below it is a purge. Ends with a slash.
    pub path: Option<String>,
}

/// A shared secret. Its debug form does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct PurgeToken(String);

impl PurgeToken {
    /// Shortest one: 16 letters of 62 kinds are 95 bits.
    pub const SHORTEST: usize = 16;

    /// A secret of visible letters, long enough that nobody guesses it.
    pub fn new(text: &str) -> Result<PurgeToken, String> {
        if text.len() < PurgeToken::SHORTEST {
            return Err(format!(
                "{} characters are too few for a secret; {} at least, as `openssl rand -hex 16` makes",
                text.len(),
                PurgeToken::SHORTEST
            ));
        }
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err("only visible ASCII characters can be sent in a header field".to_owned());
        }
        Ok(PurgeToken(text.to_owned()))
    }

    /// Takes as long for any text of a length, so that it cannot be found out letter by letter.
    pub(crate) fn is(&self, given: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let mut differ = own.len() ^ given.len();
        for (at, byte) in given.iter().enumerate() {
            differ |= usize::from(byte ^ own[at % own.len()]);
        }
        std::hint::black_box(differ) == 0
    }
}

impl fmt::Debug for PurgeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PurgeToken(…)")
    }
}
