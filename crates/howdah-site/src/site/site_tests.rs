//! Hosts, mistakes in a configuration, and roots that are moved.

use std::fs;

use super::*;
use crate::refusal::Refusal;
use crate::site::config::{
    FrontController, HeaderEdit, HostPattern, RuleAction, SiteRule, TryFile,
};
use crate::site::pattern::PathPattern;
use crate::site::template::RuleTemplate;

fn site(name: &str, hosts: &[&str], root: &std::path::Path) -> Arc<Site> {
    let mut config = SiteConfig::for_tests(name, root);
    config.hosts = hosts
        .iter()
        .map(|h| HostPattern::parse(h).unwrap())
        .collect();
    Arc::new(Site::new(config, 0).unwrap())
}

#[test]
fn host_selects_exact_then_longest_wildcard_then_default() {
    let dir = tempfile::tempdir().unwrap();
    let sites = Sites::new(
        vec![
            site("first", &[], dir.path()),
            site("example", &["Example.org", "www.example.org"], dir.path()),
            site("below", &["*.example.org"], dir.path()),
            site("deeper", &["*.x.example.org"], dir.path()),
            site("address", &["192.0.2.1", "[2001:db8::1]"], dir.path()),
        ],
        Vec::new(),
    )
    .unwrap();
    for (host, expected) in [
        ("example.org", "example"),
        ("EXAMPLE.ORG:8080", "example"),
        ("example.org.", "example"),
        ("www.example.org", "example"),
        ("a.example.org", "below"),
        ("a.b.example.org", "below"),
        ("a.x.example.org", "deeper"),
        ("x.example.org", "below"),
        ("notexample.org", "first"),
        (".example.org", "first"),
        ("192.0.2.1", "address"),
        ("[2001:DB8::1]:443", "address"),
        ("", "first"),
        ("\u{e9}", "first"),
        (":80", "first"),
    ] {
        assert_eq!(
            sites.find("127.0.0.1:80", host.as_bytes()).config().name,
            expected,
            "{host}"
        );
    }
}

/// Returns a site that answers only at these listeners.
fn own(name: &str, hosts: &[&str], listen: &[&str], root: &std::path::Path) -> Arc<Site> {
    let site = site(name, hosts, root);
    let mut config = site.config().clone();
    config.listen = listen.iter().map(|text| (*text).to_owned()).collect();
    Arc::new(Site::new(config, 0).unwrap())
}

#[test]
fn site_with_its_own_listeners_answers_at_no_other() {
    const PUBLIC: &str = "0.0.0.0:80";
    const ADMIN: &str = "127.0.0.1:8081";
    let dir = tempfile::tempdir().unwrap();
    let sites = Sites::new(
        vec![
            own("admin", &["shop.test"], &[ADMIN], dir.path()),
            site("shop", &["shop.test"], dir.path()),
            site("blog", &["blog.test"], dir.path()),
            own(
                "both",
                &["both.test"],
                &[PUBLIC, "unix:/run/both.sock"],
                dir.path(),
            ),
        ],
        vec![PUBLIC.to_owned(), "0.0.0.0:443".to_owned()],
    )
    .unwrap();
    for (listener, host, expected) in [
        (PUBLIC, "shop.test", "shop"),
        (PUBLIC, "blog.test", "blog"),
        (PUBLIC, "both.test", "both"),
        (PUBLIC, "else.test", "shop"),
        ("0.0.0.0:443", "both.test", "shop"),
        (ADMIN, "shop.test", "admin"),
        (ADMIN, "blog.test", "admin"),
        ("unix:/run/both.sock", "shop.test", "both"),
        // A connection of a listener that a reload has removed.
        ("127.0.0.1:9999", "both.test", "shop"),
    ] {
        let site = sites.find(listener, host.as_bytes());
        assert_eq!(site.config().name, expected, "{host} at {listener}");
        assert!(Sites::answers_at(site, listener));
    }
    for (https, host, expected) in [
        (false, "shop.test", ("shop", Some(PUBLIC))),
        (true, "shop.test:80", ("shop", Some(PUBLIC))),
        (false, "shop.test:8081", ("admin", Some(ADMIN))),
        (false, "blog.test:8081", ("admin", Some(ADMIN))),
        (false, "both.test", ("both", Some(PUBLIC))),
        (true, "both.test", ("shop", None)),
        // The ports of a proxy in front of the server.
        (true, "both.test:9443", ("both", Some(PUBLIC))),
        (true, "else.test:9443", ("shop", None)),
    ] {
        let (site, listener) = sites.find_for_url(https, host.as_bytes());
        assert_eq!(
            (site.config().name.as_str(), listener),
            expected,
            "{host}, {https}"
        );
    }
}

#[test]
fn sites_with_their_own_listeners_answer_nowhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let sites = vec![
        own("a", &["x.test"], &["127.0.0.1:81"], dir.path()),
        own("b", &["x.test"], &["127.0.0.1:82"], dir.path()),
    ];
    let sites = Sites::new(sites, Vec::new()).unwrap();
    assert_eq!(sites.find("127.0.0.1:82", b"x.test").config().name, "b");
    assert!(!Sites::answers_at(
        sites.find("127.0.0.1:83", b"x.test"),
        "127.0.0.1:83"
    ));
}

#[test]
fn host_belongs_to_one_site_of_a_listener() {
    let dir = tempfile::tempdir().unwrap();
    let listen = ["127.0.0.1:81", "127.0.0.1:82"];
    let two = |more: &[&str]| {
        let sites = vec![
            own("a", &["x.test", "y.test"], &listen, dir.path()),
            own("b", &["x.test", "y.test"], more, dir.path()),
        ];
        Sites::new(sites, Vec::new())
    };
    assert!(two(&["127.0.0.1:83"]).is_ok());
    assert_eq!(two(&listen).unwrap_err().len(), 2);
}

#[test]
fn host_belongs_to_one_site() {
    let dir = tempfile::tempdir().unwrap();
    let errors = Sites::new(
        vec![
            site("one", &["a.org", "*.b.org"], dir.path()),
            site("two", &["A.org", "*.b.org"], dir.path()),
        ],
        Vec::new(),
    )
    .unwrap_err();
    assert_eq!(errors.len(), 2);
    assert_eq!(
        errors[0].to_string(),
        "host `a.org` belongs to site `one` and to site `two`"
    );
    assert!(matches!(
        Sites::new(vec![], Vec::new()).unwrap_err()[..],
        [ConfigError::NoSite]
    ));
}

#[test]
fn host_that_is_invalid_is_refused() {
    for bad in [
        "", "*", "*.", "a..b", ".a", "a.", "a:80", "http://a", "a/b", "*.a:80", "[::1", "x*",
        "[x]", "*[::1]",
    ] {
        assert!(HostPattern::parse(bad).is_err(), "{bad}");
    }
    for good in ["a", "*.a", "a_b.c-d", "127.0.0.1", "[::1]"] {
        assert!(HostPattern::parse(good).is_ok(), "{good}");
    }
}

#[test]
fn all_mistakes_of_a_site_are_reported_at_once() {
    let template = |text| RuleTemplate::parse(text).unwrap();
    let rule = |action| SiteRule::new(PathPattern::exact("/x").unwrap(), action);
    let mut config = SiteConfig::for_tests("bad", "/nonexistent/root");
    config.php_extensions = vec!["php".into()];
    config.index = vec!["a/b".into()];
    config.front_controller = Some(FrontController {
        script: "index.html".into(),
        path_info: false,
    });
    config.try_files = vec![TryFile::Status(404), TryFile::File];
    config.rules = vec![
        rule(RuleAction::Redirect {
            status: 200,
            to: template("/$1"),
        }),
        rule(RuleAction::Rewrite(template("x"))),
        rule(RuleAction::Deny(500)),
        rule(RuleAction::Header(HeaderEdit::Set(
            "Content-Length".into(),
            "1".into(),
        ))),
        rule(RuleAction::Header(HeaderEdit::Add(
            "X".into(),
            "a\nb".into(),
        ))),
        rule(RuleAction::Return {
            status: 301,
            content_type: "text/plain".into(),
            body: String::new(),
        }),
    ];
    let errors = Site::new(config, 0).unwrap_err();
    let text: Vec<String> = errors.iter().map(ToString::to_string).collect();
    for part in [
        "`php` is not an extension",
        "`a/b` is not an index file",
        "front controller `index.html`",
        "try_files after",
        "does not have this capture",
        "status `200`",
        "`x`: an internal target",
        "status `500`",
        "`Content-Length` is not a valid header name",
        "cannot be the value",
        "status `301`",
        "cannot serve the directory /nonexistent/root: No such file",
    ] {
        assert!(
            text.iter().any(|line| line.contains(part)),
            "{part} not in {text:#?}"
        );
    }
    assert_eq!(errors.len(), 12);
}

#[test]
fn try_files_entries_are_checked() {
    for bad in ["=200", "=x", "relative", "/$1", "/$nope"] {
        assert!(TryFile::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn root_of_a_new_deployment_takes_effect_at_the_next_check() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("current");
    let deploy = |release: &str| {
        fs::create_dir_all(dir.path().join(release)).unwrap();
        std::os::unix::fs::symlink(release, dir.path().join("next")).unwrap();
        fs::rename(dir.path().join("next"), &link).unwrap();
    };
    let start = monotonic() + Duration::from_secs(10);
    let at = |site: &Site, ms: u64| {
        let root = site.root_at(start + Duration::from_millis(ms));
        String::from_utf8(root.path().rsplit(|b| *b == b'/').next().unwrap().to_vec()).unwrap()
    };
    deploy("one");
    let site = Site::new(SiteConfig::for_tests("s", &link), 0).unwrap();
    assert_eq!(at(&site, 1000), "one");
    deploy("two");
    assert_eq!(at(&site, 1999), "one");
    assert_eq!(at(&site, 2000), "two");
    // If the link is removed, the old release stays in use, because it is held open.
    fs::remove_file(&link).unwrap();
    assert_eq!(at(&site, 3500), "two");
    deploy("three");
    assert_eq!(at(&site, 4500), "three");
    // The next configuration shows the new root first, unless it fails.
    site.freeze_root();
    deploy("four");
    assert_eq!(at(&site, 9000), "three");
    site.unfreeze_root();
    assert_eq!(at(&site, 9000), "four");
}

#[test]
fn refusals_are_all_named_in_the_guide() {
    let guide = include_str!("../../../../docs/guides/files-and-routes.md");
    for refusal in Refusal::ALL {
        assert!(guide.contains(&format!("`{refusal}`")), "{refusal}");
    }
}
