//! Decides which member runs a scheduled job. Each job has a row in Valkey with its last run and that run's lock.
//!
//! A run is identified by the time at which it was due, so members whose clocks differ agree on which run they mean.
//! The later of two runs wins: once the run of a certain time has been decided, that run and all earlier ones are
//! decided for good. The holder renews the lock while the job runs. The lock expires if the holder is not heard from
//! any more; that run is not repeated, since it is unknown how much of it was done.
//!
//! A Valkey that was emptied, restarted or replaced grants no lock for the duration of one lock. In this time every
//! member reports what it runs and what it ran recently.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, Script};
use serde::{Deserialize, Serialize};

use crate::registry::Registry;

/// A run that a member wants to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FleetRunClaim {
    /// A random word that identifies this run.
    pub token: String,
    /// The name of the member that claims the run.
    pub member: String,
    /// When the run was due, in seconds since 1970; 0 if it was started by hand.
    pub instant: i64,
}

/// The result of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimResult {
    /// The run belongs to this member. Holds the time of the claim by Valkey's clock.
    Yours(i64),
    /// The run was decided before. Holds the member that last ran the job.
    Taken(String),
    /// The job is running on this member, so the run is skipped.
    Runs(String),
    /// The run is not due yet. Holds the remaining time by Valkey's clock.
    Ahead(Duration),
    /// Valkey may have lost locks. The claim must be repeated after this time.
    Wait(Duration),
}

/// The last run of a job in the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetJobRun {
    /// When the run was claimed by Valkey's clock, in milliseconds since 1970.
    pub at: i64,
    /// The latest scheduled time that has been decided, in seconds since 1970.
    pub decided: i64,
    /// The token of the claim.
    pub token: String,
    /// The name of the member that ran the job.
    pub member: String,
    /// When the run ended, in seconds since 1970; 0 while it is running.
    pub ended: i64,
    /// A description of how the run ended.
    pub how: String,
    /// Whether the run succeeded.
    pub good: bool,
}

/// A member's request in one exchange. The maps are keyed by job name.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JobsRequest {
    /// The runs that the member wants to start.
    pub claims: BTreeMap<String, FleetRunClaim>,
    /// The runs that the member is doing or has done recently.
    pub runs: BTreeMap<String, FleetJobRun>,
}

/// The reply to a request. The maps are keyed by job name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobsReply {
    /// The results of the member's claims.
    pub claims: BTreeMap<String, ClaimResult>,
    /// The last run of each job of the fleet.
    pub rows: BTreeMap<String, FleetJobRun>,
    /// The member's own runs whose lock has expired, each with the member that runs the job now.
    pub replaced: BTreeMap<String, String>,
    /// Runs that ended because their member was not heard from any more. Reported once, to the first member that asks.
    pub lost: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct JobsReplyText {
    claims: BTreeMap<String, (String, String)>,
    rows: BTreeMap<String, FleetJobRun>,
    replaced: BTreeMap<String, String>,
    lost: BTreeMap<String, String>,
}

/// The job rows of a fleet in Valkey.
pub struct JobRows {
    registry: Registry,
    script: Script,
    lock: Duration,
    patience: Duration,
    connection: Option<MultiplexedConnection>,
}

impl JobRows {
    /// Creates the client for the jobs of the fleet with this registry. `lock` is how long a lock holds without being
    /// renewed, `patience` the maximum duration of an exchange.
    pub fn new(registry: Registry, lock: Duration, patience: Duration) -> JobRows {
        JobRows {
            registry,
            script: Script::new(include_str!("jobs.lua")),
            lock,
            patience,
            connection: None,
        }
    }

    /// Sends a request and returns the reply.
    ///
    /// # Errors
    /// Fails with the error that Valkey returned, or because it did not reply in time or has too few replicas. The
    /// request may have been carried out nevertheless; repeating it changes nothing.
    pub async fn exchange(&mut self, message: &JobsRequest) -> Result<JobsReply, String> {
        let answer = self.try_exchange(message).await;
        if answer.is_err() {
            self.connection = None;
        }
        answer.map_err(|error| error.to_string())
    }

    async fn try_exchange(&mut self, message: &JobsRequest) -> Result<JobsReply, RedisError> {
        let text = serde_json::to_string(message)
            .map_err(|error| version_error("a message about jobs", &error.to_string()))?;
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(self.registry.connect(self.patience).await?),
        };
        let mut call = self.script.prepare_invoke();
        call.key(format!("{}:jobs", self.registry.prefix()));
        call.arg(self.lock.as_millis().to_string()).arg(text);
        let answer: String = call.invoke_async(connection).await?;
        self.registry
            .wait_for_replicas(connection, self.patience)
            .await?;
        decode_reply(&answer)
    }
}

fn version_error(what: &str, why: &str) -> RedisError {
    let detail = format!("{what} is from another version of Howdah: {why}");
    RedisError::from((ErrorKind::UnexpectedReturnType, "FleetVersion", detail))
}

fn decode_reply(answer: &str) -> Result<JobsReply, RedisError> {
    let answer: JobsReplyText = serde_json::from_str(answer)
        .map_err(|error| version_error("a row of a job", &error.to_string()))?;
    let mut claims = BTreeMap::new();
    for (job, (word, rest)) in answer.claims {
        let number = || {
            let number = rest.parse::<f64>();
            number.map_err(|error| version_error("the reply to a claim", &error.to_string()))
        };
        let time = || Ok::<_, RedisError>(Duration::from_millis(number()? as u64));
        let verdict = match word.as_str() {
            "yours" => ClaimResult::Yours(number()? as i64),
            "taken" => ClaimResult::Taken(rest),
            "runs" => ClaimResult::Runs(rest),
            "ahead" => ClaimResult::Ahead(time()?),
            "wait" => ClaimResult::Wait(time()?),
            other => return Err(version_error("the reply to a claim", other)),
        };
        claims.insert(job, verdict);
    }
    Ok(JobsReply {
        claims,
        rows: answer.rows,
        replaced: answer.replaced,
        lost: answer.lost,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_of_another_version_is_named() {
        let reply = |claims: &str| {
            format!(r#"{{"claims":{claims},"rows":{{}},"replaced":{{}},"lost":{{}}}}"#)
        };
        let known = decode_reply(&reply(r#"{"a":["yours","7"],"b":["wait","1500"]}"#)).unwrap();
        assert!(matches!(known.claims["a"], ClaimResult::Yours(7)));
        let wait = Duration::from_millis(1500);
        assert!(matches!(known.claims["b"], ClaimResult::Wait(time) if time == wait));
        for unknown in [
            reply(r#"{"a":["later","7"]}"#),
            reply(r#"{"a":["yours","soon"]}"#),
            r#"{"claims":{}}"#.to_owned(),
        ] {
            let error = decode_reply(&unknown).unwrap_err().to_string();
            assert!(
                error.contains("FleetVersion") && error.contains("another version of Howdah"),
                "{error}"
            );
        }
    }
}
