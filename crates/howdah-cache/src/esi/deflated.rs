//! The texts of a stored page with ESI tags, compressed once. The front inserts them into the gzip stream of each
//! delivery, between the fragments, so it compresses only the fragments again.

use bytes::Bytes;

/// A text of a page, compressed.
#[derive(Debug)]
pub struct DeflatedText {
    /// The text: a part of the page's body.
    pub plain: Bytes,
    /// The text in DEFLATE blocks (RFC 1951) that end at a byte boundary, refer to nothing before them, and are not
    /// the last of a stream.
    pub deflated: Bytes,
    /// The CRC-32 of the text, as gzip computes it (RFC 1952 §8).
    pub crc32: u32,
}

/// The compressed texts of a page.
#[derive(Debug, Default)]
pub struct DeflatedTexts {
    /// In the order of their addresses.
    texts: Vec<DeflatedText>,
}

impl DeflatedTexts {
    /// Collects the compressed texts of a page. A text that does not become shorter may be omitted.
    pub fn new(mut texts: Vec<DeflatedText>) -> DeflatedTexts {
        texts.sort_by_key(|text| text.plain.as_ptr() as usize);
        DeflatedTexts { texts }
    }

    /// Returns the compressed form of these bytes if they are one of the texts: the same bytes in memory, not equal
    /// ones. The texts keep their memory alive, so no other bytes can have the same address.
    pub fn find(&self, bytes: &[u8]) -> Option<&DeflatedText> {
        let address = bytes.as_ptr() as usize;
        let at = self
            .texts
            .binary_search_by_key(&address, |text| text.plain.as_ptr() as usize)
            .ok()?;
        Some(&self.texts[at]).filter(|text| text.plain.len() == bytes.len())
    }

    /// Returns how many bytes the compressed forms use.
    pub fn memory_bytes(&self) -> usize {
        let coded: usize = self.texts.iter().map(|text| text.deflated.len()).sum();
        coded + self.texts.len() * size_of::<DeflatedText>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_found_by_its_place_in_memory() {
        let page = Bytes::from_static(b"first second");
        let text = |range: std::ops::Range<usize>| DeflatedText {
            plain: page.slice(range),
            deflated: Bytes::new(),
            crc32: 0,
        };
        let texts = DeflatedTexts::new(vec![text(6..12), text(0..5)]);
        assert_eq!(texts.find(&page[6..12]).unwrap().plain, "second");
        assert_eq!(texts.find(&page[0..5]).unwrap().plain, "first");
        assert!(texts.find(&page[0..4]).is_none(), "a part of a text");
        assert!(texts.find(&page[1..5]).is_none(), "the rest of a text");
        assert!(texts.find(b"first".to_vec().as_slice()).is_none(), "a copy");
    }
}
