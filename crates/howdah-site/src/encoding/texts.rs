//! Compresses the texts of a page with ESI tags, so that each delivery can insert them into its gzip stream.

use bytes::Bytes;
use flate2::{Compress, FlushCompress};
use howdah_cache::esi::{DeflatedText, DeflatedTexts};

use super::negotiate::Coding;
use super::stitched::{deflate, new_compressor};
use super::stream::max_inline_bytes;
use super::worker::{self, CompressionWork, SLICE_BYTES};

/// Shorter texts are not worth it: they are compressed together with the fragments around them.
pub const MIN_TEXT_BYTES: usize = 4 << 10;

type KeepTexts = Box<dyn FnOnce(DeflatedTexts) + Send>;

/// Compresses those texts that are long enough, and passes them to `keep`: at once if they are short, otherwise on
/// another thread. If too much is waiting to be compressed, or memory is short, `keep` is dropped.
pub fn deflate_texts<'t>(
    texts: impl Iterator<Item = &'t Bytes>,
    keep: impl FnOnce(DeflatedTexts) + Send + 'static,
) {
    let texts: Vec<Bytes> = texts
        .filter(|text| text.len() >= MIN_TEXT_BYTES)
        .cloned()
        .collect();
    let length: usize = texts.iter().map(Bytes::len).sum();
    let mut work = TextsWork {
        texts,
        at: (0, 0),
        compressor: None,
        coded: Vec::new(),
        done: Vec::new(),
        keep: Some(Box::new(keep)),
    };
    if length <= max_inline_bytes(Coding::Gzip) {
        while !work.step() {}
    } else {
        // Refused work is dropped. A later delivery tries again.
        drop(worker::try_enqueue(Box::new(work), length as u64));
    }
}

struct TextsWork {
    texts: Vec<Bytes>,
    /// The index of the current text, and how many of its bytes are done.
    at: (usize, usize),
    /// Created with the first text, because work that is refused needs none.
    compressor: Option<Compress>,
    coded: Vec<u8>,
    done: Vec<DeflatedText>,
    keep: Option<KeepTexts>,
}

impl TextsWork {
    /// Adds the current text, which is compressed, and begins the next.
    fn complete_text(&mut self, plain: Bytes) {
        let coded = std::mem::take(&mut self.coded);
        if coded.len() < plain.len() {
            self.done.push(DeflatedText {
                crc32: crc32fast::hash(&plain),
                plain,
                // `Bytes` would keep the whole capacity of a vector.
                deflated: Bytes::from(coded.into_boxed_slice()),
            });
        }
        self.at = (self.at.0 + 1, 0);
    }
}

impl CompressionWork for TextsWork {
    fn step(&mut self) -> bool {
        let Some(text) = self.texts.get(self.at.0).cloned() else {
            if let Some(keep) = self.keep.take() {
                keep(DeflatedTexts::new(std::mem::take(&mut self.done)));
            }
            return true;
        };
        let rest = &text[self.at.1..];
        let slice = &rest[..rest.len().min(SLICE_BYTES)];
        let flush = match slice.len() == rest.len() {
            true => FlushCompress::Sync,
            false => FlushCompress::None,
        };
        let compressor = self.compressor.get_or_insert_with(new_compressor);
        if self.at.1 == 0 {
            compressor.reset();
        }
        if deflate(compressor, slice, flush, &mut self.coded).is_err() {
            // The page is compressed for each delivery instead.
            return true;
        }
        self.at.1 += slice.len();
        if flush == FlushCompress::Sync {
            self.complete_text(text);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Arc;
    use std::sync::mpsc;

    use proptest::prelude::*;

    use super::*;
    use crate::encoding::Encoder;

    /// Returns text that compresses well, and differs from byte to byte.
    fn text(length: usize, seed: usize) -> Vec<u8> {
        let words = [
            "camel",
            "howdah",
            "elephant",
            "<p class=\"a\">",
            "\n",
            "0123",
        ];
        let word = |n: usize| words[(n * 7 + seed + n * n / 3) % words.len()];
        (0..).flat_map(|n| word(n).bytes()).take(length).collect()
    }

    fn deflated(texts: &[Bytes]) -> Arc<DeflatedTexts> {
        let (sender, receiver) = mpsc::channel();
        deflate_texts(texts.iter(), move |texts| sender.send(texts).unwrap());
        Arc::new(receiver.recv().expect("the work is accepted"))
    }

    fn inflated(coded: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        let mut decoder = flate2::read::GzDecoder::new(coded);
        decoder.read_to_end(&mut plain).expect("a valid stream");
        assert!(decoder.into_inner().is_empty(), "a single member");
        plain
    }

    #[test]
    fn short_texts_and_texts_that_do_not_shrink_are_omitted() {
        let mut state = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .take(9000)
        .collect();
        let page = [
            Bytes::from(text(4095, 1)),
            Bytes::from(noise),
            Bytes::from(text(4096, 2)),
        ];
        let texts = deflated(&page);
        assert!(texts.find(&page[0]).is_none(), "too short");
        assert!(texts.find(&page[1]).is_none(), "it does not shrink");
        assert!(texts.find(&page[2]).is_some());
    }

    #[test]
    fn long_text_is_compressed_on_another_thread() {
        let page = [Bytes::from(text(300_000, 3))];
        let texts = deflated(&page);
        let mut encoder = Encoder::with_texts(texts);
        let mut coded = encoder.insert_text(&page[0]).unwrap().expect("it is known");
        coded.append(&mut encoder.finish().unwrap());
        assert!(coded.len() < 30_000);
        assert_eq!(inflated(&coded), page[0]);
    }

    proptest! {
        /// Texts, long and short fragments and flushes in any order make one valid member.
        #[test]
        fn stitched_stream_is_the_whole_page(
            pieces in proptest::collection::vec((0usize..4, 0usize..9000, any::<bool>()), 0..12),
        ) {
            let page: Vec<Bytes> = (0..3).map(|n| Bytes::from(text(5000 + n * 7000, n))).collect();
            let mut encoder = Encoder::with_texts(deflated(&page));
            let (mut coded, mut plain) = (Vec::new(), Vec::new());
            for (which, length, flush) in pieces {
                match page.get(which) {
                    Some(text) => {
                        plain.extend_from_slice(text);
                        coded.extend(encoder.insert_text(text).unwrap().expect("a text"));
                    }
                    None => {
                        // Often short, as fragments are.
                        let fragment = text(length % 700 * (length % 13), length);
                        prop_assert!(encoder.insert_text(&fragment).unwrap().is_none());
                        plain.extend_from_slice(&fragment);
                        coded.extend(encoder.write(&fragment).unwrap());
                    }
                }
                if flush {
                    coded.extend(encoder.flush().unwrap());
                }
            }
            coded.extend(encoder.finish().unwrap());
            prop_assert_eq!(inflated(&coded), plain);
        }
    }
}
