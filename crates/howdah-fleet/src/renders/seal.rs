//! Signs the pages that pass through Valkey. The signature with the fleet's key covers the page's name (site,
//! configuration, URL), the position in the log at which its render began, and the time. A client that only has
//! Valkey's password can neither forge a page nor put an old one back: an old page is behind the log, or older than
//! pages in Valkey can be.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac::{Context, HMAC_SHA256, Key, verify};

use super::outcome::FleetRenderOutcome;
use crate::position::LogPosition;

/// The minimum length of a key, in bytes.
pub const MIN_KEY_BYTES: usize = 32;
/// How far the clocks of members may differ.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(2);
/// The length of a signature, in bytes.
const SIGNATURE_BYTES: usize = 32;

/// The secret that the members of a fleet share.
#[derive(Clone, PartialEq, Eq)]
pub struct RenderKey(Vec<u8>);

impl fmt::Debug for RenderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RenderKey(…)")
    }
}

impl RenderKey {
    /// Takes the key from the content of a file, without surrounding whitespace. Returns `None` if it is too short.
    pub fn new(content: &[u8]) -> Option<RenderKey> {
        let key = content.trim_ascii();
        (key.len() >= MIN_KEY_BYTES).then(|| RenderKey(key.to_vec()))
    }
}

/// The name of a page in Valkey, which does not reveal its URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageName(pub(super) String);

/// Signs and verifies pages.
pub(super) struct Seal(Key);

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal(…)")
    }
}

fn unix_milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

impl Seal {
    pub fn new(key: &RenderKey) -> Seal {
        Seal(Key::new(HMAC_SHA256, &key.0))
    }

    /// Returns the name of the page that these parts identify.
    pub fn name(&self, parts: &[&[u8]]) -> PageName {
        let mut context = Context::with_key(&self.0);
        context.update(b"howdah page");
        for part in parts {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let hex = |b: &u8| format!("{b:02x}");
        PageName(context.sign().as_ref().iter().map(hex).collect())
    }

    fn signed_bytes(name: &PageName, position: &LogPosition, made: &[u8], page: &[u8]) -> Vec<u8> {
        let header = format!(
            "howdah render {} {} {} ",
            name.0, position.incarnation, position.number
        );
        [header.as_bytes(), made, page].concat()
    }

    /// Returns the value that Valkey stores for a page whose render began at `position`.
    pub fn seal(&self, name: &PageName, position: &LogPosition, page: &[u8]) -> Vec<u8> {
        self.seal_at(name, position, page, unix_milliseconds())
    }

    fn seal_at(&self, name: &PageName, position: &LogPosition, page: &[u8], now: u64) -> Vec<u8> {
        let made = now.to_le_bytes();
        let signed = Seal::signed_bytes(name, position, &made, page);
        let signature = aws_lc_rs::hmac::sign(&self.0, &signed);
        let header = format!("p {} {} ", position.incarnation, position.number);
        [header.as_bytes(), signature.as_ref(), &made, page].concat()
    }

    /// Verifies a value from Valkey that is at most `life` old. Returns the page and the position in the log at which
    /// its render began.
    pub fn open(
        &self,
        name: &PageName,
        kept: &[u8],
        life: Duration,
    ) -> Result<(LogPosition, Vec<u8>), FleetRenderOutcome> {
        self.open_at(name, kept, life, unix_milliseconds())
    }

    fn open_at(
        &self,
        name: &PageName,
        kept: &[u8],
        life: Duration,
        now: u64,
    ) -> Result<(LogPosition, Vec<u8>), FleetRenderOutcome> {
        let (position, rest) = parse_header(kept).ok_or(FleetRenderOutcome::RenderForged)?;
        let (signature, rest) = rest
            .split_first_chunk::<SIGNATURE_BYTES>()
            .ok_or(FleetRenderOutcome::RenderForged)?;
        let (made, page) = rest
            .split_first_chunk()
            .ok_or(FleetRenderOutcome::RenderForged)?;
        let signed = Seal::signed_bytes(name, &position, made, page);
        verify(&self.0, &signed, signature).map_err(|_| FleetRenderOutcome::RenderForged)?;
        let made = u64::from_le_bytes(*made);
        let clocks = MAX_CLOCK_DIFFERENCE.as_millis() as u64;
        let oldest = now.saturating_sub(life.as_millis() as u64 + clocks);
        match made >= oldest && made <= now.saturating_add(clocks) {
            true => Ok((position, page.to_vec())),
            false => Err(FleetRenderOutcome::RenderUntimely),
        }
    }
}

/// Parses `p INCARNATION NUMBER `, and returns the position and the rest.
fn parse_header(kept: &[u8]) -> Option<(LogPosition, &[u8])> {
    let rest = kept.strip_prefix(b"p ")?;
    let (incarnation, rest) = split_word(rest)?;
    let (number, rest) = split_word(rest)?;
    let position = LogPosition {
        incarnation: incarnation.into(),
        number: number.parse().ok()?,
    };
    Some((position, rest))
}

fn split_word(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let end = bytes.iter().position(|b| *b == b' ')?;
    let word = std::str::from_utf8(&bytes[..end]).ok()?;
    Some((word, &bytes[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Duration = Duration::from_secs(10);

    fn seal(key: &str) -> Seal {
        Seal::new(&RenderKey::new(key.as_bytes()).unwrap())
    }

    fn at(number: u64) -> LogPosition {
        LogPosition {
            incarnation: "e.run.repl".into(),
            number,
        }
    }

    #[test]
    fn page_opens_only_with_its_name_and_key() {
        let own = seal("0123456789abcdef0123456789abcdef\n");
        let (name, other) = (own.name(&[b"ab", b"c"]), own.name(&[b"a", b"bc"]));
        assert_ne!(name, other, "where one part ends is part of the name");
        let kept = own.seal_at(&name, &at(7), b"the page", 50_000);
        let opened = own.open_at(&name, &kept, LIFE, 50_100);
        assert_eq!(opened, Ok((at(7), b"the page".to_vec())));
        let forged = Err(FleetRenderOutcome::RenderForged);
        assert_eq!(own.open_at(&other, &kept, LIFE, 50_100), forged);
        let foreign = seal("0123456789abcdef0123456789abcdeF");
        assert_eq!(foreign.open_at(&name, &kept, LIFE, 50_100), forged);
        assert_eq!(own.open_at(&name, b"p ", LIFE, 50_100), forged);
    }

    #[test]
    fn page_with_any_changed_byte_is_refused() {
        let own = seal("0123456789abcdef0123456789abcdef");
        let name = own.name(&[b"a"]);
        let kept = own.seal_at(&name, &at(7), b"the page", 50_000);
        for byte in 0..kept.len() {
            let mut bad = kept.clone();
            bad[byte] ^= 1;
            assert!(own.open_at(&name, &bad, LIFE, 50_000).is_err(), "{byte}");
        }
    }

    #[test]
    fn replayed_page_is_untimely() {
        let own = seal("0123456789abcdef0123456789abcdef");
        let name = own.name(&[b"a"]);
        let kept = own.seal_at(&name, &at(7), b"", 50_000);
        let open = |now| own.open_at(&name, &kept, LIFE, now).err();
        assert_eq!(open(61_999), None);
        assert_eq!(open(62_001), Some(FleetRenderOutcome::RenderUntimely));
        assert_eq!(open(47_000), Some(FleetRenderOutcome::RenderUntimely));
    }

    #[test]
    fn key_must_be_long_and_is_never_printed() {
        assert_eq!(
            RenderKey::new(b"  0123456789abcdef0123456789abcde \n"),
            None
        );
        let key = RenderKey::new(&[b'k'; 40]).unwrap();
        assert!(!format!("{key:?} {:?}", Seal::new(&key)).contains("kk"));
    }
}
