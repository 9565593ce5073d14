//! A server that cannot start reports the reason in one line and exits with an error; it never hangs or runs partially.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output};

use howdah_tests::fixture::Fixture;
use howdah_tests::rig::{howdah_check, howdah_program};
use howdah_tests::scratch::Scratch;

fn serve(scratch: &Scratch, change: impl FnOnce(&mut Command)) -> (Output, String) {
    scratch.write("site/index.php", "<?php echo 'hi';");
    let mut command = Command::new(howdah_program());
    command
        .arg("serve")
        .arg(scratch.join("site"))
        .arg("--control")
        .arg(scratch.join("control.sock"));
    change(&mut command);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "the server started: {said}");
    assert!(!said.contains("listening on"), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    (output, said)
}

#[test]
fn port_in_use_is_named() {
    let scratch = Scratch::new("port-in-use");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (_, said) = serve(&scratch, |c| {
        c.args(["--listen", &address]);
    });
    assert!(
        said.contains(&address) && said.contains("AddressInUse"),
        "{said}"
    );
}

#[test]
fn control_socket_in_use_is_named() {
    let fixture = Fixture::named("control-in-use").start();
    let scratch = Scratch::new("control-in-use-second");
    let control = fixture.path("control.sock");
    scratch.write("site/index.php", "");
    let output = Command::new(howdah_program())
        .arg("serve")
        .arg(scratch.join("site"))
        .args(["--listen", "127.0.0.1:0", "--control"])
        .arg(&control)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("control.sock"), "{said}");
    fixture.still_serves();
    assert!(fixture.control(&["status"]).status.success());
}

/// Runs `howdah check` on a pool with these settings, and returns its exit code and its output.
fn check(name: &str, settings: &str) -> (Option<i32>, String) {
    let scratch = Scratch::new(name);
    scratch.write("site/index.php", "");
    let pool = format!("[pool.www]\nphp_value = {{ {settings} }}\n[[site]]\nroot = \"site\"\n");
    let config = scratch.write("howdah.toml", pool);
    howdah_check(&config)
}

#[test]
fn settings_that_keep_php_from_starting_are_found_before_the_start() {
    let (code, said) = check(
        "opcache-memory",
        "\"opcache.memory_consumption\" = \"8\", \"opcache.interned_strings_buffer\" = \"16\"",
    );
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains("pool.www: OpcacheMemory") && said.contains("at least 24"),
        "{said}"
    );
    // PHP's own errors are reported as mistakes, and its warnings as advice.
    let (code, said) = check(
        "no-room",
        "\"opcache.max_accelerated_files\" = \"1000000\", \"opcache.memory_consumption\" = \"16\"",
    );
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains("PhpStartup") && said.contains("Insufficient shared memory"),
        "{said}"
    );
    let (code, said) = check("no-extension", "\"extension\" = \"no-such-extension\"");
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("advice: pool.www: PHP reports: ") && said.contains("no-such-extension"),
        "{said}"
    );
}

#[test]
fn message_of_php_is_the_reason_if_it_cannot_start() {
    let scratch = Scratch::new("preload");
    let preload = scratch.write("preload.php", "<?php syntax error");
    let preload = format!("opcache.preload={}", preload.display());
    let (_, said) = serve(&scratch, |c| {
        c.args(["--listen", "127.0.0.1:0", "-d", &preload]);
        c.args(["-d", "opcache.preload_user=root"]);
    });
    // The front logs the same failure, before or after the line with which the server gives up.
    let mut lines = said.lines();
    let is_reason = |line: &str| line.contains("PoolDown") && line.contains("preload");
    assert!(lines.any(is_reason), "{said}");
}

/// Compiles an extension that sends a signal to its process when it is loaded.
fn crashing_extension(scratch: &Scratch, signal: &str) -> PathBuf {
    let text = format!(
        "#include <signal.h>\n__attribute__((constructor)) static void crash(void) {{ raise({signal}); }}\n"
    );
    let source = scratch.write(format!("{signal}.c"), text);
    let library = source.with_extension("so");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status()
        .expect("cc runs");
    assert!(compiled.success());
    library
}

#[test]
fn extension_that_crashes_php_at_its_start_is_named() {
    let scratch = Scratch::new("crashing-extension");
    let library = crashing_extension(&scratch, "SIGSEGV");
    let expected = format!(
        "PHP was killed by SIGSEGV during its start, while it loaded {}",
        library.display()
    );
    // The server may give up before the front has logged the same failure in a line of its own.
    let names = |said: &str| said.contains("PhpCrashed") && said.contains(&expected);
    let extension = format!("extension={}", library.display());
    let (_, said) = serve(&scratch, |c| {
        c.args(["--listen", "127.0.0.1:0", "-d", &extension]);
    });
    assert!(names(&said), "{said}");
    let setting = format!("extension = \"{}\"", library.display());
    let (code, said) = check("crashing-extension-check", &setting);
    assert_eq!(code, Some(3), "{said}");
    assert!(names(&said), "{said}");
}

#[test]
fn signal_that_kills_php_at_its_start_is_named() {
    let scratch = Scratch::new("killing-extension");
    let library = crashing_extension(&scratch, "SIGKILL");
    let setting = format!("extension = \"{}\"", library.display());
    let (code, said) = check("killing-extension-check", &setting);
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains("PhpStartup") && said.contains("it was killed by signal 9 (SIGKILL)"),
        "{said}"
    );
}

#[test]
fn missing_directory_is_named() {
    let scratch = Scratch::new("no-root");
    let output = Command::new(howdah_program())
        .arg("serve")
        .arg(scratch.join("nowhere"))
        .args(["--listen", "127.0.0.1:0"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("nowhere"),
        "{said}"
    );
}

#[test]
fn command_line_says_which_php_it_runs_and_checks_syntax() {
    let scratch = Scratch::new("php-questions");
    let good = scratch.write("good.php", "<?php echo 'not run';");
    let bad = scratch.write("bad.php", "<?php echo(;");
    let php = |words: &[&str]| {
        let output = Command::new(howdah_program())
            .arg("php")
            .args(words)
            .output()
            .expect("howdah runs");
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.code(), said.into_owned())
    };
    for (words, expected) in [
        (&["-v"][..], "Zend Engine v"),
        (&["-m"], "\nZend OPcache"),
        (&["-i"], "PHP Version => "),
        (&["--ini"], "Loaded Configuration File: "),
        (
            &["-l", good.to_str().unwrap()],
            "No syntax errors detected in ",
        ),
    ] {
        let (code, said) = php(words);
        assert_eq!(code, Some(0), "{words:?} {said}");
        assert!(said.contains(expected), "{words:?} {said}");
        assert!(!said.contains("not run"), "{words:?} {said}");
    }
    let (code, said) = php(&["-l", bad.to_str().unwrap()]);
    assert_eq!(code, Some(255), "{said}");
    assert!(
        said.contains("PHP Parse error: ") && said.contains("on line 1"),
        "{said}"
    );
    let (code, said) = php(&["-v", "-m"]);
    assert_ne!(code, Some(0), "{said}");
}
