//! One client of a shared connection: its request, and how far the response has come.

use std::task::Poll;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};

use super::super::connection::SendTicket;
use super::super::context::ThreadContext;
use super::super::cookies::CookieJar;
use super::super::recorder::RequestTimes;
use super::super::request;
use super::super::transcript::Transcript;
use super::{StreamExchange, StreamFailure};
use crate::outcome::Outcome;
use crate::plan::UrlScheme;
use crate::plan::check::MAX_CHECKED_BODY_BYTES;
use crate::plan::template::{PlaceholderValues, XorshiftRandom};

/// A client, which has at most one request at a time.
pub struct StreamClient<E> {
    pub exchange: RequestStage<E>,
    pub ticket: SendTicket,
    pub times: RequestTimes,
    pub since: u64,
    pub free_since: u64,
    pub jar: CookieJar,
    pub random: XorshiftRandom,
    pub body: Vec<u8>,
}

/// The stage that a client's request has reached.
pub enum RequestStage<E> {
    /// The client has no request.
    Idle,
    /// The request waits for the connection, or for the server to allow another stream.
    Waiting,
    /// The request has been sent, and the client waits for the header of the response.
    Head(E),
    /// The client reads the body of the response.
    Body(ResponseBodyReader<E>),
}

pub struct ResponseBodyReader<E> {
    exchange: E,
    pub status: u16,
    pub has_length: bool,
    /// The length that the body must have, if the header declares one and the response may have a body.
    declared: Option<u64>,
    pub length: u64,
    pub server: Option<String>,
}

/// The result of polling the response.
pub enum ResponseProgress<E> {
    Pending,
    Complete(ResponseBodyReader<E>),
    Failed(Outcome, String),
}

impl<E: StreamExchange> StreamClient<E> {
    /// Creates a client without a request.
    pub fn new(random: XorshiftRandom) -> StreamClient<E> {
        StreamClient {
            exchange: RequestStage::Idle,
            ticket: SendTicket::default(),
            times: RequestTimes::default(),
            since: 0,
            free_since: 0,
            jar: CookieJar::default(),
            random,
            body: Vec::new(),
        }
    }

    /// Builds the client's request. The error says what the protocol cannot express. `number` is the client's number on its
    /// thread, from 0.
    pub fn request(
        &mut self,
        context: &ThreadContext,
        number: u32,
        protocol: &str,
    ) -> Result<Request<()>, String> {
        let plan = &context.plan;
        let seq = self.ticket.seq;
        let targets = plan.targets.len() as u64;
        // In a page load, each client of a connection has a part of the page.
        let at = match &plan.page_load {
            Some(_) => u64::from(number) % targets,
            None => seq.saturating_sub(1) % targets,
        } as usize;
        let target = &plan.targets[at];
        let mut filling = PlaceholderValues {
            seq,
            client: number * context.threads + context.thread + 1,
            random: &mut self.random,
        };
        let scheme = match target.scheme {
            UrlScheme::Http => "http",
            UrlScheme::Https => "https",
        };
        let fields = request::fields(plan, target);
        let mut uri = format!("{scheme}://").into_bytes();
        let host = fields
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("host"));
        if let Some((_, value)) = host {
            value.render(&mut filling, &mut uri);
        }
        let replayed = self.ticket.replayed.as_deref();
        match replayed {
            // The URL of the command line is where the log's paths begin.
            Some(request) => {
                uri.extend_from_slice(target.path.text().trim_end_matches('/').as_bytes());
                uri.extend_from_slice(request.target.as_bytes());
            }
            None => target.path.render(&mut filling, &mut uri),
        }
        let method = replayed.map_or(plan.request.method.as_str(), |request| request.method());
        let wrong = |e: &dyn std::fmt::Display| format!("the request cannot be written: {e}");
        let mut request = Request::builder()
            .method(Method::from_bytes(method.as_bytes()).map_err(|e| wrong(&e))?)
            .uri(uri.as_slice());
        let priorities = plan.page_load.as_ref().map(|load| &load.priorities);
        let priority = priorities.and_then(|all| all.get(at).or(all.last()));
        if let Some(priority) = priority.filter(|priority| !priority.is_empty()) {
            request = request.header("priority", priority.as_str());
        }
        let mut cookie = Vec::new();
        for (name, value) in fields {
            let name = name.to_ascii_lowercase();
            // The URI contains the host. Headers about the connection are not allowed (RFC 9113 §8.2.2, RFC 9114 §4.2).
            if let "host" | "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding"
            | "upgrade" = name.as_str()
            {
                continue;
            }
            let mut bytes = Vec::new();
            value.render(&mut filling, &mut bytes);
            if name == "cookie" {
                cookie = bytes;
                continue;
            }
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|e| wrong(&e))?;
            let value = HeaderValue::from_bytes(&bytes).map_err(|e| wrong(&e))?;
            request = request.header(name, value);
        }
        if plan.request.cookie_jar {
            self.jar.write(!cookie.is_empty(), &mut cookie);
        }
        if !cookie.is_empty() {
            let value = HeaderValue::from_bytes(&cookie).map_err(|e| wrong(&e))?;
            request = request.header(http::header::COOKIE, value);
        }
        let request = request.body(()).map_err(|e| wrong(&e))?;
        if plan.transcript != Transcript::Silent {
            let line = format!("{} {} {protocol}", request.method(), request.uri());
            plan.transcript
                .request(seq, &head(&line, request.headers()));
        }
        Ok(request)
    }

    /// Counts how the request ended, if it comes from a log. `status` is 0 without a complete response.
    pub fn count_replayed(
        &mut self,
        context: &mut ThreadContext,
        outcome: Outcome,
        status: u16,
        now: u64,
    ) {
        if let Some(request) = self.ticket.replayed.take() {
            let latency = now.saturating_sub(self.times.due);
            context
                .recorder
                .count_replayed(&request, outcome, status, latency);
        }
    }

    /// Polls the response.
    pub fn progress(
        &mut self,
        context: &ThreadContext,
        wants_server: bool,
        broken: Option<&str>,
        protocol: &str,
    ) -> ResponseProgress<E> {
        if let RequestStage::Head(exchange) = &mut self.exchange {
            let response = match exchange.poll_head() {
                Poll::Pending => return ResponseProgress::Pending,
                Poll::Ready(Ok(response)) => response,
                Poll::Ready(Err(failure)) => return stream_failure(failure, broken),
            };
            self.times.first_byte = context.clock.now();
            let transcript = context.plan.transcript;
            if transcript != Transcript::Silent {
                let (status, fields) = (response.status(), response.headers());
                let line = format!("{protocol} {}", status.as_str());
                transcript.answer(self.ticket.seq, status.as_u16(), || head(&line, fields));
            }
            if context.requests.cookie_jar() {
                for value in response.headers().get_all(http::header::SET_COOKIE) {
                    self.jar.set(value.as_bytes());
                }
            }
            let field = |name| response.headers().get(name);
            let server = field(http::header::SERVER).filter(|_| wants_server);
            let status = response.status().as_u16();
            let length = field(http::header::CONTENT_LENGTH);
            let replayed = self.ticket.replayed.as_deref();
            let head_only = replayed.map_or(context.requests.head_only, |request| request.head);
            let has_body = !head_only && status != 304;
            let RequestStage::Head(exchange) =
                std::mem::replace(&mut self.exchange, RequestStage::Idle)
            else {
                return ResponseProgress::Pending;
            };
            self.exchange = RequestStage::Body(ResponseBodyReader {
                exchange,
                status,
                has_length: length.is_some(),
                declared: length
                    .filter(|_| has_body)
                    .and_then(|value| value.to_str().ok()?.parse().ok()),
                length: 0,
                server: server.map(|s| String::from_utf8_lossy(s.as_bytes()).into_owned()),
            });
        }
        let RequestStage::Body(incoming) = &mut self.exchange else {
            return ResponseProgress::Pending;
        };
        let (length, body) = (&mut incoming.length, &mut self.body);
        let complete = incoming.exchange.poll_body(|data| {
            *length += data.len() as u64;
            if context.checks_bodies {
                let room = MAX_CHECKED_BODY_BYTES.saturating_sub(body.len());
                body.extend_from_slice(&data[..data.len().min(room)]);
            }
        });
        match complete {
            Poll::Pending => return ResponseProgress::Pending,
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(failure)) => return stream_failure(failure, broken),
        }
        match std::mem::replace(&mut self.exchange, RequestStage::Idle) {
            RequestStage::Body(incoming) => match incoming.declared {
                Some(declared) if declared != incoming.length => {
                    let outcome = if incoming.length < declared {
                        Outcome::Truncated
                    } else {
                        Outcome::ProtocolError
                    };
                    let why = format!(
                        "a body of {} bytes with a Content-Length of {declared}",
                        incoming.length
                    );
                    ResponseProgress::Failed(outcome, why)
                }
                _ => ResponseProgress::Complete(incoming),
            },
            _ => ResponseProgress::Pending,
        }
    }
}

/// Formats a header as in HTTP/1.1, for the transcript.
fn head(line: &str, fields: &HeaderMap) -> Vec<u8> {
    let mut bytes = line.as_bytes().to_vec();
    for (name, value) in fields {
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
    }
    bytes
}

/// Returns the outcome of a failed stream. `broken` is the error of the socket, if it has failed.
fn stream_failure<E>(failure: StreamFailure, broken: Option<&str>) -> ResponseProgress<E> {
    match broken {
        Some(why) => ResponseProgress::Failed(Outcome::Reset, why.to_owned()),
        None => ResponseProgress::Failed(failure.outcome, failure.why),
    }
}
