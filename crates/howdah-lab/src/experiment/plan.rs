//! The plan of a comparison, saved for `--resume`: what was asked for, and what it is measured on.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::folder::RunFolder;
use crate::identity::MeasurementIdentity;
use crate::journal::{ComparisonJournal, FORMAT_VERSION};

/// What the user asked for (`T`), and what it is measured on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedPlan<T> {
    /// Version of this form: [`FORMAT_VERSION`].
    pub schema: u32,
    /// The programs and the machine that it is measured on.
    pub identity: MeasurementIdentity,
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
        folder: &RunFolder,
        identity: MeasurementIdentity,
        command: String,
        request: T,
    ) -> Result<(SavedPlan<T>, ComparisonJournal), LabError> {
        let plan = SavedPlan {
            schema: FORMAT_VERSION,
            identity,
            command,
            request,
        };
        let journal = ComparisonJournal::begin(folder, &plan)?;
        Ok((plan, journal))
    }

    /// The plan that was begun in `folder`, if it still belongs to this machine and these programs.
    ///
    /// # Errors
    /// There is none, or something has changed since.
    pub fn resume(
        folder: &RunFolder,
        now: &MeasurementIdentity,
    ) -> Result<(SavedPlan<T>, ComparisonJournal), LabError> {
        let (journal, plan) = ComparisonJournal::resume::<SavedPlan<T>>(folder)?;
        let what = plan.identity.differences(now);
        if !what.is_empty() {
            return Err(LabError::Changed { what });
        }
        Ok((plan, journal))
    }
}
