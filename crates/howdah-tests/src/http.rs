//! A strict HTTP/1.1 client over a blocking socket. It sends exactly the bytes it is given and, with the one exception
//! that [`Head::reason`] describes, rejects every response that RFC 9112 does not allow. It has no cookies, redirects,
//! TLS or retries; [`crate::browser`] adds cookies and redirects.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The longest status line and headers that the client accepts, in bytes.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// The longest body that the client accepts, in bytes: a test that reads more is broken.
const MAX_BODY_BYTES: usize = 512 << 20;
/// A server that is silent for this long is considered hung.
const MAX_SILENCE: Duration = Duration::from_secs(60);

/// Why a response was rejected.
#[derive(Debug)]
pub enum ExchangeError {
    /// The socket failed or timed out.
    Io(io::Error),
    /// The peer closed the connection.
    Closed {
        /// Whether bytes of a response had already arrived.
        midway: bool,
    },
    /// More than [`MAX_HEAD_BYTES`] bytes arrived without an empty line.
    HeadTooLong,
    /// The status line is not `HTTP/1.x SP 3DIGIT SP text` (RFC 9112 §4).
    StatusLine(String),
    /// A header line is not `name ":" value` (RFC 9112 §5), is folded, or contains a NUL or a bare CR or LF.
    HeaderLine(String),
    /// The response has a Transfer-Encoding together with a Content-Length, several lengths, a length that is not a
    /// number, or a coding other than `chunked`.
    Framing(String),
    /// A chunk size or chunk end that is malformed (RFC 9112 §7.1).
    Chunk(String),
    /// The body is longer than [`MAX_BODY_BYTES`].
    BodyTooLong,
}

impl fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExchangeError::Io(error) => write!(f, "socket: {error}"),
            ExchangeError::Closed { midway: true } => {
                write!(f, "closed in the middle of a response")
            }
            ExchangeError::Closed { midway: false } => write!(f, "closed without a response"),
            ExchangeError::HeadTooLong => write!(f, "headers longer than {MAX_HEAD_BYTES} bytes"),
            ExchangeError::StatusLine(line) => write!(f, "bad status line {line:?}"),
            ExchangeError::HeaderLine(line) => write!(f, "bad header line {line:?}"),
            ExchangeError::Framing(why) => write!(f, "ambiguous framing: {why}"),
            ExchangeError::Chunk(line) => write!(f, "bad chunk {line:?}"),
            ExchangeError::BodyTooLong => write!(f, "body longer than {MAX_BODY_BYTES} bytes"),
        }
    }
}

impl std::error::Error for ExchangeError {}

impl From<io::Error> for ExchangeError {
    fn from(error: io::Error) -> Self {
        ExchangeError::Io(error)
    }
}

/// Header lines in the order of arrival, with values without surrounding blanks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, String)>);

impl Headers {
    /// Returns the first value of `name`, ignoring case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Returns every value of `name`, in order.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(move |(have, _)| have.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// A status line and headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// `HTTP/1.1` or `HTTP/1.0`.
    pub version: String,
    /// The status code, which has three digits.
    pub status: u16,
    /// The text after the status code, possibly empty. `None` if even the blank before it is missing. RFC 9112 §4
    /// requires the blank, and nginx omits it after codes for which it has no text; the client tolerates this fault in
    /// a status line, and no other, because it must be able to read nginx's responses.
    pub reason: Option<String>,
    /// The header lines.
    pub headers: Headers,
}

/// A complete response.
#[derive(Clone, Debug, Default)]
pub struct Response {
    /// The informational responses (1xx) that preceded it.
    pub interim: Vec<Head>,
    /// The final status line and headers.
    pub head: Head,
    /// The body without chunk framing.
    pub body: Vec<u8>,
    /// Trailer lines of a chunked body.
    pub trailers: Headers,
    /// Whether the connection can carry another request.
    pub keeps_alive: bool,
}

impl Response {
    /// Returns the status code.
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// Returns the first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name)
    }

    /// Returns the body as text, with invalid UTF-8 replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body as JSON.
    ///
    /// # Panics
    /// If the body is not JSON; the message contains the response.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("not JSON ({error}): {} {}", self.status(), self.text()))
    }
}

/// How the end of a body is marked (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body: responses to HEAD and with status 1xx, 204 and 304 have none, whatever the headers say.
    Empty,
    /// This many bytes are left.
    Length(usize),
    /// The body is in chunks; the number is the remaining length of the current chunk.
    Chunked(usize),
    /// The body ends when the peer closes the connection.
    Close,
    /// The body has been read completely.
    Done,
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// Connects from another source address, so the server sees another client than in most tests.
///
/// # Errors
/// The errors of bind(2) and connect(2).
pub fn from_elsewhere(address: SocketAddr) -> io::Result<TcpStream> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let connecting = async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from(([127, 0, 0, 2], 0)))?;
        socket.connect(address).await?.into_std()
    };
    let stream = runtime.block_on(connecting)?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

impl Connection {
    /// Connects without Nagle's delay and with a limit on silence.
    ///
    /// # Errors
    /// The errors of connect(2).
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        Connection::over(TcpStream::connect_timeout(
            &address,
            Duration::from_secs(10),
        )?)
    }

    /// Connects as [`Connection::open`] does, but through [`from_elsewhere`].
    ///
    /// # Errors
    /// The errors of bind(2) and connect(2).
    pub fn open_elsewhere(address: SocketAddr) -> io::Result<Self> {
        Connection::over(from_elsewhere(address)?)
    }

    fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(MAX_SILENCE))?;
        stream.set_write_timeout(Some(MAX_SILENCE))?;
        Ok(Connection {
            stream,
            unread: Vec::new(),
        })
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// The errors of write(2); a server that rejects a request early may have closed the connection already.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Returns the socket, for tests that close one direction of it or shrink its buffers.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Reads one complete response to a request with `method`, including the 1xx responses before it.
    ///
    /// # Errors
    /// [`ExchangeError`] says what was wrong with the response.
    pub fn read_response(&mut self, method: &str) -> Result<Response, ExchangeError> {
        let mut response = Response::default();
        let mut framing = loop {
            let head = self.read_head()?;
            if (100..200).contains(&head.status) && head.status != 101 {
                response.interim.push(head);
                continue;
            }
            let framing = framing_of(method, &head)?;
            response.head = head;
            break framing;
        };
        response.keeps_alive = framing != Framing::Close
            && response.head.version == "HTTP/1.1"
            && !response
                .header("Connection")
                .is_some_and(|value| value.eq_ignore_ascii_case("close"));
        let midway = |broken| match broken {
            ExchangeError::Closed { .. } => ExchangeError::Closed { midway: true },
            other => other,
        };
        while let Some(piece) = self
            .read_piece(&mut framing, &mut response.trailers)
            .map_err(midway)?
        {
            response.body.extend_from_slice(&piece);
            if response.body.len() > MAX_BODY_BYTES {
                return Err(ExchangeError::BodyTooLong);
            }
        }
        Ok(response)
    }

    /// Reads a status line and headers, including the empty line.
    ///
    /// # Errors
    /// [`ExchangeError`] says what was wrong with the response.
    pub fn read_head(&mut self) -> Result<Head, ExchangeError> {
        let end = loop {
            if let Some(at) = find(&self.unread, b"\r\n\r\n") {
                break at + 4;
            }
            if self.unread.len() > MAX_HEAD_BYTES {
                return Err(ExchangeError::HeadTooLong);
            }
            self.fill()?;
        };
        let block: Vec<u8> = self.unread.drain(..end).collect();
        parse_head(&block[..end - 4])
    }

    /// Reads the next piece of a body as it arrives; returns `None` at the end of the body. A piece is the result of
    /// one read, not a chunk, so tests can observe streaming.
    ///
    /// # Errors
    /// [`ExchangeError`] says what was wrong with the response.
    pub fn read_piece(
        &mut self,
        framing: &mut Framing,
        trailers: &mut Headers,
    ) -> Result<Option<Vec<u8>>, ExchangeError> {
        loop {
            match *framing {
                Framing::Empty | Framing::Done | Framing::Length(0) => {
                    *framing = Framing::Done;
                    return Ok(None);
                }
                Framing::Close => {
                    return match self.fill() {
                        Ok(()) => Ok(Some(std::mem::take(&mut self.unread))),
                        Err(ExchangeError::Closed { .. }) if self.unread.is_empty() => {
                            *framing = Framing::Done;
                            Ok(None)
                        }
                        Err(ExchangeError::Closed { .. }) => {
                            Ok(Some(std::mem::take(&mut self.unread)))
                        }
                        Err(error) => Err(error),
                    };
                }
                Framing::Length(left) => {
                    let piece = self.take(left)?;
                    *framing = Framing::Length(left - piece.len());
                    return Ok(Some(piece));
                }
                Framing::Chunked(0) => {
                    let line = self.read_line()?;
                    let size = chunk_size(&line)?;
                    if size == 0 {
                        *trailers = self.read_trailers()?;
                        *framing = Framing::Done;
                        return Ok(None);
                    }
                    *framing = Framing::Chunked(size);
                }
                Framing::Chunked(left) => {
                    let piece = self.take(left)?;
                    let left = left - piece.len();
                    if left == 0 {
                        let end = self.read_line()?;
                        if !end.is_empty() {
                            return Err(ExchangeError::Chunk(end));
                        }
                    }
                    *framing = Framing::Chunked(left);
                    return Ok(Some(piece));
                }
            }
        }
    }

    /// Waits for the peer to close the connection. Returns whether the peer closed it without an error and sent nothing
    /// more.
    pub fn peer_closes(&mut self) -> bool {
        self.unread.is_empty() && matches!(self.fill(), Err(ExchangeError::Closed { .. }))
    }

    /// Reads at least one and at most `limit` bytes.
    fn take(&mut self, limit: usize) -> Result<Vec<u8>, ExchangeError> {
        if self.unread.is_empty() {
            self.fill()?;
        }
        let n = limit.min(self.unread.len());
        Ok(self.unread.drain(..n).collect())
    }

    /// Reads a line that ends in CRLF, and returns it without the CRLF.
    fn read_line(&mut self) -> Result<String, ExchangeError> {
        let end = loop {
            if let Some(at) = find(&self.unread, b"\r\n") {
                break at;
            }
            if self.unread.len() > MAX_HEAD_BYTES {
                return Err(ExchangeError::HeadTooLong);
            }
            self.fill()?;
        };
        let line: Vec<u8> = self.unread.drain(..end + 2).take(end).collect();
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    fn read_trailers(&mut self) -> Result<Headers, ExchangeError> {
        let mut trailers = Headers::default();
        loop {
            let line = self.read_line()?;
            if line.is_empty() {
                return Ok(trailers);
            }
            trailers.0.push(header_line(&line)?);
        }
    }

    fn fill(&mut self) -> Result<(), ExchangeError> {
        let mut buffer = [0; 64 * 1024];
        let read = loop {
            match self.stream.read(&mut buffer) {
                // With a time limit set, read(2) is not restarted after a signal (signal(7)).
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        match read {
            0 => Err(ExchangeError::Closed {
                midway: !self.unread.is_empty(),
            }),
            n => {
                self.unread.extend_from_slice(&buffer[..n]);
                Ok(())
            }
        }
    }
}

/// Returns how the end of the body after `head` is marked, for a response to `method`.
///
/// # Errors
/// [`ExchangeError::Framing`] when the headers contradict each other.
pub fn framing_of(method: &str, head: &Head) -> Result<Framing, ExchangeError> {
    let lengths: Vec<&str> = head.headers.all("Content-Length").collect();
    let encodings: Vec<&str> = head.headers.all("Transfer-Encoding").collect();
    if !lengths.is_empty() && !encodings.is_empty() {
        return Err(ExchangeError::Framing(
            "both Content-Length and Transfer-Encoding".into(),
        ));
    }
    if lengths.len() > 1 {
        return Err(ExchangeError::Framing(format!(
            "Content-Length {lengths:?}"
        )));
    }
    if method == "HEAD" || matches!(head.status, 100..200 | 204 | 304) {
        return Ok(Framing::Empty);
    }
    match (lengths.first(), encodings.as_slice()) {
        (Some(length), _) => length
            .parse()
            .map(Framing::Length)
            .map_err(|_| ExchangeError::Framing(format!("Content-Length {length:?}"))),
        (None, []) => Ok(Framing::Close),
        (None, ["chunked"]) => Ok(Framing::Chunked(0)),
        (None, other) => Err(ExchangeError::Framing(format!(
            "Transfer-Encoding {other:?}"
        ))),
    }
}

fn parse_head(block: &[u8]) -> Result<Head, ExchangeError> {
    let text = String::from_utf8_lossy(block);
    let mut lines = text.split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let bad = || ExchangeError::StatusLine(status_line.to_owned());
    let (version, rest) = status_line.split_once(' ').ok_or_else(bad)?;
    let (status, reason) = match rest.split_once(' ') {
        Some((status, reason)) => (status, Some(reason)),
        None => (rest, None),
    };
    let digits = status.len() == 3 && status.bytes().all(|b| b.is_ascii_digit());
    let text = reason.unwrap_or_default();
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") || !digits || text.contains(['\r', '\n']) {
        return Err(bad());
    }
    Ok(Head {
        version: version.to_owned(),
        status: status.parse().map_err(|_| bad())?,
        reason: reason.map(str::to_owned),
        headers: Headers(lines.map(header_line).collect::<Result<_, _>>()?),
    })
}

fn header_line(line: &str) -> Result<(String, String), ExchangeError> {
    let bad = || ExchangeError::HeaderLine(line.to_owned());
    let (name, value) = line.split_once(':').ok_or_else(bad)?;
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(token) || value.contains(['\r', '\n', '\0']) {
        return Err(bad());
    }
    Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
}

fn chunk_size(line: &str) -> Result<usize, ExchangeError> {
    let digits = line.split(';').next().unwrap_or_default().trim_end();
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(ExchangeError::Chunk(line.to_owned()));
    }
    usize::from_str_radix(digits, 16).map_err(|_| ExchangeError::Chunk(line.to_owned()))
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

/// Sends one request on a new connection and reads the response.
///
/// # Errors
/// [`ExchangeError`] says what was wrong with the response.
pub fn exchange(address: SocketAddr, request: &[u8]) -> Result<Response, ExchangeError> {
    let method = request.split(|b| *b == b' ').next().unwrap_or_default();
    let method = String::from_utf8_lossy(method).into_owned();
    let mut connection = Connection::open(address)?;
    // A server may respond and close before it has read everything, so a failed send is reported only if there is no
    // valid response.
    let sent = connection.send(request);
    connection
        .read_response(&method)
        .map_err(|broken| match sent {
            Err(error) => ExchangeError::Io(error),
            Ok(()) => broken,
        })
}

/// Sends `GET path` on a new connection.
///
/// # Panics
/// If there is no well-formed response.
pub fn get(address: SocketAddr, path: &str) -> Response {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    exchange(address, request.as_bytes()).unwrap_or_else(|broken| panic!("GET {path}: {broken}"))
}
