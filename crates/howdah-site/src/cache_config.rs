//! A site's configuration of the page cache, and the clients that may purge it over HTTP.

use std::fmt;

use howdah_cache::policy::CacheRules;

use howdah_http::network::AddressBlock;

/// A site's configuration of the page cache.
#[derive(Clone, Debug, Default)]
pub struct CacheConfig {
    /// The site's settings for the cache policy.
    pub rules: CacheRules,
    /// `cache_flush_on_write`: whether a write over HTTP invalidates every page of the site.
    pub flush_on_write: bool,
    /// The clients that may send purge requests over HTTP.
    pub purge: PurgeAccess,
    /// `cache_ignore_writes`: tables whose writes do not change any page, in addition to those of the preset.
    pub ignore_writes: Vec<String>,
    /// `cache = "dry-run"`: whether the cache only observes, without serving any page.
    pub dry_run: bool,
    /// `cache_shadow`: one hit in this many is compared with a fresh render; 0 for none.
    pub shadow: u64,
}

/// The clients that may purge over HTTP. By default there are none.
#[derive(Clone, Debug, Default)]
pub struct PurgeAccess {
    /// `cache_purge_from`: clients with these addresses may purge.
    pub networks: Vec<AddressBlock>,
    /// `cache_purge_from` includes `unix`: clients that connect to a unix socket may purge.
    pub unix: bool,
    /// `cache_purge_token`: clients that send this secret may purge.
    pub token: Option<PurgeToken>,
    /// `cache_purge_path`: a GET request below this path is a purge. Ends with a slash.
    pub path: Option<String>,
}

/// A shared secret. Its `Debug` output does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct PurgeToken(String);

impl PurgeToken {
    /// The minimum length of a secret: 16 characters of 62 kinds are 95 bits.
    pub const MIN_LENGTH: usize = 16;

    /// Returns a secret of visible ASCII characters that is too long to be guessed.
    ///
    /// # Errors
    /// The text is too short or has other characters.
    pub fn new(text: &str) -> Result<PurgeToken, String> {
        if text.len() < PurgeToken::MIN_LENGTH {
            return Err(format!(
                "{} characters are too few for a secret; use at least {}, for example the output of `openssl rand -hex 16`",
                text.len(),
                PurgeToken::MIN_LENGTH
            ));
        }
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err("only visible ASCII characters can be sent in a header".to_owned());
        }
        Ok(PurgeToken(text.to_owned()))
    }

    /// Compares the secret with a given one. The time depends only on the length of the given text, so the secret
    /// cannot be found out letter by letter.
    pub fn matches(&self, given: &[u8]) -> bool {
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
