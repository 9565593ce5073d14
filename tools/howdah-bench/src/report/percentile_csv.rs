//! Ab's `-e` file: for every per cent of the requests, the milliseconds within which they were served. The header, rows
//! 0 to 100 and three decimals are ab's. The values are of good responses and come from a histogram, so they are within
//! 0.1 % of ab's.

use std::io::{self, Write};

use crate::run::Run;

/// Writes the percentiles of the run's good responses.
pub fn write(run: &Run, out: &mut impl Write) -> io::Result<()> {
    let latency = run.latency();
    out.write_all(b"Percentage served,Time in ms\n")?;
    for percent in 0..=100 {
        let nanoseconds = match percent {
            0 => latency.min(),
            100 => latency.max(),
            _ => latency.quantile(f64::from(percent) / 100.0),
        };
        writeln!(out, "{percent},{:.3}", nanoseconds as f64 / 1e6)?;
    }
    Ok(())
}
