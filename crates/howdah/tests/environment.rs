//! Options and PHP settings from environment variables, with the real programs.

mod support;

use std::path::Path;

use support::{HOWDAH_PROGRAM, Scratch, ServerUnderTest, run};

const VARIABLES: &[(&str, &str)] = &[
    ("HOWDAH_ENVIRONMENT", "on"),
    ("HOWDAH_POOL_WWW_QUEUE_SIZE", "77"),
    ("HOWDAH_POOL_WWW_CLEAR_ENV", "off"),
    ("HOWDAH_ACME_EAB_NOTE", ""),
    ("PHP_UPLOAD_MAX_FILESIZE", "64M"),
    ("PHP_SESSION_COOKIE_LIFETIME", "77"),
    ("PHP_MEMRY_LIMIT", "1G"),
    ("PHP_VERSION", "9.9"),
    ("SHOP_KEY", "s3cret-of-the-shop"),
];

fn variables() -> Vec<(&'static str, &'static Path)> {
    let variables = VARIABLES.iter();
    variables
        .map(|(name, value)| (*name, Path::new(*value)))
        .collect()
}

#[test]
fn environment_sets_options_and_php_and_status_shows_no_secret() {
    let scratch = Scratch::new("environment");
    scratch.write(
        "site/index.php",
        "<?php echo ini_get('upload_max_filesize'), ' ', ini_get('session.cookie_lifetime'), ' ', getenv('SHOP_KEY');",
    );
    let site = scratch.path("site");
    let server = ServerUnderTest::start_with(&scratch, &[site.to_str().unwrap()], &variables());
    let (_, body) = server.get("/index.php");
    assert_eq!(body, "64M 77 s3cret-of-the-shop");
    let log = server.log();
    assert!(
        log.contains("set by the environment: HOWDAH_POOL_WWW_CLEAR_ENV, HOWDAH_POOL_WWW_QUEUE_SIZE, PHP_MEMRY_LIMIT, "),
        "{log}"
    );
    let unknown =
        "SettingUnknown: PHP has no setting for PHP_MEMRY_LIMIT; did you mean PHP_MEMORY_LIMIT?";
    assert!(
        log.contains(unknown) && !log.contains("PHP_VERSION"),
        "{log}"
    );
    let (code, out, _) = server.run_command(&["status", "--quick"]);
    assert_eq!((code, out.as_str()), (0, "serving\n"));
    let (code, status, _) = server.run_command(&["status", "--json"]);
    assert_eq!(code, 0);
    assert!(status.contains("\"queue_size\":77"), "{status}");
    assert!(!status.contains("s3cret"), "{status}");
}

#[test]
fn environment_mistake_stops_the_start_and_howdah_php_has_the_settings() {
    let scratch = Scratch::new("environment-mistake");
    scratch.write("index.php", "");
    let mut check = support::howdah(["check", "."]);
    check.current_dir(scratch.path(""));
    check.envs(variables()).env("HOWDAH_LISTN", ":1");
    let (code, _, errors) = run(&mut check);
    assert_eq!(code, 3, "{errors}");
    let why = "HOWDAH_LISTN: no option can be set with this variable; did you mean HOWDAH_LISTEN?";
    assert!(errors.contains(why), "{errors}");
    let mut php = std::process::Command::new(HOWDAH_PROGRAM);
    php.args(["php", "-r", "echo ini_get('upload_max_filesize');"]);
    let (code, out, errors) = run(php.envs(variables()));
    assert_eq!((code, out.as_str()), (0, "64M"), "{errors}");
}
