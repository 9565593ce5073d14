//! Types the commands of documents as a reader would, and compares what they print. Every line of output on the page
//! must be in the real output; `…` stands for any text, and the page may omit lines. The lines must be in the page's
//! order, except those of logs, which several threads write.

mod getting_started;
mod troubleshooting;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use howdah_tests::process::wait_until;
use howdah_tests::rig::{free_address, howdah_program};
use howdah_tests::scratch::{Scratch, repository};

/// The longest time that a server may take to start, or that expected output may take to appear.
const DEADLINE: Duration = Duration::from_secs(60);

/// Returns a document in which these ports are replaced by free ones.
fn page_with_free_ports(name: &str, ports: &[&str]) -> String {
    let path = repository().join(name);
    let mut page = std::fs::read_to_string(path).expect("the page is text");
    for port in ports {
        let free = free_address().port().to_string();
        page = page.replace(&format!(":{port}"), &format!(":{free}"));
    }
    page
}

/// One thing that the page asks its reader to do.
#[derive(Debug)]
enum Step {
    /// Save a file, or append to it.
    Write {
        path: String,
        text: String,
        append: bool,
    },
    /// Type a command, which prints these lines and others.
    Type {
        command: String,
        output: Vec<String>,
    },
}

/// The directory and the shell of a reader.
struct Reader {
    scratch: Scratch,
    path: String,
}

impl Reader {
    fn new() -> Reader {
        let program = howdah_program();
        let directory = program.parent().expect("the program is in a directory");
        let path = std::env::var("PATH").expect("PATH is set");
        Reader {
            scratch: Scratch::new("typed"),
            path: format!("{}:{path}", directory.display()),
        }
    }

    fn write(&self, path: &str, text: &str, append: bool) {
        let before = match append {
            true => {
                std::fs::read_to_string(self.scratch.join(path)).expect("the file is there") + "\n"
            }
            false => String::new(),
        };
        self.scratch.write(Path::new(path), before + text);
    }

    fn command(&self, command: &str) -> Command {
        let mut shell = Command::new("bash");
        shell
            .args(["-c", &format!("exec {command}")])
            .current_dir(self.scratch.path())
            .env("PATH", &self.path)
            .env("HOME", self.scratch.path())
            .env("XDG_RUNTIME_DIR", self.scratch.path());
        shell
    }

    /// Types a command and compares what it prints.
    fn check(&self, command: &str, expected: &[String]) {
        // These commands show what a server has just done, so they are repeated until they show it.
        let is_awaited = command.starts_with("cat ") || command.starts_with("howdah status");
        let mut printed = String::new();
        let mut run = || {
            let output = self.command(command).output().expect("bash can be started");
            printed = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            match command.starts_with("cat ") {
                true => contains(&printed, expected),
                false => contains_in_order(&printed, expected),
            }
        };
        let holds = match is_awaited {
            // A line of the access log is written within a second.
            true => {
                wait_until(&format!("{command} to print {expected:?}"), DEADLINE, run);
                true
            }
            false => run(),
        };
        assert!(
            holds,
            "{command}\nprints:\n{printed}\nbut the page says:\n{}",
            expected.join("\n")
        );
    }
}

fn contains(printed: &str, expected: &[String]) -> bool {
    expected
        .iter()
        .all(|wanted| printed.lines().any(|line| fits(wanted, line)))
}

fn contains_in_order(printed: &str, expected: &[String]) -> bool {
    let mut lines = printed.lines();
    expected
        .iter()
        .all(|wanted| lines.any(|line| fits(wanted, line)))
}

/// Returns whether a printed line matches that of the page, in which `…` stands for any text. The CR at the end of a
/// header line is ignored.
fn fits(wanted: &str, printed: &str) -> bool {
    let printed = printed.trim_end();
    let mut parts = wanted.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = printed.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

fn steps_of(page: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut file: Option<(String, bool)> = None;
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let comment = |word: &str| line.strip_prefix(word)?.strip_suffix(" -->");
        if let Some(path) = comment("<!-- file: ") {
            file = Some((path.to_owned(), false));
        } else if let Some(path) = comment("<!-- append: ") {
            file = Some((path.to_owned(), true));
        } else if let Some(language) = line.strip_prefix("```") {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            if let Some((path, append)) = file.take() {
                let text = block.join("\n") + "\n";
                steps.push(Step::Write { path, text, append });
            } else if language == "console" {
                steps.extend(commands_of(&block));
            } else {
                panic!("a block of {language:?} is neither a file nor commands: {block:?}");
            }
        }
    }
    steps
}

fn commands_of(block: &[&str]) -> Vec<Step> {
    let mut steps = Vec::new();
    for line in block {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step::Type {
                command: command.to_owned(),
                output: Vec::new(),
            });
        } else if let Some(Step::Type { output, .. }) = steps.last_mut() {
            output.push((*line).to_owned());
        } else {
            panic!("output without a command: {line}");
        }
    }
    steps
}

#[test]
fn dots_of_the_page_are_any_text() {
    for (wanted, printed) in [
        ("a", "a"),
        ("a …", "a bc"),
        ("…/site; x", "found in /tmp/site; x"),
        ("GET … qt=- child=… id=…", "GET / 1 qt=- child=3 id=7"),
        ("x-cache: HIT", "x-cache: HIT\r"),
    ] {
        assert!(fits(wanted, printed), "{wanted:?} {printed:?}");
    }
    for (wanted, printed) in [("a", "ab"), ("a … c", "a b"), ("… qt=- id=…", "qt=1 id=2")] {
        assert!(!fits(wanted, printed), "{wanted:?} {printed:?}");
    }
}
