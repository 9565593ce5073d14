//! `howdah-php php`, which `howdah php` starts, behaves like `php` in what scripts and shells rely on.

mod front;

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};

use front::TestDir;
use howdah_test_support::php::howdah_php;

fn php(arguments: &[&str]) -> Command {
    let mut command = howdah_php();
    command.arg("php").args(arguments);
    command
}

#[track_caller]
fn output_of(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let errors = String::from_utf8_lossy(&stderr);
    assert!(status.success() && errors.is_empty(), "{status}: {errors}");
    String::from_utf8(stdout).unwrap()
}

#[test]
fn output_to_a_non_blocking_descriptor_is_complete() {
    let (mut reader, writer) = UnixStream::pair().unwrap();
    writer.set_nonblocking(true).unwrap();
    let code = "echo str_repeat('x', 8_000_000); exit(9);";
    let mut command = php(&["--code", code]);
    let mut child = command.stdout(OwnedFd::from(writer)).spawn().unwrap();
    // The command has the writing end, too.
    drop(command);
    let mut received = Vec::new();
    reader.read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), 8_000_000);
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[test]
fn script_whose_output_nobody_reads_ends_with_status_255() {
    let code = "fgets(STDIN); while (true) { echo str_repeat('x', 1000); }";
    let mut command = php(&["--code", code]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    child.stdin.take().unwrap().write_all(b"begin\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(255));
}

#[test]
fn script_is_the_named_file_and_not_one_of_that_name_in_include_path() {
    let dir = TestDir::new();
    dir.write("task.php", "<?php echo 'the named file';");
    dir.write("lib/task.php", "<?php echo 'another file';");
    let setting = format!("include_path={}/lib:.", dir.0.display());
    let mut command = php(&["-d", &setting, "task.php"]);
    assert_eq!(output_of(command.current_dir(&dir.0)), "the named file");
}

#[test]
fn directory_instead_of_a_script_is_named() {
    let output = php(&["/"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, "howdah php: ScriptUnreadable: /: Is a directory\n");
}

#[test]
fn file_opened_after_the_output_was_closed_becomes_the_output() {
    let dir = TestDir::new();
    let script = "<?php fclose(STDOUT); $log = fopen('log', 'w'); echo 'to the file';";
    dir.write("daemon.php", script);
    let mut command = php(&["daemon.php"]);
    assert_eq!(output_of(command.current_dir(&dir.0)), "");
    let log = std::fs::read_to_string(dir.0.join("log")).unwrap();
    assert_eq!(log, "to the file");
}

#[test]
fn script_sets_the_title_of_its_process() {
    let code = "echo cli_get_process_title(), '|'; cli_set_process_title('queue: mail');
        echo cli_get_process_title(), '|', rtrim(file_get_contents('/proc/self/cmdline'), \"\\0\");";
    assert_eq!(
        output_of(&mut php(&["--code", code])),
        "|queue: mail|queue: mail"
    );
}
