//! Measures the rate that the generator reaches against a server that does nothing, with the same clients, threads,
//! method, connection policy and lengths of request and response. On a machine with few cores that server occupies one
//! of them, as a real one would.

use std::time::Duration;

use super::{BenchSession, with_arrivals};
use crate::engine::null::{NullServer, RequestEnd};
use crate::engine::request_length;
use crate::error::BenchError;
use crate::outcome::OutcomeStage;
use crate::plan::{
    Arrivals, LoadTarget, Observe, Plan, RequestTemplate, ResponseChecks, StopLimits, Transcript,
    UrlScheme,
};

/// The maximum length of a response of the null server, in bytes.
const MAX_RESPONSE_BYTES: u64 = 4 << 20;

/// The number of clients of the ceiling run for an open loop, which has no number of clients of its own.
const OPEN_LOOP_CLIENTS: u32 = 100;

/// Returns whether the null server can show the ceiling of this plan. Over HTTPS, HTTP/2 and HTTP/3 a response would cost the
/// null server as much as the generator, so the null server would be the limit. There the generator's own CPU time is
/// the better evidence.
pub fn has_ceiling(plan: &Plan) -> bool {
    plan.targets[0].scheme == UrlScheme::Http && !plan.connection.protocol.is_multiplexed()
}

/// Measures the ceiling in responses per second. Returns `None` if the plan has none ([`has_ceiling`]) or the run was
/// interrupted.
pub fn ceiling(
    plan: &Plan,
    answer_length: u64,
    time: Duration,
    session: &mut BenchSession<'_>,
) -> Result<Option<f64>, BenchError> {
    if !has_ceiling(plan) {
        return Ok(None);
    }
    let (mut null, path) = null_plan(plan, time)?;
    let end = RequestEnd::Length(request_length(&null));
    let failed = |what: &str, why: &dyn std::fmt::Display| BenchError::System {
        what: what.to_owned(),
        why: why.to_string(),
    };
    let mut answer = NullServer::response(answer_length.min(MAX_RESPONSE_BYTES) as usize);
    if null.request.method == "HEAD" {
        let head = memchr::memmem::find(&answer, b"\r\n\r\n").unwrap_or_default();
        answer.truncate(head + 4);
    }
    let server = NullServer::start(end, answer, plan.connection.keep_alive)
        .map_err(|e| failed("starting the null server", &e))?;
    null.targets = vec![LoadTarget::parse(&format!(
        "http://{}{path}",
        server.address()
    ))?];
    let run = session.measure(&null, 1, Some(1), "the load tester's own maximum")?;
    drop(server);
    let Some(run) = run else {
        return Ok(None);
    };
    let lost = run.errors();
    if lost > run.good() / 100 {
        let what = "measuring the load tester's own maximum";
        let kinds = run
            .outcomes
            .keys()
            .filter(|o| o.kind() != OutcomeStage::Good);
        let names: Vec<&str> = kinds.map(|o| o.name()).collect();
        return Err(failed(
            what,
            &format!("{lost} requests ended as {}", names.join(", ")),
        ));
    }
    Ok(Some(run.good_rate()))
}

/// Returns the plan for the null server, and the path that it requests. Its target has no port yet.
fn null_plan(plan: &Plan, time: Duration) -> Result<(Plan, String), BenchError> {
    let concurrency = match plan.arrivals {
        Arrivals::Closed { concurrency } => concurrency,
        Arrivals::Open {
            max_connections, ..
        }
        | Arrivals::Log {
            max_connections, ..
        } => max_connections.min(OPEN_LOOP_CLIENTS),
    };
    let mut null = with_arrivals(plan, Arrivals::Closed { concurrency });
    null.stop = StopLimits {
        requests: None,
        time: Some(time),
    };
    null.warmup = Duration::ZERO;
    null.log = None;
    null.page_load = None;
    null.checks = ResponseChecks::default();
    null.think = Default::default();
    null.observe = Observe::default();
    null.keep_samples = false;
    null.transcript = Transcript::Silent;
    // The null server runs on this machine and is requested directly.
    null.connection.bind = None;
    null.connection.proxy = None;
    null.request.cookie_jar = false;
    for (_, value) in &mut null.request.headers {
        *value = RequestTemplate::new(value.text().replace('{', "("));
    }
    // The Host header has a constant length, so that the number of digits of the port does not change the length of the
    // request.
    null.request
        .headers
        .retain(|(name, _)| !name.eq_ignore_ascii_case("host"));
    null.request
        .headers
        .push(("Host".to_owned(), RequestTemplate::new("null.invalid")));
    let path = plan.targets[0].path.text().replace('{', "(");
    null.targets = vec![LoadTarget::parse(&format!("http://127.0.0.1:1{path}"))?];
    Ok((null, path))
}
