//! Reports the requests that a stop waits for. The master prints the report.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use howdah_executor::status::ChildRow;
use howdah_log::log::escape;
use howdah_server::admin::ServerStatus;

use super::FrontShared;
use crate::process_channel::{ProcessChannel, ToMaster};

/// The pause between two reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// The number of requests that a report names.
const MAX_NAMED_REQUESTS: usize = 3;
/// The maximum number of bytes of a URI that are shown.
const MAX_URI_BYTES: usize = 100;

/// Sends the report to the master now and every few seconds while a request is in progress.
pub fn report(link: &ProcessChannel, shared: &Arc<FrontShared>, limit: Duration) {
    let (link, shared) = (link.clone(), shared.clone());
    let deadline = Instant::now() + limit;
    std::thread::spawn(move || {
        while let Some(front) = shared.front.get() {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Some(text) = progress_line(&front.status(), left) {
                // Without a master, the report has no reader.
                let _ = link.send(&ToMaster::Waiting { text }, &[]);
            }
            std::thread::sleep(REPORT_INTERVAL);
        }
    });
}

/// Returns the line for the terminal; `None` if no request is in progress.
fn progress_line(status: &ServerStatus, left: Duration) -> Option<String> {
    let count = match status.requests_active {
        0 => return None,
        1 => "1 request".to_owned(),
        n => format!("{n} requests"),
    };
    let mut text = format!(
        "waiting for {count}, for {} s at most (a second signal aborts them)",
        left.as_secs_f64().ceil()
    );
    let children = status.pools.iter().flat_map(|pool| &pool.children);
    // The URI is not known for a program of mode `pool`, nor for a script that runs on after its response.
    let is_known = |child: &&ChildRow| child.state == "Busy" && !child.uri.is_empty();
    let busy: Vec<_> = children.filter(is_known).collect();
    for (nth, child) in busy.iter().take(MAX_NAMED_REQUESTS).enumerate() {
        let mut uri = Vec::new();
        // The client chose the URI, so its control characters must not reach the terminal.
        escape::message(&mut uri, child.uri.as_bytes(), MAX_URI_BYTES);
        let separator = if nth == 0 { ": " } else { ", " };
        let _ = write!(
            text,
            "{separator}{} {} for {:.1} s",
            child.method,
            String::from_utf8_lossy(&uri),
            child.since
        );
    }
    if busy.len() > MAX_NAMED_REQUESTS {
        text += ", …";
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use howdah_executor::status::PoolStatus;

    use super::*;

    #[test]
    fn stop_progress_names_the_requests_in_progress() {
        let mut status = ServerStatus::default();
        assert_eq!(progress_line(&status, REPORT_INTERVAL), None);
        status.requests_active = 2;
        let row = |state: &str, uri: &str| ChildRow {
            state: state.to_owned(),
            method: "GET".to_owned(),
            uri: uri.to_owned(),
            since: 3.25,
            ..ChildRow::default()
        };
        status.pools = vec![PoolStatus {
            children: vec![
                row("Idle", ""),
                row("Busy", "/a.php?\x1b[2J"),
                row("Busy", ""),
            ],
            ..PoolStatus::default()
        }];
        assert_eq!(
            progress_line(&status, Duration::from_millis(9200)).unwrap(),
            "waiting for 2 requests, for 10 s at most (a second signal aborts them): \
             GET /a.php?\\x1B[2J for 3.2 s"
        );
    }
}
