//! Checks file by file which requests are refused. `howdah-tests` (`htaccess_oracle`) runs the same files on a real
//! Apache.

use super::*;
use crate::LoginResult;
use crate::tests::{TestFiles, input};

fn outcome(files: &[(&str, &str)], method: &str, target: &str) -> AccessOutcome {
    let files = TestFiles::new(files);
    refusals(&files, &input(method, target, &[], None), false).outcome
}

fn is_refused(files: &[(&str, &str)], target: &str) -> bool {
    match outcome(files, "GET", target) {
        AccessOutcome::Open => false,
        AccessOutcome::Refused(..) => true,
        other => panic!("{files:?} {target}: {other:?}"),
    }
}

/// Returns true if a file in a directory refuses the request.
fn below(text: &str) -> bool {
    is_refused(&[("d/.htaccess", text)], "/d/x.txt")
}

/// Returns true if the same lines in the root's file refuse the request.
fn at_root(text: &str) -> bool {
    is_refused(&[(".htaccess", text)], "/d/x.txt")
}

#[test]
fn unconditional_denials_hold_everywhere() {
    for text in [
        "Require all denied",
        "\"Require\" all denied\r\n",
        "deny from all",
        "Order allow,deny",
        "<IfModule mod_authz_core.c>\nRequire all denied\n</IfModule>",
        "<IfVersion >= 2.4>\nRequire all denied\n</IfVersion>",
        "<Files \"*\">\nRequire all denied\n</Files>",
        "<FilesMatch \".*\">\nRequire all denied\n</FilesMatch>",
        "<RequireAll>\nRequire all granted\nRequire all denied\n</RequireAll>",
        "<Limit GET POST>\nRequire all denied\n</Limit>",
        "<LimitExcept POST>\nDeny from all\n</LimitExcept>",
        "<RequireAll>\n<Limit GET>\nRequire all denied\n</Limit>\n</RequireAll>",
        "RewriteEngine On\nRewriteRule ^ - [F]",
        "RewriteEngine On\nRewriteRule .* - [R=404,L]",
        "RewriteEngine on\nRewriteCond %{REQUEST_URI} x\\.txt\nRewriteRule ^ - [G]",
        "RedirectMatch 403 .*",
        "Redirect 404 /",
        "Require method POST",
        "Require env nowhere",
        "<If \"true\">\nRequire all denied\n</If>",
        "Options None\nRewriteEngine On\nRewriteRule ^none$ -",
        "Options -FollowSymLinks\nRewriteEngine On\nRewriteRule ^none$ -",
        "ErrorDocument 403 /index.php\nRequire all denied",
        "ErrorDocument 403 \"sorry\"\nRequire all denied",
        "NoSuchDirective on",
    ] {
        assert!(below(text), "below the root: {text}");
        assert!(at_root(text), "in the root: {text}");
    }
}

#[test]
fn harmless_lines_refuse_nothing() {
    for text in [
        "",
        "Options -Indexes\nHeader set X-A b\nDirectoryIndex index.php\nphp_value memory_limit 1G",
        "Require all granted",
        "Order deny,allow\nAllow from all",
        "<Files *.php>\nRequire all denied\n</Files>",
        "<IfModule mod_nothing.c>\nRequire all denied\nFoo bar\n</IfModule>",
        "RewriteRule ^ - [F]",
        "RewriteEngine On\nRewriteRule ^other - [F]",
        "RewriteEngine On\nRewriteRule ^ - [L]\nRewriteRule ^ - [F]",
        "RewriteEngine On\nRewriteRule !nothing - [S=1]\nRewriteRule ^ - [F]",
        "RewriteEngine On\nRewriteRule ^nothing - [C]\nRewriteRule ^ - [F]",
        "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^ - [F]",
        "RewriteEngine On\nRewriteCond %{HTTPS} off\nRewriteRule ^ https://h.example%{REQUEST_URI} [R=301,L]",
        "Redirect 301 /d https://elsewhere.example/",
        "Redirect 301 /\nRedirectPermanent /d /e",
        "FallbackResource /none.php\nDirectoryIndex none.html",
        "Deny from all\nSatisfy Any\nRequire all granted",
        "AuthType Basic\nAuthName x\nAuthUserFile /none",
        "php_flag engine off",
    ] {
        assert!(!below(text), "below the root: {text}");
        assert!(!at_root(text), "in the root: {text}");
    }
}

#[test]
fn redirects_do_not_hide_later_refusals() {
    for redirect in [
        "RewriteRule ^ https://h.example%{REQUEST_URI} [R=301,L]",
        "RewriteRule ^ https://other.example/",
        "RewriteRule (.*) /elsewhere/$1 [R]",
        "RewriteRule ^ https://h.example/ [R,E=a:b,L]",
    ] {
        let text = format!("RewriteEngine On\n{redirect}\nRewriteRule x\\.txt$ - [F]");
        assert!(below(&text) && at_root(&text), "{redirect}");
    }
    let mixed = "Redirect 301 /d https://other.example/\nRedirect 403 /d/x.txt";
    assert!(below(mixed) && at_root(mixed));
}

#[test]
fn refusals_differ_by_visitor() {
    let files = TestFiles::new(&[(
        "d/.htaccess",
        "RewriteEngine On\nRewriteCond %{HTTP_USER_AGENT} badbot [NC]\nRewriteRule ^ - [F]\n<Files x.php>\nRequire ip 192.0.2.0/24\n</Files>\n",
    )]);
    let of = |target: &str, agent: &str, address: &str| {
        let mut input = input("GET", target, &[("User-Agent", agent)], None);
        input.address = address.parse().ok();
        refusals(&files, &input, false)
    };
    assert_eq!(
        of("/d/x.txt", "Mozilla", "198.51.100.1").outcome,
        AccessOutcome::Open
    );
    let refused = AccessOutcome::Refused(403, HtaccessRefusal::Denied);
    let bot = of("/d/x.txt", "BadBot/1", "198.51.100.1");
    assert_eq!(bot.outcome, refused);
    assert!(!bot.dependencies.depends_only_on_url());
    assert!(
        bot.decided_by
            .is_some_and(|line| line.contains("d/.htaccess:3"))
    );
    assert_eq!(
        of("/d/x.php", "Mozilla", "192.0.2.7").outcome,
        AccessOutcome::Open
    );
    assert_eq!(of("/d/x.php", "Mozilla", "198.51.100.1").outcome, refused);
}

#[test]
fn password_is_demanded_and_a_wrong_one_is_challenged() {
    let files = TestFiles::new(&[(
        "d/.htaccess",
        "AuthType Basic\nAuthName area\nAuthUserFile /users\nRequire valid-user\n",
    )]);
    let of = |login| refusals(&files, &input("GET", "/d/x.txt", &[], login), false);
    assert!(matches!(of(None).outcome, AccessOutcome::Authenticate(_)));
    let refused = of(Some(LoginResult::Refused));
    assert_eq!(
        refused.outcome,
        AccessOutcome::Refused(401, HtaccessRefusal::Unauthorized)
    );
    assert_eq!(
        refused.challenge.as_deref(),
        Some(&b"Basic realm=\"area\""[..])
    );
    let bob = of(Some(LoginResult::Verified {
        user: b"bob".to_vec(),
        groups: Vec::new(),
    }));
    assert_eq!(
        (bob.outcome, bob.user.as_deref()),
        (AccessOutcome::Open, Some(&b"bob"[..]))
    );
}

#[test]
fn file_that_a_rule_replaces_is_reported_as_elsewhere() {
    for text in [
        "RewriteEngine On\nRewriteCond %{REMOTE_ADDR} !^10\\.\nRewriteRule ^ /login.php [L]",
        "RewriteEngine On\nRewriteRule x\\.txt y.txt",
        "RewriteEngine On\nRewriteRule ^(.*)$ http://127.0.0.1:8080/$1 [P]",
    ] {
        assert_eq!(
            outcome(&[("d/.htaccess", text)], "GET", "/d/x.txt"),
            AccessOutcome::Elsewhere,
            "{text}"
        );
    }
    for text in [
        "RewriteEngine On\nRewriteRule ^(.*)$ $1 [L]",
        "RewriteEngine On\nRewriteRule ^ /d/x.txt",
        "RewriteEngine On\nRewriteCond %{ENV:REDIRECT_STATUS} ^$\nRewriteRule ^ - [L]\nRewriteRule ^none$ y.txt",
    ] {
        assert!(!below(text), "{text}");
    }
    let files = TestFiles::new(&[(
        "d/.htaccess",
        "RewriteEngine On\nRewriteCond %{ENV:REDIRECT_STATUS} ^$\nRewriteRule ^ - [F]",
    )]);
    let input = input("GET", "/d/x.txt", &[], None);
    assert_ne!(refusals(&files, &input, false).outcome, AccessOutcome::Open);
    assert_eq!(refusals(&files, &input, true).outcome, AccessOutcome::Open);
}

#[test]
fn scripts_that_may_not_run_are_refused_and_files_are_not() {
    for text in [
        "php_flag engine off",
        "SetHandler none",
        "SetHandler default-handler",
        "ForceType text/plain",
        "RemoveHandler .php",
        "AddType text/plain .php",
        "RewriteEngine On\nRewriteRule \\.php$ - [H=text/plain]",
    ] {
        let files = [("d/.htaccess", text)];
        assert_eq!(
            outcome(&files, "GET", "/d/x.php"),
            AccessOutcome::Refused(403, HtaccessRefusal::NoScripts),
            "{text}"
        );
        assert_eq!(
            outcome(&files, "GET", "/d/x.txt"),
            AccessOutcome::Open,
            "{text}"
        );
    }
}

#[test]
fn patterns_heavier_than_the_limit_are_a_mistake() {
    let heavy = "RewriteRule (?:(?:[a-z]{99}){60}){5}x - [F]\n".repeat(10);
    assert!(below(&heavy) && at_root(&heavy));
    let redirects = "RewriteRule ^old-page$ /new-page [R=301,L]\n".repeat(20_000);
    assert!(!below(&redirects));
    let growing = format!("RewriteEngine On\n{}", "RewriteRule (.*) $1$1\n".repeat(40));
    assert!(below(&growing));
}

#[test]
fn long_path_is_matched_against_many_patterns_within_limits() {
    let many = format!(
        "RewriteEngine On\n{}",
        "RewriteRule (y+) - [F]\n".repeat(4000)
    );
    let files = [(".htaccess", &*many)];
    assert_eq!(outcome(&files, "GET", "/x.txt"), AccessOutcome::Open);
    let long = format!("/{}", "x".repeat(3900));
    assert_eq!(outcome(&files, "GET", &long), AccessOutcome::Open);
    let more = "RewriteCond %{QUERY_STRING} (y+)\nRewriteRule ^ - [F]\n".repeat(4000);
    let more = format!("RewriteEngine On\n{more}");
    let query = format!("/x.txt?{}", "x".repeat(8000));
    assert_eq!(
        outcome(&[(".htaccess", &more)], "GET", &query),
        AccessOutcome::Refused(500, HtaccessRefusal::TooCostly)
    );
}
