//! Runs `wrk` against one address and reads its report. The load comes from a program that shares no code with any of
//! the servers measured here.

use std::net::SocketAddr;
use std::process::Command;

/// A load: the target, the number of connections and the duration.
#[derive(Clone, Debug)]
pub struct WrkLoad {
    /// Request target.
    pub target: String,
    /// Keep-alive connections, each with one request in flight.
    pub connections: u32,
    /// The duration in seconds.
    pub seconds: u32,
}

/// Runs `load` against `address` and returns the good responses per second; responses with an error status are
/// subtracted.
///
/// # Panics
/// If `wrk` is not installed or its report cannot be read; the message contains its output.
pub fn run(address: SocketAddr, load: &WrkLoad) -> f64 {
    let output = Command::new("wrk")
        .args(["-t1", "--timeout", "30s"])
        .arg(format!("-c{}", load.connections))
        .arg(format!("-d{}s", load.seconds))
        .arg(format!("http://{address}{}", load.target))
        .output()
        .unwrap_or_else(|error| panic!("cannot run wrk (Debian package `wrk`): {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    parse(&text).unwrap_or_else(|| {
        panic!(
            "wrk against {address} gave no report:\n{text}{}",
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

fn parse(text: &str) -> Option<f64> {
    let after = |label: &str| {
        let line = text.lines().find(|l| l.trim_start().starts_with(label))?;
        line.trim_start()[label.len()..].trim().parse::<f64>().ok()
    };
    let total = text.lines().find(|l| l.contains(" requests in "))?;
    let total: f64 = total.split_whitespace().next()?.parse().ok()?;
    let bad = after("Non-2xx or 3xx responses:").unwrap_or(0.0);
    let good = (total - bad) / total.max(1.0);
    Some(after("Requests/sec:")? * good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_pages_are_taken_off_the_rate() {
        let report = "Running 1s test @ http://127.0.0.1:1/\n  1 threads and 10 connections\n  \
                      1000 requests in 1.00s, 1.00MB read\n  Non-2xx or 3xx responses: 250\n\
                      Requests/sec:   1000.00\nTransfer/sec:      1.00MB\n";
        assert_eq!(parse(report), Some(750.0));
    }
}
