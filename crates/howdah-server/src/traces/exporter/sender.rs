//! The exporter's thread: takes recorded requests off the queue, sends them in batches, and retries.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use super::post::{Collector, NotTaken};
use super::{Counters, Heard, LAST, News};
use crate::traces::otlp;
use crate::traces::recording::Recorded;

/// The maximum number of requests in one message: about a megabyte.
const BATCH: usize = 1024;
/// A message is sent when its first request has waited this long.
const DELAY: Duration = Duration::from_secs(1);
/// How often the queue is emptied meanwhile, so its capacity suffices for a busy server.
const LOOK: Duration = Duration::from_millis(50);
/// The timeout for one message, from the name lookup to the end of the response.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The pause before the first retry of a message. It doubles with each retry.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The state of the exporter's thread.
pub(super) struct Sender {
    pub(super) collector: Collector,
    pub(super) service: String,
    pub(super) waiting: mpsc::Receiver<Box<Recorded>>,
    pub(super) counters: Arc<Counters>,
    pub(super) stopping: watch::Receiver<bool>,
    pub(super) hear: Heard,
    /// Delivery does not work at the moment, and that has been reported.
    pub(super) losing: bool,
    /// How many spans had been dropped when the collector last accepted a message, and when delivery last worked
    /// (`reported`).
    pub(super) dropped_before: u64,
    pub(super) reported: u64,
}

impl Sender {
    pub(super) async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        while self.collect(&mut batch).await {
            let (message, spans) = otlp::message(&self.service, &batch);
            // However long the collector is down, only the encoded bytes wait.
            batch.clear();
            self.deliver(message, spans).await;
        }
    }

    /// Waits for a request, then for those that come soon after it. Returns false if there will be no more.
    #[expect(
        clippy::vec_box,
        reason = "as the queue has them: unboxing would copy each"
    )]
    async fn collect(&mut self, batch: &mut Vec<Box<Recorded>>) -> bool {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            biased;
            some = self.waiting.recv_many(batch, BATCH) => if some == 0 { return false },
            _ = stopping.wait_for(|stop| *stop) => self.waiting.close(),
        }
        let end = Instant::now() + DELAY;
        while batch.len() < BATCH && Instant::now() < end && !*stopping.borrow() {
            // A stop of the exporter is noticed at once.
            let _ = timeout(LOOK, stopping.wait_for(|stop| *stop)).await;
            while batch.len() < BATCH {
                match self.waiting.try_recv() {
                    Ok(recorded) => batch.push(recorded),
                    Err(_) => break,
                }
            }
        }
        if batch.is_empty() {
            // Requests that were queued before the stop are still in the channel.
            self.waiting.recv_many(batch, BATCH).await;
        }
        !batch.is_empty()
    }

    /// Sends a message with `spans` spans until it is accepted or refused. When the exporter stops, it makes one more
    /// attempt.
    async fn deliver(&mut self, message: Bytes, spans: u64) {
        let mut pause = FIRST_PAUSE;
        loop {
            let stopping = *self.stopping.borrow();
            let limit = if stopping { LAST } else { TIMEOUT };
            let posted = self
                .within(limit, self.collector.post(message.clone()))
                .await;
            match posted {
                Ok(rejected) => return self.taken(spans, rejected),
                Err(NotTaken::Ever(why)) => {
                    self.drop_spans(spans);
                    return self.lost(News::Refused(why));
                }
                Err(NotTaken::Now(why)) => self.lost(News::Unreachable(why)),
            }
            if stopping {
                return self.drop_spans(spans);
            }
            let mut stop = self.stopping.clone();
            let _ = timeout(pause, stop.wait_for(|stop| *stop)).await;
            pause = LONGEST_PAUSE.min(2 * pause);
        }
    }

    /// Limits the time of an attempt, which becomes shorter when the exporter stops.
    async fn within(
        &self,
        limit: Duration,
        post: impl Future<Output = Result<i64, NotTaken>>,
    ) -> Result<i64, NotTaken> {
        let mut stopping = self.stopping.clone();
        let ends = async {
            // An error means that the exporter is gone, which is a stop as well.
            let _ = stopping.wait_for(|stop| *stop).await;
            tokio::time::sleep(LAST).await;
        };
        let late =
            |limit: Duration| NotTaken::Now(format!("no answer within {} s", limit.as_secs()));
        tokio::select! {
            answered = timeout(limit, post) => answered.unwrap_or_else(|_| Err(late(limit))),
            () = ends => Err(late(LAST)),
        }
    }

    fn drop_spans(&self, spans: u64) {
        self.counters.dropped.fetch_add(spans, Ordering::Relaxed);
    }

    fn taken(&mut self, spans: u64, rejected: i64) {
        let rejected = u64::try_from(rejected).unwrap_or_default().min(spans);
        let exported = &self.counters.exported;
        exported.fetch_add(spans - rejected, Ordering::Relaxed);
        self.drop_spans(rejected);
        let total = self.counters.dropped.load(Ordering::Relaxed);
        let more = total > std::mem::replace(&mut self.dropped_before, total);
        if rejected > 0 {
            self.lost(News::Refused(format!(
                "it rejects {rejected} of {spans} spans"
            )));
        } else if more {
            let why = "it takes spans more slowly than they come";
            self.lost(News::Unreachable(why.to_owned()));
        } else if std::mem::take(&mut self.losing) {
            let dropped = total - std::mem::replace(&mut self.reported, total);
            (self.hear)(News::WorksAgain { dropped });
        }
    }

    /// Reports that delivery does not work, once until it works again.
    fn lost(&mut self, news: News) {
        if !std::mem::replace(&mut self.losing, true) {
            (self.hear)(news);
        }
    }
}
