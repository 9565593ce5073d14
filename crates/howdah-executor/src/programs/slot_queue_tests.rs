//! Tests of which requests get a permit, and which are refused.

use std::sync::Arc;
use std::time::Duration;

use super::slot_queue::{Permit, RequestSummary, SlotQueue};
use crate::ExecError;
use crate::status::PoolStatus;

const LONG: Duration = Duration::from_secs(60);

async fn take(places: &Arc<SlotQueue>) -> Result<Permit, ExecError> {
    places.take(None, RequestSummary::default(), LONG).await
}

/// Waits until `n` requests are in the queue.
async fn waiting(places: &Arc<SlotQueue>, n: u32) {
    while places.queue().waiting != n {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_least_busy_row_goes_first_and_the_lowest_of_equals() {
    let places = SlotQueue::new(10);
    let small = places.open(2, 1);
    let large = places.open(4, 2);
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
async fn who_waits_gets_the_next_free_place_in_turn() {
    let places = SlotQueue::new(10);
    places.open(1, 1);
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
    assert_eq!(places.queue().waiting, 1);
    drop(second);
    third.await.unwrap().unwrap();
}

#[tokio::test]
async fn clients_take_turns_and_who_fills_the_queue_makes_room() {
    let client = |last| Some(std::net::IpAddr::from([192, 0, 2, last]));
    let places = SlotQueue::new(3);
    places.open(1, 1);
    let first = take(&places).await.unwrap();
    let start = |last| {
        let places = places.clone();
        tokio::spawn(async move {
            let about = RequestSummary::default();
            places.take(client(last), about, LONG).await
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
async fn a_full_queue_refuses_and_who_left_it_makes_room() {
    let places = SlotQueue::new(1);
    places.open(1, 1);
    let held = take(&places).await.unwrap();
    let places_too = places.clone();
    let waiter = tokio::spawn(async move { take(&places_too).await });
    waiting(&places, 1).await;
    assert_eq!(take(&places).await.unwrap_err(), ExecError::QueueFull);
    waiter.abort();
    waiting(&places, 0).await;
    let late = places
        .take(None, RequestSummary::default(), Duration::from_millis(1))
        .await;
    assert_eq!(late.unwrap_err(), ExecError::QueueTimeout);
    drop(held);
    take(&places).await.unwrap();
}

#[tokio::test]
async fn a_refusal_reaches_those_who_wait_and_ends_with_its_reason() {
    let places = SlotQueue::new(10);
    let places_too = places.clone();
    let waiter = tokio::spawn(async move { take(&places_too).await });
    waiting(&places, 1).await;
    places.refuse(Some(ExecError::Stopping));
    assert_eq!(waiter.await.unwrap().unwrap_err(), ExecError::Stopping);
    assert_eq!(take(&places).await.unwrap_err(), ExecError::Stopping);
    places.refuse(None);
    places.open(1, 1);
    take(&places).await.unwrap();
}

#[tokio::test]
async fn the_scoreboard_tells_who_is_busy() {
    let places = SlotQueue::new(10);
    places.open(1, 11);
    places.open(1, 12);
    let place = take(&places).await.unwrap();
    place.set_pid(4711);
    let mut status = PoolStatus::default();
    places.fill(&mut status);
    let rows: Vec<_> = status
        .children
        .iter()
        .map(|row| (row.pid, row.state.as_str()))
        .collect();
    assert_eq!(rows, [(4711, "Busy"), (12, "Idle")]);
    assert_eq!((status.active_processes, status.idle_processes), (1, 1));
}
