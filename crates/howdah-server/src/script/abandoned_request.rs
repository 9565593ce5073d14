//! Requests that have arrived completely and whose clients disconnect before a process has started on them.
//!
//! Applications send requests to their own site and close the connection at once: WordPress' cron, Action Scheduler,
//! background processing. Such a request is meant to be run, as nginx with php-fpm and Apache run it. A request whose
//! method is safe (RFC 9110 §9.2.1: GET, HEAD, OPTIONS, TRACE) asks for nothing but its response, so it can be dropped.
//! The number of such requests is limited for each client, because a client could otherwise fill a pool's queue with
//! requests for which it holds no connection open.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Sleep, sleep};

/// The maximum number of requests that one client may leave in the queues of a front thread.
const MAX_ABANDONED_PER_CLIENT: u32 = 32;
/// How often a request is checked for whether a process has started on it.
const CLAIM_CHECK_INTERVAL: Duration = Duration::from_millis(20);

thread_local! {
    static LEFT: RefCell<HashMap<Option<IpAddr>, u32>> = RefCell::default();
}

/// A request that is run although its client has disconnected.
#[derive(Debug)]
pub struct AbandonedRequest {
    client: Option<IpAddr>,
    counted: bool,
    next_check: Option<Pin<Box<Sleep>>>,
}

/// Returns whether a request with this method is run although its client has disconnected.
pub fn runs_without_client(method: &[u8]) -> bool {
    !matches!(method, b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE")
}

impl AbandonedRequest {
    /// Creates the state for a request of this client (an address, or an IPv6 network that counts as one).
    pub fn of_client(client: Option<IpAddr>) -> AbandonedRequest {
        AbandonedRequest {
            client,
            counted: false,
            next_check: None,
        }
    }

    /// Returns whether the request, whose client has disconnected, stays in the queue. The task is woken to check
    /// again, because there is no other notice when a process starts on a request.
    pub fn stays_queued(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.counted {
            let has_room = LEFT.with_borrow_mut(|left| {
                let count = left.entry(self.client).or_default();
                let has_room = *count < MAX_ABANDONED_PER_CLIENT;
                *count += u32::from(has_room);
                has_room
            });
            if !has_room {
                return false;
            }
            self.counted = true;
        }
        loop {
            let look = self
                .next_check
                .get_or_insert_with(|| Box::pin(sleep(CLAIM_CHECK_INTERVAL)));
            if look.as_mut().poll(cx).is_pending() {
                return true;
            }
            self.next_check = None;
        }
    }
}

impl Drop for AbandonedRequest {
    fn drop(&mut self) {
        if self.counted {
            LEFT.with_borrow_mut(|left| {
                if let Some(count) = left.get_mut(&self.client) {
                    *count -= 1;
                    if *count == 0 {
                        left.remove(&self.client);
                    }
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[tokio::test]
    async fn abandoned_requests_are_limited_per_client() {
        let mut cx = Context::from_waker(Waker::noop());
        let client = |last: u8| Some(IpAddr::from([192, 0, 2, last]));
        let mut left: Vec<_> = (0..MAX_ABANDONED_PER_CLIENT)
            .map(|_| AbandonedRequest::of_client(client(1)))
            .collect();
        assert!(left.iter_mut().all(|one| one.stays_queued(&mut cx)));
        let mut more = AbandonedRequest::of_client(client(1));
        assert!(!more.stays_queued(&mut cx), "the client has left too many");
        assert!(AbandonedRequest::of_client(client(2)).stays_queued(&mut cx));
        left.pop();
        assert!(more.stays_queued(&mut cx), "one of them has been run");
        assert!(
            left.iter_mut().all(|one| one.stays_queued(&mut cx)),
            "none counts twice"
        );
    }
}
