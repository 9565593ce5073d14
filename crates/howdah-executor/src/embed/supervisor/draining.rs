//! The end of a pool: first requests in flight, then children, then the zygote.

use std::time::{Duration, Instant};

use howdah_os::clock;
use rustix::process::Signal;

use super::{
    ChildState, ExecError, KILL_GRACE, Ordering, PoolCondition, Supervisor, SupervisorMessage,
    ZygoteState,
};

/// How often to check, while draining, for slots that children return, since children ring only front threads.
const DRAIN_CHECK_INTERVAL: Duration = Duration::from_millis(10);

impl Supervisor {
    pub(super) fn handle_message(&mut self, letter: SupervisorMessage) {
        let now = clock::now();
        match letter {
            SupervisorMessage::Kill(id, why) => {
                self.terminate(id, why, now);
                self.signal(id, Signal::KILL);
            }
            SupervisorMessage::Scripts(work, file, done) => {
                self.start_scripts_operation(work, &file, done)
            }
            SupervisorMessage::Drain(until) => {
                self.shared.condition.send_replace(PoolCondition::Draining);
                self.drain_until = Some(self.drain_until.map_or(until, |d| d.min(until)));
            }
        }
    }

    /// Does one step of the drain: first requests in flight, then children, then the zygote. Returns the time until the
    /// next step.
    pub(super) fn drain(&mut self, until: Instant, now: Instant) -> Duration {
        let late = until <= now;
        if self.shared.pool.outstanding.load(Ordering::SeqCst) > 0 {
            // A front thread without clients has exited. A script that continued after its response then returns its
            // slot with no thread but this one to notice it.
            for lane in &self.shared.lanes {
                lane.handle_notifications(&self.shared.pool);
            }
        }
        if self.shared.pool.outstanding.load(Ordering::SeqCst) > 0 {
            if !late {
                return (until - now).min(DRAIN_CHECK_INTERVAL);
            }
            self.refuse_all(&ExecError::Stopping);
            self.fail_claimed(&ExecError::Stopping);
        }
        // Idle children exit by themselves, at once. Others are terminated.
        let (mut leave, mut end) = (Vec::new(), Vec::new());
        for child in self.children.iter() {
            let port = &self.shared.pool.port;
            let busy = port.child_status(child.id.index).busy_since.is_some();
            match child.state {
                ChildState::Serving { .. } if late && busy => end.push(child.id),
                ChildState::Serving { .. } => leave.push(child.id),
                ChildState::Retiring if late && now.duration_since(child.since) >= KILL_GRACE => {
                    end.push(child.id);
                }
                // The pool needs no further worker.
                ChildState::Booting => end.push(child.id),
                ChildState::Starting | ChildState::Retiring | ChildState::Terminating { .. } => {}
            }
        }
        for id in leave {
            self.retire(id, now);
        }
        for id in end {
            self.terminate(id, "Stopping", now);
        }
        let starting = self
            .children
            .iter()
            .any(|c| matches!(c.state, ChildState::Starting));
        if self.children.is_empty() || (late && starting) {
            self.stop_zygote(now);
            if matches!(self.zygote, ZygoteState::Asleep | ZygoteState::None { .. }) {
                self.zygote = ZygoteState::Gone;
            }
            return Duration::from_millis(1);
        }
        if late { KILL_GRACE } else { until - now }
    }

    pub(super) fn fail_claimed(&self, error: &ExecError) {
        for lane in &self.shared.lanes {
            for (_, in_flight, _) in lane.claimed() {
                let mut state = in_flight.lock();
                state.verdict.get_or_insert_with(|| error.clone());
                if let Some(waker) = state.waker.take() {
                    waker.wake();
                }
            }
        }
    }
}
