//! The record of a simulation: what happened, with virtual times, and what went wrong first.

use std::fmt::Display;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use howdah_executor::ScriptLog;
use howdah_os::clock;
use howdah_proto::level::LogLevel;
use howdah_proto::request::RequestFrame;

/// A record that all participants share.
#[derive(Clone)]
pub struct Trace(Arc<SharedTrace>);

struct SharedTrace {
    began: Instant,
    /// The directory of the simulation. Events omit it, because it differs from one run to the next.
    directory: String,
    record: Mutex<Record>,
}

/// The lines of a trace, and the first violation of an invariant, if there was one.
#[derive(Default)]
pub struct Record {
    /// The events, each with its virtual time.
    pub lines: Vec<String>,
    /// The first violation.
    pub failure: Option<String>,
}

impl Trace {
    /// Returns an empty trace whose virtual time begins now. Events name files of `directory` without it.
    pub fn new(directory: &Path) -> Trace {
        Trace(Arc::new(SharedTrace {
            began: clock::now(),
            directory: directory.display().to_string(),
            record: Mutex::default(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        self.0.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the virtual time since the simulation began.
    pub fn time(&self) -> Duration {
        clock::now().duration_since(self.0.began)
    }

    /// Adds an event.
    pub fn note(&self, event: impl Display) {
        let event = event.to_string().replace(&self.0.directory, "");
        let line = format!("{:10.3} s  {event}", self.time().as_secs_f64());
        self.lock().lines.push(line);
    }

    /// Records the violation of an invariant, and adds it to the events.
    pub fn fail(&self, violation: impl Display) {
        let text = violation.to_string();
        self.note(format_args!("VIOLATION: {text}"));
        self.lock().failure.get_or_insert(text);
    }

    pub fn has_failed(&self) -> bool {
        self.lock().failure.is_some()
    }

    /// Returns the record, which is empty afterwards.
    pub fn take(&self) -> Record {
        std::mem::take(&mut self.lock())
    }
}

impl ScriptLog for Trace {
    fn script(&self, _: &str, _: u64, _: &RequestFrame, level: LogLevel, message: &[u8]) {
        let message = String::from_utf8_lossy(message);
        self.note(format_args!("log of a script, {level}: {message}"));
    }

    fn pool(&self, pool: &str, level: LogLevel, name: &str, message: &str) {
        self.note(format_args!(
            "log of pool {pool}, {level}: {name}: {message}"
        ));
    }
}
