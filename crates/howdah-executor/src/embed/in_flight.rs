//! One request on its way through a pool: the front's private record of it, and the conversion of the child's bytes
//! into events. It changes no queue and starts no process.
//!
//! An [`InFlight`] is shared by the run that the server polls, the lane that contains it and, when a child dies, the
//! supervisor. It outlives the run: while a child holds its slot, the slot stays accounted for.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use bytes::Bytes;
use howdah_proto::level::Level;
use howdah_proto::request::RequestFrame;
use howdah_proto::response::{Frame, Parser, ResponseError};
use howdah_proto::shm::{ChildId, FrontPort, SlotState};

use super::bailouts::Bailouts;
use super::leavers::Abandoned;
use crate::common::sys;
use crate::{EffectSink, Event, ExecError, Held};

/// The position of a request on its way through the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// In the lane's private queue, without a slot.
    Waiting,
    /// In this slot: published, or claimed by a child.
    Slot(u32),
    /// No longer in the pool: it has a response, was cancelled, or its child has died.
    Left,
}

/// One request in the front's memory; see the module's documentation.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// The number of the request in the logs.
    pub id: u64,
    /// The request frame that the child gets.
    pub frame: RequestFrame,
    /// When the run was started, CLOCK_MONOTONIC nanoseconds.
    pub started_ns: u64,
    /// Whether there is no body, or none that must still be fed.
    pub body_complete: bool,
    /// The address of the client that waits for the response.
    pub client: Option<IpAddr>,
    state: Mutex<RequestState>,
}

/// The changing part of a request.
#[derive(Debug)]
pub(crate) struct RequestState {
    pub place: Position,
    /// Whether a run still waits for the response.
    pub wanted: bool,
    /// Set when the client has left while a child had the request; [`Leavers`](super::leavers::Leavers) counts it.
    pub abandoned: Option<Abandoned>,
    /// Woken when there is an event to poll for.
    pub waker: Option<Waker>,
    /// The child that runs the request; `None` until the front knows it.
    pub child: Option<ChildId>,
    /// When the front first knew that a child had the request.
    pub claimed_ns: Option<u64>,
    /// Whether the supervisor has already asked for this child's stack.
    pub traced: bool,
    /// The failure that ends the request. It is returned once the bytes already read are used up.
    pub verdict: Option<ExecError>,
    /// Whether the response is complete: `Finish` was read, or the child has finished.
    pub ended: bool,
    /// Whether bytes were read since the last flush event, and the child was not merely out of room.
    flush_due: bool,
    /// Whether the child has sent bytes that are not a response.
    unreadable: bool,
    /// Receives the side effects of the run.
    effects: Option<Arc<dyn EffectSink>>,
    /// Where a bailout of PHP is counted, and for which client.
    bailouts: Option<(Arc<Bailouts>, IpAddr)>,
    /// Dropped when the request leaves the pool.
    pub held: Option<Held>,
    parser: Parser,
    /// Bytes that were copied out of the slot. `at` is how far they have been parsed.
    input: Bytes,
    at: usize,
}

/// How far [`RequestState::discard`] has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discarded {
    /// The child has finished and all of its bytes have been read.
    All,
    /// All present bytes have been read; the child may send more.
    SoFar,
    /// The call has read its maximum; more bytes may be present.
    Some,
}

/// What the caller of [`RequestState::advance`] has to do.
pub(crate) enum Step {
    /// Pass this event to the server.
    Event(Event),
    /// Write this message to the error log.
    Log(Level, Bytes),
    /// Nothing, until the child sends more.
    Pending,
    /// The request has failed.
    Failed(ExecError),
}

impl InFlight {
    pub fn new(
        id: u64,
        frame: RequestFrame,
        started_ns: u64,
        body_complete: bool,
        client: Option<IpAddr>,
        effects: Option<Arc<dyn EffectSink>>,
        held: Option<Held>,
    ) -> InFlight {
        InFlight {
            id,
            frame,
            started_ns,
            body_complete,
            client,
            state: Mutex::new(RequestState {
                place: Position::Waiting,
                wanted: true,
                abandoned: None,
                waker: None,
                child: None,
                claimed_ns: None,
                traced: false,
                verdict: None,
                ended: false,
                flush_due: false,
                unreadable: false,
                effects,
                bailouts: None,
                held,
                parser: Parser::default(),
                input: Bytes::new(),
                at: 0,
            }),
        }
    }

    /// Makes a bailout of PHP count for the request's client.
    pub fn with_bailouts(mut self, bailouts: &Arc<Bailouts>) -> InFlight {
        let state = self.state.get_mut().unwrap_or_else(|e| e.into_inner());
        state.bailouts = self.client.map(|client| (bailouts.clone(), client));
        self
    }

    /// Locks the changing part of the request. If a thread panicked while it held the lock, the state is consistent
    /// enough to continue.
    pub fn lock(&self) -> MutexGuard<'_, RequestState> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl RequestState {
    /// Records that this child runs the request, and when the front first knew it.
    pub fn claimed_by(&mut self, child: ChildId, now_ns: impl FnOnce() -> u64) {
        if self.child != Some(child) {
            self.child = Some(child);
            self.claimed_ns = Some(now_ns());
        }
    }

    /// Copies the bytes that the child has published out of the slot. Returns their number.
    pub fn read_slot(&mut self, port: &FrontPort, slot: u32) -> Result<usize, ExecError> {
        let mut bytes = self.input[self.at..].to_vec();
        let (n, wake) = port
            .read_response(slot, &mut bytes, usize::MAX)
            .map_err(|_| ExecError::ResponseCorrupt)?;
        sys::wake(wake);
        if n > 0 {
            self.input = Bytes::from(bytes);
            self.at = 0;
            // A full ring means that the child was out of room, not that the script flushed.
            self.flush_due = n < howdah_proto::shm::RING;
        }
        Ok(n)
    }

    /// Parses the next frame of the bytes already read. Returns `Ok(None)` if there is no complete one.
    fn parse(&mut self) -> Result<Option<Step>, ExecError> {
        loop {
            let rest = &self.input[self.at..];
            if rest.is_empty() {
                return Ok(None);
            }
            let parsed = self
                .parser
                .parse(rest)
                .map_err(ExecError::ResponseInvalid)?;
            let Some((frame, used)) = parsed else {
                return Ok(None);
            };
            let end = self.at + used;
            let step = match frame {
                Frame::Head(head) => Some(Step::Event(Event::Head(head))),
                Frame::Informational(head) => Some(Step::Event(Event::Informational(head))),
                Frame::Body([]) => None,
                Frame::Body(b) => {
                    let body = self.input.slice(end - b.len()..end);
                    Some(Step::Event(Event::Body(body)))
                }
                Frame::Log(level, text) => {
                    Some(Step::Log(level, self.input.slice(end - text.len()..end)))
                }
                Frame::Finish => {
                    self.ended = true;
                    Some(Step::Event(Event::End))
                }
                Frame::Effect(name, value) => {
                    if let Some(effects) = &self.effects {
                        effects.effect(name, value);
                    }
                    Some(Step::Event(Event::Effect))
                }
                Frame::BailedOut => {
                    if let Some((bailouts, client)) = &self.bailouts {
                        bailouts.count(*client, sys::now_ns());
                    }
                    None
                }
            };
            self.at = end;
            if let Some(step) = step {
                return Ok(Some(step));
            }
        }
    }

    /// Continues as far as possible without waiting. The caller acts on the step. If `give_back` is set, the slot was
    /// found done and has been read to its end, and the caller must release it ([`RequestState::place`] stays
    /// [`Position::Slot`]).
    pub fn advance(
        &mut self,
        port: &FrontPort,
        give_back: &mut bool,
        claimed_ns: impl Fn(u32) -> u64,
    ) -> Step {
        loop {
            match self.parse() {
                Ok(Some(step)) => return step,
                Ok(None) => {}
                Err(error) => return Step::Failed(error),
            }
            let slot = match self.place {
                Position::Slot(slot) if !*give_back => slot,
                Position::Waiting => {
                    return match self.verdict.take() {
                        Some(error) => Step::Failed(error),
                        None => Step::Pending,
                    };
                }
                _ => return self.conclude(),
            };
            if let Some(error) = self.verdict.take() {
                return Step::Failed(error);
            }
            // The state is loaded first, so bytes that were published before `Done` are never missed.
            let state = port.state(slot);
            match self.read_slot(port, slot) {
                Ok(0) => {}
                Ok(_) => {
                    if let SlotState::Claimed(child) | SlotState::Done(child) = state {
                        self.claimed_by(child, || claimed_ns(slot));
                    }
                    if matches!(state, SlotState::Done(_)) {
                        *give_back = true;
                    }
                    continue;
                }
                Err(error) => return Step::Failed(error),
            }
            match state {
                SlotState::Done(child) => {
                    self.claimed_by(child, || claimed_ns(slot));
                    *give_back = true;
                }
                SlotState::Claimed(child) => {
                    self.claimed_by(child, || claimed_ns(slot));
                    if std::mem::take(&mut self.flush_due) && !self.ended {
                        return Step::Event(Event::Flush);
                    }
                    return Step::Pending;
                }
                SlotState::Ready => return Step::Pending,
                SlotState::Free | SlotState::Corrupt => {
                    return Step::Failed(ExecError::ResponseCorrupt);
                }
            }
        }
    }

    /// Reads the remaining bytes of a child whose client has left, so the child never waits for room, and passes on
    /// only log messages. It reads at most a few rings per call, because a child that writes as fast as it is read must
    /// not occupy the thread.
    pub fn discard(
        &mut self,
        port: &FrontPort,
        slot: u32,
        log: impl Fn(Level, &[u8]),
    ) -> Discarded {
        for _ in 0..4 {
            // The state is loaded first, so bytes that were published before `Done` are never missed.
            let done = matches!(port.state(slot), SlotState::Done(_));
            if self.unreadable {
                self.input = Bytes::new();
                self.at = 0;
            }
            let n = self.read_slot(port, slot).unwrap_or(0);
            self.read_rest(&log);
            match (n, done) {
                (_, true) => return Discarded::All,
                (0, false) => return Discarded::SoFar,
                _ => {}
            }
        }
        Discarded::Some
    }

    /// Reads the rest of the bytes that have arrived. Effects and log messages after the end of the response may have
    /// arrived together with it.
    pub fn read_rest(&mut self, log: impl Fn(Level, &[u8])) {
        while !self.unreadable {
            match self.parse() {
                Ok(Some(Step::Log(level, text))) => log(level, &text),
                Ok(Some(_)) => {}
                Ok(None) => break,
                // The bytes cannot be parsed. From here on they are discarded unread.
                Err(_) => self.unreadable = true,
            }
        }
    }

    /// Decides how the response ends, by what was read, when the child writes no more.
    fn conclude(&mut self) -> Step {
        if self.ended {
            return Step::Pending;
        }
        if let Some(error) = self.verdict.take() {
            return Step::Failed(error);
        }
        if !self.parser.saw_head() {
            return Step::Failed(ExecError::ResponseMissing);
        }
        if !self.parser.at_frame_end() || self.at < self.input.len() {
            return Step::Failed(ExecError::ResponseInvalid(ResponseError::Malformed));
        }
        self.ended = true;
        Step::Event(Event::End)
    }
}
