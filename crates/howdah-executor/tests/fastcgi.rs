//! Requests to a scripted FastCGI backend: the bytes sent, the responses, and the connections used.

mod support;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use howdah_executor::config::FastCgiConfig;
use howdah_executor::fastcgi::FastCgiPool;
use howdah_executor::{
    ExecError, Executor, RunEvent, ScriptBody, ScriptPool, ScriptRequest, ScriptRole,
};
use howdah_proto::request::FrameBuilder;
use howdah_proto::response::ResponseError;
use howdah_proto::variables::Var;

use support::backend::{END, OVERLOADED, STDERR, STDOUT, ScriptedBackend, fastcgi_config, serve};
use support::{CollectedResponse, TestLog, bytes, finish, next_event, on_front, request, until};

fn config(backends: &[&ScriptedBackend]) -> FastCgiConfig {
    fastcgi_config(backends.iter().map(|fake| fake.backend()).collect())
}

struct FastCgiFixture {
    pool: Arc<FastCgiPool>,
    log: Arc<TestLog>,
}

impl FastCgiFixture {
    async fn new(config: FastCgiConfig) -> FastCgiFixture {
        let log = Arc::new(TestLog::default());
        let pool = FastCgiPool::start(config, log.clone(), 2).unwrap();
        pool.ready().await.unwrap();
        FastCgiFixture { pool, log }
    }

    async fn get(&self, uri: &str) -> Result<CollectedResponse, ExecError> {
        finish(self.pool.start(request(uri, ScriptBody::Empty))).await
    }

    async fn post(&self, body: ScriptBody) -> Result<CollectedResponse, ExecError> {
        finish(self.pool.start(posting(body))).await
    }

    fn busy(&self) -> u32 {
        self.pool.status().active_processes
    }
}

fn posting(body: ScriptBody) -> ScriptRequest {
    let length = match &body {
        ScriptBody::Memory(bytes) => bytes.len(),
        ScriptBody::File(_, length) => *length as usize,
        _ => 0,
    };
    let mut b = FrameBuilder::new(Vec::new());
    b.var(Var::RequestUri, b"/post");
    b.var(Var::RequestMethod, b"POST");
    b.var(Var::ContentLength, length.to_string().as_bytes());
    ScriptRequest {
        frame: b.finish(Some(length as u64), 0).unwrap(),
        body,
        id: 7,
        role: ScriptRole::Responder,
        client: None,
        effects: None,
        drop_at_end: None,
    }
}

fn memory(bytes: &Bytes) -> ScriptBody {
    ScriptBody::Memory(bytes.clone())
}

#[test]
fn request_is_sent_completely_from_every_kind_of_body() {
    let fake = ScriptedBackend::start(serve);
    on_front(async {
        let rig = FastCgiFixture::new(config(&[&fake])).await;
        let body = bytes(300_000);
        let answer = rig.post(memory(&body)).await.unwrap();
        assert_eq!((answer.head.status, &answer.body[..]), (200, &b"/post"[..]));
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &body).unwrap();
        rig.post(ScriptBody::File(file, 300_000)).await.unwrap();
        let (to, from) = tokio::sync::mpsc::channel(4);
        let run = rig.pool.start(posting(ScriptBody::Stream(from)));
        let feeding = async {
            for piece in body.chunks(50_000) {
                to.send(Ok(Bytes::copy_from_slice(piece))).await.unwrap();
            }
            drop(to);
        };
        let (answer, ()) = tokio::join!(finish(run), feeding);
        answer.unwrap();
        for seen in fake.seen() {
            assert_eq!(seen.param("REQUEST_METHOD"), Some("POST"));
            assert!(seen.stdin == body, "{} bytes", seen.stdin.len());
        }
        assert_eq!(fake.seen().len(), 3);
    });
}

#[test]
fn head_in_pieces_after_100_kilobytes_of_messages_is_a_head() {
    let fake = ScriptedBackend::start(|peer| {
        peer.request();
        for _ in 0..10 {
            peer.send(STDERR, &[b'x'; 10 << 10]);
        }
        peer.send(STDOUT, b"Status: 404 Not Found\r\nX-Lo");
        peer.send(STDERR, b"PHP message: PHP Warning:  in between");
        peer.send(STDOUT, b"ng: 1\r");
        peer.send(STDOUT, b"\n\r");
        peer.send(STDOUT, b"\nbody");
        peer.send(END, &[0; 8]);
    });
    on_front(async {
        let rig = FastCgiFixture::new(config(&[&fake])).await;
        let answer = rig.get("/").await.unwrap();
        assert_eq!((answer.head.status, &answer.body[..]), (404, &b"body"[..]));
        assert_eq!(answer.head.headers, [(b"X-Long".to_vec(), b"1".to_vec())]);
        rig.log.wait_for("request 7 level 5: xxxx");
        let logged: usize = rig.log.all().iter().map(String::len).sum();
        assert!(logged >= 100 << 10, "{logged}");
    });
}

#[test]
fn response_that_is_not_fastcgi_is_refused_by_name() {
    let fake = ScriptedBackend::start(|peer| {
        peer.request();
        peer.raw(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    on_front(async {
        let rig = FastCgiFixture::new(config(&[&fake])).await;
        let error = rig.get("/").await.unwrap_err();
        let ExecError::ResponseInvalid(ResponseError::FastCgi(_)) = error else {
            panic!("{error:?}");
        };
        assert_eq!(rig.busy(), 0);
    });
}

#[test]
fn response_that_breaks_off_is_named() {
    let fake = ScriptedBackend::start(|peer| {
        peer.request();
        peer.send(STDOUT, b"A: 1\r\n\r\nhalf");
    });
    on_front(async {
        let rig = FastCgiFixture::new(config(&[&fake])).await;
        let error = rig.get("/").await.unwrap_err();
        assert_eq!(error, ExecError::BackendClosed { answering: true });
        assert_eq!(
            fake.seen().len(),
            1,
            "an answer that has begun is not asked for again"
        );
    });
}

#[test]
fn get_without_a_response_is_repeated_once_and_a_post_never() {
    let fake = ScriptedBackend::start(|peer| {
        peer.request();
    });
    on_front(async {
        let rig = FastCgiFixture::new(config(&[&fake])).await;
        let closed = ExecError::BackendClosed { answering: false };
        assert_eq!(rig.get("/").await.unwrap_err(), closed);
        assert_eq!(fake.seen().len(), 2);
        let post = rig.post(memory(&bytes(10))).await;
        assert_eq!(post.unwrap_err(), closed);
        assert_eq!(fake.seen().len(), 3);
    });
}

#[test]
fn kept_connection_serves_a_get_never_a_post_and_is_not_kept_after_a_body() {
    let fake = ScriptedBackend::start(serve);
    on_front(async {
        let rig = FastCgiFixture::new(config(&[&fake])).await;
        for _ in 0..3 {
            rig.get("/").await.unwrap();
        }
        assert_eq!(fake.connections(), 1);
        rig.post(memory(&bytes(10))).await.unwrap();
        assert_eq!(fake.connections(), 2);
        let keeps: Vec<bool> = fake.seen().iter().map(|seen| seen.keep).collect();
        assert_eq!(keeps, [true, true, true, false]);
        let status = rig.pool.status();
        assert_eq!(
            (status.backends[0].kept, status.backends[0].requests),
            (1, 4)
        );
    });
}

#[test]
fn kept_connection_closed_meanwhile_causes_no_failure() {
    // The backend closes the connection after one response although it was to be kept, like php-fpm after
    // pm.max_requests.
    let fake = ScriptedBackend::start(|peer| {
        let seen = peer.request().unwrap();
        assert!(seen.keep);
        peer.answer("A: 1\r\n\r\nok");
    });
    on_front(async {
        let rig = FastCgiFixture::new(config(&[&fake])).await;
        for _ in 0..20 {
            assert_eq!(rig.get("/").await.unwrap().body, b"ok");
        }
        assert_eq!(
            rig.pool
                .status()
                .failures
                .iter()
                .map(|(_, n)| n)
                .sum::<u64>(),
            0
        );
    });
}

#[test]
fn kept_connection_is_closed_when_idle_too_long() {
    let fake = ScriptedBackend::start(serve);
    on_front(async {
        let mut config = config(&[&fake]);
        config.keep_timeout = Duration::from_millis(50);
        let rig = FastCgiFixture::new(config).await;
        rig.get("/").await.unwrap();
        until("the connection is closed", || fake.closed() == 1).await;
        assert_eq!(rig.pool.status().backends[0].kept, 0);
    });
}

#[test]
fn connections_are_not_kept_where_the_number_of_processes_is_not_known() {
    let fake = ScriptedBackend::start(serve);
    on_front(async {
        let mut config = config(&[&fake]);
        config.max_connections = None;
        let rig = FastCgiFixture::new(config).await;
        rig.get("/").await.unwrap();
        rig.get("/").await.unwrap();
        assert_eq!(fake.connections(), 2);
        assert!(fake.seen().iter().all(|seen| !seen.keep));
    });
}

#[test]
fn backend_that_does_not_read_its_input_can_respond() {
    let fake = ScriptedBackend::start(|peer| {
        peer.request_head();
        peer.answer("A: 1\r\n\r\nnot interested");
    });
    on_front(async {
        let rig = FastCgiFixture::new(config(&[&fake])).await;
        let answer = rig.post(memory(&bytes(5 << 20))).await.unwrap();
        assert_eq!(answer.body, b"not interested");
        assert_eq!(rig.pool.status().backends[0].kept, 0);
    });
}

#[test]
fn request_and_response_flow_at_once() {
    // The backend responds while it reads. A client that only writes at first would wait forever.
    let fake = ScriptedBackend::start(|peer| {
        peer.request_head();
        peer.send(STDOUT, b"A: 1\r\n\r\n");
        for _ in 0..400 {
            peer.send(STDOUT, &[b'y'; 8192]);
        }
        peer.send(END, &[0; 8]);
        peer.wait_for_close();
    });
    on_front(async {
        let rig = FastCgiFixture::new(config(&[&fake])).await;
        let answer = rig.post(memory(&bytes(5 << 20))).await.unwrap();
        assert_eq!(answer.body.len(), 400 * 8192);
    });
}

#[test]
fn overloaded_backends_request_goes_to_another_or_is_retried() {
    let busy = ScriptedBackend::start(|peer| {
        peer.request();
        peer.send(END, &OVERLOADED);
    });
    let free = ScriptedBackend::start(serve);
    on_front(async {
        let rig = FastCgiFixture::new(config(&[&busy, &free])).await;
        for _ in 0..4 {
            assert_eq!(rig.get("/x").await.unwrap().body, b"/x");
        }
        assert!(!busy.seen().is_empty());
    });
    let recovering = ScriptedBackend::start(|peer| {
        let seen = peer.request().unwrap();
        match peer.connection {
            0..3 => peer.send(END, &OVERLOADED),
            _ => peer.answer(&format!("A: 1\r\n\r\n{} bytes", seen.stdin.len())),
        }
    });
    on_front(async {
        let rig = FastCgiFixture::new(config(&[&recovering])).await;
        let answer = rig.post(memory(&bytes(100))).await.unwrap();
        assert_eq!(answer.body, b"100 bytes");
        assert_eq!(recovering.seen().len(), 4);
    });
}

#[test]
fn pause_in_the_response_flushes() {
    let fake = ScriptedBackend::start(|peer| {
        peer.request();
        peer.send(STDOUT, b"A: 1\r\n\r\ntick");
        // The test closes the connection once it has received the flush.
        peer.wait_for_close();
    });
    on_front(async {
        let rig = FastCgiFixture::new(config(&[&fake])).await;
        let mut run = rig.pool.start(request("/", ScriptBody::Empty));
        let mut events = Vec::new();
        loop {
            let event = next_event(&mut run).await.unwrap();
            let flush = matches!(event, RunEvent::Flush);
            events.push(format!("{event:?}"));
            if flush {
                break;
            }
        }
        assert!(events[1].contains("tick"), "{events:?}");
        drop(run);
        until("the backend sees the client disconnect", || {
            fake.closed() == 1
        })
        .await;
        assert_eq!(rig.busy(), 0);
    });
}

#[test]
fn variable_longer_than_a_record_is_refused_and_nothing_is_sent() {
    let fake = ScriptedBackend::start(serve);
    on_front(async {
        let rig = FastCgiFixture::new(config(&[&fake])).await;
        let mut b = FrameBuilder::new(Vec::new());
        b.var(Var::RequestMethod, b"GET");
        b.var(Var::HttpCookie, &vec![b'c'; 70_000]);
        let request = ScriptRequest {
            frame: b.finish(Some(0), 0).unwrap(),
            body: ScriptBody::Empty,
            id: 1,
            role: ScriptRole::Responder,
            client: None,
            effects: None,
            drop_at_end: None,
        };
        let error = finish(rig.pool.start(request)).await.unwrap_err();
        assert_eq!(error.name(), "VariableTooLong");
        rig.get("/after").await.unwrap();
        assert_eq!(fake.seen().len(), 1);
    });
}
