//! PHP's own development server, `php -S`.

use std::process::Command;

use super::{RunningStack, StackJob, environment};
use crate::LabError;
use crate::folder::RunFolder;
use crate::need;
use crate::process::LabProcess;
use howdah_machine::ports::free_address;

/// Starts `php -S` with as many processes as the other stacks have.
pub fn start(job: &StackJob, folder: &RunFolder) -> Result<RunningStack, LabError> {
    let address = free_address()?;
    let mut command = Command::new(need::PHP_CLI.find()?);
    command
        .arg("-c")
        .arg(&job.ini.file)
        // `php -S` is the cli SAPI, for which opcache has a separate switch.
        .args(["-d", "opcache.enable_cli=1"])
        .args(["-S", &address.to_string(), "-t"])
        .arg(&job.root)
        .env("PHP_INI_SCAN_DIR", &job.ini.scan_directory)
        .envs(environment(job))
        .env("PHP_CLI_SERVER_WORKERS", job.children.to_string());
    if let Some(script) = &job.front_controller {
        let router = format!(
            "<?php\nif (is_file($_SERVER['DOCUMENT_ROOT'] . parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH))) {{\n    return false;\n}}\n\
             $_SERVER['SCRIPT_NAME'] = '{script}';\nrequire $_SERVER['DOCUMENT_ROOT'] . '{script}';\n"
        );
        command.arg(folder.write("router.php", router)?);
    }
    let log = folder.join("php.log");
    let mut php = LabProcess::start("php -S", &command, log, folder.run_as())?;
    php.wait_for_listener(address)?;
    Ok(RunningStack::new(address, vec![php]))
}
