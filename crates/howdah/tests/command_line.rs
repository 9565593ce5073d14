//! The command line: help, exit codes, and mistakes that are reported before anything starts.

mod support;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Stdio;

use rustix::process::Signal;
use support::{Scratch, howdah, kill, run};

#[test]
fn help_names_every_command_and_the_exit_codes() {
    let (code, out, _) = run(&mut howdah(["--help"]));
    assert_eq!(code, 0);
    for word in [
        "serve",
        "check",
        "status",
        "dashboard",
        "reload",
        "stop",
        "bench",
        "compare",
        "version",
        "Exit codes",
    ] {
        assert!(out.contains(word), "{word} in {out}");
    }
    assert!(!out.contains("front"), "the front is not for people: {out}");
}

/// A copy of the program, because other programs are searched beside it, and then in PATH.
struct CopiedProgram {
    scratch: Scratch,
    howdah: std::path::PathBuf,
}

impl CopiedProgram {
    fn new(name: &str) -> CopiedProgram {
        let scratch = Scratch::new(name);
        let howdah = scratch.path("bin/howdah");
        scratch.write("bin/README", "");
        std::fs::hard_link(support::HOWDAH_PROGRAM, &howdah)
            .or_else(|_| std::fs::copy(support::HOWDAH_PROGRAM, &howdah).map(drop))
            .unwrap();
        howdah_test_support::executable::make_executable(&howdah);
        CopiedProgram { scratch, howdah }
    }

    /// Writes a shell script as the program `name` in a directory.
    fn stand_in(&self, directory: &str, name: &str, script: &str) {
        let path = self.scratch.write(&format!("{directory}/{name}"), script);
        howdah_test_support::executable::make_executable(&path);
    }

    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = std::process::Command::new(&self.howdah);
        let path = self.scratch.path("elsewhere");
        let path = format!("{}:/usr/bin:/bin", path.display());
        run(command.args(arguments).env("PATH", path))
    }
}

#[test]
fn bench_and_compare_are_another_program() {
    let copied = CopiedProgram::new("external");
    let howdah = |arguments: &[&str]| copied.run(arguments);
    let stand_in = |directory: &str| {
        let script = format!("#!/bin/sh\necho {directory} \"$@\"\nexit 9\n");
        copied.stand_in(directory, "howdah-bench", &script);
    };
    let (code, _, err) = howdah(&["bench", "http://127.0.0.1/"]);
    assert_eq!(code, 7, "{err}");
    assert!(
        err.contains("BenchMissing: ") && err.contains("install the package howdah-bench"),
        "{err}"
    );
    stand_in("elsewhere");
    let (code, out, _) = howdah(&["compare", "--app", ".", "--", "--x"]);
    assert_eq!((code, &out[..]), (9, "elsewhere compare --app . -- --x\n"));
    stand_in("bin");
    let (_, out, _) = howdah(&["bench", "-n", "5", "--help"]);
    assert_eq!(out, "bin bench -n 5 --help\n");
    let (_, out, _) = howdah(&["help", "bench"]);
    assert_eq!(out, "bin bench --help\n");
}

#[test]
fn import_is_another_program_whose_result_is_checked() {
    let copied = CopiedProgram::new("import");
    let file = copied.scratch.path("written.toml").display().to_string();
    let howdah = |more: &[&str]| {
        let arguments = ["import", "nginx", "/etc/nginx.conf", "-o", &file];
        copied.run(&[&arguments[..], more].concat())
    };
    let (code, _, err) = howdah(&[]);
    assert_eq!(code, 7, "{err}");
    assert!(
        err.contains("ImportMissing: there is no howdah-import in ")
            && err.contains("install the package howdah, or build it"),
        "{err}"
    );
    let (code, out, _) = copied.run(&["import", "--help"]);
    assert_eq!(code, 0);
    assert!(
        out.contains("Usage: howdah import ") && out.contains("--verify <ACCESS_LOG>"),
        "{out}"
    );

    copied.stand_in(
        "elsewhere",
        "howdah-import",
        "#!/bin/sh\necho \"$@\"\nexit 3\n",
    );
    let (code, out, _) = howdah(&["--force"]);
    assert_eq!(code, 3);
    assert_eq!(out, format!("nginx /etc/nginx.conf -o {file} --force\n"));
    let (code, out, _) = copied.run(&["import", "--verify", "log", "--old", "http://127.0.0.1"]);
    let asked = "--verify log --old http://127.0.0.1\n";
    assert_eq!((code, &out[..]), (3, asked));

    // A program beside the copy precedes the one in PATH. This one writes a configuration with a mistake.
    let script = format!("#!/bin/sh\necho 'unknown = 1' >{file}\necho '{{\"sites\": 2}}'\n");
    copied.stand_in("bin", "howdah-import", &script);
    let (code, out, err) = howdah(&["--json"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("written.toml that was written does not work"));
    let document: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(document["sites"], 2);
    assert_eq!(document["answers"], serde_json::json!([]));
    let mistakes = document["mistakes"].as_array().unwrap().iter();
    let mut mistakes = mistakes.filter_map(|mistake| mistake.as_str());
    assert!(
        mistakes.any(|mistake| mistake.contains("`unknown`")),
        "{out}"
    );
}

#[test]
fn unknown_option_is_a_command_line_mistake() {
    let (code, _, err) = run(&mut howdah(["serve", "--chlidren", "3"]));
    assert_eq!(code, 2);
    assert!(err.contains("--children"), "{err}");
}

#[test]
fn command_line_values_are_checked_as_in_the_file() {
    let scratch = Scratch::new("values");
    let (code, _, err) = run(howdah(["serve", "--children", "many", "--mode", "swoole"])
        .args(["--log-format", "xml", "--listen", "nowhere", "-d", "=1"])
        .arg(&scratch.0));
    assert_eq!(code, 3);
    for expect in [
        "--children: expected a number from 1 to 1000 or `auto`, found `many`",
        "found `swoole`",
        "--log-format: expected `common`, `combined`, `extended` or `json`, found `xml`",
        "--listen: \"nowhere\" is not an address to listen on",
        "-d: expected NAME=VALUE, found `=1`",
    ] {
        assert!(err.contains(expect), "missing {expect:?} in\n{err}");
    }
}

#[test]
fn missing_directory_is_named() {
    let (code, _, err) = run(&mut howdah(["serve", "/nonexistent/site"]));
    assert_eq!(code, 3);
    assert!(
        err.contains("cannot serve the directory /nonexistent/site"),
        "{err}"
    );
}

#[test]
fn php_that_cannot_be_used_is_named_with_what_to_do() {
    let scratch = Scratch::new("unfit");
    let wrapper = scratch.write("php", "#!/bin/sh\nexec php8.2 \"$@\"\n");
    howdah_test_support::executable::make_executable(&wrapper);
    let wrapper = wrapper.display().to_string();
    for (php, why) in [
        (
            "/nonexistent/php",
            "PhpMissing: there is no /nonexistent/php: No such file",
        ),
        (&wrapper, "PhpUnknown: "),
        ("/bin/sh", "PhpUnknown: /bin/sh is not a PHP program"),
        ("9.99", "PhpMissing: there is no PHP 9.99 program"),
    ] {
        let (code, _, err) = run(howdah(["serve"]).arg(&scratch.0).env("HOWDAH_PHP", php));
        assert_eq!(code, 4, "{err}");
        assert!(err.contains(why), "{err}");
    }
}

#[test]
fn library_that_cannot_be_used_is_named_with_what_to_do() {
    let copied = CopiedProgram::new("library");
    let site = copied.scratch.0.display().to_string();
    let serve = || {
        let (code, _, err) = copied.run(&["serve", &site]);
        assert_eq!(code, 4, "{err}");
        err
    };
    let err = serve();
    assert!(err.contains("PhpLibraryMissing: "), "{err}");
    let name = err.split_whitespace().find_map(|word| {
        let name = word.trim_end_matches(',');
        (name.starts_with("howdah-php-") && name.ends_with(".so")).then(|| name.to_owned())
    });
    let library = copied
        .scratch
        .write(&format!("bin/{}", name.unwrap()), "no library");
    let err = serve();
    assert!(
        err.contains("PhpIgnoresPreload: ") && err.contains("cannot be preloaded"),
        "{err}"
    );
    let source = copied.scratch.write(
        "other.c",
        "#include <stdio.h>\n#include <stdlib.h>\n\
         int __libc_start_main(void) { puts(\"howdah-php 0.0.1\\nshm 0\"); exit(0); }\n",
    );
    let compiled = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-w", "-o"])
        .args([&library, &source])
        .status();
    assert!(compiled.unwrap().success());
    let err = serve();
    assert!(
        err.contains("PhpOtherVersion: ") && err.contains("belongs to howdah 0.0.1 (exchange 0)"),
        "{err}"
    );
}

#[test]
fn port_in_use_names_its_holder() {
    let scratch = Scratch::new("port");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (code, _, err) = run(howdah(["serve", "--listen", &address]).arg(&scratch.0));
    assert_eq!(code, 5);
    assert!(
        err.contains(&format!("AddressInUse: cannot listen on {address}")),
        "{err}"
    );
    assert!(
        err.contains(&format!("(process {})", std::process::id())),
        "{err}"
    );
}

#[test]
fn control_commands_fail_without_a_server() {
    for command in ["status", "reload", "stop"] {
        let (code, _, err) = run(&mut howdah([command, "--control", "/nonexistent/x.sock"]));
        assert_eq!(code, 6, "{command}");
        assert!(err.contains("NoServer: "), "{err}");
    }
}

#[test]
fn front_cannot_be_started_by_hand() {
    let (code, _, err) = run(&mut howdah(["front", "--link", "99"]));
    assert_eq!(code, 1);
    assert!(err.contains("start `howdah serve` instead"), "{err}");
}

#[test]
fn output_to_a_closed_pipe_succeeds_and_to_a_full_disk_fails() {
    let explain = |out: std::process::Stdio| {
        let ended = howdah(["check", "--explain", "queue_size"])
            .stdout(out)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        (ended.status.code(), said)
    };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(explain(writer.into()), (Some(0), String::new()));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let (code, said) = explain(full.unwrap().into());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("cannot write the output"), "{said}");
}

#[test]
fn version_is_printed_by_option_and_command() {
    let (_, expected, _) = run(&mut howdah(["version"]));
    assert!(expected.starts_with("howdah "), "{expected}");
    for option in ["--version", "-V"] {
        let (code, out, err) = run(&mut howdah([option]));
        assert_eq!((code, out), (0, expected.clone()), "{err}");
    }
    let (code, _, err) = run(&mut howdah([""; 0]));
    assert_eq!(code, 2);
    assert!(
        err.contains("Commands:") && err.contains("  serve"),
        "{err}"
    );
}

#[test]
fn directory_beside_a_configuration_with_roots_is_a_mistake() {
    let scratch = Scratch::new("both");
    let other = scratch.write("other/a.txt", "x");
    let file = scratch.write("a.toml", "[[site]]\nroot = \"other\"\n");
    let directory = other.parent().unwrap();
    let (code, _, err) = run(howdah(["serve", "--config"]).args([&file, directory]));
    assert_eq!(code, 3, "{err}");
    let named = format!("the directory {} on the command", directory.display());
    assert!(err.contains(&named), "{err}");
}

#[test]
fn user_argument_mistake_names_the_argument() {
    let scratch = Scratch::new("nobody");
    let (code, _, err) = run(howdah(["serve", "--user", "no-such:none-such"]).arg(&scratch.0));
    assert_eq!(code, 3);
    for expect in [
        "--user: there is no user `no-such`",
        "--user: there is no group `none-such`",
    ] {
        assert!(err.contains(expect), "missing {expect:?} in\n{err}");
    }
}

#[test]
fn php_passes_a_signal_to_its_script() {
    let mut command = howdah(["php", "-r", "echo \"ready\\n\"; sleep(600);"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    kill(child.id() as i32, Signal::TERM);
    // The output ends when the script ends.
    assert_eq!(output.read_line(&mut line).unwrap(), 0);
    assert!(!child.wait().unwrap().success());
}

#[test]
fn completion_and_manual_describe_every_command() {
    let (code, out, _) = run(&mut howdah(["completion", "bash"]));
    assert_eq!(code, 0);
    assert!(
        out.contains("_howdah()") && out.contains("dashboard"),
        "{out}"
    );
    let scratch = Scratch::new("manual");
    let directory = scratch.path("").display().to_string();
    let (code, _, errors) = run(&mut howdah(["man", &directory]));
    assert_eq!(code, 0, "{errors}");
    for page in ["howdah.1", "howdah-serve.1", "howdah-cache-purge.1"] {
        let text = std::fs::read_to_string(scratch.path(page)).expect(page);
        assert!(text.contains(".TH howdah"), "{page}: {text}");
    }
    let missing = scratch.path("missing").display().to_string();
    let (code, _, errors) = run(&mut howdah(["man", &missing]));
    assert_eq!(code, 1);
    let why = format!("howdah: cannot write the manual to {missing}: ");
    assert!(errors.starts_with(&why), "{errors}");
}

#[test]
fn modes_are_listed_as_a_table_and_as_json() {
    let (code, out, errors) = run(&mut howdah(["modes", "--json"]));
    assert_eq!(code, 0, "{errors}");
    let rows: serde_json::Value = serde_json::from_str(&out).unwrap();
    let rows = rows.as_array().unwrap();
    let embed = rows.iter().find(|row| row["mode"] == "embed").unwrap();
    // The tests themselves need this PHP.
    assert_eq!(embed["runs"], true, "{embed}");
    assert!(
        embed["here"].as_str().unwrap().starts_with("PHP "),
        "{embed}"
    );
    let (code, table, _) = run(&mut howdah(["modes"]));
    assert_eq!(code, 0);
    for row in rows {
        let mode = row["mode"].as_str().unwrap();
        assert!(table.contains(mode), "{mode} in {table}");
    }
}
