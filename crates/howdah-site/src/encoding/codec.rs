//! The streaming codec: it takes plain bytes and returns coded bytes. A flush makes everything written so far decodable
//! at the client; the end writes the trailer. This module does not handle headers or policy.
//!
//! The memory of each response is bounded, because a thousand slow pages may be in progress at once: gzip about 270 KB
//! (its fixed 32 KiB window and tables), brotli about 1 MB (window 256 KiB), zstd about 1 MB (window 256 KiB). A window
//! that is larger than the page brings no benefit.

use std::io::{self, Write};
use std::sync::Arc;

use howdah_cache::esi::DeflatedTexts;

use super::negotiate::Coding;
use super::stitched::StitchedGzip;

const WINDOW_LOG: u32 = 18;

/// The level, from 1 to 9. Level 6 of zlib-rs takes a third more time for output that is 1 % smaller.
pub(super) const GZIP_LEVEL: u32 = 5;
/// The level, from 0 to 11: the fastest one that compresses better than gzip 9. Level 5 is half as fast.
const BROTLI_LEVEL: u32 = 4;
/// The level, from 1 to 19: the library's default. It is 1.5 times as fast as gzip 1, and its output is no larger than
/// that of gzip 6.
const ZSTD_LEVEL: i32 = 3;

/// How many bytes brotli gathers before it compresses them.
const BROTLI_BLOCK: usize = 64 << 10;

/// Compresses one response.
pub struct Encoder {
    kind: Compressor,
    /// How many bytes have been taken and not compressed yet, as far as is known.
    gathered: usize,
}

enum Compressor {
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    Stitched(Box<StitchedGzip>),
}

impl Encoder {
    /// Starts the compression of a response. `length` is the length of the plain body, if known; with it, the
    /// compression of a short body takes less memory. Fails only if the library cannot allocate its tables.
    pub fn new(coding: Coding, length: Option<u64>) -> io::Result<Encoder> {
        let out =
            Vec::with_capacity(length.map_or(4096, |n| (n / 3).clamp(512, 64 << 10) as usize));
        let kind = match coding {
            Coding::Gzip => {
                let level = flate2::Compression::new(GZIP_LEVEL);
                Compressor::Gzip(flate2::write::GzEncoder::new(out, level))
            }
            Coding::Brotli => Compressor::Brotli(Box::new(brotli::CompressorWriter::new(
                out,
                4096,
                BROTLI_LEVEL,
                WINDOW_LOG,
            ))),
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(out, ZSTD_LEVEL)?;
                encoder.window_log(WINDOW_LOG)?;
                encoder.set_pledged_src_size(length)?;
                Compressor::Zstd(encoder)
            }
        };
        Ok(Encoder { kind, gathered: 0 })
    }

    /// Starts the compression of a response with gzip that contains these texts among other bytes.
    pub fn with_texts(texts: Arc<DeflatedTexts>) -> Encoder {
        Encoder {
            kind: Compressor::Stitched(Box::new(StitchedGzip::new(texts))),
            gathered: 0,
        }
    }

    /// Returns whether these bytes are compressed already, so they cost next to nothing.
    pub fn is_compressed_text(&self, plain: &[u8]) -> bool {
        matches!(&self.kind, Compressor::Stitched(e) if e.has(plain))
    }

    /// Inserts plain bytes that are compressed already. Returns `None` if they are not: they have to be written.
    pub fn insert_text(&mut self, plain: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let Compressor::Stitched(e) = &mut self.kind else {
            return Ok(None);
        };
        let is_inserted = e.insert(plain)?;
        Ok(is_inserted.then(|| e.take_output()))
    }

    /// Returns the content coding of the output.
    pub fn coding(&self) -> Coding {
        match self.kind {
            Compressor::Gzip(_) | Compressor::Stitched(_) => Coding::Gzip,
            Compressor::Brotli(_) => Coding::Brotli,
            Compressor::Zstd(_) => Coding::Zstd,
        }
    }

    /// Returns the maximum number of plain bytes that will be compressed when `length` more are written and, if `all`
    /// is set, flushed.
    pub fn pending_work(&self, length: usize, all: bool) -> usize {
        let bytes = self.gathered + length;
        match self.kind {
            Compressor::Brotli(_) if !all && bytes < BROTLI_BLOCK => 0,
            _ => bytes,
        }
    }

    /// Takes plain bytes. Returns the coded bytes that are ready, often none.
    pub fn write(&mut self, plain: &[u8]) -> io::Result<Vec<u8>> {
        if let Compressor::Brotli(_) = self.kind {
            self.gathered = (self.gathered + plain.len()) % BROTLI_BLOCK;
        }
        match &mut self.kind {
            Compressor::Gzip(e) => {
                e.write_all(plain)?;
                Ok(std::mem::take(e.get_mut()))
            }
            Compressor::Brotli(e) => {
                e.write_all(plain)?;
                Ok(std::mem::take(e.get_mut()))
            }
            Compressor::Zstd(e) => {
                e.write_all(plain)?;
                Ok(std::mem::take(e.get_mut()))
            }
            Compressor::Stitched(e) => {
                e.write(plain)?;
                Ok(e.take_output())
            }
        }
    }

    /// Returns the coded bytes that make everything written so far decodable.
    pub fn flush(&mut self) -> io::Result<Vec<u8>> {
        self.gathered = 0;
        match &mut self.kind {
            Compressor::Gzip(e) => {
                e.flush()?;
                Ok(std::mem::take(e.get_mut()))
            }
            Compressor::Brotli(e) => {
                e.flush()?;
                Ok(std::mem::take(e.get_mut()))
            }
            Compressor::Zstd(e) => {
                e.flush()?;
                Ok(std::mem::take(e.get_mut()))
            }
            Compressor::Stitched(e) => {
                e.flush()?;
                Ok(e.take_output())
            }
        }
    }

    /// Ends the stream. Returns its last bytes.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        match self.kind {
            Compressor::Gzip(e) => e.finish(),
            Compressor::Brotli(e) => Ok(e.into_inner()),
            Compressor::Zstd(e) => e.finish(),
            Compressor::Stitched(e) => e.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;

    const ALL: [Coding; 3] = [Coding::Gzip, Coding::Brotli, Coding::Zstd];

    /// Decodes as much as possible; a stream without its end yields what has arrived so far.
    fn decode(coding: Coding, coded: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut reader: Box<dyn Read> = match coding {
            Coding::Gzip => Box::new(flate2::read::GzDecoder::new(coded)),
            Coding::Brotli => Box::new(brotli::Decompressor::new(coded, 4096)),
            Coding::Zstd => Box::new(zstd::stream::read::Decoder::new(coded).unwrap()),
        };
        let mut piece = [0; 256];
        while let Ok(n @ 1..) = reader.read(&mut piece) {
            out.extend_from_slice(&piece[..n]);
        }
        out
    }

    fn decode_whole(coding: Coding, coded: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(coded).read_to_end(&mut out)?,
            Coding::Brotli => brotli::Decompressor::new(coded, 4096).read_to_end(&mut out)?,
            Coding::Zstd => zstd::stream::read::Decoder::new(coded)?.read_to_end(&mut out)?,
        };
        Ok(out)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn what_goes_in_comes_out_and_a_flush_shows_everything_so_far(
            pieces in prop::collection::vec((prop::collection::vec(0u8..8, 0..3000), any::<bool>()), 0..8),
        ) {
            for coding in ALL {
                let mut encoder = Encoder::new(coding, None).unwrap();
                let (mut plain, mut coded) = (Vec::new(), Vec::new());
                for (piece, flush) in &pieces {
                    plain.extend_from_slice(piece);
                    coded.extend(encoder.write(piece).unwrap());
                    if *flush {
                        coded.extend(encoder.flush().unwrap());
                        prop_assert_eq!(&decode(coding, &coded), &plain);
                    }
                }
                coded.extend(encoder.finish().unwrap());
                prop_assert_eq!(&decode_whole(coding, &coded).unwrap(), &plain);
            }
        }
    }

    #[test]
    fn encoder_with_known_length_makes_a_complete_stream() {
        let text = b"<p>The elephant carries the howdah.</p>\n".repeat(200);
        for coding in ALL {
            let length = Some(text.len() as u64);
            let mut encoder = Encoder::new(coding, length).unwrap();
            let mut coded = encoder.write(&text).unwrap();
            coded.extend(encoder.finish().unwrap());
            assert_eq!(decode_whole(coding, &coded).unwrap(), text, "{coding:?}");
            assert!(coded.len() < text.len() / 20, "{coding:?}: {}", coded.len());
        }
    }
}
