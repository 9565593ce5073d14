//! The list of the applications.

use std::fmt;

use crate::{ApplicationProfile, KnownApplication, known_applications};

/// Defines [`Application`] and [`FILES`] from one list, whose entries are a description, a variant and the name of a
/// file.
macro_rules! applications {
    ($($(#[$description:meta])* $variant:ident = $name:literal,)*) => {
        /// An application that a directory may contain.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Application {
            $($(#[$description])* $variant,)*
            /// A framework: `index.php` is in a directory of its own (`public/`, `web/`, `webroot/`), and the code is
            /// beside that directory.
            Framework,
            /// A script to which an `.htaccess` file sends every request that names no file.
            FrontController,
            /// PHP scripts without a front controller; each has its own URL.
            PlainPhp,
            /// Files only: the root has no script.
            Files,
        }

        /// The applications that have a file, with its name and its text.
        pub(crate) const FILES: &[(Application, &str, &str)] = &[$((
            Application::$variant,
            $name,
            include_str!(concat!("../apps/", $name, ".toml")),
        ),)*];
    };
}

// A directory is compared with the applications in this order, so the more specific ones come first.
applications! {
    /// WordPress, the blog and content management system of wordpress.org.
    WordPress = "wordpress",
    /// MediaWiki, the wiki of mediawiki.org.
    MediaWiki = "mediawiki",
    /// Laravel, the framework of laravel.com.
    Laravel = "laravel",
    /// Drupal, the content management system of drupal.org.
    Drupal = "drupal",
    /// Backdrop, the content management system of backdropcms.org.
    Backdrop = "backdrop",
    /// Symfony, the framework of symfony.com.
    Symfony = "symfony",
    /// CakePHP, the framework of cakephp.org.
    CakePhp = "cakephp",
    /// Nextcloud, the file server of nextcloud.com.
    Nextcloud = "nextcloud",
    /// Magento, the shop of magento.com.
    Magento = "magento",
    /// Joomla, the content management system of joomla.org.
    Joomla = "joomla",
    /// phpBB, the forum of phpbb.com.
    PhpBb = "phpbb",
    /// phpMyAdmin, the database administration of phpmyadmin.net.
    PhpMyAdmin = "phpmyadmin",
    /// DokuWiki, the wiki of dokuwiki.org.
    DokuWiki = "dokuwiki",
    /// Kirby, the content management system of getkirby.com.
    Kirby = "kirby",
    /// Bludit, the content management system of bludit.com.
    Bludit = "bludit",
    /// Grav, the content management system of getgrav.org.
    Grav = "grav",
    /// Roundcube, the webmail of roundcube.net.
    Roundcube = "roundcube",
    /// YOURLS, the link shortener of yourls.org.
    Yourls = "yourls",
    /// OpenCart, the shop of opencart.com.
    OpenCart = "opencart",
}

impl Application {
    /// Returns the file of the application, if it has one.
    pub fn known(self) -> Option<&'static KnownApplication> {
        known_applications()
            .iter()
            .find(|known| known.application == self)
    }

    /// Returns the content of the application's file, if it has one.
    pub fn profile(self) -> Option<&'static ApplicationProfile> {
        self.known().map(|known| &known.profile)
    }

    /// Returns whether the log-in requests ([`crate::login_requests`]) cover the application.
    pub fn has_login(self) -> bool {
        self.known().is_some()
    }

    /// Returns the verb `is` or `are`, because `plain PHP files` is a plural.
    pub fn location_verb(self) -> &'static str {
        match self {
            Application::PlainPhp | Application::Files => "are",
            _ => "is",
        }
    }
}

impl fmt::Display for Application {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Application::Framework => "a PHP application with its own web directory",
            Application::FrontController => "a PHP application with one front controller",
            Application::PlainPhp => "plain PHP files",
            Application::Files => "static files (no PHP script at the top level)",
            known => known.profile().map_or("", |profile| profile.title),
        })
    }
}
