//! One message to a collector, and what its answer means: an HTTP client of one server.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use rustls::ClientConfig;

use super::config::ExporterConfig;

/// Bytes of an answer that are read.
const LONGEST_ANSWER: usize = 64 << 10;

/// A collector, with kept connections to it.
pub(super) struct Collector {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    endpoint: Uri,
    headers: HeaderMap,
}

/// Why a message was not taken.
pub(super) enum NotTaken {
    /// It may be taken later.
    Now(String),
    /// It never will be.
    Ever(String),
}

impl Collector {
    /// Connects to nothing yet.
    ///
    /// # Errors
    /// `https` finds no authority to trust.
    pub(super) fn of(config: &ExporterConfig) -> io::Result<Collector> {
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
        Ok(Collector {
            http: Client::builder(TokioExecutor::new()).build(connector),
            endpoint: config.endpoint.clone(),
            headers: config.headers.clone(),
        })
    }

    /// Sends a message; how many of its spans the collector rejects.
    pub(super) async fn post(&self, message: Bytes) -> Result<i64, NotTaken> {
        let mut request = Request::post(self.endpoint.clone())
            .body(Full::new(message))
            .map_err(|error| NotTaken::Ever(error.to_string()))?;
        let own = HeaderValue::from_static(concat!("Howdah/", env!("CARGO_PKG_VERSION")));
        let headers = request.headers_mut();
        headers.extend(self.headers.clone());
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
