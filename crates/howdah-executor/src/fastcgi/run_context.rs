//! The data of a request that every stage needs: its number and frame, its body, its timer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::time::{Duration, Instant};

use howdah_proto::fastcgi::FastCgiRole;
use howdah_proto::level::LogLevel;
use howdah_proto::request::RequestFrame;
use tokio::time::Sleep;

use super::request::OutgoingBody;
use super::shared::FastCgiShared;
use crate::common::fair_queue::QueueClient;
use crate::{DropAtEnd, ExecError};

/// The maximum time between two checks of the deadlines, since a drain may have begun.
pub const DEADLINE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A request to a pool of backends, without its stage.
pub struct RunContext {
    pub shared: Arc<FastCgiShared>,
    pub front: usize,
    pub client: QueueClient,
    pub id: u64,
    pub role: FastCgiRole,
    pub frame: RequestFrame,
    pub body: OutgoingBody,
    /// Dropped with the connection, or when the connection is free for another request.
    pub drop_at_end: Option<DropAtEnd>,
    /// Whether the request may be run twice (RFC 9110 §9.2.2).
    pub idempotent: bool,
    pub began: Instant,
    /// When a backend was granted, and which one.
    pub granted: Option<(Instant, usize)>,
    pub timer: Option<Pin<Box<Sleep>>>,
}

impl RunContext {
    /// Returns the deadline for getting a backend.
    pub fn queue_deadline(&self) -> Instant {
        self.began + self.shared.config.queue_timeout
    }

    /// Sleeps until `at`. Returns `true` if that time has passed and the caller should check again.
    pub fn sleep(&mut self, cx: &mut Context<'_>, now: Instant, at: Instant) -> bool {
        let at = tokio::time::Instant::from_std(at.min(now + DEADLINE_CHECK_INTERVAL));
        let timer = match &mut self.timer {
            Some(timer) => {
                // An earlier deadline is not postponed: it only causes one more check.
                if timer.is_elapsed() || timer.deadline() > at {
                    timer.as_mut().reset(at);
                }
                timer
            }
            None => self.timer.insert(Box::pin(tokio::time::sleep_until(at))),
        };
        timer.as_mut().poll(cx).is_ready()
    }

    /// Returns the error that ends a request without a backend, if there is one.
    pub fn waiting_error(&self, now: Instant) -> Option<ExecError> {
        if self.shared.is_past_drain_deadline(now) {
            return Some(ExecError::Stopping);
        }
        if now >= self.queue_deadline() {
            let down = self.shared.unreachable_error(now, false);
            return Some(down.unwrap_or(ExecError::QueueTimeout));
        }
        self.shared.unreachable_error(now, true)
    }

    /// Writes a line of the script to the error log.
    pub fn log_line(&self, level: LogLevel, text: &[u8]) {
        let shared = &self.shared;
        shared
            .log
            .script(&shared.config.name, self.id, &self.frame, level, text);
    }
}
