//! Which member runs a scheduled job: a row of each job in Valkey, with its last run and that run's lock.
//!
//! A run is known by the time at which it was due, so that members whose clocks differ mean the same one.
//! The later of two runs wins: a time that was decided, and any before it, is decided for good. The holder
//! renews the lock while the job runs. It runs out on the holder that nobody hears any more; that run is
//! not done again, since what it has done is not known.
//!
//! A Valkey that was emptied, restarted or replaced gives no lock for as long as one holds: meanwhile every
//! member has told it what it runs, and what it ran lately.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, Script};
use serde::{Deserialize, Serialize};

use crate::exchange::Registry;

/// A run that a member wants to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Claim {
    /// A word of this run's own.
    pub token: String,
    /// Who wants it.
    pub member: String,
    /// When it was due: seconds since 1970. 0: a person wants it.
    pub instant: i64,
}

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The run is this member's, since then by Valkey's clock.
    Yours(i64),
    /// That run was decided before; the member that ran the job last.
    Taken(String),
    /// The job runs on this member. The run is left out.
    Runs(String),
    /// It is so long until that time by Valkey's clock.
    Ahead(Duration),
    /// Valkey may have lost locks. To be asked again after this time.
    Wait(Duration),
}

/// A job's last run in the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// When it was claimed, by Valkey's clock: milliseconds since 1970.
    pub at: i64,
    /// The latest time of the schedule that was decided: seconds since 1970.
    pub decided: i64,
    /// The word of its claim.
    pub token: String,
    /// Who ran it.
    pub member: String,
    /// When it ended: seconds since 1970; 0: it goes on.
    pub ended: i64,
    /// How it ended.
    pub how: String,
    /// It ended as it should.
    pub good: bool,
}

/// What a member says in one exchange, by the jobs' names.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Message {
    /// Runs that it wants to do.
    pub claims: BTreeMap<String, Claim>,
    /// Runs that it does, or has done lately.
    pub runs: BTreeMap<String, Run>,
}

/// What it hears, by the jobs' names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// What became of its claims.
    pub claims: BTreeMap<String, Verdict>,
    /// The last run of each job of the fleet.
    pub rows: BTreeMap<String, Run>,
    /// Its own runs whose lock has run out, and who runs the job now.
    pub replaced: BTreeMap<String, String>,
    /// Runs whose member is not heard any more. Said once, to the first member that asks.
    pub lost: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct AnswerText {
    claims: BTreeMap<String, (String, String)>,
    rows: BTreeMap<String, Run>,
    replaced: BTreeMap<String, String>,
    lost: BTreeMap<String, String>,
}

/// The jobs of a fleet in Valkey.
pub struct JobRows {
    registry: Registry,
    script: Script,
    lock: Duration,
    patience: Duration,
    connection: Option<MultiplexedConnection>,
}

impl JobRows {
    /// Those of the fleet with this registry. A lock holds so long without being renewed; an exchange may take
    /// that much time.
    pub fn new(registry: Registry, lock: Duration, patience: Duration) -> JobRows {
        JobRows {
            registry,
            script: Script::new(include_str!("jobs.lua")),
            lock,
            patience,
            connection: None,
        }
    }

    /// Says and hears what there is.
    ///
    /// # Errors
    /// What Valkey says; that it has not answered in time, or has too few replicas. The message may have
    /// counted: saying it again changes nothing.
    pub async fn exchange(&mut self, message: &Message) -> Result<Answer, String> {
        let answer = self.try_exchange(message).await;
        if answer.is_err() {
            self.connection = None;
        }
        answer.map_err(|error| error.to_string())
    }

    async fn try_exchange(&mut self, message: &Message) -> Result<Answer, RedisError> {
        let text = serde_json::to_string(message)
            .map_err(|error| unreadable("a message about jobs", &error.to_string()))?;
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(self.registry.connect(self.patience).await?),
        };
        let mut call = self.script.prepare_invoke();
        call.key(format!("{}:jobs", self.registry.prefix()));
        call.arg(self.lock.as_millis().to_string()).arg(text);
        let answer: String = call.invoke_async(connection).await?;
        self.registry.replicated(connection, self.patience).await?;
        read(&answer)
    }
}

fn unreadable(what: &str, why: &str) -> RedisError {
    let detail = format!("{what} is not of this version of Howdah: {why}");
    RedisError::from((ErrorKind::UnexpectedReturnType, "FleetVersion", detail))
}

fn read(answer: &str) -> Result<Answer, RedisError> {
    let answer: AnswerText = serde_json::from_str(answer)
        .map_err(|error| unreadable("a row of a job", &error.to_string()))?;
    let mut claims = BTreeMap::new();
    for (job, (word, rest)) in answer.claims {
        let number = || {
            let number = rest.parse::<f64>();
            number.map_err(|error| unreadable("an answer to a claim", &error.to_string()))
        };
        let time = || Ok::<_, RedisError>(Duration::from_millis(number()? as u64));
        let verdict = match word.as_str() {
            "yours" => Verdict::Yours(number()? as i64),
            "taken" => Verdict::Taken(rest),
            "runs" => Verdict::Runs(rest),
            "ahead" => Verdict::Ahead(time()?),
            "wait" => Verdict::Wait(time()?),
            other => return Err(unreadable("an answer to a claim", other)),
        };
        claims.insert(job, verdict);
    }
    Ok(Answer {
        claims,
        rows: answer.rows,
        replaced: answer.replaced,
        lost: answer.lost,
    })
}
