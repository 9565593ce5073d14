//! A benchmark that was asked for, as it is kept for `--resume`.

use serde::{Deserialize, Serialize};

use crate::effort::Effort;
use crate::identity::Identity;
use crate::suite::Suite;

/// Where a run's folder has its journals, one for each benchmark.
pub const DIRECTORY: &str = "measured";

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Version of this form: [`crate::journal::SCHEMA`].
    pub schema: u32,
    /// The benchmark, cut to what was asked for.
    pub suite: Suite,
    /// How long and how often.
    pub effort: Effort,
    /// What it is measured on.
    pub identity: Identity,
    /// The benchmark's name or file on the command line.
    pub benchmark: String,
    /// The command line that measures it again.
    pub command: String,
    /// The options of it that say how often and how long.
    pub options: String,
}
