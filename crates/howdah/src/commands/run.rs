//! `howdah run SCRIPT`: becomes `howdah-php run`, a PHP with Swoole's classes. This process is replaced, so
//! signals, standard streams and the process id belong to the script.

use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use crate::exit;
use howdah_config::arguments::RunArguments;
use howdah_config::php::{self, PhpUse};

/// Replaces this process. Returns only if that fails.
pub fn run(run: &RunArguments) -> ExitCode {
    let program = match php::find(None, PhpUse::CommandLine).and_then(|p| php::check(&p).map(|_| p))
    {
        Ok(program) => program,
        Err(why) => {
            eprintln!("howdah: {why}");
            return exit::php();
        }
    };
    let mut command = match program.command_here() {
        Ok(command) => command,
        Err(why) => {
            eprintln!("howdah: PhpDoesNotStart: {program}: {why}");
            return exit::php();
        }
    };
    command.arg("run");
    if let Some(address) = &run.listen {
        command.arg("--listen").arg(address);
    }
    if let Some(file) = &run.php_ini {
        command.arg("--php-ini").arg(file);
    }
    for setting in &run.define {
        command.arg("-d").arg(setting);
    }
    let why = command.arg("--").args(&run.script).exec();
    eprintln!("howdah: PhpDoesNotStart: {program}: {why}");
    exit::php()
}
