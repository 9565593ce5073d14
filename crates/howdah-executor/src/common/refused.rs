//! The run of a request that was refused before it reached a process.

use std::task::{Context, Poll};

use crate::{ExecError, RunEvent, RunTiming, ScriptRun};

/// A run that was refused before it began.
pub(crate) struct RefusedRun(pub Option<ExecError>);

impl ScriptRun for RefusedRun {
    fn poll_event(&mut self, _: &mut Context<'_>) -> Poll<Result<RunEvent, ExecError>> {
        Poll::Ready(match self.0.take() {
            Some(error) => Err(error),
            None => Ok(RunEvent::End),
        })
    }

    fn timing(&self) -> RunTiming {
        RunTiming::default()
    }
}
