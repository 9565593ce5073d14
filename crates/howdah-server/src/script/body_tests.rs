//! Receives bodies from a list of pieces.

use std::collections::VecDeque;
use std::io::Read;

use super::*;
use crate::testing::{block_on, request};

struct BodyPieces {
    kind: BodyKind,
    left: VecDeque<Result<Bytes, BodyError>>,
    limit: u64,
    given: u64,
    min_rate: u32,
}

impl BodyPieces {
    fn new(kind: BodyKind, pieces: &[&[u8]]) -> BodyPieces {
        BodyPieces {
            kind,
            left: pieces
                .iter()
                .map(|p| Ok(Bytes::copy_from_slice(p)))
                .collect(),
            limit: u64::MAX,
            given: 0,
            min_rate: 0,
        }
    }
}

impl IncomingBody for BodyPieces {
    fn expected(&self) -> BodyKind {
        self.kind
    }

    fn set_limit(&mut self, max: u64) {
        self.limit = max;
    }

    fn set_min_rate(&mut self, rate: u32) {
        self.min_rate = rate;
    }

    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        if matches!(self.kind, BodyKind::Length(n) if n > self.limit) {
            return Poll::Ready(Some(Err(BodyError::TooLarge)));
        }
        let next = self.left.pop_front();
        self.given += next
            .as_ref()
            .and_then(|p| p.as_ref().ok())
            .map_or(0, |p| p.len() as u64);
        if self.given > self.limit {
            return Poll::Ready(Some(Err(BodyError::TooLarge)));
        }
        Poll::Ready(next)
    }
}

fn no_bound() -> &'static Arc<SpillRoom> {
    static ROOM: std::sync::LazyLock<Arc<SpillRoom>> = std::sync::LazyLock::new(Arc::default);
    &ROOM
}

fn no_streams() -> &'static Arc<StreamPermits> {
    static NONE: std::sync::LazyLock<Arc<StreamPermits>> =
        std::sync::LazyLock::new(|| StreamPermits::for_pool(Some(0)));
    &NONE
}

fn policy(directory: &Path) -> BodyPolicy<'_> {
    BodyPolicy {
        memory: 100,
        directory,
        limit: 10_000,
        buffering: RequestBuffering::Auto,
        room: no_bound(),
        streams: no_streams(),
        progress_name: PROGRESS_NAME,
        unknown_length: true,
    }
}

fn post(content_type: &str) -> RequestHead {
    request(
        "POST",
        "/",
        &[("Host", "h"), ("Content-Type", content_type)],
    )
}

#[test]
fn body_stays_in_memory_if_small_and_goes_to_a_file_if_large() {
    let directory = std::env::temp_dir();
    let policy = policy(&directory);
    let long = [b'x'; 60];
    let cases: [(&[&[u8]], usize, bool); 4] = [
        (&[], 0, false),
        (&[b"abc"], 3, false),
        (&[b"ab", b"c"], 3, false),
        (&[&long, &long], 120, true),
    ];
    for (pieces, length, file) in cases {
        let mut body = BodyPieces::new(BodyKind::Chunked, pieces);
        let received = block_on(receive(&post("text/plain"), &mut body, &policy)).unwrap();
        let ReceivedBody::Whole(whole, known, _) = received else {
            panic!("arriving")
        };
        assert_eq!(known, BodyLength::Known(length as u64));
        let bytes = match whole {
            ScriptBody::Empty => Vec::new(),
            ScriptBody::Memory(bytes) => bytes.to_vec(),
            ScriptBody::File(mut file, n) => {
                assert_eq!(n, length as u64);
                rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).unwrap();
                let mut all = Vec::new();
                file.read_to_end(&mut all).unwrap();
                assert!(length > 100);
                all
            }
            ScriptBody::Stream(_) => panic!("stream"),
        };
        assert_eq!(bytes, pieces.concat(), "file: {file}");
    }
}

#[test]
fn body_absent_and_empty_are_distinguished() {
    let directory = std::env::temp_dir();
    for (fields, expected) in [
        (&[("Host", "h")][..], BodyLength::None),
        (
            &[("Host", "h"), ("Content-Length", "0")],
            BodyLength::Known(0),
        ),
    ] {
        let mut body = BodyPieces::new(BodyKind::None, &[]);
        let r = request("POST", "/", fields);
        let received = block_on(receive(&r, &mut body, &policy(&directory))).unwrap();
        assert!(
            matches!(received, ReceivedBody::Whole(ScriptBody::Empty, l, _) if l == expected),
            "{received:?}"
        );
    }
}

#[test]
fn body_limit_holds_before_and_while_reading() {
    let directory = std::env::temp_dir();
    let policy = BodyPolicy {
        limit: 150,
        ..policy(&directory)
    };
    let piece = [b'x'; 60];
    let mut announced = BodyPieces::new(BodyKind::Length(151), &[&piece]);
    let error = block_on(receive(&post("a/b"), &mut announced, &policy)).unwrap_err();
    assert_eq!(
        (error, announced.left.len()),
        (Failure::Body(BodyError::TooLarge), 1)
    );
    let mut chunked = BodyPieces::new(BodyKind::Chunked, &[&piece, &piece, &piece]);
    let error = block_on(receive(&post("a/b"), &mut chunked, &policy)).unwrap_err();
    assert_eq!(error, Failure::Body(BodyError::TooLarge));
}

#[test]
fn spill_directory_error_is_a_named_failure() {
    let policy = BodyPolicy {
        memory: 1,
        ..policy(Path::new("/nonexistent/spill"))
    };
    let mut body = BodyPieces::new(BodyKind::Length(4), &[b"abcd"]);
    let error = block_on(receive(&post("a/b"), &mut body, &policy)).unwrap_err();
    assert_eq!((error.name(), error.status()), ("SpillFailed", 507));
}

#[test]
fn body_streams_only_for_upload_progress() {
    let directory = std::env::temp_dir();
    let progress =
        b"--b\r\nContent-Disposition: form-data; name=\"PHP_SESSION_UPLOAD_PROGRESS\"\r\n\r\n1\r\n";
    let rest = [b'x'; 100];
    for (content_type, buffering, arriving) in [
        (
            "multipart/form-data; boundary=b",
            RequestBuffering::Auto,
            true,
        ),
        (
            "Multipart/Form-Data; boundary=b",
            RequestBuffering::Auto,
            true,
        ),
        (
            "multipart/form-data; boundary=b",
            RequestBuffering::On,
            false,
        ),
        ("text/plain", RequestBuffering::Auto, false),
        ("text/plain", RequestBuffering::Off, true),
    ] {
        let streams = StreamPermits::for_pool(None);
        let policy = BodyPolicy {
            buffering,
            streams: &streams,
            ..policy(&directory)
        };
        let mut body = BodyPieces::new(BodyKind::Length(180), &[&progress[..], &rest]);
        let received = block_on(receive(&post(content_type), &mut body, &policy)).unwrap();
        assert_eq!(
            matches!(received, ReceivedBody::Arriving(..)),
            arriving,
            "{content_type} {buffering:?}"
        );
    }
}

#[test]
fn body_is_buffered_when_no_stream_permit_is_free() {
    let directory = std::env::temp_dir();
    let field = b"name=\"PHP_SESSION_UPLOAD_PROGRESS\"";
    let rest = [b'x'; 100];
    let streams = StreamPermits::for_pool(Some(2));
    let policy = BodyPolicy {
        streams: &streams,
        ..policy(&directory)
    };
    let receive = || {
        let mut body = BodyPieces::new(BodyKind::Length(134), &[&field[..], &rest]);
        let request = post("multipart/form-data; boundary=b");
        block_on(receive(&request, &mut body, &policy)).unwrap()
    };
    let arriving = receive();
    assert!(matches!(arriving, ReceivedBody::Arriving(..)));
    assert!(matches!(
        receive(),
        ReceivedBody::Whole(ScriptBody::File(..), ..)
    ));
    drop(arriving);
    assert!(matches!(receive(), ReceivedBody::Arriving(..)));
}

#[test]
fn body_cut_off_reaches_script_and_caller() {
    let (to, mut from) = channel();
    let mut body = BodyPieces::new(BodyKind::Length(9), &[b"abc"]);
    body.left.push_back(Err(BodyError::ClientGone));
    let first = Bytes::from_static(b"0");
    let outcome = block_on(forward(&mut body, first, to));
    assert_eq!(outcome, Err(Failure::ClientGone));
    let mut seen = Vec::new();
    while let Some(piece) = block_on(from.recv()) {
        seen.push(piece);
    }
    assert_eq!(
        seen,
        [
            Ok(Bytes::from_static(b"0")),
            Ok(Bytes::from_static(b"abc")),
            Err(BodyCutOff)
        ]
    );
}

#[test]
fn body_forwarding_ends_with_the_run() {
    let (to, from) = channel();
    drop(from);
    let mut body = BodyPieces::new(BodyKind::Length(9), &[b"abc", b"def"]);
    assert_eq!(block_on(forward(&mut body, Bytes::new(), to)), Ok(()));
}

#[test]
fn body_in_one_byte_pieces_is_complete() {
    let directory = std::env::temp_dir();
    let bytes: Vec<u8> = (0..90).collect();
    let pieces: Vec<&[u8]> = bytes.chunks(1).collect();
    let mut body = BodyPieces::new(BodyKind::Length(90), &pieces);
    let received = block_on(receive(&post("a/b"), &mut body, &policy(&directory))).unwrap();
    let ReceivedBody::Whole(ScriptBody::Memory(whole), BodyLength::Known(90), _) = received else {
        panic!("{received:?}");
    };
    assert_eq!(whole, bytes);
}

#[test]
fn body_beyond_the_spill_room_is_refused_and_releases_its_room() {
    let directory = std::env::temp_dir();
    let room = Arc::new(SpillRoom::default());
    room.set_limit(300);
    let policy = BodyPolicy {
        room: &room,
        ..policy(&directory)
    };
    let receive = |length: usize| {
        let bytes = vec![b'x'; length];
        let pieces: Vec<&[u8]> = bytes.chunks(50).collect();
        let mut body = BodyPieces::new(BodyKind::Length(length as u64), &pieces);
        block_on(receive(&post("a/b"), &mut body, &policy))
    };
    let mut steady = BodyPieces::new(BodyKind::Length(150), &[&[b'x'; 150]]);
    drop(block_on(super::receive(&post("a/b"), &mut steady, &policy)).unwrap());
    assert_eq!(steady.min_rate, 0, "half of the room is free");
    let bytes = [b'x'; 110];
    let mut late = BodyPieces::new(BodyKind::Length(220), &[&bytes, &bytes]);
    drop(block_on(super::receive(&post("a/b"), &mut late, &policy)).unwrap());
    assert_eq!(
        late.min_rate,
        crate::script::spill::BUSY_MIN_BYTES_PER_SECOND,
        "less than half is free"
    );
    let one = receive(200).unwrap();
    let refused = receive(200).unwrap_err();
    assert_eq!((refused.name(), refused.status()), ("SpillFull", 503));
    assert_eq!(room.used(), 200);
    drop(one);
    assert_eq!(room.used(), 0);
    receive(300).unwrap();
}
