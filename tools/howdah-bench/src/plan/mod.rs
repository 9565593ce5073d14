//! The description of a run. A plan contains everything that a run needs, including the content of files, so that the
//! run can be repeated. It is part of the saved JSON, except for bodies.

pub mod check;
pub mod connection;
pub mod target;
pub mod template;

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use check::{ResponseChecks, StatusSet};
pub use connection::{BacklogPolicy, ClientTlsOptions, ConnectionPolicy, HttpProtocol, TlsVersion};
pub use target::{LoadTarget, TargetAddress, UrlScheme};
pub use template::RequestTemplate;

pub use crate::engine::transcript::Transcript;
use crate::error::BenchError;

/// The complete description of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The URLs, requested in turn from the first on. There is at least one, and all have the same address and scheme.
    pub targets: Vec<LoadTarget>,
    /// Whether the loop is closed or open, and its size.
    pub arrivals: Arrivals,
    /// When the run ends.
    pub stop: StopLimits,
    /// The length of the warm-up in seconds. It is not measured; `Run::warmup` counts its requests.
    #[serde(default, with = "seconds")]
    pub warmup: Duration,
    /// The log to replay, with [`Arrivals::Log`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogSource>,
    /// Whether the clients load whole pages; `None`: each client requests the targets in turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_load: Option<PageLoad>,
    /// The method, the headers and the body.
    pub request: RequestShape,
    /// The protocol, the connection and its TLS settings.
    pub connection: ConnectionPolicy,
    /// Which responses count as good.
    pub checks: ResponseChecks,
    /// A client's pause between a response and its next request. Closed loop only.
    #[serde(default)]
    pub think: Think,
    /// The number of generator threads. Each has its own event loop and its share of the clients.
    pub threads: usize,
    /// The seed of all random numbers: Poisson arrivals, `{rand:…}`, think times.
    pub seed: u64,
    /// Whether to continue when a request fails at its socket.
    pub on_socket_error: OnSocketError,
    /// What to watch on the server during the run.
    #[serde(default)]
    pub observe: Observe,
    /// Whether to keep one record per request (`Run::samples`, 32 bytes each) for ab's `-g`. Without it, the memory of
    /// a run does not depend on the number of requests.
    #[serde(default)]
    pub keep_samples: bool,
    /// What to show of every request on standard error.
    #[serde(default)]
    pub transcript: Transcript,
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// A fixed number of clients, each of which sends a request when its last response is complete. This measures
    /// saturation, but says nothing about the latency at a given rate, because a slow server gets fewer requests.
    Closed {
        /// The number of clients, each with a connection.
        concurrency: u32,
    },
    /// Requests are due at times that do not depend on responses. Latency counts from the time a request was due, so a
    /// stall shows in every request that would have met it.
    Open {
        /// The number of requests per second, over all threads.
        rate: f64,
        /// How the due times are spread.
        spacing: Spacing,
        /// The maximum number of connections. A request that is due while all are busy waits for one, and the wait
        /// counts as latency.
        max_connections: u32,
    },
    /// Requests are due as in an access log ([`Plan::log`]), in an open loop.
    Log {
        /// How many times faster the log's clock runs.
        speed: f64,
        /// The maximum number of connections, as in [`Arrivals::Open`].
        max_connections: u32,
    },
}

impl Arrivals {
    /// Returns the maximum number of connections that the run has open at once.
    pub fn connections(&self) -> u32 {
        match *self {
            Arrivals::Closed { concurrency } => concurrency,
            Arrivals::Open {
                max_connections, ..
            }
            | Arrivals::Log {
                max_connections, ..
            } => max_connections,
        }
    }

    /// Returns whether the loop is open, that is, requests are sent by the clock, independently of responses.
    pub fn is_open(&self) -> bool {
        matches!(self, Arrivals::Open { .. } | Arrivals::Log { .. })
    }
}

/// An access log whose requests are sent again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogSource {
    /// The file, which may be compressed with gzip.
    pub path: PathBuf,
    /// Whether a response is good if it has the status of the log, instead of one of [`Plan::checks`].
    pub expects_logged_status: bool,
}

/// Loads of whole pages, as browsers load them over HTTP/2 and HTTP/3: a visitor requests the first target, and when its
/// response is complete, all other targets at once on the same connection. When these have ended, too, the visitor loads
/// the page again. Closed loop only; every visitor has one connection with a stream for each target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageLoad {
    /// The value of the `Priority` header (RFC 9218) for each target, in their order; empty for none. If there are
    /// fewer values than targets, the last is for the rest.
    pub priorities: Vec<String>,
}

/// The range of [`Arrivals::Log`]'s speed.
pub const REPLAY_SPEEDS: RangeInclusive<f64> = 1.0..=10.0;

/// How the arrivals of an open loop are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spacing {
    /// Independent of each other, as the requests of many people are (a Poisson process).
    Poisson,
    /// At equal intervals.
    Constant,
}

/// The limits that end a run. The run ends at the limit that is reached first, and at least one is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopLimits {
    /// The run ends when this number of requests have been started and have ended; `None` means that there is no such
    /// limit.
    pub requests: Option<u64>,
    /// The run ends after this time, in seconds. Requests in progress then are counted in `Run::in_flight`. `None`
    /// means that there is no such limit.
    #[serde(default, with = "optional_seconds")]
    pub time: Option<Duration>,
}

/// The parts of a request that do not depend on its target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RequestShape {
    /// The method: `GET`, `HEAD`, `POST` …
    pub method: String,
    /// The headers as given, in order. They replace default headers of the same name (Host, User-Agent, Accept …).
    pub headers: Vec<(String, RequestTemplate)>,
    /// The body of every request. It is not in the JSON; its length is in `Run::body_length`.
    #[serde(skip)]
    pub body: Vec<u8>,
    /// Whether each client sends back the cookies that the server sets, which makes it a separate visitor.
    #[serde(default)]
    pub cookie_jar: bool,
}

impl Default for RequestShape {
    fn default() -> Self {
        RequestShape {
            method: "GET".to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            cookie_jar: false,
        }
    }
}

/// A client's pause between a response and its next request, uniformly random between two bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Think {
    /// The shortest pause, in seconds.
    pub min: f64,
    /// The longest pause, in seconds.
    pub max: f64,
}

/// Whether to continue after a request failed at its socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnSocketError {
    /// Counts the error and continues, as ab does with `-r`.
    #[default]
    Continue,
    /// Ends the run with [`BenchError::SocketError`], as ab does without `-r`.
    Stop,
}

/// What to watch on the server, once a second.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Observe {
    /// A process on this machine, whose CPU and memory are watched together with its children's.
    pub pid: Option<u32>,
    /// The location of Howdah's status: an `http://…` URL of the status page, or the path of the control socket.
    pub status: Option<String>,
}

impl Plan {
    /// Creates a plan with all defaults: HTTP/1.1, keep-alive, one thread, status 2xx.
    pub fn new(target: LoadTarget, arrivals: Arrivals, stop: StopLimits) -> Plan {
        Plan {
            targets: vec![target],
            arrivals,
            stop,
            warmup: Duration::ZERO,
            log: None,
            page_load: None,
            request: RequestShape::default(),
            connection: ConnectionPolicy::default(),
            checks: ResponseChecks::default(),
            think: Think::default(),
            threads: 1,
            seed: 1,
            on_socket_error: OnSocketError::Continue,
            observe: Observe::default(),
            keep_samples: false,
            transcript: Transcript::Silent,
        }
    }

    /// Returns the address to connect to: the proxy if there is one, otherwise the server.
    pub fn address(&self) -> &TargetAddress {
        let server = &self.targets[0].address;
        self.connection.proxy.as_ref().unwrap_or(server)
    }

    /// Returns an error if the plan cannot work, before anything is sent.
    pub fn check(&self) -> Result<(), BenchError> {
        let impossible = |why: String| Err(BenchError::Impossible(why));
        let Some(first) = self.targets.first() else {
            return impossible("there is no target to request".to_owned());
        };
        if let Some(other) = self
            .targets
            .iter()
            .find(|t| (&t.address, t.scheme) != (&first.address, first.scheme))
        {
            return impossible(format!(
                "{other} is on another server than {first}: all URLs of a run must be on the same server; compare \
                 servers with --vs"
            ));
        }
        if self.stop == StopLimits::default() && self.log.is_none() {
            return impossible("a run needs an end: a number of requests or a time".to_owned());
        }
        let connections = u64::from(self.arrivals.connections());
        if connections == 0 {
            return impossible("a run needs at least one connection".to_owned());
        }
        match (self.arrivals, self.stop.requests) {
            (Arrivals::Closed { concurrency }, Some(n)) if n < u64::from(concurrency) => {
                return impossible(format!(
                    "{concurrency} clients cannot share {n} requests: ask for at least as many \
                     requests (-n) as clients (-c)"
                ));
            }
            (Arrivals::Open { rate, .. }, _)
                if !(rate.is_finite() && rate > 0.0 && rate <= 1e7) =>
            {
                return impossible(format!(
                    "a rate of {rate} requests per second: expected more than 0 and at most 10 million"
                ));
            }
            (Arrivals::Log { speed, .. }, _) if !REPLAY_SPEEDS.contains(&speed) => {
                return impossible(format!(
                    "--speed {speed}: expected 1 (as in the log) to 10 (ten times as fast)"
                ));
            }
            _ => {}
        }
        self.check_log()?;
        self.check_page_load()?;
        if self.think != Think::default() && self.arrivals.is_open() {
            return impossible(
                "a pause between requests (--think) cannot be combined with --rate or --log: in an open loop, the \
                 clock decides when requests are sent"
                    .to_owned(),
            );
        }
        if !(self.think.min >= 0.0 && self.think.min <= self.think.max && self.think.max < 86400.0)
        {
            return impossible(format!(
                "think time from {} to {} seconds: expected 0 ≤ min ≤ max < one day",
                self.think.min, self.think.max
            ));
        }
        if self.threads == 0 || self.threads as u64 > connections || self.threads > 1024 {
            return impossible(format!(
                "{} threads for {connections} connections: expected 1 to 1024 threads, and no more threads than \
                 connections",
                self.threads
            ));
        }
        if self.stop.time.is_some_and(|time| time <= self.warmup) {
            return impossible("the run would end before its warm-up".to_owned());
        }
        self.connection.check(first)?;
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if self.request.method.is_empty() || !self.request.method.bytes().all(token) {
            return impossible(format!("`{}` is not a method", self.request.method));
        }
        for (name, value) in &self.request.headers {
            if name.is_empty() || !name.bytes().all(token) || !value.is_field_value() {
                return impossible(format!("`{name}: {value}` is not a header field"));
            }
        }
        Ok(())
    }
}

impl Plan {
    /// Returns an error if the plan has page loads that do not fit its other settings.
    fn check_page_load(&self) -> Result<(), BenchError> {
        let impossible = |why: &str| Err(BenchError::Impossible(why.to_owned()));
        let Some(load) = &self.page_load else {
            return Ok(());
        };
        let parts = self.targets.len() as u32;
        let Arrivals::Closed { concurrency } = self.arrivals else {
            return impossible("page loads need a closed loop");
        };
        if !self.connection.protocol.is_multiplexed() || parts < 2 {
            return impossible("a page load needs at least two targets, and HTTP/2 or HTTP/3");
        }
        let visitors = concurrency / parts;
        if self.connection.streams != parts
            || concurrency != visitors * parts
            || !visitors.is_multiple_of(self.threads as u32)
        {
            return impossible(
                "page loads need a stream for each target, and as many visitors on each thread",
            );
        }
        let value = |text: &String| RequestTemplate::new(text.as_str()).is_field_value();
        if !load.priorities.iter().all(value) {
            return impossible("one of the priorities is not a valid header value");
        }
        Ok(())
    }

    /// Returns an error if the plan has a log that cannot be replayed with the other settings.
    fn check_log(&self) -> Result<(), BenchError> {
        let impossible = |why: &str| Err(BenchError::Impossible(why.to_owned()));
        let is_replay = matches!(self.arrivals, Arrivals::Log { .. });
        if self.log.is_some() != is_replay {
            return impossible("arrivals as in a log need a log, and a log needs them");
        }
        if !is_replay {
            return Ok(());
        }
        if self.targets.len() > 1 {
            return impossible("the paths come from the log, so give only one URL");
        }
        let path = self.targets[0].path.text();
        if path.contains('?') || !self.targets[0].path.is_constant() {
            return impossible(
                "with --log, the URL names the server, and optionally a path to put in front of the log's \
                 paths; it must not have a query or placeholders",
            );
        }
        if self.request.method != "GET" || !self.request.body.is_empty() {
            return impossible(
                "the methods come from the log (only GET and HEAD), so you can give neither a method nor a body",
            );
        }
        if !self.warmup.is_zero() {
            return impossible("a log has no warm-up: its first request is measured");
        }
        if self.connection.proxy.is_some() {
            return impossible("a log is replayed to the server itself, not through a proxy (-X)");
        }
        Ok(())
    }
}

pub(crate) mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(value.as_secs_f64())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

mod optional_seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    pub fn serialize<S: Serializer>(
        value: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(|v| v.as_secs_f64()).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Option::<f64>::deserialize(deserializer)?
            .map(|v| Duration::try_from_secs_f64(v).map_err(de::Error::custom))
            .transpose()
    }
}
