//! One attempt to obtain a certificate for a name, and the recording of its outcome.

use std::rc::Rc;
use std::time::SystemTime;

use super::super::human_duration;
use super::{MAX_SLEEP, NameTask, random_fraction};
use crate::certificate::StoredCertificate;
use crate::failure::AcmeFailure;
use crate::lease::LockLease;
use crate::store::{FailedAttempts, RenewalRecord};
use crate::{local, schedule, unix_seconds};

impl NameTask {
    /// Orders a certificate while no other process that shares the directory does. Returns what was done, or why it
    /// failed.
    pub(super) async fn attempt(&mut self, forced: bool) -> Result<String, String> {
        let shared = self.shared.clone();
        // The semaphore is never closed.
        let _permit = shared.orders.acquire().await;
        let outcome = self.attempt_locked(forced).await;
        self.ordering = false;
        let line = match outcome {
            Ok(line) => Ok(line),
            Err(failure) => Err(self.record_failure(&failure)),
        };
        self.publish_state();
        line
    }

    async fn attempt_locked(&mut self, forced: bool) -> Result<String, AcmeFailure> {
        let before = self.stamp;
        let mut lease = self.lock().await?;
        // Another process may have ordered it meanwhile.
        self.reload_if_changed();
        let done = match forced {
            true => self.stamp != before,
            false => {
                let now = SystemTime::now();
                self.next_due(now) > now
            }
        };
        if done {
            return Ok(format!(
                "{}: another process has just ordered the certificate",
                self.name
            ));
        }
        self.ordering = true;
        self.publish_state();
        let attempts = self.record.trouble.as_ref().map_or(0, |t| t.attempts);
        let former = self.certificate.clone();
        let former = former
            .as_deref()
            .map(|c| (c, self.record.authority.as_deref()));
        let ordering = self.shared.obtain_certificate(&self.name, former, attempts);
        let (authority, stored) = lease.run_holding(ordering).await?;
        Ok(self.accept(authority, stored))
    }

    async fn lock(&mut self) -> Result<LockLease, AcmeFailure> {
        let store = self.shared.store();
        store.lock(&self.name, &mut self.watcher).await
    }

    /// Uses a new certificate and stores it.
    fn accept(&mut self, authority: String, stored: StoredCertificate) -> String {
        let now = SystemTime::now();
        let left = stored.validity.not_after.duration_since(now);
        let line = format!(
            "{}: {} {authority}, valid for {}",
            self.name,
            if self.certificate.is_some() {
                "renewed by"
            } else {
                "certificate issued by"
            },
            human_duration(left.unwrap_or_default())
        );
        let renew = schedule::renewal_time(stored.validity, None, random_fraction());
        self.record = RenewalRecord {
            ask_window_at: (authority != local::LOCAL_AUTHORITY_NAME).then(|| unix_seconds(now)),
            authority: Some(authority),
            renew_at: Some(unix_seconds(renew)),
            trouble: None,
        };
        self.certificate = Some(Rc::new(stored));
        self.unsaved = true;
        self.save();
        self.shared.log(line.clone());
        line
    }

    /// Stores the certificate. It is used even if this fails.
    pub(super) fn save(&mut self) {
        let (store, Some(stored)) = (self.shared.store(), self.certificate.clone()) else {
            return;
        };
        let saved = store.prepare().and_then(|()| {
            store.save_record(&self.name, &self.record)?;
            store.save(&self.name, &stored)
        });
        match saved {
            Ok(()) => {
                self.unsaved = false;
                if self
                    .record
                    .trouble
                    .as_ref()
                    .is_some_and(|t| t.name == "StoreFailed")
                {
                    self.record.trouble = None;
                }
            }
            Err(failure) => {
                let now = unix_seconds(SystemTime::now());
                let since = self.record.trouble.as_ref().map_or(now, |t| t.since);
                if self.record.trouble.is_none() {
                    self.shared.log(format!("{}: {}: {failure}; the certificate is in use, but it will be lost when the process exits", failure.name(), self.name));
                }
                self.record.trouble = Some(FailedAttempts {
                    name: failure.name().to_owned(),
                    message: failure.to_string(),
                    since,
                    attempts: 1,
                    next: now + MAX_SLEEP.as_secs(),
                });
            }
        }
        self.stamp = store.stamp(&self.name);
        self.publish_state();
    }

    /// Records and logs a failure.
    fn record_failure(&mut self, failure: &AcmeFailure) -> String {
        let now = SystemTime::now();
        let before = self.record.trouble.take();
        let attempts = before.as_ref().map_or(0, |t| t.attempts) + 1;
        let pause = schedule::retry_pause(
            failure.class(),
            attempts,
            failure.retry_after(),
            random_fraction(),
        );
        self.record.trouble = Some(FailedAttempts {
            name: failure.name().to_owned(),
            message: failure.to_string(),
            since: before.map_or(unix_seconds(now), |t| t.since),
            attempts,
            next: unix_seconds(now + pause),
        });
        // The record in memory is used even if this fails.
        let _ = self.shared.store().save_record(&self.name, &self.record);
        let state = match &self.certificate {
            None => "there is no certificate".to_owned(),
            Some(stored) => match stored.validity.not_after.duration_since(now) {
                Ok(left) => format!(
                    "the current certificate remains in use and is valid for {}",
                    human_duration(left)
                ),
                Err(_) => "the certificate has expired".to_owned(),
            },
        };
        let line = format!(
            "{}: {}: {failure}; {state}; this was attempt {attempts}, the next one is in {}",
            failure.name(),
            self.name,
            human_duration(pause)
        );
        self.shared.log(line.clone());
        line
    }
}
