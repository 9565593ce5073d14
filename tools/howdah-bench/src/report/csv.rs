//! `--csv`: the run second by second, for spreadsheets. The format uses commas, decimal points, line feeds and one
//! header line; the columns are documented in `docs/bench.md`. Every outcome has a column, even if no request ended
//! with it.

use std::io::{self, Write};

use crate::histogram::Histogram;
use crate::outcome::Outcome;
use crate::run::Run;

/// Writes the file. Fails with `InvalidData` if a second's histogram is damaged.
pub fn write(run: &Run, out: &mut impl Write) -> io::Result<()> {
    write!(out, "second,length_s,due,in_flight")?;
    for outcome in Outcome::ALL {
        write!(out, ",{outcome}")?;
    }
    writeln!(
        out,
        ",p50_ms,p90_ms,p99_ms,max_ms,send_lag_max_ms,client_cpu,client_wait,steal,machine_busy,\
         server_cpu,server_rss_bytes,server_queued,server_busy_children"
    )?;
    for second in &run.seconds {
        write!(
            out,
            "{:.3},{:.3},{},{}",
            second.end, second.length, second.due, second.in_flight
        )?;
        for outcome in Outcome::ALL {
            write!(out, ",{}", second.outcomes.get(outcome).unwrap_or(&0))?;
        }
        if second.latency.is_empty() {
            write!(out, ",,,,")?;
        } else {
            let latency = Histogram::decode(&second.latency)
                .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
            for quantile in [0.5, 0.9, 0.99, 1.0] {
                write!(out, ",{:.3}", latency.quantile(quantile) as f64 / 1e6)?;
            }
        }
        write!(
            out,
            ",{:.3},{:.3},{:.3},{:.4},{:.4}",
            second.send_lag_max * 1e3,
            second.client_cpu,
            second.client_wait,
            second.steal,
            second.machine_busy
        )?;
        // The sample nearest to the second's end, if there is one within it.
        let sample = run
            .server
            .iter()
            .rfind(|s| s.at <= second.end + 0.25 && s.at > second.end - second.length);
        let process = sample.and_then(|s| s.process);
        let howdah = sample.and_then(|s| s.howdah.as_ref());
        let or_empty = |value: Option<String>| value.unwrap_or_default();
        writeln!(
            out,
            ",{},{},{},{}",
            or_empty(process.map(|p| format!("{:.3}", p.cpu))),
            or_empty(process.map(|p| p.resident.to_string())),
            or_empty(howdah.map(|h| h.queued.to_string())),
            or_empty(howdah.map(|h| h.busy.to_string())),
        )?;
    }
    Ok(())
}
