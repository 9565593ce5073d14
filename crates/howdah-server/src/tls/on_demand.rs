//! Names that clients ask for and no certificate covers, where certificates are ordered on demand. Whoever
//! orders hears of the name, and decides; until then the client's handshake is held, over TCP, and the
//! handshakes of few clients: others are refused.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustls::server::{Acceptor, ClientHello};
use tokio::sync::oneshot;

use super::certificates::Certificates;
use super::challenges;

/// A name is reported once in this time.
const AGAIN: Duration = Duration::from_secs(2);
/// Names remembered for that; while there are as many, others are not reported.
const NAMES: usize = 1000;
/// Handshakes held at once.
const HELD: usize = 256;

type Report = Box<dyn Fn(&str) + Send + Sync>;

/// See the module.
#[derive(Default)]
pub struct OnDemand {
    on: AtomicBool,
    report: OnceLock<Report>,
    recent: Mutex<HashMap<String, Reported>>,
    held: Mutex<Vec<(String, oneshot::Sender<()>)>>,
}

#[derive(Clone, Copy)]
struct Reported {
    at: Instant,
    denied: bool,
}

impl OnDemand {
    /// Who hears of names; must not block. Given once.
    pub fn report_by(&self, report: Report) {
        // A second time is ignored.
        let _ = self.report.set(report);
    }

    /// Whether certificates are ordered on demand, from now on.
    pub fn switch(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    pub(super) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Reports a name; whether a certificate for it may come.
    pub(super) fn note(&self, name: &str, now: Instant) -> bool {
        let Some(report) = self.report.get() else {
            return false;
        };
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |reported: &Reported| now.duration_since(reported.at) < AGAIN;
        if recent.len() >= NAMES {
            recent.retain(|_, reported| is_recent(reported));
        }
        if let Some(reported) = recent.get(name).filter(|reported| is_recent(reported)) {
            return !reported.denied;
        }
        if recent.len() >= NAMES {
            return false;
        }
        let denied = false;
        recent.insert(name.to_owned(), Reported { at: now, denied });
        drop(recent);
        report(name);
        true
    }

    /// There will be no certificate for this name: clients who wait for it are refused.
    pub fn deny(&self, name: &str) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reported) = recent.get_mut(name) {
            reported.denied = true;
        }
        drop(recent);
        self.release(|held| held == name);
    }

    /// There are other certificates: those whose name they cover go on.
    pub(super) fn look_again(&self, certificates: &Certificates) {
        self.release(|held| certificates.cover(held));
    }

    fn release(&self, whom: impl Fn(&str) -> bool) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|(name, _)| !whom(name));
    }

    /// What ends when a handshake for this name need not be held any longer; none: too many are.
    fn hold(&self, name: &str) -> Option<oneshot::Receiver<()>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|(_, waiting)| !waiting.is_closed());
        if held.len() >= HELD {
            return None;
        }
        let (release, waiting) = oneshot::channel();
        held.push((name.to_owned(), release));
        Some(waiting)
    }
}

/// What a listener's handshakes need to be held.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    pub(super) on_demand: Arc<OnDemand>,
    pub(super) certificates: Arc<Certificates>,
}

impl Demand {
    /// What the handshake has to wait for, if a certificate for its name may come: it ends when the
    /// handshake can go on.
    pub(crate) fn wait_for(&self, name: &str) -> Option<oneshot::Receiver<()>> {
        if self.certificates.cover(name) {
            return None;
        }
        // Held first, so that the answer finds it.
        let waiting = self.on_demand.hold(name)?;
        let may_come = self.on_demand.note(name, Instant::now());
        (may_come && !self.certificates.cover(name)).then_some(waiting)
    }
}

/// Reads a client's first message as far as it has come.
#[derive(Default)]
pub(crate) struct HelloReader {
    acceptor: Acceptor,
    taken: usize,
}

/// What a client's first message asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// It has not come yet.
    NotKnown,
    /// A certificate for this name.
    Name(String),
    /// Something else: it has no name, an authority looks for a proof, or it is not a ClientHello.
    Other,
}

impl HelloReader {
    /// `received` is all that has come of the connection.
    pub(crate) fn look(&mut self, received: &[u8]) -> Wants {
        while self.taken < received.len() {
            match self.acceptor.read_tls(&mut &received[self.taken..]) {
                Ok(n @ 1..) => self.taken += n,
                Ok(0) | Err(_) => return Wants::Other,
            }
            match self.acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => return wants(&accepted.client_hello()),
                Err(_) => return Wants::Other,
            }
        }
        Wants::NotKnown
    }
}

fn wants(hello: &ClientHello<'_>) -> Wants {
    match hello.server_name() {
        Some(name) if !challenges::looks_for_a_proof(hello) => {
            Wants::Name(name.to_ascii_lowercase())
        }
        _ => Wants::Other,
    }
}

impl fmt::Debug for OnDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnDemand").field(&self.is_on()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    #[test]
    fn a_flood_of_names_is_reported_to_a_limit() {
        let demand = OnDemand::default();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        demand.report_by(Box::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        }));
        let start = Instant::now();
        for number in 0..3 * NAMES {
            demand.note(&format!("{number}.example.org"), start);
            demand.note("0.example.org", start);
        }
        assert_eq!(count.load(Ordering::Relaxed), NAMES);
        demand.note("late.example.org", start + AGAIN);
        assert_eq!(count.load(Ordering::Relaxed), NAMES + 1);
    }

    #[test]
    fn handshakes_wait_for_names_that_may_come_and_few_of_them() {
        let demand = Demand {
            on_demand: Arc::default(),
            certificates: Arc::default(),
        };
        let (on_demand, name) = (demand.on_demand.clone(), "shop.example.net");
        assert!(demand.wait_for(name).is_none(), "nobody hears of it");
        on_demand.report_by(Box::new(|_| ()));
        let mut waiting = demand.wait_for(name).expect("it may come");
        let mut other = demand.wait_for("other.example.net").expect("it may come");
        assert_eq!(waiting.try_recv(), Err(TryRecvError::Empty));
        on_demand.deny(name);
        assert_eq!(waiting.try_recv(), Err(TryRecvError::Closed));
        assert_eq!(other.try_recv(), Err(TryRecvError::Empty));
        assert!(demand.wait_for(name).is_none(), "it was denied just now");
        let held: Vec<_> = (0..2 * HELD)
            .filter_map(|number| demand.wait_for(&format!("{number}.example.net")))
            .collect();
        assert_eq!(held.len(), HELD - 1);
        drop(held);
        assert!(demand.wait_for("late.example.net").is_some());
    }
}
