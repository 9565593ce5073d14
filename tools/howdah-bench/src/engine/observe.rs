//! Observes the server once a second during a run, on a separate thread: a process and its children through /proc, and
//! Howdah through its status page or control socket. If a value cannot be read, the first sample that lacks it says
//! why.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::Value;

use crate::error::BenchError;
use crate::plan::{LoadTarget, Observe, TargetAddress};
use crate::run::ServerSample;
use crate::run::server_side::{HowdahStatus, ProcessUse};

/// How long reading the status may take.
const STATUS_TIMEOUT: Duration = Duration::from_millis(500);

/// The maximum length of a status that is read, in bytes.
const MAX_STATUS_BYTES: u64 = 4 << 20;

/// Takes the samples of a server.
#[derive(Debug)]
pub struct Observer {
    what: Observe,
    ticks_per_second: f64,
    page_bytes: u64,
    /// The CPU ticks of each process at the last sample.
    ticks_before: HashMap<u32, u64>,
    before_at: f64,
    has_reported_missing: bool,
}

impl Observer {
    /// Creates an observer. Fails if the process does not exist. Returns `None` if there is nothing to observe.
    pub fn new(what: &Observe) -> Result<Option<Observer>, BenchError> {
        if what.pid.is_none() && what.status.is_none() {
            return Ok(None);
        }
        let mut observer = Observer {
            what: what.clone(),
            ticks_per_second: rustix::param::clock_ticks_per_second() as f64,
            page_bytes: rustix::param::page_size() as u64,
            ticks_before: HashMap::new(),
            before_at: 0.0,
            has_reported_missing: false,
        };
        if let Some(pid) = what.pid {
            let tree = process_tree(pid).ok_or_else(|| {
                BenchError::Impossible(format!("there is no process {pid} to watch"))
            })?;
            observer.ticks_before = tree.into_iter().map(|p| (p.pid, p.ticks)).collect();
        }
        Ok(Some(observer))
    }

    /// Takes a sample at the time `at`, in seconds of the run.
    pub fn sample(&mut self, at: f64) -> ServerSample {
        let mut sample = ServerSample {
            at,
            ..ServerSample::default()
        };
        let mut missing = Vec::new();
        if let Some(pid) = self.what.pid {
            match self.processes(pid, at) {
                Some(found) => sample.process = Some(found),
                None => missing.push(format!("process {pid} no longer exists")),
            }
        }
        if let Some(place) = &self.what.status {
            match status(place) {
                Ok(found) => sample.howdah = Some(found),
                Err(why) => missing.push(format!("no status from {place}: {why}")),
            }
        }
        if !missing.is_empty() && !self.has_reported_missing {
            self.has_reported_missing = true;
            sample.missing = Some(missing.join("; "));
        }
        sample
    }

    fn processes(&mut self, pid: u32, at: f64) -> Option<ProcessUse> {
        let tree = process_tree(pid)?;
        let length = at - self.before_at;
        // A process that was started since the last sample counts from its start.
        let ticks: u64 = tree
            .iter()
            .map(|p| {
                p.ticks
                    .saturating_sub(self.ticks_before.get(&p.pid).copied().unwrap_or(0))
            })
            .sum();
        self.ticks_before = tree.iter().map(|p| (p.pid, p.ticks)).collect();
        self.before_at = at;
        let cpu = if length > 0.0 {
            ticks as f64 / self.ticks_per_second / length
        } else {
            0.0
        };
        Some(ProcessUse {
            processes: tree.len() as u32,
            cpu,
            resident: tree.iter().map(|p| p.pages * self.page_bytes).sum(),
            proportional: tree.iter().map(|p| proportional_memory(p.pid)).sum(),
        })
    }
}

#[derive(Debug, PartialEq, Eq)]
struct ProcessStatLine {
    pid: u32,
    parent: u32,
    ticks: u64,
    pages: u64,
}

/// Returns a process and its descendants. `None` if it does not exist.
fn process_tree(root: u32) -> Option<Vec<ProcessStatLine>> {
    let mut all: Vec<ProcessStatLine> = std::fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            parse_stat(
                pid,
                &std::fs::read_to_string(entry.path().join("stat")).ok()?,
            )
        })
        .collect();
    let mut members = HashSet::from([root]);
    loop {
        let known = members.len();
        let children = all.iter().filter(|p| members.contains(&p.parent));
        let children: Vec<u32> = children.map(|p| p.pid).collect();
        members.extend(children);
        if members.len() == known {
            break;
        }
    }
    all.retain(|process| members.contains(&process.pid));
    all.iter().any(|process| process.pid == root).then_some(all)
}

/// Parses /proc/PID/stat (proc(5)). The name may contain any character, so fields are counted from its closing bracket.
fn parse_stat(pid: u32, stat: &str) -> Option<ProcessStatLine> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(ProcessStatLine {
        pid,
        parent: u32::try_from(number(1)?).ok()?,
        ticks: number(11)? + number(12)?,
        pages: number(21)?,
    })
}

/// Reads Pss from /proc/PID/smaps_rollup, in bytes. `None` if this process may not read it.
fn proportional_memory(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

fn status(place: &str) -> Result<HowdahStatus, String> {
    let text = if place.starts_with("http://") {
        fetch_status_page(place)?
    } else {
        query_control_socket(place)?
    };
    let value: Value =
        serde_json::from_str(&text).map_err(|e| format!("the response is not JSON: {e}"))?;
    // The control socket returns the status as a part of its response.
    read_status(value.get("status").unwrap_or(&value))
}

/// Fetches the status page, with `Accept: application/json`.
fn fetch_status_page(url: &str) -> Result<String, String> {
    let target = LoadTarget::parse(url).map_err(|e| e.to_string())?;
    let TargetAddress::Tcp { host, port } = &target.address else {
        return Err("expected http://host:port/path or the path of a socket".to_owned());
    };
    let failed = |e: std::io::Error| e.to_string();
    let mut addresses =
        std::net::ToSocketAddrs::to_socket_addrs(&(host.as_str(), *port)).map_err(failed)?;
    let address = addresses.next().ok_or("the host has no address")?;
    let mut stream = TcpStream::connect_timeout(&address, STATUS_TIMEOUT).map_err(failed)?;
    stream
        .set_read_timeout(Some(STATUS_TIMEOUT))
        .map_err(failed)?;
    stream
        .set_write_timeout(Some(STATUS_TIMEOUT))
        .map_err(failed)?;
    // HTTP/1.0 is used because its response ends with the connection and is not chunked.
    let request = format!(
        "GET {} HTTP/1.0\r\nHost: {}\r\nAccept: application/json\r\n\r\n",
        target.path, target.authority
    );
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut bytes = Vec::new();
    stream
        .take(MAX_STATUS_BYTES)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text
        .split_once("\r\n\r\n")
        .ok_or("the response is not HTTP")?;
    let line = head.lines().next().unwrap_or_default();
    match line.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        _ => Err(format!("the response was `{line}`")),
    }
}

/// Queries Howdah's control socket: the request is a line of JSON, and so is the response.
fn query_control_socket(path: &str) -> Result<String, String> {
    let failed = |e: std::io::Error| e.to_string();
    let mut stream =
        UnixStream::connect(path.strip_prefix("unix:").unwrap_or(path)).map_err(failed)?;
    stream
        .set_read_timeout(Some(STATUS_TIMEOUT))
        .map_err(failed)?;
    stream
        .write_all(b"{\"command\":\"status\"}\n")
        .map_err(failed)?;
    let mut line = String::new();
    BufReader::new(stream.take(MAX_STATUS_BYTES))
        .read_line(&mut line)
        .map_err(failed)?;
    Ok(line)
}

fn read_status(value: &Value) -> Result<HowdahStatus, String> {
    let number = |value: &Value, name: &str| value[name].as_u64();
    let requests = number(value, "requests").ok_or(
        "the response is not Howdah's status, because it has no field \
         `requests`",
    )?;
    let mut read = HowdahStatus {
        requests,
        active: number(value, "requests_active").unwrap_or_default(),
        connections: number(&value["connections"], "open").unwrap_or_default(),
        ..HowdahStatus::default()
    };
    let mut failures: BTreeMap<String, u64> = BTreeMap::new();
    let pools = value["pools"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    for part in std::iter::once(value).chain(pools) {
        for failure in part["failures"].as_array().into_iter().flatten() {
            if let (Some(name), Some(count)) = (failure[0].as_str(), failure[1].as_u64()) {
                *failures.entry(name.to_owned()).or_default() += count;
            }
        }
    }
    for pool in pools {
        let busy = number(pool, "active_processes").unwrap_or_default();
        read.queued += number(pool, "queue").unwrap_or_default();
        read.busy += busy;
        read.children += busy + number(pool, "idle_processes").unwrap_or_default();
    }
    read.failures = failures;
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_stat_is_parsed_whatever_its_name() {
        let stat = "7 (a) b) S 3 7 7 0 -1 0 1 2 3 4 50 60 7 8 20 0 1 0 99 1000 250 0";
        let process = parse_stat(7, stat).unwrap();
        assert_eq!(
            (process.parent, process.ticks, process.pages),
            (3, 110, 250)
        );
        assert_eq!(parse_stat(7, "7 (a"), None);
    }

    #[test]
    fn observer_samples_this_process() {
        let what = Observe {
            pid: Some(std::process::id()),
            status: None,
        };
        let mut observer = Observer::new(&what).unwrap().unwrap();
        let sample = observer.sample(1.0);
        let process = sample.process.unwrap();
        assert!(process.resident > 0 && process.processes > 0, "{process:?}");
        let nobody = Observe {
            pid: Some(u32::MAX),
            status: None,
        };
        let error = Observer::new(&nobody).unwrap_err();
        assert!(error.to_string().contains("there is no process"), "{error}");
    }

    #[test]
    fn status_is_summed_over_pools() {
        let text = r#"{"requests":9,"requests_active":2,"connections":{"open":3},
            "failures":[["QueueFull",4]],"pools":[
            {"queue":5,"active_processes":2,"idle_processes":1,"failures":[["QueueFull",1]]},
            {"queue":1,"active_processes":1,"idle_processes":0,"failures":[]}]}"#;
        let status = read_status(&serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!(
            (status.requests, status.active, status.connections),
            (9, 2, 3)
        );
        assert_eq!((status.queued, status.busy, status.children), (6, 3, 4));
        assert_eq!(status.failures["QueueFull"], 5);
        assert!(read_status(&Value::Null).is_err());
    }

    #[test]
    fn missing_status_is_reported_once() {
        let what = Observe {
            pid: None,
            status: Some("/nonexistent/howdah.sock".to_owned()),
        };
        let mut observer = Observer::new(&what).unwrap().unwrap();
        let why = observer.sample(1.0).missing.unwrap();
        assert!(
            why.contains("no status from /nonexistent/howdah.sock"),
            "{why}"
        );
        assert_eq!(observer.sample(2.0).missing, None);
    }
}
