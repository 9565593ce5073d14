//! The run that the server polls. It feeds the request body and returns events. When it ends or is dropped, it leaves
//! the slot in a consistent state.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use howdah_proto::level::LogLevel;
use howdah_proto::shm::SlotState;

use super::body::BodyFeed;
use super::in_flight::{DiscardProgress, InFlightRequest, RequestPosition, ResponseStep};
use super::lane::Lane;
use super::pool_state::SupervisorMessage;
use super::shared::EmbedShared;
use crate::common::sys;
use crate::{ExecError, RunEvent, RunTiming, ScriptRun};

/// A lane and its pool. The runs of a thread share one, so reference counting never touches a cache line of another
/// thread.
pub(crate) struct LaneHandle {
    pub shared: Arc<EmbedShared>,
    pub front: u32,
}

impl LaneHandle {
    pub fn lane(&self) -> &Lane {
        &self.shared.lanes[self.front as usize]
    }
}

/// The [`ScriptRun`] of a request in an embed pool, which the server polls.
pub(crate) struct EmbedRun {
    lane_handle: Arc<LaneHandle>,
    in_flight: Arc<InFlightRequest>,
    body: BodyFeed,
    over: bool,
}

impl EmbedRun {
    pub fn new(home: Arc<LaneHandle>, in_flight: Arc<InFlightRequest>, body: BodyFeed) -> EmbedRun {
        EmbedRun {
            lane_handle: home,
            in_flight,
            body,
            over: false,
        }
    }

    fn fail(&mut self, error: ExecError) -> Poll<Result<RunEvent, ExecError>> {
        self.over = true;
        self.lane_handle.shared.count_failure(&error);
        self.detach(Some(&error));
        Poll::Ready(Err(error))
    }

    /// Detaches the run from the request, which the lane then completes. `error` is the reason, if the response was not
    /// usable.
    fn detach(&mut self, error: Option<&ExecError>) {
        let lane = self.lane_handle.lane();
        let in_flight = &self.in_flight;
        let tell = |level, text: &[u8]| {
            log_script_message(&self.lane_handle.shared, in_flight, level, text)
        };
        {
            let mut state = in_flight.lock();
            if state.position == RequestPosition::Left {
                state.read_rest(tell);
                return;
            }
        }
        if lane.take_back(&self.lane_handle.shared.pool, &self.in_flight, None) {
            return;
        }
        let mut state = self.in_flight.lock();
        state.is_awaited = false;
        state.waker = None;
        let RequestPosition::Slot(slot) = state.position else {
            return;
        };
        if !self.over {
            let leavers = &self.lane_handle.shared.pool.abandoning_clients;
            state.abandoned = Some(leavers.record_abandoned(in_flight.client, sys::now_ns()));
        }
        if !state.ended || error.is_some() {
            sys::wake(lane.port.abort(slot));
        }
        if error.is_none() && self.body.has_arrived() {
            // A script must never mistake a part of a body for the whole.
            state.body = std::mem::replace(&mut self.body, BodyFeed::Complete);
            state.feed(&lane.port, slot);
        } else if !self.body.is_complete() {
            sys::wake(lane.port.end_body(slot, false));
        }
        let broken = matches!(
            error,
            Some(ExecError::ResponseInvalid(_) | ExecError::ResponseCorrupt)
        );
        if broken && let Some(child) = state.child {
            let name = error.map_or("ResponseInvalid", ExecError::name);
            self.lane_handle
                .shared
                .pool
                .send_to_supervisor(SupervisorMessage::Kill(child, name));
        }
        let known = state.child.is_some();
        let discarded = state.discard(&lane.port, slot, tell);
        drop(state);
        if discarded == DiscardProgress::Some {
            lane.port.notify_again(slot);
        }
        // A slot with corrupt memory whose child is not known would otherwise never be released.
        let stray = matches!(error, Some(ExecError::ResponseCorrupt)) && !known;
        if discarded == DiscardProgress::All || stray {
            lane.release_slot(&self.lane_handle.shared.pool, in_flight, slot);
        }
    }
}

fn log_script_message(
    shared: &EmbedShared,
    in_flight: &InFlightRequest,
    level: LogLevel,
    text: &[u8],
) {
    shared.pool.log.script(
        &shared.pool.config.name,
        in_flight.id,
        &in_flight.frame,
        level,
        text,
    );
}

impl ScriptRun for EmbedRun {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<RunEvent, ExecError>> {
        if self.over {
            return Poll::Ready(Ok(RunEvent::End));
        }
        let lane = self.lane_handle.lane();
        let mut state = self.in_flight.lock();
        if !self.body.is_complete()
            && let RequestPosition::Slot(slot) = state.position
        {
            match self.body.pump(&lane.port, slot, cx) {
                Ok(true) => cx.waker().wake_by_ref(),
                Ok(false) => {}
                Err(error) => {
                    drop(state);
                    return self.fail(error);
                }
            }
        }
        loop {
            let mut give_back = false;
            let slot = state.position;
            let claimed_ns = |slot| lane.claimed_ns(&self.in_flight, slot);
            let mut step = state.advance(&lane.port, &mut give_back, claimed_ns);
            if matches!(step, ResponseStep::Pending) {
                let stale = state
                    .waker
                    .as_ref()
                    .is_none_or(|w| !w.will_wake(cx.waker()));
                if stale {
                    state.waker = Some(cx.waker().clone());
                }
            }
            if give_back && let RequestPosition::Slot(slot) = slot {
                drop(state);
                lane.release_slot(&self.lane_handle.shared.pool, &self.in_flight, slot);
                if matches!(step, ResponseStep::Pending) {
                    step = ResponseStep::Event(RunEvent::End);
                }
                state = self.in_flight.lock();
            }
            match step {
                ResponseStep::Event(event) => {
                    if matches!(event, RunEvent::End) {
                        self.over = true;
                        drop(state);
                        self.detach(None);
                    }
                    return Poll::Ready(Ok(event));
                }
                ResponseStep::Log(level, text) => {
                    log_script_message(&self.lane_handle.shared, &self.in_flight, level, &text)
                }
                ResponseStep::Pending => return Poll::Pending,
                ResponseStep::Failed(error) => {
                    drop(state);
                    return self.fail(error);
                }
            }
        }
    }

    fn timing(&self) -> RunTiming {
        let state = self.in_flight.lock();
        RunTiming {
            queued: state.claimed_ns.map(|claimed| {
                Duration::from_nanos(claimed.saturating_sub(self.in_flight.started_ns))
            }),
            child: state.child.map(|c| c.index),
        }
    }

    fn process(&self) -> Option<i32> {
        let child = self.in_flight.lock().child?;
        let board = self.lane_handle.shared.board.lock();
        let board = board.unwrap_or_else(|e| e.into_inner());
        let row = board.iter().find(|row| row.id == child)?;
        Some(row.pid).filter(|pid| *pid > 0)
    }

    fn decides_status(&self) -> bool {
        true
    }

    fn is_claimed(&self) -> bool {
        match self.in_flight.lock().position {
            RequestPosition::Waiting => false,
            RequestPosition::Slot(slot) => {
                self.lane_handle.lane().port.state(slot) != SlotState::Ready
            }
            RequestPosition::Left => true,
        }
    }
}

impl Drop for EmbedRun {
    fn drop(&mut self) {
        if !self.over {
            self.detach(None);
        }
    }
}
