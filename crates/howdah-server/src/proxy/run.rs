//! One request to a server (`exchange`), and its response as the events of a run. The response is therefore treated
//! like a script's: buffering for slow clients, compression, the site's header rules.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use howdah_executor::{ExecError, RunEvent, RunTiming, ScriptHead, ScriptRun};
use http::{HeaderMap, Request, Response, StatusCode, header};
use hyper::body::{Body, Frame, Incoming};
use hyper::upgrade::OnUpgrade;

use super::ServerGroup;
use super::connections::{self, UpstreamConnection};
use super::exchange::{CurrentServer, UpstreamResponse, exchange, exec_error};
use super::health;
use super::response_head::{InterimResponses, head_of};
use super::server::BusyGuard;
use super::silence::SilenceTimeout;
use super::upload::{Upload, UploadProgress};
use howdah_log::log::error::ErrorLog;

/// How long a stream of events or a WebSocket may be silent.
pub(super) const MAX_STREAM_SILENCE: Duration = Duration::from_secs(3600);

enum ProxyRunState {
    Exchanging(Pin<Box<dyn Future<Output = Result<UpstreamResponse, ExecError>> + Send>>),
    Head(Box<UpstreamResponse>),
    Body {
        body: Incoming,
        connection: UpstreamConnection,
        place: BusyGuard,
        unflushed: bool,
    },
    Over,
}

/// A request to a server.
pub struct ProxyRun {
    state: ProxyRunState,
    current_server: CurrentServer,
    interim: InterimResponses,
    progress: Arc<UploadProgress>,
    silence: SilenceTimeout,
}

/// A WebSocket that the server has accepted.
pub struct AcceptedWebSocket {
    /// The header of the response.
    pub head: ScriptHead,
    pub(super) upgrade: OnUpgrade,
    pub(super) connection: UpstreamConnection,
    /// Counts the server as busy with the WebSocket while it lasts.
    pub(super) _place: BusyGuard,
}

/// The result of a WebSocket handshake.
pub enum WebSocketHandshake {
    /// The server has accepted; bytes pass in both directions from now on.
    Accepted(Box<AcceptedWebSocket>),
    /// Any other response, which the run provides.
    OrdinaryResponse,
}

impl ServerGroup {
    /// Sends a request, whose URI consists of path and query. Call it on a front thread.
    pub fn start(
        self: &Arc<ServerGroup>,
        request: Request<()>,
        upload: Upload,
        log: &Arc<ErrorLog>,
    ) -> ProxyRun {
        for member in &self.servers {
            health::start_checks(&member.server, log);
        }
        let interim = InterimResponses::default();
        let progress = upload.progress();
        let asked = CurrentServer::default();
        let exchange = exchange(
            self.clone(),
            request,
            upload,
            asked.clone(),
            interim.clone(),
            log.clone(),
        );
        ProxyRun {
            state: ProxyRunState::Exchanging(Box::pin(exchange)),
            current_server: asked,
            interim,
            silence: SilenceTimeout::new(self.timeout, progress.clone()),
            progress,
        }
    }
}

impl ProxyRun {
    /// Resolves when the server has responded, or has failed to.
    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ExecError>> {
        let ProxyRunState::Exchanging(exchange) = &mut self.state else {
            return Poll::Ready(Ok(()));
        };
        let Poll::Ready(answered) = exchange.as_mut().poll(cx) else {
            return self.poll_silence(cx);
        };
        self.silence.end_wait();
        self.state = ProxyRunState::Over;
        Poll::Ready(answered.map(|answered| self.state = ProxyRunState::Head(Box::new(answered))))
    }

    /// Resolves when the server has responded to a request for WebSocket.
    pub fn poll_websocket_handshake(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<WebSocketHandshake, ExecError>> {
        std::task::ready!(self.poll_response(cx))?;
        Poll::Ready(Ok(
            match std::mem::replace(&mut self.state, ProxyRunState::Over) {
                ProxyRunState::Head(mut answered) if is_websocket(&answered.response) => {
                    let head = head_of(answered.response.status(), answered.response.headers());
                    WebSocketHandshake::Accepted(Box::new(AcceptedWebSocket {
                        head,
                        upgrade: hyper::upgrade::on(&mut answered.response),
                        connection: answered.connection,
                        _place: answered.place,
                    }))
                }
                other => {
                    self.state = other;
                    WebSocketHandshake::OrdinaryResponse
                }
            },
        ))
    }

    fn poll_silence<T>(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, ExecError>> {
        std::task::ready!(self.silence.poll(cx));
        self.fail();
        Poll::Ready(Err(ExecError::BackendTimeout))
    }

    fn fail(&mut self) {
        self.state = ProxyRunState::Over;
        let asked = self
            .current_server
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = &*asked {
            server.note_broken();
        }
    }

    fn refuse_response(&mut self, message: String) -> ExecError {
        self.fail();
        ExecError::BackendInvalid { message }
    }

    /// Returns the status and the headers of the response.
    fn begin(&mut self, answered: UpstreamResponse) -> Result<RunEvent, ExecError> {
        let UpstreamResponse {
            response,
            connection,
            place,
        } = answered;
        let (parts, body) = response.into_parts();
        if parts.status.is_informational() {
            let message = format!(
                "the backend sent status {} although the request did not ask for it",
                parts.status.as_u16()
            );
            return Err(self.refuse_response(message));
        }
        if let Some(message) = ambiguous_framing(&parts.headers) {
            return Err(self.refuse_response(message));
        }
        let content_type = parts.headers.get(header::CONTENT_TYPE);
        if content_type.is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream")) {
            self.silence.limit = self.silence.limit.max(MAX_STREAM_SILENCE);
        }
        self.state = ProxyRunState::Body {
            body,
            connection,
            place,
            unflushed: false,
        };
        Ok(RunEvent::Head(head_of(parts.status, &parts.headers)))
    }
}

impl ScriptRun for ProxyRun {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<RunEvent, ExecError>> {
        if matches!(
            self.state,
            ProxyRunState::Exchanging(_) | ProxyRunState::Head(_)
        ) {
            let answered = self.poll_response(cx);
            if let Poll::Ready(Err(failure)) = answered {
                return Poll::Ready(Err(failure));
            }
            // Interim responses that arrived before the final response are passed on before it.
            if let Some(head) = self.interim.take() {
                return Poll::Ready(Ok(RunEvent::Informational(head)));
            }
            std::task::ready!(answered)?;
        }
        match &mut self.state {
            ProxyRunState::Body {
                body,
                connection,
                unflushed,
                ..
            } => match poll_frame(body, connection, cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.silence.end_wait();
                    *unflushed = true;
                    // Trailers are not passed on.
                    let piece = frame.into_data().unwrap_or_default();
                    Poll::Ready(Ok(RunEvent::Body(piece)))
                }
                Poll::Ready(Some(Err(error))) => {
                    let failure = exec_error(&error, true);
                    self.fail();
                    Poll::Ready(Err(failure))
                }
                Poll::Ready(None) => {
                    if let ProxyRunState::Body {
                        connection, place, ..
                    } = std::mem::replace(&mut self.state, ProxyRunState::Over)
                        && !connection.is_http2()
                    {
                        connections::keep_idle(&place.0, connection);
                    }
                    Poll::Ready(Ok(RunEvent::End))
                }
                // The client may need what the server has sent so far, so nothing is held back while the server is
                // silent.
                Poll::Pending if *unflushed => {
                    *unflushed = false;
                    Poll::Ready(Ok(RunEvent::Flush))
                }
                Poll::Pending => self.poll_silence(cx),
            },
            _ => match std::mem::replace(&mut self.state, ProxyRunState::Over) {
                ProxyRunState::Head(answered) => Poll::Ready(self.begin(*answered)),
                _ => Poll::Ready(Err(ExecError::BackendClosed { answering: true })),
            },
        }
    }

    fn timing(&self) -> RunTiming {
        RunTiming::default()
    }

    /// A server handles a request that it has received even if the connection is closed in the meantime.
    fn is_claimed(&self) -> bool {
        let begun = !matches!(self.state, ProxyRunState::Exchanging(_));
        begun || self.progress.is_request_taken()
    }
}

/// Returns the next piece of the response's body.
fn poll_frame(
    body: &mut Incoming,
    connection: &mut UpstreamConnection,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
    if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
        return Poll::Ready(frame);
    }
    connection.drive(cx);
    Pin::new(body).poll_frame(cx)
}

fn is_websocket(response: &Response<Incoming>) -> bool {
    let upgrade = response.headers().get(header::UPGRADE);
    response.status() == StatusCode::SWITCHING_PROTOCOLS
        && upgrade.is_some_and(|name| name.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Returns what is wrong with the framing of a response if hyper accepts it but other recipients may disagree about the
/// body: `Content-Length` together with `Transfer-Encoding`, or a coding that nobody removes (RFC 9112 §6.1, §6.3).
fn ambiguous_framing(headers: &HeaderMap) -> Option<String> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let coding = codings.next()?;
    if !coding.as_bytes().eq_ignore_ascii_case(b"chunked") || codings.next().is_some() {
        return Some("the backend applied a transfer coding other than chunked".to_owned());
    }
    headers.contains_key(header::CONTENT_LENGTH).then(|| {
        "the backend sent both Content-Length and Transfer-Encoding, which contradict each other"
            .to_owned()
    })
}
