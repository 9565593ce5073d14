//! Malicious HTTP/2 clients, as raw bytes: each is disconnected with the name of its attack, and costs little until
//! then.

use super::http2::h2c;
use super::*;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Returns the HEADERS frame of a GET of `path`. Its stream stays open if `more` is set.
fn headers(stream: u32, path: &str, more: bool) -> Vec<u8> {
    // Static table: :method GET, :scheme http; literal :path and :authority, not indexed.
    let mut block = vec![0x82, 0x86, 0x04, path.len() as u8];
    block.extend(path.as_bytes());
    block.extend([0x01, 1, b'a']);
    frame(1, if more { 4 } else { 5 }, stream, &block)
}

/// Sends the preface and `settings`, then as much of `bytes` as the server takes.
async fn attack(settings: &[u8], bytes: &[u8]) -> (TestClient, Vec<u8>) {
    let mut client = h2c(HttpConfig::for_tests());
    let mut all = [PREFACE, &frame(4, 0, 0, settings)].concat();
    all.extend_from_slice(bytes);
    let received = {
        let (mut from, mut to) = client.stream.split();
        let mut received = Vec::new();
        let sending = async {
            // The connection may be closed meanwhile.
            let _ = to.write_all(&all).await;
        };
        let receiving = async {
            loop {
                let read = from.read_buf(&mut received);
                match tokio::time::timeout(Duration::from_millis(100), read).await {
                    Ok(Ok(1..)) => {}
                    _ => return,
                }
            }
        };
        tokio::join!(sending, receiving);
        received
    };
    (client, received)
}

fn frames(mut bytes: &[u8]) -> Vec<(u8, u32, Vec<u8>)> {
    let mut frames = Vec::new();
    while bytes.len() >= 9 {
        let length = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
        let stream = u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]);
        let end = (9 + length).min(bytes.len());
        frames.push((bytes[3], stream, bytes[9..end].to_vec()));
        bytes = &bytes[end..];
    }
    frames
}

/// Returns the error code of the GOAWAY in the received bytes.
fn goaway(received: &[u8]) -> Option<u8> {
    let frames = frames(received);
    let goaway = frames.iter().find(|(kind, ..)| *kind == 7)?;
    goaway.2.get(7).copied()
}

const CALM: Option<u8> = Some(11);

async fn is_sent_away(name: &str, bytes: Vec<u8>) {
    let (client, received) = attack(&[], &bytes).await;
    let seen = client.script.seen();
    assert!(seen.contains(&format!("ended: {name}")), "{name}: {seen:?}");
    // The server sends a GOAWAY before it closes the connection, but a reset may have overtaken it.
    assert!(matches!(goaway(&received), CALM | None), "{name}");
    within(Duration::from_secs(60), client.server)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn http2_frame_floods_end_the_connection() {
    for (name, one) in [
        ("PingFlood", frame(6, 0, 0, &[0; 8])),
        ("SettingsFlood", frame(4, 0, 0, &[])),
        ("PriorityFlood", frame(2, 0, 3, &[0, 0, 0, 0, 16])),
        ("WindowUpdateFlood", frame(8, 0, 0, &[0, 0, 0, 1])),
        ("UnknownFrameFlood", frame(99, 0, 0, &[])),
    ] {
        is_sent_away(name, one.repeat(3000)).await;
    }
    let mut empty = headers(1, "/echo", true);
    empty.extend(frame(0, 0, 1, b"").repeat(3000));
    is_sent_away("EmptyDataFlood", empty).await;
}

#[tokio::test(start_paused = true)]
async fn http2_endless_or_oversized_headers_end_the_connection() {
    let mut endless = frame(1, 1, 1, &[0x82]);
    endless.extend(frame(9, 0, 1, &[]).repeat(100));
    is_sent_away("ContinuationFlood", endless).await;
    // A name and a value of 4000 bytes, indexed, then referenced a thousand times.
    let mut block = vec![0x82, 0x86, 0x84, 0x40, 1, b'x', 0x7f, 0xa1, 0x1e];
    block.extend([b'v'; 4000]);
    block.extend([0xbe; 1000]);
    is_sent_away("HeaderBomb", frame(1, 5, 1, &block)).await;
}

#[tokio::test(start_paused = true)]
async fn http2_rapid_resets_end_the_connection() {
    let mut resets = Vec::new();
    for n in 0..1000 {
        resets.extend(headers(2 * n + 1, "/gone", false));
        resets.extend(frame(3, 0, 2 * n + 1, &[0, 0, 0, 8]));
    }
    is_sent_away("RapidReset", resets).await;
    // The streams are sent one by one, so each of them is accepted first.
    let mut client = h2c(HttpConfig::for_tests());
    client.send([PREFACE, &frame(4, 0, 0, &[])].concat()).await;
    for n in 0..300 {
        let mut one = headers(2 * n + 1, "/gone", false);
        let sent = client.stream.write_all(&one).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        one = frame(3, 0, 2 * n + 1, &[0, 0, 0, 8]);
        if sent.is_err() || client.stream.write_all(&one).await.is_err() {
            break;
        }
    }
    client.until_seen("ended: RapidReset").await;
    within(Duration::from_secs(60), client.server)
        .await
        .unwrap();
    let seen = client.script.seen();
    let count = |what: &str| seen.iter().filter(|seen| *seen == what).count();
    assert_eq!(
        count("waiting"),
        count("gone"),
        "no handler is left waiting"
    );
}

#[tokio::test(start_paused = true)]
async fn http2_provoked_resets_end_the_connection() {
    let mut provoked = Vec::new();
    for n in 0..1000 {
        provoked.extend(headers(2 * n + 1, "/gone", true));
        // A window update beyond the maximum window.
        provoked.extend(frame(8, 0, 2 * n + 1, &[0x7f, 0xff, 0xff, 0xff]));
    }
    is_sent_away("MadeYouReset", provoked).await;
}

#[tokio::test(start_paused = true)]
async fn http2_responses_to_closed_windows_send_no_data_and_time_out() {
    // INITIAL_WINDOW_SIZE 0, and 100 responses of 100 kB.
    let mut requests = Vec::new();
    for n in 0..100 {
        requests.extend(headers(2 * n + 1, "/big?1", false));
    }
    let (client, received) = attack(&[0, 4, 0, 0, 0, 0], &requests).await;
    let heads = frames(&received);
    assert_eq!(heads.iter().filter(|(kind, ..)| *kind == 1).count(), 100);
    assert!(heads.iter().all(|(kind, ..)| *kind != 0), "no data");
    tokio::time::sleep(Duration::from_secs(61)).await;
    let seen = client.script.seen();
    let gone = seen.iter().filter(|seen| *seen == "send: client gone");
    assert_eq!(gone.count(), 100);
}

#[tokio::test(start_paused = true)]
async fn http2_urgent_response_overtakes_one_that_has_begun() {
    let prioritised = |stream, path: &str, priority: &str| {
        let mut bytes = headers(stream, path, false);
        // A literal field with a new name, not indexed.
        let field = [b"\0\x08priority\x03", priority.as_bytes()].concat();
        bytes.extend_from_slice(&field);
        let length = (bytes.len() - 9) as u32;
        bytes[..3].copy_from_slice(&length.to_be_bytes()[1..]);
        bytes
    };
    let mut client = h2c(HttpConfig::for_tests());
    let windows = frame(4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    let more = frame(8, 0, 0, &[0x7f, 0, 0, 0]);
    let slow = prioritised(1, "/big?20", "u=7");
    client
        .send([PREFACE, &windows, &more, &slow].concat())
        .await;
    // The socket is full, and the client does not read.
    tokio::time::sleep(Duration::from_millis(10)).await;
    client.send(prioritised(3, "/big?3", "u=0")).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    let mut received = Vec::new();
    while let Ok(Ok(1..)) =
        tokio::time::timeout(SILENCE, client.stream.read_buf(&mut received)).await
    {}
    let frames = frames(&received);
    let data = |of: u32| {
        frames
            .iter()
            .enumerate()
            .filter(move |(_, (kind, stream, _))| (*kind, *stream) == (0, of))
    };
    let bytes = |of: u32| data(of).map(|(_, frame)| frame.2.len()).sum::<usize>();
    assert_eq!((bytes(1), bytes(3)), (2_000_000, 300_000));
    let first = data(3).next().unwrap().0;
    let last = data(3).next_back().unwrap().0;
    let between: usize = data(1)
        .filter(|(at, _)| (first..last).contains(at))
        .map(|(_, frame)| frame.2.len())
        .sum();
    assert!(between < 300_000, "{between} bytes of the other");
}

#[tokio::test(start_paused = true)]
async fn http2_unfinished_header_block_times_out() {
    let (mut client, _) = attack(&[], &frame(1, 1, 1, &[0x82])).await;
    tokio::time::sleep(Duration::from_secs(11)).await;
    let (received, closed) = client.receive().await;
    assert!(closed);
    assert_eq!(goaway(&received), CALM);
    let seen = client.script.seen();
    assert!(
        seen.iter()
            .any(|seen| seen.starts_with("refused: HeaderTimeout"))
    );
}
