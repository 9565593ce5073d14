//! The run of a request that was refused before it reached a process.

use std::task::{Context, Poll};

use crate::{Event, ExecError, Run, RunTiming};

/// A run that was refused before it began.
pub(crate) struct RefusedRun(pub Option<ExecError>);

impl Run for RefusedRun {
    fn poll_event(&mut self, _: &mut Context<'_>) -> Poll<Result<Event, ExecError>> {
        Poll::Ready(match self.0.take() {
            Some(error) => Err(error),
            None => Ok(Event::End),
        })
    }

    fn timing(&self) -> RunTiming {
        RunTiming::default()
    }
}
