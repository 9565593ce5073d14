//! Names that clients ask for and that no certificate covers, if certificates are ordered on demand. The name is
//! reported to the component that orders certificates, which decides. Over TCP the client's handshake is held until
//! then; only a limited number of handshakes is held, and others are refused. No client can use up a limit alone
//! ([`howdah_os::client_quota`]).

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use howdah_os::client_quota::{ClientQuota, QuotaClient};
use rustls::server::{Acceptor, ClientHello};
use tokio::sync::oneshot;

use super::certificates::ServerCertificates;
use super::challenges;
use crate::network;

/// The time in which a name is reported only once.
const REPORT_INTERVAL: Duration = Duration::from_secs(2);
/// The maximum number of recently reported names. While it is reached, other names are not reported. A client may use
/// up to half of it.
const MAX_REPORTED_NAMES: usize = 1000;
/// The maximum number of handshakes held at once. A client may use up to half of it.
const MAX_HELD_HANDSHAKES: usize = 512;

type NameReporter = Box<dyn Fn(&str, QuotaClient) + Send + Sync>;

/// The state of names on demand; see the module.
pub struct OnDemandNames {
    on: AtomicBool,
    report: OnceLock<NameReporter>,
    recent: Mutex<ClientQuota<ReportedName>>,
    held: Mutex<Vec<HeldHandshake>>,
}

impl Default for OnDemandNames {
    fn default() -> OnDemandNames {
        OnDemandNames {
            on: AtomicBool::default(),
            report: OnceLock::default(),
            recent: Mutex::new(ClientQuota::new(MAX_REPORTED_NAMES)),
            held: Mutex::default(),
        }
    }
}

/// A handshake that waits for the certificate of its name.
struct HeldHandshake {
    name: String,
    client: QuotaClient,
    release: oneshot::Sender<()>,
}

#[derive(Clone, Copy)]
struct ReportedName {
    at: Instant,
    denied: bool,
}

impl OnDemandNames {
    /// Sets the function that receives names and the client that asked for each. It must not block. To be called once.
    pub fn set_reporter(&self, report: NameReporter) {
        // Further calls are ignored.
        let _ = self.report.set(report);
    }

    /// Switches ordering on demand on or off.
    pub fn set_enabled(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Reports a name. Returns whether a certificate for it may become available.
    pub(super) fn report_once(&self, name: &str, client: QuotaClient, now: Instant) -> bool {
        let Some(report) = self.report.get() else {
            return false;
        };
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |reported: &ReportedName| now.duration_since(reported.at) < REPORT_INTERVAL;
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
        recent.insert(name, client, ReportedName { at: now, denied });
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
    pub(super) fn release_covered(&self, certificates: &ServerCertificates) {
        self.release(|held| certificates.cover(held));
    }

    fn release(&self, whom: impl Fn(&str) -> bool) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|held| !whom(&held.name));
    }

    /// Holds a handshake for this name. The receiver completes when the handshake need not be held any longer. Returns
    /// `None` if too many are held.
    fn hold(&self, name: &str, client: QuotaClient) -> Option<oneshot::Receiver<()>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|held| !held.release.is_closed());
        let own = held.iter().filter(|held| held.client == client).count();
        // The same rule as in `ClientQuota`: a client may hold one more handshake only if it holds fewer than are free.
        if own >= MAX_HELD_HANDSHAKES - held.len() {
            return None;
        }
        let (release, waiting) = oneshot::channel();
        held.push(HeldHandshake {
            name: name.to_owned(),
            client,
            release,
        });
        Some(waiting)
    }
}

/// The state that a listener needs to hold handshakes.
#[derive(Clone, Debug)]
pub(crate) struct HandshakeHold {
    pub(super) on_demand: Arc<OnDemandNames>,
    pub(super) certificates: Arc<ServerCertificates>,
}

impl HandshakeHold {
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
        let client = client.map(network::client_network);
        let waiting = self.on_demand.hold(name, client)?;
        let may_come = self.on_demand.report_once(name, client, Instant::now());
        (may_come && !self.certificates.cover(name)).then_some(waiting)
    }
}

impl HandshakeHold {
    /// Reports a name whose handshake cannot be held, over QUIC. `client` is `None` if the address may be forged.
    pub(super) fn report_name(&self, name: &str, client: Option<IpAddr>) {
        if self.on_demand.is_enabled() && !self.certificates.cover(name) {
            let client = client.map(network::client_network);
            self.on_demand.report_once(name, client, Instant::now());
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
pub(crate) enum RequestedServerName {
    /// The message has not arrived completely.
    NotKnown,
    /// The client asks for a certificate for this name.
    Name(String),
    /// Anything else: there is no name, an authority checks a proof, or the message is not a ClientHello.
    Other,
}

impl HelloReader {
    /// Inspects the first message. `received` is all that has arrived on the connection.
    pub(crate) fn inspect(&mut self, received: &[u8]) -> RequestedServerName {
        while self.taken < received.len() {
            match self.acceptor.read_tls(&mut &received[self.taken..]) {
                Ok(n @ 1..) => self.taken += n,
                Ok(0) | Err(_) => return RequestedServerName::Other,
            }
            match self.acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => return requested_server_name(&accepted.client_hello()),
                Err(_) => return RequestedServerName::Other,
            }
        }
        RequestedServerName::NotKnown
    }
}

fn requested_server_name(hello: &ClientHello<'_>) -> RequestedServerName {
    match hello.server_name() {
        Some(name) if !challenges::is_acme_challenge(hello) => {
            RequestedServerName::Name(name.to_ascii_lowercase())
        }
        _ => RequestedServerName::Other,
    }
}

impl fmt::Debug for OnDemandNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnDemand").field(&self.is_enabled()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    fn client(last: u8) -> QuotaClient {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    #[test]
    fn on_demand_flood_is_limited_and_does_not_hide_other_names() {
        let demand = OnDemandNames::default();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        demand.set_reporter(Box::new(move |_, _| {
            counted.fetch_add(1, Ordering::Relaxed);
        }));
        let (start, flood) = (Instant::now(), client(1));
        for number in 0..3 * MAX_REPORTED_NAMES {
            demand.report_once(&format!("{number}.example.org"), flood, start);
            demand.report_once("0.example.org", flood, start);
        }
        assert_eq!(count.load(Ordering::Relaxed), MAX_REPORTED_NAMES / 2);
        assert!(demand.report_once("shop.example.net", client(2), start));
        assert_eq!(count.load(Ordering::Relaxed), MAX_REPORTED_NAMES / 2 + 1);
        demand.report_once("late.example.org", flood, start + REPORT_INTERVAL);
        assert_eq!(count.load(Ordering::Relaxed), MAX_REPORTED_NAMES / 2 + 2);
    }

    #[test]
    fn handshakes_wait_for_names_within_the_clients_limit() {
        let demand = HandshakeHold {
            on_demand: Arc::default(),
            certificates: Arc::default(),
        };
        let (on_demand, name) = (demand.on_demand.clone(), "shop.example.net");
        let wait_for = |name: &str| demand.wait_for(name, client(1));
        assert!(wait_for(name).is_none(), "no reporter is set");
        on_demand.set_reporter(Box::new(|_, _| ()));
        let mut waiting = wait_for(name).expect("it may come");
        let mut other = wait_for("other.example.net").expect("it may come");
        assert_eq!(waiting.try_recv(), Err(TryRecvError::Empty));
        on_demand.deny(name);
        assert_eq!(waiting.try_recv(), Err(TryRecvError::Closed));
        assert_eq!(other.try_recv(), Err(TryRecvError::Empty));
        assert!(wait_for(name).is_none(), "it was denied just now");
        // One client, however many of its addresses it uses.
        let network: std::net::Ipv6Addr = "2001:db8:0:1::".parse().unwrap();
        let held: Vec<_> = (0..MAX_HELD_HANDSHAKES)
            .filter_map(|number| {
                let address = IpAddr::from(std::net::Ipv6Addr::from_bits(
                    network.to_bits() + number as u128,
                ));
                demand.wait_for(&format!("{number}.example.net"), Some(address))
            })
            .collect();
        assert_eq!(held.len(), MAX_HELD_HANDSHAKES / 2);
        assert!(wait_for("late.example.net").is_some());
    }
}
