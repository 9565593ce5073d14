//! The requests by which known applications receive passwords, which `limit = "login"` counts. The applications' files
//! (howdah-apps) list only the requests of the applications' own forms and of common clients: an application may accept
//! a password in other requests.

use super::condition::{RuleConditions, ValueTest};
use super::pattern::PathPattern;

/// Returns the paths and conditions of log-in requests, each for a rule of its own.
pub fn login_requests() -> impl Iterator<Item = (PathPattern, RuleConditions)> {
    howdah_apps::login_requests().map(|request| {
        let pattern = PathPattern::regex(request.path).expect("a test parses the files");
        let test = |name: &str| {
            let test = ValueTest::parse(request.value).expect("a test parses the files");
            (name.to_owned(), test)
        };
        let conditions = RuleConditions {
            methods: vec!["POST".to_owned()],
            query: request.parameter.into_iter().map(test).collect(),
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
