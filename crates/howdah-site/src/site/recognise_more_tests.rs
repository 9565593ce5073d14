//! Applications that keep drafts, accounts, logs and settings as files below the root, front controllers with other
//! names, and all of these in subfolders.

use super::tests::{check, check_in, recognised, tree};
use super::*;

#[test]
fn recognised_flat_file_applications_show_no_content() {
    check(
        &[
            "index.php",
            "kirby/bootstrap.php",
            "content/1_a/_drafts/b/album.txt",
            "content/1_a/photo.jpg",
            "site/accounts/x/user.txt",
            "site/sessions/1.sess",
            "media/pages/a.jpg",
            "assets/site.css",
        ],
        Application::Kirby,
        ".",
        &[
            ("/photography", "script /index.php"),
            ("/content/1_a/_drafts/b/album.txt", "script /index.php"),
            ("/content/1_a/photo.jpg", "script /index.php"),
            ("/site/accounts/x/user.txt", "script /index.php"),
            ("/site/sessions/1.sess", "script /index.php"),
            ("/kirby/bootstrap.php", "script /index.php"),
            ("/media/pages/a.jpg", "file media/pages/a.jpg"),
            ("/assets/site.css", "file assets/site.css"),
        ],
    );
    check(
        &[
            "index.php",
            "bl-kernel/boot/init.php",
            "bl-kernel/css/a.css",
            "bl-content/pages/secret-plan/index.txt",
            "bl-content/databases/users.php",
            "bl-content/workspaces/x.log",
            "bl-content/uploads/a.png",
            "bl-content/uploads/evil.php",
        ],
        Application::Bludit,
        ".",
        &[
            ("/a-post", "script /index.php"),
            ("/bl-content/pages/secret-plan/index.txt", "403"),
            ("/bl-content/databases/users.php", "403"),
            ("/bl-content/workspaces/x.log", "403"),
            ("/bl-content/uploads/evil.php", "403"),
            ("/bl-content/uploads/a.png", "file bl-content/uploads/a.png"),
            ("/bl-kernel/css/a.css", "file bl-kernel/css/a.css"),
        ],
    );
    check(
        &[
            "index.php",
            "bin/grav",
            "system/src/Grav/Grav.php",
            "system/config/site.yaml",
            "system/assets/a.css",
            "user/accounts/admin.yaml",
            "user/accounts/avatars/a.png",
            "user/config/security.yaml",
            "user/data/forms/letter.txt",
            "user/data/forms/letter.csv",
            "user/data/a.pdf",
            "user/pages/01.home/default.md",
            "user/pages/01.home/a.jpg",
            "user/pages/01.home/logo.phpbb.png",
            "user/data/evil.php7",
            "user/themes/q/a.css",
            "logs/grav.log",
            "backup/site.zip",
            "cache/x.html",
        ],
        Application::Grav,
        ".",
        &[
            ("/blog", "script /index.php"),
            ("/user/accounts/admin.yaml", "403"),
            (
                "/user/accounts/avatars/a.png",
                "file user/accounts/avatars/a.png",
            ),
            ("/user/config/security.yaml", "403"),
            ("/user/data/forms/letter.txt", "403"),
            ("/user/data/forms/letter.csv", "403"),
            ("/user/data/a.pdf", "file user/data/a.pdf"),
            ("/user/pages/01.home/default.md", "403"),
            ("/user/pages/01.home/a.jpg", "file user/pages/01.home/a.jpg"),
            (
                "/user/pages/01.home/logo.phpbb.png",
                "file user/pages/01.home/logo.phpbb.png",
            ),
            ("/user/data/evil.php7", "403"),
            ("/user/themes/q/a.css", "file user/themes/q/a.css"),
            ("/system/config/site.yaml", "403"),
            ("/system/assets/a.css", "file system/assets/a.css"),
            ("/logs/grav.log", "403"),
            ("/backup/site.zip", "403"),
            ("/cache/x.html", "403"),
        ],
    );
}

#[test]
fn recognised_mail_client_shows_no_attachments_and_no_messages() {
    check(
        &[
            "index.php",
            "program/include/iniset.php",
            "program/js/app.js",
            "plugins/archive/archive.js",
            "plugins/password/config.inc.php",
            "skins/elastic/styles/styles.css",
            "logs/errors.log",
            "temp/RCMTEMPattmnt0001",
            "config/apache.conf",
            "SQL/mysql.initial.sql",
            "README.md",
        ],
        Application::Roundcube,
        ".",
        &[
            ("/", "script /index.php"),
            ("/logs/errors.log", "403"),
            ("/temp/RCMTEMPattmnt0001", "403"),
            ("/config/apache.conf", "403"),
            ("/program/include/iniset.php", "403"),
            ("/plugins/password/config.inc.php", "403"),
            ("/README.md", "403"),
            ("/program/js/app.js", "file program/js/app.js"),
            (
                "/plugins/archive/archive.js",
                "file plugins/archive/archive.js",
            ),
        ],
    );
}

#[test]
fn recognised_backdrop_and_older_drupals_run_no_uploads_and_show_no_source() {
    check(
        &[
            "index.php",
            "settings.php",
            "core/includes/bootstrap.inc",
            "core/profiles/standard/standard.info",
            "core/modules/node/node.info",
            "core/modules/node/templates/node.tpl.php",
            "core/modules/node/node.css",
            "core/cron.php",
            "files/evil.php",
            "files/a.png",
            "files/config_1/active/user.json",
        ],
        Application::Backdrop,
        ".",
        &[
            ("/node/1", "script /index.php"),
            ("/files/evil.php", "403"),
            ("/files/config_1/active/user.json", "403"),
            ("/core/modules/node/node.info", "403"),
            ("/core/modules/node/templates/node.tpl.php", "403"),
            ("/settings.php", "403"),
            ("/files/a.png", "file files/a.png"),
            (
                "/core/modules/node/node.css",
                "file core/modules/node/node.css",
            ),
            ("/core/cron.php", "script /core/cron.php"),
        ],
    );
    check(
        &[
            "index.php",
            "includes/bootstrap.inc",
            "modules/system/system.module",
            "modules/system/system.info",
            "modules/system/page.tpl.php",
            "sites/default/files/evil.php",
        ],
        Application::Drupal,
        ".",
        &[
            ("/node/1", "script /index.php"),
            ("/modules/system/system.info", "403"),
            ("/modules/system/page.tpl.php", "403"),
            ("/sites/default/files/evil.php", "403"),
        ],
    );
}

#[test]
fn recognised_wordpress_denies_directories_that_plugins_protect_by_htaccess() {
    check(
        &[
            "index.php",
            "wp-login.php",
            "wp-includes/x.php",
            "wp-content/uploads/woocommerce_uploads/2026/book.pdf",
            "wp-content/uploads/wc-logs/payment.log",
            "wp-content/updraft/backup.zip",
            "wp-content/uploads/backwpup-1a2b-logs/x.html",
            "wp-content/wpvividbackups/x.zip",
            "wp-content/uploads/2026/a.png",
        ],
        Application::WordPress,
        ".",
        &[
            (
                "/wp-content/uploads/woocommerce_uploads/2026/book.pdf",
                "403",
            ),
            ("/wp-content/uploads/wc-logs/payment.log", "403"),
            ("/wp-content/updraft/backup.zip", "403"),
            ("/wp-content/uploads/backwpup-1a2b-logs/x.html", "403"),
            ("/wp-content/wpvividbackups/x.zip", "403"),
            (
                "/wp-content/uploads/2026/a.png",
                "file wp-content/uploads/2026/a.png",
            ),
        ],
    );
}

#[test]
fn recognised_dokuwiki_denies_information_files() {
    check(
        &[
            "doku.php",
            "inc/init.php",
            "lib/exe/fetch.php",
            "VERSION",
            "README",
            "COPYING",
        ],
        Application::DokuWiki,
        ".",
        &[
            ("/VERSION", "403"),
            ("/README", "403"),
            ("/COPYING", "403"),
            ("/doku.php", "script /doku.php"),
        ],
    );
}

const NO_FILE: &str = "RewriteCond %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\n";

#[test]
fn recognised_front_controller_may_have_any_name() {
    check(
        &[
            "yourls-loader.php",
            "yourls-infos.php",
            "admin/index.php",
            "includes/x.php",
        ],
        Application::Yourls,
        ".",
        &[
            ("/", "script /yourls-loader.php"),
            ("/ozh", "script /yourls-loader.php"),
            ("/admin/", "script /admin/index.php"),
            ("/includes/x.php", "403"),
        ],
    );
    let dir = tree(&["loader.php", "other.php", "a.css"]);
    std::fs::write(
        dir.path().join(".htaccess"),
        format!("{NO_FILE}RewriteRule ^.*$ /loader.php [L]"),
    )
    .unwrap();
    check_in(
        dir.path(),
        dir.path(),
        Application::FrontController,
        ".",
        &[
            ("/", "script /loader.php"),
            ("/x/y", "script /loader.php"),
            ("/other.php", "script /other.php"),
            ("/a.css", "file a.css"),
        ],
    );
}

#[test]
fn recognised_front_controllers_in_subfolders_are_configured() {
    let dir = tree(&[
        "index.html",
        "kanboard/index.php",
        "kanboard/app/common.php",
        "kirby/index.php",
        "kirby/kirby/bootstrap.php",
        "kirby/content/home.txt",
        "short/yourls-loader.php",
        "short/yourls-infos.php",
        "tiny/index.php",
        "tiny/a.css",
        "cloud/index.php",
        "cloud/occ",
        "cloud/remote.php",
        "cloud/status.php",
        "cloud/lib/private/x.php",
        "docs/a.html",
    ]);
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write(
        "kanboard/.htaccess",
        &format!("{NO_FILE}RewriteRule ^ index.php [QSA,L]"),
    );
    write(
        "tiny/.htaccess",
        &format!("{NO_FILE}RewriteRule ^(.*)$ index.php?url=$1 [QSA,L]"),
    );
    check_in(
        dir.path(),
        dir.path(),
        Application::Files,
        ".",
        &[
            ("/kanboard/login", "script /kanboard/index.php"),
            (
                "/kanboard/app/common.php",
                "script /kanboard/app/common.php",
            ),
            ("/kirby/photography", "script /kirby/index.php"),
            ("/kirby/content/home.txt", "script /kirby/index.php"),
            ("/short/ozh", "script /short/yourls-loader.php"),
            ("/tiny/a/b", "script /tiny/index.php"),
            ("/tiny/a.css", "file tiny/a.css"),
            ("/cloud/apps/files", "script /cloud/index.php /apps/files"),
            ("/cloud/lib/private/x.php", "403"),
            ("/.well-known/carddav", "to /cloud/remote.php/dav/"),
            ("/docs/a.html", "file docs/a.html"),
            ("/docs/none", "404"),
            ("/login", "404"),
        ],
    );
    let found = recognised(dir.path()).unwrap();
    let lines = found.report_lines().join("\n");
    for line in [
        "found Kirby in /kirby",
        "found a PHP application with one front controller in /kanboard",
        "requests for missing files below /tiny/ go to /tiny/index.php?url=…",
        "all requests below /kirby/content/ go to /kirby/index.php, even if a file exists",
        "/cloud/data/**",
    ] {
        assert!(lines.contains(line), "{line}:\n{lines}");
    }
}

#[test]
fn recognised_laravel_whose_project_is_the_root_shows_only_public_files() {
    check(
        &[
            "artisan",
            "bootstrap/app.php",
            "index.php",
            "server.php",
            "app/Models/User.php",
            "config/app.php",
            "database/seeders/users.csv",
            "lang/en.json",
            "public/css/app.css",
            "public/index.php",
            "resources/views/home.blade.php",
            "resources/js/app.js",
            "storage/app/export.csv",
            "storage/app/private/cv.pdf",
            "storage/app/public/photo.jpg",
            "storage/app/public/shell.php",
            "storage/app/publications/draft.pdf",
            "storage/framework/sessions/4f2a",
            "storage/logs/laravel.log",
            "storage/oauth-private.key",
            "vendor/autoload.php",
        ],
        Application::Laravel,
        ".",
        &[
            ("/", "script /index.php"),
            ("/users/1", "script /index.php"),
            ("/app", "script /index.php"),
            ("/public/css/app.css", "file public/css/app.css"),
            (
                "/storage/app/public/photo.jpg",
                "file storage/app/public/photo.jpg",
            ),
            ("/storage/app/public/shell.php", "403"),
            ("/storage/app/publications/draft.pdf", "403"),
            ("/storage/app/export.csv", "403"),
            ("/storage/app/private/cv.pdf", "403"),
            ("/storage/framework/sessions/4f2a", "403"),
            ("/storage/logs/laravel.log", "403"),
            ("/storage/oauth-private.key", "403"),
            ("/app/Models/User.php", "403"),
            ("/bootstrap/app.php", "403"),
            ("/config/app.php", "403"),
            ("/database/seeders/users.csv", "403"),
            ("/resources/views/home.blade.php", "403"),
            ("/resources/js/app.js", "file resources/js/app.js"),
            ("/vendor/autoload.php", "403"),
        ],
    );
}

#[test]
fn recognised_laravel_beside_an_htaccess_sends_files_with_public_in_the_url() {
    let files = [
        "artisan",
        ".htaccess",
        "public/index.php",
        "public/css/app.css",
        "public/storage/shell.php",
    ];
    let expected: &[(&str, &str)] = &[
        ("/", "script /index.php"),
        ("/css/app.css", "file css/app.css"),
        ("/public/css/app.css", "file css/app.css"),
        ("/public/storage/shell.php", "403"),
        ("/public/users/1", "script /index.php"),
    ];
    check(&files, Application::Laravel, "public", expected);
    // Without the .htaccess, the directory is not one that Apache served.
    let files = ["artisan", "public/index.php", "public/css/app.css"];
    let expected: &[(&str, &str)] = &[("/public/css/app.css", "script /index.php")];
    check(&files, Application::Laravel, "public", expected);
}

#[test]
fn recognised_opencart_without_its_htaccess_shows_no_logs_and_no_files_for_sale() {
    check(
        &[
            "index.php",
            "admin/index.php",
            "catalog/controller/common/home.php",
            "catalog/view/javascript/common.js",
            "catalog/view/theme/default/template/common/home.tpl",
            "download/manual.pdf.4f2a",
            "image/catalog/logo.png",
            "image/catalog/shell.php",
            "system/startup.php",
            "system/storage/logs/error.log",
            "system/storage/session/sess_4f2a",
            "vqmod/logs/monday.log",
        ],
        Application::OpenCart,
        ".",
        &[
            ("/", "script /index.php"),
            ("/index.php?route=account/login", "script /index.php"),
            ("/admin/index.php", "script /admin/index.php"),
            (
                "/catalog/view/javascript/common.js",
                "file catalog/view/javascript/common.js",
            ),
            ("/image/catalog/logo.png", "file image/catalog/logo.png"),
            ("/image/catalog/shell.php", "403"),
            (
                "/catalog/view/theme/default/template/common/home.tpl",
                "403",
            ),
            ("/download/manual.pdf.4f2a", "403"),
            ("/system/startup.php", "403"),
            ("/system/storage/logs/error.log", "403"),
            ("/system/storage/session/sess_4f2a", "403"),
            ("/vqmod/logs/monday.log", "403"),
            ("/no/product", "404"),
        ],
    );
}

#[test]
fn recognised_report_uses_singular_and_plural() {
    let dir = tree(&["artisan", "public/index.php"]);
    let found = recognised(dir.path()).unwrap();
    let lines = found.report_lines();
    assert_eq!(
        lines[1..],
        [
            "  files that match 1 pattern are neither sent nor run:",
            "    /storage/**.php"
        ]
    );
    let dir = tree(&["doku.php", "inc/x.php", "lib/exe/x.php"]);
    let lines = recognised(dir.path()).unwrap().report_lines();
    assert_eq!(
        lines[1],
        "  files that match 8 patterns are neither sent nor run:"
    );
    assert!(
        lines.iter().all(|line| line.chars().count() <= 160),
        "{lines:?}"
    );
    for (application, lies) in [
        (Application::PlainPhp, "are"),
        (Application::Files, "are"),
        (Application::WordPress, "is"),
    ] {
        assert_eq!(application.location_verb(), lies);
    }
}
