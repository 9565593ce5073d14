//! Follows `docs/getting-started.md`: writes its files and types its commands, in the page's order.

use howdah_tests::process::{Process, wait_until};

use super::{DEADLINE, Reader, Step, contains, page_with_free_ports, steps_of};

#[test]
fn every_step_of_getting_started_does_what_the_page_says() {
    let page = page_with_free_ports("docs/getting-started.md", &["8080", "8443", "9180"]);
    let steps = steps_of(&page);
    assert!(steps.len() > 20, "only {} steps", steps.len());

    let reader = Reader::new();
    let mut server: Option<Process> = None;
    for step in &steps {
        match step {
            Step::Write { path, text, append } => reader.write(path, text, *append),
            Step::Type { command, output } if command.starts_with("howdah serve ") => {
                // By now, the reader has stopped the previous server with Ctrl-C.
                drop(server.take());
                let started = Process::start("the server", &mut reader.command(command));
                wait_until(&format!("{command}: {output:?}"), DEADLINE, || {
                    contains(&started.log(), output)
                });
                server = Some(started);
            }
            Step::Type { command, output } => reader.check(command, output),
        }
    }
}
