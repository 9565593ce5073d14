//! The exporter's thread: takes recorded requests off the queue, sends them in batches, and retries.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use super::post::{CollectorClient, PostError};
use super::{ExporterEvent, ExporterEventHandler, STOP_TIMEOUT, SpanCounters};
use crate::traces::otlp;
use crate::traces::recording::RecordedRequest;

/// The maximum number of requests in one message: about a megabyte.
const MAX_BATCH_REQUESTS: usize = 1024;
/// A message is sent when its first request has waited this long.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// How often the queue is emptied while a batch is being collected, so its capacity suffices for a busy server.
const QUEUE_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The timeout for one message, from the name lookup to the end of the response.
const POST_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause before the first retry of a message. It doubles with each retry.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
/// The longest pause between two attempts.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// The state of the exporter's thread.
pub(super) struct ExportThread {
    pub(super) collector: CollectorClient,
    pub(super) service: String,
    pub(super) waiting: mpsc::Receiver<Box<RecordedRequest>>,
    pub(super) counters: Arc<SpanCounters>,
    pub(super) stopping: watch::Receiver<bool>,
    pub(super) on_event: ExporterEventHandler,
    /// Whether delivery does not work at the moment, and that has been reported.
    pub(super) reported_failure: bool,
    /// How many spans had been dropped when the collector last accepted a message, and when delivery last worked
    /// (`reported`).
    pub(super) dropped_before: u64,
    pub(super) reported: u64,
}

impl ExportThread {
    pub(super) async fn run(mut self) {
        let mut batch = Vec::with_capacity(MAX_BATCH_REQUESTS);
        while self.collect(&mut batch).await {
            let (message, spans) = otlp::encode_message(&self.service, &batch);
            // The requests are freed now. While the collector is down, only their encoded bytes stay in memory.
            batch.clear();
            self.deliver(message, spans).await;
        }
    }

    /// Waits for a request, then for those that come soon after it. Returns false if there will be no more.
    #[expect(
        clippy::vec_box,
        reason = "as the queue has them: unboxing would copy each"
    )]
    async fn collect(&mut self, batch: &mut Vec<Box<RecordedRequest>>) -> bool {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            biased;
            some = self.waiting.recv_many(batch, MAX_BATCH_REQUESTS) => if some == 0 { return false },
            _ = stopping.wait_for(|stop| *stop) => self.waiting.close(),
        }
        let end = Instant::now() + BATCH_DELAY;
        while batch.len() < MAX_BATCH_REQUESTS && Instant::now() < end && !*stopping.borrow() {
            // A stop of the exporter is noticed at once.
            let _ = timeout(QUEUE_POLL_INTERVAL, stopping.wait_for(|stop| *stop)).await;
            while batch.len() < MAX_BATCH_REQUESTS {
                match self.waiting.try_recv() {
                    Ok(recorded) => batch.push(recorded),
                    Err(_) => break,
                }
            }
        }
        if batch.is_empty() {
            // Requests that were queued before the stop are still in the channel.
            self.waiting.recv_many(batch, MAX_BATCH_REQUESTS).await;
        }
        !batch.is_empty()
    }

    /// Sends a message with `spans` spans until it is accepted or refused. When the exporter stops, it makes one more
    /// attempt.
    async fn deliver(&mut self, message: Bytes, spans: u64) {
        let mut pause = MIN_RETRY_DELAY;
        loop {
            let stopping = *self.stopping.borrow();
            let limit = if stopping { STOP_TIMEOUT } else { POST_TIMEOUT };
            let posted = self
                .with_timeout(limit, self.collector.post(message.clone()))
                .await;
            match posted {
                Ok(rejected) => return self.note_accepted(spans, rejected),
                Err(PostError::Permanent(why)) => {
                    self.drop_spans(spans);
                    return self.report_failure(ExporterEvent::Refused(why));
                }
                Err(PostError::Temporary(why)) => {
                    self.report_failure(ExporterEvent::Unreachable(why))
                }
            }
            if stopping {
                return self.drop_spans(spans);
            }
            let mut stop = self.stopping.clone();
            let _ = timeout(pause, stop.wait_for(|stop| *stop)).await;
            pause = MAX_RETRY_DELAY.min(2 * pause);
        }
    }

    /// Limits the time of an attempt, which becomes shorter when the exporter stops.
    async fn with_timeout(
        &self,
        limit: Duration,
        post: impl Future<Output = Result<i64, PostError>>,
    ) -> Result<i64, PostError> {
        let mut stopping = self.stopping.clone();
        let ends = async {
            // An error means that the exporter is gone, which is a stop as well.
            let _ = stopping.wait_for(|stop| *stop).await;
            tokio::time::sleep(STOP_TIMEOUT).await;
        };
        let late = |limit: Duration| {
            PostError::Temporary(format!("no response within {} s", limit.as_secs()))
        };
        tokio::select! {
            answered = timeout(limit, post) => answered.unwrap_or_else(|_| Err(late(limit))),
            () = ends => Err(late(STOP_TIMEOUT)),
        }
    }

    fn drop_spans(&self, spans: u64) {
        self.counters.dropped.fetch_add(spans, Ordering::Relaxed);
    }

    fn note_accepted(&mut self, spans: u64, rejected: i64) {
        let rejected = u64::try_from(rejected).unwrap_or_default().min(spans);
        let exported = &self.counters.exported;
        exported.fetch_add(spans - rejected, Ordering::Relaxed);
        self.drop_spans(rejected);
        let total = self.counters.dropped.load(Ordering::Relaxed);
        let more = total > std::mem::replace(&mut self.dropped_before, total);
        if rejected > 0 {
            self.report_failure(ExporterEvent::Refused(format!(
                "the collector rejected {rejected} of {spans} spans"
            )));
        } else if more {
            let why = "the collector accepts spans more slowly than they are created";
            self.report_failure(ExporterEvent::Unreachable(why.to_owned()));
        } else if std::mem::take(&mut self.reported_failure) {
            let dropped = total - std::mem::replace(&mut self.reported, total);
            (self.on_event)(ExporterEvent::Recovered { dropped });
        }
    }

    /// Reports that delivery does not work, once until it works again.
    fn report_failure(&mut self, news: ExporterEvent) {
        if !std::mem::replace(&mut self.reported_failure, true) {
            (self.on_event)(news);
        }
    }
}
