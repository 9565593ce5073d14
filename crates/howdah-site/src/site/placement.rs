//! Writes the needs of an application into a site's configuration: at the root, or below a folder of it (`/blog`),
//! where every pattern, rule and script name begins with that folder. Records the refused paths and the rules as text,
//! for the user who starts the server.

use super::application::Application;
use super::config::{FrontController, HeaderEdit, RuleAction, SiteConfig, SiteRule};
use super::htaccess::catch_all::CatchAll;
use super::known_applications::KnownApplication;
use super::pattern::PathPattern;
use super::template::RuleTemplate;

/// A site's configuration, and where the application lies in it.
pub(super) struct ApplicationPlacement<'c> {
    pub(super) config: &'c mut SiteConfig,
    /// Empty for the root, else the path of the folder: `/blog`.
    folder: String,
    /// The paths that are refused: globs, and regular expressions, which begin with `^`.
    pub(super) refused: Vec<String>,
    /// What the rules do, one line each.
    pub(super) rules: Vec<String>,
}

impl<'c> ApplicationPlacement<'c> {
    pub(super) fn at_the_root(config: &'c mut SiteConfig) -> ApplicationPlacement<'c> {
        ApplicationPlacement::below(config, String::new())
    }

    /// `folder` is a path without characters that have a meaning in a pattern, except for the dot.
    pub(super) fn below(config: &'c mut SiteConfig, folder: String) -> ApplicationPlacement<'c> {
        ApplicationPlacement {
            config,
            folder,
            refused: Vec::new(),
            rules: Vec::new(),
        }
    }

    /// Adds everything that a known application needs.
    pub(super) fn add_known(&mut self, known: &KnownApplication) {
        for text in known.deny {
            self.refuse(text);
        }
        if let Some(script) = known.front_controller {
            let path_info = known.application == Application::Nextcloud;
            for prefix in known.controller_prefixes {
                self.rewrite_all_below(prefix, script);
            }
            self.set_front_controller(script, path_info);
        }
        match known.application {
            Application::MediaWiki => self.mediawiki(),
            Application::Nextcloud => self.nextcloud(),
            Application::Magento => self.magento(),
            _ => {}
        }
    }

    /// Refuses the paths of a glob, or of a regular expression if the text begins with `^`.
    fn refuse(&mut self, text: &str) {
        let text = match text.strip_prefix('^') {
            Some(rest) => format!("^{}{rest}", regex::escape(&self.folder)),
            None if text.starts_with('/') || self.folder.is_empty() => {
                format!("{}{text}", self.folder)
            }
            None => format!("{}/{text}", self.folder),
        };
        let pattern = match text.starts_with('^') {
            true => PathPattern::regex(&text),
            false => PathPattern::glob(&text),
        };
        let pattern = pattern.expect("built-in patterns are checked by a test");
        self.config.deny.push(pattern);
        self.refused.push(text);
    }

    /// Sends every request that names no file to `script`.
    pub(super) fn set_front_controller(&mut self, script: &str, path_info: bool) {
        if self.folder.is_empty() {
            self.config.front_controller = Some(FrontController {
                script: script.to_owned(),
                path_info,
            });
        } else if path_info {
            self.rewrite_missing_below("/", &format!("{script}/$1"));
        } else {
            self.rewrite_missing_below("/", script);
        }
    }

    /// Adds the front controller that an `.htaccess` names.
    pub(super) fn add_catch_all(&mut self, found: Option<CatchAll>) {
        match found {
            Some(CatchAll {
                script,
                query: Some(query),
                ..
            }) => {
                self.rewrite_missing_below("/", &format!("{script}?{query}"));
                if self.folder.is_empty() {
                    self.set_front_controller(&script, false);
                }
            }
            Some(found) => self.set_front_controller(&found.script, found.path_info),
            None => {}
        }
    }

    /// Adds a rule for paths below `prefix` that name no file.
    pub(super) fn rewrite_missing_below(&mut self, prefix: &str, target: &str) {
        let (prefix, target) = (self.path(prefix), self.path(target));
        self.rules.push(format!(
            "requests for missing files below {prefix} go to {}",
            target.replace("$1", "…")
        ));
        self.rule(PathPattern::Prefix(prefix.into_bytes()), true, to(&target));
    }

    /// Adds a rule that sends every path below `prefix` to the application, whether or not a file exists.
    fn rewrite_all_below(&mut self, prefix: &str, target: &str) {
        let (prefix, target) = (self.path(prefix), self.path(target));
        let line = format!("all requests below {prefix} go to {target}, even if a file exists");
        self.rules.push(line);
        self.rule(PathPattern::Prefix(prefix.into_bytes()), false, to(&target));
    }

    fn path(&self, path: &str) -> String {
        format!("{}{path}", self.folder)
    }

    fn rule(&mut self, pattern: PathPattern, if_missing: bool, action: RuleAction) {
        self.config.rules.push(SiteRule {
            if_missing,
            ..SiteRule::new(pattern, action)
        });
    }

    /// Short URLs (`$wgArticlePath = "/wiki/$1"`) are read from REQUEST_URI. Uploads are not pages.
    fn mediawiki(&mut self) {
        self.rewrite_missing_below("/wiki/", "/index.php");
        let uploads = self.path("/images/");
        let nosniff = HeaderEdit::Set("X-Content-Type-Options".to_owned(), "nosniff".to_owned());
        self.rules.push(format!(
            "files below {uploads} are sent with X-Content-Type-Options"
        ));
        let uploads = PathPattern::Prefix(uploads.into_bytes());
        self.rule(uploads, false, RuleAction::Header(nosniff));
    }

    /// Clients find calendars and contacts by these URLs (RFC 6764), pages use PATH_INFO, and users upload films.
    fn nextcloud(&mut self) {
        let dav = self.path("/remote.php/dav/");
        for service in ["carddav", "caldav"] {
            let known = format!("/.well-known/{service}");
            self.rules.push(format!("{known} is redirected to {dav}"));
            let action = RuleAction::Redirect {
                status: 301,
                to: template(&dav),
            };
            self.rule(PathPattern::Prefix(known.into_bytes()), false, action);
        }
        self.rewrite_missing_below("/remote/", "/remote.php/$1");
        self.config.max_body_size = 16 << 30;
    }

    /// From its nginx.conf.sample: missing static files and pictures are made by scripts.
    fn magento(&mut self) {
        let folder = regex::escape(&self.folder);
        for (prefix, rest, target) in [
            (
                "/static/",
                "(?:version[0-9]*/)?(.*)$",
                "/static.php?resource=$1",
            ),
            ("/media/", "", "/get.php"),
        ] {
            let pattern = PathPattern::regex(&format!("^{folder}{prefix}{rest}"));
            let pattern = pattern.expect("built-in patterns are checked by a test");
            let target = self.path(target);
            let line = format!(
                "requests for missing files below {}{prefix} go to {}",
                self.folder,
                target.replace("$1", "…")
            );
            self.rules.push(line);
            self.rule(pattern, true, to(&target));
        }
    }
}

fn to(target: &str) -> RuleAction {
    RuleAction::Rewrite(template(target))
}

fn template(text: &str) -> RuleTemplate {
    RuleTemplate::parse(text).expect("built-in targets are checked by a test")
}
