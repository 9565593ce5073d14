//! Go's net/http with a handler that responds with the content of the tiny static page.

use std::process::Command;

use super::{RunningStack, StackJob};
use crate::LabError;
use crate::folder::{RunFolder, run_command};
use crate::need;
use crate::process::LabProcess;
use howdah_machine::ports::free_address;

const PROGRAM: &str = r#"package main

import (
	"log"
	"net/http"
	"os"
)

func main() {
	page := []byte("<h1>Hello World!</h1>\n")
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Last-Modified", "Thu, 18 Jun 2015 10:24:27 GMT")
		w.Write(page)
	})
	log.Fatal(http.ListenAndServe(os.Args[1], nil))
}
"#;

/// Builds the program (with Go's own build cache; half a minute the first time) and starts it.
pub fn start(_: &StackJob, folder: &RunFolder) -> Result<RunningStack, LabError> {
    let source = folder.write("main.go", PROGRAM)?;
    let program = folder.join("hello");
    run_command(
        Command::new(need::GO.find()?)
            .args(["build", "-o"])
            .arg(&program)
            .arg(source)
            .current_dir(folder.path())
            .env("GOFLAGS", "-mod=mod")
            .env("GO111MODULE", "off"),
    )?;
    let address = free_address()?;
    let mut command = Command::new(program);
    command.arg(address.to_string());
    let log = folder.join("go.log");
    let mut go = LabProcess::start("go", &command, log, folder.run_as())?;
    go.wait_for_listener(address)?;
    Ok(RunningStack::new(address, vec![go]))
}
