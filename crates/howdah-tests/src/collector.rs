//! A trace collector: it receives OTLP over HTTP, decodes it by the published message definitions, and stores the
//! spans. It can be set to hang or to refuse messages. For every path other than `/v1/traces`, its response contains
//! the request headers that carry a trace, so it also serves as an upstream behind Howdah.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message;

use crate::process::wait_until;

/// How the collector treats messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Messages are stored.
    Take,
    /// Messages get no response.
    Hang,
    /// Messages are refused with this status.
    Refuse(u16),
}

/// A span as it was received.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceivedSpan {
    /// The trace id in hexadecimal digits.
    pub trace: String,
    /// The span id in hexadecimal digits.
    pub id: String,
    /// The parent's span id in hexadecimal digits; empty if there is no parent.
    pub parent: String,
    /// The span's name.
    pub name: String,
    /// `Server`, `Client` or `Internal`.
    pub kind: String,
    /// The `service.name` of the span's resource.
    pub service: String,
    /// The span's attributes, with numbers as decimal text.
    pub attributes: BTreeMap<String, String>,
    /// The names of the span's events.
    pub events: Vec<String>,
    /// Whether the span ended in an error.
    pub failed: bool,
    /// The start and end times in nanoseconds.
    pub time: (u64, u64),
    /// The `tracestate` of the span.
    pub state: String,
}

impl ReceivedSpan {
    /// Returns an attribute; empty if the span does not have it.
    pub fn get(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }
}

struct CollectorState {
    behaviour: Behaviour,
    spans: Vec<ReceivedSpan>,
    /// The headers of the last message, with names in lower case.
    fields: BTreeMap<String, String>,
}

/// A running collector. It runs until the process exits.
#[derive(Clone)]
pub struct Collector {
    address: SocketAddr,
    shared: Arc<Mutex<CollectorState>>,
}

impl Collector {
    /// Starts a collector on a free port.
    ///
    /// # Panics
    /// If no port is free.
    pub fn start() -> Collector {
        Collector::at("127.0.0.1:0".parse().expect("an address"))
    }

    /// Starts a collector at this address.
    ///
    /// # Panics
    /// If the address is in use.
    pub fn at(address: SocketAddr) -> Collector {
        let listener = TcpListener::bind(address).expect("the collector's address is free");
        let collector = Collector {
            address: listener.local_addr().expect("a listener has an address"),
            shared: Arc::new(Mutex::new(CollectorState {
                behaviour: Behaviour::Take,
                spans: Vec::new(),
                fields: BTreeMap::new(),
            })),
        };
        let own = collector.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let own = own.clone();
                std::thread::spawn(move || own.converse(stream));
            }
        });
        collector
    }

    /// Returns the address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the collector's URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the behaviour from now on.
    pub fn behave(&self, behaviour: Behaviour) {
        self.lock().behaviour = behaviour;
    }

    /// Returns the spans received so far.
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.lock().spans.clone()
    }

    /// Returns a header of the last message; empty if the message did not have it.
    pub fn field(&self, name: &str) -> String {
        self.lock().fields.get(name).cloned().unwrap_or_default()
    }

    /// Waits for the span of the request for `path`, and returns it, followed by those of its direct children that have
    /// arrived by then.
    ///
    /// # Panics
    /// If the span does not arrive.
    pub fn trace(&self, path: &str) -> Vec<ReceivedSpan> {
        let mut found = Vec::new();
        wait_until(
            &format!("the span of {path}"),
            Duration::from_secs(30),
            || {
                let spans = self.spans();
                let server = spans.iter().find(|span| span.get("url.path") == path);
                if let Some(server) = server {
                    let of = |span: &&ReceivedSpan| {
                        span.trace == server.trace && span.parent == server.id
                    };
                    found = vec![server.clone()];
                    found.extend(spans.iter().filter(of).cloned());
                }
                !found.is_empty()
            },
        );
        found
    }

    fn lock(&self) -> MutexGuard<'_, CollectorState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Responds to requests until the client sends no more.
    fn converse(&self, stream: TcpStream) {
        let Ok(mut out) = stream.try_clone() else {
            return;
        };
        let mut input = BufReader::new(stream);
        while let Some((line, fields)) = head(&mut input) {
            let length = fields.get("content-length");
            let length = length.and_then(|text| text.parse().ok()).unwrap_or(0);
            let mut body = vec![0; length];
            if input.read_exact(&mut body).is_err() {
                return;
            }
            let answer = match line.starts_with("POST /v1/traces ") {
                true => self.take(&body, fields),
                false => {
                    let field = |name: &str| fields.get(name).cloned().unwrap_or_default();
                    let text = format!("{} {}", field("traceparent"), field("tracestate"));
                    Some((200, text))
                }
            };
            let Some((status, text)) = answer else {
                // Waits until the client has disconnected.
                let _ = input.read(&mut [0]);
                return;
            };
            let length = text.len();
            let answer =
                format!("HTTP/1.1 {status} Status\r\nContent-Length: {length}\r\n\r\n{text}");
            if out.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn take(&self, body: &[u8], fields: BTreeMap<String, String>) -> Option<(u16, String)> {
        let mut shared = self.lock();
        match shared.behaviour {
            Behaviour::Hang => return None,
            Behaviour::Refuse(status) => return Some((status, "not now".to_owned())),
            Behaviour::Take => {}
        }
        let message = ExportTraceServiceRequest::decode(body).expect("the message is valid OTLP");
        shared.fields = fields;
        for resource in message.resource_spans {
            let of_resource = attributes(&resource.resource.unwrap_or_default().attributes);
            for span in resource
                .scope_spans
                .into_iter()
                .flat_map(|scope| scope.spans)
            {
                let kind = format!("{:?}", span.kind());
                shared.spans.push(ReceivedSpan {
                    trace: hex(&span.trace_id),
                    id: hex(&span.span_id),
                    parent: hex(&span.parent_span_id),
                    name: span.name,
                    kind,
                    service: of_resource.get("service.name").cloned().unwrap_or_default(),
                    attributes: attributes(&span.attributes),
                    events: span.events.into_iter().map(|event| event.name).collect(),
                    failed: span.status.is_some_and(|status| status.code == 2),
                    time: (span.start_time_unix_nano, span.end_time_unix_nano),
                    state: span.trace_state,
                });
            }
        }
        Some((200, String::new()))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attributes(pairs: &[KeyValue]) -> BTreeMap<String, String> {
    let of = |pair: &KeyValue| {
        let value = pair.value.as_ref().and_then(|value| value.value.as_ref());
        let text = match value {
            Some(Value::StringValue(text)) => text.clone(),
            Some(Value::IntValue(number)) => number.to_string(),
            other => format!("{other:?}"),
        };
        (pair.key.clone(), text)
    };
    pairs.iter().map(of).collect()
}

/// Reads the request line and the headers of a request.
fn head(input: &mut impl BufRead) -> Option<(String, BTreeMap<String, String>)> {
    let mut next = || {
        let mut line = String::new();
        let read = input.read_line(&mut line).ok().filter(|n| *n > 0);
        read.map(|_| line.trim_end().to_owned())
    };
    let line = next()?;
    let mut fields = BTreeMap::new();
    loop {
        let field = next()?;
        let Some((name, value)) = field.split_once(':') else {
            return Some((line, fields));
        };
        fields.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
}
