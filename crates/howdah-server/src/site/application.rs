//! The applications whose layout the server knows.

use std::fmt;
use std::path::Path;

/// An application whose layout the server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Application {
    /// WordPress, the blog and content management system of wordpress.org.
    WordPress,
    /// MediaWiki, the wiki of mediawiki.org.
    MediaWiki,
    /// Laravel, the framework of laravel.com.
    Laravel,
    /// Symfony, the framework of symfony.com.
    Symfony,
    /// Drupal, the content management system of drupal.org.
    Drupal,
    /// Joomla, the content management system of joomla.org.
    Joomla,
    /// phpBB, the forum of phpbb.com.
    PhpBb,
    /// Magento, the shop of magento.com.
    Magento,
    /// Nextcloud, the file server of nextcloud.com.
    Nextcloud,
    /// phpMyAdmin, the database administration of phpmyadmin.net.
    PhpMyAdmin,
    /// DokuWiki, the wiki of dokuwiki.org.
    DokuWiki,
    /// Backdrop, the content management system of backdropcms.org.
    Backdrop,
    /// Kirby, the content management system of getkirby.com.
    Kirby,
    /// Bludit, the content management system of bludit.com.
    Bludit,
    /// Grav, the content management system of getgrav.org.
    Grav,
    /// Roundcube, the webmail of roundcube.net.
    Roundcube,
    /// YOURLS, the link shortener of yourls.org.
    Yourls,
    /// A framework: `index.php` in a directory of its own (`public/`, `web/`, `webroot/`), code
    /// beside it.
    Framework,
    /// A script that receives every request that names no file, as its `.htaccess` says.
    FrontController,
    /// PHP scripts without a front controller; each has its own URL.
    PlainPhp,
    /// Files only: the root has no script.
    Files,
}

impl fmt::Display for Application {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Application::WordPress => "WordPress",
            Application::MediaWiki => "MediaWiki",
            Application::Laravel => "Laravel",
            Application::Symfony => "Symfony",
            Application::Drupal => "Drupal",
            Application::Joomla => "Joomla",
            Application::PhpBb => "phpBB",
            Application::Magento => "Magento",
            Application::Nextcloud => "Nextcloud",
            Application::PhpMyAdmin => "phpMyAdmin",
            Application::DokuWiki => "DokuWiki",
            Application::Backdrop => "Backdrop",
            Application::Kirby => "Kirby",
            Application::Bludit => "Bludit",
            Application::Grav => "Grav",
            Application::Roundcube => "Roundcube",
            Application::Yourls => "YOURLS",
            Application::Framework => "a PHP application with its own web directory",
            Application::FrontController => "a PHP application with one front controller",
            Application::PlainPhp => "plain PHP files",
            Application::Files => "files without a PHP script at the top",
        })
    }
}

impl Application {
    /// Returns whether [`super::login`] knows how the application receives passwords.
    pub fn has_login(self) -> bool {
        !matches!(
            self,
            Application::Framework
                | Application::FrontController
                | Application::PlainPhp
                | Application::Files
        )
    }

    /// Returns the verb `is` or `are`, because `plain PHP files` is a plural.
    pub fn location_verb(self) -> &'static str {
        match self {
            Application::PlainPhp | Application::Files => "are",
            _ => "is",
        }
    }
}

/// Returns whether a directory has all of these files.
pub(super) fn exists(directory: &Path, files: &[&str]) -> bool {
    files.iter().all(|file| directory.join(file).exists())
}
