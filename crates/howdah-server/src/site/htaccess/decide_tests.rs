//! What is open and what is closed, file by file. The same lines stand before a real Apache in
//! `howdah-tests` (`htaccess_oracle`).

use super::super::parse::parse;
use super::*;
use crate::docroot::root::{RootDir, Symlinks};
use crate::site::words::request;

/// The directory's path and its file.
type Tree<'t> = &'t [(&'t str, &'t str)];

fn verdict_of(tree: Tree<'_>, method: &str, target: &str, lies: Lies) -> Verdict {
    let chain: Vec<InDirectory> = tree
        .iter()
        .map(|(path, text)| InDirectory {
            path: path.as_bytes().into(),
            parsed: Arc::new(parse(text)),
        })
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let root = RootDir::open(dir.path(), Symlinks::Follow).unwrap();
    let head = request(method, "h.example", target).unwrap();
    let path = target.split('?').next().unwrap();
    let asked = AccessQuery {
        head: Some(&head),
        ..AccessQuery::new(&root, head.method(), path.as_bytes(), lies)
    };
    decide(&chain, &asked)
}

fn is_closed(tree: Tree<'_>, target: &str) -> bool {
    let lies = match target.split('?').next().unwrap().ends_with(".php") {
        true => Lies::Script,
        false => Lies::File,
    };
    match verdict_of(tree, "GET", target, lies) {
        Verdict::Open => false,
        Verdict::Closed(..) => true,
        other => panic!("{tree:?} {target}: {other:?}"),
    }
}

/// In a directory below the root.
fn below(text: &str) -> bool {
    is_closed(&[("/d/", text)], "/d/secret.txt")
}

/// The same file in the root.
fn at_root(text: &str) -> bool {
    is_closed(&[("/", text)], "/d/secret.txt")
}

#[test]
fn unconditional_denials_close_everywhere() {
    for text in [
        "Require all denied",
        "require ALL Denied",
        "\"Require\" all denied\r\n",
        "deny from all",
        "Order deny,allow\nDeny from all\nAllow from none",
        "Order allow,deny",
        "Order Deny,Allow\nDeny from all",
        "<IfModule mod_authz_core.c>\nRequire all denied\n</IfModule>\n<IfModule !mod_authz_core.c>\nOrder Allow,Deny\nAllow from all\n</IfModule>",
        "<IfVersion >= 2.4>\nRequire all denied\n</IfVersion>\n<IfVersion < 2.4>\nAllow from none\nDeny from all\n</IfVersion>",
        "<Files \"*\">\nRequire all denied\n</Files>",
        "<Files ~ \"\\.txt$\">\nDeny from all\n</Files>",
        "<FilesMatch \".*\">\nRequire all denied\n</FilesMatch>",
        "<RequireAll>\nRequire all granted\nRequire all denied\n</RequireAll>",
        "<RequireNone>\nRequire all granted\n</RequireNone>",
        "<Limit GET POST>\nRequire all denied\n</Limit>",
        "<LimitExcept POST>\nDeny from all\n</LimitExcept>",
        "RewriteEngine On\nRewriteRule ^ - [F]",
        "RewriteEngine On\nRewriteRule .* - [R=404,L]",
        "RewriteEngine on\nRewriteCond %{REQUEST_URI} secret\nRewriteRule ^ - [G]",
        "RedirectMatch 403 .*",
        "RedirectMatch gone secret",
        "Redirect 404 /",
        "Redirect 403 /d",
        "Require method POST",
        "Require env nowhere",
        "Require all denied\nSatisfy All",
        "Require all \\\n denied",
        "Require all granted\nOrder deny,allow\nDeny from all",
        // Without access lines of either kind the other decides: these need both.
        "Deny from all\nRequire all granted\n",
    ] {
        assert!(below(text), "below the root: {text}");
        if !text.contains("Redirect 403 /d") {
            assert!(at_root(text), "at the root: {text}");
        }
    }
}

#[test]
fn what_closes_nothing_closes_nothing() {
    for text in [
        "",
        "# Require all denied",
        "Options -Indexes\nHeader set X-A b\nDirectoryIndex index.php\nphp_value memory_limit 1G",
        "Require all granted",
        "Order allow,deny\nAllow from all",
        "Order deny,allow\nAllow from all",
        "<Files *.php>\nRequire all denied\n</Files>",
        "Require all denied\n<FilesMatch \"\\.txt$\">\nRequire all granted\n</FilesMatch>",
        "<Limit POST>\nRequire all denied\n</Limit>",
        "<IfModule mod_nothing.c>\nRequire all denied\nFoo bar\n</IfModule>",
        "<IfModule !mod_rewrite.c>\nRequire all denied\n</IfModule>",
        "<IfDefine X>\nRequire all denied\n</IfDefine>",
        "RewriteRule ^ - [F]",
        "RewriteEngine Off\nRewriteRule ^ - [F]",
        "RewriteEngine On\nRewriteRule ^other - [F]",
        "RewriteEngine On\nRewriteRule ^ - [L]\nRewriteRule ^ - [F]",
        "RewriteEngine On\nRewriteRule !nothing - [S=1]\nRewriteRule ^ - [F]",
        "RewriteEngine On\nRewriteRule ^nothing - [C]\nRewriteRule ^ - [F]",
        "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^ - [F]",
        "RewriteEngine On\nRewriteCond %{REQUEST_URI} ^/other [OR]\nRewriteCond %{QUERY_STRING} evil\nRewriteRule ^ - [F]",
        "Redirect 301 /d https://elsewhere.example/",
        "Redirect 404 /dd",
        "RedirectMatch 404 ^/other",
        "Deny from all\nSatisfy Any\nRequire all granted",
        "<RequireAny>\nRequire all denied\nRequire all granted\n</RequireAny>",
        "<RequireAll>\nRequire method GET\n</RequireAll>",
        "AuthType Basic\nAuthName x\nAuthUserFile /none",
    ] {
        assert!(!below(text), "below the root: {text}");
        assert!(!at_root(text), "at the root: {text}");
    }
}

#[test]
fn what_depends_on_the_visitor_closes_below_the_root() {
    // (text, whether the root is closed as well: to who is on no list)
    for (text, root) in [
        ("AuthType Basic\nRequire valid-user", true),
        ("Require ip 10.0.0.0/8", true),
        ("Require host example.org", true),
        ("Require local", true),
        ("Deny from all\nAllow from 10.1.2.3", true),
        (
            "<RequireAll>\nRequire all granted\nRequire not ip 10.0.0.1\n</RequireAll>",
            false,
        ),
        (
            "Order allow,deny\nAllow from all\nDeny from 10.0.0.1",
            false,
        ),
        ("Deny from 10.0.0.1 10.0.0.2", false),
        (
            "SetEnvIf Remote_Addr ^10 bad\nOrder allow,deny\nAllow from all\nDeny from env=bad",
            false,
        ),
        (
            "<If \"%{TIME_HOUR} > 20\">\nRequire all denied\n</If>",
            false,
        ),
        ("<Foo>\nRequire all granted\n</Foo>", false),
        (
            "RewriteEngine On\nRewriteCond %{REMOTE_ADDR} ^10\\.\nRewriteRule ^ - [F]",
            false,
        ),
        (
            "RewriteEngine On\nRewriteCond %{REMOTE_ADDR} !^10\\.\nRewriteRule ^ - [F]",
            true,
        ),
        (
            "RewriteEngine On\nRewriteCond %{REMOTE_ADDR} ^10\\.\nRewriteRule ^ - [L]\nRewriteRule ^ - [F]",
            true,
        ),
        ("SSLRequireSSL", false),
        (
            "Require ip 10.0.0.1\nSatisfy Any\nDeny from all\nAllow from 10.0.0.2",
            true,
        ),
        ("Nonsense on", false),
        ("\u{feff}Options -Indexes", false),
        ("<Files x>\nRequire all granted", false),
        ("Require", false),
        ("Require fortune good", true),
        ("RewriteRule ( - [F]", false),
        ("<FilesMatch \"(\">\n</FilesMatch>", false),
        ("</Files>", false),
    ] {
        assert!(below(text), "below the root: {text}");
        assert_eq!(at_root(text), root, "at the root: {text}");
    }
}

#[test]
fn what_apache_reads_otherwise_than_it_looks_closes_as_there() {
    for text in [
        // Apache goes by the method's number.
        "<Limit HEAD>\nRequire all denied\n</Limit>",
        "Require method HEAD\n<Limit HEAD>\nDeny from all\n</Limit>",
        // The third argument of a rule ends at a blank, whatever follows.
        "RewriteEngine On\nRewriteRule secret - [F] # and no more",
        "RewriteEngine On\nRewriteCond %{REQUEST_URI} SECRET [NC] and more\nRewriteRule ^ - [F]",
        // An alternative behind which nothing follows holds, whatever it says.
        "RewriteEngine On\nRewriteCond %{REQUEST_URI} none [OR]\nRewriteRule ^ - [F]",
        // The case of a variable's name makes no difference.
        "SetEnvIf Host . Bad\nDeny from env=BAD",
        "SetEnvIf Host . Bad\n<RequireAll>\nRequire all granted\nRequire not env bAd\n</RequireAll>",
        // Rules that begin again and again, and paths that grow and grow.
        "RewriteEngine On\nRewriteRule ^ - [N]",
        "RewriteEngine On\nRewriteRule (.*) $1$1 [N]",
    ] {
        assert!(below(text) && at_root(text), "{text}");
    }
    // Mistakes to Apache, and what it asks of the visitor; in the root they bind nobody.
    for text in [
        "<Limit get>\nRequire all denied\n</Limit>",
        "Require method get",
        "Require all granted # to everybody",
        "RewriteEngine On\nRewriteRule ^other - [F, L]",
        "<If \"true\">\nRewriteRule ( -\n</If>",
        "<Files x>\nRewriteEngine perhaps\n</Files>",
        "<If \"true\">\nRewriteRule ^ /elsewhere [L]\n</If>",
        "<Files *.txt>\nRewriteRule ^ - [H=text/plain]\n</Files>",
        "SetEnvIfExpr \"%{REMOTE_ADDR} == '10.0.0.1'\" bad\nDeny from env=bad",
        "SetEnvIf Remote_Addr ^10 first\nSetEnvIf FIRST . bad\nDeny from env=bad",
        "SetEnvIf ^Ho t bad\nDeny from env=bad",
        "RewriteEngine On\nRewriteRule [\\w-.]x - [F]",
        "<RequireAny>\n<Files x>\nRequire all granted\n</Files>\nRequire all granted\n</RequireAny>",
        "Deny from 10.0.0.1\nDeny from 10.0.0.2\u{fffd}\nAllow from all",
        "Require not env none\nRequire all granted",
        "<RequireNone>\nRequire env none\n</RequireNone>\nRequire all granted",
        "<RequireAny>\n</RequireAny>\nRequire all granted",
        "<RequireAll>\nRequire all granted\nAllow from all\n</RequireAll>",
        "<RequireAll>\nRequire all granted\nRewriteEngine On\n</RequireAll>",
        "Require ALL granted",
        "<Limit GET>\n<Files x>\nRequire all granted\n</Files>\n</Limit>",
        "<Else>\nOptions -Indexes\n</Else>",
        "<If \"true\">\n<Else>\n</Else>\n</If>",
        "<If \"true\">\n<Files x>\nRequire not all denied\n</Files>\n</If>",
    ] {
        assert!(below(text), "below the root: {text}");
    }
    // In the root what may not be in effect is not, in a container as elsewhere.
    assert!(at_root(
        "<RequireAny>\n<IfVersion ~ x>\nRequire all granted\n</IfVersion>\nRequire all denied\n</RequireAny>"
    ));
    // Where Apache would lead a stranger elsewhere, the file is not sent.
    let guarded =
        "RewriteEngine On\nRewriteCond %{REMOTE_ADDR} !^10\\.\nRewriteRule ^ /login.php [L]";
    for directory in ["/", "/d/"] {
        let tree = &[(directory, guarded)];
        let verdict = verdict_of(tree, "GET", "/d/secret.txt", Lies::File);
        assert!(
            matches!(verdict, Verdict::Hidden(_)),
            "{directory}: {verdict:?}"
        );
    }
    let itself =
        "RewriteEngine On\nRewriteCond %{REMOTE_ADDR} !^10\\.\nRewriteRule ^ /d/secret.txt";
    assert!(!below(itself));
}

#[test]
fn a_small_file_costs_little_time_and_memory() {
    // As many rules as there are would make the path 2^40 times as long.
    let growing = format!("RewriteEngine On\n{}", "RewriteRule (.*) $1$1\n".repeat(40));
    assert!(below(&growing));
    // What groups have matched takes longer to find out than whether there is a match.
    let long = format!("/d/{}", "x".repeat(10_000));
    let looked_at = |rule: &str| {
        let text = format!("RewriteEngine On\n{}", rule.repeat(40));
        is_closed(&[("/d/", &text)], &long)
    };
    assert!(!looked_at("RewriteRule (y+) - [F]\n"));
    assert!(looked_at("RewriteCond $1 =y\nRewriteRule (y+) - [F]\n"));
    assert!(!looked_at(
        "RewriteCond %{REQUEST_URI} (y+)\nRewriteRule ^ - [F]\n"
    ));
    assert!(looked_at(
        "RewriteCond %{REQUEST_URI} (y+)\nRewriteCond %1 =y\nRewriteRule ^ - [F]\n"
    ));
    let skipping =
        "RewriteEngine On\nRewriteRule ^ - [S=18446744073709551615]\nRewriteRule ^ - [F]";
    assert!(!below(skipping));
    // Each of these lines would take a megabyte when compiled, or hold all the names before it.
    let heavy = "RewriteRule (?:(?:[a-z]{99}){60}){5}x - [F]\n".repeat(5);
    assert!(parse(&heavy).is_fault(0) && below(&heavy) && at_root(&heavy));
    let redirects = "RewriteRule ^old-page$ /new-page [R=301,L]\n".repeat(20_000);
    assert!(parse(&redirects).is_understood());
    let gone = "Redirect gone /old-page\n".repeat(20_000);
    assert!(parse(&gone).is_understood());
    let variables = 3000;
    let asking = format!(
        "{}{}",
        "SetEnvIf Request_URI none bad\n".repeat(variables),
        "Require env bad\n".repeat(variables)
    );
    assert!(below(&asking));
}

#[test]
fn what_the_request_says_is_looked_at() {
    let hotlinks = "RewriteEngine On\nRewriteCond %{HTTP_REFERER} !^$\nRewriteCond %{HTTP_REFERER} !^https?://h\\.example/\nRewriteRule \\.txt$ - [F]";
    assert!(!below(hotlinks) && !at_root(hotlinks));
    let query =
        "RewriteEngine On\nRewriteCond %{QUERY_STRING} (union|select) [NC]\nRewriteRule ^ - [F]";
    assert!(is_closed(&[("/", query)], "/x.txt?a=UNION"));
    assert!(!is_closed(&[("/", query)], "/x.txt?a=onion"));
    let host =
        "SetEnvIf Host ^h\\.example$ ours\nOrder deny,allow\nDeny from all\nAllow from env=ours";
    assert!(!below(host) && !at_root(host));
    let not_ours =
        "SetEnvIfNoCase Host ^OTHER ours\nOrder deny,allow\nDeny from all\nAllow from env=ours";
    assert!(below(not_ours) && at_root(not_ours));
}

#[test]
fn deeper_sections_replace_and_files_come_last() {
    let deny = "Require all denied";
    let grant = "Require all granted";
    for (tree, closed) in [
        (&[("/", deny), ("/d/", grant)][..], false),
        (&[("/", grant), ("/d/", deny)], true),
        (&[("/", deny), ("/d/", "Options -Indexes")], true),
        // The two generations do not replace each other.
        (&[("/", "Deny from all"), ("/d/", grant)], true),
        (&[("/", "Deny from all"), ("/d/", "Allow from all")], false),
        (
            &[
                ("/", "<Files *.txt>\nRequire all denied\n</Files>"),
                ("/d/", grant),
            ],
            true,
        ),
        (
            &[
                ("/", "<Files *.txt>\nRequire all denied\n</Files>"),
                ("/d/", "<Files secret.*>\nRequire all granted\n</Files>"),
            ],
            false,
        ),
        (
            &[("/", deny), ("/d/", "AuthMerging And\nRequire all granted")],
            true,
        ),
        (
            &[("/", grant), ("/d/", "AuthMerging Or\nRequire all denied")],
            false,
        ),
        (
            &[
                ("/", grant),
                (
                    "/d/",
                    "AuthMerging Off\n<Files *>\nAuthMerging Or\nRequire all denied\n</Files>",
                ),
            ],
            true,
        ),
        (
            &[
                ("/", "<Limit POST>\nRequire all granted\n</Limit>"),
                ("/d/", "AuthMerging Or\nRequire all denied"),
            ],
            true,
        ),
        // Rules of a parent are not for a directory with rules of its own.
        (
            &[
                ("/", "RewriteEngine On\nRewriteRule ^d/ - [F]"),
                ("/d/", "RewriteEngine On"),
            ],
            false,
        ),
        (
            &[
                ("/", "RewriteEngine On\nRewriteRule ^d/ - [F]"),
                ("/d/", ""),
            ],
            true,
        ),
        (
            &[
                ("/", "RewriteEngine On\nRewriteRule secret - [F]"),
                ("/d/", "RewriteOptions Inherit"),
            ],
            true,
        ),
        (
            &[("/", "RewriteEngine On"), ("/d/", "RewriteRule ^ - [F]")],
            true,
        ),
        // Options of a directory without any are its parent's.
        (
            &[
                (
                    "/",
                    "RewriteEngine On\nRewriteOptions Inherit\nRewriteRule secret - [F]",
                ),
                ("/d/", "RewriteBase /d/"),
            ],
            true,
        ),
        (
            &[
                ("/", "RewriteEngine On\nRewriteRule secret - [F]"),
                ("/d/", "RewriteOptions InheritBefore\nRewriteRule ^ - [L]"),
            ],
            true,
        ),
        (
            &[
                ("/", "RewriteEngine On\nRewriteRule secret - [F]"),
                ("/d/", "RewriteOptions Inherit\nRewriteRule ^ - [L]"),
            ],
            false,
        ),
        (&[("/", "Redirect 404 /d"), ("/d/", grant)], true),
        // A parent's list of addresses, replaced.
        (&[("/a/", "Require ip 10.0.0.1"), ("/d/", grant)], false),
    ] {
        assert_eq!(is_closed(tree, "/d/secret.txt"), closed, "{tree:?}");
    }
}

#[test]
fn a_path_led_elsewhere_is_hidden() {
    let routed = "RewriteEngine On\nRewriteRule ^content/(.*) index.php [L]\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^ index.php [L]";
    let because = Because { file: 0, line: 2 };
    let hidden = verdict_of(&[("/", routed)], "GET", "/content/draft.txt", Lies::File);
    assert_eq!(hidden, Verdict::Hidden(because));
    let open = verdict_of(&[("/", routed)], "GET", "/assets/a.css", Lies::File);
    assert_eq!(open, Verdict::Open);
    let itself = "RewriteEngine On\nRewriteRule ^ index.php [L]";
    let script = verdict_of(&[("/", itself)], "GET", "/index.php", Lies::Script);
    assert_eq!(script, Verdict::Open);
    let to_https = "RewriteEngine On\nRewriteCond %{HTTPS} off\nRewriteRule ^ https://%{HTTP_HOST}%{REQUEST_URI} [R=301,L]\nRewriteRule ^content - [F]";
    let closed = verdict_of(&[("/", to_https)], "GET", "/content/x", Lies::File);
    assert_eq!(closed, Verdict::Closed(Because { file: 0, line: 4 }, 403));
}

#[test]
fn scripts_are_switched_off_and_files_are_not() {
    for (text, off) in [
        ("php_flag engine off", true),
        (
            "<IfModule mod_php5.c>\nphp_flag engine 0\n</IfModule>",
            true,
        ),
        ("php_flag engine on", false),
        ("php_flag display_errors off", false),
        ("SetHandler none", true),
        ("<Files *>\nSetHandler My_Own_Handler\n</Files>", true),
        (
            "<FilesMatch \"\\.php$\">\nSetHandler application/x-httpd-php\n</FilesMatch>",
            false,
        ),
        ("SetHandler \"proxy:unix:/run/php.sock|fcgi://x\"", false),
        ("RemoveHandler .php .phtml", true),
        ("RemoveType php", true),
        ("RemoveHandler .pl", false),
        ("AddType text/plain .php", true),
        ("AddType text/html .php .html", false),
        ("AddHandler application/x-httpd-ea-php82 .php .php8", false),
        ("Options -ExecCGI\nAddHandler cgi-script .php .pl", true),
        ("ForceType application/octet-stream", true),
        (
            "RewriteEngine On\nRewriteRule \\.php$ - [H=text/plain]",
            true,
        ),
        (
            "RewriteEngine On\nRewriteCond %{REMOTE_ADDR} !^10\\.\nRewriteRule ^ - [H=text/plain]",
            true,
        ),
    ] {
        let tree = &[("/up/", text)];
        let script = verdict_of(tree, "GET", "/up/x.php", Lies::Script);
        let expected = matches!(script, Verdict::NoScripts(_));
        assert_eq!(expected, off, "{text}: {script:?}");
        let file = verdict_of(tree, "GET", "/up/x.png", Lies::File);
        assert_eq!(file, Verdict::Open, "{text}");
    }
    let again = &[("/", "php_flag engine off"), ("/up/", "php_flag engine on")];
    let on = verdict_of(again, "GET", "/up/x.php", Lies::Script);
    assert_eq!(on, Verdict::Open);
}

#[test]
fn limits_ask_for_the_method() {
    let tree = &[("/d/", "<Limit GET>\nRequire all denied\n</Limit>")];
    let asked = |method| verdict_of(tree, method, "/d/x.php", Lies::Script);
    assert!(matches!(asked("HEAD"), Verdict::Closed(..)));
    assert_eq!(asked("POST"), Verdict::Open);
    let except = &[("/d/", "<LimitExcept GET>\nDeny from all\n</LimitExcept>")];
    let asked = |method| verdict_of(except, method, "/d/x.php", Lies::Script);
    assert_eq!(asked("GET"), Verdict::Open);
    assert!(matches!(asked("PUT"), Verdict::Closed(..)));
}

/// Lines that mean something, and some that are cut or joined wrongly.
const FRAGMENTS: &[&str] = &[
    "Require all granted",
    "Require all denied",
    "Require ip 10.0.0.1",
    "Require not env x",
    "Require",
    "Order allow,deny",
    "Allow from all",
    "Deny from none",
    "Satisfy Any",
    "<Files *.txt>",
    "</Files>",
    "<FilesMatch \"(?!x)\">",
    "</FilesMatch>",
    "<Limit GET>",
    "</Limit>",
    "<RequireAll>",
    "</RequireAll>",
    "<RequireNone>",
    "</RequireNone>",
    "<IfModule mod_rewrite.c>",
    "<IfModule !mod_rewrite.c>",
    "</IfModule>",
    "<If \"%{REQUEST_URI} =~ /x/\">",
    "<If \"true\">",
    "<Else>",
    "</If>",
    "</Else>",
    "<",
    ">",
    "\\",
    "\"",
    "RewriteEngine On",
    "RewriteCond %{HTTP_HOST} ^(.*)$ [OR]",
    "RewriteRule ^(.*)$ x/$1%1 [L]",
    "RewriteRule ^ - [F]",
    "RewriteRule . - [N]",
    "RewriteRule . - [S=99999999999]",
    "RewriteOptions Inherit",
    "RedirectMatch 404 x",
    "Redirect 404",
    "SetEnvIf Host . x",
    "php_flag engine off",
    "AddType text/plain .php",
    "Header set X y",
];

proptest::proptest! {
    #[test]
    fn no_file_is_too_strange_and_what_is_not_understood_is_closed(
        picked in proptest::collection::vec(0..FRAGMENTS.len(), 0..30),
        noise in ".{0,40}",
        crlf: bool,
    ) {
        let mut lines: Vec<&str> = picked.iter().map(|number| FRAGMENTS[*number]).collect();
        lines.push(&noise);
        let text = lines.join(if crlf { "\r\n" } else { "\n" });
        let of = |tree: Tree<'_>| verdict_of(tree, "GET", "/d/x.php?q", Lies::Script);
        let below = of(&[("/d/", &text)]);
        proptest::prop_assert_eq!(&below, &of(&[("/d/", &text)]));
        let parsed = parse(&text);
        if !parsed.is_understood() {
            proptest::prop_assert!(matches!(below, Verdict::Closed(..)), "{}", text);
        }
        // Nothing above opens what a deeper file that is not understood has closed.
        let faulty = of(&[("/", &text), ("/d/", "Nonsense")]);
        proptest::prop_assert!(matches!(faulty, Verdict::Closed(..)), "{}", text);
        // A comment more and a blank line change lines' numbers only.
        let moved = format!("# a comment\n\n{text}");
        let is_open = |verdict: &Verdict| *verdict == Verdict::Open;
        proptest::prop_assert_eq!(is_open(&below), is_open(&of(&[("/d/", &moved)])), "{}", text);
    }
}
