//! The request being run, as the shim's callbacks see it: the source of the request body and the destination of the
//! response, with the waits that both need. This module contains no PHP and no HTTP.
//!
//! A wait is a futex wait on the word that [`Claim::prepare_wait`] returns. The front wakes it after it has read or
//! written something, or has abandoned the request. Nothing spins.

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};

use howdah_proto::effect;
use howdah_proto::response::kind::{BAILED_OUT, EFFECT};
use howdah_proto::shm::{Bell, BodyRead, Claim};

use crate::sys;

/// A claimed request while its script runs.
pub struct Job {
    claim: Claim,
    /// The client is gone, so nothing more is written.
    gone: bool,
}

struct CurrentRequest {
    job: Option<Job>,
    bells: Vec<OwnedFd>,
    /// The descriptor to which effects are written on a command line.
    effects: Option<OwnedFd>,
}

thread_local! {
    /// The one request of this process. A child has one thread.
    static CURRENT: RefCell<CurrentRequest> = const {
        RefCell::new(CurrentRequest { job: None, bells: Vec::new(), effects: None })
    };
}

/// Sets the bells (eventfds), indexed by front thread. The supervisor's bell is the last one.
pub fn set_bells(bells: Vec<OwnedFd>) {
    CURRENT.with_borrow_mut(|e| e.bells = bells);
}

/// Sends effects to this socket, one message for each ([`effect::MAX_MESSAGE`]), because there is no front.
pub fn report_effects_to(fd: OwnedFd) {
    CURRENT.with_borrow_mut(|e| e.effects = Some(fd));
}

/// Makes `claim` the request being run.
pub fn begin(claim: Claim) {
    CURRENT.with_borrow_mut(|e| {
        e.job = Some(Job { claim, gone: false });
    });
}

fn with_job<T>(without: T, f: impl FnOnce(&mut Job, &[OwnedFd]) -> T) -> T {
    CURRENT.with_borrow_mut(|e| match &mut e.job {
        Some(job) => f(job, &e.bells),
        None => without,
    })
}

/// Appends body bytes to the response. Returns `false` when the client is gone.
pub fn write_body(bytes: &[u8]) -> bool {
    with_job(false, |job, bells| {
        job.write_all(bytes, bells, |job, rest| job.claim.body(rest))
    })
}

/// Appends a frame of another kind. Returns `false` when the client is gone.
pub fn write_frame(kind: u32, payload: &[u8]) -> bool {
    if kind == EFFECT
        && let Some(reported) = CURRENT.with_borrow(|e| {
            let effects = e.effects.as_ref()?;
            Some(report_effect(effects, payload))
        })
    {
        return reported;
    }
    with_job(false, |job, bells| {
        if matches!(kind, EFFECT | BAILED_OUT) {
            return job.report(kind, payload, bells);
        }
        while !job.claim.begin(kind, payload.len() as u32) {
            if !job.make_room(bells) {
                return false;
            }
        }
        job.write_all(payload, bells, |job, rest| job.claim.payload(rest))
    })
}

/// Reports an effect as one message; a process that the script forked does so too. An effect that is too long or cannot
/// be written is reported as a write to any table. Returns `false` when no process reads the reports.
fn report_effect(effects: &OwnedFd, payload: &[u8]) -> bool {
    let reported = payload.len() <= effect::MAX_MESSAGE && sys::write(effects.as_fd(), payload);
    let any = [&(effect::WRITE.len() as u32).to_ne_bytes(), effect::WRITE].concat();
    reported || sys::write(effects.as_fd(), &any)
}

/// Makes what was written visible to the front when it next checks, without waking it.
pub fn show() {
    with_job((), |job, _| job.claim.show());
}

/// Publishes what was written and wakes the front. Returns `false` when the client is gone.
pub fn publish() -> bool {
    with_job(false, |job, bells| {
        let bell = job.claim.publish();
        job.ring(bell, bells);
        !job.is_gone()
    })
}

/// Fills `out`, waiting for the client's bytes. Returns less than `out.len()` only at the end of the body or when the
/// client is gone.
pub fn read_body(out: &mut [u8]) -> usize {
    with_job(0, |job, bells| {
        let mut got = 0;
        while got < out.len() {
            let (mut read, mut bell) = job.claim.read_body(&mut out[got..]);
            if read == BodyRead::Pending {
                let (word, seen) = job.claim.prepare_wait();
                (read, bell) = job.claim.read_body(&mut out[got..]);
                if read == BodyRead::Pending && !job.is_gone() {
                    job.gone = !sys::sleep_in_request(word, seen);
                }
                job.claim.end_wait();
            }
            job.ring(bell, bells);
            match read {
                BodyRead::Bytes(n) => got += n,
                BodyRead::Pending if !job.is_gone() => {}
                BodyRead::Pending | BodyRead::End | BodyRead::CutOff => break,
            }
        }
        got
    })
}

/// Hands the request back to the front.
pub fn done() {
    CURRENT.with_borrow_mut(|e| {
        if let Some(job) = e.job.take() {
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
        sys::ring(fd.as_fd());
    }
}

impl Job {
    fn ring(&self, bell: Bell, bells: &[OwnedFd]) {
        ring(bell, self.claim.front() as usize, bells);
    }

    fn is_gone(&mut self) -> bool {
        self.gone = self.gone || self.claim.aborted();
        self.gone
    }

    fn write_all(
        &mut self,
        mut rest: &[u8],
        bells: &[OwnedFd],
        write: impl Fn(&mut Job, &[u8]) -> usize,
    ) -> bool {
        if self.is_gone() {
            return false;
        }
        while !rest.is_empty() {
            match write(self, rest) {
                0 if self.make_room(bells) => {}
                0 => return false,
                n => rest = &rest[n..],
            }
        }
        true
    }

    /// Writes a frame that the front needs even if the client has disconnected, since the front keeps reading until the
    /// run ends. Returns `false` when the front is gone.
    fn report(&mut self, kind: u32, payload: &[u8], bells: &[OwnedFd]) -> bool {
        while !self.claim.begin(kind, payload.len() as u32) {
            if !self.wait_for_room(bells) {
                return false;
            }
        }
        let mut rest = payload;
        while !rest.is_empty() {
            match self.claim.payload(rest) {
                0 if self.wait_for_room(bells) => {}
                0 => return false,
                n => rest = &rest[n..],
            }
        }
        true
    }

    /// Like [`Job::make_room`], but waits whether or not the client is gone.
    fn wait_for_room(&mut self, bells: &[OwnedFd]) -> bool {
        let bell = self.claim.publish();
        self.ring(bell, bells);
        loop {
            let (word, seen) = self.claim.prepare_wait();
            let ready = self.claim.has_room();
            let alive = ready || sys::sleep_in_request(word, seen);
            self.claim.end_wait();
            if ready || !alive {
                self.gone |= !alive;
                return ready;
            }
        }
    }

    /// Publishes what was written and waits until the front has read some of it. Returns `false` when the client is
    /// gone.
    fn make_room(&mut self, bells: &[OwnedFd]) -> bool {
        let bell = self.claim.publish();
        self.ring(bell, bells);
        while !self.is_gone() {
            let (word, seen) = self.claim.prepare_wait();
            let ready = self.claim.has_room() || self.claim.aborted();
            if !ready {
                self.gone = !sys::sleep_in_request(word, seen);
            }
            self.claim.end_wait();
            if ready {
                return !self.is_gone();
            }
        }
        false
    }
}
