//! What is asked for. A plan is complete: everything a run needs is in it, files already read, and
//! running it twice asks the same question twice. It is part of the saved JSON, but for bodies.

pub mod check;
pub mod connection;
pub mod target;
pub mod template;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use check::{Checks, StatusSet};
pub use connection::{Backlog, ConnectionPolicy, Protocol, TlsOptions, TlsVersion};
pub use target::{Address, Scheme, Target};
pub use template::Template;

pub use crate::engine::transcript::Transcript;
use crate::error::BenchError;

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Requested in turn, the first first. At least one; all with the same address and scheme.
    pub targets: Vec<Target>,
    /// Closed or open loop.
    pub arrivals: Arrivals,
    /// When it is over.
    pub stop: Stop,
    /// This long nothing is measured, seconds; requests then are counted in `Run::warmup`.
    #[serde(default, with = "seconds")]
    pub warmup: Duration,
    /// What is sent.
    pub request: RequestShape,
    /// How it is sent.
    pub connection: ConnectionPolicy,
    /// What makes an answer a good one.
    pub checks: Checks,
    /// A client's pause between an answer and its next request. Closed loop only.
    #[serde(default)]
    pub think: Think,
    /// Threads of the generator. Each has its own event loop and its share of the clients.
    pub threads: usize,
    /// Seed of everything random: Poisson arrivals, `{rand:…}`, think times.
    pub seed: u64,
    /// Whether to go on when a request fails at its socket.
    pub on_socket_error: OnSocketError,
    /// What to watch of the server meanwhile.
    #[serde(default)]
    pub observe: Observe,
    /// Keep one record per request (`Run::samples`, 32 bytes each): for ab's `-g`. Without it the
    /// memory of a run does not depend on the number of requests.
    #[serde(default)]
    pub keep_samples: bool,
    /// What is shown of every request on standard error.
    #[serde(default)]
    pub transcript: Transcript,
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// So many clients, each sends when its last answer is complete: saturation. Says nothing about
    /// the latency at a rate: a slow server is asked less.
    Closed {
        /// Clients, each with a connection.
        concurrency: u32,
    },
    /// Requests are due at times that do not depend on answers. Latency counts from the time a
    /// request was due, so a stall is paid by everybody who would have met it.
    Open {
        /// Per second, over all threads.
        rate: f64,
        /// How the times are spread.
        spacing: Spacing,
        /// Connections at most; a request that is due while all are busy waits for one, and that
        /// wait is in its latency.
        max_connections: u32,
    },
}

impl Arrivals {
    /// Connections at most.
    pub fn connections(&self) -> u32 {
        match *self {
            Arrivals::Closed { concurrency } => concurrency,
            Arrivals::Open {
                max_connections, ..
            } => max_connections,
        }
    }

    /// Whether answers do not decide when requests are sent.
    pub fn is_open(&self) -> bool {
        matches!(self, Arrivals::Open { .. })
    }
}

/// How the arrivals of an open loop are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spacing {
    /// Independent of each other, as of many people.
    Poisson,
    /// Equal distances.
    Constant,
}

/// When a run is over: whichever comes first. At least one is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// So many requests have been started, and have ended.
    pub requests: Option<u64>,
    /// So much time has passed, seconds; what is under way then is `Run::in_flight`.
    #[serde(default, with = "optional_seconds")]
    pub time: Option<Duration>,
}

/// What is sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RequestShape {
    /// `GET`, `HEAD`, `POST` …
    pub method: String,
    /// Fields as given, in order, replacing ours of the same name (Host, User-Agent, Accept …).
    pub headers: Vec<(String, Template)>,
    /// The body. Not in the JSON; its length is in `Run::body_length`.
    #[serde(skip)]
    pub body: Vec<u8>,
    /// Send back the cookies the server sets, per client: each client is a visitor of its own.
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

/// A client's pause between an answer and its next request, seconds: even between the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Think {
    /// At least.
    pub min: f64,
    /// At most.
    pub max: f64,
}

/// Whether to go on after a request failed at its socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnSocketError {
    /// Count it and go on: ab's `-r`.
    #[default]
    Continue,
    /// End the run with [`BenchError::SocketError`]: ab without `-r`.
    Stop,
}

/// What to watch of the server, once a second.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Observe {
    /// A process of this machine, with its children: CPU and memory.
    pub pid: Option<u32>,
    /// Howdah's status: an `http://…` URL of the status page, or the path of the control socket.
    pub status: Option<String>,
}

impl Plan {
    /// A plan with everything at its default: HTTP/1.1, keep-alive, one thread, status 2xx.
    pub fn new(target: Target, arrivals: Arrivals, stop: Stop) -> Plan {
        Plan {
            targets: vec![target],
            arrivals,
            stop,
            warmup: Duration::ZERO,
            request: RequestShape::default(),
            connection: ConnectionPolicy::default(),
            checks: Checks::default(),
            think: Think::default(),
            threads: 1,
            seed: 1,
            on_socket_error: OnSocketError::Continue,
            observe: Observe::default(),
            keep_samples: false,
            transcript: Transcript::Silent,
        }
    }

    /// Where connections go: the proxy, if there is one, else the server.
    pub fn address(&self) -> &Address {
        let server = &self.targets[0].address;
        self.connection.proxy.as_ref().unwrap_or(server)
    }

    /// Says what cannot work, before anything is sent.
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
                "{other} is another server than {first}: the targets of one run share one; compare \
                 servers with --vs"
            ));
        }
        if self.stop == Stop::default() {
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
                    "a rate of {rate} requests per second: expected more than 0, at most 10 million"
                ));
            }
            _ => {}
        }
        if self.think != Think::default() && self.arrivals.is_open() {
            return impossible(
                "think time is a client's, and an open loop (--rate) has arrivals, not clients"
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
                "{} threads for {connections} connections: expected 1 to 1024, and no more than \
                 connections",
                self.threads
            ));
        }
        if self.stop.time.is_some_and(|time| time <= self.warmup) {
            return impossible("the run is over before its warm-up is".to_owned());
        }
        self.connection.check(first)?;
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if self.request.method.is_empty() || !self.request.method.bytes().all(token) {
            return impossible(format!("`{}` is no method", self.request.method));
        }
        for (name, value) in &self.request.headers {
            if name.is_empty() || !name.bytes().all(token) || !value.is_field_value() {
                return impossible(format!("`{name}: {value}` is no header field"));
            }
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
