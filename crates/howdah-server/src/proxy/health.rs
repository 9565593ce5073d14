//! Health checks of servers (`proxy_health`).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use howdah_executor::fastcgi::address::Address;
use http::Request;

use super::connections;
use super::exchange::fit;
use super::server::{Server, tell};
use super::upload::Upload;
use crate::log::error::ErrorLog;

/// The interval of health checks while the server is down.
const STEP: Duration = Duration::from_secs(1);
/// The interval while it is up, as a multiple of the one above.
const STEPS: u32 = 5;
/// How long the response to a health check may take.
const ANSWER: Duration = Duration::from_secs(2);

/// Starts the health checks of a server with the first request to it. They continue while a configuration contains the
/// server. Call it on a front thread.
pub(super) fn watch(server: &Arc<Server>, log: &Arc<ErrorLog>) {
    if let Some(path) = &server.asked_for
        && !server.watched.swap(true, Ordering::Relaxed)
    {
        let task = ask_again_and_again(Arc::downgrade(server), path.clone(), log.clone());
        tokio::spawn(howdah_http::turn::measured("asking a proxied server", task));
    }
}

async fn ask_again_and_again(server: Weak<Server>, path: Box<str>, log: Arc<ErrorLog>) {
    loop {
        let Some(asked) = server.upgrade() else {
            return;
        };
        let outcome = tokio::time::timeout(ANSWER, ask(&asked, &path)).await;
        let news = asked.examined(outcome.unwrap_or_else(|_| {
            Err(format!(
                "no answer to GET {path} within {} s",
                ANSWER.as_secs()
            ))
        }));
        tell(&log, news);
        drop(asked);
        for _ in 0..STEPS {
            tokio::time::sleep(STEP).await;
            if !server.upgrade().is_some_and(|server| server.is_up()) {
                break;
            }
        }
    }
}

async fn ask(server: &Arc<Server>, path: &str) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let mut sender = connections::connect(server).await.map_err(|e| text(&e))?;
    let host = match &server.at.address {
        Address::Unix(_) => "localhost".to_owned(),
        address => address.to_string(),
    };
    let request = Request::get(path)
        .header("Host", host)
        .header("User-Agent", "Howdah (health check)")
        .body(())
        .map_err(|e| text(&e))?;
    let request = fit(&request, sender.is_http2()).map(|()| Upload::none());
    let answer = sender.send(request).await;
    let answer = answer.map_err(|failed| text(&failed.error))?;
    match answer.status().as_u16() {
        200..400 => Ok(()),
        status => Err(format!("GET {path} is answered {status}")),
    }
}
