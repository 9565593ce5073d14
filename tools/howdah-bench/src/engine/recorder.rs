//! Counts the events of one thread. Each request costs a few additions and two histogram entries. The counts that are
//! handed over once a second and at the end are merged by [`super::collector`].

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::clock::{SECOND, seconds};
use crate::histogram::Histogram;
use crate::outcome::{OUTCOME_COUNT, Outcome};
use crate::replay::ReplayedRequest;
use crate::run::replay::{ChangedResponse, LATE_AFTER_SECONDS, MAX_CHANGES, Replay, StatusChange};
use crate::run::{ByteCounts, ConnectionTotals, DocumentInfo, Phases, Sample, Warmup};

/// The maximum number of different failure reasons that are kept in words, besides their outcome.
const MAX_REASONS: usize = 32;

/// The first complete response of the run, on any thread. Ab compares all other responses with it.
#[derive(Debug)]
pub struct FirstResponse {
    pub length: u64,
    pub status: u16,
    pub server: Option<String>,
    pub protocol: &'static str,
}

/// A complete response, as the recorder counts it.
#[derive(Clone, Copy, Debug)]
pub struct RecordedResponse {
    pub status: u16,
    pub length: u64,
    pub has_length: bool,
    pub protocol: &'static str,
    /// Whether the connection had already carried a response.
    pub reused: bool,
    /// Whether the server keeps the connection open.
    pub kept: bool,
    /// Whether the generator would have kept the connection open.
    pub wanted_to_keep: bool,
}

/// The times of a request, in nanoseconds of the run.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestTimes {
    /// Open loop: when the request was due. Closed loop: when it was begun.
    pub due: u64,
    /// When the kernel accepted its bytes; 0 if it never did.
    pub sent: u64,
    /// When the first byte of the response arrived; 0 if none did.
    pub first_byte: u64,
    /// How long connecting took, including the handshake; 0 on a connection that was already open.
    pub connect: u64,
}

/// The counts that a thread hands over each second.
#[derive(Debug)]
pub struct RecordedSecond {
    /// The second's index in the measured part.
    pub index: u32,
    /// When the second ended, in nanoseconds from the start of the measured part.
    pub end: u64,
    pub counts: [u64; OUTCOME_COUNT],
    pub due: u64,
    pub in_flight: u64,
    pub good: Histogram,
    pub lag_max: u64,
    pub cpu: u64,
    pub wait: u64,
}

/// The counts that a thread hands over at the end of the run.
#[derive(Debug)]
pub struct Tallies {
    pub counts: [u64; OUTCOME_COUNT],
    /// The latencies by outcome. Those of good responses are in the intervals.
    pub failed_latencies: BTreeMap<Outcome, Histogram>,
    pub statuses: Box<[u64; 1000]>,
    pub phases: Phases,
    pub send_lag: Histogram,
    pub bytes: ByteCounts,
    pub connections: ConnectionTotals,
    pub document: DocumentInfo,
    pub warmup: Warmup,
    pub reasons: BTreeMap<String, u64>,
    pub samples: Vec<Sample>,
    pub due: u64,
    pub begun: u64,
    pub sent: u64,
    pub unsent: u64,
    pub replay: Option<Box<Replay>>,
    pub page_loads: Option<Histogram>,
    /// The integral of the number of requests in progress over time, in nanoseconds.
    pub in_flight_integral: u64,
}

/// Counts the requests of one thread.
#[derive(Debug)]
pub struct Recorder {
    /// When the measured part begins, in nanoseconds of the run.
    from: u64,
    first: Arc<OnceLock<FirstResponse>>,
    keep_samples: bool,
    total: Tallies,
    second: RecordedSecond,
    in_flight: u64,
    area_until: u64,
    open: u64,
}

impl Recorder {
    pub fn new(from: u64, first: Arc<OnceLock<FirstResponse>>, keep_samples: bool) -> Recorder {
        Recorder {
            from,
            first,
            keep_samples,
            total: Tallies {
                counts: [0; OUTCOME_COUNT],
                failed_latencies: BTreeMap::new(),
                statuses: Box::new([0; 1000]),
                phases: Phases::default(),
                send_lag: Histogram::new(),
                bytes: ByteCounts::default(),
                connections: ConnectionTotals::default(),
                document: DocumentInfo::default(),
                warmup: Warmup::default(),
                reasons: BTreeMap::new(),
                samples: Vec::new(),
                due: 0,
                begun: 0,
                sent: 0,
                unsent: 0,
                replay: None,
                page_loads: None,
                in_flight_integral: 0,
            },
            second: RecordedSecond::new(0),
            in_flight: 0,
            area_until: from,
            open: 0,
        }
    }

    /// Returns whether `now` is in the measured part.
    pub fn is_measured(&self, now: u64) -> bool {
        now >= self.from
    }

    /// Counts a request of the measured part that has become due.
    pub fn count_due(&mut self) {
        self.total.due += 1;
        self.second.due += 1;
    }

    /// Counts requests of the measured part that were due and will not be sent.
    pub fn count_unsent(&mut self, count: u64) {
        self.total.unsent += count;
    }

    /// Counts a request that is begun, `lag` nanoseconds later than it could have been.
    #[inline]
    pub fn count_begun(&mut self, measured: bool, now: u64, lag: Option<u64>) {
        self.count_in_flight(now, 1);
        if measured {
            self.total.begun += 1;
            if let Some(lag) = lag {
                self.total.send_lag.record(lag);
                self.second.lag_max = self.second.lag_max.max(lag);
            }
        }
    }

    /// Counts the load of a page whose parts all had good responses. `begun` is when the page was requested.
    pub fn count_page_load(&mut self, begun: u64, took: u64) {
        if self.is_measured(begun) {
            self.total.page_loads.get_or_insert_default().record(took);
        }
    }

    /// Counts how late a request of a log was begun, for whatever reason.
    pub fn count_lateness(&mut self, nanoseconds: u64) {
        let replay = self.total.replay.get_or_insert_default();
        replay.lateness.record(nanoseconds);
        replay.late += u64::from(seconds(nanoseconds) > LATE_AFTER_SECONDS);
    }

    /// Counts how a request of a log ended. `status` is 0 without a complete response.
    pub fn count_replayed(
        &mut self,
        request: &ReplayedRequest,
        outcome: Outcome,
        status: u16,
        latency: u64,
    ) {
        let replay = self.total.replay.get_or_insert_default();
        if !outcome.is_complete_response() {
            replay.without_response += 1;
            return;
        }
        replay.statuses.entry(status).or_default().record(latency);
        if request.has_same_status(status) {
            replay.same += 1;
            return;
        }
        let logged = request.status;
        let change = StatusChange {
            logged,
            now: status,
        };
        *replay.changed.entry(change).or_default() += 1;
        // Responses do not come in the order of the log, of which the first are kept.
        let is_first = replay
            .changes
            .last()
            .is_none_or(|last| request.line < last.line);
        if replay.changes.len() < MAX_CHANGES || is_first {
            replay.changes.push(ChangedResponse {
                line: request.line,
                method: request.method().to_owned(),
                target: request.target.clone(),
                logged,
                now: status,
                outcome,
            });
            replay.changes.sort_by_key(|change| change.line);
            replay.changes.truncate(MAX_CHANGES);
        }
    }

    /// Counts a request of which the kernel has accepted the first bytes.
    #[inline]
    pub fn count_sent(&mut self, measured: bool) {
        if measured {
            self.total.sent += 1;
        } else {
            self.total.warmup.sent += 1;
        }
    }

    /// Counts bytes sent on a connection.
    #[inline]
    pub fn count_bytes_sent(&mut self, measured: bool, bytes: usize) {
        self.total.bytes.sent += if measured { bytes as u64 } else { 0 };
    }

    /// Counts bytes received on a connection.
    #[inline]
    pub fn count_bytes_received(&mut self, measured: bool, bytes: usize) {
        self.total.bytes.received += if measured { bytes as u64 } else { 0 };
    }

    /// Returns whether the `Server` header is needed because no complete response has come yet.
    #[inline]
    pub fn needs_server_header(&self) -> bool {
        self.first.get().is_none()
    }

    /// Counts a complete response. `server` is its `Server` header, if [`Recorder::needs_server_header`] asked for it.
    #[inline]
    pub fn count_response(
        &mut self,
        measured: bool,
        answer: RecordedResponse,
        good: bool,
        server: Option<String>,
    ) {
        if !measured {
            return;
        }
        let first = match self.first.get() {
            Some(first) => first,
            None => self.first.get_or_init(|| FirstResponse {
                length: answer.length,
                status: answer.status,
                server,
                protocol: answer.protocol,
            }),
        };
        let other_length = u64::from(first.length != answer.length);
        self.total.statuses[usize::from(answer.status.min(999))] += 1;
        self.total.bytes.bodies += answer.length;
        let document = &mut self.total.document;
        document.other_length += other_length;
        if good {
            self.total.bytes.good_bodies += answer.length;
            document.other_length_good += other_length;
            let length = Some(answer.length);
            if document.shortest.is_none_or(|s| answer.length < s) {
                document.shortest = length;
            }
            document.longest = document.longest.max(length);
            document.without_length += u64::from(!answer.has_length);
        }
        let connections = &mut self.total.connections;
        connections.reused += u64::from(answer.reused);
        connections.kept += u64::from(answer.kept);
        connections.refused_to_keep += u64::from(answer.wanted_to_keep && !answer.kept);
    }

    /// Counts a request that has ended.
    #[inline]
    pub fn count_ended(
        &mut self,
        measured: bool,
        outcome: Outcome,
        times: RequestTimes,
        status: u16,
        now: u64,
    ) {
        self.count_in_flight(now, -1);
        if !measured {
            let carried = u64::from(self.is_measured(now));
            let warmup = &mut self.total.warmup;
            if outcome == Outcome::Good {
                warmup.good += 1;
                warmup.carried_good += carried;
            } else {
                warmup.failed += 1;
                warmup.carried_failed += carried;
            }
            return;
        }
        let latency = now.saturating_sub(times.due);
        self.second.counts[outcome.index()] += 1;
        if outcome == Outcome::Good {
            self.second.good.record(latency);
            let phases = &mut self.total.phases;
            phases
                .wait
                .record(times.first_byte.saturating_sub(times.sent));
            phases.processing.record(now.saturating_sub(times.sent));
            if times.connect > 0 {
                phases.connect.record(times.connect);
            }
        } else {
            self.total
                .failed_latencies
                .entry(outcome)
                .or_default()
                .record(latency);
        }
        if self.keep_samples {
            let us = |ns: u64| u32::try_from(ns / 1000).unwrap_or(u32::MAX);
            let wait = match times.first_byte {
                0 => 0,
                first => first.saturating_sub(times.sent),
            };
            self.total.samples.push(Sample {
                start_us: times.due.saturating_sub(self.from) / 1000,
                connect_us: us(times.connect),
                total_us: us(latency),
                wait_us: us(wait),
                outcome,
                status,
            });
        }
    }

    /// Records why a request failed, in more detail than its outcome says.
    pub fn count_reason(&mut self, measured: bool, outcome: Outcome, why: impl std::fmt::Display) {
        if measured {
            let text = format!("{outcome}: {why}");
            if self.total.reasons.len() < MAX_REASONS || self.total.reasons.contains_key(&text) {
                *self.total.reasons.entry(text).or_default() += 1;
            }
        }
    }

    /// Returns the counts of connections, for the caller to change.
    pub fn connections(&mut self) -> &mut ConnectionTotals {
        &mut self.total.connections
    }

    /// Counts a connection that was established.
    pub fn count_opened(&mut self) {
        self.total.connections.opened += 1;
        self.open += 1;
        let connections = &mut self.total.connections;
        connections.peak = connections.peak.max(self.open);
    }

    /// Counts an established connection that was closed.
    pub fn count_closed(&mut self) {
        self.open -= 1;
    }

    /// Ends the second and returns its counts.
    pub fn next_second(&mut self, end: u64) -> RecordedSecond {
        for (total, second) in self.total.counts.iter_mut().zip(self.second.counts) {
            *total += second;
        }
        let next = RecordedSecond::new(self.second.index + 1);
        let mut ended = std::mem::replace(&mut self.second, next);
        ended.end = end.saturating_sub(self.from);
        ended.in_flight = self.in_flight;
        ended
    }

    /// Returns all counts, apart from the seconds.
    pub fn finish(mut self, now: u64) -> Tallies {
        self.count_in_flight(now, 0);
        self.total
    }

    #[inline]
    fn count_in_flight(&mut self, now: u64, change: i64) {
        if now > self.area_until {
            self.total.in_flight_integral += self.in_flight * (now - self.area_until);
            self.area_until = now;
        }
        self.in_flight = self.in_flight.saturating_add_signed(change);
    }
}

impl RecordedSecond {
    fn new(index: u32) -> RecordedSecond {
        RecordedSecond {
            index,
            end: 0,
            counts: [0; OUTCOME_COUNT],
            due: 0,
            in_flight: 0,
            good: Histogram::new(),
            lag_max: 0,
            cpu: 0,
            wait: 0,
        }
    }

    /// Returns when the second with this index should end, in nanoseconds from the start of the measured part.
    pub fn second_end(index: u32) -> u64 {
        (u64::from(index) + 1) * SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warmup_is_counted_separately() {
        let mut recorder = Recorder::new(1000, Arc::default(), false);
        for (now, outcome) in [
            (999, Outcome::Good),
            (1000, Outcome::Good),
            (1500, Outcome::Reset),
        ] {
            recorder.count_begun(false, 900, None);
            recorder.count_ended(false, outcome, RequestTimes::default(), 0, now);
        }
        let tallies = recorder.finish(2000);
        let warmup = tallies.warmup;
        assert_eq!((warmup.good, warmup.failed), (2, 1));
        assert_eq!((warmup.carried_good, warmup.carried_failed), (1, 1));
        assert_eq!(tallies.counts, [0; OUTCOME_COUNT]);
    }
}
