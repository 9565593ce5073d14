//! The life of a child: claim a request, run it, sleep when there is none, leave when asked.
//! Decides nothing about when to be forked or killed: that is the front's.

use howdah_proto::shm::{ChildId, ChildPort, Claim, EXIT_BAILED_OUT, EXIT_BROKEN, Region};

use crate::ffi::{self, Outcome};
use crate::{current_request, sys};

/// Serves requests as `me` until retired or until it has served `max_requests` (0: no limit), as
/// exactly as php-fpm does: applications that leak or keep state count on it. With the last one a
/// replacement is asked for, which is forked while that one runs.
pub fn serve(region: &'static Region, me: ChildId, max_requests: u64) -> ! {
    ffi::php_enter_child();
    let port = ChildPort::enter(region, me);
    // Different children begin at different fronts, and each moves on with every request.
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

/// Claims the next request, asleep until there is one; `None` when this child is to leave. An
/// orphan that sleeps does not come back from here. `rest` is called before each sleep.
pub fn wait_for_claim(port: &ChildPort, turn: &mut u32, rest: impl Fn()) -> Option<Claim> {
    loop {
        if port.must_retire() || sys::orphaned() {
            return None;
        }
        let mut claim = port.claim(*turn);
        if claim.is_none() {
            let (word, seen) = port.park();
            // Announced: whoever publishes or retires from here on wakes us. Look once more.
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
