//! Merges the counts of the threads into one [`Run`].

use std::collections::BTreeMap;

use super::RunProgress;
use super::clock::seconds;
use super::machine::{CpuTime, cpu_time};
use super::recorder::{FirstResponse, RecordedSecond, Tallies};
use super::worker::WorkerResult;
use crate::histogram::Histogram;
use crate::outcome::{OUTCOME_COUNT, Outcome};
use crate::plan::Plan;
use crate::run::{
    ClientSide, Machine, OutcomeTally, Run, RunEnd, SCHEMA_VERSION, Second, ServerSample,
    client_side::ThreadUse,
};

/// Collects the counts of the threads during the run.
#[derive(Debug)]
pub struct CountCollector {
    plan: Plan,
    command: Vec<String>,
    machine: Machine,
    /// When the measured part began, in seconds since 1970.
    pub started: f64,
    /// The samples of the server.
    pub server: Vec<ServerSample>,
    /// Seconds that not all threads have reported yet, by index: how many threads have reported them, and the sum of
    /// their counts.
    open_seconds: BTreeMap<u32, (usize, RecordedSecond)>,
    seconds: Vec<Second>,
    good: Histogram,
    counts: [u64; OUTCOME_COUNT],
    cpu_before: CpuTime,
    cpu_at_start: Option<CpuTime>,
}

impl CountCollector {
    pub fn new(plan: &Plan, command: Vec<String>, machine: Machine) -> CountCollector {
        CountCollector {
            plan: plan.clone(),
            command,
            machine,
            started: 0.0,
            server: Vec::new(),
            open_seconds: BTreeMap::new(),
            seconds: Vec::new(),
            good: Histogram::new(),
            counts: [0; OUTCOME_COUNT],
            cpu_before: cpu_time(),
            cpu_at_start: None,
        }
    }

    /// Adds a thread's second, and returns the indexes of the seconds that are now complete.
    pub fn take(&mut self, interval: RecordedSecond) -> Vec<usize> {
        let index = interval.index;
        let complete = match self.open_seconds.entry(index) {
            std::collections::btree_map::Entry::Vacant(slot) => {
                slot.insert((1, interval));
                self.plan.threads == 1
            }
            std::collections::btree_map::Entry::Occupied(mut slot) => {
                let (threads, sum) = slot.get_mut();
                *threads += 1;
                add(sum, &interval);
                *threads == self.plan.threads
            }
        };
        if !complete {
            return Vec::new();
        }
        let Some((_, sum)) = self.open_seconds.remove(&index) else {
            return Vec::new();
        };
        self.close(sum);
        vec![self.seconds.len() - 1]
    }

    /// Returns the progress after a complete second, for the display.
    pub fn progress(&self, index: usize) -> RunProgress<'_> {
        let good = self.counts[Outcome::Good.index()];
        let ended = self.counts.iter().sum::<u64>();
        let second = &self.seconds[index];
        let by_time = self.plan.stop.time.map_or(0.0, |time| {
            second.end / (time - self.plan.warmup).as_secs_f64()
        });
        let by_number = match self.plan.stop.requests {
            Some(requests) => ended as f64 / requests.max(1) as f64,
            None => 0.0,
        };
        RunProgress {
            second,
            good,
            errors: ended - good,
            done: by_time.max(by_number).min(1.0),
        }
    }

    fn close(&mut self, sum: RecordedSecond) {
        let begin = self.seconds.last().map_or(0.0, |second| second.end);
        let end = seconds(sum.end);
        let length = end - begin;
        let present = cpu_time();
        let used = present.since(self.cpu_before);
        self.cpu_before = present;
        self.cpu_at_start.get_or_insert(present);
        let in_cores = |nanoseconds: u64| {
            if length > 0.0 {
                seconds(nanoseconds) / length
            } else {
                0.0
            }
        };
        let mut outcomes = BTreeMap::new();
        for (outcome, count) in Outcome::ALL.iter().zip(sum.counts) {
            self.counts[outcome.index()] += count;
            if count > 0 {
                outcomes.insert(*outcome, count);
            }
        }
        self.good.add(&sum.good);
        self.seconds.push(Second {
            end,
            length,
            due: sum.due,
            outcomes,
            in_flight: sum.in_flight,
            latency: if sum.good.is_empty() {
                String::new()
            } else {
                sum.good.encode()
            },
            send_lag_max: seconds(sum.lag_max),
            client_cpu: in_cores(sum.cpu),
            client_wait: in_cores(sum.wait),
            steal: used.steal_share(),
            machine_busy: used.busy_share(),
        });
    }

    /// Builds the run from everything that was counted.
    pub fn finish(
        mut self,
        finished: Vec<WorkerResult>,
        ended: RunEnd,
        first: Option<&FirstResponse>,
        from: u64,
    ) -> Run {
        let cpu_at_end = cpu_time();
        let end = finished.iter().map(|f| f.end).max().unwrap_or(from);
        let elapsed = seconds(end.saturating_sub(from));
        let mut run = self.empty(ended, elapsed);
        let mut threads = Vec::new();
        let mut area = 0;
        let mut others: BTreeMap<Outcome, Histogram> = BTreeMap::new();
        for thread in finished {
            let share = |ns: u64| {
                if elapsed > 0.0 {
                    seconds(ns) / elapsed
                } else {
                    0.0
                }
            };
            threads.push(ThreadUse {
                cpu: share(thread.used.ran),
                wait: share(thread.used.waited),
            });
            let oldest = run.in_flight.oldest.max(thread.in_flight.oldest);
            run.in_flight.count += thread.in_flight.count;
            run.in_flight.connecting += thread.in_flight.connecting;
            run.in_flight.oldest = oldest;
            area += thread.tallies.in_flight_integral;
            let last = thread.last;
            // Only some of the threads may have reached the last second.
            match self.open_seconds.get_mut(&last.index) {
                Some((_, sum)) => add(sum, &last),
                None => drop(self.open_seconds.insert(last.index, (1, last))),
            }
            merge(&mut run, &mut others, thread.tallies);
        }
        for (_, (_, sum)) in std::mem::take(&mut self.open_seconds) {
            self.close(sum);
        }
        for (outcome, count) in Outcome::ALL.iter().zip(self.counts) {
            if count > 0 {
                let latency = match outcome {
                    Outcome::Good => std::mem::take(&mut self.good),
                    other => others.remove(other).unwrap_or_default(),
                };
                run.outcomes
                    .insert(*outcome, OutcomeTally { count, latency });
            }
        }
        if let Some(first) = first {
            run.document.server = first.server.clone();
            run.document.first_length = Some(first.length);
            run.document.first_status = Some(first.status);
            run.connections.protocol = Some(first.protocol.to_owned());
        }
        let whole = cpu_at_end.since(self.cpu_at_start.unwrap_or(self.cpu_before));
        let cores = f64::from(self.machine.cores.max(1));
        let own = threads.iter().map(|t| t.cpu).sum::<f64>() / cores;
        run.client = ClientSide {
            threads,
            mean_in_flight: if elapsed > 0.0 {
                seconds(area) / elapsed
            } else {
                0.0
            },
            machine_busy_others: (whole.busy_share() - own).max(0.0),
            steal: whole.steal_share(),
            ceiling: None,
        };
        run.seconds = self.seconds;
        run.samples.sort_by_key(|sample| sample.start_us);
        run
    }

    fn empty(&mut self, ended: RunEnd, elapsed: f64) -> Run {
        Run {
            schema: SCHEMA_VERSION,
            generator: concat!("howdah ", env!("CARGO_PKG_VERSION")).to_owned(),
            command: std::mem::take(&mut self.command),
            started: self.started,
            elapsed,
            ended,
            body_length: self.plan.request.body.len() as u64,
            plan: self.plan.clone(),
            due: 0,
            begun: 0,
            sent: 0,
            in_flight: Default::default(),
            unsent: 0,
            warmup: Default::default(),
            outcomes: BTreeMap::new(),
            reasons: BTreeMap::new(),
            statuses: BTreeMap::new(),
            phases: Default::default(),
            send_lag: Histogram::new(),
            bytes: Default::default(),
            connections: Default::default(),
            document: Default::default(),
            seconds: Vec::new(),
            client: ClientSide::default(),
            server: std::mem::take(&mut self.server),
            machine: self.machine.clone(),
            samples: Vec::new(),
            replay: None,
            page_loads: None,
        }
    }
}

fn add(sum: &mut RecordedSecond, other: &RecordedSecond) {
    for (sum, count) in sum.counts.iter_mut().zip(other.counts) {
        *sum += count;
    }
    sum.end = sum.end.max(other.end);
    sum.due += other.due;
    sum.in_flight += other.in_flight;
    sum.good.add(&other.good);
    sum.lag_max = sum.lag_max.max(other.lag_max);
    sum.cpu += other.cpu;
    sum.wait += other.wait;
}

fn merge(run: &mut Run, others: &mut BTreeMap<Outcome, Histogram>, tallies: Tallies) {
    run.due += tallies.due;
    run.begun += tallies.begun;
    run.sent += tallies.sent;
    run.unsent += tallies.unsent;
    for (outcome, histogram) in tallies.failed_latencies {
        others.entry(outcome).or_default().add(&histogram);
    }
    for (why, count) in tallies.reasons {
        *run.reasons.entry(why).or_default() += count;
    }
    for (status, count) in (0u16..).zip(tallies.statuses.iter()) {
        if *count > 0 {
            *run.statuses.entry(status).or_default() += count;
        }
    }
    run.phases.connect.add(&tallies.phases.connect);
    run.phases.wait.add(&tallies.phases.wait);
    run.phases.processing.add(&tallies.phases.processing);
    run.send_lag.add(&tallies.send_lag);
    run.bytes.received += tallies.bytes.received;
    run.bytes.bodies += tallies.bytes.bodies;
    run.bytes.good_bodies += tallies.bytes.good_bodies;
    run.bytes.sent += tallies.bytes.sent;
    let (sum, part) = (&mut run.connections, tallies.connections);
    sum.opened += part.opened;
    sum.reused += part.reused;
    sum.kept += part.kept;
    sum.refused_to_keep += part.refused_to_keep;
    sum.closed_idle += part.closed_idle;
    sum.backlog_full += part.backlog_full;
    sum.peak += part.peak;
    sum.tls = sum.tls.take().or(part.tls);
    let (sum, part) = (&mut run.document, tallies.document);
    sum.other_length += part.other_length;
    sum.other_length_good += part.other_length_good;
    sum.without_length += part.without_length;
    sum.longest = sum.longest.max(part.longest);
    sum.shortest = match (sum.shortest, part.shortest) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    run.warmup.sent += tallies.warmup.sent;
    run.warmup.good += tallies.warmup.good;
    run.warmup.failed += tallies.warmup.failed;
    run.warmup.carried_good += tallies.warmup.carried_good;
    run.warmup.carried_failed += tallies.warmup.carried_failed;
    run.samples.extend(tallies.samples);
    if let Some(loads) = tallies.page_loads {
        run.page_loads.get_or_insert_default().add(&loads);
    }
    if let Some(replay) = tallies.replay {
        run.replay.get_or_insert_default().add(*replay);
    }
}
