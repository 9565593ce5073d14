//! `howdah explain` predicts what the server does: a few hundred requests to sites with rules of all kinds are
//! explained and then sent.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Output};

use howdah_tests::executable::make_executable;
use howdah_tests::fixture::{Fixture, HELLO, TRUSTED_PROXIES};
use howdah_tests::http::{self, Response};
use howdah_tests::rig::howdah_program;
use howdah_tests::scratch::Scratch;
use serde_json::Value;

/// Reports in a header which request it has received.
const VARIABLES_SCRIPT: &str = r#"<?php
$told = ['script' => $_SERVER['SCRIPT_FILENAME'], 'script_name' => $_SERVER['SCRIPT_NAME'],
    'path_info' => $_SERVER['PATH_INFO'] ?? '', 'query' => $_SERVER['QUERY_STRING'] ?? ''];
header('X-Told: ' . json_encode($told, JSON_UNESCAPED_SLASHES));
"#;

/// Does the same as [`VARIABLES_SCRIPT`], as an external program.
const TOOL: &str = r#"#!/usr/bin/perl
my %told = (script => 'SCRIPT_FILENAME', script_name => 'SCRIPT_NAME', path_info => 'PATH_INFO', query => 'QUERY_STRING');
print "Content-Type: text/plain\n";
print 'X-Told: {', join(', ', map { "\"$_\": \"" . ($ENV{$told{$_}} // '') . '"' } keys %told), "}\n\n";
"#;

/// Starts a server for `proxy` and `auth_request` rules. The server allows every request that has the key, and reports
/// the path that it has received.
fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            let mut piece = [0; 4096];
            while !head.windows(4).any(|w| w == b"\r\n\r\n") {
                match stream.read(&mut piece) {
                    Ok(0) | Err(_) => break,
                    Ok(length) => head.extend_from_slice(&piece[..length]),
                }
            }
            let text = String::from_utf8_lossy(&head).to_lowercase();
            let target = text.split(' ').nth(1).unwrap_or_default();
            let status = match target.starts_with("/verify") && !text.contains("x-key: open") {
                true => "401 Unauthorized",
                false => "200 OK",
            };
            let answer = format!(
                "HTTP/1.1 {status}\r\nX-Target: {target}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            // A client that has disconnected needs no response.
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}

const HTACCESS: &str = "RewriteEngine On\n\
    RewriteRule ^alias$ a.txt [L]\n\
    RewriteCond %{QUERY_STRING} away\n\
    RewriteRule ^go$ /elsewhere?x=1 [R=301,L]\n\
    RewriteCond %{HTTP_COOKIE} beta\n\
    RewriteRule ^page$ tell.php/beta [L,QSA]\n\
    RewriteRule ^page$ tell.php?p=$0 [L,QSA]\n\
    RewriteRule ^gone - [G]\n\
    RewriteRule ^loop /apache/loop [L]\n\
    Redirect 302 /apache/moved /a.txt\n\
    ErrorDocument 404 /tell.php?missing\n\
    <Files closed.txt>\nRequire all denied\n</Files>\n\
    <Files local.txt>\nRequire ip 10.0.0.0/8\n</Files>\n\
    Header set X-Apache yes\n";

const LOGIN: &str = "AuthType Basic\nAuthName \"Inner\"\nAuthUserFile users\nRequire valid-user\n";

fn served(name: &str) -> Fixture {
    let upstream = upstream();
    let mut builder = Fixture::named(name)
        .config(TRUSTED_PROXIES)
        .config("[status]\npath = \"/howdah-status\"\nallow = [\"127.0.0.1\", \"10.0.0.1\"]")
        .file("a.txt", "text")
        .file("gone.html", "a page for what is gone")
        .file(
            "users",
            "ann:$2y$04$6uIEqby2HLR.PpVdSTz2A.IS3XhKY6C8qujo6HuutCnYrJaR6x.4C\n",
        )
        .file("cgi-bin/tool", TOOL)
        .file("closed/.htaccess", "Require all denied\n")
        .file("closed/x.txt", "secret")
        .file("apache/.htaccess", HTACCESS)
        .file("apache/inner/.htaccess", LOGIN)
        .file("broken/.htaccess", "Nonsense\n")
        .script("index.php", VARIABLES_SCRIPT)
        .script("tell.php", VARIABLES_SCRIPT)
        .script("apache/tell.php", VARIABLES_SCRIPT)
        .script(
            "send.php",
            "<?php header('X-Accel-Redirect: /' . $_SERVER['QUERY_STRING']);",
        );
    for file in [
        "admin/a.txt",
        "login/a.txt",
        "sso/a.txt",
        "near/a.txt",
        "d/index.html",
        "apache/a.txt",
        "apache/closed.txt",
        "apache/local.txt",
        "apache/inner/a.txt",
        "broken/a.txt",
        ".env",
        "x.sql",
    ] {
        builder = builder.file(file, format!("content of {file}"));
    }
    let rules = "deny = [\"/admin/**\", \"*.secret\"]\n\
        [site.error_pages]\n410 = \"/gone.html\"\n\
        [[site.rule]]\nset_header = { X-Site = \"SITE\", X-Powered-By = \"\" }\n\
        [[site.rule]]\nprefix = \"/old\"\nredirect = \"/new$1\"\nstatus = 301\n\
        [[site.rule]]\nregex = \"^/lang/(?<lang>[a-z]{2})/(.*)$\"\nrewrite = \"/$2?lang=${lang}\"\n\
        [[site.rule]]\nprefix = \"/login\"\nauth_basic = \"Staff\"\nauth_basic_user_file = \"ROOT/users\"\n\
        [[site.rule]]\nprefix = \"/sso\"\nauth_request = \"http://UPSTREAM/verify\"\n\
        [[site.rule]]\nprefix = \"/near\"\ndeny = 404\nnot = { from = \"10.0.0.0/8\" }\n\
        [[site.rule]]\ndeny = 410\nquery = { author = \"~ ^[0-9]+$\" }\n\
        [[site.rule]]\ndeny = 403\nheader = { User-Agent = \"~* bot\" }\nnot = { path = \"/a.txt\" }\n\
        [[site.rule]]\npath = \"/tell.php\"\nrewrite = \"/index.php?beta=1\"\ncookie = { beta = \"on\" }\n\
        [[site.rule]]\nprefix = \"/api\"\nproxy = \"http://UPSTREAM\"\n\
        [[site.rule]]\nprefix = \"/missing\"\nreturn = 200\nbody = \"nothing\"\nif_missing = true\n\
        [[site.rule]]\nmethods = [\"DELETE\"]\nreturn = 405\n";
    let site = |name: &str, more: &str| {
        format!(
            "name = \"{name}\"\nhosts = [\"{name}.example\"]\n{more}\n{}",
            rules
                .replace("SITE", name)
                .replace("UPSTREAM", &upstream.to_string())
        )
    };
    let cgi = "[[site.rule]]\nprefix = \"/cgi-bin/\"\ncgi = \"programs\"\n";
    let fixture = builder
        .pool("[pool.programs]\nmode = \"cgi\"\nmax_children = 2")
        .site(&site("main", "front_controller = \"/index.php\"\ncache = \"on\"\ncache_ignore_cookies = [\"beta\"]"))
        .site(cgi)
        .site(&format!("[[site]]\nroot = \"ROOT\"\n{}", site("apache", "htaccess = \"on\"\ncache = \"on\"")))
        .site(&format!("[[site]]\nroot = \"ROOT\"\n{}", site("secure", "https_redirect = true")))
        .site("[[site]]\nroot = \"ROOT\"\nname = \"plain\"\nhosts = [\"plain.example\"]\nhtaccess = \"off\"\ntry_files = [\"$uri\", \"/tell.php?try=$uri\"]\n")
        .start();
    make_executable(&fixture.path("site/cgi-bin/tool"));
    fixture
}

const PATHS: &[&str] = &[
    "/",
    "/a.txt",
    "/a.txt/more",
    "/tell.php",
    "/tell.php/info/x",
    "/tell.php?author=12",
    "/d",
    "/d/?q=1",
    "/none",
    "/none.php",
    "/old/x?y=1",
    "/lang/de/tell.php?b",
    "/lang/de/admin/a.txt",
    "/login/a.txt",
    "/login/none",
    "/sso/a.txt",
    "/sso/none",
    "/near/a.txt",
    "/admin/a.txt",
    "/x.secret",
    "/api/v1?z=2",
    "/missing/x",
    "/closed/x.txt",
    "/closed/none",
    "/.env",
    "/x.sql",
    "/users",
    "/cgi-bin/tool/p?x",
    "/cgi-bin/none",
    "/apache/alias",
    "/apache/go?away",
    "/apache/go",
    "/apache/page?n=1",
    "/apache/gone",
    "/apache/loop",
    "/apache/moved/x",
    "/apache/nothing",
    "/apache/closed.txt",
    "/apache/local.txt",
    "/apache/inner/a.txt",
    "/broken/a.txt",
    "/%2e%2e/x",
    "/a%zz",
    "/../..",
    "//a.txt",
    "/howdah-status",
    "/send.php?a.txt",
    "/apache/",
    "/gone.html",
];

const HOSTS: &[&str] = &[
    "main.example",
    "apache.example",
    "secure.example",
    "plain.example",
    "none.example",
];

/// Further header lines of requests.
const FIELDS: &[&[&str]] = &[
    &[],
    &["X-Key: open"],
    &["Authorization: Basic YW5uOnB3"],
    &["Authorization: Basic YW5uOndyb25n", "Cookie: beta=on"],
    &["Cookie: beta=on; x=1", "Accept: text/html"],
    &["User-Agent: A Bot", "X-Key: open"],
    &[
        "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT",
        "Range: bytes=0-0",
    ],
    &["Range: bytes=1-2"],
];

const METHODS: &[&str] = &["GET", "GET", "GET", "HEAD", "POST", "OPTIONS", "DELETE"];
const FROM: &[&str] = &["192.0.2.7", "10.0.0.1"];

struct ExplainedRequest {
    method: &'static str,
    url: String,
    host: &'static str,
    target: &'static str,
    fields: Vec<String>,
}

impl ExplainedRequest {
    fn send(&self, address: SocketAddr) -> Response {
        let fields: String = self
            .fields
            .iter()
            .map(|field| format!("{field}\r\n"))
            .collect();
        let (method, target, host) = (self.method, self.target, self.host);
        let text = format!(
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\n{fields}Connection: close\r\n\r\n"
        );
        http::exchange(address, text.as_bytes()).unwrap_or_else(|broken| panic!("{text}: {broken}"))
    }
}

/// Returns requests for the paths of every site, combined in turn with the methods, the headers and the addresses of
/// clients.
fn requests() -> Vec<ExplainedRequest> {
    let mut all = Vec::new();
    let mut number = 0_usize;
    for (at, host) in HOSTS.iter().chain(&HOSTS[..2]).enumerate() {
        // The first two hosts have the most rules.
        let step = if HOSTS[..2].contains(host) { 1 } else { 3 };
        for path in PATHS.iter().skip(at % 3).step_by(step) {
            number += 1;
            // The lengths are coprime, so in time every part is combined with every other.
            let mut fields: Vec<String> = FIELDS[number % FIELDS.len()]
                .iter()
                .map(|&f| f.to_owned())
                .collect();
            let from = FROM[number % 3 % FROM.len()];
            fields.push(format!("X-Forwarded-For: {from}"));
            if number.is_multiple_of(11) {
                fields.push("X-Forwarded-Proto: https".to_owned());
            }
            let method = METHODS[(number + at) % METHODS.len()];
            all.push(ExplainedRequest {
                method,
                url: format!("http://{host}{path}"),
                host,
                target: path,
                fields,
            });
        }
    }
    all
}

fn explain(words: &[&str], config: &Path) -> Output {
    let mut command = Command::new(howdah_program());
    command
        .arg("explain")
        .args(words)
        .arg("--config")
        .arg(config);
    command.output().expect("howdah can be started")
}

fn explained(request: &ExplainedRequest, config: &Path) -> Value {
    let mut words = vec![
        &*request.url,
        "-X",
        request.method,
        "--from",
        "127.0.0.1",
        "--json",
    ];
    for field in &request.fields {
        words.extend(["-H", field]);
    }
    let output = explain(&words, config);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Returns the difference between the explanation and what the server did, if there is one.
fn difference(request: &ExplainedRequest, told: &Value, answer: &Response) -> Option<String> {
    let say = &told["answer"];
    let is_allowed = request.fields.iter().any(|field| field == "X-Key: open");
    if told["not_asked"].is_array() && !is_allowed {
        // The upstream server determines the outcome.
        return (answer.status() != 401).then(|| "was not refused".to_owned());
    }
    if let Some(status) = say["status"].as_u64()
        && u64::from(answer.status()) != status
    {
        return Some(format!("status {}, not {status}", answer.status()));
    }
    // The explanation names the reason of a refusal; for some refusals, the client does not learn the reason.
    let told_to_clients = say["error"].as_str().map(|name| match name {
        "PasswordFile" => "NotFound",
        name => name,
    });
    if answer.header("Howdah-Error") != told_to_clients {
        return Some(format!("error {:?}", answer.header("Howdah-Error")));
    }
    if answer.header("Location") != say["location"].as_str() {
        return Some(format!("location {:?}", answer.header("Location")));
    }
    let fields = say["header"].as_array().into_iter().flatten();
    for pair in fields {
        let (name, value) = (pair[0].as_str()?, pair[1].as_str()?);
        if !answer.head.headers.all(name).any(|given| given == value) {
            return Some(format!("{name}: {:?}, not {value}", answer.header(name)));
        }
    }
    for name in say["without"].as_array().into_iter().flatten() {
        if answer.header(name.as_str()?).is_some() {
            return Some(format!("has {name}"));
        }
    }
    match say["kind"].as_str()? {
        "file" if request.method == "GET" && answer.status() == 200 => {
            let content = std::fs::read_to_string(say["file"].as_str()?).ok()?;
            (answer.text() != content).then(|| "another file".to_owned())
        }
        "script" | "program" => {
            // When the script sends a file, or when a stored page from another request is served, the script's report
            // is not in the response.
            if say["script_name"] == "/send.php" {
                return None;
            }
            let said = answer.header("X-Told");
            let Some(said) = said.and_then(|text| serde_json::from_str::<Value>(text).ok()) else {
                return Some(format!("no script has responded: {}", answer.text()));
            };
            let names = ["script", "script_name", "path_info", "query"];
            let other = names
                .into_iter()
                .find(|name| said[name].as_str() != Some(say[name].as_str().unwrap_or_default()));
            other.map(|name| format!("{name} {}", said[name]))
        }
        "proxy" => {
            let query = say["query"].as_str().map(|query| format!("?{query}"));
            let target = format!("{}{}", say["path"].as_str()?, query.unwrap_or_default());
            let got = answer.header("X-Target");
            (got != Some(&*target)).then(|| format!("asked for {got:?}"))
        }
        _ => None,
    }
    .or_else(|| bypass(told, answer))
}

/// Returns the difference between the explanation and what the page cache did, if there is one.
fn bypass(told: &Value, answer: &Response) -> Option<String> {
    let status = answer.header("Cache-Status").unwrap_or_default();
    match &told["cache"] {
        Value::Null => None,
        cache => match cache["bypass"]["reason"].as_str() {
            Some(reason) => {
                let detail = format!("detail={reason}");
                (!status.contains(&detail)).then(|| format!("Cache-Status {status}"))
            }
            None => status
                .contains("fwd=bypass")
                .then(|| format!("Cache-Status {status}")),
        },
    }
}

#[test]
#[cfg_attr(not(feature = "packages"), ignore = "needs php-cgi")]
fn explain_predicts_what_happens() {
    let fixture = served("explain");
    let config = fixture.howdah.directory().join("howdah.toml");
    let requests = requests();
    assert!(requests.len() > 200);
    let half = requests.len() / 2;
    let tell = |requests: &[ExplainedRequest]| -> Vec<Value> {
        requests
            .iter()
            .map(|request| explained(request, &config))
            .collect()
    };
    let told = std::thread::scope(|scope| {
        let first = scope.spawn(|| tell(&requests[..half]));
        let mut rest = tell(&requests[half..]);
        let mut all = first.join().expect("explained");
        all.append(&mut rest);
        all
    });
    let mut kinds = std::collections::BTreeMap::new();
    let mut wrong = Vec::new();
    for (request, told) in requests.iter().zip(&told) {
        let answer = request.send(fixture.address());
        let kind = told["answer"]["kind"].as_str().unwrap_or_default();
        let name = told["answer"]["error"].as_str().unwrap_or_default();
        *kinds.entry(format!("{kind} {name}")).or_insert(0) += 1;
        if let Some(what) = difference(request, told, &answer) {
            let ExplainedRequest {
                method,
                url,
                fields,
                ..
            } = request;
            wrong.push(format!(
                "{method} {url} {fields:?}: {what}\n{}",
                told["answer"]
            ));
        }
    }
    println!("{kinds:?}");
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        requests.len(),
        wrong.join("\n")
    );
    for kind in [
        "file ",
        "script ",
        "program ",
        "proxy ",
        "redirect ",
        "return ",
        "options ",
        "status-page ",
        "error Denied",
        "error NotFound",
        "error NotAuthenticated",
        "error HtaccessDenied",
        "error HtaccessPassword",
        "error HtaccessLoop",
        "error HtaccessNotUnderstood",
        "error BadEscape",
        "error AboveRoot",
        "error MethodNotAllowed",
        "error DotFile",
    ] {
        assert!(
            kinds.contains_key(kind),
            "no request gets {kind}: {kinds:?}"
        );
    }
    assert_eq!(fixture.get("/hello.php").text(), HELLO);
}

#[test]
fn explain_lists_the_rules_and_why_they_do_not_match() {
    let dir = Scratch::new("explain-words");
    dir.write("site/index.php", "<?php");
    dir.write("site/up/.htaccess", "# keep out\nDeny from all\n");
    dir.write("site/up/x.txt", "secret");
    dir.write("blocked", "198.51.100.0/24\n");
    dir.write("proxies", "203.0.113.0/24\n");
    let config = dir.write(
        "howdah.toml",
        "[[site]]\nroot = \"site\"\nhosts = [\"shop.example\"]\nfront_controller = \"/index.php\"\n\
         [[site.rule]]\ndeny = 403\nmethods = [\"POST\"]\n\
         [[site.rule]]\ndeny = 403\nfrom_file = \"blocked\"\n\
         [[site.rule]]\ndeny = 403\nheader = { X-A = \"*\" }\n\
         [[site.rule]]\ndeny = 403\ncookie = { a = \"*\" }\n\
         [[site.rule]]\ndeny = 403\nquery = { a = \"*\" }\n\
         [[site.rule]]\ndeny = 403\nenv = { HTTPS = \"on\" }\n\
         [[site.rule]]\ndeny = 403\nnot = [{ path = \"/buy\" }, { prefix = \"/up\" }]\n\
         [[site.rule]]\nglob = \"/*.html\"\ndeny = 403\n\
         [[site.rule]]\npath = \"/index.php\"\nreturn = 204\nif_missing = true\n\
         [[site.rule]]\npath = \"/buy\"\nrewrite = \"/index.php?shop=1\"\n\
         [trusted_proxies]\nnetworks_file = \"proxies\"\n",
    );
    let say = |words: &[&str]| {
        let output = explain(words, &config);
        let [out, err] =
            [&output.stdout, &output.stderr].map(|b| String::from_utf8_lossy(b).into_owned());
        (output.status.code(), out, err)
    };
    let (code, out, err) = say(&["https://shop.example/buy"]);
    assert_eq!(code, Some(0), "{err}");
    let name = config.display();
    let expected = [
        "GET https://shop.example/buy from 192.0.2.1".to_owned(),
        "the site's hosts include shop.example".to_owned(),
        format!("  {name}:5 deny 403: no (methods)\n"),
        format!("  {name}:8 deny 403: no (from_file)\n"),
        format!("  {name}:11 deny 403: no (header)\n"),
        format!("  {name}:14 deny 403: no (cookie)\n"),
        format!("  {name}:17 deny 403: no (query)\n"),
        format!("  {name}:20 deny 403: yes\n403 Denied\n"),
    ];
    for part in expected {
        assert!(out.contains(&part), "{part}\n{out}");
    }
    let (_, out, _) = say(&["http://shop.example/buy?b"]);
    let expected = [
        format!("  {name}:20 deny 403: no (env)\n"),
        format!("  {name}:23 deny 403: no (not)\n"),
        format!("  {name}:26 deny 403, glob \"/*.html\": no (glob)\n"),
        format!("  {name}:29 return 204, path \"/index.php\": no (path)\n"),
        format!(
            "  {name}:33 rewrite /index.php?shop=1, path \"/buy\": yes, rewritten to /index.php?shop=1\n"
        ),
        "  try_files $uri $uri/: the script /index.php\nscript ".to_owned(),
        "SCRIPT_NAME /index.php, query shop=1&b, pool www\n".to_owned(),
    ];
    for part in expected {
        assert!(out.contains(&part), "{part}\n{out}");
    }
    for (words, part) in [
        (
            &["/index.php?not", "--from", "198.51.100.9"][..],
            ":8 deny 403: yes",
        ),
        (
            &[
                "/index.php?not",
                "--from",
                "203.0.113.1",
                "-H",
                "X-Forwarded-For: 198.51.100.9",
            ],
            ":8 deny 403: yes",
        ),
        (&["http://other.example/buy"], "it is the only site"),
        (&["/up/x.txt", "-X", "GET"], "up/.htaccess:2: Deny from all"),
    ] {
        let (code, out, err) = say(words);
        assert_eq!(code, Some(0), "{err}");
        assert!(out.contains(part), "{words:?}: {part}\n{out}");
    }
    // No control character of the request reaches the terminal.
    let (_, out, _) = say(&["/buy/%1b[2J%e2%80%ae"]);
    assert!(
        !out.contains('\u{1b}') && !out.contains('\u{202e}'),
        "{out}"
    );
    for (words, code, part) in [
        (&["buy"][..], 1, "BadUrl: `buy` is neither a path"),
        (&["ftp://shop.example/"], 1, "BadUrl"),
        (&["http://shop.example/a b"], 1, "is not a valid request"),
        (&["http://a b/"], 1, "is not a valid request"),
        (&["/", "-X", "G T"], 1, "is not a valid request"),
        (&["/", "-H", "nothing"], 1, "write it as `Name: value`"),
        (&["/", "-H", "A: b\r\nX: y"], 1, "write it as `Name: value`"),
        (&["/", "--from", "nobody"], 1, "neither an IP address"),
        (&[], 2, "<URL>"),
        (
            &["/", "--config", "none.toml"],
            2,
            "cannot be used multiple times",
        ),
    ] {
        let (given, out, err) = say(words);
        assert_eq!(given, Some(code), "{words:?}: {out}{err}");
        assert!(
            err.contains(part) && out.is_empty(),
            "{words:?}: {out}{err}"
        );
    }
    // The command needs neither the rights of root nor PHP, nor the files that only the user of the server may read.
    dir.write(
        "howdah.toml",
        "php = \"/nowhere\"\nuser = \"nobody-of-this-name\"\n[[site]]\nroot = \"site\"\n\
         [[site.rule]]\nauth_basic = \"Staff\"\nauth_basic_user_file = \"missing\"\n",
    );
    let (code, out, err) = say(&["/up/none"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("401 NotAuthenticated"), "{out}");
    assert!(err.contains("advice: ") && err.contains("missing"), "{err}");
    let (_, out, _) = say(&["/", "-H", "Authorization: Basic YW5uOnB3"]);
    assert!(out.contains("500 PasswordFileUnreadable"), "{out}");
    dir.write("howdah.toml", "[[site]]\nroot = \"none\"\nruel = 1\n");
    let (code, _, err) = say(&["/"]);
    assert_eq!(code, Some(3), "{err}");
    assert!(err.contains("ruel"), "{err}");
    // Without a configuration file, the command uses the configuration that `howdah serve DIR` would use.
    let serve = Command::new(howdah_program())
        .args(["explain", "/up/x.txt"])
        .arg(dir.join("site"))
        .output()
        .expect("howdah can be started");
    let out = String::from_utf8_lossy(&serve.stdout);
    assert!(out.contains("403 HtaccessDenied"), "{out}");
    let old = Command::new(howdah_program())
        .args(["check", "--route", "/"])
        .output();
    let err = String::from_utf8_lossy(&old.expect("howdah can be started").stderr).into_owned();
    assert!(err.contains("howdah explain URL"), "{err}");
}
