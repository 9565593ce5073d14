//! Names that clients ask for and that no certificate covers, if certificates are ordered on demand. The name is
//! reported to the component that orders certificates, which decides. Over TCP the client's handshake is held until
//! then; only a limited number of handshakes is held, and others are refused. No client can use up a limit alone
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

/// The time in which a name is reported only once.
const AGAIN: Duration = Duration::from_secs(2);
/// The maximum number of recently reported names. While it is reached, other names are not reported. A client may use
/// up to half of it.
const NAMES: usize = 1000;
/// The maximum number of handshakes held at once. A client may use up to half of it.
const HELD: usize = 512;

type Report = Box<dyn Fn(&str, Client) + Send + Sync>;

/// The state of names on demand; see the module.
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
    /// Sets the function that receives names and the client that asked for each. It must not block. To be called once.
    pub fn report_by(&self, report: Report) {
        // Further calls are ignored.
        let _ = self.report.set(report);
    }

    /// Switches ordering on demand on or off.
    pub fn switch(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    pub(super) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Reports a name. Returns whether a certificate for it may become available.
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

    /// Records that there will be no certificate for this name; clients that wait for it are refused.
    pub fn deny(&self, name: &str) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reported) = recent.get_mut(name) {
            reported.denied = true;
        }
        drop(recent);
        self.release(|held| held == name);
    }

    /// Resumes the handshakes whose name is covered by the new certificates.
    pub(super) fn look_again(&self, certificates: &Certificates) {
        self.release(|held| certificates.cover(held));
    }

    fn release(&self, whom: impl Fn(&str) -> bool) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|held| !whom(&held.name));
    }

    /// Holds a handshake for this name. The receiver completes when the handshake need not be held any longer. Returns
    /// `None` if too many are held.
    fn hold(&self, name: &str, client: Client) -> Option<oneshot::Receiver<()>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|held| !held.release.is_closed());
        let own = held.iter().filter(|held| held.client == client).count();
        // The same rule as in `Shares`: a client must hold fewer than are free.
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

/// The state that a listener needs to hold handshakes.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    pub(super) on_demand: Arc<OnDemand>,
    pub(super) certificates: Arc<Certificates>,
}

impl Demand {
    /// Returns a receiver to wait for if a certificate for the name may become available. It completes when the
    /// handshake can continue.
    pub(crate) fn wait_for(
        &self,
        name: &str,
        client: Option<IpAddr>,
    ) -> Option<oneshot::Receiver<()>> {
        if self.certificates.cover(name) {
            return None;
        }
        // The handshake is held before the name is reported, so the decision finds it.
        let client = client.map(network::of_one_client);
        let waiting = self.on_demand.hold(name, client)?;
        let may_come = self.on_demand.note(name, client, Instant::now());
        (may_come && !self.certificates.cover(name)).then_some(waiting)
    }
}

impl Demand {
    /// Reports a name whose handshake cannot be held, over QUIC. `client` is `None` if the address may be forged.
    pub(super) fn note(&self, name: &str, client: Option<IpAddr>) {
        if self.on_demand.is_on() && !self.certificates.cover(name) {
            let client = client.map(network::of_one_client);
            self.on_demand.note(name, client, Instant::now());
        }
    }
}

/// Parses a client's first message as far as it has arrived.
#[derive(Default)]
pub(crate) struct HelloReader {
    acceptor: Acceptor,
    taken: usize,
}

/// The name that a client's first message asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// The message has not arrived completely.
    NotKnown,
    /// The client asks for a certificate for this name.
    Name(String),
    /// Anything else: there is no name, an authority checks a proof, or the message is not a ClientHello.
    Other,
}

impl HelloReader {
    /// Inspects the first message. `received` is all that has arrived on the connection.
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
        // One client, however many of its addresses it uses.
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
