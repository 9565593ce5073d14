//! Strange `.htaccess` files where they decide (`htaccess = "on"`): each request is refused with the expected error
//! name within the time limit, nothing that the file protects is shown, and visitors are still served afterwards.

use std::time::{Duration, Instant};

use howdah_tests::fixture::Fixture;

/// The content of each file that must not be seen.
const SECRET: &str = "TOP SECRET";
/// The longest time for a response, in a program that is not optimised, on a busy machine.
const MAX_RESPONSE_TIME: Duration = Duration::from_secs(5);

fn rules(line: &str, times: usize) -> String {
    format!("RewriteEngine On\n{}", line.repeat(times))
}

/// A directory, the text of its `.htaccess` file, and the expected status and error name of the response to a request
/// for a file in the directory.
type AttackFile = (&'static str, String, u16, &'static str);

fn cases() -> Vec<AttackFile> {
    let explosive = r"^(a*)*(?!b)\.txt$";
    let sections = "<Files *>\n".repeat(100) + &"</Files>\n".repeat(100);
    let names: String = (0..2000).map(|name| format!(" {name}.html")).collect();
    vec![
        (
            "onward",
            rules("RewriteRule (.*) x/$1\n", 1),
            500,
            "HtaccessLoop",
        ),
        (
            "again",
            rules("RewriteRule ^ - [N]\n", 1),
            500,
            "HtaccessLoop",
        ),
        (
            "there",
            rules("RewriteRule ^ /back/secret.txt\n", 1),
            500,
            "HtaccessLoop",
        ),
        (
            "back",
            rules("RewriteRule ^ /there/secret.txt\n", 1),
            500,
            "HtaccessLoop",
        ),
        (
            "growing",
            rules("RewriteRule (.*) $1$1\n", 40),
            500,
            "HtaccessLoop",
        ),
        (
            "ahead",
            rules(
                "RewriteCond /ahead/%{TIME_SEC}x -U\nRewriteRule ^ - [F]\n",
                400,
            ),
            403,
            "HtaccessDenied",
        ),
        (
            "costly",
            rules(&format!("RewriteRule {explosive} - [F]\n"), 1),
            500,
            "HtaccessNotUnderstood",
        ),
        (
            "named",
            format!("<FilesMatch \"{explosive}\">\nRequire all denied\n</FilesMatch>\n"),
            500,
            "HtaccessNotUnderstood",
        ),
        (
            "environment",
            "SetEnvIf Request_URI \"^/environment/(a*)*(?!b)\\.txt$\" shut\n<RequireAll>\nRequire all granted\nRequire not env shut\n</RequireAll>\n".to_owned(),
            500,
            "HtaccessNotUnderstood",
        ),
        (
            "condition",
            rules(&format!("RewriteCond %{{REQUEST_URI}} /condition/{}\nRewriteRule ^ - [F]\n", &explosive[1..]), 1),
            500,
            "HtaccessNotUnderstood",
        ),
        (
            "redirected",
            format!("RedirectMatch ^/redirected/{} /", &explosive[1..]),
            500,
            "HtaccessNotUnderstood",
        ),
        (
            "asked",
            format!("<If \"%{{REQUEST_URI}} =~ m#^/asked/{}#\">\nRequire all denied\n</If>\n", &explosive[1..]),
            500,
            "HtaccessNotUnderstood",
        ),
        (
            "demanded",
            format!("Require expr \"%{{REQUEST_URI}} =~ m#^/demanded/{}#\"\n", &explosive[1..]),
            500,
            "HtaccessNotUnderstood",
        ),
        (
            "long",
            "# padding\n".repeat(1 << 20),
            500,
            "HtaccessNotUnderstood",
        ),
        ("nested", sections, 500, "HtaccessNotUnderstood"),
        (
            "half",
            "<Files secret.txt>\nRequire all de".to_owned(),
            500,
            "HtaccessNotUnderstood",
        ),
        (
            "marked",
            "\u{feff}Require all denied".to_owned(),
            500,
            "HtaccessNotUnderstood",
        ),
        (
            "binary",
            "\0\u{1}\u{2}\n".repeat(1000),
            500,
            "HtaccessNotUnderstood",
        ),
        (
            "index",
            format!("DirectoryIndex{names}\nRequire all denied"),
            403,
            "HtaccessDenied",
        ),
        (
            "proxied",
            rules("RewriteRule ^ http://192.0.2.1/ [P]\n", 1),
            403,
            "HtaccessUnsupported",
        ),
    ]
}

#[test]
fn strange_file_that_decides_closes_within_its_bound() {
    let mut builder = Fixture::named("attack-htaccess-decides").site("htaccess = \"on\"");
    let long_name = "a".repeat(60) + "!";
    for (directory, text, ..) in &cases() {
        builder = builder
            .file(&format!("{directory}/.htaccess"), text)
            .file(&format!("{directory}/secret.txt"), SECRET)
            .file(&format!("{directory}/{long_name}.txt"), SECRET);
    }
    let fixture = builder
        .file("directory/.htaccess/x", "")
        .file("directory/secret.txt", SECRET)
        .file("loop/secret.txt", SECRET)
        .start();
    std::os::unix::fs::symlink(".htaccess", fixture.path("site/loop/.htaccess")).unwrap();
    let mut wrong = Vec::new();
    let mut check = |target: &str, status: u16, name: &str| {
        // The requests are repeated: a cached result must not give another response, or a slower one.
        for _ in 0..2 {
            let start = Instant::now();
            let answer = fixture.get(target);
            let shown = (answer.status(), answer.header("Howdah-Error"));
            let took = start.elapsed();
            if shown != (status, Some(name))
                || answer.text().contains(SECRET)
                || took > MAX_RESPONSE_TIME
            {
                wrong.push(format!(
                    "{target}: {shown:?} after {took:?}, wanted {status} {name}"
                ));
            }
        }
    };
    for (directory, _, status, name) in cases() {
        let file = match directory {
            "costly" | "named" | "environment" | "condition" | "redirected" | "asked"
            | "demanded" => &long_name,
            _ => "secret",
        };
        check(&format!("/{directory}/{file}.txt"), status, name);
    }
    for directory in ["directory", "loop"] {
        check(
            &format!("/{directory}/secret.txt"),
            403,
            "HtaccessNotUnderstood",
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    fixture.still_serves();
}

/// When a PHP process dies, the response is the error document that the files name, unless they close that document.
#[test]
fn document_for_the_servers_own_error_shows_nothing_that_is_closed() {
    let dies = "<?php posix_kill(getmypid(), 9);";
    let fixture = Fixture::named("attack-htaccess-document")
        .site("htaccess = \"on\"\n[site.error_pages]\n502 = \"shut/page.html\"")
        .file("shut/.htaccess", "Require all denied")
        .file("shut/page.html", SECRET)
        .file("page.html", "a page of the site")
        .script("plain/die.php", dies)
        .script("text/die.php", dies)
        .file("text/.htaccess", "ErrorDocument 502 \"<b>gone</b>\"")
        .script("file/die.php", dies)
        .file("file/.htaccess", "ErrorDocument 502 /page.html")
        .script("closed/die.php", dies)
        .file("closed/.htaccess", "ErrorDocument 502 /shut/page.html")
        .script("away/die.php", dies)
        .file(
            "away/.htaccess",
            "ErrorDocument 502 http://status.example/down",
        )
        .script("script/die.php", dies)
        .file("script/.htaccess", "ErrorDocument 502 /script/die.php")
        .start();
    let shown = |directory: &str| {
        let answer = fixture.get(&format!("/{directory}/die.php"));
        let error = answer.header("Howdah-Error").map(str::to_owned);
        assert!(!answer.text().contains(SECRET), "{directory}");
        (answer.status(), error, answer.text())
    };
    let (status, name, built_in) = shown("plain");
    assert_eq!(status, 502);
    let page = |text: &str| (502, name.clone(), text.to_owned());
    assert_eq!(shown("text"), page("<b>gone</b>"));
    assert_eq!(shown("file"), page("a page of the site"));
    for directory in ["closed", "script"] {
        let (status, own, text) = shown(directory);
        assert_eq!((status, own), (502, name.clone()), "{directory}");
        assert_eq!(text.len(), built_in.len(), "{directory}: {text}");
    }
    let away = fixture.get("/away/die.php");
    let location = away.header("Location");
    assert_eq!(
        (away.status(), location),
        (302, Some("http://status.example/down"))
    );
}

/// The results of rules that check for files are cached as well, until the files appear or disappear.
#[test]
fn file_that_comes_or_goes_counts_for_the_next_request() {
    let fixture = Fixture::named("attack-htaccess-comes")
        .site("htaccess = \"on\"")
        .file(
            ".htaccess",
            "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule . /index.php [L]",
        )
        .script("index.php", "<?php echo 'the controller';")
        .file("pages/kept", "")
        .start();
    let of_age = Instant::now() + Duration::from_millis(150);
    // Repeats the request until very probably both threads of the front have the result in their caches.
    let settled = |target: &str, text: &str| {
        let mut rounds = 0;
        while rounds < 6 {
            rounds += usize::from(Instant::now() > of_age);
            assert_eq!(fixture.get(target).text(), text, "{target}");
        }
    };
    let path = |name: &str| fixture.path(&format!("site/{name}"));
    for name in ["new.txt", "pages/new.txt"] {
        let target = format!("/{name}");
        for _ in 0..2 {
            settled(&target, "the controller");
            fixture.write(&format!("site/{name}"), "a file");
            settled(&target, "a file");
            std::fs::rename(path(name), path("pages/elsewhere")).unwrap();
            settled(&target, "the controller");
            std::os::unix::fs::symlink("elsewhere", path("pages/link")).unwrap();
            std::fs::rename(path("pages/link"), path(name)).unwrap();
            let linked = if name == "new.txt" {
                "the controller"
            } else {
                "a file"
            };
            settled(&target, linked);
            std::fs::remove_file(path(name)).unwrap();
        }
    }
    for _ in 0..2 {
        fixture.write("site/pages/run.php", "<?php echo 'a script';");
        settled("/pages/run.php", "a script");
        std::fs::rename(path("pages/run.php"), path("pages/away")).unwrap();
        settled("/pages/run.php", "the controller");
        std::fs::rename(path("pages"), path("moved")).unwrap();
        settled("/pages/run.php", "the controller");
        std::fs::rename(path("moved/away"), path("moved/run.php")).unwrap();
        std::fs::rename(path("moved"), path("pages")).unwrap();
        settled("/pages/run.php", "a script");
    }
}
