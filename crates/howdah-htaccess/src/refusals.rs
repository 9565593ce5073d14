//! What the files refuse of a request whose response a site chooses itself. Access control, handlers that keep
//! PHP from running, and rules that refuse a request hold exactly as in [`answer`](crate::answer): the same
//! code evaluates them. Redirects, index files, error documents and changes of headers are skipped, and so is
//! a rule's internal redirect: it only shows that Apache would not send what is at the path.

use std::sync::Arc;

use crate::answer::{Demand, Refusal};
use crate::engine::{Engine, Stop};
use crate::request::{Consulted, Facts, Stat, World};
use crate::storage::Chain;

/// What the files say about a path.
#[derive(Clone, Debug)]
pub struct AccessVerdict {
    /// Whether the path is open.
    pub outcome: AccessOutcome,
    /// The line that decided: its file, its number and its text.
    pub because: Option<Arc<str>>,
    /// What the lines have read of the request.
    pub consulted: Consulted,
    /// The user who was let in by a password.
    pub user: Option<Vec<u8>>,
    /// The value of `WWW-Authenticate` where a password was wrong or missing.
    pub challenge: Option<Vec<u8>>,
}

/// Whether a path is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessOutcome {
    /// No line refuses the request.
    Open,
    /// A rule has another path answer the request, so Apache does not send what is at this one.
    Elsewhere,
    /// The request is refused with this status.
    Refused(u16, Refusal),
    /// The client has to give a user and a password first. [`Facts::logins`] takes the result of the check.
    Authenticate(Demand),
}

/// The settings that hold at a path: those of the directories that exist on the way to it.
pub fn chain_at(world: &dyn World, document_root: &[u8], path: &[u8]) -> Arc<Chain> {
    let facts = Facts {
        document_root: document_root.into(),
        path: path.into(),
        ..Facts::default()
    };
    let engine = Engine::new(world, &facts);
    let mut request = engine.first();
    engine.locate(&mut request).map_or_else(
        |_| Arc::default(),
        |complete| engine.chain(&request, complete),
    )
}

/// Finds out what the files refuse. `redirected` says that another path has led to this one, as Apache's internal
/// redirects do; rules see it by `REDIRECT_STATUS`.
pub fn refusals(world: &dyn World, facts: &Facts<'_>, redirected: bool) -> AccessVerdict {
    let mut engine = Engine::new(world, facts);
    let mut request = engine.first();
    request.refusals_only = true;
    if redirected {
        request.redirects = 1;
        request.env.set(b"REDIRECT_STATUS", b"200");
    }
    let stop = engine
        .process(&mut request)
        .and_then(|()| match request.found {
            Stat::File => engine.runs_php(&request).map(|_| ()),
            _ => Ok(()),
        });
    let outcome = match stop {
        Ok(()) if request.leads_elsewhere => AccessOutcome::Elsewhere,
        Ok(()) => AccessOutcome::Open,
        Err(Stop::Login(demand)) => AccessOutcome::Authenticate(demand),
        // The site finds these out itself.
        Err(Stop::Status(
            _,
            Refusal::NotFound
            | Refusal::NoIndex
            | Refusal::BadPath
            | Refusal::Method
            | Refusal::Forbidden,
        )) => AccessOutcome::Open,
        Err(Stop::Status(status, refusal)) => AccessOutcome::Refused(status, refusal),
    };
    AccessVerdict {
        outcome,
        because: engine.because.into_inner(),
        challenge: engine
            .always
            .borrow()
            .get(b"WWW-Authenticate")
            .map(<[u8]>::to_vec),
        consulted: engine.consulted,
        user: request.user,
    }
}

#[cfg(test)]
#[path = "refusals_tests.rs"]
mod tests;
