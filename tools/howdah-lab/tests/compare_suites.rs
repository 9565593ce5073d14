//! `howdah compare`, tested through the real program: the trap of the third benchmark is marked, results are kept,
//! mistakes are reported immediately, and no process is left running.

use std::process::{Command, Output};

use howdah_test_support::process_tree::left_behind;
use howdah_test_support::scratch::{Scratch, howdah_program};
use serde_json::Value;

fn compare(scratch: &Scratch, arguments: &[&str]) -> Output {
    // The stacks run as another user when root starts them, so that user must be able to reach the files that they
    // read.
    Command::new(howdah_program())
        .arg("compare")
        .args(arguments)
        .arg("--out")
        .arg(scratch.join("run"))
        .output()
        .expect("howdah can be run")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn errors_are_no_throughput_and_a_small_backlog_is_no_property_of_unix_sockets() {
    let scratch = Scratch::new("compare");
    let stacks = "nginx-fpm-unix,nginx-fpm-unix-backlog-16,howdah-fastcgi-unix-backlog-16";
    let output = compare(
        &scratch,
        &[
            "b3", "--pages", "foreach", "--stacks", stacks, "--blocks", "2", "--window", "0.5",
            "--json",
        ],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    let tables: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let cell = &tables[0]["cells"][0];
    let row = |name: &str| {
        let rows = cell["rows"].as_array().expect("rows");
        let found = rows.iter().find(|row| row["stack"] == name);
        found
            .unwrap_or_else(|| panic!("{name}: {} {}", text(&output.stderr), tables))
            .clone()
    };
    let trap = row("nginx-fpm-unix-backlog-16");
    assert!(trap["trap"].is_string());
    assert!(trap["errors"]["Status5xx"].as_u64() > Some(0), "{trap}");
    let (as_ab, good) = (
        trap["as_ab"].as_f64().unwrap(),
        trap["good"].as_f64().unwrap(),
    );
    assert!(
        as_ab > good * 1.2,
        "ab would have counted the error pages: {trap}"
    );
    // This row has the same backlog behind Howdah's queue.
    let ours = row("howdah-fastcgi-unix-backlog-16");
    assert_eq!(ours["errors"], serde_json::json!({}), "{ours}");
    assert!(ours["good"].as_f64() > Some(0.0));
    // The figure of the published post is shown beside ours.
    let base = row("nginx-fpm-unix");
    assert_eq!(base["reported"]["rate"], 5639.07);
    assert!(base["cpu"].as_f64() > Some(0.0), "{base}");
    assert!(base["memory"].as_u64() > Some(1 << 20), "{base}");

    let page = std::fs::read_to_string(scratch.join("run/b3.html")).expect("the page");
    assert!(page.contains("<b class=\"error\""), "the trap is seen");
    for from_elsewhere in ["src=", "href=", "url(", "@import", "<script"] {
        assert!(!page.contains(from_elsewhere), "{from_elsewhere}");
    }
    for kept in [
        "b3.json",
        "b3.txt",
        "b3/nginx-fpm-unix/nginx.conf",
        "b3/nginx-fpm-unix/php-fpm.conf",
    ] {
        assert!(
            scratch.join("run").join(kept).is_file(),
            "{kept} was not kept"
        );
    }
    assert_eq!(left_behind(scratch.path()), Vec::<String>::new());
}

#[test]
fn all_mistakes_of_the_command_line_are_told_at_once() {
    let scratch = Scratch::new("compare-mistakes");
    let output = compare(&scratch, &["b9", "b1", "--stacks", "nginx,howdah-embed"]);
    assert_eq!(output.status.code(), Some(3));
    let said = text(&output.stderr);
    assert!(said.contains("there is no stack `nginx`"), "{said}");
    assert!(said.contains("b9: neither a benchmark of the program (b1, b2, b3, b4, b5, hello, cache, cache-miss, web, visit) nor a file"), "{said}");
    assert!(!scratch.join("run").exists());
}

#[test]
fn list_names_what_is_here_and_how_to_get_what_is_not() {
    let output = Command::new(howdah_program())
        .args(["compare", "--list"])
        .output()
        .expect("howdah can be run");
    let said = text(&output.stdout);
    let line = |name: &str| {
        said.lines()
            .find(|line| line.starts_with(name))
            .map(str::to_owned)
    };
    assert!(
        line("nginx-fpm-unix ").is_some_and(|line| line.ends_with("here")),
        "{said}"
    );
    let frankenphp = line("frankenphp ").expect("it is listed");
    assert!(
        frankenphp.ends_with("here") || frankenphp.contains("NotHere: "),
        "{said}"
    );
}
