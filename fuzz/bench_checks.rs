//! Invariants for arbitrary bytes that the load tester reads. Used by the fuzz targets, and by the test that replays
//! their corpora (`tools/howdah-bench/tests/fuzz_corpora.rs`).

use howdah_bench::command::planning;
use howdah_bench::experiment::SavedDocument;
use howdah_bench::plan::{LoadTarget, StatusSet, TargetAddress};
use howdah_bench::replay::ReplayedRequest;
use howdah_bench::replay::line::{self, LoggedRequest};
use howdah_bench::replay::order::{ArrivalOrder, TimedRequest};
use howdah_bench::response::{
    ConnectionEndEffect, ResponseFault, ResponsePartSink, ResponseReader,
};

#[derive(Default)]
struct Body(Vec<u8>);

impl ResponsePartSink for Body {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        assert!(!name.is_empty() && !name.contains(&b':'));
        assert_eq!(value.trim_ascii(), value);
        assert!(!value.contains(&b'\n'));
    }

    fn body(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

#[derive(Debug, PartialEq)]
struct Read {
    body: Vec<u8>,
    used: usize,
    done: bool,
    status: Option<u16>,
    end: ConnectionEndEffect,
}

fn read(pieces: &[&[u8]], head_only: bool) -> Result<Read, ResponseFault> {
    let (mut reader, mut body, mut used) = (ResponseReader::default(), Body::default(), 0);
    reader.begin(head_only);
    for piece in pieces {
        let taken = reader.feed(piece, &mut body)?;
        assert!(taken <= piece.len());
        assert!(
            taken == piece.len() || reader.is_done(),
            "it stopped in the middle"
        );
        used += taken;
        if reader.is_done() {
            break;
        }
    }
    assert_eq!(reader.body_length(), body.0.len() as u64);
    Ok(Read {
        done: reader.is_done(),
        status: reader.head().map(|head| head.status),
        body: body.0,
        used,
        end: reader.end(),
    })
}

/// Checks that the result of reading a response does not depend on where the bytes are cut, and that a complete
/// response is also complete without the bytes after it. The first byte tells whether the request is a HEAD, and where
/// to cut.
pub fn bench_answer(data: &[u8]) {
    let Some((how, data)) = data.split_first() else {
        return;
    };
    let head_only = how & 1 == 1;
    let whole = read(&[data], head_only);
    let cut = usize::from(how >> 1) * data.len() / 128;
    let (first, second) = data.split_at(cut);
    assert_eq!(read(&[first, second], head_only), whole, "cut at {cut}");
    let bytes: Vec<&[u8]> = data.chunks(1).collect();
    assert_eq!(read(&bytes, head_only), whole, "byte by byte");
    if let Ok(answer) = whole {
        assert!(answer.body.len() <= answer.used && answer.used <= data.len());
        if answer.done {
            assert_eq!(read(&[&data[..answer.used]], head_only), Ok(answer));
        } else {
            assert_eq!(answer.used, data.len());
        }
    }
}

/// Checks that an accepted target can be requested: its path begins with a slash and contains no line break, and its
/// text can be parsed again to the same target.
pub fn bench_target(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(target) = LoadTarget::parse(text) {
        let path = target.path.text();
        assert!(path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic()));
        assert!(!target.authority.is_empty() && !target.authority.contains(['\r', '\n', ' ']));
        match &target.address {
            TargetAddress::Tcp { host, port } => assert!(!host.is_empty() && *port > 0),
            TargetAddress::Unix(path) => assert!(path.as_os_str().len() < 108),
        }
        assert_eq!(LoadTarget::parse(target.text()).unwrap(), target);
    }
    if let Ok(set) = StatusSet::parse(text) {
        assert_eq!(StatusSet::parse(&set.to_string()).unwrap(), set);
    }
}

/// Checks that an accepted saved run can be reported as text and as a page, and saved again.
pub fn bench_saved(data: &[u8]) {
    use howdah_bench::report::{experiments, html, text::ReportStyle};
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(document) = SavedDocument::from_json(text) {
        let report = experiments::report(&document, ReportStyle::default());
        let page = html::page(&document, &report);
        assert!(!page.contains("<script"));
        SavedDocument::from_json(&document.to_json()).unwrap();
    }
}
use howdah_bench::slo::Slo;

/// Checks that accepted objectives, levels of a sweep and margins are meaningful.
pub fn bench_words(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(slo) = Slo::parse(text) {
        assert!(!slo.terms().is_empty());
        assert_eq!(Slo::parse(&slo.to_string()).unwrap(), slo);
    }
    if let Ok(levels) = planning::levels(text) {
        assert!(!levels.is_empty() && levels[0] > 0 && levels.is_sorted());
    }
    if let Ok(margin) = planning::margin(text) {
        assert!(margin > 0.0 && margin < 1.0);
    }
}

/// Checks that a log can only make the load tester request paths that every version of HTTP can carry, that every
/// request of the log is released exactly once, and that none is due before an earlier one.
pub fn bench_log(data: &[u8]) {
    let mut order = ArrivalOrder::default();
    let (mut taken, mut released, mut last) = (0, 0, i64::MIN);
    let mut release = |at: i64, _: ReplayedRequest| {
        assert!(at >= last, "{at} after {last}");
        last = at;
        released += 1;
    };
    for (number, bytes) in (1..).zip(data.split(|b| *b == b'\n')) {
        let Ok(line) = line::parse(bytes) else {
            continue;
        };
        assert!((100..1000).contains(&line.status), "{}", line.status);
        let LoggedRequest::Page { head, target } = line.request else {
            continue;
        };
        assert!(target.starts_with('/'), "{target}");
        assert!(
            target
                .bytes()
                .all(|b| b.is_ascii_graphic() && !b"\"#{}".contains(&b))
        );
        let uri = http::Uri::try_from(format!("https://localhost{target}")).expect("a path");
        assert_eq!(uri.host(), Some("localhost"));
        taken += 1;
        let request = ReplayedRequest {
            head,
            target,
            status: line.status,
            line: number,
        };
        let timed = TimedRequest {
            time: line.time,
            whole_second: line.whole_second,
            duration: line.duration,
            request,
        };
        order.push(timed, &mut release);
    }
    order.finish(&mut release);
    assert_eq!(released, taken);
}
