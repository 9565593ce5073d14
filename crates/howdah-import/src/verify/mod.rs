//! `howdah import --verify`: sends the requests of an access log to two servers, and lists where their responses
//! differ. Only GET and HEAD are sent, and `--verify` reads no bodies.
//!
//! - [`log`]: the requests of an access log; [`client`]: sends one request; [`response_reader`]: reads the response.
//! - [`certificate`]: accepts every certificate; [`response_facts`]: the parts of a response that are compared.

mod certificate;
pub mod client;
pub mod log;
pub mod response_facts;
mod response_reader;

use client::{RequestFailure, VerifyServer};
use log::LoggedRequest;

/// The servers to compare, and the options of the comparison.
#[derive(Clone, Debug)]
pub struct ServerComparison {
    /// The server that is in use now.
    pub old: VerifyServer,
    /// The server that is to replace it.
    pub new: VerifyServer,
    /// The `Host` of requests whose log line names none; by default that of `old`.
    pub host: Option<String>,
    /// Headers that are compared in addition to status, `Location` and `Content-Type`.
    pub headers: Vec<String>,
}

/// A request for which the responses of the servers differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseDifference {
    /// The request that was sent to both servers.
    pub asked: LoggedRequest,
    /// What differs: name, value of the old server, value of the new server. A missing value is empty.
    pub facts: Vec<(String, String, String)>,
}

impl ServerComparison {
    /// Sends a request to both servers; returns `None` if the responses are equivalent.
    ///
    /// # Errors
    /// Returns an error if a server cannot be reached.
    pub fn compare(&self, asked: &LoggedRequest) -> Result<Option<ResponseDifference>, String> {
        let own = asked.host.as_ref().or(self.host.as_ref());
        let host = own.unwrap_or(&self.old.authority);
        let ask =
            |server: &VerifyServer| match server.send_request(&asked.method, &asked.target, host) {
                Ok(head) => Ok(response_facts::facts(&head, server, host, &self.headers)),
                Err(RequestFailure::Unreachable(why)) => {
                    Err(format!("{server} cannot be reached: {why}"))
                }
                Err(RequestFailure::Broken(why)) => {
                    Ok(vec![("answer".to_owned(), format!("none ({why})"))])
                }
            };
        let (old, new) = (ask(&self.old)?, ask(&self.new)?);
        let names = old.iter().chain(&new).map(|(name, _)| name);
        let mut facts: Vec<(String, String, String)> = Vec::new();
        for name in names {
            let of = |facts: &[(String, String)]| {
                let found = facts.iter().find(|(known, _)| known == name);
                found.map_or(String::new(), |(_, value)| value.clone())
            };
            let known = facts.iter().any(|(known, ..)| known == name);
            if !known && of(&old) != of(&new) {
                facts.push((name.clone(), of(&old), of(&new)));
            }
        }
        Ok((!facts.is_empty()).then(|| ResponseDifference {
            asked: asked.clone(),
            facts,
        }))
    }
}
