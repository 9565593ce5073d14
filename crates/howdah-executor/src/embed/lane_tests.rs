//! Tests of how exchanges leave a lane, step by step on one thread. The test plays the child, so events that race
//! between processes otherwise have a fixed order here.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use howdah_proto::control::Exit;
use howdah_proto::level::LogLevel;
use howdah_proto::request::{FrameBuilder, RequestFrame};
use howdah_proto::response::{encode_head, kind};
use howdah_proto::shm::{ChildId, ChildPort, RequestClaim};
use howdah_proto::variables::Var;

use super::body::BodyFeed;
use super::in_flight::InFlightRequest;
use super::lane::LostRequests;
use super::run::{EmbedRun, LaneHandle};
use super::shared::EmbedShared;
use crate::common::fair_queue::QueueClient;
use crate::common::sys;
use crate::config::{PoolConfig, ProcessManager, ProcessTimeouts};
use crate::{ExecError, PhpProgram, RunEvent, ScriptBody, ScriptLog, ScriptRun};

const CHILD: ChildId = ChildId {
    index: 0,
    incarnation: 1,
};
const DIED: ExecError = ExecError::ChildDied(Exit::Signal(9));

#[derive(Default)]
struct LoggedLines(Mutex<Vec<String>>);

impl ScriptLog for LoggedLines {
    fn script(&self, _: &str, _: u64, _: &RequestFrame, _: LogLevel, message: &[u8]) {
        let text = String::from_utf8_lossy(message).into_owned();
        self.0.lock().unwrap().push(text);
    }

    fn pool(&self, _: &str, _: LogLevel, name: &str, _: &str) {
        panic!("nothing happens to the pool itself, but: {name}");
    }
}

/// A pool without processes: one lane, and one child that the test plays.
struct LaneFixture {
    home: Arc<LaneHandle>,
    log: Arc<LoggedLines>,
    child: ChildPort,
}

impl LaneFixture {
    fn new() -> LaneFixture {
        let config = PoolConfig {
            name: "test".to_owned(),
            program: PhpProgram::default(),
            pm: ProcessManager::Static,
            max_children: 1,
            process_idle_timeout: Duration::from_secs(10),
            max_requests: 0,
            max_memory: None,
            shared_cache: None,
            queue_size: 100,
            queue_timeout: Duration::from_secs(10),
            request_terminate_timeout: None,
            track_finished: false,
            request_slowlog_timeout: None,
            php_ini: None,
            defines: Vec::new(),
            opcache: true,
            user: None,
            group: None,
            environment: Vec::new(),
            clear_env: false,
            watch: Vec::new(),
            worker: None,
            timeouts: ProcessTimeouts::for_tests(),
        };
        let log = Arc::new(LoggedLines::default());
        let shared = Arc::new(EmbedShared::new(config, log.clone(), 1).unwrap());
        shared.pool.port.prepare_row(CHILD);
        let child = ChildPort::enter(Box::leak(Box::new(shared.memory.region().clone())), CHILD);
        let home = Arc::new(LaneHandle { shared, front: 0 });
        LaneFixture { home, log, child }
    }

    /// Starts a request, which the child claims.
    fn claimed(&self) -> (EmbedRun, RequestClaim) {
        let run = self.start();
        (run, self.child.claim(0).expect("a request is there"))
    }

    fn start(&self) -> EmbedRun {
        self.start_for(None).unwrap()
    }

    fn start_for(&self, client: QueueClient) -> Result<EmbedRun, ExecError> {
        let mut frame = FrameBuilder::new(Vec::new());
        frame.var(Var::RequestUri, b"/");
        let frame = frame.finish(Some(0), 0).unwrap();
        self.home.shared.admit(0, client)?;
        let in_flight = Arc::new(InFlightRequest::new(
            1,
            frame,
            sys::now_ns(),
            true,
            client,
            None,
            None,
        ));
        self.home
            .lane()
            .submit(&self.home.shared.pool, in_flight.clone());
        let body = BodyFeed::new(ScriptBody::Empty);
        Ok(EmbedRun::new(self.home.clone(), in_flight, body))
    }

    /// Lets the child claim a request and respond to it. Returns the index of that request in `runs`.
    fn answer_one(&self, runs: &mut [EmbedRun]) -> usize {
        let mut claim = self.child.claim(0).expect("a request is there");
        answer(&mut claim);
        let _ = claim.done();
        self.take_notified();
        let answered = runs.iter_mut().map(|run| poll(run).1.is_ready());
        answered
            .enumerate()
            .filter(|(_, is)| *is)
            .map(|(at, _)| at)
            .last()
            .unwrap()
    }

    fn take_notified(&self) -> bool {
        self.home
            .lane()
            .handle_notifications(&self.home.shared.pool)
    }

    /// Does what the supervisor does when it has reaped the child. Returns what was lost with it.
    fn reap(&self) -> LostRequests {
        self.home
            .lane()
            .end_child_requests(&self.home.shared.pool, CHILD, &DIED)
    }

    #[track_caller]
    fn assert_empty(&self) {
        assert!(self.home.lane().is_empty());
        let shared = &self.home.shared;
        assert_eq!(shared.pool.outstanding.load(Ordering::SeqCst), 0);
        assert_eq!(shared.sum(|c| &c.accepted), 1);
    }
}

fn write_head(claim: &mut RequestClaim) {
    let mut head = Vec::new();
    encode_head(&mut head, 200, b"", std::iter::empty());
    assert!(claim.begin_frame(kind::HEAD, head.len() as u32));
    assert_eq!(claim.write_payload(&head), head.len());
}

/// Writes a complete response with the body `hello`.
fn answer(claim: &mut RequestClaim) {
    write_head(claim);
    assert_eq!(claim.write_body(b"hello"), 5);
}

/// Polls to the end, or as far as possible. Returns the body and how it ended.
fn poll(run: &mut EmbedRun) -> (Vec<u8>, Poll<Result<(), ExecError>>) {
    let mut cx = Context::from_waker(Waker::noop());
    let mut body = Vec::new();
    loop {
        match run.poll_event(&mut cx) {
            Poll::Ready(Ok(RunEvent::Body(bytes))) => body.extend_from_slice(&bytes),
            Poll::Ready(Ok(RunEvent::End)) => return (body, Poll::Ready(Ok(()))),
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => return (body, Poll::Ready(Err(error))),
            Poll::Pending => return (body, Poll::Pending),
        }
    }
}

/// Regression test: a child that returned its slot and exited at once was reaped before the front checked the slot. The
/// request was counted as lost, and its client got a 502 for a complete response.
#[test]
fn done_slot_keeps_its_response_although_its_child_exited_before_the_check() {
    let bench = LaneFixture::new();
    let (mut run, mut claim) = bench.claimed();
    // The front has seen the child at work, as it does with a response that arrives in pieces.
    write_head(&mut claim);
    let _ = claim.publish();
    assert_eq!(poll(&mut run), (vec![], Poll::Pending));
    assert_eq!(claim.write_body(b"hello"), 5);
    let _ = claim.done();

    assert_eq!(bench.reap(), LostRequests::default(), "nothing is lost");
    assert_eq!(poll(&mut run), (b"hello".to_vec(), Poll::Ready(Ok(()))));
    bench.assert_empty();
    // The child's notification is still there, and has no effect any more.
    assert!(bench.take_notified());
    bench.assert_empty();
}

/// The same for a child that the front never saw at work, because its whole response arrived between two checks.
#[test]
fn done_slot_of_a_child_never_seen_is_released_when_the_child_is_reaped() {
    let bench = LaneFixture::new();
    let (mut run, mut claim) = bench.claimed();
    // The child is killed after its last byte and before the notification, so nothing else makes the front check the
    // slot.
    answer(&mut claim);
    let _ = claim.done();
    assert_eq!(bench.reap(), LostRequests::default());
    assert!(bench.home.lane().is_empty());
    assert_eq!(poll(&mut run), (b"hello".to_vec(), Poll::Ready(Ok(()))));
    assert_eq!(run.timing().child, Some(CHILD.index));
    bench.assert_empty();
}

#[test]
fn child_reaped_after_its_slot_was_checked_loses_no_request() {
    let bench = LaneFixture::new();
    let (mut run, mut claim) = bench.claimed();
    answer(&mut claim);
    let _ = claim.done();
    assert!(bench.take_notified());
    assert_eq!(bench.reap(), LostRequests::default());
    assert_eq!(poll(&mut run), (b"hello".to_vec(), Poll::Ready(Ok(()))));
    bench.assert_empty();
}

#[test]
fn dead_childs_request_gets_the_published_bytes_and_then_the_failure() {
    let bench = LaneFixture::new();
    let (mut run, mut claim) = bench.claimed();
    answer(&mut claim);
    let _ = claim.publish();
    let lost = LostRequests {
        requests: 1,
        has_waiting_run: true,
    };
    assert_eq!(bench.reap(), lost);
    assert_eq!(poll(&mut run), (b"hello".to_vec(), Poll::Ready(Err(DIED))));
    bench.assert_empty();
}

#[test]
fn log_messages_of_a_dead_child_are_logged_although_its_client_had_left() {
    let bench = LaneFixture::new();
    let (run, mut claim) = bench.claimed();
    drop(run);
    assert!(claim.aborted());
    assert!(claim.begin_frame(kind::LOG, 4 + 6));
    assert_eq!(claim.write_payload(&3u32.to_ne_bytes()), 4);
    assert_eq!(claim.write_payload(b"beware"), 6);
    let _ = claim.publish();
    let lost = LostRequests {
        requests: 1,
        has_waiting_run: false,
    };
    assert_eq!(bench.reap(), lost);
    assert_eq!(*bench.log.0.lock().unwrap(), ["beware"]);
    bench.assert_empty();
}

/// Regression test: the end of a quick script after `fastcgi_finish_request()` arrives together with its response. Its
/// log messages and the database writes that it reported were lost.
#[test]
fn frames_arriving_with_the_end_of_a_response_are_read() {
    let bench = LaneFixture::new();
    let (mut run, mut claim) = bench.claimed();
    answer(&mut claim);
    assert!(claim.begin_frame(kind::FINISH, 0));
    assert!(claim.begin_frame(kind::LOG, 4 + 5));
    assert_eq!(claim.write_payload(&3u32.to_ne_bytes()), 4);
    assert_eq!(claim.write_payload(b"after"), 5);
    let _ = claim.done();
    assert_eq!(poll(&mut run), (b"hello".to_vec(), Poll::Ready(Ok(()))));
    assert_eq!(*bench.log.0.lock().unwrap(), ["after"]);
    bench.assert_empty();
}

#[test]
fn unclaimed_request_is_taken_back_with_its_verdict_and_frees_its_slot() {
    let bench = LaneFixture::new();
    let (shared, lane) = (&bench.home.shared, bench.home.lane());
    let slots = lane.port.slots();
    let mut runs: Vec<EmbedRun> = Vec::new();
    assert!(shared.capacity > slots, "some wait in the queue");
    for _ in 0..shared.capacity {
        runs.push(bench.start());
    }
    assert_eq!(lane.unclaimed(), shared.capacity);
    lane.refuse_unclaimed(&shared.pool, &ExecError::QueueTimeout, |_| true);
    for run in &mut runs {
        assert_eq!(
            poll(run),
            (vec![], Poll::Ready(Err(ExecError::QueueTimeout)))
        );
    }
    assert!(lane.is_empty());
    assert_eq!(shared.sum(|c| &c.accepted), 0, "no child had any");
    // All slots are free again.
    let (mut run, mut claim) = bench.claimed();
    answer(&mut claim);
    let _ = claim.done();
    assert_eq!(poll(&mut run), (b"hello".to_vec(), Poll::Ready(Ok(()))));
    bench.assert_empty();
}

#[test]
fn requests_offered_ahead_are_taken_back_for_another_client() {
    let bench = LaneFixture::new();
    let client = |last| Some(std::net::IpAddr::from([192, 0, 2, last]));
    let lane = bench.home.lane();
    let mut runs: Vec<EmbedRun> = (0..101)
        .map(|_| bench.start_for(client(1)).unwrap())
        .collect();
    assert_eq!(lane.unclaimed(), bench.home.shared.capacity);
    // The queue is full. Another request of the same client is refused. A request of another client is accepted, and
    // the newest request of the first client is refused in its favour.
    assert!(matches!(
        bench.start_for(client(1)),
        Err(ExecError::QueueFull)
    ));
    for _ in 0..2 {
        runs.push(bench.start_for(client(2)).unwrap());
    }
    for refused in [99, 100] {
        assert_eq!(
            poll(&mut runs[refused]),
            (vec![], Poll::Ready(Err(ExecError::QueueFull)))
        );
    }
    let mut left: Vec<usize> = (0..runs.len()).collect();
    let mut order = Vec::new();
    runs.drain(99..101);
    left.drain(99..101);
    for _ in 0..6 {
        let at = bench.answer_one(&mut runs);
        runs.remove(at);
        order.push(left.remove(at));
    }
    // One is offered ahead, and then the clients take turns.
    assert_eq!(order, [0, 1, 101, 2, 102, 3]);
    while !runs.is_empty() {
        let at = bench.answer_one(&mut runs);
        runs.remove(at);
    }
    assert!(lane.is_empty());
}
