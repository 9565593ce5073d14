//! A gate at which a script waits. The test learns that the script is running and in which process, acts, and then lets
//! the script continue. Both sides wait at a named pipe (fifo(7)), so no test has to guess with a sleep how long a
//! script takes to start.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, mkfifoat};

use crate::process::wait_until;

/// How long a script may take to reach its gate.
const MAX_ARRIVAL_TIME: Duration = Duration::from_secs(30);

/// The PHP side: `GATES` is replaced by the directory of the gates. A script that calls `stand_at($name)` reports its
/// process id and waits until the test opens the gate.
const PHP: &str = r#"<?php
function stand_at(string $name): void
{
    $gate = 'GATES/' . basename($name);
    file_put_contents("$gate.new", (string) getmypid());
    rename("$gate.new", "$gate.pid");
    $pipe = fopen($gate, 'r');
    fgets($pipe);
    fclose($pipe);
}
"#;

/// Returns the include file for scripts with gates in `directory`.
pub fn php(directory: &Path) -> String {
    PHP.replace("GATES", &directory.display().to_string())
}

/// A closed gate that no script has reached yet.
#[derive(Debug)]
pub struct Gate {
    path: PathBuf,
}

/// A script that waits at the gate.
#[derive(Debug)]
pub struct WaitingScript {
    /// The script's process.
    pub pid: i32,
    pipe: File,
}

impl Gate {
    /// Creates the gate `name` in `directory`, and removes an earlier gate of this name.
    ///
    /// # Panics
    /// If the pipe cannot be made.
    pub fn new(directory: &Path, name: &str) -> Gate {
        let path = directory.join(name);
        let _ = std::fs::remove_file(&path);
        let _ = std::fs::remove_file(path.with_extension("pid"));
        mkfifoat(CWD, &path, Mode::from_raw_mode(0o666))
            .unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()));
        Gate { path }
    }

    /// Waits until the script has reached the gate.
    ///
    /// # Panics
    /// If it does not arrive.
    pub fn wait(self) -> WaitingScript {
        let mut pipe = None;
        wait_until(
            &format!("a script at the gate {}", self.path.display()),
            MAX_ARRIVAL_TIME,
            || {
                // The open fails with ENXIO until the other end is open for reading (fifo(7)).
                pipe = OpenOptions::new()
                    .write(true)
                    .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
                    .open(&self.path)
                    .ok();
                pipe.is_some()
            },
        );
        let reported = std::fs::read_to_string(self.path.with_extension("pid"))
            .expect("the script reports its process id before it opens the pipe");
        WaitingScript {
            pid: reported.trim().parse().expect("a process id is a number"),
            pipe: pipe.expect("the gate is open"),
        }
    }
}

impl WaitingScript {
    /// Lets the script through. Dropping the value does so too: the script then reads end-of-file from the pipe.
    pub fn open(mut self) {
        // The write fails with EPIPE if the script was killed in the meantime.
        let _ = self.pipe.write_all(b"go\n");
    }
}
