//! A page as a file. These functions convert bytes to pages and back; they touch no file.
//!
//! ```text
//! 0   8  "HOWDAHPG"
//! 8   4  version of the format
//! 12  4  length of the description
//! 16  4  CRC-32 of the description
//! 20  4  CRC-32 of the 20 bytes before
//! 24     the description, then the bodies one after the other: plain, and as they were encoded
//! ```
//! Numbers are little-endian. The description contains the whole key, and the length and CRC-32 of each body, so every
//! byte of a file is covered by a checksum and the file's length is known. The encoding is unique: a page that is read
//! and written again has the same bytes.
//!
//! A body is one run of bytes at an offset that the description determines, so it can be sent from the file.

use bytes::Bytes;
use siphasher::sip128::SipHasher24;

use crate::Millis;
use crate::object::{CODING_COUNT, Object, ResponseForm};
use crate::policy::Freshness;

mod codec;

pub(super) use codec::RecordReader;
use codec::RecordWriter;

/// The version that is written, and the only one that is read: a cache is not an archive.
pub const FORMAT_VERSION: u32 = 1;
/// Number of bytes before the description.
pub const HEAD_BYTES: usize = 24;
/// Maximum size of a page's description in bytes.
pub const MAX_DESCRIPTION_BYTES: usize = 1 << 20;
/// The largest time that is stored, in milliseconds: some nine thousand years. Sums of a few such times do not
/// overflow.
const MAX_STORED_TIME: Millis = 1 << 48;
const MAGIC: &[u8; 8] = b"HOWDAHPG";

/// The owner of a page: 16 bytes for the site, and 16 bytes for all configuration that determines its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Identifies the site, across restarts.
    pub site: [u8; 16],
    /// Identifies the configuration under which its pages were made.
    pub policy: [u8; 16],
}

impl Owner {
    /// Hashes the bytes that identify a site, and all configuration that determines its pages.
    pub fn new(site: &[u8], policy: &[u8]) -> Owner {
        let digest = |bytes: &[u8]| SipHasher24::new().hash(bytes).as_bytes();
        Owner {
            site: digest(site),
            policy: digest(policy),
        }
    }
}

/// The decoded content of a file.
#[derive(Debug)]
pub struct PageRecord {
    /// The site and configuration to which the page belongs.
    pub owner: Owner,
    /// The key of the page, without the site's number.
    pub key: Vec<u8>,
    /// The page itself, or the headers by which the URL's pages vary.
    pub content: RecordContent,
}

/// The value that a [`PageRecord`] stores under its key.
#[derive(Debug)]
pub enum RecordContent {
    /// A page. Its `url_key` is without the site's number.
    Page(Box<Object>),
    /// The names of the headers by which the URL's pages vary.
    Varies(Vec<Vec<u8>>),
}

/// Why a file is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileDamage {
    /// The file is not a page, or it has another version of this format.
    Foreign,
    /// The file is shorter or longer than its description says.
    Truncated,
    /// A checksum does not match, or the description is invalid.
    Corrupt,
}

/// The head of a file: the length of its description, and the description's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHead {
    /// Length of the description in bytes.
    pub description: usize,
    checksum: u32,
}

/// The facts about a file that the index needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSummary {
    /// The site and configuration to which the page belongs.
    pub owner: Owner,
    /// The generation in which the page was born; `None` if the file is not a page.
    pub born: Option<u64>,
    /// When the page becomes too old to be served in any case.
    pub expires_at: Millis,
    /// When the response was received.
    pub received: Millis,
    /// The number of bytes that the whole file must have.
    pub length: u64,
}

/// Parses and checks the head at the beginning of a file.
pub fn parse_head(bytes: &[u8]) -> Result<FileHead, FileDamage> {
    let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else {
        return Err(FileDamage::Truncated);
    };
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if head[..8] != *MAGIC {
        return Err(FileDamage::Foreign);
    }
    if crc32fast::hash(&head[..20]) != word(20) {
        return Err(FileDamage::Corrupt);
    }
    if word(8) != FORMAT_VERSION {
        return Err(FileDamage::Foreign);
    }
    let description = word(12) as usize;
    if description > MAX_DESCRIPTION_BYTES {
        return Err(FileDamage::Corrupt);
    }
    Ok(FileHead {
        description,
        checksum: word(16),
    })
}

/// Encodes a record. Returns the parts of the file, to be written one after another.
pub fn encode(record: &PageRecord) -> Option<Vec<Bytes>> {
    match &record.content {
        RecordContent::Page(page) => encode_page(&record.owner, &record.key, &page.url_key, page),
        RecordContent::Varies(names) => encode_varies(&record.owner, &record.key, names),
    }
}

/// Does the same as [`encode`] for a page whose key in memory begins with its site's number. Returns `None` if the
/// description would be too long.
pub fn encode_page(owner: &Owner, key: &[u8], url_key: &[u8], page: &Object) -> Option<Vec<Bytes>> {
    let mut out = RecordWriter::begin(owner, key, b'P');
    out.bytes(url_key);
    out.u64(page.born);
    out.u32(u32::from(page.status));
    out.bytes(&page.reason);
    out.bytes(&page.lines);
    out.u64(page.date.min(MAX_STORED_TIME));
    let freshness = &page.freshness;
    for number in [
        freshness.received,
        freshness.initial_age,
        freshness.lifetime,
        freshness.while_revalidate,
        freshness.if_error,
    ] {
        out.u64(number.min(MAX_STORED_TIME));
    }
    out.u64(u64::from(freshness.always_validate));
    out.list(&page.tags);
    out.u64(page.body.len() as u64);
    out.u32(crc32fast::hash(&page.body));
    let mut bodies = vec![page.body.clone()];
    for coding in 1..=CODING_COUNT {
        match page.existing_form(coding) {
            Some(form) => {
                out.u32(1 + u32::from(form.encodable));
                out.bytes(&form.head);
                out.u64(form.body.len() as u64);
                out.u32(crc32fast::hash(&form.body));
                bodies.push(form.body.clone());
            }
            None => out.u32(0),
        }
    }
    let mut parts = vec![out.finish()?];
    parts.append(&mut bodies);
    Some(parts)
}

/// Does the same as [`encode`] for the names of the headers by which a URL's pages vary.
pub fn encode_varies(owner: &Owner, key: &[u8], names: &[Vec<u8>]) -> Option<Vec<Bytes>> {
    let mut out = RecordWriter::begin(owner, key, b'V');
    out.list(names);
    Some(vec![out.finish()?])
}

/// Parses a whole file and verifies every byte. The bodies share the memory of `file`.
pub fn parse(file: &Bytes) -> Result<PageRecord, FileDamage> {
    let (mut reader, owner, key, kind) = parse_description(file)?;
    let mut at = (HEAD_BYTES + parse_head(file)?.description) as u64;
    let what = if kind == b'V' {
        RecordContent::Varies(reader.list()?)
    } else {
        RecordContent::Page(Box::new(parse_page(&mut reader, file, &mut at)?))
    };
    reader.end()?;
    match at == file.len() as u64 {
        true => Ok(PageRecord {
            owner,
            key,
            content: what,
        }),
        false => Err(FileDamage::Truncated),
    }
}

/// Parses the facts for the index from a file's first bytes: its head and its whole description.
pub fn parse_summary(bytes: &[u8]) -> Result<FileSummary, FileDamage> {
    let (mut reader, owner, _, kind) = parse_description(bytes)?;
    let mut length = (HEAD_BYTES + parse_head(bytes)?.description) as u64;
    let mut summary = FileSummary {
        owner,
        born: None,
        expires_at: Millis::MAX,
        received: 0,
        length,
    };
    if kind == b'P' {
        let description = Description::read(&mut reader)?;
        summary.born = Some(description.born);
        summary.received = description.freshness.received;
        summary.expires_at = match description.freshness.always_validate {
            true => Millis::MAX,
            false => description.freshness.useless_at(),
        };
        for body in std::iter::once(&description.body)
            .chain(description.forms.iter().flatten().map(|form| &form.body))
        {
            length = length.checked_add(body.length).ok_or(FileDamage::Corrupt)?;
        }
        summary.length = length;
    }
    Ok(summary)
}

fn parse_description(bytes: &[u8]) -> Result<(RecordReader<'_>, Owner, Vec<u8>, u8), FileDamage> {
    let head = parse_head(bytes)?;
    let description = bytes
        .get(HEAD_BYTES..HEAD_BYTES + head.description)
        .ok_or(FileDamage::Truncated)?;
    if crc32fast::hash(description) != head.checksum {
        return Err(FileDamage::Corrupt);
    }
    let mut reader = RecordReader(description);
    let kind = reader.take(1)?[0];
    if !matches!(kind, b'P' | b'V') {
        return Err(FileDamage::Corrupt);
    }
    let owner = Owner {
        site: reader.array()?,
        policy: reader.array()?,
    };
    let key = reader.bytes()?.to_vec();
    Ok((reader, owner, key, kind))
}

/// The length and checksum of a body.
struct BodyInfo {
    length: u64,
    checksum: u32,
}

impl BodyInfo {
    fn read(reader: &mut RecordReader<'_>) -> Result<BodyInfo, FileDamage> {
        Ok(BodyInfo {
            length: reader.u64()?,
            checksum: reader.u32()?,
        })
    }

    /// Returns the body itself, which begins at `at`, and moves `at` past it.
    fn find(&self, file: &Bytes, at: &mut u64) -> Result<Bytes, FileDamage> {
        let end = at.checked_add(self.length).ok_or(FileDamage::Corrupt)?;
        if end > file.len() as u64 {
            return Err(FileDamage::Truncated);
        }
        let body = file.slice(*at as usize..end as usize);
        *at = end;
        match crc32fast::hash(&body) == self.checksum {
            true => Ok(body),
            false => Err(FileDamage::Corrupt),
        }
    }
}

struct EncodedForm<'a> {
    encodable: bool,
    head: &'a [u8],
    body: BodyInfo,
}

/// A page without its bodies.
struct Description<'a> {
    url_key: &'a [u8],
    born: u64,
    status: u16,
    reason: &'a [u8],
    lines: &'a [u8],
    date: Millis,
    freshness: Freshness,
    tags: Vec<Vec<u8>>,
    body: BodyInfo,
    forms: [Option<EncodedForm<'a>>; CODING_COUNT],
}

impl<'a> Description<'a> {
    fn read(reader: &mut RecordReader<'a>) -> Result<Description<'a>, FileDamage> {
        let time = |reader: &mut RecordReader<'_>| match reader.u64()? {
            time @ 0..=MAX_STORED_TIME => Ok(time),
            _ => Err(FileDamage::Corrupt),
        };
        let mut description = Description {
            url_key: reader.bytes()?,
            born: reader.u64()?,
            status: u16::try_from(reader.u32()?).map_err(|_| FileDamage::Corrupt)?,
            reason: reader.bytes()?,
            lines: reader.bytes()?,
            date: time(reader)?,
            freshness: Freshness {
                received: time(reader)?,
                initial_age: time(reader)?,
                lifetime: time(reader)?,
                while_revalidate: time(reader)?,
                if_error: time(reader)?,
                always_validate: match reader.u64()? {
                    0 => false,
                    1 => true,
                    _ => return Err(FileDamage::Corrupt),
                },
            },
            tags: reader.list()?,
            body: BodyInfo::read(reader)?,
            forms: [const { None }; CODING_COUNT],
        };
        for form in &mut description.forms {
            let encodable = match reader.u32()? {
                0 => continue,
                1 => false,
                2 => true,
                _ => return Err(FileDamage::Corrupt),
            };
            *form = Some(EncodedForm {
                encodable,
                head: reader.bytes()?,
                body: BodyInfo::read(reader)?,
            });
        }
        Ok(description)
    }
}

fn parse_page(
    reader: &mut RecordReader<'_>,
    file: &Bytes,
    at: &mut u64,
) -> Result<Object, FileDamage> {
    let description = Description::read(reader)?;
    let body = description.body.find(file, at)?;
    let mut page = Object::restored(
        description.status,
        description.reason,
        description.lines,
        body,
        description.date,
        description.freshness,
    );
    page.set_born(description.born);
    page.tags = description.tags;
    page.url_key = description.url_key.to_vec();
    for (place, form) in description.forms.iter().enumerate() {
        if let Some(form) = form {
            let body = form.body.find(file, at)?;
            page.form(place + 1, || ResponseForm {
                head: Bytes::copy_from_slice(form.head),
                body,
                encodable: form.encodable,
            });
        }
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::tests::page;

    fn file() -> Vec<u8> {
        let page = page(&[("ETag", "\"a\"")], "the plain body");
        page.form(2, || ResponseForm {
            head: Bytes::from_static(b"HTTP/1.1 200 OK\r\n"),
            body: Bytes::from_static(b"encoded"),
            encodable: true,
        });
        let owner = Owner {
            site: *b"the site's name.",
            policy: *b"its policy's sum",
        };
        let record = PageRecord {
            owner,
            key: b"key".to_vec(),
            content: RecordContent::Page(Box::new(page)),
        };
        encode(&record).unwrap().concat()
    }

    #[test]
    fn page_file_round_trips() {
        let bytes = Bytes::from(file());
        let record = parse(&bytes).unwrap();
        let RecordContent::Page(page) = &record.content else {
            panic!("a page was written");
        };
        assert_eq!((&page.body[..], page.status), (&b"the plain body"[..], 200));
        assert_eq!(page.field(b"etag"), Some(&b"\"a\""[..]));
        assert_eq!(page.freshness.lifetime, 60_000);
        assert_eq!(page.existing_form(2).unwrap().body, "encoded");
        assert!(page.existing_form(1).is_none() && page.existing_form(3).is_none());
        assert_eq!(encode(&record).unwrap().concat(), bytes);
        let summary = parse_summary(&bytes).unwrap();
        assert_eq!(summary.length, bytes.len() as u64);
        assert_eq!((summary.born, summary.owner), (Some(1), record.owner));
    }

    #[test]
    fn page_file_with_any_changed_byte_is_rejected() {
        let good = file();
        for at in 0..good.len() {
            for change in [1, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= change;
                assert!(parse(&Bytes::from(bad)).is_err(), "byte {at} ^ {change}");
            }
        }
    }

    #[test]
    fn page_file_of_wrong_length_is_truncated() {
        let good = Bytes::from(file());
        for end in 0..good.len() {
            let cut = parse(&good.slice(..end)).err();
            assert_eq!(cut, Some(FileDamage::Truncated), "cut at {end}");
        }
        let longer = [&good[..], b"x"].concat();
        assert_eq!(
            parse(&Bytes::from(longer)).err(),
            Some(FileDamage::Truncated)
        );
    }

    #[test]
    fn page_file_of_another_version_is_foreign() {
        let mut bytes = file();
        bytes[8] = 2;
        let checksum = crc32fast::hash(&bytes[..20]);
        bytes[20..24].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(parse(&Bytes::from(bytes)).err(), Some(FileDamage::Foreign));
    }

    #[test]
    fn vary_names_round_trip() {
        let owner = Owner {
            site: [1; 16],
            policy: [2; 16],
        };
        let names = vec![b"accept-language".to_vec(), b"x".to_vec()];
        let file = Bytes::from(encode_varies(&owner, b"k", &names).unwrap().concat());
        let record = parse(&file).unwrap();
        assert!(matches!(&record.content, RecordContent::Varies(read) if *read == names));
        assert_eq!(parse_summary(&file).unwrap().born, None);
    }
}
