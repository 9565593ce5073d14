//! A TCP link between two programs that a test can interrupt and restore. Bytes that were held arrive late when the
//! link is restored, as in a network that loses nothing. This includes bytes of connections that the sender has closed
//! in the meantime.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// What the link does with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkMode {
    /// Bytes pass as they come.
    Open,
    /// Bytes are held in both directions.
    Held,
    /// Only the server's bytes are held: the server carries out requests, but no client receives the responses.
    AnswersHeld,
    /// Existing connections are closed, and so is every new one.
    Closed,
}

#[derive(Debug)]
struct LinkState {
    mode: LinkMode,
    streams: Vec<TcpStream>,
}

/// A TCP link; see the module. Dropping it closes all connections.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    shared: Arc<(Mutex<LinkState>, Condvar)>,
}

fn lock(state: &Mutex<LinkState>) -> MutexGuard<'_, LinkState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// Creates an open link to this server.
    ///
    /// # Panics
    /// If no port is free.
    pub fn to(server: SocketAddr) -> Link {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let state = LinkState {
            mode: LinkMode::Open,
            streams: Vec::new(),
        };
        let shared = Arc::new((Mutex::new(state), Condvar::new()));
        let accepts = shared.clone();
        // The thread runs until the test process exits; once the link is closed, the thread closes every new
        // connection.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if lock(&accepts.0).mode == LinkMode::Closed {
                    continue;
                }
                // On an error, the client's connection is closed, which tells the client.
                let _ = open(client, server, &accepts);
            }
        });
        Link { address, shared }
    }

    /// Returns the address to which clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets what the link does with bytes from now on.
    pub fn set(&self, mode: LinkMode) {
        let mut state = lock(&self.shared.0);
        state.mode = mode;
        if mode == LinkMode::Closed {
            for stream in state.streams.drain(..) {
                // The other end may have closed the connection.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        self.shared.1.notify_all();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.set(LinkMode::Closed);
    }
}

fn open(
    client: TcpStream,
    server: SocketAddr,
    shared: &Arc<(Mutex<LinkState>, Condvar)>,
) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let ways = [
        (client.try_clone()?, server.try_clone()?, false),
        (server.try_clone()?, client.try_clone()?, true),
    ];
    lock(&shared.0).streams.extend([client, server]);
    for (from, to, answers) in ways {
        let shared = shared.clone();
        thread::spawn(move || pass(from, to, answers, &shared));
    }
    Ok(())
}

/// Forwards bytes until one end closes.
fn pass(
    mut from: TcpStream,
    mut to: TcpStream,
    answers: bool,
    shared: &(Mutex<LinkState>, Condvar),
) {
    let mut bytes = [0; 16 << 10];
    while let Ok(read) = from.read(&mut bytes) {
        let waits = |state: &mut LinkState| match state.mode {
            LinkMode::Held => true,
            LinkMode::AnswersHeld => answers,
            LinkMode::Open | LinkMode::Closed => false,
        };
        drop(shared.1.wait_while(lock(&shared.0), waits));
        if read == 0 || to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    // The other end may have closed the connection.
    let _ = to.shutdown(Shutdown::Write);
}
