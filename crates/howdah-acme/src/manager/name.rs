//! The task of one name: its state, and when an order is due. [`attempt`] carries the order out.

mod attempt;

use std::rc::Rc;
use std::time::{Duration, SystemTime};

use howdah_os::files::FileStamp;
use tokio::sync::mpsc;

use super::{ManagerState, NameStatus, PublishedName};
use crate::certificate::StoredCertificate;
use crate::lease::LockWatcher;
use crate::order::OrderContext;
use crate::store::{RenewalRecord, StoredState};
use crate::{names, schedule, system_time, unix_seconds};

/// The longest sleep, because the clock may be changed and another host may renew.
const MAX_SLEEP: Duration = Duration::from_secs(60);
/// The minimum and maximum time for which an authority's renewal window is taken as valid.
const WINDOW_VALIDITY_RANGE: (Duration, Duration) =
    (Duration::from_secs(600), Duration::from_secs(86400));

/// A message to the task that interrupts its sleep.
pub(super) enum NameTaskMessage {
    /// Order now, and send the outcome.
    Order(mpsc::UnboundedSender<Result<String, String>>),
    /// The configuration has changed: retry if the last attempt failed.
    Retry,
    /// The certificate has been removed.
    Removed,
}

/// The task of a name; see the module.
pub(super) struct NameTask {
    shared: Rc<ManagerState>,
    name: String,
    certificate: Option<Rc<StoredCertificate>>,
    /// Whether the certificate could not be written to the directory.
    unsaved: bool,
    stamp: Option<FileStamp>,
    record: RenewalRecord,
    ordering: bool,
    watcher: LockWatcher,
}

impl NameTask {
    /// Creates the task with the certificate in the directory.
    pub(super) fn new(shared: Rc<ManagerState>, name: String) -> NameTask {
        let mut keeper = NameTask {
            record: shared.store().record(&name),
            shared,
            name,
            certificate: None,
            unsaved: false,
            stamp: None,
            ordering: false,
            watcher: LockWatcher::default(),
        };
        keeper.load();
        keeper
    }

    /// Returns the state that is visible to other tasks.
    pub(super) fn state(&self) -> PublishedName {
        let certificate = self.certificate.clone();
        let status = NameStatus {
            name: self.name.clone(),
            authority: certificate.as_ref().and(self.record.authority.clone()),
            not_after: certificate
                .as_ref()
                .map(|c| unix_seconds(c.validity.not_after)),
            renew_at: certificate.as_ref().and(self.record.renew_at),
            ordering: self.ordering,
            trouble: self.record.trouble.clone(),
        };
        PublishedName {
            certificate,
            status,
        }
    }

    fn publish_state(&self) {
        let PublishedName {
            certificate,
            status,
        } = self.state();
        self.shared.update_name(&self.name, certificate, status);
    }

    pub(super) async fn run(mut self, mut nudges: mpsc::UnboundedReceiver<NameTaskMessage>) {
        if self.certificate.is_none()
            && self.record.trouble.is_none()
            && !names::needs_local_authority(&self.name)
        {
            self.shared.log(format!(
                "CertificatePending: {} has no certificate yet; one is being ordered, and until it is issued, TLS connections to this name are refused",
                self.name
            ));
        }
        loop {
            self.reload_if_changed();
            let now = SystemTime::now();
            if self.can_end(now) {
                self.shared.names.borrow_mut().remove(&self.name);
                self.shared.publish_status();
                return;
            }
            if self.next_due(now) <= now {
                // The outcome is already in the log and the status.
                let _ = self.attempt(false).await;
                continue;
            }
            self.update_renewal_window(now).await;
            let pause = self.next_due(now).duration_since(now).unwrap_or_default();
            let pause = pause.clamp(Duration::from_millis(10), MAX_SLEEP);
            match tokio::time::timeout(pause, nudges.recv()).await {
                Err(_) => {}
                Ok(None) => return,
                Ok(Some(NameTaskMessage::Removed)) => {
                    self.certificate = None;
                    self.record = RenewalRecord::default();
                    self.publish_state();
                }
                Ok(Some(NameTaskMessage::Retry)) => {
                    if let Some(trouble) = &mut self.record.trouble {
                        trouble.next = 0;
                    }
                }
                Ok(Some(NameTaskMessage::Order(reply))) => {
                    let outcome = self.attempt(true).await;
                    let _ = reply.send(outcome);
                }
            }
        }
    }

    /// Returns whether the task can end: the name is not configured and got no certificate, so the next client may ask
    /// for it again.
    fn can_end(&self, now: SystemTime) -> bool {
        let settings = self.shared.settings();
        self.certificate.is_none()
            && self.record.trouble.is_some()
            && self.next_due(now) > now
            && !settings.names.contains(&self.name)
    }

    /// Returns when the next order is due.
    fn next_due(&self, now: SystemTime) -> SystemTime {
        let wanted = match (&self.certificate, self.record.renew_at) {
            (None, _) => SystemTime::UNIX_EPOCH,
            (Some(_), Some(at)) => system_time(at),
            (Some(stored), None) => schedule::renewal_time(stored.validity, None, 0.5),
        };
        match &self.record.trouble {
            // This trouble needs no order, because only writing the certificate failed.
            Some(_) if self.unsaved => wanted,
            Some(trouble) => schedule::next_attempt(trouble.since, trouble.next, now),
            None => wanted,
        }
    }

    /// Reads the directory again if the file has changed.
    fn reload_if_changed(&mut self) {
        if self.unsaved {
            self.save();
        }
        if self.shared.store().stamp(&self.name) != self.stamp {
            let before = self.certificate.clone();
            self.record = self.shared.store().record(&self.name);
            self.load();
            if self.certificate != before {
                self.shared.log(format!(
                    "{}: uses the certificate that another process has stored in the directory",
                    self.name
                ));
            }
            self.publish_state();
        }
    }

    fn load(&mut self) {
        let store = self.shared.store();
        self.stamp = store.stamp(&self.name);
        match store.load(&self.name) {
            StoredState::Good(stored) => {
                if self.certificate.as_deref() != Some(&*stored) {
                    self.certificate = Some(Rc::from(stored));
                }
                self.unsaved = false;
            }
            StoredState::None => {}
            StoredState::Broken(why) => {
                self.shared.log(format!(
                    "CertificateBroken: {}: the stored certificate cannot be used ({why}); it is renamed to .broken, and a new one is ordered",
                    self.name
                ));
                store.set_aside(&self.name);
                self.stamp = store.stamp(&self.name);
                if self.certificate.is_some() {
                    self.unsaved = true;
                } else {
                    self.record = RenewalRecord::default();
                }
            }
        }
    }

    /// Asks the authority when to renew (RFC 9773), if its last response is too old.
    async fn update_renewal_window(&mut self, now: SystemTime) {
        let (Some(stored), Some(at)) = (self.certificate.clone(), self.record.ask_window_at) else {
            return;
        };
        let Some(authority) = self.shared.authority(self.record.authority.as_deref()) else {
            return;
        };
        // A time further away was recorded by a clock that has been set back since.
        if system_time(at) > now && system_time(at) <= now + 2 * WINDOW_VALIDITY_RANGE.1 {
            return;
        }
        let (settings, store) = (self.shared.settings(), self.shared.store());
        let orders = OrderContext {
            settings: &settings,
            store: &store,
            board: &self.shared.board,
            client: &self.shared.client,
        };
        let (least, most) = WINDOW_VALIDITY_RANGE;
        let again = match orders.renewal_window(&authority, &stored).await {
            None => most / 4,
            Some((window, again)) => {
                let chosen = self.record.renew_at.map(system_time);
                if chosen.is_none_or(|at| at < window.start || at > window.end) {
                    let at =
                        schedule::renewal_time(stored.validity, Some(window), random_fraction());
                    self.record.renew_at = Some(unix_seconds(at));
                }
                again.clamp(least, most)
            }
        };
        self.record.ask_window_at = Some(unix_seconds(now + again));
        let _ = store.save_record(&self.name, &self.record);
        self.publish_state();
    }
}

/// Returns a random number from 0 to 1.
fn random_fraction() -> f64 {
    let mut bytes = [0; 4];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(4) => f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX),
        _ => 0.5,
    }
}
