//! Every way a run can fail. The variant's name is the one name of the failure: in the log, in
//! metrics, in the `Howdah-Error` header and in the docs.

use howdah_proto::control::Exit;
use howdah_proto::response::ResponseError;
use strum::{EnumDiscriminants, IntoStaticStr, VariantNames};

/// Why a run gave no (complete) response.
#[derive(Clone, Debug, PartialEq, Eq, EnumDiscriminants, IntoStaticStr, VariantNames)]
#[strum_discriminants(vis(pub(self)), doc = "An [`ExecError`] without its details.")]
pub enum ExecError {
    /// The queue is full: 503 with Retry-After.
    QueueFull,
    /// No process became free within `queue_timeout`: 503 with Retry-After.
    QueueTimeout,
    /// The pool has no process and cannot start one: 503. The reason is the zygote's.
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
    /// The process answered with something that is not a response: 502.
    ResponseInvalid(ResponseError),
    /// The process wrote impossible values to the shared memory and was killed: 502.
    ResponseCorrupt,
    /// The process was through without having sent a head: 502.
    ResponseMissing,
    /// The spooled request body could not be read back: 500.
    BodyUnreadable,
    /// The server is stopping: 503.
    Stopping,
    /// No backend of the pool can be reached: 503 with Retry-After.
    BackendDown {
        /// How the last attempt to reach a backend failed.
        message: String,
    },
    /// The backend closed the connection before the answer was complete: 502.
    BackendClosed {
        /// Whether the answer had begun when the connection was closed.
        answering: bool,
    },
    /// The backend took or gave nothing for as long as it may: 504.
    BackendTimeout,
    /// The backend answered with something that is not a response: 502.
    BackendInvalid {
        /// What is wrong with it.
        message: String,
    },
    /// The backend refused the request by END_REQUEST: 502.
    BackendRefused,
    /// A variable of the request does not fit a FastCGI record: 431.
    VariableTooLong {
        /// Bytes of its name and value.
        length: usize,
    },
    /// The script is a program of its own (mode `cgi`) and could not be executed: 500.
    CannotExecute(Errno),
}

/// Why a program was not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use rustix::io::Errno as E;
        let advice = match E::from_raw_os_error(self.0) {
            E::ACCESS => {
                "it is not executable for the pool's user (chmod +x), or a directory above it is closed"
            }
            E::NOENT => "its interpreter, named in the first line (#!), does not exist",
            E::NOEXEC => "it is neither a binary nor begins with #! and an interpreter",
            E::TOOBIG => "the request's variables exceed what the system passes to a program",
            E::TXTBSY => "it is being written",
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
    /// Every name, in the order of [`ExecError::index`].
    pub const NAMES: &'static [&'static str] = ExecError::VARIANTS;

    /// Place of the name in [`ExecError::NAMES`], for counters.
    pub fn index(&self) -> usize {
        ExecErrorDiscriminants::from(self) as usize
    }

    /// The failure's name, as the log, the metrics and `Howdah-Error` give it.
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
                write!(f, "ChildDied: it ended after its zygote had died")
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
