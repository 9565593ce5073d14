//! The dashboard: a page that shows a server live, by server-sent events. One snapshot per second is taken for all open
//! dashboards, and none while there are none. The page consists of a few files that are compiled into the program;
//! nothing is loaded from elsewhere and nothing in it is inline, so its Content-Security-Policy allows nothing else.
//!
//! - `names` explains the names of failures and of cache reasons on the page.
//! - [`crate::status_listener`] shows the dashboard of its own server, without buttons.
//! - [`relay`] shows a server to one user on loopback, with buttons: `howdah dashboard`.

mod names;
pub mod relay;

use std::cmp::Reverse;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use howdah_http::message::ResponseHead;
use howdah_http::{ClientGone, Responder, ResponseLength};
use tokio::sync::watch;

use crate::admin::ServerStatus;
use crate::traffic::PageTraffic;

/// The time between two snapshots.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of open dashboards of a server; each is a connection.
const MAX_DASHBOARDS: usize = 64;
/// The maximum number of children of a pool in a snapshot; idle ones are omitted first.
const MAX_SHOWN_CHILDREN: usize = 200;
/// The maximum number of sites in a snapshot. The sites with the fewest requests are omitted.
const MAX_SHOWN_SITES: usize = 50;
/// How many of a site's most frequent and of its slowest pages are in a snapshot.
const SHOWN_PAGES: usize = 8;

const CONTENT_SECURITY_POLICY: &[u8] =
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The server that a dashboard shows.
pub trait SnapshotSource: Send + Sync + 'static {
    /// Returns the sender of the server's snapshots.
    fn snapshots(&self) -> &SnapshotSender;

    /// Returns the server's current status, or why it is not available.
    fn snapshot(&self) -> impl Future<Output = Result<ServerStatus, String>> + Send;
}

/// The sender of snapshots to all open dashboards.
pub struct SnapshotSender {
    events: watch::Sender<Bytes>,
    is_taking: AtomicBool,
}

impl Default for SnapshotSender {
    fn default() -> SnapshotSender {
        SnapshotSender {
            events: watch::Sender::new(Bytes::new()),
            is_taking: AtomicBool::new(false),
        }
    }
}

impl SnapshotSender {
    /// Sends snapshots of `source` until the client disconnects.
    pub(crate) async fn stream<S: SnapshotSource>(source: &Arc<S>, out: &mut Responder) {
        let snapshots = source.snapshots();
        if snapshots.events.receiver_count() >= MAX_DASHBOARDS {
            let body = format!("TooManyDashboards: {MAX_DASHBOARDS} dashboards are already open\n");
            let mut head = ResponseHead::new(503);
            head.header(b"Content-Type", b"text/plain; charset=utf-8")
                .header(b"Howdah-Error", b"TooManyDashboards")
                .header(b"Retry-After", b"10");
            return out.respond(&head, body);
        }
        let mut events = snapshots.events.subscribe();
        if !snapshots.is_taking.swap(true, Ordering::AcqRel) {
            tokio::spawn(take_snapshots(source.clone()));
        } else {
            // The last snapshot is shown at once.
            events.mark_changed();
        }
        let mut head = ResponseHead::new(200);
        head.header(b"Content-Type", b"text/event-stream")
            .header(b"Cache-Control", b"no-store")
            .header(b"X-Accel-Buffering", b"no");
        out.begin(&head, ResponseLength::Unknown);
        // This ends when the client disconnects.
        let Err(ClientGone) = send_snapshots(&mut events, out).await;
        out.abort();
    }
}

async fn send_snapshots(
    events: &mut watch::Receiver<Bytes>,
    out: &mut Responder,
) -> Result<Infallible, ClientGone> {
    loop {
        out.flush().await?;
        tokio::select! {
            changed = events.changed() => changed.map_err(|_| ClientGone)?,
            () = poll_fn(|cx| out.poll_client_gone(cx)) => return Err(ClientGone),
        }
        let event = events.borrow_and_update().clone();
        if !event.is_empty() {
            out.push_shared(&event);
        }
    }
}

/// Takes snapshots while there are open dashboards.
async fn take_snapshots<S: SnapshotSource>(source: Arc<S>) {
    let snapshots = source.snapshots();
    let mut ticks = tokio::time::interval(SNAPSHOT_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if snapshots.events.receiver_count() == 0 {
            // This task and the dashboards' tasks run on one thread, so the next dashboard sees this value and starts a
            // new task.
            snapshots.is_taking.store(false, Ordering::Release);
            return;
        }
        let event = match source.snapshot().await {
            Ok(status) => snapshot_event(status),
            Err(why) => event("trouble", &serde_json::Value::from(why).to_string()),
        };
        snapshots.events.send_replace(event);
    }
}

/// Returns a snapshot as an event, without the parts that the page does not show: idle children if there are too many
/// children, the least requested sites if there are too many sites, and the pages of a site that are neither frequent
/// nor slow.
fn snapshot_event(mut status: ServerStatus) -> Bytes {
    for pool in &mut status.pools {
        if pool.children.len() > MAX_SHOWN_CHILDREN {
            pool.children.sort_by_key(|child| child.state == "Idle");
            pool.children.truncate(MAX_SHOWN_CHILDREN);
        }
    }
    if status.sites.len() > MAX_SHOWN_SITES {
        status.sites.sort_by_key(|site| Reverse(site.requests));
        status.sites.truncate(MAX_SHOWN_SITES);
    }
    for site in &mut status.sites {
        if let Some(others) = site.pages.get_mut(SHOWN_PAGES..) {
            let average = |page: &PageTraffic| page.seconds / page.requests.max(1) as f64;
            others.sort_by(|a, b| average(b).total_cmp(&average(a)));
        }
        site.pages.truncate(2 * SHOWN_PAGES);
    }
    // This cannot fail: the type has only strings for keys, and finite numbers.
    event(
        "status",
        &serde_json::to_string(&status).unwrap_or_default(),
    )
}

/// Returns an event. The JSON has no line breaks.
fn event(name: &str, json: &str) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {json}\n\n"))
}

/// The scripts of the page by their names. `dashboard.js` imports the others.
const SCRIPTS: [(&str, &str); 8] = [
    ("dashboard.js", include_str!("page/dashboard.js")),
    ("elements.js", include_str!("page/elements.js")),
    ("figures.js", include_str!("page/figures.js")),
    ("graph.js", include_str!("page/graph.js")),
    ("rates.js", include_str!("page/rates.js")),
    ("sections.js", include_str!("page/sections.js")),
    ("sites.js", include_str!("page/sites.js")),
    ("tiles.js", include_str!("page/tiles.js")),
];

/// Returns a file of the page by its relative path. `acts` says whether the page has buttons.
pub(crate) fn page_file(path: &[u8], acts: bool) -> Option<(ResponseHead, Bytes)> {
    let (media_type, text) = match path {
        b"" => {
            let page = include_str!("page/index.html");
            let page = match acts {
                true => page.replace("data-acts=\"no\"", "data-acts=\"yes\""),
                false => page.to_owned(),
            };
            ("text/html; charset=utf-8", Bytes::from(page))
        }
        b"names.html" => ("text/html; charset=utf-8", Bytes::from(names::page())),
        b"names.json" => ("application/json", Bytes::from(names::json())),
        b"dashboard.css" => (
            "text/css; charset=utf-8",
            Bytes::from_static(include_bytes!("page/dashboard.css")),
        ),
        script => {
            let (_, text) = SCRIPTS.iter().find(|(name, _)| name.as_bytes() == script)?;
            let text = Bytes::from_static(text.as_bytes());
            ("text/javascript; charset=utf-8", text)
        }
    };
    let mut head = ResponseHead::new(200);
    head.header(b"Content-Type", media_type.as_bytes())
        .header(b"Cache-Control", b"no-cache")
        .header(b"Content-Security-Policy", CONTENT_SECURITY_POLICY)
        .header(b"Referrer-Policy", b"no-referrer")
        .header(b"X-Content-Type-Options", b"nosniff");
    Some((head, text))
}

#[cfg(test)]
mod tests {
    use howdah_executor::status::{ChildRow, PoolStatus};

    use super::*;
    use crate::traffic::SiteStatus;

    #[test]
    fn snapshot_has_the_busy_ones_of_very_many_children() {
        let child = |index: u16| ChildRow {
            index,
            state: if index >= 900 { "Busy" } else { "Idle" }.to_owned(),
            ..ChildRow::default()
        };
        let event = snapshot_event(ServerStatus {
            pools: vec![PoolStatus {
                children: (0..1000).map(child).collect(),
                ..PoolStatus::default()
            }],
            ..ServerStatus::default()
        });
        let text = std::str::from_utf8(&event).unwrap();
        let json = text.strip_prefix("event: status\ndata: ").unwrap();
        let status: ServerStatus =
            serde_json::from_str(json.strip_suffix("\n\n").unwrap()).unwrap();
        let children = &status.pools[0].children;
        assert_eq!(children.len(), MAX_SHOWN_CHILDREN);
        assert_eq!(children.iter().filter(|c| c.state == "Busy").count(), 100);
    }

    #[test]
    fn snapshot_has_the_most_frequent_and_the_slowest_pages() {
        let page = |n: u64| PageTraffic {
            path: format!("/{n}"),
            requests: 1000 - n,
            seconds: (1000 - n) as f64 * if n == 50 { 9.0 } else { 0.001 },
            ..PageTraffic::default()
        };
        let event = snapshot_event(ServerStatus {
            sites: vec![SiteStatus {
                pages: (0..64).map(page).collect(),
                ..SiteStatus::default()
            }],
            ..ServerStatus::default()
        });
        let text = std::str::from_utf8(&event).unwrap();
        for (path, shown) in [("/0", true), ("/7", true), ("/50", true), ("/63", false)] {
            assert_eq!(text.contains(&format!("\"{path}\"")), shown, "{path}");
        }
    }

    #[test]
    fn dashboard_page_has_nothing_inline_and_nothing_from_elsewhere() {
        let page = include_str!("page/index.html");
        for forbidden in [
            "<style",
            " style=",
            " onclick",
            " onload",
            "javascript:",
            "http",
        ] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        for script in page.split("<script").skip(1) {
            assert!(script.starts_with(" src=\"dashboard.js\""), "{script}");
        }
        for (name, script) in SCRIPTS {
            for forbidden in ["innerHTML", "eval(", "import(", "insertAdjacentHTML"] {
                assert!(!script.contains(forbidden), "{name}: {forbidden}");
            }
            for import in script.split("from '").skip(1) {
                let import = import.split('\'').next().unwrap_or_default();
                let file = import.strip_prefix("./").map(str::as_bytes);
                assert!(
                    page_file(file.unwrap_or(b"../x"), false).is_some(),
                    "{name}: {import}"
                );
            }
        }
        let (head, _) = page_file(b"", true).unwrap();
        assert!(
            head.fields()
                .any(|(name, _)| name == b"Content-Security-Policy")
        );
        assert!(page_file(b"", true).unwrap().1 != page_file(b"", false).unwrap().1);
        assert!(page_file(b"../x", false).is_none());
    }
}
