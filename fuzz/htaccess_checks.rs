//! What must hold for any bytes in the place of `.htaccess` files: nothing that closes is lost behind
//! strange lines, in the same file or in another. Used by the fuzz target, and by the test that replays
//! its corpus (`crates/howdah-server/tests/fuzz_corpora.rs`).

use std::sync::{Arc, OnceLock};

use howdah_http::message::RequestHead;
use howdah_server::docroot::root::{RootDir, Symlinks};
use howdah_server::site::htaccess::{
    AccessQuery, InDirectory, Lies, Parsed, Verdict, decide, parse_bytes,
};
use howdah_server::site::words::request;

/// Ends the root's file and begins that of the directory; without it the root has none.
const BORDER: &[u8] = b"\n---\n";

/// Method, target, how much of it is the path, and what lies there.
const ASKED: &[(&str, &str, usize, Lies)] = &[
    ("GET", "/d/secret.txt", 13, Lies::File),
    ("GET", "/d/x.php?a=1", 8, Lies::Script),
    ("POST", "/d/e/x.php", 10, Lies::Script),
    ("GET", "/d/e/none", 9, Lies::Nothing),
];

/// Directories and what their files say, from the root down.
type Tree<'t> = [(&'t str, &'t Arc<Parsed>)];

fn verdict(tree: &Tree<'_>, head: &RequestHead, path: usize, lies: Lies) -> Verdict {
    // Nothing lies there: conditions that ask for other files find none.
    static ROOT: OnceLock<RootDir> = OnceLock::new();
    let root = ROOT.get_or_init(|| {
        let directory = std::env::temp_dir().join("howdah-no-files");
        std::fs::create_dir_all(&directory).expect("a directory for nothing");
        RootDir::open(&directory, Symlinks::Follow).expect("it is there")
    });
    let chain: Vec<InDirectory> = tree
        .iter()
        .map(|(path, parsed)| InDirectory {
            path: path.as_bytes().into(),
            parsed: Arc::clone(parsed),
        })
        .collect();
    let mut asked = AccessQuery::new(root, head.method(), &head.target()[..path], lies);
    asked.head = Some(head);
    decide(&chain, &asked)
}

/// The answers of a tree to all that is asked.
fn verdicts(tree: &Tree<'_>) -> Vec<Verdict> {
    let each = ASKED.iter().map(|(method, target, path, lies)| {
        let head = request(method, "h.example", target).expect("it is a request");
        verdict(tree, &head, *path, *lies)
    });
    each.collect()
}

fn are_closed(tree: &Tree<'_>) -> bool {
    let all = verdicts(tree);
    all.iter()
        .all(|verdict| matches!(verdict, Verdict::Closed(..)))
}

fn open(tree: &Tree<'_>) -> Vec<bool> {
    let all = verdicts(tree);
    all.iter()
        .map(|verdict| *verdict == Verdict::Open)
        .collect()
}

fn parsed(parts: &[&[u8]]) -> Arc<Parsed> {
    Arc::new(parse_bytes(&parts.concat()))
}

/// The file's text in lower case, continued lines joined.
fn joined(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text).to_ascii_lowercase();
    text.replace("\\\r\n", "").replace("\\\n", "")
}

/// See the head of this file.
pub fn htaccess(data: &[u8]) {
    let border = data.windows(BORDER.len()).position(|w| w == BORDER);
    let (above, text) = match border {
        Some(at) => (&data[..at], &data[at + BORDER.len()..]),
        None => (&b""[..], data),
    };
    let (root, own) = (parsed(&[above]), parsed(&[text]));
    let tree = [("/", &root), ("/d/", &own)];
    let answers = verdicts(&tree);
    let again = parsed(&[text]);
    assert_eq!(answers, verdicts(&[("/", &root), ("/d/", &again)]));
    assert_eq!(own.notes(), again.notes());
    if !own.is_understood() {
        assert!(are_closed(&tree));
    }
    appended(&root, &own, text);
    wrapped(&root, &own, text);
    above_stays(text, &own);
    // A file without a word on the way changes nothing.
    let silent = parsed(&[b"# Require all granted\n\n"]);
    let with = [("/", &root), ("/d/", &own), ("/d/e/", &silent)];
    assert_eq!(verdicts(&with)[2..], answers[2..]);
    // What may be run may be sent, and what GET may have HEAD may have.
    let get = |method: &str, lies| {
        let head = request(method, "h.example", "/d/x.php?a=1").expect("it is a request");
        verdict(&tree, &head, 8, lies)
    };
    if get("GET", Lies::Script) == Verdict::Open {
        assert_eq!(get("GET", Lies::File), Verdict::Open);
    }
    if !joined(data).contains("request") {
        assert_eq!(get("HEAD", Lies::Script), get("GET", Lies::Script));
    }
}

/// A line behind all others closes, whatever stands before it.
fn appended(root: &Arc<Parsed>, own: &Arc<Parsed>, text: &[u8]) {
    for line in [
        &b"\n\nNoSuchDirective on\n"[..],
        b"\n\nRedirect 403 /\n",
        b"\n\n<Location />\nRequire all granted\n</Location>\n",
        b"\n\nRequire all granted\n</Location>\n",
        b"\n\n<Files x>\nRequire all granted\n",
    ] {
        let more = parsed(&[text, line]);
        assert!(
            are_closed(&[("/", root), ("/d/", &more)]),
            "{}",
            line.escape_ascii()
        );
        // Nothing deeper opens it.
        let deeper = parsed(&[
            b"Require all granted\nAllow from all\nSatisfy Any\nRewriteEngine Off\nphp_flag engine on\n",
        ]);
        let deep = verdicts(&[("/", root), ("/d/", &more), ("/d/e/", &deeper)]);
        assert!(
            deep[2..]
                .iter()
                .all(|verdict| matches!(verdict, Verdict::Closed(..)))
        );
    }
    if own.is_understood() {
        let more = parsed(&[text, b"\n\nRedirect 403 /\n"]);
        assert!(are_closed(&[("/", &more)]));
    }
    if !joined(text).contains("<if") {
        let last = parsed(&[
            text,
            b"\n\n<Files *>\nAuthMerging Off\nRequire all denied\nOrder allow,deny\nDeny from all\nSatisfy All\n</Files>\n",
        ]);
        assert!(are_closed(&[("/", root), ("/d/", &last)]));
    }
}

/// A section that holds changes nothing, and one of which that is not known opens nothing.
fn wrapped(root: &Arc<Parsed>, own: &Arc<Parsed>, text: &[u8]) {
    let answers = open(&[("/", root), ("/d/", own)]);
    let held = parsed(&[b"<IfModule mod_rewrite.c>\n", text, b"\n\n</IfModule>\n"]);
    assert_eq!(open(&[("/", root), ("/d/", &held)]), answers);
    let maybe = parsed(&[b"<If \"true\">\n", text, b"\n\n</If>\n"]);
    let doubtful = open(&[("/", root), ("/d/", &maybe)]);
    assert!(
        doubtful
            .iter()
            .zip(&answers)
            .all(|(maybe, own)| !maybe || *own)
    );
    let moved = parsed(&[b"# Require all granted\n\n", text]);
    assert_eq!(open(&[("/", root), ("/d/", &moved)]), answers);
}

/// What the root's file closes stays closed below a file that does not speak of it.
fn above_stays(text: &[u8], own: &Arc<Parsed>) {
    let text = joined(text);
    let speaks = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let closed_by = |above: &[u8]| are_closed(&[("/", &parsed(&[above])), ("/d/", own)]);
    assert!(closed_by(b"Redirect 403 /d\n"));
    let of_access = [
        "require",
        "order",
        "allow",
        "deny",
        "satisfy",
        "authmerging",
    ];
    if !speaks(&of_access) {
        assert!(closed_by(b"Require all denied\nDeny from all\n"));
    }
    if !speaks(&["<files", "<if", "satisfy"]) {
        assert!(closed_by(b"<Files *>\nRequire all denied\n</Files>\n"));
    }
    if !speaks(&["rewrite"]) {
        assert!(closed_by(b"RewriteEngine On\nRewriteRule ^d/ - [F]\n"));
    }
    if !speaks(&["php_"]) {
        let off = parsed(&[b"php_flag engine off\n"]);
        let scripts = &open(&[("/", &off), ("/d/", own)])[1..3];
        assert!(!scripts.contains(&true));
    }
}
