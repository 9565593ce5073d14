//! Ways to name a file or script that nobody may have: whoever names it, the client or a program that
//! repeats the client's words, meets the same refusals.

use howdah_tests::executable::make_executable;
use howdah_tests::fixture::{Builder, Fixture};

/// What is in each file that must not be seen.
const SECRET: &str = "TOP SECRET";

/// A script that sends what it is asked for, as a proxy or a gateway to a storage passes a field on.
const GATEWAY: &str = "<?php header('X-Accel-Redirect: ' . $_GET['f']);";

fn closed_places(name: &str) -> Builder {
    Fixture::named(name)
        .script("accel.php", GATEWAY)
        .file("private/secret.txt", SECRET)
        .file("closed/secret.txt", SECRET)
        .file("members/secret.txt", SECRET)
        .file("page.html", format!("<?php /* {SECRET} */ echo 'page';"))
        .file("cgi-bin/open.sh", format!("#!/bin/sh\n# {SECRET}\nprintf 'Content-Type: text/plain\\n\\nprogram'\n"))
        .file("cgi-bin/shut.sh", format!("#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n{SECRET}'\n"))
        .pool("mode = \"embed\"\n[pool.programs]\nmode = \"cgi\"\nmax_children = 2\n[pool.guard]\nmode = \"fastcgi\"\nfastcgi = [\"unix:SCRATCH/nobody.sock\"]")
        .site(
            "php_extensions = [\".php\", \".html\"]\ndeny = [\"/private/**\", \"/cgi-bin/shut.sh\"]\n\
             [[site.rule]]\nprefix = \"/closed\"\ndeny = 404\n\
             [[site.rule]]\nprefix = \"/cgi-bin/\"\ncgi = \"programs\"\n\
             [[site.rule]]\nprefix = \"/members\"\nauthorizer = \"guard\"",
        )
}

#[test]
fn a_script_that_repeats_a_clients_words_sends_nothing_the_client_is_refused() {
    let fixture = closed_places("attack-accel").start();
    for (target, name) in [
        ("/private/secret.txt", "Denied"),
        ("/private//secret.txt", "Denied"),
        ("/%70rivate/secret.txt", "Denied"),
        ("/private/secret.txt?x", "Denied"),
        ("/closed/secret.txt", "Denied"),
        ("/members/secret.txt", "NotAuthorized"),
        ("/cgi-bin/open.sh", "ProgramSource"),
        ("/page.html", "ProgramSource"),
        ("/accel.php", "ProgramSource"),
        ("/accel.php/", "NotFound"),
    ] {
        let answer = fixture.get(&format!(
            "/accel.php?f={}",
            target.replace('?', "%3F").replace("%70", "%2570")
        ));
        assert_eq!(answer.header("Howdah-Error"), Some(name), "{target}");
        assert!(!answer.text().contains(SECRET), "{target}");
        assert!(!answer.text().contains("<?php"), "{target}");
    }
    fixture.still_serves();
}

#[test]
fn a_denied_program_does_not_run_for_a_path_behind_its_name() {
    let fixture = closed_places("attack-program").start();
    for program in ["open.sh", "shut.sh"] {
        make_executable(&fixture.path(&format!("site/cgi-bin/{program}")));
    }
    assert_eq!(fixture.get("/cgi-bin/open.sh/info").text(), "program");
    for path in [
        "/cgi-bin/shut.sh",
        "/cgi-bin/shut.sh/info",
        "/cgi-bin/shut.sh/",
    ] {
        let answer = fixture.get(path);
        assert_eq!(answer.header("Howdah-Error"), Some("Denied"), "{path}");
        assert!(!answer.text().contains(SECRET), "{path}");
    }
}

#[test]
fn source_is_not_sent_under_any_suffix() {
    let names = [
        "config.phpbak",
        "config.phporig",
        "config.inc.phpold",
        "x.phpt",
        "x.PhpOld",
        "x.php_old",
        "x.php-2",
        "x.phtml_old",
        "x.phpbak.gz",
        "x.phpbak.txt",
        "x.php.save.1",
    ];
    let mut site = Fixture::named("attack-source");
    for name in names {
        site = site.file(name, format!("<?php $password = '{SECRET}';"));
    }
    let fixture = site.file("x.php.html", "about PHP").start();
    for name in names {
        let answer = fixture.get(&format!("/{name}"));
        assert_eq!(answer.status(), 404, "{name}");
        assert!(!answer.text().contains(SECRET), "{name}");
    }
    assert_eq!(fixture.get("/x.php.html").text(), "about PHP");
}
