//! The routes that an application may take from `PATH_INFO`: `/intern` for `/index.php/intern`.
//!
//! Frameworks treat `/index.php/intern` and `/intern` as the same route (Symfony's `Request::getPathInfo`, which
//! Laravel and Drupal use as well; WordPress and MediaWiki read `PATH_INFO`). Whatever a site's configuration says
//! about `/intern` therefore has to hold for both spellings: every decision by URL path considers the path and these
//! routes. Any script may be such an application. Only the text of the path is inspected, because the page cache and
//! the limits decide before any file is looked up.

use super::Site;
use super::script::is_script_name;

impl Site {
    /// Returns the paths of the routes that an application may take from `path`, if `path` names a script followed by
    /// further segments. `path` is decoded and cleaned.
    ///
    /// For `/shop/index.php/cart` these are `/shop/cart`, the URL of the same page without the script, and `/cart`, the
    /// `PATH_INFO`. Neither repeats `path`. A path without a script causes no allocation.
    pub fn routes_behind_script(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let mut routes: Vec<Vec<u8>> = Vec::new();
        let slashes = path.iter().enumerate().skip(1);
        let slashes = slashes.filter_map(|(at, byte)| (*byte == b'/').then_some(at));
        for end in slashes {
            let (script, info) = path.split_at(end);
            if !is_script_name(script, &self.config.php_extensions) {
                continue;
            }
            let name = script.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            for route in [[&script[..name], info].concat(), info.to_vec()] {
                if !routes.contains(&route) {
                    routes.push(route);
                }
            }
        }
        routes
    }
}
