//! Sends one message to a collector and interprets the response.

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

/// How many bytes of a response are read.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// A collector, with connections that are kept open to it.
pub(super) struct CollectorClient {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    endpoint: Uri,
    headers: HeaderMap,
}

/// Why a message was not accepted.
pub(super) enum PostError {
    /// The message may be accepted later.
    Temporary(String),
    /// The message will never be accepted.
    Permanent(String),
}

impl CollectorClient {
    /// Prepares the client without connecting.
    ///
    /// # Errors
    /// The machine has no certificate authorities for `https`.
    pub(super) fn of(config: &ExporterConfig) -> io::Result<CollectorClient> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        let mut roots = rustls::RootCertStore::empty();
        if config.endpoint.scheme_str() == Some("https") {
            let found = rustls_native_certs::load_native_certs();
            if roots.add_parsable_certificates(found.certs).0 == 0 {
                return Err(io::Error::other(
                    "this machine trusts no certificate authority; install ca-certificates",
                ));
            }
        }
        let tls = builder.with_root_certificates(roots).with_no_client_auth();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .build();
        Ok(CollectorClient {
            http: Client::builder(TokioExecutor::new()).build(connector),
            endpoint: config.endpoint.clone(),
            headers: config.headers.clone(),
        })
    }

    /// Sends a message. Returns how many of its spans the collector rejects.
    pub(super) async fn post(&self, message: Bytes) -> Result<i64, PostError> {
        let mut request = Request::post(self.endpoint.clone())
            .body(Full::new(message))
            .map_err(|error| PostError::Permanent(error.to_string()))?;
        let own = HeaderValue::from_static(concat!("Howdah/", env!("CARGO_PKG_VERSION")));
        let headers = request.headers_mut();
        headers.extend(self.headers.clone());
        headers.insert(USER_AGENT, own);
        let protobuf = HeaderValue::from_static("application/x-protobuf");
        headers.insert(CONTENT_TYPE, protobuf);
        let answer = self.http.request(request).await;
        let answer = answer.map_err(|error| PostError::Temporary(error_with_causes(&error)))?;
        let status = answer.status();
        // The status decides. If the body cannot be read, only the reason is missing.
        let body = Limited::new(answer.into_body(), MAX_RESPONSE_BYTES).collect();
        let body = body.await.map(|body| body.to_bytes()).unwrap_or_default();
        if status.is_success() {
            // A success status whose body is not a valid message still means that the spans were accepted.
            let said = ExportTraceServiceResponse::decode(body).unwrap_or_default();
            return Ok(said.partial_success.map_or(0, |part| part.rejected_spans));
        }
        let mut why = format!("the collector returned status {status}");
        match status {
            // OTLP permits a retry after these.
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Err(PostError::Temporary(why)),
            _ => {
                let said = String::from_utf8_lossy(&body);
                let said = said.trim();
                if !said.is_empty() && said.len() < 200 && !said.contains('\u{fffd}') {
                    why += &format!(": {said}");
                }
                Err(PostError::Permanent(why))
            }
        }
    }
}

/// Returns an error's text with its causes.
fn error_with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// Returns the result for a message that gets this response.
    fn posted(answer: &str) -> Result<i64, PostError> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let collector = CollectorClient::of(&ExporterConfig::to(&url).unwrap()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"message") {
                    let mut piece = [0; 1024];
                    let n = stream.read(&mut piece).unwrap();
                    request.extend_from_slice(&piece[..n]);
                }
                // The client may close the connection before it has read everything.
                let _ = stream.write_all(answer.as_bytes());
            });
            runtime.block_on(collector.post(Bytes::from_static(b"message")))
        })
    }

    #[test]
    fn post_outcome_depends_on_the_status_alone() {
        let page = "x".repeat(2 * MAX_RESPONSE_BYTES);
        let with = |status: u16, text: &str| {
            let length = text.len();
            posted(&format!(
                "HTTP/1.1 {status} Status\r\nContent-Length: {length}\r\n\r\n{text}"
            ))
        };
        assert!(matches!(with(200, ""), Ok(0)));
        assert!(matches!(with(200, &page), Ok(0)), "it is not sent again");
        assert!(matches!(with(503, &page), Err(PostError::Temporary(_))));
        let Err(PostError::Permanent(why)) = with(400, "no") else {
            panic!("it may not be tried again");
        };
        assert!(why.ends_with(": no"), "{why}");
        assert!(matches!(with(404, &page), Err(PostError::Permanent(_))));
        assert!(matches!(
            posted("HTTP/1.1 200"),
            Err(PostError::Temporary(_))
        ));
    }
}
