//! Invariants for arbitrary pages with ESI tags. Used by the fuzz target, and by the test that replays its corpus
//! (`crates/howdah-cache/tests/fuzz_corpus.rs`).

use bytes::Bytes;
use howdah_cache::esi::{EsiParser, EsiPart, parse_page};

/// Checks the parser. The first byte says how the page is cut. The result does not depend on that, and
/// its text is not longer than the page, unless the content of an `<esi:inline>` is used repeatedly.
pub fn esi_page(data: &[u8]) {
    let Some((size, page)) = data.split_first() else {
        return;
    };
    let whole = parts([page].into_iter());
    let cut = parts(page.chunks(usize::from(*size % 32) + 1));
    assert_eq!(joined(&whole), joined(&cut));
    match parse_page(&Bytes::copy_from_slice(page)) {
        Some(stored) => assert_eq!(joined(&whole), joined(&stored)),
        // Only an unfinished tag at the end is dropped.
        None => {
            let kept = joined(&whole)
                .into_iter()
                .flatten()
                .next()
                .unwrap_or_default();
            assert!(page.starts_with(&kept) && joined(&whole).len() <= 1);
        }
    }
    let length: usize = whole.iter().map(text_length).sum();
    let has_inline = page.windows(11).any(|w| w == b"<esi:inline");
    assert!(length <= page.len() || has_inline);
}

fn parts<'p>(pieces: impl Iterator<Item = &'p [u8]>) -> Vec<EsiPart> {
    let (mut parser, mut parts) = (EsiParser::default(), Vec::new());
    for piece in pieces {
        parser.push(&Bytes::copy_from_slice(piece), &mut parts);
    }
    parser.finish(&mut parts);
    parts
}

fn text_length(part: &EsiPart) -> usize {
    match part {
        EsiPart::Text(text) => text.len(),
        EsiPart::Include(_) | EsiPart::Dropped(_) => 0,
    }
}

/// Returns the texts between the includes, and `None` for each include.
fn joined(parts: &[EsiPart]) -> Vec<Option<Vec<u8>>> {
    let mut joined: Vec<Option<Vec<u8>>> = Vec::new();
    for part in parts {
        match (part, joined.last_mut()) {
            (EsiPart::Text(text), Some(Some(last))) => last.extend_from_slice(text),
            (EsiPart::Text(text), _) => joined.push(Some(text.to_vec())),
            (EsiPart::Include(include) | EsiPart::Dropped(include), _) => {
                assert!(!include.src.is_empty());
                joined.push(None);
            }
        }
    }
    joined
}
