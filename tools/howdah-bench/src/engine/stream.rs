//! Sends and receives bytes, plain or over TLS, without blocking.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::socket::send_now;
use super::tls::{PlainRead, Tls, TlsClient};

/// A connection to the server, plain or with TLS.
#[derive(Debug)]
pub struct BenchStream {
    fd: OwnedFd,
    tls: Option<Box<Tls>>,
}

/// The result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveResult {
    /// This many bytes are at the front of the buffer. `drained`: the socket has no more.
    Bytes { length: usize, drained: bool },
    /// Nothing has arrived; epoll will report when something does.
    WouldBlock,
    /// The server has closed the connection.
    End,
    /// The server has closed the connection without sending TLS's close_notify.
    CutOff,
}

/// Why nothing more can be received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamError {
    Socket(Errno),
    Tls(String),
}

impl StreamError {
    /// Returns whether the error came from TLS and not from the socket.
    pub fn is_tls(&self) -> bool {
        matches!(self, StreamError::Tls(_))
    }
}

impl std::fmt::Display for StreamError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StreamError::Socket(error) => write!(f, "{error}"),
            StreamError::Tls(why) => f.write_str(why),
        }
    }
}

impl BenchStream {
    pub fn new(fd: OwnedFd, tls: Option<&TlsClient>) -> Result<BenchStream, String> {
        let tls = tls.map(TlsClient::connect).transpose()?.map(Box::new);
        Ok(BenchStream { fd, tls })
    }

    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Returns the TLS version and cipher; `None` without TLS.
    pub fn description(&self) -> Option<String> {
        self.tls.as_ref()?.description()
    }

    /// Returns whether the handshake negotiated this protocol (ALPN, RFC 7301).
    pub fn has_negotiated(&self, protocol: &[u8]) -> bool {
        self.tls
            .as_ref()
            .is_some_and(|tls| tls.alpn() == Some(protocol))
    }

    /// Continues the handshake; returns whether it is complete.
    pub fn handshake(&mut self, scratch: &mut [u8]) -> Result<bool, StreamError> {
        let Some(tls) = &mut self.tls else {
            return Ok(true);
        };
        loop {
            flush(&self.fd, tls).map_err(StreamError::Socket)?;
            if !tls.is_handshaking() {
                return Ok(true);
            }
            match receive_now(&self.fd, scratch) {
                Ok(0) => {
                    let why = "the server closed during the handshake".to_owned();
                    return Err(StreamError::Tls(why));
                }
                Ok(length) => {
                    if let Err(why) = tls.take(&scratch[..length]) {
                        // The alert tells the server the reason. The connection may already be gone.
                        let _ = flush(&self.fd, tls);
                        return Err(StreamError::Tls(why));
                    }
                }
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(StreamError::Socket(error)),
            }
        }
    }

    /// Sends some of these bytes and returns how many. Fails with EAGAIN if the socket accepts none now.
    #[inline]
    pub fn send(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        let Some(tls) = &mut self.tls else {
            return send_now(&self.fd, bytes);
        };
        if !flush(&self.fd, tls)? {
            return Err(Errno::AGAIN);
        }
        let taken = tls.write(bytes);
        flush(&self.fd, tls)?;
        Ok(taken)
    }

    /// Sends the records that TLS still holds back.
    pub fn flush(&mut self) -> Result<(), Errno> {
        match &mut self.tls {
            Some(tls) => flush(&self.fd, tls).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Receives into `buffer`; `scratch` is for TLS records.
    #[inline]
    pub fn receive(
        &mut self,
        buffer: &mut [u8],
        scratch: &mut [u8],
    ) -> Result<ReceiveResult, StreamError> {
        let Some(tls) = &mut self.tls else {
            return match receive_now(&self.fd, buffer) {
                Ok(0) => Ok(ReceiveResult::End),
                Ok(length) => Ok(ReceiveResult::Bytes {
                    length,
                    drained: length < buffer.len(),
                }),
                Err(Errno::AGAIN) => Ok(ReceiveResult::WouldBlock),
                Err(error) => Err(StreamError::Socket(error)),
            };
        };
        loop {
            match tls.read(buffer).map_err(StreamError::Tls)? {
                PlainRead::Bytes(length) => {
                    return Ok(ReceiveResult::Bytes {
                        length,
                        drained: false,
                    });
                }
                PlainRead::End => return Ok(ReceiveResult::End),
                PlainRead::CutOff => return Ok(ReceiveResult::CutOff),
                PlainRead::WouldBlock => {}
            }
            match receive_now(&self.fd, scratch) {
                Ok(length) => tls.take(&scratch[..length]).map_err(StreamError::Tls)?,
                Err(Errno::AGAIN) => return Ok(ReceiveResult::WouldBlock),
                Err(error) => return Err(StreamError::Socket(error)),
            }
        }
    }
}

#[inline]
fn receive_now(fd: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match recv(fd, &mut *buffer, RecvFlags::empty()) {
            Ok((_, length)) => return Ok(length),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Sends the pending records; returns whether all are sent.
fn flush(fd: &OwnedFd, tls: &mut Tls) -> Result<bool, Errno> {
    loop {
        let pending = tls.pending();
        if pending.is_empty() {
            return Ok(true);
        }
        match send_now(fd, pending) {
            Ok(sent) => tls.sent(sent),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}
