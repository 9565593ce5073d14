//! Decides with Valkey which member of a fleet executes a scheduled run. A thread of its own asks Valkey
//! (`howdah_fleet::jobs`), because Valkey may hang while jobs end and print. An eventfd wakes the process when there is
//! a response.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime};

use howdah_fleet::jobs::{ClaimResult, FleetJobRun, FleetRunClaim, JobRows, JobsRequest};
use howdah_fleet::{Registry, Valkey};
use howdah_server::admin::jobs::unix_seconds;
use rustix::event::{EventfdFlags, eventfd};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc as orders;

/// How long a run is remembered after its end: a member with a slow clock may ask for it this much later.
const REMEMBER_RUN_FOR: Duration = Duration::from_secs(300);
/// The pause before Valkey is asked again while a claim is undecided.
const RETRY_PAUSE: Duration = Duration::from_millis(300);
/// How often a lock is renewed during its lifetime.
const RENEWALS: u32 = 3;
const MAX_LOCK: Duration = Duration::from_secs(30);
/// How long a stopping server waits until Valkey has received the ends of its runs.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// The settings of `[fleet]` that concern jobs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetSettings {
    /// The URL of Valkey, including its password.
    pub valkey: String,
    /// The name of the fleet.
    pub fleet: String,
    /// The name of this server.
    pub member: String,
    /// The value of `lease`.
    pub lease: Duration,
    /// The value of `replicas`.
    pub replicas: u32,
}

impl std::fmt::Debug for FleetSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FleetSettings({}, {})", self.fleet, self.member)
    }
}

impl FleetSettings {
    fn lock(&self) -> Duration {
        (self.lease * 5).min(MAX_LOCK)
    }
}

enum ClaimCommand {
    /// Ask which member executes a run, until that time.
    Claim {
        job: String,
        claim: FleetRunClaim,
        until: Instant,
    },
    /// A claimed run has ended.
    Ended {
        job: String,
        token: String,
        how: Result<String, String>,
    },
}

/// An event from the thread.
pub enum ClaimEvent {
    /// The result of a claim. An error means that Valkey has not responded in time, with the reason.
    Claimed {
        /// The job's name.
        job: String,
        token: String,
        /// Which member executes the run.
        verdict: Result<ClaimResult, String>,
    },
    /// The last runs of the fleet's jobs.
    Rows(BTreeMap<String, FleetJobRun>),
    /// A run of this member has lost its lock to another member.
    Replaced {
        /// The job's name.
        job: String,
        /// The member that executes the job now.
        by: String,
    },
    /// A member that executed this job no longer reports to Valkey.
    Lost {
        /// The job's name.
        job: String,
        /// The name of the member.
        member: String,
    },
    /// Valkey does not respond, with the reason.
    Unreachable(String),
}

/// The handle of the thread. Dropping it ends the thread.
pub struct RunClaims {
    /// The settings that the thread was started with.
    pub settings: FleetSettings,
    orders: Option<orders::UnboundedSender<ClaimCommand>>,
    events: mpsc::Receiver<ClaimEvent>,
    bell: Arc<OwnedFd>,
    /// A random number, so tokens of two processes of one member differ.
    process: u64,
    claims: u64,
}

impl RunClaims {
    /// Starts the thread.
    ///
    /// # Errors
    /// Fails if the URL of Valkey is invalid, or with the error of the operating system.
    pub fn start(settings: &FleetSettings) -> io::Result<RunClaims> {
        let valkey: Valkey = settings.valkey.parse().map_err(io::Error::other)?;
        let registry = Registry::new(valkey, &settings.fleet, settings.replicas);
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let mut word = [0; 8];
        rustix::rand::getrandom(&mut word, rustix::rand::GetRandomFlags::empty())?;
        let (to, orders) = orders::unbounded_channel();
        let (say, news) = mpsc::channel();
        let lock = settings.lock();
        let driver = ClaimDriver {
            rows: JobRows::new(registry, lock, lock / (2 * RENEWALS)),
            pause: lock / RENEWALS,
            say,
            bell: bell.clone(),
            claims: BTreeMap::new(),
            runs: BTreeMap::new(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        std::thread::Builder::new()
            .name("turns".to_owned())
            .spawn(move || runtime.block_on(driver.run(orders)))?;
        Ok(RunClaims {
            settings: settings.clone(),
            orders: Some(to),
            events: news,
            bell,
            process: u64::from_ne_bytes(word),
            claims: 0,
        })
    }

    /// Returns the descriptor to poll.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Claims a run and returns the token of the claim. The claim is given up after `within`. `instant` is when the run
    /// was due; 0 means a command of an administrator.
    pub fn claim(&mut self, job: &str, instant: i64, within: Duration) -> String {
        self.claims += 1;
        let token = format!("{:x}.{}", self.process, self.claims);
        self.send_command(ClaimCommand::Claim {
            job: job.to_owned(),
            claim: FleetRunClaim {
                token: token.clone(),
                member: self.settings.member.clone(),
                instant,
            },
            until: Instant::now() + within,
        });
        token
    }

    /// Reports that a claimed run has ended, or that the claim is withdrawn.
    pub fn release(&self, job: &str, token: &str, how: Result<String, String>) {
        self.send_command(ClaimCommand::Ended {
            job: job.to_owned(),
            token: token.to_owned(),
            how,
        });
    }

    fn send_command(&self, order: ClaimCommand) {
        if let Some(orders) = &self.orders {
            // The thread outlives this value.
            let _ = orders.send(order);
        }
    }

    /// Returns the events from the thread.
    pub fn events(&self) -> Vec<ClaimEvent> {
        let mut count = [0; 8];
        // A failed read means that there was no event.
        let _ = rustix::io::read(&self.bell, &mut count);
        self.events.try_iter().collect()
    }

    /// Ends the thread when Valkey has received the ends of the runs, or after a short time.
    pub fn leave(mut self) {
        self.orders = None;
        let until = Instant::now() + LEAVE_TIMEOUT;
        // The thread sends more events until it ends.
        while self
            .events
            .recv_timeout(until.saturating_duration_since(Instant::now()))
            .is_ok()
        {}
    }
}

struct PendingClaim {
    claim: FleetRunClaim,
    /// When the claim is given up.
    until: Instant,
    /// When Valkey is asked again.
    again: Instant,
    /// The reason why the claim is undecided.
    why: String,
}

struct ClaimDriver {
    rows: JobRows,
    /// The maximum time between two exchanges with Valkey.
    pause: Duration,
    say: mpsc::Sender<ClaimEvent>,
    bell: Arc<OwnedFd>,
    claims: BTreeMap<String, PendingClaim>,
    /// The runs of this member, with the time when they ended.
    runs: BTreeMap<String, (FleetJobRun, Option<Instant>)>,
}

impl ClaimDriver {
    async fn run(mut self, mut orders: orders::UnboundedReceiver<ClaimCommand>) {
        let mut next = Instant::now();
        loop {
            let claims = self.claims.values();
            let wake = claims.map(|wanted| wanted.again.min(wanted.until)).min();
            let wake = wake.unwrap_or(next).min(next);
            let order = tokio::time::timeout_at(wake.into(), orders.recv()).await;
            let leaves = matches!(order, Ok(None));
            if let Ok(Some(order)) = order {
                self.handle_command(order);
                while let Ok(order) = orders.try_recv() {
                    self.handle_command(order);
                }
            }
            self.give_up_overdue(Instant::now());
            if let Err(error) = self.exchange().await {
                let again = Instant::now() + RETRY_PAUSE;
                for wanted in self.claims.values_mut() {
                    wanted.again = again;
                    wanted.why.clone_from(&error);
                }
                self.send_event(ClaimEvent::Unreachable(error));
            }
            if leaves {
                return;
            }
            next = Instant::now() + self.pause;
        }
    }

    fn send_event(&self, news: ClaimEvent) {
        // The process exits when there is no receiver any more.
        let _ = self.say.send(news);
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    fn handle_command(&mut self, order: ClaimCommand) {
        match order {
            ClaimCommand::Claim { job, claim, until } => {
                let again = Instant::now();
                let wanted = PendingClaim {
                    claim,
                    until,
                    again,
                    why: String::new(),
                };
                if let Some(former) = self.claims.insert(job.clone(), wanted) {
                    self.drop_claim(&job, &former.claim);
                }
            }
            ClaimCommand::Ended { job, token, how } => {
                if let Some(wanted) = self.claims.get(&job)
                    && wanted.claim.token == token
                {
                    let claim = wanted.claim.clone();
                    self.claims.remove(&job);
                    self.drop_claim(&job, &claim);
                } else if let Some((run, ended)) = self.runs.get_mut(&job)
                    && run.token == token
                {
                    record_end(run, how);
                    *ended = Some(Instant::now());
                }
            }
        }
    }

    /// Withdraws a claim, which Valkey may have granted.
    fn drop_claim(&mut self, job: &str, claim: &FleetRunClaim) {
        let mut run = FleetJobRun {
            token: claim.token.clone(),
            member: claim.member.clone(),
            ..FleetJobRun::default()
        };
        record_end(&mut run, Err("the job was not started".to_owned()));
        let runs = self.runs.get(job).is_some_and(|(_, ended)| ended.is_none());
        if !runs {
            self.runs
                .insert(job.to_owned(), (run, Some(Instant::now())));
        }
    }

    /// Gives up the claims whose time is over.
    fn give_up_overdue(&mut self, now: Instant) {
        let over = self.claims.iter().filter(|(_, wanted)| wanted.until <= now);
        let over: Vec<String> = over.map(|(job, _)| job.clone()).collect();
        for job in over {
            let Some(PendingClaim { claim, why, .. }) = self.claims.remove(&job) else {
                continue;
            };
            self.drop_claim(&job, &claim);
            self.send_event(ClaimEvent::Claimed {
                job,
                token: claim.token,
                verdict: Err(why),
            });
        }
        self.runs
            .retain(|_, (_, ended)| ended.is_none_or(|at| now < at + REMEMBER_RUN_FOR));
    }

    async fn exchange(&mut self) -> Result<(), String> {
        let claims = self.claims.iter();
        let runs = self.runs.iter();
        let message = JobsRequest {
            claims: claims
                .map(|(job, wanted)| (job.clone(), wanted.claim.clone()))
                .collect(),
            runs: runs
                .map(|(job, (run, _))| (job.clone(), run.clone()))
                .collect(),
        };
        let answer = self.rows.exchange(&message).await?;
        // The results of earlier runs come first: the log reports a lost run before the run that replaces it begins.
        for (job, by) in answer.replaced {
            self.runs.remove(&job);
            self.send_event(ClaimEvent::Replaced { job, by });
        }
        for (job, member) in answer.lost {
            self.send_event(ClaimEvent::Lost { job, member });
        }
        let now = Instant::now();
        for (job, verdict) in answer.claims {
            let Some(wanted) = self.claims.get_mut(&job) else {
                continue;
            };
            if let ClaimResult::Wait(time) = verdict {
                wanted.again = now + time;
                let left = time.as_secs_f64();
                wanted.why = format!(
                    "Valkey was restarted or emptied, so it grants no lock for the next {left:.1} s"
                );
                continue;
            }
            let claim = wanted.claim.clone();
            self.claims.remove(&job);
            if let ClaimResult::Yours(at) = verdict {
                let run = FleetJobRun {
                    at,
                    decided: claim.instant,
                    token: claim.token.clone(),
                    member: claim.member,
                    ..FleetJobRun::default()
                };
                self.runs.insert(job.clone(), (run, None));
            }
            self.send_event(ClaimEvent::Claimed {
                job,
                token: claim.token,
                verdict: Ok(verdict),
            });
        }
        self.send_event(ClaimEvent::Rows(answer.rows));
        Ok(())
    }
}

fn record_end(run: &mut FleetJobRun, how: Result<String, String>) {
    run.ended = i64::try_from(unix_seconds(SystemTime::now())).unwrap_or(i64::MAX);
    run.good = how.is_ok();
    run.how = how.unwrap_or_else(|why| why);
}
