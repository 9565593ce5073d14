//! One thread of the generator: its event loop, its clients, and which of them sends when.
//!
//! The loop uses epoll, edge-triggered. A socket is registered once, and a wake-up returns all pending events, so at
//! high load most requests take one `send`, one `recv` and no other system call.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use rustix::event::epoll::{self, Event, EventData, EventFlags};

use super::alarm::{ALARM_TOKEN, LoopAlarm, timespec};
use super::arrivals::{Arrival, ArrivalSource, DueTimes};
use super::client_fleet::ClientFleet;
use super::clock::{MILLISECOND, SECOND};
use super::connection::{RequestStep, SendTicket};
use super::context::{RunState, ThreadContext};
use super::page_load::{NextPart, PageLoads};
use super::recorder::{RecordedSecond, Tallies};
use super::request::Requests;
use super::schedstat::Schedstat;
use super::socket::ServerPeer;
use super::tls::TlsClient;
use crate::error::BenchError;
use crate::outcome::{Outcome, OutcomeStage};
use crate::plan::template::XorshiftRandom;
use crate::plan::{Arrivals, Plan};
use crate::replay::reader::LogArrivals;
use crate::run::InFlightRequests;

/// The maximum number of arrivals that wait for a connection on one thread, which limits the memory. Arrivals beyond
/// that are counted in `Run::unsent`.
pub const MAX_WAITING_ARRIVALS: usize = 1 << 20;

/// The maximum number of events taken per wake-up.
const MAX_EVENTS: usize = 512;

/// The counts that a thread hands over when it ends.
#[derive(Debug)]
pub struct WorkerResult {
    pub tallies: Tallies,
    pub last: RecordedSecond,
    pub in_flight: InFlightRequests,
    /// When the thread ended, in nanoseconds of the run.
    pub end: u64,
    /// The CPU time and waiting time during the measured part, in nanoseconds.
    pub used: Schedstat,
}

/// The part of a run that one worker has.
#[derive(Debug)]
pub struct WorkerShare {
    /// The worker's number, from 0.
    pub thread: usize,
    /// Its requests of the log, if a log is replayed.
    pub log: Option<LogArrivals>,
}

/// A thread of the generator, with the clients it drives.
#[derive(Debug)]
pub struct LoadWorker<F> {
    context: ThreadContext,
    alarm: LoopAlarm,
    fleet: F,
    /// The results of events, by client, until [`LoadWorker::handle_steps`] has handled them.
    steps: Vec<(u32, RequestStep)>,
    /// The maximum number of clients of this thread.
    max_clients: u32,
    /// How many clients have a request or are pausing.
    active: u64,
    arrivals: Option<ArrivalSource>,
    page_loads: Option<PageLoads>,
    waiting: VecDeque<Arrival>,
    idle: Vec<u32>,
    /// The pausing clients, ordered by the time at which the pause ends.
    pauses: BinaryHeap<Reverse<(u64, u32)>>,
    random: XorshiftRandom,
    intervals: Sender<RecordedSecond>,
    next_second: u64,
    second: u32,
    next_sweep: u64,
    sweep_every: u64,
    schedstat: Schedstat,
    schedstat_at_start: Schedstat,
    started_measuring: bool,
}

impl<F: ClientFleet> LoadWorker<F> {
    /// Creates a worker. Everything that may fail does so here, before the run.
    pub fn new(
        plan: Arc<Plan>,
        shared: Arc<RunState>,
        peer: ServerPeer,
        tls: Option<Arc<TlsClient>>,
        requests: Arc<Requests>,
        WorkerShare { thread, log }: WorkerShare,
        intervals: Sender<RecordedSecond>,
    ) -> Result<LoadWorker<F>, BenchError> {
        let threads = plan.threads;
        let connections = plan.arrivals.connections() as usize;
        let most = (connections / threads + usize::from(thread < connections % threads)) as u32;
        let mut random = XorshiftRandom::new(plan.seed, thread as u64);
        let arrivals = match plan.arrivals {
            Arrivals::Closed { .. } => None,
            Arrivals::Log { .. } => log.map(ArrivalSource::Log),
            Arrivals::Open { rate, spacing, .. } => {
                let times = XorshiftRandom::new(random.next_u64(), 0);
                let share = (thread, threads);
                let requests = plan.stop.requests;
                let times = DueTimes::new(rate, spacing, share, requests, times);
                Some(ArrivalSource::Rate(times))
            }
        };
        let timeout = plan.connection.timeout.as_nanos() as u64;
        let from = shared.measured_from;
        let fleet = F::new(&plan, thread);
        let parts = plan.targets.len() as u32;
        let page_loads = plan.page_load.as_ref().map(|_| PageLoads::new(parts, most));
        let context = ThreadContext::new(plan, shared, peer, tls, requests, thread)?;
        let alarm = LoopAlarm::new(&context.epoll)?;
        Ok(LoadWorker {
            fleet,
            alarm,
            context,
            steps: Vec::new(),
            max_clients: most,
            active: 0,
            arrivals,
            page_loads,
            waiting: VecDeque::new(),
            idle: Vec::new(),
            pauses: BinaryHeap::new(),
            random,
            intervals,
            next_second: from + SECOND,
            second: 0,
            next_sweep: 0,
            sweep_every: (timeout / 20).clamp(MILLISECOND, 100 * MILLISECOND),
            schedstat: Schedstat::default(),
            schedstat_at_start: Schedstat::default(),
            started_measuring: false,
        })
    }

    /// Runs until the plan is fulfilled or the run is stopped.
    pub fn run(mut self) -> WorkerResult {
        let mut events = Vec::with_capacity(MAX_EVENTS);
        let mut now = self.context.clock.now();
        if self.arrivals.is_none() {
            for index in 0..self.max_clients {
                self.fleet.add();
                // The other parts of a page are requested when the page has arrived.
                if self
                    .page_loads
                    .as_ref()
                    .is_none_or(|loads| loads.is_page(index))
                {
                    self.active += 1;
                    self.begin_next(index, now);
                }
            }
        }
        loop {
            now = self.context.clock.now();
            self.tick(now);
            if self.is_over(now) {
                break;
            }
            self.send_due_requests(now);
            self.resume(now);
            self.flush();
            let until = self.next_wake_at();
            let wait = until.saturating_sub(self.context.clock.now());
            let timeout = timespec(wait);
            // Events that come every second need no alarm, because the timeout of epoll is precise enough for them.
            if self.arrivals.is_some() || !self.pauses.is_empty() || self.fleet.wake_at().is_some()
            {
                self.alarm.set(until, wait);
            }
            events.clear();
            match epoll::wait(
                &self.context.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&timeout),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    self.context.shared.fail(BenchError::System {
                        what: "waiting for events".to_owned(),
                        why: error.to_string(),
                    });
                }
            }
            for event in &events {
                self.event(event);
            }
        }
        self.finish(now)
    }

    /// Writes the requests that have begun but have not been written yet, and handles the resulting steps.
    fn flush(&mut self) {
        while self.fleet.flush(&mut self.context, &mut self.steps) {
            self.handle_steps();
        }
    }

    fn event(&mut self, event: &Event) {
        let (token, flags): (EventData, EventFlags) = (event.data, event.flags);
        let token = token.u64();
        if token == ALARM_TOKEN {
            return;
        }
        let (context, steps) = (&mut self.context, &mut self.steps);
        self.fleet.event(context, token, flags, steps);
        self.handle_steps();
    }

    /// Handles the steps, and any further steps that this causes.
    fn handle_steps(&mut self) {
        while let Some((index, step)) = self.steps.pop() {
            self.handle_step(index, step);
        }
    }

    /// Handles one step.
    fn handle_step(&mut self, index: u32, step: RequestStep) {
        match step {
            RequestStep::Working => {}
            RequestStep::RetryConnect => self.pause(index, MILLISECOND),
            RequestStep::Ended { now, outcome } => self.handle_request_end(index, outcome, now),
        }
    }

    /// Decides what a client does after its request has ended.
    fn handle_request_end(&mut self, index: u32, outcome: Outcome, now: u64) {
        if let Some(loads) = &mut self.page_loads {
            let next = loads.end(index, outcome == Outcome::Good, now);
            self.handle_part_end(next, outcome, now);
            return;
        }
        // Without this pause, a client that gets no connection would retry at once and use up the CPU time that is
        // measured.
        let pause = if outcome.kind() == OutcomeStage::Connect {
            MILLISECOND
        } else {
            self.think()
        };
        if pause > 0 {
            self.pause(index, pause);
        } else {
            self.begin_next(index, now);
        }
    }

    /// Continues a page load after one of its parts has ended.
    fn handle_part_end(&mut self, next: NextPart, outcome: Outcome, now: u64) {
        self.active -= 1;
        match next {
            NextPart::Nothing => {}
            NextPart::Others { first, last } => {
                for client in first..=last {
                    self.active += 1;
                    self.begin_next(client, now);
                }
            }
            NextPart::Page {
                client,
                took,
                begun,
            } => {
                if let Some(took) = took {
                    self.context.recorder.count_page_load(begun, took);
                }
                self.active += 1;
                let pause = if outcome.kind() == OutcomeStage::Connect {
                    MILLISECOND
                } else {
                    self.think()
                };
                if pause > 0 {
                    self.pause(client, pause);
                } else {
                    self.begin_next(client, now);
                }
            }
        }
    }

    fn think(&mut self) -> u64 {
        let think = self.context.plan.think;
        if think.max <= 0.0 {
            return 0;
        }
        let seconds = think.min + (think.max - think.min) * self.random.next_fraction();
        (seconds * 1e9) as u64
    }

    fn pause(&mut self, index: u32, nanoseconds: u64) {
        let at = self.context.clock.now() + nanoseconds;
        self.pauses.push(Reverse((at, index)));
    }

    /// Resumes the clients whose pause is over.
    fn resume(&mut self, now: u64) {
        while let Some(Reverse((at, index))) = self.pauses.peek().copied()
            && at <= now
        {
            self.pauses.pop();
            if self.fleet.is_busy(index) {
                self.fleet
                    .retry(&mut self.context, index, now, &mut self.steps);
                self.handle_steps();
            } else {
                // The pause was intended, so it does not count as lag.
                self.fleet.set_free_since(index, now);
                self.begin_next(index, now);
            }
        }
    }

    /// Gives a client without a request the next one, if there is one. Returns whether it got one.
    fn begin_next(&mut self, index: u32, mut now: u64) -> bool {
        let mut got = false;
        loop {
            let Some(ticket) = self.issue_ticket(index, now) else {
                self.active -= 1;
                if self.arrivals.is_some() {
                    self.idle.push(index);
                }
                return got;
            };
            got = true;
            if let Some(loads) = &mut self.page_loads {
                loads.begin(index, now);
            }
            let step = self.fleet.begin(&mut self.context, index, ticket, now);
            match step {
                RequestStep::Working => return got,
                RequestStep::Ended {
                    now: ended,
                    outcome,
                } if outcome.kind() != OutcomeStage::Connect => {
                    now = ended;
                    let pause = self.think();
                    if pause > 0 {
                        self.pause(index, pause);
                        return got;
                    }
                }
                other => {
                    self.handle_step(index, other);
                    return got;
                }
            }
        }
    }

    /// Issues permission to send a request. Returns `None` if there are no more.
    fn issue_ticket(&mut self, index: u32, now: u64) -> Option<SendTicket> {
        let shared = &self.context.shared;
        if shared.stop.load(Ordering::Relaxed) || shared.ends_at.is_some_and(|until| now >= until) {
            return None;
        }
        if self.arrivals.is_some() {
            let arrival = self.waiting.pop_front()?;
            let (due, measured) = (arrival.due, arrival.measured);
            let seq = shared.issued.fetch_add(1, Ordering::Relaxed) + 1;
            let free_since = self.fleet.free_since(index);
            let lag = now.saturating_sub(due.max(free_since));
            if arrival.replayed.is_some() {
                self.context
                    .recorder
                    .count_lateness(now.saturating_sub(due));
            }
            return Some(SendTicket {
                seq,
                due,
                measured,
                lag: Some(lag),
                replayed: arrival.replayed,
            });
        }
        let measured = self.context.recorder.is_measured(now);
        let mut seq = 0;
        if measured {
            seq = shared.issued.fetch_add(1, Ordering::Relaxed) + 1;
            if self
                .context
                .plan
                .stop
                .requests
                .is_some_and(|most| seq > most)
            {
                return None;
            }
            self.context.recorder.count_due();
        }
        Some(SendTicket {
            seq,
            due: now,
            measured,
            lag: None,
            replayed: None,
        })
    }

    /// Open loop: sends the requests that are due, or queues them for a connection.
    fn send_due_requests(&mut self, now: u64) {
        let Some(arrivals) = &mut self.arrivals else {
            return;
        };
        let measured_from = self.context.shared.measured_from;
        while let Some(arrival) = arrivals.take_due(now, measured_from) {
            let measured = arrival.measured;
            if measured {
                self.context.recorder.count_due();
            }
            if self.waiting.len() < MAX_WAITING_ARRIVALS {
                self.waiting.push_back(arrival);
            } else if measured {
                self.context.recorder.count_unsent(1);
            }
        }
        while !self.waiting.is_empty() {
            let index = match self.idle.pop() {
                Some(index) => index,
                None if self.fleet.len() < self.max_clients => self.fleet.add(),
                None => return,
            };
            self.active += 1;
            // Requests that are due when the run ends stay in the queue and are counted as unsent.
            if !self.begin_next(index, self.context.clock.now()) {
                return;
            }
        }
    }

    /// Handles the tasks of the clock: the end of a second, timeouts, the start of the measured part.
    fn tick(&mut self, now: u64) {
        if !self.started_measuring && self.context.recorder.is_measured(now) {
            self.started_measuring = true;
            self.schedstat = Schedstat::of_this_thread();
            self.schedstat_at_start = self.schedstat;
        }
        while now >= self.next_second {
            let mut interval = self.context.recorder.next_second(self.next_second);
            self.record_cpu_use(&mut interval);
            // The collector ends only after all threads have, so the interval is received.
            let _ = self.intervals.send(interval);
            self.second += 1;
            self.next_second =
                self.context.shared.measured_from + RecordedSecond::second_end(self.second);
        }
        if now >= self.next_sweep {
            self.next_sweep = now + self.sweep_every;
            self.fleet.expire(&mut self.context, now, &mut self.steps);
            self.handle_steps();
            self.context.close_overdue(now);
        }
    }

    fn record_cpu_use(&mut self, interval: &mut RecordedSecond) {
        let present = Schedstat::of_this_thread();
        let used = present.since(self.schedstat);
        interval.cpu = used.ran;
        interval.wait = used.waited;
        self.schedstat = present;
    }

    fn is_over(&self, now: u64) -> bool {
        let shared = &self.context.shared;
        if shared.stop.load(Ordering::Relaxed) || shared.ends_at.is_some_and(|until| now >= until) {
            return true;
        }
        match &self.arrivals {
            None => self.active == 0,
            Some(arrivals) => self.active == 0 && arrivals.has_ended() && self.waiting.is_empty(),
        }
    }

    /// Returns when the loop must wake even without events.
    fn next_wake_at(&self) -> u64 {
        let pause = self.pauses.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
        let arrival = self.arrivals.as_ref().and_then(|arrivals| {
            // If the log's next request is not known yet, the loop asks again in a millisecond.
            let unknown = arrivals.peek().is_none() && !arrivals.has_ended();
            let again = unknown.then(|| self.context.clock.now() + MILLISECOND);
            arrivals.peek().or(again)
        });
        let until = self.context.shared.ends_at.unwrap_or(u64::MAX);
        self.next_sweep
            .min(self.next_second)
            .min(pause)
            .min(arrival.unwrap_or(u64::MAX))
            .min(self.fleet.wake_at().unwrap_or(u64::MAX))
            .min(until)
    }

    fn finish(mut self, now: u64) -> WorkerResult {
        let mut in_flight = InFlightRequests::default();
        self.fleet.under_way(|request| {
            if request.measured {
                if request.sent {
                    in_flight.count += 1;
                } else {
                    in_flight.connecting += 1;
                }
                let age = super::clock::seconds(now.saturating_sub(request.due));
                in_flight.oldest = in_flight.oldest.max(age);
            }
        });
        let unsent = self.waiting.iter().filter(|arrival| arrival.measured);
        self.context.recorder.count_unsent(unsent.count() as u64);
        let mut last = self.context.recorder.next_second(now);
        self.record_cpu_use(&mut last);
        let used = self.schedstat.since(self.schedstat_at_start);
        WorkerResult {
            last,
            in_flight,
            end: now,
            used,
            tallies: self.context.recorder.finish(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use std::sync::{Mutex, OnceLock, mpsc};
    use std::time::Duration;

    use super::*;
    use crate::engine::client_fleet::Http1ClientFleet;
    use crate::engine::clock::Clock;
    use crate::plan::{LoadTarget, Spacing, StopLimits};

    /// The run can end between the check of the time and the sending of due requests. Requests that no client may send
    /// any more must not be offered to idle clients forever.
    #[test]
    fn requests_due_at_the_end_of_a_run_stay_unsent() {
        let target = LoadTarget::parse("http://127.0.0.1:9/").unwrap();
        let arrivals = Arrivals::Open {
            rate: 1000.0,
            spacing: Spacing::Constant,
            max_connections: 2,
        };
        let time = Duration::from_millis(10);
        let stop = StopLimits {
            requests: None,
            time: Some(time),
        };
        let mut plan = Plan::new(target, arrivals, stop);
        plan.threads = 1;
        let shared = RunState {
            clock: Clock::start(),
            issued: AtomicU64::new(0),
            stop: AtomicBool::new(true),
            error: Mutex::new(None),
            reached: AtomicBool::new(false),
            handshook: AtomicBool::new(false),
            first: Arc::new(OnceLock::new()),
            measured_from: 0,
            ends_at: Some(time.as_nanos() as u64),
        };
        let requests = Arc::new(Requests::new(&plan));
        let peer = ServerPeer::Tcp("127.0.0.1:9".parse().unwrap());
        let (intervals, _kept) = mpsc::channel();
        let plan = Arc::new(plan);
        let mut worker = LoadWorker::<Http1ClientFleet>::new(
            plan,
            Arc::new(shared),
            peer,
            None,
            requests,
            WorkerShare {
                thread: 0,
                log: None,
            },
            intervals,
        )
        .unwrap();
        worker.send_due_requests(5 * MILLISECOND);
        assert_eq!((worker.waiting.len(), worker.active), (6, 0));
        let finished = worker.finish(5 * MILLISECOND);
        assert_eq!(finished.tallies.unsent, 6);
    }
}
