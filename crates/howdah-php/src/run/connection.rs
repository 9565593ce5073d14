//! One client's connection: its input, its output, and its phase. This module touches only the connection's own socket.
//! Other modules decide which connection is served next and how a request is answered.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use howdah_http1::receiver::{ReceiveProgress, ReceiveRefusal, Receiver, RequestLimits};

use super::output::{ClientOutput, is_below_minimum_rate};
use super::spill::{MappedSpill, SpillStore, WorkerSpillFile};
use super::sys;

/// Bytes that one call reads from a socket.
pub const READ_CHUNK_BYTES: usize = 64 << 10;

/// Maximum bytes of a request body in memory; a longer body is moved to a file.
const MAX_BODY_IN_MEMORY: usize = 64 << 10;

/// Maximum bytes that one call discards from a client that gets no more responses but continues to send.
const MAX_DISCARDED_BYTES: usize = 1 << 20;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Receives a request, or waits for the next one.
    Receiving,
    /// The script is answering a request.
    Answering,
    /// No more requests are handled: the remaining output is sent, then the client gets time to close first.
    Closing,
}

/// The result of reading from a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadProgress {
    /// The request is not complete yet.
    Incomplete,
    /// A request is complete and can go to the script.
    Request,
    /// The client sent bytes that are refused.
    Refused(ReceiveRefusal),
    /// The connection has ended and can be closed.
    Ended,
}

/// A client's connection and the request on it.
#[derive(Debug)]
pub struct SwooleConnection {
    socket: OwnedFd,
    /// The client's address; `None` on a unix socket.
    pub peer: Option<SocketAddr>,
    /// What the connection is doing.
    pub phase: Phase,
    /// The request being received or answered.
    pub receiver: Receiver,
    /// Bytes received but not consumed yet: the rest of a header block, or pipelined requests. `unparsed` is set if
    /// parsing them again can make progress.
    input: Vec<u8>,
    unparsed: bool,
    /// The file of a long body: `stored` while the body is being received, `mapped` once it is complete.
    spilled_body: Option<WorkerSpillFile>,
    mapped_body: Option<MappedSpill>,
    /// When the body began to arrive (ms).
    body_began: u64,
    /// Output that the socket has not accepted yet.
    output: ClientOutput,
    /// How long (ms) the script has waited for the client to read its response.
    pub script_waited: u64,
    /// The kernel may have bytes for this connection. epoll is edge-triggered, so this is set until a read finds none.
    readable: bool,
    /// The client has closed its sending half.
    client_ended: bool,
    /// Close the connection once the response has been sent.
    pub close_after: bool,
    /// Number of requests answered on this connection.
    pub served: u64,
    /// When the client last sent or read something that the server waits for (ms).
    pub last_active: u64,
    /// When the request being received began (ms).
    pub request_began: u64,
}

impl SwooleConnection {
    /// Creates the state of a connection that was just accepted.
    pub fn new(socket: OwnedFd, peer: Option<SocketAddr>, now: u64) -> SwooleConnection {
        SwooleConnection {
            socket,
            peer,
            phase: Phase::Receiving,
            receiver: Receiver::default(),
            input: Vec::new(),
            unparsed: false,
            spilled_body: None,
            mapped_body: None,
            body_began: now,
            output: ClientOutput::default(),
            script_waited: 0,
            readable: false,
            client_ended: false,
            close_after: false,
            served: 0,
            last_active: now,
            request_began: now,
        }
    }

    /// Returns the descriptor of the connection's socket.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns whether the connection is between two requests, with nothing received and nothing to send.
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Receiving
            && self.input.is_empty()
            && self.receiver.head().is_none()
            && !self.has_output()
    }

    /// Returns whether no response is in progress: the client sends a request, or may send one, or is closing.
    pub fn is_silent(&self) -> bool {
        self.phase != Phase::Answering && !self.has_output()
    }

    /// Returns how many bytes wait for the client in memory.
    pub fn pending_output(&self) -> usize {
        self.output.bytes_in_memory()
    }

    /// Returns whether output waits to be sent.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Returns whether the client reads its response more slowly than [`MIN_BYTES_PER_SECOND`] on average.
    pub fn reads_too_slowly(&self, now: u64) -> bool {
        self.output.is_too_slow(now)
    }

    /// Returns whether the connection can make progress without another event from the kernel.
    pub fn can_resume(&self) -> bool {
        self.phase == Phase::Receiving
            && (self.readable || !self.input.is_empty() || self.client_ended)
    }

    /// Notes that the kernel has bytes, or the end of the stream.
    pub fn mark_readable(&mut self) {
        self.readable = true;
    }

    /// Reads until a request is complete or no more bytes are available.
    pub fn read(
        &mut self,
        scratch: &mut [u8],
        limits: &RequestLimits,
        store: &SpillStore,
        now: u64,
    ) -> ReadProgress {
        let mut dropped = 0;
        loop {
            match self.phase {
                Phase::Receiving => {
                    if self.unparsed && !self.input.is_empty() {
                        let input = std::mem::take(&mut self.input);
                        let progress = self.receive_bytes(&input, limits, store, now);
                        if progress != ReadProgress::Incomplete {
                            return progress;
                        }
                    }
                }
                // Bytes that arrive now stay in the kernel and are read once the response is complete.
                Phase::Answering => return ReadProgress::Incomplete,
                Phase::Closing => {}
            }
            if !self.readable {
                return if self.client_ended {
                    ReadProgress::Ended
                } else {
                    ReadProgress::Incomplete
                };
            }
            match sys::receive(self.fd(), scratch) {
                Ok(0) => {
                    self.readable = false;
                    self.client_ended = true;
                }
                Ok(n) => {
                    // Fewer bytes than requested: the kernel has no more and will report the next ones.
                    self.readable = n == scratch.len();
                    if self.phase == Phase::Closing {
                        dropped += n;
                        if dropped > MAX_DISCARDED_BYTES {
                            return ReadProgress::Ended;
                        }
                        continue;
                    }
                    if self.is_idle() {
                        self.request_began = now;
                    }
                    self.last_active = now;
                    let progress = if self.input.is_empty() {
                        self.receive_bytes(&scratch[..n], limits, store, now)
                    } else {
                        self.input.extend_from_slice(&scratch[..n]);
                        // A header block that arrives byte by byte is parsed only when a line has ended.
                        self.unparsed |=
                            scratch[..n].contains(&b'\n') || self.input.len() > limits.head.bytes;
                        ReadProgress::Incomplete
                    };
                    if progress != ReadProgress::Incomplete {
                        return progress;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.readable = false,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return ReadProgress::Ended,
            }
        }
    }

    /// Passes bytes to the receiver and keeps the ones that it does not consume.
    fn receive_bytes(
        &mut self,
        bytes: &[u8],
        limits: &RequestLimits,
        store: &SpillStore,
        now: u64,
    ) -> ReadProgress {
        if self.receiver.head().is_none() {
            self.body_began = now;
        }
        match self.receiver.consume(bytes, limits) {
            Ok((used, received)) => {
                self.input.extend_from_slice(&bytes[used..]);
                self.unparsed = used > 0 || self.receiver.in_body();
                if !self.spill_body(received, limits, store) {
                    return ReadProgress::Refused(ReceiveRefusal::SpillFailed);
                }
                match received {
                    ReceiveProgress::More => ReadProgress::Incomplete,
                    ReceiveProgress::AwaitsContinue => {
                        if self.write(b"HTTP/1.1 100 Continue\r\n\r\n", b"", store, now) {
                            ReadProgress::Incomplete
                        } else {
                            ReadProgress::Ended
                        }
                    }
                    ReceiveProgress::Complete => {
                        self.phase = Phase::Answering;
                        ReadProgress::Request
                    }
                }
            }
            Err(why) => ReadProgress::Refused(why),
        }
    }

    /// Moves a long body to a file. If no file is available, a body within the limit of ordinary bodies stays in
    /// memory.
    fn spill_body(
        &mut self,
        received: ReceiveProgress,
        limits: &RequestLimits,
        store: &SpillStore,
    ) -> bool {
        let body = self.receiver.body();
        if self.spilled_body.is_none() && body.len() > MAX_BODY_IN_MEMORY {
            self.spilled_body = store.create(&[body], self.last_active);
            if self.spilled_body.is_none() {
                return self.receiver.received() <= limits.body;
            }
            self.receiver.release_body();
        } else if let Some(file) = &mut self.spilled_body {
            if let Err(e) = file.append(body) {
                store.log_failure(&e, self.last_active);
                return false;
            }
            self.receiver.release_body();
        }
        if received == ReceiveProgress::Complete
            && let Some(file) = self.spilled_body.take()
        {
            match file.map() {
                Ok(mapped) => self.mapped_body = Some(mapped),
                Err(e) => {
                    store.log_failure(&e, self.last_active);
                    return false;
                }
            }
        }
        true
    }

    /// Returns the body of a complete request.
    pub fn body(&self) -> &[u8] {
        match &self.mapped_body {
            Some(mapped) => mapped,
            None => self.receiver.body(),
        }
    }

    /// Returns whether the body arrives more slowly than [`MIN_BYTES_PER_SECOND`] on average.
    pub fn body_is_too_slow(&self, now: u64) -> bool {
        is_below_minimum_rate(self.receiver.received(), self.body_began, now)
    }

    /// Sends bytes, or queues them until the client reads them. Returns `false` if the connection is broken.
    pub fn write(&mut self, first: &[u8], second: &[u8], store: &SpillStore, now: u64) -> bool {
        if self.has_output() && !self.flush(now) {
            return false;
        }
        let (mut first, mut second) = (first, second);
        while !(self.has_output() || first.is_empty() && second.is_empty()) {
            match sys::send(self.fd(), first, second, false) {
                Ok(n) => {
                    self.last_active = now;
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
            // The time limit for reading this output begins now.
            self.last_active = now;
        }
        self.output.push([first, second], store, now);
        true
    }

    /// Sends a part of a file after the queued output. Returns `false` if the connection is broken.
    pub fn write_file(&mut self, file: OwnedFd, offset: u64, length: u64, now: u64) -> bool {
        self.output.push_file(file, offset, length, now);
        self.flush(now)
    }

    /// Sends as much queued output as the socket accepts. Returns `false` if the connection is broken.
    pub fn flush(&mut self, now: u64) -> bool {
        let Some(sent) = self.output.flush(self.socket.as_fd()) else {
            return false;
        };
        if sent > 0 {
            self.last_active = now;
        }
        true
    }

    /// Drops the request and its body, which are not needed any more.
    pub fn drop_request(&mut self) {
        self.receiver.reset_for_next();
        (self.spilled_body, self.mapped_body, self.script_waited) = (None, None, 0);
    }

    /// Prepares for the next request after a complete response.
    pub fn begin_next_request(&mut self, now: u64) {
        self.drop_request();
        self.served += 1;
        self.phase = Phase::Receiving;
        self.last_active = now;
        self.request_began = now;
        if self.input.is_empty() {
            self.input = Vec::new();
        }
    }

    /// Stops handling requests. The sending half is closed once all output has been sent; the client then closes its
    /// side, so no reset overtakes the response (RFC 9112 §9.6).
    pub fn close_after_output(&mut self, now: u64) {
        self.phase = Phase::Closing;
        self.close_after = true;
        self.last_active = now;
        self.input = Vec::new();
        if !self.has_output() {
            sys::shutdown_sending(self.fd());
        }
    }
}
