//! The report's statements about a server that fails in known ways. The figures that it expects of ab are compared with
//! those that ab prints for the same server.

mod faulty;

use std::time::Duration;

use faulty::{Faulty, FaultyReply, ab, closed, measure};
use howdah_bench::report::ab::AbFigures;
use howdah_bench::report::text::{ReportStyle, report};
use howdah_bench::run::Run;

#[track_caller]
fn tells(run: &Run, sentences: &[&str]) {
    let text = report(run, ReportStyle::default());
    for sentence in sentences {
        assert!(text.contains(sentence), "no {sentence:?} in:\n{text}");
    }
}

/// Starts a server whose first requests fail, as those of a starting backend do; the rest are good.
fn first(failing: u64, fault: FaultyReply) -> Faulty {
    Faulty::start(move |request| {
        if request.number <= failing {
            fault.clone()
        } else {
            FaultyReply::Ok("a page of quite another length".to_owned())
        }
    })
}

#[test]
fn ab_figures_for_error_pages_match_ab() {
    let fault = FaultyReply::Status(502, "<h1>502 Bad Gateway</h1>".to_owned());
    let server = first(860, fault.clone());
    let run = measure(&closed(&server.url, 4, 1000));
    tells(
        &run,
        &[
            "Failed requests:        860\n",
            "Non-2xx responses:      860\n",
            "unexpected 5xx                  860     86 %",
            "ab's \"Complete requests\" would say 1000: 140 were good; the others: 860 unexpected 5xx.",
            "140 of these were good responses whose length (30 bytes) differs from the first response's: the first \
             response was not good.",
            "860 of 1000 were not.",
        ],
    );
    let predicted = AbFigures::of(&run);
    let server = first(860, fault);
    let ab = ab(&["-n", "1000", "-c", "4", "-k", &server.url]);
    assert_eq!(ab.number("Complete requests"), predicted.complete);
    assert_eq!(ab.number("Non-2xx responses"), predicted.non_2xx);
    assert_eq!(ab.failed("Length"), predicted.length);
    assert_eq!(ab.number("Failed requests"), predicted.failed);
}

#[test]
fn ab_figures_for_varying_lengths_match_ab() {
    let start = || {
        Faulty::start(|request| FaultyReply::Ok("x".repeat(1 + request.number.min(50) as usize)))
    };
    let server = start();
    let run = measure(&closed(&server.url, 1, 300));
    tells(
        &run,
        &[
            "Failed requests:        0\n",
            "Document Length:        2 to 51 bytes\n",
            "ab's \"Failed requests (Length)\" would say 299: 299 of these were good responses whose length",
        ],
    );
    let server = start();
    let ab = ab(&["-n", "300", "-c", "1", "-k", &server.url]);
    assert_eq!(ab.failed("Length"), AbFigures::of(&run).length);
}

#[test]
fn truncated_responses_are_reported_although_ab_counts_them() {
    let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nonly this".to_vec();
    let start = || {
        let cut = cut.clone();
        Faulty::start(move |request| {
            if request.number.is_multiple_of(10) {
                FaultyReply::Bytes(cut.clone())
            } else {
                FaultyReply::Ok("a page".to_owned())
            }
        })
    };
    let server = start();
    let run = measure(&closed(&server.url, 2, 500));
    tells(
        &run,
        &[
            "   (Connect: 0, Receive: 0, Length: 50, Exceptions: 0)",
            "ab's \"Complete requests\" would say 500: 450 were good; the others: 50 truncated.",
        ],
    );
    let server = start();
    let ab = ab(&["-n", "500", "-c", "2", "-r", &server.url]);
    assert_eq!(ab.number("Complete requests"), AbFigures::of(&run).complete);
}

#[test]
fn backlog_that_is_full_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let pace = Duration::from_millis(2);
    let server = Faulty::slow_unix(directory.path().join("a.sock"), 4, pace);
    let run = measure(&closed(&server.url, 50, 2000));
    let text = report(&run, ReportStyle::default());
    let good = run.good();
    assert_eq!(good, server.requests());
    assert!(text.contains("backlog full"), "{text}");
    assert!(
        text.contains(&format!("Complete requests:      {good}\n")),
        "{text}"
    );
    assert!(
        text.contains(
            "ab's \"Complete requests\" would say nothing (\"Test aborted after 10 failures\")"
        ),
        "{text}"
    );
}

#[test]
fn keep_alive_refused_by_the_server_is_reported() {
    let server = Faulty::start(|_| FaultyReply::OkAndClose("a page".to_owned()));
    let run = measure(&closed(&server.url, 3, 200));
    tells(
        &run,
        &[
            "Keep-Alive requests:    0\n",
            "the server refused to keep 200",
            "ab's \"Keep-Alive requests\" would say 0: the server closed the connection after 200 of 200 responses",
        ],
    );
}

#[test]
fn keep_alive_under_ab_needs_content_length() {
    let chunked =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\na page\r\n0\r\n\r\n".to_vec();
    let server = Faulty::start(move |_| FaultyReply::BytesAndStay(chunked.clone()));
    let run = measure(&closed(&server.url, 3, 200));
    tells(
        &run,
        &["200 good responses had no Content-Length, which HTTP/1.0 needs to keep a connection"],
    );
}
