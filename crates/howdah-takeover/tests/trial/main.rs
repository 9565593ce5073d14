//! `howdah takeover try` beside real servers: what is equal is found equal, and each planted fault is found.

mod machine;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use howdah_takeover::plan::{Plan, PlannedSite};
use howdah_takeover::trial::{DifferenceName, Trial, TriedSite, UnjudgedReason, Verdict};
use howdah_test_support::process::{Process, wait_until};
use howdah_test_support::process_tree::left_behind;
use machine::{Machine, Tried, run_try};

/// Sites of nginx: a shop with HTTPS, an application whose page has a time and a nonce, and one that sends other text
/// each time.
const SERVERS: &str = r#"
server { listen @plain@; server_name shop.test; access_log @dir@/log/shop-plain.log;
    return 301 https://shop.test:@tls-port@$request_uri; }
server {
    listen @tls@ ssl; server_name shop.test; root @dir@/shop.test; index index.php;
    access_log @dir@/log/shop.test.log;
    add_header X-Frame-Options DENY always;
    location / { try_files $uri $uri/ =404; }
    location = /old { return 301 /page.php?id=1; }
    location ^~ /private/ { deny all; }
    location = /xmlrpc.php { deny all; }
    location = /cron.php { deny all; }
    @php@
}
server {
    listen @plain@; server_name clock.test; root @dir@/clock.test; index index.php;
    access_log @dir@/log/clock.test.log;
    location / { try_files $uri $uri/ /index.php?$args; }
    @php@
}
server {
    listen @plain@; server_name random.test; root @dir@/random.test; index index.php;
    access_log @dir@/log/random.test.log;
    location / { try_files $uri $uri/ =404; }
    @php@
}
"#;

const SHOP: &str = r#"<?php header('Cache-Control: no-cache'); setcookie('visit', '1'); ?>
<html><head><link rel="stylesheet" href="/style.css"></head>
<body>Welcome to <?= $_SERVER['HTTP_HOST'] ?>, port <?= $_SERVER['SERVER_PORT'] ?>, <?= ctype_alpha('abc') ? 'yes' : 'no' ?></body></html>
"#;

const CLOCK: &str = r#"<?php $begin = microtime(true); ?>
<html><body><input type="hidden" name="csrf" value="<?= bin2hex(random_bytes(16)) ?>">
<p>A text that never changes, however often a visitor asks for it.</p>
<footer>It is <?= date('H:i:s') ?>; the page took <?= microtime(true) - $begin ?> s.</footer></body></html>
"#;

/// The paths of the shop that nginx denies.
const DENIED: &[&str] = &["/private/secret.txt", "/xmlrpc.php", "/cron.php"];

fn nginx(name: &str) -> Machine {
    let machine = Machine::nginx(name, SERVERS);
    machine.write("shop.test/index.php", SHOP);
    machine.write(
        "shop.test/page.php",
        "<?php echo 'Page ', (int) $_GET['id'], \"\\n\";",
    );
    machine.write(
        "shop.test/style.css",
        &"body { color: black; }\n".repeat(200),
    );
    machine.write("shop.test/docs/index.php", "<?php echo 'The documents';");
    machine.write("shop.test/private/secret.txt", "a secret");
    let touch = "<?php file_put_contents('@dir@/tmp/' . basename(__FILE__), ''); echo 'done';";
    for script in ["xmlrpc.php", "cron.php", "logout.php", "unsubscribe.php"] {
        machine.write(&format!("shop.test/{script}"), touch);
    }
    machine.write(
        "shop.test/sitemap.xml",
        "<urlset><url><loc>https://shop.test:@tls-port@/page.php?id=7</loc></url><url><loc>https://shop.test/logout.php</loc></url></urlset>",
    );
    machine.write("clock.test/index.php", CLOCK);
    // A directory without an index: nginx refuses to list it, and Howdah treats it as missing.
    machine.write("clock.test/css/a.css", "body { color: red; }");
    machine.write(
        "random.test/index.php",
        "<?php for ($i = 0; $i < 500; $i++) echo bin2hex(random_bytes(8)), ' ';",
    );
    machine
}

/// Adds lines of visitors to the old server's log.
fn log_requests(machine: &Machine, site: &str, requests: &[(&str, u16)]) {
    let line = |(request, status): &(&str, u16)| {
        format!(
            "192.0.2.1 - - [23/Nov/2026:10:00:00 +0000] \"{request} HTTP/1.1\" {status} 5 \"-\" \"-\"\n"
        )
    };
    let lines: String = requests.iter().map(line).collect();
    fs::write(machine.path(&format!("log/{site}.log")), lines).unwrap();
}

fn trial(machine: &Machine) -> Trial {
    Trial::read(&machine.path("takeover")).unwrap()
}

fn site<'a>(trial: &'a Trial, name: &str) -> &'a TriedSite {
    trial.sites.iter().find(|site| site.name == name).unwrap()
}

fn assert_code(tried: &Tried, code: i32) {
    assert_eq!(tried.code, Some(code), "{}\n{}", tried.output, tried.errors);
}

#[test]
fn sites_that_respond_alike_are_equal() {
    let machine = nginx("try-equal");
    machine.plan(&[("shop.test", DENIED), ("clock.test", &[])]);
    // The log is read before the trial; nginx continues to write to the file.
    log_requests(
        &machine,
        "shop.test",
        &[
            ("GET /page.php?id=5", 200),
            ("GET /logout.php", 200),
            ("GET /page.php?action=drop", 200),
            ("POST /page.php?id=6", 200),
            ("GET /unsubscribe.php?u=1", 403),
            ("GET /private/../private/x?y", 403),
            ("GET /old", 301),
        ],
    );
    log_requests(&machine, "clock.test", &[("GET /css/", 403)]);
    let tried = machine.try_takeover(&[]);
    assert_code(&tried, 0);
    assert!(
        tried
            .output
            .contains("2 equal, 0 differ, 0 cannot be judged"),
        "{}",
        tried.output
    );
    assert_eq!(tried.errors, "", "there is no terminal");
    let trial = trial(&machine);
    assert_eq!(
        trial.configuration_is_current(&machine.path("takeover")),
        Ok(true)
    );
    assert!(site(&trial, "shop.test").asked > 15, "{trial:?}");
    assert!(left_behind(&machine.path("takeover")).is_empty());

    let log = machine.log("shop.test");
    for requested in [
        "GET /page.php?id=5 ",
        "GET /page.php?id=7 ",
        "GET /private/secret.txt ",
        "GET /docs ",
        "GET /style.css ",
    ] {
        assert!(log.contains(requested), "{requested}\n{log}");
    }
    let own: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("howdah-takeover"))
        .collect();
    for never in [
        "logout",
        "action=",
        "POST",
        "unsubscribe",
        "cron.php",
        "xmlrpc",
    ] {
        assert!(
            own.iter().all(|line| !line.contains(never)),
            "{never}\n{log}"
        );
    }
    let written = fs::read_dir(machine.path("tmp")).unwrap().flatten();
    let scripts: Vec<_> = written.filter(|entry| entry.path().is_file()).collect();
    assert!(scripts.is_empty(), "{scripts:?}");
    // The configuration is another one now.
    let path = machine.path("takeover/howdah.toml");
    let changed = fs::read_to_string(&path).unwrap() + "\n# changed\n";
    fs::write(path, changed).unwrap();
    assert_eq!(
        trial.configuration_is_current(&machine.path("takeover")),
        Ok(false)
    );
}

#[test]
fn plan_of_running_servers_is_tried() {
    let machine = nginx("try-planned");
    log_requests(&machine, "shop.test", &[("GET /page.php?id=5", 200)]);
    machine.plan_with_program();
    let plan = Plan::read(&machine.path("takeover")).unwrap();
    let denies_secret = |site: &&PlannedSite| {
        site.denied_paths
            .contains(&"/private/secret.txt".to_owned())
    };
    let shop = plan.sites.iter().find(denies_secret).unwrap();
    machine.try_takeover(&[]);
    let trial = trial(&machine);
    let verdicts =
        ["shop.test", "clock.test", "random.test"].map(|name| site(&trial, name).verdict);
    let expected = [Verdict::Equal, Verdict::Equal, Verdict::CannotBeJudged];
    assert_eq!(verdicts, expected, "{trial:#?}");

    let file = machine.path("takeover").join(&shop.file);
    let text = fs::read_to_string(&file).unwrap();
    let parts: Vec<&str> = text.split("\n[[").collect();
    let kept = parts.iter().filter(|part| !part.contains("/private/"));
    fs::write(&file, kept.copied().collect::<Vec<_>>().join("\n[[")).unwrap();
    assert_code(&machine.try_takeover(&[]), 1);
    let opened = Trial::read(&machine.path("takeover")).unwrap();
    assert!(
        opened
            .opened_paths()
            .any(|(_, one)| one.request.ends_with("/private/secret.txt"))
    );
}

#[test]
fn site_that_responds_differently_each_time_cannot_be_judged() {
    let machine = nginx("try-random");
    machine.plan(&[("random.test", &[])]);
    let tried = machine.try_takeover(&["--json"]);
    assert_code(&tried, 1);
    let trial: Trial = serde_json::from_str(&tried.output).unwrap();
    let random = site(&trial, "random.test");
    assert_eq!(random.verdict, Verdict::CannotBeJudged, "{random:?}");
    assert_eq!(random.reason, Some(UnjudgedReason::ResponsesVary));
}

#[test]
fn denied_paths_that_howdah_would_serve_are_found() {
    let machine = nginx("try-opens");
    machine.plan(&[("shop.test", DENIED)]);
    machine.remove_rules("/private/");
    machine.remove_rules("/cron.php");
    let tried = machine.try_takeover(&[]);
    assert_code(&tried, 1);
    let trial = trial(&machine);
    let opened: Vec<&str> = trial
        .opened_paths()
        .map(|(_, one)| one.request.as_str())
        .collect();
    let shop = format!("https://shop.test:{}", machine.tls.port());
    assert_eq!(
        opened,
        [
            format!("GET {shop}/private/secret.txt"),
            format!("GET {shop}/cron.php")
        ]
    );
    assert!(
        tried.output.contains("OpensDenied: GET"),
        "{}",
        tried.output
    );
    assert!(
        tried.output.contains("Howdah would serve 2 denied paths"),
        "{}",
        tried.output
    );
    assert!(
        !machine.path("tmp/cron.php").exists(),
        "the script has not run"
    );
}

#[test]
fn missing_extension_is_explained() {
    let machine = nginx("try-extension");
    machine.plan(&[("shop.test", DENIED)]);
    fs::create_dir(machine.path("no-extensions")).unwrap();
    let mut command = machine.command(&[]);
    let tried = run_try(command.env("PHP_INI_SCAN_DIR", machine.path("no-extensions")));
    assert_code(&tried, 1);
    let trial = trial(&machine);
    let first = &site(&trial, "shop.test").differences[0];
    assert_eq!(first.name, DifferenceName::ServerError, "{first:?}");
    assert!(
        first
            .cause
            .contains("Call to undefined function ctype_alpha()"),
        "{first:?}"
    );
    assert!(first.remedy.contains("extension"), "{first:?}");
}

#[test]
fn differences_of_headers_redirects_and_files_are_found() {
    let machine = nginx("try-differences");
    machine.plan(&[("shop.test", DENIED)]);
    log_requests(
        &machine,
        "shop.test",
        &[("GET /old", 301), ("GET /page.php?id=5", 200)],
    );
    machine.remove_rules("X-Frame-Options");
    machine.remove_rules("\"/old\"");
    let path = machine.path("takeover/howdah.toml");
    let text = fs::read_to_string(&path).unwrap();
    machine.make_certificate("other");
    let text = text.replace("/cert.pem", "/other-cert.pem");
    let text = text.replace("/key.pem", "/other-key.pem");
    fs::write(&path, format!("{text}\n[compression]\ncodings = \"off\"\n")).unwrap();
    let tried = machine.try_takeover(&[]);
    assert_code(&tried, 1);
    let trial = trial(&machine);
    let names: Vec<DifferenceName> = site(&trial, "shop.test")
        .differences
        .iter()
        .map(|one| one.name)
        .collect();
    for name in [
        DifferenceName::StatusDiffers,
        DifferenceName::CertificateDiffers,
        DifferenceName::SecurityHeaderDiffers,
        DifferenceName::CompressionDiffers,
    ] {
        assert!(names.contains(&name), "{name}: {names:?}\n{}", tried.output);
    }
    assert_eq!(
        names[0],
        DifferenceName::StatusDiffers,
        "the most important is the first"
    );
}

#[test]
fn apache_with_htaccess_is_equal() {
    let machine = Machine::apache(
        "try-apache",
        "<VirtualHost @plain@>\n ServerName blog.test\n DocumentRoot @dir@/blog.test\n\
         CustomLog @dir@/log/blog.test.log combined\n\
         <Directory @dir@/blog.test>\n Require all granted\n AllowOverride All\n Options FollowSymLinks\n </Directory>\n</VirtualHost>\n",
    );
    machine.write(
        "blog.test/.htaccess",
        "RewriteEngine on\nRewriteRule ^post/([0-9]+)$ index.php?post=$1 [L]\nRewriteRule ^moved$ /index.php [R=301,L]\n\
         <Files \"config.php\">\nRequire all denied\n</Files>\n",
    );
    machine.write("blog.test/index.php", "<?php echo 'Post ', $_GET['post'] ?? 'none', ' ', uniqid(), ' of the blog with a long name';");
    machine.write("blog.test/config.php", "<?php echo 'configured';");
    machine.write("blog.test/data/.htaccess", "Require all denied\n");
    machine.write("blog.test/data/users.txt", "names");
    machine.plan(&[(
        "blog.test",
        &["/config.php", "/data/users.txt", "/.htaccess"],
    )]);
    log_requests(
        &machine,
        "blog.test",
        &[
            ("GET /post/5", 200),
            ("GET /moved", 301),
            ("GET /data/users.txt", 403),
        ],
    );
    let tried = machine.try_takeover(&[]);
    assert_code(&tried, 0);
    let log = machine.log("blog.test");
    for requested in ["/post/5 ", "/moved ", "/data/users.txt "] {
        assert!(log.contains(requested), "{requested}\n{log}");
    }
    // The old server may run a denied script for requests of this machine.
    assert!(!log.contains("/config.php "), "{log}");

    // Without the files, everything is open.
    fs::remove_file(machine.path("blog.test/data/.htaccess")).unwrap();
    let path = machine.path("takeover/howdah.toml");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("htaccess = \"on\""), "{text}");
    fs::write(
        &path,
        text.replace("htaccess = \"on\"", "htaccess = \"off\""),
    )
    .unwrap();
    let tried = machine.try_takeover(&[]);
    assert_code(&tried, 1);
    assert!(
        tried.output.contains("OpensDenied: GET"),
        "{}",
        tried.output
    );
}

#[test]
fn old_server_that_does_not_respond_is_named() {
    let mut machine = nginx("try-dead");
    machine.plan(&[("shop.test", DENIED), ("clock.test", &[])]);
    machine.stop_old_servers();
    let tried = machine.try_takeover(&[]);
    assert_code(&tried, 6);
    assert!(
        tried.errors.contains("OldServerUnreachable"),
        "{}",
        tried.errors
    );
    let trial = trial(&machine);
    assert_eq!(
        site(&trial, "shop.test").reason,
        Some(UnjudgedReason::OldServerUnreachable)
    );
    assert!(left_behind(&machine.path("takeover")).is_empty());
}

#[test]
fn preview_that_does_not_start_is_explained_by_howdah() {
    let machine = nginx("try-broken");
    machine.plan(&[("shop.test", DENIED)]);
    let path = machine.path("takeover/howdah.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("no_such_key = 1\n{text}")).unwrap();
    let tried = machine.try_takeover(&[]);
    assert_code(&tried, 3);
    assert!(
        tried.errors.contains("PreviewDoesNotStart"),
        "{}",
        tried.errors
    );
    assert!(tried.errors.contains("no_such_key"), "{}", tried.errors);
    assert!(!machine.path("takeover/trial.json").exists());
    assert!(left_behind(&machine.path("takeover")).is_empty());
    let tried = run_try(machine.command(&[]).env("PATH", "/nowhere"));
    assert!(
        tried.errors.contains("PreviewDoesNotStart"),
        "{}",
        tried.errors
    );
}

#[test]
fn preview_ends_when_the_trial_is_killed() {
    let machine = nginx("try-killed");
    machine.plan(&[("shop.test", DENIED)]);
    // SIGINT acts like SIGTERM, but a shell has it ignored by what runs in the background, perhaps by this test.
    for signal in [rustix::process::Signal::KILL, rustix::process::Signal::TERM] {
        // With this pause, the trial takes most of a minute: it does not end before the signal on any machine.
        let mut running = Process::start("try", &mut machine.command(&["--pause", "3s"]));
        let is_asked = || machine.log("shop.test").contains("howdah-takeover");
        wait_until("the first request", Duration::from_secs(60), is_asked);
        let second = machine.try_takeover(&[]);
        assert!(
            second.errors.contains("TrialInProgress"),
            "{}",
            second.errors
        );
        running.signal(signal);
        let status = running.wait_exit(Duration::from_secs(10)).unwrap();
        assert_eq!(status.signal(), Some(signal.as_raw()));
        fs::write(machine.path("log/shop.test.log"), "").unwrap();
        if signal == rustix::process::Signal::KILL {
            machine.wait_until_preview_is_gone();
        }
    }
    // The next trial waits for the preview of the one that was interrupted.
    assert_code(&machine.try_takeover(&[]), 0);
    machine.wait_until_preview_is_gone();
}
