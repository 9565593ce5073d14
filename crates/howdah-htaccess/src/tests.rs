//! Evaluates requests against trees of files that exist only in the test.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{
    Action, Answer, Chain, Demand, Facts, Fields, Login, PlainEdit, Refusal, Stat, Table, World,
    answer, parse,
};

/// The files of the document root `/srv`, with their content.
pub(crate) struct Tree(BTreeMap<String, String>);

impl Tree {
    pub(crate) fn new(files: &[(&str, &str)]) -> Tree {
        let mut tree = BTreeMap::new();
        for (name, text) in files {
            tree.insert(format!("/srv/{name}"), (*text).to_owned());
        }
        for name in ["index.php", "x.php", "x.txt", "d/x.txt", "d/x.php"] {
            tree.insert(format!("/srv/{name}"), String::new());
        }
        Tree(tree)
    }

    pub(crate) fn ask(&self, target: &str) -> Answer {
        self.ask_with("GET", target, &[], None)
    }

    fn ask_with(
        &self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        login: Option<Login>,
    ) -> Answer {
        answer(self, &facts(method, target, fields, login))
    }
}

/// Returns the demand of `AuthName area` with this password file.
fn area(user_file: &str) -> Demand {
    Demand {
        realm: b"area".to_vec(),
        user_file: Some(user_file.to_owned()),
        group_file: None,
        groups: Vec::new(),
    }
}

pub(crate) fn facts(
    method: &str,
    target: &str,
    fields: &[(&str, &str)],
    login: Option<Login>,
) -> Facts<'static> {
    let (path, query) = target
        .split_once('?')
        .map_or((target, None), |(p, q)| (p, Some(q)));
    let mut headers = Table::default();
    headers.add(b"Host", b"h.example");
    for (name, value) in fields {
        headers.add(name.as_bytes(), value.as_bytes());
    }
    Facts {
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
            .map(|login| (area("/users"), login))
            .into_iter()
            .collect(),
        ..Facts::default()
    }
}

impl World for Tree {
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

    fn htaccess(&self, directory: &[u8]) -> Arc<Chain> {
        Arc::new(Chain::of(directory, |directory| {
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
fn show(answer: &Answer) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match &answer.action {
        Action::File(path) => format!("file {}", text(path)),
        Action::Script {
            path, path_info, ..
        } => {
            let query = answer
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
    let tree = Tree::new(files);
    for (target, expected) in asked {
        assert_eq!(show(&tree.ask(target)), *expected, "{target}");
    }
}

#[test]
fn a_front_controller_gets_what_is_missing() {
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
fn directories_have_rules_of_their_own() {
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
fn access_of_both_generations() {
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
fn a_password_is_asked_for_and_believed() {
    let tree = Tree::new(&[(
        ".htaccess",
        "AuthType Basic\nAuthName area\nAuthUserFile /users\nRequire user bob\n",
    )]);
    assert_eq!(show(&tree.ask("/x.txt")), "password for area");
    let by = |login| show(&tree.ask_with("GET", "/x.txt", &[], Some(login)));
    let named = |user: &str| Login::Verified {
        user: user.as_bytes().to_vec(),
        groups: Vec::new(),
    };
    assert_eq!(by(named("bob")), "file /x.txt");
    assert_eq!(by(named("alice")), "401 Unauthorized");
    assert_eq!(by(Login::Refused), "401 Unauthorized");
    assert_eq!(by(Login::Failed), "500 NotUnderstood");
}

#[test]
fn password_of_one_file_does_not_open_what_another_file_guards() {
    let lines = |file: &str| {
        format!("AuthType Basic\nAuthName area\nAuthUserFile {file}\nRequire valid-user\n")
    };
    let (own, other) = (lines("/users"), lines("/others"));
    let tree = Tree::new(&[
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
    let bob = Login::Verified {
        user: b"bob".to_vec(),
        groups: Vec::new(),
    };
    let found = tree.ask_with("GET", "/a/x.txt", &[], Some(bob.clone()));
    assert_eq!(found.action, Action::Authenticate(area("/others")));
    let mut both = facts("GET", "/a/x.txt", &[], Some(bob.clone()));
    both.logins.push((area("/others"), bob));
    assert_eq!(show(&answer(&tree, &both)), "file /d/x.txt");
    both.logins[1].1 = Login::Refused;
    assert_eq!(show(&answer(&tree, &both)), "401 Unauthorized");
}

#[test]
fn documents_of_errors() {
    let lines = "ErrorDocument 404 /x.php\nErrorDocument 403 \"no, <b>no</b>\"\nErrorDocument 410 http://e.example/\nRedirect 403 /no\nRedirect gone /gone\n";
    let tree = Tree::new(&[(".htaccess", lines)]);
    let missing = tree.ask("/none?a=b");
    assert_eq!(show(&missing), "script /x.php|");
    assert_eq!(missing.error_status, Some(404));
    assert_eq!(
        missing.redirect,
        Some((b"/none".to_vec(), Some(b"a=b".to_vec())))
    );
    assert_eq!(show(&tree.ask("/no")), "403 no, <b>no</b>");
    assert_eq!(show(&tree.ask("/gone")), "302 http://e.example/");
    check(
        &[(".htaccess", "ErrorDocument 404 /none.html\n")],
        &[("/none", "404 NotFound")],
    );
}

#[test]
fn a_document_that_is_closed_is_not_sent_although_a_refusal_leads_to_it() {
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
fn scripts_are_refused_where_php_is_taken_from_them() {
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
fn a_mistake_closes_everything_below() {
    check(
        &[("d/.htaccess", "Nonsense\n")],
        &[("/d/x.txt", "500 NotUnderstood"), ("/x.txt", "file /x.txt")],
    );
    let because = Tree::new(&[("d/.htaccess", "\nNonsense\n")])
        .ask("/d/x.txt")
        .because;
    assert!(because.is_some_and(|line| line.starts_with("/d/.htaccess:2: `Nonsense`")));
}

#[test]
fn a_costly_expression_refuses() {
    let lines =
        "RewriteEngine On\nRewriteCond %{QUERY_STRING} ^(a*)*(?!b)$\nRewriteRule ^x index.php\n";
    let tree = Tree::new(&[(".htaccess", lines)]);
    let target = format!("/x.txt?{}!", "a".repeat(40));
    assert_eq!(show(&tree.ask(&target)), "500 TooCostly");
}

#[test]
fn headers_have_two_lists() {
    let lines = "Header set A 1\nHeader always set A 2\nHeader set B \"%{V}e\"\nSetEnv V v\nHeader set C 1 \"expr=%{CONTENT_TYPE} =~ m#plain#\"\n";
    let tree = Tree::new(&[(".htaccess", lines)]);
    let found = tree.ask("/x.txt");
    let asked = facts("GET", "/x.txt", &[], None);
    let all = |made_here: bool| {
        let mut fields = Fields {
            status: 200,
            media_type: Some(b"text/plain".to_vec()),
            is_file: true,
            ..Fields::default()
        };
        found.finish(&tree, &asked, &mut fields, made_here);
        let lines = fields.table.iter().map(|(name, value)| {
            format!(
                "{}={}",
                String::from_utf8_lossy(name),
                String::from_utf8_lossy(value)
            )
        });
        lines.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(all(false), "A=2 A=1 B=v C=1");
    assert_eq!(all(true), "A=2");
}

#[test]
fn edits_that_look_at_nothing_are_those_that_are_carried_out() {
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
        let answer = Tree::new(&[(".htaccess", lines)]).ask("/x.txt");
        let carried_out = |edits: Vec<PlainEdit<'_>>| {
            let mut fields: Vec<String> = Vec::new();
            for edit in edits {
                let name = String::from_utf8_lossy(edit.name()).to_lowercase() + ": ";
                match edit {
                    PlainEdit::Add(_, value) | PlainEdit::Set(_, value) => {
                        fields.push(name + &String::from_utf8_lossy(value));
                    }
                    PlainEdit::Unset(_) => {}
                }
            }
            fields.join("|")
        };
        let edits = answer.plain_edits(false).map(Iterator::collect);
        assert_eq!(edits.map(carried_out).as_deref(), plain, "{lines}");
        let made_here = answer.plain_edits(true).map(Iterator::count);
        assert!(made_here.is_none_or(|count| count == 0), "{lines}");
    }
}

#[test]
fn what_a_request_was_asked_for_is_known() {
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
        let tree = Tree::new(&[(".htaccess", &rules(cond))]);
        assert_eq!(tree.ask("/x.txt").consulted.is_nothing(), same, "{cond}");
    }
}

proptest::proptest! {
    #[test]
    fn no_file_and_no_request_is_too_much(
        lines in proptest::collection::vec("(RewriteEngine On|RewriteRule [a-z^$.*()]{1,6} [a-z/$1?%{}-]{1,8}( \\[[A-Z=0-9,]{1,8}\\])?|RewriteCond %\\{[A-Z_]{4,12}\\} [!=<>^a-z.-]{1,5}|Header (set|edit|merge) [A-C] [a-z$1%]{1,4}|Require (all denied|ip 1|not env x)|<Files [a-z*]{1,3}>|</Files>|<If \"[-a-z %{}'=]{1,12}\">|</If>|ErrorDocument 404 /[a-z.]{1,4}|DirectoryIndex [a-z./]{1,5}|SetEnvIf [a-zA-Z_]{3,8} [a-z.*]{1,3} [a-z=$1!]{1,5}|FallbackResource /[a-z.]{1,5})", 0..8),
        path in "/[a-z/.]{0,8}",
        query in "[a-z=?&%]{0,5}",
    ) {
        let text = lines.join("\n");
        let tree = Tree::new(&[(".htaccess", &text), ("d/.htaccess", &text)]);
        tree.ask(&format!("{path}?{query}"));
        let _ = Refusal::Denied;
    }
}
