//! The plan of a comparison, saved for `--resume`.

use serde::{Deserialize, Serialize};

use super::app::App;
use super::arm::Arm;
use super::schedule::Effort;
use crate::identity::Identity;

/// What the user asked for, and what it is measured on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Version of this form: [`crate::journal::SCHEMA`].
    pub schema: u32,
    /// The application and its requests.
    pub app: App,
    /// The arms that take part, the default first.
    pub arms: Vec<Arm>,
    /// How long and how often.
    pub effort: Effort,
    /// The programs and the machine that it is measured on.
    pub identity: Identity,
    /// When it began, in seconds since 1970.
    pub began: f64,
    /// The command line, with secrets concealed.
    pub command: String,
}
