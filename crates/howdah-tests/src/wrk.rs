//! Runs `wrk` against one address and reads its report. The load comes from a program that shares
//! no code with any server measured here.

use std::net::SocketAddr;
use std::process::Command;

use crate::process_tree;

/// One load: what is asked, by how many at once, for how long.
#[derive(Clone, Debug)]
pub struct Load {
    /// Request target.
    pub target: String,
    /// Keep-alive connections, each with one request in flight.
    pub connections: u32,
    /// Length in seconds.
    pub seconds: u32,
    /// `Host` header, where the site wants a certain one.
    pub host: Option<String>,
}

/// What `wrk` reported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Good responses per second: those with an error status are taken off.
    pub good_per_second: f64,
    /// Median latency in milliseconds.
    pub p50: f64,
    /// 99th percentile in milliseconds.
    pub p99: f64,
    /// Non-2xx/3xx responses, connect, read, write errors and time-outs.
    pub errors: u64,
    /// How much of a core `wrk` itself used. Its one thread is at its end near 1: the server could more.
    pub generator: f64,
}

/// Runs `load` against `address`.
///
/// # Panics
/// If `wrk` is not installed or its report cannot be read; the message has its output.
pub fn run(address: SocketAddr, load: &Load) -> Report {
    run_with(address, load, &[])
}

/// [`run`] with further arguments for `wrk`: `-H FIELD`, `-s SCRIPT`.
///
/// # Panics
/// As [`run`].
pub fn run_with(address: SocketAddr, load: &Load, arguments: &[&str]) -> Report {
    let mut command = Command::new("wrk");
    command
        .args(["-t1", "--latency", "--timeout", "30s"])
        .arg(format!("-c{}", load.connections))
        .arg(format!("-d{}s", load.seconds));
    if let Some(host) = &load.host {
        command.arg("-H").arg(format!("Host: {host}"));
    }
    command.args(arguments);
    command.arg(format!("http://{address}{}", load.target));
    let before = process_tree::ended_children_ticks();
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("cannot run wrk (Debian package `wrk`): {error}"));
    // A tick is 10 ms.
    let used = (process_tree::ended_children_ticks() - before) as f64 / 100.0;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let report = parse(&text).map(|report| Report {
        generator: used / f64::from(load.seconds.max(1)),
        ..report
    });
    report.unwrap_or_else(|| {
        panic!(
            "wrk against {address} gave no report:\n{text}{}",
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

fn parse(text: &str) -> Option<Report> {
    let after = |label: &str| {
        let line = text.lines().find(|l| l.trim_start().starts_with(label))?;
        Some(line.trim_start()[label.len()..].trim().to_owned())
    };
    let total: f64 = text
        .lines()
        .find(|l| l.contains(" requests in "))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()?;
    let rate: f64 = after("Requests/sec:")?.parse().ok()?;
    let bad: u64 = after("Non-2xx or 3xx responses:").map_or(Some(0), |n| n.parse().ok())?;
    let socket: u64 = after("Socket errors:").map_or(Some(0), |list| {
        list.split(',')
            .map(|part| part.split_whitespace().last()?.parse::<u64>().ok())
            .sum()
    })?;
    let good = if total > 0.0 {
        (total - bad as f64) / total
    } else {
        0.0
    };
    Some(Report {
        good_per_second: rate * good,
        p50: milliseconds(&after("50%")?)?,
        p99: milliseconds(&after("99%")?)?,
        errors: bad + socket,
        generator: 0.0,
    })
}

fn milliseconds(text: &str) -> Option<f64> {
    let units = [("us", 0.001), ("ms", 1.0), ("s", 1000.0), ("m", 60_000.0)];
    let (number, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_pages_are_taken_off_the_rate() {
        let report = parse(
            "Running 1s test @ http://127.0.0.1:1/\n  1 threads and 10 connections\n  \
             Latency Distribution\n     50%  250.00us\n     75%  1.00ms\n     90%  2.00ms\n     \
             99%    1.50s \n  1000 requests in 1.00s, 1.00MB read\n  \
             Socket errors: connect 0, read 3, write 0, timeout 2\n  \
             Non-2xx or 3xx responses: 250\nRequests/sec:   1000.00\nTransfer/sec:      1.00MB\n",
        )
        .unwrap();
        let expected = Report {
            good_per_second: 750.0,
            p50: 0.25,
            p99: 1500.0,
            errors: 255,
            generator: 0.0,
        };
        assert_eq!(report, expected);
    }
}
