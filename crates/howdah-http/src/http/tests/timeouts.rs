//! Slow or silent clients: nothing is held open for them longer than configured.

use tokio::time::Instant;

use super::*;

/// Waits for the end of the stream. Returns after how many seconds it came, and the bytes before it.
async fn closed_after(client: &mut TestClient) -> (u64, String) {
    let begun = Instant::now();
    let mut all = Vec::new();
    let reading = client.stream.read_to_end(&mut all);
    within(Duration::from_secs(4000), reading).await.unwrap();
    let text = String::from_utf8_lossy(&without_own_fields(&all)).into_owned();
    (begun.elapsed().as_secs(), text)
}

#[tokio::test(start_paused = true)]
async fn silent_connection_is_closed_without_response() {
    let (seconds, said) = closed_after(&mut TestClient::new()).await;
    assert_eq!((seconds, said.as_str()), (10, ""));
}

#[tokio::test(start_paused = true)]
async fn idle_connection_is_closed_without_response() {
    let mut client = TestClient::new();
    for _ in 0..3 {
        client.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let mut answer = vec![0; ok("hello").len() + SERVER_HEADER_BYTES];
        client.stream.read_exact(&mut answer).await.unwrap();
        tokio::time::sleep(Duration::from_secs(70)).await;
    }
    let (seconds, said) = closed_after(&mut client).await;
    assert_eq!((seconds, said.as_str()), (5, ""));
}

#[tokio::test(start_paused = true)]
async fn slowly_sent_headers_time_out() {
    let mut client = TestClient::new();
    let begun = Instant::now();
    let (mut reader, mut writer) = client.stream.split();
    let dribbling = async {
        for byte in "GET / HTTP/1.1\r\nHost: a\r\nX-Slow: "
            .bytes()
            .chain([b'x'; 4000])
        {
            if writer.write_all(&[byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let mut got = Vec::new();
    let receiving = reader.read_to_end(&mut got);
    tokio::select! {
        () = dribbling => panic!("still taken"),
        n = receiving => { n.unwrap(); }
    }
    // The response, followed by lingering_time for a client that continues to send.
    let seconds = begun.elapsed().as_secs();
    assert_eq!(seconds, 10);
    let got = String::from_utf8(got).unwrap();
    assert!(got.starts_with("HTTP/1.1 408 "), "{got}");
    assert!(got.contains("Howdah-Error: HeaderTimeout"), "{got}");
    within(Duration::from_secs(31), client.life.wait_until_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn second_request_has_its_own_header_timeout() {
    let mut client = TestClient::new();
    let first = client.ask("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(first, ok("hello") + "[open]");
    tokio::time::sleep(Duration::from_secs(60)).await;
    client.send("GET /hello HTTP/1.1\r\n").await;
    let (seconds, said) = closed_after(&mut client).await;
    assert_eq!(seconds, 10);
    assert!(said.contains("Howdah-Error: HeaderTimeout"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn stalled_body_times_out() {
    let mut client = TestClient::new();
    client
        .send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc")
        .await;
    let (seconds, said) = closed_after(&mut client).await;
    assert_eq!(seconds, 30);
    assert!(
        said.starts_with("HTTP/1.1 408 Request Timeout\r\n"),
        "{said}"
    );
    assert!(said.ends_with("BodyTimeout"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn body_below_the_minimum_rate_is_refused() {
    let mut client = TestClient::new();
    let begun = Instant::now();
    client
        .send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\n\r\n")
        .await;
    let (mut reader, mut writer) = client.stream.split();
    let dribbling = async {
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            if writer.write_all(&[b'x'; 100]).await.is_err() {
                return;
            }
        }
    };
    let mut got = Vec::new();
    tokio::select! {
        () = dribbling => panic!("still taken"),
        n = reader.read_to_end(&mut got) => { n.unwrap(); }
    }
    assert!(
        begun.elapsed() < Duration::from_secs(12),
        "{:?}",
        begun.elapsed()
    );
    assert!(got.ends_with(b"BodyTooSlow"));
}

#[tokio::test(start_paused = true)]
async fn slow_body_gets_no_credit_for_a_fast_start() {
    let mut client = TestClient::new();
    client
        .send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 999999\r\n\r\n")
        .await;
    client.send([b'x'; 100_000]).await;
    let begun = Instant::now();
    let (mut reader, mut writer) = client.stream.split();
    let dribbling = async {
        loop {
            tokio::time::sleep(Duration::from_secs(6)).await;
            if writer.write_all(b"x").await.is_err() {
                return;
            }
        }
    };
    let mut got = Vec::new();
    tokio::select! {
        () = dribbling => panic!("still taken"),
        n = reader.read_to_end(&mut got) => { n.unwrap(); }
    }
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
    assert!(got.ends_with(b"BodyTooSlow"));
}

#[tokio::test(start_paused = true)]
async fn slow_but_steady_body_is_accepted() {
    let mut client = TestClient::new();
    client
        .send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n")
        .await;
    for _ in 0..60 {
        client.send([b'x'; 1000]).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    assert_eq!(client.reply().await, ok(&"x".repeat(60_000)) + "[open]");
}

#[tokio::test(start_paused = true)]
async fn client_that_reads_nothing_is_disconnected() {
    let mut client = TestClient::new();
    let begun = Instant::now();
    client
        .send("GET /big?1000 HTTP/1.1\r\nHost: a\r\n\r\n")
        .await;
    client.until_seen("send: client gone").await;
    assert_eq!(begun.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn client_that_reads_slowly_is_served() {
    let mut client = TestClient::new();
    client
        .send("GET /big?30 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .await;
    let mut got = 0;
    let mut piece = vec![0; 100_000];
    loop {
        tokio::time::sleep(Duration::from_secs(30)).await;
        match client.stream.read(&mut piece).await.unwrap() {
            0 => break,
            n => got += n,
        }
    }
    assert!(got > 3_000_000, "{got}");
    assert_eq!(client.script.seen(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn client_that_reads_below_the_minimum_rate_is_disconnected() {
    let slower = HttpConfig {
        min_rate: 10_000,
        ..HttpConfig::for_tests()
    };
    let mut client = TestClient::with(slower, None);
    client
        .send("GET /big?30 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .await;
    let mut piece = vec![0; 100_000];
    let mut got = 0;
    loop {
        // 3300 bytes per second.
        tokio::time::sleep(Duration::from_secs(30)).await;
        match client.stream.read(&mut piece).await {
            Ok(0) | Err(_) => break,
            Ok(n) => got += n,
        }
    }
    assert!(got < 1_000_000, "{got}");
    assert_eq!(client.script.seen(), ["send: client gone"]);
}

#[tokio::test(start_paused = true)]
async fn connection_is_closed_after_keepalive_requests() {
    let mut client = TestClient::with(
        HttpConfig {
            keepalive_requests: 3,
            ..HttpConfig::for_tests()
        },
        None,
    );
    let get = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(client.ask(get).await, ok("hello") + "[open]");
    assert_eq!(client.ask(get).await, ok("hello") + "[open]");
    assert_eq!(
        client.ask(get.repeat(2)).await,
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello[closed]"
    );
}
