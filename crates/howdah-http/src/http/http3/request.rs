//! One request of an HTTP/3 connection: its head is read and checked, then it is handled like any other request.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use h3::error::{Code, StreamError};
use h3::server::RequestResolver;
use howdah_http1::refusal::BadRequest;
use http::header::{CONTENT_LENGTH, EXPECT, TE};
use http::request::Parts;

use super::super::channel::Channel;
use super::super::config::HttpConfig;
use super::super::handler::{ConnectionInfo, ConnectionNotice, RequestHandler};
use super::super::lifecycle::FrontThreadConnections;
use super::super::message::HttpVersion;
use super::super::multiplexed::request::{RequestRefusal, convert_request};
use super::super::multiplexed::request_response;
use super::super::multiplexed::{is_connection_field, urgency};
use super::super::request_io::RequestIo;
use super::connection::ConnectionState;
use super::pipe::QuicPipe;
use super::stream::{H3RequestStream, Http3Stream};
use super::transport::Transport;

/// The state of its connection that a request needs.
pub(super) struct IncomingRequest<H> {
    pub(super) handler: Arc<H>,
    pub(super) config: Arc<HttpConfig>,
    pub(super) life: Arc<FrontThreadConnections>,
    pub(super) info: ConnectionInfo,
    pub(super) common: Arc<ConnectionState>,
    pub(super) pipe: Arc<QuicPipe>,
}

/// Serves a request to its end.
pub(super) async fn serve<H: RequestHandler>(
    arrived: IncomingRequest<H>,
    resolver: RequestResolver<Transport, bytes::Bytes>,
) {
    let pipe = arrived.pipe.clone();
    let head = async {
        let (request, exchange) = resolver.resolve_request().await?;
        let mut request = request.into_parts().0;
        if pipe.is_early && !arrived.common.handshake.admit(&mut request).await {
            return Ok(None);
        }
        // HTTP/3 shows only at the end of a stream that the request has no body.
        let told = [CONTENT_LENGTH, EXPECT].iter();
        let has_body = match told.clone().any(|name| request.headers.contains_key(name)) {
            true => true,
            false => poll_fn(|cx| pipe.poll_has_body(cx)).await,
        };
        Ok(Some((request, exchange, has_body)))
    };
    match tokio::time::timeout(arrived.config.header_timeout, head).await {
        Ok(Ok(Some((request, exchange, has_body)))) => {
            arrived.handle(request, exchange, has_body).await;
        }
        Ok(Ok(None)) => arrived.give_up(Code::H3_REQUEST_REJECTED),
        Ok(Err(StreamError::HeaderTooBig { .. })) => {
            // The h3 crate has queued the response.
            arrived.notice_refused(BadRequest::HeaderTooLarge);
            pipe.end();
            let sent = poll_fn(|cx| pipe.poll_flush(cx));
            let _ = tokio::time::timeout(arrived.config.send_timeout, sent).await;
            pipe.stop_receiving(Code::H3_NO_ERROR);
        }
        Ok(Err(_)) if pipe.head_too_long() => {
            arrived.notice_refused(BadRequest::HeaderTooLarge);
            arrived.give_up(Code::H3_EXCESSIVE_LOAD);
        }
        Ok(Err(_)) => arrived.give_up(Code::H3_MESSAGE_ERROR),
        Err(_) => {
            arrived.notice_refused(BadRequest::HeaderTimeout);
            arrived.give_up(Code::H3_REQUEST_CANCELLED);
        }
    }
}

impl<H: RequestHandler> IncomingRequest<H> {
    async fn handle(self, request: Parts, exchange: H3RequestStream, has_body: bool) {
        let limits = self.config.head_limits();
        let malformed = request.headers.iter().any(|(name, value)| match name {
            name if *name == TE => value != "trailers",
            name => is_connection_field(name),
        });
        self.pipe.set_urgency(urgency(&request.headers));
        let converted = match malformed {
            true => Err(RequestRefusal::Malformed),
            false => convert_request(&request, has_body, HttpVersion::Http3, &limits),
        };
        drop(request);
        if matches!(converted, Err(RequestRefusal::Malformed)) {
            return self.give_up(Code::H3_MESSAGE_ERROR);
        }
        let stream = Http3Stream::new(self.pipe, exchange, self.common);
        let channel = Channel::Http3(Box::new(stream));
        let io = Arc::new(RequestIo::new(channel, self.config, self.life, None));
        match converted {
            Ok((head, framing)) => {
                io.life.requests.fetch_add(1, Ordering::Relaxed);
                request_response::handle(self.handler, io, self.info, head, framing).await;
            }
            Err(RequestRefusal::Bad { why, line }) => {
                request_response::refuse(
                    self.handler,
                    io,
                    self.info,
                    HttpVersion::Http3,
                    why,
                    line,
                )
                .await;
            }
            Err(RequestRefusal::Malformed) => {}
        }
    }

    fn notice_refused(&self, why: BadRequest) {
        self.life.refused.fetch_add(1, Ordering::Relaxed);
        self.handler.notice(&ConnectionNotice::Refused {
            conn: &self.info,
            why,
            line: b"",
        });
    }

    /// Ends the stream without a response.
    fn give_up(&self, why: Code) {
        self.pipe.reset(why);
        self.pipe.stop_receiving(why);
        if self.pipe.is_cancelled() {
            self.common.record_cancellation();
        }
    }
}
