//! Clients that misuse HTTP/3, like those of HTTP/2 in `http2`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use howdah_tests::fixture::Fixture;
use howdah_tests::http3::Http3TestClient;
use howdah_tests::process_tree;
use quinn::{SendStream, TransportConfig, VarInt};

use super::http2::{ATTACKERS, Attack, all_children_are_free, attacked, hold_out, visit};

/// The number of concurrent requests on one connection.
const STREAMS: usize = 100;

fn site(name: &str) -> Fixture {
    attacked(Fixture::named(name).http3())
}

/// The information that an attacker needs about its target.
struct AttackTarget {
    address: SocketAddr,
    authority: PathBuf,
}

impl AttackTarget {
    fn of(fixture: &Fixture) -> AttackTarget {
        AttackTarget {
            address: fixture.tls_address(),
            authority: fixture.path("ca.pem"),
        }
    }

    /// Opens a connection with this receive window for each of its streams. Returns `None` if the server accepts no
    /// more connections.
    fn connect(&self, window: u32) -> Option<Http3TestClient> {
        let mut transport = TransportConfig::default();
        transport.stream_receive_window(window.into());
        Http3TestClient::open_with(&self.authority, self.address, "localhost", transport).ok()
    }
}

/// Encodes `method path` as a HEADERS frame, with the static table of QPACK (RFC 9204, Appendix A).
fn request(method: u8, path: &str) -> Vec<u8> {
    let mut block = vec![0, 0, 0xc0 | method, 0xc0 | 23];
    for (name, value) in [(0x50, "localhost"), (0x51, path)] {
        block.push(name);
        block.push(u8::try_from(value.len()).expect("a short value"));
        block.extend(value.as_bytes());
    }
    let mut frame = vec![1, u8::try_from(block.len()).expect("a short head")];
    frame.extend(block);
    frame
}

const GET: u8 = 17;
const POST: u8 = 20;

fn wait(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// Opens streams that carry `frames`, and keeps them open and unread until the attack is stopped.
fn hold(client: &Http3TestClient, stop: &AtomicBool, frames: &[u8], ends: bool) {
    let opening = async {
        let mut held = Vec::new();
        for _ in 0..STREAMS {
            let (mut send, recv) = client.connection().open_bi().await.ok()?;
            send.write_all(frames).await.ok()?;
            if ends {
                send.finish().ok()?;
            }
            held.push((send, recv));
        }
        Some(held)
    };
    let held = client.within(opening);
    wait(stop);
    drop(held);
}

#[test]
fn requests_that_are_cancelled_at_once_hold_nobody_up() {
    let fixture = site("h3-rapid-reset");
    let mark = AttackTarget::of(&fixture);
    let attack = Attack::begin_with(move |stop| {
        let Some(client) = mark.connect(1 << 20) else {
            return;
        };
        let cancelling = async {
            while !stop.load(Ordering::Relaxed) {
                let (mut send, mut recv) = client.connection().open_bi().await.ok()?;
                send.write_all(&request(GET, "/slow.php")).await.ok()?;
                let cancelled = VarInt::from_u32(0x10c);
                send.reset(cancelled).ok()?;
                recv.stop(cancelled).ok()?;
            }
            Some(())
        };
        let _ = client.within(cancelling);
    });
    hold_out(&fixture, Some("Http3RapidReset"), attack);
}

#[test]
fn floods_on_control_streams_hold_nobody_up() {
    let fixture = site("h3-control");
    let mark = AttackTarget::of(&fixture);
    let attack = Attack::begin_with(move |stop| {
        let Some(client) = mark.connect(1 << 20) else {
            return;
        };
        // The client has a control stream already. This stream is that of QPACK's encoder, which the client does not
        // open itself.
        let flooding = async {
            let mut stream: SendStream = client.connection().open_uni().await.ok()?;
            stream.write_all(&[2]).await.ok()?;
            while !stop.load(Ordering::Relaxed) {
                // Repeats "Set Dynamic Table Capacity" with capacity zero.
                stream.write_all(&[0x20; 1000]).await.ok()?;
            }
            Some(())
        };
        let _ = client.within(flooding);
    });
    hold_out(&fixture, None, attack);
}

#[test]
fn answers_that_are_not_taken_keep_no_child() {
    // A window as large as a whole response would mean that a build without optimisation encrypts 600 MB.
    for (name, window) in [("h3-windows", 1), ("h3-unread", 1 << 16)] {
        let fixture = site(name);
        let mark = AttackTarget::of(&fixture);
        let attack = Attack::begin_with(move |stop| {
            if let Some(client) = mark.connect(window) {
                hold(&client, stop, &request(GET, "/long.php"), true);
            }
        });
        visit(&fixture);
        // The pages are rendered, although the clients do not read them.
        fixture.wait("all pages to be rendered", |f| {
            f.status()["pools"][0]["accepted_requests"].as_u64()
                >= Some((STREAMS * ATTACKERS) as u64)
        });
        all_children_are_free(&fixture);
        let memory = process_tree::memory(fixture.front(), "Rss").expect("the front is there");
        assert!(memory < 200 << 10, "{memory} KiB for 600 responses of 1 MB");
        visit(&fixture);
        attack.end();
    }
}

#[test]
fn bodies_that_never_come_keep_no_child() {
    let fixture = site("h3-no-bodies");
    let mark = AttackTarget::of(&fixture);
    let attack = Attack::begin_with(move |stop| {
        if let Some(client) = mark.connect(1 << 20) {
            hold(&client, stop, &request(POST, "/slow.php"), false);
        }
    });
    hold_out(&fixture, None, attack);
}

#[test]
fn frames_that_carry_nothing_hold_nobody_up() {
    let fixture = site("h3-empty-frames");
    let mark = AttackTarget::of(&fixture);
    let attack = Attack::begin_with(move |stop| {
        let Some(client) = mark.connect(1 << 20) else {
            return;
        };
        let flooding = async {
            let (mut send, _recv) = client.connection().open_bi().await.ok()?;
            send.write_all(&request(POST, "/slow.php")).await.ok()?;
            while !stop.load(Ordering::Relaxed) {
                // A DATA frame without a byte, and an unknown frame.
                send.write_all(&[0, 0, 0x21, 0].repeat(1000)).await.ok()?;
            }
            Some(())
        };
        let _ = client.within(flooding);
    });
    hold_out(&fixture, Some("Http3ControlFlood"), attack);
}

#[test]
fn clients_that_begin_handshakes_and_leave_hold_nobody_up() {
    let fixture = site("h3-handshakes");
    let address = fixture.tls_address();
    let attack = Attack::begin_with(move |stop| {
        // The packet has the form of a client's first packet, but its payload is garbage that cannot be decrypted.
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let mut packet = [0x5a; 1200];
        packet[..6].copy_from_slice(&[0xc3, 0, 0, 0, 1, 8]);
        packet[14] = 0;
        packet[15] = 0;
        packet[16..18].copy_from_slice(&[0x44, 0x9e]);
        for n in 0..u32::MAX {
            packet[6..10].copy_from_slice(&n.to_be_bytes());
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let _ = socket.send_to(&packet, address);
            // With these pauses, the attackers together send some tens of thousands of packets a second. Nothing limits
            // the CPU time of UDP senders, so without pauses they would leave none to the server on this machine.
            if n % 50 == 0 {
                std::thread::park_timeout(std::time::Duration::from_millis(10));
            }
        }
    });
    hold_out(&fixture, None, attack);
    let page = fixture
        .http3()
        .ask(&howdah_tests::http2::Http2Request::get("/a.txt"));
    assert_eq!(page.expect("a response").text(), "a");
}
