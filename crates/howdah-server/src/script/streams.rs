//! Limits how many of a pool's processes may read bodies that are still arriving, under `request_buffering = "auto"`. A
//! client requests that with a field of its form, and a process that waits for a client cannot serve others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of processes that is assumed for a pool whose number is not known.
const FEW: u32 = 4;

/// A pool's permits for bodies that are still arriving.
#[derive(Debug)]
pub struct Streams {
    taken: AtomicU32,
    most: u32,
}

/// A permit for an arriving body to occupy a process, released when it is dropped.
#[derive(Debug)]
pub struct StreamPlace(Arc<Streams>);

impl Streams {
    /// Creates the permits for a pool of `processes`: for a quarter of them, so most of the pool is always free of slow
    /// clients; one for a pool of two or three processes; none if there is only one.
    pub fn of(processes: Option<u32>) -> Arc<Streams> {
        let most = match processes.unwrap_or(FEW) {
            0 | 1 => 0,
            processes => (processes / 4).max(1),
        };
        Arc::new(Streams {
            taken: AtomicU32::new(0),
            most,
        })
    }

    /// Acquires a permit, if one is free.
    pub fn take(self: &Arc<Streams>) -> Option<StreamPlace> {
        let one_more = |taken| (taken < self.most).then_some(taken + 1);
        let taken = &self.taken;
        taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .ok()?;
        Some(StreamPlace(self.clone()))
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_a_quarter_of_the_processes_is_held() {
        for (processes, most) in [
            (Some(0), 0),
            (Some(1), 0),
            (Some(2), 1),
            (Some(7), 1),
            (Some(16), 4),
            (None, 1),
        ] {
            let streams = Streams::of(processes);
            let mut held: Vec<_> = std::iter::from_fn(|| streams.take()).collect();
            assert_eq!(held.len(), most, "{processes:?}");
            if held.pop().is_some() {
                assert!(streams.take().is_some(), "a place comes back");
            }
        }
    }
}
