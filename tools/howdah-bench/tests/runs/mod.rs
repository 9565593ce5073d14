//! Invented runs with known figures, for the tests of the reports. No server is involved.

#![allow(dead_code, reason = "every test file uses some of it")]

use std::collections::BTreeMap;
use std::time::Duration;

use howdah_bench::experiment::{Comparison, ComparisonArm, ComparisonWindow, Sweep, SweepPoint};
use howdah_bench::histogram::Histogram;
use howdah_bench::outcome::Outcome;
use howdah_bench::plan::template::XorshiftRandom;
use howdah_bench::plan::{Arrivals, LoadTarget, Plan, Spacing, StopLimits};
use howdah_bench::run::client_side::ThreadUse;
use howdah_bench::run::{
    ByteCounts, ClientSide, ConnectionTotals, DocumentInfo, InFlightRequests, Machine,
    OutcomeTally, Phases, Run, RunEnd, SCHEMA_VERSION, Sample, Second, Warmup,
};

/// A builder of an invented run.
pub struct RunBuilder {
    run: Run,
    random: XorshiftRandom,
}

fn empty(arrivals: Arrivals, seconds: f64) -> Run {
    let target = LoadTarget::parse("http://127.0.0.1:8080/index.php").unwrap();
    let stop = StopLimits {
        requests: None,
        time: Some(Duration::from_secs_f64(seconds)),
    };
    Run {
        schema: SCHEMA_VERSION,
        generator: "howdah 0.1.0".into(),
        command: [
            "howdah",
            "bench",
            "-c",
            "10",
            "http://127.0.0.1:8080/index.php",
        ]
        .map(String::from)
        .to_vec(),
        started: 1_795_211_261.25,
        elapsed: seconds,
        ended: RunEnd::Time,
        plan: Plan::new(target, arrivals, stop),
        body_length: 0,
        due: 0,
        begun: 0,
        sent: 0,
        in_flight: InFlightRequests::default(),
        unsent: 0,
        warmup: Warmup::default(),
        outcomes: BTreeMap::new(),
        statuses: BTreeMap::new(),
        reasons: BTreeMap::new(),
        phases: Phases::default(),
        send_lag: Histogram::new(),
        bytes: ByteCounts::default(),
        connections: ConnectionTotals {
            protocol: Some("HTTP/1.1".into()),
            ..ConnectionTotals::default()
        },
        document: DocumentInfo {
            server: Some("nginx/1.22.1".into()),
            ..DocumentInfo::default()
        },
        seconds: Vec::new(),
        client: ClientSide {
            threads: vec![ThreadUse {
                cpu: 0.31,
                wait: 0.02,
            }],
            mean_in_flight: 10.0,
            machine_busy_others: 0.0,
            steal: 0.0,
            ceiling: None,
        },
        server: Vec::new(),
        machine: Machine {
            host: "test".into(),
            kernel: "Linux 6.1.0".into(),
            cpu: "Example CPU".into(),
            cores: 2,
            memory: 4 << 30,
            governor: None,
            open_files: 1024,
            somaxconn: Some(4096),
            local_ports: Some((32768, 60999)),
            load: 0.1,
            shared_with_server: true,
        },
        samples: Vec::new(),
        replay: None,
        page_loads: None,
    }
}

impl RunBuilder {
    /// Starts with a closed loop with this number of clients.
    pub fn closed(concurrency: u32, seconds: f64) -> RunBuilder {
        RunBuilder {
            run: empty(Arrivals::Closed { concurrency }, seconds),
            random: XorshiftRandom::new(5, u64::from(concurrency)),
        }
    }

    /// Starts with an open loop.
    pub fn open(rate: f64, seconds: f64) -> RunBuilder {
        let arrivals = Arrivals::Open {
            rate,
            spacing: Spacing::Poisson,
            max_connections: 100,
        };
        RunBuilder {
            run: empty(arrivals, seconds),
            random: XorshiftRandom::new(6, rate as u64),
        }
    }

    /// Sets the seed of the random numbers.
    pub fn seeded(mut self, seed: u64) -> RunBuilder {
        self.random = XorshiftRandom::new(seed, 99);
        self
    }

    /// Adds requests with this outcome, spread over the run, around a latency in milliseconds (log-normal with that
    /// spread).
    pub fn ended(
        mut self,
        outcome: Outcome,
        count: u64,
        status: u16,
        ms: f64,
        spread: f64,
    ) -> RunBuilder {
        let run = &mut self.run;
        let tally: &mut OutcomeTally = run.outcomes.entry(outcome).or_default();
        let whole = run.elapsed.ceil() as usize;
        let mut by_second = vec![Histogram::new(); whole];
        for i in 0..count {
            let radius = (-2.0 * (1.0 - self.random.next_fraction()).ln()).sqrt();
            let normal = radius * (std::f64::consts::TAU * self.random.next_fraction()).cos();
            let ns = (ms * 1e6 * (spread * normal).exp()) as u64;
            tally.count += 1;
            tally.latency.record(ns);
            let at = (i as f64 + 0.5) / count as f64 * run.elapsed;
            by_second[at as usize].record(ns);
            if outcome == Outcome::Good {
                run.phases.processing.record(ns);
                run.phases.wait.record(ns * 9 / 10);
            }
            run.samples.push(Sample {
                start_us: (at * 1e6) as u64,
                connect_us: 0,
                total_us: (ns / 1000) as u32,
                wait_us: (ns * 9 / 10_000) as u32,
                outcome,
                status,
            });
        }
        run.seconds
            .resize_with(whole.max(run.seconds.len()), Second::default);
        for (i, histogram) in by_second.iter().enumerate() {
            let second = &mut run.seconds[i];
            second.end = ((i + 1) as f64).min(run.elapsed);
            second.length = second.end - i as f64;
            second.client_cpu = 0.31;
            *second.outcomes.entry(outcome).or_default() += histogram.len();
            if outcome == Outcome::Good {
                let mut all = if second.latency.is_empty() {
                    Histogram::new()
                } else {
                    Histogram::decode(&second.latency).unwrap()
                };
                all.add(histogram);
                second.latency = all.encode();
            }
        }
        if outcome.is_complete_response() {
            *run.statuses.entry(status).or_default() += count;
            let length = if status == 200 { 1234 } else { 560 };
            run.bytes.received += count * (length + 200);
            run.bytes.bodies += count * length;
            run.connections.kept += count;
            run.connections.reused += count;
            let first = *run.document.first_length.get_or_insert(length);
            run.document.first_status.get_or_insert(status);
            if length != first {
                run.document.other_length += count;
                if outcome == Outcome::Good {
                    run.document.other_length_good += count;
                }
            }
            if outcome == Outcome::Good {
                run.bytes.good_bodies += count * length;
                run.document.shortest = Some(length);
                run.document.longest = Some(length);
            }
        }
        run.begun += count;
        run.due += count;
        run.sent += count;
        self
    }

    /// Changes the run.
    pub fn with(mut self, change: impl FnOnce(&mut Run)) -> RunBuilder {
        change(&mut self.run);
        self
    }

    /// Returns the run, after checking that its counts add up.
    pub fn build(self) -> Run {
        let mut run = self.run;
        run.connections.opened = u64::from(run.plan.arrivals.connections());
        run.connections.reused = run
            .connections
            .reused
            .saturating_sub(run.connections.opened);
        for _ in 0..run.connections.opened {
            run.phases.connect.record(80_000);
        }
        run.balance().unwrap();
        run
    }
}

/// Returns a run of ten clients, one second, all responses good and of a fixed length.
pub fn healthy_run() -> Run {
    RunBuilder::closed(10, 6.0)
        .ended(Outcome::Good, 14_400, 200, 4.0, 0.25)
        .build()
}

/// Returns a run as in a published comparison of 2013: 500 clients on a unix socket; 8603 of 10000 responses were error
/// pages, including the first.
pub fn mostly_errors_run() -> Run {
    RunBuilder::closed(500, 1.77)
        .ended(Outcome::Status5xx, 8603, 502, 12.0, 0.3)
        .ended(Outcome::Good, 1397, 200, 310.0, 0.4)
        .build()
}

/// Returns a run with pages of varying length, as those of a blog.
pub fn varying_lengths_run() -> Run {
    RunBuilder::closed(10, 6.0)
        .ended(Outcome::Good, 3000, 200, 20.0, 0.2)
        .with(|run| {
            run.document.other_length = 2970;
            run.document.other_length_good = 2970;
            run.document.shortest = Some(21_004);
            run.document.longest = Some(21_377);
        })
        .build()
}

/// Returns a comparison of this number of pairs, with B `ratio` times as fast, and with a control.
pub fn comparison_of_pairs(pairs: u32, ratio: f64, noise: f64) -> Comparison {
    let arm = |name: &str, url: &str, control| ComparisonArm {
        name: name.into(),
        url: url.into(),
        control,
    };
    let mut random = XorshiftRandom::new(77, 0);
    let mut windows = Vec::new();
    for block in 0..pairs {
        let mut order = vec![0, 1, 2];
        if block % 2 == 1 {
            order.reverse();
        }
        for which in order {
            let jitter = 1.0 + noise * (2.0 * random.next_fraction() - 1.0);
            let speed = if which == 2 { ratio } else { 1.0 } * jitter;
            let run = RunBuilder::closed(10, 2.0)
                .seeded(u64::from(block) * 3 + which as u64)
                .ended(
                    Outcome::Good,
                    (4000.0 * speed) as u64,
                    200,
                    5.0 / speed,
                    0.3,
                )
                .build();
            windows.push(ComparisonWindow {
                block,
                arm: which,
                run,
            });
        }
    }
    Comparison {
        arms: vec![
            arm("A", "http://127.0.0.1:8080/", false),
            arm("A again", "http://127.0.0.1:8080/", true),
            arm("B", "http://127.0.0.1:8081/", false),
        ],
        windows,
        margin: 0.03,
        seed: 1,
    }
}

/// Returns a sweep over the levels of a published comparison. Each level serves the given rate per second.
pub fn sweep_of_rates(rates: &[(u32, f64)], fail_from: u32) -> Sweep {
    let mut points = Vec::new();
    for (concurrency, rate) in rates {
        let ms = f64::from(*concurrency) / rate * 1e3;
        let made = RunBuilder::closed(*concurrency, 5.0).ended(
            Outcome::Good,
            (rate * 5.0) as u64,
            200,
            ms,
            0.1,
        );
        let made = if *concurrency >= fail_from {
            made.ended(Outcome::Status5xx, (rate * 2.0) as u64, 502, 1.0, 0.2)
        } else {
            made
        };
        points.push(SweepPoint {
            concurrency: *concurrency,
            repetition: 0,
            run: made.build(),
        });
    }
    Sweep { points, seed: 1 }
}

/// Compares a text with a file in `tests/golden`; with `HOWDAH_BLESS=1` writes it instead.
#[track_caller]
pub fn assert_golden(name: &str, text: &str) {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("HOWDAH_BLESS").is_some_and(|v| v == "1") {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    if let Some((line, (want, got))) = expected
        .lines()
        .zip(text.lines())
        .enumerate()
        .find(|(_, (want, got))| want != got)
    {
        panic!(
            "{name} line {}:\n  expected {want}\n  got      {got}\nIf that is right: HOWDAH_BLESS=1 cargo test -p howdah-bench",
            line + 1
        );
    }
    assert_eq!(expected.lines().count(), text.lines().count(), "{name}");
}
