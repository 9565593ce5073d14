//! Collects the status of the front for the status page, `howdah status` and metrics.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use howdah_executor::Executor;
use howdah_executor::status::PoolStatus;
use howdah_http::Responder;
use howdah_http::message::{RequestHead, ResponseHead};
use howdah_http::{memory, turn};
use howdah_os::clock;

use super::Front;
use crate::admin::history::{SAMPLE_INTERVAL, Sample};
use crate::admin::{self, ServerStatus, StatusForm, TurnsStatus, UsageAndLimit};
use crate::proxy;

impl Front {
    /// Returns the whole status, for the status page, `howdah status` and metrics.
    pub fn status(&self) -> ServerStatus {
        let config = self.config();
        let sums = self.counters.sums();
        let bounds = crate::admin::counters::LATENCY_BUCKETS_SECONDS
            .into_iter()
            .map(Some)
            .chain([None]);
        ServerStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime: self.started.elapsed().as_secs(),
            reloads: self.reloads.load(Ordering::Relaxed),
            connections: self
                .connections
                .get()
                .map(|counts| counts())
                .unwrap_or_default(),
            memory: UsageAndLimit {
                used: memory::used(),
                limit: memory::limit().unwrap_or(u64::MAX),
            },
            spilled: UsageAndLimit {
                used: config.process.spill_room.used(),
                limit: config.process.spill_room.limit(),
            },
            requests: sums.started,
            requests_active: sums.started.saturating_sub(sums.finished),
            bytes_sent: sums.bytes,
            turns: TurnsStatus::from_record(&turn::turn_statistics()),
            request_seconds: sums.seconds,
            durations: bounds.zip(sums.buckets).collect(),
            statuses: sums.statuses,
            failures: sums.failures,
            handshakes: sums.handshakes,
            certificates: self
                .certificates
                .get()
                .map(|c| c.status())
                .unwrap_or_default(),
            failing_orders: self
                .certificates
                .get()
                .map(|c| c.failing_orders())
                .unwrap_or_default(),
            access_log_dropped: config
                .resources
                .access_log
                .as_ref()
                .map_or(0, |l| l.sink().dropped()),
            error_log_dropped: self.error_log.sink().dropped(),
            spans: config
                .resources
                .traces
                .as_ref()
                .map(|traces| traces.exporter().counts()),
            pools: self.pools(),
            status_listener: None,
            proxied: proxy::server_registry::rows(),
            jobs: admin::jobs::shown_jobs(),
            limits: config.limits(),
            history: self
                .history
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .status(),
            sites: config.site_statuses(),
            cache: config
                .cache
                .as_ref()
                .map(|cache| cache.status(&config.sites)),
        }
    }

    /// Starts the thread that takes a sample for the history every ten seconds. This is a separate thread because
    /// taking a sample locks every pool once, and no connection should wait for that. The thread ends with the front.
    pub fn start_history_thread(self: &Arc<Front>) -> io::Result<()> {
        let front = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("history".to_owned());
        thread.spawn(move || {
            loop {
                std::thread::sleep(SAMPLE_INTERVAL);
                match front.upgrade() {
                    Some(front) => front.take_sample(),
                    None => return,
                }
            }
        })?;
        Ok(())
    }

    /// Adds a sample of the present moment to the history.
    fn take_sample(&self) {
        let config = self.config();
        let connections = self.connections.get().map(|counts| counts().open);
        let sample = Sample {
            sums: self.counters.sums(),
            queue: config
                .pools
                .iter()
                .map(|p| u64::from(p.queue_length()))
                .sum(),
            connections: connections.unwrap_or_default(),
        };
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.take(clock::now(), clock::wall(), sample);
        drop(history);
        config.process.traffic.turn_over(clock::now());
    }

    /// Returns the status of each pool.
    pub fn pools(&self) -> Vec<PoolStatus> {
        let config = self.config();
        let status = |pool: &Arc<dyn Executor>| PoolStatus {
            max_children: pool.max_processes().unwrap_or_default(),
            ..pool.status()
        };
        config.pools.iter().map(status).collect()
    }

    /// Responds with the status page.
    pub(super) fn status_page(&self, request: &RequestHead, out: &mut Responder) {
        let form = StatusForm::requested_by(request);
        let text = form.write(&self.status());
        let mut head = ResponseHead::new(200);
        head.header(b"Content-Type", form.content_type().as_bytes());
        head.header(b"Cache-Control", b"no-store");
        out.respond(&head, text);
    }
}
