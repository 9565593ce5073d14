//! The measurements of one run, as data: raw counts and histograms, without judgement. Its serialised form is the
//! documented JSON (`docs/bench-json.md`). Durations are seconds as `f64` unless the field says otherwise; histograms
//! hold nanoseconds.
//!
//! Every request is counted once: `sent = Σ outcomes that were sent + in_flight`, see [`Run::balance`].

pub mod client_side;
pub mod replay;
pub mod server_side;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::outcome::Outcome;
use crate::plan::Plan;

pub use client_side::{ClientSide, Machine};
pub use replay::Replay;
pub use server_side::ServerSample;

/// The version of the JSON. It is raised when a reader of the old format would misread the new one.
pub const SCHEMA_VERSION: u32 = 1;

/// The measurements of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The version of this format: [`SCHEMA_VERSION`].
    pub schema: u32,
    /// The name and version of the program that measured, for example `howdah 0.1.0`.
    pub generator: String,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// When the measured part began, in seconds since 1970.
    pub started: f64,
    /// How long the measured part took, in seconds.
    pub elapsed: f64,
    /// Why the run ended.
    pub ended: RunEnd,
    /// The plan that the run executed.
    pub plan: Plan,
    /// The length of the request's body, in bytes.
    pub body_length: u64,

    /// Open loop: the number of arrivals that were due within the run. Closed loop: the number of requests begun.
    pub due: u64,
    /// The number of requests begun: the client started to connect, or wrote the request on an open connection.
    pub begun: u64,
    /// The number of requests of which the kernel accepted at least one byte. The server may know of these.
    pub sent: u64,
    /// Requests that were sent, and neither answered nor failed, when the run ended. The server may log them.
    pub in_flight: InFlightRequests,
    /// Open loop: the number of requests that were due but never sent, because every connection was busy until the end.
    pub unsent: u64,
    /// The counts of the warm-up's requests.
    pub warmup: Warmup,

    /// The requests that ended, by outcome. Outcomes that did not occur are absent.
    pub outcomes: BTreeMap<Outcome, OutcomeTally>,
    /// How often each problem occurred, in more detail than the outcomes: `ProtocolError: two Content-Length …`. Only
    /// the first 32 different ones are kept.
    #[serde(default)]
    pub reasons: BTreeMap<String, u64>,
    /// The number of complete responses by status, whether the status was expected or not.
    pub statuses: BTreeMap<u16, u64>,
    /// The phases of the good responses' latency.
    pub phases: Phases,
    /// Open loop: how late requests were begun because the generator was busy (not because connections were): begun −
    /// max(due, a connection became free). Empty in a closed loop.
    pub send_lag: Histogram,
    /// The bytes sent and received.
    pub bytes: ByteCounts,
    /// The counts of connections.
    pub connections: ConnectionTotals,
    /// The properties of the responses' bodies.
    pub document: DocumentInfo,
    /// The measurements of each second, from the start of the measured part.
    pub seconds: Vec<Second>,
    /// The resources that the generator itself used.
    pub client: ClientSide,
    /// The samples of the server that `Plan::observe` asked for, once a second.
    pub server: Vec<ServerSample>,
    /// The machine that the generator ran on.
    pub machine: Machine,
    /// The times of page loads whose responses were all good, from the request of the page to the end of its last part;
    /// `None` if the plan has no page loads, or none was complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_loads: Option<Histogram>,
    /// What the replay of a log measured; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Box<Replay>>,
    /// One record per request, if `Plan::keep_samples`. Not in the JSON.
    #[serde(skip)]
    pub samples: Vec<Sample>,
}

/// The reason why a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    /// The planned number of requests was reached, and all of them have ended.
    Requests,
    /// The planned time had passed.
    Time,
    /// The run was interrupted (Ctrl-C). Everything measured until then is included.
    Interrupted,
}

/// Requests in progress when the run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InFlightRequests {
    /// How many had been sent.
    pub count: u64,
    /// How many had begun but not been sent, because they were still connecting.
    pub connecting: u64,
    /// How long the oldest had been waiting, in seconds. A stall at the end shows here and not in the histogram.
    pub oldest: f64,
}

/// Requests begun in the warm-up. No other count and no latency includes them. Those answered in the measured part
/// count in its rates, because the server did that work in it. They balance the requests that begin in the measured
/// part and are answered after its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warmup {
    /// The number of requests sent in the warm-up.
    pub sent: u64,
    /// The number that ended as [`Outcome::Good`].
    pub good: u64,
    /// The number that ended with another outcome.
    pub failed: u64,
    /// The number of good requests of the warm-up that were answered in the measured part.
    #[serde(default)]
    pub carried_good: u64,
    /// The number of failed requests of the warm-up that ended in the measured part.
    #[serde(default)]
    pub carried_failed: u64,
}

/// The requests with one outcome.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutcomeTally {
    /// How many requests ended with this outcome.
    pub count: u64,
    /// The time from when the request was begun (closed loop) or due (open loop) to its end, including connecting.
    pub latency: Histogram,
}

/// The phases of a good response's latency, with ab's names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Phases {
    /// The time to connect, including the TLS handshake. Only for requests that needed a new connection.
    pub connect: Histogram,
    /// The time from sending the request to the first byte of the response: ab's "Waiting".
    pub wait: Histogram,
    /// The time from sending the request to the complete response: ab's "Processing". In an open loop this is the
    /// service time, without the time between due and sent.
    pub processing: Histogram,
}

/// Bytes on the connections; over TLS, bytes of the plain text; over HTTP/3, bytes of the streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteCounts {
    /// Headers and bodies received.
    pub received: u64,
    /// Bodies received, without chunk framing: ab's "HTML transferred".
    pub bodies: u64,
    /// Bodies of good responses.
    pub good_bodies: u64,
    /// Requests sent, headers and bodies.
    pub sent: u64,
}

/// Counts of connections and of their use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionTotals {
    /// The number of connections that were established, whether a request was answered on them or not.
    pub opened: u64,
    /// The number of complete responses on a connection that had carried one before.
    pub reused: u64,
    /// The number of complete responses after which the server kept the connection open: ab's "Keep-Alive requests".
    pub kept: u64,
    /// The number of complete responses after which the server closed the connection although the generator would have
    /// kept it open.
    pub refused_to_keep: u64,
    /// The number of idle connections that the server closed between two requests. No request was lost by this.
    pub closed_idle: u64,
    /// How often a unix socket's full backlog returned EAGAIN, including every retry of `BacklogPolicy::Wait`.
    pub backlog_full: u64,
    /// The maximum number of connections open at once.
    pub peak: u64,
    /// The TLS version and cipher, ab's "SSL/TLS Protocol": `TLSv1.3,TLS13_AES_256_GCM_SHA384`.
    pub tls: Option<String>,
    /// The protocol of the first response: `HTTP/1.0`, `HTTP/1.1`, `HTTP/2`, `HTTP/3`.
    pub protocol: Option<String>,
}

/// The properties of the responses' bodies. Ab takes the length of the first complete response as the expected one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentInfo {
    /// The `Server` header of the first complete response.
    pub server: Option<String>,
    /// The body length of the first complete response, whatever its status: ab's "Document Length".
    pub first_length: Option<u64>,
    /// The status of the first complete response.
    pub first_status: Option<u16>,
    /// The number of complete responses whose body length differs from the first: ab's "Failed requests (Length)".
    pub other_length: u64,
    /// The number of good responses whose body length differs from the first. Ab would have counted them as failed,
    /// although they are not.
    pub other_length_good: u64,
    /// The length of the shortest body of a good response.
    pub shortest: Option<u64>,
    /// The length of the longest body of a good response.
    pub longest: Option<u64>,
    /// The number of good responses without Content-Length (chunked, or ended by closing the connection): ab -k would
    /// have read them as empty.
    pub without_length: u64,
}

/// One second of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// When the second ended, in seconds from the start of the measured part. The last one may be cut short.
    pub end: f64,
    /// How long it was, in seconds.
    pub length: f64,
    /// Open loop: the number of requests that became due in it.
    pub due: u64,
    /// The number of requests that ended in it, by outcome.
    pub outcomes: BTreeMap<Outcome, u64>,
    /// The number of requests in progress or waiting for a connection at its end.
    pub in_flight: u64,
    /// The latencies of the good responses that ended in it, in HdrHistogram V2 base64 ([`Histogram::decode`]); empty
    /// if there were none.
    pub latency: String,
    /// The largest send lag in it, in seconds.
    pub send_lag_max: f64,
    /// The CPU time of the generator's threads, in cores.
    pub client_cpu: f64,
    /// The time that the generator's threads waited for a core, in cores.
    pub client_wait: f64,
    /// The share of all cores that the hypervisor withheld (steal time).
    pub steal: f64,
    /// The share of all cores that were busy.
    pub machine_busy: f64,
}

impl Second {
    /// Returns the number of good responses in this second.
    pub fn good(&self) -> u64 {
        self.outcomes.get(&Outcome::Good).copied().unwrap_or(0)
    }

    /// Returns the number of requests that ended in this second and were not good.
    pub fn errors(&self) -> u64 {
        self.outcomes.values().sum::<u64>() - self.good()
    }
}

/// The record of one request, for ab's `-g`. It takes 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When the request was begun (closed loop) or due (open loop), in microseconds from [`Run::started`].
    pub start_us: u64,
    /// The time to connect, in microseconds; 0 on a connection that was already open.
    pub connect_us: u32,
    /// The whole latency, in microseconds.
    pub total_us: u32,
    /// The time from sending the request to the first byte of the response, in microseconds.
    pub wait_us: u32,
    /// How the request ended.
    pub outcome: Outcome,
    /// The response's status; 0 without a response.
    pub status: u16,
}

impl Run {
    /// Returns the number of requests that ended with this outcome.
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.outcomes.get(&outcome).map_or(0, |tally| tally.count)
    }

    /// Returns the number of good responses.
    pub fn good(&self) -> u64 {
        self.count(Outcome::Good)
    }

    /// Returns the number of requests that have ended.
    pub fn ended_requests(&self) -> u64 {
        self.outcomes.values().map(|tally| tally.count).sum()
    }

    /// Returns the number of complete responses of any status: ab's "Complete requests".
    pub fn answers(&self) -> u64 {
        self.outcomes
            .iter()
            .filter(|(outcome, _)| outcome.is_complete_response())
            .map(|(_, tally)| tally.count)
            .sum()
    }

    /// Returns the number of requests that ended and were not good.
    pub fn errors(&self) -> u64 {
        self.ended_requests() - self.good()
    }

    /// Returns the latencies of the good responses. Empty if there were none.
    pub fn latency(&self) -> Histogram {
        self.outcomes
            .get(&Outcome::Good)
            .map_or_else(Histogram::new, |tally| tally.latency.clone())
    }

    /// Returns the number of good responses per second, which is the throughput.
    pub fn good_rate(&self) -> f64 {
        rate(self.good() + self.warmup.carried_good, self.elapsed)
    }

    /// Returns the number of ended requests per second, errors included. Most tools call this requests per second.
    pub fn achieved_rate(&self) -> f64 {
        let carried = self.warmup.carried_good + self.warmup.carried_failed;
        rate(self.ended_requests() + carried, self.elapsed)
    }

    /// Returns the number of requests per second that were due.
    pub fn offered_rate(&self) -> f64 {
        rate(self.due, self.elapsed)
    }

    /// Checks that every request is counted once. The error says which sum is wrong.
    pub fn balance(&self) -> Result<(), String> {
        let accounted = self.ended_requests() + self.in_flight.count + self.in_flight.connecting;
        if accounted != self.begun {
            return Err(format!(
                "{} requests were begun, but {} ended and {} + {} were in progress",
                self.begun,
                self.ended_requests(),
                self.in_flight.count,
                self.in_flight.connecting
            ));
        }
        if self.due != self.begun + self.unsent {
            return Err(format!(
                "{} requests were due, but {} were begun and {} were never sent",
                self.due, self.begun, self.unsent
            ));
        }
        for (outcome, tally) in &self.outcomes {
            if tally.count != tally.latency.len() {
                return Err(format!(
                    "{} requests ended as {outcome}, but {} have a latency",
                    tally.count,
                    tally.latency.len()
                ));
            }
        }
        Ok(())
    }
}

fn rate(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}
