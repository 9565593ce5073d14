//! The HTTPS client for authorities: one connection per request, with a limit on the time of each request and on the
//! length of each response. The trusted roots are the system's (or those in `SSL_CERT_FILE`).

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONNECTION, HOST, HeaderValue, RETRY_AFTER};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The time limit of one request, from the name look-up to the end of the response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum length of a response in bytes. A certificate chain is about 10 KB long.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

type FullResponse = Response<Full<Bytes>>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The HTTP client; see the module.
#[derive(Clone)]
pub struct AcmeClient {
    tls: Arc<ClientConfig>,
    /// The reason why the client trusts no authority; `None` if it trusts any.
    no_roots_reason: Option<Arc<str>>,
    retry_after: Arc<Mutex<Option<SystemTime>>>,
    /// Held while an account is registered, because orders of several names begin at the same time.
    pub(crate) registration: Arc<tokio::sync::Mutex<()>>,
}

impl AcmeClient {
    /// Creates a client that trusts the system's roots.
    ///
    /// # Errors
    /// Fails if the cryptography provider does not support the TLS versions.
    pub fn new() -> Result<AcmeClient, String> {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(found.certs);
        let untrusting = (added == 0).then(|| {
            let why = found.errors.first().map(|error| format!(": {error}"));
            let why = why.unwrap_or_default();
            format!("this machine trusts no certificate authority{why}; install ca-certificates")
        });
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(AcmeClient {
            tls: Arc::new(tls),
            no_roots_reason: untrusting.map(Arc::from),
            retry_after: Arc::default(),
            registration: Arc::default(),
        })
    }

    /// Returns a client for another order: a `Retry-After` in a response applies only to the order that received it.
    pub fn for_new_order(&self) -> AcmeClient {
        AcmeClient {
            tls: self.tls.clone(),
            no_roots_reason: self.no_roots_reason.clone(),
            retry_after: Arc::default(),
            registration: self.registration.clone(),
        }
    }

    /// Returns the time given by the `Retry-After` of the last response, and forgets it.
    pub fn take_retry_after(&self) -> Option<SystemTime> {
        self.retry_after
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Requests an `http:` or `https:` URL and returns the status of the response.
    ///
    /// # Errors
    /// Fails with the reason why there is no response.
    pub async fn status(&self, url: &str) -> Result<u16, String> {
        let request = Request::get(url).body(Full::<Bytes>::default());
        let request = request.map_err(|error| error.to_string())?;
        let answer = self.clone().fetch(request).await;
        answer
            .map(|answer| answer.status().as_u16())
            .map_err(|error| crate::failure::error_with_causes(&*error))
    }

    async fn fetch<B>(self, request: Request<B>) -> Result<FullResponse, BoxError>
    where
        B: hyper::body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let host = request.uri().host().unwrap_or_default().to_owned();
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, self.exchange(request)).await;
        answer.unwrap_or_else(|_| {
            Err(format!(
                "{host} has not responded within {} s",
                REQUEST_TIMEOUT.as_secs()
            )
            .into())
        })
    }

    async fn exchange<B>(&self, mut request: Request<B>) -> Result<FullResponse, BoxError>
    where
        B: hyper::body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let uri = request.uri().clone();
        let encrypted = uri.scheme_str() == Some("https");
        let host = uri.host().ok_or("the URL has no host")?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = uri.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
        let authority = uri.authority().ok_or("the URL has no host")?;
        let field = HeaderValue::from_str(authority.as_str())?;
        request.headers_mut().insert(HOST, field);
        let close = HeaderValue::from_static("close");
        request.headers_mut().insert(CONNECTION, close);
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = path.parse::<Uri>()?;
        let tcp = TcpStream::connect((host, port))
            .await
            .map_err(|error| format!("cannot connect to {host}:{port}: {error}"))?;
        let answer = if encrypted {
            if let Some(why) = &self.no_roots_reason {
                return Err(why.to_string().into());
            }
            let name = ServerName::try_from(host.to_owned())?;
            let tls = TlsConnector::from(self.tls.clone())
                .connect(name, tcp)
                .await;
            let tls =
                tls.map_err(|error| format!("TLS handshake with {host}:{port} failed: {error}"))?;
            send(TokioIo::new(tls), request).await?
        } else {
            send(TokioIo::new(tcp), request).await?
        };
        let again = answer.headers().get(RETRY_AFTER).and_then(retry_after);
        *self
            .retry_after
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = again;
        Ok(answer)
    }
}

async fn send<S, B>(io: TokioIo<S>, request: Request<B>) -> Result<FullResponse, BoxError>
where
    TokioIo<S>: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    B: hyper::body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
    let exchange = async {
        let answer = sender.send_request(request).await?;
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await?;
        Ok::<_, BoxError>(Response::from_parts(parts, Full::new(body.to_bytes())))
    };
    // The connection future does the I/O and must be polled until the exchange has ended.
    let driving = async {
        let ended = connection.await;
        std::future::pending::<()>().await;
        ended
    };
    tokio::select! {
        answer = exchange => answer,
        _ = driving => Err("the connection was closed".into()),
    }
}

/// Parses `Retry-After` (RFC 9110 §10.2.3): seconds or a date.
fn retry_after(value: &HeaderValue) -> Option<SystemTime> {
    let text = value.to_str().ok()?.trim();
    match text.parse::<u32>() {
        Ok(seconds) => Some(SystemTime::now() + Duration::from_secs(seconds.into())),
        Err(_) => httpdate::parse_http_date(text).ok(),
    }
}

impl HttpClient for AcmeClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move {
            if request.uri().scheme_str() != Some("https") {
                return Err(Error::Str(
                    "the URLs of an authority must begin with https://",
                ));
            }
            client
                .fetch(request)
                .await
                .map(BytesResponse::from)
                .map_err(Error::Other)
        })
    }
}
