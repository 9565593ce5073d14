//! Decides whether Howdah is worse than the old servers were. Reads no clock and sends no requests: the times and
//! figures are passed in.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::figures::{Baseline, WatchFigures, percentiles, share};
use super::probe::ProbeResult;
use super::state::RollbackReason;

/// The time whose requests are compared. A fault that begins late in the watch is not hidden by what went well before.
const WINDOW: Duration = Duration::from_secs(60);
/// The share of errors may grow by this much: one percentage point.
const ALLOWED_ERROR_SHARE: f64 = 0.01;
/// The time whose front pages are compared: short, so one slow page counts for [`SLOW_FOR`] only if others follow.
const TIMES_WINDOW: Duration = Duration::from_secs(10);
/// The minimum number of requests before their errors are judged.
const MIN_REQUESTS: u64 = 100;
/// The minimum number of errors that count as a fault, because a few can have any cause.
const MIN_ERRORS: u64 = 10;
/// In how many rounds in a row a front page must fail.
const FAILED_ROUNDS: u32 = 3;
/// How many times in a row Howdah must fail to report its status.
const SILENT_ROUNDS: u32 = 3;
/// The number of crashes of PHP in [`WINDOW`] that is too high.
const MAX_CRASHES: u64 = 5;
/// Front pages may take this many times as long as before.
const ALLOWED_SLOWNESS: f64 = 2.0;
/// Front pages may take this long, in milliseconds, however fast they were before.
const ALWAYS_FAST_MS: f64 = 200.0;
/// Front pages must be slow for so long.
const SLOW_FOR: Duration = Duration::from_secs(60);

/// The counters of Howdah since its start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Responses.
    pub requests: u64,
    /// Those for which [`is_error`](super::figures::is_error) returns true.
    pub errors: u64,
    /// PHP processes that exited during a request.
    pub crashes: u64,
}

/// What is known about Howdah since the watch began.
#[derive(Debug)]
pub struct WatchRecord {
    baseline: Baseline,
    /// The counters at certain times, the oldest first. The first is older than [`WINDOW`] as soon as there is one.
    counters: VecDeque<(Duration, Counters)>,
    silent_rounds: u32,
    /// The times of front pages, in milliseconds.
    times: VecDeque<(Duration, f64)>,
    /// The failed rounds in a row of each site, and the last failure.
    failing: BTreeMap<String, (u32, String)>,
    /// The sites whose front page has responded since the watch began.
    responded: BTreeSet<String>,
    slow_since: Option<Duration>,
    now: Duration,
}

impl WatchRecord {
    /// Begins a watch.
    pub fn new(baseline: Baseline) -> WatchRecord {
        WatchRecord {
            baseline,
            counters: VecDeque::new(),
            silent_rounds: 0,
            times: VecDeque::new(),
            failing: BTreeMap::new(),
            responded: BTreeSet::new(),
            slow_since: None,
            now: Duration::ZERO,
        }
    }

    /// Adds a round: the counters of Howdah, or `None` if it did not report them, and the results of the probes. `now`
    /// is the time since the watch began.
    pub fn add_round(&mut self, now: Duration, counters: Option<Counters>, probes: &[ProbeResult]) {
        self.now = now;
        match counters {
            Some(counters) => {
                self.silent_rounds = 0;
                self.counters.push_back((now, counters));
            }
            None => self.silent_rounds += 1,
        }
        while self
            .counters
            .get(1)
            .is_some_and(|(at, _)| now - *at >= WINDOW)
        {
            self.counters.pop_front();
        }
        for probe in probes {
            self.add_probe(now, probe);
        }
        while self
            .times
            .front()
            .is_some_and(|(at, _)| now - *at > TIMES_WINDOW)
        {
            self.times.pop_front();
        }
        self.slow_since = match self.is_slow() {
            true => self.slow_since.or(Some(now)),
            false => None,
        };
    }

    fn add_probe(&mut self, now: Duration, probe: &ProbeResult) {
        if !probe.failed() {
            self.failing.remove(&probe.site);
            self.responded.insert(probe.site.clone());
            self.times.push_back((now, probe.ms));
            return;
        }
        let why = match &probe.status {
            Ok(status) => format!("status {status}"),
            Err(why) => why.clone(),
        };
        let failing = self.failing.entry(probe.site.clone()).or_default();
        *failing = (failing.0 + 1, why);
    }

    fn is_slow(&self) -> bool {
        let (_, p99) = self.times();
        p99 > ALWAYS_FAST_MS && p99 > ALLOWED_SLOWNESS * self.baseline.p99_ms
    }

    fn times(&self) -> (f64, f64) {
        percentiles(self.times.iter().map(|(_, ms)| *ms).collect())
    }

    /// Returns the growth of the counters in the last [`WINDOW`].
    fn window(&self) -> Counters {
        let (Some((_, first)), Some((_, last))) = (self.counters.front(), self.counters.back())
        else {
            return Counters::default();
        };
        // The counters begin again if Howdah was started again.
        Counters {
            requests: last.requests.saturating_sub(first.requests),
            errors: last.errors.saturating_sub(first.errors),
            crashes: last.crashes.saturating_sub(first.crashes),
        }
    }

    /// Returns the figures for the user.
    pub fn figures(&self) -> WatchFigures {
        let counters = self
            .counters
            .back()
            .map_or(Counters::default(), |(_, c)| *c);
        let (p50_ms, p99_ms) = self.times();
        WatchFigures {
            seconds: self.now.as_secs(),
            requests: counters.requests,
            errors: counters.errors,
            crashes: counters.crashes,
            p50_ms,
            p99_ms,
            failing: self.failing.keys().cloned().collect(),
        }
    }

    /// Returns whether the watch may end as passed: Howdah has reported its status and responded to a request for each
    /// front page, and nothing has failed since. Otherwise further rounds decide.
    pub fn is_settled(&self) -> bool {
        let mut probes = self.baseline.probes.iter();
        self.silent_rounds == 0
            && self.failing.is_empty()
            && probes.all(|probe| self.responded.contains(&probe.site))
    }

    /// Returns why the old servers should serve again, with the figures as a sentence; `None` if Howdah is as good.
    pub fn verdict(&self) -> Option<(RollbackReason, String)> {
        self.silence()
            .or_else(|| self.failing_probes())
            .or_else(|| self.crashes())
            .or_else(|| self.errors())
            .or_else(|| self.slowness())
    }

    fn silence(&self) -> Option<(RollbackReason, String)> {
        (self.silent_rounds >= SILENT_ROUNDS).then(|| {
            let rounds = self.silent_rounds;
            let message = format!("Howdah did not report its status {rounds} times in a row");
            (RollbackReason::RolledBackSilent, message)
        })
    }

    fn failing_probes(&self) -> Option<(RollbackReason, String)> {
        let failing = self.failing.iter();
        let mut failing = failing.filter(|(_, (rounds, _))| *rounds >= FAILED_ROUNDS);
        let (site, (rounds, why)) = failing.next()?;
        let others = match failing.count() {
            0 => String::new(),
            n => format!(", and so did those of {n} other sites"),
        };
        let message =
            format!("the front page of {site} failed {rounds} times in a row ({why}){others}");
        Some((RollbackReason::RolledBackProbes, message))
    }

    fn crashes(&self) -> Option<(RollbackReason, String)> {
        let crashes = self.window().crashes;
        (crashes >= MAX_CRASHES).then(|| {
            let message = format!("{crashes} PHP processes crashed within a minute");
            (RollbackReason::RolledBackCrashes, message)
        })
    }

    fn errors(&self) -> Option<(RollbackReason, String)> {
        let Counters {
            requests, errors, ..
        } = self.window();
        let (now, before) = (share(errors, requests), self.baseline.error_share());
        let judged = requests >= MIN_REQUESTS && errors >= MIN_ERRORS;
        (judged && now > before + ALLOWED_ERROR_SHARE).then(|| {
            let message = format!(
                "{errors} of {requests} responses within a minute ({:.1} %) had the status 429, or 500 or higher; before the switch it was {:.1} %",
                now * 100.0,
                before * 100.0
            );
            (RollbackReason::RolledBackErrors, message)
        })
    }

    fn slowness(&self) -> Option<(RollbackReason, String)> {
        let since = self.slow_since?;
        (self.now - since >= SLOW_FOR).then(|| {
            let message = format!(
                "1 % of the front pages took more than {:.0} ms for a minute; before the switch it was {:.0} ms",
                self.times().1,
                self.baseline.p99_ms
            );
            (RollbackReason::RolledBackSlow, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(requests: u64, errors: u64, crashes: u64) -> Option<Counters> {
        Some(Counters {
            requests,
            errors,
            crashes,
        })
    }

    fn page(status: u16, ms: f64) -> ProbeResult {
        ProbeResult {
            site: "shop".to_owned(),
            status: Ok(status),
            leads_elsewhere: false,
            ms,
        }
    }

    fn baseline(errors: u64) -> Baseline {
        Baseline {
            logged_requests: 1000,
            logged_errors: errors,
            p99_ms: 150.0,
            ..Baseline::default()
        }
    }

    /// Adds a round each second, and returns the first verdict with its second.
    fn watch(
        before: Baseline,
        rounds: impl IntoIterator<Item = (Option<Counters>, ProbeResult)>,
    ) -> Option<(usize, RollbackReason)> {
        let mut record = WatchRecord::new(before);
        rounds
            .into_iter()
            .enumerate()
            .find_map(|(second, (counters, probe))| {
                record.add_round(Duration::from_secs(second as u64), counters, &[probe]);
                Some((second, record.verdict()?.0))
            })
    }

    #[test]
    fn errors_are_judged_against_the_share_before_the_switch() {
        let rounds =
            |errors: u64| (0..10).map(move |s| (counted(s * 100, s * errors, 0), page(200, 5.0)));
        assert_eq!(
            watch(baseline(0), rounds(1)),
            None,
            "one percent is allowed"
        );
        let worse = Some((5, RollbackReason::RolledBackErrors));
        assert_eq!(
            watch(baseline(0), rounds(2)),
            worse,
            "ten errors of 500 requests"
        );
        assert_eq!(
            watch(baseline(10), rounds(2)),
            None,
            "the old server had one percent"
        );
        let few = (0..10).map(|s| (counted(s * 9, s, 0), page(200, 5.0)));
        assert_eq!(
            watch(baseline(0), few),
            None,
            "few errors can have any cause"
        );
    }

    #[test]
    fn late_errors_are_not_hidden_by_earlier_requests() {
        let good = (0..300).map(|s| (counted(s * 1000, 0, 0), page(200, 5.0)));
        let bad = (1..61).map(|s| (counted(299_000 + s * 1000, s * 30, 0), page(200, 5.0)));
        let found = watch(baseline(0), good.chain(bad)).unwrap();
        assert_eq!(found.1, RollbackReason::RolledBackErrors);
        assert!(found.0 > 300 && found.0 < 330, "{found:?}");
    }

    #[test]
    fn front_page_that_fails_three_times_in_a_row_is_a_reason() {
        let rounds = |statuses: &[u16]| {
            let each = statuses.iter();
            each.map(|status| (counted(10, 0, 0), page(*status, 5.0)))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            watch(baseline(0), rounds(&[500, 500, 200, 500, 502, 404])),
            None
        );
        let worse = Some((3, RollbackReason::RolledBackProbes));
        assert_eq!(watch(baseline(0), rounds(&[200, 500, 503, 500])), worse);
    }

    #[test]
    fn watch_does_not_pass_while_something_fails_or_was_not_asked() {
        let site = |name: &str| super::super::probe::Probe {
            site: name.to_owned(),
            address: "127.0.0.1:80".parse().unwrap(),
            tls: false,
            host: name.to_owned(),
        };
        let mut record = WatchRecord::new(Baseline {
            probes: vec![site("shop"), site("blog")],
            ..baseline(0)
        });
        let mut settled = |counters: Option<Counters>, name: &str, status: u16| {
            let result = ProbeResult {
                site: name.to_owned(),
                ..page(status, 5.0)
            };
            record.add_round(Duration::ZERO, counters, &[result]);
            record.is_settled()
        };
        let one = counted(1, 0, 0);
        assert!(!settled(one, "shop", 200), "blog has not been requested");
        assert!(settled(one, "blog", 200));
        assert!(!settled(one, "shop", 502));
        assert!(!settled(one, "blog", 200));
        assert!(settled(one, "shop", 200));
        assert!(!settled(None, "shop", 200), "Howdah is silent");
    }

    #[test]
    fn crashes_and_silence_are_reasons() {
        let crashing = (0..10).map(|s| (counted(s, 0, s), page(200, 5.0)));
        let crashed = Some((5, RollbackReason::RolledBackCrashes));
        assert_eq!(watch(baseline(0), crashing), crashed);
        let rare = (0..600).map(|s| (counted(s, 0, s / 30), page(200, 5.0)));
        assert_eq!(watch(baseline(0), rare), None);
        let silent = (0..10).map(|_| (None, page(200, 5.0)));
        let reason = Some((2, RollbackReason::RolledBackSilent));
        assert_eq!(watch(baseline(0), silent), reason);
    }

    #[test]
    fn front_pages_must_be_slow_for_a_minute() {
        let rounds = |ms: f64| (0..100).map(move |_| (counted(10, 0, 0), page(200, ms)));
        assert_eq!(
            watch(baseline(0), rounds(290.0)),
            None,
            "less than twice as slow"
        );
        let slow = Some((60, RollbackReason::RolledBackSlow));
        assert_eq!(watch(baseline(0), rounds(310.0)), slow);
        let once = (0..200).map(|s| {
            (
                counted(10, 0, 0),
                page(200, if s == 50 { 4000.0 } else { 5.0 }),
            )
        });
        assert_eq!(watch(baseline(0), once), None, "a single slow page");
        let fast_before = Baseline::default();
        assert_eq!(
            watch(fast_before, rounds(190.0)),
            None,
            "fast enough for anyone"
        );
    }
}
