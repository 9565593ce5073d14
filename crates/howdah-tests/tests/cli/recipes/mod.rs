//! Runs the recipes of `docs/recipes`: each page's configuration file is served as it is written there, each command of
//! the page is typed, and the output is compared with the page's. [`page`] says how a page is read, and [`machine`] what
//! is replaced, because a test has neither your host names nor your ports and directories.
//!
//! `HOWDAH_BLESS=1 cargo test --workspace --test cli recipes::NAME` writes the output into the page.

mod machine;
mod page;

use std::collections::BTreeMap;
use std::path::PathBuf;

use howdah_tests::scratch::repository;

use machine::{Machine, is_blessing};
use page::{Page, Typed, is_as_written};

/// Declares a test for each page, and the list of their names.
macro_rules! recipes {
    ($($name:ident)*) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];
        $(#[test] fn $name() { follow(stringify!($name)); })*
    };
}

recipes! {
    blue_green
    browser_cache
    cloudflare
    compression
    cors
    cron
    deny_addresses
    deployment
    downloads
    drupal
    error_pages
    hotlink_protection
    https_local
    json_log
    log_rotation
    login_rate_limit
    maintenance
    matomo
    mercure
    nextcloud
    page_cache
    php_settings
    phpmyadmin
    prometheus
    queue_worker
    security_headers
    server_sent_events
    several_sites
    single_page_application
    slow_requests
    staging_password
    trailing_slash
    two_php_versions
    upload_limit
    upload_progress
    websocket
    woocommerce
    wordpress_multisite_subdirectories
    wordpress_multisite_subdomains
    www
    xdebug
}

fn directory() -> PathBuf {
    repository().join("docs/recipes")
}

/// Does what a page says, and compares what comes back.
fn follow(name: &str) {
    let path = directory().join(format!("{}.md", name.replace('_', "-")));
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let page = Page::parse(&text);
    assert!(!page.servers.is_empty(), "{name}: no configuration");
    let mut machine = Machine::new(&page);
    let mut differences = Vec::new();
    let mut run = |machine: &Machine, typed: &[Typed]| {
        for typed in typed {
            let output = machine.output_of(typed);
            if !is_as_written(&typed.output, &output) {
                differences.push((typed.lines.clone(), typed.command.clone(), output));
            }
        }
    };
    run(&machine, &page.prepared);
    for (config, typed) in &page.servers {
        assert!(!typed.is_empty(), "{name}: a configuration and no command");
        let mut config = config.clone();
        for (text, other) in &page.instead {
            assert!(config.contains(text), "{name}: {text} is not there");
            config = config.replace(text, &howdah_machine::php::expand_placeholders(other));
        }
        machine.serve(&config);
        run(&machine, typed);
        machine.stop();
    }
    if is_blessing() {
        let mut lines: Vec<&str> = text.lines().collect();
        for (place, _, output) in differences.iter().rev() {
            lines.splice(place.clone(), output.trim_end().lines().map(str::trim_end));
        }
        std::fs::write(&path, lines.join("\n") + "\n").expect("a page can be written");
        return;
    }
    let differences: Vec<String> = differences
        .iter()
        .map(|(place, command, output)| format!("line {}: $ {command}\n{output}", place.start))
        .collect();
    assert!(
        differences.is_empty(),
        "{}: other output than written:\n{}",
        path.display(),
        differences.join("\n")
    );
}

#[test]
fn every_recipe_has_a_test_and_a_line_in_the_list() {
    let entries = std::fs::read_dir(directory()).expect("there are recipes");
    let mut pages: Vec<String> = entries
        .map(|entry| entry.expect("a directory entry").file_name())
        .map(|name| name.into_string().expect("a name of ASCII letters"))
        .filter(|name| name != "README.md")
        .collect();
    pages.sort();
    let mut tested: Vec<String> = NAMES
        .iter()
        .map(|name| format!("{}.md", name.replace('_', "-")))
        .collect();
    tested.sort();
    assert_eq!(pages, tested);
    let list = std::fs::read_to_string(directory().join("README.md")).expect("a list");
    for page in pages {
        let text = std::fs::read_to_string(directory().join(&page)).expect("a page");
        let title = text.lines().next().unwrap_or_default();
        let title = title.strip_prefix("# ").expect("a title");
        let entry = format!("- [{title}]({page}): ");
        assert!(list.contains(&entry), "the list has no `{entry}`");
    }
}

/// Readers who look for a file rather than a page find each recipe's first configuration in `examples`.
#[test]
fn examples_are_the_first_configurations_of_the_recipes() {
    let directory_of_examples = repository().join("examples");
    let mut expected = BTreeMap::new();
    for name in NAMES {
        let name = name.replace('_', "-");
        let text = std::fs::read_to_string(directory().join(format!("{name}.md"))).expect("a page");
        let title = text.lines().next().and_then(|line| line.strip_prefix("# "));
        let (config, _) = &Page::parse(&text).servers[0];
        let example = format!(
            "# {}.\n# docs/recipes/{name}.md explains this configuration, with commands to try and their output.\n\n{config}",
            title.expect("a title").replace('`', "")
        );
        expected.insert(format!("{name}.toml"), example);
    }
    if is_blessing() {
        // The directory may not be there yet.
        let _ = std::fs::remove_dir_all(&directory_of_examples);
        std::fs::create_dir(&directory_of_examples).expect("a directory");
        for (name, example) in &expected {
            std::fs::write(directory_of_examples.join(name), example).expect("an example");
        }
    }
    let entries = std::fs::read_dir(&directory_of_examples).expect("there are examples");
    let found: BTreeMap<String, String> = entries
        .map(|entry| {
            let path = entry.expect("a directory entry").path();
            let name = path.file_name().expect("a name").to_string_lossy();
            let text = std::fs::read_to_string(&path).expect("an example");
            (name.into_owned(), text)
        })
        .collect();
    for name in expected.keys().chain(found.keys()) {
        assert_eq!(
            found.get(name),
            expected.get(name),
            "examples/{name}: HOWDAH_BLESS=1 writes the examples"
        );
    }
}
