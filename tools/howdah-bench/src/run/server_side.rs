//! The server's resource use and status, sampled once a second from its process id or Howdah's status. Values that
//! could not be read are absent, and the first sample that lacks one says why.

use serde::{Deserialize, Serialize};

/// A sample of the server at one point in time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerSample {
    /// The time of the sample, in seconds from the start of the measured part.
    pub at: f64,
    /// CPU and memory of the process that `--server-pid` names and of its children.
    pub process: Option<ProcessUse>,
    /// Howdah's own figures, read from the address given by `--status`.
    pub howdah: Option<HowdahStatus>,
    /// Why a value is absent, in the first sample that lacks it.
    pub missing: Option<String>,
}

/// The resource use of a process and its children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessUse {
    /// The number of processes.
    pub processes: u32,
    /// The CPU time since the last sample, in cores.
    pub cpu: f64,
    /// The resident memory in bytes, summed over the processes: shared pages are counted for each.
    pub resident: u64,
    /// The proportional memory in bytes: shared pages are counted once. `None` if the generator may not read it.
    pub proportional: Option<u64>,
}

/// Figures from Howdah's status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HowdahStatus {
    /// The number of requests begun since the server started.
    pub requests: u64,
    /// The number of requests in progress.
    pub active: u64,
    /// The number of open connections.
    pub connections: u64,
    /// The number of requests waiting for a child, over all pools.
    pub queued: u64,
    /// The number of children, over all pools.
    pub children: u64,
    /// The number of children that are running a request.
    pub busy: u64,
    /// The number of failures since the server started, by the failure's name.
    pub failures: std::collections::BTreeMap<String, u64>,
}
