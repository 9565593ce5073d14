//! The progress of a comparison, on standard error.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use howdah_bench::driver::SessionEvent;

/// The progress on standard error: on a terminal one line that is overwritten, in a pipe only failures.
pub struct ProgressLine {
    suite: String,
    terminal: bool,
}

impl ProgressLine {
    /// Creates the progress display of this benchmark.
    pub fn new(suite: &str) -> ProgressLine {
        ProgressLine {
            suite: suite.to_owned(),
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Erases the line on a terminal.
    pub fn clear(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }

    /// Shows measurements that begin and measurements that failed.
    pub fn event(&self, event: SessionEvent<'_>) {
        match event {
            SessionEvent::Begins {
                number,
                of,
                label,
                left,
            } if self.terminal => self.begins(number, of, label, left),
            SessionEvent::Failed { label, error } => {
                self.clear();
                eprintln!("{}: {label}: {error}", self.suite);
            }
            _ => {}
        }
    }

    fn begins(&self, number: usize, of: Option<usize>, what: &str, left: Option<Duration>) {
        let left = left.map_or(String::new(), |left| {
            format!(
                ", {} min {:02} s left",
                left.as_secs() / 60,
                left.as_secs() % 60
            )
        });
        let of = of.map_or(String::new(), |of| format!("/{of}"));
        let line = format!("{} {number}{of}{left}: {what}", self.suite);
        let line: String = line.chars().take(100).collect();
        eprint!("\r\x1b[K{line}");
        let _ = std::io::stderr().flush();
    }
}
