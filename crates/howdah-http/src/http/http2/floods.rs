//! Limits how many useless frames a client may send, and how many streams it may reset or cause to be reset. The
//! allowances grow with time, and with the requests and the transferred bytes. This module depends neither on sockets
//! nor on a clock.
//!
//! Floods that the h2 crate limits itself (CONTINUATION frames, the header list, streams reset before they are
//! accepted, small DATA frames that wait for their reader) have their names here, too.

use std::time::Instant;

use strum::{Display, IntoStaticStr, VariantArray};

use super::super::multiplexed::{Allowance, Left, RESETS};
use super::frames::{
    CONTINUATION, DATA, END_STREAM_OR_ACK, FrameHead, HEADERS, PING, PRIORITY, PRIORITY_UPDATE,
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
    pub(super) fn of(text: &str) -> Http2Error {
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
const FRAMES: Allowance = Allowance {
    most: 300,
    a_second: 100,
};
/// How many such frames a request adds to the allowance, and how many bytes of bodies add one.
const FRAMES_OF_REQUEST: u32 = 8;
const BYTES_OF_FRAME: u32 = 256;
/// The allowance of streams that the server resets because of the client's mistakes.
const MISTAKES: Allowance = Allowance {
    most: 16,
    a_second: 1,
};
/// A DATA frame with fewer bytes is useless, unless it is the last of its stream.
const SMALL_DATA: u32 = 32;

/// Error codes (RFC 9113 §7) of resets that are not due to a mistake of the client.
const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;
const CANCEL: u32 = 8;

/// The rest of a connection's allowances.
#[derive(Debug)]
pub(super) struct Floods {
    frames: Left,
    resets: Left,
    mistakes: Left,
    /// Bytes of bodies that have not yet added a frame to the allowance.
    bytes: u32,
}

impl Floods {
    pub(super) fn new(now: Instant) -> Floods {
        Floods {
            frames: Left::all(FRAMES, now),
            resets: Left::all(RESETS, now),
            mistakes: Left::all(MISTAKES, now),
            bytes: 0,
        }
    }

    /// Records that the client has begun to send a frame. Returns an error if the frame exceeds an allowance.
    pub(super) fn received(&mut self, frame: &FrameHead, now: Instant) -> Result<(), Http2Error> {
        let flag = frame.flags & END_STREAM_OR_ACK != 0;
        let error = match frame.kind {
            HEADERS => {
                self.frames.give(FRAMES_OF_REQUEST);
                return Ok(());
            }
            RST_STREAM => {
                let allowed = self.resets.take(now);
                return allowed.then_some(()).ok_or(Http2Error::RapidReset);
            }
            DATA if flag || frame.length >= SMALL_DATA => {
                self.moved(frame.length);
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
    pub(super) fn moved(&mut self, bytes: u32) {
        let bytes = self.bytes + bytes;
        self.frames.give(bytes / BYTES_OF_FRAME);
        self.bytes = bytes % BYTES_OF_FRAME;
    }

    /// Records that the server resets a stream. Returns an error if that exceeds the allowance.
    pub(super) fn reset(&mut self, code: u32, now: Instant) -> Result<(), Http2Error> {
        let ours = matches!(code, NO_ERROR | INTERNAL_ERROR | CANCEL);
        let allowed = ours || self.mistakes.take(now);
        allowed.then_some(()).ok_or(Http2Error::MadeYouReset)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn frame(kind: u8, flags: u8, length: u32) -> FrameHead {
        FrameHead {
            length,
            kind,
            flags,
            stream: 1,
        }
    }

    /// Returns how many of the frame a client may send at once, and the error after that.
    fn flood(kind: u8, flags: u8, length: u32) -> (usize, Option<Http2Error>) {
        let now = Instant::now();
        let mut floods = Floods::new(now);
        let frame = frame(kind, flags, length);
        for n in 0..10_000 {
            if let Err(why) = floods.received(&frame, now) {
                return (n, Some(why));
            }
        }
        (10_000, None)
    }

    #[test]
    fn frames_that_serve_nobody_are_bounded_each_under_its_name() {
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
    fn requests_bodies_and_time_explain_frames() {
        let now = Instant::now();
        let mut floods = Floods::new(now);
        let update = frame(WINDOW_UPDATE, 0, 4);
        for _ in 0..5000 {
            floods.received(&frame(HEADERS, 5, 20), now).unwrap();
            floods.received(&update, now).unwrap();
            floods.moved(16 << 10);
            for _ in 0..8 {
                floods.received(&update, now).unwrap();
            }
        }
        while floods.received(&update, now).is_ok() {}
        let later = now + Duration::from_secs(2);
        assert!(floods.received(&update, later).is_ok());
        assert_eq!(floods.frames.left(), 199);
    }

    #[test]
    fn resets_of_ours_count_only_for_mistakes_of_the_client() {
        let now = Instant::now();
        let mut floods = Floods::new(now);
        for _ in 0..1000 {
            for code in [NO_ERROR, INTERNAL_ERROR, CANCEL] {
                floods.reset(code, now).unwrap();
            }
        }
        for _ in 0..16 {
            floods.reset(1, now).unwrap();
        }
        assert_eq!(floods.reset(5, now), Err(Http2Error::MadeYouReset));
    }
}
