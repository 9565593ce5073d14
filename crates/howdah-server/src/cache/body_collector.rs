//! Collects and hashes the body of a response as it arrives. Joining and hashing a page of several megabytes only at
//! its end would delay all other requests of the thread. The result takes no more memory than its bytes, while the
//! pieces are parts of larger buffers, which they would keep alive.

use std::hash::{DefaultHasher, Hasher};

use bytes::Bytes;

/// A body that is being collected.
#[derive(Debug, Default)]
pub struct BodyCollector {
    bytes: Vec<u8>,
    hasher: DefaultHasher,
}

impl BodyCollector {
    /// Appends a piece of the body and adds it to the hash.
    pub fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
        self.hasher.write(piece);
    }

    /// Returns the number of bytes that have been collected.
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns an entity tag made of the length and the hash of the body.
    pub fn entity_tag(&self) -> String {
        format!("\"{:x}-{:016x}\"", self.bytes.len(), self.hasher.finish())
    }

    /// Returns the whole body, in a buffer of exactly its length.
    pub fn finish(self) -> Bytes {
        Bytes::from(self.bytes.into_boxed_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entity_tag_does_not_depend_on_the_pieces() {
        let text: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        let tag = |size: usize| {
            let mut body = BodyCollector::default();
            text.chunks(size).for_each(|piece| body.push(piece));
            let tag = body.entity_tag();
            assert_eq!(body.finish(), text);
            tag
        };
        for size in [1, 3, 8, 4096] {
            assert_eq!(tag(size), tag(10_000), "{size}");
        }
    }
}
