//! The requests of the oracle, in the order in which they are sent: each goes to every server. The scripts that they
//! reach are in the repository's `tests/probes/`.

use howdah_tests::forms::{BOUNDARY, File, multipart};
use howdah_tests::oracle::Probe;

const FORM: &str = "application/x-www-form-urlencoded";

/// Returns all probes.
pub fn all() -> Vec<Probe> {
    let mut probes = Vec::new();
    probes.extend(meta_variables());
    probes.extend(paths());
    probes.extend(inputs());
    probes.extend(uploads());
    probes.extend(bodies());
    probes.extend(answers());
    probes.extend(credentials());
    probes.extend(endings());
    probes.extend(sessions());
    probes.extend(surroundings());
    probes
}

fn meta_variables() -> Vec<Probe> {
    vec![
        Probe::get("server.plain", "/server.php"),
        Probe::get("server.query", "/server.php?a=1&b=%20x&c=a+b"),
        Probe::get("server.empty-query", "/server.php?"),
        Probe::get("server.odd-query", "/server.php?a?b=c/d&%zz&é"),
        Probe::get("server.path-info", "/server.php/extra/p%61th?x=1"),
        Probe::get("server.path-info-slash", "/server.php/"),
        Probe::get("server.path-info-encoded", "/server.php/a%2Fb%20c/%C3%A9"),
        Probe::get("server.path-info-script", "/server.php/x.php/y"),
        Probe::get("server.headers", "/server.php")
            .header("User-Agent", "probe/1.0 (test)")
            .header("Accept", "*/*")
            .header("Accept-Language", "de, en;q=0.5")
            .header("Referer", "http://probe.example/from")
            .header("X-Probe", "one")
            .header("X-Dashed-Name-2", "  padded  ")
            .header("Cookie", "a=b; c=d"),
        Probe::get("server.repeated-headers", "/server.php")
            .header("X-Twice", "one")
            .header("X-Twice", "two")
            .header("Accept", "text/html")
            .header("Accept", "text/plain"),
        Probe::get("server.repeated-cookies", "/request.php")
            .header("Cookie", "a=1")
            .header("Cookie", "b=2"),
        Probe::get("server.underscore-header", "/server.php")
            .header("X_Under", "dropped")
            .header("X-Under", "kept"),
        Probe::get("server.dotted-header", "/server.php").header("X.Dot", "dropped"),
        Probe::get("server.proxy-header", "/server.php").header("Proxy", "http://evil.example"),
        Probe::get("server.content-headers-on-get", "/server.php")
            .header("Content-Type", "text/x-probe"),
        Probe::get("server.latin1-header", "/server.php").header("X-Latin", "grüße"),
        Probe::get("server.empty-header", "/server.php").header("X-Empty", ""),
        Probe::get("server.host-port", "/server.php").host("probe.example:8123"),
        Probe::get("server.host-upper", "/server.php").host("PROBE.Example"),
        Probe::get(
            "server.absolute-form",
            "http://absolute.example/server.php?q=1",
        ),
        Probe::get("server.forwarded", "/server.php")
            .header("X-Forwarded-For", "192.0.2.1")
            .header("X-Forwarded-Proto", "https")
            .header("Forwarded", "for=192.0.2.2;proto=https"),
        Probe::get("server.https-header", "/server.php")
            .header("HTTPS", "on")
            .header("Https", "on"),
        Probe::get("server.post", "/server.php").body(FORM, "a=1"),
        Probe::get("server.head", "/server.php").method("HEAD"),
        Probe::get("server.options", "/server.php").method("OPTIONS"),
        Probe::get("server.put", "/server.php")
            .method("PUT")
            .body("text/plain", "put"),
        Probe::get("server.unknown-method", "/server.php").method("PURGE"),
        Probe::get("views", "/server_views.php?n=42")
            .header("X-Probe", "seen")
            .header("Cookie", "c=crumb"),
        Probe::get("views.post", "/server_views.php")
            .header("Cookie", "c=x")
            .body(FORM, "n=7"),
        Probe::get("allheaders", "/allheaders.php")
            .header("x-lower", "1")
            .header("X-Mixed-CASE", "2")
            .header("DNT", "1")
            .header("Content-Type", "text/x-probe")
            .header("Authorization", "Bearer abc"),
        Probe::get("allheaders.post", "/allheaders.php").body(FORM, "a=1"),
    ]
}

fn paths() -> Vec<Probe> {
    vec![
        Probe::get("path.plain", "/path.php"),
        Probe::get("path.info", "/path.php/one/two?q=1"),
        Probe::get("path.double-slash", "//path.php"),
        Probe::get("path.inner-double-slash", "/sub//with%20space.php"),
        Probe::get("path.info-double-slash", "/path.php//a//b"),
        Probe::get("path.dot-segment", "/sub/./../path.php"),
        Probe::get("path.encoded-letter", "/p%61th.php"),
        Probe::get("path.space", "/sub/with%20space.php/in%20fo"),
        Probe::get("path.utf8", "/sub/%C3%A9t%C3%A9.php"),
        Probe::get("path.index", "/dir/"),
        Probe::get("path.index-query", "/dir/?q=1"),
        Probe::get("path.index-info", "/dir/index.php/x"),
        Probe::get("path.directory-without-slash", "/dir?q=1"),
        Probe::get("path.missing-script", "/missing.php"),
        Probe::get("path.missing-info", "/missing.php/x"),
        Probe::get("path.missing-file", "/missing.txt"),
        Probe::get("path.missing-directory", "/missing/"),
        Probe::get("path.file-as-directory", "/dir/plain.txt/x.php"),
        Probe::get("path.static", "/dir/plain.txt"),
        Probe::get("path.static-post", "/dir/plain.txt").body(FORM, "a=1"),
        Probe::get("path.upper-extension", "/PATH.PHP"),
        Probe::get("path.nul", "/path.php%00.txt"),
        Probe::get("path.escape", "/../../etc/passwd"),
        Probe::get("path.escape-encoded", "/%2e%2e/%2e%2e/etc/passwd"),
        Probe::get("path.encoded-slash", "/sub%2Fcwd.php"),
        Probe::get("path.user-ini", "/perdir/.user.ini"),
        Probe::get("path.trailing-dot", "/path.php."),
        Probe::get("cwd", "/cwd.php"),
        Probe::get("cwd.sub", "/sub/cwd.php"),
        Probe::get("cwd.again", "/cwd.php"),
    ]
}

fn inputs() -> Vec<Probe> {
    let many: String = (0..1100).map(|n| format!("v{n}=1&")).collect();
    vec![
        Probe::get("get.plain", "/request.php?a=1&b=two&c="),
        Probe::get(
            "get.arrays",
            "/request.php?a[]=1&a[]=2&b[x]=3&b[y][]=4&c[[=5&d]=6&e[=7&[f]=8",
        ),
        Probe::get(
            "get.names",
            "/request.php?a.b=1&c%20d=2&%20e=3&f%00g=4&.h=5&=none&i",
        ),
        Probe::get(
            "get.encodings",
            "/request.php?a=%e4&b=%C3%A9&c=%zz&d=%&e=+%2B&f=%00",
        ),
        Probe::get("get.repeated", "/request.php?a=1&a=2&b[0]=1&b[0]=2"),
        Probe::get("get.semicolons", "/request.php?a=1;b=2&c=3"),
        Probe::get("get.deep", &format!("/request.php?a{}=1", "[x]".repeat(70))),
        Probe::get("get.unencoded", "/request.php?a=<b>\"c\"&d='e'"),
        Probe::get(
            "get.overwrites",
            "/request.php?_SERVER[x]=1&GLOBALS[y]=2&_GET=3",
        ),
        Probe::get("get.equals", "/request.php?a==b=c&=d&&&e=f&"),
        Probe::get("post.plain", "/request.php?a=get").body(FORM, "a=post&b=2"),
        Probe::get("post.arrays", "/request.php").body(FORM, "a[]=1&a[k][l]=2&a[]=3"),
        Probe::get("post.charset", "/request.php").body(
            "application/x-www-form-urlencoded; charset=UTF-8",
            "a=%C3%A9",
        ),
        Probe::get("post.upper-type", "/request.php")
            .body("APPLICATION/X-WWW-FORM-URLENCODED", "a=1"),
        Probe::get("post.too-many-variables", "/request.php").body(FORM, many),
        Probe::get("post.json", "/request.php").body("application/json", "{\"a\":1}"),
        Probe::get("post.no-type", "/request.php").body("", "a=1"),
        Probe::get("post.empty", "/request.php").body(FORM, ""),
        Probe::get("post.binary", "/request.php").body(FORM, b"a=\xff\x00b&c=\xe4".to_vec()),
        Probe::get("post.large-value", "/request.php")
            .body(FORM, format!("a={}", "x".repeat(300_000))),
        Probe::get("post.chunked", "/request.php").chunked(FORM, b"a=1&b=2&c=3", 4),
        Probe::get("put.form", "/request.php")
            .method("PUT")
            .body(FORM, "a=1"),
        Probe::get("cookie.several", "/request.php")
            .header("Cookie", "a=1; b=two words; c=%41%20+; d"),
        Probe::get("cookie.arrays", "/request.php")
            .header("Cookie", "a[x]=1; a[y]=2; b.c=3; d e=4"),
        Probe::get("cookie.repeated", "/request.php").header("Cookie", "a=first; a=second"),
        Probe::get("cookie.tight", "/request.php").header("Cookie", "a=1;b=2 ;  c=\"q\";;=x"),
        Probe::get("cookie.comma", "/request.php").header("Cookie", "a=1, b=2"),
        Probe::get("cookie.over-get", "/request.php?a=get").header("Cookie", "a=cookie"),
    ]
}

fn uploads() -> Vec<Probe> {
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    let file = |field: &str, name: &str, bytes: &[u8]| File {
        field: field.into(),
        name: name.into(),
        kind: "text/x-probe".into(),
        bytes: bytes.into(),
    };
    let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let post = |name: &str, body: Vec<u8>| Probe::get(name, "/request.php").body(&kind, body);
    let two = multipart(
        &[text("a", "1"), text("b[]", "x"), text("b[]", "é")],
        &[
            file("f", "one.txt", b"first"),
            file("g[k]", "dir/two é.txt", b"second\r\n\0"),
        ],
    );
    let mut unended = two.clone();
    unended.truncate(unended.len() - 30);
    vec![
        post("upload.two", two.clone()),
        post(
            "upload.array",
            multipart(
                &[],
                &[
                    file("f[]", "1", b"1"),
                    file("f[]", "2", b"22"),
                    file("f[x][y]", "3", b"333"),
                ],
            ),
        ),
        post(
            "upload.empty-file",
            multipart(&[], &[file("f", "empty", b"")]),
        ),
        post("upload.no-file", multipart(&[], &[file("f", "", b"")])),
        post(
            "upload.max-file-size",
            multipart(&[text("MAX_FILE_SIZE", "3")], &[file("f", "x", b"12345")]),
        ),
        post(
            "upload.path-in-name",
            multipart(&[], &[file("f", "..\\..\\evil/../x.php", b"x")]),
        ),
        post(
            "upload.quotes",
            multipart(&[], &[file("f", "a\\\"b\\\\c.txt", b"x")]),
        ),
        post(
            "upload.large",
            multipart(&[], &[file("f", "large", &vec![b'z'; 3 << 20])]),
        ),
        post("upload.no-end", unended),
        post("upload.nothing", Vec::new()),
        Probe::get("upload.no-boundary", "/request.php").body("multipart/form-data", two.clone()),
        Probe::get("upload.other-boundary", "/request.php")
            .body("multipart/form-data; boundary=other", two.clone()),
        Probe::get("upload.quoted-boundary", "/request.php").body(
            &format!("multipart/form-data; charset=utf-8; boundary=\"{BOUNDARY}\""),
            two.clone(),
        ),
        Probe::get("upload.chunked", "/request.php").chunked(&kind, &two, 100),
        Probe::get("upload.over-post-max", "/request.php").body(
            &kind,
            multipart(&[], &[file("f", "huge", &vec![b'h'; 66 << 20])]),
        ),
        Probe::get("upload.over-file-max", "/request.php").body(
            &kind,
            multipart(
                &[text("a", "1")],
                &[file("f", "big", &vec![b'b'; 49 << 20])],
            ),
        ),
        Probe::get("upload.perdir-limit", "/perdir/")
            .body(&kind, multipart(&[], &[file("f", "x", b"1")])),
    ]
}

fn bodies() -> Vec<Probe> {
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    let large: Vec<u8> = (0..5_000_000u32).map(|n| (n % 251) as u8).collect();
    vec![
        Probe::get("body.none", "/body.php"),
        Probe::get("body.form", "/body.php").body(FORM, "a=1&b=2"),
        Probe::get("body.json", "/body.php")
            .body("application/json", "{\"a\": [1, 2, 3], \"b\": \"é\"}"),
        Probe::get("body.put", "/body.php")
            .method("PUT")
            .body("text/plain", "some text to put"),
        Probe::get("body.patch", "/body.php")
            .method("PATCH")
            .body("application/merge-patch+json", "{\"a\":null}"),
        Probe::get("body.delete", "/body.php")
            .method("DELETE")
            .body("text/plain", "with a body"),
        Probe::get("body.delete-empty", "/body.php").method("DELETE"),
        Probe::get("body.get-with-body", "/body.php")
            .method("REPORT")
            .body("text/plain", "unusual"),
        Probe::get("body.empty", "/body.php").body("text/plain", ""),
        Probe::get("body.no-type", "/body.php").body("", "untyped bytes"),
        Probe::get("body.large", "/body.php").body("application/octet-stream", large.clone()),
        Probe::get("body.chunked", "/body.php").chunked(
            "application/octet-stream",
            b"in several chunks, each small",
            7,
        ),
        Probe::get("body.chunked-large", "/body.php").chunked(
            "application/octet-stream",
            &large,
            60_001,
        ),
        Probe::get("body.chunked-empty", "/body.php").chunked("text/plain", b"", 1),
        Probe::get("body.multipart", "/body.php")
            .body(&kind, multipart(&[("a".into(), "1".into())], &[])),
        Probe::get("body.expect", "/body.php")
            .header("Expect", "100-continue")
            .body("text/plain", "expected"),
        Probe::get("body.unread", "/dir/").body("text/plain", vec![b'u'; 200_000]),
    ]
}

fn answers() -> Vec<Probe> {
    let status = [
        "code&code=200",
        "code&code=201",
        "code&code=402",
        "code&code=404",
        "code&code=418",
        "code&code=422",
        "code&code=451",
        "code&code=500",
        "code&code=503",
        "code&code=599",
        "line",
        "line10",
        "line_bare",
        "line_odd",
        "status",
        "status_bare",
        "third",
        "line_then_code",
        "code_then_line",
        "location",
        "location_absolute",
        "location_relative",
        "location_201",
        "location_301",
        "location_304",
        "refresh",
        "www_authenticate",
        "204",
        "204_body",
        "304_body",
        "invalid",
    ];
    let headers = [
        "replace",
        "append",
        "remove",
        "remove_all",
        "powered",
        "newline",
        "nul",
        "blank",
        "colonless",
        "utf8",
        "long",
        "many",
        "cookies",
        "type",
        "type_text",
        "type_charset",
        "type_none",
        "type_mimetype",
        "length",
        "own_server",
        "encoding",
        "connection",
        "keep_alive",
        "transfer",
        "cache",
        "late",
        "flushed",
        "accel",
        "link",
        "callback",
    ];
    let output = [
        "",
        "nested",
        "unclosed",
        "callback_phases",
        "gzip",
        "zlib",
        "none",
        "blank",
        "binary",
        "large",
        "large_length",
        "flushes",
        "no_buffer",
        "clean_all",
        "stream",
        "readfile",
        "passthru",
        "destructor",
        "rewrite",
        "print",
    ];
    let ask = |script: &str, how: &&str| {
        Probe::get(
            &format!("{script}.{}", how.replace("&code=", "-")),
            &format!("/{script}.php?how={how}"),
        )
    };
    let mut probes: Vec<Probe> = status.iter().map(|how| ask("status", how)).collect();
    probes.extend(headers.iter().map(|how| ask("headers", how)));
    probes.extend(output.iter().map(|how| ask("output", how)));
    for how in ["gzip", "zlib"] {
        probes.push(
            Probe::get(
                &format!("output.{how}-accepted"),
                &format!("/output.php?how={how}"),
            )
            .header("Accept-Encoding", "gzip"),
        );
    }
    for (script, how) in [
        ("output", "large"),
        ("output", "flushes"),
        ("headers", "length"),
        ("status", "location"),
        ("flow", "exception"),
    ] {
        probes.push(
            Probe::get(
                &format!("head.{script}.{how}"),
                &format!("/{script}.php?how={how}"),
            )
            .method("HEAD"),
        );
    }
    probes.push(Probe::get("cache.first", "/cache.php"));
    probes.push(Probe::get("cache.match", "/cache.php").header("If-None-Match", "\"probe-1\""));
    probes.push(Probe::get("cache.other", "/cache.php").header("If-None-Match", "\"probe-0\""));
    probes.push(
        Probe::get("cache.since", "/cache.php")
            .header("If-Modified-Since", "Sat, 01 Jan 2000 00:00:00 GMT"),
    );
    probes.push(Probe::get("cache.range", "/cache.php").header("Range", "bytes=0-3"));
    probes.push(Probe::get("cache.head", "/cache.php").method("HEAD"));
    probes
}

fn credentials() -> Vec<Probe> {
    let ask =
        |name: &str, value: &str| Probe::get(name, "/auth.php").header("Authorization", value);
    vec![
        Probe::get("auth.none", "/auth.php"),
        ask("auth.basic", "Basic dXNlcjpwYXNzOndvcmQ="),
        ask("auth.basic-lower", "basic dXNlcjpwYXNz"),
        ask("auth.basic-no-colon", "Basic dXNlcg=="),
        ask("auth.basic-broken", "Basic %%%"),
        ask("auth.basic-empty", "Basic "),
        ask(
            "auth.digest",
            "Digest username=\"u\", realm=\"r\", nonce=\"n\", uri=\"/\", response=\"x\"",
        ),
        ask("auth.bearer", "Bearer abc.def"),
        ask("auth.other", "Probe xyz"),
        Probe::get("auth.proxy", "/auth.php").header("Proxy-Authorization", "Basic dXNlcjpwYXNz"),
        Probe::get("auth.after", "/auth.php"),
    ]
}

fn endings() -> Vec<Probe> {
    let flow = [
        "",
        "exit",
        "exit_text",
        "exit_code",
        "return",
        "undefined_function",
        "exception",
        "exception_handler",
        "chained",
        "type_error",
        "parse",
        "parse_caught",
        "missing_include",
        "missing_require",
        "memory",
        "time",
        "warning",
        "user_error",
        "deprecated",
        "error_handler",
        "shutdown_throw",
        "destructor_throw",
        "exit_in_shutdown",
        "exit_in_buffer",
        "redeclare",
        "abstract",
        "log_only",
    ];
    let shutdown = [
        "",
        "error",
        "header",
        "cwd",
        "finish",
        "finish_note",
        "finish_early_exit",
        "finish_fatal",
        "finish_buffers",
    ];
    let mut probes: Vec<Probe> = flow
        .iter()
        .map(|how| Probe::get(&format!("flow.{how}"), &format!("/flow.php?how={how}")))
        .collect();
    for how in [
        "undefined_function",
        "exception",
        "parse",
        "memory",
        "user_error",
        "missing_require",
    ] {
        probes.push(Probe::get(
            &format!("flow-quiet.{how}"),
            &format!("/flow.php?quiet&how={how}"),
        ));
        probes.push(Probe::get(
            &format!("flow-quiet-after.{how}"),
            &format!("/flow.php?quiet&after&how={how}"),
        ));
        probes.push(Probe::get(
            &format!("flow-flushed.{how}"),
            &format!("/flow.php?flushed&how={how}"),
        ));
    }
    probes.push(Probe::get("flow.parse-error-in-script", "/parse_error.php"));
    probes.extend(shutdown.iter().map(|how| {
        Probe::get(
            &format!("shutdown.{how}"),
            &format!("/shutdown.php?keep=kept&how={how}"),
        )
    }));
    probes
}

fn sessions() -> Vec<Probe> {
    let mut probes = vec![
        Probe::get("session.first", "/session.php").in_session(),
        Probe::get("session.second", "/session.php").in_session(),
        Probe::get("session.regenerate", "/session.php?how=regenerate").in_session(),
        Probe::get("session.after-regenerate", "/session.php").in_session(),
        Probe::get("session.destroy", "/session.php?how=destroy").in_session(),
        Probe::get("session.after-destroy", "/session.php").in_session(),
        Probe::get("session.forged-id", "/session.php").header("Cookie", "PHPSESSID=../../etc"),
    ];
    for limiter in ["nocache", "public", "private", "private_no_expire", "none"] {
        probes.push(Probe::get(
            &format!("session.limiter-{limiter}"),
            &format!("/session.php?limiter={limiter}"),
        ));
    }
    let progress = multipart(
        &[("PHP_SESSION_UPLOAD_PROGRESS".into(), "probe".into())],
        &[File {
            field: "f".into(),
            name: "x".into(),
            kind: "text/plain".into(),
            bytes: vec![b'p'; 500_000],
        }],
    );
    probes.push(
        Probe::get("session.upload-progress", "/session.php?how=progress")
            .in_session()
            .body(
                &format!("multipart/form-data; boundary={BOUNDARY}"),
                progress,
            ),
    );
    probes
}

fn surroundings() -> Vec<Probe> {
    vec![
        Probe::get("ini", "/ini.php"),
        Probe::get("ini.again", "/ini.php"),
        Probe::get("perdir", "/perdir/"),
        Probe::get("perdir.below", "/perdir/below/"),
        Probe::get("perdir.not-leaked", "/ini.php"),
        Probe::get("functions", "/functions.php?argument"),
        Probe::get("functions.argv", "/functions.php?one+two+three"),
        Probe::get("connection", "/connection.php"),
        Probe::get("locale", "/locale.php"),
        Probe::get("process", "/process.php"),
        Probe::get("leak.change", "/leak.php?how=change"),
        Probe::get("leak.check", "/leak.php"),
        Probe::get("leak.locale", "/locale.php"),
        Probe::get("leak.cwd", "/cwd.php"),
    ]
}
