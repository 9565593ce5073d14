//! `[status] listen`: a listener for probes, Prometheus and people. A server of its own with one thread,
//! beside the one of the sites: it answers before PHP is ready, when all connections of the sites are
//! taken, while a front thread is blocked, and until the process ends. Changes nothing: all it knows are
//! `GET` and `HEAD`.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;

use crate::admin::{ServerStatus, StatusForm, StatusListenerCounts};
use crate::client_address::split_host;
use crate::http::message::{RequestHead, ResponseHead};
use crate::http::{ConnInfo, Handler, HttpConfig, Length, Notice, RequestBody, Responder};
use crate::listener::{Control, Server, StartError, ThreadHooks};
use crate::network::Network;
use crate::request::Front;
use crate::turn;

/// Most connections at once; a new one takes the place of the one that is idle longest.
const CONNECTIONS: u32 = 128;
/// How long a front thread may take to come to its event loop before the server does not count as alive.
const TURN: Duration = Duration::from_secs(5);

/// What there is, for who asks for something else.
const PATHS: &str = "/livez /readyz /status /status?json /metrics\n";

/// Answers the requests of the status listener.
#[derive(Default)]
pub struct StatusListener {
    /// Once a configuration is served.
    serving: OnceLock<(Arc<Front>, Control)>,
    stopping: AtomicBool,
    /// Who may see more than the probes.
    allow: ArcSwap<Vec<Network>>,
    requests: AtomicU64,
    /// The listener's own.
    own: OnceLock<Control>,
}

/// An answer as it is sent.
struct Answer {
    status: u16,
    content_type: &'static str,
    body: String,
}

impl Answer {
    fn text(status: u16, body: impl Into<String>) -> Answer {
        Answer {
            status,
            content_type: "text/plain; charset=utf-8",
            body: body.into(),
        }
    }
}

impl StatusListener {
    /// Starts the thread that serves it; listeners are added by [`Server::control`].
    pub fn start(self: &Arc<Self>) -> Result<Server, StartError> {
        let hooks = ThreadHooks {
            name: "status",
            start: Arc::new(|_| turn::leave_out_this_thread()),
            park: Arc::new(|| {}),
            unpark: Arc::new(|| {}),
        };
        let config = HttpConfig {
            max_header_bytes: 8 << 10,
            header_timeout: Duration::from_secs(5),
            body_timeout: Duration::from_secs(5),
            min_rate: 240,
            keepalive_timeout: Duration::from_secs(75),
            keepalive_requests: 0,
            send_timeout: Duration::from_secs(10),
            max_connections: Some(CONNECTIONS),
        };
        let server = Server::start(Vec::new(), self.clone(), 1, config, hooks)?;
        // Started once.
        let _ = self.own.set(server.control());
        Ok(server)
    }

    /// Shows status and metrics to these clients. Of a unix socket, its file's mode decides.
    pub fn allow(&self, networks: Vec<Network>) {
        self.allow.store(Arc::new(networks));
    }

    /// The first configuration is served, by `front` on the threads of `control`.
    pub fn serving(&self, front: Arc<Front>, control: Control) {
        // Once: there is one first configuration.
        let _ = self.serving.set((front, control));
    }

    /// The server has been told to stop.
    pub fn stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    async fn answer(&self, request: &RequestHead, conn: &ConnInfo) -> Answer {
        if !matches!(request.method(), b"GET" | b"HEAD") {
            return Answer::text(405, "The status listener changes nothing: GET or HEAD.\n");
        }
        match request.path() {
            b"/livez" => return self.live().await,
            b"/readyz" => return self.ready(),
            _ => {}
        }
        if let Err(why) = self.admit(request, conn) {
            return Answer::text(403, why);
        }
        let form = match request.path() {
            b"/status" => StatusForm::of(request),
            b"/metrics" => StatusForm::metrics(request),
            _ => return Answer::text(404, PATHS),
        };
        match self.status() {
            Some(status) => Answer {
                status: 200,
                content_type: form.content_type(),
                body: form.write(&status),
            },
            None => Answer::text(503, STARTING),
        }
    }

    /// The front's status, and this listener's own.
    fn status(&self) -> Option<ServerStatus> {
        let (front, _) = self.serving.get()?;
        let mut status = front.status();
        status.status_listener = self.own.get().map(|own| StatusListenerCounts {
            connections: own.stats().open,
            requests: self.requests.load(Ordering::Relaxed),
        });
        Some(status)
    }

    async fn live(&self) -> Answer {
        let Some((_, control)) = self.serving.get() else {
            return Answer::text(200, "alive, PHP is being started\n");
        };
        match tokio::time::timeout(TURN, control.turn()).await {
            Ok(()) => Answer::text(200, "alive\n"),
            Err(_) => Answer::text(
                503,
                format!(
                    "FrontHung: a front thread has not come to its event loop for {} s\n",
                    TURN.as_secs()
                ),
            ),
        }
    }

    fn ready(&self) -> Answer {
        if self.stopping.load(Ordering::Relaxed) {
            return Answer::text(503, "Stopping: requests in progress are being finished\n");
        }
        let Some((front, _)) = self.serving.get() else {
            return Answer::text(503, STARTING);
        };
        let pools = front.pools();
        if pools.is_empty() || pools.iter().any(|pool| pool.is_up()) {
            return Answer::text(200, "ready\n");
        }
        let each = pools
            .iter()
            .map(|pool| format!("pool {}: {}\n", pool.pool, pool.state));
        Answer::text(
            503,
            format!(
                "PoolDown: no pool can run PHP\n{}",
                each.collect::<String>()
            ),
        )
    }

    /// Whether the client may see what visitors do.
    fn admit(&self, request: &RequestHead, conn: &ConnInfo) -> Result<(), &'static str> {
        let Some(peer) = conn.peer else {
            return Ok(());
        };
        let peer = peer.ip().to_canonical();
        if !self.allow.load().iter().any(|n| n.contains(peer)) {
            return Err("StatusDenied: [status] allow does not name your address\n");
        }
        if conn
            .local
            .is_some_and(|local| local.ip().to_canonical().is_loopback())
            && !is_this_machine(request.host())
        {
            return Err(
                "StatusDenied: ask by address or as localhost: another name may be a web page's that leads here\n",
            );
        }
        Ok(())
    }
}

const STARTING: &str = "Starting: PHP is being started\n";

/// Whether a browser can have come here only because somebody typed this machine's address: a page's own
/// name may be made to lead to 127.0.0.1 (DNS rebinding).
pub(crate) fn is_this_machine(host: &[u8]) -> bool {
    let name = split_host(host).0;
    let name = std::str::from_utf8(name).unwrap_or_default();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.is_empty() || name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

impl Handler for StatusListener {
    async fn handle<'a>(
        &'a self,
        request: &'a RequestHead,
        conn: &'a ConnInfo,
        _body: &'a mut RequestBody,
        out: &'a mut Responder,
    ) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let answer = self.answer(request, conn).await;
        let mut head = ResponseHead::new(answer.status);
        head.header(b"Content-Type", answer.content_type.as_bytes());
        head.header(b"Cache-Control", b"no-store");
        head.header(b"X-Content-Type-Options", b"nosniff");
        out.begin(&head, Length::Known(answer.body.len() as u64));
        out.push(Bytes::from(answer.body));
        out.end();
    }

    fn notice(&self, notice: &Notice<'_>) {
        // What is a fault of ours, or of the machine's, is the front's to log.
        let fault = matches!(
            notice,
            Notice::HandlerPanicked { .. } | Notice::NoAnswer { .. } | Notice::AcceptFailed { .. }
        );
        if let (true, Some((front, _))) = (fault, self.serving.get()) {
            front.notice(notice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_web_pages_do_not_lead_to_the_status() {
        for host in [
            "127.0.0.1:9180",
            "[::1]:9180",
            "localhost",
            "LocalHost:1",
            "",
        ] {
            assert!(is_this_machine(host.as_bytes()), "{host}");
        }
        for host in [
            "evil.example:9180",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
        ] {
            assert!(!is_this_machine(host.as_bytes()), "{host}");
        }
    }
}
