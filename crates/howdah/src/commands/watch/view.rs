//! The content of `howdah status --watch`: turns two responses of the server into the lines of a screen. It does not
//! depend on a terminal, and uses the clock only for the times of background jobs. Busy children come first, those with
//! the longest request at the top.

use std::collections::HashMap;
use std::time::{Instant, SystemTime};

use howdah_log::log::escape;
use howdah_server::admin::duration;
use howdah_server::admin::jobs::{JobStatus, unix_seconds};
use serde_json::Value;

use crate::master::control::ControlResponse;

/// The last response, and the counters of the previous one.
#[derive(Default)]
pub struct WatchView {
    answer: ControlResponse,
    taken: Option<Instant>,
    /// The seconds between the two responses, and the counters of the older one by name. `None` while rates are
    /// unknown.
    before: Option<(f64, HashMap<String, f64>)>,
    counters: HashMap<String, f64>,
}

impl WatchView {
    /// Applies the next response.
    pub fn update(&mut self, answer: ControlResponse, now: Instant) {
        // While the front is started again there is no status, so the last one stays visible.
        let Some(status) = &answer.status else {
            self.answer.message = answer.message;
            self.before = None;
            return;
        };
        let counters = counters(status);
        let older = std::mem::replace(&mut self.counters, counters);
        let same = self.answer.status.as_ref().map(|s| &s["pid"]) == Some(&status["pid"]);
        let seconds = self.taken.map(|then| (now - then).as_secs_f64());
        self.before = match seconds {
            // The counters of a new front start at zero.
            Some(seconds) if same && seconds > 0.0 => Some((seconds, older)),
            _ => None,
        };
        self.taken = Some(now);
        self.answer = answer;
    }

    /// Returns by how much a counter grew per second.
    fn rate(&self, name: &str) -> Option<f64> {
        let (seconds, older) = self.before.as_ref()?;
        let now = self.counters.get(name)?;
        // A counter that the older response does not have started at zero.
        let then = older.get(name).unwrap_or(&0.0);
        (now >= then).then(|| (now - then) / seconds)
    }

    fn per_second(&self, name: &str) -> String {
        self.rate(name).map_or_else(|| "-".to_owned(), short_number)
    }

    /// Returns the lines of the screen: at most `rows` lines of at most `columns` characters, without control
    /// characters.
    pub fn lines(&self, columns: usize, rows: usize) -> Vec<String> {
        let empty = Value::Null;
        let status = self.answer.status.as_ref().unwrap_or(&empty);
        let mut lines = self.head(status);
        let jobs = serde_json::from_value::<Vec<JobStatus>>(status["jobs"].clone());
        let clock = unix_seconds(SystemTime::now());
        // A front that is started again has no jobs yet.
        for job in jobs.unwrap_or_default() {
            lines.push(job.describe(clock));
        }
        for pool in status["pools"].as_array().into_iter().flatten() {
            lines.push(String::new());
            self.pool(pool, &mut lines);
        }
        let last = "q quits".to_owned();
        if lines.len() + 2 > rows {
            let hidden = (lines.len() + 1).saturating_sub(rows);
            lines.truncate(rows.saturating_sub(1));
            lines.push(format!("{hidden} more lines; {last}"));
        } else {
            lines.push(String::new());
            lines.push(last);
        }
        lines
            .iter()
            .map(|line| escaped_line(line, columns))
            .collect()
    }

    fn head(&self, status: &Value) -> Vec<String> {
        let connections = &status["connections"];
        let mut lines = vec![format!(
            "howdah {}, up {}; master {}, front {}, configuration {}",
            text(status, "version"),
            duration(number(status, "uptime")),
            self.answer.master,
            number(status, "pid"),
            self.answer.generation
        )];
        if !self.answer.message.is_empty() {
            lines.push(self.answer.message.clone());
        }
        let finished = self.rate("finished").filter(|rate| *rate > 0.0);
        let mean = match (self.rate("seconds"), finished) {
            (Some(seconds), Some(finished)) => {
                format!("{} ms", short_number(seconds / finished * 1e3))
            }
            _ => "-".to_owned(),
        };
        lines.push(format!(
            "requests {}/s, {} in progress, {mean} on average; {}B/s sent; connections {} of {}, {}/s new",
            self.per_second("requests"),
            number(status, "requests_active"),
            self.per_second("bytes"),
            number(connections, "open"),
            number(connections, "limit"),
            self.per_second("accepted"),
        ));
        let rates: Vec<String> = status["statuses"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|pair| {
                let code = pair[0].as_u64()?;
                let rate = self.rate(&format!("status {code}"))?;
                (rate > 0.0).then(|| format!("{code}: {}", short_number(rate)))
            })
            .collect();
        if !rates.is_empty() {
            lines.push(format!("responses/s       {}", rates.join(", ")));
        }
        if let Some(failures) = shown_pairs(&status["failures"]) {
            lines.push(format!("failures so far  {failures}"));
        }
        lines
    }

    fn pool(&self, pool: &Value, lines: &mut Vec<String>) {
        let name = text(pool, "pool");
        let opcache = if pool["opcache"] == true { "on" } else { "off" };
        let php = match text(pool, "php").as_str() {
            "" => String::new(),
            version => format!(", PHP {version}, opcache {opcache}"),
        };
        lines.push(format!(
            "pool {name}: {}, {}{php}; {} active, {} idle; queue {} of {}; {}/s, {} slow",
            text(pool, "state"),
            text(pool, "process_manager"),
            number(pool, "active_processes"),
            number(pool, "idle_processes"),
            number(pool, "queue"),
            number(pool, "queue_size"),
            self.per_second(&format!("pool {name}")),
            number(pool, "slow_requests"),
        ));
        if let Some(failures) = shown_pairs(&pool["failures"]) {
            lines.push(format!("  failures so far  {failures}"));
        }
        if let Some(cache) = pool["shared_cache"].as_object() {
            let figure = |name: &str| cache[name].as_u64().unwrap_or(0);
            lines.push(format!(
                "  shared cache: {} of {} MB, {} values; {} hits/s, {} misses/s",
                figure("used") >> 20,
                figure("size") >> 20,
                figure("values"),
                self.per_second(&format!("shared cache hits {name}")),
                self.per_second(&format!("shared cache misses {name}")),
            ));
        }
        let mut children: Vec<&Value> = pool["children"].as_array().into_iter().flatten().collect();
        if !children.is_empty() {
            lines.push(
                "      pid state            since       /s requests     MB request".to_owned(),
            );
        }
        let since = |child: &Value| child["since"].as_f64().unwrap_or(0.0);
        children.sort_by(|a, b| {
            let busy = |child: &Value| matches!(text(child, "state").as_str(), "Idle" | "Starting");
            busy(a).cmp(&busy(b)).then(since(b).total_cmp(&since(a)))
        });
        for child in children {
            lines.push(format!(
                " {:>8} {:<11} {:>8.1} s {:>8} {:>8} {:>6} {} {}",
                number(child, "pid"),
                text(child, "state"),
                since(child),
                self.per_second(&format!("child {name} {}", number(child, "pid"))),
                number(child, "requests"),
                number(child, "memory") >> 20,
                child["method"].as_str().unwrap_or_default(),
                child["uri"].as_str().unwrap_or_default(),
            ));
        }
        for backend in pool["backends"].as_array().into_iter().flatten() {
            lines.push(format!(
                "  {}: {} {}, {} of {} requests now, {} idle connections; {}/s, {} failures",
                text(backend, "address"),
                text(backend, "state"),
                backend["why"].as_str().unwrap_or_default(),
                number(backend, "busy"),
                number(backend, "limit"),
                number(backend, "kept"),
                self.per_second(&format!("backend {name} {}", text(backend, "address"))),
                number(backend, "failures"),
            ));
        }
    }
}

/// Returns all values that only grow, by names of our own.
fn counters(status: &Value) -> HashMap<String, f64> {
    let mut all = HashMap::new();
    let mut put = |name: String, value: &Value| {
        all.insert(name, value.as_f64().unwrap_or(0.0));
    };
    put("requests".to_owned(), &status["requests"]);
    put("bytes".to_owned(), &status["bytes_sent"]);
    put("seconds".to_owned(), &status["request_seconds"]);
    put("accepted".to_owned(), &status["connections"]["accepted"]);
    let mut finished = 0;
    for pair in status["statuses"].as_array().into_iter().flatten() {
        put(format!("status {}", pair[0]), &pair[1]);
        finished += pair[1].as_u64().unwrap_or(0);
    }
    put("finished".to_owned(), &finished.into());
    for pool in status["pools"].as_array().into_iter().flatten() {
        let name = text(pool, "pool");
        put(format!("pool {name}"), &pool["accepted_requests"]);
        for count in ["hits", "misses"] {
            let counter = format!("shared cache {count} {name}");
            put(counter, &pool["shared_cache"][count]);
        }
        for child in pool["children"].as_array().into_iter().flatten() {
            let pid = number(child, "pid");
            put(format!("child {name} {pid}"), &child["requests"]);
        }
        for backend in pool["backends"].as_array().into_iter().flatten() {
            let address = text(backend, "address");
            put(format!("backend {name} {address}"), &backend["requests"]);
        }
    }
    all
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or("-").to_owned()
}

/// Formats a number briefly, with a prefix: `0.25`, `12.3`, `9999`, `12.3k`, `4.56M`.
fn short_number(n: f64) -> String {
    let (n, prefix) = match n {
        n if n >= 1e9 => (n / 1e9, "G"),
        n if n >= 1e6 => (n / 1e6, "M"),
        n if n >= 1e4 => (n / 1e3, "k"),
        n => (n, ""),
    };
    match n {
        n if n >= 100.0 || n == 0.0 => format!("{n:.0}{prefix}"),
        n if n >= 10.0 => format!("{n:.1}{prefix}"),
        n => format!("{n:.2}{prefix}"),
    }
}

/// Escapes and shortens a line, because text from clients and scripts must not control the terminal or leave its line.
fn escaped_line(line: &str, columns: usize) -> String {
    let mut out = Vec::new();
    escape::message(&mut out, line.as_bytes(), 4 * columns.max(1));
    let line = String::from_utf8_lossy(&out);
    line.chars().take(columns).collect()
}

/// Formats `[[name, count], …]` without the zeros. Returns `None` if nothing is left.
fn shown_pairs(list: &Value) -> Option<String> {
    let shown: Vec<String> = list
        .as_array()
        .into_iter()
        .flatten()
        .filter(|pair| pair[1] != 0)
        .map(|pair| match &pair[0] {
            Value::String(name) => format!("{name} {}", pair[1]),
            other => format!("{other}: {}", pair[1]),
        })
        .collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn answer(requests: u64, child_requests: u64) -> ControlResponse {
        ControlResponse {
            ok: true,
            master: 10,
            generation: 3,
            status: Some(json!({
                "version": "0.1.0", "pid": 11, "uptime": 3700, "requests": requests,
                "requests_active": 2, "bytes_sent": requests * 1000,
                "request_seconds": requests as f64 * 0.002,
                "connections": {"open": 5, "accepted": 50, "limit": 3072},
                "statuses": [[200, requests], [404, 1]],
                "failures": [["QueueFull", 4], ["ChildDied", 0]],
                "pools": [{
                    "pool": "www", "state": "Ready", "process_manager": "static", "php": "8.2.1",
                    "opcache": true, "active_processes": 2, "idle_processes": 1, "queue": 7,
                    "queue_size": 100, "accepted_requests": requests,
                    "children": [
                        {"pid": 21, "state": "Idle", "since": 99.0, "requests": 5, "memory": 9 << 20},
                        {"pid": 22, "state": "Busy", "since": 0.5, "requests": child_requests,
                         "memory": 9 << 20, "method": "GET", "uri": "/short"},
                        {"pid": 23, "state": "Busy", "since": 12.0, "requests": 7, "memory": 9 << 20,
                         "method": "POST", "uri": "/long\u{1b}[2J\u{9b}"}
                    ]
                }]
            })),
            ..ControlResponse::default()
        }
    }

    fn after_a_second() -> WatchView {
        let mut view = WatchView::default();
        let now = Instant::now();
        view.update(answer(1000, 40), now);
        view.update(answer(1500, 90), now + Duration::from_secs(2));
        view
    }

    #[test]
    fn view_computes_rates_between_two_responses() {
        let mut view = WatchView::default();
        let now = Instant::now();
        view.update(answer(1000, 40), now);
        assert!(view.lines(200, 50)[1].starts_with("requests -/s, 2 in progress"));
        view.update(answer(1500, 90), now + Duration::from_secs(2));
        let lines = view.lines(200, 50);
        assert_eq!(
            lines[0],
            "howdah 0.1.0, up 1 h 1 min; master 10, front 11, configuration 3"
        );
        assert_eq!(
            lines[1],
            "requests 250/s, 2 in progress, 2.00 ms on average; 250kB/s sent; connections 5 of 3072, 0/s new"
        );
        assert_eq!(lines[2], "responses/s       200: 250");
        assert_eq!(lines[3], "failures so far  QueueFull 4");
    }

    #[test]
    fn view_sorts_busy_children_first_and_escapes_control_characters() {
        let lines = after_a_second().lines(200, 50);
        let pids: Vec<&str> = lines[7..]
            .iter()
            .filter_map(|line| line.split_whitespace().next())
            .take(3)
            .collect();
        assert_eq!(pids, ["23", "22", "21"]);
        assert!(lines[7].contains("POST /long\\x1B[2J"), "{}", lines[7]);
        assert!(lines[8].contains("25.0"), "its own rate: {}", lines[8]);
        assert!(lines.iter().all(|line| !line.chars().any(char::is_control)));
    }

    #[test]
    fn view_fits_a_small_screen_and_counts_hidden_lines() {
        let view = after_a_second();
        let all = view.lines(200, 50).len();
        let lines = view.lines(40, 8);
        assert_eq!(lines.len(), 8);
        assert!(lines.iter().all(|line| line.chars().count() <= 40));
        assert_eq!(lines[7], format!("{} more lines; q quits", all - 2 - 7));
        assert!(view.lines(0, 0).len() <= 1);
    }

    #[test]
    fn view_shows_no_rates_after_a_front_restart() {
        let mut view = after_a_second();
        let starting = ControlResponse {
            message: "the front is being restarted; try again".to_owned(),
            ..ControlResponse::default()
        };
        let now = Instant::now() + Duration::from_secs(10);
        view.update(starting, now);
        assert!(view.lines(200, 50)[1].contains("being restarted"));
        let mut next = answer(5, 1);
        next.status.as_mut().unwrap()["pid"] = json!(12);
        view.update(next, now + Duration::from_secs(1));
        let lines = view.lines(200, 50);
        assert!(lines[1].starts_with("requests -/s"), "{}", lines[1]);
    }

    #[test]
    fn short_number_rounds_and_adds_a_prefix() {
        for (n, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (12.34, "12.3"),
            (9999.0, "9999"),
            (12_345.0, "12.3k"),
            (2.5e6, "2.50M"),
        ] {
            assert_eq!(short_number(n), text);
        }
    }
}
