//! Names of handlers, and what a line says of scripts.

use super::region;
use crate::directive::Directive;
use crate::when::Match;

/// Endings of scripts that somebody may run.
pub const ENDINGS: &[&str] = &[
    "php", "phtml", "phar", "php3", "php4", "php5", "php7", "php8", "inc", "html", "htm",
];
/// Directives that say who runs a file.
pub const HANDLERS: &[&str] = &[
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

/// What becomes of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handler {
    /// PHP of the server itself.
    Own,
    /// php-fpm at this address.
    At(String),
    /// It is not run.
    Off,
}

/// Whether a path names a script.
pub fn is_script(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    ENDINGS[..8].contains(&ending.to_ascii_lowercase().as_str())
}

/// Whether a handler or a type is one of PHP.
pub fn is_handler(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    word.contains("x-httpd-") && word.contains("php")
        || matches!(
            word.as_str(),
            "php-script" | "php5-script" | "php7-script" | "fcgid-script"
        )
        || word.starts_with("php")
            && (word.ends_with("fcgi") || word.ends_with("-cgi") || word.ends_with("fastcgi"))
}

/// What a handler's name says of scripts; none: it is for something else.
pub fn named(word: &str) -> Option<Handler> {
    if let Some(target) = word.strip_prefix("proxy:") {
        return address(target).map(Handler::At);
    }
    let lower = word.to_ascii_lowercase();
    match lower.as_str() {
        "none" | "default-handler" => Some(Handler::Off),
        word if word.ends_with("php-source") => Some(Handler::Off),
        word if is_handler(word) => Some(Handler::Own),
        _ => None,
    }
}

/// The address of a FastCGI server: `unix:/run/php.sock|fcgi://…`, `fcgi://127.0.0.1:9000/…`.
pub fn address(target: &str) -> Option<String> {
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

/// What a line says of scripts with that ending.
pub fn says(line: &Directive, ending: &str) -> Option<Handler> {
    let lists = |from: usize| {
        let endings = line.args.iter().skip(from);
        let endings: Vec<&str> = endings.flat_map(|word| word.split('.')).collect();
        endings
            .iter()
            .any(|known| known.eq_ignore_ascii_case(ending))
    };
    match line.name.as_str() {
        "sethandler" => named(line.arg(0)),
        "addhandler" | "addtype" if lists(1) => {
            named(line.arg(0)).filter(|_| line.name == "addhandler" || is_handler(line.arg(0)))
        }
        "removehandler" | "removetype" if lists(0) => Some(Handler::Off),
        "php_admin_flag" | "php_flag" | "php_admin_value" | "php_value"
            if line.arg(0) == "engine" =>
        {
            let off = matches!(
                line.arg(1).to_ascii_lowercase().as_str(),
                "off" | "0" | "no" | "false"
            );
            off.then_some(Handler::Off)
        }
        _ => None,
    }
}

/// `ProxyPassMatch` and `ProxyPass` to a FastCGI server.
pub fn proxied(line: &Directive) -> Option<(Match, String)> {
    let target = address(line.arg(1))?;
    let paths = match line.name.as_str() {
        "proxypassmatch" => region::location_match(line.arg(0)).ok()?,
        "proxypass" => region::location(line.arg(0)).ok()?,
        _ => return None,
    };
    Some((paths, target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers_say_where_php_runs() {
        for (word, expected) in [
            ("application/x-httpd-php", Some(Handler::Own)),
            ("application/x-httpd-ea-php81", Some(Handler::Own)),
            ("application/x-httpd-php-source", Some(Handler::Off)),
            ("php7-fcgi", Some(Handler::Own)),
            (
                "proxy:unix:/run/php/a.sock|fcgi://localhost",
                Some(Handler::At("unix:/run/php/a.sock".into())),
            ),
            (
                "proxy:fcgi://127.0.0.1:9000",
                Some(Handler::At("127.0.0.1:9000".into())),
            ),
            ("cgi-script", None),
            ("None", Some(Handler::Off)),
        ] {
            assert_eq!(named(word), expected, "{word}");
        }
        assert_eq!(
            address("unix:///run/x|fcgi://h/srv/$1").as_deref(),
            Some("unix:/run/x")
        );
        assert_eq!(address("http://127.0.0.1:80/"), None);
    }
}
