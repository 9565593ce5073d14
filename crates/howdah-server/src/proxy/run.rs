//! One request to a server (`exchange`), and its response as the events of a run. The response is therefore treated
//! like a script's: buffering for slow clients, compression, the site's header rules.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use howdah_executor::{Event, ExecError, Head, Run, RunTiming};
use howdah_proto::response::{is_field_value, is_token};
use http::{HeaderMap, Request, Response, StatusCode, header};
use hyper::body::{Body, Incoming};
use hyper::upgrade::OnUpgrade;
use tokio::sync::mpsc;

use super::Proxy;
use super::connections::{self, Sender};
use super::exchange::{Answered, Asked, exchange, failure};
use super::health;
use super::server::Place;
use super::silence::Silence;
use super::upload::Upload;
use crate::log::error::ErrorLog;

/// The maximum number of interim responses that wait for the client; more are dropped.
const MOST_INTERIM: usize = 8;
/// How long a stream of events or a WebSocket may be silent.
pub(super) const LONG_SILENCE: Duration = Duration::from_secs(3600);

enum State {
    Exchanging(Pin<Box<dyn Future<Output = Result<Answered, ExecError>> + Send>>),
    Head(Box<Answered>),
    Body {
        body: Incoming,
        connection: Sender,
        place: Place,
        unflushed: bool,
    },
    Over,
}

/// A request to a server.
pub struct ProxyRun {
    state: State,
    asked: Asked,
    interim: mpsc::Receiver<Head>,
    silence: Silence,
}

/// A WebSocket that the server has accepted.
pub struct Switched {
    /// The header of the response.
    pub head: Head,
    pub(super) upgrade: OnUpgrade,
    /// Counts the server as busy with it while it lasts.
    pub(super) _place: Place,
}

/// The result of a WebSocket handshake.
pub enum Agreement {
    /// The server has accepted; bytes pass in both directions from now on.
    Switched(Box<Switched>),
    /// Any other response, which the run provides.
    Answer,
}

impl Proxy {
    /// Sends a request, whose URI consists of path and query. Call it on a front thread.
    pub fn start(
        self: &Arc<Proxy>,
        mut request: Request<()>,
        upload: Upload,
        log: &Arc<ErrorLog>,
    ) -> ProxyRun {
        for member in &self.servers {
            health::watch(&member.server, log);
        }
        let (to, interim) = mpsc::channel(MOST_INTERIM);
        hyper::ext::on_informational(&mut request, move |response| {
            let status = response.status();
            if status != StatusCode::CONTINUE && status != StatusCode::SWITCHING_PROTOCOLS {
                // If there are too many at once, some are dropped, because they are only hints.
                let _ = to.try_send(head_of(status, response.headers()));
            }
        });
        let progress = upload.progress();
        let asked = Asked::default();
        let exchange = exchange(self.clone(), request, upload, asked.clone(), log.clone());
        ProxyRun {
            state: State::Exchanging(Box::pin(exchange)),
            asked,
            interim,
            silence: Silence::new(self.timeout, progress),
        }
    }
}

impl ProxyRun {
    /// Resolves when the server has responded, or has failed to.
    fn poll_answered(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ExecError>> {
        let State::Exchanging(exchange) = &mut self.state else {
            return Poll::Ready(Ok(()));
        };
        let Poll::Ready(answered) = exchange.as_mut().poll(cx) else {
            return self.poll_silence(cx);
        };
        self.silence.is_over();
        self.state = State::Over;
        Poll::Ready(answered.map(|answered| self.state = State::Head(Box::new(answered))))
    }

    /// Resolves when the server has responded to a request for WebSocket.
    pub fn poll_agreement(&mut self, cx: &mut Context<'_>) -> Poll<Result<Agreement, ExecError>> {
        std::task::ready!(self.poll_answered(cx))?;
        Poll::Ready(Ok(match std::mem::replace(&mut self.state, State::Over) {
            State::Head(mut answered) if is_websocket(&answered.response) => {
                let head = head_of(answered.response.status(), answered.response.headers());
                Agreement::Switched(Box::new(Switched {
                    head,
                    upgrade: hyper::upgrade::on(&mut answered.response),
                    _place: answered.place,
                }))
            }
            other => {
                self.state = other;
                Agreement::Answer
            }
        }))
    }

    fn poll_silence<T>(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, ExecError>> {
        std::task::ready!(self.silence.poll(cx));
        self.broke_off();
        Poll::Ready(Err(ExecError::BackendTimeout))
    }

    fn broke_off(&mut self) {
        self.state = State::Over;
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = &*asked {
            server.broke_off();
        }
    }

    /// Returns the header of the response.
    fn begin(&mut self, answered: Answered) -> Result<Event, ExecError> {
        let Answered {
            response,
            connection,
            place,
        } = answered;
        let (parts, body) = response.into_parts();
        if parts.status.is_informational() {
            let message = format!("status {} was not asked for", parts.status.as_u16());
            return Err(ExecError::BackendInvalid { message });
        }
        let content_type = parts.headers.get(header::CONTENT_TYPE);
        if content_type.is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream")) {
            self.silence.patience = self.silence.patience.max(LONG_SILENCE);
        }
        self.state = State::Body {
            body,
            connection,
            place,
            unflushed: false,
        };
        Ok(Event::Head(head_of(parts.status, &parts.headers)))
    }
}

impl Run for ProxyRun {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, ExecError>> {
        if matches!(self.state, State::Exchanging(_) | State::Head(_)) {
            let answered = self.poll_answered(cx);
            if let Poll::Ready(Err(failure)) = answered {
                return Poll::Ready(Err(failure));
            }
            // Interim responses that arrived before the header are passed on before it.
            if let Poll::Ready(Some(head)) = self.interim.poll_recv(cx) {
                return Poll::Ready(Ok(Event::Informational(head)));
            }
            std::task::ready!(answered)?;
        }
        match &mut self.state {
            State::Body {
                body, unflushed, ..
            } => match Pin::new(body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.silence.is_over();
                    *unflushed = true;
                    // Trailers are not passed on.
                    let piece = frame.into_data().unwrap_or_default();
                    Poll::Ready(Ok(Event::Body(piece)))
                }
                Poll::Ready(Some(Err(error))) => {
                    let failure = failure(&error, true);
                    self.broke_off();
                    Poll::Ready(Err(failure))
                }
                Poll::Ready(None) => {
                    if let State::Body {
                        connection, place, ..
                    } = std::mem::replace(&mut self.state, State::Over)
                        && !connection.is_http2()
                    {
                        connections::keep(&place.0, connection);
                    }
                    Poll::Ready(Ok(Event::End))
                }
                // The client may need what the server has sent so far, so nothing is held back while the server is
                // silent.
                Poll::Pending if *unflushed => {
                    *unflushed = false;
                    Poll::Ready(Ok(Event::Flush))
                }
                Poll::Pending => self.poll_silence(cx),
            },
            _ => match std::mem::replace(&mut self.state, State::Over) {
                State::Head(answered) => Poll::Ready(self.begin(*answered)),
                _ => Poll::Ready(Err(ExecError::BackendClosed { answering: true })),
            },
        }
    }

    fn timing(&self) -> RunTiming {
        RunTiming::default()
    }
}

fn is_websocket(response: &Response<Incoming>) -> bool {
    let upgrade = response.headers().get(header::UPGRADE);
    response.status() == StatusCode::SWITCHING_PROTOCOLS
        && upgrade.is_some_and(|name| name.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Returns the response header in the form of a script's, without the headers that its `Connection` lists (RFC 9110
/// §7.6.1).
fn head_of(status: StatusCode, headers: &HeaderMap) -> Head {
    let listed: Vec<&[u8]> = headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|b| *b == b','))
        .map(<[u8]>::trim_ascii)
        .collect();
    let mut head = Head {
        status: status.as_u16(),
        ..Head::default()
    };
    for (name, value) in headers {
        let (name, value) = (name.as_str().as_bytes(), value.as_bytes());
        // `Status` sets the status in CGI. From an HTTP server it would change the status that the server has sent.
        let is_listed = listed.iter().any(|other| name.eq_ignore_ascii_case(other));
        if is_listed || name == b"status" {
            continue;
        }
        match is_token(name) && is_field_value(value) {
            true => head.headers.push((name.to_vec(), value.to_vec())),
            false => head.rejected += 1,
        }
    }
    head
}
