//! Clients that request pages all the time, half of them on a new connection for each request, and count what fails.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a response may take on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How many clients there are for each address.
const CLIENTS: usize = 4;
/// The number of requests that are sent on a connection that is kept alive.
const REQUESTS_PER_CONNECTION: usize = 40;

/// A connection to a server.
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Client {
            stream: BufReader::new(stream),
        })
    }

    pub fn send(&mut self, host: &str, target: &str, close: bool) -> io::Result<()> {
        let connection = if close { "close" } else { "keep-alive" };
        let text =
            format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: {connection}\r\n\r\n");
        self.stream.get_mut().write_all(text.as_bytes())
    }

    /// Reads a response: its status, its body, and whether the server closes the connection. An error of the kind
    /// `UnexpectedEof` means that the connection was closed before the response began.
    pub fn receive(&mut self) -> io::Result<(u16, String, bool)> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let invalid = || io::Error::other(format!("not a response: {line:?}"));
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.ok_or_else(invalid)?;
        let (mut length, mut closes) = (None, false);
        loop {
            let mut header = String::new();
            if self.stream.read_line(&mut header)? == 0 {
                return Err(io::Error::other("the header was cut off"));
            }
            let Some((name, value)) = header.trim_end().split_once(':') else {
                break;
            };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse::<usize>().ok(),
                "connection" => closes = value.trim().eq_ignore_ascii_case("close"),
                _ => {}
            }
        }
        let mut body = vec![0; length.ok_or_else(|| io::Error::other("no length"))?];
        self.stream
            .read_exact(&mut body)
            .map_err(|error| io::Error::other(format!("the body was cut off: {error}")))?;
        Ok((status, String::from_utf8_lossy(&body).into_owned(), closes))
    }
}

/// Requests a page on a connection of its own, and returns its body.
pub fn get(address: SocketAddr, host: &str, target: &str) -> io::Result<String> {
    let mut client = Client::connect(address)?;
    client.send(host, target, true)?;
    Ok(client.receive()?.1)
}

/// What the clients have seen.
#[derive(Debug, Default)]
pub struct Counts {
    /// Complete responses with status 200 of the old servers.
    pub old: AtomicU64,
    /// Complete responses with status 200 of Howdah.
    pub howdah: AtomicU64,
    /// Requests on a connection that had been used before and that the server closed without a byte of a response.
    /// Clients repeat such requests (RFC 9112 §9.3.1), and so do these.
    pub repeated: AtomicU64,
    /// Everything else, with the time since the load began.
    pub failures: Mutex<Vec<(Duration, String)>>,
}

/// Clients at work. Dropping it ends them.
pub struct Load {
    pub counts: Arc<Counts>,
    ends: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts clients that request `target` of the sites in turn.
    pub fn start(addresses: [SocketAddr; 2], sites: usize, target: &'static str) -> Load {
        let counts = Arc::new(Counts::default());
        let ends = Arc::new(AtomicBool::new(false));
        let begun = Instant::now();
        let mut clients = Vec::new();
        for (address, name) in addresses.into_iter().zip(["nginx", "apache"]) {
            for number in 0..CLIENTS {
                let (counts, ends) = (Arc::clone(&counts), Arc::clone(&ends));
                clients.push(thread::spawn(move || {
                    let keep_alive = number % 2 == 1;
                    let mut site = number;
                    while !ends.load(Ordering::Relaxed) {
                        let hosts = (site..site + REQUESTS_PER_CONNECTION)
                            .map(|n| format!("{name}{}.test", n % sites));
                        site += REQUESTS_PER_CONNECTION;
                        let result = visit(address, hosts, target, keep_alive, &counts, &ends);
                        if let Err(why) = result {
                            let mut failures = counts.failures.lock().unwrap();
                            failures.push((begun.elapsed(), format!("{address}: {why}")));
                        }
                    }
                }));
            }
        }
        Load {
            counts,
            ends,
            clients,
        }
    }

    /// Ends the clients, and returns what they have seen.
    pub fn end(mut self) -> Arc<Counts> {
        self.join();
        Arc::clone(&self.counts)
    }

    fn join(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            let _ = client.join();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.join();
    }
}

/// Sends a request for each host, on one connection or on one for each.
fn visit(
    address: SocketAddr,
    hosts: impl Iterator<Item = String>,
    target: &str,
    keep_alive: bool,
    counts: &Counts,
    ends: &AtomicBool,
) -> io::Result<()> {
    let mut kept: Option<Client> = None;
    for host in hosts {
        if ends.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut response = None;
        if let Some(mut client) = kept.take() {
            let sent = client.send(&host, target, false);
            match sent.and_then(|()| client.receive()) {
                Ok(received) => response = Some((client, received)),
                Err(error) if is_closed_connection(&error) => {
                    counts.repeated.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
        let (client, (status, body, closes)) = match response {
            Some(response) => response,
            None => {
                let mut client = Client::connect(address)?;
                client.send(&host, target, !keep_alive)?;
                let received = client.receive()?;
                (client, received)
            }
        };
        count(status, &body, counts)?;
        kept = (keep_alive && !closes).then_some(client);
    }
    Ok(())
}

fn is_closed_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

fn count(status: u16, body: &str, counts: &Counts) -> io::Result<()> {
    let counter = match body.split(' ').next() {
        Some("old") if status == 200 => &counts.old,
        Some("howdah") if status == 200 => &counts.howdah,
        _ => return Err(io::Error::other(format!("status {status}: {body:?}"))),
    };
    counter.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

impl Counts {
    /// Returns the number of complete responses of the old servers and of Howdah.
    pub fn served(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.old), read(&self.howdah))
    }

    /// Checks that no request was lost, and prints what was served.
    pub fn check_nothing_failed(&self) {
        let failures = self.failures.lock().unwrap();
        let (old, howdah) = self.served();
        let repeated = self.repeated.load(Ordering::Relaxed);
        println!("old servers: {old}, Howdah: {howdah}, repeated: {repeated}");
        let first: Vec<_> = failures.iter().take(5).collect();
        assert!(failures.is_empty(), "{} failed: {first:?}", failures.len());
    }
}
