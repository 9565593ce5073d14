//! `howdah takeover plan`.

use std::process::ExitCode;

use howdah_os::output::write_stdout;
use howdah_takeover::discovery;

use crate::arguments::PlanArguments;
use crate::exit;

/// Makes the plan, and prints it as a table or as JSON.
pub fn run(arguments: &PlanArguments) -> ExitCode {
    let directory = &arguments.directory.dir;
    let plan = match discovery::plan(directory, &arguments.server) {
        Ok(plan) => plan,
        Err(why) => {
            eprintln!("howdah: {why}");
            return exit::failed();
        }
    };
    let text = match arguments.directory.json {
        true => serde_json::to_string_pretty(&plan).map_err(|error| error.to_string()),
        false => Ok(discovery::report::format(&plan, directory)),
    };
    let printed = text.and_then(|text| write_stdout(&text).map_err(|error| error.to_string()));
    match printed {
        Ok(()) => exit::done(),
        Err(error) => {
            eprintln!("howdah: the plan was made, but it cannot be printed: {error}");
            exit::failed()
        }
    }
}
