//! The reasons why a command of the switch fails. Each has one name in output and documents.

use std::fmt;

/// The name of a failure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FailureName {
    /// The command needs root's rights.
    NotRoot,
    /// There is no plan, or it cannot be read.
    PlanUnreadable,
    /// The plan has findings that block the switch.
    PlanBlocks,
    /// The plan has no address that a server to be replaced listens at.
    NothingToSwitch,
    /// There is no trial, or it cannot be read.
    TrialMissing,
    /// Howdah's configuration was changed after the trial.
    TrialOutdated,
    /// Howdah would serve what the old server denies.
    OpensDenied,
    /// A server of the plan has exited or was started again, or has closed a socket.
    OldServerChanged,
    /// The configuration of an old server was changed after the plan was made.
    OldConfigurationChanged,
    /// An old server is in another network namespace, such as that of a container.
    OtherNetwork,
    /// The user has ended the command before it has changed anything.
    Cancelled,
    /// Another switch is at work, or was interrupted.
    SwitchInProgress,
    /// Howdah serves already, after an earlier switch.
    AlreadySwitched,
    /// Howdah already runs with this configuration.
    HowdahRuns,
    /// The program `howdah` was not found.
    HowdahMissing,
    /// Howdah did not become ready.
    HowdahDoesNotStart,
    /// A port cannot be shared.
    PortNotShared,
    /// No switch can be rolled back.
    NothingToRollBack,
    /// The process in charge of the switch does not respond to the request.
    RollbackTimeout,
    /// An old server was stopped and does not start again.
    OldServerDoesNotStart,
    /// `systemctl` failed, or the unit cannot be written.
    ServiceNotChanged,
    /// The state cannot be read.
    StateUnreadable,
    /// The state cannot be written.
    StateNotWritten,
}

/// A failure of a command: its name, and a sentence for the user.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SwitchFailure {
    /// The name.
    pub name: FailureName,
    /// What was attempted, why it failed, and what to do.
    pub message: String,
}

impl FailureName {
    /// Returns a failure of this name.
    pub fn with(self, message: impl Into<String>) -> SwitchFailure {
        SwitchFailure {
            name: self,
            message: message.into(),
        }
    }
}

impl fmt::Display for SwitchFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.name, self.message)
    }
}
