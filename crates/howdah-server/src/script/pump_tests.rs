//! Runs lists of events through a pump, and checks what a client receives.

use std::io::Read;

use howdah_executor::ExecError;
use howdah_proto::control::Exit;

use super::super::head::SendFile;
use super::super::pump_rig::{
    END, FLUSH, FakeClient, FakeScript, PumpRig, WAIT, body, eager_client, head_event,
};
use std::sync::Arc;

use super::*;
use crate::testing::request;

#[test]
fn unflushed_page_is_sent_once_with_its_length() {
    let rig = PumpRig::new(&[]);
    let mut client = eager_client();
    let events = vec![
        head_event(&[("X-A", "1")]),
        body(b"hello "),
        WAIT(),
        body(b"world"),
        END(),
    ];
    assert!(matches!(
        rig.run(events, &mut client),
        Some(ResponseOutcome::Complete)
    ));
    assert_eq!(
        client.heads,
        [(
            200,
            "X-A: 1\r\n".to_owned(),
            Some(ResponseLength::Known(11))
        )]
    );
    assert_eq!(
        (client.all().as_slice(), client.flushes, client.ended),
        (&b"hello world"[..], 0, true)
    );
}

#[test]
fn flush_passes_everything_on_at_once() {
    let rig = PumpRig::new(&[]);
    let mut client = eager_client();
    let mut script = FakeScript(
        vec![
            head_event(&[]),
            body(b"a"),
            FLUSH(),
            WAIT(),
            body(b"b"),
            WAIT(),
            FLUSH(),
            END(),
        ]
        .into(),
    );
    let mut pump = Pump::new(&rig.config, &rig.request, &|_| {}, true);
    assert!(
        rig.poll_turns(&mut pump, &mut script, &mut client, 1)
            .is_none()
    );
    assert_eq!((client.heads.len(), client.body.as_slice()), (1, &b"a"[..]));
    assert_eq!(client.heads[0].2, Some(ResponseLength::Unknown));
    assert!(matches!(
        rig.poll_turns(&mut pump, &mut script, &mut client, 5),
        Some(ResponseOutcome::Complete)
    ));
    assert_eq!(client.all(), b"ab");
}

#[test]
fn response_beyond_the_hold_is_sent_without_a_flush() {
    let rig = PumpRig::new(&[]);
    let mut client = eager_client();
    let events = vec![
        head_event(&[]),
        body(&[b'x'; 999]),
        WAIT(),
        body(b"y"),
        WAIT(),
    ];
    assert!(rig.run(events, &mut client).is_none());
    assert_eq!((client.heads.len(), client.body.len()), (1, 1000));
}

#[test]
fn interim_heads_are_sent_first() {
    let rig = PumpRig::new(&[]);
    let mut client = eager_client();
    let hint = ScriptHead {
        status: 103,
        headers: vec![(b"Link".to_vec(), b"</a>".to_vec())],
        ..ScriptHead::default()
    };
    rig.run(
        vec![
            Some(Ok(RunEvent::Informational(hint))),
            head_event(&[]),
            END(),
        ],
        &mut client,
    );
    let statuses: Vec<_> = client.heads.iter().map(|h| h.0).collect();
    assert_eq!(statuses, [103, 200]);
}

#[test]
fn announced_length_is_enforced() {
    let rig = PumpRig::new(&[]);
    let five = [("Content-Length", "5")];
    let mut client = eager_client();
    assert!(matches!(
        rig.run(vec![head_event(&five), body(b"hello"), END()], &mut client),
        Some(ResponseOutcome::Complete)
    ));
    assert_eq!(client.heads[0].2, Some(ResponseLength::Known(5)));
    // The body is longer than announced, so it is cut.
    for flush in [WAIT(), FLUSH()] {
        let mut client = eager_client();
        let events = vec![
            head_event(&five),
            flush,
            body(b"hello wor"),
            body(b"ld"),
            END(),
        ];
        let mut pump = Pump::new(&rig.config, &rig.request, &|_| {}, true);
        let ended = rig.poll_turns(&mut pump, &mut FakeScript(events.into()), &mut client, 9);
        assert!(
            matches!(ended, Some(ResponseOutcome::Complete)),
            "{ended:?}"
        );
        assert_eq!(
            (
                client.all().as_slice(),
                pump.was_truncated(),
                client.aborted
            ),
            (&b"hello"[..], true, false)
        );
    }
    // The body is too short, so the client must see that something is missing.
    for flush in [WAIT(), FLUSH()] {
        let mut client = eager_client();
        let ended = rig.run(
            vec![head_event(&five), body(b"hel"), flush, END()],
            &mut client,
        );
        assert!(
            matches!(
                ended,
                Some(ResponseOutcome::CutOff(Failure::LengthMismatch {
                    announced: 5,
                    written: 3
                }))
            ),
            "{ended:?}"
        );
        assert_eq!((client.aborted, client.ended), (true, false));
    }
}

#[test]
fn head_request_keeps_the_announced_length_and_needs_no_body() {
    let mut rig = PumpRig::new(&[]);
    rig.request = request("HEAD", "/", &[]);
    let mut client = eager_client();
    let ended = rig.run(
        vec![head_event(&[("Content-Length", "5")]), END()],
        &mut client,
    );
    assert!(matches!(ended, Some(ResponseOutcome::Complete)));
    assert_eq!(client.heads[0].2, Some(ResponseLength::Known(5)));
    let mut client = eager_client();
    rig.run(vec![head_event(&[]), END()], &mut client);
    assert_eq!(client.heads[0].2, Some(ResponseLength::Unknown));
}

#[test]
fn failure_before_the_first_byte_allows_an_error_page_and_later_cuts_the_response() {
    let rig = PumpRig::new(&[]);
    let died = || Some(Err(ExecError::ChildDied(Exit::Signal(9))));
    for events in [vec![died()], vec![head_event(&[]), body(b"part"), died()]] {
        let mut client = eager_client();
        let ended = rig.run(events, &mut client);
        assert!(
            matches!(
                ended,
                Some(ResponseOutcome::Failed(Failure::Run(ExecError::ChildDied(
                    _
                ))))
            ),
            "{ended:?}"
        );
        assert_eq!((client.heads.len(), client.aborted), (0, false));
    }
    let mut client = eager_client();
    let ended = rig.run(
        vec![head_event(&[]), body(b"part"), FLUSH(), died()],
        &mut client,
    );
    assert!(
        matches!(ended, Some(ResponseOutcome::CutOff(Failure::Run(_)))),
        "{ended:?}"
    );
    assert!(client.aborted && !client.ended);
}

#[test]
fn client_disconnect_ends_the_run() {
    let rig = PumpRig::new(&[]);
    for events in [vec![], vec![head_event(&[]), body(b"x"), FLUSH()]] {
        let mut client = FakeClient {
            gone: true,
            ..eager_client()
        };
        let ended = rig.run(events, &mut client);
        assert!(
            matches!(ended, Some(ResponseOutcome::CutOff(Failure::ClientGone))),
            "{ended:?}"
        );
    }
}

#[test]
fn compressed_page_has_its_own_length_and_flushes_pass_through() {
    let rig = PumpRig::new(&[("Accept-Encoding", "gzip")]);
    let html = [("Content-Type", "text/html"), ("Content-Length", "4000")];
    let page = b"<p>elephant</p>\n".repeat(250);
    for flush in [WAIT(), FLUSH()] {
        let mut client = eager_client();
        let whole = flush.is_none();
        let mut config = rig.config.clone();
        config.hold = 10_000;
        let rig = PumpRig {
            config,
            ..PumpRig::new(&[("Accept-Encoding", "gzip")])
        };
        let events = vec![
            head_event(&html),
            body(&page[..2000]),
            flush,
            body(&page[2000..]),
            END(),
        ];
        assert!(matches!(
            rig.run(events, &mut client),
            Some(ResponseOutcome::Complete)
        ));
        let coded = client.all();
        let expected = if whole {
            ResponseLength::Known(coded.len() as u64)
        } else {
            ResponseLength::Unknown
        };
        assert_eq!(client.heads[0].2, Some(expected));
        assert!(
            client.heads[0]
                .1
                .contains("Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n")
        );
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&coded[..])
            .read_to_end(&mut plain)
            .unwrap();
        assert_eq!(plain, page);
    }
}

struct Unpark(std::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Decodes a body that has this `Content-Encoding`.
fn decoded(coding: &str, coded: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match coding {
        "gzip" => flate2::read::GzDecoder::new(coded).read_to_end(&mut plain),
        "br" => brotli::Decompressor::new(coded, 4096).read_to_end(&mut plain),
        _ => zstd::stream::read::Decoder::new(coded)
            .unwrap()
            .read_to_end(&mut plain),
    }
    .unwrap();
    plain
}

#[test]
fn compression_on_another_thread_is_complete_and_in_order() {
    let text: Vec<u8> = (0..40_000u32)
        .flat_map(|n| format!("{n:x} elephants\n").into_bytes())
        .collect();
    let mut waited = 0;
    for coding in ["gzip", "br", "zstd"] {
        // The response is held until it is complete, begins when the hold limit is reached, or begins with a flush in
        // the middle.
        for (hold, flush) in [(1 << 20, false), (100_000, false), (1 << 20, true)] {
            let mut rig = PumpRig::new(&[("Accept-Encoding", coding)]);
            (rig.config.hold, rig.config.response_memory) = (hold, 1 << 20);
            let mut events = vec![head_event(&[("Content-Type", "text/html")])];
            for (number, piece) in text.chunks(70_000).enumerate() {
                events.push(body(piece));
                if flush && number % 3 == 1 {
                    events.push(FLUSH());
                }
            }
            events.push(END());
            let (mut client, mut script) = (eager_client(), FakeScript(events.into()));
            let mut pump = Pump::new(&rig.config, &rig.request, &|_| {}, true);
            let _inside = rig.runtime.enter();
            let waker = std::task::Waker::from(Arc::new(Unpark(std::thread::current())));
            let mut cx = Context::from_waker(&waker);
            let ended = loop {
                match pump.poll(&mut cx, &mut script, &mut client) {
                    Poll::Ready(ended) => break ended,
                    Poll::Pending => std::thread::park(),
                }
                waited += 1;
            };
            assert!(
                matches!(ended, ResponseOutcome::Complete),
                "{coding} {hold}"
            );
            assert!(
                client.heads[0]
                    .1
                    .contains(&format!("Content-Encoding: {coding}"))
            );
            assert!(
                decoded(coding, &client.all()) == text,
                "{coding} {hold} {flush}"
            );
        }
    }
    // Some pieces may be done before they are polled, but not all of them.
    assert!(waited > 0, "all were done on this thread");
}

#[test]
fn unbuffered_responses_pass_piece_by_piece() {
    let rig = PumpRig::new(&[]);
    let mut client = eager_client();
    let events = vec![
        head_event(&[("X-Accel-Buffering", "no")]),
        body(b"a"),
        WAIT(),
    ];
    assert!(rig.run(events, &mut client).is_none());
    assert_eq!(client.body, b"a");
    assert_eq!(client.heads[0].1, "");
}

#[test]
fn send_file_replaces_the_body() {
    let rig = PumpRig::new(&[]);
    let mut client = eager_client();
    let events = vec![
        head_event(&[("X-Accel-Redirect", "/files/a")]),
        body(b"ignored"),
        FLUSH(),
        END(),
    ];
    let Some(ResponseOutcome::SendFile(head)) = rig.run(events, &mut client) else {
        panic!("no file")
    };
    let named = head::instructions(&head).send_file;
    assert_eq!(named, Some(SendFile::AccelRedirect(b"/files/a")));
    assert!(client.heads.is_empty());
}

#[test]
fn head_is_edited_by_the_sites_rules() {
    let rig = PumpRig::new(&[]);
    let mut client = eager_client();
    let edit = |head: &mut ResponseHead| {
        head.header(b"X-Rule", b"1");
    };
    let mut pump = Pump::new(&rig.config, &rig.request, &edit, true);
    let mut script = FakeScript(vec![head_event(&[]), END()].into());
    rig.poll_turns(&mut pump, &mut script, &mut client, 3);
    assert_eq!(client.heads[0].1, "X-Rule: 1\r\n");
}
