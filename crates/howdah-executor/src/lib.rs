//! Runs one script request in any mode, and manages the processes that run scripts.
//!
//! The server passes a [`ScriptRequest`] to a pool and polls the returned [`ScriptRun`] for [`RunEvent`]s. The server
//! does not know which mode runs the script, and the executor does not know the HTTP version.
//!
//! - [`pool`]: the life cycle that the pools of all modes share: start, drain, end.
//! - [`php_host`]: what the file of a PHP program says about itself.
//! - [`php_program`]: a PHP program of the machine, and the library that is loaded into it.
//! - [`modes`]: starts the pool for a mode's settings.
//! - [`embed`]: the default mode, PHP in forked processes over shared memory.
//! - [`fastcgi`]: PHP in processes that this server does not manage, over FastCGI.
//! - [`cgi`]: a process for each request, PHP or any other program (RFC 3875).
//! - [`program_pool`]: FastCGI programs that this server starts and supervises.
//! - [`programs`]: starts and reaps external programs, for those two modes.
//! - [`front_thread`]: what a front thread does for its pools before it sleeps and after it wakes.
//! - `common`: what the modes share.
//! - [`auto_children`]: `max_children = auto`.
//! - [`config`]: the typed configuration of a pool, after the config reader has checked it.
//! - [`error`]: all failures of a run, each with one name.
//! - [`launch`]: starts a zygote or spawner process (directly, or through a privileged master).
//! - [`status`]: the scoreboard, as data.

#![deny(unsafe_code)]

pub mod auto_children;
pub mod cgi;
mod common;
pub mod config;
pub mod embed;
pub mod error;
pub mod fastcgi;
pub mod front_thread;
pub mod launch;
pub mod modes;
pub mod php_host;
pub mod php_program;
pub mod pool;
pub mod program_pool;
pub mod programs;
mod script_names;
pub mod status;

use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use howdah_proto::level::LogLevel;
use howdah_proto::request::RequestFrame;
pub use howdah_proto::response::ScriptHead;
use tokio::sync::mpsc;

pub use common::condition::PoolCondition;
pub use common::output::ProcessOutput;
pub use common::process::{exit_text, resident_bytes};
pub use config::{PoolConfig, PoolMode};
pub use embed::bailouts::TooManyBailouts;
pub use error::ExecError;
pub use php_program::PhpProgram;
pub use pool::ScriptPool;

/// A request for a script, as the server passes it to a pool.
#[derive(Debug)]
pub struct ScriptRequest {
    /// The meta-variables, PHP settings and environment.
    pub frame: RequestFrame,
    /// The request's body.
    pub body: ScriptBody,
    /// The number of the request in the logs.
    pub id: u64,
    /// The role that the script plays.
    pub role: ScriptRole,
    /// The address of the client that waits for the response, if there is one; see [`Executor::abandons_scripts`].
    pub client: Option<IpAddr>,
    /// Receives the side effects of the run. The frame must request them
    /// ([`howdah_proto::request::FrameBuilder::request_effects`]), and only the modes `embed` and `worker` report them.
    pub effects: Option<Arc<dyn EffectSink>>,
    /// Dropped when no process has the request any more, even if its client disconnected long before. In mode `fastcgi`
    /// it is dropped with the connection, since the end of a PHP process elsewhere is not known. The pool drops it
    /// under its locks, so the drop must return at once and must not call the pool.
    pub drop_at_end: Option<DropAtEnd>,
}

/// A value that is dropped when the run ends. A caller attaches it to a run to learn of the end.
pub type DropAtEnd = Box<dyn Any + Send + Sync>;

/// The role that a script plays. Every mode runs responders. For the other roles, the configuration must name a pool
/// whose mode supports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptRole {
    /// PHP runs the script, whose response goes to the client.
    Responder,
    /// The script is itself a program and is executed directly (a `cgi` rule). Mode `cgi` only.
    Program,
    /// A FastCGI application decides whether the request is authorized (role Authorizer, §6.3). A head with status 200
    /// authorizes it. Modes `fastcgi` and `pool` only.
    Authorizer,
}

impl ScriptRole {
    /// Returns the refusal of a pool whose mode does not support this role. This happens when a reload makes such a
    /// pool the successor of one that does.
    fn unsupported(self) -> ExecError {
        let (name, message) = match self {
            ScriptRole::Responder => ("NoScripts", "the pool's mode does not run PHP"),
            ScriptRole::Program => (
                "NoPrograms",
                "the pool's mode runs only PHP; name a pool of mode `cgi` in the rule",
            ),
            ScriptRole::Authorizer => (
                "NoAuthorizer",
                "the pool's mode does not support authorizers; name a pool of mode `fastcgi` or `pool` in the rule",
            ),
        };
        ExecError::PoolDown {
            name: name.to_owned(),
            message: message.to_owned(),
        }
    }
}

/// Receives the side effects of a run when the front reads them from the child: while the run is polled, and also after
/// its client has disconnected. The pool calls it under its locks, so it must return at once and must not call the
/// pool.
pub trait EffectSink: std::fmt::Debug + Send + Sync {
    /// Receives one effect: its name ([`howdah_proto::effect`]) and its value.
    fn effect(&self, name: &[u8], value: &[u8]);
}

/// The source of a request body.
#[derive(Debug)]
pub enum ScriptBody {
    /// The request has no body.
    Empty,
    /// The whole body, in memory.
    Memory(Bytes),
    /// The whole body, in a file of this many bytes that is read from offset 0.
    File(std::fs::File, u64),
    /// The body is still arriving. The stream ends with `None`; an `Err` means that it was cut off.
    Stream(mpsc::Receiver<Result<Bytes, BodyCutOff>>),
}

/// The client disconnected, or violated the framing, before the body was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyCutOff;

/// An event of a run. The order is: any number of `Informational`, one `Head`, any number of `Body`, one `End`. At any
/// point an [`ExecError`] may come instead, after which nothing follows.
#[derive(Debug)]
pub enum RunEvent {
    /// A 1xx head to send to the client immediately.
    Informational(ScriptHead),
    /// Status and headers of the response.
    Head(ScriptHead),
    /// A piece of the response's body.
    Body(Bytes),
    /// The script has flushed its output: send everything received so far.
    Flush,
    /// The run had a side effect, which [`ScriptRequest::effects`] has received.
    Effect,
    /// The response is complete (the script may still be running).
    End,
}

/// One run of a script. Dropping it tells the script that the client has disconnected. The pool continues to account
/// for what the process still uses.
pub trait ScriptRun: Send {
    /// Polls for the next event. After [`Poll::Pending`], the task of `cx` is woken when there is one.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<RunEvent, ExecError>>;

    /// Returns how long the request waited for a process, once one has claimed it, and that process's index in the
    /// scoreboard. The access log shows both.
    fn timing(&self) -> RunTiming;

    /// Returns the id of the process that runs the script, if this server started it and it is known.
    fn process(&self) -> Option<i32> {
        None
    }

    /// Returns whether a status of 200 is the script's own decision. Otherwise a 200 may only mean that the script set
    /// no status, and an error document without a status of its own gets the status of the error.
    fn decides_status(&self) -> bool {
        false
    }

    /// Returns whether a process has begun with the request, as far as is known. A request that has not begun can be
    /// cancelled at no cost.
    fn is_claimed(&self) -> bool {
        self.timing().child.is_some()
    }
}

/// A run that wraps another one and sees its events. All other methods are forwarded to the wrapped run.
pub trait RunWrapper: Send {
    /// Returns the wrapped run.
    fn inner(&self) -> &dyn ScriptRun;

    /// See [`ScriptRun::poll_event`].
    fn poll_event_around(&mut self, cx: &mut Context<'_>) -> Poll<Result<RunEvent, ExecError>>;
}

impl<R: RunWrapper> ScriptRun for R {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<RunEvent, ExecError>> {
        self.poll_event_around(cx)
    }

    fn timing(&self) -> RunTiming {
        self.inner().timing()
    }

    fn process(&self) -> Option<i32> {
        self.inner().process()
    }

    fn decides_status(&self) -> bool {
        self.inner().decides_status()
    }

    fn is_claimed(&self) -> bool {
        self.inner().is_claimed()
    }
}

/// How long a run waited, and which child runs it: the result of [`ScriptRun::timing`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTiming {
    /// The time from `start` to the first sign of the process.
    pub queued: Option<Duration>,
    /// The index of the child in its pool's scoreboard.
    pub child: Option<u16>,
}

/// Runs scripts. There is one value per pool, which all front threads share.
pub trait Executor: Send + Sync {
    /// Starts a run. Call it on a front thread (see [`front_thread`]). It never blocks: a request that cannot run yet
    /// waits in the pool's only, bounded queue. A pool whose mode does not support the request's [`ScriptRole`] refuses
    /// the request.
    fn start(&self, request: ScriptRequest) -> Box<dyn ScriptRun>;

    /// Returns the name of the pool's mode, for display in traces only.
    fn mode(&self) -> &'static str;

    /// Returns the current scoreboard and counters.
    fn status(&self) -> status::PoolStatus;

    /// Returns how many requests wait for a process now. Pools whose status is costly to collect override it.
    fn queue_length(&self) -> u32 {
        self.status().queue
    }

    /// Returns the maximum number of requests that the pool runs at once, if it is known.
    fn max_processes(&self) -> Option<u32> {
        None
    }

    /// Returns whether this client has recently abandoned so many running scripts that half of the processes worked on
    /// abandoned requests.
    fn abandons_scripts(&self, _client: IpAddr) -> bool {
        false
    }

    /// Returns whether PHP has recently bailed out of so many runs of this client that the client must wait.
    fn too_many_bailouts(&self, _client: IpAddr) -> Option<TooManyBailouts> {
        None
    }

    /// Invalidates all values of the cache that the pool's PHP processes share.
    fn invalidate_shared_cache(&self) {}

    /// Records whether a pool with another shared cache, which this pool's processes cannot see, is still finishing its
    /// requests. This pool's cache is not used while it does.
    fn set_predecessor_running(&self, _beside: bool) {}

    /// Returns whether a body of unknown length may be streamed. Where PHP reads a body only by its CONTENT_LENGTH, the
    /// server has to receive the whole body first.
    fn accepts_unknown_length(&self) -> bool {
        true
    }

    /// Returns whether the pool's processes report to the request's [`EffectSink`] what a run does besides its response.
    fn reports_effects(&self) -> bool {
        true
    }
}

/// Receives the messages that scripts and PHP processes write. The server's error log implements it.
pub trait ScriptLog: Send + Sync {
    /// Logs a message that belongs to a request: `error_log()`, a warning, a fatal error.
    fn script(
        &self,
        pool: &str,
        request: u64,
        frame: &RequestFrame,
        level: LogLevel,
        message: &[u8],
    );

    /// Logs an event of the pool's processes: died, killed, slow, cannot start. `name` is the name of the event
    /// (`ChildDied`, `SlowRequest`, `TerminateTimeout`, …).
    fn pool(&self, pool: &str, level: LogLevel, name: &str, message: &str);
}

/// A [`ScriptLog`] that is shared by the threads of a pool.
pub type SharedScriptLog = Arc<dyn ScriptLog>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_role_names_the_mode_that_supports_it() {
        for (role, name, mode) in [
            (ScriptRole::Responder, "NoScripts", ""),
            (ScriptRole::Program, "NoPrograms", "`cgi`"),
            (
                ScriptRole::Authorizer,
                "NoAuthorizer",
                "`fastcgi` or `pool`",
            ),
        ] {
            let ExecError::PoolDown {
                name: found,
                message,
            } = role.unsupported()
            else {
                panic!("{role:?}");
            };
            assert_eq!(found, name);
            assert!(message.contains(mode), "{message}");
        }
    }
}
