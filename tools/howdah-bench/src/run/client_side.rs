//! The generator's measurements of itself and of its machine, so that a run in which it was the bottleneck can say so.
//! This module holds only figures; the report judges them.

use serde::{Deserialize, Serialize};

/// The generator's use of the machine during the measured part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientSide {
    /// The use of each generator thread.
    pub threads: Vec<ThreadUse>,
    /// The mean number of requests in progress, as counted by the generator. By Little's law it is the rate of ended
    /// requests times their mean latency.
    pub mean_in_flight: f64,
    /// The share of the machine's cores that was busy with anything but the generator.
    pub machine_busy_others: f64,
    /// The share of the machine's cores that the hypervisor withheld (steal time).
    pub steal: f64,
    /// The rate that the same generator reaches at the same concurrency, method and response length against a server
    /// that does nothing, in responses per second. `None` if it was not measured.
    pub ceiling: Option<f64>,
}

/// The use of the machine by one generator thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadUse {
    /// The share of a core that the thread used: 1 is a whole core.
    pub cpu: f64,
    /// The share of the time that the thread was ready to run but had no core.
    pub wait: f64,
}

impl ClientSide {
    /// Returns the busiest thread's share of a core.
    pub fn busiest(&self) -> f64 {
        self.threads.iter().map(|t| t.cpu).fold(0.0, f64::max)
    }

    /// Returns the longest-waiting thread's share of the time.
    pub fn most_waiting(&self) -> f64 {
        self.threads.iter().map(|t| t.wait).fold(0.0, f64::max)
    }
}

/// The machine the generator ran on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The machine's host name.
    pub host: String,
    /// The kernel, for example `Linux 6.18.44`.
    pub kernel: String,
    /// The processor's name.
    pub cpu: String,
    /// The number of cores that this process may use.
    pub cores: u32,
    /// The machine's memory, in bytes.
    pub memory: u64,
    /// The frequency governor; `None` if the kernel shows none.
    pub governor: Option<String>,
    /// How many open files this process may have.
    pub open_files: u64,
    /// `net.core.somaxconn`: the maximum backlog of a listening socket on this machine.
    pub somaxconn: Option<u64>,
    /// `net.ipv4.ip_local_port_range`: the first and the last port.
    pub local_ports: Option<(u16, u16)>,
    /// The one-minute load average before the run.
    pub load: f64,
    /// Whether the server is reached over loopback or a unix socket, and therefore shares these cores.
    pub shared_with_server: bool,
}
