//! Parses the frames of a request's stream (RFC 9114 §7.1): where each begins and ends. This module does no I/O.

/// The frame type of a body's bytes.
pub const DATA: u64 = 0;
/// The frame type of a head or of trailers.
pub const HEADERS: u64 = 1;

/// Frame types that belong to other streams or to HTTP/2 (§7.2.8, §11.2.1).
const FORBIDDEN_FRAMES: [u64; 9] = [2, 3, 4, 5, 6, 7, 8, 9, 13];

/// The maximum number of consecutive frames without a byte of a body: clients send one or two of unknown types
/// (§7.2.8).
const MAX_EMPTY_FRAMES: u32 = 1000;

/// Why a frame is not allowed on a request's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http3FrameError {
    /// The frame is not allowed here.
    Unexpected,
    /// The announced length of a head exceeds the limit.
    HeadTooLong,
    /// There are more than a thousand frames in a row without a byte of a body, which cause useless work.
    TooManyEmpty,
}

/// Some bytes of a stream, at most up to the end of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassedFrame {
    /// The number of bytes.
    pub used: usize,
    /// How many of these bytes, at their end, belong to the payload.
    pub payload: usize,
    /// The frame's type, once it is known.
    pub kind: Option<u64>,
    /// Whether these bytes are the last of their frame.
    pub ends: bool,
}

/// Follows a stream from frame to frame.
#[derive(Debug)]
pub struct RequestFrameParser {
    /// The bytes of the frame's type and length received so far.
    begun: [u8; 16],
    length: usize,
    /// The type of the current frame, and the rest of its length.
    frame: Option<(u64, u64)>,
    /// The number of HEADERS frames that have passed: 1 after the head, 2 after the trailers.
    heads: u8,
    /// The number of frames since the last byte of the body, or since the head.
    empty: u32,
    longest_head: u64,
}

impl RequestFrameParser {
    /// Starts at the beginning of a stream. Heads may have at most this length.
    pub fn new(longest_head: u64) -> RequestFrameParser {
        RequestFrameParser {
            begun: [0; 16],
            length: 0,
            frame: None,
            heads: 0,
            empty: 0,
            longest_head,
        }
    }

    /// Returns whether every frame that has begun has ended.
    pub fn is_between(&self) -> bool {
        self.frame.is_none() && self.length == 0
    }

    /// Returns the type of the frame that has begun and not ended.
    pub fn kind(&self) -> Option<u64> {
        self.frame.map(|(kind, _)| kind)
    }

    /// Processes bytes of one frame, with at most `most` bytes of its payload.
    ///
    /// # Errors
    /// The frame is not allowed on the stream.
    pub fn pass(&mut self, bytes: &[u8], most: usize) -> Result<PassedFrame, Http3FrameError> {
        let mut used = 0;
        let (kind, left) = loop {
            if let Some(frame) = self.frame {
                break frame;
            }
            let Some(byte) = bytes.get(used) else {
                return Ok(PassedFrame {
                    used,
                    payload: 0,
                    kind: None,
                    ends: false,
                });
            };
            self.begun[self.length] = *byte;
            self.length += 1;
            used += 1;
            if let Some((kind, length)) = self.begun() {
                self.begin(kind, length)?;
            }
        };
        let payload = usize::try_from(left).unwrap_or(usize::MAX);
        let payload = payload.min(bytes.len() - used).min(most);
        let left = left - payload as u64;
        let ends = left == 0;
        self.frame = (!ends).then_some((kind, left));
        if ends && kind == HEADERS {
            self.heads += 1;
        }
        Ok(PassedFrame {
            used: used + payload,
            payload,
            kind: Some(kind),
            ends,
        })
    }

    /// Returns the type and length of the frame if both have been received.
    fn begun(&self) -> Option<(u64, u64)> {
        let (kind, rest) = parse_varint(&self.begun[..self.length])?;
        let (length, _) = parse_varint(rest)?;
        Some((kind, length))
    }

    fn begin(&mut self, kind: u64, length: u64) -> Result<(), Http3FrameError> {
        self.length = 0;
        self.frame = Some((kind, length));
        if kind == DATA && length > 0 {
            self.empty = 0;
        } else if self.heads > 0 && kind != HEADERS {
            self.empty += 1;
            if self.empty > MAX_EMPTY_FRAMES {
                return Err(Http3FrameError::TooManyEmpty);
            }
        }
        match (kind, self.heads) {
            (DATA, 1) | (HEADERS, 0 | 1) => {}
            (DATA | HEADERS, _) => return Err(Http3FrameError::Unexpected),
            _ if FORBIDDEN_FRAMES.contains(&kind) => return Err(Http3FrameError::Unexpected),
            // The h3 crate buffers a whole frame only before the end of the head.
            _ if self.heads > 0 => return Ok(()),
            _ => {}
        }
        if kind != DATA && length > self.longest_head {
            return Err(Http3FrameError::HeadTooLong);
        }
        Ok(())
    }
}

/// Parses an integer of variable length (RFC 9000 §16), and returns it with the bytes that follow.
fn parse_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let length = 1 << (bytes.first()? >> 6);
    let (own, rest) = bytes.split_at_checked(length)?;
    let first = u64::from(own[0] & 0x3f);
    let value = own[1..].iter().fold(first, |n, b| n << 8 | u64::from(*b));
    Some((value, rest))
}

/// Writes the beginning of a DATA frame with this many bytes.
pub fn write_data_frame_header(length: u32, out: &mut Vec<u8>) {
    out.push(DATA as u8);
    match length {
        0..0x40 => out.push(length as u8),
        0x40..0x4000 => out.extend_from_slice(&(length as u16 | 0x4000).to_be_bytes()),
        _ => out.extend_from_slice(&(length | 0x8000_0000).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the types and payload lengths of all frames, processed in pieces of `step` bytes.
    fn all(bytes: &[u8], step: usize) -> Result<Vec<(u64, usize)>, Http3FrameError> {
        let mut frames = RequestFrameParser::new(100);
        let mut found: Vec<(u64, usize)> = Vec::new();
        let (mut at, mut payload) = (0, 0);
        while at < bytes.len() {
            let passed = frames.pass(&bytes[at..bytes.len().min(at + step)], usize::MAX)?;
            at += passed.used;
            payload += passed.payload;
            if passed.ends {
                found.push((passed.kind.unwrap(), std::mem::take(&mut payload)));
            }
        }
        assert!(frames.is_between());
        Ok(found)
    }

    #[test]
    fn empty_frames_are_limited() {
        let head = [HEADERS as u8, 0];
        for empty in [[DATA as u8, 0], [0x21, 0]] {
            let most = [&head[..], &empty.repeat(1000), &[DATA as u8, 1, 7]].concat();
            assert!(all(&most, 4096).is_ok());
            let again = [&most[..], &empty.repeat(1000)].concat();
            assert!(all(&again, 4096).is_ok());
            let more = [&again[..], &empty].concat();
            assert_eq!(all(&more, 4096), Err(Http3FrameError::TooManyEmpty));
        }
    }

    #[test]
    fn frames_are_parsed_in_any_pieces() {
        let mut stream = vec![0x21, 1, b'x', HEADERS as u8, 3, 1, 2, 3];
        write_data_frame_header(0, &mut stream);
        write_data_frame_header(70, &mut stream);
        stream.extend([7; 70]);
        write_data_frame_header(20_000, &mut stream);
        stream.extend([8; 20_000]);
        stream.extend([0x40, 0x21, 0x40, 2, 0, 0, HEADERS as u8, 0]);
        let expected = [
            (0x21, 1),
            (HEADERS, 3),
            (DATA, 0),
            (DATA, 70),
            (DATA, 20_000),
            (0x21, 2),
            (HEADERS, 0),
        ];
        for step in [1, 2, 1000, usize::MAX / 2] {
            assert_eq!(all(&stream, step).unwrap(), expected, "{step}");
        }
    }

    #[test]
    fn forbidden_frames_are_errors() {
        for stream in [
            &[0u8, 1][..],
            &[1, 0, 4, 0],
            &[5, 0],
            &[1, 0, 1, 0, 0, 1],
            &[1, 0, 1, 0, 1, 0],
        ] {
            assert_eq!(
                all(stream, 100),
                Err(Http3FrameError::Unexpected),
                "{stream:?}"
            );
        }
        for stream in [&[1u8, 0x40, 101][..], &[0x21, 0x80, 1, 0, 0]] {
            assert_eq!(all(stream, 100), Err(Http3FrameError::HeadTooLong));
        }
        let mut after = vec![1, 0, 0x21, 0x40, 101];
        after.extend([0; 101]);
        assert!(all(&after, 100).is_ok(), "nobody keeps it");
    }

    #[test]
    fn frame_payload_is_limited_by_the_readers_room() {
        let mut frames = RequestFrameParser::new(100);
        let stream = [1, 0, 0, 5, 1, 2, 3, 4, 5];
        assert!(frames.pass(&stream, 9).unwrap().ends);
        let passed = frames.pass(&stream[2..], 3).unwrap();
        assert_eq!((passed.used, passed.payload, passed.ends), (5, 3, false));
        let passed = frames.pass(&stream[7..], 3).unwrap();
        assert_eq!((passed.used, passed.payload, passed.ends), (2, 2, true));
    }
}
