//! Invariants for arbitrary bytes in the directory of the page cache. Used by the fuzz target, and by the test that
//! replays its corpus (`crates/howdah-cache/tests/fuzz_corpus.rs`).

use bytes::Bytes;
use howdah_cache::store::disk::format::{self, FORMAT_VERSION, HEAD_BYTES, RecordContent};
use howdah_cache::store::disk::journal;

const NOW: u64 = 1_795_200_000_000;

/// Parses the bytes as the file of a page, as the description in a file with correct checksums, as a journal, and as
/// the text of a record in a journal. Nothing panics, and the file of a page that can be parsed is encoded to the same
/// bytes.
pub fn cache_file(data: &[u8]) {
    page(data);
    page(&sealed(data));
    let _ = journal::try_parse(data, NOW);
    let mut long = journal::empty_journal();
    long.extend_from_slice(&journal::frame_record(data));
    let _ = journal::try_parse(&long, NOW);
}

fn page(file: &[u8]) {
    let file = Bytes::copy_from_slice(file);
    let Ok(record) = format::parse(&file) else {
        return;
    };
    let summary = format::parse_summary(&file).expect("what can be read has a summary");
    assert_eq!(summary.length, file.len() as u64);
    assert_eq!(summary.owner, record.owner);
    if let RecordContent::Page(page) = &record.content {
        assert_eq!(summary.born, Some(page.born));
        // Times from other machines must not overflow.
        let _ = (page.freshness.state(NOW), page.freshness.ttl(NOW));
    }
    let again = format::encode(&record).expect("what could be read can be written");
    assert_eq!(again.concat(), file);
}

/// Returns a file with this description and correct checksums, without any bytes in its bodies.
fn sealed(description: &[u8]) -> Vec<u8> {
    let mut file = b"HOWDAHPG".to_vec();
    let checksum = crc32fast::hash(description);
    for number in [FORMAT_VERSION, description.len() as u32, checksum] {
        file.extend_from_slice(&number.to_le_bytes());
    }
    let checksum = crc32fast::hash(&file);
    file.extend_from_slice(&checksum.to_le_bytes());
    assert_eq!(file.len(), HEAD_BYTES);
    file.extend_from_slice(description);
    file
}
