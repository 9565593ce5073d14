//! A strict HTTP/1.1 client over a blocking socket: sends exactly the bytes it is
//! given and refuses every answer that RFC 9112 does not allow. No cookies, no
//! redirects ([`crate::browser`] has those), no TLS, no retry.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest status line plus headers we accept, bytes.
const MAX_HEAD: usize = 64 * 1024;
/// Longest answer we accept, bytes: a test that reads more has lost its way.
const MAX_BODY: usize = 512 << 20;
/// A server silent for this long has hung.
const SILENCE: Duration = Duration::from_secs(60);

/// Why an answer was refused.
#[derive(Debug)]
pub enum Broken {
    /// The socket failed or timed out.
    Io(io::Error),
    /// The peer closed.
    Closed {
        /// Whether bytes of an answer had already come.
        midway: bool,
    },
    /// More than [`MAX_HEAD`] bytes without an empty line.
    HeadTooLong,
    /// Not `HTTP/1.x SP 3DIGIT SP text` (RFC 9112 §4).
    StatusLine(String),
    /// Not `name ":" value` (RFC 9112 §5), folded, or with a bare CR or LF.
    HeaderLine(String),
    /// Transfer-Encoding together with Content-Length, several lengths, or not a number.
    Framing(String),
    /// A chunk size or chunk end that is not one (RFC 9112 §7.1).
    Chunk(String),
    /// More than [`MAX_BODY`] bytes.
    BodyTooLong,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Io(error) => write!(f, "socket: {error}"),
            Broken::Closed { midway: true } => write!(f, "closed in the middle of an answer"),
            Broken::Closed { midway: false } => write!(f, "closed without an answer"),
            Broken::HeadTooLong => write!(f, "headers longer than {MAX_HEAD} bytes"),
            Broken::StatusLine(line) => write!(f, "bad status line {line:?}"),
            Broken::HeaderLine(line) => write!(f, "bad header line {line:?}"),
            Broken::Framing(why) => write!(f, "ambiguous framing: {why}"),
            Broken::Chunk(line) => write!(f, "bad chunk {line:?}"),
            Broken::BodyTooLong => write!(f, "body longer than {MAX_BODY} bytes"),
        }
    }
}

impl std::error::Error for Broken {}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Broken::Io(error)
    }
}

/// Header lines in the order they came, values without surrounding blanks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, String)>);

impl Headers {
    /// The first value of `name`, whatever its case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Every value of `name`, in order.
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
    /// Three digits.
    pub status: u16,
    /// The text behind the status, perhaps empty. `None` if even the blank before it is
    /// missing, which RFC 9112 §4 demands and nginx omits behind codes it has no text
    /// for: the one fault of a status line we forgive, for the rival's sake.
    pub reason: Option<String>,
    /// The header lines.
    pub headers: Headers,
}

/// A whole answer.
#[derive(Clone, Debug, Default)]
pub struct Response {
    /// Informational answers (1xx) that came before it.
    pub interim: Vec<Head>,
    /// The final status line and headers.
    pub head: Head,
    /// The body, de-chunked.
    pub body: Vec<u8>,
    /// Trailer lines of a chunked body.
    pub trailers: Headers,
    /// Whether the connection can carry another request.
    pub keeps_alive: bool,
}

impl Response {
    /// The status code.
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name)
    }

    /// The body as text, broken UTF-8 replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// If it is none; the message has the answer.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("not JSON ({error}): {} {}", self.status(), self.text()))
    }
}

/// How the end of a body is marked (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// HEAD, 1xx, 204, 304: no body whatever the headers say.
    Empty,
    /// This many bytes are left.
    Length(usize),
    /// Chunks; the number is what is left of the present one.
    Chunked(usize),
    /// Until the peer closes.
    Close,
    /// All read.
    Done,
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// Connects from an address of its own: for the server it is another client than most of the tests are.
///
/// # Errors
/// Those of bind(2) and connect(2).
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
    /// Connects, without Nagle's delay, with a limit on silence.
    ///
    /// # Errors
    /// Those of connect(2).
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        Connection::over(TcpStream::connect_timeout(
            &address,
            Duration::from_secs(10),
        )?)
    }

    /// As [`Connection::open`], [`from_elsewhere`].
    ///
    /// # Errors
    /// Those of bind(2) and connect(2).
    pub fn open_elsewhere(address: SocketAddr) -> io::Result<Self> {
        Connection::over(from_elsewhere(address)?)
    }

    fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        Ok(Connection {
            stream,
            unread: Vec::new(),
        })
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// Those of write(2); a server that refuses early may have closed already.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// The socket, for tests that close half of it or shrink its buffers.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Reads one whole answer to a request of `method`, with the 1xx before it.
    ///
    /// # Errors
    /// [`Broken`] says what was wrong with it.
    pub fn read_response(&mut self, method: &str) -> Result<Response, Broken> {
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
            Broken::Closed { .. } => Broken::Closed { midway: true },
            other => other,
        };
        while let Some(piece) = self
            .read_piece(&mut framing, &mut response.trailers)
            .map_err(midway)?
        {
            response.body.extend_from_slice(&piece);
            if response.body.len() > MAX_BODY {
                return Err(Broken::BodyTooLong);
            }
        }
        Ok(response)
    }

    /// Reads a status line and headers, up to and with the empty line.
    ///
    /// # Errors
    /// [`Broken`] says what was wrong with it.
    pub fn read_head(&mut self) -> Result<Head, Broken> {
        let end = loop {
            if let Some(at) = find(&self.unread, b"\r\n\r\n") {
                break at + 4;
            }
            if self.unread.len() > MAX_HEAD {
                return Err(Broken::HeadTooLong);
            }
            self.fill()?;
        };
        let block: Vec<u8> = self.unread.drain(..end).collect();
        parse_head(&block[..end - 4])
    }

    /// Reads the next piece of a body as it arrives; `None` at its end. For streaming
    /// tests: a piece is what one read brought, not a chunk.
    ///
    /// # Errors
    /// [`Broken`] says what was wrong with it.
    pub fn read_piece(
        &mut self,
        framing: &mut Framing,
        trailers: &mut Headers,
    ) -> Result<Option<Vec<u8>>, Broken> {
        loop {
            match *framing {
                Framing::Empty | Framing::Done | Framing::Length(0) => {
                    *framing = Framing::Done;
                    return Ok(None);
                }
                Framing::Close => {
                    return match self.fill() {
                        Ok(()) => Ok(Some(std::mem::take(&mut self.unread))),
                        Err(Broken::Closed { .. }) if self.unread.is_empty() => {
                            *framing = Framing::Done;
                            Ok(None)
                        }
                        Err(Broken::Closed { .. }) => Ok(Some(std::mem::take(&mut self.unread))),
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
                            return Err(Broken::Chunk(end));
                        }
                    }
                    *framing = Framing::Chunked(left);
                    return Ok(Some(piece));
                }
            }
        }
    }

    /// Whether the peer closed in good order with nothing more to say. Waits for it.
    pub fn peer_closes(&mut self) -> bool {
        self.unread.is_empty() && matches!(self.fill(), Err(Broken::Closed { .. }))
    }

    /// At least one and at most `limit` bytes.
    fn take(&mut self, limit: usize) -> Result<Vec<u8>, Broken> {
        if self.unread.is_empty() {
            self.fill()?;
        }
        let n = limit.min(self.unread.len());
        Ok(self.unread.drain(..n).collect())
    }

    /// A line ended by CRLF, without it.
    fn read_line(&mut self) -> Result<String, Broken> {
        let end = loop {
            if let Some(at) = find(&self.unread, b"\r\n") {
                break at;
            }
            if self.unread.len() > MAX_HEAD {
                return Err(Broken::HeadTooLong);
            }
            self.fill()?;
        };
        let line: Vec<u8> = self.unread.drain(..end + 2).take(end).collect();
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    fn read_trailers(&mut self) -> Result<Headers, Broken> {
        let mut trailers = Headers::default();
        loop {
            let line = self.read_line()?;
            if line.is_empty() {
                return Ok(trailers);
            }
            trailers.0.push(header_line(&line)?);
        }
    }

    fn fill(&mut self) -> Result<(), Broken> {
        let mut buffer = [0; 64 * 1024];
        let read = loop {
            match self.stream.read(&mut buffer) {
                // With a time limit set, read(2) is not restarted after a signal (signal(7)).
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        match read {
            0 => Err(Broken::Closed {
                midway: !self.unread.is_empty(),
            }),
            n => {
                self.unread.extend_from_slice(&buffer[..n]);
                Ok(())
            }
        }
    }
}

/// How the body behind `head` ends, for an answer to `method`.
///
/// # Errors
/// [`Broken::Framing`] when the headers contradict each other.
pub fn framing_of(method: &str, head: &Head) -> Result<Framing, Broken> {
    let lengths: Vec<&str> = head.headers.all("Content-Length").collect();
    let encodings: Vec<&str> = head.headers.all("Transfer-Encoding").collect();
    if !lengths.is_empty() && !encodings.is_empty() {
        return Err(Broken::Framing(
            "both Content-Length and Transfer-Encoding".into(),
        ));
    }
    if lengths.len() > 1 {
        return Err(Broken::Framing(format!("Content-Length {lengths:?}")));
    }
    if method == "HEAD" || matches!(head.status, 100..200 | 204 | 304) {
        return Ok(Framing::Empty);
    }
    match (lengths.first(), encodings.as_slice()) {
        (Some(length), _) => length
            .parse()
            .map(Framing::Length)
            .map_err(|_| Broken::Framing(format!("Content-Length {length:?}"))),
        (None, []) => Ok(Framing::Close),
        (None, ["chunked"]) => Ok(Framing::Chunked(0)),
        (None, other) => Err(Broken::Framing(format!("Transfer-Encoding {other:?}"))),
    }
}

fn parse_head(block: &[u8]) -> Result<Head, Broken> {
    let text = String::from_utf8_lossy(block);
    let mut lines = text.split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let bad = || Broken::StatusLine(status_line.to_owned());
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

fn header_line(line: &str) -> Result<(String, String), Broken> {
    let bad = || Broken::HeaderLine(line.to_owned());
    let (name, value) = line.split_once(':').ok_or_else(bad)?;
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(token) || value.contains(['\r', '\n', '\0']) {
        return Err(bad());
    }
    Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
}

fn chunk_size(line: &str) -> Result<usize, Broken> {
    let digits = line.split(';').next().unwrap_or_default().trim_end();
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(Broken::Chunk(line.to_owned()));
    }
    usize::from_str_radix(digits, 16).map_err(|_| Broken::Chunk(line.to_owned()))
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

/// Sends one request on a connection of its own and reads the answer.
///
/// # Errors
/// [`Broken`] says what was wrong.
pub fn exchange(address: SocketAddr, request: &[u8]) -> Result<Response, Broken> {
    let method = request.split(|b| *b == b' ').next().unwrap_or_default();
    let method = String::from_utf8_lossy(method).into_owned();
    let mut connection = Connection::open(address)?;
    // A server may answer and close before it has read everything: the answer counts.
    let sent = connection.send(request);
    connection
        .read_response(&method)
        .map_err(|broken| match sent {
            Err(error) => Broken::Io(error),
            Ok(()) => broken,
        })
}

/// `GET path` on a connection of its own.
///
/// # Panics
/// If there is no well-formed answer.
pub fn get(address: SocketAddr, path: &str) -> Response {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    exchange(address, request.as_bytes()).unwrap_or_else(|broken| panic!("GET {path}: {broken}"))
}
