//! The plan of a benchmark, saved for `--resume`.

use serde::{Deserialize, Serialize};

use crate::effort::Effort;
use crate::identity::Identity;
use crate::suite::Suite;

/// The directory of a run's folder that holds its journals, one for each benchmark.
pub const DIRECTORY: &str = "measured";

/// What the user asked for, and what it is measured on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Version of this form: [`crate::journal::SCHEMA`].
    pub schema: u32,
    /// The benchmark, reduced to the pages and rows that were asked for.
    pub suite: Suite,
    /// How long and how often.
    pub effort: Effort,
    /// The programs and the machine that it is measured on.
    pub identity: Identity,
    /// The benchmark's name or file on the command line.
    pub benchmark: String,
    /// The command line that repeats the measurement.
    pub command: String,
    /// The part of `command` that says how often and how long.
    pub options: String,
}
