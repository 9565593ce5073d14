//! What one run measured, as data: raw counts and histograms, no judgement. Its serialised form is
//! the documented JSON (`docs/bench-json.md`). Durations are seconds as `f64` unless the field says
//! otherwise; histograms hold nanoseconds.
//!
//! Every request is counted once: `sent = Σ outcomes that were sent + in_flight`, see
//! [`Run::balance`].

pub mod client_side;
pub mod server_side;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::outcome::Outcome;
use crate::plan::Plan;

pub use client_side::{ClientSide, Machine};
pub use server_side::ServerSample;

/// Version of the JSON. Raised when a reader of the old form would misread the new one.
pub const SCHEMA: u32 = 1;

/// Everything that one run measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Version of this form: [`SCHEMA`].
    pub schema: u32,
    /// Name and version of the program that measured, as `howdah 0.1.0`.
    pub generator: String,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// When the measured part began: seconds since 1970.
    pub started: f64,
    /// How long the measured part took, seconds.
    pub elapsed: f64,
    /// What ended the run.
    pub ended: Ended,
    /// The plan that the run executed.
    pub plan: Plan,
    /// Bytes of the request's body.
    pub body_length: u64,

    /// Open loop: arrivals that were due within the run. Closed loop: requests begun.
    pub due: u64,
    /// Requests begun: the client began to connect, or wrote the request on an open connection.
    pub begun: u64,
    /// Requests of which the kernel took at least a byte: those the server can know of.
    pub sent: u64,
    /// Requests sent and neither answered nor failed when the run ended. The server may log them.
    pub in_flight: InFlight,
    /// Open loop: requests that were due and never sent, because every connection was busy until
    /// the end.
    pub unsent: u64,
    /// Counts of the warm-up's requests.
    pub warmup: Warmup,

    /// Requests that ended, by outcome; outcomes that did not occur are absent.
    pub outcomes: BTreeMap<Outcome, Tally>,
    /// How often each problem occurred, in more detail than the outcomes: `ProtocolError: two
    /// Content-Length …`. The first 32 different ones.
    #[serde(default)]
    pub reasons: BTreeMap<String, u64>,
    /// Complete answers by status, whatever was expected.
    pub statuses: BTreeMap<u16, u64>,
    /// The parts of the good answers' time.
    pub phases: Phases,
    /// Open loop: how late requests were begun because the generator was busy (not because
    /// connections were): begun − max(due, a connection became free). Empty in a closed loop.
    pub send_lag: Histogram,
    /// Bytes sent and received.
    pub bytes: ByteCounts,
    /// What happened to the connections.
    pub connections: ConnectionCounts,
    /// What the answers' bodies were like.
    pub document: DocumentInfo,
    /// Second by second, from the start of the measured part.
    pub seconds: Vec<Second>,
    /// What the generator itself used.
    pub client: ClientSide,
    /// The samples of the server that `Plan::observe` asked for, once a second.
    pub server: Vec<ServerSample>,
    /// The machine that the generator ran on.
    pub machine: Machine,
    /// One record per request, if `Plan::keep_samples`. Not in the JSON.
    #[serde(skip)]
    pub samples: Vec<Sample>,
}

/// What ended a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The planned number of requests was reached, and all of them have ended.
    Requests,
    /// The planned time was over.
    Time,
    /// Somebody interrupted it (Ctrl-C); everything measured until then is included.
    Interrupted,
}

/// Requests in progress when the run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InFlight {
    /// How many had been sent.
    pub count: u64,
    /// How many were still waiting for a connection (begun, not sent).
    pub connecting: u64,
    /// How long the oldest had been waiting, seconds: a stall at the end shows here and not in the
    /// histogram.
    pub oldest: f64,
}

/// Requests begun in the warm-up. No other count and no latency includes them. Those answered in
/// the measured part count in its rates, because the server did that work in it; they make up for
/// the requests that are begun in the measured part and answered after its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warmup {
    /// Requests sent in the warm-up.
    pub sent: u64,
    /// Ended as [`Outcome::Good`].
    pub good: u64,
    /// Requests that ended with another outcome.
    pub failed: u64,
    /// Good requests of the warm-up that were answered in the measured part.
    #[serde(default)]
    pub carried_good: u64,
    /// Failed requests of the warm-up that ended in the measured part.
    #[serde(default)]
    pub carried_failed: u64,
}

/// Requests with the same outcome.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// How many requests ended so.
    pub count: u64,
    /// Time from when the request was begun (closed loop) or due (open loop) to its end, connecting
    /// included.
    pub latency: Histogram,
}

/// The parts of a good answer's time, as ab names them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Phases {
    /// Connecting, with the TLS handshake; only requests that needed a new connection.
    pub connect: Histogram,
    /// From the sent request to the first byte of the answer: ab's "Waiting".
    pub wait: Histogram,
    /// From the sent request to the complete answer: ab's "Processing". In an open loop this is the
    /// service time, without the time between due and sent.
    pub processing: Histogram,
}

/// Bytes on the connections; over TLS: of the plain text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteCounts {
    /// Heads and bodies received.
    pub received: u64,
    /// Bodies received, without chunk framing: ab's "HTML transferred".
    pub bodies: u64,
    /// Bodies of good answers.
    pub good_bodies: u64,
    /// Requests sent, heads and bodies.
    pub sent: u64,
}

/// Counts of connections and of their use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionCounts {
    /// Connections that were established, whether a request was answered on them or not.
    pub opened: u64,
    /// Complete answers on a connection that had carried one before.
    pub reused: u64,
    /// Complete answers after which the server kept the connection: ab's "Keep-Alive requests".
    pub kept: u64,
    /// Complete answers after which the server closed, though we would have kept it.
    pub refused_to_keep: u64,
    /// Idle connections the server closed between two requests. No request was lost by it.
    pub closed_idle: u64,
    /// How often a unix socket's full backlog gave EAGAIN, every retry of `Backlog::Wait` included.
    pub backlog_full: u64,
    /// Most connections open at once.
    pub peak: u64,
    /// TLS version and cipher, ab's "SSL/TLS Protocol": `TLSv1.3,TLS13_AES_256_GCM_SHA384`.
    pub tls: Option<String>,
    /// The protocol that the first answer used: `HTTP/1.0`, `HTTP/1.1`, `HTTP/2`.
    pub protocol: Option<String>,
}

/// The answers' bodies. Ab takes the first complete answer's length as the expected one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentInfo {
    /// `Server` field of the first complete answer.
    pub server: Option<String>,
    /// Body length of the first complete answer, whatever its status: ab's "Document Length".
    pub first_length: Option<u64>,
    /// Status of the first complete answer.
    pub first_status: Option<u16>,
    /// Complete answers whose body length differs from the first: ab's "Failed requests (Length)".
    pub other_length: u64,
    /// The same among good answers: ab would have called these failed, and they are not.
    pub other_length_good: u64,
    /// Shortest body of a good answer.
    pub shortest: Option<u64>,
    /// Longest body of a good answer.
    pub longest: Option<u64>,
    /// Good answers without Content-Length (chunked, or ended by closing): ab -k would have read
    /// them as empty.
    pub without_length: u64,
}

/// One second of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// When the second ended, seconds from the start of the measured part. The last one may be cut
    /// short.
    pub end: f64,
    /// How long it was, seconds.
    pub length: f64,
    /// Open loop: requests that became due in it.
    pub due: u64,
    /// Requests that ended in it, by outcome.
    pub outcomes: BTreeMap<Outcome, u64>,
    /// Requests in progress or waiting for a connection at its end.
    pub in_flight: u64,
    /// Latencies of the good answers that ended in it, in HdrHistogram V2 base64
    /// ([`Histogram::decode`]); empty if there were none.
    pub latency: String,
    /// The largest send lag in it, seconds.
    pub send_lag_max: f64,
    /// CPU time of the generator's threads, in cores.
    pub client_cpu: f64,
    /// Time that the generator's threads waited for a core, in cores.
    pub client_wait: f64,
    /// Share of all cores that the hypervisor kept back.
    pub steal: f64,
    /// Share of all cores that were busy.
    pub machine_busy: f64,
}

impl Second {
    /// Number of good answers in this second.
    pub fn good(&self) -> u64 {
        self.outcomes.get(&Outcome::Good).copied().unwrap_or(0)
    }

    /// Number of requests that ended in this second and were not good.
    pub fn errors(&self) -> u64 {
        self.outcomes.values().sum::<u64>() - self.good()
    }
}

/// The record of one request, for ab's `-g`. 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When the request was begun (closed loop) or due (open loop): microseconds from
    /// [`Run::started`].
    pub start_us: u64,
    /// Time to connect, microseconds; 0 on a connection that was open already.
    pub connect_us: u32,
    /// The whole latency, microseconds.
    pub total_us: u32,
    /// Time from the sent request to the first byte of the answer, microseconds.
    pub wait_us: u32,
    /// How the request ended.
    pub outcome: Outcome,
    /// The answer's status; 0 without an answer.
    pub status: u16,
}

impl Run {
    /// Number of requests that ended with this outcome.
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.outcomes.get(&outcome).map_or(0, |tally| tally.count)
    }

    /// Number of good answers.
    pub fn good(&self) -> u64 {
        self.count(Outcome::Good)
    }

    /// Number of requests that have ended.
    pub fn ended_requests(&self) -> u64 {
        self.outcomes.values().map(|tally| tally.count).sum()
    }

    /// Number of complete answers of any status: ab's "Complete requests".
    pub fn answers(&self) -> u64 {
        self.outcomes
            .iter()
            .filter(|(outcome, _)| outcome.is_answer())
            .map(|(_, tally)| tally.count)
            .sum()
    }

    /// Number of requests that ended and were not good.
    pub fn errors(&self) -> u64 {
        self.ended_requests() - self.good()
    }

    /// Latencies of the good answers. Empty if there were none.
    pub fn latency(&self) -> Histogram {
        self.outcomes
            .get(&Outcome::Good)
            .map_or_else(Histogram::new, |tally| tally.latency.clone())
    }

    /// Good answers per second: the throughput.
    pub fn good_rate(&self) -> f64 {
        rate(self.good() + self.warmup.carried_good, self.elapsed)
    }

    /// Ended requests per second, errors included: what most tools call requests per second.
    pub fn achieved_rate(&self) -> f64 {
        let carried = self.warmup.carried_good + self.warmup.carried_failed;
        rate(self.ended_requests() + carried, self.elapsed)
    }

    /// Requests that were due per second.
    pub fn offered_rate(&self) -> f64 {
        rate(self.due, self.elapsed)
    }

    /// Checks that every request is accounted for once. The error says which sum is wrong.
    pub fn balance(&self) -> Result<(), String> {
        let accounted = self.ended_requests() + self.in_flight.count + self.in_flight.connecting;
        if accounted != self.begun {
            return Err(format!(
                "{} requests were begun, but {} ended and {} + {} were under way",
                self.begun,
                self.ended_requests(),
                self.in_flight.count,
                self.in_flight.connecting
            ));
        }
        if self.due != self.begun + self.unsent {
            return Err(format!(
                "{} requests were due, but {} begun and {} unsent",
                self.due, self.begun, self.unsent
            ));
        }
        for (outcome, tally) in &self.outcomes {
            if tally.count != tally.latency.len() {
                return Err(format!(
                    "{} requests ended as {outcome}, {} have a latency",
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
