//! `refusals` refuses exactly the requests that `decide` refuses: random files, evaluated for several visitors.

use std::net::IpAddr;
use std::sync::Arc;

use howdah_htaccess::{
    AccessOutcome, Action, EvaluationInput, HtFile, HtFileChain, HtaccessRefusal, ServerContext,
    Stat, Table, decide, parse, refusals,
};

#[path = "../../howdah-tests/tests/http/htaccess_oracle/random.rs"]
mod random;

/// Methods and paths.
const REQUESTS: &[(&str, &str)] = &[
    ("GET", "/c/secret.txt"),
    ("HEAD", "/c/secret.txt"),
    ("GET", "/c/data.ini"),
    ("GET", "/c/run.php"),
    ("POST", "/c/run.php"),
    ("GET", "/c/sub/secret.txt"),
    ("POST", "/c/sub/run.php"),
];
/// Queries, user agents and addresses.
const VISITORS: &[(&str, &str, &str)] = &[
    ("", "Mozilla/5.0", "198.51.100.7"),
    ("a=evil", "Mozilla/5.0", "198.51.100.7"),
    ("", "EVIL", "198.51.100.7"),
    ("", "Mozilla/5.0", "192.0.2.1"),
];

/// A tree below `/srv`, and the `.htaccess` files of two of its directories.
struct NestedFiles([Arc<HtFile>; 2]);

impl ServerContext for NestedFiles {
    fn stat(&self, file: &[u8]) -> Stat {
        let below = file.strip_prefix(b"/srv").unwrap_or(b"/none");
        match below {
            b"" | b"/" | b"/c" | b"/c/" | b"/c/sub" | b"/c/sub/" => return Stat::Directory,
            _ => {}
        }
        let end = below.iter().rposition(|b| *b == b'/').unwrap_or_default();
        match (&below[..=end], &below[end + 1..]) {
            (
                b"/" | b"/c/" | b"/c/sub/",
                b"secret.txt" | b"data.ini" | b"run.php" | b"index.html",
            ) => Stat::File,
            _ => Stat::Missing,
        }
    }

    fn length(&self, file: &[u8]) -> Option<u64> {
        (self.stat(file) == Stat::File).then_some(1)
    }

    fn htaccess(&self, directory: &[u8]) -> Arc<HtFileChain> {
        Arc::new(HtFileChain::of(directory, |directory| match directory {
            b"/c/" => Some(self.0[0].clone()),
            b"/c/sub/" => Some(self.0[1].clone()),
            _ => None,
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

fn input(
    (method, path): (&'static str, &'static str),
    (query, agent, address): (&'static str, &str, &str),
) -> EvaluationInput<'static> {
    let mut headers = Table::default();
    headers.add(b"Host", b"h.example");
    headers.add(b"User-Agent", agent.as_bytes());
    let target = match query {
        "" => path.to_owned(),
        query => format!("{path}?{query}"),
    };
    EvaluationInput {
        method: method.as_bytes().into(),
        target: target.into_bytes().into(),
        path: path.as_bytes().into(),
        query: (!query.is_empty()).then(|| query.as_bytes().into()),
        protocol: "HTTP/1.1",
        headers,
        address: address.parse::<IpAddr>().ok(),
        server_port: 80,
        document_root: b"/srv".into(),
        ..EvaluationInput::default()
    }
}

/// Whether a directive makes Apache deny a visitor access to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exposure {
    /// Apache sends the file, or the site decides.
    Open,
    Refused,
    /// Another path or another site responds.
    Moved,
}

fn whole(tree: &NestedFiles, input: &EvaluationInput<'_>, script: bool) -> Exposure {
    let found = decide(tree, input);
    match found.action {
        Action::File(path) | Action::Script { path, .. } if *path == *input.path => Exposure::Open,
        Action::File(_) | Action::Script { .. } | Action::Redirect(..) => Exposure::Moved,
        Action::Authenticate(_) | Action::Text(..) => Exposure::Refused,
        Action::Options => Exposure::Open,
        Action::Refuse(
            _,
            HtaccessRefusal::NotFound | HtaccessRefusal::NoIndex | HtaccessRefusal::BadPath,
        ) => Exposure::Moved,
        Action::Refuse(_, HtaccessRefusal::Method) => match script {
            true => Exposure::Refused,
            false => Exposure::Open,
        },
        Action::Refuse(..) if found.redirected => Exposure::Moved,
        Action::Refuse(..) => Exposure::Refused,
    }
}

fn refused_only(tree: &NestedFiles, input: &EvaluationInput<'_>) -> Exposure {
    match refusals(tree, input, false).outcome {
        AccessOutcome::Open => Exposure::Open,
        AccessOutcome::Elsewhere => Exposure::Moved,
        AccessOutcome::Refused(..) | AccessOutcome::Authenticate(_) => Exposure::Refused,
    }
}

#[test]
fn refusals_are_those_of_the_whole_evaluation() {
    let (mut refused, mut lost, mut added) = (0, Vec::new(), Vec::new());
    for number in 0..3000 {
        let texts = [
            random::file(2 * number),
            match number % 2 {
                0 => String::new(),
                _ => random::file(2 * number + 1),
            },
        ];
        let tree = NestedFiles([("/srv/c/", &texts[0]), ("/srv/c/sub/", &texts[1])].map(
            |(directory, text)| {
                Arc::new(parse(
                    text.as_bytes(),
                    directory.as_bytes(),
                    &Table::default(),
                ))
            },
        ));
        for request in REQUESTS {
            for visitor in VISITORS {
                let input = input(*request, *visitor);
                let script = request.1.ends_with(".php");
                let (whole, only) = (whole(&tree, &input, script), refused_only(&tree, &input));
                let case = || {
                    format!(
                        "{number}: {request:?} {visitor:?}: {whole:?}, {only:?}\n/c: {}\n/c/sub: {}",
                        texts[0], texts[1]
                    )
                };
                refused += usize::from(whole == Exposure::Refused);
                match (whole, only) {
                    (Exposure::Refused, Exposure::Open | Exposure::Moved) => lost.push(case()),
                    (Exposure::Open, Exposure::Refused | Exposure::Moved) => added.push(case()),
                    _ => {}
                }
            }
        }
    }
    assert!(refused > 10_000, "{refused}");
    for (what, cases) in [("lost", lost), ("added", added)] {
        assert!(
            cases.is_empty(),
            "{} of {refused} are {what}:\n{}",
            cases.len(),
            cases[..cases.len().min(4)].join("\n\n")
        );
    }
}
