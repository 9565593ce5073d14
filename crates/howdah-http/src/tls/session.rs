//! The TLS of one connection, without rustls's own I/O: rustls processes records, and [`TlsSession`] moves them to and
//! from the socket. An idle connection holds only the keys of rustls: records in transit are in buffers that belong to
//! the thread, and only a remainder that cannot be processed yet is copied.
//!
//! Reading and writing never wait for each other: a reader that finds records to send (tickets, key updates, alerts)
//! sends as much as the socket takes and leaves the rest to the next writer.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::server::ServerConnectionData;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError};

use super::certificates::RequestedName;
use super::client_certificate;
use super::settings::ConnectionSettings;
use crate::socket::StreamSocket;

/// The maximum plain text of one record (RFC 8446 §5.1).
const MAX_RECORD_PLAIN_TEXT: usize = 16 << 10;
/// The maximum length of a record with its header, tag and padding (RFC 8446 §5.2).
const MAX_RECORD_BYTES: usize = MAX_RECORD_PLAIN_TEXT + 256 + 5;
/// The number of bytes received at once: two records, which is also enough for a handshake.
const RECEIVE_BUFFER_BYTES: usize = 2 * MAX_RECORD_BYTES;
/// The maximum plain text that is encrypted before the socket is asked to take it: 10 us of AES.
const MAX_WRITE_BYTES: usize = 64 << 10;
/// The reserve for the part of an encrypted record that exceeds its plain text.
const RECORD_OVERHEAD_BYTES: usize = 64;

thread_local! {
    static RECEIVED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static GATHERED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// Records that are sent immediately. It only grows, so it is neither allocated nor zeroed for each write.
    static ENCRYPTED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One connection's TLS state.
pub(crate) struct TlsSession {
    connection: UnbufferedServerConnection,
    /// Received bytes that do not form a whole record yet.
    partial: Vec<u8>,
    /// Decrypted bytes that the reader had no room for, starting at `plain_at`.
    plain: Vec<u8>,
    plain_at: usize,
    /// Records to be sent, starting at `out_at`.
    out: Vec<u8>,
    out_at: usize,
    state: TlsSessionState,
    asked: RequestedName,
    /// Whether clients are asked for certificates.
    asks_clients: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TlsSessionState {
    Handshake,
    Open,
    /// The client has sent close_notify: nothing more will be read.
    ReadClosed,
    /// The client violated the protocol or sent an alert. The server's own alert may still be in transit.
    Failed,
}

/// The result of processing the received records.
enum RecordOutcome {
    /// More bytes are needed.
    NeedMore,
    Failed(rustls::Error),
}

/// The result of the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NegotiatedTls {
    /// `TLSv1.3` or `TLSv1.2`, the names of Apache's `SSL_PROTOCOL` and nginx's `$ssl_protocol`.
    pub protocol: &'static str,
    /// OpenSSL's name of the cipher suite: `SSL_CIPHER`.
    pub cipher: &'static str,
    /// The name that the client requested (SNI), in lower case.
    pub server_name: Option<Box<str>>,
    /// Whether HTTP/2 was negotiated (ALPN).
    pub http2: bool,
    /// Whether the client is an authority that checks a proof (RFC 8737) and wants only the handshake.
    pub challenge: bool,
    /// Whether the handshake resumed an earlier session.
    pub resumed: bool,
    /// The variables of the client's certificate; empty if the client was not asked for one.
    pub client: Vec<(&'static str, String)>,
    /// The names of the server's certificate, if the client requested a name.
    pub names: Arc<[String]>,
}

impl NegotiatedTls {
    /// Returns whether the connection may carry requests for `host` (without port): the name that the client requested,
    /// or another name of the same certificate (RFC 9110 §7.4, RFC 9113 §9.1.1).
    pub fn covers_host(&self, host: &[u8]) -> bool {
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

/// Refuses a connection that begins with an HTTP method, since the first record of a handshake begins with 22.
fn refuse_plain_http(received: &[u8]) -> io::Result<()> {
    match received.first() {
        Some(first) if first.is_ascii_uppercase() => Err(io::ErrorKind::Unsupported.into()),
        _ => Ok(()),
    }
}

impl TlsSession {
    /// Begins the handshake of an accepted connection. `received` holds the bytes that have already been read from it.
    ///
    /// # Errors
    /// Fails if rustls rejects the configuration.
    pub(crate) fn new(
        settings: &ConnectionSettings,
        received: &[u8],
    ) -> Result<TlsSession, rustls::Error> {
        Ok(TlsSession {
            connection: UnbufferedServerConnection::new(settings.config.clone())?,
            partial: received.to_vec(),
            plain: Vec::new(),
            plain_at: 0,
            out: Vec::new(),
            out_at: 0,
            state: TlsSessionState::Handshake,
            asked: RequestedName::default(),
            asks_clients: settings.asks_clients,
        })
    }

    /// Drives the handshake to its end.
    ///
    /// # Errors
    /// `UnexpectedEof` if the client closes the connection; `Unsupported` if it uses HTTP without TLS; `InvalidData`
    /// with the reason if it violates the protocol.
    pub(crate) fn poll_handshake(
        &mut self,
        socket: &StreamSocket,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.partial.is_empty() {
            let mut received = std::mem::take(&mut self.partial);
            refuse_plain_http(&received)?;
            let length = received.len();
            self.process_and_send(socket, &mut received, length, cx)?;
        }
        while self.state == TlsSessionState::Handshake {
            if ready!(self.poll_receive(socket, cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        // The client may wait for the rest of the server's last flight.
        self.poll_flush(socket, cx)
    }

    /// Reads decrypted bytes into `buf`; 0 is the end of the stream.
    ///
    /// # Errors
    /// `InvalidData` if the client violates the protocol. An end without close_notify is accepted as the end, because
    /// HTTP/1.1 and HTTP/2 know the length of the data that they receive.
    pub(crate) fn poll_read(
        &mut self,
        socket: &StreamSocket,
        buf: &mut [u8],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_plain(socket, cx))?;
        let n = buf.len().min(self.plain.len() - self.plain_at);
        buf[..n].copy_from_slice(self.take_plain(n));
        self.release_plain();
        Poll::Ready(Ok(n))
    }

    /// Does the same as [`TlsSession::poll_read`] for the spare capacity of `buf`.
    pub(crate) fn poll_read_spare(
        &mut self,
        socket: &StreamSocket,
        buf: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_plain(socket, cx))?;
        let room = buf.capacity() - buf.len();
        let n = room.min(self.plain.len() - self.plain_at);
        buf.extend_from_slice(self.take_plain(n));
        self.release_plain();
        Poll::Ready(Ok(n))
    }

    fn take_plain(&mut self, length: usize) -> &[u8] {
        let start = self.plain_at;
        self.plain_at += length;
        &self.plain[start..self.plain_at]
    }

    /// Frees the decrypted bytes once all of them have been read.
    fn release_plain(&mut self) {
        if self.plain_at == self.plain.len() {
            (self.plain, self.plain_at) = (Vec::new(), 0);
        }
    }

    /// Is ready when there are decrypted bytes or, without any, at the end of the stream.
    fn poll_plain(&mut self, socket: &StreamSocket, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A task that only reads would not send these records otherwise.
        if let Poll::Ready(Err(error)) = self.poll_flush(socket, cx) {
            return Poll::Ready(Err(error));
        }
        while self.plain_at == self.plain.len() {
            match self.state {
                TlsSessionState::ReadClosed => break,
                TlsSessionState::Failed => {
                    return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
                }
                TlsSessionState::Handshake | TlsSessionState::Open => {}
            }
            if ready!(self.poll_receive(socket, cx))? == 0 {
                self.state = TlsSessionState::ReadClosed;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Receives once and processes the bytes; 0 is the end of the socket's stream.
    fn poll_receive(
        &mut self,
        socket: &StreamSocket,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        RECEIVED.with_borrow_mut(|buf| {
            buf.resize(RECEIVE_BUFFER_BYTES, 0);
            // A remainder is shorter than a record; rustls stores handshake messages that span several records itself.
            let before = self.partial.len();
            if before >= MAX_RECORD_BYTES {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            let received = ready!(socket.poll_recv(cx, &mut buf[before..]))?;
            if before == 0 && self.state == TlsSessionState::Handshake {
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

    /// Processes the first `length` bytes of `buf`, stores the unused remainder, and sends as much of the output as the
    /// socket takes without blocking.
    fn process_and_send(
        &mut self,
        socket: &StreamSocket,
        buf: &mut [u8],
        length: usize,
        cx: &mut Context<'_>,
    ) -> io::Result<()> {
        let handshake = self.state == TlsSessionState::Handshake;
        let (used, processed) = self.process(&mut buf[..length]);
        if handshake && let Some(asked) = super::certificates::take_requested_name() {
            self.asked = asked;
        }
        self.partial = buf[used..length].to_vec();
        if let Poll::Ready(Err(error)) = self.poll_flush(socket, cx) {
            return Err(error);
        }
        match processed {
            RecordOutcome::NeedMore => Ok(()),
            RecordOutcome::Failed(why) => {
                self.state = TlsSessionState::Failed;
                Err(io::Error::new(io::ErrorKind::InvalidData, why))
            }
        }
    }

    /// Lets rustls process `incoming`, and returns how many bytes it consumed.
    fn process(&mut self, incoming: &mut [u8]) -> (usize, RecordOutcome) {
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
                            Err(why) => return (used, RecordOutcome::Failed(why)),
                        }
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    append_record(&mut data, &mut self.out)
                }
                // The record is in `out`, whose content is sent in order.
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::WriteTraffic(_)) => {
                    if self.state == TlsSessionState::Handshake {
                        self.state = TlsSessionState::Open;
                    }
                    return (used, RecordOutcome::NeedMore);
                }
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                    self.state = TlsSessionState::ReadClosed;
                    return (used, RecordOutcome::NeedMore);
                }
                Ok(ConnectionState::BlockedHandshake) => return (used, RecordOutcome::NeedMore),
                // Early data is not offered: `max_early_data_size` is 0.
                Ok(_) => {
                    let why = rustls::Error::General("unexpected early data".to_owned());
                    return (used, RecordOutcome::Failed(why));
                }
                Err(why) => {
                    // An alert for the client may be pending; rustls returns it before it processes any input.
                    let status = self.connection.process_tls_records(&mut incoming[used..]);
                    if let Ok(ConnectionState::EncodeTlsData(mut data)) = status.state {
                        append_record(&mut data, &mut self.out);
                    }
                    return (used, RecordOutcome::Failed(why));
                }
            }
        }
    }

    /// Encrypts from `parts` and sends once. Returns how many bytes of plain text were taken. The part that the socket
    /// does not take immediately is sent by [`TlsSession::poll_flush`], or before the next write.
    pub(crate) fn poll_write(
        &mut self,
        socket: &StreamSocket,
        parts: &[IoSlice<'_>],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(socket, cx))?;
        match parts {
            [one] => self.encrypt_and_send(&one[..one.len().min(MAX_WRITE_BYTES)], socket, cx),
            // Many short parts are combined into one record.
            _ => GATHERED.with_borrow_mut(|gathered| {
                gathered.clear();
                for part in parts {
                    let room = MAX_WRITE_BYTES - gathered.len();
                    gathered.extend_from_slice(&part[..part.len().min(room)]);
                }
                self.encrypt_and_send(gathered, socket, cx)
            }),
        }
    }

    /// Does the same as [`TlsSession::poll_write`] for the bytes that `read` reads into the given buffer.
    pub(crate) fn poll_write_from(
        &mut self,
        socket: &StreamSocket,
        length: usize,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(socket, cx))?;
        GATHERED.with_borrow_mut(|gathered| {
            gathered.resize(length.min(MAX_WRITE_BYTES), 0);
            let n = read(gathered)?;
            self.encrypt_and_send(&gathered[..n], socket, cx)
        })
    }

    /// Encrypts `plain` and sends its records, after those that are already in the output. Records that the socket does
    /// not take immediately are left in the output. Returns the length of `plain`.
    fn encrypt_and_send(
        &mut self,
        plain: &[u8],
        socket: &StreamSocket,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if plain.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ENCRYPTED.with_borrow_mut(|buf| {
            let length = self.encrypt(plain, buf)?;
            let mut records = &buf[..length];
            if self.out.is_empty() {
                match socket.poll_send(cx, &[IoSlice::new(records)], false) {
                    Poll::Ready(sent) => records = &records[sent?..],
                    Poll::Pending => {}
                }
            }
            self.out.extend_from_slice(records);
            match self.poll_flush(socket, cx) {
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                _ => Poll::Ready(Ok(plain.len())),
            }
        })
    }

    /// Writes the records of `plain` to the start of `buf`, which it enlarges if necessary, and returns their length.
    /// Other records that must be sent before them, such as a key update, are appended to the output.
    fn encrypt(&mut self, plain: &[u8], buf: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            match self.connection.process_tls_records(&mut []).state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let mut room = plain.len()
                        + plain.len().div_ceil(MAX_RECORD_PLAIN_TEXT) * RECORD_OVERHEAD_BYTES;
                    loop {
                        if buf.len() < room {
                            buf.resize(room, 0);
                        }
                        match traffic.encrypt(plain, buf) {
                            Ok(n) => return Ok(n),
                            Err(EncryptError::InsufficientSize(e)) => room = e.required_size,
                            Err(EncryptError::EncryptExhausted) => {
                                return Err(io::ErrorKind::ConnectionAborted.into());
                            }
                        }
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    append_record(&mut data, &mut self.out)
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                // The client will send no more but still receives.
                Ok(ConnectionState::PeerClosed) => self.state = TlsSessionState::ReadClosed,
                _ => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }

    /// Sends the encrypted output.
    pub(crate) fn poll_flush(
        &mut self,
        socket: &StreamSocket,
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

    /// Sends a close_notify, which announces that no more data follows, if the socket takes it immediately.
    pub(crate) fn close_notify(&mut self, socket: &StreamSocket, cx: &mut Context<'_>) {
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

    /// Returns whether decrypted bytes wait for a reader.
    pub(crate) fn has_unread(&self) -> bool {
        self.plain_at < self.plain.len()
    }

    /// Returns the result of the handshake, or `None` before its end.
    pub(crate) fn negotiated(&self) -> Option<NegotiatedTls> {
        if self.state == TlsSessionState::Handshake {
            return None;
        }
        let connection = &self.connection;
        Some(NegotiatedTls {
            protocol: match connection.protocol_version()? {
                rustls::ProtocolVersion::TLSv1_2 => "TLSv1.2",
                _ => "TLSv1.3",
            },
            cipher: super::crypto::openssl_name(connection.negotiated_cipher_suite()?.suite()),
            server_name: self.asked.name.clone(),
            names: self.asked.names.clone(),
            client: match self.asks_clients {
                true => client_certificate::client_variables(
                    connection.peer_certificates().and_then(<[_]>::first),
                ),
                false => Vec::new(),
            },
            http2: connection.alpn_protocol() == Some(b"h2"),
            challenge: connection.alpn_protocol() == Some(super::challenges::ACME_TLS_PROTOCOL),
            resumed: connection.handshake_kind() == Some(rustls::HandshakeKind::Resumed),
        })
    }
}

/// Appends a record that rustls wants to send.
fn append_record(data: &mut EncodeTlsData<'_, ServerConnectionData>, out: &mut Vec<u8>) {
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
