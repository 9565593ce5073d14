//! One attempt to obtain a certificate for a name, and the recording of its outcome.

use std::rc::Rc;
use std::time::SystemTime;

use super::super::in_words;
use super::{Keeper, LOOK, random};
use crate::certificate::Stored;
use crate::failure::Failure;
use crate::lease::Lease;
use crate::store::{Record, Trouble};
use crate::{local, schedule, seconds};

impl Keeper {
    /// Orders a certificate while no other process that shares the directory does. Returns what was done, or why it
    /// failed.
    pub(super) async fn attempt(&mut self, forced: bool) -> Result<String, String> {
        let shared = self.shared.clone();
        // The semaphore is never closed.
        let _permit = shared.orders.acquire().await;
        let outcome = self.locked(forced).await;
        self.ordering = false;
        let line = match outcome {
            Ok(line) => Ok(line),
            Err(failure) => Err(self.note(&failure)),
        };
        self.tell();
        line
    }

    async fn locked(&mut self, forced: bool) -> Result<String, Failure> {
        let before = self.stamp;
        let mut lease = self.lock().await?;
        // Another process may have ordered it meanwhile.
        self.look_again();
        let done = match forced {
            true => self.stamp != before,
            false => {
                let now = SystemTime::now();
                self.due(now) > now
            }
        };
        if done {
            return Ok(format!(
                "{}: another process has just ordered it",
                self.name
            ));
        }
        self.ordering = true;
        self.tell();
        let attempts = self.record.trouble.as_ref().map_or(0, |t| t.attempts);
        let former = self.certificate.clone();
        let former = former
            .as_deref()
            .map(|c| (c, self.record.authority.as_deref()));
        let ordering = self.shared.obtain(&self.name, former, attempts);
        let (authority, stored) = lease.hold(ordering).await?;
        Ok(self.accept(authority, stored))
    }

    async fn lock(&mut self) -> Result<Lease, Failure> {
        let store = self.shared.store();
        store.lock(&self.name, &mut self.watcher).await
    }

    /// Uses a new certificate and stores it.
    fn accept(&mut self, authority: String, stored: Stored) -> String {
        let now = SystemTime::now();
        let left = stored.validity.not_after.duration_since(now);
        let line = format!(
            "{}: {} {authority}, valid for {}",
            self.name,
            if self.certificate.is_some() {
                "renewed by"
            } else {
                "certificate of"
            },
            in_words(left.unwrap_or_default())
        );
        let renew = schedule::renewal(stored.validity, None, random());
        self.record = Record {
            ask_window_at: (authority != local::NAME).then(|| seconds(now)),
            authority: Some(authority),
            renew_at: Some(seconds(renew)),
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
                let now = seconds(SystemTime::now());
                let since = self.record.trouble.as_ref().map_or(now, |t| t.since);
                if self.record.trouble.is_none() {
                    self.shared.log(format!("{}: {}: {failure}; the certificate is used, and would be lost with the process", failure.name(), self.name));
                }
                self.record.trouble = Some(Trouble {
                    name: failure.name().to_owned(),
                    message: failure.to_string(),
                    since,
                    attempts: 1,
                    next: now + LOOK.as_secs(),
                });
            }
        }
        self.stamp = store.stamp(&self.name);
        self.tell();
    }

    /// Records and logs a failure.
    fn note(&mut self, failure: &Failure) -> String {
        let now = SystemTime::now();
        let before = self.record.trouble.take();
        let attempts = before.as_ref().map_or(0, |t| t.attempts) + 1;
        let pause = schedule::pause(failure.kind(), attempts, failure.retry_after(), random());
        self.record.trouble = Some(Trouble {
            name: failure.name().to_owned(),
            message: failure.to_string(),
            since: before.map_or(seconds(now), |t| t.since),
            attempts,
            next: seconds(now + pause),
        });
        // The record in memory is used even if this fails.
        let _ = self.shared.store().save_record(&self.name, &self.record);
        let state = match &self.certificate {
            None => "there is no certificate".to_owned(),
            Some(stored) => match stored.validity.not_after.duration_since(now) {
                Ok(left) => format!("the certificate stays in use, valid for {}", in_words(left)),
                Err(_) => "the certificate has expired".to_owned(),
            },
        };
        let line = format!(
            "{}: {}: {failure}; {state}; attempt {attempts}, the next in {}",
            failure.name(),
            self.name,
            in_words(pause)
        );
        self.shared.log(line.clone());
        line
    }
}
