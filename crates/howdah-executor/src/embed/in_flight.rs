//! One request on its way through a pool: the front's private record of it, and the conversion of the child's bytes
//! into events. It changes no queue and starts no process.
//!
//! An [`InFlightRequest`] is shared by the run that the server polls, the lane that contains it and, when a child dies,
//! the supervisor. It outlives the run: while a child holds its slot, the slot stays accounted for.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Waker};

use bytes::Bytes;
use howdah_proto::level::LogLevel;
use howdah_proto::request::RequestFrame;
use howdah_proto::response::{Frame, ResponseError, ResponseParser};
use howdah_proto::shm::{ChildId, FrontPort, SlotState};

use super::abandoning_clients::AbandonedRun;
use super::bailouts::Bailouts;
use super::body::BodyFeed;
use crate::common::sys;
use crate::{DropAtEnd, EffectSink, ExecError, RunEvent};

/// The position of a request on its way through the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestPosition {
    /// In the lane's private queue, without a slot.
    Waiting,
    /// In this slot: published, or claimed by a child.
    Slot(u32),
    /// No longer in the pool: it has a response, was cancelled, or its child has died.
    Left,
}

/// One request in the front's memory; see the module's documentation.
#[derive(Debug)]
pub(crate) struct InFlightRequest {
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
    state: Mutex<InFlightState>,
}

/// The changing part of a request.
#[derive(Debug)]
pub(crate) struct InFlightState {
    pub position: RequestPosition,
    /// Whether a run still waits for the response.
    pub is_awaited: bool,
    /// Set when the client has disconnected while a child had the request;
    /// [`AbandoningClients`](super::abandoning_clients::AbandoningClients) counts it.
    pub abandoned: Option<AbandonedRun>,
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
    pub drop_at_end: Option<DropAtEnd>,
    /// The rest of the body, once no run waits for the response. Until then the run feeds the body.
    pub body: BodyFeed,
    parser: ResponseParser,
    /// Bytes that were copied out of the slot. `at` is how far they have been parsed.
    input: Bytes,
    parsed_bytes: usize,
}

/// How far [`InFlightState::discard`] has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiscardProgress {
    /// The child has finished and all of its bytes have been read.
    All,
    /// All present bytes have been read; the child may send more.
    SoFar,
    /// The call has read its maximum; more bytes may be present.
    Some,
}

/// What the caller of [`InFlightState::advance`] has to do.
pub(crate) enum ResponseStep {
    /// Pass this event to the server.
    Event(RunEvent),
    /// Write this message to the error log.
    Log(LogLevel, Bytes),
    /// Nothing, until the child sends more.
    Pending,
    /// The request has failed.
    Failed(ExecError),
}

impl InFlightRequest {
    pub fn new(
        id: u64,
        frame: RequestFrame,
        started_ns: u64,
        body_complete: bool,
        client: Option<IpAddr>,
        effects: Option<Arc<dyn EffectSink>>,
        held: Option<DropAtEnd>,
    ) -> InFlightRequest {
        InFlightRequest {
            id,
            frame,
            started_ns,
            body_complete,
            client,
            state: Mutex::new(InFlightState {
                position: RequestPosition::Waiting,
                is_awaited: true,
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
                drop_at_end: held,
                body: BodyFeed::Complete,
                parser: ResponseParser::default(),
                input: Bytes::new(),
                parsed_bytes: 0,
            }),
        }
    }

    /// Makes a bailout of PHP count for the request's client.
    pub fn with_bailouts(mut self, bailouts: &Arc<Bailouts>) -> InFlightRequest {
        let state = self.state.get_mut().unwrap_or_else(|e| e.into_inner());
        state.bailouts = self.client.map(|client| (bailouts.clone(), client));
        self
    }

    /// Locks the changing part of the request. If a thread panicked while it held the lock, the state is consistent
    /// enough to continue.
    pub fn lock(&self) -> MutexGuard<'_, InFlightState> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl InFlightState {
    /// Records that this child runs the request, and when the front first knew it.
    pub fn record_claim(&mut self, child: ChildId, now_ns: impl FnOnce() -> u64) {
        if self.child != Some(child) {
            self.child = Some(child);
            self.claimed_ns = Some(now_ns());
        }
    }

    /// Copies the bytes that the child has published out of the slot. Returns their number.
    pub fn read_slot(&mut self, port: &FrontPort, slot: u32) -> Result<usize, ExecError> {
        let mut bytes = self.input[self.parsed_bytes..].to_vec();
        let (n, wake) = port
            .read_response(slot, &mut bytes, usize::MAX)
            .map_err(|_| ExecError::ResponseCorrupt)?;
        sys::wake(wake);
        if n > 0 {
            self.input = Bytes::from(bytes);
            self.parsed_bytes = 0;
            // A full ring means that the child was out of room, not that the script flushed.
            self.flush_due = n < howdah_proto::shm::RING_BYTES;
        }
        Ok(n)
    }

    /// Parses the next frame of the bytes already read. Returns `Ok(None)` if there is no complete one.
    fn parse(&mut self) -> Result<Option<ResponseStep>, ExecError> {
        loop {
            let rest = &self.input[self.parsed_bytes..];
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
            let end = self.parsed_bytes + used;
            let step = match frame {
                Frame::Head(head) => Some(ResponseStep::Event(RunEvent::Head(head))),
                Frame::Informational(head) => {
                    Some(ResponseStep::Event(RunEvent::Informational(head)))
                }
                Frame::Body([]) => None,
                Frame::Body(b) => {
                    let body = self.input.slice(end - b.len()..end);
                    Some(ResponseStep::Event(RunEvent::Body(body)))
                }
                Frame::Log(level, text) => Some(ResponseStep::Log(
                    level,
                    self.input.slice(end - text.len()..end),
                )),
                Frame::Finish => {
                    self.ended = true;
                    Some(ResponseStep::Event(RunEvent::End))
                }
                Frame::Effect(name, value) => {
                    if let Some(effects) = &self.effects {
                        effects.effect(name, value);
                    }
                    Some(ResponseStep::Event(RunEvent::Effect))
                }
                Frame::BailedOut => {
                    if let Some((bailouts, client)) = &self.bailouts {
                        bailouts.count(*client, sys::now_ns());
                    }
                    None
                }
            };
            self.parsed_bytes = end;
            if let Some(step) = step {
                return Ok(Some(step));
            }
        }
    }

    /// Continues as far as possible without waiting, and returns the step that the caller has to do. `give_back` is set
    /// if the slot is done and has been read to its end. The caller must then release the slot
    /// ([`InFlightState::position`] stays [`RequestPosition::Slot`]).
    pub fn advance(
        &mut self,
        port: &FrontPort,
        give_back: &mut bool,
        claimed_ns: impl Fn(u32) -> u64,
    ) -> ResponseStep {
        loop {
            match self.parse() {
                Ok(Some(step)) => return step,
                Ok(None) => {}
                Err(error) => return ResponseStep::Failed(error),
            }
            let slot = match self.position {
                RequestPosition::Slot(slot) if !*give_back => slot,
                RequestPosition::Waiting => {
                    return match self.verdict.take() {
                        Some(error) => ResponseStep::Failed(error),
                        None => ResponseStep::Pending,
                    };
                }
                _ => return self.end_of_response(),
            };
            if let Some(error) = self.verdict.take() {
                return ResponseStep::Failed(error);
            }
            // The state is loaded first, so bytes that were published before `Done` are never missed.
            let state = port.state(slot);
            match self.read_slot(port, slot) {
                Ok(0) => {}
                Ok(_) => {
                    if let SlotState::Claimed(child) | SlotState::Done(child) = state {
                        self.record_claim(child, || claimed_ns(slot));
                    }
                    if matches!(state, SlotState::Done(_)) {
                        *give_back = true;
                    }
                    continue;
                }
                Err(error) => return ResponseStep::Failed(error),
            }
            match state {
                SlotState::Done(child) => {
                    self.record_claim(child, || claimed_ns(slot));
                    *give_back = true;
                }
                SlotState::Claimed(child) => {
                    self.record_claim(child, || claimed_ns(slot));
                    if std::mem::take(&mut self.flush_due) && !self.ended {
                        return ResponseStep::Event(RunEvent::Flush);
                    }
                    return ResponseStep::Pending;
                }
                SlotState::Ready => return ResponseStep::Pending,
                SlotState::Free | SlotState::Corrupt => {
                    return ResponseStep::Failed(ExecError::ResponseCorrupt);
                }
            }
        }
    }

    /// Feeds the rest of the body to a child for whose response no run waits.
    pub fn feed(&mut self, port: &FrontPort, slot: u32) {
        if self.body.is_complete() {
            return;
        }
        match self
            .body
            .pump(port, slot, &mut Context::from_waker(Waker::noop()))
        {
            Ok(true) => port.notify_again(slot),
            Ok(false) => {}
            Err(_) => {
                self.body = BodyFeed::Complete;
                sys::wake(port.end_body(slot, false));
            }
        }
    }

    /// Reads the remaining bytes of a child whose client has disconnected, so the child never waits for room, and
    /// passes on only log messages. It reads at most a few rings per call, because a child that writes as fast as it is
    /// read must not occupy the thread.
    pub fn discard(
        &mut self,
        port: &FrontPort,
        slot: u32,
        log: impl Fn(LogLevel, &[u8]),
    ) -> DiscardProgress {
        for _ in 0..4 {
            // The state is loaded first, so bytes that were published before `Done` are never missed.
            let done = matches!(port.state(slot), SlotState::Done(_));
            if self.unreadable {
                self.input = Bytes::new();
                self.parsed_bytes = 0;
            }
            let n = self.read_slot(port, slot).unwrap_or(0);
            self.read_rest(&log);
            match (n, done) {
                (_, true) => return DiscardProgress::All,
                (0, false) => return DiscardProgress::SoFar,
                _ => {}
            }
        }
        DiscardProgress::Some
    }

    /// Reads the rest of the bytes that have arrived. Effects and log messages after the end of the response may have
    /// arrived together with it.
    pub fn read_rest(&mut self, log: impl Fn(LogLevel, &[u8])) {
        while !self.unreadable {
            match self.parse() {
                Ok(Some(ResponseStep::Log(level, text))) => log(level, &text),
                Ok(Some(_)) => {}
                Ok(None) => break,
                // The bytes cannot be parsed. From here on they are discarded unread.
                Err(_) => self.unreadable = true,
            }
        }
    }

    /// Decides how the response ends once the child writes no more, from the bytes that were read.
    fn end_of_response(&mut self) -> ResponseStep {
        if self.ended {
            return ResponseStep::Pending;
        }
        if let Some(error) = self.verdict.take() {
            return ResponseStep::Failed(error);
        }
        if !self.parser.saw_head() {
            return ResponseStep::Failed(ExecError::ResponseMissing);
        }
        if !self.parser.at_frame_end() || self.parsed_bytes < self.input.len() {
            return ResponseStep::Failed(ExecError::ResponseInvalid(ResponseError::Malformed));
        }
        self.ended = true;
        ResponseStep::Event(RunEvent::End)
    }
}
