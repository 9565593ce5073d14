//! A server that does nothing but respond. The rate that the generator reaches against it is the highest one it can
//! measure. It has one thread, and uses epoll on any free port of loopback. It is not a web server: it recognises
//! requests by their length or their empty line alone.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, accept_with, recv};

use super::socket::send_now;

/// How the server recognises the end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// By an empty line: requests without a body.
    EmptyLine,
    /// By this number of bytes.
    Length(usize),
}

/// A running server. Dropping it stops the server.
#[derive(Debug)]
pub struct NullServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NullServer {
    /// Starts a server that responds to every request with these bytes. `keep` says whether connections stay open
    /// afterwards.
    pub fn start(end: RequestEnd, answer: Vec<u8>, keep: bool) -> io::Result<NullServer> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        rustix::net::listen(&listener, 4096)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let server = NullServerLoop {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            listener,
            clients: HashMap::new(),
            end,
            answer,
            keep,
        };
        let data = EventData::new_u64(LISTENER_TOKEN);
        epoll::add(&server.epoll, &server.listener, data, EventFlags::IN)?;
        let flag = stop.clone();
        let thread = std::thread::Builder::new()
            .name("bench-null".to_owned())
            .spawn(move || server.run(&flag))?;
        Ok(NullServer {
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// Returns a complete response with a body of this length.
    pub fn response(body: usize) -> Vec<u8> {
        let mut bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {body}\r\n\r\n").into_bytes();
        bytes.resize(bytes.len() + body, b'x');
        bytes
    }

    /// Returns the address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed already.
            let _ = thread.join();
        }
    }
}

const LISTENER_TOKEN: u64 = u64::MAX;

struct NullServerLoop {
    epoll: OwnedFd,
    listener: TcpListener,
    clients: HashMap<RawFd, NullConnection>,
    end: RequestEnd,
    answer: Vec<u8>,
    keep: bool,
}

struct NullConnection {
    fd: OwnedFd,
    /// The number of bytes of requests without a response so far.
    received: usize,
    /// How many bytes of the empty line have been matched.
    matched: usize,
    /// The number of responses owed, and how many bytes of the first have been sent.
    owed: usize,
    sent: usize,
    answered: bool,
}

impl NullServerLoop {
    fn run(mut self, stop: &AtomicBool) {
        let mut buffer = vec![0; 64 << 10];
        let mut events = Vec::with_capacity(512);
        let look = Timespec {
            tv_sec: 0,
            tv_nsec: 50_000_000,
        };
        while !stop.load(Ordering::Relaxed) {
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            if let Err(error) = epoll::wait(&self.epoll, room, Some(&look))
                && error != Errno::INTR
            {
                return;
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER_TOKEN => self.accept(),
                    fd => self.serve(fd as RawFd, &mut buffer),
                }
            }
        }
    }

    fn accept(&mut self) {
        while let Ok(fd) = accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)
        {
            let number = fd.as_raw_fd();
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            let nodelay = rustix::net::sockopt::set_tcp_nodelay(&fd, true);
            let data = EventData::new_u64(number as u64);
            if nodelay.is_ok() && epoll::add(&self.epoll, &fd, data, flags).is_ok() {
                let client = NullConnection {
                    fd,
                    received: 0,
                    matched: 0,
                    owed: 0,
                    sent: 0,
                    answered: false,
                };
                self.clients.insert(number, client);
            }
        }
    }

    fn serve(&mut self, number: RawFd, buffer: &mut [u8]) {
        let Some(client) = self.clients.get_mut(&number) else {
            return;
        };
        loop {
            match recv(&client.fd, &mut *buffer, RecvFlags::empty()) {
                Ok((_, 0)) => {
                    self.clients.remove(&number);
                    return;
                }
                Ok((_, length)) => {
                    client.take(self.end, &buffer[..length]);
                    if length < buffer.len() {
                        break;
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => {
                    self.clients.remove(&number);
                    return;
                }
            }
        }
        while client.owed > 0 {
            match send_now(&client.fd, &self.answer[client.sent..]) {
                Ok(length) => client.sent += length,
                Err(Errno::AGAIN) => return,
                Err(_) => break,
            }
            if client.sent == self.answer.len() {
                client.sent = 0;
                client.owed -= 1;
                client.answered = true;
                if !self.keep {
                    break;
                }
            }
        }
        if !self.keep && client.answered {
            self.clients.remove(&number);
        }
    }
}

impl NullConnection {
    fn take(&mut self, end: RequestEnd, bytes: &[u8]) {
        match end {
            RequestEnd::Length(length) => {
                self.received += bytes.len();
                self.owed += self.received / length;
                self.received %= length;
            }
            // The bytes are nearly always a whole request, so its end is checked first.
            RequestEnd::EmptyLine if self.received == 0 && bytes.ends_with(b"\r\n\r\n") => {
                self.owed += memchr::memmem::find_iter(bytes, b"\r\n\r\n").count();
            }
            RequestEnd::EmptyLine => {
                for byte in bytes {
                    self.received += 1;
                    self.matched = match (self.matched, byte) {
                        (0 | 2, b'\r') => self.matched + 1,
                        (1 | 3, b'\n') => self.matched + 1,
                        (_, b'\r') => 1,
                        _ => 0,
                    };
                    if self.matched == 4 {
                        (self.owed, self.received, self.matched) = (self.owed + 1, 0, 0);
                    }
                }
            }
        }
    }
}
