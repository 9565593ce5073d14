//! The run that the server polls. It feeds the request body and returns events. When it ends or is dropped, it leaves
//! the slot in a consistent state.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use howdah_proto::level::Level;
use howdah_proto::shm::SlotState;

use super::body::BodyFeed;
use super::in_flight::{Discarded, InFlight, Position, Step};
use super::lane::Lane;
use super::pool_state::Ask;
use super::shared::EmbedShared;
use crate::common::sys;
use crate::{Event, ExecError, Run, RunTiming};

/// A lane and its pool. The runs of a thread share one, so reference counting never touches a cache line of another
/// thread.
pub(crate) struct Home {
    pub shared: Arc<EmbedShared>,
    pub front: u32,
}

impl Home {
    pub fn lane(&self) -> &Lane {
        &self.shared.lanes[self.front as usize]
    }
}

/// The [`Run`] of a request in an embed pool, which the server polls.
pub(crate) struct EmbedRun {
    home: Arc<Home>,
    in_flight: Arc<InFlight>,
    body: BodyFeed,
    over: bool,
}

impl EmbedRun {
    pub fn new(home: Arc<Home>, in_flight: Arc<InFlight>, body: BodyFeed) -> EmbedRun {
        EmbedRun {
            home,
            in_flight,
            body,
            over: false,
        }
    }

    fn fail(&mut self, error: ExecError) -> Poll<Result<Event, ExecError>> {
        self.over = true;
        self.home.shared.count(&error);
        self.let_go(Some(&error));
        Poll::Ready(Err(error))
    }

    /// Detaches the run from the request, which the lane then completes. `error` is the reason, if the response was not
    /// usable.
    fn let_go(&mut self, error: Option<&ExecError>) {
        let lane = self.home.lane();
        let in_flight = &self.in_flight;
        let tell = |level, text: &[u8]| log(&self.home.shared, in_flight, level, text);
        {
            let mut state = in_flight.lock();
            if state.place == Position::Left {
                state.read_rest(tell);
                return;
            }
        }
        if lane.take_back(&self.home.shared.pool, &self.in_flight, None) {
            return;
        }
        let mut state = self.in_flight.lock();
        state.wanted = false;
        state.waker = None;
        let Position::Slot(slot) = state.place else {
            return;
        };
        if !self.over {
            let leavers = &self.home.shared.pool.leavers;
            state.abandoned = Some(leavers.left(in_flight.client, sys::now_ns()));
        }
        if !state.ended || error.is_some() {
            sys::wake(lane.port.abort(slot));
        }
        if !self.body.is_complete() {
            sys::wake(lane.port.end_body(slot, false));
        }
        let broken = matches!(
            error,
            Some(ExecError::ResponseInvalid(_) | ExecError::ResponseCorrupt)
        );
        if broken && let Some(child) = state.child {
            let name = error.map_or("ResponseInvalid", ExecError::name);
            self.home.shared.pool.ask(Ask::Kill(child, name));
        }
        let known = state.child.is_some();
        let discarded = state.discard(&lane.port, slot, tell);
        drop(state);
        if discarded == Discarded::Some {
            lane.port.notify_again(slot);
        }
        // A slot with corrupt memory whose child is not known would otherwise never be released.
        let stray = matches!(error, Some(ExecError::ResponseCorrupt)) && !known;
        if discarded == Discarded::All || stray {
            lane.give_back(&self.home.shared.pool, in_flight, slot);
        }
    }
}

fn log(shared: &EmbedShared, in_flight: &InFlight, level: Level, text: &[u8]) {
    shared.pool.log.script(
        &shared.pool.config.name,
        in_flight.id,
        &in_flight.frame,
        level,
        text,
    );
}

impl Run for EmbedRun {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, ExecError>> {
        if self.over {
            return Poll::Ready(Ok(Event::End));
        }
        let lane = self.home.lane();
        let mut state = self.in_flight.lock();
        if !self.body.is_complete()
            && let Position::Slot(slot) = state.place
            && let Err(error) = self.body.pump(&lane.port, slot, cx)
        {
            drop(state);
            return self.fail(error);
        }
        loop {
            let mut give_back = false;
            let slot = state.place;
            let claimed_ns = |slot| lane.claimed_ns(&self.in_flight, slot);
            let mut step = state.advance(&lane.port, &mut give_back, claimed_ns);
            if matches!(step, Step::Pending) {
                let stale = state
                    .waker
                    .as_ref()
                    .is_none_or(|w| !w.will_wake(cx.waker()));
                if stale {
                    state.waker = Some(cx.waker().clone());
                }
            }
            if give_back && let Position::Slot(slot) = slot {
                drop(state);
                lane.give_back(&self.home.shared.pool, &self.in_flight, slot);
                if matches!(step, Step::Pending) {
                    step = Step::Event(Event::End);
                }
                state = self.in_flight.lock();
            }
            match step {
                Step::Event(event) => {
                    if matches!(event, Event::End) {
                        self.over = true;
                        drop(state);
                        self.let_go(None);
                    }
                    return Poll::Ready(Ok(event));
                }
                Step::Log(level, text) => log(&self.home.shared, &self.in_flight, level, &text),
                Step::Pending => return Poll::Pending,
                Step::Failed(error) => {
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
        let board = self.home.shared.board.lock();
        let board = board.unwrap_or_else(|e| e.into_inner());
        let row = board.iter().find(|row| row.id == child)?;
        Some(row.pid).filter(|pid| *pid > 0)
    }

    fn decides_status(&self) -> bool {
        true
    }

    fn is_claimed(&self) -> bool {
        match self.in_flight.lock().place {
            Position::Waiting => false,
            Position::Slot(slot) => self.home.lane().port.state(slot) != SlotState::Ready,
            Position::Left => true,
        }
    }
}

impl Drop for EmbedRun {
    fn drop(&mut self) {
        if !self.over {
            self.let_go(None);
        }
    }
}
