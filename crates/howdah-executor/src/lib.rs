//! Runs one script request, whatever the mode, and keeps the processes that do.
//!
//! The server hands in a [`ScriptRequest`] and polls the [`Run`] it gets for [`Event`]s. It never
//! learns which mode ran the script; the executor never learns the HTTP version.
//!
//! - [`pool`]: what all modes have in common: a pool is started, drained and gone.
//! - [`modes`]: from a mode's settings to its pool.
//! - [`embed`]: the default mode, PHP in forked processes over shared memory.
//! - [`fastcgi`]: PHP in processes of somebody else, over FastCGI.
//! - [`cgi`]: a process for each request, PHP or any other program (RFC 3875).
//! - [`program_pool`]: FastCGI programs that are started and watched here.
//! - [`programs`]: who starts and reaps external programs, for those two modes.
//! - [`front_thread`]: what a front thread does for its pools around its sleep.
//! - `common`: what the modes share.
//! - [`auto_children`]: `max_children = auto`.
//! - [`config`]: what a pool is configured with, typed and checked by the config reader.
//! - [`error`]: every way a run can fail, each with one name.
//! - [`launch`]: how a zygote process gets started (directly, or by a privileged master).
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
use howdah_proto::level::Level;
use howdah_proto::request::RequestFrame;
pub use howdah_proto::response::Head;
use tokio::sync::mpsc;

pub use common::condition::Condition;
pub use common::output::Output;
pub use common::process::{exit_text, resident_bytes};
pub use config::{Mode, PoolConfig};
pub use embed::bailouts::TooManyBailouts;
pub use error::ExecError;
pub use pool::Pool;

/// A request for a script, as the server hands it to a pool.
#[derive(Debug)]
pub struct ScriptRequest {
    /// The meta-variables, settings and environment.
    pub frame: RequestFrame,
    /// The request's body.
    pub body: ScriptBody,
    /// Number of the request in the logs.
    pub id: u64,
    /// What the script is asked for.
    pub role: Role,
    /// Who waits for it, if that is one client's address; see [`Executor::has_left_scripts`].
    pub client: Option<IpAddr>,
    /// Receives what the run does apart from answering. The frame must ask for it
    /// ([`howdah_proto::request::FrameBuilder::ask_for_effects`]), and only the modes `embed` and
    /// `worker` report it.
    pub effects: Option<Arc<dyn EffectSink>>,
    /// Dropped when no process has the request any more, though its client may have left long before. In
    /// mode `fastcgi` with its connection: nobody knows when PHP ends that runs elsewhere. Dropped under
    /// locks of the pool: that must be done at once and not come back to the pool.
    pub held: Option<Held>,
}

/// What a caller wants to know the end of a run by: it is dropped then.
pub type Held = Box<dyn Any + Send + Sync>;

/// What a script is asked for. Every mode runs responders; the configuration names a pool whose mode
/// knows the other roles where it needs one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// PHP runs the script, whose answer goes to the client.
    Responder,
    /// The script is a program itself and is executed as it is (a `cgi` rule). Mode `cgi` only.
    Program,
    /// A FastCGI application says whether the request may be answered (role Authorizer, §6.3): its
    /// head of status 200 allows it. Modes `fastcgi` and `pool` only.
    Authorizer,
}

impl Role {
    /// The refusal of a pool whose mode does not know this role: a reload can make it the successor
    /// of one that does.
    fn unsupported(self) -> ExecError {
        let (name, message) = match self {
            Role::Responder => ("NoScripts", "the pool's mode runs no PHP"),
            Role::Program => (
                "NoPrograms",
                "the pool's mode runs PHP only; name a pool of mode `cgi` in the rule",
            ),
            Role::Authorizer => (
                "NoAuthorizer",
                "the pool's mode has no authorizers; name a pool of mode `fastcgi` or `pool` in the rule",
            ),
        };
        ExecError::PoolDown {
            name: name.to_owned(),
            message: message.to_owned(),
        }
    }
}

/// Receives what a run does apart from answering, when the front reads it from the child: while the run is
/// polled, and when nobody waits for it any more. Called under locks of the pool: it must return at
/// once and not come back to the pool.
pub trait EffectSink: std::fmt::Debug + Send + Sync {
    /// An effect by its name ([`howdah_proto::effect`]), and what there is to say about it.
    fn effect(&self, name: &[u8], value: &[u8]);
}

/// Where a request body comes from.
#[derive(Debug)]
pub enum ScriptBody {
    /// The request has no body.
    Empty,
    /// The whole body, in memory.
    Memory(Bytes),
    /// All of it, in a file of this many bytes, read from offset 0.
    File(std::fs::File, u64),
    /// Still arriving. The stream ends with `None`; an `Err` means it was cut off.
    Stream(mpsc::Receiver<Result<Bytes, BodyCutOff>>),
}

/// The client went away, or broke the framing, before the body was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyCutOff;

/// What a run says. The order is: any number of `Informational`, one `Head`, any number of
/// `Body`, one `End`; or an [`ExecError`] at any point, after which nothing follows.
#[derive(Debug)]
pub enum Event {
    /// A 1xx head to pass on at once.
    Informational(Head),
    /// Status and headers of the response.
    Head(Head),
    /// A piece of the response's body.
    Body(Bytes),
    /// The script has flushed: pass on now what was given so far.
    Flush,
    /// The run did something apart from answering, which [`ScriptRequest::effects`] has received.
    Effect,
    /// The response is complete (the script may still run).
    End,
}

/// One run of a script. Dropping it informs the script that the client has left; what the process
/// still holds stays accounted for by its pool.
pub trait Run: Send {
    /// Polls for the next event; `Pending` wakes the task of `cx` when there is one.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, ExecError>>;

    /// How long the request waited for a process, once one has taken it, and that process's
    /// index in the scoreboard: for the access log.
    fn timing(&self) -> RunTiming;

    /// The process that runs it, where this server has started it and it is known.
    fn process(&self) -> Option<i32> {
        None
    }

    /// Whether the status is the script's own also where it is 200: the document of an error that sets none has
    /// the error's.
    fn decides_status(&self) -> bool {
        false
    }

    /// Whether a process has begun with it, as far as is known. One that has not can be taken back
    /// at no cost.
    fn is_claimed(&self) -> bool {
        self.timing().child.is_some()
    }
}

/// A run around another one, whose events it sees. What is asked of it is asked of the other.
pub trait RunAround: Send {
    /// The other run.
    fn inner(&self) -> &dyn Run;

    /// See [`Run::poll_event`].
    fn poll_event_around(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, ExecError>>;
}

impl<R: RunAround> Run for R {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, ExecError>> {
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

/// How long a run waited, and which child has it: what [`Run::timing`] returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTiming {
    /// From `start` to the first sign of the process.
    pub queued: Option<Duration>,
    /// Index of the child in its pool's scoreboard.
    pub child: Option<u16>,
}

/// Runs scripts. One value per pool, shared by all front threads.
pub trait Executor: Send + Sync {
    /// Starts a run. Call it on a front thread (see [`Executor`] implementations); never blocks: a
    /// request that cannot run yet waits in the pool's one bounded queue. A pool whose mode does not
    /// know the request's [`Role`] refuses it.
    fn start(&self, request: ScriptRequest) -> Box<dyn Run>;

    /// The name of the pool's mode, for people who look at traces. Nothing is decided by it.
    fn mode(&self) -> &'static str;

    /// The scoreboard and counters of now.
    fn status(&self) -> status::PoolStatus;

    /// How many requests it runs at once at most, if that is known.
    fn processes(&self) -> Option<u32> {
        None
    }

    /// Whether this client has asked for scripts and left while they ran, of late, so often that half of
    /// the processes worked for nobody.
    fn has_left_scripts(&self, _client: IpAddr) -> bool {
        false
    }

    /// Whether PHP has bailed out of so many runs of this client, of late, that it must wait.
    fn bailouts_of(&self, _client: IpAddr) -> Option<TooManyBailouts> {
        None
    }

    /// Makes all values of the cache that its PHP shares old.
    fn forget_shared_cache(&self) {}

    /// A pool whose processes know nothing of this one's shared cache finishes its requests (`true`), or has
    /// ended: meanwhile the cache is not used.
    fn beside_predecessor(&self, _beside: bool) {}

    /// Whether a body may be streamed whose length is not known. Where PHP reads a body by its
    /// CONTENT_LENGTH only, it has to be received whole first.
    fn takes_unknown_length(&self) -> bool {
        true
    }
}

/// Where messages that scripts and PHP processes write go. Implemented by the server's error log.
pub trait ScriptLog: Send + Sync {
    /// A message tied to a request: `error_log()`, a warning, a fatal error.
    fn script(&self, pool: &str, request: u64, frame: &RequestFrame, level: Level, message: &[u8]);

    /// Something about the pool's processes: died, killed, slow, cannot start. `name` is the one
    /// name of the event (`ChildDied`, `SlowRequest`, `TerminateTimeout`, …).
    fn pool(&self, pool: &str, level: Level, name: &str, message: &str);
}

/// A [`ScriptLog`] that the threads of a pool share.
pub type Log = Arc<dyn ScriptLog>;
