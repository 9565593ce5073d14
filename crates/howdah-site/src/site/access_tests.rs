use std::fs;

use super::super::config::{Authorizer, FrontController, InternalLocation, SiteRule};
use super::super::description::build_request;
use super::super::pattern::PathPattern;
use super::super::template::RuleTemplate;
use super::super::{ConfigError, RouteAction};
use super::*;

/// Returns a site with at least one path that is closed by each kind of refusal.
fn site(
    change: impl FnOnce(&mut SiteConfig),
) -> (tempfile::TempDir, Result<Site, Vec<ConfigError>>) {
    let dir = tempfile::tempdir().unwrap();
    for sub in ["private", "cgi-bin", "members", "closed", "up", "d"] {
        fs::create_dir(dir.path().join(sub)).unwrap();
    }
    for file in [
        "index.php",
        "a.css",
        "page.html",
        "page.html.gz",
        ".env",
        "x.phpbak",
        "private/s.txt",
        "private/s.php",
        "private/index.html",
        "cgi-bin/a.pl",
        "cgi-bin/secret.pl",
        "members/m.txt",
        "closed/c.txt",
        "closed/c.php",
        "up/u.php",
        "d/index.php",
    ] {
        fs::write(dir.path().join(file), file).unwrap();
    }
    let rule = |prefix: &str, action| SiteRule::new(PathPattern::prefix(prefix).unwrap(), action);
    let mut config = SiteConfig::for_tests("s", dir.path());
    config.php_extensions.push(".html".into());
    config.expose = vec![PathPattern::glob("**.phpbak").unwrap()];
    config.deny = ["/private/**", "/cgi-bin/secret.pl", "/d/index.php"]
        .map(|glob| PathPattern::glob(glob).unwrap())
        .to_vec();
    let authorizer = Authorizer {
        pool: "guard".into(),
        script: String::new(),
    };
    config.rules = vec![
        rule("/members", RuleAction::Authorize(authorizer)),
        rule("/closed", RuleAction::Deny(404)),
        rule("/cgi-bin/", RuleAction::Cgi("programs".into())),
        rule(
            "/to",
            RuleAction::Rewrite(RuleTemplate::parse("$1").unwrap()),
        ),
    ];
    change(&mut config);
    (dir, Site::new(config, 0))
}

fn by_script(site: &Site, target: &str, permitted: &[usize]) -> Result<String, (Refusal, u16)> {
    let head = build_request("GET", "h", "/script.php").unwrap();
    let plan = site.accel_redirect(
        target.as_bytes(),
        RuleRequest::without_client(&head),
        permitted,
        None,
    );
    plan.map(|plan| String::from_utf8(plan.relative).unwrap())
        .map_err(|refused| (refused.refusal, refused.status))
}

#[test]
fn accel_redirect_sends_nothing_that_a_client_is_refused() {
    use Refusal::{Denied, DotFile, NotAuthorized, NotFound, ProgramSource};
    let (_dir, site) = site(|_| {});
    let site = site.unwrap();
    for (target, expected) in [
        ("/a.css", Ok("a.css")),
        ("/private/s.txt", Err((Denied, 403))),
        ("/private/../private/s.txt", Err((Denied, 403))),
        ("/%70rivate/s.txt", Err((Denied, 403))),
        ("/closed/c.txt", Err((Denied, 404))),
        ("/members/m.txt", Err((NotAuthorized, 403))),
        ("/cgi-bin/a.pl", Err((ProgramSource, 404))),
        ("/index.php", Err((ProgramSource, 404))),
        ("/index.php/", Err((NotFound, 404))),
        ("/page.html", Err((ProgramSource, 404))),
        ("/page.html.gz", Err((ProgramSource, 404))),
        ("/.env", Err((DotFile, 404))),
        // A path that the site exposes is exposed to scripts as well.
        ("/x.phpbak", Ok("x.phpbak")),
    ] {
        let expected = expected.map(str::to_owned);
        assert_eq!(by_script(&site, target, &[]), expected, "{target}");
    }
    assert_eq!(
        by_script(&site, "/members/m.txt", &[0]),
        Ok("members/m.txt".into())
    );
}

#[test]
fn access_check_applies_to_every_way_to_a_file() {
    let (_dir, site) = site(|_| {});
    let site = site.unwrap();
    for (target, expected) in [
        ("/a.css", "200"),
        ("/x.phpbak", "200"),
        ("/private/s.txt", "403 Denied"),
        ("/private/s.php/a.css", "403 Denied"),
        ("/to/private/s.txt", "403 Denied"),
        ("/to/private/s.php", "403 Denied"),
        ("/to/private/", "403 Denied"),
        ("/d/", "403 Denied"),
        ("/closed/c.php", "404 Denied"),
        ("/closed/c.php/a.css", "404 Denied"),
        ("/cgi-bin/a.pl", "run"),
        ("/cgi-bin/a.pl/info", "run"),
        ("/cgi-bin/secret.pl", "403 Denied"),
        ("/cgi-bin/secret.pl/info", "403 Denied"),
        // The rule that executes programs comes before the rewrite: the programs' text is not sent either.
        ("/to/cgi-bin/a.pl", "404 ProgramSource"),
        // Applications treat the path behind a front controller as the route of that path.
        ("/index.php/private/s.php", "403 Denied"),
        ("/index.php/a/s.php", "run"),
    ] {
        let head = build_request("GET", "h", target).unwrap();
        assert_eq!(in_words(site.route(&head).action), expected, "{target}");
    }
}

fn in_words(action: RouteAction) -> String {
    match action {
        RouteAction::Static(_) => "200".to_owned(),
        RouteAction::Script(_) => "run".to_owned(),
        RouteAction::Refused {
            status, refusal, ..
        } => format!("{status} {refusal}"),
        other => format!("{other:?}"),
    }
}

/// Returns a site whose `.htaccess` files lead to paths that its rules close.
fn led_by_files(change: impl FnOnce(&mut SiteConfig)) -> (tempfile::TempDir, Site) {
    let (dir, site) = site(|config| {
        config.htaccess = HtaccessMode::On;
        let path = |path: &str, action| SiteRule::new(PathPattern::exact(path).unwrap(), action);
        let mut posted = path("/up/u.php", RuleAction::Deny(403));
        posted.conditions.methods = vec!["POST".into()];
        let index = path("/index.php", RuleAction::Deny(410));
        config.rules.extend([posted, index]);
        change(config);
    });
    let leads =
        "RewriteEngine On\nRewriteRule ^(.*)-led$ /$1 [L]\nErrorDocument 404 /closed/c.txt\n";
    fs::write(dir.path().join(".htaccess"), leads).unwrap();
    let index = "DirectoryIndex /closed/c.php\n";
    fs::write(dir.path().join("up/.htaccess"), index).unwrap();
    (dir, site.unwrap())
}

#[test]
fn htaccess_targets_are_refused_like_client_paths() {
    let (_dir, site) = led_by_files(|_| {});
    for (asked, expected) in [
        ("GET /a.css-led", "200"),
        ("GET /closed/c.txt-led", "404 Denied"),
        ("GET /closed/c.php-led", "404 Denied"),
        ("GET /private/s.txt-led", "403 Denied"),
        ("GET /up/", "404 Denied"),
        ("GET /missing", "404 Denied"),
        ("GET /up/u.php-led", "run"),
        ("POST /up/u.php-led", "403 Denied"),
        ("POST /up/u.php/info", "403 Denied"),
        ("GET /", "410 Denied"),
        ("GET /index.php-led", "410 Denied"),
        // The administrator is responsible for where the site's own rules lead.
        ("GET /to/closed/c.php", "run"),
        ("POST /to/up/u.php/info", "run"),
        ("GET /to/closed/c.php-led", "404 Denied"),
    ] {
        let (method, target) = asked.split_once(' ').unwrap();
        let head = build_request(method, "h", target).unwrap();
        assert_eq!(in_words(site.route(&head).action), expected, "{asked}");
    }
    let head = build_request("GET", "h", "/members/m.txt-led").unwrap();
    let route = site.route(&head);
    assert_eq!(route.info.guard_rules(), [0], "an authorizer is asked");
    for (document, is_sent) in [
        ("/a.css", true),
        ("/closed/c.txt", false),
        ("/members/m.txt", false),
        ("/private/s.txt", false),
    ] {
        let opened = site.error_document(document, RuleRequest::without_client(&head));
        assert_eq!(opened.is_some(), is_sent, "{document}");
    }
}

#[test]
fn front_controller_runs_although_clients_may_not_name_it() {
    let (_dir, site) = led_by_files(|config| {
        config.front_controller = Some(FrontController {
            script: "/index.php".into(),
            path_info: false,
        });
    });
    for (target, expected) in [
        ("/", "run"),
        ("/missing", "run"),
        ("/index.php-led", "run"),
        ("/index.php", "410 Denied"),
        ("/index.php/info", "410 Denied"),
    ] {
        let head = build_request("GET", "h", target).unwrap();
        assert_eq!(in_words(site.route(&head).action), expected, "{target}");
    }
}

#[test]
fn error_page_is_checked_like_any_other_file() {
    for (page, expected) in [
        ("a.css", None),
        ("/a.css", None),
        ("index.php", Some(Refusal::ProgramSource)),
        ("page.html", Some(Refusal::ProgramSource)),
        ("private/s.txt", Some(Refusal::Denied)),
        (".env", Some(Refusal::DotFile)),
        ("../x", Some(Refusal::AboveRoot)),
    ] {
        let (_dir, site) = site(|config| config.error_pages = vec![(404, page.to_owned())]);
        let found = match site {
            Ok(site) => {
                let asked = build_request("GET", "h", "/").unwrap();
                assert!(site.error_page(page, &asked).is_some(), "{page}");
                None
            }
            Err(errors) => match errors[..] {
                [ConfigError::BadErrorPage(_, refusal)] => Some(refusal),
                _ => panic!("{page}: {errors:?}"),
            },
        };
        assert_eq!(found, expected, "{page}");
    }
}

#[test]
fn sendfile_directories_are_not_subject_to_the_sites_refusals() {
    let (dir, site) = site(|config| {
        config.internal = vec![InternalLocation {
            prefix: "/protected/".into(),
            root: config.root.join("private"),
        }];
    });
    let site = site.unwrap();
    assert_eq!(
        by_script(&site, "/protected/s.txt", &[]),
        Ok("s.txt".into())
    );
    drop(dir);
}

#[test]
fn path_translated_names_nothing_that_is_closed() {
    let (_dir, site) = site(|_| {});
    let site = site.unwrap();
    for (target, translated) in [
        ("/index.php/a/b", true),
        ("/index.php/up/u.php", true),
        ("/cgi-bin/a.pl/a.css", true),
        ("/cgi-bin/a.pl/private/s.txt", false),
        ("/cgi-bin/a.pl/closed/c.txt", false),
        ("/cgi-bin/a.pl/members/m.txt", false),
        ("/cgi-bin/a.pl/.env", false),
    ] {
        let head = build_request("GET", "h", target).unwrap();
        let RouteAction::Script(found) = site.route(&head).action else {
            panic!("{target}");
        };
        assert!(!found.script.path_info().is_empty(), "{target}");
        assert_eq!(
            found.script.path_translated().is_some(),
            translated,
            "{target}"
        );
    }
}

#[test]
fn password_file_that_an_htaccess_file_names_is_never_sent() {
    let (dir, site) = site(|config| config.htaccess = HtaccessMode::On);
    let site = site.unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("up/users"), "owner:hash").unwrap();
    fs::write(at("up/groups"), "staff: owner").unwrap();
    std::os::unix::fs::symlink(at("up/users"), at("d/linked")).unwrap();
    let names = format!(
        "AuthUserFile {}\nAuthGroupFile up/groups\n",
        at("d/linked").display()
    );
    fs::write(at(".htaccess"), names).unwrap();
    let head = |target| build_request("GET", "h", target).unwrap();
    for target in ["/up/users", "/up/groups", "/d/linked", "/to/up/users"] {
        let action = site.route(&head(target)).action;
        let RouteAction::Refused { refusal, .. } = action else {
            panic!("{target}: {action:?}");
        };
        assert_eq!(refusal, Refusal::PasswordFile, "{target}");
    }
    assert!(by_script(&site, "/up/users", &[]).is_err());
    // No other file is treated as a password file.
    assert!(matches!(
        site.route(&head("/a.css")).action,
        RouteAction::Static(_)
    ));
    // An editor that rewrites `.htaccess` removes the line for a moment: the password file stays closed.
    fs::write(at(".htaccess"), "").unwrap();
    let action = site.route(&head("/up/users")).action;
    assert!(matches!(action, RouteAction::Refused { .. }), "{action:?}");
}
