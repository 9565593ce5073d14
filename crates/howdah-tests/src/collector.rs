//! A collector of traces: takes OTLP over HTTP, decodes it by the published messages, and keeps the spans.
//! It can be told to hang or to refuse. To anything but `/v1/traces` it answers with the fields of the
//! request that carry a trace: it is also a server behind Howdah.

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

/// What becomes of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// They are kept.
    Take,
    /// Nothing is answered.
    Hang,
    /// They are answered with this status.
    Refuse(u16),
}

/// A span as it came.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// In hexadecimal digits.
    pub trace: String,
    /// In hexadecimal digits.
    pub id: String,
    /// In hexadecimal digits; empty: none.
    pub parent: String,
    /// The span's name.
    pub name: String,
    /// `Server`, `Client` or `Internal`.
    pub kind: String,
    /// `service.name` of its resource.
    pub service: String,
    /// Its attributes, numbers in digits.
    pub attributes: BTreeMap<String, String>,
    /// The names of its events.
    pub events: Vec<String>,
    /// It ended in an error.
    pub failed: bool,
    /// From when to when, in nanoseconds.
    pub time: (u64, u64),
    /// The `tracestate` it belongs to.
    pub state: String,
}

impl Span {
    /// An attribute; empty: none.
    pub fn get(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }
}

struct Shared {
    behaviour: Behaviour,
    spans: Vec<Span>,
    /// Fields of the last message, names in lower case.
    fields: BTreeMap<String, String>,
}

/// A running collector. It ends with the process.
#[derive(Clone)]
pub struct Collector {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
}

impl Collector {
    /// On a free port.
    ///
    /// # Panics
    /// If there is none.
    pub fn start() -> Collector {
        Collector::at("127.0.0.1:0".parse().expect("an address"))
    }

    /// At this address.
    ///
    /// # Panics
    /// If it is taken.
    pub fn at(address: SocketAddr) -> Collector {
        let listener = TcpListener::bind(address).expect("the collector's address is free");
        let collector = Collector {
            address: listener.local_addr().expect("a listener has an address"),
            shared: Arc::new(Mutex::new(Shared {
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

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Does so from now on.
    pub fn behave(&self, behaviour: Behaviour) {
        self.lock().behaviour = behaviour;
    }

    /// The spans so far.
    pub fn spans(&self) -> Vec<Span> {
        self.lock().spans.clone()
    }

    /// A field of the last message; empty: none.
    pub fn field(&self, name: &str) -> String {
        self.lock().fields.get(name).cloned().unwrap_or_default()
    }

    /// Waits for the spans of the trace that begins with the request for `path`, the request's first.
    ///
    /// # Panics
    /// If they do not come.
    pub fn trace(&self, path: &str) -> Vec<Span> {
        let mut found = Vec::new();
        wait_until(
            &format!("the spans of {path}"),
            Duration::from_secs(30),
            || {
                let spans = self.spans();
                let server = spans.iter().find(|span| span.get("url.path") == path);
                if let Some(server) = server {
                    let of = |span: &&Span| span.trace == server.trace && span.parent == server.id;
                    found = vec![server.clone()];
                    found.extend(spans.iter().filter(of).cloned());
                }
                !found.is_empty()
            },
        );
        found
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers requests until the client has no more.
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
                // Until the client has left.
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
        let message = ExportTraceServiceRequest::decode(body).expect("the message is OTLP's");
        shared.fields = fields;
        for resource in message.resource_spans {
            let of_resource = attributes(&resource.resource.unwrap_or_default().attributes);
            for span in resource
                .scope_spans
                .into_iter()
                .flat_map(|scope| scope.spans)
            {
                let kind = format!("{:?}", span.kind());
                shared.spans.push(Span {
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

/// Reads a request's line and fields.
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
