//! Tests of the exchange, with threads in place of processes. The memory is the same.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use super::*;
use crate::request::{FrameBuilder, RequestFrame};
use crate::response::{self, Frame, ResponseParser, kind};
use crate::variables::Var;

/// Memory of this process, in place of a mapping.
struct Allocation(NonNull<u8>, Layout);

// SAFETY: only its address and layout are read.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

// SAFETY: zeroed pages of this layout, freed when the value is dropped.
unsafe impl SharedMemory for Allocation {
    fn start(&self) -> NonNull<u8> {
        self.0
    }

    fn size(&self) -> usize {
        self.1.size()
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.0.as_ptr(), self.1) }
    }
}

/// A fresh pool, its region, which is leaked for the children, and the ports of its front threads.
struct TestPoolMemory {
    region: &'static Region,
    ports: Vec<FrontPort>,
    size: usize,
}

impl TestPoolMemory {
    fn new(fronts: u32, slots: u32, children: u32) -> TestPoolMemory {
        let geometry = Geometry {
            fronts,
            slots,
            children,
            shared_cache: 0,
        };
        let layout = Layout::from_size_align(geometry.region_len(), 4096).unwrap();
        // SAFETY: the layout is not empty.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
        let memory = Arc::new(Allocation(base, layout));
        let (region, ports) = Region::create(memory.clone(), geometry).unwrap();
        assert!(matches!(
            Region::create(memory, geometry),
            Err(GeometryError::InUse)
        ));
        TestPoolMemory {
            region: Box::leak(Box::new(region)),
            ports,
            size: layout.size(),
        }
    }

    /// Takes the port of the only front thread.
    fn port(&mut self) -> FrontPort {
        self.ports.pop().unwrap()
    }
}

fn frame(n: usize) -> RequestFrame {
    let mut b = FrameBuilder::new(Vec::new());
    b.var(Var::RequestUri, n.to_string().as_bytes());
    b.finish(Some(0), 0).unwrap()
}

fn child(region: &'static Region, index: u16) -> ChildPort {
    let id = ChildId {
        index,
        incarnation: 7,
    };
    PoolPort::new(region.clone()).prepare_row(id);
    ChildPort::enter(region, id)
}

#[test]
fn request_is_claimed_exactly_once() {
    let memory = TestPoolMemory::new(2, 8, 4);
    let region = memory.region;
    let (claimed, answered) = (Mutex::new(HashSet::new()), AtomicUsize::new(0));
    const EACH: usize = 2000;
    std::thread::scope(|s| {
        for index in 0..4 {
            let (claimed, answered) = (&claimed, &answered);
            let port = child(region, index);
            s.spawn(move || {
                while answered.load(Ordering::Relaxed) < 2 * EACH {
                    let Some(mut claim) = port.claim(u32::from(index)) else {
                        std::thread::yield_now();
                        continue;
                    };
                    let frame = claim.frame_bytes();
                    let text: Vec<u8> = frame[40..]
                        .iter()
                        .copied()
                        .take_while(|b| *b != 0)
                        .collect();
                    let n: usize = String::from_utf8(text).unwrap().parse().unwrap();
                    assert!(claimed.lock().unwrap().insert(n), "{n} ran twice");
                    let mut payload = Vec::new();
                    response::encode_head(&mut payload, 200, b"", std::iter::empty());
                    assert!(claim.begin_frame(kind::HEAD, payload.len() as u32));
                    assert_eq!(claim.write_payload(&payload), payload.len());
                    assert_eq!(claim.write_body(b"ok"), 2);
                    let _ = claim.done();
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for (front, port) in memory.ports.into_iter().enumerate() {
            s.spawn(move || {
                let mut free: Vec<u32> = (0..port.slots()).collect();
                let (mut sent, mut got) = (0, 0);
                while got < EACH {
                    while sent < EACH
                        && let Some(slot) = free.pop()
                    {
                        port.publish(slot, &frame(front * EACH + sent), true);
                        sent += 1;
                    }
                    port.take_notified(|slot| {
                        if !matches!(port.state(slot), SlotState::Done(_)) {
                            return;
                        }
                        let mut bytes = Vec::new();
                        let (n, _) = port.read_response(slot, &mut bytes, usize::MAX).unwrap();
                        assert_eq!(n, bytes.len());
                        let mut parser = ResponseParser::default();
                        let (_, used) = parser.parse(&bytes).unwrap().unwrap();
                        let (body, _) = parser.parse(&bytes[used..]).unwrap().unwrap();
                        assert_eq!(body, Frame::Body(b"ok"));
                        port.free(slot);
                        free.push(slot);
                        got += 1;
                    });
                    std::thread::yield_now();
                }
            });
        }
    });
    assert_eq!(claimed.lock().unwrap().len(), 2 * EACH);
}

/// Lets threads sleep on a word, as the kernel lets processes do (futex(2)).
#[derive(Default)]
struct Futexes(Mutex<()>, Condvar);

impl Futexes {
    fn wait(&self, word: &AtomicU32, seen: u32) {
        let mut lock = self.0.lock().unwrap();
        while word.load(Ordering::Relaxed) == seen {
            lock = self.1.wait(lock).unwrap();
        }
    }

    fn wake(&self, wake: FutexWake<'_>) {
        if wake.0.is_some() {
            drop(self.0.lock().unwrap());
            self.1.notify_all();
        }
    }

    /// Rings the bell of a front thread, if that is necessary.
    fn ring(&self, bell: &AtomicU32, rings: Bell) {
        if rings.0 {
            bell.fetch_add(1, Ordering::Relaxed);
            self.wake(FutexWake(Some(bell)));
        }
    }
}

/// Serves requests until it is retired. Responds with the body of the request, and sleeps whenever it cannot continue.
fn echo_bodies(port: &ChildPort, futexes: &Futexes, bell: &AtomicU32) {
    loop {
        if port.is_retiring() {
            return;
        }
        let mut claim = port.claim(0);
        if claim.is_none() {
            let (word, seen) = port.park();
            if !port.is_retiring() {
                claim = port.claim(0);
                if claim.is_none() {
                    futexes.wait(word, seen);
                }
            }
            port.unpark();
        }
        let Some(mut claim) = claim else { continue };
        let mut head = Vec::new();
        response::encode_head(&mut head, 200, b"", std::iter::empty());
        assert!(claim.begin_frame(kind::HEAD, head.len() as u32));
        assert_eq!(claim.write_payload(&head), head.len());
        let mut buffer = [0; 3000];
        loop {
            let (mut read, mut rings) = claim.read_body(&mut buffer);
            if read == BodyRead::Pending {
                let (word, seen) = claim.prepare_wait();
                (read, rings) = claim.read_body(&mut buffer);
                if read == BodyRead::Pending {
                    futexes.wait(word, seen);
                }
                claim.end_wait();
            }
            futexes.ring(bell, rings);
            let mut rest = match read {
                BodyRead::Bytes(n) => &buffer[..n],
                BodyRead::Pending => continue,
                BodyRead::End => break,
                BodyRead::CutOff => panic!("the body is complete"),
            };
            while !rest.is_empty() {
                let n = claim.write_body(rest);
                rest = &rest[n..];
                if n > 0 {
                    continue;
                }
                futexes.ring(bell, claim.publish());
                let (word, seen) = claim.prepare_wait();
                if !claim.has_room() {
                    futexes.wait(word, seen);
                }
                claim.end_wait();
            }
        }
        futexes.ring(bell, claim.done());
    }
}

/// Under Miri, which also lets threads read old values where the memory model permits it, this test finds orderings that
/// are too weak for processors such as ARM. `CONTRIBUTING.md` says how to run it there.
#[test]
fn sleeping_threads_miss_no_wake_up_and_no_byte() {
    const CHILDREN: u16 = 2;
    const REQUESTS: usize = if cfg!(miri) { 40 } else { 4000 };
    let mut memory = TestPoolMemory::new(1, 2, CHILDREN.into());
    let (region, front) = (memory.region, memory.port());
    let pool = PoolPort::new(region.clone());
    let (futexes, bell) = (Futexes::default(), AtomicU32::new(0));
    std::thread::scope(|threads| {
        for index in 0..CHILDREN {
            let (port, futexes, bell) = (child(region, index), &futexes, &bell);
            threads.spawn(move || echo_bodies(&port, futexes, bell));
        }
        for request in (0..REQUESTS).step_by(2) {
            // One of the bodies does not fit into the rings. Under Miri, that takes long.
            let body = |slot: u32| {
                let is_long = slot == 1 && (request == 0 || !cfg!(miri));
                let length = if is_long { RING_BYTES + 5000 } else { 10 };
                (0..length).map(move |at| (at / 7 + request) as u8 | 1)
            };
            let mut bodies = [0, 1].map(|slot| body(slot).collect::<Vec<u8>>());
            let mut received = [Vec::new(), Vec::new()];
            for slot in 0..2 {
                front.publish(slot, &frame(request), false);
                // One awake child is enough, because it looks for requests before it sleeps.
                futexes.wake(pool.choose_wake(0, 1));
            }
            let mut open = [true; 2];
            while open.contains(&true) {
                let seen = bell.load(Ordering::Relaxed);
                front.take_notified(|_| {});
                for slot in 0..2 {
                    let (body, at) = (&mut bodies[slot as usize], slot as usize);
                    if !body.is_empty() {
                        let (n, wake) = front.write_body(slot, body).unwrap();
                        body.drain(..n);
                        futexes.wake(wake);
                        if body.is_empty() {
                            futexes.wake(front.end_body(slot, true));
                        }
                    }
                    let done = matches!(front.state(slot), SlotState::Done(_));
                    let (_, wake) = front
                        .read_response(slot, &mut received[at], usize::MAX)
                        .unwrap();
                    futexes.wake(wake);
                    open[at] &= !done;
                }
                if open.contains(&true) {
                    if front.go_to_sleep() {
                        futexes.wait(&bell, seen);
                    }
                    front.woke_up();
                }
            }
            for slot in 0..2 {
                let mut echoed = Vec::new();
                let (mut parser, mut rest) =
                    (ResponseParser::default(), &received[slot as usize][..]);
                while let Some((frame, used)) = parser.parse(rest).unwrap() {
                    if let Frame::Body(bytes) = frame {
                        echoed.extend_from_slice(bytes);
                    }
                    rest = &rest[used..];
                }
                assert!(
                    echoed.into_iter().eq(body(slot)),
                    "request {request}, slot {slot}"
                );
                front.free(slot);
            }
        }
        for index in 0..CHILDREN {
            futexes.wake(pool.retire(index));
        }
    });
}

#[test]
fn response_longer_than_the_ring_streams_unchanged() {
    let mut memory = TestPoolMemory::new(1, 1, 1);
    let region = memory.region;
    let port = memory.port();
    port.publish(0, &frame(0), true);
    let body: Vec<u8> = (0..1_000_000u32).flat_map(|n| n.to_ne_bytes()).collect();
    let sent = body.clone();
    std::thread::scope(|s| {
        let ch = child(region, 0);
        s.spawn(move || {
            let mut claim = ch.claim(0).unwrap();
            let mut payload = Vec::new();
            response::encode_head(&mut payload, 200, b"", std::iter::empty());
            assert!(claim.begin_frame(kind::HEAD, payload.len() as u32));
            claim.write_payload(&payload);
            let mut rest = &sent[..];
            while !rest.is_empty() {
                let n = claim.write_body(&rest[..rest.len().min(7919)]);
                rest = &rest[n..];
                if n == 0 {
                    let _ = claim.publish();
                    std::thread::yield_now();
                }
            }
            let _ = claim.done();
        });
        let (mut parser, mut got, mut pending) =
            (ResponseParser::default(), Vec::new(), Vec::new());
        loop {
            let done = matches!(port.state(0), SlotState::Done(_));
            let (n, _) = port.read_response(0, &mut pending, 5000).unwrap();
            let mut at = 0;
            while let Some((frame, used)) = parser.parse(&pending[at..]).unwrap() {
                if let Frame::Body(b) = frame {
                    got.extend_from_slice(b);
                }
                at += used;
            }
            pending.drain(..at);
            if n == 0 && done {
                break;
            }
        }
        assert!(parser.at_frame_end() && got == body);
    });
}

#[test]
fn request_body_streams_and_its_end_is_seen() {
    let mut memory = TestPoolMemory::new(1, 1, 1);
    let region = memory.region;
    let port = memory.port();
    port.publish(0, &frame(0), false);
    let claim = child(region, 0).claim(0).unwrap();
    let mut buf = [0; 100_000];
    assert_eq!(claim.read_body(&mut buf).0, BodyRead::Pending);
    let long = vec![b'x'; RING_BYTES + 10];
    assert_eq!(port.write_body(0, &long).unwrap().0, RING_BYTES);
    assert_eq!(port.write_body(0, &long[RING_BYTES..]).unwrap().0, 0);
    let _ = port.take_notified(|_| {});
    assert_eq!(claim.read_body(&mut buf).0, BodyRead::Bytes(RING_BYTES));
    assert!(
        port.take_notified(|slot| assert_eq!(slot, 0)),
        "room was announced"
    );
    assert_eq!(port.write_body(0, &long[RING_BYTES..]).unwrap().0, 10);
    let _ = port.end_body(0, true);
    assert_eq!(claim.read_body(&mut buf).0, BodyRead::Bytes(10));
    assert_eq!(claim.read_body(&mut buf).0, BodyRead::End);
}

/// The front does this with a slot that it has not finished before it handles the others.
#[test]
fn slot_that_the_front_marks_itself_is_notified_once_and_keeps_the_front_awake() {
    let mut memory = TestPoolMemory::new(1, 70, 1);
    let port = memory.port();
    assert!(port.go_to_sleep());
    port.woke_up();
    port.notify_again(3);
    port.notify_again(69);
    assert!(!port.go_to_sleep(), "the front would not handle the slots");
    let mut notified = Vec::new();
    assert!(port.take_notified(|slot| notified.push(slot)));
    assert_eq!(notified, [3, 69]);
    assert!(!port.take_notified(|slot| panic!("slot {slot} is notified again")));
    assert!(port.go_to_sleep());
}

#[test]
fn slow_request_does_not_block_the_ring() {
    let mut memory = TestPoolMemory::new(1, 4, 2);
    let port = memory.port();
    let (slow, fast) = (child(memory.region, 0), child(memory.region, 1));
    port.publish(0, &frame(0), true);
    let _held = slow.claim(0).unwrap();
    for round in 0..10_000usize {
        let slot = 1 + (round % 3) as u32;
        port.publish(slot, &frame(round), true);
        let claim = fast.claim(0).expect("the fast child is never kept waiting");
        let _ = claim.done();
        port.free(slot);
    }
    assert!(!port.has_unclaimed());
}

#[test]
fn dead_childs_slots_are_found_and_a_cancelled_request_never_runs() {
    let mut memory = TestPoolMemory::new(1, 4, 2);
    let port = memory.port();
    let ch = child(memory.region, 1);
    port.publish(2, &frame(0), true);
    let _claim = ch.claim(0).unwrap();
    assert_eq!(port.state(2), SlotState::Claimed(ch.id()));
    port.publish(3, &frame(1), true);
    assert!(port.cancel(3));
    assert!(ch.claim(0).is_none());
    assert!(!port.cancel(2), "a claimed request cannot be taken back");
}

#[test]
fn cancelled_requests_slot_is_reused_at_the_end_of_the_queue() {
    let mut memory = TestPoolMemory::new(1, 4, 2);
    let port = memory.port();
    let ch = child(memory.region, 0);
    for slot in [2, 0, 1] {
        port.publish(slot, &frame(0), true);
    }
    assert!(port.cancel(0));
    port.free(0);
    port.publish(0, &frame(0), true);
    assert_eq!(port.unclaimed(), 4, "the cancelled one still stands there");
    for slot in [2, 1, 0] {
        let claim = ch.claim(0).unwrap();
        assert_eq!(port.state(slot), SlotState::Claimed(ch.id()));
        let _ = claim.done();
    }
    assert!(ch.claim(0).is_none());
}

#[test]
fn cancelled_requests_do_not_displace_a_waiting_one() {
    let mut memory = TestPoolMemory::new(1, 4, 2);
    let port = memory.port();
    let ch = child(memory.region, 0);
    port.publish(0, &frame(0), true);
    let mut cancelled = 0;
    while port.has_room() {
        port.publish(1, &frame(1), true);
        assert!(port.cancel(1));
        port.free(1);
        cancelled += 1;
    }
    assert_eq!(cancelled, 2047);
    let waited = ch.claim(0).unwrap();
    assert_eq!(port.state(0), SlotState::Claimed(ch.id()));
    assert!(port.has_room() && !port.has_unclaimed());
    let _ = waited.done();
}

#[test]
fn sleeping_child_is_woken_unless_enough_others_are_awake() {
    let memory = TestPoolMemory::new(1, 4, 3);
    let pool = PoolPort::new(memory.region.clone());
    let (a, b, c) = (
        child(memory.region, 0),
        child(memory.region, 1),
        child(memory.region, 2),
    );
    assert!(pool.choose_wake(1_000_000, 2).0.is_none(), "nobody sleeps");
    let (word, seen) = c.park();
    assert!(pool.choose_wake(1_000_000, 2).0.is_none(), "two are awake");
    a.begin_job(1_000_000);
    b.begin_job(1_000_000);
    assert!(pool.choose_wake(1_000_000 + 50_000, 2).0.is_none());
    let woken = pool
        .choose_wake(1_000_000 + 150_000, 2)
        .0
        .expect("both are stuck");
    assert!(std::ptr::eq(woken, word));
    assert_ne!(
        word.load(Ordering::SeqCst),
        seen,
        "a wait on the old value returns at once"
    );
    assert!(
        pool.choose_wake(2_000_000, 2).0.is_none(),
        "nobody sleeps any more"
    );
}

#[test]
fn bell_is_rung_once_and_only_for_a_sleeping_front() {
    let mut memory = TestPoolMemory::new(1, 4, 1);
    let port = memory.port();
    let ch = child(memory.region, 0);
    port.publish(0, &frame(0), true);
    let mut claim = ch.claim(0).unwrap();
    assert_eq!(claim.publish(), Bell(false));
    assert!(!port.go_to_sleep(), "something already happened");
    port.take_notified(|_| {});
    assert!(port.go_to_sleep());
    assert_eq!(claim.publish(), Bell(true));
    assert_eq!(claim.done(), Bell(false), "already rung");
}

#[test]
fn invalid_positions_from_a_child_are_an_error() {
    let mut memory = TestPoolMemory::new(1, 1, 1);
    let port = memory.port();
    port.publish(0, &frame(0), true);
    let claim = child(memory.region, 0).claim(0).unwrap();
    memory
        .region
        .slot(0, 0)
        .resp_w
        .0
        .store(u64::MAX, Ordering::SeqCst);
    assert!(port.read_response(0, &mut Vec::new(), 10).is_err());
    let _ = claim;
}

/// Returns how often `text` occurs in the memory of a pool.
fn count_occurrences(memory: &TestPoolMemory, text: &[u8]) -> usize {
    // SAFETY: the allocation's own length; no thread writes meanwhile.
    let bytes = unsafe {
        let start = std::ptr::from_ref(memory.region.header()).cast::<u8>();
        std::slice::from_raw_parts(start, memory.size)
    };
    bytes.windows(text.len()).filter(|w| *w == text).count()
}

#[test]
fn freed_slot_contains_nothing_of_its_request() {
    const SECRET: &[u8] = b"Bearer 8f3a-secret";
    let mut memory = TestPoolMemory::new(1, 2, 1);
    let port = memory.port();
    let its_child = child(memory.region, 0);
    let request = || {
        let mut b = FrameBuilder::new(Vec::new());
        b.var(Var::RequestUri, SECRET);
        b.finish(Some(0), 0).unwrap()
    };
    let fill = |slot| {
        port.publish(slot, &request(), false);
        let _ = port.write_body(slot, SECRET).unwrap();
    };
    // The slot is wiped after its response is complete.
    fill(0);
    let mut claim = its_child.claim(0).unwrap();
    // The script writes more than the ring holds, so every byte of the ring is filled.
    for _ in 0..RING_BYTES / 1024 + 3 {
        claim.write_body(&SECRET.repeat(50));
        let _ = claim.publish();
        let _ = port.read_response(0, &mut Vec::new(), usize::MAX).unwrap();
    }
    let _ = claim.done();
    assert!(count_occurrences(&memory, SECRET) > 100);
    port.free(0);
    assert_eq!(count_occurrences(&memory, SECRET), 0, "answered");
    // The slot is wiped after its request was cancelled before a child claimed it.
    fill(1);
    assert!(port.cancel(1));
    port.free(1);
    assert_eq!(count_occurrences(&memory, SECRET), 0, "taken back");
    // The slot is wiped after its child died with bytes that it had not published.
    fill(0);
    let mut claim = its_child.claim(0).unwrap();
    claim.write_body(SECRET);
    assert_eq!(count_occurrences(&memory, SECRET), 3);
    port.free(0);
    assert_eq!(count_occurrences(&memory, SECRET), 0, "died");
}

#[test]
fn wipe_with_invalid_positions_stays_within_the_slot() {
    let mut memory = TestPoolMemory::new(1, 2, 1);
    let port = memory.port();
    port.publish(1, &frame(77), true);
    port.publish(0, &frame(1), true);
    let head = memory.region.slot(0, 0);
    head.frame_len.store(u32::MAX, Ordering::SeqCst);
    head.body_w.0.store(u64::MAX, Ordering::SeqCst);
    head.resp_w.0.store(u64::MAX, Ordering::SeqCst);
    port.free(0);
    assert_eq!(count_occurrences(&memory, b"77\0"), 1, "the other slot's");
}

#[test]
fn removing_a_row_that_does_not_exist_does_nothing() {
    let memory = TestPoolMemory::new(1, 1, 1);
    PoolPort::new(memory.region.clone()).remove_child(u16::MAX);
}
