//! A WordPress that is installed already, for measuring: Debian's package with its default
//! theme and one post, on a private MariaDB, set up by PHP's command line. The journey
//! through WordPress' own installer is `tests/wordpress.rs`.

use std::path::Path;
use std::process::Command;

use crate::mariadb::Mariadb;
use crate::rig::Site;
use crate::scratch::{Scratch, copy_tree, repository, run};
use howdah_lab::php;

/// The name it believes to be reached by, whatever port a server listens on: send it as `Host`,
/// or WordPress redirects there.
pub const HOST: &str = "wordpress.test";
/// A text on its home page.
pub const MARK: &str = "Welcome to WordPress";

/// The installed application.
#[derive(Debug)]
pub struct WordpressHome {
    scratch: Scratch,
    folder: &'static str,
    _mariadb: Mariadb,
}

/// Its settings, which are those of the WordPress that `howdah compare` measures.
const CONFIG: &str = include_str!("../../howdah-lab/src/fixture/wp-config.php");
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
    /// Copies, configures and installs it: a few seconds.
    ///
    /// # Panics
    /// If a package is missing or the installation fails.
    pub fn prepare() -> WordpressHome {
        WordpressHome::prepare_at(&format!("http://{HOST}"))
    }

    /// The same for another address.
    ///
    /// # Panics
    /// As [`WordpressHome::prepare`].
    pub fn prepare_at(url: &str) -> WordpressHome {
        WordpressHome::installed("", url)
    }

    /// The same in a subfolder of the site, as `/blog`, with a page of somebody else's at the root.
    ///
    /// # Panics
    /// As [`WordpressHome::prepare`].
    pub fn prepare_in(folder: &'static str) -> WordpressHome {
        WordpressHome::installed(folder, &format!("http://{HOST}{folder}"))
    }

    fn installed(folder: &'static str, url: &str) -> WordpressHome {
        let mariadb = Mariadb::start();
        mariadb.create("wordpress", "wordpress", "database password");
        let scratch = Scratch::new("wordpress-home");
        let place = format!("site{folder}");
        let site = scratch.join(&place);
        if !folder.is_empty() {
            scratch.write("site/index.html", "<h1>The firm</h1>");
        }
        copy_tree(Path::new("/usr/share/wordpress"), &site);
        let config = CONFIG
            .replace("{SOCKET}", &mariadb.socket().display().to_string())
            .replace("{URL}", url);
        scratch.write(format!("{place}/wp-config.php"), config);
        let install = scratch.write(
            "install.php",
            INSTALL.replace("SITE", &site.display().to_string()),
        );
        let said = run(Command::new(php::expand_placeholders("php{php}")).arg(&install));
        assert!(said.contains(HOST), "the installation said: {said}");
        WordpressHome {
            scratch,
            folder,
            _mariadb: mariadb,
        }
    }

    /// Runs a script within WordPress, by PHP's command line; what it prints.
    ///
    /// # Panics
    /// If it fails.
    pub fn run(&self, script: &str) -> String {
        let site = self.scratch.join(format!("site{}", self.folder));
        let text = format!(
            "<?php $_SERVER['HTTP_HOST'] = '{HOST}'; $_SERVER['REQUEST_URI'] = '/';\nrequire '{}/wp-load.php';\n{script}",
            site.display()
        );
        let script = self.scratch.write("run.php", text);
        run(Command::new(php::expand_placeholders("php{php}")).arg(&script))
    }

    /// Gives it Howdah's drop-in for the object cache.
    ///
    /// # Panics
    /// If the file cannot be copied.
    pub fn add_object_cache(&self) {
        let drop_in = repository().join("packaging/php/object-cache.php");
        let to = format!("site{}/wp-content/object-cache.php", self.folder);
        std::fs::copy(drop_in, self.scratch.join(to)).expect("the drop-in can be copied");
    }

    /// To be served by any server.
    pub fn site(&self) -> Site {
        let site = Site::new(self.scratch.join("site")).ini("display_errors", "Off");
        match self.folder {
            "" => site.front_controller("/index.php"),
            _ => site,
        }
    }
}
