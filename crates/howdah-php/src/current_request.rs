//! The request being run, as the shim's callbacks see it: the source of the request body and the destination of the
//! response, with the waits that both need. This module contains no PHP and no HTTP.
//!
//! A wait is a futex wait on the word that [`RequestClaim::prepare_wait`] returns. The front wakes it after it has read
//! or written something, or has abandoned the request. Nothing spins.

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};

use howdah_proto::effect;
use howdah_proto::response::kind::{BAILED_OUT, EFFECT};
use howdah_proto::shm::{Bell, BodyRead, RequestClaim};

use crate::sys;

/// A claimed request while its script runs.
pub struct ClaimedRequest {
    claim: RequestClaim,
    /// The client is gone, so nothing more is written.
    client_gone: bool,
}

struct CurrentRequest {
    request: Option<ClaimedRequest>,
    bells: Vec<OwnedFd>,
    /// The descriptor to which effects are written on a command line.
    effects_socket: Option<OwnedFd>,
}

thread_local! {
    /// The one request of this process. A child has one thread.
    static CURRENT: RefCell<CurrentRequest> = const {
        RefCell::new(CurrentRequest { request: None, bells: Vec::new(), effects_socket: None })
    };
}

/// Sets the bells (eventfds), indexed by front thread. The supervisor's bell is the last one.
pub fn set_bells(bells: Vec<OwnedFd>) {
    CURRENT.with_borrow_mut(|e| e.bells = bells);
}

/// Sends effects to this socket, one message for each ([`effect::MAX_MESSAGE_BYTES`]), because there is no front.
pub fn report_effects_to(fd: OwnedFd) {
    CURRENT.with_borrow_mut(|e| e.effects_socket = Some(fd));
}

/// Makes `claim` the request being run.
pub fn begin(claim: RequestClaim) {
    CURRENT.with_borrow_mut(|e| {
        e.request = Some(ClaimedRequest {
            claim,
            client_gone: false,
        });
    });
}

fn with_request<T>(without: T, f: impl FnOnce(&mut ClaimedRequest, &[OwnedFd]) -> T) -> T {
    CURRENT.with_borrow_mut(|e| match &mut e.request {
        Some(job) => f(job, &e.bells),
        None => without,
    })
}

/// Appends body bytes to the response. Returns `false` when the client is gone.
pub fn write_body(bytes: &[u8]) -> bool {
    with_request(false, |job, bells| {
        !job.is_client_gone()
            && job.write_all(
                bytes,
                bells,
                |job, rest| job.claim.write_body(rest),
                ClaimedRequest::make_room,
            )
    })
}

/// Appends a frame of another kind. Returns `false` when the client is gone.
pub fn write_frame(kind: u32, payload: &[u8]) -> bool {
    if kind == EFFECT
        && let Some(reported) = CURRENT.with_borrow(|e| {
            let effects = e.effects_socket.as_ref()?;
            Some(report_effect(effects, payload))
        })
    {
        return reported;
    }
    with_request(false, |job, bells| {
        // The front needs these frames even if the client has disconnected, and it keeps reading until the run ends.
        let is_report = matches!(kind, EFFECT | BAILED_OUT);
        let make_room = if is_report {
            ClaimedRequest::wait_for_room
        } else {
            ClaimedRequest::make_room
        };
        while !job.claim.begin_frame(kind, payload.len() as u32) {
            if !make_room(job, bells) {
                return false;
            }
        }
        if !is_report && job.is_client_gone() {
            return false;
        }
        job.write_all(
            payload,
            bells,
            |job, rest| job.claim.write_payload(rest),
            make_room,
        )
    })
}

/// Reports an effect as one message; a process that the script forked does so too. An effect that is too long or cannot
/// be written is reported as a write to any table. Returns `false` when no process reads the reports.
fn report_effect(effects: &OwnedFd, payload: &[u8]) -> bool {
    let reported =
        payload.len() <= effect::MAX_MESSAGE_BYTES && sys::write_packet(effects.as_fd(), payload);
    let any = [&(effect::WRITE.len() as u32).to_ne_bytes(), effect::WRITE].concat();
    reported || sys::write_packet(effects.as_fd(), &any)
}

/// Makes what was written visible to the front when it next checks, without waking it.
pub fn make_visible() {
    with_request((), |job, _| job.claim.make_visible());
}

/// Publishes what was written and wakes the front. Returns `false` when the client is gone.
pub fn publish() -> bool {
    with_request(false, |job, bells| {
        let bell = job.claim.publish();
        job.ring(bell, bells);
        !job.is_client_gone()
    })
}

/// Fills `out`, waiting for the client's bytes. Returns less than `out.len()` only at the end of the body, or when the
/// front is gone. A client that has disconnected is no end: the front provides the rest of a body that has arrived, and
/// otherwise says that the body is cut off.
pub fn read_body(out: &mut [u8]) -> usize {
    with_request(0, |job, bells| {
        let mut got = 0;
        let mut front_gone = false;
        while got < out.len() {
            let (mut read, mut bell) = job.claim.read_body(&mut out[got..]);
            if read == BodyRead::Pending {
                let (word, seen) = job.claim.prepare_wait();
                (read, bell) = job.claim.read_body(&mut out[got..]);
                if read == BodyRead::Pending {
                    front_gone = !sys::sleep_in_request(word, seen);
                }
                job.claim.end_wait();
            }
            job.ring(bell, bells);
            match read {
                BodyRead::Bytes(n) => got += n,
                BodyRead::Pending if !front_gone => {}
                BodyRead::Pending | BodyRead::End | BodyRead::CutOff => break,
            }
        }
        job.client_gone |= front_gone;
        got
    })
}

/// Hands the request back to the front.
pub fn release() {
    CURRENT.with_borrow_mut(|e| {
        if let Some(job) = e.request.take() {
            let front = job.claim.front() as usize;
            let bell = job.claim.done();
            ring(bell, front, &e.bells);
        }
    });
}

/// Wakes the pool's supervisor, whose bell follows those of the `fronts` front threads.
pub fn ring_supervisor(fronts: u32) {
    CURRENT.with_borrow(|e| ring(Bell(true), fronts as usize, &e.bells));
}

fn ring(bell: Bell, front: usize, bells: &[OwnedFd]) {
    if bell.0
        && let Some(fd) = bells.get(front)
    {
        sys::ring_bell(fd.as_fd());
    }
}

impl ClaimedRequest {
    fn ring(&self, bell: Bell, bells: &[OwnedFd]) {
        ring(bell, self.claim.front() as usize, bells);
    }

    fn is_client_gone(&mut self) -> bool {
        self.client_gone = self.client_gone || self.claim.aborted();
        self.client_gone
    }

    /// Writes all of `rest`. Calls `make_room` when there is no room, and returns `false` if that fails.
    fn write_all(
        &mut self,
        mut rest: &[u8],
        bells: &[OwnedFd],
        write: impl Fn(&mut ClaimedRequest, &[u8]) -> usize,
        make_room: impl Fn(&mut ClaimedRequest, &[OwnedFd]) -> bool,
    ) -> bool {
        while !rest.is_empty() {
            match write(self, rest) {
                0 if make_room(self, bells) => {}
                0 => return false,
                n => rest = &rest[n..],
            }
        }
        true
    }

    /// Like [`ClaimedRequest::make_room`], but waits whether or not the client is gone. Returns `false` when the front
    /// is gone.
    fn wait_for_room(&mut self, bells: &[OwnedFd]) -> bool {
        let bell = self.claim.publish();
        self.ring(bell, bells);
        loop {
            let (word, seen) = self.claim.prepare_wait();
            let ready = self.claim.has_room();
            let alive = ready || sys::sleep_in_request(word, seen);
            self.claim.end_wait();
            if ready || !alive {
                self.client_gone |= !alive;
                return ready;
            }
        }
    }

    /// Publishes what was written and waits until the front has read some of it. Returns `false` when the client is
    /// gone.
    fn make_room(&mut self, bells: &[OwnedFd]) -> bool {
        let bell = self.claim.publish();
        self.ring(bell, bells);
        while !self.is_client_gone() {
            let (word, seen) = self.claim.prepare_wait();
            let ready = self.claim.has_room() || self.claim.aborted();
            if !ready {
                self.client_gone = !sys::sleep_in_request(word, seen);
            }
            self.claim.end_wait();
            if ready {
                return !self.is_client_gone();
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use howdah_os::mapping::PoolMemory;
    use howdah_proto::request::FrameBuilder;
    use howdah_proto::shm::{
        ChildId, ChildPort, Geometry, PoolPort, RING_BYTES, Region, SlotState,
    };
    use howdah_proto::variables::Var;
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn report_longer_than_the_ring_reaches_the_front_although_the_client_is_gone() {
        let geometry = Geometry {
            fronts: 1,
            slots: 1,
            children: 1,
            shared_cache: 0,
        };
        let file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(geometry.region_len() as u64).unwrap();
        let memory = Arc::new(PoolMemory::map(&file).unwrap());
        let (region, mut ports) = Region::create(memory, geometry).unwrap();
        let region: &'static Region = Box::leak(Box::new(region));
        let front = ports.pop().unwrap();
        let me = ChildId {
            index: 0,
            incarnation: 1,
        };
        PoolPort::new(region.clone()).prepare_row(me);
        let mut frame = FrameBuilder::new(Vec::new());
        frame.var(Var::RequestUri, b"/");
        front.publish(0, &frame.finish(Some(0), 0).unwrap(), true);
        let _ = front.abort(0);
        let report: Vec<u8> = (0..2 * RING_BYTES).map(|n| (n % 251) as u8).collect();
        let child = std::thread::spawn({
            let report = report.clone();
            move || {
                begin(ChildPort::enter(region, me).claim(0).unwrap());
                let written = (write_frame(EFFECT, &report), write_body(b"page"));
                release();
                written
            }
        });
        let mut received = Vec::new();
        loop {
            // The state is loaded first, so no bytes are published between the last read and the end.
            let done = matches!(front.state(0), SlotState::Done(_));
            let (n, wake) = front.read_response(0, &mut received, usize::MAX).unwrap();
            if let Some(word) = wake.0 {
                sys::futex_wake(word);
            }
            if n == 0 && done {
                break;
            }
            std::thread::yield_now();
        }
        assert_eq!(child.join().unwrap(), (true, false), "only the report");
        let (head, payload) = received.split_at(8);
        let length = (report.len() as u32).to_ne_bytes();
        assert_eq!(head, [EFFECT.to_ne_bytes(), length].concat());
        assert!(payload == report);
    }
}
