//! A pool's condition: whether it can serve requests.

use crate::ExecError;

/// A pool's condition, on which the handling of requests depends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolCondition {
    /// A zygote is being started; requests wait.
    Starting,
    /// The zygote is ready to fork children.
    Ready,
    /// The zygote cannot start; requests are refused until a later attempt succeeds.
    Down {
        /// The name of the reason, `PhpStartup` for example.
        name: String,
        /// The sentence that explains the reason.
        message: String,
    },
    /// Requests in flight are being finished. New ones go to the successor, if there is one.
    Draining,
    /// The pool has ended and has no processes left.
    Closed,
}

/// Writes the condition as the status page shows it.
impl std::fmt::Display for PoolCondition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PoolCondition::Starting => f.write_str("Starting"),
            PoolCondition::Ready => f.write_str("Ready"),
            PoolCondition::Down { name, message } => write!(f, "Down ({name}): {message}"),
            PoolCondition::Draining => f.write_str("Draining"),
            PoolCondition::Closed => f.write_str("Closed"),
        }
    }
}

impl PoolCondition {
    /// Waits until it is known whether the pool can serve requests.
    pub(crate) async fn wait_until_settled(
        mut condition: tokio::sync::watch::Receiver<PoolCondition>,
    ) -> Result<(), ExecError> {
        let settled = condition
            .wait_for(|c| !matches!(c, PoolCondition::Starting))
            .await
            .map_err(|_| ExecError::Stopping)?
            .clone();
        match settled {
            PoolCondition::Ready | PoolCondition::Starting => Ok(()),
            PoolCondition::Down { name, message } => Err(ExecError::PoolDown { name, message }),
            PoolCondition::Draining | PoolCondition::Closed => Err(ExecError::Stopping),
        }
    }
}
