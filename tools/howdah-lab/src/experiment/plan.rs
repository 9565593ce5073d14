//! The plan of a comparison, saved for `--resume`: the request, and the conditions of the measurement.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::folder::RunFolder;
use crate::identity::MeasurementIdentity;
use crate::journal::{ComparisonJournal, FORMAT_VERSION};

/// The user's request (`T`), and the conditions of the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedPlan<T> {
    /// The version of this format: [`FORMAT_VERSION`].
    pub schema: u32,
    /// The programs and the machine of the measurement.
    pub identity: MeasurementIdentity,
    /// The command line that repeats the measurement, with secrets concealed.
    pub command: String,
    /// The request.
    pub request: T,
}

impl<T: Serialize + DeserializeOwned> SavedPlan<T> {
    /// Creates a plan and its journal in `folder`.
    ///
    /// # Errors
    /// Returns an error if the folder holds a comparison already, or cannot be written.
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

    /// Opens the plan that was begun in `folder`, if the machine and the programs are still the same.
    ///
    /// # Errors
    /// Returns an error if the folder holds no plan, or something has changed since.
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
