//! Tests of which requests get a permit, and which are refused.

use std::sync::Arc;
use std::time::Duration;

use super::slot_queue::{Permit, RequestSummary, SlotQueue};
use crate::ExecError;
use crate::status::PoolStatus;

const LONG_TIMEOUT: Duration = Duration::from_secs(60);

async fn take(places: &Arc<SlotQueue>) -> Result<Permit, ExecError> {
    places
        .acquire(None, RequestSummary::default(), LONG_TIMEOUT)
        .await
}

/// Waits until `n` requests are in the queue.
async fn waiting(places: &Arc<SlotQueue>, n: u32) {
    while places.queue_view().waiting != n {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn least_busy_row_goes_first_and_the_lowest_among_equals() {
    let places = SlotQueue::new(10);
    let small = places.add_row(2, 1);
    let large = places.add_row(4, 2);
    let mut order = Vec::new();
    let mut held = Vec::new();
    for _ in 0..6 {
        let place = take(&places).await.unwrap();
        order.push(place.row());
        held.push(place);
    }
    assert_eq!(order, [small, large, large, small, large, large]);
}

#[tokio::test]
async fn waiting_request_gets_the_next_permit_in_turn() {
    let places = SlotQueue::new(10);
    places.add_row(1, 1);
    let first = take(&places).await.unwrap();
    let mut waiters = Vec::new();
    for n in 1..=2 {
        let places_too = places.clone();
        waiters.push(tokio::spawn(async move { take(&places_too).await }));
        waiting(&places, n).await;
    }
    let third = waiters.pop().unwrap();
    let second = waiters.pop().unwrap();
    drop(first);
    let second = second.await.unwrap().unwrap();
    assert_eq!(places.queue_view().waiting, 1);
    drop(second);
    third.await.unwrap().unwrap();
}

#[tokio::test]
async fn clients_take_turns_and_the_one_that_fills_the_queue_makes_room() {
    let client = |last| Some(std::net::IpAddr::from([192, 0, 2, last]));
    let places = SlotQueue::new(3);
    places.add_row(1, 1);
    let first = take(&places).await.unwrap();
    let start = |last| {
        let places = places.clone();
        tokio::spawn(async move {
            let about = RequestSummary::default();
            places.acquire(client(last), about, LONG_TIMEOUT).await
        })
    };
    let mut many = Vec::new();
    for n in 1..=3 {
        many.push(start(1));
        waiting(&places, n).await;
    }
    let refused = start(1).await.unwrap();
    assert!(matches!(refused, Err(ExecError::QueueFull)));
    let visitor = start(2);
    let refused = many.pop().unwrap().await.unwrap();
    assert!(matches!(refused, Err(ExecError::QueueFull)), "the newest");
    drop(first);
    drop(many.remove(0).await.unwrap().unwrap());
    drop(visitor.await.unwrap().unwrap());
    drop(many.remove(0).await.unwrap().unwrap());
}

#[tokio::test]
async fn full_queue_refuses_until_a_waiting_request_leaves() {
    let places = SlotQueue::new(1);
    places.add_row(1, 1);
    let held = take(&places).await.unwrap();
    let places_too = places.clone();
    let waiter = tokio::spawn(async move { take(&places_too).await });
    waiting(&places, 1).await;
    assert_eq!(take(&places).await.unwrap_err(), ExecError::QueueFull);
    waiter.abort();
    waiting(&places, 0).await;
    let late = places
        .acquire(None, RequestSummary::default(), Duration::from_millis(1))
        .await;
    assert_eq!(late.unwrap_err(), ExecError::QueueTimeout);
    drop(held);
    take(&places).await.unwrap();
}

#[tokio::test]
async fn refusal_reaches_waiting_requests_and_can_be_cleared() {
    let places = SlotQueue::new(10);
    let places_too = places.clone();
    let waiter = tokio::spawn(async move { take(&places_too).await });
    waiting(&places, 1).await;
    places.set_refusal(Some(ExecError::Stopping));
    assert_eq!(waiter.await.unwrap().unwrap_err(), ExecError::Stopping);
    assert_eq!(take(&places).await.unwrap_err(), ExecError::Stopping);
    places.set_refusal(None);
    places.add_row(1, 1);
    take(&places).await.unwrap();
}

#[tokio::test]
async fn scoreboard_shows_busy_rows() {
    let places = SlotQueue::new(10);
    places.add_row(1, 11);
    places.add_row(1, 12);
    let place = take(&places).await.unwrap();
    place.set_pid(4711);
    let mut status = PoolStatus::default();
    places.fill_status(&mut status);
    let rows: Vec<_> = status
        .children
        .iter()
        .map(|row| (row.pid, row.state.as_str()))
        .collect();
    assert_eq!(rows, [(4711, "Busy"), (12, "Idle")]);
    assert_eq!((status.active_processes, status.idle_processes), (1, 1));
}
