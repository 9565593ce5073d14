//! One request on its way through a pool: the front's private record of it, and how the bytes that
//! a child sent become events. Touches no queue and starts no process.
//!
//! An [`InFlight`] is shared by the run the server polls, the lane that holds it and, when a
//! child dies, the supervisor. It outlives the run: while a child holds its slot, the slot stays
//! accounted for.

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

/// Where a request is on its way through the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// In the lane's private queue: no slot yet.
    Waiting,
    /// In this slot: published, or claimed by a child.
    Slot(u32),
    /// Nowhere any more: answered, taken back, or its child is dead.
    Left,
}

/// One request, as the front remembers it; see the module's documentation.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// Number of the request in the logs.
    pub id: u64,
    /// The request frame the child gets.
    pub frame: RequestFrame,
    /// When the run was started, CLOCK_MONOTONIC nanoseconds.
    pub started_ns: u64,
    /// There is no body, or none that is still to be fed.
    pub body_complete: bool,
    /// The address of the client that waits for it.
    pub client: Option<IpAddr>,
    state: Mutex<RequestState>,
}

/// The changing part of a request.
#[derive(Debug)]
pub(crate) struct RequestState {
    pub place: Position,
    /// Whether a run still wants the answer.
    pub wanted: bool,
    /// Its client has left while a child had it: known to [`Leavers`](super::leavers::Leavers).
    pub abandoned: Option<Abandoned>,
    /// Woken when there is something to poll for.
    pub waker: Option<Waker>,
    /// The child that runs it; `None` until the front knows.
    pub child: Option<ChildId>,
    /// When the front first knew that a child had it.
    pub claimed_ns: Option<u64>,
    /// The supervisor has asked for this child's stack already.
    pub traced: bool,
    /// The failure it ends with; given out once the bytes already read are used up.
    pub verdict: Option<ExecError>,
    /// The response is complete: `Finish` was seen, or the child has finished.
    pub ended: bool,
    /// Something was read since the last flush event, and the child was not merely out of room.
    flush_due: bool,
    /// The child has sent something that is not a response.
    unreadable: bool,
    /// Receives what the run does apart from answering.
    effects: Option<Arc<dyn EffectSink>>,
    /// Where a bailout of PHP is counted, and whose it is.
    bailouts: Option<(Arc<Bailouts>, IpAddr)>,
    /// Dropped with its place.
    pub held: Option<Held>,
    parser: Parser,
    /// Bytes copied out of the slot, and how far they have been parsed.
    input: Bytes,
    at: usize,
}

/// How far [`RequestState::discard`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discarded {
    /// The child has finished and all it sent has been taken.
    All,
    /// All bytes that are there have been taken; the child may send more.
    SoFar,
    /// The call took as much as one call takes; more bytes may be there.
    Some,
}

/// What [`RequestState::advance`] found.
pub(crate) enum Step {
    /// Hand this event to the server.
    Event(Event),
    /// Write this message to the error log.
    Log(Level, Bytes),
    /// There is nothing to do until the child sends more.
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

    /// Has a bailout of PHP counted as its client's.
    pub fn with_bailouts(mut self, bailouts: &Arc<Bailouts>) -> InFlight {
        let state = self.state.get_mut().unwrap_or_else(|e| e.into_inner());
        state.bailouts = self.client.map(|client| (bailouts.clone(), client));
        self
    }

    /// Its changing part. A panic elsewhere while it was held leaves nothing half done that
    /// matters more than going on.
    pub fn lock(&self) -> MutexGuard<'_, RequestState> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl RequestState {
    /// Notes that this child runs the request, and when the front first knew it.
    pub fn claimed_by(&mut self, child: ChildId, now_ns: impl FnOnce() -> u64) {
        if self.child != Some(child) {
            self.child = Some(child);
            self.claimed_ns = Some(now_ns());
        }
    }

    /// Copies what the child has published out of the slot. Returns the number of bytes.
    pub fn read_slot(&mut self, port: &FrontPort, slot: u32) -> Result<usize, ExecError> {
        let mut bytes = self.input[self.at..].to_vec();
        let (n, wake) = port
            .read_response(slot, &mut bytes, usize::MAX)
            .map_err(|_| ExecError::ResponseCorrupt)?;
        sys::wake(wake);
        if n > 0 {
            self.input = Bytes::from(bytes);
            self.at = 0;
            // A full ring means the child was out of room, not that the script flushed.
            self.flush_due = n < howdah_proto::shm::RING;
        }
        Ok(n)
    }

    /// Takes the next frame from the bytes already read; `Ok(None)` when there is no whole one.
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

    /// Goes on as far as possible without waiting. The caller acts on the step, and on
    /// [`RequestState::place`]: a slot found done has been read to its end and is to be given back (the
    /// place stays [`Position::Slot`]; `give_back` is set).
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
            // The state first: bytes published before `Done` are then never missed.
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

    /// Reads what the child still sends for a request that nobody waits for any more, so that the child
    /// never waits for room, and passes on only what belongs in the error log. Reads a few rings' worth a
    /// call: a child that writes as fast as it is read must not occupy the thread.
    pub fn discard(
        &mut self,
        port: &FrontPort,
        slot: u32,
        log: impl Fn(Level, &[u8]),
    ) -> Discarded {
        for _ in 0..4 {
            // The state first: bytes published before `Done` are then never missed.
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

    /// Reads the rest of what has arrived: what a script did and logged after its answer may have come in
    /// one piece with it.
    pub fn read_rest(&mut self, log: impl Fn(Level, &[u8])) {
        while !self.unreadable {
            match self.parse() {
                Ok(Some(Step::Log(level, text))) => log(level, &text),
                Ok(Some(_)) => {}
                Ok(None) => break,
                // What it says cannot be parsed: from here on it is thrown away unread.
                Err(_) => self.unreadable = true,
            }
        }
    }

    /// The child writes no more: how the response ends, by what was read.
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
