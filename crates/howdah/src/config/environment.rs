//! Options by environment variables, for containers: `HOWDAH_LOG_LEVEL=debug` is `level` of `[log]`. The names
//! follow from the table of options. Counts only where `HOWDAH_ENVIRONMENT=on`, so that a stray variable
//! changes no ordinary server. `PHP_…` variables are php.ini's settings: [`super::php_variables`].
//!
//! A variable is merged into the file's document before that is read: so it is checked as a line of the file
//! is, and the command line takes precedence over it as over the file.

use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::kind::Kind;
use super::mistake::Mistakes;
use super::options::{OPTIONS, Spec};
use super::php_variables;
use super::suggest;

/// The variable that switches the others on.
const SWITCH: &str = "HOWDAH_ENVIRONMENT";
const PREFIX: &str = "HOWDAH_";

/// The variables that are meant for this program; none where they are not switched on.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `HOWDAH_…`, by name. An empty value is none.
    options: Vec<(String, String)>,
    /// `PHP_…`, by name; an empty value sets an empty text.
    pub php: Vec<(String, String)>,
    /// What is wrong with the variables themselves.
    mistakes: Vec<String>,
}

/// What a variable sets.
struct Target {
    spec: &'static Spec,
    /// The pool, as it is written in the variable.
    pool: Option<String>,
}

impl Environment {
    /// That of this process.
    pub fn of_process() -> Environment {
        Environment::of(std::env::vars_os())
    }

    /// That of these variables.
    pub fn of(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Environment {
        let mut environment = Environment::default();
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
            if name == SWITCH {
                is_on = value == "on";
                if !matches!(value.as_str(), "on" | "off" | "") {
                    let found = value.escape_debug();
                    // Whatever it means, somebody meant something by it.
                    let message = format!("{SWITCH}: expected `on` or `off`, found `{found}`");
                    return Environment {
                        mistakes: vec![message],
                        ..Environment::default()
                    };
                }
            } else if is_service_link(&name, &value) {
            } else if is_php {
                environment.php.push((name, value));
            } else if !value.is_empty() {
                environment.options.push((name, value));
            }
        }
        if !is_on {
            return Environment::default();
        }
        environment.options.sort();
        environment.php.sort();
        environment
    }

    /// Whether an option of the top of the file is set.
    pub fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// `HOWDAH_CONTROL`
    pub fn control(&self) -> Option<PathBuf> {
        self.value("control").map(PathBuf::from)
    }

    fn value(&self, key: &str) -> Option<&str> {
        let name = format!("{PREFIX}{}", key.to_ascii_uppercase());
        let found = self.options.iter().find(|(other, _)| *other == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The names of the variables in `HOWDAH_…`, in the order of their places.
    pub fn names(&self) -> Vec<&str> {
        self.options.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// What the variables set, for whoever starts the server. Values may be secrets, and are not in it.
    pub fn describe(&self) -> Option<String> {
        let php = self
            .php
            .iter()
            .filter(|(name, _)| php_variables::is_setting(name));
        let names = self.options.iter().chain(php);
        let names: Vec<&str> = names.map(|(name, _)| name.as_str()).collect();
        (!names.is_empty()).then(|| format!("set by the environment: {}", names.join(", ")))
    }

    /// Merges the variables into a file's document; they take precedence. The place of variable `n` is
    /// `base + n`.
    pub fn merge<'t>(&'t self, document: &mut DeTable<'t>, base: usize, mistakes: &mut Mistakes) {
        for message in &self.mistakes {
            mistakes.at(None, message.clone());
        }
        for (number, (name, value)) in self.options.iter().enumerate() {
            let place = base + number..base + number + 1;
            let merged = target(name, document)
                .and_then(|target| put(document, &target, value, place.clone()));
            if let Err(why) = merged {
                mistakes.at(place, why);
            }
        }
    }
}

/// Kubernetes and Docker's links give every container variables about each service, named for the service:
/// one called `howdah` makes `HOWDAH_PORT=tcp://…`.
fn is_service_link(name: &str, value: &str) -> bool {
    let mut after_port = name.split("_PORT_").skip(1);
    name.contains("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT") && value.contains("://")
        || after_port.any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// The variable of an option, for people: `HOWDAH_POOL_NAME_MAX_CHILDREN`; none for what only a file can say.
pub fn variable(spec: &Spec) -> Option<String> {
    let is_in_file_only = matches!(spec.kind, Kind::Pairs | Kind::Sections);
    name(spec).filter(|_| !is_in_file_only)
}

fn name(spec: &Spec) -> Option<String> {
    let section = match spec.section {
        "site.certificate" | "site.rule" | "site.rule.not" => return None,
        "pool.*" => "pool_name",
        section => section,
    };
    let parts = [section, spec.key];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Some(format!("{PREFIX}{}", parts.join("_").to_ascii_uppercase()))
}

/// What the variable of this name sets; an error with a suggestion if nothing does.
fn target(variable_name: &str, document: &DeTable<'_>) -> Result<Target, String> {
    let rest = variable_name.strip_prefix("HOWDAH_POOL_");
    let of_pool = |spec: &Spec| {
        let pool = rest?.strip_suffix(&spec.key.to_ascii_uppercase())?;
        let pool = pool.strip_suffix('_').filter(|pool| !pool.is_empty())?;
        Some(pool.to_owned())
    };
    let targets = OPTIONS.iter().filter_map(|spec| match spec.section {
        "pool.*" => Some((spec, Some(of_pool(spec)?))),
        _ => (name(spec)? == variable_name).then_some((spec, None)),
    });
    // `…_REQUEST_TERMINATE_TIMEOUT` is not an option `timeout` of some pool.
    if let Some((spec, pool)) = targets.max_by_key(|(spec, _)| spec.key.len()) {
        return match variable(spec) {
            Some(_) => Ok(Target { spec, pool }),
            None => Err(format!(
                "a variable cannot say it; set `{}` in the file",
                spec.key
            )),
        };
    }
    let known = known(document);
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let end = &variable_name[PREFIX.len() - 1..];
    let near = suggest::nearest(variable_name, &known)
        .or_else(|| known.iter().copied().find(|other| other.ends_with(end)));
    let near = near.map_or_else(
        || "; `howdah check --explain KEY` names an option's variable".to_owned(),
        |near| format!("; did you mean {near}?"),
    );
    Err(format!("no option has this variable{near}"))
}

/// All variables, with the names of the file's pools.
fn known(document: &DeTable<'_>) -> Vec<String> {
    let pools = match document.get("pool").map(Spanned::get_ref) {
        Some(DeValue::Table(pools)) => pools.keys().map(|key| written(key.get_ref())).collect(),
        _ => vec!["WWW".to_owned()],
    };
    let names = OPTIONS.iter().filter_map(variable);
    let names = names.flat_map(|name| match name.strip_prefix("HOWDAH_POOL_NAME_") {
        Some(key) => pools
            .iter()
            .map(|pool| format!("HOWDAH_POOL_{pool}_{key}"))
            .collect(),
        None => vec![name],
    });
    names.collect()
}

/// A pool's name as variables have it.
fn written(pool: &str) -> String {
    pool.to_ascii_uppercase().replace(['-', '.'], "_")
}

fn put<'t>(
    document: &mut DeTable<'t>,
    target: &Target,
    value: &'t str,
    place: Range<usize>,
) -> Result<(), String> {
    let Some(table) = table(document, target, &place)? else {
        // What is there is no table: the file's mistake.
        return Ok(());
    };
    let spanned = |value| Spanned::new(place.clone(), value);
    let text = |text: &'t str| spanned(DeValue::String(text.into()));
    let value = match target.spec.kind {
        Kind::Texts => {
            let parts = value.split(',').map(str::trim);
            let mut array = DeArray::new();
            for part in parts.filter(|part| !part.is_empty()) {
                array.push(text(part));
            }
            spanned(DeValue::Array(array))
        }
        Kind::Text | Kind::Path | Kind::PathOr(_) | Kind::Word(_) => text(value),
        // A number or `true`, as it would be in the file; anything else is a text.
        _ => match DeValue::parse(value).map(Spanned::into_inner) {
            Ok(literal @ (DeValue::Integer(_) | DeValue::Boolean(_))) => spanned(literal),
            _ => text(value),
        },
    };
    table.insert(Spanned::new(place, target.spec.key.into()), value);
    Ok(())
}

/// The table that the option stands in, made where it is missing.
fn table<'d, 't>(
    document: &'d mut DeTable<'t>,
    target: &Target,
    place: &Range<usize>,
) -> Result<Option<&'d mut DeTable<'t>>, String> {
    let key = target.spec.key;
    match (target.spec.section, &target.pool) {
        ("", _) => Ok(Some(document)),
        ("site", _) => match document.get_mut("site").map(Spanned::get_mut) {
            Some(DeValue::Array(sites)) => match &mut **sites {
                [site] => Ok(within(site)),
                several => Err(format!(
                    "there are {} sites, and a variable cannot say which; set `{key}` in the file",
                    several.len()
                )),
            },
            Some(_) => Ok(None),
            None => Err("there is no [[site]] in the configuration".to_owned()),
        },
        (_, Some(pool)) => {
            let Some(pools) = below(document, "pool", place) else {
                return Ok(None);
            };
            let named = pools.keys().map(|key| key.get_ref().to_string());
            let named = named.into_iter().find(|name| written(name) == *pool);
            let name = named.unwrap_or_else(|| pool.to_ascii_lowercase());
            Ok(below(pools, &name, place))
        }
        (section, None) => Ok(below(document, section, place)),
    }
}

/// The table `key`, made where it is missing; none if it is something else.
fn below<'d, 't>(
    table: &'d mut DeTable<'t>,
    key: &str,
    place: &Range<usize>,
) -> Option<&'d mut DeTable<'t>> {
    let spanned = Spanned::new(place.clone(), key.to_owned().into());
    let empty = Spanned::new(place.clone(), DeValue::Table(DeTable::new()));
    within(table.entry(spanned).or_insert(empty))
}

fn within<'d, 't>(value: &'d mut Spanned<DeValue<'t>>) -> Option<&'d mut DeTable<'t>> {
    match value.get_mut() {
        DeValue::Table(table) => Some(table),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Source, Validation, load_with};
    use super::*;
    use crate::arguments::Serve;

    const FILE: &str = "listen = ':1'\n[log]\nlevel = 'error'\n[pool.back-end]\nmode = 'cgi'\n[[site]]\nroot = '/'\n";

    fn environment(variables: &[(&str, &str)]) -> Environment {
        let switch = [(SWITCH, "on")];
        let variables = switch.iter().chain(variables);
        Environment::of(variables.map(|(name, value)| (name.into(), value.into())))
    }

    /// The document of a file and these variables, as it is read, and the mistakes.
    fn merged(file: &str, variables: &[(&str, &str)]) -> (String, Vec<String>) {
        let environment = environment(variables);
        let mut document = DeTable::parse(file).unwrap();
        let mut mistakes = Mistakes::default();
        environment.merge(document.get_mut(), file.len() + 1, &mut mistakes);
        let names = environment.names();
        let weight = super::super::mistake::Weight::Mistake;
        (
            shown(document.get_ref()),
            mistakes.shown(weight, "f", file, &names),
        )
    }

    fn shown(table: &DeTable<'_>) -> String {
        let entries = table.iter().map(|(key, value)| {
            let value = match value.get_ref() {
                DeValue::Table(table) => shown(table),
                DeValue::Array(array) => {
                    let items = array.iter().map(|item| match item.get_ref() {
                        DeValue::Table(table) => shown(table),
                        other => format!("{other:?}"),
                    });
                    format!("[{}]", items.collect::<Vec<_>>().join(" "))
                }
                DeValue::String(text) => format!("'{text}'"),
                DeValue::Integer(number) => number.to_string(),
                DeValue::Boolean(on) => on.to_string(),
                other => format!("{other:?}"),
            };
            format!("{}={value}", key.get_ref())
        });
        let mut entries: Vec<String> = entries.collect();
        entries.sort();
        format!("{{{}}}", entries.join(" "))
    }

    #[test]
    fn a_variable_is_the_option_of_its_name_and_takes_precedence_over_the_file() {
        let (document, mistakes) = merged(
            FILE,
            &[
                ("HOWDAH_LISTEN", ":8080, [::]:8080 h2c"),
                ("HOWDAH_LOG_LEVEL", "info"),
                ("HOWDAH_LOG_ACCESS", ""),
                ("HOWDAH_LIMITS_CONNECTIONS", "500"),
                ("HOWDAH_POOL_BACK_END_MAX_CHILDREN", "4"),
                ("HOWDAH_POOL_WWW_CLEAR_ENV", "false"),
                ("HOWDAH_POOL_WWW_USER", "1000"),
                ("HOWDAH_SITE_ROOT", "/app"),
            ],
        );
        assert_eq!(mistakes, [""; 0]);
        assert_eq!(
            document,
            "{limits={connections=500} listen=[String(\":8080\") String(\"[::]:8080 h2c\")] \
             log={level='info'} pool={back-end={max_children=4 mode='cgi'} \
             www={clear_env=false user='1000'}} site=[{root='/app'}]}"
        );
    }

    #[test]
    fn what_a_variable_cannot_say_is_a_mistake_with_a_suggestion() {
        let two = "[[site]]\n[[site]]\n[pool.shop]\n";
        for (file, name, why) in [
            (
                FILE,
                "HOWDAH_LISTN",
                "no option has this variable; did you mean HOWDAH_LISTEN?",
            ),
            (
                two,
                "HOWDAH_MAX_CHILDREN",
                "no option has this variable; did you mean HOWDAH_POOL_SHOP_MAX_CHILDREN?",
            ),
            (
                FILE,
                "HOWDAH_SITE_RULE",
                "a variable cannot say it; set `rule` in the file",
            ),
            (
                two,
                "HOWDAH_SITE_ROOT",
                "there are 2 sites, and a variable cannot say which; set `root` in the file",
            ),
            (
                "",
                "HOWDAH_SITE_ROOT",
                "there is no [[site]] in the configuration",
            ),
        ] {
            let (_, mistakes) = merged(file, &[(name, "x")]);
            assert_eq!(mistakes, [format!("{name}: {why}")]);
        }
    }

    #[test]
    fn a_value_is_checked_as_in_the_file_and_the_command_line_counts_more() {
        let load = |arguments: &Serve, variables: &[(&str, &str)]| {
            let source = Source {
                name: "f".to_owned(),
                text: "[[site]]\nroot = '/'\n".to_owned(),
            };
            let environment = environment(variables);
            load_with(arguments, Some(&source), Validation::Trusted, &environment).settings
        };
        let mistakes = load(
            &Serve::default(),
            &[
                ("HOWDAH_LOG_LEVEL", "loud"),
                ("HOWDAH_SITE_CACHE_PURGE_TOKEN", "short-secret"),
                ("HOWDAH_TIMEOUTS_DRAIN", "30"),
            ],
        );
        let mistakes = mistakes.unwrap_err().join("\n");
        for why in [
            "HOWDAH_LOG_LEVEL: level: expected ",
            "HOWDAH_TIMEOUTS_DRAIN: drain: a time needs its unit: `\"30s\"`",
            "HOWDAH_SITE_CACHE_PURGE_TOKEN: ",
        ] {
            assert!(mistakes.contains(why), "{mistakes}");
        }
        assert!(!mistakes.contains("short-secret"), "{mistakes}");
        let arguments = Serve {
            access_log: Some("stderr".to_owned()),
            ..Serve::default()
        };
        let variables = [
            ("HOWDAH_LOG_ACCESS", "stdout"),
            ("HOWDAH_LOG_ACCESS_FORMAT", "json"),
        ];
        let settings = load(&arguments, &variables).unwrap();
        use howdah_server::log::{AccessFormat, LogTarget};
        assert_eq!(settings.log.access, Some(LogTarget::Stderr));
        assert_eq!(settings.log.access_format, AccessFormat::Json);
        assert_eq!(
            settings.chosen[0],
            "set by the environment: HOWDAH_LOG_ACCESS, HOWDAH_LOG_ACCESS_FORMAT"
        );
    }

    #[test]
    fn variables_count_where_they_are_switched_on_and_those_of_services_never() {
        let of = |variables: &[(&str, &str)]| {
            let variables = variables.iter();
            Environment::of(variables.map(|(name, value)| (name.into(), value.into())))
        };
        let off = of(&[("HOWDAH_LISTEN", ":1"), ("PHP_MEMORY_LIMIT", "1M")]);
        assert!(off.names().is_empty() && off.php.is_empty() && off.describe().is_none());
        let wrong = of(&[(SWITCH, "yes"), ("HOWDAH_LISTEN", ":1")]);
        assert_eq!(
            wrong.mistakes,
            ["HOWDAH_ENVIRONMENT: expected `on` or `off`, found `yes`"]
        );
        let services = environment(&[
            ("HOWDAH_PORT", "tcp://10.0.0.1:80"),
            ("HOWDAH_PORT_80_TCP", "tcp://10.0.0.1:80"),
            ("HOWDAH_PORT_80_TCP_ADDR", "10.0.0.1"),
            ("HOWDAH_WEB_SERVICE_HOST", "10.0.0.1"),
            ("HOWDAH_SERVICE_PORT_HTTP", "80"),
            ("PHP_PORT_9000_TCP_PROTO", "tcp"),
            ("PHP_MEMORY_LIMIT", "1M"),
            ("PHP_VERSION", "8.2"),
        ]);
        assert_eq!(
            services.describe().unwrap(),
            "set by the environment: PHP_MEMORY_LIMIT"
        );
    }

    #[test]
    fn every_option_has_a_variable_of_its_own() {
        let mut names: Vec<String> = OPTIONS.iter().filter_map(variable).collect();
        assert!(
            names
                .iter()
                .all(|name| name != SWITCH && !is_service_link(name, ""))
        );
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
        let (document, _) = merged("", &[("HOWDAH_POOL_A_REQUEST_TERMINATE_TIMEOUT", "9s")]);
        assert_eq!(document, "{pool={a={request_terminate_timeout='9s'}}}");
    }
}
