//! Sends one HTTP/1.1 request on a connection of its own, and reads its response: the head alone, or also a limited
//! part of the body.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::certificate::AnyCertificate;
use super::response_reader::{read_body, read_head};

/// The time limit for connecting, and between two reads of a response.
const IO_TIMEOUT: Duration = Duration::from_secs(30);

/// A server, given by its URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyServer {
    /// True for `https`.
    pub tls: bool,
    /// The host, and the port if the URL names one.
    pub authority: String,
}

/// Why a request got no response.
#[derive(Debug)]
pub enum RequestFailure {
    /// The server does not accept connections.
    Unreachable(io::Error),
    /// The server sent something that is not a response, or nothing in time.
    Broken(String),
}

/// Status and headers of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifiedResponseHead {
    /// The status code.
    pub status: u16,
    /// The headers; names are in lower case.
    pub headers: Vec<(String, String)>,
}

impl VerifiedResponseHead {
    /// Returns the values of a header, joined by commas.
    pub fn header(&self, name: &str) -> Option<String> {
        let values: Vec<&str> = self
            .headers
            .iter()
            .filter(|(n, _)| n == name)
            .map(|(_, v)| &**v)
            .collect();
        (!values.is_empty()).then(|| values.join(", "))
    }
}

/// A request with all of its headers, for [`VerifyServer::fetch`].
#[derive(Clone, Copy, Debug)]
pub struct FullRequest<'a> {
    /// GET or HEAD.
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// The `Host` header; its name is also sent in the TLS handshake.
    pub host: &'a str,
    /// Further headers. `Accept` and `Connection` are always sent.
    pub headers: &'a [(String, String)],
}

/// How much of a response is read.
#[derive(Clone, Copy, Debug)]
pub struct ResponseLimits {
    /// The maximum number of bytes of a body. The rest is not read.
    pub body_bytes: usize,
    /// How long the whole exchange may take.
    pub time: Duration,
}

/// A response with its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FullResponse {
    /// Status and headers.
    pub head: VerifiedResponseHead,
    /// The body without its transfer coding, as far as the limit allows.
    pub body: Vec<u8>,
    /// Whether this is all of the body.
    pub is_complete: bool,
    /// The server's certificate (DER), over TLS.
    pub certificate: Option<Vec<u8>>,
}

impl fmt::Display for VerifyServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority)
    }
}

impl VerifyServer {
    /// Parses `http://HOST:PORT` or `https://HOST`.
    ///
    /// # Errors
    /// Returns a sentence that says what such a URL looks like.
    pub fn parse(url: &str) -> Result<VerifyServer, String> {
        let (tls, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(format!("`{url}`: write http://HOST:PORT or https://HOST")),
        };
        let authority = rest.trim_end_matches('/');
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        if authority.is_empty() || !authority.chars().all(plain) {
            return Err(format!(
                "`{url}`: write http://HOST:PORT or https://HOST, without a path"
            ));
        }
        Ok(VerifyServer {
            tls,
            authority: authority.to_owned(),
        })
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let authority = match (without_port(&self.authority), self.tls) {
            (name, true) if name == self.authority => format!("{name}:443"),
            (name, false) if name == self.authority => format!("{name}:80"),
            _ => self.authority.clone(),
        };
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in authority.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, IO_TIMEOUT) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(IO_TIMEOUT))?;
                    stream.set_write_timeout(Some(IO_TIMEOUT))?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Requests a target of a host; the server's certificate must be valid for the name of that host.
    pub fn send_request(
        &self,
        method: &str,
        target: &str,
        host: &str,
    ) -> Result<VerifiedResponseHead, RequestFailure> {
        let stream = self.connect().map_err(RequestFailure::Unreachable)?;
        let broken = |error: io::Error| RequestFailure::Broken(error.to_string());
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: howdah-import\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        );
        if !self.tls {
            return exchange(stream, &request).map_err(broken);
        }
        let connection = connection_to(config(), host)?;
        exchange(StreamOwned::new(connection, stream), &request).map_err(broken)
    }
}

impl VerifyServer {
    /// Sends a request and reads the response with its body. Over TLS, any certificate is accepted: this compares two
    /// servers of one owner, and reports the certificate.
    ///
    /// # Errors
    /// [`RequestFailure::Unreachable`] if the server accepts no connection; otherwise [`RequestFailure::Broken`].
    pub fn fetch(
        &self,
        request: FullRequest<'_>,
        limits: ResponseLimits,
    ) -> Result<FullResponse, RequestFailure> {
        let until = Instant::now() + limits.time;
        let stream = self.connect().map_err(RequestFailure::Unreachable)?;
        let broken = |error: io::Error| RequestFailure::Broken(error.to_string());
        let timeout = Some(limits.time.min(IO_TIMEOUT));
        stream.set_read_timeout(timeout).map_err(broken)?;
        stream.set_write_timeout(timeout).map_err(broken)?;
        let text = format_request(request);
        let has_body = request.method != "HEAD";
        let body_bytes = if has_body { limits.body_bytes } else { 0 };
        if !self.tls {
            return read_response(stream, &text, has_body, body_bytes, until).map_err(broken);
        }
        let connection = connection_to(any_certificate_config(), request.host)?;
        let mut stream = StreamOwned::new(connection, stream);
        let response = read_response(&mut stream, &text, has_body, body_bytes, until);
        let mut response = response.map_err(broken)?;
        let presented = stream.conn.peer_certificates().and_then(<[_]>::first);
        response.certificate = presented.map(|certificate| certificate.to_vec());
        Ok(response)
    }
}

fn format_request(request: FullRequest<'_>) -> String {
    let FullRequest {
        method,
        target,
        host,
        headers,
    } = request;
    let mut text = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text + "Connection: close\r\n\r\n"
}

/// Returns a TLS connection that asks for the name of a host. An address is not sent (RFC 6066 §3).
fn connection_to(
    config: Arc<ClientConfig>,
    host: &str,
) -> Result<ClientConnection, RequestFailure> {
    let broken = |error: &dyn fmt::Display| RequestFailure::Broken(error.to_string());
    let name = without_port(host).trim_matches(['[', ']']).to_owned();
    let name = ServerName::try_from(name).map_err(|error| broken(&error))?;
    ClientConnection::new(config, name).map_err(|error| broken(&error))
}

/// Returns the name or address of an authority; an IPv6 address is in brackets.
pub fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        _ => authority,
    }
}

/// Returns a TLS configuration that trusts the certificate authorities of the system, or those in `SSL_CERT_FILE`.
fn config() -> Arc<ClientConfig> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let make = || {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let versions = builder.with_safe_default_protocol_versions();
        let builder = versions.expect("versions that the provider has");
        let builder = builder.with_root_certificates(roots);
        Arc::new(without_memory(builder.with_no_client_auth()))
    };
    CONFIG.get_or_init(make).clone()
}

/// Returns a TLS configuration that accepts every certificate.
fn any_certificate_config() -> Arc<ClientConfig> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let make = || {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let versions = builder.with_safe_default_protocol_versions();
        let builder = versions
            .expect("versions that the provider has")
            .dangerous();
        let builder = builder.with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)));
        Arc::new(without_memory(builder.with_no_client_auth()))
    };
    CONFIG.get_or_init(make).clone()
}

/// Returns the configuration of a client that resumes no session. The two servers of a comparison have the same name, so
/// the client would offer each of them the session of the other one.
fn without_memory(mut config: ClientConfig) -> ClientConfig {
    config.resumption = Resumption::disabled();
    config
}

fn exchange(mut stream: impl Read + Write, request: &str) -> io::Result<VerifiedResponseHead> {
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    Ok(read_head(&mut stream, None)?.0)
}

/// Sends a request and reads the response until its end, the limit of its body, or the deadline.
fn read_response(
    mut stream: impl Read + Write,
    request: &str,
    has_body: bool,
    body_bytes: usize,
    until: Instant,
) -> io::Result<FullResponse> {
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    let (head, rest) = read_head(&mut stream, Some(until))?;
    let has_body = has_body && !matches!(head.status, 204 | 304);
    let mut response = FullResponse {
        is_complete: true,
        head,
        ..FullResponse::default()
    };
    if has_body {
        read_body(&mut stream, rest, body_bytes, until, &mut response)?;
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn server_urls_are_parsed() {
        let server = VerifyServer::parse("https://example.org/").unwrap();
        assert_eq!(
            (server.tls, server.authority.as_str()),
            (true, "example.org")
        );
        for url in [
            "example.org",
            "http://",
            "ftp://x",
            "http://x/y",
            "http://x y",
        ] {
            assert!(VerifyServer::parse(url).is_err(), "{url}");
        }
        for (authority, name) in [
            ("example.org", "example.org"),
            ("example.org:8443", "example.org"),
            ("[2001:db8::1]", "[2001:db8::1]"),
            ("[2001:db8::1]:8443", "[2001:db8::1]"),
        ] {
            assert_eq!(without_port(authority), name);
        }
    }

    #[test]
    fn request_to_an_https_server_begins_with_a_tls_handshake_for_its_host() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = VerifyServer {
            tls: true,
            authority: listener.local_addr().unwrap().to_string(),
        };
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // RFC 8446 §5.1: the type of the record, two bytes of version, and the length.
            let mut head = [0; 5];
            stream.read_exact(&mut head).unwrap();
            let mut hello = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
            stream.read_exact(&mut hello).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            (head[0], hello)
        });
        let failed = server.send_request("GET", "/", "shop.example:8443");
        let (record, hello) = serving.join().unwrap();
        assert_eq!(record, 22, "a handshake");
        let name = b"shop.example";
        assert!(hello.windows(name.len()).any(|window| window == name));
        // A response that is not encrypted is rejected.
        assert!(
            matches!(failed, Err(RequestFailure::Broken(_))),
            "{failed:?}"
        );
    }

    #[test]
    fn exchange_returns_the_final_response() {
        let answer = b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 301 Moved\r\nLocation:  /b \r\n\r\nbody";
        let mut stream = io::Cursor::new(answer.to_vec());
        stream.set_position(0);
        struct Both<R>(R);
        impl<R: Read> Read for Both<R> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0.read(buffer)
            }
        }
        impl<R> Write for Both<R> {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let head = exchange(Both(stream), "GET / HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(
            (head.status, head.header("location").as_deref()),
            (301, Some("/b"))
        );
        let closed = exchange(Both(io::empty()), "").unwrap_err();
        assert!(closed.to_string().contains("without a response"));
    }

    /// Answers one connection with these bytes, and keeps it open until the client closes it.
    fn answer_once(answer: Vec<u8>) -> VerifyServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            let mut piece = [0; 1024];
            while !head.ends_with(b"\r\n\r\n") {
                let read = stream.read(&mut piece).unwrap();
                head.extend_from_slice(&piece[..read]);
            }
            stream.write_all(&answer).unwrap();
            let _ = stream.read(&mut piece);
        });
        VerifyServer {
            tls: false,
            authority,
        }
    }

    fn fetch(method: &str, answer: &str, body_bytes: usize) -> Result<FullResponse, String> {
        let request = FullRequest {
            method,
            target: "/",
            host: "a.test",
            headers: &[],
        };
        let limits = ResponseLimits {
            body_bytes,
            time: Duration::from_millis(500),
        };
        let server = answer_once(answer.as_bytes().to_vec());
        server
            .fetch(request, limits)
            .map_err(|why| format!("{why:?}"))
    }

    #[test]
    fn fetch_reads_a_body_until_its_end_or_its_limit() {
        let length = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHello";
        let chunked =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nHel\r\n2\r\nlo\r\n0\r\n\r\n";
        for answer in [length, chunked] {
            let response = fetch("GET", answer, 100).unwrap();
            assert_eq!(
                (&response.body[..], response.is_complete),
                (&b"Hello"[..], true)
            );
            let response = fetch("GET", answer, 4).unwrap();
            assert_eq!(
                (&response.body[..], response.is_complete),
                (&b"Hell"[..], false)
            );
        }
        for (method, answer) in [
            ("HEAD", length),
            (
                "GET",
                "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
            ),
            ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        ] {
            let response = fetch(method, answer, 100).unwrap();
            assert_eq!(
                (&response.body[..], response.is_complete),
                (&b""[..], true),
                "{answer}"
            );
        }
    }

    #[test]
    fn fetch_fails_if_a_response_is_not_complete_in_time() {
        for answer in [
            "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nHello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nHel",
            "HTTP/1.1 200 OK\r\n",
        ] {
            let failure = fetch("GET", answer, 100).unwrap_err();
            assert!(failure.contains("in time"), "{failure}");
        }
        let failure = fetch(
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx",
            9,
        );
        assert!(failure.unwrap_err().contains("chunked"));
    }
}
