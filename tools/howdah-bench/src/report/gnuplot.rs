//! Ab's `-g` file: tab-separated, a row per request, for gnuplot.
//!
//! The columns, their order, the rounding to whole milliseconds and the sorting by `ttime` are those of ab, so that
//! scripts for its files work on ours. The rows are sorted by the time taken: a plain plot of column 5 is a curve of
//! quantiles; plot column 5 against column 2 for the course over time. Two things differ: the rows are good responses
//! only (those of ab include error pages, unmarked), and `starttime` is in UTC.

use std::io::{self, Write};

use crate::outcome::Outcome;
use crate::run::Run;

use super::formatting;

/// Writes the file from [`Run::samples`]. Returns how many samples it skipped because they were not good.
pub fn write(run: &Run, out: &mut impl Write) -> io::Result<u64> {
    let mut rows: Vec<_> = run
        .samples
        .iter()
        .filter(|sample| sample.outcome == Outcome::Good)
        .collect();
    rows.sort_by_key(|sample| sample.total_us);
    out.write_all(b"starttime\tseconds\tctime\tdtime\tttime\twait\n")?;
    // Ab's ap_round_ms rounds half a millisecond up.
    let ms = |microseconds: u32| (u64::from(microseconds) + 500) / 1000;
    for sample in &rows {
        let second = (run.started + sample.start_us as f64 / 1e6) as u64;
        writeln!(
            out,
            "{}\t{second}\t{}\t{}\t{}\t{}",
            formatting::ctime(second),
            ms(sample.connect_us),
            ms(sample.total_us.saturating_sub(sample.connect_us)),
            ms(sample.total_us),
            ms(sample.wait_us)
        )?;
    }
    Ok((run.samples.len() - rows.len()) as u64)
}
