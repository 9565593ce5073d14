//! Writes and reads the bytes of a journal: its header and its records.

use super::{FreshStart, JournalSite, JournalState};
use crate::Millis;
use crate::generation::{Force, Generations, Purge};
use crate::store::disk::format::{FileDamage, RecordReader};

const MAGIC: &[u8; 8] = b"HOWDAHJL";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 60;
/// Number of bytes before a record's text.
const FRAME_BYTES: usize = 12;
/// Larger than every purge's number: with one purge per nanosecond, reaching it would take a century.
const MAX_PURGE_NUMBER: u64 = 1 << 62;
/// A clock may be set back by this many milliseconds before the cache begins empty. Pages then look younger than they
/// are by as much.
const MAX_CLOCK_SETBACK: Millis = 1000;

/// The header of a journal.
#[derive(Clone, Debug)]
pub struct JournalHeader {
    pub boot: [u8; 16],
    pub secret: [u8; 16],
    pub stamp: Millis,
    pub closed: bool,
}

impl JournalHeader {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&u32::from(self.closed).to_le_bytes());
        out[16..32].copy_from_slice(&self.boot);
        out[32..48].copy_from_slice(&self.secret);
        out[48..56].copy_from_slice(&self.stamp.to_le_bytes());
        let checksum = crc32fast::hash(&out[..56]);
        out[56..].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<JournalHeader, FileDamage> {
        let mut reader = RecordReader(bytes);
        let magic: [u8; 8] = reader.array()?;
        let version = reader.u32()?;
        let closed = reader.u32()?;
        let header = JournalHeader {
            boot: reader.array()?,
            secret: reader.array()?,
            stamp: reader.u64()?,
            closed: closed == 1,
        };
        let right = reader.u32()? == crc32fast::hash(&bytes[..56]);
        match right && magic == *MAGIC && version == VERSION {
            true => Ok(header),
            false => Err(FileDamage::Corrupt),
        }
    }
}

/// Builds a record: its text, preceded by length and checksums.
pub fn frame_record(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + FRAME_BYTES);
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(text).to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
    out.extend_from_slice(text);
    out
}

/// Builds the record of whether writes of a site are in progress.
pub fn under_way_record(site: &[u8; 16], any: bool) -> Vec<u8> {
    frame_record(&[b"W", &site[..], &[u8::from(any)]].concat())
}

/// Builds the record of a purge.
pub fn purge_record(site: &[u8; 16], number: u64, what: &Purge, force: Force) -> Vec<u8> {
    let (kind, name): (u8, &[u8]) = match what {
        Purge::All => (b'A', b""),
        Purge::Url(key) => (b'U', key),
        Purge::Tag(tag) => (b'T', tag),
        Purge::Path { text, exact: true } => (b'E', text),
        Purge::Path { text, exact: false } => (b'B', text),
    };
    let mut text = vec![b'P'];
    text.extend_from_slice(site);
    text.extend_from_slice(&number.to_le_bytes());
    text.push(u8::from(force != Force::Hard));
    text.push(kind);
    text.extend_from_slice(name);
    frame_record(&text)
}

/// Parses a journal. The error says why the cache begins empty.
pub fn parse_journal(
    bytes: &[u8],
    boot: Option<[u8; 16]>,
    now: Millis,
) -> Result<JournalState, FreshStart> {
    let corrupt = |_: FileDamage| FreshStart::Corrupt;
    let header = bytes.get(..HEADER_BYTES).ok_or(FreshStart::Corrupt)?;
    let header = JournalHeader::decode(header).map_err(corrupt)?;
    if !header.closed && Some(header.boot) != boot {
        return Err(FreshStart::MachineStopped);
    }
    if now + MAX_CLOCK_SETBACK < header.stamp {
        return Err(FreshStart::ClockWentBack);
    }
    let mut state = JournalState::new(header);
    let mut rest = RecordReader(&bytes[HEADER_BYTES..]);
    // The last record may be incomplete: it was being written when the process was killed, so its purge was never
    // acknowledged.
    while let Ok(frame) = rest.take(FRAME_BYTES) {
        let mut fields = RecordReader(frame);
        let mut word = || fields.u32().map_err(corrupt);
        let (length, checksum, frames) = (word()? as usize, word()?, word()?);
        if crc32fast::hash(&frame[..8]) != frames {
            return Err(FreshStart::Corrupt);
        }
        let Ok(text) = rest.take(length) else { break };
        if crc32fast::hash(text) != checksum {
            return Err(FreshStart::Corrupt);
        }
        apply_record(&mut state, &mut RecordReader(text)).map_err(corrupt)?;
    }
    Ok(state)
}

fn apply_record(state: &mut JournalState, text: &mut RecordReader<'_>) -> Result<(), FileDamage> {
    let number_after = match text.take(1)? {
        b"N" => text.u64()?,
        b"S" => {
            let (id, policy, clock) = (text.array()?, text.array()?, text.u64()?);
            let generations = Generations::starting_at(clock);
            state.sites.insert(
                id,
                JournalSite {
                    policy,
                    generations,
                    under_way: false,
                },
            );
            clock.saturating_add(1)
        }
        b"W" => {
            let id: [u8; 16] = text.array()?;
            let any = text.take(1)?[0];
            let site = state.sites.get_mut(&id).ok_or(FileDamage::Corrupt)?;
            site.under_way = match any {
                0 | 1 => any == 1,
                _ => return Err(FileDamage::Corrupt),
            };
            0
        }
        b"P" => {
            let id: [u8; 16] = text.array()?;
            let number = text.u64()?;
            let force = match text.take(1)? {
                [0] => Force::Hard,
                // The time is not recorded: after a restart, a page that was purged softly is too old to be served.
                [1] => Force::Soft { at: 0 },
                _ => return Err(FileDamage::Corrupt),
            };
            let kind = text.take(1)?[0];
            let name = std::mem::take(&mut text.0).to_vec();
            let what = match kind {
                b'A' => Purge::All,
                b'U' => Purge::Url(name),
                b'T' => Purge::Tag(name),
                b'E' | b'B' => Purge::Path {
                    text: name,
                    exact: kind == b'E',
                },
                _ => return Err(FileDamage::Corrupt),
            };
            let site = state.sites.get(&id).ok_or(FileDamage::Corrupt)?;
            site.generations.replay(number, &what, force);
            number.saturating_add(1)
        }
        _ => return Err(FileDamage::Corrupt),
    };
    if number_after > MAX_PURGE_NUMBER {
        return Err(FileDamage::Corrupt);
    }
    state.next_number = state.next_number.max(number_after);
    text.end()
}
