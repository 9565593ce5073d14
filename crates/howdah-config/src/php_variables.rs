//! `PHP_…` variables of a container: settings of php.ini for every PHP that Howdah starts itself.
//! `PHP_OPCACHE_MEMORY_CONSUMPTION=256` sets `opcache.memory_consumption`. PHP is asked for the names of its settings,
//! including those of extensions. A variable represents the setting whose name in capital letters, with `_` for `.`, is
//! that of the variable.

use std::path::Path;

use howdah_executor::PhpProgram;

use super::suggest;
use crate::php;

/// The prefix of these variables.
pub const PREFIX: &str = "PHP_";

/// Variables of PHP itself, of Docker's official images and of other tools, which are not settings.
const NOT_SETTINGS: &[&str] = &[
    "PHP_ASC_URL",
    "PHP_BINARY",
    "PHP_CFLAGS",
    "PHP_CONFIG",
    "PHP_CPPFLAGS",
    "PHP_EXTRA_BUILD_DEPS",
    "PHP_EXTRA_CONFIGURE_ARGS",
    "PHP_FCGI_CHILDREN",
    "PHP_FCGI_MAX_REQUESTS",
    "PHP_IDE_CONFIG",
    "PHP_INI_DIR",
    "PHP_INI_SCAN_DIR",
    "PHP_LDFLAGS",
    "PHP_SHA256",
    "PHP_URL",
    "PHP_VERSION",
];

/// The settings that variables represent in one PHP.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct VariableSettings {
    /// Settings, by PHP's own names.
    pub settings: Vec<(String, String)>,
    /// Advice about variables without effect.
    pub advice: Vec<String>,
}

/// Returns whether a variable represents a setting.
pub fn is_setting(variable: &str) -> bool {
    variable.starts_with(PREFIX) && !NOT_SETTINGS.contains(&variable)
}

/// Returns the settings that the variables represent in this PHP with that php.ini.
///
/// # Errors
/// Fails if PHP does not report its settings.
pub fn settings_of_variables(
    variables: &[(String, String)],
    program: &PhpProgram,
    php_ini: Option<&Path>,
) -> Result<VariableSettings, String> {
    let mut meant = variables
        .iter()
        .filter(|(name, _)| is_setting(name))
        .peekable();
    if meant.peek().is_none() {
        return Ok(VariableSettings::default());
    }
    let names = php::setting_names(program, php_ini)?;
    Ok(resolve(meant, &names))
}

fn resolve<'v>(
    variables: impl Iterator<Item = &'v (String, String)>,
    names: &[String],
) -> VariableSettings {
    let written: Vec<String> = names.iter().map(|name| variable(name)).collect();
    let mut meaning = VariableSettings::default();
    for (name, value) in variables {
        match written.iter().position(|other| other == name) {
            Some(_) if value.contains(['\n', '\0']) => {
                meaning.advice.push(format!(
                    "{name}: a setting must be a single line; this one has no effect"
                ));
            }
            Some(at) => meaning.settings.push((names[at].clone(), value.clone())),
            None => {
                let written: Vec<&str> = written.iter().map(String::as_str).collect();
                let near = suggest::nearest(name, &written);
                let near = near.map_or_else(
                    || ": is it mistyped, or is its extension not loaded?".to_owned(),
                    |near| format!("; did you mean {near}?"),
                );
                meaning.advice.push(format!(
                    "SettingUnknown: PHP has no setting for {name}{near}"
                ));
            }
        }
    }
    meaning
}

/// Returns the variable of a setting.
fn variable(setting: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let plain: String = setting.chars().map(plain).collect();
    format!("{PREFIX}{}", plain.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn php_variable_resolves_to_a_setting_or_gets_a_suggestion() {
        let names = [
            "memory_limit",
            "opcache.memory_consumption",
            "session.upload_progress.enabled",
            "SMTP",
        ];
        let names = names.map(str::to_owned);
        let variables = [
            ("PHP_MEMORY_LIMIT", "64M"),
            ("PHP_SESSION_UPLOAD_PROGRESS_ENABLED", "0"),
            ("PHP_SMTP", "mail"),
            ("PHP_MEMRY_LIMIT", "1"),
            ("PHP_OPCACHE_MEMORY_CONSUMPTION", "1\n2"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let VariableSettings { settings, advice } = resolve(variables.iter(), &names);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            settings,
            [
                pair("memory_limit", "64M"),
                pair("session.upload_progress.enabled", "0"),
                pair("SMTP", "mail"),
            ]
        );
        assert_eq!(
            advice,
            [
                "SettingUnknown: PHP has no setting for PHP_MEMRY_LIMIT; did you mean PHP_MEMORY_LIMIT?",
                "PHP_OPCACHE_MEMORY_CONSUMPTION: a setting must be a single line; this one has no effect",
            ]
        );
        assert!(
            is_setting("PHP_MEMORY_LIMIT") && !is_setting("PHP_VERSION") && !is_setting("PHPRC")
        );
    }
}
