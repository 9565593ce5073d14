//! Which application lies in a directory, and the site configuration it wants. Used when there is
//! no configuration file; what it chose is said in one sentence, never silently. Looks at names
//! of files only, except for the root's `.htaccess` (`htaccess/front_controller.rs`).
//!
//! What is refused follows each application's own `.htaccess` or its documentation for nginx:
//! directories of code and data, and scripts where users upload files. What its `.htaccess` files close
//! is closed with every request (`htaccess/`), recognised or not.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::config::{FrontController, HeaderEdit, Rule, RuleAction, SiteConfig};
use super::htaccess;
use super::known::{KNOWN, Known, WEB_DIRECTORIES};
use super::pattern::Pattern;
use super::subfolder;
use super::template::Template;

/// A known application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Application {
    /// wordpress.org
    WordPress,
    /// mediawiki.org
    MediaWiki,
    /// laravel.com
    Laravel,
    /// symfony.com
    Symfony,
    /// drupal.org
    Drupal,
    /// joomla.org
    Joomla,
    /// phpbb.com
    PhpBb,
    /// magento.com
    Magento,
    /// nextcloud.com
    Nextcloud,
    /// phpmyadmin.net
    PhpMyAdmin,
    /// dokuwiki.org
    DokuWiki,
    /// `index.php` in a directory of its own (`public/`, `web/`, `webroot/`), code beside it.
    Framework,
    /// An `index.php` that gets everything, as its `.htaccess` says.
    FrontController,
    /// Scripts, each for itself.
    PlainPhp,
    /// No script at the top.
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
            Application::Framework => "a PHP application with its own web directory",
            Application::FrontController => "a PHP application with one front controller",
            Application::PlainPhp => "plain PHP files",
            Application::Files => "files without a PHP script at the top",
        })
    }
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Recognised {
    /// Which application.
    pub application: Application,
    /// How to serve it. Its root may be a directory below the given one.
    pub config: SiteConfig,
    /// What was chosen and why, for the one who started the server.
    pub sentence: String,
}

/// Recognises what lies in `directory`. An error if it cannot be looked into.
pub fn recognise(directory: &Path) -> io::Result<Recognised> {
    // A link keeps its name: a deployment that moves it is followed, and the site keeps its name.
    let directory = match directory.file_name() {
        Some(_) => std::path::absolute(directory)?,
        None => directory.canonicalize()?,
    };
    std::fs::read_dir(&directory)?;
    let (known, application, root) = find(&directory);
    let mut config = SiteConfig::new(name(&directory), &root);
    config.default = true;
    if let Some(known) = known {
        config.deny = known.deny.iter().map(|text| glob(text)).collect();
        config.front_controller = known.front_controller.map(controller);
    }
    match application {
        Application::MediaWiki => mediawiki(&mut config),
        Application::Nextcloud => nextcloud(&mut config),
        Application::Magento => magento(&mut config),
        Application::Joomla if root.join("api/index.php").is_file() => {
            config.rules.push(to_script("/api/", "/api/index.php"));
        }
        Application::Framework | Application::FrontController => {
            config.front_controller = Some(controller("/index.php"));
        }
        _ => {}
    }
    let below = match application {
        Application::PlainPhp | Application::Files | Application::FrontController => {
            subfolder::add(&mut config)
        }
        _ => String::new(),
    };
    let sentence = sentence(application, &directory, &config) + &below;
    Ok(Recognised {
        application,
        config,
        sentence,
    })
}

fn find(directory: &Path) -> (Option<&'static Known>, Application, PathBuf) {
    for known in KNOWN {
        for web in known.web {
            let root = directory.join(web);
            // Marks are named from the project, and for Drupal from the web directory too.
            if exists(directory, known.files) || exists(&root, known.files) {
                return (Some(known), known.application, tidy(&root));
            }
        }
        // Given the web directory itself: the marks are beside it.
        if let Some(project) = directory.parent()
            && !known.web.contains(&".")
            && known.web.iter().any(|web| project.join(web) == directory)
            && exists(project, known.files)
        {
            return (Some(known), known.application, directory.to_owned());
        }
    }
    if !directory.join("index.php").is_file() {
        for web in WEB_DIRECTORIES {
            let root = directory.join(web);
            if root.join("index.php").is_file() {
                return (None, Application::Framework, root);
            }
        }
    }
    let application = if htaccess::rewrites_to_index(directory) {
        Application::FrontController
    } else if has_scripts(directory) {
        Application::PlainPhp
    } else {
        Application::Files
    };
    (None, application, directory.to_owned())
}

pub(super) fn exists(directory: &Path, files: &[&str]) -> bool {
    files.iter().all(|file| directory.join(file).exists())
}

fn tidy(path: &Path) -> PathBuf {
    path.components().collect()
}

fn has_scripts(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|entries| {
        entries
            .flatten()
            .any(|entry| entry.path().extension().is_some_and(|e| e == "php"))
    })
}

fn name(directory: &Path) -> String {
    directory.file_name().map_or_else(
        || "site".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn controller(script: &str) -> FrontController {
    FrontController {
        script: script.to_owned(),
        path_info: false,
    }
}

pub(super) fn glob(text: &str) -> Pattern {
    Pattern::glob(text).expect("globs are escaped, so each is an expression")
}

/// A rule for paths below `prefix` that name no file.
pub(super) fn to_script(prefix: &str, target: &str) -> Rule {
    Rule {
        pattern: Pattern::Prefix(prefix.as_bytes().to_vec()),
        methods: Vec::new(),
        if_missing: true,
        action: RuleAction::Rewrite(template(target)),
    }
}

fn template(text: &str) -> Template {
    Template::parse(text).expect("built-in targets are checked by a test")
}

/// Short URLs (`$wgArticlePath = "/wiki/$1"`) come by REQUEST_URI; uploads are no pages.
fn mediawiki(config: &mut SiteConfig) {
    config.rules.push(to_script("/wiki/", "/index.php"));
    config.rules.push(Rule {
        pattern: Pattern::Prefix(b"/images/".to_vec()),
        methods: Vec::new(),
        if_missing: false,
        action: RuleAction::Header(HeaderEdit::Set(
            "X-Content-Type-Options".to_owned(),
            "nosniff".to_owned(),
        )),
    });
}

/// Its clients find calendars and contacts by these (RFC 6764), its pages come as PATH_INFO, and
/// people upload films.
fn nextcloud(config: &mut SiteConfig) {
    for service in ["carddav", "caldav"] {
        config.rules.push(Rule {
            pattern: Pattern::Prefix(format!("/.well-known/{service}").into_bytes()),
            methods: Vec::new(),
            if_missing: false,
            action: RuleAction::Redirect {
                status: 301,
                to: template("/remote.php/dav/"),
            },
        });
    }
    config.rules.push(to_script("/remote/", "/remote.php/$1"));
    config.max_body_size = 16 << 30;
    config.front_controller = Some(FrontController {
        script: "/index.php".to_owned(),
        path_info: true,
    });
}

/// As its nginx.conf.sample: what is not there among static files and pictures is made by scripts.
fn magento(config: &mut SiteConfig) {
    let made = |pattern: &str, target: &str| Rule {
        pattern: Pattern::regex(pattern).expect("built-in patterns are checked by a test"),
        methods: Vec::new(),
        if_missing: true,
        action: RuleAction::Rewrite(template(target)),
    };
    config.rules.extend([
        made(
            r"^/static/(?:version[0-9]*/)?(.*)$",
            "/static.php?resource=$1",
        ),
        made("^/media/", "/get.php"),
    ]);
}

fn sentence(application: Application, directory: &Path, config: &SiteConfig) -> String {
    let mut text = format!("found {application} in {}", directory.display());
    if config.root != directory {
        text += &format!(", serving {}", config.root.display());
    }
    text += &match &config.front_controller {
        Some(controller) => format!("; what is no file goes to {}", controller.script),
        None => "; what is no file is 404".to_owned(),
    };
    if !config.deny.is_empty() {
        text += &format!("; {} patterns of paths are refused", config.deny.len());
    }
    text
}

#[cfg(test)]
#[path = "recognise_tests.rs"]
mod tests;
