//! `--hdr-log`: HdrHistogram's interval log, version 1.3, a line per second with the V2 compressed histogram of its
//! good responses. It can be read by HistogramLogProcessor, HistogramLogAnalyzer, hdr-plot and other tools of that
//! family. Values are nanoseconds; the last column is in milliseconds.

use std::io::{self, Write};

use crate::histogram::Histogram;
use crate::run::Run;

/// Writes the log. Fails with `InvalidData` if a second's histogram is damaged.
pub fn write(run: &Run, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "#[Latencies of good answers, logged by {}]",
        run.generator
    )?;
    writeln!(out, "#[Histogram log format version 1.3]")?;
    writeln!(
        out,
        "#[StartTime: {:.3} (seconds since epoch), {}]",
        run.started,
        super::formatting::timestamp(run.started)
    )?;
    writeln!(out, "#[BaseTime: {:.3} (seconds since epoch)]", run.started)?;
    writeln!(
        out,
        "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\""
    )?;
    for second in &run.seconds {
        if second.latency.is_empty() {
            continue;
        }
        let max = Histogram::decode(&second.latency)
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?
            .max();
        writeln!(
            out,
            "{:.3},{:.3},{:.3},{}",
            second.end - second.length,
            second.length,
            max as f64 / 1e6,
            second.latency
        )?;
    }
    Ok(())
}
