//! The server, as seen from its process id or Howdah's status, once a second. What could not be
//! read is absent, and the first sample that lacks it says why.

use serde::{Deserialize, Serialize};

/// The server at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerSample {
    /// Seconds from the start of the measured part.
    pub at: f64,
    /// CPU and memory of the process that `--server-pid` names, with its children.
    pub process: Option<ProcessUse>,
    /// Howdah's own figures, read from where `--status` says.
    pub howdah: Option<HowdahStatus>,
    /// Why something is absent, in the first sample that lacks it.
    pub missing: Option<String>,
}

/// A process with its children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessUse {
    /// Number of processes.
    pub processes: u32,
    /// CPU time since the last sample, in cores.
    pub cpu: f64,
    /// Resident memory, bytes, added up over the processes: shared pages are counted for each.
    pub resident: u64,
    /// Proportional memory, bytes: shared pages are counted once. None if the generator may not
    /// read it.
    pub proportional: Option<u64>,
}

/// Figures from Howdah's status.
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
    /// Children that have a request.
    pub busy: u64,
    /// Failures since the server started, by the failure's name.
    pub failures: std::collections::BTreeMap<String, u64>,
}
