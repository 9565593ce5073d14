//! The same `.htaccess` files under Howdah and under Apache with `AllowOverride All`, in one tree that both
//! serve. Each case is written while both run. Nothing that Apache refuses is answered by Howdah; where
//! a case says [`Same`], what Apache answers Howdah does, too. The rest is
//! in docs/differences.md: "closed here, open under Apache".

use std::path::Path;

use howdah_tests::http::{self, Response};
use howdah_tests::rig::{Howdah, ModPhp, Server, Site};
use howdah_tests::scratch::{Scratch, copy_tree};

const SECRET: &str = "TOP-SECRET";
const RUN: &str = "<?php echo 'SCRIPT-', 'RAN';";
const RAN: &str = "SCRIPT-RAN";

use Expected::{Same, Stricter};

/// How the two may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// Not at all.
    Same,
    /// Howdah may refuse more.
    Stricter,
}

/// A request: method, target, further header lines.
type Ask = (&'static str, &'static str, &'static str);

const ASKED: &[Ask] = &[
    ("GET", "/c/secret.txt", ""),
    ("HEAD", "/c/secret.txt", ""),
    ("GET", "/c/secret.txt?a=evil", ""),
    ("GET", "/c/secret.txt", "User-Agent: evilbot\r\n"),
    (
        "GET",
        "/c/secret.txt",
        "Referer: https://other.example/\r\n",
    ),
    ("GET", "/c//%73ecret.txt", ""),
    ("GET", "/c/x/../secret.txt", ""),
    ("GET", "/c/data.ini", ""),
    ("GET", "/c/run.php", ""),
    ("POST", "/c/run.php", ""),
    ("GET", "/c/run.php/info", ""),
    ("GET", "/c/run.php/secret.txt", ""),
    ("GET", "/c/sub/secret.txt", ""),
    ("GET", "/c/sub/run.php", ""),
    ("GET", "/c/", ""),
    ("GET", "/c", ""),
    ("GET", "/c/sub/", ""),
    ("GET", "/c/none.txt", ""),
    ("GET", "/c/none/secret.txt", ""),
    ("GET", "/secret.txt", ""),
    ("GET", "/run.php", ""),
    ("GET", "/", ""),
];

/// Written into `/c/.htaccess`, and again into the root's.
const EVERYWHERE: &[(Expected, &str)] = &[
    (Same, ""),
    (Same, "Require all denied"),
    (Same, "Require all granted"),
    (Same, "Deny from all"),
    (Same, "Order deny,allow\nDeny from all\nAllow from none"),
    (Same, "Order allow,deny"),
    (Same, "Order allow,deny\nAllow from all"),
    (Same, "Order deny,allow\nAllow from all"),
    (Same, "Order deny,allow\nDeny from all\nAllow from all"),
    (Same, "Order allow,deny\nDeny from all\nAllow from all"),
    (Same, "Deny from all\nRequire all granted"),
    (Same, "Allow from all\nRequire all denied"),
    (Same, "Deny from all\nRequire all granted\nSatisfy Any"),
    (Same, "Deny from all\nRequire all denied\nSatisfy Any"),
    (Same, "Deny from all\nSatisfy Any"),
    (
        Same,
        "<IfVersion >= 2.4>\nRequire all denied\n</IfVersion>\n<IfVersion < 2.4>\nAllow from none\nDeny from all\n</IfVersion>",
    ),
    (
        Same,
        "<IfModule mod_authz_core.c>\nRequire all denied\n</IfModule>\n<IfModule !mod_authz_core.c>\nOrder deny,allow\nDeny from all\n</IfModule>",
    ),
    (
        Same,
        "<IfModule !mod_rewrite.c>\nRequire all denied\n</IfModule>",
    ),
    (
        Same,
        "<IfModule mod_none.c>\nNo such directive\n<Files x>\n</Files>\n</IfModule>",
    ),
    (
        Same,
        "<IfDefine NOBODY_DEFINES_THIS>\nRequire all denied\n</IfDefine>",
    ),
    (Same, "<Files \"*\">\nRequire all denied\n</Files>"),
    (Same, "<Files secret.txt>\nRequire all denied\n</Files>"),
    (Same, "<Files \"*.ini\">\nRequire all denied\n</Files>"),
    (Same, "<Files ~ \"\\.(txt|ini)$\">\nDeny from all\n</Files>"),
    (
        Same,
        "<FilesMatch \"^(secret|run)\\.\">\nRequire all denied\n</FilesMatch>",
    ),
    (
        Same,
        "<FilesMatch \"^(?!run).*$\">\nRequire all denied\n</FilesMatch>",
    ),
    (
        Same,
        "Require all denied\n<FilesMatch \"\\.txt$\">\nRequire all granted\n</FilesMatch>",
    ),
    (
        Same,
        "<Files *.txt>\nRequire all denied\n</Files>\n<Files secret.*>\nRequire all granted\n</Files>",
    ),
    (
        Same,
        "Deny from all\n<Files *.txt>\nRequire all granted\n</Files>",
    ),
    (
        Same,
        "Deny from all\n<Files *.txt>\nAllow from all\nSatisfy any\n</Files>",
    ),
    (
        Same,
        "<RequireAll>\nRequire all granted\nRequire all denied\n</RequireAll>",
    ),
    (
        Same,
        "<RequireAny>\nRequire all denied\nRequire all granted\n</RequireAny>",
    ),
    (
        Same,
        "<RequireAny>\n<RequireAll>\nRequire all granted\nRequire method GET\n</RequireAll>\n</RequireAny>",
    ),
    (
        Same,
        "<RequireAll>\nRequire all granted\n<RequireNone>\nRequire method POST\n</RequireNone>\n</RequireAll>",
    ),
    (Same, "Require method GET"),
    (Same, "Require env nowhere"),
    (Same, "<Limit GET>\nRequire all denied\n</Limit>"),
    (Same, "<Limit POST>\nRequire all denied\n</Limit>"),
    (
        Same,
        "<LimitExcept GET>\nRequire all denied\n</LimitExcept>",
    ),
    (Same, "<Limit POST>\nDeny from all\n</Limit>"),
    (
        Same,
        "<LimitExcept POST>\nOrder deny,allow\nDeny from all\n</LimitExcept>",
    ),
    (
        Same,
        "<Limit GET>\nRequire all denied\n</Limit>\nRequire all granted",
    ),
    (
        Same,
        "<RequireAll>\n<Limit POST>\nRequire all denied\n</Limit>\nRequire all granted\n</RequireAll>",
    ),
    (
        Same,
        "SetEnvIf User-Agent evilbot bad\nOrder allow,deny\nAllow from all\nDeny from env=bad",
    ),
    (
        Same,
        "SetEnvIfNoCase Referer other out\nOrder deny,allow\nDeny from env=out",
    ),
    (
        Same,
        "BrowserMatch evil bad\n<RequireAll>\nRequire all granted\nRequire not env bad\n</RequireAll>",
    ),
    (
        Same,
        "SetEnvIf Request_URI secret let_in\nOrder deny,allow\nDeny from all\nAllow from env=let_in",
    ),
    (
        Same,
        "SetEnvIf User-Agent . known\nSetEnvIf User-Agent evil !known\nRequire env known",
    ),
    (Same, "RewriteEngine On\nRewriteRule ^ - [F]"),
    (Same, "RewriteEngine On\nRewriteRule secret - [F,L]"),
    (
        Same,
        "RewriteEngine On\nRewriteRule (^|/)secret\\.txt$ - [G]",
    ),
    (Same, "RewriteEngine On\nRewriteRule .* - [R=404,L]"),
    (Same, "RewriteEngine On\nRewriteRule ^SECRET - [NC,R=403]"),
    (Same, "RewriteRule ^ - [F]"),
    (Same, "RewriteEngine Off\nRewriteRule ^ - [F]"),
    (
        Same,
        "RewriteEngine On\nRewriteRule \\.txt$ - [L]\nRewriteRule ^ - [F]",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteRule \\.txt$ - [S=1]\nRewriteRule ^ - [F]\nRewriteRule secret - [G]",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteRule \\.ini$ - [C]\nRewriteRule ^ - [F]",
    ),
    (Same, "RewriteEngine On\nRewriteRule !\\.php - [F]"),
    (
        Same,
        "RewriteEngine On\nRewriteCond %{QUERY_STRING} evil\nRewriteRule ^ - [F]",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteCond %{HTTP_USER_AGENT} EVIL [NC]\nRewriteRule ^ - [F]",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteCond %{HTTP_REFERER} !^$\nRewriteCond %{HTTP_REFERER} !^http://localhost\nRewriteRule \\.txt$ - [F]",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteCond %{REQUEST_URI} sub [OR]\nRewriteCond %{REQUEST_URI} data\nRewriteRule ^ - [F]",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} -f\nRewriteRule \\.txt$ - [F]",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteCond %{REQUEST_METHOD} ^POST$\nRewriteRule ^ - [F]",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteCond %{REQUEST_METHOD} =POST\nRewriteRule ^ - [F]",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteCond $1 =run.php\nRewriteRule ^(.*)$ - [F]",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteCond %{THE_REQUEST} \\ /c/run\\.php\nRewriteRule ^ - [F]",
    ),
    (
        Stricter,
        "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\nRewriteRule ^ run.php [L]",
    ),
    (Same, "RewriteEngine On\nRewriteRule ^.*(?<!\\.txt)$ - [F]"),
    (Same, "RewriteEngine On\nRewriteRule ^(.)(.)\\2 - [F]"),
    (Same, "RewriteEngine On\nRewriteRule \"^(sub|c)/\" - [F]"),
    (Same, "RedirectMatch 403 .*"),
    (Same, "RedirectMatch 404 \"^/c/(secret|sub)\""),
    (Same, "RedirectMatch gone \\.ini$"),
    (Same, "Redirect 404 /c/sub"),
    (Same, "Redirect gone /c/secret.txt"),
    (Same, "Redirect 403 /c/se"),
    (Same, "Require \\\r\n all denied\r\n"),
    (Same, "\"Require\" \"all\" denied"),
    (Same, "AuthType Basic\nAuthName x"),
    (
        Same,
        "AuthName \"a b\"\nAuthType Basic\nAuthUserFile /nowhere\nRequire valid-user",
    ),
    (Same, "Require ip 192.0.2.0/24"),
    (Same, "Require host nobody.example"),
    (
        Same,
        "Order deny,allow\nDeny from all\nAllow from 192.0.2.1",
    ),
    (Same, "Require expr \"%{REQUEST_METHOD} == 'BREW'\""),
    (
        Stricter,
        "Order allow,deny\nAllow from all\nDeny from 192.0.2.1",
    ),
    (
        Stricter,
        "<RequireAll>\nRequire all granted\nRequire not ip 192.0.2.1\n</RequireAll>",
    ),
    (
        Same,
        "<If \"%{REQUEST_URI} =~ /secret/\">\nRequire all denied\n</If>",
    ),
    (
        Same,
        "<If \"%{REQUEST_URI} !~ m#SECRET#i\">\nRequire all denied\n</If>\nRequire all granted",
    ),
    (
        Same,
        "Require all denied\n<If \"%{REQUEST_METHOD} == 'POST'\">\nRequire all granted\n</If>",
    ),
    (
        Stricter,
        "<If \"%{REQUEST_URI} =~ /secret/ && true\">\nRequire all granted\n</If>",
    ),
    (
        Stricter,
        "RewriteEngine On\nRewriteCond %{REMOTE_ADDR} ^192\\.0\\.2\\.\nRewriteRule ^ - [F]",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteCond %{REMOTE_ADDR} !^192\\.0\\.2\\.\nRewriteRule ^ - [F]",
    ),
    // Apache may send the source, or run the script all the same.
    (Stricter, "php_flag engine off"),
    (Stricter, "<Files *>\nSetHandler none\n</Files>"),
    (Stricter, "RemoveHandler .php\nRemoveType .php"),
    (
        Stricter,
        "<FilesMatch \"\\.php$\">\nForceType text/plain\n</FilesMatch>",
    ),
    // What lies there is not sent; where the rule leads, only a front controller can be.
    (
        Stricter,
        "RewriteEngine On\nRewriteRule ^secret\\.txt$ /run.php [L]",
    ),
    (
        Stricter,
        "RewriteEngine On\nRewriteRule ^(c/)?(secret\\.txt|sub/.*)$ /run.php?x=$2 [L]",
    ),
];

/// Files put into every directory of [`trees_of_others`].
const EVERY_KIND: &[&str] = &[
    "secret.txt",
    "x.php",
    "x.css",
    "x.jpg",
    "x.ini",
    "x.log",
    "x.json",
    "x.yml",
    "x.md",
    "x.xml",
    "x.tpl",
    "x.html",
    "config.php",
    "README",
    "LICENSE",
    "x.svg",
    "x.zip",
    "install.php",
];
/// Directories that applications close by rules in the root.
const OFTEN_CLOSED: &[&str] = &[
    "app",
    "backup",
    "bin",
    "bl-content/databases",
    "bl-content/pages/a",
    "cache",
    "config",
    "content/a",
    "core",
    "data",
    "includes",
    "kirby",
    "lib",
    "logs",
    "node_modules/a",
    "plugins",
    "site/accounts/a",
    "src",
    "storage",
    "system",
    "temp",
    "tests",
    "tmp",
    "user/config",
    "user/plugins",
    "var",
    "vendor/a",
    "wp-content/uploads/2024",
    "wp-includes",
];

/// Mistakes, for `/c` alone: in the root they are passed over.
const MISTAKES: &[&str] = &[
    "No such directive",
    "Require",
    "Require all maybe",
    "Require fortune good",
    "Order sideways",
    "<Files x>\nRequire all granted",
    "</Files>",
    "<Files x>\n</FilesMatch>",
    "\u{feff}Options -Indexes",
    "RewriteEngine On\nRewriteRule ( - [F]",
    "RewriteEngine On\nRewriteRule ^ - [NOSUCHFLAG]",
    "RewriteEngine perhaps",
    "<FilesMatch \"(\">\n</FilesMatch>",
    "<Location />\nRequire all granted\n</Location>",
    "php_admin_flag engine on",
    "Satisfy some",
];

/// Root, `/c`, `/c/sub`.
const INHERITED: &[(Expected, &str, &str, &str)] = &[
    (Same, "Require all denied", "Require all granted", ""),
    (
        Same,
        "Require all granted",
        "Require all denied",
        "Require all granted",
    ),
    (Same, "Deny from all", "Require all granted", ""),
    (Same, "Deny from all", "Allow from all", ""),
    (Same, "Deny from all\nSatisfy any", "Require all denied", ""),
    (
        Same,
        "Require all denied",
        "AuthMerging And\nRequire all granted",
        "",
    ),
    (
        Same,
        "Require all granted",
        "AuthMerging Or\nRequire all denied",
        "",
    ),
    (
        Same,
        "<Files *.txt>\nRequire all denied\n</Files>",
        "Require all granted",
        "",
    ),
    (
        Same,
        "<Files *.txt>\nRequire all denied\n</Files>",
        "<Files secret.*>\nRequire all granted\n</Files>",
        "",
    ),
    (Same, "RewriteEngine On\nRewriteRule ^c/ - [F]", "", ""),
    (
        Same,
        "RewriteEngine On\nRewriteRule ^c/ - [F]",
        "RewriteEngine On",
        "",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteRule ^c/ - [F]",
        "",
        "RewriteEngine Off",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteRule ^c/ - [F]",
        "RewriteBase /c/",
        "",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteRule secret - [F]",
        "RewriteOptions Inherit",
        "",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteRule secret - [F]",
        "RewriteEngine On\nRewriteOptions Inherit\nRewriteRule \\.ini$ - [F]",
        "",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteOptions InheritDown\nRewriteRule secret - [F]",
        "RewriteEngine On\nRewriteRule \\.ini$ - [F]",
        "",
    ),
    (Same, "RewriteEngine On", "RewriteRule ^ - [F]", ""),
    (
        Same,
        "Redirect 404 /c/sub",
        "Require all granted",
        "Require all granted",
    ),
    (
        Same,
        "<Limit GET>\nRequire all denied\n</Limit>",
        "",
        "Require all granted",
    ),
    (
        Same,
        "",
        "RewriteEngine On\nRewriteRule ^sub/ - [F]",
        "Options -Indexes",
    ),
    (Same, "SetEnvIf Request_URI secret in", "Require env in", ""),
    (Stricter, "", "Require ip 127.0.0.1", "Require all granted"),
    (
        Stricter,
        "",
        "<If \"true\">\nRequire all granted\n</If>",
        "Require all granted",
    ),
];

/// Both servers on one tree.
struct Pair {
    scratch: Scratch,
    howdah: Howdah,
    apache: ModPhp,
}

impl Pair {
    fn start(name: &str, fill: impl FnOnce(&Scratch)) -> Pair {
        let scratch = Scratch::new(name);
        fill(&scratch);
        let mut site = Site::new(scratch.join("site")).children(2);
        site.htaccess = true;
        Pair {
            howdah: Howdah::start(&site),
            apache: ModPhp::start(&site),
            scratch,
        }
    }

    fn write(&self, file: &str, text: &str) {
        self.scratch.write(Path::new("site").join(file), text);
    }

    /// What is wrong with the answers to one request.
    fn compare(
        &self,
        (method, target, fields): (&str, &str, &str),
        expected: Expected,
    ) -> Option<String> {
        let ask = |server: &dyn Server| -> Response {
            let request = format!(
                "{method} {target} HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: 0\r\nConnection: close\r\n\r\n"
            );
            let answer = match method {
                "HEAD" => http::Connection::open(server.address())
                    .map_err(http::Broken::Io)
                    .and_then(|mut connection| {
                        connection.send(&request)?;
                        connection.read_response("HEAD")
                    }),
                _ => http::exchange(server.address(), request.as_bytes()),
            };
            answer.unwrap_or_else(|broken| panic!("{method} {target}: {broken}\n{}", server.log()))
        };
        let (ours, theirs) = (ask(&self.howdah), ask(&self.apache));
        let (our, their) = (ours.text(), theirs.text());
        let shows = |text: &str, what: &str| text.contains(what);
        // A redirect by Apache refuses nothing: redirects are not taken here.
        let redirected = (300..400).contains(&theirs.status());
        let more = !redirected
            && [SECRET, RAN, "<?php"]
                .iter()
                .any(|what| shows(&our, what) && !shows(&their, what));
        let answered = ours.status() < 400 && theirs.status() >= 400;
        let same =
            shows(&our, SECRET) == shows(&their, SECRET) && shows(&our, RAN) == shows(&their, RAN);
        // A redirect to a directory's slash, its index, or a page for what is missing.
        let refused = (ours.status() >= 400) == (theirs.status() >= 400);
        let wrong = more || answered || expected == Same && !(same && refused);
        wrong.then(|| {
            format!(
                "  {method} {target} {}: Howdah {} {:?} {our:?}, Apache {} {:.60?}",
                fields.trim_end(),
                ours.status(),
                ours.header("Howdah-Error"),
                theirs.status(),
                their
            )
        })
    }

    fn ask_all(&self, title: &str, expected: Expected, wrong: &mut Vec<String>) {
        let found: Vec<String> = ASKED
            .iter()
            .filter_map(|asked| self.compare(*asked, expected))
            .collect();
        if !found.is_empty() {
            wrong.push(format!("{title}\n{}", found.join("\n")));
        }
    }
}

fn small_tree(scratch: &Scratch) {
    for directory in ["", "c/", "c/sub/"] {
        let write = |name: &str, text: &str| {
            scratch.write(Path::new("site").join(format!("{directory}{name}")), text)
        };
        write("secret.txt", SECRET);
        write("run.php", RUN);
        write("data.ini", SECRET);
        write("index.html", "an index page");
    }
}

fn check(wrong: &[String], pair: &Pair) {
    assert!(
        wrong.is_empty(),
        "{} cases:\n{}\n{}",
        wrong.len(),
        wrong.join("\n"),
        pair.howdah
            .log()
            .lines()
            .take(20)
            .collect::<Vec<_>>()
            .join("\n")
    );
}

#[test]
fn what_apache_refuses_is_refused_in_the_root_and_below_it() {
    let pair = Pair::start("htaccess-oracle", small_tree);
    let mut wrong = Vec::new();
    for (expected, text) in EVERYWHERE {
        for place in ["c/.htaccess", ".htaccess"] {
            pair.write(place, text);
            // In the root the lists bind nobody who is on none: as under Apache.
            let expected = match place {
                ".htaccess" if text.contains("192.0.2") => Same,
                _ => *expected,
            };
            pair.ask_all(&format!("{place}: {text}"), expected, &mut wrong);
            pair.write(place, "");
        }
    }
    check(&wrong, &pair);
}

#[test]
fn a_mistake_closes_as_apaches_500_does() {
    let pair = Pair::start("htaccess-oracle-mistakes", small_tree);
    let mut wrong = Vec::new();
    for text in MISTAKES {
        pair.write("c/.htaccess", text);
        pair.ask_all(text, Same, &mut wrong);
    }
    check(&wrong, &pair);
}

#[test]
fn directories_inherit_as_under_apache() {
    let pair = Pair::start("htaccess-oracle-inherited", small_tree);
    let mut wrong = Vec::new();
    for (expected, root, directory, sub) in INHERITED {
        pair.write(".htaccess", root);
        pair.write("c/.htaccess", directory);
        pair.write("c/sub/.htaccess", sub);
        let title = format!("/: {root}\n/c: {directory}\n/c/sub: {sub}");
        pair.ask_all(&title, *expected, &mut wrong);
    }
    check(&wrong, &pair);
}

/// Site by site, what lies in the directory named by `HOWDAH_HTACCESS_TREES`: `.htaccess` files of applications,
/// which are not part of this project. Run by hand:
/// `HOWDAH_HTACCESS_TREES=DIR cargo test -p howdah-tests --test htaccess_oracle trees -- --ignored --nocapture`
#[test]
#[ignore = "wants files of others"]
fn trees_of_others() {
    let trees =
        std::env::var("HOWDAH_HTACCESS_TREES").expect("HOWDAH_HTACCESS_TREES names a directory");
    let pair = Pair::start("htaccess-oracle-trees", small_tree);
    let root = pair.scratch.join("site");
    let (mut wrong, mut asked, mut more) = (Vec::new(), 0, 0);
    let mut sites: Vec<_> = std::fs::read_dir(&trees).unwrap().flatten().collect();
    sites.sort_by_key(|site| site.file_name());
    for site in sites.iter().filter(|site| site.path().is_dir()) {
        for entry in std::fs::read_dir(&root).unwrap().flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => std::fs::remove_dir_all(path).unwrap(),
                false => std::fs::remove_file(path).unwrap(),
            }
        }
        for directory in OFTEN_CLOSED {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        copy_tree(&site.path().join("."), &root);
        let mut directories = vec![root.clone()];
        let mut at = 0;
        while at < directories.len() {
            let below = std::fs::read_dir(&directories[at]).unwrap().flatten();
            directories.extend(below.map(|e| e.path()).filter(|path| path.is_dir()));
            at += 1;
        }
        std::fs::write(root.join("index.php"), "<?php echo 'the front controller';").unwrap();
        for directory in &directories {
            let url = directory.strip_prefix(&root).unwrap().display().to_string();
            for name in EVERY_KIND {
                let text = match name.ends_with(".php") {
                    true => RUN,
                    false => SECRET,
                };
                std::fs::write(directory.join(name), text).unwrap();
                let target = format!("/{url}/{name}").replace("//", "/");
                asked += 1;
                let case = ("GET", &*target, "User-Agent: Mozilla/5.0 (X11)\r\n");
                let title = site.file_name().display().to_string();
                if let Some(line) = pair.compare(case, Stricter) {
                    wrong.push(format!("{title}: {line}"));
                } else if let Some(line) = pair.compare(case, Same) {
                    more += 1;
                    println!("{title}: {line}");
                }
            }
        }
    }
    println!(
        "{asked} requests to {} sites; closed here and open there: {more}",
        sites.len()
    );
    check(&wrong, &pair);
}
