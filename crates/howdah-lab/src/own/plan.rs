//! What was asked for, as it is kept for `--resume`.

use serde::{Deserialize, Serialize};

use super::app::App;
use super::arm::Arm;
use super::schedule::Effort;
use crate::identity::Identity;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Version of this form: [`crate::journal::SCHEMA`].
    pub schema: u32,
    /// The application.
    pub app: App,
    /// What takes part, the default first.
    pub arms: Vec<Arm>,
    /// How long and how often.
    pub effort: Effort,
    /// What it is measured on.
    pub identity: Identity,
    /// When it began: seconds since 1970.
    pub began: f64,
    /// The command line, secrets concealed.
    pub command: String,
}
