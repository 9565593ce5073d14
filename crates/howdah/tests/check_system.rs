//! Mistakes and advice that `howdah check` reports and that need more than the configuration's text: files that the
//! server's users cannot open, settings that PHP refuses, redirect loops, hosts without HTTPS.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use support::{Scratch, ServerUnderTest, howdah, run};

/// A user that every Linux system has.
const USER: &str = "nobody";

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Checks a configuration. Returns the exit code, and everything that was printed.
fn check(scratch: &Scratch, text: &str) -> (i32, String) {
    scratch.write("a.toml", text);
    let (code, out, err) = run(howdah(["check", "--config", "a.toml"]).current_dir(&scratch.0));
    (code, err + &out)
}

/// Creates a site in `home/site`. Returns the scratch directory that contains it, and its configuration.
fn site_of_another_user(name: &str) -> (Scratch, String) {
    let scratch = Scratch::new(name);
    scratch.write("home/site/index.php", "<?php echo 'page';");
    scratch.write("home/site/404.html", "none");
    let root = scratch.path("home/site");
    let text = format!(
        "user = \"{USER}\"\n[[site]]\nroot = \"{}\"\n[site.error_pages]\n404 = \"404.html\"\n",
        root.display()
    );
    (scratch, text)
}

#[test]
fn directory_that_stops_the_server_is_named_by_check_and_start() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (scratch, text) = site_of_another_user("closed-parent");
    assert_eq!(check(&scratch, &text).0, 0);
    let home = scratch.path("home");
    set_mode(&home, 0o700);
    let expected = format!(
        "DirectoryUnreadable: site `site1`: the user `{USER}` cannot enter {} (drwx------ root root); run: chmod o+x {0}",
        home.display()
    );
    let (code, said) = check(&scratch, &text);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains(&expected), "{expected}\n{said}");
    let mut serve = howdah(["serve", "--config", "a.toml", "--listen", "127.0.0.1:0"]);
    let (code, _, said) = run(serve.args(["--control", "c.sock"]).current_dir(&scratch.0));
    assert_ne!(code, 0, "{said}");
    assert!(said.contains(&expected), "{expected}\n{said}");
    // The user's group may enter.
    set_mode(&home, 0o710);
    let gid = howdah_os::account::find_user(USER).unwrap().gid;
    std::os::unix::fs::chown(&home, None, Some(gid)).unwrap();
    assert_eq!(check(&scratch, &text).0, 0);
}

#[test]
fn directory_that_stops_a_user_without_privileges_is_named() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new("closed-to-user");
    scratch.write("home/site/index.php", "<?php");
    let home = scratch.path("home");
    set_mode(&home, 0o700);
    let mut command = std::process::Command::new("setpriv");
    command
        .args(["--reuid=5", "--regid=5", "--clear-groups"])
        .args([support::HOWDAH_PROGRAM, "check"])
        .arg(home.join("site"));
    let (code, _, said) = run(&mut command);
    assert_eq!(code, 3, "{said}");
    let expected = format!("cannot enter {} (drwx------ root root)", home.display());
    assert!(said.contains("DirectoryUnreadable: "), "{said}");
    assert!(said.contains(&expected), "{expected}\n{said}");
}

#[test]
fn closed_root_and_unreadable_files_are_advice() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (scratch, text) = site_of_another_user("closed-root");
    let root = scratch.path("home/site");
    for file in ["index.php", "404.html"] {
        let path = root.join(file);
        set_mode(&path, 0o600);
        let (code, said) = check(&scratch, &text);
        let expected = format!(
            "advice: site `site1`: Unreadable: the user `{USER}` cannot read {}",
            path.display()
        );
        assert!(code == 0 && said.contains(&expected), "{expected}\n{said}");
        set_mode(&path, 0o644);
    }
    set_mode(&root, 0o700);
    let (code, said) = check(&scratch, &text);
    let expected = format!("the user `{USER}` cannot enter {}", root.display());
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains(&format!(
            "advice: DirectoryUnreadable: site `site1`: {expected}"
        )),
        "{said}"
    );
    let mut explain = howdah(["explain", "--config", "a.toml", "/"]);
    let (_, _, said) = run(explain.current_dir(&scratch.0));
    assert!(said.contains(&expected), "{said}");
    let config = scratch.path("a.toml").display().to_string();
    let server = ServerUnderTest::start(&scratch, &["--config", &config]);
    let log = server.log();
    assert!(
        log.contains("DirectoryUnreadable") && log.contains(&expected),
        "{log}"
    );
}

#[test]
fn settings_of_a_site_that_php_cannot_parse_are_advice() {
    let scratch = Scratch::new("site-settings");
    scratch.write("web/index.php", "<?php");
    let check_site = |settings: &str| {
        let text = format!("[[site]]\nroot = \"web\"\n[site.php_value]\n{settings}\n");
        let (code, said) = check(&scratch, &text);
        assert_eq!(code, 0, "{said}");
        said
    };
    for (setting, expected) in [
        (
            "memory_limit = \"1GB\"",
            "advice: site `site1`: PHP reports: PHP Warning:  Invalid \"memory_limit\" setting. Invalid quantity \"1GB\"",
        ),
        (
            "\"date.timezone\" = \"Europe/Nowhere\"",
            "Invalid date.timezone value 'Europe/Nowhere'",
        ),
        (
            "error_reporting = \"E_ALL\"",
            "`error_reporting` must be a number in the settings of a site, not `E_ALL`",
        ),
    ] {
        let said = check_site(setting);
        assert!(said.contains(expected), "{setting}\n{said}");
    }
    let said = check_site("memory_limit = \"1G\"\nerror_reporting = 32767");
    assert!(!said.contains("PHP reports"), "{said}");
}

#[test]
fn redirect_loops_are_advice() {
    let scratch = Scratch::new("circles");
    scratch.write("web/index.php", "<?php");
    let count_loops = |rules: &str| {
        let text = format!(
            "listen = \"127.0.0.1:8080\"\n[[site]]\nroot = \"web\"\nhosts = [\"shop.test\", \"www.shop.test\"]\n{rules}"
        );
        let (code, said) = check(&scratch, &text);
        assert_eq!(code, 0, "{said}");
        said.lines()
            .filter(|line| line.contains("RedirectLoop"))
            .count()
    };
    let rule = |lines: &str| format!("[[site.rule]]\n{lines}\n");
    for circle in [
        "redirect = \"http://shop.test$request_uri\"",
        "redirect = \"/new\"",
        "prefix = \"/old\"\nredirect = \"/old/new$1\"",
        "path = \"/a\"\nredirect = \"http://www.shop.test/a\"",
    ] {
        assert_eq!(count_loops(&rule(circle)), 1, "{circle}");
    }
    for straight in [
        // This server has no TLS, so another server gets the request.
        "redirect = \"https://shop.test$request_uri\"",
        "redirect = \"http://other.test$request_uri\"",
        "prefix = \"/old\"\nredirect = \"/new$1\"",
        "redirect = \"http://shop.test$request_uri\"\nheader = { Host = \"www.*\" }",
    ] {
        assert_eq!(count_loops(&rule(straight)), 0, "{straight}");
    }
    // Another rule handles the target, as with a maintenance page.
    let page = rule("path = \"/away\"\nreturn = 503");
    assert_eq!(count_loops(&(page + &rule("redirect = \"/away\""))), 0);
}

#[test]
fn hosts_and_options_of_https_without_tls_are_advice() {
    let scratch = Scratch::new("no-https");
    scratch.write("web/index.php", "<?php");
    let user = match rustix::process::geteuid().is_root() {
        true => "user = \"nobody\"\n",
        false => "",
    };
    let count_advice = |top: &str, site: &str| {
        let text = format!("{user}{top}\n[[site]]\nroot = \"web\"\n{site}\n");
        let (code, said) = check(&scratch, &text);
        assert_eq!(code, 0, "{said}");
        said.lines().filter(|line| line.contains("NoHttps")).count()
    };
    let public = "hosts = \"example.org\"";
    assert_eq!(count_advice("listen = \":8080\"", public), 1);
    assert_eq!(count_advice("", "https_redirect = true"), 1);
    assert_eq!(count_advice("", "hsts = \"max-age=60\""), 1);
    // The server listens on loopback only, or the host is not public.
    assert_eq!(count_advice("", public), 0);
    assert_eq!(
        count_advice("listen = \":8080\"", "hosts = \"shop.test\""),
        0
    );
    // A proxy handles TLS.
    let proxy = "listen = \":8080\"\n[trusted_proxies]\nnetworks = \"10.0.0.1\"";
    assert_eq!(count_advice(proxy, public), 0);
    assert_eq!(count_advice(proxy, "https_redirect = true"), 0);
}
