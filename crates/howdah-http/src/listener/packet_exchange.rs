//! Forwards QUIC packets that arrive at another endpoint than their own.
//!
//! The kernel distributes packets over the sockets of a port by the client's address. When that address changes (a
//! phone leaves the house), packets arrive at another thread. [`PacketExchange`] forwards them by the connection ID,
//! whose first byte is the endpoint's number. It reads no socket.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use quinn::udp::RecvMeta;

/// The maximum number of bytes of packets that wait for an endpoint, comparable to the buffer of a socket.
pub const MAX_WAITING_BYTES: usize = 512 << 10;

/// Forwards packets between endpoints; see the module.
pub struct PacketExchange(Vec<Mutex<PassedPackets>>);

/// The packets that wait for an endpoint.
#[derive(Default)]
struct PassedPackets {
    packets: VecDeque<(RecvMeta, Box<[u8]>)>,
    bytes: usize,
    waker: Option<Waker>,
}

impl PacketExchange {
    /// Creates an exchange for this many endpoints, numbered from 0.
    pub fn new(endpoints: usize) -> Arc<PacketExchange> {
        Arc::new(PacketExchange(
            (0..endpoints).map(|_| Mutex::default()).collect(),
        ))
    }

    fn of(&self, number: usize) -> Option<MutexGuard<'_, PassedPackets>> {
        let passed = self.0.get(number)?;
        Some(passed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the number of the endpoint that a packet belongs to, if it is another one.
    fn owner(&self, packet: &[u8], own: usize) -> Option<usize> {
        // RFC 9000 §17.3: short headers are used by packets of established connections.
        let is_short = packet.first()? & 0x80 == 0;
        let number = usize::from(*packet.get(1)?);
        (is_short && number != own && number < self.0.len()).then_some(number)
    }

    /// Forwards the packets in `received` that belong to other endpoints. Moves the endpoint's own packets to the front
    /// and returns their length in bytes. The kernel may have merged packets: each has `meta.stride` bytes, except for
    /// the last.
    pub fn forward_foreign(&self, own: usize, meta: RecvMeta, received: &mut [u8]) -> usize {
        let stride = meta.stride.max(1);
        let mut owners = received
            .chunks(stride)
            .map(|packet| self.owner(packet, own));
        let first = owners.next().flatten();
        if owners.all(|owner| owner == first) {
            let Some(owner) = first else {
                return received.len();
            };
            self.forward(owner, meta, received);
            return 0;
        }
        // The merged packets belong to several connections of one client.
        let mut kept = 0;
        for begin in (0..received.len()).step_by(stride) {
            let end = received.len().min(begin + stride);
            match self.owner(&received[begin..end], own) {
                Some(owner) => self.forward(owner, meta, &received[begin..end]),
                None => {
                    received.copy_within(begin..end, kept);
                    kept += end - begin;
                }
            }
        }
        kept
    }

    fn forward(&self, to: usize, mut meta: RecvMeta, packets: &[u8]) {
        let Some(mut passed) = self.of(to) else {
            return;
        };
        // Packets beyond this limit are lost, as with a full socket buffer.
        if passed.bytes + packets.len() <= MAX_WAITING_BYTES {
            meta.len = packets.len();
            passed.bytes += packets.len();
            passed.packets.push_back((meta, packets.into()));
            if let Some(waker) = passed.waker.take() {
                waker.wake();
            }
        }
    }

    /// Takes packets that another endpoint has forwarded, in the form in which they arrived there.
    pub fn poll_take(
        &self,
        own: usize,
        cx: &mut Context<'_>,
        buf: &mut [u8],
        meta: &mut RecvMeta,
    ) -> Poll<()> {
        let Some(mut passed) = self.of(own) else {
            return Poll::Pending;
        };
        let Some((of, packets)) = passed.packets.pop_front() else {
            passed.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        passed.bytes -= packets.len();
        let length = packets.len().min(buf.len());
        buf[..length].copy_from_slice(&packets[..length]);
        *meta = of;
        meta.len = length;
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(exchange: &PacketExchange, own: usize) -> Option<(usize, Vec<u8>)> {
        let (mut buf, mut meta) = ([0; 2000], RecvMeta::default());
        let mut cx = Context::from_waker(Waker::noop());
        match exchange.poll_take(own, &mut cx, &mut buf, &mut meta) {
            Poll::Ready(()) => Some((meta.stride, buf[..meta.len].to_vec())),
            Poll::Pending => None,
        }
    }

    #[test]
    fn packet_goes_to_the_endpoint_named_by_its_connection_id() {
        let exchange = PacketExchange::new(3);
        assert_eq!(exchange.owner(&[0x40, 2, 9, 9], 0), Some(2));
        assert_eq!(exchange.owner(&[0x40, 0, 9, 9], 0), None, "its own");
        assert_eq!(exchange.owner(&[0x40, 3, 9, 9], 0), None, "nobody's");
        assert_eq!(exchange.owner(&[0xc0, 2, 9, 9], 0), None, "a first packet");
        assert_eq!(exchange.owner(&[0x40], 0), None);
        assert_eq!(exchange.owner(&[], 0), None);
    }

    #[test]
    fn packets_merged_by_the_kernel_are_split() {
        let exchange = PacketExchange::new(2);
        let meta = RecvMeta {
            stride: 3,
            ..RecvMeta::default()
        };
        let mut all = *b"@\x01a@\x01b@\x01";
        assert_eq!(exchange.forward_foreign(0, meta, &mut all), 0);
        assert_eq!(
            taken(&exchange, 1),
            Some((3, b"@\x01a@\x01b@\x01".to_vec()))
        );
        let mut mixed = *b"@\x00a@\x01b@\x00c@\x01";
        assert_eq!(exchange.forward_foreign(0, meta, &mut mixed), 6);
        assert_eq!(&mixed[..6], b"@\x00a@\x00c");
        assert_eq!(taken(&exchange, 1), Some((3, b"@\x01b".to_vec())));
        assert_eq!(taken(&exchange, 1), Some((3, b"@\x01".to_vec())));
        assert_eq!(taken(&exchange, 1), None);
    }

    #[test]
    fn packets_beyond_the_waiting_limit_are_dropped() {
        let exchange = PacketExchange::new(2);
        let mut packet = [0x40; 1200];
        packet[1] = 1;
        for _ in 0..2 * MAX_WAITING_BYTES / packet.len() {
            let meta = RecvMeta {
                stride: packet.len(),
                ..RecvMeta::default()
            };
            exchange.forward_foreign(0, meta, &mut packet);
        }
        let mut waiting = 0;
        while let Some((_, packet)) = taken(&exchange, 1) {
            waiting += packet.len();
        }
        assert!(waiting <= MAX_WAITING_BYTES && waiting > MAX_WAITING_BYTES - 1200);
        assert_eq!(taken(&exchange, 0), None);
    }
}
