//! The traversal corpus, and the property that covers all of it.

use proptest::prelude::*;

use super::*;

fn check(raw: &str, expected: Result<&str, Refusal>) {
    let path = UrlPath::parse(raw.as_bytes());
    let path = path.map(|path| String::from_utf8_lossy(path.as_bytes()).into_owned());
    assert_eq!(path, expected.map(str::to_owned), "{raw}");
}

#[test]
fn url_path_that_is_clean_is_not_copied() {
    for raw in [
        "/",
        "/index.php",
        "/a/b/c.css",
        "/a/b/",
        "/a.b..c/x...y",
        "/a;b=c/@:~",
    ] {
        check(raw, Ok(raw));
        let path = UrlPath::parse(raw.as_bytes()).unwrap();
        assert!(matches!(path.0, Cow::Borrowed(_)), "{raw}");
    }
}

#[test]
fn url_path_is_decoded_once() {
    check("/a%20b", Ok("/a b"));
    check("/%41%2dz%7E", Ok("/A-z~"));
    check("/%252e%252e/x", Ok("/%2e%2e/x"));
    check("/a%2Fb", Ok("/a/b"));
    check("/a%3fb", Ok("/a?b"));
    check("/a%0ab", Ok("/a\nb"));
    check("/a+b", Ok("/a+b"));
}

#[test]
fn url_path_with_bad_escape_or_nul_is_refused() {
    for raw in ["/%", "/%4", "/%zz", "/a%4/", "/%u002e", "/%%35%63", "/%+1"] {
        check(raw, Err(Refusal::BadEscape));
    }
    for raw in ["/%00", "/index.php%00.jpg", "/a/%00/../b"] {
        check(raw, Err(Refusal::NulByte));
    }
    assert_eq!(UrlPath::parse(b"/a\0b"), Err(Refusal::NulByte));
}

#[test]
fn url_path_slashes_merge_and_dot_segments_are_removed() {
    check("//", Ok("/"));
    check("//evil.example/x", Ok("/evil.example/x"));
    check("/a//b///c", Ok("/a/b/c"));
    check("/a/./b", Ok("/a/b"));
    check("/a/.", Ok("/a/"));
    check("/a/b/..", Ok("/a/"));
    check("/a/../b", Ok("/b"));
    check("/a/..", Ok("/"));
    check("/a//../b", Ok("/b"));
    check("/a%2f%2e%2e%2fb", Ok("/b"));
    check("/a/%2E%2e/b", Ok("/b"));
    check("/.well-known/x", Ok("/.well-known/x"));
}

#[test]
fn traversal_above_the_root_is_refused_in_every_spelling() {
    for raw in [
        "/..",
        "/../",
        "/../etc/passwd",
        "/./../etc/passwd",
        "/a/../../etc/passwd",
        "/a/../../a/x",
        "//../x",
        "/%2e%2e/etc/passwd",
        "/%2e./x",
        "/.%2E/x",
        "/..%2fx",
        "/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/a/b/c/../../../../x",
    ] {
        check(raw, Err(Refusal::AboveRoot));
    }
}

#[test]
fn traversal_lookalikes_are_names() {
    // Double encoding, `..;` of servlet containers, overlong UTF-8, full-width dots, trailing dots.
    check("/%252e%252e%252fx", Ok("/%2e%2e%2fx"));
    check("/..;/x", Ok("/..;/x"));
    check("/.../x", Ok("/.../x"));
    check("/..%20/x", Ok("/.. /x"));
    check("/..%0a/x", Ok("/..\n/x"));
    check("/x.", Ok("/x."));
    check("/%ef%bc%8e%ef%bc%8e/x", Ok("/\u{ff0e}\u{ff0e}/x"));
    let overlong = UrlPath::parse(b"/%c0%ae%c0%ae/%c0%afx").unwrap();
    assert_eq!(overlong.as_bytes(), b"/\xc0\xae\xc0\xae/\xc0\xafx");
}

#[test]
fn backslash_is_a_byte_but_not_in_a_traversal() {
    check("/a\\b", Ok("/a\\b"));
    check("/%5cevil", Ok("/\\evil"));
    for raw in [
        "/..\\x",
        "/..%5cx",
        "/a\\..\\b",
        "/a%5c..",
        "/\\..\\..\\etc",
    ] {
        check(raw, Err(Refusal::BackslashTraversal));
    }
}

#[test]
fn url_path_must_begin_with_a_slash() {
    for raw in ["", "*", "index.php", "?x"] {
        check(raw, Err(Refusal::BadTarget));
    }
}

#[test]
fn relative_path_has_no_slash_at_either_end() {
    for (raw, relative, directory) in [
        ("/", "", true),
        ("/a", "a", false),
        ("/a/", "a", true),
        ("/a/b/", "a/b", true),
    ] {
        let path = UrlPath::parse(raw.as_bytes()).unwrap();
        assert_eq!(path.relative(), relative.as_bytes());
        assert_eq!(path.is_directory(), directory);
    }
}

#[test]
fn encoded_location_can_neither_split_a_header_nor_name_another_host() {
    let mut out = Vec::new();
    encode_path(b"/\\evil.example/a b\r\nX: y\xff?#", &mut out);
    assert_eq!(out, b"/%5Cevil.example/a%20b%0D%0AX:%20y%FF%3F%23");
}

fn promises(path: &UrlPath<'_>) {
    let bytes = path.as_bytes();
    assert_eq!(bytes[0], b'/');
    assert!(!bytes.contains(&0));
    assert!(!bytes.windows(2).any(|pair| pair == b"//"));
    let relative = path.relative();
    assert!(!relative.starts_with(b"/") && !relative.ends_with(b"/"));
    if !relative.is_empty() {
        for segment in relative.split(|b| *b == b'/') {
            assert!(!segment.is_empty() && segment != b"." && segment != b"..");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn no_bytes_break_the_promise(raw in proptest::collection::vec(any::<u8>(), 0..64)) {
        let mut target = vec![b'/'];
        target.extend(raw);
        if let Ok(path) = UrlPath::parse(&target) {
            promises(&path);
        }
        if let Ok(path) = UrlPath::from_decoded(&target) {
            promises(&path);
        }
    }

    #[test]
    fn no_mixture_of_dots_and_slashes_breaks_the_promise(
        raw in "(/|\\.|\\.\\.|%2e|%2E|%2f|%5c|\\\\|a|%25|;|%00|%c0%ae){0,24}"
    ) {
        let target = format!("/{raw}");
        if let Ok(path) = UrlPath::parse(target.as_bytes()) {
            promises(&path);
            // Cleaning a clean path changes nothing.
            let again = UrlPath::from_decoded(path.as_bytes()).unwrap();
            prop_assert_eq!(again.as_bytes(), path.as_bytes());
            // Encoding the path and parsing the result gives the path back.
            let mut encoded = Vec::new();
            encode_path(path.as_bytes(), &mut encoded);
            let back = UrlPath::parse(&encoded).unwrap();
            prop_assert_eq!(back.as_bytes(), path.as_bytes());
        }
    }
}
