//! `[status] listen`: a listener for probes, Prometheus and administrators. It is a separate server with one thread, so
//! it responds before PHP is ready, when all connections of the sites are taken, while a front thread is blocked, and
//! until the process exits. It changes nothing and supports only `GET` and `HEAD`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use howdah_http::listener::{HttpServer, ServerControl, ServerStartError, ThreadHooks};
use howdah_http::message::{RequestHead, ResponseHead};
use howdah_http::network::AddressBlock;
use howdah_http::turn;
use howdah_http::{
    ConnectionInfo, ConnectionNotice, HttpConfig, RequestBody, RequestHandler, Responder,
};

use crate::admin::{ServerStatus, StatusForm, StatusListenerCounts};
use crate::dashboard::{self, SnapshotSender, SnapshotSource};
use crate::request::Front;
use howdah_site::client_address::is_loopback_or_literal_host;

/// The maximum number of connections. A new one beyond that replaces the one that has been idle longest.
const MAX_CONNECTIONS: u32 = 128;
/// How long a front thread may take to reach its event loop before the server is considered hung.
const MAX_TURN: Duration = Duration::from_secs(5);

/// The text of a 404.
const NOT_FOUND_TEXT: &str =
    "not found; the paths are /, /livez, /readyz, /status, /status?json and /metrics";
const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

/// Handles the requests of the status listener.
#[derive(Default)]
pub struct StatusListener {
    shown: Arc<ListenerStatus>,
    stopping: AtomicBool,
    /// The networks that may see more than the probes.
    allow: ArcSwap<Vec<AddressBlock>>,
}

/// The server whose status is shown, and the listener's own counts.
#[derive(Default)]
struct ListenerStatus {
    /// Set when the first configuration is served.
    serving: OnceLock<(Arc<Front>, ServerControl)>,
    /// The control of the listener itself.
    own: OnceLock<ServerControl>,
    requests: AtomicU64,
    snapshots: SnapshotSender,
}

impl ListenerStatus {
    /// Returns the front's status, including this listener's own.
    fn status(&self) -> Option<ServerStatus> {
        let (front, _) = self.serving.get()?;
        let mut status = front.status();
        status.status_listener = self.own.get().map(|own| StatusListenerCounts {
            connections: own.stats().open,
            requests: self.requests.load(Ordering::Relaxed),
        });
        Some(status)
    }
}

impl SnapshotSource for ListenerStatus {
    fn snapshots(&self) -> &SnapshotSender {
        &self.snapshots
    }

    async fn snapshot(&self) -> Result<ServerStatus, String> {
        self.status()
            .ok_or_else(|| "PHP is being started".to_owned())
    }
}

/// Starts a server with one thread and short deadlines, for few clients. Listeners are added through
/// [`HttpServer::control`].
pub fn start_small_server<H: RequestHandler>(
    handler: Arc<H>,
    name: &'static str,
) -> Result<HttpServer, ServerStartError> {
    let hooks = ThreadHooks {
        start: Arc::new(|_| turn::disable_recording()),
        ..ThreadHooks::named(name)
    };
    let config = HttpConfig {
        max_header_bytes: 8 << 10,
        header_timeout: Duration::from_secs(5),
        body_timeout: Duration::from_secs(5),
        min_rate: 240,
        keepalive_timeout: Duration::from_secs(75),
        keepalive_requests: 0,
        send_timeout: Duration::from_secs(10),
        max_connections: Some(MAX_CONNECTIONS),
    };
    HttpServer::start(Vec::new(), handler, 1, config, hooks)
}

/// A response to be sent.
struct ProbeResponse {
    status: u16,
    content_type: &'static str,
    /// The name of an error, for `Howdah-Error`.
    name: Option<&'static str>,
    body: String,
}

impl ProbeResponse {
    fn ok(body: &str) -> ProbeResponse {
        ProbeResponse {
            status: 200,
            content_type: PLAIN_TEXT,
            name: None,
            body: format!("{body}\n"),
        }
    }

    fn error(status: u16, name: &'static str, why: &str) -> ProbeResponse {
        ProbeResponse {
            status,
            content_type: PLAIN_TEXT,
            name: Some(name),
            body: format!("{name}: {why}\n"),
        }
    }

    /// Returns the response while there is no configuration yet.
    fn starting() -> ProbeResponse {
        ProbeResponse::error(503, "Starting", "PHP is being started")
    }
}

impl StatusListener {
    /// Starts the thread of the listener.
    pub fn start(self: &Arc<Self>) -> Result<HttpServer, ServerStartError> {
        let server = start_small_server(self.clone(), "status")?;
        // The listener is started only once, so this cannot fail.
        let _ = self.shown.own.set(server.control());
        Ok(server)
    }

    /// Shows status and metrics to these clients. Access through a unix socket is decided by the mode of its file.
    pub fn set_allowed_networks(&self, networks: Vec<AddressBlock>) {
        self.allow.store(Arc::new(networks));
    }

    /// Records that the first configuration is served, by `front` on the threads of `control`.
    pub fn set_serving(&self, front: Arc<Front>, control: ServerControl) {
        // This is set once, because there is one first configuration.
        let _ = self.shown.serving.set((front, control));
    }

    /// Records that the server has begun to stop, after which it is not ready any more.
    pub fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    async fn answer(&self, request: &RequestHead, conn: &ConnectionInfo) -> ProbeResponse {
        if !matches!(request.method(), b"GET" | b"HEAD") {
            return ProbeResponse::error(
                405,
                "MethodNotAllowed",
                "only GET and HEAD are supported",
            );
        }
        match request.path() {
            b"/livez" => return self.live().await,
            b"/readyz" => return self.ready(),
            _ => {}
        }
        if let Err(why) = self.check_access(request, conn) {
            return ProbeResponse::error(403, "StatusDenied", why);
        }
        let form = match request.path() {
            b"/status" => StatusForm::requested_by(request),
            b"/metrics" => StatusForm::metrics_accepted_by(request),
            _ => return ProbeResponse::error(404, "NotFound", NOT_FOUND_TEXT),
        };
        match self.shown.status() {
            Some(status) => ProbeResponse {
                status: 200,
                content_type: form.content_type(),
                name: None,
                body: form.write(&status),
            },
            None => ProbeResponse::starting(),
        }
    }

    async fn live(&self) -> ProbeResponse {
        let Some((_, control)) = self.shown.serving.get() else {
            return ProbeResponse::ok("alive; PHP is being started");
        };
        match tokio::time::timeout(MAX_TURN, control.wait_for_turns()).await {
            Ok(()) => ProbeResponse::ok("alive"),
            Err(_) => {
                let seconds = MAX_TURN.as_secs();
                let why =
                    format!("a front thread has not returned to its event loop for {seconds} s");
                ProbeResponse::error(503, "FrontHung", &why)
            }
        }
    }

    fn ready(&self) -> ProbeResponse {
        if self.stopping.load(Ordering::Relaxed) {
            return ProbeResponse::error(
                503,
                "Stopping",
                "requests in progress are being finished",
            );
        }
        let Some((front, _)) = self.shown.serving.get() else {
            return ProbeResponse::starting();
        };
        let pools = front.pools();
        if pools.is_empty() || pools.iter().any(|pool| pool.is_up()) {
            return ProbeResponse::ok("ready");
        }
        let mut why = "no pool can run PHP".to_owned();
        for pool in &pools {
            why = format!("{why}\npool {}: {}", pool.pool, pool.state);
        }
        ProbeResponse::error(503, "PoolDown", &why)
    }

    /// Checks whether the client may see the status and the dashboard.
    fn check_access(
        &self,
        request: &RequestHead,
        conn: &ConnectionInfo,
    ) -> Result<(), &'static str> {
        let Some(peer) = conn.peer else {
            return Ok(());
        };
        let peer = peer.ip().to_canonical();
        if !self.allow.load().iter().any(|n| n.contains(peer)) {
            return Err("your address is not in `allow` of [status]");
        }
        let local = conn.local.map(|local| local.ip().to_canonical());
        if local.is_some_and(|local| local.is_loopback())
            && !is_loopback_or_literal_host(request.host())
        {
            return Err(
                "use an address or localhost as the host: another name could belong to a web page that attacks this server (DNS rebinding)",
            );
        }
        Ok(())
    }
}

impl RequestHandler for StatusListener {
    async fn handle<'a>(
        &'a self,
        request: &'a RequestHead,
        conn: &'a ConnectionInfo,
        _body: &'a mut RequestBody,
        out: &'a mut Responder,
    ) {
        self.shown.requests.fetch_add(1, Ordering::Relaxed);
        let method = request.method();
        if matches!(method, b"GET" | b"HEAD")
            && let Some(path) = request.path().strip_prefix(b"/")
            && self.check_access(request, conn).is_ok()
        {
            if path == b"events" && method == b"GET" {
                return SnapshotSender::stream(&self.shown, out).await;
            }
            if let Some((head, text)) = dashboard::page_file(path, false) {
                return out.respond(&head, text);
            }
        }
        let answer = self.answer(request, conn).await;
        let mut head = ResponseHead::new(answer.status);
        head.header(b"Content-Type", answer.content_type.as_bytes());
        head.header(b"Cache-Control", b"no-store");
        head.header(b"X-Content-Type-Options", b"nosniff");
        if let Some(name) = answer.name {
            head.header(b"Howdah-Error", name.as_bytes());
        }
        out.respond(&head, answer.body);
    }

    fn notice(&self, notice: &ConnectionNotice<'_>) {
        // Faults of the server or the machine are logged by the front.
        let fault = matches!(
            notice,
            ConnectionNotice::HandlerPanicked { .. }
                | ConnectionNotice::NoAnswer { .. }
                | ConnectionNotice::AcceptFailed { .. }
        );
        if let (true, Some((front, _))) = (fault, self.shown.serving.get()) {
            front.notice(notice);
        }
    }
}
