//! A simulated PHP process. It speaks the protocol of the shared memory like a real one, but does not sleep in the
//! kernel: it continues when its futex word has changed or its time has come.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use howdah_os::clock;
use howdah_proto::shm::{Bell, BodyRead, ChildId, ChildPort, RequestClaim};

use crate::ledger::{ChildFault, Ledger};
use crate::random::Random;
use crate::scripts::{Call, Step};
use crate::trace::Trace;

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// How likely the faults of a simulation's children are, in percent of the requests.
#[derive(Clone, Copy, Debug)]
pub struct FaultRates {
    pub death: usize,
    pub stall: usize,
}

/// A simulated child.
pub struct Child {
    pub id: ChildId,
    port: ChildPort,
    max_requests: u64,
    finished: u64,
    claims: u32,
    activity: Activity,
    /// The child does nothing before this time.
    continues_at: Duration,
    /// When a signal ends the child.
    dies_at: Option<Duration>,
    faults: FaultRates,
    random: Random,
    trace: Trace,
    ledger: Ledger,
}

/// The word on which a child waits, and the value that it had.
type Wait = (&'static AtomicU32, u32);

enum Activity {
    Idle,
    Parked(Wait),
    Busy(Box<Job>),
    Exited,
}

struct Job {
    claim: RequestClaim,
    call: Call,
    body: Vec<u8>,
    steps: VecDeque<Step>,
    /// How much of the first step has been written, and whether its frame has begun.
    written: usize,
    has_begun_frame: bool,
    wait: Option<Wait>,
    /// The fault that happens after this many steps.
    fault: Option<(usize, PlannedFault)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PlannedFault {
    Death,
    Stall(Duration),
}

/// What a child has done in one call of [`Child::step`].
#[derive(Default)]
pub struct ChildActions {
    /// Whether the child has done anything at all.
    pub any: bool,
    /// Whether the front's bell must be rung.
    pub rings_front: bool,
    /// Whether the child has published bytes and was told that the front need not be woken.
    pub published_silently: bool,
    /// Whether the supervisor's bell must be rung.
    pub rings_supervisor: bool,
    /// The child has exited: its exit code, or `None` if it was killed.
    pub exited: Option<Option<i32>>,
}

impl ChildActions {
    fn add_bell(&mut self, bell: Bell) {
        self.rings_front |= bell.0;
        self.published_silently |= !bell.0;
    }
}

/// What the child does after a step.
enum Next {
    /// The next step follows at once.
    Step,
    /// The same step continues when the child is woken or its time has come.
    Wait,
    /// The script has ended, and its slot has been returned.
    Finished,
    Died,
}

impl Child {
    pub fn new(
        port: ChildPort,
        max_requests: u64,
        faults: FaultRates,
        random: Random,
        trace: Trace,
        ledger: Ledger,
    ) -> Child {
        Child {
            id: port.id(),
            port,
            max_requests,
            finished: 0,
            claims: random.clone().below(1000) as u32,
            activity: Activity::Idle,
            continues_at: Duration::ZERO,
            dies_at: None,
            faults,
            random,
            trace,
            ledger,
        }
    }

    /// Whether the child sleeps between requests, and nothing has woken it.
    pub fn is_asleep(&self) -> bool {
        match self.activity {
            Activity::Parked((word, seen)) => word.load(Ordering::SeqCst) == seen,
            _ => false,
        }
    }

    pub fn has_exited(&self) -> bool {
        matches!(self.activity, Activity::Exited)
    }

    /// Does everything that the child can do now.
    pub fn step(&mut self) -> ChildActions {
        let mut actions = ChildActions::default();
        let now = self.trace.time();
        if self.dies_at.is_some_and(|at| at <= now) {
            self.die("is ended by the signal");
        } else if self.continues_at <= now {
            self.continue_activity(&mut actions);
        }
        if self.has_exited() {
            actions.exited.get_or_insert(None);
        }
        actions.any |= actions.exited.is_some();
        actions
    }

    fn continue_activity(&mut self, actions: &mut ChildActions) {
        loop {
            match std::mem::replace(&mut self.activity, Activity::Idle) {
                Activity::Idle if self.is_spent() => return self.exit(actions),
                Activity::Idle => {
                    if !self.begin_next(actions) {
                        return;
                    }
                }
                Activity::Parked((word, seen)) => {
                    if word.load(Ordering::SeqCst) == seen {
                        self.activity = Activity::Parked((word, seen));
                        return;
                    }
                    self.port.unpark();
                }
                Activity::Busy(job) => {
                    actions.any = true;
                    if !self.run_job(job, actions) {
                        return;
                    }
                }
                Activity::Exited => {
                    self.activity = Activity::Exited;
                    return;
                }
            }
            actions.any = true;
        }
    }

    fn is_spent(&self) -> bool {
        self.max_requests > 0 && self.finished >= self.max_requests
    }

    /// Claims a request, or falls asleep. Returns whether the child has more to do now.
    fn begin_next(&mut self, actions: &mut ChildActions) -> bool {
        if self.port.is_retiring() {
            self.exit(actions);
            return false;
        }
        if self.claim(actions) {
            return true;
        }
        let wait = self.port.park();
        // The sleep is announced, so the front wakes the child for everything that happens from now on.
        if self.port.is_retiring() || self.claim(actions) {
            self.port.unpark();
            return true;
        }
        self.activity = Activity::Parked(wait);
        false
    }

    fn claim(&mut self, actions: &mut ChildActions) -> bool {
        self.claims = self.claims.wrapping_add(1);
        let Some(claim) = self.port.claim(self.claims) else {
            return false;
        };
        let now = clock::monotonic_ns();
        self.port.begin_job(now);
        claim.record_begin(now);
        if self.max_requests > 0 && self.finished + 1 >= self.max_requests {
            self.port.mark_spent();
            actions.rings_supervisor = true;
        }
        let call = Call::parse(&claim.frame_bytes());
        self.note(format_args!("runs {}", call.key));
        let fault = self.plan_fault();
        self.activity = Activity::Busy(Box::new(Job {
            steps: call.first_steps(&mut self.random),
            claim,
            call,
            body: Vec::new(),
            written: 0,
            has_begun_frame: false,
            wait: None,
            fault,
        }));
        true
    }

    fn plan_fault(&mut self) -> Option<(usize, PlannedFault)> {
        let steps = self.random.below(12);
        if self.random.chance(self.faults.death) {
            return Some((steps, PlannedFault::Death));
        }
        if self.random.chance(self.faults.stall) {
            let time = self.random.millis(20_000);
            return Some((steps, PlannedFault::Stall(time)));
        }
        None
    }

    /// Runs the job as far as possible. Returns whether the child can continue with the next one.
    fn run_job(&mut self, mut job: Box<Job>, actions: &mut ChildActions) -> bool {
        if let Some((word, seen)) = job.wait {
            if word.load(Ordering::SeqCst) == seen {
                actions.any = false;
                self.activity = Activity::Busy(job);
                return false;
            }
            job.claim.end_wait();
            job.wait = None;
        }
        loop {
            match job.fault {
                Some((0, PlannedFault::Death)) => {
                    self.activity = Activity::Busy(job);
                    self.die("dies");
                    return false;
                }
                Some((0, PlannedFault::Stall(time))) => {
                    job.fault = None;
                    self.note(format_args!("stalls for {:.3} s", time.as_secs_f64()));
                    let mut ledger = self.ledger.lock();
                    ledger.add_child_fault(&job.call.key, ChildFault::Stalled);
                    drop(ledger);
                    self.continues_at = self.trace.time() + time;
                    self.activity = Activity::Busy(job);
                    return false;
                }
                Some((left, fault)) => job.fault = Some((left - 1, fault)),
                None => {}
            }
            match self.run_step(&mut job, actions) {
                Next::Step => {
                    job.steps.pop_front();
                    (job.written, job.has_begun_frame) = (0, false);
                    if self.continues_at > self.trace.time() {
                        self.activity = Activity::Busy(job);
                        return false;
                    }
                }
                Next::Wait => {
                    self.activity = Activity::Busy(job);
                    return false;
                }
                Next::Finished => {
                    actions.add_bell(job.claim.done());
                    self.finished = self.port.end_job();
                    return true;
                }
                Next::Died => {
                    self.activity = Activity::Busy(job);
                    self.die("crashes");
                    return false;
                }
            }
        }
    }

    fn run_step(&mut self, job: &mut Job, actions: &mut ChildActions) -> Next {
        let is_over = job.claim.aborted();
        match job.steps.front() {
            Some(Step::Pause(time)) => self.continues_at = self.trace.time() + *time,
            Some(Step::ReadBody) => return read_body(job, actions),
            Some(Step::Respond) => {
                let versions = self.ledger.lock().versions;
                let call = &job.call;
                let steps = call.response_steps(&job.body, &versions, &mut self.random);
                job.steps.extend(steps);
            }
            // PHP ends a script that writes to a client that has left.
            Some(Step::Frame(..) | Step::Body(_) | Step::Publish) if is_over => {
                self.note("notices that its client has left");
                return Next::Finished;
            }
            Some(Step::Frame(..) | Step::Body(_)) => return write_step(job, actions),
            Some(Step::Publish) => actions.add_bell(job.claim.publish()),
            Some(Step::Commit(board)) => {
                let mut ledger = self.ledger.lock();
                ledger.versions[*board] += 1;
                let version = ledger.versions[*board];
                drop(ledger);
                self.note(format_args!("commits board {board} version {version}"));
                set_written_version(&mut job.steps, version);
            }
            Some(Step::Crash) => return Next::Died,
            Some(Step::Done) | None => return Next::Finished,
        }
        Next::Step
    }

    fn exit(&mut self, actions: &mut ChildActions) {
        self.note("exits");
        self.port.leave();
        self.activity = Activity::Exited;
        actions.exited = Some(Some(0));
    }

    /// Kills the child, as the kernel does when its zygote's process group is killed.
    pub fn kill(&mut self) {
        if !self.has_exited() {
            self.die("is killed");
        }
    }

    fn die(&mut self, how: &str) {
        if let Activity::Busy(job) = &self.activity {
            let mut ledger = self.ledger.lock();
            ledger.add_child_fault(&job.call.key, ChildFault::Died);
        }
        self.note(how);
        self.activity = Activity::Exited;
    }

    /// Receives a signal. A script may take a while to die of SIGTERM, or ignore it.
    pub fn signal(&mut self, signal: i32) {
        let now = self.trace.time();
        self.note(format_args!("receives signal {signal}"));
        match signal {
            SIGKILL => self.dies_at = Some(now),
            SIGTERM if self.random.chance(70) => {
                self.dies_at = Some(now + self.random.millis(800));
            }
            _ => {}
        }
    }

    fn note(&self, event: impl std::fmt::Display) {
        let ChildId { index, incarnation } = self.id;
        self.trace
            .note(format_args!("child {index}.{incarnation} {event}"));
    }
}

/// Reads as much of the request body as there is.
fn read_body(job: &mut Job, actions: &mut ChildActions) -> Next {
    let mut buffer = [0; 4096];
    loop {
        let (read, bell) = job.claim.read_body(&mut buffer);
        actions.rings_front |= bell.0;
        match read {
            BodyRead::Bytes(n) => job.body.extend_from_slice(&buffer[..n]),
            BodyRead::Pending if job.wait.is_some() => return Next::Wait,
            // The front may have written before it could see the announcement, so the child checks once more.
            BodyRead::Pending => job.wait = Some(job.claim.prepare_wait()),
            BodyRead::End => break,
            // The client has disconnected, and its response is not sent.
            BodyRead::CutOff => break,
        }
        if job.wait.is_some() && read != BodyRead::Pending {
            job.claim.end_wait();
            job.wait = None;
        }
    }
    if job.wait.take().is_some() {
        job.claim.end_wait();
    }
    Next::Step
}

/// Writes as much of the first step as there is room for.
fn write_step(job: &mut Job, actions: &mut ChildActions) -> Next {
    loop {
        let total = match job.steps.front() {
            Some(Step::Frame(kind, payload)) => {
                if !job.has_begun_frame {
                    job.has_begun_frame = job.claim.begin_frame(*kind, payload.len() as u32);
                }
                if job.has_begun_frame {
                    job.written += job.claim.write_payload(&payload[job.written..]);
                }
                // A frame without a payload is written once it has begun.
                payload.len() + usize::from(!job.has_begun_frame)
            }
            Some(Step::Body(body)) => {
                job.written += job.claim.write_body(&body[job.written..]);
                body.len()
            }
            _ => return Next::Step,
        };
        if job.written >= total {
            return Next::Step;
        }
        actions.add_bell(job.claim.publish());
        let wait = job.claim.prepare_wait();
        if !job.claim.has_room() && !job.claim.aborted() {
            job.wait = Some(wait);
            return Next::Wait;
        }
        job.claim.end_wait();
        if job.claim.aborted() {
            return Next::Finished;
        }
    }
}

/// Puts the version that was committed into the response that follows.
fn set_written_version(steps: &mut VecDeque<Step>, version: u64) {
    for step in steps {
        if let Step::Body(body) = step {
            let text = String::from_utf8_lossy(body);
            if let Some((start, _)) = text.split_once(" version ") {
                *body = format!("{start} version {version}\n").into();
            }
        }
    }
}
