//! Recognises handlers by their names, and determines which handler a line sets for scripts.

use super::region;
use crate::directive::Directive;
use crate::rule_condition::PathMatch;

/// File name extensions that may be configured as scripts.
pub const SCRIPT_EXTENSIONS: &[&str] = &[
    "php", "phtml", "phar", "php3", "php4", "php5", "php7", "php8", "inc", "html", "htm",
];
/// Directives that set the handler of a file.
pub const HANDLER_DIRECTIVES: &[&str] = &[
    "sethandler",
    "addhandler",
    "addtype",
    "removehandler",
    "removetype",
    "php_admin_flag",
    "php_flag",
    "php_admin_value",
    "php_value",
];

/// The handler of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptHandler {
    /// PHP in Howdah's own processes.
    Embedded,
    /// The FastCGI server at this address.
    Fastcgi(String),
    /// The script is not run.
    Disabled,
}

/// Returns whether a path names a script.
pub fn is_script(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    SCRIPT_EXTENSIONS[..8].contains(&ending.to_ascii_lowercase().as_str())
}

/// Returns whether a handler or media type is one of PHP.
pub fn is_php_handler(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    word.contains("x-httpd-") && word.contains("php")
        || matches!(
            word.as_str(),
            "php-script" | "php5-script" | "php7-script" | "fcgid-script"
        )
        || word.starts_with("php")
            && (word.ends_with("fcgi") || word.ends_with("-cgi") || word.ends_with("fastcgi"))
}

/// Returns the script handler with that name, or `None` if the name belongs to a handler of other files.
pub fn handler_by_name(word: &str) -> Option<ScriptHandler> {
    if let Some(target) = word.strip_prefix("proxy:") {
        return fastcgi_address(target).map(ScriptHandler::Fastcgi);
    }
    let lower = word.to_ascii_lowercase();
    match lower.as_str() {
        "none" | "default-handler" => Some(ScriptHandler::Disabled),
        word if word.ends_with("php-source") => Some(ScriptHandler::Disabled),
        word if is_php_handler(word) => Some(ScriptHandler::Embedded),
        _ => None,
    }
}

/// Returns the address of a FastCGI server: `unix:/run/php.sock|fcgi://…`, `fcgi://127.0.0.1:9000/…`.
pub fn fastcgi_address(target: &str) -> Option<String> {
    let (socket, url) = match target.split_once('|') {
        Some((socket, url)) => (Some(socket), url),
        None => (None, target),
    };
    let rest = url.strip_prefix("fcgi://")?;
    match socket {
        Some(socket) => {
            let path = socket.strip_prefix("unix:")?;
            Some(format!("unix:{}", path.trim_start_matches("//")))
        }
        None => {
            let server = rest.split('/').next().unwrap_or_default();
            let has_port = server
                .rsplit_once(':')
                .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            Some(if has_port {
                server.to_owned()
            } else {
                format!("{server}:8000")
            })
        }
    }
}

/// Returns the handler that a line sets for scripts with that extension.
pub fn handler_set_by(line: &Directive, ending: &str) -> Option<ScriptHandler> {
    let lists = |from: usize| {
        let endings = line.args.iter().skip(from);
        let endings: Vec<&str> = endings.flat_map(|word| word.split('.')).collect();
        endings
            .iter()
            .any(|known| known.eq_ignore_ascii_case(ending))
    };
    match line.name.as_str() {
        "sethandler" => handler_by_name(line.arg(0)),
        "addhandler" | "addtype" if lists(1) => handler_by_name(line.arg(0))
            .filter(|_| line.name == "addhandler" || is_php_handler(line.arg(0))),
        "removehandler" | "removetype" if lists(0) => Some(ScriptHandler::Disabled),
        "php_admin_flag" | "php_flag" | "php_admin_value" | "php_value"
            if line.arg(0) == "engine" =>
        {
            let off = matches!(
                line.arg(1).to_ascii_lowercase().as_str(),
                "off" | "0" | "no" | "false"
            );
            off.then_some(ScriptHandler::Disabled)
        }
        _ => None,
    }
}

/// Parses `ProxyPassMatch` or `ProxyPass` to a FastCGI server into the paths and the address.
pub fn fastcgi_proxy(line: &Directive) -> Option<(PathMatch, String)> {
    let target = fastcgi_address(line.arg(1))?;
    let paths = match line.name.as_str() {
        "proxypassmatch" => region::location_match_paths(line.arg(0)).ok()?,
        "proxypass" => region::location_paths(line.arg(0)).ok()?,
        _ => return None,
    };
    Some((paths, target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handler_names_are_translated() {
        for (word, expected) in [
            ("application/x-httpd-php", Some(ScriptHandler::Embedded)),
            (
                "application/x-httpd-ea-php81",
                Some(ScriptHandler::Embedded),
            ),
            (
                "application/x-httpd-php-source",
                Some(ScriptHandler::Disabled),
            ),
            ("php7-fcgi", Some(ScriptHandler::Embedded)),
            (
                "proxy:unix:/run/php/a.sock|fcgi://localhost",
                Some(ScriptHandler::Fastcgi("unix:/run/php/a.sock".into())),
            ),
            (
                "proxy:fcgi://127.0.0.1:9000",
                Some(ScriptHandler::Fastcgi("127.0.0.1:9000".into())),
            ),
            ("cgi-script", None),
            ("None", Some(ScriptHandler::Disabled)),
        ] {
            assert_eq!(handler_by_name(word), expected, "{word}");
        }
        assert_eq!(
            fastcgi_address("unix:///run/x|fcgi://h/srv/$1").as_deref(),
            Some("unix:/run/x")
        );
        assert_eq!(fastcgi_address("http://127.0.0.1:80/"), None);
    }
}
