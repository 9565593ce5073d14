//! The two ways to read `.htaccess` files beside each other, with files of random lines: what
//! `htaccess = "on"` keeps from everybody who asks here, `htaccess = "deny"` keeps, too.

use std::fs;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use howdah_htaccess::{Action, Chain, Facts, HtFile, Refusal, Stat, Table, World, answer, parse};
use howdah_server::docroot::root::{RootDir, Symlinks};
use howdah_server::site::htaccess::{AccessQuery, InDirectory, Lies, Verdict, decide, parse_bytes};
use howdah_server::site::words::request;

#[path = "../../howdah-tests/tests/htaccess_oracle/random.rs"]
mod random;

/// Method, path, and what lies there.
const ASKED: &[(&str, &str, Lies)] = &[
    ("GET", "/c/secret.txt", Lies::File),
    ("HEAD", "/c/secret.txt", Lies::File),
    ("GET", "/c/data.ini", Lies::File),
    ("GET", "/c/run.php", Lies::Script),
    ("POST", "/c/run.php", Lies::Script),
    ("GET", "/c/sub/secret.txt", Lies::File),
    ("POST", "/c/sub/run.php", Lies::Script),
];
/// Query, user agent and address of those who ask.
const VISITORS: &[(&str, &str, &str)] = &[
    ("", "Mozilla/5.0", "198.51.100.7"),
    ("a=evil", "Mozilla/5.0", "198.51.100.7"),
    ("", "EVIL", "198.51.100.7"),
    ("", "Mozilla/5.0", "192.0.2.1"),
];

/// A tree of files, and what the `.htaccess` files of two directories say.
struct Tree<'t> {
    root: &'t Path,
    files: [Arc<HtFile>; 2],
}

impl World for Tree<'_> {
    fn stat(&self, file: &[u8]) -> Stat {
        match fs::metadata(Path::new(std::ffi::OsStr::from_bytes(file))) {
            Ok(meta) if meta.is_file() => Stat::File,
            Ok(_) => Stat::Directory,
            Err(_) => Stat::Missing,
        }
    }

    fn length(&self, file: &[u8]) -> Option<u64> {
        (self.stat(file) == Stat::File).then_some(1)
    }

    fn htaccess(&self, directory: &[u8]) -> Arc<Chain> {
        Arc::new(Chain::of(directory, |directory| match directory {
            b"/c/" => Some(self.files[0].clone()),
            b"/c/sub/" => Some(self.files[1].clone()),
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

impl Tree<'_> {
    /// Whether "on" refuses it to a visitor because a line, or a file, says so.
    fn closes(&self, (method, path): (&str, &str), visitor: (&str, &str, &str)) -> bool {
        let (query, agent, address) = visitor;
        let mut headers = Table::default();
        headers.add(b"Host", b"h.example");
        headers.add(b"User-Agent", agent.as_bytes());
        let target = format!("{path}?{query}");
        let target = target.strip_suffix('?').unwrap_or(&target);
        let facts = Facts {
            method: method.as_bytes().into(),
            target: target.as_bytes().into(),
            path: path.as_bytes().into(),
            query: (!query.is_empty()).then(|| query.as_bytes().into()),
            protocol: "HTTP/1.1",
            headers,
            address: address.parse::<IpAddr>().ok(),
            server_port: 80,
            document_root: self.root.as_os_str().as_bytes().into(),
            ..Facts::default()
        };
        match answer(self, &facts).action {
            Action::Authenticate(_) => true,
            Action::Refuse(_, refusal) => matches!(
                refusal,
                Refusal::Denied
                    | Refusal::NotUnderstood
                    | Refusal::Loop
                    | Refusal::TooCostly
                    | Refusal::NoScripts
                    | Refusal::Unauthorized
            ),
            _ => false,
        }
    }
}

#[test]
fn what_files_keep_from_everybody_is_kept_where_they_only_close() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["", "c/", "c/sub/"] {
        fs::create_dir_all(directory.path().join(name)).unwrap();
        for file in ["secret.txt", "data.ini", "run.php", "index.html"] {
            fs::write(directory.path().join(format!("{name}{file}")), "x").unwrap();
        }
    }
    let root = RootDir::open(directory.path(), Symlinks::Follow).unwrap();
    let (mut closed, mut wrong) = (0, Vec::new());
    for number in 0..4000 {
        let texts = [
            random::file(2 * number),
            match number % 2 {
                0 => String::new(),
                _ => random::file(2 * number + 1),
            },
        ];
        let place = |below: &str| format!("{}{below}", directory.path().display());
        let tree = Tree {
            root: directory.path(),
            files: [("/c/", &texts[0]), ("/c/sub/", &texts[1])].map(|(below, text)| {
                Arc::new(parse(
                    text.as_bytes(),
                    place(below).as_bytes(),
                    &Table::default(),
                ))
            }),
        };
        let chain = [("/c/", &texts[0]), ("/c/sub/", &texts[1])].map(|(path, text)| InDirectory {
            path: path.as_bytes().into(),
            parsed: Arc::new(parse_bytes(text.as_bytes())),
        });
        for (method, path, lies) in ASKED {
            let for_all = VISITORS
                .iter()
                .all(|visitor| tree.closes((method, path), *visitor));
            if !for_all {
                continue;
            }
            closed += 1;
            let files = if path.starts_with("/c/sub/") { 2 } else { 1 };
            let head = request(method, "h.example", path).expect("it is a request");
            let mut asked = AccessQuery::new(&root, method.as_bytes(), path.as_bytes(), *lies);
            asked.head = Some(&head);
            let opens = match decide(&chain[..files], &asked) {
                Verdict::Open => true,
                Verdict::NoScripts(_) => *lies == Lies::File,
                Verdict::Closed(..) | Verdict::Hidden(_) => false,
            };
            if opens {
                wrong.push(format!(
                    "{number}: {method} {path}\n/c: {}\n/c/sub: {}",
                    texts[0], texts[1]
                ));
            }
        }
    }
    assert!(closed > 1000, "{closed}");
    assert!(
        wrong.is_empty(),
        "{} of {closed} are opened:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(5)].join("\n\n")
    );
}
