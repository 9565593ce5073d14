//! Sends a request to one server after the other until one responds.
//!
//! A request is sent again only if that is safe (RFC 9110 §9.2.2, like nginx): nothing of it has been sent, or it is a
//! GET, HEAD or OPTIONS without a body and a reused connection ended without a byte. A request without a body is also
//! sent again, once, if a server of HTTP/2 declares that it has not processed the request.

use std::error::Error as _;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use howdah_executor::ExecError;
use http::{Request, Response, Uri, header};
use hyper::body::Incoming;

use super::ServerGroup;
use super::connections::{self, UpstreamConnection};
use super::response_head::InterimResponses;
use super::server::{self, BusyGuard, UpstreamServer};
use super::upload::Upload;
use howdah_log::log::error::ErrorLog;

/// A server's response, or its beginning.
pub(super) struct UpstreamResponse {
    pub(super) response: Response<Incoming>,
    pub(super) connection: UpstreamConnection,
    pub(super) place: BusyGuard,
}

/// The server that currently has the request.
pub(super) type CurrentServer = Arc<Mutex<Option<Arc<UpstreamServer>>>>;

/// Sends the request to one server after the other until one responds.
pub(super) async fn exchange(
    proxy: Arc<ServerGroup>,
    template: Request<()>,
    upload: Upload,
    asked: CurrentServer,
    interim: InterimResponses,
    log: Arc<ErrorLog>,
) -> Result<UpstreamResponse, ExecError> {
    let has_body = !upload.is_none();
    let progress = upload.progress();
    let is_safe = matches!(template.method().as_str(), "GET" | "HEAD" | "OPTIONS");
    let mut body = upload;
    let mut tried = Vec::new();
    let mut last = String::new();
    let mut repeated = false;
    'server: while let Some(place) = proxy.choose_server(&tried) {
        let server = place.0.clone();
        *asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(server.clone());
        loop {
            let kept = match repeated {
                true => None,
                false => connections::take_idle(&server),
            };
            let was_kept = kept.is_some();
            let mut connection = match kept {
                Some(kept) => kept,
                None => match connections::connect(&server).await {
                    Ok(connection) => connection,
                    Err(why) => {
                        last = format!("{}: {why}", server.at);
                        server::log_event(&log, server.note_unreachable(&why.to_string()));
                        tried.push(server.id);
                        continue 'server;
                    }
                },
            };
            if let UpstreamConnection::Http2(shared) = &connection
                && !was_kept
            {
                connections::keep_idle(&server, UpstreamConnection::Http2(shared.clone()));
            }
            let request = adapt_to_version(&template, &server, connection.is_http2());
            let mut request = request.map(|()| body);
            interim.collect(&mut request);
            progress.set_head_taken(true);
            match connection.send(request).await {
                Ok(response) => {
                    server::log_event(&log, server.note_response());
                    return Ok(UpstreamResponse {
                        response,
                        connection,
                        place,
                    });
                }
                Err(unanswered) => {
                    progress.set_head_taken(false);
                    if let UpstreamConnection::Http2(broken) = &connection {
                        connections::forget_http2(&server, broken);
                    }
                    let error = unanswered.error;
                    let is_repeatable = !has_body
                        && !repeated
                        && (is_unprocessed(&error)
                            || was_kept && is_safe && ended_before_response(&error));
                    let again = match unanswered.unsent {
                        Some(unsent) => {
                            body = unsent.into_body();
                            was_kept
                        }
                        None if is_repeatable => {
                            body = Upload::none();
                            true
                        }
                        None => {
                            server.note_broken();
                            return Err(exec_error(&error, false));
                        }
                    };
                    if again {
                        repeated = true;
                        continue;
                    }
                    last = format!("{}: {error}", server.at);
                    server::log_event(&log, server.note_unreachable(&error.to_string()));
                    tried.push(server.id);
                    continue 'server;
                }
            }
        }
    }
    Err(ExecError::BackendDown { message: last })
}

/// Adapts the request to its server and to the connection's HTTP version. The request of an HTTP/1.0 client may lack a
/// host, which later versions require. HTTP/2 names the host in the URI.
pub(super) fn adapt_to_version(
    template: &Request<()>,
    server: &UpstreamServer,
    http2: bool,
) -> Request<()> {
    let mut request = template.clone();
    let headers = request.headers_mut();
    headers.entry(header::HOST).or_insert_with(|| server.host());
    if !http2 {
        return request;
    }
    let host = headers.remove(header::HOST);
    *request.version_mut() = http::Version::HTTP_2;
    let authority = host.as_ref().and_then(|host| host.to_str().ok());
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str());
    let uri = Uri::builder()
        .scheme("http")
        .authority(authority.unwrap_or("localhost"))
        .path_and_query(path)
        .build();
    if let Ok(uri) = uri {
        *request.uri_mut() = uri;
    }
    request.headers_mut().remove(header::CONNECTION);
    request.headers_mut().remove(header::UPGRADE);
    request
}

/// Returns whether the connection ended before the first byte of the response, by an orderly end or by a reset.
fn ended_before_response(error: &hyper::Error) -> bool {
    let broken = source_of::<io::Error>(error).is_some_and(|why| {
        matches!(
            why.kind(),
            io::ErrorKind::BrokenPipe
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::NotConnected
                | io::ErrorKind::UnexpectedEof
        )
    });
    broken || error.is_incomplete_message() || error.is_closed() || error.is_canceled()
}

/// Returns whether the server has declared that it has not processed the request (RFC 9113 §8.7): it refused the stream,
/// or its GOAWAY excludes the stream. Streams that a GOAWAY includes continue.
fn is_unprocessed(error: &hyper::Error) -> bool {
    source_of::<h2::Error>(error).is_some_and(|why| {
        why.is_remote() && (why.is_go_away() || why.reason() == Some(h2::Reason::REFUSED_STREAM))
    })
}

fn source_of<E: std::error::Error + 'static>(error: &hyper::Error) -> Option<&E> {
    error.source()?.downcast_ref()
}

/// Returns the failure for an error of the connection.
pub(super) fn exec_error(error: &hyper::Error, answering: bool) -> ExecError {
    match error.is_parse() || has_invalid_framing(error) {
        true => ExecError::BackendInvalid {
            message: match error.source() {
                Some(why) => format!("{error}: {why}"),
                None => error.to_string(),
            },
        },
        false => ExecError::BackendClosed { answering },
    }
}

/// Returns whether the framing of the body is invalid: the chunks of HTTP/1.1, or the frames of HTTP/2.
fn has_invalid_framing(error: &hyper::Error) -> bool {
    let chunks = source_of::<io::Error>(error).map(io::Error::kind);
    let frames = source_of::<h2::Error>(error);
    matches!(
        chunks,
        Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
    ) || frames.is_some_and(h2::Error::is_library)
}

#[cfg(test)]
mod tests {
    use super::*;

    use hyper::client::conn::http1;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Returns the error of a request to a server that sends these bytes and closes the connection.
    async fn error_after(answer: &[u8]) -> hyper::Error {
        let (ours, mut theirs) = tokio::io::duplex(4096);
        let (mut sender, connection) = http1::handshake(TokioIo::new(ours)).await.unwrap();
        let request = Request::get("/").header(header::HOST, "a.example");
        let request = request.body(Upload::none()).unwrap();
        let server = async {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(theirs.read_u8().await.unwrap());
            }
            theirs.write_all(answer).await.unwrap();
            drop(theirs);
        };
        let (response, _, ()) = tokio::join!(sender.send_request(request), connection, server);
        response.unwrap_err()
    }

    /// A request is sent again on another connection only if no response to it has begun.
    #[tokio::test]
    async fn end_of_a_connection_is_told_from_an_invalid_response() {
        let ended = error_after(b"").await;
        assert!(ended_before_response(&ended), "{ended}");
        assert_eq!(
            exec_error(&ended, false),
            ExecError::BackendClosed { answering: false }
        );
        let invalid = error_after(b"220 mail.example ESMTP\r\n\r\n").await;
        assert!(!ended_before_response(&invalid), "{invalid}");
        assert!(matches!(
            exec_error(&invalid, false),
            ExecError::BackendInvalid { .. }
        ));
    }
}
