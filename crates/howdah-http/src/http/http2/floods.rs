//! Limits how many useless frames a client may send, and how many streams it may reset or cause to be reset. The
//! allowances grow with time, and with the requests and the transferred bytes. This module depends neither on sockets
//! nor on a clock.
//!
//! Floods that the h2 crate limits itself (CONTINUATION frames, the header list, streams reset before they are
//! accepted, small DATA frames that wait for their reader) have their names here, too.

use std::time::Instant;

use strum::{Display, IntoStaticStr, VariantArray};

use super::super::multiplexed::{Allowance, RESETS, RemainingAllowance};
use super::frames::{
    CONTINUATION, DATA, END_STREAM_OR_ACK, FrameHeader, HEADERS, PING, PRIORITY, PRIORITY_UPDATE,
    RST_STREAM, SETTINGS, WINDOW_UPDATE,
};

/// Why the server ended an HTTP/2 connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, IntoStaticStr, VariantArray)]
pub enum Http2Error {
    /// The client resets streams faster than browsers do (CVE-2023-44487).
    RapidReset,
    /// The client makes the server reset streams (CVE-2025-8671).
    MadeYouReset,
    /// A header block uses more CONTINUATION frames than its limit needs (CVE-2024-27316).
    ContinuationFlood,
    /// A header block is far longer than `limits.header`, however it was compressed (HPACK bomb).
    HeaderBomb,
    /// PING frames beyond the allowance.
    PingFlood,
    /// SETTINGS frames beyond the allowance.
    SettingsFlood,
    /// PRIORITY or PRIORITY_UPDATE frames beyond the allowance.
    PriorityFlood,
    /// WINDOW_UPDATE frames beyond the allowance, for a few bytes each.
    WindowUpdateFlood,
    /// DATA frames of a few bytes each, or of none, beyond the allowance.
    EmptyDataFlood,
    /// Frames of unknown types beyond the allowance.
    UnknownFrameFlood,
    /// The client violated the protocol in another way, which the message describes.
    Http2Protocol,
}

impl Http2Error {
    /// All reasons, for documentation and counters.
    pub const ALL: &'static [Http2Error] = Http2Error::VARIANTS;

    /// Returns the name in the log and in metrics.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Classifies an error of the h2 crate by the text of its GOAWAY.
    pub(super) fn from_goaway_text(text: &str) -> Http2Error {
        let named = [
            ("too_many_resets", Http2Error::RapidReset),
            ("too_many_internal_resets", Http2Error::MadeYouReset),
            ("too_many_continuations", Http2Error::ContinuationFlood),
            ("header_list_way_too_large", Http2Error::HeaderBomb),
            ("too_many_data_frames", Http2Error::EmptyDataFlood),
        ];
        let found = named.iter().find(|(part, _)| text.contains(part));
        found.map_or(Http2Error::Http2Protocol, |(_, error)| *error)
    }
}

/// The allowance of useless frames. A client with a naive flow control sends two WINDOW_UPDATE frames for each event of
/// an event stream.
const USELESS_FRAMES: Allowance = Allowance {
    burst: 300,
    per_second: 100,
};
/// How many useless frames a request adds to the allowance, and how many bytes of bodies add one frame.
const FRAMES_PER_REQUEST: u32 = 8;
const BODY_BYTES_PER_FRAME: u32 = 256;
/// The allowance of streams that the server resets because of the client's mistakes.
const PROVOKED_RESETS: Allowance = Allowance {
    burst: 16,
    per_second: 1,
};
/// A DATA frame with fewer bytes is useless, unless it is the last of its stream.
const SMALL_DATA_BYTES: u32 = 32;

/// Error codes (RFC 9113 §7) of resets that are not due to a mistake of the client.
const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;
const CANCEL: u32 = 8;

/// The rest of a connection's allowances.
#[derive(Debug)]
pub(super) struct FloodAllowances {
    frames: RemainingAllowance,
    resets: RemainingAllowance,
    mistakes: RemainingAllowance,
    /// Bytes of bodies that have not yet added a frame to the allowance.
    bytes: u32,
}

impl FloodAllowances {
    pub(super) fn new(now: Instant) -> FloodAllowances {
        FloodAllowances {
            frames: RemainingAllowance::all(USELESS_FRAMES, now),
            resets: RemainingAllowance::all(RESETS, now),
            mistakes: RemainingAllowance::all(PROVOKED_RESETS, now),
            bytes: 0,
        }
    }

    /// Records that the client has begun to send a frame. Returns an error if the frame exceeds an allowance.
    pub(super) fn check_received(
        &mut self,
        frame: &FrameHeader,
        now: Instant,
    ) -> Result<(), Http2Error> {
        let flag = frame.flags & END_STREAM_OR_ACK != 0;
        let error = match frame.kind {
            HEADERS => {
                self.frames.give(FRAMES_PER_REQUEST);
                return Ok(());
            }
            RST_STREAM => {
                let allowed = self.resets.take(now);
                return allowed.then_some(()).ok_or(Http2Error::RapidReset);
            }
            DATA if flag || frame.length >= SMALL_DATA_BYTES => {
                self.add_body_bytes(frame.length);
                return Ok(());
            }
            DATA => Http2Error::EmptyDataFlood,
            SETTINGS | PING if flag => return Ok(()),
            SETTINGS => Http2Error::SettingsFlood,
            PING => Http2Error::PingFlood,
            PRIORITY | PRIORITY_UPDATE => Http2Error::PriorityFlood,
            WINDOW_UPDATE => Http2Error::WindowUpdateFlood,
            // The h2 crate counts these.
            CONTINUATION => return Ok(()),
            _ => Http2Error::UnknownFrameFlood,
        };
        self.frames.take(now).then_some(()).ok_or(error)
    }

    /// Records that bytes of a body were transferred in either direction.
    pub(super) fn add_body_bytes(&mut self, bytes: u32) {
        let bytes = self.bytes + bytes;
        self.frames.give(bytes / BODY_BYTES_PER_FRAME);
        self.bytes = bytes % BODY_BYTES_PER_FRAME;
    }

    /// Records that the server resets a stream. Returns an error if that exceeds the allowance.
    pub(super) fn check_reset(&mut self, code: u32, now: Instant) -> Result<(), Http2Error> {
        let ours = matches!(code, NO_ERROR | INTERNAL_ERROR | CANCEL);
        let allowed = ours || self.mistakes.take(now);
        allowed.then_some(()).ok_or(Http2Error::MadeYouReset)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn frame(kind: u8, flags: u8, length: u32) -> FrameHeader {
        FrameHeader {
            length,
            kind,
            flags,
            stream: 1,
        }
    }

    /// Returns how many frames of this kind a client may send at once, and the error for the next one.
    fn flood(kind: u8, flags: u8, length: u32) -> (usize, Option<Http2Error>) {
        let now = Instant::now();
        let mut floods = FloodAllowances::new(now);
        let frame = frame(kind, flags, length);
        for n in 0..10_000 {
            if let Err(why) = floods.check_received(&frame, now) {
                return (n, Some(why));
            }
        }
        (10_000, None)
    }

    #[test]
    fn useless_frames_are_limited_under_their_names() {
        for (kind, flags, length, name) in [
            (PING, 0, 8, Http2Error::PingFlood),
            (SETTINGS, 0, 0, Http2Error::SettingsFlood),
            (PRIORITY, 0, 5, Http2Error::PriorityFlood),
            (PRIORITY_UPDATE, 0, 9, Http2Error::PriorityFlood),
            (WINDOW_UPDATE, 0, 4, Http2Error::WindowUpdateFlood),
            (DATA, 0, 0, Http2Error::EmptyDataFlood),
            (DATA, 0, 1, Http2Error::EmptyDataFlood),
            (99, 0, 1, Http2Error::UnknownFrameFlood),
        ] {
            assert_eq!(flood(kind, flags, length), (300, Some(name)));
        }
        assert_eq!(flood(RST_STREAM, 0, 4), (128, Some(Http2Error::RapidReset)));
        for (kind, flags, length) in [(PING, 1, 8), (DATA, 0, 1000), (DATA, 1, 0), (HEADERS, 4, 9)]
        {
            assert_eq!(flood(kind, flags, length), (10_000, None));
        }
    }

    #[test]
    fn frame_allowance_grows_with_requests_bodies_and_time() {
        let now = Instant::now();
        let mut floods = FloodAllowances::new(now);
        let update = frame(WINDOW_UPDATE, 0, 4);
        for _ in 0..5000 {
            floods.check_received(&frame(HEADERS, 5, 20), now).unwrap();
            floods.check_received(&update, now).unwrap();
            floods.add_body_bytes(16 << 10);
            for _ in 0..8 {
                floods.check_received(&update, now).unwrap();
            }
        }
        while floods.check_received(&update, now).is_ok() {}
        let later = now + Duration::from_secs(2);
        assert!(floods.check_received(&update, later).is_ok());
        assert_eq!(floods.frames.left(), 199);
    }

    #[test]
    fn server_resets_count_only_for_client_mistakes() {
        let now = Instant::now();
        let mut floods = FloodAllowances::new(now);
        for _ in 0..1000 {
            for code in [NO_ERROR, INTERNAL_ERROR, CANCEL] {
                floods.check_reset(code, now).unwrap();
            }
        }
        for _ in 0..16 {
            floods.check_reset(1, now).unwrap();
        }
        assert_eq!(floods.check_reset(5, now), Err(Http2Error::MadeYouReset));
    }
}
