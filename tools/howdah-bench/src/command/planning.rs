//! Turns the command line into a [`Plan`]: parses numbers and durations, reads files, and fills in defaults. It sends
//! nothing. [`Plan::check`] decides whether the plan can work.

mod request;

use std::path::Path;
use std::time::Duration;

use crate::error::BenchError;
use crate::plan::{
    Arrivals, LoadTarget, LogSource, Observe, OnSocketError, Plan, REPLAY_SPEEDS, Spacing,
    StopLimits, Think, Transcript, UrlScheme,
};
use crate::slo::seconds;

use super::arguments::BenchArguments;

/// The measured time of a single run if neither -n nor -t is given.
const DEFAULT_RUN_TIME: Duration = Duration::from_secs(10);
/// The measured time of a window of a comparison or a sweep if neither -n nor -t is given.
const DEFAULT_WINDOW_TIME: Duration = Duration::from_secs(5);
/// The maximum number of connections of an open loop if --connections is not given.
pub const DEFAULT_MAX_CONNECTIONS: u32 = 1000;

/// Returns the plan for the URL; [`plan_for_other_server`] makes the plans of `--vs`.
pub fn plan(typed: &BenchArguments) -> Result<Plan, BenchError> {
    typed.refused.check()?;
    let Some(url) = &typed.url else {
        return Err(impossible(
            "no URL was given: expected one such as http://host:8080/path",
        ));
    };
    let mut targets = vec![LoadTarget::parse(url)?];
    if let Some(file) = &typed.urls {
        targets.extend(urls(file)?);
    }
    let several = !typed.vs.is_empty() || typed.sweep.is_some() || typed.find_max;
    let stop = stop(
        typed,
        if several {
            DEFAULT_WINDOW_TIME
        } else {
            DEFAULT_RUN_TIME
        },
    )?;
    let arrivals = arrivals(typed)?;
    if let (Some(n), Arrivals::Closed { concurrency }) = (typed.requests, arrivals)
        && n < u64::from(concurrency)
    {
        return Err(impossible(format!(
            "{concurrency} clients (-c) cannot share {n} requests (-n): ask for at least as many requests \
             as clients"
        )));
    }
    let mut plan = Plan::new(targets.remove(0), arrivals, stop);
    plan.targets.extend(targets);
    plan.request = request::request(typed)?;
    plan.connection = request::connection(typed)?;
    let others = typed.vs.iter().any(|url| url.starts_with("https://"));
    if plan.connection.tls.is_used() && plan.targets[0].scheme == UrlScheme::Http && !others {
        return Err(impossible(
            "options for TLS were given (-f, -Z, -E, -I, --ca, --server-name), but no URL begins with https://",
        ));
    }
    plan.checks = request::checks(typed)?;
    plan.log = typed.log.as_ref().map(|path| LogSource {
        path: path.clone(),
        expects_logged_status: typed.expect_status.is_none(),
    });
    if let Some(text) = &typed.warmup {
        plan.warmup = duration("--warmup", text)?;
        // The requested time is the measured time, to which the warm-up is added.
        if let Some(time) = &mut plan.stop.time {
            *time += plan.warmup;
        }
    }
    if let Some(text) = &typed.think {
        plan.think = think(text)?;
    }
    plan.threads = typed.threads;
    plan.seed = typed.seed;
    plan.keep_samples = typed.gnuplot.is_some();
    plan.transcript = match typed.verbosity.unwrap_or(0) {
        0..=2 => Transcript::Silent,
        3 => Transcript::Statuses,
        4.. => Transcript::Heads,
    };
    if typed.stop_on_error {
        plan.on_socket_error = OnSocketError::Stop;
    }
    plan.observe = Observe {
        pid: typed.server_pid,
        status: typed.status.clone(),
    };
    plan.check()?;
    Ok(plan)
}

/// Returns the same plan for another server. Only the target differs.
pub fn plan_for_other_server(plan: &Plan, url: &str) -> Result<Plan, BenchError> {
    if plan.targets.len() > 1 {
        return Err(impossible(
            "--urls and --vs cannot be combined, because --urls names URLs of the first server only",
        ));
    }
    let mut other = plan.clone();
    other.targets = vec![LoadTarget::parse(url)?];
    // The process that `--server-pid` names belongs to the first server.
    other.observe = Observe::default();
    other.check()?;
    Ok(other)
}

fn impossible(why: impl Into<String>) -> BenchError {
    BenchError::Impossible(why.into())
}

fn arrivals(typed: &BenchArguments) -> Result<Arrivals, BenchError> {
    let max_connections = typed.connections.unwrap_or(DEFAULT_MAX_CONNECTIONS);
    Ok(match typed.rate {
        _ if typed.log.is_some() => Arrivals::Log {
            speed: typed.speed.as_deref().map_or(Ok(1.0), speed)?,
            max_connections,
        },
        Some(rate) => Arrivals::Open {
            rate,
            spacing: spacing(typed),
            max_connections,
        },
        None => Arrivals::Closed {
            concurrency: typed.concurrency.unwrap_or(1),
        },
    })
}

/// Parses `2`, `2.5` or `2x`.
fn speed(text: &str) -> Result<f64, BenchError> {
    let number = text.strip_suffix('x').unwrap_or(text).parse::<f64>();
    let speed = number.ok().filter(|speed| REPLAY_SPEEDS.contains(speed));
    speed.ok_or_else(|| {
        impossible(format!(
            "--speed {text}: expected 1 (as in the log) to 10 (ten times as fast)"
        ))
    })
}

/// Returns how the arrivals of an open loop are spread.
pub fn spacing(typed: &BenchArguments) -> Spacing {
    if typed.constant {
        Spacing::Constant
    } else {
        Spacing::Poisson
    }
}

fn stop(typed: &BenchArguments, default: Duration) -> Result<StopLimits, BenchError> {
    if typed.requests == Some(0) {
        return Err(impossible("-n 0: expected at least one request"));
    }
    let time = typed
        .time
        .as_ref()
        .map(|text| duration("-t", text))
        .transpose()?;
    Ok(StopLimits {
        requests: typed.requests,
        time: match (typed.requests, time) {
            // A log ends by itself.
            (None, None) if typed.log.is_none() => Some(default),
            (_, time) => time,
        },
    })
}

/// Parses a duration with a unit, or in seconds without one, as in ab.
fn duration(flag: &str, text: &str) -> Result<Duration, BenchError> {
    let value = match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        Ok(_) => Err(format!("`{text}` is not a time above 0")),
        Err(_) => seconds(text),
    };
    value
        .and_then(|s| Duration::try_from_secs_f64(s).map_err(|e| e.to_string()))
        .ok()
        .filter(|time| *time <= Duration::from_secs(7 * 86_400))
        .ok_or_else(|| {
            impossible(format!(
                "{flag} {text}: expected a time of up to a week, such as 500ms, 2m or 30 (a number without a unit \
                 is in seconds)"
            ))
        })
}

fn think(text: &str) -> Result<Think, BenchError> {
    let (min, max) = text.split_once('-').unwrap_or((text, text));
    Ok(Think {
        min: duration("--think", min)?.as_secs_f64(),
        max: duration("--think", max)?.as_secs_f64(),
    })
}

fn read(path: &Path) -> Result<Vec<u8>, BenchError> {
    std::fs::read(path).map_err(|e| BenchError::MissingFile {
        path: path.to_owned(),
        why: e.to_string(),
    })
}

fn urls(path: &Path) -> Result<Vec<LoadTarget>, BenchError> {
    let bytes = read(path)?;
    let text = String::from_utf8(bytes).map_err(|_| {
        impossible(format!(
            "{}: expected a text file with one URL per line",
            path.display()
        ))
    })?;
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(LoadTarget::parse)
        .collect()
}

/// Parses `3%` or `0.03`; the margin has to be below 100 %.
pub fn margin(text: &str) -> Result<f64, BenchError> {
    let value = match text.strip_suffix('%') {
        Some(number) => number.trim().parse::<f64>().map(|v| v / 100.0),
        None => text.parse::<f64>(),
    };
    match value {
        Ok(value) if value > 0.0 && value < 1.0 => Ok(value),
        _ => Err(impossible(format!(
            "--margin {text}: expected a percentage above 0 and below 100, such as 3%"
        ))),
    }
}

/// Parses `10,30,50`, or `1..512`, which doubles from the first number to the last.
pub fn levels(text: &str) -> Result<Vec<u32>, BenchError> {
    let bad = || {
        impossible(format!(
            "--sweep {text}: expected numbers of clients, such as 10,30,50, or a range such as 1..512, in which \
             each number is twice the one before"
        ))
    };
    let number = |text: &str| text.trim().parse::<u32>().ok().filter(|n| *n > 0);
    if let Some((first, last)) = text.split_once("..") {
        let (Some(first), Some(last)) = (number(first), number(last)) else {
            return Err(bad());
        };
        if first >= last {
            return Err(bad());
        }
        let mut levels: Vec<u32> = std::iter::successors(Some(first), |n| n.checked_mul(2))
            .take_while(|n| *n < last)
            .collect();
        levels.push(last);
        return Ok(levels);
    }
    let mut levels: Vec<u32> = text
        .split(',')
        .map(|part| number(part).ok_or_else(bad))
        .collect::<Result<_, _>>()?;
    levels.sort_unstable();
    levels.dedup();
    Ok(levels)
}
