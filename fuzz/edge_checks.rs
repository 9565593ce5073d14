//! Invariants of this project's own parts of HTTP/3 for arbitrary bytes.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use howdah_http::http3_frames::{DATA, HEADERS, Http3FrameError, RequestFrameParser};
use howdah_http::listener::packet_exchange::{MAX_WAITING_BYTES, PacketExchange};
use quinn::udp::RecvMeta;

/// The maximum length of a header block in the checks, in bytes.
const LONGEST_HEAD: u64 = 300;

/// The content of a stream: the types of its frames, its body, and whether it ends between two frames.
#[derive(Debug, Default, PartialEq)]
struct Passed {
    frames: Vec<u64>,
    body: Vec<u8>,
    whole: bool,
}

fn pass(bytes: &[u8], step: usize, most: usize) -> Result<Passed, Http3FrameError> {
    let (mut frames, mut passed) = (RequestFrameParser::new(LONGEST_HEAD), Passed::default());
    let mut at = 0;
    while at < bytes.len() {
        let end = bytes.len().min(at + step);
        let one = frames.pass(&bytes[at..end], most)?;
        assert!(one.used > 0, "no progress");
        assert!(one.payload <= one.used && one.payload <= most && at + one.used <= end);
        assert!(!one.ends || one.kind.is_some());
        at += one.used;
        if one.kind == Some(DATA) {
            passed.body.extend(&bytes[at - one.payload..at]);
        }
        if one.ends {
            passed.frames.extend(one.kind);
        }
    }
    passed.whole = frames.is_between();
    Ok(passed)
}

/// Checks that the result does not depend on where the bytes are cut or on how much is read at once, and that all data
/// lies between a header block and the trailers.
pub fn http3_frames(data: &[u8]) {
    let Some((step, bytes)) = data.split_first() else {
        return;
    };
    let whole = pass(bytes, usize::MAX / 2, usize::MAX);
    assert_eq!(
        pass(bytes, 1 + usize::from(*step), 1 + usize::from(*step)),
        whole
    );
    assert_eq!(pass(bytes, 1, usize::MAX), whole);
    let Ok(passed) = whole else {
        return;
    };
    assert!(passed.body.len() + 2 * passed.frames.len() <= bytes.len());
    let heads = passed
        .frames
        .iter()
        .filter(|kind| **kind == HEADERS)
        .count();
    assert!(heads <= 2);
    let mut outside = passed.frames.split(|kind| *kind == HEADERS);
    assert!(outside.next().is_none_or(|before| !before.contains(&DATA)));
    assert!(outside.nth(1).is_none_or(|after| !after.contains(&DATA)));
}

/// Checks that every packet either stays with the endpoint that received it or is queued for the endpoint that its
/// connection ID names, whole and in order. The first byte is the number of endpoints. Then follow the arrivals: the
/// receiving endpoint, the length of a packet, the number of packets that were coalesced, and their bytes.
pub fn quic_packets(data: &[u8]) {
    let Some((count, mut rest)) = data.split_first() else {
        return;
    };
    let count = 1 + usize::from(count % 4);
    let exchange = PacketExchange::new(count);
    let mut waiting = vec![VecDeque::<Vec<u8>>::new(); count];
    while let [to, length, many, bytes @ ..] = rest {
        let own = usize::from(*to) % count;
        if to & 0x80 != 0 {
            take(&exchange, own, &mut waiting[own]);
            rest = &rest[1..];
            continue;
        }
        let stride = 1 + usize::from(length % 32);
        let length = (stride * (1 + usize::from(many % 8))).min(bytes.len());
        let (received, more) = bytes.split_at(length);
        rest = more;
        let mut kept: Vec<u8> = Vec::new();
        for packet in received.chunks(stride) {
            let named = packet.get(1).map(|number| usize::from(*number));
            match named.filter(|to| packet[0] < 0x80 && *to != own && *to < count) {
                Some(other) => waiting[other].push_back(packet.to_vec()),
                None => kept.extend(packet),
            }
        }
        let meta = RecvMeta {
            len: length,
            stride,
            ..RecvMeta::default()
        };
        let mut received = received.to_vec();
        let left = exchange.forward_foreign(own, meta, &mut received);
        assert_eq!(received[..left], kept);
    }
    let all: usize = waiting.iter().flatten().map(Vec::len).sum();
    assert!(
        all <= MAX_WAITING_BYTES,
        "inputs are shorter than what may wait"
    );
    for (own, expected) in waiting.iter_mut().enumerate() {
        while !expected.is_empty() {
            take(&exchange, own, expected);
        }
        take(&exchange, own, expected);
    }
}

/// Receives one batch of packets, and compares them.
fn take(exchange: &PacketExchange, own: usize, expected: &mut VecDeque<Vec<u8>>) {
    let (mut buf, mut meta) = ([0; 512], RecvMeta::default());
    let mut cx = Context::from_waker(Waker::noop());
    let taken = exchange.poll_take(own, &mut cx, &mut buf, &mut meta);
    assert_eq!(
        taken,
        if expected.is_empty() {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    );
    if taken.is_ready() {
        for packet in buf[..meta.len].chunks(meta.stride) {
            assert_eq!(expected.pop_front().as_deref(), Some(packet));
        }
    }
}
