//! One client's connection: bytes in, bytes out, and the phase it is in. Touches its own socket
//! only; which connection has its turn, and what a request is answered, is decided elsewhere.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use howdah_http1::receiver::{Limits, Received, Receiver, Refused};

use super::output::{GRACE, MIN_RATE, Output};
use super::spill::{MappedSpill, Spilled, Store};
use super::sys;

/// Bytes asked of a socket at once.
pub const SCRATCH: usize = 64 << 10;

/// Bytes of a body that wait in memory; more are kept in a file.
const BODY_MEMORY: usize = 64 << 10;

/// Bytes read at once from a client that is answered no more and goes on sending.
const MAX_DROPPED: usize = 1 << 20;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Receives a request, or waits for the next.
    Receiving,
    /// The script is answering a request.
    Answering,
    /// No more requests are answered: the output that is left is sent, then the client may hang up first.
    Closing,
}

/// What reading from a connection has led to.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// The request is not complete yet.
    Waits,
    /// A request is complete and can go to the script.
    Request,
    /// The client sent bytes that are refused.
    Refused(Refused),
    /// The connection has ended and can be closed.
    Over,
}

/// A client's connection and the request on it.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    /// Who is at the other end; none on a unix socket.
    pub peer: Option<SocketAddr>,
    /// What the connection is doing.
    pub phase: Phase,
    /// The request being received or answered.
    pub receiver: Receiver,
    /// Received and not taken yet: the rest of a head, pipelined requests. And whether a look at
    /// it can make more of it than the last one.
    input: Vec<u8>,
    unparsed: bool,
    /// The body being received, when it is long; then all of it, when it is complete.
    stored: Option<Spilled>,
    mapped: Option<MappedSpill>,
    /// When the body began to arrive (ms).
    body_since: u64,
    /// What the socket did not take yet.
    output: Output,
    /// How long (ms) the script has waited for the client to take its answer.
    pub waited: u64,
    /// The kernel may have bytes for us (edge-triggered: until it says no).
    readable: bool,
    /// The client has closed its sending half.
    ended: bool,
    /// Close when the answer has gone out.
    pub close_after: bool,
    /// Number of requests answered on this connection.
    pub served: u64,
    /// When the client last did what we wait for (ms).
    pub active: u64,
    /// When the request being received began (ms).
    pub began: u64,
}

impl Connection {
    /// A connection just accepted.
    pub fn new(socket: OwnedFd, peer: Option<SocketAddr>, now: u64) -> Connection {
        Connection {
            socket,
            peer,
            phase: Phase::Receiving,
            receiver: Receiver::default(),
            input: Vec::new(),
            unparsed: false,
            stored: None,
            mapped: None,
            body_since: now,
            output: Output::default(),
            waited: 0,
            readable: false,
            ended: false,
            close_after: false,
            served: 0,
            active: now,
            began: now,
        }
    }

    /// The descriptor of the connection's socket.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the connection is between two requests, with nothing received and nothing to send.
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Receiving
            && self.input.is_empty()
            && self.receiver.head().is_none()
            && !self.has_output()
    }

    /// No request is answered: the client sends one, or may, or hangs up.
    pub fn is_silent(&self) -> bool {
        self.phase != Phase::Answering && !self.has_output()
    }

    /// Bytes that wait for the client in memory.
    pub fn pending_output(&self) -> usize {
        self.output.memory()
    }

    /// Whether anything waits to be sent.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// The client takes its answer slower than [`MIN_RATE`], on the average.
    pub fn reads_too_slowly(&self, now: u64) -> bool {
        self.output.is_too_slow(now)
    }

    /// Whether there is something to look at without waiting for the kernel.
    pub fn can_resume(&self) -> bool {
        self.phase == Phase::Receiving && (self.readable || !self.input.is_empty() || self.ended)
    }

    /// The kernel says there are bytes, or the end.
    pub fn on_readable(&mut self) {
        self.readable = true;
    }

    /// Reads until a request is complete or nothing more is there.
    pub fn read(
        &mut self,
        scratch: &mut [u8],
        limits: &Limits,
        store: &Store,
        now: u64,
    ) -> Progress {
        let mut dropped = 0;
        loop {
            match self.phase {
                Phase::Receiving => {
                    if self.unparsed && !self.input.is_empty() {
                        let input = std::mem::take(&mut self.input);
                        let progress = self.take(&input, limits, store, now);
                        if progress != Progress::Waits {
                            return progress;
                        }
                    }
                }
                // Read when the answer is through: what comes meanwhile stays in the kernel.
                Phase::Answering => return Progress::Waits,
                Phase::Closing => {}
            }
            if !self.readable {
                return if self.ended {
                    Progress::Over
                } else {
                    Progress::Waits
                };
            }
            match sys::receive(self.fd(), scratch) {
                Ok(0) => {
                    self.readable = false;
                    self.ended = true;
                }
                Ok(n) => {
                    // Less than asked for: the kernel has no more, and will say when it has.
                    self.readable = n == scratch.len();
                    if self.phase == Phase::Closing {
                        dropped += n;
                        if dropped > MAX_DROPPED {
                            return Progress::Over;
                        }
                        continue;
                    }
                    if self.is_idle() {
                        self.began = now;
                    }
                    self.active = now;
                    let progress = if self.input.is_empty() {
                        self.take(&scratch[..n], limits, store, now)
                    } else {
                        self.input.extend_from_slice(&scratch[..n]);
                        // A head that comes byte by byte is parsed when a line has ended.
                        self.unparsed |=
                            scratch[..n].contains(&b'\n') || self.input.len() > limits.head.bytes;
                        Progress::Waits
                    };
                    if progress != Progress::Waits {
                        return progress;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.readable = false,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Progress::Over,
            }
        }
    }

    /// Hands bytes to the receiver; what it leaves is kept.
    fn take(&mut self, bytes: &[u8], limits: &Limits, store: &Store, now: u64) -> Progress {
        if self.receiver.head().is_none() {
            self.body_since = now;
        }
        match self.receiver.take(bytes, limits) {
            Ok((used, received)) => {
                self.input.extend_from_slice(&bytes[used..]);
                self.unparsed = used > 0 || self.receiver.in_body();
                if !self.keep_body(received, limits, store) {
                    return Progress::Refused(Refused::SpillFailed);
                }
                match received {
                    Received::More => Progress::Waits,
                    Received::AwaitsContinue => {
                        if self.write(b"HTTP/1.1 100 Continue\r\n\r\n", b"", store, now) {
                            Progress::Waits
                        } else {
                            Progress::Over
                        }
                    }
                    Received::Complete => {
                        self.phase = Phase::Answering;
                        Progress::Request
                    }
                }
            }
            Err(why) => Progress::Refused(why),
        }
    }

    /// Keeps a long body in a file. One that may be in memory, too, stays there without a file.
    fn keep_body(&mut self, received: Received, limits: &Limits, store: &Store) -> bool {
        let body = self.receiver.body();
        if self.stored.is_none() && body.len() > BODY_MEMORY {
            self.stored = store.keep(&[body], self.active);
            if self.stored.is_none() {
                return self.receiver.received() <= limits.body;
            }
            self.receiver.release();
        } else if let Some(file) = &mut self.stored {
            if let Err(e) = file.append(body) {
                store.complain(&e, self.active);
                return false;
            }
            self.receiver.release();
        }
        if received == Received::Complete
            && let Some(file) = self.stored.take()
        {
            match file.map() {
                Ok(mapped) => self.mapped = Some(mapped),
                Err(e) => {
                    store.complain(&e, self.active);
                    return false;
                }
            }
        }
        true
    }

    /// The body of a complete request.
    pub fn body(&self) -> &[u8] {
        match &self.mapped {
            Some(mapped) => mapped,
            None => self.receiver.body(),
        }
    }

    /// The body comes slower than [`MIN_RATE`], on the average.
    pub fn body_is_too_slow(&self, now: u64) -> bool {
        let over = now.saturating_sub(self.body_since).saturating_sub(GRACE);
        self.receiver.received() < over * MIN_RATE / 1000
    }

    /// Sends bytes, or keeps them until the client takes them. `false`: the connection is broken.
    pub fn write(&mut self, first: &[u8], second: &[u8], store: &Store, now: u64) -> bool {
        if self.has_output() && !self.flush(now) {
            return false;
        }
        let (mut first, mut second) = (first, second);
        while !(self.has_output() || first.is_empty() && second.is_empty()) {
            match sys::send(self.fd(), first, second, false) {
                Ok(n) => {
                    self.active = now;
                    let of_first = n.min(first.len());
                    first = &first[of_first..];
                    second = &second[n - of_first..];
                    if first.is_empty() {
                        (first, second) = (second, b"");
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        if first.is_empty() && second.is_empty() {
            return true;
        }
        if !self.has_output() {
            // Its time begins now.
            self.active = now;
        }
        self.output.push([first, second], store, now);
        true
    }

    /// Sends a part of a file behind what waits. `false`: the connection is broken.
    pub fn write_file(&mut self, file: OwnedFd, offset: u64, length: u64, now: u64) -> bool {
        self.output.push_file(file, offset, length, now);
        self.flush(now)
    }

    /// Sends what waits as far as the socket takes it. `false`: the connection is broken.
    pub fn flush(&mut self, now: u64) -> bool {
        let Some(sent) = self.output.flush(self.socket.as_fd()) else {
            return false;
        };
        if sent > 0 {
            self.active = now;
        }
        true
    }

    /// Drops the request and its body, which nobody reads any more.
    pub fn forget_request(&mut self) {
        self.receiver.next();
        (self.stored, self.mapped, self.waited) = (None, None, 0);
    }

    /// The answer is complete: the next request may be received.
    pub fn next(&mut self, now: u64) {
        self.forget_request();
        self.served += 1;
        self.phase = Phase::Receiving;
        self.active = now;
        self.began = now;
        if self.input.is_empty() {
            self.input = Vec::new();
        }
    }

    /// Answers no more. The sending half is ended once everything has gone out; the client then
    /// hangs up, so that no reset overtakes the answer (RFC 9112 §9.6).
    pub fn close_softly(&mut self, now: u64) {
        self.phase = Phase::Closing;
        self.close_after = true;
        self.active = now;
        self.input = Vec::new();
        if !self.has_output() {
            sys::shut_sending(self.fd());
        }
    }
}
