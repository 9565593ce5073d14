//! The dashboard: a page that shows a server live, by server-sent events. One snapshot a second is taken for
//! all who look, and none when nobody does. The page is three files of this program; nothing comes from
//! elsewhere, and nothing in it is inline, so its Content-Security-Policy allows nothing else.
//!
//! - [`crate::status_listener`] shows it of its own server, and changes nothing.
//! - [`relay`] shows a server to one person on loopback, with buttons: `howdah dashboard`.

pub mod relay;

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use howdah_http::message::ResponseHead;
use howdah_http::{ClientGone, Length, Responder};
use tokio::sync::watch;

use crate::admin::ServerStatus;

/// The time between two snapshots.
const EVERY: Duration = Duration::from_secs(1);
/// Most dashboards of a server at once: each is a connection.
const DASHBOARDS: usize = 64;
/// Most children of a pool in a snapshot; idle ones are left out first.
const CHILDREN: usize = 200;

const POLICY: &[u8] =
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The server that is shown.
pub trait Source: Send + Sync + 'static {
    /// The dashboards that show it.
    fn snapshots(&self) -> &Snapshots;

    /// Its status now, or why there is none.
    fn snapshot(&self) -> impl Future<Output = Result<ServerStatus, String>> + Send;
}

/// Sends snapshots to all open dashboards.
pub struct Snapshots {
    events: watch::Sender<Bytes>,
    taking: AtomicBool,
}

impl Default for Snapshots {
    fn default() -> Snapshots {
        Snapshots {
            events: watch::Sender::new(Bytes::new()),
            taking: AtomicBool::new(false),
        }
    }
}

impl Snapshots {
    /// Sends snapshots of `source` until the client leaves.
    pub(crate) async fn stream<S: Source>(source: &Arc<S>, out: &mut Responder) {
        let snapshots = source.snapshots();
        if snapshots.events.receiver_count() >= DASHBOARDS {
            let body = format!("TooManyDashboards: {DASHBOARDS} are open already\n");
            let mut head = ResponseHead::new(503);
            head.header(b"Content-Type", b"text/plain; charset=utf-8")
                .header(b"Howdah-Error", b"TooManyDashboards")
                .header(b"Retry-After", b"10");
            return out.answer(&head, body);
        }
        let mut events = snapshots.events.subscribe();
        if !snapshots.taking.swap(true, Ordering::AcqRel) {
            tokio::spawn(take(source.clone()));
        } else {
            // The last one is shown at once.
            events.mark_changed();
        }
        let mut head = ResponseHead::new(200);
        head.header(b"Content-Type", b"text/event-stream")
            .header(b"Cache-Control", b"no-store")
            .header(b"X-Accel-Buffering", b"no");
        out.begin(&head, Length::Unknown);
        // It ends when the client leaves.
        let Err(ClientGone) = send(&mut events, out).await;
        out.abort();
    }
}

async fn send(
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

/// Takes snapshots as long as somebody looks.
async fn take<S: Source>(source: Arc<S>) {
    let snapshots = source.snapshots();
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if snapshots.events.receiver_count() == 0 {
            // Both are tasks of one thread: the next dashboard sees this, and begins again.
            snapshots.taking.store(false, Ordering::Release);
            return;
        }
        let event = match source.snapshot().await {
            Ok(status) => event_of(status),
            Err(why) => event("trouble", &serde_json::Value::from(why).to_string()),
        };
        snapshots.events.send_replace(event);
    }
}

/// A snapshot as an event. Of a pool with very many children, those that do something.
fn event_of(mut status: ServerStatus) -> Bytes {
    for pool in &mut status.pools {
        if pool.children.len() > CHILDREN {
            pool.children.sort_by_key(|child| child.state == "Idle");
            pool.children.truncate(CHILDREN);
        }
    }
    // The type has only strings for keys and finite numbers.
    event(
        "status",
        &serde_json::to_string(&status).unwrap_or_default(),
    )
}

/// JSON has no line end within.
fn event(name: &str, json: &str) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {json}\n\n"))
}

/// A file of the page, relative to where the page is. `acts`: there are buttons.
pub(crate) fn file(path: &[u8], acts: bool) -> Option<(ResponseHead, Bytes)> {
    let (media_type, text) = match path {
        b"" => {
            let page = include_str!("page/index.html");
            let page = match acts {
                true => page.replace("data-acts=\"no\"", "data-acts=\"yes\""),
                false => page.to_owned(),
            };
            ("text/html; charset=utf-8", Bytes::from(page))
        }
        b"dashboard.css" => (
            "text/css; charset=utf-8",
            Bytes::from_static(include_bytes!("page/dashboard.css")),
        ),
        b"dashboard.js" => (
            "text/javascript; charset=utf-8",
            Bytes::from_static(include_bytes!("page/dashboard.js")),
        ),
        _ => return None,
    };
    let mut head = ResponseHead::new(200);
    head.header(b"Content-Type", media_type.as_bytes())
        .header(b"Cache-Control", b"no-cache")
        .header(b"Content-Security-Policy", POLICY)
        .header(b"Referrer-Policy", b"no-referrer")
        .header(b"X-Content-Type-Options", b"nosniff");
    Some((head, text))
}

#[cfg(test)]
mod tests {
    use howdah_executor::status::{ChildRow, PoolStatus};

    use super::*;

    #[test]
    fn a_snapshot_has_the_busy_ones_of_very_many_children() {
        let child = |index: u16| ChildRow {
            index,
            state: if index >= 900 { "Busy" } else { "Idle" }.to_owned(),
            ..ChildRow::default()
        };
        let event = event_of(ServerStatus {
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
        assert_eq!(children.len(), CHILDREN);
        assert_eq!(children.iter().filter(|c| c.state == "Busy").count(), 100);
    }

    #[test]
    fn the_page_has_nothing_inline_and_nothing_from_elsewhere() {
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
        let script = include_str!("page/dashboard.js");
        for forbidden in ["innerHTML", "eval(", "import(", "insertAdjacentHTML"] {
            assert!(!script.contains(forbidden), "{forbidden}");
        }
        let (head, _) = file(b"", true).unwrap();
        assert!(
            head.fields()
                .any(|(name, _)| name == b"Content-Security-Policy")
        );
        assert!(file(b"", true).unwrap().1 != file(b"", false).unwrap().1);
        assert!(file(b"../x", false).is_none());
    }
}
