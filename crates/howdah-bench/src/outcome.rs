//! The one name each request ends with. The same word in the text report, the JSON, the CSV, the
//! plots and the tests. Only [`Outcome::Good`] is throughput: a fast error page is not.
//!
//! What is *not* an outcome: a request still on its way when the run ended (`Run::in_flight`) and an
//! arrival that was due but never sent (`Run::unsent`). Both are counted there, under these names.

use serde::{Deserialize, Serialize};

macro_rules! outcomes {
    ($($(#[doc = $doc:literal])+ $name:ident: $kind:ident, $short:literal;)+) => {
        /// How one request ended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Outcome {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Outcome {
            /// All of them, in the order of reports.
            pub const ALL: &[Outcome] = &[$(Outcome::$name,)+];

            /// The name, as in the JSON.
            pub fn name(self) -> &'static str {
                match self { $(Outcome::$name => stringify!($name),)+ }
            }

            /// What it belongs to.
            pub fn kind(self) -> Kind {
                match self { $(Outcome::$name => Kind::$kind,)+ }
            }

            /// A few words for people.
            pub fn words(self) -> &'static str {
                match self { $(Outcome::$name => $short,)+ }
            }
        }
    };
}

/// The stage at which a request was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// The request was not lost: a good answer.
    Good,
    /// A complete answer came, with the wrong status or the wrong content. Ab counts it as
    /// "Complete requests" and in its requests per second.
    Answer,
    /// There was no connection. Ab: "Failed requests (Connect)".
    Connect,
    /// The connection was established, but no complete answer came. Ab: "Receive", "Exceptions", or
    /// nothing.
    Transport,
}

outcomes! {
    /// The expected status, complete, and every check passed.
    Good: Good, "good";
    /// A 2xx that was not among the expected statuses.
    Status2xx: Answer, "unexpected 2xx";
    /// A 3xx that was not among the expected statuses. Redirects are not followed.
    Status3xx: Answer, "unexpected 3xx";
    /// A 4xx that was not among the expected statuses.
    Status4xx: Answer, "unexpected 4xx";
    /// A 5xx that was not among the expected statuses.
    Status5xx: Answer, "unexpected 5xx";
    /// The status was right, a check of the body failed.
    WrongBody: Answer, "wrong body";
    /// The name was not found. Looked up once, before the run.
    Dns: Connect, "name not found";
    /// ECONNREFUSED: nobody listens there.
    ConnectRefused: Connect, "connection refused";
    /// EAGAIN: the backlog of a unix socket was full. TCP would have waited, see `ConnectTimeout`.
    ConnectBacklog: Connect, "backlog full";
    /// No connection within the timeout. On TCP a full backlog looks like this, or like 1 s, 3 s and
    /// 7 s in the connect times: the kernel's SYN retries.
    ConnectTimeout: Connect, "connect timeout";
    /// EADDRNOTAVAIL: this machine has no ephemeral port left towards that address. The client's
    /// limit, not the server's.
    PortsExhausted: Connect, "no local port left";
    /// Any other error of `connect`: no route, host down, permission, socket file missing.
    ConnectFailed: Connect, "connect failed";
    /// The TLS handshake, certificate or a record failed.
    Tls: Transport, "TLS failed";
    /// ECONNRESET or EPIPE after the connection was there.
    Reset: Transport, "connection reset";
    /// The connection was closed in order, before the first byte of an answer.
    ClosedEarly: Transport, "closed without an answer";
    /// The answer ended before it was complete: in the head, short of Content-Length, before the last
    /// chunk, or before END_STREAM.
    Truncated: Transport, "truncated";
    /// No complete answer within the timeout, counted from when it was sent.
    Timeout: Transport, "timeout";
    /// What came is not HTTP, or more than the answer said it would be.
    ProtocolError: Transport, "not valid HTTP";
}

/// How many outcomes there are.
pub const OUTCOMES: usize = Outcome::ALL.len();

impl Outcome {
    /// The outcome of a complete answer whose status was not expected.
    pub fn of_unexpected_status(status: u16) -> Outcome {
        match status / 100 {
            2 => Outcome::Status2xx,
            3 => Outcome::Status3xx,
            4 => Outcome::Status4xx,
            5 => Outcome::Status5xx,
            _ => Outcome::ProtocolError,
        }
    }

    /// Whether the server gave a complete answer. Ab's "Complete requests" counts these.
    pub fn is_answer(self) -> bool {
        matches!(self.kind(), Kind::Good | Kind::Answer)
    }

    /// Position in [`Outcome::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_where_its_index_says() {
        for (at, outcome) in Outcome::ALL.iter().enumerate() {
            assert_eq!(outcome.index(), at);
            assert_eq!(
                serde_json::to_string(outcome).unwrap(),
                format!("\"{outcome}\"")
            );
        }
    }

    #[test]
    fn only_good_is_good() {
        let good: Vec<_> = Outcome::ALL
            .iter()
            .filter(|o| o.kind() == Kind::Good)
            .collect();
        assert_eq!(good, [&Outcome::Good]);
    }
}
