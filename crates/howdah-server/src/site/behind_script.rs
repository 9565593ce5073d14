//! The route that an application takes from `PATH_INFO`: `/intern` for `/index.php/intern`.
//!
//! Frameworks treat `/index.php/intern` and `/intern` as the same route (Symfony's
//! `Request::getPathInfo`, which Laravel and Drupal use as well; WordPress and MediaWiki read
//! `PATH_INFO`). Whatever a site's configuration says about `/intern` therefore has to hold for both
//! spellings: every decision by URL path asks about the path and, if there is one, about this route.
//! Looks at the text of the path alone, because the page cache and the limits decide before any file
//! is looked up.

use super::config::{Htaccess, RuleAction, SiteConfig, TryFile};
use super::script::is_script_name;
use super::{Site, template::Template};

/// The scripts of a site that answer for routes.
#[derive(Debug)]
pub(super) struct RoutingScripts {
    /// URL paths that the configuration names as targets.
    named: Vec<Vec<u8>>,
}

impl RoutingScripts {
    pub(super) fn new(config: &SiteConfig) -> RoutingScripts {
        let controller = config.front_controller.iter();
        let controllers = controller.map(|controller| controller.script.as_bytes().to_vec());
        let rewrites = config.rules.iter().filter_map(|rule| match &rule.action {
            RuleAction::Rewrite(to) => Some(to),
            _ => None,
        });
        let tried = config.try_files.iter().filter_map(|entry| match entry {
            TryFile::Target(to) => Some(to),
            _ => None,
        });
        let targets = rewrites.chain(tried);
        let scripts = targets.filter_map(|to| script_of(to, &config.php_extensions));
        RoutingScripts {
            named: controllers.chain(scripts).collect(),
        }
    }
}

/// The script that a target begins with: `/app.php` for `/app.php/$1` and for `/app.php?q=$1`.
fn script_of(target: &Template, extensions: &[String]) -> Option<Vec<u8>> {
    let text = target.literal_start();
    let ends = (1..=text.len()).filter(|end| matches!(text.get(*end), None | Some(b'/' | b'?')));
    let mut scripts = ends.map(|end| &text[..end]);
    let script = scripts.find(|path| is_script_name(path, extensions))?;
    Some(script.to_vec())
}

impl Site {
    /// Returns the path of the route that an application takes from `path`, if `path` names a script that
    /// answers for routes and has `PATH_INFO` behind it. `path` is decoded and cleaned.
    ///
    /// The script's own directory stays in front: `/shop/index.php/cart` is the route `/shop/cart`. With
    /// `htaccess = "on"` every script counts, because such files may lead to any of them.
    pub(crate) fn route_behind_script(&self, path: &[u8]) -> Option<Vec<u8>> {
        let extensions = &self.config.php_extensions;
        let slashes = path.iter().enumerate().skip(1);
        let slashes = slashes.filter_map(|(at, byte)| (*byte == b'/').then_some(at));
        let mut scripts = slashes.filter(|at| is_script_name(&path[..*at], extensions));
        let end = scripts.find(|at| self.answers_for_routes(&path[..*at]))?;
        let name = path[..end].iter().rposition(|byte| *byte == b'/')?;
        Some([&path[..name], &path[end..]].concat())
    }

    fn answers_for_routes(&self, script: &[u8]) -> bool {
        let name = script.rsplit(|byte| *byte == b'/').next();
        let is_index = |index: &String| name == Some(index.as_bytes());
        self.config.htaccess == Htaccess::On
            || self.config.index.iter().any(is_index)
            || self
                .routing_scripts
                .named
                .iter()
                .any(|named| named == script)
    }
}
