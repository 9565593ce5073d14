//! Sends spans to a collector by OTLP over HTTP, with a bounded queue and a thread that empties it. Recording a request
//! never waits: spans that do not fit into the queue are dropped and counted. A batch that the collector does not
//! accept now is retried until it does, while the queue fills.
//!
//! - `config`: the collector, as validated values.
//! - `sender`: the thread: batches, delays and retries.
//! - `post`: one message and its response.

mod config;
mod post;
mod sender;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc as std_mpsc};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

use super::otlp;
use super::recording::RecordedRequest;
pub use config::{ExporterConfig, ExporterConfigError};
use post::CollectorClient;
use sender::ExportThread;

/// How many requests may wait to be sent; more are dropped.
pub const MAX_QUEUED_REQUESTS: usize = 8192;
/// How long the last message may take when the exporter stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// A change in whether spans reach the collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExporterEvent {
    /// The collector cannot be reached, does not respond, or is overloaded. Spans wait, and are dropped once the queue
    /// is full.
    Unreachable(String),
    /// The collector refuses a message, whose spans are dropped.
    Refused(String),
    /// The collector accepts spans again.
    Recovered {
        /// How many were dropped meanwhile.
        dropped: u64,
    },
}

/// How many spans were exported and dropped since the exporter was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpanCounts {
    /// Spans that the collector has accepted.
    pub exported: u64,
    /// Spans that were dropped, because they could not be delivered in time or were refused.
    pub dropped: u64,
}

#[derive(Debug, Default)]
struct SpanCounters {
    exported: AtomicU64,
    dropped: AtomicU64,
}

/// The queue of a collector, and the thread that empties it. When the exporter is dropped, the thread still sends the
/// remaining spans, each message within two seconds.
pub struct Exporter {
    config: ExporterConfig,
    queue: mpsc::Sender<Box<RecordedRequest>>,
    counters: Arc<SpanCounters>,
    stop: watch::Sender<bool>,
    finished: Mutex<std_mpsc::Receiver<()>>,
}

type ExporterEventHandler = Box<dyn Fn(ExporterEvent) + Send>;

impl Exporter {
    /// Starts the thread. It calls `hear` when something changes.
    ///
    /// # Errors
    /// No thread can be started, or the machine has no certificate authorities for `https`.
    pub fn start(
        config: ExporterConfig,
        hear: impl Fn(ExporterEvent) + Send + 'static,
    ) -> io::Result<Arc<Exporter>> {
        let collector = CollectorClient::of(&config)?;
        let (queue, waiting) = mpsc::channel(MAX_QUEUED_REQUESTS);
        let (stop, stopping) = watch::channel(false);
        let (ended, over) = std_mpsc::channel();
        let counters = Arc::new(SpanCounters::default());
        let sender = ExportThread {
            collector,
            service: config.service.clone(),
            waiting,
            counters: counters.clone(),
            stopping,
            on_event: Box::new(hear),
            reported_failure: false,
            dropped_before: 0,
            reported: 0,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        std::thread::Builder::new()
            .name("howdah-traces".to_owned())
            .spawn(move || {
                runtime.block_on(sender.run());
                // A name lookup may hang.
                runtime.shutdown_background();
                drop(ended);
            })?;
        Ok(Arc::new(Exporter {
            config,
            queue,
            counters,
            stop,
            finished: Mutex::new(over),
        }))
    }

    /// Returns the configuration.
    pub fn config(&self) -> &ExporterConfig {
        &self.config
    }

    /// Queues a request's spans, or drops them while the queue is full. Never waits.
    pub fn send(&self, recorded: Box<RecordedRequest>) {
        if let Err(refused) = self.queue.try_send(recorded) {
            let dropped = otlp::count_spans(&refused.into_inner());
            self.counters.dropped.fetch_add(dropped, Ordering::Relaxed);
        }
    }

    /// Returns the counts of spans so far.
    pub fn counts(&self) -> SpanCounts {
        SpanCounts {
            exported: self.counters.exported.load(Ordering::Relaxed),
            dropped: self.counters.dropped.load(Ordering::Relaxed),
        }
    }

    /// Sends the remaining spans, and waits about two seconds at most.
    pub fn finish(&self) {
        self.stop.send_replace(true);
        let over = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        // A closed channel means that the thread has finished. After a timeout it continues on its own.
        let _ = over.recv_timeout(STOP_TIMEOUT + Duration::from_millis(200));
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}
