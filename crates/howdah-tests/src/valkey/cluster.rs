//! A private cluster of Valkey, or Redis: primaries that share the hash slots, each with one replica.

use std::path::Path;
use std::time::Duration;

use super::{Valkey, free_port};
use crate::process::wait_until;

/// The number of hash slots of a cluster.
const SLOTS: usize = 16384;
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The running nodes: first the primaries, then a replica of each in the same order. Dropping the value terminates
/// them.
#[derive(Debug)]
pub struct ValkeyCluster {
    /// The nodes. A test may remove some of them.
    pub nodes: Vec<Valkey>,
}

/// Returns the arguments that make a server a cluster node whose silence is noticed after two seconds, and the port on
/// which it communicates with the other nodes.
fn arguments() -> (Vec<String>, String) {
    let port = free_port().to_string();
    let text = format!("--cluster-enabled yes --cluster-node-timeout 2000 --cluster-port {port}");
    (text.split(' ').map(str::to_owned).collect(), port)
}

impl ValkeyCluster {
    /// Starts the nodes, and waits until each of them reports that the cluster works and that replication is up.
    ///
    /// # Panics
    /// If the cluster does not start.
    pub fn start(primaries: usize) -> ValkeyCluster {
        ValkeyCluster::of(primaries, |more| Valkey::configured(more, &[]))
    }

    /// Starts a cluster that speaks TLS only, as [`Valkey::tls`] does, and requires this password.
    ///
    /// # Panics
    /// As for [`ValkeyCluster::start`].
    pub fn tls(primaries: usize, directory: &Path, password: &str) -> ValkeyCluster {
        let tls = ["--tls-cluster", "yes", "--tls-replication", "yes"];
        let login = ["--requirepass", password, "--masterauth", password];
        ValkeyCluster::of(primaries, |more| {
            let more = [more, &tls, &login].concat();
            Valkey::tls_with(directory, &more, &["-a", password])
        })
    }

    fn of(primaries: usize, start: impl Fn(&[&str]) -> Valkey) -> ValkeyCluster {
        let (mut nodes, mut ports) = (Vec::new(), Vec::new());
        for number in 0..2 * primaries {
            let (more, port) = arguments();
            let more: Vec<&str> = more.iter().map(String::as_str).collect();
            let node = start(&more);
            // If two nodes had the same epoch, they would first have to agree on different ones.
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
            if number < primaries {
                let first = (number * SLOTS / primaries).to_string();
                let last = ((number + 1) * SLOTS / primaries - 1).to_string();
                node.command(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            }
            nodes.push(node);
            ports.push(port);
        }
        let cluster = ValkeyCluster { nodes };
        let nodes = &cluster.nodes;
        for (node, port) in nodes.iter().zip(&ports).skip(1) {
            let to = node.address();
            let (ip, to) = (to.ip().to_string(), to.port().to_string());
            nodes[0].command(&["CLUSTER", "MEET", &ip, &to, port]);
        }
        cluster.wait_for_all("the nodes to know each other", |node| {
            let known = node.command(&["CLUSTER", "NODES"]);
            known.lines().count() == nodes.len() && !known.contains("handshake")
        });
        for (primary, replica) in nodes.iter().zip(&nodes[primaries..]) {
            let id = primary.command(&["CLUSTER", "MYID"]);
            replica.command(&["CLUSTER", "REPLICATE", id.trim()]);
        }
        cluster.wait_for_all("the cluster to work", |node| {
            let replicas = node.command(&["CLUSTER", "NODES"]).matches("slave").count();
            let role = node.command(&["INFO", "replication"]);
            replicas == primaries
                && (role.contains("state=online") || role.contains("master_link_status:up"))
                && node.command(&["CLUSTER", "INFO"]).contains("state:ok")
        });
        cluster
    }

    fn wait_for_all(&self, what: &str, is_so: impl Fn(&Valkey) -> bool) {
        for node in &self.nodes {
            wait_until(what, MAX_WAIT, || is_so(node));
        }
    }

    /// Returns the hash slot of a key.
    ///
    /// # Panics
    /// If the first node does not respond.
    pub fn slot(&self, key: &str) -> usize {
        let slot = self.nodes[0].command(&["CLUSTER", "KEYSLOT", key]);
        slot.trim().parse().expect("a number")
    }

    /// Returns the primary of a slot, according to the distribution with which the cluster was started.
    pub fn primary(&self, slot: usize) -> usize {
        let primaries = self.nodes.len() / 2;
        let is_above = |number: &usize| slot < (number + 1) * SLOTS / primaries;
        (0..primaries).find(is_above).expect("a slot")
    }

    /// Moves a slot with its keys, of which there may be at most 100, from one primary to another while the cluster is
    /// in use.
    ///
    /// # Panics
    /// If a node does not respond.
    pub fn hand_over(&self, slot: usize, from: usize, to: usize) {
        let (from, to) = (&self.nodes[from], &self.nodes[to]);
        let id = |node: &Valkey| node.command(&["CLUSTER", "MYID"]).trim().to_owned();
        let slot = slot.to_string();
        let set = |node: &Valkey, what: &str, other: &Valkey| {
            let said = node.command(&["CLUSTER", "SETSLOT", &slot, what, &id(other)]);
            assert_eq!(said.trim(), "OK");
        };
        set(to, "IMPORTING", from);
        set(from, "MIGRATING", to);
        let keys = from.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
        let (ip, port) = (
            to.address().ip().to_string(),
            to.address().port().to_string(),
        );
        let mut migrate = vec!["MIGRATE", &ip, &port, "", "0", "5000", "KEYS"];
        migrate.extend(keys.lines());
        assert_eq!(from.command(&migrate).trim(), "OK");
        set(to, "NODE", to);
        set(from, "NODE", to);
    }
}
