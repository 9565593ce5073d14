//! Requests of the front page of each site, before the switch and during the watch.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use howdah_import::verify::client::VerifyServer;
use serde::{Deserialize, Serialize};

use crate::plan::{Plan, PlannedSite, local_address};

/// How many front pages are requested at once.
const CONCURRENT: usize = 8;
/// How long a front page may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of sites whose front pages are requested.
const MAX_PROBES: usize = 500;

/// The front page of a site.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Probe {
    /// The name of the site, as in the plan.
    pub site: String,
    /// The address to connect to.
    pub address: SocketAddr,
    /// Whether to use TLS.
    pub tls: bool,
    /// The host to request.
    pub host: String,
}

/// The result of a probe.
#[derive(Clone, Debug)]
pub struct ProbeResult {
    /// The name of the site.
    pub site: String,
    /// The status, or why there is none.
    pub status: Result<u16, String>,
    /// How long the response took, in milliseconds.
    pub ms: f64,
}

/// Returns a probe for each site of the plan that has a TCP address.
pub fn probes(plan: &Plan) -> Vec<Probe> {
    let probes = plan.sites.iter().filter_map(Probe::of);
    probes.take(MAX_PROBES).collect()
}

impl Probe {
    fn of(site: &PlannedSite) -> Option<Probe> {
        let address = site.addresses.first()?;
        let is_plain = |host: &&String| !host.contains('*') && !host.is_empty();
        let host = site.hosts.iter().find(is_plain).cloned();
        let local = local_address(address.address);
        Some(Probe {
            site: site.name.clone(),
            address: local,
            tls: address.tls,
            host: host.unwrap_or_else(|| local.ip().to_string()),
        })
    }

    fn send(&self) -> ProbeResult {
        let server = VerifyServer {
            tls: self.tls,
            authority: self.address.to_string(),
        };
        let begun = Instant::now();
        let response = server.send_request("GET", "/", &self.host);
        ProbeResult {
            site: self.site.clone(),
            status: response
                .map(|head| head.status)
                .map_err(|error| format!("{error:?}")),
            ms: begun.elapsed().as_secs_f64() * 1000.0,
        }
    }

    fn timed_out(&self) -> ProbeResult {
        ProbeResult {
            site: self.site.clone(),
            status: Err(format!("no response within {} s", TIMEOUT.as_secs())),
            ms: TIMEOUT.as_secs_f64() * 1000.0,
        }
    }
}

impl ProbeResult {
    /// Sends all probes, a few at once. No probe takes longer than [`TIMEOUT`].
    pub fn of_all(probes: &[Probe]) -> Vec<ProbeResult> {
        let groups = probes.chunks(CONCURRENT);
        groups.flat_map(ProbeResult::of_group).collect()
    }

    fn of_group(group: &[Probe]) -> Vec<ProbeResult> {
        let until = Instant::now() + TIMEOUT;
        let (sender, receiver) = mpsc::channel();
        for (number, probe) in group.iter().cloned().enumerate() {
            let sender = sender.clone();
            // A thread whose server does not respond ends by itself, when the client's own limit is reached.
            thread::spawn(move || sender.send((number, probe.send())));
        }
        drop(sender);
        let mut results: Vec<ProbeResult> = group.iter().map(Probe::timed_out).collect();
        let left = || until.saturating_duration_since(Instant::now());
        while let Ok((number, result)) = receiver.recv_timeout(left()) {
            results[number] = result;
        }
        results
    }

    /// Returns whether there was no response, or one with a status of 500 or higher.
    pub fn failed(&self) -> bool {
        !matches!(self.status, Ok(status) if status < 500)
    }
}
