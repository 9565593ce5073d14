//! Everything that ends a request without the expected response: its name, status and message. `respond` makes the page
//! that a client gets.
//!
//! Failures are grouped by what has to change: the client (4xx), the script or its process (502, 504), saturation (503
//! with `Retry-After`), the server's own resources (500, 507).

use std::borrow::Cow;

use howdah_executor::ExecError;
use howdah_http::BodyError;
use howdah_proto::control::Exit;
use howdah_proto::level::LogLevel;
use howdah_proto::request::RequestFrameError;
use strum::IntoStaticStr;

use howdah_site::refusal::Refusal;

/// Everything that ends a request without the expected response.
#[derive(Clone, Debug, PartialEq, Eq, IntoStaticStr)]
pub enum Failure {
    /// The router refused the request before any file was sent or script run.
    Refused {
        /// Why the router refused the request.
        refusal: Refusal,
        /// The status, which is usually the refusal's own.
        status: u16,
        /// The value of `Allow` for a 405; otherwise `None`.
        allow: Option<&'static str>,
    },
    /// An `.htaccess` file refused the request.
    Closed {
        /// Why the request was refused.
        refusal: Refusal,
        /// The status code of the response.
        status: u16,
        /// The `.htaccess` file, the number of the line that refuses the request, and its text.
        because: Box<str>,
        /// The value of `WWW-Authenticate`, where the file wants a password.
        challenge: Option<Box<str>>,
    },
    /// The client has not proven to be a user who is admitted.
    NotAuthenticated {
        /// The value of `WWW-Authenticate`.
        challenge: Box<str>,
        /// The reason, for the log.
        why: Box<str>,
    },
    /// A file of users or groups cannot be read, so access is denied.
    PasswordFileUnreadable(Box<str>),
    /// Too many passwords are being checked, in total or for this client.
    AuthenticationBusy,
    /// The client requests more than a rule permits.
    ClientLimited {
        /// How many seconds the client should wait.
        retry_after: u32,
        /// The message for the log; `None` if it has logged one about this client recently.
        news: Option<Box<str>>,
    },
    /// The request is for another host than the one its TLS connection is for.
    MisdirectedRequest,
    /// The request came over a connection of a listener that no site uses any more since a reload.
    ListenerRemoved,
    /// The request body could not be read.
    Body(BodyError),
    /// The request does not fit into a frame, or contains a NUL byte.
    Frame(RequestFrameError),
    /// A request body or response could not be written to or read from its temporary file, for example because the disk
    /// is full.
    SpillFailed(String),
    /// The request body could not be kept for the script, because all files together have reached their limit.
    SpillFull,
    /// The front has reached its memory limit; the request was not processed.
    MemoryLimit,
    /// The script's run failed before it gave a response.
    Run(ExecError),
    /// The response is shorter than the `Content-Length` that the script gave. The available part was sent and the
    /// connection closed, which shows the client that the rest is missing.
    LengthMismatch {
        /// The `Content-Length` that the script gave.
        announced: u64,
        /// How many bytes the script wrote.
        written: u64,
    },
    /// A page includes a fragment that could not be inserted, and the page does not say `onerror="continue"`. The page is
    /// cut off if a part of it has been sent.
    EsiFailed {
        /// The URL that the page names.
        url: Box<str>,
        /// Why the fragment failed.
        why: Box<str>,
    },
    /// Programs redirect from one path of this server to the next without end; this is the last of them.
    LocalRedirectLoop(Vec<u8>),
    /// The request has passed through this server ten times: a `proxy` rule leads back to it.
    ProxyLoop,
    /// A compressor could not be set up, because memory ran out.
    EncoderFailed(String),
    /// This server has been separated from its fleet for so long that the other members forget it. It must not write
    /// anything.
    FleetFenced,
    /// A purge request that is not carried out.
    Purge(PurgeRefused),
    /// The client reads its response more slowly than `limits.min_rate`, or too slowly for a script to keep waiting for
    /// it. The status appears only in logs.
    ClientTooSlow,
    /// The client disconnected before the response was complete. The status appears only in logs.
    ClientGone,
}

impl Failure {
    /// Returns the failure's name in logs, metrics, the `Howdah-Error` header (but see [`Failure::public_name`]) and
    /// docs/failures.md.
    pub fn name(&self) -> &'static str {
        match self {
            Failure::Refused { refusal, .. } | Failure::Closed { refusal, .. } => refusal.name(),
            Failure::Body(error) => error.name(),
            Failure::Frame(RequestFrameError::TooLarge) => "RequestTooLarge",
            Failure::Frame(RequestFrameError::NulByte) => "NulByte",
            Failure::Run(error) => error.name(),
            Failure::Purge(refused) => refused.name(),
            own => own.into(),
        }
    }

    /// Returns the name that the client gets.
    ///
    /// It differs from [`Failure::name`] only for a file with passwords, which looks to clients like a file that does
    /// not exist. Other names that are never sent are recognisable as such, but only the configuration says that a file
    /// contains passwords.
    pub fn public_name(&self) -> &'static str {
        match self {
            Failure::Refused {
                refusal: Refusal::PasswordFile,
                ..
            }
            | Failure::Closed {
                refusal: Refusal::PasswordFile,
                ..
            } => Refusal::NotFound.name(),
            other => other.name(),
        }
    }

    /// Returns the status of the response.
    pub fn status(&self) -> u16 {
        match self {
            Failure::Refused { status, .. } | Failure::Closed { status, .. } => *status,
            Failure::NotAuthenticated { .. } => 401,
            Failure::PasswordFileUnreadable(_) => 500,
            Failure::AuthenticationBusy => 503,
            // RFC 6585 §4.
            Failure::ClientLimited { .. } => 429,
            // RFC 9110 §15.5.20.
            Failure::MisdirectedRequest | Failure::ListenerRemoved => 421,
            Failure::Body(error) => error.status(),
            // The variables are headers and the target: RFC 6585 §5.
            Failure::Frame(RequestFrameError::TooLarge) => 431,
            Failure::Frame(RequestFrameError::NulByte) => 400,
            // RFC 4918 §11.5: "unable to store the representation needed to complete the request".
            Failure::SpillFailed(_) => 507,
            Failure::SpillFull | Failure::MemoryLimit | Failure::FleetFenced => 503,
            Failure::Run(error) => match error {
                ExecError::QueueFull
                | ExecError::QueueTimeout
                | ExecError::PoolDown { .. }
                | ExecError::BackendDown { .. }
                | ExecError::Stopping => 503,
                ExecError::ChildDied(_)
                | ExecError::ResponseInvalid(_)
                | ExecError::ResponseCorrupt
                | ExecError::ResponseMissing
                | ExecError::BackendClosed { .. }
                | ExecError::BackendInvalid { .. }
                | ExecError::BackendRefused => 502,
                ExecError::TerminateTimeout | ExecError::BackendTimeout => 504,
                // As for `RequestTooLarge`: the variables are headers and the target.
                ExecError::VariableTooLong { .. } => 431,
                ExecError::BodyUnreadable | ExecError::CannotExecute(_) => 500,
            },
            Failure::LengthMismatch { .. } | Failure::EsiFailed { .. } => 502,
            Failure::LocalRedirectLoop(_) | Failure::EncoderFailed(_) => 500,
            // RFC 5842 §7.2.
            Failure::ProxyLoop => 508,
            Failure::Purge(refused) => refused.status(),
            // This status appears only in logs; nginx logs the same one for a client that does not read.
            Failure::ClientTooSlow => 408,
            // This status appears only in logs; nginx introduced it.
            Failure::ClientGone => 499,
        }
    }

    /// Returns after how many seconds a retry may succeed. A full queue drains within a second or not at all; a pool
    /// that cannot start needs an administrator.
    pub fn retry_after(&self) -> Option<u32> {
        match self {
            Failure::ClientLimited { retry_after, .. } => Some(*retry_after),
            Failure::Run(ExecError::QueueFull | ExecError::Stopping) => Some(1),
            Failure::Run(ExecError::QueueTimeout) => Some(2),
            Failure::Run(ExecError::PoolDown { .. } | ExecError::BackendDown { .. }) => Some(10),
            other if other.status() == 503 => Some(5),
            _ => None,
        }
    }

    /// Returns the severity of the failure's line in the error log. What a client did wrong, or did not wait for, is
    /// not a problem of the server.
    pub fn level(&self) -> LogLevel {
        match self.status() {
            // The client may have occupied a process.
            408 if *self == Failure::ClientTooSlow => LogLevel::Notice,
            429 => LogLevel::Notice,
            ..500 => LogLevel::Info,
            503 => LogLevel::Warning,
            _ => LogLevel::Error,
        }
    }

    /// Returns whether the error log can skip this failure, because it has logged enough similar ones.
    pub fn is_already_logged(&self) -> bool {
        matches!(self, Failure::ClientLimited { news: None, .. })
    }

    /// Returns what the log says about the failure, in one sentence.
    pub fn message(&self) -> Cow<'static, str> {
        match self {
            Failure::Closed { because, .. } => because.to_string().into(),
            Failure::NotAuthenticated { why, .. } => why.to_string().into(),
            Failure::PasswordFileUnreadable(why) => format!("access is denied: {why}").into(),
            Failure::AuthenticationBusy => {
                "too many passwords are being checked at once: a client may be guessing them".into()
            }
            Failure::ClientLimited { news: Some(news), .. } => news.to_string().into(),
            Failure::MisdirectedRequest => {
                "the TLS handshake was for another host, whose certificate does not cover this host".into()
            }
            Failure::ListenerRemoved => {
                "the address of this connection was removed from the configuration".into()
            }
            Failure::SpillFailed(error) => format!(
                "the request body could not be written to the temporary directory: {error}; make room there or set another directory"
            )
            .into(),
            Failure::SpillFull => "limits.spill_total is used up: there are many large uploads or slow downloads".into(),
            Failure::MemoryLimit => "limits.memory is used up".into(),
            Failure::FleetFenced => {
                "the fleet's Valkey has been unreachable for longer than fleet.forget_after; this server must not write, because the other servers no longer wait for its confirmations".into()
            }
            Failure::Run(error) => match error {
                ExecError::PoolDown { name, message } => format!("{name}: {message}").into(),
                ExecError::ChildDied(Exit::Code(code)) => {
                    format!("the script's process exited with code {code}").into()
                }
                ExecError::ChildDied(Exit::Signal(signal)) => {
                    format!("the script's process was killed by signal {signal}").into()
                }
                ExecError::ResponseInvalid(what) => format!("{what:?}").into(),
                ExecError::CannotExecute(why) => {
                    format!("the script cannot be executed: {why}").into()
                }
                ExecError::QueueFull => "the queue is full: more requests arrive than the children can handle".into(),
                ExecError::QueueTimeout => "no child became free within queue_timeout".into(),
                ExecError::TerminateTimeout => {
                    "the script ran longer than request_terminate_timeout and was killed".into()
                }
                ExecError::BackendDown { message } => {
                    format!("no backend can be reached: {message}").into()
                }
                ExecError::BackendClosed { answering: true } => {
                    "the backend closed the connection during its response".into()
                }
                ExecError::BackendClosed { answering: false } => {
                    "the backend closed the connection without a response: its process died or was stopped".into()
                }
                ExecError::BackendTimeout => {
                    "the backend neither sent nor read anything within its timeout (read_timeout or proxy_timeout), or read nothing for a minute".into()
                }
                ExecError::BackendInvalid { message } => {
                    format!("the backend's response is not valid HTTP: {message}").into()
                }
                ExecError::BackendRefused => {
                    "the FastCGI backend refused the request; is it a responder?".into()
                }
                ExecError::VariableTooLong { length } => format!(
                    "a header or another variable of {length} bytes does not fit into a FastCGI record"
                )
                .into(),
                _ => "".into(),
            },
            Failure::LengthMismatch { announced, written } => format!(
                "the script announced Content-Length {announced} but wrote {written} bytes"
            )
            .into(),
            Failure::EsiFailed { url, why } => {
                format!("the page includes {url}, which failed: {why}").into()
            }
            Failure::LocalRedirectLoop(target) => format!(
                "the script's local redirects do not end (the last target is {}); to redirect the client instead, send `Status: 302`",
                target.escape_ascii()
            )
            .into(),
            Failure::ProxyLoop => {
                "the request has passed through this server repeatedly: a `proxy` rule sends it back to this server".into()
            }
            Failure::Purge(refused) => refused.message().into(),
            Failure::ClientTooSlow => {
                "the client read the response more slowly than limits.min_rate allows, or too slowly while the script waited for the client".into()
            }
            Failure::EncoderFailed(error) => format!("the response could not be compressed: {error}").into(),
            _ => "".into(),
        }
    }
}

/// Why a purge request is not carried out.
#[derive(Clone, Debug, PartialEq, Eq, IntoStaticStr)]
pub enum PurgeRefused {
    /// The sender is not allowed to purge, for this reason.
    #[strum(serialize = "PurgeDenied")]
    Denied(&'static str),
    /// The request cannot be parsed, for this reason.
    #[strum(serialize = "PurgeUnreadable")]
    Unreadable(&'static str),
}

impl PurgeRefused {
    /// Returns the refusal's name in logs, metrics, the `Howdah-Error` header and the docs.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Returns the status of the response.
    pub fn status(&self) -> u16 {
        match self {
            PurgeRefused::Denied(_) => 403,
            PurgeRefused::Unreadable(_) => 400,
        }
    }

    /// Returns what the log says about the refusal, in one sentence.
    pub fn message(&self) -> &'static str {
        match self {
            PurgeRefused::Denied(why) | PurgeRefused::Unreadable(why) => why,
        }
    }
}
