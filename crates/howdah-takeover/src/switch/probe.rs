//! Requests of the front page of each site, before the switch and during the watch.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use howdah_import::verify::client::{FullRequest, ResponseLimits, VerifyServer};
use serde::{Deserialize, Serialize};

use super::run::TICK;
use crate::plan::{Plan, PlannedSite, local_address};
use crate::trial::endpoint::{by_importance, requested_host, with_port};

/// How many front pages are requested at once.
const CONCURRENT: usize = 8;
/// How long a front page may take, and all front pages of a round together.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of sites whose front pages are requested.
const MAX_PROBES: usize = 500;
/// The name of the watch in its `User-Agent`.
const AGENT: &str = "Mozilla/5.0 (compatible; howdah-takeover)";

/// The front page of a site.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Probe {
    /// The name of the site, as in the plan, and its address if another site has that name.
    pub site: String,
    /// The address to connect to.
    pub address: SocketAddr,
    /// Whether to use TLS.
    pub tls: bool,
    /// The host to request, with its port unless that is the usual one.
    pub host: String,
}

/// The result of a probe.
#[derive(Clone, Debug)]
pub struct ProbeResult {
    /// The name of the site.
    pub site: String,
    /// The status, or why there is none.
    pub status: Result<u16, String>,
    /// Whether the response only redirects to another scheme or port, so it says nothing about the site's pages.
    pub leads_elsewhere: bool,
    /// How long the response took, in milliseconds.
    pub ms: f64,
}

/// The front pages that are requested in rounds, those that are due next at the front.
#[derive(Debug)]
pub struct ProbeRounds {
    waiting: VecDeque<Probe>,
}

/// Returns a probe for each site of the plan that has a TCP address. The probes have different names, even if
/// two sites have the same name in the plan, for example because one only redirects to the other.
pub fn probes(plan: &Plan) -> Vec<Probe> {
    let mut names = BTreeSet::new();
    let probes = plan.sites.iter().filter_map(Probe::of).map(|mut probe| {
        if !names.insert(probe.site.clone()) {
            probe.site = format!("{} at {}", probe.site, probe.address);
        }
        probe
    });
    probes.take(MAX_PROBES).collect()
}

impl Probe {
    fn of(site: &PlannedSite) -> Option<Probe> {
        let address = by_importance(site).into_iter().next()?;
        let host = requested_host(site);
        Some(Probe {
            site: site.name.clone(),
            address: local_address(address.address),
            tls: address.tls,
            host: with_port(&host, address.address.port(), address.tls),
        })
    }

    fn send(&self) -> ProbeResult {
        let server = VerifyServer {
            tls: self.tls,
            authority: self.address.to_string(),
        };
        let request = FullRequest {
            method: "GET",
            target: "/",
            host: &self.host,
            headers: &[("User-Agent".to_owned(), AGENT.to_owned())],
        };
        let limits = ResponseLimits {
            body_bytes: 0,
            time: TIMEOUT,
        };
        let begun = Instant::now();
        // Any certificate is accepted: the trial compares certificates, and visitors come by other names, too.
        let head = server.fetch(request, limits).map(|response| response.head);
        let ms = begun.elapsed().as_secs_f64() * 1000.0;
        let location = head.as_ref().ok().and_then(|head| head.header("location"));
        ProbeResult {
            site: self.site.clone(),
            leads_elsewhere: location.is_some_and(|location| self.leads_elsewhere(&location)),
            status: head
                .map(|head| head.status)
                .map_err(|error| format!("{error:?}")),
            ms,
        }
    }

    /// Returns whether the target of a redirect has another scheme or port than this address.
    fn leads_elsewhere(&self, location: &str) -> bool {
        let parts = location.split_once("://");
        let Some((scheme, rest)) = parts.filter(|(scheme, _)| scheme.starts_with("http")) else {
            return false;
        };
        let tls = scheme == "https";
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let named = authority
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse().ok());
        let port = named.unwrap_or(if tls { 443 } else { 80 });
        tls != self.tls || port != self.address.port()
    }

    fn timed_out(&self) -> ProbeResult {
        ProbeResult {
            site: self.site.clone(),
            status: Err(format!("no response within {} s", TIMEOUT.as_secs())),
            leads_elsewhere: false,
            ms: TIMEOUT.as_secs_f64() * 1000.0,
        }
    }
}

/// The probes of a round that have been sent and have no response yet.
struct SentProbes {
    pending: Vec<(Instant, Probe)>,
    sender: mpsc::Sender<ProbeResult>,
    receiver: mpsc::Receiver<ProbeResult>,
}

impl SentProbes {
    fn send(&mut self, probe: Probe) {
        let sender = self.sender.clone();
        let sent = probe.clone();
        // A thread whose server does not respond ends by itself, when the client's own limit is reached.
        thread::spawn(move || sender.send(sent.send()));
        self.pending.push((Instant::now(), probe));
    }

    /// Waits for a response, until `end` or at most for a moment. Returns the probe with its result.
    fn receive(&mut self, end: Instant) -> Option<(Probe, ProbeResult)> {
        let left = end.saturating_duration_since(Instant::now());
        let result = self.receiver.recv_timeout(left.min(TICK)).ok()?;
        let of_site = |(_, probe): &(Instant, Probe)| probe.site == result.site;
        let at = self.pending.iter().position(of_site)?;
        Some((self.pending.remove(at).1, result))
    }
}

impl ProbeRounds {
    /// Begins with the first of these front pages.
    pub fn new(probes: &[Probe]) -> ProbeRounds {
        ProbeRounds {
            waiting: probes.iter().cloned().collect(),
        }
    }

    /// No longer requests the front pages of these sites.
    pub fn forget(&mut self, sites: &BTreeSet<String>) {
        self.waiting.retain(|probe| !sites.contains(&probe.site));
    }

    /// Requests the front page of each site once, a few at a time, for at most [`TIMEOUT`]. Front pages without a result
    /// at the end of that time are the first ones in the next round, behind those that have failed. While it waits, it
    /// asks `interruption` repeatedly.
    ///
    /// # Errors
    /// What `interruption` returns.
    pub fn round<E>(
        &mut self,
        mut interruption: impl FnMut() -> Option<E>,
    ) -> Result<Vec<ProbeResult>, E> {
        let end = Instant::now() + TIMEOUT;
        let (sender, receiver) = mpsc::channel();
        let mut sent = SentProbes {
            pending: Vec::new(),
            sender,
            receiver,
        };
        let (mut done, mut failed, mut results) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            if let Some(why) = interruption() {
                return Err(why);
            }
            while sent.pending.len() < CONCURRENT
                && let Some(probe) = self.waiting.pop_front()
            {
                sent.send(probe);
            }
            if sent.pending.is_empty() || Instant::now() >= end {
                break;
            }
            if let Some((probe, result)) = sent.receive(end) {
                match result.failed() {
                    true => failed.push(probe),
                    false => done.push(probe),
                }
                results.push(result);
            }
        }
        // A front page that was requested late has not had the full time to respond.
        for (begun, probe) in sent.pending.into_iter().rev() {
            match begun.elapsed() + TICK >= TIMEOUT {
                true => {
                    results.push(probe.timed_out());
                    failed.push(probe);
                }
                false => self.waiting.push_front(probe),
            }
        }
        for probe in failed.into_iter().rev() {
            self.waiting.push_front(probe);
        }
        self.waiting.extend(done);
        Ok(results)
    }
}

impl ProbeResult {
    /// Returns whether there was no response, or one with a status of 500 or higher.
    pub fn failed(&self) -> bool {
        !matches!(self.status, Ok(status) if status < 500)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::net::TcpListener;

    use super::*;

    fn probe(site: usize, address: SocketAddr) -> Probe {
        Probe {
            site: site.to_string(),
            address,
            tls: false,
            host: "a.test".to_owned(),
        }
    }

    #[test]
    fn round_ends_after_five_seconds_and_repeats_what_failed() {
        // The kernel accepts the connections, and nobody responds.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap();
        let probes: Vec<Probe> = (0..60).map(|site| probe(site, address)).collect();
        let mut rounds = ProbeRounds::new(&probes);
        let sites = |results: Vec<ProbeResult>| -> Vec<String> {
            let mut sites: Vec<String> = results.into_iter().map(|one| one.site).collect();
            sites.sort();
            sites
        };
        let begun = Instant::now();
        let first = rounds.round(|| None::<Infallible>).unwrap();
        assert!(begun.elapsed() < 2 * TIMEOUT, "{:?}", begun.elapsed());
        assert!(first.iter().all(ProbeResult::failed) && first.len() == CONCURRENT);
        assert_eq!(rounds.waiting.len(), probes.len());
        let second = rounds.round(|| None::<Infallible>).unwrap();
        assert_eq!(sites(first), sites(second));
        assert_eq!(rounds.round(|| Some(5)).unwrap_err(), 5);
    }

    #[test]
    fn redirect_to_another_address_is_recognized() {
        let plain = probe(1, "127.0.0.1:80".parse().unwrap());
        for (location, expected) in [
            ("https://a.test/", true),
            ("http://a.test:8080/", true),
            ("http://www.a.test/", false),
            ("http://a.test:80", false),
            ("/en/", false),
        ] {
            assert_eq!(plain.leads_elsewhere(location), expected, "{location}");
        }
    }
}
