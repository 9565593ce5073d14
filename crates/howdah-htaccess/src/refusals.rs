//! Finds out whether the files refuse a request whose response a site chooses itself. Access control, handlers that
//! keep PHP from running, and rules that refuse a request hold exactly as in [`decide`](crate::decide): the same code
//! evaluates them. Redirects, index files, error documents and changes of headers are skipped, and so is a rule's
//! internal redirect: it only shows that Apache would not send what is at the path.

use std::sync::Arc;

use crate::decision::{Demand, HtaccessRefusal};
use crate::engine::{HookError, RequestEngine};
use crate::request::{EvaluationInput, InputDependencies, ServerContext, Stat};
use crate::storage::HtFileChain;

/// What the files say about a path.
#[derive(Debug)]
pub struct AccessVerdict {
    /// Whether the path is open.
    pub outcome: AccessOutcome,
    /// The line that decided: its file, its number and its text.
    pub decided_by: Option<Arc<str>>,
    /// The parts of the request that the lines have read.
    pub dependencies: InputDependencies,
    /// The user whose password was accepted.
    pub user: Option<Vec<u8>>,
    /// The value of `WWW-Authenticate` where a password was wrong or missing.
    pub challenge: Option<Vec<u8>>,
}

/// Whether a path is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessOutcome {
    /// No line refuses the request.
    Open,
    /// A rule makes another path respond to the request, so Apache does not send what is at this one.
    Elsewhere,
    /// The request is refused with this status.
    Refused(u16, HtaccessRefusal),
    /// The client has to give a user and a password first. [`EvaluationInput::logins`] takes the result of the check.
    Authenticate(Demand),
}

/// Returns the settings that hold at a path: those of the directories that exist on the way to it.
pub fn chain_at(server: &dyn ServerContext, document_root: &[u8], path: &[u8]) -> Arc<HtFileChain> {
    let input = EvaluationInput {
        document_root: document_root.into(),
        path: path.into(),
        ..EvaluationInput::default()
    };
    let engine = RequestEngine::new(server, &input);
    let mut request = engine.first();
    engine.locate(&mut request).map_or_else(
        |_| Arc::default(),
        |complete| engine.chain(&request, complete),
    )
}

/// Finds out what the files refuse. `redirected` says that another path has led to this one, as Apache's internal
/// redirects do; rules see it by `REDIRECT_STATUS`.
pub fn refusals(
    server: &dyn ServerContext,
    input: &EvaluationInput<'_>,
    redirected: bool,
) -> AccessVerdict {
    let mut engine = RequestEngine::new(server, input);
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
        Ok(()) if request.is_led_elsewhere => AccessOutcome::Elsewhere,
        Ok(()) => AccessOutcome::Open,
        Err(HookError::Login(demand)) => AccessOutcome::Authenticate(demand),
        // The site itself determines whether these are the result.
        Err(HookError::Status(
            _,
            HtaccessRefusal::NotFound
            | HtaccessRefusal::NoIndex
            | HtaccessRefusal::BadPath
            | HtaccessRefusal::Method
            | HtaccessRefusal::Forbidden,
        )) => AccessOutcome::Open,
        Err(HookError::Status(status, refusal)) => AccessOutcome::Refused(status, refusal),
    };
    AccessVerdict {
        outcome,
        decided_by: engine.decided_by.into_inner(),
        challenge: engine
            .always
            .borrow()
            .get(b"WWW-Authenticate")
            .map(<[u8]>::to_vec),
        dependencies: engine.dependencies,
        user: request.user,
    }
}

#[cfg(test)]
#[path = "refusals_tests.rs"]
mod tests;
