//! What unit tests of this crate share.

#[path = "../../howdah-site/src/testing.rs"]
mod request_head;

pub use request_head::request;

/// Runs a future that needs no reactor to completion.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(future)
}
