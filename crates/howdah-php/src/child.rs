//! The life of a child: claim a request, run it, sleep when there is none, exit when asked to. The front, not this
//! module, decides when a child is forked or killed.

use howdah_proto::shm::{ChildId, ChildPort, Claim, EXIT_BAILED_OUT, EXIT_BROKEN, Region};

use crate::ffi::{self, Outcome};
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
    while let Some(claim) = wait_for_claim(&port, &mut turn, ffi::php_rest) {
        served += 1;
        let last = served == max_requests;
        if last {
            ask_for_replacement(&port);
        }
        let outcome = run(&port, claim);
        if outcome == Outcome::BailedOut {
            port.leave();
            sys::leave(EXIT_BAILED_OUT);
        }
        if last {
            break;
        }
    }
    port.leave();
    sys::leave(0)
}

/// Tells the supervisor that this child has begun, or is about to begin, its last request.
pub fn ask_for_replacement(port: &ChildPort) {
    port.mark_spent();
    current_request::ring_supervisor(port.fronts());
}

/// Claims the next request and sleeps until there is one. Returns `None` when this child must exit. If the zygote dies
/// while the child sleeps, the process exits without returning from here. `rest` is called before each sleep.
pub fn wait_for_claim(port: &ChildPort, turn: &mut u32, rest: impl Fn()) -> Option<Claim> {
    loop {
        if port.must_retire() || sys::orphaned() {
            return None;
        }
        let mut claim = port.claim(*turn);
        if claim.is_none() {
            let (word, seen) = port.park();
            // The sleep is announced, so any process that publishes a request or retires this child from now on wakes
            // it. Check once more for what happened before.
            if !port.must_retire() {
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

fn run(port: &ChildPort, claim: Claim) -> Outcome {
    let now = sys::monotonic_ns();
    port.begin_job(now);
    claim.begun(now);
    let outcome = ffi::php_run(claim);
    if let Outcome::Copy(status) = outcome {
        sys::leave(status);
    }
    if outcome == Outcome::BailedOut {
        ask_for_replacement(port);
    }
    port.end_job();
    if outcome == Outcome::Broken {
        sys::leave(EXIT_BROKEN);
    }
    outcome
}
