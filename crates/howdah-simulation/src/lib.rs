//! Simulates a whole server in one process: the HTTP front, the page cache, and pools with their supervisors run as
//! they do in the product, but their clients, zygotes and children are simulated, and the time is virtual. A seed
//! decides everything else: requests, pieces in which they are sent, deaths and stalls of children, reloads, jumps of
//! the clock. The same seed therefore gives the same events.
//!
//! The simulation extends the model of the fuzzed front (`fuzz/front_checks`). It checks that
//!
//! - the responses on a connection are in order, and each is the one of its request,
//! - no response has a byte of another connection's response,
//! - no page is older than a write or purge that was confirmed before the page was requested,
//! - every request ends within its deadlines, with a response or a closed connection, and a failure has a cause,
//! - no request waits while a child sleeps, and no child publishes a response without waking a sleeping front,
//! - a pool that nothing uses any more ends.
//!
//! Work that runs in threads of its own is not simulated: compression, and the cache's pages on disk. Neither is the
//! fleet: its servers are connected by Valkey, which `howdah-fleet/tests/model` explores with every order of events.
//!
//! - [`world`]: one simulation; [`tasks`]: its tasks.
//! - [`client`]: the clients, and what they check.
//! - [`zygote`], [`child`], [`scripts`]: the processes of a pool.
//! - [`ledger`]: the database, and the faults that excuse a failure.
//! - [`trace`]: the record of events; [`random`]: numbers from a seed.

#![deny(unsafe_code)]

mod child;
mod client;
mod ledger;
#[path = "../../../fuzz/front_checks/model.rs"]
mod model;
mod random;
#[path = "../../../fuzz/front_checks/reader.rs"]
mod reader;
#[path = "../../../fuzz/front_checks/script.rs"]
mod script;
mod scripts;
#[path = "../../../fuzz/front_checks/site.rs"]
mod site;
mod tasks;
mod trace;
mod world;
mod zygote;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, SystemTime};

use howdah_executor::front_thread;
use howdah_os::clock;

pub use trace::Record;
use trace::Trace;

/// The name of the threads in which simulations run.
const THREAD_NAME: &str = "simulation";

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Runs the simulation of a seed. Returns its trace, and the first violation of an invariant if there was one.
pub fn simulate(seed: u64) -> Record {
    // The clock of the page cache, which never goes back, belongs to the process.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    collect_panics();
    let thread = std::thread::Builder::new().name(THREAD_NAME.to_owned());
    let run = thread.spawn(move || run(seed)).expect("a thread");
    run.join().expect("panics of a simulation are caught")
}

fn run(seed: u64) -> Record {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        // All tasks that can run do so before the runtime asks for events.
        .event_interval(1 << 20)
        .build()
        .expect("a runtime");
    front_thread::attach(0);
    let directory = tempfile::tempdir().expect("a directory");
    let trace = runtime.block_on(async {
        clock::simulated::begin(tokio::time::Instant::now().into_std(), next_wall_clock());
        Trace::new(directory.path())
    });
    let simulation = world::simulate(seed, &directory, &trace);
    match catch_unwind(AssertUnwindSafe(|| runtime.block_on(simulation))) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => trace.fail(format_args!("the simulation cannot continue: {error}")),
        Err(_) => trace.fail("the simulation panics"),
    }
    for panic in PANICS.take() {
        trace.fail(panic);
    }
    trace.take()
}

/// Returns when the wall clock of the next simulation begins: later than any earlier simulation of the process can have
/// set it, because the page cache's clock never goes back.
fn next_wall_clock() -> SystemTime {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let days = 100 * NUMBER.fetch_add(1, Ordering::Relaxed);
    SystemTime::UNIX_EPOCH + Duration::from_secs(4_000_000_000 + days * 86_400)
}

/// Makes a panic in a simulation a part of its record. Other threads panic as usual.
fn collect_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            match std::thread::current().name() == Some(THREAD_NAME) {
                true => PANICS.with_borrow_mut(|all| all.push(panic.to_string())),
                false => usual(panic),
            }
        }));
    });
}
