//! Attempts to reach a file or script that no client may have. The refusals are the same whether the client names the
//! file itself, or a program repeats the name that the client has sent.

use howdah_tests::executable::make_executable;
use howdah_tests::fixture::{Builder, Fixture};
use howdah_tests::http;
use howdah_tests::rig::Fpm;

/// The content of each file that must not be seen.
const SECRET: &str = "TOP SECRET";

/// A script that makes the server send the requested file. A gateway that passes on the header of a storage service
/// does the same.
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
#[cfg_attr(not(feature = "packages"), ignore = "needs php-cgi")]
fn script_that_repeats_a_clients_words_sends_nothing_the_client_is_refused() {
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
#[cfg_attr(not(feature = "packages"), ignore = "needs php-cgi")]
fn denied_program_does_not_run_for_a_path_behind_its_name() {
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

/// Returns a site on which requests run `index.php` or no script, whatever the client writes after the script's name.
/// `/get/…` is rewritten to PATH_INFO, as sites with front controllers do: PHP mistakes such a request for one from an
/// older Apache, and treats `PATH_TRANSLATED` as the script.
fn one_script(name: &str, pool: &str) -> Builder {
    Fixture::named(name)
        .script(
            "index.php",
            "<?php echo 'index ', $_SERVER['PATH_INFO'] ?? '-', ' ', basename($_SERVER['SCRIPT_FILENAME']);",
        )
        .script("up/evil.php", "<?php echo 'EVIL EXECUTED';")
        .script("up/x.jpg", "<?php echo 'EVIL EXECUTED';")
        .pool(pool)
        .site("deny = [\"/up/**\"]\n[[site.rule]]\nprefix = \"/get\"\nrewrite = \"/index.php$1\"")
}

fn no_path_info_names_a_script(fixture: &Fixture, setting: &str) {
    for (path, info) in [
        ("/index.php/pinfo", "/pinfo"),
        ("/get/pinfo", "/pinfo"),
        ("/index.php/down/evil.php", "/down/evil.php"),
        ("/get/down/x.jpg/y", "/down/x.jpg/y"),
    ] {
        let answer = fixture.get(path);
        assert_eq!(
            (answer.status(), answer.text()),
            (200, format!("index {info} index.php")),
            "{setting} {path}"
        );
    }
    // Paths that are closed are also closed as PATH_INFO.
    for closed in [
        "/up/evil.php",
        "/index.php/up/evil.php",
        "/index.php/up/x.jpg/y",
        "/get/up/evil.php",
        "/get/up/x.jpg/y",
    ] {
        let response = fixture.get(closed);
        let name = response.header("Howdah-Error");
        assert_eq!(name, Some("Denied"), "{setting} {closed}");
    }
}

#[test]
#[cfg_attr(not(feature = "packages"), ignore = "needs php-cgi")]
fn path_info_chooses_no_script_in_any_mode_whatever_fix_pathinfo_is() {
    for fix_pathinfo in ["0", "1"] {
        for mode in ["embed", "pool", "cgi"] {
            let setting = format!("{mode}, cgi.fix_pathinfo={fix_pathinfo}");
            let mut site = one_script(
                &format!("attack-path-info-{mode}-{fix_pathinfo}"),
                &format!("mode = \"{mode}\""),
            );
            if mode != "embed" {
                site = site.pool(&format!(
                    "[pool.www.php_value]\n\"cgi.fix_pathinfo\" = \"{fix_pathinfo}\""
                ));
            }
            no_path_info_names_a_script(&site.start(), &setting);
        }
        let site = one_script(&format!("attack-path-info-fpm-{fix_pathinfo}"), "");
        let socket = site.scratch().join("fpm.sock").display().to_string();
        let line = format!("php_admin_value[cgi.fix_pathinfo] = {fix_pathinfo}\n");
        let fpm = Fpm::start_at(site.as_site(), site.scratch(), &socket, &line);
        let fixture = site.fastcgi(&format!("unix:{socket}")).start();
        no_path_info_names_a_script(&fixture, &format!("fastcgi, {line}"));
        drop(fixture);
        drop(fpm);
    }
}

#[test]
#[cfg_attr(not(feature = "packages"), ignore = "needs php-cgi")]
fn program_is_not_led_to_a_closed_file_by_path_translated() {
    let fixture = closed_places("attack-translated")
        .file(
            "cgi-bin/open.sh",
            "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n%s\\n' \"$PATH_INFO $PATH_TRANSLATED\"\n",
        )
        .start();
    make_executable(&fixture.path("site/cgi-bin/open.sh"));
    let root = fixture.path("site").canonicalize().unwrap();
    for (info, told) in [
        ("/open/x.md", true),
        ("/private/secret.txt", false),
        ("/closed/secret.txt", false),
        ("/members/secret.txt", false),
        ("/.git/config", false),
    ] {
        let answer = fixture.get(&format!("/cgi-bin/open.sh{info}")).text();
        let file = format!("{}{info}", root.display());
        assert!(answer.starts_with(info), "{info}: {answer}");
        assert_eq!(answer.contains(&file), told, "{info}: {answer}");
    }
}

/// An authorizer that creates variables from the client's input.
const REFLECTING: &str = r#"
use FCGI;
my %env;
my $request = FCGI::Request(\*STDIN, \*STDOUT, \*STDERR, \%env);
while ($request->Accept() >= 0) {
    print "Content-Type: text/plain\r\n";
    print "Variable-$_: $env{HTTP_X_VALUE}\r\n" for split / /, $env{HTTP_X_NAMES};
    print "\r\n";
}
"#;

#[test]
#[cfg_attr(not(feature = "packages"), ignore = "needs php-cgi")]
fn authorizer_that_repeats_a_clients_words_changes_no_process() {
    let fixture = Fixture::named("attack-authorizer")
        .script("env.php", "<?php echo implode(' ', array_intersect(['LD_PRELOAD', 'PATH_TRANSLATED', 'X_TENANT', 'TENANT'], array_keys($_SERVER)));")
        .file("guard.pl", REFLECTING)
        .file("cgi-bin/env.sh", "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'; env\n")
        .pool("[pool.guard]\nmode = \"pool\"\ncommand = [\"/usr/bin/perl\", \"ROOT/guard.pl\"]\nprocesses = \"independent\"\nmax_children = 1\npm = \"static\"\n[pool.programs]\nmode = \"cgi\"\nmax_children = 2")
        .site("[[site.rule]]\nprefix = \"/\"\nauthorizer = \"guard\"\n[[site.rule]]\nprefix = \"/cgi-bin/\"\ncgi = \"programs\"")
        .start();
    make_executable(&fixture.path("site/cgi-bin/env.sh"));
    let names = "LD_PRELOAD PATH PHPRC PHP_INI_SCAN_DIR PERL5OPT IFS PATH_TRANSLATED SCRIPT_FILENAME TENANT X_TENANT AUTH_METHOD REMOTE_USER";
    let ask = |path: &str| {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: h\r\nX-Names: {names}\r\nX-Value: /planted\r\nConnection: close\r\n\r\n"
        );
        http::exchange(fixture.address(), request.as_bytes())
            .unwrap()
            .text()
    };
    let environment = ask("/cgi-bin/env.sh");
    let planted: Vec<&str> = environment
        .lines()
        .filter_map(|line| line.strip_suffix("=/planted"))
        .filter(|name| *name != "HTTP_X_VALUE")
        .collect();
    let mut planted = planted;
    planted.sort_unstable();
    assert_eq!(planted, ["AUTH_METHOD", "REMOTE_USER", "X_TENANT"]);
    fixture.wait_for_log(&["AuthorizerVariable", "LD_PRELOAD"]);
    // Scripts may see these names in $_SERVER, where they have no further effect.
    assert_eq!(ask("/env.php"), "LD_PRELOAD X_TENANT TENANT");
}

#[test]
fn client_chooses_no_section_of_php_ini_by_its_host() {
    // The two sections are the last lines of the site's php.ini.
    let site = |name: &str, hosts: &str| {
        Fixture::named(name)
            .script("agent.php", "<?php echo ini_get('user_agent'), ' ', $_SERVER['SERVER_NAME'], ' ', $_SERVER['HTTP_HOST'];")
            .ini("[HOST=admin.example]\nuser_agent", "admin")
            .ini("[HOST=www.example]\nuser_agent", "www")
            .site(hosts)
            .start()
    };
    let ask = |fixture: &Fixture, host: &str| {
        let request =
            format!("GET /agent.php HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        http::exchange(fixture.address(), request.as_bytes())
            .unwrap()
            .text()
    };
    let named = site("attack-host-named", "hosts = [\"www.example\"]");
    for (host, seen) in [
        ("www.example", "www www.example www.example"),
        ("WWW.example:80", "www WWW.example WWW.example:80"),
        ("admin.example", "www www.example admin.example"),
        ("other.example", "www www.example other.example"),
    ] {
        assert_eq!(ask(&named, host), seen, "{host}");
    }
    // A site without names of its own has no name for which a section could apply.
    let nameless = site("attack-host-nameless", "index = \"index.php\"");
    assert_eq!(
        ask(&nameless, "admin.example"),
        " admin.example admin.example"
    );
}

#[test]
fn status_page_is_not_for_whoever_comes_through_an_unnamed_proxy_of_this_machine() {
    let fixture = Fixture::named("attack-status")
        .config("[status]\npath = \"/howdah-status\"")
        .start();
    // A request with a secret in its query is in progress, and the page shows it.
    let gate = fixture.gate("held");
    let held = fixture.start_get("/hold.php?gate=held&token=TOP-SECRET");
    let standing = gate.wait();
    let ask = |field: &str| {
        let request = format!(
            "GET /howdah-status HTTP/1.1\r\nHost: localhost\r\n{field}Connection: close\r\n\r\n"
        );
        http::exchange(fixture.address(), request.as_bytes()).unwrap()
    };
    let shown = ask("");
    assert!(shown.text().contains("TOP-SECRET"), "{}", shown.text());
    for field in [
        "X-Forwarded-For: 192.0.2.1",
        "X-Forwarded-For: 127.0.0.1",
        "X-Forwarded-Proto: https",
        "Forwarded: for=127.0.0.1",
        "Via: 1.1 proxy",
        "X-Real-IP: 127.0.0.1",
    ] {
        let answer = ask(&format!("{field}\r\n"));
        assert_eq!(answer.status(), 404, "{field}");
        assert!(!answer.text().contains("TOP-SECRET"), "{field}");
    }
    standing.open();
    held.answer();
}
