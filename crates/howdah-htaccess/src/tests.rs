//! Evaluates requests against trees of files that exist only in the test.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{
    Action, ConstantEdit, Demand, EvaluationInput, HtFileChain, HtaccessRefusal, LoginResult,
    RequestDecision, ResponseFields, ServerContext, Stat, Table, decide, parse,
};

/// The files of the document root `/srv`, with their content.
pub(crate) struct TestFiles(BTreeMap<String, String>);

impl TestFiles {
    pub(crate) fn new(files: &[(&str, &str)]) -> TestFiles {
        let mut contents = BTreeMap::new();
        for (name, text) in files {
            contents.insert(format!("/srv/{name}"), (*text).to_owned());
        }
        for name in ["index.php", "x.php", "x.txt", "d/x.txt", "d/x.php"] {
            contents.insert(format!("/srv/{name}"), String::new());
        }
        TestFiles(contents)
    }

    pub(crate) fn decide_get(&self, target: &str) -> RequestDecision {
        self.decide_with("GET", target, &[], None)
    }

    fn decide_with(
        &self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        login: Option<LoginResult>,
    ) -> RequestDecision {
        decide(self, &input(method, target, fields, login))
    }
}

/// Returns the demand of `AuthName area` with this password file.
fn area_demand(user_file: &str) -> Demand {
    Demand {
        realm: b"area".to_vec(),
        user_file: Some(user_file.to_owned()),
        group_file: None,
        groups: Vec::new(),
    }
}

pub(crate) fn input(
    method: &str,
    target: &str,
    fields: &[(&str, &str)],
    login: Option<LoginResult>,
) -> EvaluationInput<'static> {
    let (path, query) = target
        .split_once('?')
        .map_or((target, None), |(p, q)| (p, Some(q)));
    let mut headers = Table::default();
    headers.add(b"Host", b"h.example");
    for (name, value) in fields {
        headers.add(name.as_bytes(), value.as_bytes());
    }
    EvaluationInput {
        method: method.as_bytes().to_vec().into(),
        target: target.as_bytes().to_vec().into(),
        path: path.as_bytes().to_vec().into(),
        query: query.map(|query| query.as_bytes().to_vec().into()),
        protocol: "HTTP/1.1",
        headers,
        address: "192.0.2.7".parse().ok(),
        server_port: 80,
        document_root: b"/srv".to_vec().into(),
        index: vec!["index.php".to_owned()].into(),
        logins: login
            .map(|login| (area_demand("/users"), login))
            .into_iter()
            .collect(),
        ..EvaluationInput::default()
    }
}

impl ServerContext for TestFiles {
    fn stat(&self, file: &[u8]) -> Stat {
        let name = String::from_utf8_lossy(file);
        let below = format!("{}/", name.trim_end_matches('/'));
        if self.0.contains_key(&*name) {
            Stat::File
        } else if self.0.keys().any(|known| known.starts_with(&below)) {
            Stat::Directory
        } else {
            Stat::Missing
        }
    }

    fn length(&self, file: &[u8]) -> Option<u64> {
        (self.stat(file) == Stat::File).then_some(0)
    }

    fn htaccess(&self, directory: &[u8]) -> Arc<HtFileChain> {
        Arc::new(HtFileChain::of(directory, |directory| {
            let name = format!("/srv{}", String::from_utf8_lossy(directory));
            let text = self.0.get(&format!("{name}.htaccess"))?;
            let file = parse(text.as_bytes(), name.as_bytes(), &Table::default());
            Some(Arc::new(file))
        }))
    }

    fn is_script(&self, path: &[u8]) -> bool {
        path.ends_with(b".php")
    }

    fn media_type(&self, path: &[u8]) -> Option<Vec<u8>> {
        path.ends_with(b".txt").then(|| b"text/plain".to_vec())
    }

    fn local_time(&self) -> [u32; 7] {
        [2026, 1, 2, 3, 4, 5, 5]
    }

    fn now(&self) -> i64 {
        1_767_000_000_000_000
    }
}

/// Formats the decision as one line.
fn show(decision: &RequestDecision) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match &decision.action {
        Action::File(path) => format!("file {}", text(path)),
        Action::Script {
            path, path_info, ..
        } => {
            let query = decision
                .query
                .as_deref()
                .map_or(String::new(), |q| format!("?{}", text(q)));
            format!("script {}|{}{query}", text(path), text(path_info))
        }
        Action::Redirect(status, to) => format!("{status} {}", text(to)),
        Action::Refuse(status, refusal) => format!("{status} {refusal:?}"),
        Action::Text(status, body) => format!("{status} {}", text(body)),
        Action::Options => "options".to_owned(),
        Action::Authenticate(demand) => format!("password for {}", text(&demand.realm)),
    }
}

#[track_caller]
fn check(files: &[(&str, &str)], asked: &[(&str, &str)]) {
    let files = TestFiles::new(files);
    for (target, expected) in asked {
        assert_eq!(show(&files.decide_get(target)), *expected, "{target}");
    }
}

#[test]
fn front_controller_receives_requests_for_missing_files() {
    let rules = "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\nRewriteRule . /index.php [L]\n";
    check(
        &[(".htaccess", rules)],
        &[
            ("/", "script /index.php|"),
            ("/a/b?c=d", "script /index.php|?c=d"),
            ("/x.txt", "file /x.txt"),
            ("/d", "301 http://h.example/d/"),
            ("/d/", "403 NoIndex"),
            ("/x.php/info", "script /x.php|/info"),
        ],
    );
}

#[test]
fn rules_redirect_refuse_and_end() {
    let rules = "RewriteEngine On\nRewriteRule ^a$ /b?c=d [R=301,L]\nRewriteRule ^f$ - [F]\nRewriteRule ^g$ - [G]\nRewriteRule ^u/(.*)$ index.php?q=$1 [L]\nRewriteRule ^o$ http://other.example/p [L]\nRewriteRule ^p$ http://127.0.0.1/ [P]\nRewriteRule ^loop$ loop2\nRewriteRule ^loop2$ loop\n";
    check(
        &[(".htaccess", rules)],
        &[
            ("/a", "301 http://h.example/b?c=d"),
            ("/f", "403 Denied"),
            ("/g", "410 Denied"),
            ("/u/v", "script /index.php|?q=v"),
            // A space would end the query.
            ("/u/v w", "403 Denied"),
            ("/o", "302 http://other.example/p"),
            ("/p", "403 Unsupported"),
        ],
    );
    check(
        &[(
            ".htaccess",
            "RewriteEngine On\nRewriteRule ^(.*)$ a/$1 [L]\n",
        )],
        &[("/x.txt", "500 Loop")],
    );
    check(
        &[(
            ".htaccess",
            "RewriteEngine On\nRewriteRule ^(.*)$ $1x [N]\n",
        )],
        &[("/x.txt", "500 TooCostly")],
    );
}

#[test]
fn directory_rules_replace_those_of_the_parent() {
    check(
        &[
            (
                ".htaccess",
                "RewriteEngine On\nRewriteRule ^d/none$ x.php?root [L]\n",
            ),
            (
                "d/.htaccess",
                "RewriteEngine On\nRewriteRule ^none$ x.php?own [L]\n",
            ),
        ],
        &[("/d/none", "script /d/x.php|?own")],
    );
}

#[test]
fn access_follows_directives_of_both_apache_generations() {
    check(
        &[
            (
                ".htaccess",
                "Require all denied\n<Files x.txt>\nRequire ip 192.0.2.0/24\n</Files>\n",
            ),
            (
                "d/.htaccess",
                "Require all granted\nOrder deny,allow\nDeny from 192.0.2.7\n",
            ),
        ],
        &[
            ("/x.php", "403 Denied"),
            ("/x.txt", "file /x.txt"),
            ("/d/x.txt", "403 Denied"),
        ],
    );
}

#[test]
fn password_result_decides_access() {
    let files = TestFiles::new(&[(
        ".htaccess",
        "AuthType Basic\nAuthName area\nAuthUserFile /users\nRequire user bob\n",
    )]);
    assert_eq!(show(&files.decide_get("/x.txt")), "password for area");
    let by = |login| show(&files.decide_with("GET", "/x.txt", &[], Some(login)));
    let named = |user: &str| LoginResult::Verified {
        user: user.as_bytes().to_vec(),
        groups: Vec::new(),
    };
    assert_eq!(by(named("bob")), "file /x.txt");
    assert_eq!(by(named("alice")), "401 Unauthorized");
    assert_eq!(by(LoginResult::Refused), "401 Unauthorized");
    assert_eq!(by(LoginResult::Failed), "500 NotUnderstood");
}

#[test]
fn password_counts_only_for_the_file_that_it_was_checked_against() {
    let lines = |file: &str| {
        format!("AuthType Basic\nAuthName area\nAuthUserFile {file}\nRequire valid-user\n")
    };
    let (own, other) = (lines("/users"), lines("/others"));
    let files = TestFiles::new(&[
        (
            ".htaccess",
            "RewriteEngine on\nRewriteRule ^a/(.*)$ /d/$1\n",
        ),
        (
            "a/.htaccess",
            &format!("{own}RewriteEngine on\nRewriteRule ^(.*)$ /d/$1\n"),
        ),
        ("d/.htaccess", &other),
    ]);
    let bob = LoginResult::Verified {
        user: b"bob".to_vec(),
        groups: Vec::new(),
    };
    let found = files.decide_with("GET", "/a/x.txt", &[], Some(bob.clone()));
    assert_eq!(found.action, Action::Authenticate(area_demand("/others")));
    let mut both = input("GET", "/a/x.txt", &[], Some(bob.clone()));
    both.logins.push((area_demand("/others"), bob));
    assert_eq!(show(&decide(&files, &both)), "file /d/x.txt");
    both.logins[1].1 = LoginResult::Refused;
    assert_eq!(show(&decide(&files, &both)), "401 Unauthorized");
}

#[test]
fn error_documents_replace_error_pages() {
    let lines = "ErrorDocument 404 /x.php\nErrorDocument 403 \"no, <b>no</b>\"\nErrorDocument 410 http://e.example/\nRedirect 403 /no\nRedirect gone /gone\n";
    let files = TestFiles::new(&[(".htaccess", lines)]);
    let missing = files.decide_get("/none?a=b");
    assert_eq!(show(&missing), "script /x.php|");
    assert_eq!(missing.error_status, Some(404));
    assert_eq!(
        missing.redirect,
        Some((b"/none".to_vec(), Some(b"a=b".to_vec())))
    );
    assert_eq!(show(&files.decide_get("/no")), "403 no, <b>no</b>");
    assert_eq!(show(&files.decide_get("/gone")), "302 http://e.example/");
    check(
        &[(".htaccess", "ErrorDocument 404 /none.html\n")],
        &[("/none", "404 NotFound")],
    );
}

#[test]
fn error_document_that_is_denied_is_not_sent() {
    check(
        &[
            (
                ".htaccess",
                "ErrorDocument 403 /d/x.txt\n<Files y.txt>\nRequire all denied\n</Files>\n",
            ),
            ("d/.htaccess", "Require all denied\n"),
        ],
        &[("/d/x.txt", "403 Denied"), ("/y.txt", "403 Denied")],
    );
}

#[test]
fn scripts_are_refused_if_their_php_handler_is_removed() {
    for line in [
        "php_flag engine off",
        "SetHandler none",
        "RemoveHandler .php",
        "AddType text/plain .php",
        "ForceType text/plain",
    ] {
        check(&[(".htaccess", line)], &[("/x.php", "403 NoScripts")]);
    }
    check(
        &[(".htaccess", "AddHandler application/x-httpd-php .txt")],
        &[("/x.txt", "script /x.txt|")],
    );
}

#[test]
fn mistake_refuses_every_request_below_its_directory() {
    check(
        &[("d/.htaccess", "Nonsense\n")],
        &[("/d/x.txt", "500 NotUnderstood"), ("/x.txt", "file /x.txt")],
    );
    let decided_by = TestFiles::new(&[("d/.htaccess", "\nNonsense\n")])
        .decide_get("/d/x.txt")
        .decided_by;
    assert!(decided_by.is_some_and(|line| line.starts_with("/d/.htaccess:2: `Nonsense`")));
}

#[test]
fn costly_expression_refuses_the_request() {
    let lines =
        "RewriteEngine On\nRewriteCond %{QUERY_STRING} ^(a*)*(?!b)$\nRewriteRule ^x index.php\n";
    let files = TestFiles::new(&[(".htaccess", lines)]);
    let target = format!("/x.txt?{}!", "a".repeat(40));
    assert_eq!(show(&files.decide_get(&target)), "500 TooCostly");
}

/// Returns the headers that the decision adds to the response of a file.
fn headers_of(
    files: &TestFiles,
    decision: &RequestDecision,
    input: &EvaluationInput<'_>,
    is_server_generated: bool,
) -> String {
    let mut fields = ResponseFields {
        status: 200,
        media_type: Some(b"text/plain".to_vec()),
        is_file: true,
        ..ResponseFields::default()
    };
    decision.finish(files, input, &mut fields, is_server_generated);
    let lines = fields.table.iter().map(|(name, value)| {
        format!(
            "{}={}",
            String::from_utf8_lossy(name),
            String::from_utf8_lossy(value)
        )
    });
    lines.collect::<Vec<_>>().join(" ")
}

#[test]
fn header_directives_have_two_lists() {
    let lines = "Header set A 1\nHeader always set A 2\nHeader set B \"%{V}e\"\nSetEnv V v\nHeader set C 1 \"expr=%{CONTENT_TYPE} =~ m#plain#\"\n";
    let files = TestFiles::new(&[(".htaccess", lines)]);
    let found = files.decide_get("/x.txt");
    let asked = input("GET", "/x.txt", &[], None);
    assert_eq!(headers_of(&files, &found, &asked, false), "A=2 A=1 B=v C=1");
    assert_eq!(headers_of(&files, &found, &asked, true), "A=2");
}

/// The expected values are those of Apache 2.4 with mod_ssl, whose variable names are not case-sensitive.
#[test]
fn ssl_variable_tells_whether_the_request_came_over_tls() {
    let lines = "RewriteEngine On\nRewriteRule ^ - [E=A:%{SSL:HTTPS},E=B:%{ssl:https}]\nHeader set A \"%{A}e %{B}e\"\nHeader set B \"%{HTTPS}s %{Https}s %{NONE}s\"\nHeader set C \"expr=%{SSL:HTTPS} %{ssl:https} %{SSL:NONE}.\"\n";
    let files = TestFiles::new(&[(".htaccess", lines)]);
    let mut asked = input("GET", "/x.txt", &[], None);
    for (https, expected) in [
        (false, "A=off off B=off off (null) C=off off ."),
        (true, "A=on on B=on on (null) C=on on ."),
    ] {
        asked.https = https;
        let found = decide(&files, &asked);
        assert_eq!(headers_of(&files, &found, &asked, false), expected);
    }
}

#[track_caller]
fn check_headers(files: &[(&str, &str)], target: &str, expected: &str) {
    let files = TestFiles::new(files);
    let found = files.decide_get(target);
    let asked = input("GET", target, &[], None);
    assert_eq!(headers_of(&files, &found, &asked, false), expected);
}

#[test]
fn variables_of_a_directory_are_added_to_those_of_its_parent() {
    let below = "SetEnv C 3\nUnsetEnv A\nHeader set X \"%{A}e %{B}e %{C}e\"\nHeader set Y \"expr=%{reqenv:B}%{env:C}\"\n";
    let files = [
        (".htaccess", "SetEnv A 1\nSetEnv B 2\n"),
        ("d/.htaccess", below),
    ];
    check_headers(&files, "/d/x.txt", "X=(null) 2 3 Y=23");
}

#[test]
fn if_directive_section_holds_for_known_directives() {
    let section = |name: &str, value: &str| {
        format!("<IfDirective {name}>\nHeader set A{value} {value}\n</IfDirective>\n")
    };
    let lines = [
        section("RewriteRule", "1"),
        section("!RewriteRule", "2"),
        section("Nonsense", "3"),
        section("!Nonsense", "4"),
    ];
    check_headers(&[(".htaccess", &lines.concat())], "/x.txt", "A1=1 A4=4");
}

#[test]
fn authentication_of_a_directory_replaces_single_settings_of_its_parent() {
    let files = TestFiles::new(&[
        (
            ".htaccess",
            "AuthType Basic\nAuthName above\nAuthUserFile /users\nRequire valid-user\n",
        ),
        ("d/.htaccess", "AuthName area\n"),
    ]);
    let found = files.decide_get("/d/x.txt");
    assert_eq!(found.action, Action::Authenticate(area_demand("/users")));
}

/// No map can be configured, so each lookup gives its default.
#[test]
fn rewrite_map_lookup_gives_its_default() {
    let rules = "RewriteEngine On\nRewriteRule ^a/(.*)$ /${none:$1|x.txt} [L]\nRewriteRule ^b/(.*)$ /d/${none:%{HTTP_HOST}|$1} [L]\nRewriteRule ^c/(.*)$ /${none:$1}x.php [L]\n";
    check(
        &[(".htaccess", rules)],
        &[
            ("/a/k", "file /x.txt"),
            ("/b/x.txt", "file /d/x.txt"),
            ("/c/k", "script /x.php|"),
        ],
    );
}

#[test]
fn constant_edits_equal_the_edits_that_are_made() {
    for (lines, plain) in [
        (
            "Header set A 1\nHeader set A 2\nHeader add A 3",
            Some("a: 2|a: 3"),
        ),
        (
            "Header add A 1\nHeader unset A\nHeader add B 2",
            Some("b: 2"),
        ),
        (
            "Header set A 1 env=NONE\nHeader set B 2 env=!NONE",
            Some("b: 2"),
        ),
        ("Header set A \"1 %t\"", None),
        ("Header set A 1 \"expr=%{REQUEST_STATUS} == 200\"", None),
        ("Header always set A 1", None),
        ("Header append A 1", None),
        ("Header set Content-Type text/x", None),
    ] {
        let decision = TestFiles::new(&[(".htaccess", lines)]).decide_get("/x.txt");
        let carried_out = |edits: Vec<ConstantEdit<'_>>| {
            let mut fields: Vec<String> = Vec::new();
            for edit in edits {
                let name = String::from_utf8_lossy(edit.name()).to_lowercase() + ": ";
                match edit {
                    ConstantEdit::Add(_, value) | ConstantEdit::Set(_, value) => {
                        fields.push(name + &String::from_utf8_lossy(value));
                    }
                    ConstantEdit::Unset(_) => {}
                }
            }
            fields.join("|")
        };
        let edits = decision.constant_edits(false).map(Iterator::collect);
        assert_eq!(edits.map(carried_out).as_deref(), plain, "{lines}");
        let is_server_generated = decision.constant_edits(true).map(Iterator::count);
        assert!(
            is_server_generated.is_none_or(|count| count == 0),
            "{lines}"
        );
    }
}

#[test]
fn dependencies_name_the_properties_that_were_read() {
    let rules =
        |cond: &str| format!("RewriteEngine On\nRewriteCond {cond} x\nRewriteRule ^x - [L]\n");
    for (cond, same) in [
        ("%{REQUEST_URI}", true),
        ("%{HTTP_HOST}", true),
        ("%{HTTP_COOKIE}", false),
        ("%{HTTP:X-Any}", false),
        ("%{REMOTE_ADDR}", false),
        ("%{TIME_HOUR}", false),
    ] {
        let files = TestFiles::new(&[(".htaccess", &rules(cond))]);
        assert_eq!(
            files
                .decide_get("/x.txt")
                .dependencies
                .depends_only_on_url(),
            same,
            "{cond}"
        );
    }
}

proptest::proptest! {
    #[test]
    fn random_files_and_requests_are_evaluated_within_limits(
        lines in proptest::collection::vec("(RewriteEngine On|RewriteRule [a-z^$.*()]{1,6} [a-z/$1?%{}-]{1,8}( \\[[A-Z=0-9,]{1,8}\\])?|RewriteCond %\\{[A-Z_]{4,12}\\} [!=<>^a-z.-]{1,5}|Header (set|edit|merge) [A-C] [a-z$1%]{1,4}|Require (all denied|ip 1|not env x)|<Files [a-z*]{1,3}>|</Files>|<If \"[-a-z %{}'=]{1,12}\">|</If>|ErrorDocument 404 /[a-z.]{1,4}|DirectoryIndex [a-z./]{1,5}|SetEnvIf [a-zA-Z_]{3,8} [a-z.*]{1,3} [a-z=$1!]{1,5}|FallbackResource /[a-z.]{1,5})", 0..8),
        path in "/[a-z/.]{0,8}",
        query in "[a-z=?&%]{0,5}",
    ) {
        let text = lines.join("\n");
        let files = TestFiles::new(&[(".htaccess", &text), ("d/.htaccess", &text)]);
        files.decide_get(&format!("{path}?{query}"));
        let _ = HtaccessRefusal::Denied;
    }
}
