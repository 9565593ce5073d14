//! A run that is written as one future which sends events, instead of a hand-made state machine. It is for modes in
//! which a run uses a process or a socket, next to which a future costs little. Dropping the run drops the future,
//! whose guards clean up.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use crate::{ExecError, RunEvent, RunTiming, ScriptRun};

#[derive(Default)]
struct EventSlot {
    event: Option<RunEvent>,
    timing: RunTiming,
    /// Whether a process has the whole request, including its body.
    begun: bool,
}

/// The sending side, for the future's events.
#[derive(Clone, Default)]
pub(crate) struct EventSender(Arc<Mutex<EventSlot>>);

impl EventSender {
    fn pending(&self) -> MutexGuard<'_, EventSlot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an event. Resolves when the event has been received, so a slow receiver slows the sender.
    pub async fn send(&self, event: RunEvent) {
        let mut event = Some(event);
        poll_fn(|_| {
            let mut pending = self.pending();
            if pending.event.is_some() {
                return Poll::Pending;
            }
            match event.take() {
                // No waker is stored: the receiver polls the future again after it has received the event.
                Some(event) => {
                    pending.event = Some(event);
                    Poll::Pending
                }
                None => Poll::Ready(()),
            }
        })
        .await;
    }

    /// Sets the result of [`ScriptRun::timing`].
    pub fn set_timing(&self, timing: RunTiming) {
        self.pending().timing = timing;
    }

    /// Records that a process has the whole request: [`ScriptRun::is_claimed`].
    pub fn set_begun(&self) {
        self.pending().begun = true;
    }
}

type RunFuture = Pin<Box<dyn Future<Output = Result<(), ExecError>> + Send>>;

/// A [`ScriptRun`] whose work is a future, which sends events through an [`EventSender`].
pub(crate) struct FutureRun {
    /// The future that produces the response; `None` once it has ended.
    work: Option<RunFuture>,
    /// The future's result, returned after its last event.
    outcome: Option<Result<(), ExecError>>,
    events: EventSender,
}

impl FutureRun {
    /// Makes a run of the future `work`. The end of the future is the end of the response.
    pub fn boxed<F>(work: impl FnOnce(EventSender) -> F) -> Box<dyn ScriptRun>
    where
        F: Future<Output = Result<(), ExecError>> + Send + 'static,
    {
        let events = EventSender::default();
        let work: RunFuture = Box::pin(work(events.clone()));
        Box::new(FutureRun {
            work: Some(work),
            outcome: None,
            events,
        })
    }
}

impl ScriptRun for FutureRun {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<RunEvent, ExecError>> {
        if let Some(work) = &mut self.work
            && let Poll::Ready(outcome) = work.as_mut().poll(cx)
        {
            self.work = None;
            if outcome.is_err() {
                // The run was cut off while an event was waiting to be received: the error replaces the event.
                self.events.pending().event = None;
            }
            self.outcome = Some(outcome);
        }
        if let Some(event) = self.events.pending().event.take() {
            return Poll::Ready(Ok(event));
        }
        match self.outcome.take() {
            Some(outcome) => Poll::Ready(outcome.map(|()| RunEvent::End)),
            None if self.work.is_some() => Poll::Pending,
            None => Poll::Ready(Ok(RunEvent::End)),
        }
    }

    fn timing(&self) -> RunTiming {
        self.events.pending().timing
    }

    fn is_claimed(&self) -> bool {
        self.work.is_none() || self.events.pending().begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[tokio::test]
    async fn events_come_in_order_one_at_a_time_and_then_the_end_for_ever() {
        let mut run = FutureRun::boxed(|events| async move {
            events.send(RunEvent::Body(Bytes::from_static(b"a"))).await;
            tokio::task::yield_now().await;
            events.send(RunEvent::Body(Bytes::from_static(b"b"))).await;
            Ok(())
        });
        let mut seen = Vec::new();
        for _ in 0..4 {
            match poll_fn(|cx| run.poll_event(cx)).await {
                Ok(RunEvent::Body(bytes)) => seen.push(bytes),
                Ok(RunEvent::End) => seen.push(Bytes::from_static(b".")),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(seen, ["a", "b", ".", "."]);
    }

    #[tokio::test]
    async fn error_replaces_an_event_that_was_not_received() {
        let mut run = FutureRun::boxed(|events| async move {
            tokio::select! {
                biased;
                () = events.send(RunEvent::Flush) => Ok(()),
                () = std::future::ready(()) => Err(ExecError::Stopping),
            }
        });
        let first = poll_fn(|cx| run.poll_event(cx)).await;
        assert!(matches!(first, Err(ExecError::Stopping)));
    }

    #[tokio::test]
    async fn error_ends_the_run() {
        let mut run = FutureRun::boxed(|_| async { Err(ExecError::QueueFull) });
        let first = poll_fn(|cx| run.poll_event(cx)).await;
        assert!(matches!(first, Err(ExecError::QueueFull)));
        assert!(matches!(
            poll_fn(|cx| run.poll_event(cx)).await,
            Ok(RunEvent::End)
        ));
    }
}
