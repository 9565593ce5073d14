//! A dashboard for one user, with the rights of the control socket: `howdah dashboard` serves it on loopback. Its URL
//! contains a secret, so neither another user of the machine nor a web page can find it. Requests that change something
//! must be a POST of JSON from the page itself.

use std::sync::Arc;

use howdah_http::message::{RequestHead, ResponseHead};
use howdah_http::{ConnectionInfo, ConnectionNotice, RequestBody, RequestHandler, Responder};

use super::{SnapshotSender, SnapshotSource};
use crate::admin::ServerStatus;
use crate::cache::admin::AdminCommand;
use howdah_site::client_address::is_loopback_or_literal_host;

/// The maximum size of a request body from the page, in bytes.
const MAX_BODY_BYTES: u64 = 16 << 10;

/// The server at the other end of the control socket. Each call may block until the server responds.
pub trait Operator: Send + Sync + 'static {
    /// Returns the server's status.
    fn status(&self) -> Result<ServerStatus, String>;
    /// Purges pages. Returns a description of what was done, or of why it failed.
    fn purge(&self, what: AdminCommand) -> Result<String, String>;
    /// Reloads the configuration. Returns a description of what was done, or of why it failed.
    fn reload(&self) -> Result<String, String>;
}

/// Handles the requests of the page.
pub struct DashboardRelay<O> {
    /// The path of the page, without its slashes.
    secret: String,
    shown: Arc<OperatedServer<O>>,
}

struct OperatedServer<O> {
    operator: Arc<O>,
    snapshots: SnapshotSender,
}

impl<O: Operator> SnapshotSource for OperatedServer<O> {
    fn snapshots(&self) -> &SnapshotSender {
        &self.snapshots
    }

    async fn snapshot(&self) -> Result<ServerStatus, String> {
        call_operator(&self.operator, O::status).await
    }
}

/// Calls the operator in a thread that may block.
async fn call_operator<O: Operator, T: Send + 'static>(
    operator: &Arc<O>,
    question: impl FnOnce(&O) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let operator = operator.clone();
    let asked = tokio::task::spawn_blocking(move || question(&operator));
    asked.await.unwrap_or_else(|error| Err(error.to_string()))
}

impl<O: Operator> DashboardRelay<O> {
    /// Returns a relay whose page is at `/secret/`.
    pub fn new(secret: String, operator: O) -> DashboardRelay<O> {
        DashboardRelay {
            secret,
            shown: Arc::new(OperatedServer {
                operator: Arc::new(operator),
                snapshots: SnapshotSender::default(),
            }),
        }
    }

    /// Returns the rest of the path, if the request has the right secret and host.
    fn path_below_secret<'a>(&self, request: &'a RequestHead) -> Option<&'a [u8]> {
        let path = request.path().strip_prefix(b"/")?;
        let (given, rest) = path.split_at_checked(self.secret.len())?;
        // The comparison takes constant time, so its duration does not help to guess the secret.
        let same = aws_lc_rs::constant_time::verify_slices_are_equal(given, self.secret.as_bytes());
        same.ok()?;
        is_loopback_or_literal_host(request.host()).then_some(())?;
        rest.strip_prefix(b"/")
    }

    async fn act(&self, rest: &[u8], body: &mut RequestBody) -> Result<String, String> {
        body.set_limit(MAX_BODY_BYTES);
        let mut text = Vec::new();
        while let Some(piece) = body.next().await {
            text.extend_from_slice(&piece.map_err(|why| why.name().to_owned())?);
        }
        match rest {
            b"reload" => call_operator(&self.shown.operator, O::reload).await,
            _ => {
                let what: AdminCommand =
                    serde_json::from_slice(&text).map_err(|error| error.to_string())?;
                match what {
                    AdminCommand::Purge { .. } => {
                        call_operator(&self.shown.operator, |o| o.purge(what)).await
                    }
                    _ => Err("the dashboard supports only purges of pages and reloads".to_owned()),
                }
            }
        }
    }
}

/// Returns whether the page itself sends the request: no other page can send JSON here, or a request with this
/// `Origin`.
fn is_from_the_page(request: &RequestHead) -> bool {
    let own = [b"http://", request.host()].concat();
    request.header(b"origin") == Some(&own[..])
        && request.header(b"content-type") == Some(b"application/json")
}

fn respond(out: &mut Responder, status: u16, text: String) {
    let mut head = ResponseHead::new(status);
    head.header(b"Content-Type", b"text/plain; charset=utf-8")
        .header(b"Cache-Control", b"no-store")
        .header(b"X-Content-Type-Options", b"nosniff");
    out.respond(&head, text);
}

impl<O: Operator> RequestHandler for DashboardRelay<O> {
    async fn handle<'a>(
        &'a self,
        request: &'a RequestHead,
        _conn: &'a ConnectionInfo,
        body: &'a mut RequestBody,
        out: &'a mut Responder,
    ) {
        let Some(rest) = self.path_below_secret(request) else {
            return respond(
                out,
                404,
                "use the address that howdah dashboard printed\n".to_owned(),
            );
        };
        match (request.method(), rest) {
            (b"GET", b"events") => SnapshotSender::stream(&self.shown, out).await,
            (b"POST", b"reload" | b"purge") => {
                if !is_from_the_page(request) {
                    return respond(
                        out,
                        403,
                        "only the dashboard's own page may send this request\n".to_owned(),
                    );
                }
                match self.act(rest, body).await {
                    Ok(done) => respond(out, 200, done),
                    Err(why) => respond(out, 409, why),
                }
            }
            (b"GET" | b"HEAD", _) => match super::page_file(rest, true) {
                Some((head, text)) => out.respond(&head, text),
                None => respond(out, 404, "this page does not exist\n".to_owned()),
            },
            _ => respond(
                out,
                405,
                "only GET is supported, and POST from the dashboard's buttons\n".to_owned(),
            ),
        }
    }

    /// The only client is the user's browser, which shows a refused request. So nothing is logged.
    fn notice(&self, _notice: &ConnectionNotice<'_>) {}
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Duration;

    use howdah_http::listener::ListenerConfig;

    use super::*;
    use crate::status_listener::start_small_server;

    struct StoppedServer;

    impl Operator for StoppedServer {
        fn status(&self) -> Result<ServerStatus, String> {
            Err("the server is stopped".to_owned())
        }

        fn purge(&self, _: AdminCommand) -> Result<String, String> {
            Err("the server is stopped".to_owned())
        }

        fn reload(&self) -> Result<String, String> {
            Err("the server is stopped".to_owned())
        }
    }

    #[test]
    fn dashboard_refuses_a_malformed_request_and_serves_the_next() {
        let relay = Arc::new(DashboardRelay::new("secret".to_owned(), StoppedServer));
        let server = start_small_server(relay, "dashboard").unwrap();
        let listener = ListenerConfig::bind(&"127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let address = listener.local_addr().unwrap();
        server.control().add_listener(listener).unwrap();
        let ask = |request: &str| {
            let mut client = TcpStream::connect(address).unwrap();
            client
                .set_read_timeout(Some(Duration::from_secs(10)))
                .unwrap();
            client.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            answer
        };
        let malformed = ask("GET /secret/ HTTP/1.1\r\nno header\r\n\r\n");
        assert!(malformed.starts_with("HTTP/1.1 400 "), "{malformed}");
        let end = "Content-Type: application/json\r\nConnection: close\r\n\r\n";
        let reload = format!(
            "POST /secret/reload HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\n{end}"
        );
        let failed = ask(&reload);
        assert!(
            failed.starts_with("HTTP/1.1 409 ") && failed.ends_with("the server is stopped"),
            "{failed}"
        );
        server.control().stop(Duration::ZERO);
        server.wait();
    }
}
