//! Health checks of servers (`proxy_health`).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::Request;

use super::connections;
use super::exchange::adapt_to_version;
use super::server::{UpstreamServer, log_event};
use super::upload::Upload;
use howdah_log::log::error::ErrorLog;

/// The interval of health checks while the server is down.
const DOWN_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The interval while the server is up, as a multiple of [`DOWN_CHECK_INTERVAL`].
const UP_INTERVAL_FACTOR: u32 = 5;
/// How long the response to a health check may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// Starts the health checks of a server with the first request to it. They continue while a configuration contains the
/// server. Call it on a front thread.
pub(super) fn start_checks(server: &Arc<UpstreamServer>, log: &Arc<ErrorLog>) {
    if let Some(path) = &server.health_path
        && !server.is_checked.swap(true, Ordering::Relaxed)
    {
        let task = check_repeatedly(Arc::downgrade(server), path.clone(), log.clone());
        tokio::spawn(howdah_http::turn::measure("asking a proxied server", task));
    }
}

async fn check_repeatedly(server: Weak<UpstreamServer>, path: Box<str>, log: Arc<ErrorLog>) {
    loop {
        let Some(asked) = server.upgrade() else {
            return;
        };
        let outcome = tokio::time::timeout(CHECK_TIMEOUT, check_once(&asked, &path)).await;
        let news = asked.note_health_check(outcome.unwrap_or_else(|_| {
            Err(format!(
                "no response to GET {path} within {} s",
                CHECK_TIMEOUT.as_secs()
            ))
        }));
        log_event(&log, news);
        drop(asked);
        for _ in 0..UP_INTERVAL_FACTOR {
            tokio::time::sleep(DOWN_CHECK_INTERVAL).await;
            if !server.upgrade().is_some_and(|server| server.is_up()) {
                break;
            }
        }
    }
}

async fn check_once(server: &Arc<UpstreamServer>, path: &str) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let mut sender = connections::connect(server).await.map_err(|e| text(&e))?;
    let request = Request::get(path)
        .header("User-Agent", "Howdah (health check)")
        .body(())
        .map_err(|e| text(&e))?;
    let request = adapt_to_version(&request, server, sender.is_http2()).map(|()| Upload::none());
    let answer = sender.send(request).await;
    let answer = answer.map_err(|failed| text(&failed.error))?;
    match answer.status().as_u16() {
        200..400 => Ok(()),
        status => Err(format!("GET {path} returned status {status}")),
    }
}
