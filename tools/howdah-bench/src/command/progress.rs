//! Shows the progress of a run on standard error: on a terminal as one line that is overwritten, elsewhere as a few
//! plain lines per run. Standard output carries only the report.

use std::io::{self, IsTerminal, Write};

use crate::driver::SessionEvent;
use crate::engine::RunProgress;
use crate::histogram::Histogram;
use crate::report::formatting;
use crate::run::Run;

/// How much to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressStyle {
    /// Shows nothing, as -q asks.
    Nothing,
    /// Overwrites one line: standard error is a terminal.
    Live,
    /// Prints a line for every tenth of a run: standard error is a file or a pipe.
    Tenths,
    /// Prints a line for every second, as -v 2 asks.
    Seconds,
}

impl ProgressStyle {
    /// Chooses by the options, and by whether standard error is a terminal.
    pub fn choose(quiet: bool, verbosity: u8) -> ProgressStyle {
        match (quiet, verbosity) {
            (true, _) => ProgressStyle::Nothing,
            (_, 2..) => ProgressStyle::Seconds,
            _ if io::stderr().is_terminal() => ProgressStyle::Live,
            _ => ProgressStyle::Tenths,
        }
    }
}

/// Shows a session's events.
pub struct ProgressWatcher<W: Write> {
    show: ProgressStyle,
    out: W,
    label: String,
    seconds: f64,
    latency: Histogram,
    tenths: u32,
    live: bool,
}

impl<W: Write> ProgressWatcher<W> {
    /// Creates a watcher that shows events on `out`.
    pub fn new(show: ProgressStyle, out: W) -> Self {
        ProgressWatcher {
            show,
            out,
            label: String::new(),
            seconds: 0.0,
            latency: Histogram::new(),
            tenths: 0,
            live: false,
        }
    }

    /// Shows an event. A failed write does not end the measurement.
    pub fn event(&mut self, event: SessionEvent<'_>) {
        if self.show == ProgressStyle::Nothing {
            return;
        }
        let _ = match event {
            SessionEvent::Begins {
                number, of, label, ..
            } => self.begins(number, of, label),
            SessionEvent::Second(progress) => self.second(progress),
            SessionEvent::Ended(run) => self.ended(run),
            SessionEvent::Failed { label, error } => writeln!(self.out, "{label}: {error}"),
        };
    }

    fn begins(&mut self, number: usize, of: Option<usize>, label: &str) -> io::Result<()> {
        self.label = match (number, of) {
            (1, Some(1)) => label.to_owned(),
            (number, Some(of)) => format!("{label} ({number} of {of})"),
            (number, None) => format!("{label} ({number})"),
        };
        self.seconds = 0.0;
        self.tenths = 0;
        self.latency.clear();
        Ok(())
    }

    fn second(&mut self, progress: &RunProgress<'_>) -> io::Result<()> {
        let second = progress.second;
        self.seconds = second.end;
        let of_second = Histogram::decode(&second.latency).unwrap_or_default();
        self.latency.add(&of_second);
        match self.show {
            ProgressStyle::Nothing => Ok(()),
            ProgressStyle::Seconds => {
                let line = self.line(progress, &of_second);
                writeln!(self.out, "{line}")
            }
            ProgressStyle::Live => {
                let line = self.line(progress, &of_second);
                self.live = true;
                // Returns to the start of the line, writes the new text, and erases the rest of the old one.
                write!(self.out, "\r{line}\x1b[K")?;
                self.out.flush()
            }
            ProgressStyle::Tenths => {
                let tenth = (progress.done * 10.0) as u32;
                if tenth <= self.tenths || tenth >= 10 {
                    return Ok(());
                }
                self.tenths = tenth;
                writeln!(
                    self.out,
                    "{}{} requests, {} errors, {} % done",
                    self.prefix(),
                    progress.good + progress.errors,
                    progress.errors,
                    tenth * 10
                )
            }
        }
    }

    fn prefix(&self) -> String {
        if self.label.is_empty() {
            String::new()
        } else {
            format!("{}: ", self.label)
        }
    }

    /// Returns the line of a second: its rate and percentiles, and the errors and remaining time of the run.
    fn line(&self, progress: &RunProgress<'_>, latency: &Histogram) -> String {
        let second = progress.second;
        let rate = second.good() as f64 / second.length.max(0.001);
        let mut line = format!("{}{} good/s", self.prefix(), formatting::rate(rate));
        if !latency.is_empty() {
            let at = |quantile| formatting::ms(latency.quantile(quantile) as f64);
            line += &format!(", p50 {} ms, p99 {} ms", at(0.5), at(0.99));
        }
        line += &match progress.errors {
            0 => ", no errors".to_owned(),
            errors => format!(", {errors} ERRORS ({} in this second)", second.errors()),
        };
        if progress.done > 0.0 && progress.done < 1.0 {
            let left = self.seconds * (1.0 - progress.done) / progress.done;
            line += &format!(", {} left", formatting::duration(left.round().max(1.0)));
        }
        line
    }

    fn ended(&mut self, run: &Run) -> io::Result<()> {
        if self.live {
            self.live = false;
            write!(self.out, "\r\x1b[K")?;
            self.out.flush()?;
        }
        if self.show == ProgressStyle::Nothing || self.show == ProgressStyle::Live {
            return Ok(());
        }
        writeln!(
            self.out,
            "{}{} good responses, {} errors in {}",
            self.prefix(),
            run.good(),
            run.errors(),
            formatting::duration(run.elapsed)
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::outcome::Outcome;
    use crate::run::Second;

    fn second(end: f64, good: u64, errors: u64) -> Second {
        let mut latency = Histogram::new();
        for _ in 0..good {
            latency.record(2_000_000);
        }
        Second {
            end,
            length: 1.0,
            outcomes: BTreeMap::from([(Outcome::Good, good), (Outcome::Timeout, errors)]),
            latency: if good > 0 {
                latency.encode()
            } else {
                String::new()
            },
            ..Second::default()
        }
    }

    fn shown(show: ProgressStyle) -> String {
        let mut out = Vec::new();
        let mut watcher = ProgressWatcher::new(show, &mut out);
        watcher.event(SessionEvent::Begins {
            number: 2,
            of: Some(30),
            label: "B",
            left: None,
        });
        for i in 1..=4 {
            let second = second(f64::from(i), 100, u64::from(i == 3));
            watcher.event(SessionEvent::Second(&RunProgress {
                second: &second,
                good: 100 * i as u64,
                errors: u64::from(i >= 3),
                done: f64::from(i) / 4.0,
            }));
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn progress_on_a_terminal_is_one_line() {
        let text = shown(ProgressStyle::Live);
        assert!(!text.contains('\n'), "{text:?}");
        let lines: Vec<&str> = text.split('\r').filter(|line| !line.is_empty()).collect();
        assert_eq!(lines.len(), 4, "{text:?}");
        assert_eq!(
            lines[0],
            "B (2 of 30): 100 good/s, p50 2.00 ms, p99 2.00 ms, no errors, 3.00 s left\x1b[K"
        );
        assert!(
            lines[2].contains(", 1 ERRORS (1 in this second), 1.00 s left"),
            "{text:?}"
        );
    }

    #[test]
    fn progress_on_a_pipe_is_a_few_plain_lines() {
        assert_eq!(
            shown(ProgressStyle::Tenths),
            "B (2 of 30): 100 requests, 0 errors, 20 % done\n\
             B (2 of 30): 200 requests, 0 errors, 50 % done\n\
             B (2 of 30): 301 requests, 1 errors, 70 % done\n"
        );
        assert_eq!(shown(ProgressStyle::Seconds).lines().count(), 4);
        assert_eq!(shown(ProgressStyle::Nothing), "");
    }
}
