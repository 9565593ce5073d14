//! Names that clients ask for and no certificate covers, where certificates are ordered on demand. Whoever
//! orders hears of the name, and decides; until then the client's handshake is held, over TCP, and the
//! few handshakes: others are refused. No client can have all of what is bounded here
//! ([`howdah_os::shares`]).

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use howdah_os::shares::{Client, Shares};
use rustls::server::{Acceptor, ClientHello};
use tokio::sync::oneshot;

use super::certificates::Certificates;
use super::challenges;
use crate::network;

/// A name is reported once in this time.
const AGAIN: Duration = Duration::from_secs(2);
/// Names remembered for that; while there are as many, others are not reported. A client has up to half.
const NAMES: usize = 1000;
/// Handshakes held at once. A client has up to half of them.
const HELD: usize = 512;

type Report = Box<dyn Fn(&str, Client) + Send + Sync>;

/// See the module.
pub struct OnDemand {
    on: AtomicBool,
    report: OnceLock<Report>,
    recent: Mutex<Shares<Reported>>,
    held: Mutex<Vec<Held>>,
}

impl Default for OnDemand {
    fn default() -> OnDemand {
        OnDemand {
            on: AtomicBool::default(),
            report: OnceLock::default(),
            recent: Mutex::new(Shares::new(NAMES)),
            held: Mutex::default(),
        }
    }
}

/// A handshake that waits for the certificate of its name.
struct Held {
    name: String,
    client: Client,
    release: oneshot::Sender<()>,
}

#[derive(Clone, Copy)]
struct Reported {
    at: Instant,
    denied: bool,
}

impl OnDemand {
    /// Who hears of names, and of whose question each is; must not block. Given once.
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
    pub(super) fn note(&self, name: &str, client: Client, now: Instant) -> bool {
        let Some(report) = self.report.get() else {
            return false;
        };
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |reported: &Reported| now.duration_since(reported.at) < AGAIN;
        if let Some(reported) = recent.get(name).filter(|reported| is_recent(reported)) {
            return !reported.denied;
        }
        if !recent.has_room(client) {
            recent.retain(|_, reported| is_recent(reported));
        }
        if !recent.has_room(client) {
            return false;
        }
        let denied = false;
        recent.put(name, client, Reported { at: now, denied });
        drop(recent);
        report(name, client);
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
        held.retain(|held| !whom(&held.name));
    }

    /// What ends when a handshake for this name need not be held any longer; none: too many are.
    fn hold(&self, name: &str, client: Client) -> Option<oneshot::Receiver<()>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|held| !held.release.is_closed());
        let own = held.iter().filter(|held| held.client == client).count();
        // As `Shares` counts: less than what is free.
        if own >= HELD - held.len() {
            return None;
        }
        let (release, waiting) = oneshot::channel();
        held.push(Held {
            name: name.to_owned(),
            client,
            release,
        });
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
    pub(crate) fn wait_for(
        &self,
        name: &str,
        client: Option<IpAddr>,
    ) -> Option<oneshot::Receiver<()>> {
        if self.certificates.cover(name) {
            return None;
        }
        // Held first, so that the answer finds it.
        let client = client.map(network::of_one_client);
        let waiting = self.on_demand.hold(name, client)?;
        let may_come = self.on_demand.note(name, client, Instant::now());
        (may_come && !self.certificates.cover(name)).then_some(waiting)
    }
}

impl Demand {
    /// Reports a name whose handshake cannot be held, over QUIC. `client` is none where the address may be
    /// forged.
    pub(super) fn note(&self, name: &str, client: Option<IpAddr>) {
        if self.on_demand.is_on() && !self.certificates.cover(name) {
            let client = client.map(network::of_one_client);
            self.on_demand.note(name, client, Instant::now());
        }
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

    fn client(last: u8) -> Client {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    #[test]
    fn a_flood_of_names_is_reported_to_a_limit_and_hides_nobody_elses() {
        let demand = OnDemand::default();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        demand.report_by(Box::new(move |_, _| {
            counted.fetch_add(1, Ordering::Relaxed);
        }));
        let (start, flood) = (Instant::now(), client(1));
        for number in 0..3 * NAMES {
            demand.note(&format!("{number}.example.org"), flood, start);
            demand.note("0.example.org", flood, start);
        }
        assert_eq!(count.load(Ordering::Relaxed), NAMES / 2);
        assert!(demand.note("shop.example.net", client(2), start));
        assert_eq!(count.load(Ordering::Relaxed), NAMES / 2 + 1);
        demand.note("late.example.org", flood, start + AGAIN);
        assert_eq!(count.load(Ordering::Relaxed), NAMES / 2 + 2);
    }

    #[test]
    fn handshakes_wait_for_names_that_may_come_and_few_of_one_client() {
        let demand = Demand {
            on_demand: Arc::default(),
            certificates: Arc::default(),
        };
        let (on_demand, name) = (demand.on_demand.clone(), "shop.example.net");
        let wait_for = |name: &str| demand.wait_for(name, client(1));
        assert!(wait_for(name).is_none(), "nobody hears of it");
        on_demand.report_by(Box::new(|_, _| ()));
        let mut waiting = wait_for(name).expect("it may come");
        let mut other = wait_for("other.example.net").expect("it may come");
        assert_eq!(waiting.try_recv(), Err(TryRecvError::Empty));
        on_demand.deny(name);
        assert_eq!(waiting.try_recv(), Err(TryRecvError::Closed));
        assert_eq!(other.try_recv(), Err(TryRecvError::Empty));
        assert!(wait_for(name).is_none(), "it was denied just now");
        // Of one client, however many of its addresses it uses.
        let network: std::net::Ipv6Addr = "2001:db8:0:1::".parse().unwrap();
        let held: Vec<_> = (0..HELD)
            .filter_map(|number| {
                let address = IpAddr::from(std::net::Ipv6Addr::from_bits(
                    network.to_bits() + number as u128,
                ));
                demand.wait_for(&format!("{number}.example.net"), Some(address))
            })
            .collect();
        assert_eq!(held.len(), HELD / 2);
        assert!(wait_for("late.example.net").is_some());
    }
}
