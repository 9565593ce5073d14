//! Tests of the balance, with numbers as connections and a manual clock.

use super::*;
use crate::ExecError;
use crate::fastcgi::backend_state::FIRST_LIMIT;

struct BalanceFixture {
    balance: Balance<u32>,
    now: Instant,
}

impl BalanceFixture {
    fn new(weights: &[u32], limit: Option<u32>) -> BalanceFixture {
        BalanceFixture {
            balance: Balance::new(weights, limit, true, 2),
            now: Instant::now(),
        }
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }

    fn enter(&mut self, front: usize) -> BackendAdmission<u32> {
        self.enter_as(front, None)
    }

    fn enter_as(&mut self, front: usize, client: QueueClient) -> BackendAdmission<u32> {
        let mut wake = Vec::new();
        self.balance
            .admit((front, client), false, 10, self.now, &mut wake)
    }

    /// Enters and expects a grant. Returns the backend and its connection.
    fn granted(&mut self, front: usize) -> (usize, Option<u32>) {
        match self.enter(front) {
            BackendAdmission::Granted(grant) => (grant.backend, grant.connection),
            other => panic!("{other:?}"),
        }
    }

    fn waits(&mut self, front: usize) -> Arc<BackendTicket<u32>> {
        match self.enter(front) {
            BackendAdmission::Waits(ticket) => ticket,
            other => panic!("{other:?}"),
        }
    }

    fn release(&mut self, front: usize, backend: usize, connection: Option<u32>) {
        let (now, mut wake) = (self.now, Vec::new());
        self.balance
            .release(front, backend, connection, now, &mut wake);
    }
}

fn grant(ticket: &BackendTicket<u32>) -> Option<(usize, Option<u32>)> {
    let grant = ticket.poll_grant(Waker::noop()).unwrap()?;
    Some((grant.backend, grant.connection))
}

#[test]
fn least_busy_backend_goes_first_and_weights_count() {
    let mut table = BalanceFixture::new(&[1, 2], Some(100));
    let mut counts = [0; 2];
    for _ in 0..30 {
        counts[table.granted(0).0] += 1;
    }
    assert_eq!(counts, [10, 20]);
}

#[test]
fn equally_busy_backends_take_turns() {
    let mut table = BalanceFixture::new(&[1, 1, 1], Some(100));
    let order: Vec<usize> = (0..6).map(|_| table.granted(0).0).collect();
    assert_eq!(order, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn idle_backends_take_turns_as_often_as_their_weights_say() {
    let mut table = BalanceFixture::new(&[1, 3], Some(100));
    let order: Vec<usize> = (0..8)
        .map(|_| {
            let (backend, _) = table.granted(0);
            table.release(0, backend, None);
            backend
        })
        .collect();
    assert_eq!(order, [0, 1, 1, 1, 0, 1, 1, 1]);
}

#[test]
fn backend_limit_holds_and_other_requests_wait_in_order() {
    let mut table = BalanceFixture::new(&[1], Some(2));
    table.granted(0);
    table.granted(0);
    let (first, second) = (table.waits(0), table.waits(0));
    assert_eq!(grant(&first), None);
    table.release(0, 0, None);
    assert_eq!(grant(&second), None);
    assert_eq!(grant(&first), Some((0, None)));
    assert_eq!(table.balance.queued(), 1);
}

#[test]
fn full_queue_refuses() {
    let mut table = BalanceFixture::new(&[1], Some(1));
    table.granted(0);
    let _waiting: Vec<_> = (0..10).map(|_| table.waits(0)).collect();
    assert!(matches!(table.enter(0), BackendAdmission::Full));
}

#[test]
fn clients_take_turns_and_the_one_that_fills_the_queue_makes_room() {
    let client = |last| Some(std::net::IpAddr::from([192, 0, 2, last]));
    let mut table = BalanceFixture::new(&[1], Some(1));
    table.granted(0);
    let waits = |entry| match entry {
        BackendAdmission::Waits(ticket) => ticket,
        other => panic!("{other:?}"),
    };
    let many: Vec<_> = (0..10)
        .map(|_| waits(table.enter_as(0, client(1))))
        .collect();
    assert!(matches!(
        table.enter_as(0, client(1)),
        BackendAdmission::Full
    ));
    // The client's request is on another thread, and comes while the queue is full.
    let visitor = waits(table.enter_as(1, client(2)));
    assert!(matches!(
        many[9].poll_grant(Waker::noop()),
        Err(ExecError::QueueFull)
    ));
    table.release(0, 0, None);
    assert_eq!(grant(&many[0]), Some((0, None)));
    table.release(0, 0, None);
    assert_eq!(grant(&visitor), Some((0, None)));
    table.release(1, 0, None);
    assert_eq!(grant(&many[1]), Some((0, None)));
    assert_eq!(table.balance.queued(), 7);
    for (last, ticket) in (3..6).zip(&many[2..]) {
        waits(table.enter_as(0, client(last)));
        assert_eq!(grant(ticket), None);
    }
    assert_eq!(table.balance.queued(), 10);
    // No request is refused in favour of a client that would have as many.
    for _ in 0..3 {
        waits(table.enter_as(0, client(3)));
    }
    assert!(matches!(
        table.enter_as(0, client(3)),
        BackendAdmission::Full
    ));
}

#[test]
fn kept_connection_is_reused_by_its_own_thread_first() {
    let mut table = BalanceFixture::new(&[1], Some(4));
    for _ in 0..3 {
        table.granted(0);
    }
    table.release(0, 0, Some(7));
    table.release(1, 0, Some(8));
    assert_eq!(table.granted(1), (0, Some(8)));
    assert_eq!(table.granted(0), (0, Some(7)));
    // There is still room for a new connection.
    assert_eq!(table.granted(0), (0, None));
}

#[test]
fn open_connections_stay_within_the_limit_including_kept_ones() {
    let mut table = BalanceFixture::new(&[1], Some(2));
    table.granted(0);
    table.granted(0);
    table.release(0, 0, Some(7));
    table.release(0, 0, Some(8));
    assert_eq!(table.balance.backends[0].kept_count, 2);
    // The other thread takes the connection that has been idle longest instead of opening a third one.
    assert_eq!(table.granted(1), (0, Some(7)));
    // A request that needs a new connection closes that one to make room.
    let entry = table
        .balance
        .admit((1, None), true, 10, table.now, &mut Vec::new());
    assert!(matches!(
        entry,
        BackendAdmission::Granted(BackendGrant {
            connection: None,
            ..
        })
    ));
    assert_eq!(table.balance.backends[0].kept_count, 0);
}

#[test]
fn other_threads_request_goes_first_after_waiting_noticeably_longer() {
    let mut table = BalanceFixture::new(&[1], Some(1));
    table.granted(0);
    let theirs = table.waits(1);
    table.pass(5);
    let (own, more) = (table.waits(0), table.waits(0));
    table.release(0, 0, None);
    assert_eq!(grant(&own), Some((0, None)), "5 ms are not noticeable");
    table.pass(20);
    drop(more);
    let late = table.waits(0);
    table.release(0, 0, None);
    // The first one has waited nearly as long as the other thread's.
    assert_eq!(grant(&late), None);
    assert_eq!(grant(&theirs), None);
    table.release(0, 0, None);
    assert_eq!(grant(&theirs), Some((0, None)));
}

#[test]
fn withdrawn_ticket_returns_its_grant() {
    let mut table = BalanceFixture::new(&[1], Some(1));
    table.granted(0);
    let (first, second) = (table.waits(0), table.waits(0));
    assert!(table.balance.withdraw(&first).is_none());
    table.release(0, 0, None);
    let granted = table.balance.withdraw(&second).expect("it was granted");
    assert_eq!(granted.backend, 0);
    assert_eq!(table.balance.queued(), 0);
}

#[test]
fn connections_are_not_kept_where_the_number_of_processes_is_not_known() {
    let mut table = BalanceFixture::new(&[1], None);
    assert!(!table.balance.may_keep(0));
    table.granted(0);
    table.release(0, 0, Some(7));
    assert_eq!(table.balance.backends[0].kept_count, 0);
    table.balance.record_up(0, Some(3));
    assert!(table.balance.may_keep(0));
    assert_eq!(table.balance.backends[0].limit.now, 3);
}

#[test]
fn configured_limit_is_not_changed_by_the_backends_report() {
    let mut table = BalanceFixture::new(&[1], Some(5));
    table.balance.record_up(0, Some(3));
    assert_eq!(table.balance.backends[0].limit.now, 5);
}

#[test]
fn unknown_limit_grows_with_responses_and_falls_with_overflows() {
    let mut table = BalanceFixture::new(&[1], None);
    let limit = |table: &BalanceFixture| table.balance.backends[0].limit.now;
    for _ in 0..FIRST_LIMIT {
        table.granted(0);
    }
    let _waiting: Vec<_> = (0..4).map(|_| table.waits(0)).collect();
    table.balance.record_success(0, table.now);
    table.balance.record_success(0, table.now);
    assert_eq!(limit(&table), FIRST_LIMIT + 1, "only while all are busy");
    table.balance.record_overflow(0, table.now);
    assert_eq!(limit(&table), FIRST_LIMIT * 3 / 4);
    table.pass(10);
    table.balance.record_success(0, table.now);
    assert_eq!(limit(&table), FIRST_LIMIT * 3 / 4, "not at once");
    table.pass(1000);
    table.balance.record_success(0, table.now);
    assert_eq!(limit(&table), FIRST_LIMIT * 3 / 4 + 1);
}

#[test]
fn connections_are_not_kept_while_a_new_one_is_silent() {
    let mut table = BalanceFixture::new(&[1], Some(4));
    table.granted(0);
    table.granted(0);
    table.balance.record_connect(0, 99, table.now);
    table.pass(200);
    table.release(0, 0, Some(7));
    assert_eq!(table.balance.backends[0].kept_count, 0);
    table.granted(0);
    table.balance.record_first_bytes(0, 99);
    table.release(0, 0, Some(8));
    assert_eq!(table.balance.backends[0].kept_count, 1);
}

#[test]
fn backend_that_is_down_gets_no_requests_until_it_is_up() {
    let mut table = BalanceFixture::new(&[1, 1], Some(10));
    assert!(table.balance.record_down(0, "refused", table.now));
    assert!(
        !table.balance.record_down(0, "refused", table.now),
        "no news"
    );
    assert!((0..4).all(|_| table.granted(0).0 == 1));
    assert!(table.balance.all_down().is_none());
    table.pass(1);
    assert!(table.balance.record_down(1, "gone", table.now));
    assert_eq!(table.balance.all_down().map(|(_, why)| why), Some("gone"));
    let ticket = table.waits(0);
    assert!(table.balance.record_up(0, None));
    let mut wake = Vec::new();
    table.balance.grant_waiting(0, &mut wake);
    assert_eq!(grant(&ticket), Some((0, None)));
}

#[test]
fn backend_that_is_down_is_probed_with_growing_pauses() {
    let mut table = BalanceFixture::new(&[1], Some(1));
    table.balance.record_down(0, "refused", table.now);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let mut pause = 0;
        while table.balance.due(table.now).is_empty() {
            table.pass(10);
            pause += 10;
        }
        pauses.push(pause);
        table.balance.record_failed_probe(0, "refused", table.now);
    }
    assert_eq!(pauses, [50, 100, 200, 400, 800, 1000, 1000, 1000]);
}

#[test]
fn three_failures_in_a_row_take_a_backend_out_but_never_the_last_one() {
    let mut table = BalanceFixture::new(&[1, 1], Some(10));
    assert!(!table.balance.record_failure(0, "nonsense", table.now));
    assert!(!table.balance.record_failure(0, "nonsense", table.now));
    table.balance.record_success(0, table.now);
    assert!(!table.balance.record_failure(0, "nonsense", table.now));
    assert!(!table.balance.record_failure(0, "nonsense", table.now));
    assert!(table.balance.record_failure(0, "nonsense", table.now));
    assert!((0..5).all(|_| !table.balance.record_failure(1, "nonsense", table.now)));
}

#[test]
fn idle_connections_expire() {
    let mut table = BalanceFixture::new(&[1], Some(4));
    table.granted(0);
    table.granted(0);
    table.release(0, 0, Some(7));
    table.pass(100);
    table.release(1, 0, Some(8));
    let before = table.now - Duration::from_millis(50);
    assert_eq!(table.balance.take_expired(Some(before)), [7]);
    assert_eq!(table.balance.backends[0].kept_count, 1);
    assert_eq!(table.balance.take_expired(None), [8]);
}
