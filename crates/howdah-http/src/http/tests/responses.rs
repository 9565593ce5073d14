//! Responses: framing by version and method, order, interim responses, files, and failures that a client can tell from
//! success.

use super::*;

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn response_of_unknown_length_is_chunked() {
    assert_eq!(
        ask(get("/pieces")).await,
        format!("{CHUNKED}1\r\na\r\n11\r\nbcdefghijklmnopqr\r\n0\r\n\r\n[open]")
    );
}

#[tokio::test(start_paused = true)]
async fn http_1_0_client_gets_no_chunks_and_no_interim_responses() {
    assert_eq!(
        ask("GET /pieces HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").await,
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabcdefghijklmnopqr[closed]"
    );
    assert_eq!(
        ask("GET /hello HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").await,
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello[open]"
    );
    let mut client = TestClient::new();
    assert_eq!(client.ask("GET /hints HTTP/1.0\r\n\r\n").await, "[open]");
    client.script.gate.notify_one();
    assert!(client.reply().await.ends_with("\r\n\r\nhinted[closed]"));
}

#[tokio::test(start_paused = true)]
async fn connection_close_is_obeyed_and_announced() {
    let close = |field| format!("GET /hello HTTP/1.1\r\nHost: a\r\nConnection: {field}\r\n\r\n");
    for field in ["close", "Close", "x, CLOSE", "keep-alive, close"] {
        assert_eq!(
            ask(close(field)).await,
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello[closed]"
        );
    }
    assert_eq!(ask(close("upgrade")).await, ok("hello") + "[open]");
}

#[tokio::test(start_paused = true)]
async fn responses_to_head_and_with_204_or_304_have_no_body() {
    let head = |path| format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n{}", get("/hello"));
    let then = ok("hello") + "[open]";
    assert_eq!(
        ask(head("/hello")).await,
        format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{then}")
    );
    assert_eq!(ask(head("/pieces")).await, format!("{CHUNKED}{then}"));
    assert_eq!(
        ask(head("/file")).await,
        format!("HTTP/1.1 200 OK\r\nContent-Length: {FILE_LEN}\r\n\r\n{then}")
    );
    assert_eq!(
        ask(head("/nobody")).await,
        format!("HTTP/1.1 200 OK\r\n\r\n{then}")
    );
    let two = |path| ask(get(path) + &get("/hello"));
    assert_eq!(
        two("/status?204").await,
        format!("HTTP/1.1 204 No Content\r\n\r\n{then}")
    );
    assert_eq!(
        two("/status?304").await,
        format!("HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n{then}")
    );
    assert_eq!(
        two("/nobody").await,
        format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n{then}")
    );
    assert_eq!(
        two("/status?799").await,
        format!("HTTP/1.1 799 \r\nContent-Length: 3\r\n\r\nabc{then}")
    );
}

#[tokio::test(start_paused = true)]
async fn pipelined_requests_are_answered_in_order_in_one_write() {
    let mut client = TestClient::new();
    client.send(get("/hello").repeat(20)).await;
    let all = ok("hello").repeat(20);
    let mut first = vec![0; 1 << 16];
    let n = client.stream.read(&mut first).await.unwrap();
    assert_eq!(
        without_own_fields(&first[..n]),
        all.as_bytes(),
        "one read gets them all"
    );
    assert_eq!(client.reply().await, "[open]");
}

#[tokio::test(start_paused = true)]
async fn pipelined_response_does_not_wait_for_the_next_request() {
    let mut client = TestClient::new();
    client
        .send(get("/hello") + &get("/wait") + &get("/hello"))
        .await;
    assert_eq!(client.reply().await, ok("hello") + "[open]");
    client.script.gate.notify_one();
    assert_eq!(client.reply().await, ok("waited") + &ok("hello") + "[open]");
}

#[tokio::test(start_paused = true)]
async fn interim_response_is_sent_immediately() {
    let mut client = TestClient::new();
    assert_eq!(
        client.ask(get("/hints")).await,
        "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n[open]"
    );
    client.script.gate.notify_one();
    assert_eq!(client.reply().await, ok("hinted") + "[open]");
}

#[tokio::test(start_paused = true)]
async fn response_of_wrong_length_is_cut_or_closes_the_connection() {
    assert_eq!(ask(get("/too-long")).await, ok("abc") + "[open]");
    assert_eq!(
        ask(get("/too-short")).await,
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc[closed]"
    );
    assert_eq!(
        ask(get("/cut")).await,
        format!("{CHUNKED}3\r\nabc\r\n[closed]")
    );
}

#[tokio::test(start_paused = true)]
async fn failed_handler_causes_a_named_500_or_a_truncated_response() {
    let failed = |name: &str| {
        let body = format!("500 Internal Server Error: {name}\n");
        let n = body.len();
        format!(
            "HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain; charset=utf-8\r\nHowdah-Error: {name}\r\nContent-Length: {n}\r\nConnection: close\r\n\r\n{body}[closed]"
        )
    };
    assert_eq!(ask(get("/silent")).await, failed("NoAnswer"));
    assert_eq!(ask(get("/panic")).await, failed("HandlerPanicked"));
    let mut client = TestClient::new();
    assert_eq!(
        client.ask(get("/panic-late")).await,
        format!("{CHUNKED}3\r\nabc\r\n[closed]")
    );
    assert_eq!(client.script.seen(), ["panicked"]);
}

#[tokio::test(start_paused = true)]
async fn large_response_arrives_whole_through_a_full_socket() {
    let mut client = TestClient::new();
    client.send(get("/big?20")).await;
    let (got, closed) = client.receive().await;
    let mut expect = CHUNKED.as_bytes().to_vec();
    for n in 0..20 {
        expect.extend_from_slice(b"186a0\r\n");
        expect.extend_from_slice(&[n; 100_000]);
        expect.extend_from_slice(b"\r\n");
    }
    expect.extend_from_slice(b"0\r\n\r\n");
    assert!(got == expect && !closed, "{} bytes", got.len());
}

#[tokio::test(start_paused = true)]
async fn files_are_sent_whole_and_in_chunks() {
    let bytes = |from: u64, len: u64| (from..from + len).map(|n| (n % 251) as u8);
    let mut client = TestClient::new();
    client.send(get("/file") + &get("/hello")).await;
    let (got, closed) = client.receive().await;
    let mut expect = format!("HTTP/1.1 200 OK\r\nContent-Length: {FILE_LEN}\r\n\r\n").into_bytes();
    expect.extend(bytes(0, FILE_LEN));
    expect.extend_from_slice(ok("hello").as_bytes());
    assert!(got == expect && !closed, "{} bytes", got.len());

    client.send(get("/file-pieces")).await;
    let (got, closed) = client.receive().await;
    let mut expect = [CHUNKED.as_bytes(), b"186a0\r\n"].concat();
    expect.extend(bytes(10, 100_000));
    expect.extend_from_slice(b"\r\n1\r\n+\r\n5\r\n\x01\x02\x03\x04\x05\r\n0\r\n\r\n");
    assert!(got == expect && !closed, "{} bytes", got.len());
}

#[tokio::test(start_paused = true)]
async fn file_that_shrank_closes_the_connection() {
    let mut client = TestClient::new();
    client.send(get("/file-short") + &get("/hello")).await;
    let (got, closed) = client.receive().await;
    assert!(closed && !got.ends_with(b"hello"));
    assert_eq!(client.script.seen(), ["file too short"]);
}

#[tokio::test(start_paused = true)]
async fn client_disconnect_is_noticed_while_the_handler_runs() {
    for pipelined in ["", "GET /hello HTTP/1.1\r\n"] {
        let mut client = TestClient::new();
        client.send(get("/gone")).await;
        client.until_seen("waiting").await;
        client.send(pipelined).await;
        assert_eq!(client.reply().await, "[open]");
        assert_eq!(client.script.seen(), ["waiting"]);
        client.stream.shutdown().await.unwrap();
        client.until_seen("gone").await;
    }
}

#[tokio::test(start_paused = true)]
async fn pipelined_bytes_are_kept_while_waiting_for_a_disconnect() {
    let mut client = TestClient::new();
    client.send(get("/wait")).await;
    client.until_seen("waiting").await;
    client.send(get("/hello")).await;
    assert_eq!(client.reply().await, "[open]");
    client.script.gate.notify_one();
    assert_eq!(client.reply().await, ok("waited") + &ok("hello") + "[open]");
}

#[tokio::test(start_paused = true)]
async fn drain_with_a_wait_still_answers_new_requests() {
    let wait = Duration::from_secs(2);
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello[closed]";
    let mut kept = TestClient::new();
    assert_eq!(kept.ask(get("/hello")).await, ok("hello") + "[open]");
    let mut fresh = TestClient::new();
    let mut silent = TestClient::new();
    for client in [&kept, &fresh, &silent] {
        client.life.drain(wait);
    }
    tokio::time::sleep(wait / 4).await;
    assert_eq!(kept.ask(get("/hello")).await, last);
    assert_eq!(fresh.ask(get("/hello")).await, last);
    assert_eq!(silent.reply().await, "[open]", "it may yet ask");
    tokio::time::sleep(wait).await;
    assert_eq!(silent.reply().await, "[closed]");
}

#[tokio::test(start_paused = true)]
async fn drain_without_a_wait_closes_idle_connections_and_finishes_requests() {
    let mut idle = TestClient::new();
    assert_eq!(idle.ask(get("/hello")).await, ok("hello") + "[open]");
    idle.life.drain(Duration::ZERO);
    assert_eq!(idle.reply().await, "[closed]");

    let mut busy = TestClient::new();
    busy.send(get("/wait")).await;
    busy.until_seen("waiting").await;
    busy.life.drain(Duration::ZERO);
    busy.script.gate.notify_one();
    assert_eq!(
        busy.reply().await,
        "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nwaited[closed]",
        "the last answer says so"
    );

    // Written before the server's task has run at all.
    let mut fresh = TestClient::new();
    fresh.life.drain(Duration::ZERO);
    let wire = get("/hello");
    let sent = rustix::net::send(
        &fresh.stream,
        wire.as_bytes(),
        rustix::net::SendFlags::empty(),
    );
    assert_eq!(sent, Ok(wire.len()));
    assert_eq!(
        fresh.reply().await,
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello[closed]",
        "a request that was on its way is answered"
    );

    let mut stuck = TestClient::new();
    stuck.send(get("/wait")).await;
    stuck.until_seen("waiting").await;
    stuck.life.kill();
    assert_eq!(stuck.reply().await, "[closed]");
    within(Duration::from_secs(1), stuck.life.wait_until_empty()).await;
    stuck.server.await.unwrap();
}
