//! Responses from a list of events to a list of writes, with a client that takes as much as the
//! test allows.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use howdah_executor::{ExecError, RunTiming};
use howdah_proto::control::Exit;

use super::*;
use crate::testing::request;

/// A run that says what it is told to; `None`: still at work.
struct Script(VecDeque<Option<Result<Event, ExecError>>>);

impl Run for Script {
    fn poll_event(&mut self, _: &mut Context<'_>) -> Poll<Result<Event, ExecError>> {
        match self.0.pop_front() {
            Some(Some(event)) => Poll::Ready(event),
            _ => Poll::Pending,
        }
    }

    fn timing(&self) -> RunTiming {
        RunTiming::default()
    }
}

/// A client that takes `window` bytes, and what it saw.
#[derive(Default)]
struct Client {
    window: usize,
    queue: VecDeque<Bytes>,
    heads: Vec<(u16, String, Option<Length>)>,
    body: Vec<u8>,
    flushes: usize,
    ended: bool,
    aborted: bool,
    gone: bool,
    most_queued: usize,
    min_rate: u32,
}

impl Answer for Client {
    fn informational(&mut self, head: &ResponseHead) {
        let lines = String::from_utf8(head.lines().to_vec()).unwrap();
        self.heads.push((head.status, lines, None));
    }
    fn begin(&mut self, head: &ResponseHead, length: Length) {
        let lines = String::from_utf8(head.lines().to_vec()).unwrap();
        self.heads.push((head.status, lines, Some(length)));
    }
    fn push(&mut self, bytes: Bytes) {
        self.queue.push_back(bytes);
        self.most_queued = self.most_queued.max(self.queued());
    }
    fn queued(&self) -> usize {
        self.queue.iter().map(Bytes::len).sum()
    }
    fn set_min_rate(&mut self, rate: u32) {
        self.min_rate = rate;
    }
    fn taken(&self) -> u64 {
        self.body.len() as u64
    }
    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ClientGone>> {
        self.flushes += 1;
        if self.gone {
            return Poll::Ready(Err(ClientGone));
        }
        while let Some(mut first) = self.queue.pop_front() {
            let taken = first.split_to(first.len().min(self.window));
            self.window -= taken.len();
            self.body.extend_from_slice(&taken);
            if !first.is_empty() {
                self.queue.push_front(first);
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }
    fn end(&mut self) {
        self.ended = true;
    }
    fn abort(&mut self) {
        self.aborted = true;
    }
    fn poll_client_gone(&mut self, _: &mut Context<'_>) -> Poll<()> {
        if self.gone {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Client {
    /// What it has, with what is queued.
    fn all(&mut self) -> Vec<u8> {
        let mut all = self.body.clone();
        self.queue.iter().for_each(|b| all.extend_from_slice(b));
        all
    }
}

fn config() -> PumpConfig {
    PumpConfig {
        room: Arc::default(),
        hold: 1000,
        memory: 200_000,
        patience: Duration::from_millis(20),
        spill: 1 << 20,
        directory: std::env::temp_dir(),
        encoding: EncodingConfig::default(),
    }
}

fn head_event(fields: &[(&str, &str)]) -> Option<Result<Event, ExecError>> {
    Some(Ok(Event::Head(Head {
        status: 200,
        reason: Vec::new(),
        headers: fields
            .iter()
            .map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec()))
            .collect(),
        rejected: 0,
        local_redirect: false,
    })))
}

fn body(text: &[u8]) -> Option<Result<Event, ExecError>> {
    Some(Ok(Event::Body(Bytes::copy_from_slice(text))))
}

const FLUSH: fn() -> Option<Result<Event, ExecError>> = || Some(Ok(Event::Flush));
const END: fn() -> Option<Result<Event, ExecError>> = || Some(Ok(Event::End));
const WAIT: fn() -> Option<Result<Event, ExecError>> = || None;

struct Rig {
    config: PumpConfig,
    request: RequestHead,
    runtime: tokio::runtime::Runtime,
}

impl Rig {
    fn new(fields: &[(&str, &str)]) -> Rig {
        Rig {
            config: config(),
            request: request("GET", "/", fields),
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .unwrap(),
        }
    }

    /// Polls `turns` times at most; gives the end if it came.
    fn turns(
        &self,
        pump: &mut Pump<'_>,
        script: &mut Script,
        client: &mut Client,
        turns: usize,
    ) -> Option<Ended> {
        let _inside = self.runtime.enter();
        let waker = std::task::Waker::from(Arc::new(Ignore));
        let mut cx = Context::from_waker(&waker);
        for _ in 0..turns {
            if let Poll::Ready(ended) = pump.poll(&mut cx, script, client) {
                return Some(ended);
            }
        }
        None
    }

    fn run(
        &self,
        events: Vec<Option<Result<Event, ExecError>>>,
        client: &mut Client,
    ) -> Option<Ended> {
        let mut pump = Pump::new(&self.config, &self.request, &|_| {}, true);
        let turns = events.len() + 5;
        self.turns(&mut pump, &mut Script(events.into()), client, turns)
    }
}

struct Ignore;

impl std::task::Wake for Ignore {
    fn wake(self: Arc<Self>) {}
}

fn eager() -> Client {
    Client {
        window: usize::MAX,
        ..Client::default()
    }
}

#[test]
fn a_page_that_is_not_flushed_goes_out_once_with_its_length() {
    let rig = Rig::new(&[]);
    let mut client = eager();
    let events = vec![
        head_event(&[("X-A", "1")]),
        body(b"hello "),
        WAIT(),
        body(b"world"),
        END(),
    ];
    assert!(matches!(
        rig.run(events, &mut client),
        Some(Ended::Complete)
    ));
    assert_eq!(
        client.heads,
        [(200, "X-A: 1\r\n".to_owned(), Some(Length::Known(11)))]
    );
    assert_eq!(
        (client.all().as_slice(), client.flushes, client.ended),
        (&b"hello world"[..], 0, true)
    );
}

#[test]
fn a_flush_passes_everything_on_at_once() {
    let rig = Rig::new(&[]);
    let mut client = eager();
    let mut script = Script(
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
    assert!(rig.turns(&mut pump, &mut script, &mut client, 1).is_none());
    assert_eq!((client.heads.len(), client.body.as_slice()), (1, &b"a"[..]));
    assert_eq!(client.heads[0].2, Some(Length::Unknown));
    assert!(matches!(
        rig.turns(&mut pump, &mut script, &mut client, 5),
        Some(Ended::Complete)
    ));
    assert_eq!(client.all(), b"ab");
}

#[test]
fn more_than_is_held_goes_on_without_a_flush() {
    let rig = Rig::new(&[]);
    let mut client = eager();
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
fn interim_heads_go_first() {
    let rig = Rig::new(&[]);
    let mut client = eager();
    let hint = Head {
        status: 103,
        headers: vec![(b"Link".to_vec(), b"</a>".to_vec())],
        ..Head::default()
    };
    rig.run(
        vec![Some(Ok(Event::Informational(hint))), head_event(&[]), END()],
        &mut client,
    );
    let statuses: Vec<_> = client.heads.iter().map(|h| h.0).collect();
    assert_eq!(statuses, [103, 200]);
}

#[test]
fn a_length_the_script_announced_is_held_it_to() {
    let rig = Rig::new(&[]);
    let five = [("Content-Length", "5")];
    let mut client = eager();
    assert!(matches!(
        rig.run(vec![head_event(&five), body(b"hello"), END()], &mut client),
        Some(Ended::Complete)
    ));
    assert_eq!(client.heads[0].2, Some(Length::Known(5)));
    // Too long: cut.
    for flush in [WAIT(), FLUSH()] {
        let mut client = eager();
        let events = vec![
            head_event(&five),
            flush,
            body(b"hello wor"),
            body(b"ld"),
            END(),
        ];
        let mut pump = Pump::new(&rig.config, &rig.request, &|_| {}, true);
        let ended = rig.turns(&mut pump, &mut Script(events.into()), &mut client, 9);
        assert!(matches!(ended, Some(Ended::Complete)), "{ended:?}");
        assert_eq!(
            (client.all().as_slice(), pump.was_cut(), client.aborted),
            (&b"hello"[..], true, false)
        );
    }
    // Too short: the client must see that something is missing.
    for flush in [WAIT(), FLUSH()] {
        let mut client = eager();
        let ended = rig.run(
            vec![head_event(&five), body(b"hel"), flush, END()],
            &mut client,
        );
        assert!(
            matches!(
                ended,
                Some(Ended::CutOff(Failure::LengthMismatch {
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
fn a_head_request_keeps_the_announced_length_and_needs_no_body() {
    let mut rig = Rig::new(&[]);
    rig.request = request("HEAD", "/", &[]);
    let mut client = eager();
    let ended = rig.run(
        vec![head_event(&[("Content-Length", "5")]), END()],
        &mut client,
    );
    assert!(matches!(ended, Some(Ended::Complete)));
    assert_eq!(client.heads[0].2, Some(Length::Known(5)));
    let mut client = eager();
    rig.run(vec![head_event(&[]), END()], &mut client);
    assert_eq!(client.heads[0].2, Some(Length::Unknown));
}

#[test]
fn a_failure_before_the_first_byte_can_be_answered_later_ones_cut_the_response() {
    let rig = Rig::new(&[]);
    let died = || Some(Err(ExecError::ChildDied(Exit::Signal(9))));
    for events in [vec![died()], vec![head_event(&[]), body(b"part"), died()]] {
        let mut client = eager();
        let ended = rig.run(events, &mut client);
        assert!(
            matches!(
                ended,
                Some(Ended::Failed(Failure::Run(ExecError::ChildDied(_))))
            ),
            "{ended:?}"
        );
        assert_eq!((client.heads.len(), client.aborted), (0, false));
    }
    let mut client = eager();
    let ended = rig.run(
        vec![head_event(&[]), body(b"part"), FLUSH(), died()],
        &mut client,
    );
    assert!(
        matches!(ended, Some(Ended::CutOff(Failure::Run(_)))),
        "{ended:?}"
    );
    assert!(client.aborted && !client.ended);
}

#[test]
fn a_client_that_leaves_ends_the_run() {
    let rig = Rig::new(&[]);
    for events in [vec![], vec![head_event(&[]), body(b"x"), FLUSH()]] {
        let mut client = Client {
            gone: true,
            ..eager()
        };
        let ended = rig.run(events, &mut client);
        assert!(
            matches!(ended, Some(Ended::CutOff(Failure::ClientGone))),
            "{ended:?}"
        );
    }
}

#[test]
fn compressed_pages_have_their_own_length_and_flushes_pass_through() {
    let rig = Rig::new(&[("Accept-Encoding", "gzip")]);
    let html = [("Content-Type", "text/html"), ("Content-Length", "4000")];
    let page = b"<p>elephant</p>\n".repeat(250);
    for flush in [WAIT(), FLUSH()] {
        let mut client = eager();
        let whole = flush.is_none();
        let mut config = rig.config.clone();
        config.hold = 10_000;
        let rig = Rig {
            config,
            ..Rig::new(&[("Accept-Encoding", "gzip")])
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
            Some(Ended::Complete)
        ));
        let coded = client.all();
        let expected = if whole {
            Length::Known(coded.len() as u64)
        } else {
            Length::Unknown
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

/// As a body is decoded that came with this `Content-Encoding`.
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
fn what_takes_long_to_compress_is_compressed_elsewhere_and_comes_whole_and_in_order() {
    let text: Vec<u8> = (0..40_000u32)
        .flat_map(|n| format!("{n:x} elephants\n").into_bytes())
        .collect();
    for coding in ["gzip", "br", "zstd"] {
        // Held until it is whole; begun at the hold; begun with and flushed in the middle.
        for (hold, flush) in [(1 << 20, false), (100_000, false), (1 << 20, true)] {
            let mut rig = Rig::new(&[("Accept-Encoding", coding)]);
            (rig.config.hold, rig.config.memory) = (hold, 1 << 20);
            let mut events = vec![head_event(&[("Content-Type", "text/html")])];
            for (number, piece) in text.chunks(70_000).enumerate() {
                events.push(body(piece));
                if flush && number % 3 == 1 {
                    events.push(FLUSH());
                }
            }
            events.push(END());
            let (mut client, mut script) = (eager(), Script(events.into()));
            let mut pump = Pump::new(&rig.config, &rig.request, &|_| {}, true);
            let _inside = rig.runtime.enter();
            let waker = std::task::Waker::from(Arc::new(Unpark(std::thread::current())));
            let mut cx = Context::from_waker(&waker);
            let mut waited = 0;
            let ended = loop {
                match pump.poll(&mut cx, &mut script, &mut client) {
                    Poll::Ready(ended) => break ended,
                    Poll::Pending => std::thread::park(),
                }
                waited += 1;
            };
            assert!(matches!(ended, Ended::Complete), "{coding} {hold}");
            assert!(waited > 0, "{coding} {hold}: done on this thread");
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
}

#[test]
fn a_slow_client_frees_the_child_and_gets_every_byte_in_order() {
    let rig = Rig::new(&[]);
    let piece = |n: usize| vec![(n % 251) as u8; 50_000];
    let pieces: Vec<_> = (0..16).map(piece).collect();
    let mut events = vec![head_event(&[])];
    events.extend(pieces.iter().map(|p| body(p)));
    events.push(END());
    let mut client = Client {
        window: 1000,
        ..Client::default()
    };
    let mut script = Script(events.into());
    let mut pump = Pump::new(&rig.config, &rig.request, &|_| {}, true);
    // Memory is full; the client gets a moment.
    assert!(rig.turns(&mut pump, &mut script, &mut client, 5).is_none());
    assert!(!script.0.is_empty(), "the script waits at first");
    rig.runtime
        .block_on(tokio::time::advance(rig.config.patience));
    // Then the file takes the rest, and the script is through.
    assert!(rig.turns(&mut pump, &mut script, &mut client, 5).is_none());
    assert!(
        script.0.is_empty(),
        "the script is through although the client has {} bytes",
        client.body.len()
    );
    let mut turns = 0;
    while rig.turns(&mut pump, &mut script, &mut client, 1).is_none() {
        client.window += 30_000;
        turns += 1;
        assert!(turns < 100, "the client starves");
    }
    assert_eq!(client.all(), pieces.concat());
    assert!(
        client.most_queued <= 200_000 + 50_000,
        "{}",
        client.most_queued
    );
}

#[test]
fn beyond_the_file_and_without_one_the_script_waits() {
    let cases = [
        (300_000u64, std::env::temp_dir(), true),
        (0, std::env::temp_dir(), false),
        (1 << 20, PathBuf::from("/nonexistent"), false),
    ];
    for (spill, directory, file) in cases {
        let mut rig = Rig::new(&[]);
        (rig.config.spill, rig.config.directory) = (spill, directory);
        let mut events = vec![head_event(&[])];
        events.extend((0..40).map(|_| body(&[b'x'; 50_000])));
        events.push(END());
        let mut client = Client {
            window: 1000,
            ..Client::default()
        };
        let mut script = Script(events.into());
        let mut pump = Pump::new(&rig.config, &rig.request, &|_| {}, true);
        assert!(rig.turns(&mut pump, &mut script, &mut client, 5).is_none());
        let before = script.0.len();
        rig.runtime
            .block_on(tokio::time::advance(rig.config.patience));
        assert!(rig.turns(&mut pump, &mut script, &mut client, 5).is_none());
        assert_eq!(script.0.len() < before, file, "spill {spill}");
        assert!(!script.0.is_empty(), "the script waits");
        let told = pump.take_spill_error().is_some();
        assert_eq!(told, rig.config.directory == Path::new("/nonexistent"));
        client.window = usize::MAX;
        assert!(matches!(
            rig.turns(&mut pump, &mut script, &mut client, 99),
            Some(Ended::Complete)
        ));
        assert_eq!(client.all().len(), 2_000_000);
    }
}

#[test]
fn a_client_the_script_waits_for_must_take_enough() {
    let mut rig = Rig::new(&[]);
    rig.config.spill = 0;
    let mut events = vec![head_event(&[])];
    events.extend((0..400).map(|_| body(&[b'x'; 50_000])));
    let mut client = Client::default();
    let mut script = Script(events.into());
    let mut pump = Pump::new(&rig.config, &rig.request, &|_| {}, true);
    assert!(rig.turns(&mut pump, &mut script, &mut client, 5).is_none());
    // Just enough in the first window, less in the second.
    for (takes, goes_on) in [(2_700_000, true), (100_000, false)] {
        for _ in 0..10 {
            client.window += takes / 10;
            assert!(rig.turns(&mut pump, &mut script, &mut client, 9).is_none());
            rig.runtime
                .block_on(tokio::time::advance(super::super::wait::WINDOW / 10));
        }
        let ended = rig.turns(&mut pump, &mut script, &mut client, 9);
        assert_eq!(ended.is_none(), goes_on, "{takes}: {ended:?}");
        let slow = matches!(ended, Some(Ended::CutOff(Failure::ClientTooSlow)));
        assert_eq!((slow, client.aborted), (!goes_on, !goes_on));
    }
}

#[test]
fn a_client_whose_answer_is_in_a_file_must_be_faster_while_files_are_short_of_room() {
    for (limit, rate) in [(u64::MAX, 0), (1_200_000, crate::script::spill::BUSY_RATE)] {
        let rig = Rig::new(&[]);
        rig.config.room.set_limit(limit);
        let mut events = vec![head_event(&[])];
        events.extend((0..20).map(|_| body(&[b'x'; 50_000])));
        let mut client = Client::default();
        let mut script = Script(events.into());
        let mut pump = Pump::new(&rig.config, &rig.request, &|_| {}, true);
        assert!(rig.turns(&mut pump, &mut script, &mut client, 5).is_none());
        rig.runtime
            .block_on(tokio::time::advance(rig.config.patience));
        assert!(rig.turns(&mut pump, &mut script, &mut client, 5).is_none());
        assert!(script.0.is_empty());
        client.window = 1000;
        assert!(rig.turns(&mut pump, &mut script, &mut client, 5).is_none());
        assert_eq!(client.min_rate, rate);
    }
}

#[test]
fn unbuffered_responses_pass_piece_by_piece() {
    let rig = Rig::new(&[]);
    let mut client = eager();
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
fn a_named_file_replaces_the_body() {
    let rig = Rig::new(&[]);
    let mut client = eager();
    let events = vec![
        head_event(&[("X-Accel-Redirect", "/files/a")]),
        body(b"ignored"),
        FLUSH(),
        END(),
    ];
    let Some(Ended::SendFile(head)) = rig.run(events, &mut client) else {
        panic!("no file")
    };
    assert_eq!(
        named_file(&head),
        Some(SendFile::AccelRedirect(b"/files/a"))
    );
    assert!(client.heads.is_empty());
}

#[test]
fn the_sites_rules_edit_the_head() {
    let rig = Rig::new(&[]);
    let mut client = eager();
    let edit = |head: &mut ResponseHead| {
        head.header(b"X-Rule", b"1");
    };
    let mut pump = Pump::new(&rig.config, &rig.request, &edit, true);
    let mut script = Script(vec![head_event(&[]), END()].into());
    rig.turns(&mut pump, &mut script, &mut client, 3);
    assert_eq!(client.heads[0].1, "X-Rule: 1\r\n");
}

#[test]
fn a_full_disk_makes_the_script_wait_and_loses_nothing() {
    let rig = Rig::new(&[]);
    let piece = |n: usize| vec![n as u8; 50_000];
    let mut events = vec![head_event(&[])];
    events.extend((0..20).map(|n| body(&piece(n))));
    events.push(END());
    let mut client = Client {
        window: 1000,
        ..Client::default()
    };
    let mut script = Script(events.into());
    let mut pump = Pump::new(&rig.config, &rig.request, &|_| {}, true);
    assert!(rig.turns(&mut pump, &mut script, &mut client, 5).is_none());
    // Memory is full: an empty file would be left at once otherwise.
    assert!(client.queued() >= REFILL);
    let (file, after) = (SpillFile::full(), VecDeque::new());
    pump.spill = Spill::Yes(Box::new(Spilled { file, after }));
    assert!(rig.turns(&mut pump, &mut script, &mut client, 5).is_none());
    assert!(script.0.len() > 10, "the script waits");
    let why = pump.take_spill_error().expect("the log is told why");
    assert_eq!(why.name(), "SpillFailed");
    let mut turns = 0;
    while rig.turns(&mut pump, &mut script, &mut client, 1).is_none() {
        client.window += 30_000;
        turns += 1;
        assert!(turns < 200, "the client starves");
    }
    assert!(pump.take_spill_error().is_none(), "once a response");
    let all: Vec<u8> = (0..20).flat_map(piece).collect();
    assert_eq!(client.all(), all);
}
