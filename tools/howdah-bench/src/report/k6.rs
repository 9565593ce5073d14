//! `--export-k6`: the same load as a k6 script, with a TestRun for k6-operator. Load from several machines is left to
//! k6. A plan that k6 cannot execute is refused with the reason, because a script with other requests would be worse
//! than none.
//!
//! The script uses only features that the documentation of k6 promises: one scenario (and one for the warm-up),
//! `http.request`, checks, thresholds on the metrics of the scenario. Note that each pod of k6-operator judges the
//! thresholds separately, and that the arrivals of k6 have equal intervals.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::error::BenchError;
use crate::plan::check::BodyCheck;
use crate::plan::{Arrivals, HttpProtocol, Plan, RequestTemplate, Spacing, TargetAddress};
use crate::slo::{Slo, Term};

const SCRIPT: &str = "script.js";
const BODY: &str = "body.bin";
const TEST_RUN: &str = "testrun.yaml";
/// The number of pods in the TestRun, which users can change.
const TEST_RUN_PODS: u32 = 4;

/// Writes the files into a directory, which is created if it is missing, and returns their paths.
pub fn export(plan: &Plan, slo: Option<&Slo>, dir: &Path) -> Result<Vec<PathBuf>, BenchError> {
    let script = script(plan, slo)?;
    let mut files = vec![
        (SCRIPT, script.into_bytes()),
        (TEST_RUN, test_run(plan).into_bytes()),
    ];
    if !plan.request.body.is_empty() {
        files.push((BODY, plan.request.body.clone()));
    }
    let failed = |path: &Path, e: std::io::Error| BenchError::System {
        what: format!("writing {}", path.display()),
        why: e.to_string(),
    };
    std::fs::create_dir_all(dir).map_err(|e| failed(dir, e))?;
    let mut written = Vec::new();
    for (name, content) in files {
        let path = dir.join(name);
        std::fs::write(&path, content).map_err(|e| failed(&path, e))?;
        written.push(path);
    }
    Ok(written)
}

/// Returns the script, or an error if k6 cannot send the same requests.
pub fn script(plan: &Plan, slo: Option<&Slo>) -> Result<String, BenchError> {
    refuse(plan)?;
    let mut out = String::from(
        "// Written by howdah bench --export-k6. Run it with: k6 run script.js\n\
         import http from 'k6/http';\n\
         import exec from 'k6/execution';\n\
         import { check, sleep } from 'k6';\n\n",
    );
    if matches!(
        plan.arrivals,
        Arrivals::Open {
            spacing: Spacing::Poisson,
            ..
        }
    ) {
        out.push_str(
            "// k6 sends at equal intervals; howdah bench sent at random times (Poisson), which is harder\n\
             // on a server at the same rate.\n\n",
        );
    }
    let options = serde_json::to_string_pretty(&options(plan, slo)).expect("values become JSON");
    let _ = writeln!(out, "export const options = {options};\n");
    if !plan.request.body.is_empty() {
        let _ = writeln!(out, "const body = open('./{BODY}', 'b');");
    }
    let urls: Vec<String> = plan
        .targets
        .iter()
        .map(|target| url(target.text()))
        .collect();
    let _ = writeln!(
        out,
        "const urls = {};",
        serde_json::to_string_pretty(&urls).expect("texts become JSON")
    );
    let fields: serde_json::Map<String, serde_json::Value> = plan
        .request
        .headers
        .iter()
        .map(|(name, value)| (name.clone(), value.text().into()))
        .collect();
    let _ = writeln!(
        out,
        "const fields = {};",
        serde_json::to_string_pretty(&fields).expect("texts become JSON")
    );
    out.push_str(
        "\n// Fills the places of a text: {seq}, {client}, {rand:1-100}.\n\
         function fill(text) {\n  return text\n    \
         .replaceAll('{seq}', () => String(exec.scenario.iterationInTest))\n    \
         .replaceAll('{client}', () => String(exec.vu.idInTest))\n    \
         .replace(/\\{rand:(\\d+)-(\\d+)\\}/g, (_, low, high) =>\n      \
         String(Number(low) + Math.floor(Math.random() * (Number(high) - Number(low) + 1))));\n}\n\n",
    );
    expected_statuses(&mut out, plan);
    default_function(&mut out, plan);
    let by_pointer = |check: &BodyCheck| matches!(check, BodyCheck::Json { .. });
    if plan.checks.body.iter().any(by_pointer) {
        json_pointer(&mut out);
    }
    Ok(out)
}

fn refuse(plan: &Plan) -> Result<(), BenchError> {
    let refused = |what: &str| {
        Err(BenchError::Impossible(format!(
            "--export-k6: k6 has no {what}, so its script would ask something else"
        )))
    };
    if matches!(plan.targets[0].address, TargetAddress::Unix(_)) {
        return refused("unix sockets");
    }
    if plan.connection.protocol == HttpProtocol::Http10 {
        return refused("HTTP/1.0");
    }
    let connection = &plan.connection;
    if connection.bind.is_some() || connection.buffers.is_some() {
        return refused("-B and -b (k6 has --local-ips where it runs)");
    }
    if connection.proxy.is_some() {
        return refused("-X (set HTTP_PROXY where it runs)");
    }
    let tls = &connection.tls;
    if tls.no_sni
        || tls.version.is_some()
        || !tls.ciphers.is_empty()
        || tls.client_certificate.is_some()
    {
        return refused(
            "-I, -f, -Z and -E (tlsVersion, tlsCipherSuites and tlsAuth of its options)",
        );
    }
    if plan.connection.tls.server_name.is_some() || plan.connection.tls.ca_file.is_some() {
        return refused("--server-name and --ca (set SSL_CERT_FILE where it runs)");
    }
    let conditional =
        plan.checks.body.iter().any(
            |check| matches!(check, BodyCheck::Matches(pattern) if pattern.text().contains("(?")),
        );
    if conditional {
        return refused("groups such as (?i) in regular expressions");
    }
    Ok(())
}

/// Returns the URL with its scheme, which k6 requires.
fn url(text: &str) -> String {
    if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    }
}

fn options(plan: &Plan, slo: Option<&Slo>) -> serde_json::Value {
    use serde_json::json;
    let warmup = plan.warmup.as_secs_f64();
    let time = plan.stop.time.map(|time| time.as_secs_f64() - warmup);
    let seconds = |s: f64| format!("{s}s");
    let mut load = match plan.arrivals {
        Arrivals::Closed { concurrency } => match (plan.stop.requests, time) {
            (Some(n), time) => json!({
                "executor": "shared-iterations",
                "vus": concurrency,
                "iterations": n,
                "maxDuration": seconds(time.unwrap_or(86_400.0)),
            }),
            (None, time) => json!({
                "executor": "constant-vus",
                "vus": concurrency,
                "duration": seconds(time.unwrap_or(10.0)),
            }),
        },
        Arrivals::Open {
            rate,
            max_connections,
            ..
        } => {
            let (rate, unit) = whole_rate(rate);
            let whole = plan.stop.requests.map(|n| n as f64 / (rate as f64 / unit));
            json!({
                "executor": "constant-arrival-rate",
                "rate": rate,
                "timeUnit": seconds(unit),
                "duration": seconds(whole.into_iter().chain(time).fold(f64::INFINITY, f64::min)),
                "preAllocatedVUs": max_connections,
                "maxVUs": max_connections,
            })
        }
    };
    let mut scenarios = serde_json::Map::new();
    if warmup > 0.0 {
        let mut first = match plan.arrivals {
            Arrivals::Closed { concurrency } => {
                json!({"executor": "constant-vus", "vus": concurrency})
            }
            Arrivals::Open { .. } => load.clone(),
        };
        first["duration"] = json!(seconds(warmup));
        first["gracefulStop"] = json!("0s");
        scenarios.insert("warmup".into(), first);
        load["startTime"] = json!(seconds(warmup));
    }
    scenarios.insert("load".into(), load);
    json!({
        "scenarios": scenarios,
        "thresholds": thresholds(slo),
        "discardResponseBodies": plan.checks.body.is_empty(),
        "maxRedirects": 0,
        "noConnectionReuse": !plan.connection.keep_alive,
        "noCookiesReset": plan.request.cookie_jar,
        "insecureSkipTLSVerify": !plan.connection.tls.verify,
        "userAgent": crate::engine::USER_AGENT,
        "summaryTrendStats": ["avg", "min", "med", "p(90)", "p(95)", "p(99)", "p(99.9)", "max"],
    })
}

/// Returns a whole number and a unit of time in seconds, as k6 requires: 0.5 per second is 5 in 10 s.
fn whole_rate(rate: f64) -> (u64, f64) {
    for unit in [1.0, 10.0, 60.0, 100.0, 1000.0] {
        let whole = rate * unit;
        if whole >= 1.0 && (whole - whole.round()).abs() < 1e-6 * whole {
            return (whole.round() as u64, unit);
        }
    }
    ((rate * 1000.0).round().max(1.0) as u64, 1000.0)
}

fn thresholds(slo: Option<&Slo>) -> serde_json::Map<String, serde_json::Value> {
    let mut found: std::collections::BTreeMap<&str, Vec<String>> = Default::default();
    let good = "http_req_duration{scenario:load,expected_response:true}";
    for term in slo.map(Slo::terms).unwrap_or_default() {
        match term {
            Term::Quantile(q, limit) if *q >= 1.0 => {
                found
                    .entry(good)
                    .or_default()
                    .push(format!("max<{}", limit * 1e3));
            }
            Term::Quantile(q, limit) => {
                // 0.999 × 100 is not exactly 99.9, because of rounding.
                let percentile = (q * 1e8).round() / 1e6;
                found
                    .entry(good)
                    .or_default()
                    .push(format!("p({percentile})<{}", limit * 1e3));
            }
            Term::Mean(limit) => {
                found
                    .entry(good)
                    .or_default()
                    .push(format!("avg<{}", limit * 1e3));
            }
            Term::Errors(limit) => {
                found
                    .entry("http_req_failed{scenario:load}")
                    .or_default()
                    .push(format!("rate<{limit}"));
                found
                    .entry("checks{scenario:load}")
                    .or_default()
                    .push(format!("rate>{}", 1.0 - limit));
            }
        }
    }
    found
        .into_iter()
        .map(|(name, terms)| (name.to_owned(), terms.into()))
        .collect()
}

/// Sets the statuses that k6 counts as good.
fn expected_statuses(out: &mut String, plan: &Plan) {
    let ranges: Vec<String> = plan
        .checks
        .status
        .to_string()
        .split(',')
        .map(
            |range| match (range.strip_suffix("xx"), range.split_once('-')) {
                (Some(class), _) => format!("{{ min: {class}00, max: {class}99 }}"),
                (None, Some((low, high))) => format!("{{ min: {low}, max: {high} }}"),
                (None, None) => range.to_owned(),
            },
        )
        .collect();
    let _ = writeln!(
        out,
        "http.setResponseCallback(http.expectedStatuses({}));\n",
        ranges.join(", ")
    );
}

/// Writes the default function: one request, its checks, the pause.
fn default_function(out: &mut String, plan: &Plan) {
    out.push_str("export default function () {\n");
    out.push_str("  const headers = {};\n");
    out.push_str("  for (const name of Object.keys(fields)) {\n    headers[name] = fill(fields[name]);\n  }\n");
    out.push_str("  const url = fill(urls[exec.scenario.iterationInTest % urls.length]);\n");
    let name = plan
        .targets
        .iter()
        .any(|target| !RequestTemplate::is_constant(&target.path));
    let _ = writeln!(
        out,
        "  const response = http.request({}, url, {}, {{\n    headers,\n    timeout: '{}s',{}\n  }});",
        serde_json::Value::from(plan.request.method.as_str()),
        if plan.request.body.is_empty() {
            "null"
        } else {
            "body"
        },
        plan.connection.timeout.as_secs_f64(),
        if name {
            // This gives one time series instead of one for each URL.
            "\n    tags: { name: 'load' },"
        } else {
            ""
        }
    );
    out.push_str("  check(response, {\n    answered: (r) => r.error_code === 0 || r.status > 0,\n");
    for (i, body) in plan.checks.body.iter().enumerate() {
        let _ = writeln!(
            out,
            "    'body {}': (r) => r.body !== null && {},",
            i + 1,
            check_expression(body)
        );
    }
    out.push_str("  });\n");
    if plan.think.max > 0.0 {
        let _ = writeln!(
            out,
            "  sleep({} + Math.random() * {});",
            plan.think.min,
            plan.think.max - plan.think.min
        );
    }
    out.push_str("}\n");
}

/// Returns a check of the body as a JavaScript expression.
fn check_expression(body: &BodyCheck) -> String {
    let text = |text: &str| serde_json::Value::from(text).to_string();
    match body {
        BodyCheck::Contains(part) => format!("r.body.includes({})", text(part)),
        BodyCheck::ContainsNot(part) => format!("!r.body.includes({})", text(part)),
        BodyCheck::Matches(pattern) => {
            format!("new RegExp({}).test(r.body)", text(pattern.text()))
        }
        BodyCheck::Json { pointer, equals } => format!(
            "at(r.body, {}, {})",
            text(pointer),
            equals
                .as_ref()
                .map_or("undefined".to_owned(), ToString::to_string)
        ),
    }
}

/// Writes the function that a check by JSON pointer calls.
fn json_pointer(out: &mut String) {
    out.push_str(
            "\n// Whether a JSON text has a value at a pointer (RFC 6901), and this one if one is given.\n\
             function at(text, pointer, expected) {\n  let value;\n  try {\n    value = JSON.parse(text);\n  \
             } catch (_) {\n    return false;\n  }\n  \
             for (const part of pointer.split('/').slice(1)) {\n    \
             const key = part.replaceAll('~1', '/').replaceAll('~0', '~');\n    \
             if (value === null || typeof value !== 'object' || !(key in value)) {\n      return false;\n    }\n    \
             value = value[key];\n  }\n  \
             return expected === undefined || JSON.stringify(value) === JSON.stringify(expected);\n}\n",
        );
}

fn test_run(plan: &Plan) -> String {
    let body = if plan.request.body.is_empty() {
        String::new()
    } else {
        format!(" --from-file={BODY}")
    };
    format!(
        "# Written by howdah bench --export-k6, for k6-operator. Every pod sends its share of the load;\n\
         # thresholds are judged by every pod for itself.\n\
         #   kubectl create configmap howdah-load --from-file={SCRIPT}{body}\n\
         #   kubectl apply -f {TEST_RUN}\n\
         apiVersion: k6.io/v1alpha1\n\
         kind: TestRun\n\
         metadata:\n  name: howdah-load\n\
         spec:\n  parallelism: {TEST_RUN_PODS}\n  separate: true\n  script:\n    configMap:\n      \
         name: howdah-load\n      file: {SCRIPT}\n"
    )
}
