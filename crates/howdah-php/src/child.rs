//! The life of a child: claim a request, run it, sleep when there is none, leave when asked.
//! Decides nothing about when to be forked or killed: that is the front's.

use howdah_proto::shm::{ChildId, ChildPort, Claim, Region};

use crate::ffi::{self, Outcome};
use crate::{exchange, sys};

/// Exit status of a child whose PHP was left in a state not fit for another request.
pub const EXIT_BROKEN: i32 = 70;

/// Serves requests as `me` until retired; marks itself spent after `max_requests` (0: never).
pub fn serve(region: Region, me: ChildId, max_requests: u64) -> ! {
    ffi::php_enter_child();
    let port = ChildPort::enter(region, me);
    // Different children begin at different fronts, and each moves on with every request.
    let mut turn = u32::from(me.index);
    loop {
        if port.must_retire() || sys::orphaned() {
            sys::leave(0);
        }
        if let Some(claim) = port.claim(turn) {
            turn = turn.wrapping_add(1);
            run(&port, claim, max_requests);
            continue;
        }
        let (word, seen) = port.park();
        // Announced: whoever publishes or retires from here on wakes us. Look once more.
        let claim = if port.must_retire() {
            None
        } else {
            let claim = port.claim(turn);
            if claim.is_none() {
                sys::sleep_idle(word, seen);
            }
            claim
        };
        port.unpark();
        if let Some(claim) = claim {
            run(&port, claim, max_requests);
        }
    }
}

fn run(port: &ChildPort, claim: Claim, max_requests: u64) {
    let now = sys::monotonic_ns();
    port.begin_job(now);
    claim.begun(now);
    let frame = claim.frame();
    exchange::begin(claim);
    let outcome = ffi::php_run(frame);
    if let Outcome::Copy(status) = outcome {
        sys::leave(status);
    }
    let done = port.end_job();
    if outcome == Outcome::Broken {
        sys::leave(EXIT_BROKEN);
    }
    if max_requests != 0 && done >= max_requests {
        port.mark_spent();
    }
}
