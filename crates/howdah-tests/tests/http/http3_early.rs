//! Requests in the first packets of a resumed HTTP/3 connection (0-RTT). A relay between client and server holds back
//! the packets that would complete the handshake, and replays recorded packets.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use howdah_tests::fixture::{Fixture, HELLO};
use howdah_tests::http2::Http2Request;
use howdah_tests::http3::Http3TestClient;

/// A script that records each of its runs. It prints `HTTP_EARLY_DATA`, which says that the request may be a replay, or
/// `finished` if that variable is not set.
const COUNT: &str =
    "<?php file_put_contents('SCRATCH/runs', $_SERVER['REQUEST_METHOD'] . \"\\n\", FILE_APPEND);
    echo $_SERVER['HTTP_EARLY_DATA'] ?? 'finished';";

/// The state of the relay for the packets from one side.
#[derive(Default)]
struct PacketGate {
    shut: bool,
    held: Vec<Vec<u8>>,
}

/// Forwards the datagrams of one client, except while a gate is shut.
struct Relay {
    outside: UdpSocket,
    server: UdpSocket,
    /// The gate for datagrams from the client. `to` is the one for datagrams to the client.
    from: Mutex<PacketGate>,
    to: Mutex<PacketGate>,
    client: Mutex<Option<SocketAddr>>,
    recorded: Mutex<Vec<Vec<u8>>>,
}

impl Relay {
    fn start(server: SocketAddr) -> Arc<Relay> {
        let socket = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Arc::new(Relay {
            outside: socket(),
            server: socket(),
            from: Mutex::default(),
            to: Mutex::default(),
            client: Mutex::default(),
            recorded: Mutex::default(),
        });
        relay.server.connect(server).unwrap();
        let of_client = relay.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 65536];
            while let Ok((n, client)) = of_client.outside.recv_from(&mut buffer) {
                *of_client.client.lock().unwrap() = Some(client);
                of_client.pass(&of_client.from, &buffer[..n]);
            }
        });
        let of_server = relay.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 65536];
            while let Ok(n) = of_server.server.recv(&mut buffer) {
                of_server.pass(&of_server.to, &buffer[..n]);
            }
        });
        relay
    }

    fn pass(&self, gate: &Mutex<PacketGate>, packet: &[u8]) {
        let mut gate_now = gate.lock().unwrap();
        if gate_now.shut {
            gate_now.held.push(packet.to_vec());
        } else if std::ptr::eq(gate, &raw const self.from) {
            self.recorded.lock().unwrap().push(packet.to_vec());
            let _ = self.server.send(packet);
        } else if let Some(client) = *self.client.lock().unwrap() {
            let _ = self.outside.send_to(packet, client);
        }
    }

    fn shut(gate: &Mutex<PacketGate>) {
        gate.lock().unwrap().shut = true;
    }

    fn open(&self, gate: &Mutex<PacketGate>) {
        let mut now = gate.lock().unwrap();
        now.shut = false;
        let held = std::mem::take(&mut now.held);
        drop(now);
        for packet in held {
            self.pass(gate, &packet);
        }
    }

    /// Sends the recorded packets of the client again, from another address. At first, the server treats them as
    /// packets of the existing connection and does not respond, so they are sent repeatedly until it does.
    fn replay(&self) {
        let attacker = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        attacker.connect(self.server.peer_addr().unwrap()).unwrap();
        let patience = Duration::from_millis(100);
        attacker.set_read_timeout(Some(patience)).unwrap();
        let recorded = self.recorded.lock().unwrap().clone();
        let answered = (0..200).any(|_| {
            for packet in &recorded {
                attacker.send(packet).unwrap();
            }
            attacker.recv(&mut [0; 65536]).is_ok()
        });
        assert!(answered, "the server responds to the replay");
    }
}

fn runs(fixture: &Fixture) -> Vec<String> {
    let runs = std::fs::read_to_string(fixture.path("runs")).unwrap_or_default();
    runs.lines().map(str::to_owned).collect()
}

#[test]
fn safe_requests_are_answered_early_others_wait_and_none_can_be_repeated() {
    let fixture = Fixture::named("http3-early")
        .http3()
        .script("count.php", COUNT)
        .start();
    let mut first = fixture.http3();
    let known = first.ask(&Http2Request::get("/hello.php")).unwrap();
    assert_eq!(known.text(), HELLO);

    let relay = Relay::start(fixture.tls_address());
    Relay::shut(&relay.to);
    let (mut client, early) = first
        .open_again(relay.outside.local_addr().unwrap())
        .expect("a session of the first connection");
    let post = client
        .send(&Http2Request::new("POST", "localhost", "/count.php"))
        .unwrap();
    let get = client.send(&Http2Request::get("/count.php")).unwrap();
    fixture.wait("the safe request to run", |f| !runs(f).is_empty());
    // From here on, the client cannot prove that it has the session's keys.
    Relay::shut(&relay.from);
    relay.open(&relay.to);
    assert_eq!(client.read(get).unwrap().text(), "1");
    for _ in 0..5 {
        assert_eq!(
            first.ask(&Http2Request::get("/hello.php")).unwrap().text(),
            HELLO
        );
    }
    assert_eq!(runs(&fixture), ["GET"], "the POST waits");
    let recorded = relay.recorded.lock().unwrap().len();
    relay.open(&relay.from);
    assert!(early.is_accepted().unwrap());
    assert_eq!(client.read(post).unwrap().text(), "finished");
    drop(client);
    relay.recorded.lock().unwrap().truncate(recorded);
    relay.replay();
    // While it handles these requests, the server also handles every replayed packet that it accepts.
    for _ in 0..5 {
        assert_eq!(
            first.ask(&Http2Request::get("/hello.php")).unwrap().text(),
            HELLO
        );
    }
    assert_eq!(runs(&fixture), ["GET", "POST"]);
    fixture.still_serves();
}

#[test]
fn sessions_outlive_a_reload_and_are_used_once() {
    let fixture = Fixture::named("http3-sessions")
        .http3()
        .script("count.php", COUNT)
        .start();
    let mut first = fixture.http3();
    first.ask(&Http2Request::get("/hello.php")).unwrap();
    fixture.reload();
    let address = fixture.tls_address();
    let (mut second, early) = first.open_again(address).unwrap();
    second.ask(&Http2Request::get("/count.php")).unwrap();
    assert!(early.is_accepted().unwrap());
    // The second connection receives its own session at the end of the handshake, for use by the next connection.
    second.ask(&Http2Request::get("/hello.php")).unwrap();
    let (mut third, early) = second.open_again(address).unwrap();
    third.ask(&Http2Request::get("/count.php")).unwrap();
    assert!(early.is_accepted().unwrap());
    fixture.wait("the access log to contain three requests", |f| {
        f.access_log().len() >= 3
    });
    fixture.still_serves();
}

#[test]
fn early_data_is_refused_if_client_certificates_are_requested() {
    let fixture = Fixture::named("http3-clients").http3();
    let authority = fixture.scratch().path().join("ca.pem");
    let fixture = fixture
        .site(&format!(
            "[tls]\nclient_ca = \"{}\"\nverify_client = \"optional\"\n",
            authority.display()
        ))
        .start();
    let mut first = fixture.http3();
    assert_eq!(
        first
            .ask(&Http2Request::get("/hello.php"))
            .unwrap()
            .status(),
        200
    );
    let again: Result<_, _> = Http3TestClient::open_again(&first, fixture.tls_address());
    assert!(again.is_err(), "the session allows early requests");
    fixture.still_serves();
}
