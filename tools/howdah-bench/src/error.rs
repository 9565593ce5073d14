//! Why a run could not start or had to stop early. A failure of a single request is an
//! [`crate::outcome::Outcome`], not an error.

use std::path::PathBuf;

use strum::IntoStaticStr;

/// Why a run is not possible, or no longer possible. Each variant has one name. The message says what was attempted, on
/// what, and what to try.
#[derive(Clone, Debug, PartialEq, Eq, IntoStaticStr)]
pub enum BenchError {
    /// A target is not a URL that can be requested.
    BadUrl {
        /// The URL that was given.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// Options contradict each other, or a value is outside its range.
    Impossible(String),
    /// A file named on the command line cannot be read.
    MissingFile {
        /// The file's path.
        path: PathBuf,
        /// The system's message.
        why: String,
    },
    /// A check is not a valid expression.
    BadCheck(String),
    /// The host's name has no address.
    Dns {
        /// The host's name.
        host: String,
        /// The resolver's message.
        why: String,
    },
    /// The first connection of the run failed, so there is nothing to measure.
    Unreachable {
        /// The address of the server.
        address: String,
        /// The message of the failed `connect`.
        why: String,
    },
    /// The first TLS handshake of the run failed.
    TlsRefused {
        /// The address of the server.
        address: String,
        /// What was wrong with the handshake or the certificate.
        why: String,
    },
    /// The run needs more connections than this process may have open files.
    TooFewDescriptors {
        /// How many open files the run needs.
        wanted: u64,
        /// How many the process may have (`ulimit -n`, after raising it to the hard limit).
        limit: u64,
    },
    /// A request failed at its socket, and `Plan::on_socket_error` says to stop (ab without `-r`).
    SocketError(String),
    /// The system refused something the run needs.
    System {
        /// What was attempted.
        what: String,
        /// The system's message.
        why: String,
    },
}

impl BenchError {
    /// Returns the variant's name, for scripts and tests.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Returns the exit code: 2 for a mistake on the command line, 6 if there is no server, 1 for everything else.
    pub fn exit_code(&self) -> u8 {
        match self {
            BenchError::BadUrl { .. }
            | BenchError::Impossible(_)
            | BenchError::MissingFile { .. }
            | BenchError::BadCheck(_) => 2,
            BenchError::Dns { .. }
            | BenchError::Unreachable { .. }
            | BenchError::TlsRefused { .. } => 6,
            BenchError::TooFewDescriptors { .. }
            | BenchError::SocketError(_)
            | BenchError::System { .. } => 1,
        }
    }
}

impl std::fmt::Display for BenchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: ", self.name())?;
        match self {
            BenchError::BadUrl { url, why } => write!(
                f,
                "cannot request `{url}`: {why}; a target looks like http://host:8080/path, \
                 https://host/ or http://unix:/run/app.sock:/path"
            ),
            BenchError::Impossible(why) | BenchError::BadCheck(why) => f.write_str(why),
            BenchError::MissingFile { path, why } => {
                write!(f, "cannot read {}: {why}", path.display())
            }
            BenchError::Dns { host, why } => {
                write!(
                    f,
                    "the host `{host}` has no address: {why}; is the name correct?"
                )
            }
            BenchError::Unreachable { address, why } => write!(
                f,
                "cannot connect to {address}: {why}; is the server running, and on this address?"
            ),
            BenchError::TlsRefused { address, why } => write!(
                f,
                "the TLS handshake with {address} failed: {why}; does the server speak TLS there, \
                 and does the system trust its certificate?"
            ),
            BenchError::TooFewDescriptors { wanted, limit } => write!(
                f,
                "{wanted} connections need as many open files, but this process may have only {limit}; raise the \
                 limit with `ulimit -n {}`, or use fewer connections",
                wanted + 64
            ),
            BenchError::SocketError(why) => write!(
                f,
                "{why}; the run ended there because of --stop-on-error; without this option, errors are counted and \
                 the run continues"
            ),
            BenchError::System { what, why } => write!(f, "{what} failed: {why}"),
        }
    }
}

impl std::error::Error for BenchError {}
