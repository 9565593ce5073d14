//! Tests of environment variables, with and without a file.

use super::super::{ConfigSource, Validation, load_with_environment};
use super::*;
use crate::arguments::ServeArguments;

const FILE: &str =
    "listen = ':1'\n[log]\nlevel = 'error'\n[pool.back-end]\nmode = 'cgi'\n[[site]]\nroot = '/'\n";

fn environment(variables: &[(&str, &str)]) -> EnvironmentOptions {
    let switch = [(SWITCH_VARIABLE, "on")];
    let variables = switch.iter().chain(variables);
    EnvironmentOptions::of(variables.map(|(name, value)| (name.into(), value.into())))
}

/// Returns the document of a file merged with these variables, and the mistakes.
fn merged(file: &str, variables: &[(&str, &str)]) -> (String, Vec<String>) {
    let environment = environment(variables);
    let mut document = DeTable::parse(file).unwrap();
    let mut mistakes = Mistakes::default();
    environment.merge(document.get_mut(), file.len() + 1, &mut mistakes);
    let names = environment.names();
    let weight = super::super::mistake::Severity::Mistake;
    (
        shown(document.get_ref()),
        mistakes.shown(weight, &ConfigSource::from_text("f", file), &names),
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
fn variable_sets_the_option_of_its_name_and_overrides_the_file() {
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
fn variable_without_an_option_is_a_mistake_with_a_suggestion() {
    let two = "[[site]]\n[[site]]\n[pool.shop]\n";
    for (file, name, why) in [
        (
            FILE,
            "HOWDAH_LISTN",
            "no option can be set with this variable; did you mean HOWDAH_LISTEN?",
        ),
        (
            two,
            "HOWDAH_MAX_CHILDREN",
            "no option can be set with this variable; did you mean HOWDAH_POOL_SHOP_MAX_CHILDREN?",
        ),
        (
            FILE,
            "HOWDAH_SITE_RULE",
            "this option cannot be set by a variable; set `rule` in the file",
        ),
        (
            two,
            "HOWDAH_SITE_ROOT",
            "there are 2 sites, and a variable cannot select one of them; set `root` in the file",
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
fn variable_value_is_checked_as_in_the_file_and_overridden_by_the_command_line() {
    let load = |arguments: &ServeArguments, variables: &[(&str, &str)]| {
        let source = ConfigSource::from_text("f", "[[site]]\nroot = '/'\n");
        let environment = environment(variables);
        load_with_environment(arguments, Some(&source), Validation::Trusted, &environment).settings
    };
    let mistakes = load(
        &ServeArguments::default(),
        &[
            ("HOWDAH_LOG_LEVEL", "loud"),
            ("HOWDAH_SITE_CACHE_PURGE_TOKEN", "short-secret"),
            ("HOWDAH_TIMEOUTS_DRAIN", "30"),
        ],
    );
    let mistakes = mistakes.unwrap_err().join("\n");
    for why in [
        "HOWDAH_LOG_LEVEL: level: expected ",
        "HOWDAH_TIMEOUTS_DRAIN: drain: a time needs a unit: `\"30s\"`",
        "HOWDAH_SITE_CACHE_PURGE_TOKEN: ",
    ] {
        assert!(mistakes.contains(why), "{mistakes}");
    }
    assert!(!mistakes.contains("short-secret"), "{mistakes}");
    let arguments = ServeArguments {
        access_log: Some("stderr".to_owned()),
        ..ServeArguments::default()
    };
    let variables = [
        ("HOWDAH_LOG_ACCESS", "stdout"),
        ("HOWDAH_LOG_ACCESS_FORMAT", "json"),
    ];
    let settings = load(&arguments, &variables).unwrap();
    use howdah_log::log::{AccessFormat, LogTarget};
    assert_eq!(settings.log.access, Some(LogTarget::Stderr));
    assert_eq!(settings.log.access_format, AccessFormat::Json);
    assert_eq!(
        settings.chosen[0],
        "set by the environment: HOWDAH_LOG_ACCESS, HOWDAH_LOG_ACCESS_FORMAT"
    );
}

#[test]
fn variables_count_only_when_switched_on_and_service_variables_never() {
    let of = |variables: &[(&str, &str)]| {
        let variables = variables.iter();
        EnvironmentOptions::of(variables.map(|(name, value)| (name.into(), value.into())))
    };
    let off = of(&[("HOWDAH_LISTEN", ":1"), ("PHP_MEMORY_LIMIT", "1M")]);
    assert!(off.names().is_empty() && off.php.is_empty() && off.describe().is_none());
    let wrong = of(&[(SWITCH_VARIABLE, "yes"), ("HOWDAH_LISTEN", ":1")]);
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
    let mut names: Vec<String> = OPTIONS.iter().filter_map(documented_variable).collect();
    assert!(
        names
            .iter()
            .all(|name| name != SWITCH_VARIABLE && !is_service_link(name, ""))
    );
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all);
    let (document, _) = merged("", &[("HOWDAH_POOL_A_REQUEST_TERMINATE_TIMEOUT", "9s")]);
    assert_eq!(document, "{pool={a={request_terminate_timeout='9s'}}}");
}
