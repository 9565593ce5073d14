//! Trees of empty files that look like each application, and the configuration that is made for them.

use std::fs;

use super::super::{RouteAction, Site};
use super::*;
use crate::testing::request;

pub(super) fn tree(files: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in files {
        let path = dir.path().join(file);
        if let Some(directory) = file.strip_suffix('/') {
            fs::create_dir_all(dir.path().join(directory)).unwrap();
        } else {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
    }
    dir
}

/// Recognises the application in `directory`.
pub(super) fn recognised(directory: &Path) -> io::Result<Recognised> {
    recognise(directory, SiteConfig::for_tests("", ""))
}

/// `expected` has URLs and their results: `script NAME INFO`, `file NAME`, a status, or `to URL`.
pub(super) fn check(
    files: &[&str],
    application: Application,
    web: &str,
    expected: &[(&str, &str)],
) {
    let dir = tree(files);
    check_in(dir.path(), dir.path(), application, web, expected);
}

pub(super) fn check_in(
    directory: &Path,
    base: &Path,
    application: Application,
    web: &str,
    expected: &[(&str, &str)],
) {
    let found = recognised(directory).unwrap();
    assert_eq!(found.application, application, "{}", found.sentence);
    assert_eq!(
        found.config.root,
        tidy(&base.canonicalize().unwrap().join(web))
    );
    assert!(found.sentence.contains(&application.to_string()));
    let site = Site::new(found.config, 0).unwrap();
    for (url, expected) in expected {
        let route = site.route(&request("GET", url, &[("Host", "h")]));
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let got = match route.action {
            RouteAction::Script(target) => {
                let script = &target.script;
                let line = format!(
                    "script {} {}",
                    text(script.script_name()),
                    text(script.path_info())
                );
                line.trim_end().to_owned()
            }
            RouteAction::Static(plan) => format!("file {}", text(&plan.relative)),
            RouteAction::Refused { status, .. } => status.to_string(),
            RouteAction::Redirect { location, .. } => format!("to {}", text(&location)),
            other => format!("{other:?}"),
        };
        assert_eq!(got, *expected, "{application} {url}");
    }
}

#[test]
fn recognises_wordpress() {
    check(
        &[
            "index.php",
            "wp-login.php",
            "wp-config.php",
            "wp-includes/version.php",
            "wp-includes/js/x.js",
            "wp-includes/js/tinymce/wp-tinymce.php",
            "wp-includes/js/tinymce/langs/x.php",
            "wp-includes/ms-files.php",
            "wp-includes/ms-functions.php",
            "wp-includes/media.php",
            "wp-content/uploads/2024/my.photo.jpg",
            "wp-content/uploads/2024/logo.phpbb.png",
            "wp-content/uploads/2024/report.phase2.pdf",
            "wp-content/plugins/p/vendor/phpunit/phpunit/src/Util/PHP/eval-stdin.php",
            "wp-admin/index.php",
            "wp-admin/includes/file.php",
            "wp-content/uploads/2024/a.jpg",
            "wp-content/uploads/evil.php",
            "wp-content/uploads/evil.phtml",
            "wp-content/uploads/readme.html",
            "wp-content/plugins/p/p.php",
            "wp-content/debug.log",
        ],
        Application::WordPress,
        ".",
        &[
            ("/", "script /index.php"),
            ("/2024/hello-world/", "script /index.php"),
            ("/wp-json/wp/v2/posts?x=1", "script /index.php"),
            ("/index.php/2024/hello", "script /index.php /2024/hello"),
            ("/wp-admin", "to /wp-admin/"),
            ("/wp-admin/", "script /wp-admin/index.php"),
            ("/wp-login.php", "script /wp-login.php"),
            ("/wp-includes/js/x.js", "file wp-includes/js/x.js"),
            (
                "/wp-content/plugins/p/p.php",
                "script /wp-content/plugins/p/p.php",
            ),
            (
                "/wp-content/uploads/2024/a.jpg",
                "file wp-content/uploads/2024/a.jpg",
            ),
            (
                "/wp-content/uploads/2024/my.photo.jpg",
                "file wp-content/uploads/2024/my.photo.jpg",
            ),
            (
                "/wp-content/uploads/2024/logo.phpbb.png",
                "file wp-content/uploads/2024/logo.phpbb.png",
            ),
            (
                "/wp-content/uploads/2024/report.phase2.pdf",
                "file wp-content/uploads/2024/report.phase2.pdf",
            ),
            ("/wp-content/uploads/evil.php", "403"),
            ("/wp-content/uploads/evil.php/x", "403"),
            ("/wp-content/uploads/evil.phtml", "403"),
            ("/wp-content/uploads/none.php", "403"),
            (
                "/wp-content/plugins/p/vendor/phpunit/phpunit/src/Util/PHP/eval-stdin.php",
                "403",
            ),
            (
                "/wp-includes/js/tinymce/wp-tinymce.php",
                "script /wp-includes/js/tinymce/wp-tinymce.php",
            ),
            ("/wp-includes/js/tinymce/langs/x.php", "403"),
            (
                "/wp-includes/ms-files.php",
                "script /wp-includes/ms-files.php",
            ),
            ("/wp-includes/ms-functions.php", "403"),
            ("/wp-includes/media.php", "403"),
            ("/wp-includes/version.php", "403"),
            ("/wp-content/uploads/%65vil.php/x", "403"),
            ("/wp-config.php", "403"),
            ("/wp-admin/includes/file.php", "403"),
            ("/wp-content/debug.log", "403"),
            ("/.env", "script /index.php"),
        ],
    );
}

#[test]
fn recognises_mediawiki_with_short_urls() {
    check(
        &[
            "index.php",
            "load.php",
            "rest.php",
            "includes/x.php",
            "languages/x.php",
            "images/a.png",
            "images/a.phase.png",
            "cache/x.cdb",
            "images/evil.php",
            "vendor/x.js",
            "LocalSettings.php",
            "resources/x.js",
        ],
        Application::MediaWiki,
        ".",
        &[
            ("/", "script /index.php"),
            ("/index.php/Main_Page", "script /index.php /Main_Page"),
            ("/index.php/.NET", "script /index.php /.NET"),
            ("/wiki/Main_Page", "script /index.php"),
            ("/wiki/AC/DC%3F", "script /index.php"),
            ("/wiki/.NET", "script /index.php"),
            ("/wiki/Test.php", "script /index.php"),
            ("/rest.php/v1/page/X", "script /rest.php /v1/page/X"),
            ("/wiki", "script /index.php"),
            ("/wikis", "404"),
            ("/images/a.png", "file images/a.png"),
            ("/images/a.phase.png", "file images/a.phase.png"),
            ("/cache/x.cdb", "403"),
            ("/index.php/cache/x.cdb", "script /index.php /cache/x.cdb"),
            ("/images/evil.php", "403"),
            ("/includes/x.php", "403"),
            ("/vendor/x.js", "403"),
            ("/LocalSettings.php", "403"),
            ("/none", "404"),
        ],
    );
}

#[test]
fn recognises_laravel_from_the_project_and_from_its_public_directory() {
    let dir = tree(&[
        "artisan",
        "composer.json",
        ".env",
        "public/index.php",
        "public/css/app.css",
        "storage/logs/laravel.log",
    ]);
    let expected: &[(&str, &str)] = &[
        ("/", "script /index.php"),
        ("/users/1", "script /index.php"),
        ("/css/app.css", "file css/app.css"),
        ("/css", "script /index.php"),
        ("/.env", "script /index.php"),
    ];
    check_in(
        dir.path(),
        dir.path(),
        Application::Laravel,
        "public",
        expected,
    );
    check_in(
        &dir.path().join("public"),
        dir.path(),
        Application::Laravel,
        "public",
        expected,
    );
}

#[test]
fn recognises_symfony() {
    check(
        &["bin/console", "public/index.php", "public/bundles/x/a.js"],
        Application::Symfony,
        "public",
        &[
            ("/blog/1", "script /index.php"),
            ("/bundles/x/a.js", "file bundles/x/a.js"),
        ],
    );
}

#[test]
fn recognises_drupal_alone_and_in_a_composer_project() {
    let files = [
        "core/lib/Drupal.php",
        "core/install.php",
        "index.php",
        "sites/default/settings.php",
        "sites/default/files/a.png",
        "sites/default/files/x.php",
        "sites/default/files/private/invoice.pdf",
        "libraries/a/vendor/phpunit/eval-stdin.php",
        "core/modules/node/node.module",
    ];
    let expected: &[(&str, &str)] = &[
        ("/node/1", "script /index.php"),
        ("/core/install.php", "script /core/install.php"),
        (
            "/sites/default/files/a.png",
            "file sites/default/files/a.png",
        ),
        ("/sites/default/files/x.php", "403"),
        ("/sites/default/settings.php", "403"),
        ("/sites/default/files/private/invoice.pdf", "403"),
        ("/libraries/a/vendor/phpunit/eval-stdin.php", "403"),
        // Without a directory of this name, this is a page.
        ("/vendor/123", "script /index.php"),
        ("/core/lib/Drupal.php", "403"),
        ("/core/modules/node/node.module", "script /index.php"),
        (
            "/sites/default/files/styles/thumb/a.png",
            "script /index.php",
        ),
    ];
    check(&files, Application::Drupal, ".", expected);
    let below: Vec<String> = files.iter().map(|file| format!("web/{file}")).collect();
    let below: Vec<&str> = below.iter().map(String::as_str).collect();
    check(&below, Application::Drupal, "web", expected);
}

#[test]
fn recognises_nextcloud() {
    check(
        &[
            "occ",
            "index.php",
            "remote.php",
            "status.php",
            "lib/private/x.php",
            "core/img/a.svg",
            "config/config.php",
            "data/a.txt",
            "package.json",
            ".well-known/acme-challenge/token",
        ],
        Application::Nextcloud,
        ".",
        &[
            ("/apps/files/", "script /index.php /apps/files/"),
            ("/remote.php/dav/files/x", "script /remote.php /dav/files/x"),
            ("/.well-known/carddav", "to /remote.php/dav/"),
            ("/.well-known/acme-challenge/none", "404"),
            (
                "/.well-known/acme-challenge/token",
                "file .well-known/acme-challenge/token",
            ),
            (
                "/.well-known/webfinger",
                "script /index.php /.well-known/webfinger",
            ),
            ("/core/img/a.svg", "file core/img/a.svg"),
            ("/config/config.php", "403"),
            ("/data/a.txt", "403"),
            ("/occ", "403"),
            ("/package.json", "403"),
        ],
    );
}

#[test]
fn recognises_joomla_and_phpbb_and_the_rest() {
    check(
        &[
            "index.php",
            "administrator/index.php",
            "api/index.php",
            "libraries/x.php",
            "components/",
            "images/x.php",
            "images/my.photo.jpg",
            "cache/com_x/style.css",
            "cache/x.php",
            "cli/joomla.php",
        ],
        Application::Joomla,
        ".",
        &[
            ("/a-page", "script /index.php"),
            ("/api/v1/content", "script /api/index.php"),
            ("/administrator/", "script /administrator/index.php"),
            ("/images/x.php", "403"),
            ("/images/my.photo.jpg", "file images/my.photo.jpg"),
            ("/cache/com_x/style.css", "file cache/com_x/style.css"),
            ("/cache/x.php", "403"),
            ("/cli/joomla.php", "403"),
            ("/index.php/cli/commands", "script /index.php /cli/commands"),
            ("/logs/2024/trip", "script /index.php"),
            ("/libraries/x.php", "403"),
        ],
    );
    check(
        &[
            "index.php",
            "app.php",
            "viewtopic.php",
            "ucp.php",
            "phpbb/x.php",
            "config.php",
            "config/default/config.yml",
        ],
        Application::PhpBb,
        ".",
        &[
            ("/help/faq", "script /app.php"),
            ("/", "script /index.php"),
            ("/config.php", "403"),
            ("/config/default/config.yml", "403"),
        ],
    );
    check(
        &[
            "index.php",
            "libraries/x.php",
            "templates/x.twig",
            "url.php",
            "show_config_errors.php",
        ],
        Application::PhpMyAdmin,
        ".",
        &[("/", "script /index.php"), ("/libraries/x.php", "403")],
    );
    check(
        &[
            "doku.php",
            "inc/x.php",
            "lib/exe/css.php",
            "data/pages/x.txt",
            "conf/users.auth.php",
        ],
        Application::DokuWiki,
        ".",
        &[
            ("/doku.php/start", "script /doku.php /start"),
            ("/doku.php/data/start", "script /doku.php /data/start"),
            (
                "/lib/exe/css.php/data/logo.png",
                "script /lib/exe/css.php /data/logo.png",
            ),
            ("/data/pages/none.txt", "403"),
            ("/data/pages/x.txt", "403"),
            ("/conf/users.auth.php", "403"),
            ("/lib/exe/css.php", "script /lib/exe/css.php"),
        ],
    );
}

#[test]
fn recognises_cakephp_from_the_project_although_it_has_an_index() {
    let expected: &[(&str, &str)] = &[
        ("/", "script /index.php"),
        ("/articles/view/1", "script /index.php"),
        ("/css/cake.css", "file css/cake.css"),
        ("/logs/error.log", "script /index.php"),
        ("/webroot/css/cake.css", "script /index.php"),
    ];
    let own = [
        "index.php",
        "config/bootstrap.php",
        "src/Application.php",
        "logs/error.log",
        "webroot/index.php",
        "webroot/css/cake.css",
    ];
    check(&own, Application::CakePhp, "webroot", expected);
    let own = [
        "index.php",
        "lib/Cake/bootstrap.php",
        "app/tmp/logs/error.log",
        "app/webroot/index.php",
        "app/webroot/css/cake.css",
    ];
    check(&own, Application::CakePhp, "app/webroot", expected);
}

#[test]
fn closed_uploads_cover_all_extensions_of_scripts() {
    let dir = tree(&[
        "index.php",
        "wp-login.php",
        "wp-includes/",
        "wp-content/uploads/a.page",
        "wp-content/uploads/a.php5",
        "wp-content/uploads/a.txt",
    ]);
    let usual = SiteConfig {
        php_extensions: [".php", ".page", ".php5"].map(str::to_owned).to_vec(),
        ..SiteConfig::for_tests("", "")
    };
    let config = recognise(dir.path(), usual).unwrap().config;
    let site = Site::new(config, 0).unwrap();
    for (name, refused) in [("a.page", true), ("a.php5", true), ("a.txt", false)] {
        let url = format!("/wp-content/uploads/{name}");
        let action = site.route(&request("GET", &url, &[("Host", "h")])).action;
        assert_eq!(
            matches!(action, RouteAction::Refused { .. }),
            refused,
            "{name}"
        );
    }
}

#[test]
fn windows_finds_the_webdav_service_of_nextcloud() {
    let cloud = [
        "occ",
        "index.php",
        "remote.php",
        "status.php",
        "lib/private/x.php",
    ];
    let below = cloud.map(|file| format!("cloud/{file}"));
    for (files, url, to) in [
        (cloud.map(str::to_owned), "/", "/remote.php/webdav/"),
        (below, "/cloud/", "/cloud/remote.php/webdav/"),
    ] {
        let dir = tree(&files.each_ref().map(String::as_str));
        let site = Site::new(recognised(dir.path()).unwrap().config, 0).unwrap();
        let route = |url: &str, agent: &str| {
            let fields = [("Host", "h"), ("User-Agent", agent)];
            site.route(&request("OPTIONS", url, &fields)).action
        };
        let redirect = route(url, "DavClnt/10.0");
        assert!(
            matches!(&redirect, RouteAction::Redirect { status: 302, location } if location == to.as_bytes()),
            "{redirect:?}"
        );
        let others = [
            route(url, "Mozilla/5.0"),
            route(&format!("{url}x"), "DavClnt/10.0"),
        ];
        for other in others {
            assert!(matches!(other, RouteAction::Script(_)), "{other:?}");
        }
    }
}

#[test]
fn recognises_unknown_applications() {
    check(
        &["composer.json", "public/index.php", "src/x.php"],
        Application::Framework,
        "public",
        &[
            ("/x", "script /index.php"),
            ("/src/x.php", "script /index.php"),
        ],
    );
    check(
        &["index.php", "a.php", "sub/b.html"],
        Application::PlainPhp,
        ".",
        &[
            ("/", "script /index.php"),
            ("/a.php/x", "script /a.php /x"),
            ("/none", "404"),
            ("/sub/", "403"),
        ],
    );
    check(
        &["index.html", "a.css"],
        Application::Files,
        ".",
        &[
            ("/", "file index.html"),
            ("/a.css", "file a.css"),
            ("/none.php", "404"),
        ],
    );
    let dir = tree(&["index.php", "lib/x.php"]);
    fs::write(dir.path().join(".htaccess"), "RewriteRule ^ index.php [L]").unwrap();
    fs::write(dir.path().join("lib/.htaccess"), "Require all denied").unwrap();
    check_in(
        dir.path(),
        dir.path(),
        Application::FrontController,
        ".",
        &[("/x/y", "script /index.php"), ("/lib/x.php", "403")],
    );
}

#[test]
#[cfg_attr(
    not(feature = "packages"),
    ignore = "needs wordpress, mediawiki and phpmyadmin"
)]
fn recognises_debian_packages() {
    for (path, application) in [
        ("/usr/share/wordpress", Application::WordPress),
        ("/var/lib/mediawiki", Application::MediaWiki),
        ("/usr/share/mediawiki", Application::MediaWiki),
        ("/usr/share/phpmyadmin", Application::PhpMyAdmin),
    ] {
        let found = recognised(Path::new(path)).unwrap().application;
        assert_eq!(found, application, "{path}");
    }
}

#[test]
fn recognised_link_keeps_its_name() {
    let dir = tree(&["releases/1/index.php"]);
    let link = dir.path().join("current");
    std::os::unix::fs::symlink("releases/1", &link).unwrap();
    let found = recognised(&link).unwrap();
    assert_eq!(
        (found.config.root, found.config.name),
        (link, "current".to_owned())
    );
}

#[test]
fn recognise_fails_for_an_unreadable_directory() {
    let dir = tree(&["file"]);
    assert!(recognised(&dir.path().join("none")).is_err());
    assert!(recognised(&dir.path().join("file")).is_err());
}

#[test]
fn recognises_magento() {
    check(
        &[
            "bin/magento",
            "pub/index.php",
            "pub/static.php",
            "pub/get.php",
            "pub/cron.php",
            "pub/static/deployed_version.txt",
            "pub/static/frontend/a.css",
            "pub/errors/report.php",
            "pub/errors/404.php",
            "pub/errors/503.php",
            "pub/errors/processor.php",
            "pub/errors/default/page.phtml",
            "pub/errors/design.xml",
            "pub/media/a.phone.png",
            "pub/media/x.php",
            "pub/media/logo.png",
            "pub/media/downloadable/book.pdf",
            "app/etc/env.php",
        ],
        Application::Magento,
        "pub",
        &[
            ("/women.html", "script /index.php"),
            (
                "/static/version7/frontend/a.css",
                "file static/frontend/a.css",
            ),
            ("/static/frontend/a.css", "file static/frontend/a.css"),
            ("/static/version7/frontend/b.css", "script /static.php"),
            ("/static/frontend/b.css", "script /static.php"),
            ("/errors/report.php", "script /errors/report.php"),
            ("/errors/404.php", "script /errors/404.php"),
            ("/errors/503.php", "script /errors/503.php"),
            ("/errors/processor.php", "403"),
            ("/errors/default/page.phtml", "403"),
            ("/errors/design.xml", "403"),
            ("/media/a.phone.png", "file media/a.phone.png"),
            ("/media/x.php", "403"),
            (
                "/static/deployed_version.txt",
                "file static/deployed_version.txt",
            ),
            ("/media/logo.png", "file media/logo.png"),
            ("/media/catalog/cache/a.png", "script /get.php"),
            ("/media/downloadable/book.pdf", "403"),
            ("/cron.php", "403"),
        ],
    );
}

#[test]
fn recognised_applications_in_subfolders_get_what_they_get_at_the_root() {
    check(
        &[
            "index.html",
            "blog/index.php",
            "blog/wp-login.php",
            "blog/wp-includes/version.php",
            "blog/wp-config.php",
            "blog/wp-content/uploads/x.php",
            "blog/wp-content/uploads/a.png",
            "forum/index.php",
            "forum/app.php",
            "forum/viewtopic.php",
            "forum/ucp.php",
            "forum/phpbb/session.php",
        ],
        Application::Files,
        ".",
        &[
            ("/", "file index.html"),
            ("/blog/", "script /blog/index.php"),
            ("/blog/2026/hello/", "script /blog/index.php"),
            (
                "/blog/wp-content/uploads/a.png",
                "file blog/wp-content/uploads/a.png",
            ),
            ("/blog/wp-content/uploads/x.php", "403"),
            ("/blog/wp-config.php", "403"),
            ("/forum/help/faq", "script /forum/app.php"),
            ("/forum/phpbb/session.php", "403"),
            ("/2026/hello/", "404"),
            ("/wp-config.php", "404"),
        ],
    );
    let dir = tree(&[
        "blog/wp-login.php",
        "blog/wp-includes/x.php",
        "a/b/wp-login.php",
    ]);
    let found = super::super::subfolder::applications_below(dir.path());
    let blog = super::super::subfolder::SubfolderApplication {
        application: Application::WordPress,
        folder: "blog".to_owned(),
    };
    assert_eq!(found, [blog]);
}
