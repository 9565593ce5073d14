//! Turns the command line into a [`Plan`]: reads numbers, durations and files, and fills in
//! defaults. Sends nothing. [`Plan::check`] decides whether the plan can work.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::error::BenchError;
use crate::plan::check::{BodyCheck, Pattern, StatusSet};
use crate::plan::{
    Address, Arrivals, Backlog, Checks, ConnectionPolicy, Observe, OnSocketError, Plan, Protocol,
    RequestShape, Scheme, Spacing, Stop, Target, Template, Think, TlsOptions, TlsVersion,
    Transcript,
};
use crate::slo::seconds;

use super::arguments::Bench;

/// How long a single run measures if neither -n nor -t is given.
const RUN: Duration = Duration::from_secs(10);
/// How long a window of a comparison or a sweep measures if neither -n nor -t is given.
const WINDOW: Duration = Duration::from_secs(5);
/// Most connections of an open loop if --connections is not given.
pub const CONNECTIONS: u32 = 1000;

/// The plan for the URL; [`for_other`] makes the plans of `--vs`.
pub fn plan(typed: &Bench) -> Result<Plan, BenchError> {
    typed.refused.check()?;
    let Some(url) = &typed.url else {
        return Err(impossible("no URL to request"));
    };
    let mut targets = vec![Target::parse(url)?];
    if let Some(file) = &typed.urls {
        targets.extend(urls(file)?);
    }
    let several = !typed.vs.is_empty() || typed.sweep.is_some() || typed.find_max;
    let stop = stop(typed, if several { WINDOW } else { RUN })?;
    let arrivals = arrivals(typed);
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
    plan.request = request(typed)?;
    plan.connection = connection(typed)?;
    let others = typed.vs.iter().any(|url| url.starts_with("https://"));
    if plan.connection.tls.is_used() && plan.targets[0].scheme == Scheme::Http && !others {
        return Err(impossible(
            "options for TLS were given (-f, -Z, -E, -I, --ca, --server-name), and no URL is https://",
        ));
    }
    plan.checks = checks(typed)?;
    if let Some(text) = &typed.warmup {
        plan.warmup = duration("--warmup", text)?;
        // The time asked for is measured; the warm-up comes before it.
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

/// The same plan for another server: the same in everything but the target.
pub fn for_other(plan: &Plan, url: &str) -> Result<Plan, BenchError> {
    if plan.targets.len() > 1 {
        return Err(impossible(
            "--urls and --vs do not go together: the other server's URLs are not known",
        ));
    }
    let mut other = plan.clone();
    other.targets = vec![Target::parse(url)?];
    // The process that `--server-pid` names is that of the first server.
    other.observe = Observe::default();
    other.check()?;
    Ok(other)
}

fn impossible(why: impl Into<String>) -> BenchError {
    BenchError::Impossible(why.into())
}

fn arrivals(typed: &Bench) -> Arrivals {
    match typed.rate {
        Some(rate) => Arrivals::Open {
            rate,
            spacing: spacing(typed),
            max_connections: typed.connections.unwrap_or(CONNECTIONS),
        },
        None => Arrivals::Closed {
            concurrency: typed.concurrency.unwrap_or(1),
        },
    }
}

/// How an open loop's arrivals are spread.
pub fn spacing(typed: &Bench) -> Spacing {
    if typed.constant {
        Spacing::Constant
    } else {
        Spacing::Poisson
    }
}

fn stop(typed: &Bench, default: Duration) -> Result<Stop, BenchError> {
    if typed.requests == Some(0) {
        return Err(impossible("-n 0: nothing to send"));
    }
    let time = typed
        .time
        .as_ref()
        .map(|text| duration("-t", text))
        .transpose()?;
    Ok(Stop {
        requests: typed.requests,
        time: match (typed.requests, time) {
            (None, None) => Some(default),
            (_, time) => time,
        },
    })
}

/// A duration with a unit, or in seconds without one, as in ab.
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
                "{flag} {text}: expected a time of up to a week, as 30 (seconds), 500ms or 2m"
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

fn urls(path: &Path) -> Result<Vec<Target>, BenchError> {
    let bytes = read(path)?;
    let text = String::from_utf8(bytes).map_err(|_| {
        impossible(format!(
            "{}: expected text with a URL per line",
            path.display()
        ))
    })?;
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(Target::parse)
        .collect()
}

fn request(typed: &Bench) -> Result<RequestShape, BenchError> {
    let mut shape = RequestShape {
        cookie_jar: typed.cookies,
        ..RequestShape::default()
    };
    let body = typed.post.as_ref().or(typed.put.as_ref());
    if let Some(path) = body {
        shape.body = read(path)?;
    }
    shape.method = match (&typed.post, &typed.put, typed.head, &typed.method) {
        (Some(_), ..) => "POST".to_owned(),
        (_, Some(_), ..) => "PUT".to_owned(),
        (_, _, true, _) => "HEAD".to_owned(),
        (_, _, _, Some(method)) => method.clone(),
        _ => "GET".to_owned(),
    };
    for (flag, name, given) in [
        ("-A", "Authorization", &typed.auth),
        ("-P", "Proxy-Authorization", &typed.proxy_auth),
    ] {
        let Some(given) = given else { continue };
        if !given.contains(':') {
            return Err(impossible(format!("{flag}: expected user:password")));
        }
        let value = format!("Basic {}", BASE64.encode(given));
        shape.headers.push((name.to_owned(), Template::new(value)));
    }
    if !typed.cookie.is_empty() {
        let value = typed.cookie.join("; ");
        shape
            .headers
            .push(("Cookie".to_owned(), Template::new(value)));
    }
    match (&typed.content_type, body) {
        (Some(kind), Some(_)) => shape
            .headers
            .push(("Content-Type".to_owned(), Template::new(kind.as_str()))),
        (None, Some(_)) => shape
            .headers
            .push(("Content-Type".to_owned(), Template::new("text/plain"))),
        (Some(_), None) => {
            return Err(impossible(
                "-T is the type of a body, and there is none: give one with -p or -u",
            ));
        }
        (None, None) => {}
    }
    for field in &typed.header {
        let Some((name, value)) = field.split_once(':') else {
            return Err(impossible(format!(
                "-H '{field}': expected a header field, as 'Accept-Encoding: gzip'"
            )));
        };
        shape
            .headers
            .push((name.trim().to_owned(), Template::new(value.trim())));
    }
    Ok(shape)
}

fn connection(typed: &Bench) -> Result<ConnectionPolicy, BenchError> {
    let defaults = ConnectionPolicy::default();
    Ok(ConnectionPolicy {
        protocol: match (typed.http10, typed.http2) {
            (true, _) => Protocol::Http10,
            (_, true) => Protocol::Http2,
            _ => Protocol::Http11,
        },
        keep_alive: !typed.no_keepalive,
        streams: typed.streams.unwrap_or(defaults.streams),
        timeout: match &typed.timeout {
            Some(text) => duration("-s", text)?,
            None => defaults.timeout,
        },
        backlog: if typed.wait_backlog {
            Backlog::Wait
        } else {
            Backlog::Count
        },
        bind: typed.bind,
        buffers: typed.buffers.map(|size| size as usize),
        proxy: typed.proxy.as_deref().map(proxy).transpose()?,
        tls: TlsOptions {
            verify: !typed.insecure,
            ca_file: typed.ca.clone(),
            server_name: typed.server_name.clone(),
            no_sni: typed.no_sni,
            version: match &typed.tls_protocol {
                Some(text) => tls_version(text)?,
                None => None,
            },
            ciphers: match &typed.ciphers {
                Some(text) => text.split(':').map(str::to_owned).collect(),
                None => Vec::new(),
            },
            client_certificate: typed.client_certificate.clone(),
        },
    })
}

/// Reads `host:port`, or `host` for port 80.
fn proxy(text: &str) -> Result<Address, BenchError> {
    let target = Target::parse(&format!("http://{text}/"))
        .ok()
        .filter(|target| !text.contains('/') && matches!(target.address, Address::Tcp { .. }));
    target
        .map(|target| target.address)
        .ok_or_else(|| impossible(format!("-X {text}: expected host:port")))
}

/// Reads a version of TLS in ab's words. None: all versions.
fn tls_version(text: &str) -> Result<Option<TlsVersion>, BenchError> {
    match text.to_ascii_uppercase().as_str() {
        "ALL" => Ok(None),
        "TLS1.2" => Ok(Some(TlsVersion::Tls12)),
        "TLS1.3" => Ok(Some(TlsVersion::Tls13)),
        "SSL2" | "SSL3" | "TLS1" | "TLS1.1" => Err(impossible(format!(
            "-f {text}: this version is broken (RFC 7568, RFC 8996) and not spoken here; TLS1.2 and TLS1.3 \
             are"
        ))),
        _ => Err(impossible(format!(
            "-f {text}: expected TLS1.2, TLS1.3 or ALL"
        ))),
    }
}

fn checks(typed: &Bench) -> Result<Checks, BenchError> {
    let mut checks = Checks::default();
    if let Some(text) = &typed.expect_status {
        checks.status = StatusSet::parse(text)?;
    }
    for text in &typed.expect_body {
        checks.body.push(BodyCheck::Contains(text.clone()));
    }
    for text in &typed.expect_not {
        checks.body.push(BodyCheck::ContainsNot(text.clone()));
    }
    for text in &typed.expect_match {
        checks.body.push(BodyCheck::Matches(Pattern::new(text)?));
    }
    for text in &typed.expect_json {
        checks.body.push(json_check(text)?);
    }
    if !checks.body.is_empty() && typed.head {
        return Err(impossible(
            "-i asks for answers without a body, and a check needs one",
        ));
    }
    Ok(checks)
}

/// Reads `/pointer` or `/pointer=value`; a value that is not JSON is taken as a string.
fn json_check(text: &str) -> Result<BodyCheck, BenchError> {
    let (pointer, value) = match text.split_once('=') {
        Some((pointer, value)) => (pointer, Some(value)),
        None => (text, None),
    };
    if !pointer.is_empty() && !pointer.starts_with('/') {
        return Err(BenchError::BadCheck(format!(
            "--expect-json {text}: a pointer begins with a slash, as /user/id (RFC 6901)"
        )));
    }
    Ok(BodyCheck::Json {
        pointer: pointer.to_owned(),
        equals: value.map(|value| {
            serde_json::from_str(value).unwrap_or_else(|_| serde_json::Value::from(value))
        }),
    })
}

/// Reads `3%` or `0.03`; the margin has to be below 100 %.
pub fn margin(text: &str) -> Result<f64, BenchError> {
    let value = match text.strip_suffix('%') {
        Some(number) => number.trim().parse::<f64>().map(|v| v / 100.0),
        None => text.parse::<f64>(),
    };
    match value {
        Ok(value) if value > 0.0 && value < 1.0 => Ok(value),
        _ => Err(impossible(format!(
            "--margin {text}: expected a percentage above 0 and below 100, as 3%"
        ))),
    }
}

/// Reads `10,30,50`, or `1..512`, which doubles from the first number to the last.
pub fn levels(text: &str) -> Result<Vec<u32>, BenchError> {
    let bad = || {
        impossible(format!(
            "--sweep {text}: expected numbers of clients, as 10,30,50, or 1..512 to double from 1 to 512"
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
