//! Options from environment variables, for containers: `HOWDAH_LOG_LEVEL=debug` sets `level` of `[log]`. The names
//! follow from the table of options. The variables are used only with `HOWDAH_ENVIRONMENT=on`, so a stray variable
//! cannot change an ordinary server. `PHP_…` variables are settings of php.ini: [`super::php_variables`].
//!
//! A variable is merged into the file's document before the document is read. So the variable is checked like a line of
//! the file, and the command line takes precedence over it as it does over the file.

use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::kind::OptionKind;
use super::mistake::Mistakes;
use super::options::{OPTIONS, OptionSpec};
use super::php_variables;
use super::suggest;

/// The variable that enables the others.
const SWITCH_VARIABLE: &str = "HOWDAH_ENVIRONMENT";
const PREFIX: &str = "HOWDAH_";

/// The variables that are meant for this program; empty if they are not enabled.
#[derive(Clone, Debug, Default)]
pub struct EnvironmentOptions {
    /// The variables `HOWDAH_…`, by name. An empty value counts as unset.
    options: Vec<(String, String)>,
    /// The variables `PHP_…`, by name. An empty value sets an empty string.
    pub php: Vec<(String, String)>,
    /// The mistakes in the variables themselves.
    mistakes: Vec<String>,
}

/// The option that a variable sets.
struct VariableTarget {
    spec: &'static OptionSpec,
    /// The pool, as it is written in the name of the variable.
    pool: Option<String>,
}

impl EnvironmentOptions {
    /// Returns the environment of this process.
    pub fn of_process() -> EnvironmentOptions {
        EnvironmentOptions::of(std::env::vars_os())
    }

    /// Returns the environment of the given variables.
    pub fn of(variables: impl IntoIterator<Item = (OsString, OsString)>) -> EnvironmentOptions {
        let mut environment = EnvironmentOptions::default();
        let mut is_on = false;
        for (name, value) in variables {
            let Ok(name) = name.into_string() else {
                continue;
            };
            let is_php = name.starts_with(php_variables::PREFIX);
            if !is_php && !name.starts_with(PREFIX) {
                continue;
            }
            let Ok(value) = value.into_string() else {
                let message = format!("{name}: the value is not UTF-8");
                environment.mistakes.push(message);
                continue;
            };
            if is_service_link(&name, &value) {
                continue;
            }
            if name == SWITCH_VARIABLE {
                is_on = value == "on";
                if !matches!(value.as_str(), "on" | "off" | "") {
                    let found = value.escape_debug();
                    // The value is unknown, but it was set on purpose.
                    let message =
                        format!("{SWITCH_VARIABLE}: expected `on` or `off`, found `{found}`");
                    return EnvironmentOptions {
                        mistakes: vec![message],
                        ..EnvironmentOptions::default()
                    };
                }
            } else if is_php {
                environment.php.push((name, value));
            } else if !value.is_empty() {
                environment.options.push((name, value));
            }
        }
        if !is_on {
            return EnvironmentOptions::default();
        }
        environment.options.sort();
        environment.php.sort();
        environment
    }

    /// Returns whether a variable sets an option of the top level of the file.
    pub fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// Returns the value of `HOWDAH_CONTROL`.
    pub fn control(&self) -> Option<PathBuf> {
        self.value("control").map(PathBuf::from)
    }

    fn value(&self, key: &str) -> Option<&str> {
        let name = format!("{PREFIX}{}", key.to_ascii_uppercase());
        let found = self.options.iter().find(|(other, _)| *other == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the names of the variables in `HOWDAH_…`, in the order of their places.
    pub fn names(&self) -> Vec<&str> {
        self.options.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Returns a line that names the variables that are set, for the person who starts the server. It does not contain
    /// values, because they may be secrets.
    pub fn describe(&self) -> Option<String> {
        let php = self
            .php
            .iter()
            .filter(|(name, _)| php_variables::is_setting(name));
        let names = self.options.iter().chain(php);
        let names: Vec<&str> = names.map(|(name, _)| name.as_str()).collect();
        (!names.is_empty()).then(|| format!("set by the environment: {}", names.join(", ")))
    }

    /// Merges the variables into a file's document; they take precedence. The place of variable `n` is `base + n`.
    pub fn merge<'t>(&'t self, document: &mut DeTable<'t>, base: usize, mistakes: &mut Mistakes) {
        for message in &self.mistakes {
            mistakes.add_mistake(None, message.clone());
        }
        for (number, (name, value)) in self.options.iter().enumerate() {
            let place = base + number..base + number + 1;
            let merged = target(name, document)
                .and_then(|target| insert_value(document, &target, value, place.clone()));
            if let Err(why) = merged {
                mistakes.add_mistake(place, why);
            }
        }
    }
}

/// Returns whether the variable describes a service. Kubernetes and Docker's links add such variables to every
/// container, named for the service: a service `howdah` makes `HOWDAH_PORT=tcp://…`.
fn is_service_link(name: &str, value: &str) -> bool {
    let mut after_port = name.split("_PORT_").skip(1);
    name.contains("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT") && value.contains("://")
        || after_port.any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Returns the variable of an option as it is documented: `HOWDAH_POOL_NAME_MAX_CHILDREN`. Returns `None` for an option
/// that only a file can set.
pub fn documented_variable(spec: &OptionSpec) -> Option<String> {
    let is_in_file_only = matches!(
        spec.kind,
        OptionKind::Pairs | OptionKind::Table | OptionKind::Sections
    );
    option_variable(spec).filter(|_| !is_in_file_only)
}

fn option_variable(spec: &OptionSpec) -> Option<String> {
    let section = match spec.section {
        "site.certificate" | "site.esi" | "site.private" | "site.rule" | "site.rule.not" => {
            return None;
        }
        "pool.*" => "pool_name",
        section => section,
    };
    let parts = [section, spec.key];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Some(format!("{PREFIX}{}", parts.join("_").to_ascii_uppercase()))
}

/// Returns the option that the variable of this name sets, or an error with a suggestion if there is none.
fn target(variable_name: &str, document: &DeTable<'_>) -> Result<VariableTarget, String> {
    let rest = variable_name.strip_prefix("HOWDAH_POOL_");
    let of_pool = |spec: &OptionSpec| {
        let pool = rest?.strip_suffix(&spec.key.to_ascii_uppercase())?;
        let pool = pool.strip_suffix('_').filter(|pool| !pool.is_empty())?;
        Some(pool.to_owned())
    };
    let targets = OPTIONS.iter().filter_map(|spec| match spec.section {
        "pool.*" => Some((spec, Some(of_pool(spec)?))),
        _ => (option_variable(spec)? == variable_name).then_some((spec, None)),
    });
    // The longest key wins, so `…_REQUEST_TERMINATE_TIMEOUT` is not taken for an option `timeout` of some pool.
    if let Some((spec, pool)) = targets.max_by_key(|(spec, _)| spec.key.len()) {
        return match documented_variable(spec) {
            Some(_) => Ok(VariableTarget { spec, pool }),
            None => Err(format!(
                "this option cannot be set by a variable; set `{}` in the file",
                spec.key
            )),
        };
    }
    let known = known_variables(document);
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let end = &variable_name[PREFIX.len() - 1..];
    let near = suggest::nearest(variable_name, &known)
        .or_else(|| known.iter().copied().find(|other| other.ends_with(end)));
    let near = near.map_or_else(
        || "; `howdah check --explain KEY` shows the variable of an option".to_owned(),
        |near| format!("; did you mean {near}?"),
    );
    Err(format!("no option can be set with this variable{near}"))
}

/// Returns all variables, with the names of the file's pools.
fn known_variables(document: &DeTable<'_>) -> Vec<String> {
    let pools = match document.get("pool").map(Spanned::get_ref) {
        Some(DeValue::Table(pools)) => pools
            .keys()
            .map(|key| pool_in_variable(key.get_ref()))
            .collect(),
        _ => vec!["WWW".to_owned()],
    };
    let names = OPTIONS.iter().filter_map(documented_variable);
    let names = names.flat_map(|name| match name.strip_prefix("HOWDAH_POOL_NAME_") {
        Some(key) => pools
            .iter()
            .map(|pool| format!("HOWDAH_POOL_{pool}_{key}"))
            .collect(),
        None => vec![name],
    });
    names.collect()
}

/// Returns a pool's name as it is written in variables.
fn pool_in_variable(pool: &str) -> String {
    pool.to_ascii_uppercase().replace(['-', '.'], "_")
}

fn insert_value<'t>(
    document: &mut DeTable<'t>,
    target: &VariableTarget,
    value: &'t str,
    place: Range<usize>,
) -> Result<(), String> {
    let Some(table) = table_of_option(document, target, &place)? else {
        // The value in the file is not a table, which the reader reports as a mistake of the file.
        return Ok(());
    };
    let spanned = |value| Spanned::new(place.clone(), value);
    let text = |text: &'t str| spanned(DeValue::String(text.into()));
    let value = match target.spec.kind {
        OptionKind::Texts => {
            let parts = value.split(',').map(str::trim);
            let mut array = DeArray::new();
            for part in parts.filter(|part| !part.is_empty()) {
                array.push(text(part));
            }
            spanned(DeValue::Array(array))
        }
        OptionKind::Text | OptionKind::Path | OptionKind::PathOr(_) | OptionKind::Word(_) => {
            text(value)
        }
        // A number or `true` is parsed as in the file; anything else is a string.
        _ => match DeValue::parse(value).map(Spanned::into_inner) {
            Ok(literal @ (DeValue::Integer(_) | DeValue::Boolean(_))) => spanned(literal),
            _ => text(value),
        },
    };
    table.insert(Spanned::new(place, target.spec.key.into()), value);
    Ok(())
}

/// Returns the table that contains the option. A missing table is created.
fn table_of_option<'d, 't>(
    document: &'d mut DeTable<'t>,
    target: &VariableTarget,
    place: &Range<usize>,
) -> Result<Option<&'d mut DeTable<'t>>, String> {
    let key = target.spec.key;
    match (target.spec.section, &target.pool) {
        ("", _) => Ok(Some(document)),
        ("site", _) => match document.get_mut("site").map(Spanned::get_mut) {
            Some(DeValue::Array(sites)) => match &mut **sites {
                [site] => Ok(as_table(site)),
                several => Err(format!(
                    "there are {} sites, and a variable cannot select one of them; set `{key}` in the file",
                    several.len()
                )),
            },
            Some(_) => Ok(None),
            None => Err("there is no [[site]] in the configuration".to_owned()),
        },
        (_, Some(pool)) => {
            let Some(pools) = table_below(document, "pool", place) else {
                return Ok(None);
            };
            let named = pools.keys().map(|key| key.get_ref().to_string());
            let named = named
                .into_iter()
                .find(|name| pool_in_variable(name) == *pool);
            let name = named.unwrap_or_else(|| pool.to_ascii_lowercase());
            Ok(table_below(pools, &name, place))
        }
        (section, None) => Ok(table_below(document, section, place)),
    }
}

/// Returns the table `key`, which is created if it is missing; `None` if the value is not a table.
fn table_below<'d, 't>(
    table: &'d mut DeTable<'t>,
    key: &str,
    place: &Range<usize>,
) -> Option<&'d mut DeTable<'t>> {
    let spanned = Spanned::new(place.clone(), key.to_owned().into());
    let empty = Spanned::new(place.clone(), DeValue::Table(DeTable::new()));
    as_table(table.entry(spanned).or_insert(empty))
}

fn as_table<'d, 't>(value: &'d mut Spanned<DeValue<'t>>) -> Option<&'d mut DeTable<'t>> {
    match value.get_mut() {
        DeValue::Table(table) => Some(table),
        _ => None,
    }
}

#[cfg(test)]
#[path = "environment_tests.rs"]
mod tests;
