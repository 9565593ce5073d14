//! The chunked coding (RFC 9112 §7.1). The decoder passes data on without copying, and skips extensions and trailer
//! fields, within limits.

use super::ResponseFault;

/// The maximum length of a chunk size line with its extension, and of a trailer section, in bytes.
const MAX_LINE_BYTES: u32 = 16 << 10;

/// A decoder that takes its input in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkedDecoder {
    state: ChunkState,
    /// The chunk size read so far, or the number of bytes left in the chunk.
    left: u64,
    /// The length so far of the current line, or of the trailer section.
    line: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    FirstDigit,
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerLine,
    LastLf,
    Done,
}

impl Default for ChunkedDecoder {
    fn default() -> Self {
        ChunkedDecoder {
            state: ChunkState::FirstDigit,
            left: 0,
            line: 0,
        }
    }
}

impl ChunkedDecoder {
    /// Returns whether the last chunk and its trailer section have been read.
    pub fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    /// Decodes a piece. Returns how many bytes it consumed: all of them, unless the coding is complete.
    pub fn feed(
        &mut self,
        input: &[u8],
        mut data: impl FnMut(&[u8]),
    ) -> Result<usize, ResponseFault> {
        let mut at = 0;
        while at < input.len() && self.state != ChunkState::Done {
            if self.state == ChunkState::Data {
                let take = usize::try_from(self.left)
                    .unwrap_or(usize::MAX)
                    .min(input.len() - at);
                data(&input[at..at + take]);
                at += take;
                self.left -= take as u64;
                if self.left == 0 {
                    self.state = ChunkState::DataCr;
                }
                continue;
            }
            self.byte(input[at])?;
            at += 1;
        }
        Ok(at)
    }

    fn byte(&mut self, byte: u8) -> Result<(), ResponseFault> {
        self.line += 1;
        if self.line > MAX_LINE_BYTES {
            return Err(ResponseFault::Chunk);
        }
        self.state = match (self.state, byte) {
            (
                ChunkState::FirstDigit | ChunkState::Size,
                b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F',
            ) => {
                if self.left >> 56 != 0 {
                    return Err(ResponseFault::Chunk);
                }
                let digit = char::from(byte).to_digit(16).expect("a digit");
                self.left = (self.left << 4) | u64::from(digit);
                ChunkState::Size
            }
            // Spaces after the size are accepted, because some servers pad it (RFC 9112 §7.1.1 allows BWS before a
            // `;`).
            (ChunkState::Size, b';' | b' ' | b'\t') => ChunkState::Extension,
            (ChunkState::Size | ChunkState::Extension, b'\r') => ChunkState::SizeLf,
            (ChunkState::Extension, other) if other != b'\n' => ChunkState::Extension,
            (ChunkState::SizeLf, b'\n') => {
                self.line = 0;
                if self.left == 0 {
                    ChunkState::TrailerStart
                } else {
                    ChunkState::Data
                }
            }
            (ChunkState::DataCr, b'\r') => ChunkState::DataLf,
            (ChunkState::DataLf, b'\n') => {
                self.line = 0;
                ChunkState::FirstDigit
            }
            (ChunkState::TrailerStart, b'\r') => ChunkState::LastLf,
            (ChunkState::TrailerStart | ChunkState::TrailerLine, other) if other != b'\n' => {
                ChunkState::TrailerLine
            }
            (ChunkState::TrailerLine, b'\n') => ChunkState::TrailerStart,
            (ChunkState::LastLf, b'\n') => ChunkState::Done,
            _ => return Err(ResponseFault::Chunk),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(text: &str) -> Result<(String, usize, bool), ResponseFault> {
        let (mut chunked, mut out) = (ChunkedDecoder::default(), Vec::new());
        let used = chunked.feed(text.as_bytes(), |data| out.extend_from_slice(data))?;
        Ok((String::from_utf8(out).unwrap(), used, chunked.is_done()))
    }

    #[test]
    fn chunked_body_is_decoded() {
        for (text, data, rest) in [
            ("0\r\n\r\n", "", ""),
            ("3\r\nabc\r\n0\r\n\r\nHTTP", "abc", "HTTP"),
            (
                "00a;x=\"y\"\r\n0123456789\r\n1 \r\nz\r\n0\r\nA: b\r\n\r\n",
                "0123456789z",
                "",
            ),
        ] {
            let used = text.len() - rest.len();
            assert_eq!(decode(text), Ok((data.to_owned(), used, true)), "{text:?}");
        }
    }

    #[test]
    fn chunked_body_that_stops_is_not_done() {
        let text = "3\r\nabc\r\n0\r\nA: b\r\n\r\n";
        for end in 0..text.len() {
            let (_, used, done) = decode(&text[..end]).unwrap();
            assert_eq!((used, done), (end, false));
        }
    }

    #[test]
    fn chunked_faults_are_named() {
        for text in [
            "x",
            "\r\n",
            "3\nabc",
            "3\r\nabcd",
            "3\r\nabc\n",
            "-1\r\n",
            "11111111111111111\r\n",
        ] {
            assert_eq!(decode(text), Err(ResponseFault::Chunk), "{text:?}");
        }
        assert_eq!(
            decode(&format!("3;{}", "x".repeat(20_000))),
            Err(ResponseFault::Chunk)
        );
    }
}
