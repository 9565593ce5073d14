//! Limits how many of a pool's processes may read bodies that are still arriving, under `request_buffering = "auto"`. A
//! client requests that with a field of its form, and a process that waits for a client cannot serve others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of processes that is assumed for a pool if it is unknown.
const ASSUMED_PROCESSES: u32 = 4;

/// A pool's permits for bodies that are still arriving.
#[derive(Debug)]
pub struct StreamPermits {
    in_use: AtomicU32,
    limit: u32,
}

/// A permit for an arriving body to occupy a process, released when it is dropped.
#[derive(Debug)]
pub struct StreamPermit(Arc<StreamPermits>);

impl StreamPermits {
    /// Creates the permits for a pool of `processes`: for a quarter of them, so most of the pool is always free of slow
    /// clients; one for a pool of two or three processes; none if there is only one.
    pub fn for_pool(processes: Option<u32>) -> Arc<StreamPermits> {
        let most = match processes.unwrap_or(ASSUMED_PROCESSES) {
            0 | 1 => 0,
            processes => (processes / 4).max(1),
        };
        Arc::new(StreamPermits {
            in_use: AtomicU32::new(0),
            limit: most,
        })
    }

    /// Acquires a permit, if one is free.
    pub fn try_acquire(self: &Arc<StreamPermits>) -> Option<StreamPermit> {
        let one_more = |taken| (taken < self.limit).then_some(taken + 1);
        let taken = &self.in_use;
        taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .ok()?;
        Some(StreamPermit(self.clone()))
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.in_use.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_permits_cover_a_quarter_of_the_processes() {
        for (processes, most) in [
            (Some(0), 0),
            (Some(1), 0),
            (Some(2), 1),
            (Some(7), 1),
            (Some(16), 4),
            (None, 1),
        ] {
            let streams = StreamPermits::for_pool(processes);
            let mut held: Vec<_> = std::iter::from_fn(|| streams.try_acquire()).collect();
            assert_eq!(held.len(), most, "{processes:?}");
            if held.pop().is_some() {
                assert!(streams.try_acquire().is_some(), "a place comes back");
            }
        }
    }
}
