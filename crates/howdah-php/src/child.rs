//! The life of a child: claim a request, run it, sleep when there is none, exit when asked to. The front, not this
//! module, decides when a child is forked or killed.

use howdah_proto::shm::{ChildId, ChildPort, EXIT_BAILED_OUT, EXIT_BROKEN, Region, RequestClaim};

use crate::ffi::{self, RunOutcome};
use crate::{current_request, sys};

/// Serves requests as `me` until the child is retired or has served `max_requests` (0: no limit). The limit is as exact
/// as php-fpm's, because applications that leak memory or keep state rely on it. Before the last request the child asks
/// for a replacement, which is forked while that request runs.
pub fn serve(region: &'static Region, me: ChildId, max_requests: u64) -> ! {
    ffi::php_enter_child();
    let port = ChildPort::enter(region, me);
    // Each child begins at a different front thread and moves on to the next one with every request.
    let mut turn = u32::from(me.index);
    let mut served = 0;
    while let Some(claim) = wait_for_claim(&port, &mut turn, ffi::php_release_before_sleep) {
        served += 1;
        let last = served == max_requests;
        if last {
            request_replacement(&port);
        }
        let outcome = run(&port, claim);
        if outcome == RunOutcome::BailedOut {
            port.leave();
            sys::exit_now(EXIT_BAILED_OUT);
        }
        if last {
            break;
        }
    }
    port.leave();
    sys::exit_now(0)
}

/// Tells the supervisor that this child has begun, or is about to begin, its last request.
pub fn request_replacement(port: &ChildPort) {
    port.mark_spent();
    current_request::ring_supervisor(port.fronts());
}

/// Claims the next request and sleeps until there is one. Returns `None` when this child must exit. If the zygote dies
/// while the child sleeps, the process exits without returning from here. `rest` is called before each sleep.
pub fn wait_for_claim(port: &ChildPort, turn: &mut u32, rest: impl Fn()) -> Option<RequestClaim> {
    loop {
        if port.is_retiring() || sys::is_orphaned() {
            return None;
        }
        let mut claim = port.claim(*turn);
        if claim.is_none() {
            let (word, seen) = port.park();
            // `park` has announced the sleep, so any process that publishes a request or retires this child from now on
            // wakes it. The child must check again in case one of these happened before the announcement.
            if !port.is_retiring() {
                claim = port.claim(*turn);
                if claim.is_none() {
                    rest();
                    sys::sleep_idle(word, seen);
                }
            }
            port.unpark();
        }
        if claim.is_some() {
            *turn = turn.wrapping_add(1);
            return claim;
        }
    }
}

fn run(port: &ChildPort, claim: RequestClaim) -> RunOutcome {
    let now = sys::monotonic_ns();
    port.begin_job(now);
    claim.record_begin(now);
    let outcome = ffi::php_run(claim);
    if let RunOutcome::ScriptFork(status) = outcome {
        sys::exit_now(status);
    }
    if outcome == RunOutcome::BailedOut {
        request_replacement(port);
    }
    port.end_job();
    if outcome == RunOutcome::Broken {
        sys::exit_now(EXIT_BROKEN);
    }
    outcome
}
