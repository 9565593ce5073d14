//! The TLS of one connection, driven by hand: rustls decides, [`Session`] moves records between it and
//! the socket. An idle connection keeps rustls' keys and nothing else: records in transit lie in
//! buffers that belong to the thread, and only a remainder that cannot be processed yet is copied.
//!
//! Reading and writing never wait for one another: a reader that finds records to send (tickets, key
//! updates, alerts) sends what the socket takes and leaves the rest to the next writer.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::server::ServerConnectionData;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError};

use super::certificates::Asked;
use super::client_certificate;
use super::settings::ConnectionSettings;
use crate::socket::Socket;

/// Plain text of one record, RFC 8446 §5.1.
const RECORD: usize = 16 << 10;
/// A record with its header, tag and padding at the most, RFC 8446 §5.2.
const LONGEST_RECORD: usize = RECORD + 256 + 5;
/// Bytes received at once: two records, and what a handshake needs.
const RECEIVE: usize = 2 * LONGEST_RECORD;
/// Plain text encrypted before the socket is asked to take it: 10 us of AES.
const AT_ONCE: usize = 64 << 10;
/// What an encrypted record is longer than its plain text.
const OVERHEAD: usize = 64;

thread_local! {
    static RECEIVED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static GATHERED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One connection's TLS state.
pub(crate) struct Session {
    connection: UnbufferedServerConnection,
    /// Received bytes that are not a whole record yet.
    partial: Vec<u8>,
    /// Decrypted bytes that the reader had no room for, from `plain_at` on.
    plain: Vec<u8>,
    plain_at: usize,
    /// Records to be sent, from `out_at` on.
    out: Vec<u8>,
    out_at: usize,
    state: State,
    asked: Asked,
    /// Clients are asked for certificates.
    asks_clients: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Handshake,
    Open,
    /// The client has sent close_notify: nothing more will be read.
    ReadClosed,
    /// The client broke the protocol, or sent an alert: an alert of ours may still be on its way.
    Failed,
}

/// What processing the received records has come to.
enum Processed {
    /// More bytes are needed.
    NeedMore,
    Failed(rustls::Error),
}

/// What the handshake has agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// `TLSv1.3` or `TLSv1.2`, as Apache's `SSL_PROTOCOL` and nginx' `$ssl_protocol` name it.
    pub protocol: &'static str,
    /// OpenSSL's name of the cipher suite: `SSL_CIPHER`.
    pub cipher: &'static str,
    /// The name that the client asked for (SNI), in lower case.
    pub server_name: Option<Box<str>>,
    /// The client chose HTTP/2 (ALPN).
    pub http2: bool,
    /// The handshake was all that the client wanted: an authority that looks for a proof (RFC 8737).
    pub challenge: bool,
    /// The handshake resumed an earlier session.
    pub resumed: bool,
    /// Variables about the client's certificate; empty: it was not asked for one.
    pub client: Vec<(&'static str, String)>,
    /// The names of the server's certificate, if the client asked for a name.
    pub names: Arc<[String]>,
}

impl Agreed {
    /// Whether the connection is good for requests to `host` (without port): the name the client asked
    /// for, or another of the same certificate (RFC 9110 §7.4, RFC 9113 §9.1.1).
    pub fn is_for(&self, host: &[u8]) -> bool {
        let Some(asked) = &self.server_name else {
            return true;
        };
        let host = host.strip_suffix(b".").unwrap_or(host);
        if host.eq_ignore_ascii_case(asked.as_bytes()) {
            return true;
        }
        let host = std::str::from_utf8(host)
            .unwrap_or_default()
            .to_ascii_lowercase();
        self.names
            .iter()
            .any(|name| super::certificates::covers(name, &host))
    }
}

/// Refuses a method, where the first record of a handshake begins with 22.
fn refuse_plain_http(received: &[u8]) -> io::Result<()> {
    match received.first() {
        Some(first) if first.is_ascii_uppercase() => Err(io::ErrorKind::Unsupported.into()),
        _ => Ok(()),
    }
}

impl Session {
    /// Begins the handshake of an accepted connection; `received` is what of it has been read.
    ///
    /// # Errors
    /// What rustls says of the configuration.
    pub(crate) fn new(
        settings: &ConnectionSettings,
        received: &[u8],
    ) -> Result<Session, rustls::Error> {
        Ok(Session {
            connection: UnbufferedServerConnection::new(settings.config.clone())?,
            partial: received.to_vec(),
            plain: Vec::new(),
            plain_at: 0,
            out: Vec::new(),
            out_at: 0,
            state: State::Handshake,
            asked: Asked::default(),
            asks_clients: settings.asks_clients,
        })
    }

    /// Drives the handshake to its end.
    ///
    /// # Errors
    /// `UnexpectedEof` if the client leaves; `Unsupported` if it speaks HTTP without TLS; `InvalidData`
    /// with the reason if it breaks the protocol.
    pub(crate) fn poll_handshake(
        &mut self,
        socket: &Socket,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.partial.is_empty() {
            let mut received = std::mem::take(&mut self.partial);
            refuse_plain_http(&received)?;
            let length = received.len();
            self.process_and_send(socket, &mut received, length, cx)?;
        }
        while self.state == State::Handshake {
            if ready!(self.poll_receive(socket, cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        // The client may wait for the rest of our last flight.
        self.poll_flush(socket, cx)
    }

    /// Reads decrypted bytes into `buf`; 0 is the end of the stream.
    ///
    /// # Errors
    /// As [`Session::poll_handshake`]. An end without close_notify is an end: HTTP/1.1 and HTTP/2 know
    /// the length of what they receive.
    pub(crate) fn poll_read(
        &mut self,
        socket: &Socket,
        buf: &mut [u8],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        // Whoever reads has nothing else to send.
        if let Poll::Ready(Err(error)) = self.poll_flush(socket, cx) {
            return Poll::Ready(Err(error));
        }
        loop {
            if self.plain_at < self.plain.len() {
                let rest = &self.plain[self.plain_at..];
                let n = rest.len().min(buf.len());
                buf[..n].copy_from_slice(&rest[..n]);
                self.plain_at += n;
                if self.plain_at == self.plain.len() {
                    (self.plain, self.plain_at) = (Vec::new(), 0);
                }
                return Poll::Ready(Ok(n));
            }
            match self.state {
                State::ReadClosed => return Poll::Ready(Ok(0)),
                State::Failed => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
                State::Handshake | State::Open => {}
            }
            if ready!(self.poll_receive(socket, cx))? == 0 {
                self.state = State::ReadClosed;
            }
        }
    }

    /// Receives once and processes it; 0 is the end of the socket's stream.
    fn poll_receive(&mut self, socket: &Socket, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        RECEIVED.with_borrow_mut(|buf| {
            buf.resize(RECEIVE, 0);
            // A remainder is less than a record; handshake messages that span several are rustls' own.
            let before = self.partial.len();
            if before >= LONGEST_RECORD {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            let received = ready!(socket.poll_recv(cx, &mut buf[before..]))?;
            if before == 0 && self.state == State::Handshake {
                refuse_plain_http(&buf[..received])?;
            }
            if received > 0 {
                buf[..before].copy_from_slice(&self.partial);
                self.partial = Vec::new();
                self.process_and_send(socket, buf, before + received, cx)?;
            }
            Poll::Ready(Ok(received))
        })
    }

    /// Processes the first `length` bytes of `buf`, keeps what is left of them, and sends what the socket
    /// takes at once of the answer.
    fn process_and_send(
        &mut self,
        socket: &Socket,
        buf: &mut [u8],
        length: usize,
        cx: &mut Context<'_>,
    ) -> io::Result<()> {
        let handshake = self.state == State::Handshake;
        let (used, processed) = self.process(&mut buf[..length]);
        if handshake && let Some(asked) = super::certificates::take_asked() {
            self.asked = asked;
        }
        self.partial = buf[used..length].to_vec();
        if let Poll::Ready(Err(error)) = self.poll_flush(socket, cx) {
            return Err(error);
        }
        match processed {
            Processed::NeedMore => Ok(()),
            Processed::Failed(why) => {
                self.state = State::Failed;
                Err(io::Error::new(io::ErrorKind::InvalidData, why))
            }
        }
    }

    /// Lets rustls process `incoming`; how many bytes it took.
    fn process(&mut self, incoming: &mut [u8]) -> (usize, Processed) {
        let mut used = 0;
        loop {
            let status = self.connection.process_tls_records(&mut incoming[used..]);
            used += status.discard;
            match status.state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        match record {
                            Ok(record) => {
                                used += record.discard;
                                self.plain.extend_from_slice(record.payload);
                            }
                            Err(why) => return (used, Processed::Failed(why)),
                        }
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, &mut self.out),
                // It is in `out`, which is sent in order.
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::WriteTraffic(_)) => {
                    if self.state == State::Handshake {
                        self.state = State::Open;
                    }
                    return (used, Processed::NeedMore);
                }
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                    self.state = State::ReadClosed;
                    return (used, Processed::NeedMore);
                }
                Ok(ConnectionState::BlockedHandshake) => return (used, Processed::NeedMore),
                // Early data is not offered: `max_early_data_size` is 0.
                Ok(_) => {
                    let why = rustls::Error::General("unexpected early data".to_owned());
                    return (used, Processed::Failed(why));
                }
                Err(why) => {
                    // An alert for the client may be waiting: it comes before anything is processed.
                    let status = self.connection.process_tls_records(&mut incoming[used..]);
                    if let Ok(ConnectionState::EncodeTlsData(mut data)) = status.state {
                        encode(&mut data, &mut self.out);
                    }
                    return (used, Processed::Failed(why));
                }
            }
        }
    }

    /// Encrypts from `parts` and sends once; how much plain text was taken. What of it the socket does
    /// not take at once is sent by [`Session::poll_flush`], or before the next.
    pub(crate) fn poll_write(
        &mut self,
        socket: &Socket,
        parts: &[IoSlice<'_>],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(socket, cx))?;
        let taken = match parts {
            [one] => self.encrypt(&one[..one.len().min(AT_ONCE)])?,
            // Many short pieces make one record.
            _ => GATHERED.with_borrow_mut(|gathered| {
                gathered.clear();
                for part in parts {
                    let room = AT_ONCE - gathered.len();
                    gathered.extend_from_slice(&part[..part.len().min(room)]);
                }
                self.encrypt(gathered)
            })?,
        };
        match self.poll_flush(socket, cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(taken)),
        }
    }

    /// As [`Session::poll_write`], of what `read` reads into the buffer that it gets.
    pub(crate) fn poll_write_from(
        &mut self,
        socket: &Socket,
        length: usize,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(socket, cx))?;
        let taken = GATHERED.with_borrow_mut(|gathered| {
            gathered.resize(length.min(AT_ONCE), 0);
            let n = read(gathered)?;
            self.encrypt(&gathered[..n])
        })?;
        match self.poll_flush(socket, cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(taken)),
        }
    }

    /// Appends records of `plain` to what is to be sent.
    fn encrypt(&mut self, plain: &[u8]) -> io::Result<usize> {
        if plain.is_empty() {
            return Ok(0);
        }
        loop {
            let at = self.out.len();
            match self.connection.process_tls_records(&mut []).state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let mut room = plain.len() + plain.len().div_ceil(RECORD) * OVERHEAD;
                    loop {
                        self.out.resize(at + room, 0);
                        match traffic.encrypt(plain, &mut self.out[at..]) {
                            Ok(n) => {
                                self.out.truncate(at + n);
                                return Ok(plain.len());
                            }
                            Err(EncryptError::InsufficientSize(e)) => room = e.required_size,
                            Err(EncryptError::EncryptExhausted) => {
                                self.out.truncate(at);
                                return Err(io::ErrorKind::ConnectionAborted.into());
                            }
                        }
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, &mut self.out),
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                // The client has said that it sends no more; it still receives.
                Ok(ConnectionState::PeerClosed) => self.state = State::ReadClosed,
                _ => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }

    /// Sends what has been encrypted.
    pub(crate) fn poll_flush(
        &mut self,
        socket: &Socket,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.out.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while self.out_at < self.out.len() {
            let parts = [IoSlice::new(&self.out[self.out_at..])];
            self.out_at += ready!(socket.poll_send(cx, &parts, false))?;
        }
        (self.out, self.out_at) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }

    /// Says that no more will be sent (close_notify), as far as the socket takes it at once.
    pub(crate) fn close_notify(&mut self, socket: &Socket, cx: &mut Context<'_>) {
        let at = self.out.len();
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) =
            self.connection.process_tls_records(&mut []).state
        {
            self.out.resize(at + 128, 0);
            let n = traffic.queue_close_notify(&mut self.out[at..]).unwrap_or(0);
            self.out.truncate(at + n);
        }
        let _ = self.poll_flush(socket, cx);
    }

    /// Decrypted bytes wait for a reader.
    pub(crate) fn has_unread(&self) -> bool {
        self.plain_at < self.plain.len()
    }

    /// What the handshake has agreed on; `None` before its end.
    pub(crate) fn agreed(&self) -> Option<Agreed> {
        if self.state == State::Handshake {
            return None;
        }
        let connection = &self.connection;
        Some(Agreed {
            protocol: match connection.protocol_version()? {
                rustls::ProtocolVersion::TLSv1_2 => "TLSv1.2",
                _ => "TLSv1.3",
            },
            cipher: super::crypto::openssl_name(connection.negotiated_cipher_suite()?.suite()),
            server_name: self.asked.name.clone(),
            names: self.asked.names.clone(),
            client: match self.asks_clients {
                true => client_certificate::variables(
                    connection.peer_certificates().and_then(<[_]>::first),
                ),
                false => Vec::new(),
            },
            http2: connection.alpn_protocol() == Some(b"h2"),
            challenge: connection.alpn_protocol() == Some(super::challenges::PROTOCOL),
            resumed: connection.handshake_kind() == Some(rustls::HandshakeKind::Resumed),
        })
    }
}

/// Appends a record that rustls wants to send.
fn encode(data: &mut EncodeTlsData<'_, ServerConnectionData>, out: &mut Vec<u8>) {
    let at = out.len();
    let mut room = 1 << 10;
    loop {
        out.resize(at + room, 0);
        match data.encode(&mut out[at..]) {
            Ok(n) => return out.truncate(at + n),
            Err(EncodeError::InsufficientSize(e)) => room = e.required_size,
            Err(EncodeError::AlreadyEncoded) => return out.truncate(at),
        }
    }
}
