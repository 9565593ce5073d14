//! A WordPress that is already installed, for tests and measurements: Debian's package with its default theme and one
//! post, on a private MariaDB, installed with PHP's command line. `tests/apps/wordpress.rs` tests WordPress's own
//! installer.

use std::path::Path;
use std::process::Command;

use crate::mariadb::Mariadb;
use crate::rig::Site;
use crate::scratch::{Scratch, copy_tree, repository, run};
use howdah_machine::php;

/// The host name for which WordPress is configured, whatever port a server listens on: send it as `Host`, because
/// WordPress redirects requests for other hosts to it.
pub const HOST: &str = "wordpress.test";
/// A text on the home page.
pub const MARK: &str = "Welcome to WordPress";

/// The installed application.
#[derive(Debug)]
pub struct WordpressHome {
    scratch: Scratch,
    folder: &'static str,
    _mariadb: Mariadb,
}

/// The directory of Debian's package.
const PACKAGE: &str = "/usr/share/wordpress";
/// The settings, which are those of the WordPress that `howdah compare` measures.
const CONFIG: &str = howdah_machine::WORDPRESS_CONFIG;
const INSTALL: &str = "<?php
define('WP_INSTALLING', true);
$_SERVER['HTTP_HOST'] = 'wordpress.test';
$_SERVER['REQUEST_URI'] = '/';
require 'SITE/wp-load.php';
require ABSPATH . 'wp-admin/includes/upgrade.php';
wp_install('Caravan', 'owner', 'owner@example.org', true, '', 'carry the howdah');
wp_create_user('rider', 'ride the elephant', 'rider@example.org');
echo get_option('siteurl');
";

impl WordpressHome {
    /// Copies, configures and installs WordPress, which takes a few seconds.
    ///
    /// # Panics
    /// If a package is missing or the installation fails.
    pub fn prepare() -> WordpressHome {
        WordpressHome::prepare_at(&format!("http://{HOST}"))
    }

    /// Prepares a WordPress for another address.
    ///
    /// # Panics
    /// As for [`WordpressHome::prepare`].
    pub fn prepare_at(url: &str) -> WordpressHome {
        WordpressHome::installed(Path::new(PACKAGE), "", url)
    }

    /// Prepares a WordPress in a subfolder of the site, e.g. `/blog`, with a page at the root that does not belong to
    /// WordPress.
    ///
    /// # Panics
    /// As for [`WordpressHome::prepare`].
    pub fn prepare_in(folder: &'static str) -> WordpressHome {
        WordpressHome::installed(
            Path::new(PACKAGE),
            folder,
            &format!("http://{HOST}{folder}"),
        )
    }

    /// Prepares the WordPress whose files are in this directory, with its plugins and themes.
    ///
    /// # Panics
    /// As for [`WordpressHome::prepare`].
    pub fn prepare_from(files: &Path) -> WordpressHome {
        WordpressHome::installed(files, "", &format!("http://{HOST}"))
    }

    fn installed(files: &Path, folder: &'static str, url: &str) -> WordpressHome {
        let mariadb = Mariadb::start();
        mariadb.create("wordpress", "wordpress", "database password");
        let scratch = Scratch::new("wordpress-home");
        let place = format!("site{folder}");
        let site = scratch.join(&place);
        if !folder.is_empty() {
            scratch.write("site/index.html", "<h1>The firm</h1>");
        }
        copy_tree(files, &site);
        let config = CONFIG
            .replace("{SOCKET}", &mariadb.socket().display().to_string())
            .replace("{URL}", url);
        scratch.write(format!("{place}/wp-config.php"), config);
        let install = scratch.write(
            "install.php",
            INSTALL.replace("SITE", &site.display().to_string()),
        );
        let said = run(Command::new(php::expand_placeholders("php{php}")).arg(&install));
        assert!(said.contains(HOST), "the installation printed: {said}");
        WordpressHome {
            scratch,
            folder,
            _mariadb: mariadb,
        }
    }

    /// Runs a script within WordPress with PHP's command line, and returns its output.
    ///
    /// # Panics
    /// If the script fails.
    pub fn run(&self, script: &str) -> String {
        let site = self.scratch.join(format!("site{}", self.folder));
        let text = format!(
            "<?php $_SERVER['HTTP_HOST'] = '{HOST}'; $_SERVER['REQUEST_URI'] = '/';\nrequire '{}/wp-load.php';\n{script}",
            site.display()
        );
        let script = self.scratch.write("run.php", text);
        run(Command::new(php::expand_placeholders("php{php}")).arg(&script))
    }

    /// Installs Howdah's drop-in for the object cache.
    ///
    /// # Panics
    /// If the file cannot be copied.
    pub fn add_object_cache(&self) {
        let drop_in = repository().join("packaging/php/object-cache.php");
        let to = format!("site{}/wp-content/object-cache.php", self.folder);
        std::fs::copy(drop_in, self.scratch.join(to)).expect("the drop-in can be copied");
    }

    /// Returns the site, to be served by any server.
    pub fn site(&self) -> Site {
        let site = Site::new(self.scratch.join("site")).ini("display_errors", "Off");
        match self.folder {
            "" => site.front_controller("/index.php"),
            _ => site,
        }
    }
}
