//! The checks of a site's configuration that read no file. Roots are opened by [`Site::new`](super::Site::new).

use howdah_proto::response::is_field_value;

use super::access::error_page_refusal;
use super::config::{RuleAction, SiteConfig, SiteRule, TryFile};
use super::config_error::ConfigError;
use super::redirect_check;
use super::template::RuleTemplate;
use crate::docroot::path::UrlPath;

/// Returns all mistakes of `config` that can be found without opening a file, except those of its rules
/// ([`check_rule`]).
pub fn check(config: &SiteConfig) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    for extension in &config.php_extensions {
        if extension.len() < 2 || !extension.starts_with('.') || extension.contains('/') {
            errors.push(ConfigError::BadExtension(extension.clone()));
        }
    }
    for index in &config.index {
        if index.is_empty() || index.contains(['/', '\0']) || index == "." || index == ".." {
            errors.push(ConfigError::BadIndex(index.clone()));
        }
    }
    if let Some(controller) = &config.front_controller {
        let script = &controller.script;
        let is_script = config.php_extensions.iter().any(|e| script.ends_with(&**e));
        let is_path = UrlPath::from_decoded(script.as_bytes()).is_ok();
        if !is_path || !is_script || script.contains('?') {
            errors.push(ConfigError::BadFrontController(script.clone()));
        }
    }
    let status = config
        .try_files
        .iter()
        .position(|t| matches!(t, TryFile::Status(_)));
    if let Some(at) = status
        && (at + 1 < config.try_files.len() || config.front_controller.is_some())
    {
        errors.push(ConfigError::UnreachableTryFile);
    }
    for rule in &config.static_rules {
        for value in [&rule.cache_control, &rule.content_type]
            .into_iter()
            .flatten()
        {
            check_value(value, &mut errors);
        }
    }
    for (_, media_type) in &config.types {
        check_value(media_type, &mut errors);
    }
    for location in &config.internal {
        let prefix = &location.prefix;
        if !prefix.starts_with('/') || !prefix.ends_with('/') {
            errors.push(ConfigError::BadInternalPrefix(prefix.clone()));
        }
    }
    for (status, page) in &config.error_pages {
        if !(400..600).contains(status) {
            errors.push(ConfigError::BadStatus(status.to_string(), "400 to 599"));
        }
        if let Some(refusal) = error_page_refusal(config, page) {
            errors.push(ConfigError::BadErrorPage(page.clone(), refusal));
        }
    }
    errors
}

fn check_value(value: &str, errors: &mut Vec<ConfigError>) {
    if value.is_empty() || !is_field_value(value.as_bytes()) {
        errors.push(ConfigError::BadHeaderValue(value.to_owned()));
    }
}

/// Returns all mistakes of a rule that can be found without opening a file.
pub fn check_rule(rule: &SiteRule) -> Vec<ConfigError> {
    let mut found = Vec::new();
    let errors = &mut found;
    let mut template = |to: &RuleTemplate| {
        if let Err(error) = to.check(&rule.pattern) {
            errors.push(ConfigError::Template(error));
        }
    };
    match &rule.action {
        RuleAction::Redirect { status, to } => {
            template(to);
            redirect_check::check(rule, to, errors);
            if ![301, 302, 303, 307, 308].contains(status) {
                let may = "301, 302, 303, 307 or 308";
                errors.push(ConfigError::BadStatus(status.to_string(), may));
            }
        }
        RuleAction::Rewrite(to) => {
            template(to);
            let start = to.literal_start();
            if !start.is_empty() && !start.starts_with(b"/") {
                let text = String::from_utf8_lossy(start).into_owned();
                errors.push(ConfigError::RelativeTarget(text));
            }
        }
        RuleAction::Deny(status) => {
            if ![403, 404, 410].contains(status) {
                errors.push(ConfigError::BadStatus(
                    status.to_string(),
                    "403, 404 or 410",
                ));
            }
        }
        RuleAction::Return {
            status,
            content_type,
            body,
        } => {
            if !body.is_empty() {
                check_value(content_type, errors);
            }
            let redirect = [301, 302, 303, 304, 307, 308].contains(status);
            if !(200..600).contains(status) || redirect {
                let may = "from 200 to 599; for a redirect, use `redirect`";
                errors.push(ConfigError::BadStatus(status.to_string(), may));
            }
        }
        // Whether the pool exists is checked where the pools are known: `ServerConfig::new`.
        RuleAction::Pool(_) | RuleAction::Cgi(_) | RuleAction::Authorize(_) => {}
        // The files of these rules are read by `Site::new`.
        RuleAction::Authenticate(_) | RuleAction::Limit(_) => {}
        // These are checked by the reader of the configuration.
        RuleAction::Proxy(_) | RuleAction::AuthRequest(_) => {}
        RuleAction::Header(edit) => {
            if let Err(error) = edit.check() {
                errors.push(error);
            }
        }
    }
    found
}
