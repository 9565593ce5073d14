//! A network of the test's own: a bridge, and for each node a namespace that is linked to it.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;

use howdah_tests::scratch::run;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The namespaces of the network, which are deleted when this value is dropped. Their names contain the id of the test
/// process, so no other test uses them.
pub struct NodeNetwork {
    prefix: String,
    nodes: Vec<String>,
}

/// The last part of the first node's address.
const FIRST: usize = 2;

fn ip(words: &[&str]) {
    run(Command::new("/usr/sbin/ip").args(words));
}

impl NodeNetwork {
    /// Creates a bridge in a namespace of its own. Where that is forbidden, prints a message and returns `None`.
    pub fn new(name: &str) -> Option<NodeNetwork> {
        let prefix = format!("hw{}{name}", std::process::id());
        let network = NodeNetwork {
            prefix,
            nodes: Vec::new(),
        };
        let hub = network.space("hub");
        let made = Command::new("/usr/sbin/ip")
            .args(["netns", "add", &hub])
            .output()
            .expect("ip(8), of iproute2, is there");
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr).into_owned();
            eprintln!(
                "SKIPPED: network namespaces cannot be created here: {}",
                said.trim()
            );
            return None;
        }
        ip(&["-n", &hub, "link", "add", "bridge", "type", "bridge"]);
        ip(&["-n", &hub, "link", "set", "bridge", "up"]);
        Some(network)
    }

    fn space(&self, node: &str) -> String {
        format!("{}-{node}", self.prefix)
    }

    /// Adds a node and returns its address.
    pub fn node(&mut self, node: &str) -> String {
        let (space, hub) = (self.space(node), self.space("hub"));
        let port = format!("p{}", self.nodes.len());
        let address = format!("10.99.0.{}", FIRST + self.nodes.len());
        self.nodes.push(node.to_owned());
        ip(&["netns", "add", &space]);
        ip(&["-n", &space, "link", "set", "lo", "up"]);
        let link = ["link", "add", "eth0", "netns", &space, "type", "veth"];
        let link = [&["-n", &hub][..], &link, &["peer", "name", &port]].concat();
        ip(&link);
        ip(&["-n", &hub, "link", "set", &port, "master", "bridge", "up"]);
        ip(&[
            "-n",
            &space,
            "address",
            "add",
            &format!("{address}/24"),
            "dev",
            "eth0",
        ]);
        ip(&["-n", &space, "link", "set", "eth0", "up"]);
        address
    }

    fn port(&self, node: &str) -> String {
        let at = self.nodes.iter().position(|known| known == node);
        format!("p{}", at.expect("a node"))
    }

    /// Returns a command that runs on this node.
    pub fn on(&self, node: &str, program: &str) -> Command {
        let mut command = Command::new("/usr/sbin/ip");
        command.args(["netns", "exec", &self.space(node), program]);
        command
    }

    /// Returns a function that moves the calling thread to the network of that node.
    pub fn enter(&self, node: &str) -> impl Fn() + Send + Sync + use<> {
        let path = format!("/run/netns/{}", self.space(node));
        move || {
            let space = File::open(&path).expect("a namespace");
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(space.as_fd(), kind).expect("a thread may enter it");
        }
    }

    /// Disconnects the node.
    pub fn unplug(&self, node: &str) {
        ip(&[
            "-n",
            &self.space("hub"),
            "link",
            "set",
            &self.port(node),
            "down",
        ]);
    }

    /// Makes this node drop everything that it sends to the other.
    pub fn part(&self, node: &str, other: &str) {
        ip(&["-n", &self.space(node), "route", "add", "blackhole", other]);
    }

    /// Reverses [`NodeNetwork::part`].
    pub fn mend(&self, node: &str, other: &str) {
        ip(&["-n", &self.space(node), "route", "del", "blackhole", other]);
    }
}

impl Drop for NodeNetwork {
    fn drop(&mut self) {
        let nodes = self.nodes.iter().map(String::as_str);
        for node in nodes.chain(["hub"]) {
            // A namespace may not exist, because creating it failed.
            let _ = Command::new("/usr/sbin/ip")
                .args(["netns", "del", &self.space(node)])
                .output();
        }
    }
}
