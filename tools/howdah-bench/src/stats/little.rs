//! Little's law as a check of the load tester by its own figures. In a closed loop, the number of requests in progress
//! is the throughput times the latency of each. Any missing time was spent in the client, between a response and the
//! next request.

/// A gap above this share means that time was lost in the client.
pub const MAX_GAP: f64 = 0.05;

/// Returns the share of the clients' time that is not in the latencies: 0 for a client that never waits for itself, 0.3
/// if each was idle for three tenths of the run. It is negative if latencies overlap the measured time (a run shorter
/// than its requests).
///
/// `clients` is the concurrency; `per_second` all finished requests per second, good or not; `latency` the mean seconds
/// per request from the send, and `think` the mean seconds of the intended pause between requests. `None` if there is
/// nothing to check.
pub fn gap(clients: f64, per_second: f64, latency: f64, think: f64) -> Option<f64> {
    let gap = 1.0 - per_second * (latency + think) / clients;
    (clients > 0.0 && per_second > 0.0 && gap.is_finite()).then_some(gap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gap_of_a_consistent_run_is_zero() {
        assert!(gap(10.0, 1000.0, 0.010, 0.0).unwrap().abs() < 1e-12);
        assert!((gap(10.0, 700.0, 0.010, 0.0).unwrap() - 0.3).abs() < 1e-12);
    }

    #[test]
    fn gap_excludes_think_time() {
        assert!(gap(10.0, 100.0, 0.010, 0.090).unwrap().abs() < 1e-12);
    }

    #[test]
    fn gap_of_an_empty_run_is_none() {
        assert_eq!(gap(10.0, 0.0, 0.0, 0.0), None);
        assert_eq!(gap(0.0, 1.0, 1.0, 0.0), None);
    }
}
