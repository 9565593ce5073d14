//! The server, as seen from its process id or Howdah's status, once a second. What could not be read
//! is absent, and the first failure says why.

use serde::{Deserialize, Serialize};

/// The server at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerSample {
    /// Seconds from the start of the measured part.
    pub at: f64,
    /// `--server-pid`: the process and its children.
    pub process: Option<ProcessUse>,
    /// `--status`: Howdah's own figures.
    pub howdah: Option<HowdahStatus>,
    /// Why something is absent.
    pub missing: Option<String>,
}

/// A process with its children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessUse {
    /// Processes.
    pub processes: u32,
    /// CPU time since the last sample, in cores.
    pub cpu: f64,
    /// Resident memory, bytes, added up: what processes share is counted for each.
    pub resident: u64,
    /// Proportional memory, bytes: what processes share is counted once. None: not permitted to see.
    pub proportional: Option<u64>,
}

/// Howdah's status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HowdahStatus {
    /// Requests begun since the server started.
    pub requests: u64,
    /// Requests in progress.
    pub active: u64,
    /// Open connections.
    pub connections: u64,
    /// Requests waiting for a child, over all pools.
    pub queued: u64,
    /// Children, over all pools.
    pub children: u64,
    /// Children with a request.
    pub busy: u64,
    /// Failures since the server started, by their one name.
    pub failures: std::collections::BTreeMap<String, u64>,
}
