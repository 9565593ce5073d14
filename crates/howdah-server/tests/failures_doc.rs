//! `docs/failures.md` lists every failure by its name, with its status.

use std::collections::BTreeMap;

use howdah_executor::ExecError;
use howdah_http::{BadRequest, BodyError, HandshakeFailure};
use howdah_proto::control::Exit;
use howdah_proto::request::RequestFrameError;
use howdah_proto::response::ResponseError;
use howdah_server::failure::{Failure, PurgeRefused};
use howdah_site::refusal::Refusal;

fn all_failures() -> BTreeMap<&'static str, u16> {
    let mut failures = vec![
        Failure::Frame(RequestFrameError::TooLarge),
        Failure::Frame(RequestFrameError::NulByte),
        Failure::SpillFailed(String::new()),
        Failure::LengthMismatch {
            announced: 0,
            written: 0,
        },
        Failure::EsiFailed {
            url: "".into(),
            why: "".into(),
        },
        Failure::LocalRedirectLoop(Vec::new()),
        Failure::EncoderFailed(String::new()),
        Failure::ClientTooSlow,
        Failure::SpillFull,
        Failure::MemoryLimit,
        Failure::ProxyLoop,
        Failure::NotAuthenticated {
            challenge: "".into(),
            why: "".into(),
        },
        Failure::PasswordFileUnreadable("".into()),
        Failure::AuthenticationBusy,
        Failure::ClientLimited {
            retry_after: 1,
            news: None,
        },
        Failure::MisdirectedRequest,
        Failure::ListenerRemoved,
        Failure::ClientGone,
        Failure::FleetFenced,
        Failure::Purge(PurgeRefused::Denied("")),
        Failure::Purge(PurgeRefused::Unreadable("")),
    ];
    failures.extend(
        [
            BodyError::TooLarge,
            BodyError::Timeout,
            BodyError::TooSlow,
            BodyError::ClientGone,
        ]
        .map(Failure::Body),
    );
    failures.extend(
        [
            ExecError::QueueFull,
            ExecError::QueueTimeout,
            ExecError::PoolDown {
                name: String::new(),
                message: String::new(),
            },
            ExecError::ChildDied(Exit::Code(1)),
            ExecError::TerminateTimeout,
            ExecError::ResponseInvalid(ResponseError::Malformed),
            ExecError::ResponseCorrupt,
            ExecError::ResponseMissing,
            ExecError::BodyUnreadable,
            ExecError::Stopping,
            ExecError::BackendDown {
                message: String::new(),
            },
            ExecError::BackendClosed { answering: false },
            ExecError::BackendTimeout,
            ExecError::BackendInvalid {
                message: String::new(),
            },
            ExecError::BackendRefused,
            ExecError::VariableTooLong { length: 0 },
            ExecError::CannotExecute(howdah_executor::error::ExecErrno(13)),
        ]
        .map(Failure::Run),
    );
    let mut all: BTreeMap<_, _> = failures.iter().map(|f| (f.name(), f.status())).collect();
    all.insert(HandshakeFailure::PlainHttp.name(), 400);
    all.extend(Refusal::ALL.iter().map(|r| (r.name(), r.status())));
    for refused in BadRequest::ALL {
        let before = all.insert(refused.name(), refused.status());
        assert!(
            before.is_none_or(|s| s == refused.status()),
            "{refused}: two statuses"
        );
    }
    all
}

#[test]
fn failures_page_lists_every_failure_with_its_status_once() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/failures.md");
    let text = std::fs::read_to_string(page).unwrap();
    let mut listed = BTreeMap::new();
    for row in text.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = row.split('|').map(str::trim).skip(1);
        let name = cells.next().unwrap().trim_matches('`');
        let status: u16 = cells
            .next()
            .unwrap()
            .parse()
            .unwrap_or_else(|_| panic!("{row}"));
        assert_eq!(listed.insert(name, status), None, "{name} is listed twice");
    }
    assert_eq!(listed, all_failures());
}
