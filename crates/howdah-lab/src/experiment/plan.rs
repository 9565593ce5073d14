//! The plan of a comparison, saved for `--resume`: what was asked for, and what it is measured on.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::folder::Folder;
use crate::identity::Identity;
use crate::journal::{Journal, SCHEMA};

/// What the user asked for (`T`), and what it is measured on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedPlan<T> {
    /// Version of this form: [`SCHEMA`].
    pub schema: u32,
    /// The programs and the machine that it is measured on.
    pub identity: Identity,
    /// The command line that repeats the measurement, with secrets concealed.
    pub command: String,
    /// What was asked for.
    pub request: T,
}

impl<T: Serialize + DeserializeOwned> SavedPlan<T> {
    /// A new plan and its journal in `folder`.
    ///
    /// # Errors
    /// The folder holds a comparison already, or cannot be written.
    pub fn begin(
        folder: &Folder,
        identity: Identity,
        command: String,
        request: T,
    ) -> Result<(SavedPlan<T>, Journal), LabError> {
        let plan = SavedPlan {
            schema: SCHEMA,
            identity,
            command,
            request,
        };
        let journal = Journal::begin(folder, &plan)?;
        Ok((plan, journal))
    }

    /// The plan that was begun in `folder`, if it still belongs to this machine and these programs.
    ///
    /// # Errors
    /// There is none, or something has changed since.
    pub fn resume(folder: &Folder, now: &Identity) -> Result<(SavedPlan<T>, Journal), LabError> {
        let (journal, plan) = Journal::resume::<SavedPlan<T>>(folder)?;
        let what = plan.identity.differences(now);
        if !what.is_empty() {
            return Err(LabError::Changed { what });
        }
        Ok((plan, journal))
    }
}
