//! `howdah import --verify`: asks two servers for the paths of an access log, and lists where their answers
//! differ. GET and HEAD only; bodies are not read.
//!
//! - [`log`]: requests of an access log; [`client`]: one request, its answer's head; [`answer`]: what is compared.

pub mod client;
pub mod log;
pub mod response_facts;

use client::{RequestFailure, VerifyServer};
use log::LoggedRequest;

/// What is to be compared.
#[derive(Clone, Debug)]
pub struct ServerComparison {
    /// The server that serves now.
    pub old: VerifyServer,
    /// The one that is to take over.
    pub new: VerifyServer,
    /// `ApacheHost` where the log names none; none: that of `old`.
    pub host: Option<String>,
    /// Fields that are compared beside status, `Location` and `Content-Type`.
    pub headers: Vec<String>,
}

/// A request to which the servers do not answer alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseDifference {
    /// The request that both servers were asked.
    pub asked: LoggedRequest,
    /// What differs: name, the old server's, the new one's; empty where it is missing.
    pub facts: Vec<(String, String, String)>,
}

impl ServerComparison {
    /// Asks both servers; none if they answer alike.
    ///
    /// # Errors
    /// A server cannot be reached at all.
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
