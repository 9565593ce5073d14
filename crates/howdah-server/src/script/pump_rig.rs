//! Test support for responses: a script that is a list of events, and a client that reads as much as the test allows
//! and records what it saw.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use howdah_executor::{ExecError, RunEvent, RunTiming, ScriptHead, ScriptRun};
use howdah_http::message::{RequestHead, ResponseHead};
use howdah_http::{ClientGone, ResponseLength};

use super::pump::{Pump, ResponseOutcome};
use super::pump_config::{BufferLimits, PumpConfig};
use super::response_sink::ResponseSink;
use crate::testing::request;
use howdah_site::encoding::EncodingConfig;

/// A run with the events that the test provides; `None` means that it is still running.
pub struct FakeScript(pub VecDeque<Option<Result<RunEvent, ExecError>>>);

impl ScriptRun for FakeScript {
    fn poll_event(&mut self, _: &mut Context<'_>) -> Poll<Result<RunEvent, ExecError>> {
        match self.0.pop_front() {
            Some(Some(event)) => Poll::Ready(event),
            _ => Poll::Pending,
        }
    }

    fn timing(&self) -> RunTiming {
        RunTiming::default()
    }
}

/// A client that reads `window` bytes, and what it has seen.
#[derive(Default)]
pub struct FakeClient {
    pub window: usize,
    pub queue: VecDeque<Bytes>,
    pub heads: Vec<(u16, String, Option<ResponseLength>)>,
    pub body: Vec<u8>,
    pub flushes: usize,
    pub ended: bool,
    pub aborted: bool,
    pub gone: bool,
    pub most_queued: usize,
    pub min_rate: u32,
}

impl ResponseSink for FakeClient {
    fn informational(&mut self, head: &ResponseHead) {
        let lines = String::from_utf8(head.lines().to_vec()).unwrap();
        self.heads.push((head.status, lines, None));
    }
    fn begin(&mut self, head: &ResponseHead, length: ResponseLength) {
        let lines = String::from_utf8(head.lines().to_vec()).unwrap();
        self.heads.push((head.status, lines, Some(length)));
    }
    fn push(&mut self, bytes: Bytes) {
        self.queue.push_back(bytes);
        self.most_queued = self.most_queued.max(self.queued());
    }
    fn share(&self, bytes: usize) -> usize {
        bytes
    }

    fn queued(&self) -> usize {
        self.queue.iter().map(Bytes::len).sum()
    }
    fn set_min_rate(&mut self, rate: u32) {
        self.min_rate = rate;
    }
    fn taken(&self) -> u64 {
        self.body.len() as u64
    }
    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ClientGone>> {
        self.flushes += 1;
        if self.gone {
            return Poll::Ready(Err(ClientGone));
        }
        while let Some(mut first) = self.queue.pop_front() {
            let taken = first.split_to(first.len().min(self.window));
            self.window -= taken.len();
            self.body.extend_from_slice(&taken);
            if !first.is_empty() {
                self.queue.push_front(first);
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }
    fn end(&mut self) {
        self.ended = true;
    }
    fn abort(&mut self) {
        self.aborted = true;
    }
    fn poll_client_gone(&mut self, _: &mut Context<'_>) -> Poll<()> {
        if self.gone {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl FakeClient {
    /// Returns everything that the client has read, with what is queued.
    pub fn all(&mut self) -> Vec<u8> {
        let mut all = self.body.clone();
        self.queue.iter().for_each(|b| all.extend_from_slice(b));
        all
    }
}

fn test_config() -> PumpConfig {
    PumpConfig {
        room: Arc::default(),
        hold: 1000,
        response_memory: 200_000,
        buffers: BufferLimits {
            response_spill: 1 << 20,
            directory: std::env::temp_dir(),
        },
        encoding: EncodingConfig::all(),
    }
}

/// Returns the head of a script's response.
pub fn script_head(status: u16, fields: &[(&str, &str)]) -> ScriptHead {
    ScriptHead {
        status,
        reason: Vec::new(),
        headers: fields
            .iter()
            .map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec()))
            .collect(),
        rejected: 0,
        local_redirect: false,
    }
}

pub fn head_event(fields: &[(&str, &str)]) -> Option<Result<RunEvent, ExecError>> {
    Some(Ok(RunEvent::Head(script_head(200, fields))))
}

pub fn body(text: &[u8]) -> Option<Result<RunEvent, ExecError>> {
    Some(Ok(RunEvent::Body(Bytes::copy_from_slice(text))))
}

pub const FLUSH: fn() -> Option<Result<RunEvent, ExecError>> = || Some(Ok(RunEvent::Flush));
pub const END: fn() -> Option<Result<RunEvent, ExecError>> = || Some(Ok(RunEvent::End));
pub const WAIT: fn() -> Option<Result<RunEvent, ExecError>> = || None;

/// The configuration of responses in a test, and a clock that the test advances.
pub struct PumpRig {
    pub config: PumpConfig,
    pub request: RequestHead,
    pub runtime: tokio::runtime::Runtime,
}

impl PumpRig {
    pub fn new(fields: &[(&str, &str)]) -> PumpRig {
        PumpRig {
            config: test_config(),
            request: request("GET", "/", fields),
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .unwrap(),
        }
    }

    /// Polls `turns` times at most. Returns how the response ended, if it did.
    pub fn poll_turns(
        &self,
        pump: &mut Pump<'_>,
        script: &mut FakeScript,
        client: &mut FakeClient,
        turns: usize,
    ) -> Option<ResponseOutcome> {
        let _inside = self.runtime.enter();
        let waker = std::task::Waker::from(Arc::new(NoopWake));
        let mut cx = Context::from_waker(&waker);
        for _ in 0..turns {
            if let Poll::Ready(ended) = pump.poll(&mut cx, script, client) {
                return Some(ended);
            }
        }
        None
    }

    /// Advances the clock of the timers.
    pub fn advance_clock(&self, time: Duration) {
        self.runtime.block_on(tokio::time::advance(time));
    }

    /// Runs a whole response, as far as it gets.
    pub fn run(
        &self,
        events: Vec<Option<Result<RunEvent, ExecError>>>,
        client: &mut FakeClient,
    ) -> Option<ResponseOutcome> {
        let mut pump = Pump::new(&self.config, &self.request, &|_| {}, true);
        let turns = events.len() + 5;
        self.poll_turns(&mut pump, &mut FakeScript(events.into()), client, turns)
    }
}

/// A waker that does nothing.
struct NoopWake;

impl std::task::Wake for NoopWake {
    fn wake(self: Arc<Self>) {}
}

/// Returns a client that reads everything immediately.
pub fn eager_client() -> FakeClient {
    FakeClient {
        window: usize::MAX,
        ..FakeClient::default()
    }
}
