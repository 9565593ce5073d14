//! Decodes the chunked transfer coding of a request body (RFC 9112 §7.1). The decoder does no I/O: it takes bytes and
//! returns data. Where two readings are possible, it is stricter than the RFC requires: no white space around the size,
//! at most 15 digits, CRLF only. Extensions and trailers are limited in length and dropped.

use crate::refusal::BadRequest;

/// The maximum number of bytes of all extensions of one body, and of all its trailers.
const MAX_EXTENSION_BYTES: u32 = 16 << 10;
const MAX_TRAILER_BYTES: u32 = 16 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkDecoderState {
    /// Before or within the size, with the value and the number of digits so far.
    Size { value: u64, digits: u8 },
    /// After the size, in `;...`.
    Extension { value: u64, part: ExtensionPart },
    /// After the CR of the size line.
    SizeLf { value: u64 },
    /// In a chunk's data, of which `left` bytes have not arrived yet.
    Data { left: u64 },
    /// Before the CR after a chunk's data.
    DataCr,
    /// Before the LF after a chunk's data.
    DataLf,
    /// At the beginning of a line after the last chunk.
    TrailerStart,
    /// In a trailer's name, after at least one byte of it.
    TrailerName,
    /// In the value of a trailer field.
    TrailerValue,
    /// Before the LF of a trailer line.
    TrailerLf,
    /// Before the LF of the empty line.
    LastLf,
    /// The body is complete.
    Done,
}

/// The position in `*( ";" BWS name [ BWS "=" BWS value ] )` (RFC 9112 §7.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExtensionPart {
    /// After `;`: in white space, or before the name's first byte.
    Start,
    Name,
    /// After the name, in white space: `=`, `;` or the end of the line may follow.
    AfterName,
    /// After `=`: in white space, or before the value's first byte.
    ValueStart,
    Value,
    Quoted,
    /// After a backslash in a quoted value.
    QuotedPair,
    /// After a quoted value, or in white space after a value.
    AfterValue,
}

impl ExtensionPart {
    /// Returns the position after `b`, or `None` if `b` is not allowed here. The caller handles the end of the line.
    fn next(self, b: u8) -> Option<ExtensionPart> {
        let token = crate::head::is_token_byte(b);
        Some(match (self, b) {
            (ExtensionPart::Quoted, b'"') => ExtensionPart::AfterValue,
            (ExtensionPart::Quoted, b'\\') => ExtensionPart::QuotedPair,
            (ExtensionPart::Quoted | ExtensionPart::QuotedPair, b'\t' | 0x20..=0x7e | 0x80..) => {
                ExtensionPart::Quoted
            }
            (
                ExtensionPart::Start
                | ExtensionPart::AfterName
                | ExtensionPart::ValueStart
                | ExtensionPart::AfterValue,
                b' ' | b'\t',
            ) => self,
            (ExtensionPart::Name, b' ' | b'\t') => ExtensionPart::AfterName,
            (ExtensionPart::Value, b' ' | b'\t') => ExtensionPart::AfterValue,
            (ExtensionPart::Name | ExtensionPart::AfterName, b'=') => ExtensionPart::ValueStart,
            (
                ExtensionPart::Name
                | ExtensionPart::AfterName
                | ExtensionPart::Value
                | ExtensionPart::AfterValue,
                b';',
            ) => ExtensionPart::Start,
            (ExtensionPart::ValueStart, b'"') => ExtensionPart::Quoted,
            (ExtensionPart::Start | ExtensionPart::Name, _) if token => ExtensionPart::Name,
            (ExtensionPart::ValueStart | ExtensionPart::Value, _) if token => ExtensionPart::Value,
            _ => return None,
        })
    }

    /// Returns whether the line may end here.
    fn may_end_line(self) -> bool {
        matches!(
            self,
            ExtensionPart::Name
                | ExtensionPart::AfterName
                | ExtensionPart::Value
                | ExtensionPart::AfterValue
        )
    }
}

/// Decodes one chunked body.
#[derive(Clone, Debug)]
pub struct ChunkDecoder {
    state: ChunkDecoderState,
    extensions: u32,
    trailers: u32,
}

impl Default for ChunkDecoder {
    fn default() -> ChunkDecoder {
        ChunkDecoder {
            state: ChunkDecoderState::Size {
                value: 0,
                digits: 0,
            },
            extensions: 0,
            trailers: 0,
        }
    }
}

impl ChunkDecoder {
    /// Returns whether the last chunk and the trailers have been decoded.
    pub fn is_done(&self) -> bool {
        self.state == ChunkDecoderState::Done
    }

    /// Returns how many bytes of data the current chunk still announces; 0 between chunks. With this, a body that will
    /// be too long can be detected before its bytes have arrived.
    pub fn announced_bytes(&self) -> u64 {
        match self.state {
            ChunkDecoderState::Data { left } => left,
            _ => 0,
        }
    }

    /// Decodes from the start of `input` and appends at most `room` bytes of data to `out`. Returns how many bytes of
    /// `input` were used: all of them, unless the body is complete (the rest belongs to the next request) or `room` is
    /// used up.
    pub fn decode(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        mut room: usize,
    ) -> Result<usize, BadRequest> {
        let mut at = 0;
        while at < input.len() {
            let b = input[at];
            self.state = match self.state {
                ChunkDecoderState::Done => return Ok(at),
                ChunkDecoderState::Data { left } => {
                    let here = (input.len() - at).min(room);
                    let take = usize::try_from(left).unwrap_or(usize::MAX).min(here);
                    if take == 0 {
                        return Ok(at);
                    }
                    out.extend_from_slice(&input[at..at + take]);
                    at += take;
                    room -= take;
                    self.state = match left - take as u64 {
                        0 => ChunkDecoderState::DataCr,
                        left => ChunkDecoderState::Data { left },
                    };
                    continue;
                }
                ChunkDecoderState::Size { value, digits } => match (b, (b as char).to_digit(16)) {
                    (_, Some(digit)) => {
                        // 15 digits limit a chunk to less than 2^60 bytes, so no sum of sizes overflows.
                        if digits == 15 {
                            return Err(BadRequest::BadChunkSize);
                        }
                        ChunkDecoderState::Size {
                            value: value << 4 | u64::from(digit),
                            digits: digits + 1,
                        }
                    }
                    (b'\r', _) if digits > 0 => ChunkDecoderState::SizeLf { value },
                    (b';', _) if digits > 0 => {
                        self.count_extension_byte(value, ExtensionPart::Start)?
                    }
                    _ => return Err(BadRequest::BadChunkSize),
                },
                ChunkDecoderState::Extension { value, part } => match part.next(b) {
                    Some(part) => self.count_extension_byte(value, part)?,
                    None if b == b'\r' && part.may_end_line() => {
                        ChunkDecoderState::SizeLf { value }
                    }
                    None => return Err(BadRequest::BadChunkExtension),
                },
                ChunkDecoderState::SizeLf { value } => match (b, value) {
                    (b'\n', 0) => ChunkDecoderState::TrailerStart,
                    (b'\n', left) => ChunkDecoderState::Data { left },
                    _ => return Err(BadRequest::BadChunkSize),
                },
                ChunkDecoderState::DataCr if b == b'\r' => ChunkDecoderState::DataLf,
                ChunkDecoderState::DataLf if b == b'\n' => ChunkDecoderState::Size {
                    value: 0,
                    digits: 0,
                },
                ChunkDecoderState::DataCr | ChunkDecoderState::DataLf => {
                    return Err(BadRequest::BadChunkEnd);
                }
                ChunkDecoderState::TrailerStart if b == b'\r' => ChunkDecoderState::LastLf,
                ChunkDecoderState::TrailerStart | ChunkDecoderState::TrailerName => {
                    self.count_trailer_byte()?;
                    match b {
                        b':' if self.state == ChunkDecoderState::TrailerName => {
                            ChunkDecoderState::TrailerValue
                        }
                        _ if crate::head::is_token_byte(b) => ChunkDecoderState::TrailerName,
                        _ => return Err(BadRequest::BadTrailer),
                    }
                }
                ChunkDecoderState::TrailerValue => {
                    self.count_trailer_byte()?;
                    match b {
                        b'\r' => ChunkDecoderState::TrailerLf,
                        b'\t' | 0x20..=0x7e | 0x80.. => ChunkDecoderState::TrailerValue,
                        _ => return Err(BadRequest::BadTrailer),
                    }
                }
                ChunkDecoderState::TrailerLf if b == b'\n' => ChunkDecoderState::TrailerStart,
                ChunkDecoderState::LastLf if b == b'\n' => ChunkDecoderState::Done,
                ChunkDecoderState::TrailerLf | ChunkDecoderState::LastLf => {
                    return Err(BadRequest::BadTrailer);
                }
            };
            at += 1;
        }
        Ok(at)
    }

    fn count_extension_byte(
        &mut self,
        value: u64,
        part: ExtensionPart,
    ) -> Result<ChunkDecoderState, BadRequest> {
        self.extensions += 1;
        if self.extensions > MAX_EXTENSION_BYTES {
            return Err(BadRequest::ChunkExtensionsTooLong);
        }
        Ok(ChunkDecoderState::Extension { value, part })
    }

    fn count_trailer_byte(&mut self) -> Result<(), BadRequest> {
        self.trailers += 1;
        if self.trailers > MAX_TRAILER_BYTES {
            return Err(BadRequest::BadTrailer);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data and the bytes left over, if the body is complete.
    type Decoded<B> = Result<Option<(B, B)>, BadRequest>;

    /// Decodes `wire` in pieces of `step` bytes.
    fn decode(wire: &[u8], step: usize) -> Decoded<Vec<u8>> {
        let (mut decoder, mut out, mut pending) = (ChunkDecoder::default(), Vec::new(), Vec::new());
        for piece in wire.chunks(step) {
            pending.extend_from_slice(piece);
            while !pending.is_empty() && !decoder.is_done() {
                let used = decoder.decode(&pending, &mut out, 7)?;
                assert!(used > 0, "no progress at {pending:?}");
                pending.drain(..used);
            }
        }
        Ok(decoder.is_done().then_some((out, pending)))
    }

    fn check(wire: &[u8], expect: Decoded<&[u8]>) {
        for step in [1, 2, 3, wire.len()] {
            let got = decode(wire, step);
            let got = got.as_ref().map_err(|e| *e).map(|ok| {
                ok.as_ref()
                    .map(|(data, rest)| (data.as_slice(), rest.as_slice()))
            });
            let text = String::from_utf8_lossy(wire);
            assert_eq!(got, expect, "{text:?} in pieces of {step}");
        }
    }

    #[test]
    fn well_formed_bodies_are_decoded_and_what_follows_is_left() {
        check(b"0\r\n\r\n", Ok(Some((b"", b""))));
        check(b"5\r\nhello\r\n0\r\n\r\n", Ok(Some((b"hello", b""))));
        check(b"5\r\nhello\r\n0\r\n\r\nGET", Ok(Some((b"hello", b"GET"))));
        check(
            b"5;a=b;c=\"d \\\"e;\"; f\t=\tg ;h \r\nhello\r\n00;i\r\n\r\n",
            Ok(Some((b"hello", b""))),
        );
        check(
            b"A\r\n0123456789\r\n1\r\nx\r\n0\r\nX-Sum: 1\r\nY:\r\n\r\n!",
            Ok(Some((b"0123456789x", b"!"))),
        );
        check(b"5\r\nhel", Ok(None));
        check(b"0\r\nX: y\r\n", Ok(None));
    }

    #[test]
    fn ambiguous_chunked_bodies_are_refused() {
        let refused = |wire: &[u8], why| check(wire, Err(why));
        refused(b"\r\n", BadRequest::BadChunkSize);
        refused(b"g\r\n", BadRequest::BadChunkSize);
        refused(b"0x5\r\nhello", BadRequest::BadChunkSize);
        refused(b"-5\r\nhello", BadRequest::BadChunkSize);
        refused(b"+5\r\nhello", BadRequest::BadChunkSize);
        refused(b" 5\r\nhello", BadRequest::BadChunkSize);
        refused(b"5 \r\nhello", BadRequest::BadChunkSize);
        refused(b"5\nhello", BadRequest::BadChunkSize);
        refused(b"5\r\rhello", BadRequest::BadChunkSize);
        for extension in [
            ";",
            ";\n",
            ";a\0",
            ";=b",
            ";;a",
            ";a=",
            ";a=;b",
            ";bad[token",
            ";a=\"b",
            ";a=\"b\"c",
            ";a b",
            ";a=b c",
            ";a=\"\\\r\"",
            ";a\u{7f}",
            ";\u{e9}",
        ] {
            let wire = format!("5{extension}\r\nhello");
            refused(wire.as_bytes(), BadRequest::BadChunkExtension);
        }
        refused(b"10000000000000000\r\n", BadRequest::BadChunkSize);
        refused(b"0000000000000005\r\nhello", BadRequest::BadChunkSize);
        refused(b"5\r\nhello0\r\n\r\n", BadRequest::BadChunkEnd);
        refused(b"5\r\nhello\n0\r\n\r\n", BadRequest::BadChunkEnd);
        refused(b"5\r\nhello\r0\r\n\r\n", BadRequest::BadChunkEnd);
        refused(b"0\r\n: x\r\n\r\n", BadRequest::BadTrailer);
        refused(b"0\r\nX y: x\r\n\r\n", BadRequest::BadTrailer);
        refused(b"0\r\nX: y\n\r\n", BadRequest::BadTrailer);
        refused(b"0\r\n fold\r\n\r\n", BadRequest::BadTrailer);
        refused(b"0\r\n\rX", BadRequest::BadTrailer);
        refused(b"0\r\nGET / HTTP/1.1\r\n\r\n", BadRequest::BadTrailer);
    }

    #[test]
    fn chunk_size_is_known_before_its_data() {
        let (mut decoder, mut out) = (ChunkDecoder::default(), Vec::new());
        decoder.decode(b"40000000\r", &mut out, 10).unwrap();
        assert_eq!(decoder.announced_bytes(), 0, "its line has not ended");
        decoder.decode(b"\n", &mut out, 10).unwrap();
        assert_eq!(decoder.announced_bytes(), 1 << 30);
        decoder.decode(b"abc", &mut out, 10).unwrap();
        assert_eq!(
            (decoder.announced_bytes(), &out[..]),
            ((1 << 30) - 3, &b"abc"[..])
        );
    }

    #[test]
    fn extensions_and_trailers_are_bounded_over_the_whole_body() {
        let mut wire = Vec::new();
        for _ in 0..1100 {
            wire.extend_from_slice(b"1;padding=abcdef\r\nx\r\n");
        }
        check(&wire, Err(BadRequest::ChunkExtensionsTooLong));
        let mut wire = b"0\r\n".to_vec();
        for _ in 0..1100 {
            wire.extend_from_slice(b"X-Padding: abcdef\r\n");
        }
        check(&wire, Err(BadRequest::BadTrailer));
    }
}
