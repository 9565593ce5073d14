//! A gzip stream (RFC 1952) with one member, into which texts that have been compressed before are inserted unchanged.
//! Each of them ends at a byte boundary and refers to nothing before it (RFC 1951 §2), and so does what is compressed
//! between them. The checksum of the whole follows from those of the parts. Varnish does the same.

use std::io;
use std::sync::Arc;

use crc32fast::Hasher;
use flate2::{Compress, FlushCompress, Status};
use howdah_cache::esi::DeflatedTexts;

use super::codec::GZIP_LEVEL;

/// The header of the member: DEFLATE, no name, no time, of an unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// A last block without content, with the fixed codes.
const EMPTY_LAST_BLOCK: [u8; 2] = [3, 0];
/// Bytes up to this length are stored uncompressed if nothing else has to be compressed: compressing them would save
/// less than the compressor costs.
const MAX_STORED_BYTES: usize = 256;

/// The compression of one response.
pub(super) struct StitchedGzip {
    texts: Arc<DeflatedTexts>,
    compressor: Option<Compress>,
    /// Whether the compressor has taken bytes since its last flush.
    is_dirty: bool,
    /// Whether the compressor's window has the bytes that precede the next ones in the stream. Only then may it refer to
    /// them.
    has_window: bool,
    /// Whether the stream ends with a text or has just begun. Of several short pieces after it, only the first is stored.
    follows_text: bool,
    checksum: Hasher,
    /// The number of plain bytes, modulo 2^32.
    length: u32,
    out: Vec<u8>,
}

impl StitchedGzip {
    pub fn new(texts: Arc<DeflatedTexts>) -> StitchedGzip {
        let mut out = Vec::with_capacity(texts.memory_bytes() + 1024);
        out.extend_from_slice(&HEADER);
        StitchedGzip {
            texts,
            compressor: None,
            is_dirty: false,
            has_window: false,
            follows_text: true,
            checksum: Hasher::new(),
            length: 0,
            out,
        }
    }

    /// Returns whether these bytes are one of the texts.
    pub fn has(&self, plain: &[u8]) -> bool {
        self.texts.find(plain).is_some()
    }

    /// Inserts bytes that are one of the texts. Returns false, and inserts nothing, if they are not.
    pub fn insert(&mut self, plain: &[u8]) -> io::Result<bool> {
        let texts = self.texts.clone();
        let Some(text) = texts.find(plain) else {
            return Ok(false);
        };
        self.flush()?;
        self.out.extend_from_slice(&text.deflated);
        (self.has_window, self.follows_text) = (false, true);
        let length = plain.len() as u64;
        let checksum = Hasher::new_with_initial_len(text.crc32, length);
        self.checksum.combine(&checksum);
        self.length = self.length.wrapping_add(length as u32);
        Ok(true)
    }

    /// Adds bytes that are not one of the texts to the stream.
    pub fn write(&mut self, plain: &[u8]) -> io::Result<()> {
        self.checksum.update(plain);
        self.length = self.length.wrapping_add(plain.len() as u32);
        let follows_text = std::mem::replace(&mut self.follows_text, false);
        if follows_text && plain.len() <= MAX_STORED_BYTES {
            self.store(plain);
            return Ok(());
        }
        let compressor = self.compressor.get_or_insert_with(new_compressor);
        if !self.has_window {
            compressor.reset();
        }
        (self.is_dirty, self.has_window) = (true, true);
        deflate(compressor, plain, FlushCompress::None, &mut self.out)
    }

    /// Writes a block of at most 65 535 bytes without compression (RFC 1951 §3.2.4). The output ends at a byte boundary.
    fn store(&mut self, plain: &[u8]) {
        let length = plain.len() as u16;
        if length == 0 {
            return;
        }
        self.out.push(0);
        self.out.extend_from_slice(&length.to_le_bytes());
        self.out.extend_from_slice(&(!length).to_le_bytes());
        self.out.extend_from_slice(plain);
        self.has_window = false;
    }

    /// Makes everything so far decodable. The output then ends at a byte boundary.
    pub fn flush(&mut self) -> io::Result<()> {
        if let Some(compressor) = &mut self.compressor
            && self.is_dirty
        {
            deflate(compressor, &[], FlushCompress::Sync, &mut self.out)?;
            self.is_dirty = false;
        }
        Ok(())
    }

    /// Returns the output so far that has not been taken.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Ends the stream. Returns the rest of the output.
    pub fn finish(mut self) -> io::Result<Vec<u8>> {
        match &mut self.compressor {
            Some(compressor) if self.is_dirty => {
                deflate(compressor, &[], FlushCompress::Finish, &mut self.out)?;
            }
            _ => self.out.extend_from_slice(&EMPTY_LAST_BLOCK),
        }
        let checksum = self.checksum.finalize();
        self.out.extend_from_slice(&checksum.to_le_bytes());
        self.out.extend_from_slice(&self.length.to_le_bytes());
        Ok(self.out)
    }
}

/// Creates a compressor of DEFLATE blocks without a header.
pub(super) fn new_compressor() -> Compress {
    Compress::new(flate2::Compression::new(GZIP_LEVEL), false)
}

/// Compresses bytes, and then flushes or ends the stream as `flush` says.
pub(super) fn deflate(
    compressor: &mut Compress,
    mut plain: &[u8],
    flush: FlushCompress,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    loop {
        out.reserve(plain.len() / 2 + 512);
        let before = compressor.total_in();
        let status = compressor.compress_vec(plain, out, flush)?;
        plain = &plain[(compressor.total_in() - before) as usize..];
        // If the output is full, the compressor may have more.
        let is_complete = match flush {
            FlushCompress::Finish => status == Status::StreamEnd,
            _ => plain.is_empty() && out.len() < out.capacity(),
        };
        if is_complete {
            return Ok(());
        }
    }
}
