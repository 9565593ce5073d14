//! The outcome of a request. Each request has exactly one, and its name is the same word in the text report, the JSON,
//! the CSV, the plots and the tests. Only [`Outcome::Good`] is throughput: a fast error page is not.
//!
//! A request that was still in progress when the run ended (`Run::in_flight`) and an arrival that was due but never
//! sent (`Run::count_unsent`) have *no* outcome. They are counted separately, under these names.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumMessage, IntoStaticStr, VariantArray};

/// The stage at which a request was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OutcomeStage {
    /// The request was not lost: it got a good response.
    Good,
    /// A complete response came, with the wrong status or the wrong content. Ab counts it among "Complete requests" and
    /// in its requests per second.
    Answer,
    /// No connection was established. Ab: "Failed requests (Connect)".
    Connect,
    /// The connection was established, but no complete response came. Ab: "Receive", "Exceptions", or nothing.
    Transport,
}

/// How one request ended.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    Display,
    EnumMessage,
    IntoStaticStr,
    VariantArray,
)]
pub enum Outcome {
    /// The response was complete, had an expected status, and passed every check.
    #[strum(message = "good")]
    Good,
    /// A 2xx that was not among the expected statuses.
    #[strum(message = "unexpected 2xx")]
    Status2xx,
    /// A 3xx that was not among the expected statuses. Redirects are not followed.
    #[strum(message = "unexpected 3xx")]
    Status3xx,
    /// A 4xx that was not among the expected statuses.
    #[strum(message = "unexpected 4xx")]
    Status4xx,
    /// A 5xx that was not among the expected statuses.
    #[strum(message = "unexpected 5xx")]
    Status5xx,
    /// The status was as expected, but a check of the body failed.
    #[strum(message = "wrong body")]
    WrongBody,
    /// The name was not found. It is looked up once, before the run.
    #[strum(message = "name not found")]
    Dns,
    /// ECONNREFUSED: no server listens there.
    #[strum(message = "connection refused")]
    ConnectRefused,
    /// EAGAIN: the backlog of a unix socket was full. With TCP, the client would have waited; see `ConnectTimeout`.
    #[strum(message = "backlog full")]
    ConnectBacklog,
    /// No connection was established within the timeout. A full backlog of a TCP listener has this outcome, or else
    /// adds 1 s, 3 s or 7 s to the connect times, because of the kernel's SYN retries.
    #[strum(message = "connect timeout")]
    ConnectTimeout,
    /// EADDRNOTAVAIL: this machine has no free ephemeral port for that address. This is a limit of the client, not of
    /// the server.
    #[strum(message = "no local port left")]
    PortsExhausted,
    /// Any other error of `connect`: no route, host down, permission, socket file missing.
    #[strum(message = "connect failed")]
    ConnectFailed,
    /// The TLS handshake, the certificate or a record was invalid.
    #[strum(message = "TLS failed")]
    Tls,
    /// ECONNRESET or EPIPE on an established connection.
    #[strum(message = "connection reset")]
    Reset,
    /// The connection was closed cleanly before the first byte of a response.
    #[strum(message = "closed without a response")]
    ClosedEarly,
    /// The response ended before it was complete: in the header, short of Content-Length, before the last chunk, or
    /// before END_STREAM.
    #[strum(message = "truncated")]
    Truncated,
    /// No complete response came within the timeout, counted from the time the request was sent.
    #[strum(message = "timeout")]
    Timeout,
    /// The response is not valid HTTP, or is longer than it declared.
    #[strum(message = "not valid HTTP")]
    ProtocolError,
}

/// The number of outcomes.
pub const OUTCOME_COUNT: usize = Outcome::ALL.len();

impl Outcome {
    /// All outcomes, in the order of reports.
    pub const ALL: &[Outcome] = Outcome::VARIANTS;

    /// Returns the name, as in the JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the stage at which a request with this outcome was lost.
    pub fn kind(self) -> OutcomeStage {
        match self {
            Outcome::Good => OutcomeStage::Good,
            Outcome::Status2xx
            | Outcome::Status3xx
            | Outcome::Status4xx
            | Outcome::Status5xx
            | Outcome::WrongBody => OutcomeStage::Answer,
            Outcome::Dns
            | Outcome::ConnectRefused
            | Outcome::ConnectBacklog
            | Outcome::ConnectTimeout
            | Outcome::PortsExhausted
            | Outcome::ConnectFailed => OutcomeStage::Connect,
            Outcome::Tls
            | Outcome::Reset
            | Outcome::ClosedEarly
            | Outcome::Truncated
            | Outcome::Timeout
            | Outcome::ProtocolError => OutcomeStage::Transport,
        }
    }

    /// Returns a short description: the message beside the variant.
    pub fn description(self) -> &'static str {
        self.get_message().unwrap_or_default()
    }

    /// Returns the outcome of a complete response whose status was not expected.
    pub fn of_unexpected_status(status: u16) -> Outcome {
        match status / 100 {
            2 => Outcome::Status2xx,
            3 => Outcome::Status3xx,
            4 => Outcome::Status4xx,
            5 => Outcome::Status5xx,
            _ => Outcome::ProtocolError,
        }
    }

    /// Returns whether the server sent a complete response. Ab's "Complete requests" counts these.
    pub fn is_complete_response(self) -> bool {
        matches!(self.kind(), OutcomeStage::Good | OutcomeStage::Answer)
    }

    /// Returns the position in [`Outcome::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_index_matches_order() {
        for (at, outcome) in Outcome::ALL.iter().enumerate() {
            assert_eq!(outcome.index(), at);
            assert!(!outcome.description().is_empty(), "{outcome}");
            assert_eq!(
                serde_json::to_string(outcome).unwrap(),
                format!("\"{outcome}\"")
            );
        }
    }

    #[test]
    fn outcome_kind_good_is_only_good() {
        let good: Vec<_> = Outcome::ALL
            .iter()
            .filter(|o| o.kind() == OutcomeStage::Good)
            .collect();
        assert_eq!(good, [&Outcome::Good]);
    }
}
