//! Sends spans to a collector by OTLP over HTTP: a bounded queue, and a thread of its own that empties it.
//! Whoever records a request never waits: what the queue does not take is dropped and counted. A batch
//! that the collector does not take now is tried again until it does, while the queue behind it fills.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc as std_mpsc};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use super::otlp;
use super::recording::Recorded;

/// Requests that wait to be sent; more are dropped.
pub const MOST_WAITING: usize = 8192;
/// Requests in one message: about a megabyte.
const BATCH: usize = 1024;
/// A message is sent when its first request has waited this long.
const DELAY: Duration = Duration::from_secs(1);
/// The queue is looked at this often meanwhile, so that its room is enough for a busy server.
const LOOK: Duration = Duration::from_millis(50);
/// For one message, from the name's look-up to the end of the answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// After a message that was not taken the next attempt is made after this time, then twice it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// At the end, how long the last message may take.
const LAST: Duration = Duration::from_secs(2);
/// Bytes of an answer that are read.
const LONGEST_ANSWER: usize = 64 << 10;

/// Where spans go, and by which name.
#[derive(Clone, Debug, PartialEq)]
pub struct ExporterConfig {
    /// The URL that messages are posted to.
    endpoint: Uri,
    /// `service.name`: what the traces of this server are found by.
    pub service: String,
    /// Fields of each message, such as credentials.
    headers: HeaderMap,
}

/// Why a URL or a header field cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExporterConfigError {
    /// Neither `http://` nor `https://` with a host.
    Endpoint,
    /// The name is no name of a header field, or the value cannot be sent.
    Header,
}

impl fmt::Display for ExporterConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ExporterConfigError::Endpoint => {
                "expected the URL of a collector that takes OTLP over HTTP, such as `http://127.0.0.1:4318`"
            }
            ExporterConfigError::Header => "not a header field that can be sent",
        })
    }
}

impl ExporterConfig {
    /// For a collector at this URL. `/v1/traces` is appended, as OpenTelemetry's own exporters do, unless
    /// it is there.
    ///
    /// # Errors
    /// It is no such URL.
    pub fn to(endpoint: &str) -> Result<ExporterConfig, ExporterConfigError> {
        const PATH: &str = "/v1/traces";
        let base = endpoint.trim_end_matches('/');
        let whole = match base.ends_with(PATH) {
            true => base.to_owned(),
            false => format!("{base}{PATH}"),
        };
        let uri: Uri = whole.parse().map_err(|_| ExporterConfigError::Endpoint)?;
        let known = matches!(uri.scheme_str(), Some("http" | "https"));
        let fits = known && uri.query().is_none() && uri.host().is_some_and(|h| !h.is_empty());
        if !fits || uri.authority().is_some_and(|a| a.as_str().contains('@')) {
            return Err(ExporterConfigError::Endpoint);
        }
        Ok(ExporterConfig {
            endpoint: uri,
            service: "howdah".to_owned(),
            headers: HeaderMap::new(),
        })
    }

    /// Sends this field with each message.
    ///
    /// # Errors
    /// It is no valid field.
    pub fn header(&mut self, name: &str, value: &str) -> Result<(), ExporterConfigError> {
        let name: HeaderName = name.parse().map_err(|_| ExporterConfigError::Header)?;
        let value = HeaderValue::from_str(value);
        let mut value = value.map_err(|_| ExporterConfigError::Header)?;
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(())
    }
}

/// A change in whether spans reach the collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It cannot be reached, does not answer, or is overloaded: spans wait, then are dropped.
    Unreachable(String),
    /// It refuses what it is sent: those spans are dropped.
    Refused(String),
    /// It takes spans again.
    WorksAgain {
        /// How many were dropped meanwhile.
        dropped: u64,
    },
}

/// What became of spans since the exporter was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpanCounts {
    /// Spans that the collector has taken.
    pub exported: u64,
    /// Spans that were dropped: nobody took them in time.
    pub dropped: u64,
}

#[derive(Debug, Default)]
struct Counters {
    exported: AtomicU64,
    dropped: AtomicU64,
}

/// The queue of a collector, and the thread that empties it. Dropping it lets the thread send what is left,
/// within two seconds.
pub struct Exporter {
    config: ExporterConfig,
    queue: mpsc::Sender<Box<Recorded>>,
    counters: Arc<Counters>,
    stop: watch::Sender<bool>,
    over: Mutex<std_mpsc::Receiver<()>>,
}

type Heard = Box<dyn Fn(News) + Send>;
type Http = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

impl Exporter {
    /// Starts the thread. `hear` is called by it when something changes.
    ///
    /// # Errors
    /// There is no thread to be had, or `https` finds no authority to trust.
    pub fn start(
        config: ExporterConfig,
        hear: impl Fn(News) + Send + 'static,
    ) -> io::Result<Arc<Exporter>> {
        let http = client(&config)?;
        let (queue, waiting) = mpsc::channel(MOST_WAITING);
        let (stop, stopping) = watch::channel(false);
        let (ended, over) = std_mpsc::channel();
        let counters = Arc::new(Counters::default());
        let sender = Sender {
            http,
            config: config.clone(),
            waiting,
            counters: counters.clone(),
            stopping,
            hear: Box::new(hear),
            losing: false,
            dropped_before: 0,
            reported: 0,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        std::thread::Builder::new()
            .name("howdah-traces".to_owned())
            .spawn(move || {
                runtime.block_on(sender.run());
                // A look-up of a name may hang.
                runtime.shutdown_background();
                drop(ended);
            })?;
        Ok(Arc::new(Exporter {
            config,
            queue,
            counters,
            stop,
            over: Mutex::new(over),
        }))
    }

    /// Where it sends to.
    pub fn config(&self) -> &ExporterConfig {
        &self.config
    }

    /// Has a request's spans sent. Never waits.
    pub fn send(&self, recorded: Box<Recorded>) {
        if let Err(refused) = self.queue.try_send(recorded) {
            let dropped = otlp::count(&refused.into_inner());
            self.counters.dropped.fetch_add(dropped, Ordering::Relaxed);
        }
    }

    /// What became of spans so far.
    pub fn counts(&self) -> SpanCounts {
        SpanCounts {
            exported: self.counters.exported.load(Ordering::Relaxed),
            dropped: self.counters.dropped.load(Ordering::Relaxed),
        }
    }

    /// Sends what is left, and waits for that for two seconds at most.
    pub fn finish(&self) {
        self.stop.send_replace(true);
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        // Disconnected: it is over. A timeout: it goes on without us.
        let _ = over.recv_timeout(LAST + Duration::from_millis(200));
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

fn client(config: &ExporterConfig) -> io::Result<Http> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let mut roots = rustls::RootCertStore::empty();
    if config.endpoint.scheme_str() == Some("https") {
        let found = rustls_native_certs::load_native_certs();
        if roots.add_parsable_certificates(found.certs).0 == 0 {
            return Err(io::Error::other(
                "this machine trusts no authority's server; install ca-certificates",
            ));
        }
    }
    let tls = builder.with_root_certificates(roots).with_no_client_auth();
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .build();
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

/// The thread's side.
struct Sender {
    http: Http,
    config: ExporterConfig,
    waiting: mpsc::Receiver<Box<Recorded>>,
    counters: Arc<Counters>,
    stopping: watch::Receiver<bool>,
    hear: Heard,
    /// Something does not work, as has been heard.
    losing: bool,
    /// Spans that had been dropped when the collector took a message last, and when it worked last.
    dropped_before: u64,
    reported: u64,
}

/// Why a message was not taken.
enum NotTaken {
    /// It may be taken later.
    Now(String),
    /// It never will be.
    Ever(String),
}

impl Sender {
    async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        while self.collect(&mut batch).await {
            self.deliver(&batch).await;
            batch.clear();
        }
    }

    /// Waits for a request, then for those that come soon after it. False: there will be none.
    #[expect(
        clippy::vec_box,
        reason = "as the queue has them: unboxing would copy each"
    )]
    async fn collect(&mut self, batch: &mut Vec<Box<Recorded>>) -> bool {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            biased;
            some = self.waiting.recv_many(batch, BATCH) => if some == 0 { return false },
            _ = stopping.wait_for(|stop| *stop) => self.waiting.close(),
        }
        let end = Instant::now() + DELAY;
        while batch.len() < BATCH && Instant::now() < end && !*stopping.borrow() {
            // The end of all is seen at once.
            let _ = timeout(LOOK, stopping.wait_for(|stop| *stop)).await;
            while batch.len() < BATCH {
                match self.waiting.try_recv() {
                    Ok(recorded) => batch.push(recorded),
                    Err(_) => break,
                }
            }
        }
        if batch.is_empty() {
            // What was sent before the end is still to come.
            self.waiting.recv_many(batch, BATCH).await;
        }
        !batch.is_empty()
    }

    /// Sends a batch until it is taken or refused; at the end of the process once more.
    async fn deliver(&mut self, batch: &[Box<Recorded>]) {
        let message = otlp::request(&self.config.service, batch).encode_to_vec();
        let message = Bytes::from(message);
        let spans = batch.iter().map(|recorded| otlp::count(recorded)).sum();
        let mut pause = FIRST_PAUSE;
        loop {
            let stopping = *self.stopping.borrow();
            let limit = if stopping { LAST } else { TIMEOUT };
            let posted = self.within(limit, self.post(message.clone())).await;
            match posted {
                Ok(rejected) => return self.taken(spans, rejected),
                Err(NotTaken::Ever(why)) => {
                    self.drop_spans(spans);
                    return self.lost(News::Refused(why));
                }
                Err(NotTaken::Now(why)) => self.lost(News::Unreachable(why)),
            }
            if stopping {
                return self.drop_spans(spans);
            }
            let mut stop = self.stopping.clone();
            let _ = timeout(pause, stop.wait_for(|stop| *stop)).await;
            pause = LONGEST_PAUSE.min(2 * pause);
        }
    }

    /// Gives an attempt its time, of which little is left when the process ends.
    async fn within(
        &self,
        limit: Duration,
        post: impl Future<Output = Result<i64, NotTaken>>,
    ) -> Result<i64, NotTaken> {
        let mut stopping = self.stopping.clone();
        let ends = async {
            // An error: the exporter is gone, which is an end, too.
            let _ = stopping.wait_for(|stop| *stop).await;
            tokio::time::sleep(LAST).await;
        };
        let late =
            |limit: Duration| NotTaken::Now(format!("no answer within {} s", limit.as_secs()));
        tokio::select! {
            answered = timeout(limit, post) => answered.unwrap_or_else(|_| Err(late(limit))),
            () = ends => Err(late(LAST)),
        }
    }

    /// Sends a message; how many of its spans the collector rejects.
    async fn post(&self, message: Bytes) -> Result<i64, NotTaken> {
        let mut request = Request::post(self.config.endpoint.clone())
            .body(Full::new(message))
            .map_err(|error| NotTaken::Ever(error.to_string()))?;
        let own = HeaderValue::from_static(concat!("Howdah/", env!("CARGO_PKG_VERSION")));
        let headers = request.headers_mut();
        headers.extend(self.config.headers.clone());
        headers.insert(USER_AGENT, own);
        let protobuf = HeaderValue::from_static("application/x-protobuf");
        headers.insert(CONTENT_TYPE, protobuf);
        let answer = self.http.request(request).await;
        let answer = answer.map_err(|error| NotTaken::Now(chain(&error)))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), LONGEST_ANSWER)
            .collect()
            .await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        match (status, body) {
            (status, Ok(body)) if status.is_success() => {
                // An answer that is no message says at least that it was taken.
                let said = ExportTraceServiceResponse::decode(body.to_bytes()).unwrap_or_default();
                Ok(said.partial_success.map_or(0, |part| part.rejected_spans))
            }
            (_, Err(error)) => Err(NotTaken::Now(error.to_string())),
            // OTLP: these may be tried again.
            (
                StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT,
                Ok(_),
            ) => Err(NotTaken::Now(format!("it answers {status}"))),
            (status, Ok(body)) => {
                let mut why = format!("it answers {status}");
                let said = text(&body.to_bytes());
                if !said.is_empty() && said.len() < 200 && !said.contains('\u{fffd}') {
                    why += &format!(": {said}");
                }
                Err(NotTaken::Ever(why))
            }
        }
    }

    fn drop_spans(&self, spans: u64) {
        self.counters.dropped.fetch_add(spans, Ordering::Relaxed);
    }

    fn taken(&mut self, spans: u64, rejected: i64) {
        let rejected = u64::try_from(rejected).unwrap_or_default().min(spans);
        let exported = &self.counters.exported;
        exported.fetch_add(spans - rejected, Ordering::Relaxed);
        self.drop_spans(rejected);
        let total = self.counters.dropped.load(Ordering::Relaxed);
        let more = total > std::mem::replace(&mut self.dropped_before, total);
        if rejected > 0 {
            self.lost(News::Refused(format!(
                "it rejects {rejected} of {spans} spans"
            )));
        } else if more {
            let why = "it takes spans more slowly than they come";
            self.lost(News::Unreachable(why.to_owned()));
        } else if std::mem::take(&mut self.losing) {
            let dropped = total - std::mem::replace(&mut self.reported, total);
            (self.hear)(News::WorksAgain { dropped });
        }
    }

    /// Something does not work: heard once, until it works again.
    fn lost(&mut self, news: News) {
        if !std::mem::replace(&mut self.losing, true) {
            (self.hear)(news);
        }
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}
