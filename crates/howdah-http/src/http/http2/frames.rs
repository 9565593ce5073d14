//! Parses the headers of the frames that pass in one direction (RFC 9113 §4.1), but not their content. It finds what
//! the h2 crate does not report: floods and the bytes in transit. This module does no I/O.

/// The bytes that a client sends before its first frame (RFC 9113 §3.4).
pub(in crate::http) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;
/// RFC 9218 §7.1.
pub(super) const PRIORITY_UPDATE: u8 = 16;

/// The flag END_STREAM of DATA and HEADERS, and ACK of SETTINGS and PING.
pub(super) const END_STREAM_OR_ACK: u8 = 1;
/// The flag END_HEADERS of HEADERS and CONTINUATION.
pub(super) const END_HEADERS: u8 = 4;

/// The length of a frame's header in bytes.
const FRAME_HEADER_BYTES: usize = 9;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) length: u32,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

/// An event in the stream of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameEvent<'a> {
    /// A frame has begun.
    Frame(FrameHeader),
    /// This many bytes of a DATA frame of this stream have passed.
    Data { stream: u32, bytes: usize },
    /// A stream was reset, with this error code.
    Reset { stream: u32, code: u32 },
    /// A part of the text of a GOAWAY.
    GoAway(&'a [u8]),
}

/// Follows the frames of one direction.
#[derive(Debug, Default)]
pub(super) struct FrameMeter {
    /// The number of bytes before the first frame.
    skip: usize,
    head: [u8; FRAME_HEADER_BYTES],
    have: usize,
    frame: FrameHeader,
    /// The number of payload bytes of `frame` that have not passed yet.
    left: usize,
    code: u32,
}

impl FrameMeter {
    /// Creates a meter of a client's frames, which follow the preface.
    pub(super) fn after_preface() -> FrameMeter {
        FrameMeter {
            skip: PREFACE.len(),
            ..FrameMeter::default()
        }
    }

    /// Returns whether a frame has begun and not ended.
    pub(super) fn within_frame(&self) -> bool {
        self.skip > 0 || self.have > 0 || self.left > 0
    }

    /// Processes `bytes`, the next bytes of this direction.
    pub(super) fn pass(&mut self, mut bytes: &[u8], mut passed: impl FnMut(FrameEvent<'_>)) {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        bytes = &bytes[skipped..];
        while !bytes.is_empty() {
            if self.left == 0 {
                let n = (FRAME_HEADER_BYTES - self.have).min(bytes.len());
                self.head[self.have..self.have + n].copy_from_slice(&bytes[..n]);
                self.have += n;
                bytes = &bytes[n..];
                if self.have == FRAME_HEADER_BYTES {
                    self.have = 0;
                    self.begin();
                    passed(FrameEvent::Frame(self.frame));
                }
                continue;
            }
            let n = self.left.min(bytes.len());
            let stream = self.frame.stream;
            match self.frame.kind {
                GOAWAY => passed(FrameEvent::GoAway(&bytes[..n])),
                DATA => passed(FrameEvent::Data { stream, bytes: n }),
                RST_STREAM => {
                    for byte in &bytes[..n.min(4)] {
                        self.code = self.code << 8 | u32::from(*byte);
                    }
                    if self.left == n {
                        let code = self.code;
                        passed(FrameEvent::Reset { stream, code });
                    }
                }
                _ => {}
            }
            self.left -= n;
            bytes = &bytes[n..];
        }
    }

    fn begin(&mut self) {
        let [a, b, c, kind, flags, id @ ..] = self.head;
        self.frame = FrameHeader {
            length: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
            stream: u32::from_be_bytes(id) & !(1 << 31),
        };
        self.left = self.frame.length as usize;
        self.code = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn frame_meter_sees_frames_in_any_pieces() {
        let mut wire = PREFACE.to_vec();
        wire.extend(frame(SETTINGS, 0, 0, &[]));
        wire.extend(frame(DATA, 1, 3, b"hello"));
        wire.extend(frame(RST_STREAM, 0, 5, &[0, 0, 1, 8]));
        wire.extend(frame(PING, 1, 0, &[7; 8]));
        let mut whole = Vec::new();
        FrameMeter::after_preface().pass(&wire, |seen| whole.push(format!("{seen:?}")));
        assert_eq!(whole.len(), 6, "{whole:?}");
        assert_eq!(whole[2], "Data { stream: 3, bytes: 5 }");
        assert_eq!(whole[4], "Reset { stream: 5, code: 264 }");
        for cut in 1..wire.len() {
            let (mut meter, mut data, mut seen) = (FrameMeter::after_preface(), 0, 0);
            for piece in wire.chunks(cut) {
                meter.pass(piece, |passed| match passed {
                    FrameEvent::Data { bytes, .. } => data += bytes,
                    _ => seen += 1,
                });
            }
            assert_eq!((data, seen), (5, 5), "{cut}");
            assert!(!meter.within_frame());
        }
    }
}
