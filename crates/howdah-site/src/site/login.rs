//! The requests by which known applications receive passwords, which `limit = "login"` counts. The list has only the
//! requests of the applications' own forms and of common clients: an application may accept a password in other
//! requests.

use super::condition::{RuleConditions, ValueTest};
use super::pattern::PathPattern;

/// A regular expression for the path, and optionally a parameter with a test of its value.
type LoginRequest = (&'static str, Option<(&'static str, &'static str)>);

const INDEX_PATH: &str = r"/(index\.php)?$";
const ANY_PATH: &str = "^/";

const LOGIN_REQUESTS: &[LoginRequest] = &[
    // WordPress.
    (r"(?i)/(wp-login|xmlrpc)\.php$", None),
    // Laravel, Symfony, Drupal, Nextcloud, Kirby, Grav, TYPO3, Moodle, Magento, and most others.
    (
        r"(?i)/(log|sign)[-_]?in(_?check|post|/index)?(\.php)?/?$",
        None,
    ),
    // Grav, Bludit and YOURLS receive the password at the start page of their administration.
    (r"(?i)/admin(/index\.php)?/?$", None),
    // WooCommerce.
    (r"(?i)/my-account/?$", None),
    // Magento's tokens.
    (r"(?i)/integration/(admin|customer)/token/?$", None),
    // MediaWiki, by path or parameter. Wikis in other languages also accept this name.
    (r"(?i)/special:user_?login(/.*)?$", None),
    (ANY_PATH, Some(("title", "~* ^special:user[_ ]?login"))),
    // Joomla's administration names a component in all its other requests.
    (r"(?i)/administrator/(index\.php)?$", Some(("option", ""))),
    // phpMyAdmin; OpenCart.
    (
        INDEX_PATH,
        Some(("route", "~* ^(/|(account|common)/login)$")),
    ),
    // phpBB.
    (r"/ucp\.php$", Some(("mode", "login"))),
    // DokuWiki.
    (ANY_PATH, Some(("do", "login"))),
    // Roundcube.
    (INDEX_PATH, Some(("_task", "login"))),
    // Matomo.
    (INDEX_PATH, Some(("module", "Login"))),
    // PrestaShop.
    (
        INDEX_PATH,
        Some(("controller", "~* ^(adminlogin|authentication)$")),
    ),
    // Drupal and Backdrop without clean URLs.
    (INDEX_PATH, Some(("q", "~* ^/?user/login"))),
];

/// Returns the paths and conditions of log-in requests, each for a rule of its own.
pub fn login_requests() -> impl Iterator<Item = (PathPattern, RuleConditions)> {
    LOGIN_REQUESTS.iter().map(|(path, parameter)| {
        let pattern = PathPattern::regex(path).expect("a test parses the table");
        let test = |(name, test): &(&str, &str)| {
            let test = ValueTest::parse(test).expect("a test parses the table");
            ((*name).to_owned(), test)
        };
        let conditions = RuleConditions {
            methods: vec!["POST".to_owned()],
            query: parameter.iter().map(test).collect(),
            ..RuleConditions::default()
        };
        (pattern, conditions)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::condition::RuleRequest;
    use crate::site::description::build_request;

    fn is_login(text: &str) -> bool {
        let (method, target) = text.split_once(' ').unwrap();
        let head = build_request(method, "h", target).unwrap();
        let (asked, path) = (RuleRequest::without_client(&head), head.path());
        let counts = |(pattern, conditions): (PathPattern, RuleConditions)| {
            pattern.is_match(path) && conditions.hold(asked, path, &[])
        };
        login_requests().any(counts)
    }

    #[test]
    fn login_requests_of_known_applications_count() {
        for target in [
            "/wp-login.php",
            "/blog/wp-login.php?action=lostpassword",
            "/xmlrpc.php",
            "/login",
            "/login/",
            "/index.php/login",
            "/api/login_check",
            "/user/login?_format=json",
            "/login/index.php",
            "/customer/account/loginPost",
            "/rest/V1/integration/admin/token",
            "/my-account/",
            "/admin",
            "/wiki/Special:UserLogin",
            "/index.php/Special:UserLogin/signup",
            "/index.php?title=Special:UserLogin&returnto=Main+Page",
            "/w/index.php?title=special%3Auser_login",
            "/administrator/index.php",
            "/phpmyadmin/index.php?route=/",
            "/?route=%2F",
            "/ucp.php?mode=login",
            "/doku.php?id=start&do=login",
            "/?_task=login",
            "/index.php?module=Login",
            "/admin123/index.php?controller=AdminLogin",
            "/?q=user/login",
        ] {
            assert!(is_login(&format!("POST {target}")), "{target}");
            // Showing the form does not count.
            assert!(!is_login(&format!("GET {target}")), "{target}");
        }
    }

    #[test]
    fn login_limit_ignores_requests_after_the_login() {
        for target in [
            "/",
            "/index.php",
            "/wp-admin/admin-ajax.php",
            "/wp-comments-post.php",
            "/wp-json/wp/v2/posts",
            "/wp-admin/post.php",
            "/administrator/index.php?option=com_content&layout=edit",
            "/index.php?title=Special:Upload",
            "/index.php?title=Sandbox&action=submit",
            "/index.php?route=/sql",
            "/livewire/update",
            "/admin/pages/edit",
            "/blogin",
            "/plugin",
            "/loginhistory",
            "/checkout/login-or-register/cart",
        ] {
            assert!(!is_login(&format!("POST {target}")), "{target}");
        }
    }
}
