//! Invariants for arbitrary bytes in an `.htaccess` file. The evaluation of a request ends, and gives the same result
//! twice. A file with an error blocks everything below it. If a site routes its requests itself, the file refuses no
//! request that Apache would serve. A line with an error is effective whatever precedes it. Used by the fuzz target,
//! and by the test that replays its corpus.

use std::sync::Arc;

use howdah_htaccess::{
    AccessOutcome, Action, EvaluationInput, HtFile, HtFileChain, RequestDecision, ResponseFields,
    ServerContext, Stat, Table, decide, parse, refusals,
};

/// A document root with one file in it and one in a directory.
struct Site(Arc<HtFile>);

impl ServerContext for Site {
    fn stat(&self, file: &[u8]) -> Stat {
        match file {
            b"/r/x.txt" | b"/r/x.php" | b"/r/d/x.txt" | b"/r/index.php" => Stat::File,
            b"/r" | b"/r/" | b"/r/d" | b"/r/d/" => Stat::Directory,
            _ => Stat::Missing,
        }
    }

    fn length(&self, file: &[u8]) -> Option<u64> {
        (self.stat(file) == Stat::File).then_some(0)
    }

    fn htaccess(&self, directory: &[u8]) -> Arc<HtFileChain> {
        Arc::new(HtFileChain::of(directory, |directory| {
            matches!(directory, b"/" | b"/d/").then(|| self.0.clone())
        }))
    }

    fn is_script(&self, path: &[u8]) -> bool {
        path.ends_with(b".php")
    }

    fn local_time(&self) -> [u32; 7] {
        [2026, 1, 2, 3, 4, 5, 5]
    }

    fn now(&self) -> i64 {
        1_767_000_000_000_000
    }
}

fn facts(path: &'static [u8]) -> EvaluationInput<'static> {
    let mut headers = Table::default();
    headers.add(b"Host", b"h.example");
    headers.add(b"Cookie", b"a=b");
    EvaluationInput {
        method: b"GET".into(),
        target: path.into(),
        path: path.into(),
        query: Some(b"q=1".into()),
        protocol: "HTTP/1.1",
        headers,
        server_port: 80,
        document_root: b"/r".into(),
        ..EvaluationInput::default()
    }
}

fn ask(site: &Site, path: &'static [u8]) -> RequestDecision {
    let facts = facts(path);
    let found = decide(site, &facts);
    for is_server_generated in [false, true] {
        let mut fields = ResponseFields {
            status: 200,
            media_type: Some(b"text/html".to_vec()),
            is_file: true,
            ..ResponseFields::default()
        };
        fields.table.add(b"Cache-Control", b"private");
        found.finish(site, &facts, &mut fields, is_server_generated);
    }
    found
}

/// Returns the outcome of the file's refusals for a path.
fn refused(site: &Site, path: &'static [u8]) -> AccessOutcome {
    let once = refusals(site, &facts(path), false).outcome;
    assert_eq!(once, refusals(site, &facts(path), false).outcome);
    once
}

/// Checks the invariants of this file.
pub fn htaccess(data: &[u8]) {
    let read = || parse(data, b"/r/", &Table::default());
    let (site, again) = (Site(Arc::new(read())), Site(Arc::new(read())));
    assert_eq!(site.0.problem, again.0.problem);
    for path in [
        &b"/x.txt"[..],
        b"/d/x.txt",
        b"/none/a",
        b"/",
        b"/d",
        b"/x.php/i",
    ] {
        let (one, other) = (ask(&site, path), ask(&again, path));
        assert_eq!(one.action, other.action);
        let refused = refused(&site, path);
        if site.0.problem.is_some() {
            let status = match one.action {
                Action::Refuse(status @ (403 | 500), _) => status,
                action => panic!("a mistake leads to {action:?}"),
            };
            assert!(matches!(refused, AccessOutcome::Refused(found, _) if found == status));
        } else if let Action::File(sent) | Action::Script { path: sent, .. } = &one.action
            && !one.redirected
            && path.starts_with(sent)
        {
            assert_eq!(refused, AccessOutcome::Open, "{}", path.escape_ascii());
        }
    }
    closes_behind(data);
}

/// Checks that a line with an error refuses everything, whatever precedes it.
fn closes_behind(data: &[u8]) {
    for line in [
        &b"\n\nNoSuchDirective on\n"[..],
        b"\n\n<Location />\nRequire all granted\n</Location>\n",
    ] {
        let site = Site(Arc::new(parse(
            &[data, line].concat(),
            b"/r/",
            &Table::default(),
        )));
        // In a section that does not apply to this server, the line is not parsed.
        let text = String::from_utf8_lossy(data).to_ascii_lowercase();
        if !text.contains("<if") {
            assert!(
                matches!(refused(&site, b"/d/x.txt"), AccessOutcome::Refused(..)),
                "{}",
                line.escape_ascii()
            );
        }
    }
}
