//! Copies the events of a run while they pass, for `cache = rfc`, where a visitor's own response is stored. The first
//! event may have been taken already, to inspect the head.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use howdah_cache::Pass;
use howdah_executor::{ExecError, RunEvent, RunWrapper, ScriptRun};

use super::run_effects::RunEffects;

/// A run that passes its events on and copies the body.
pub struct TeeRun {
    inner: Box<dyn ScriptRun>,
    first: Option<RunEvent>,
    copied_body: Option<Vec<u8>>,
    limit: u64,
    ended: bool,
    effects: Option<Arc<RunEffects>>,
}

impl TeeRun {
    /// Creates a run that passes on `first` and then the events of `inner`, and copies up to `limit` bytes of the body.
    /// With a limit of 0 it copies nothing.
    pub fn new(
        inner: Box<dyn ScriptRun>,
        first: RunEvent,
        limit: u64,
        effects: Option<Arc<RunEffects>>,
    ) -> TeeRun {
        TeeRun {
            inner,
            first: Some(first),
            copied_body: (limit > 0).then(Vec::new),
            limit,
            ended: false,
            effects,
        }
    }

    /// Returns the whole body, if it is complete, was not too long, and the run did nothing that forbids storing it.
    pub fn body(self) -> Result<Bytes, Pass> {
        if let Some(cause) = self
            .effects
            .as_ref()
            .and_then(|effects| effects.forbidden())
        {
            return Err(cause.pass);
        }
        let whole = self
            .copied_body
            .filter(|_| self.ended)
            .ok_or(Pass::Incomplete)?;
        // The conversion keeps all of a vector's capacity.
        Ok(Bytes::from(whole.into_boxed_slice()))
    }

    fn keep(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Body(bytes) => {
                let most = self.limit;
                let fits = |kept: &Vec<u8>| (kept.len() + bytes.len()) as u64 <= most;
                self.copied_body = self.copied_body.take().filter(fits);
                if let Some(kept) = &mut self.copied_body {
                    kept.extend_from_slice(bytes);
                }
            }
            RunEvent::End => self.ended = true,
            _ => {}
        }
    }
}

impl RunWrapper for TeeRun {
    fn inner(&self) -> &dyn ScriptRun {
        &*self.inner
    }

    fn poll_event_around(&mut self, cx: &mut Context<'_>) -> Poll<Result<RunEvent, ExecError>> {
        if let Some(first) = self.first.take() {
            self.keep(&first);
            return Poll::Ready(Ok(first));
        }
        let event = std::task::ready!(self.inner.poll_event(cx))?;
        self.keep(&event);
        Poll::Ready(Ok(event))
    }
}
