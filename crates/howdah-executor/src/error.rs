//! All failures of a run. The variant's name is the only name of the failure: in the log, in metrics, in the
//! `Howdah-Error` header and in the docs.

use howdah_proto::control::Exit;
use howdah_proto::response::ResponseError;
use strum::{EnumDiscriminants, IntoStaticStr, VariantNames};

/// Why a run gave no response or no complete one.
#[derive(Clone, Debug, PartialEq, Eq, EnumDiscriminants, IntoStaticStr, VariantNames)]
#[strum_discriminants(vis(pub(self)), doc = "An [`ExecError`] without its details.")]
pub enum ExecError {
    /// The queue is full: 503 with Retry-After.
    QueueFull,
    /// No process became free within `queue_timeout`: 503 with Retry-After.
    QueueTimeout,
    /// The pool has no process and cannot start one: 503. The zygote gave the reason.
    PoolDown {
        /// `PhpStartup`, `NoSuchUser` …
        name: String,
        /// The sentence that explains the reason.
        message: String,
    },
    /// The process died while it ran this request: 502.
    ChildDied(Exit),
    /// `request_terminate_timeout` passed and the process was killed: 504.
    TerminateTimeout,
    /// The bytes that the process sent are not a valid response: 502.
    ResponseInvalid(ResponseError),
    /// The process wrote impossible values to the shared memory and was killed: 502.
    ResponseCorrupt,
    /// The process finished without sending a head: 502.
    ResponseMissing,
    /// The spooled request body could not be read back: 500.
    BodyUnreadable,
    /// The server is stopping: 503.
    Stopping,
    /// No backend of the pool is reachable: 503 with Retry-After.
    BackendDown {
        /// How the last attempt to reach a backend failed.
        message: String,
    },
    /// The backend closed the connection before the response was complete: 502.
    BackendClosed {
        /// Whether the response had begun when the connection was closed.
        answering: bool,
    },
    /// The backend neither read nor sent anything within the timeout: 504.
    BackendTimeout,
    /// The bytes that the backend sent are not a valid response: 502.
    BackendInvalid {
        /// What is wrong with the response.
        message: String,
    },
    /// The backend refused the request by END_REQUEST: 502.
    BackendRefused,
    /// A variable of the request does not fit in a FastCGI record: 431.
    VariableTooLong {
        /// The length of its name and value in bytes.
        length: usize,
    },
    /// The script is itself a program (mode `cgi`) and could not be executed: 500.
    CannotExecute(ExecErrno),
}

/// The error number with which the execution of a program failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecErrno(pub i32);

impl std::fmt::Display for ExecErrno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use rustix::io::Errno as E;
        let advice = match E::from_raw_os_error(self.0) {
            E::ACCESS => {
                "it is not executable for the pool's user (chmod +x), or the user cannot enter a directory above it"
            }
            E::NOENT => "the interpreter in its first line (#!) does not exist",
            E::NOEXEC => "it is not a binary, and it does not begin with #! and an interpreter",
            E::TOOBIG => {
                "the request's variables are longer than the system allows for a program's environment"
            }
            E::TXTBSY => "another process has it open for writing",
            _ => "",
        };
        let error = std::io::Error::from_raw_os_error(self.0);
        match advice {
            "" => write!(f, "{error}"),
            advice => write!(f, "{error}: {advice}"),
        }
    }
}

impl ExecError {
    /// All names, in the order of [`ExecError::index`].
    pub const NAMES: &'static [&'static str] = ExecError::VARIANTS;

    /// Returns the position of the name in [`ExecError::NAMES`], for counters.
    pub fn index(&self) -> usize {
        ExecErrorDiscriminants::from(self) as usize
    }

    /// Returns the failure's name, as it appears in the log, the metrics and `Howdah-Error`.
    pub fn name(&self) -> &'static str {
        self.into()
    }
}

impl std::fmt::Display for ExecError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ExecError::PoolDown { name, message } => write!(f, "PoolDown ({name}): {message}"),
            ExecError::ChildDied(Exit::Code(code)) => write!(f, "ChildDied: exit code {code}"),
            ExecError::ChildDied(Exit::Signal(n)) => write!(f, "ChildDied: signal {n}"),
            ExecError::ChildDied(Exit::Unseen) => {
                write!(f, "ChildDied: the child exited after its zygote had died")
            }
            ExecError::ResponseInvalid(what) => write!(f, "ResponseInvalid: {what:?}"),
            ExecError::BackendDown { message } => write!(f, "BackendDown: {message}"),
            ExecError::BackendInvalid { message } => write!(f, "BackendInvalid: {message}"),
            ExecError::CannotExecute(why) => write!(f, "CannotExecute: {why}"),
            other => f.write_str(other.name()),
        }
    }
}

impl std::error::Error for ExecError {}
