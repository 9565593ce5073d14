//! HTTP/2 without TLS: a blocking [`Http2TestClient`] for requests, based on the h2 crate, and [`Http2Frames`] for
//! hand-written frames that no regular client sends.

use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, SendStream};
use tokio::runtime::Runtime;

use crate::http::{ExchangeError, Head, Headers, Response, from_elsewhere};

/// A server that is silent for this long is considered hung.
const SILENCE: Duration = Duration::from_secs(60);

/// A request.
#[derive(Clone, Debug)]
pub struct Http2Request {
    method: String,
    host: String,
    target: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Option<Vec<u8>>,
}

impl Http2Request {
    /// Creates a request without further headers.
    pub fn new(method: &str, host: &str, target: &str) -> Http2Request {
        Http2Request {
            method: method.to_owned(),
            host: host.to_owned(),
            target: target.to_owned(),
            headers: Vec::new(),
            body: None,
        }
    }

    /// Creates a `GET target` for a host whose name does not matter.
    pub fn get(target: &str) -> Http2Request {
        Http2Request::new("GET", "localhost", target)
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &[u8]) -> Http2Request {
        self.headers.push((name.to_ascii_lowercase(), value.into()));
        self
    }

    /// Sets the body. Its length is declared only if a header does so.
    pub fn body(mut self, bytes: &[u8]) -> Http2Request {
        self.body = Some(bytes.to_vec());
        self
    }

    /// Returns the body, if the request has one.
    pub(crate) fn content(&self) -> Option<Bytes> {
        self.body.clone().map(Bytes::from)
    }

    /// Returns the request line and headers, for a URI with this scheme.
    pub(crate) fn head(&self, scheme: &str) -> Result<http::Request<()>, ExchangeError> {
        let refused = |why: http::Error| ExchangeError::Io(io::Error::other(why));
        let path = http::uri::PathAndQuery::try_from(self.target.as_str());
        let path = path.map_err(|error| refused(error.into()))?;
        let uri = http::Uri::builder()
            .scheme(scheme)
            .authority(self.host.as_str())
            .path_and_query(path)
            .build()
            .map_err(refused)?;
        let mut request = http::Request::builder()
            .method(self.method.as_str())
            .uri(uri);
        for (name, value) in &self.headers {
            request = request.header(name, value.as_slice());
        }
        request.body(()).map_err(refused)
    }
}

/// A connection to a server.
pub struct Http2TestClient {
    runtime: Runtime,
    send: SendRequest<Bytes>,
}

/// A request whose response has not been read.
pub struct Http2PendingResponse {
    response: ResponseFuture,
    /// The stream on which more of the request body could be sent.
    pub stream: SendStream<Bytes>,
}

fn exchange_error(error: h2::Error) -> ExchangeError {
    if error.is_io()
        && let Some(kind) = error.get_io().map(io::Error::kind)
    {
        return ExchangeError::Io(kind.into());
    }
    ExchangeError::Io(io::Error::other(error))
}

impl Http2TestClient {
    /// Connects to the server at `address`.
    ///
    /// # Errors
    /// The errors of the socket, and an error if the server does not speak HTTP/2.
    pub fn open(address: SocketAddr) -> Result<Http2TestClient, ExchangeError> {
        // A separate thread sends and receives while the test makes no call.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let connecting = async {
            let stream = tokio::net::TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let mut builder = h2::client::Builder::new();
            // With this window, responses that have not been read yet do not block other responses.
            builder.initial_connection_window_size(16 << 20);
            builder.handshake(stream).await.map_err(exchange_error)
        };
        let (send, connection) = within(&runtime, connecting)?;
        runtime.spawn(async {
            // The next call on the client reports the error.
            let _ = connection.await;
        });
        Ok(Http2TestClient { runtime, send })
    }

    /// Sends a request, with its body.
    ///
    /// # Errors
    /// The request cannot be expressed in HTTP/2, or the connection has ended.
    pub fn send(&mut self, request: &Http2Request) -> Result<Http2PendingResponse, ExchangeError> {
        let head = request.head("http")?;
        let (runtime, send) = (&self.runtime, &mut self.send);
        let sending = async {
            std::future::poll_fn(|cx| send.poll_ready(cx)).await?;
            let (response, stream) = send.send_request(head, request.body.is_none())?;
            Ok(Http2PendingResponse { response, stream })
        };
        within(runtime, async { sending.await.map_err(exchange_error) })
    }

    /// Sends a request and reads the response.
    ///
    /// # Errors
    /// The errors of [`Http2TestClient::send`], and a reset of the stream.
    pub fn ask(&mut self, request: &Http2Request) -> Result<Response, ExchangeError> {
        let Http2PendingResponse { response, stream } = self.send(request)?;
        let body = request.content();
        if let Some(body) = body {
            self.runtime.spawn(async {
                // The server may respond, and refuse the rest of the body, before everything has been sent.
                let _ = upload(stream, body).await;
            });
        }
        within(&self.runtime, async {
            read(response).await.map_err(exchange_error)
        })
    }

    /// Reads the response to a request without a body.
    ///
    /// # Errors
    /// The stream was reset, or the connection has ended.
    pub fn read(&mut self, asked: Http2PendingResponse) -> Result<Response, ExchangeError> {
        within(&self.runtime, async {
            read(asked.response).await.map_err(exchange_error)
        })
    }
}

fn within<T>(
    runtime: &Runtime,
    what: impl Future<Output = Result<T, ExchangeError>>,
) -> Result<T, ExchangeError> {
    runtime.block_on(async {
        let late = |_| ExchangeError::Io(io::ErrorKind::TimedOut.into());
        tokio::time::timeout(SILENCE, what).await.map_err(late)?
    })
}

async fn upload(mut stream: SendStream<Bytes>, mut body: Bytes) -> Result<(), h2::Error> {
    if body.is_empty() {
        return stream.send_data(body, true);
    }
    while !body.is_empty() {
        stream.reserve_capacity(body.len());
        let window = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
        let window = window.ok_or(h2::Error::from(Reason::CANCEL))??;
        let piece = body.split_to(window.min(body.len()));
        stream.send_data(piece, body.is_empty())?;
    }
    Ok(())
}

async fn read(mut response: ResponseFuture) -> Result<Response, h2::Error> {
    let mut answer = Response::default();
    while let Some(interim) = std::future::poll_fn(|cx| response.poll_informational(cx)).await {
        answer.interim.push(head(&interim?.into_parts().0));
    }
    let (parts, mut body) = response.await?.into_parts();
    answer.head = head(&parts);
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        answer.body.extend_from_slice(&data);
    }
    answer.keeps_alive = true;
    Ok(answer)
}

/// Converts the status and headers of a response.
pub(crate) fn head(parts: &http::response::Parts) -> Head {
    let fields = parts.headers.iter();
    Head {
        version: format!("{:?}", parts.version),
        status: parts.status.as_u16(),
        reason: None,
        headers: Headers(
            fields
                .map(|(name, value)| {
                    let value = String::from_utf8_lossy(value.as_bytes());
                    (name.to_string(), value.into_owned())
                })
                .collect(),
        ),
    }
}

/// A connection on which the test writes frames by hand.
pub struct Http2Frames {
    stream: TcpStream,
}

/// Encodes a frame: `length kind flags stream payload` (RFC 9113 §4.1).
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame");
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Encodes the HEADERS frame of a request; `end` says that the request has no body.
pub fn headers(stream: u32, method: &str, path: &str, end: bool) -> Vec<u8> {
    // The block contains literals without indexing (RFC 7541 §6.2.2) for :method, :path and :authority, and then the
    // indexed field `:scheme: http`.
    let mut block = Vec::new();
    for (index, value) in [(2, method), (4, path), (1, "localhost")] {
        block.extend([index, u8::try_from(value.len()).expect("a short value")]);
        block.extend(value.as_bytes());
    }
    // Pseudo-headers may come in any order.
    block.push(0x86);
    frame(1, if end { 5 } else { 4 }, stream, &block)
}

/// Encodes RST_STREAM, as sent by a client that cancels a request.
pub fn reset(stream: u32) -> Vec<u8> {
    frame(3, 0, stream, &[0, 0, 0, 8])
}

impl Http2Frames {
    /// Connects [from another address](from_elsewhere), and sends the preface and these settings (identifier, value).
    ///
    /// # Panics
    /// If the connection fails.
    pub fn open(address: SocketAddr, settings: &[(u16, u32)]) -> Http2Frames {
        let stream = from_elsewhere(address).expect("the server listens");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(SILENCE)).expect("a socket");
        let mut frames = Http2Frames { stream };
        let mut payload = Vec::new();
        for (identifier, value) in settings {
            payload.extend(identifier.to_be_bytes());
            payload.extend(value.to_be_bytes());
        }
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        assert!(frames.send([preface, &frame(4, 0, 0, &payload)[..]].concat()));
        frames
    }

    /// Sends bytes as they are. Returns false if the connection no longer accepts them.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Reads the next frame: kind, flags, stream and payload. Returns `None` at the end of the connection.
    pub fn read(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).ok()?;
        Some((head[3], head[4], stream, payload))
    }

    /// Returns the socket, for tests that do not read, or read slowly.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }
}
