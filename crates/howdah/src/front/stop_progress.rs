//! Reports which requests a stop waits for. The master prints it.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use howdah_executor::status::ChildRow;
use howdah_server::admin::ServerStatus;
use howdah_server::log::escape;

use super::Shared;
use crate::link::{Link, ToMaster};

/// The pause between two such lines.
const AGAIN: Duration = Duration::from_secs(5);
/// How many requests a line names.
const NAMED: usize = 3;
/// How many bytes of each URI it shows.
const LONGEST: usize = 100;

/// Sends the sentence to the master now and every few seconds, as long as a request is in progress.
pub fn report(link: &Link, shared: &Arc<Shared>, limit: Duration) {
    let (link, shared) = (link.clone(), shared.clone());
    let deadline = Instant::now() + limit;
    std::thread::spawn(move || {
        while let Some(front) = shared.front.get() {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Some(text) = sentence(&front.status(), left) {
                // Without a master there is nobody to read it.
                let _ = link.send(&ToMaster::Waiting { text }, &[]);
            }
            std::thread::sleep(AGAIN);
        }
    });
}

/// The line for the terminal; none when no request is in progress.
fn sentence(status: &ServerStatus, left: Duration) -> Option<String> {
    let count = match status.requests_active {
        0 => return None,
        1 => "1 request".to_owned(),
        n => format!("{n} requests"),
    };
    let mut text = format!(
        "waiting for {count}, for {} s at most (a second signal ends them at once)",
        left.as_secs_f64().ceil()
    );
    let children = status.pools.iter().flat_map(|pool| &pool.children);
    // What a program of mode `pool` works on is not known here, nor what a script does after its response.
    let is_known = |child: &&ChildRow| child.state == "Busy" && !child.uri.is_empty();
    let busy: Vec<_> = children.filter(is_known).collect();
    for (nth, child) in busy.iter().take(NAMED).enumerate() {
        let mut uri = Vec::new();
        // What clients chose must not steer the terminal.
        escape::message(&mut uri, child.uri.as_bytes(), LONGEST);
        let separator = if nth == 0 { ": " } else { ", " };
        let _ = write!(
            text,
            "{separator}{} {} for {:.1} s",
            child.method,
            String::from_utf8_lossy(&uri),
            child.since
        );
    }
    if busy.len() > NAMED {
        text += ", …";
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use howdah_executor::status::PoolStatus;

    use super::*;

    #[test]
    fn a_stop_names_the_requests_it_waits_for() {
        let mut status = ServerStatus::default();
        assert_eq!(sentence(&status, AGAIN), None);
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
            sentence(&status, Duration::from_millis(9200)).unwrap(),
            "waiting for 2 requests, for 10 s at most (a second signal ends them at once): \
             GET /a.php?\\x1B[2J for 3.2 s"
        );
    }
}
