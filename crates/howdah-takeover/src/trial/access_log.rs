//! Reads the last part of a site's access log: the requests that had succeeded, and those that the old server had
//! refused.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use howdah_import::verify::log::{LoggedRequest, request_and_status};

use crate::discovery::files::LogTail;
use crate::plan::PlannedSite;

/// The name of the trial in its `User-Agent`.
pub const AGENT_NAME: &str = "howdah-takeover";
/// The maximum number of lines that are read.
const MAX_LINES: usize = 20_000;
/// The maximum number of bytes that are read, from the end of the log.
const MAX_BYTES: u64 = 8 << 20;
/// If the log has fewer lines than this, the previous log is read as well: logrotate may just have run.
const FEW_LINES: usize = 1000;

/// The requests of a log for one site, the most frequent first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedRequests {
    /// Targets of GET and HEAD requests with a status of 2xx or 3xx.
    pub succeeded: Vec<String>,
    /// Paths of requests with the status 401, 403 or 404, and that status.
    pub refused: Vec<(String, u16)>,
}

/// Reads the end of a site's access log.
///
/// # Errors
/// The error of the system if the log exists and cannot be read.
pub fn read(site: &PlannedSite) -> io::Result<LoggedRequests> {
    let Some(path) = &site.access_log else {
        return Ok(LoggedRequests::default());
    };
    let mut lines = match last_lines(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        lines => lines?,
    };
    if lines.len() < FEW_LINES {
        let mut before = path.clone().into_os_string();
        before.push(".1");
        // A log that was never rotated has no predecessor.
        lines.extend(last_lines(Path::new(&before)).unwrap_or_default());
    }
    Ok(requests(&lines, &site.hosts))
}

fn last_lines(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    let log = LogTail::read(path, MAX_BYTES)?;
    let mut lines: Vec<Vec<u8>> = log.lines().map(|(_, line)| line.to_vec()).collect();
    Ok(lines.split_off(lines.len().saturating_sub(MAX_LINES)))
}

fn requests(lines: &[Vec<u8>], hosts: &[String]) -> LoggedRequests {
    let mut succeeded: HashMap<String, u64> = HashMap::new();
    let mut refused: HashMap<(String, u16), u64> = HashMap::new();
    for line in lines.iter().filter(|line| !is_of_trial(line)) {
        let Some((request, status)) = request_and_status(line) else {
            continue;
        };
        if !is_for(&request, hosts) {
            continue;
        }
        match status {
            200..=399 => *succeeded.entry(request.target).or_default() += 1,
            401 | 403 | 404 => {
                // The parameters may be an attack, which the old server may have refused because of them.
                let path = request.target.split(['?', '#']).next().unwrap_or_default();
                *refused.entry((path.to_owned(), status)).or_default() += 1;
            }
            _ => {}
        }
    }
    LoggedRequests {
        succeeded: by_frequency(succeeded),
        refused: by_frequency(refused),
    }
}

/// Returns whether a line is about a request of an earlier trial, not of a visitor.
fn is_of_trial(line: &[u8]) -> bool {
    let name = AGENT_NAME.as_bytes();
    line.windows(name.len()).any(|window| window == name)
}

/// Returns whether a request may be for a site: its line names no host, or one of the site.
fn is_for(request: &LoggedRequest, hosts: &[String]) -> bool {
    let Some(host) = &request.host else {
        return true;
    };
    let matches = |pattern: &String| match pattern.strip_prefix('*') {
        Some(end) => host
            .to_ascii_lowercase()
            .ends_with(&end.to_ascii_lowercase()),
        None => pattern.eq_ignore_ascii_case(host),
    };
    hosts.is_empty() || hosts.iter().any(matches)
}

fn by_frequency<T: Ord>(counts: HashMap<T, u64>) -> Vec<T> {
    let mut counts: Vec<(T, u64)> = counts.into_iter().collect();
    counts.sort_by(|(one, n), (other, m)| m.cmp(n).then_with(|| one.cmp(other)));
    counts.into_iter().map(|(item, _)| item).collect()
}

#[cfg(test)]
mod tests {
    use howdah_test_support::scratch::Scratch;

    use super::*;
    use crate::plan::ServerKind;

    fn site(log: &Path) -> PlannedSite {
        PlannedSite {
            name: "a".to_owned(),
            hosts: vec!["a.test".to_owned(), "*.b.test".to_owned()],
            served_by: ServerKind::Nginx,
            addresses: Vec::new(),
            file: "sites.d/a.toml".into(),
            root: "/srv/a".into(),
            php: "none".to_owned(),
            access_log: Some(log.to_owned()),
            denied_paths: Vec::new(),
        }
    }

    fn line(target: &str, status: u16) -> String {
        format!("192.0.2.1 - - [23/Nov/2026:10:00:00 +0000] \"GET {target} HTTP/1.1\" {status} 5\n")
    }

    #[test]
    fn log_tells_what_succeeded_and_what_was_refused() {
        let scratch = Scratch::new("trial-log");
        let text = line("/one", 404)
            + &line("/a", 200)
            + &line("/b?c=d", 200)
            + &line("/b?c=d", 304)
            + &line("/private?x=<script>", 403)
            + &line("/broken", 500)
            + &line("/tried", 200).replace(
                " 5\n",
                " 5 \"-\" \"Mozilla/5.0 (compatible; howdah-takeover)\"\n",
            )
            + &format!("c.test:80 {}", line("/of-another-site", 200))
            + &format!("www.b.test:80 {}", line("/of-this-site", 200));
        let log = scratch.write("access.log", text);
        scratch.write("access.log.1", line("/yesterday", 200));
        let found = read(&site(&log)).unwrap();
        assert_eq!(
            found.succeeded,
            ["/b?c=d", "/a", "/of-this-site", "/yesterday"]
        );
        let refused = [("/one".to_owned(), 404), ("/private".to_owned(), 403)];
        assert_eq!(found.refused, refused);
        let missing = read(&site(&scratch.join("missing.log"))).unwrap();
        assert_eq!(missing, LoggedRequests::default());
    }

    #[test]
    fn log_is_read_from_its_end() {
        let scratch = Scratch::new("trial-long-log");
        let padding = line(&format!("/{}", "x".repeat(1000)), 200).repeat(9000);
        let log = scratch.write(
            "access.log",
            line("/first", 200) + &padding + &line("/last", 200),
        );
        let found = read(&site(&log)).unwrap();
        assert!(found.succeeded.contains(&"/last".to_owned()));
        assert!(!found.succeeded.contains(&"/first".to_owned()));
    }
}
