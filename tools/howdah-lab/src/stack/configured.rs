//! Starts Howdah with a configuration file, as users do, so the recommended configuration is the one that is measured.
//! The lab adds the address, the control socket and the php.ini that all stacks share, on the command line.

use std::process::Command;

use super::fpm::{self, FpmSocketKind};
use super::{RunningStack, StackJob};
use crate::LabError;
use crate::folder::RunFolder;
use crate::process::LabProcess;
use howdah_machine::ports::free_address;

/// Starts `howdah serve --config`. `text` returns the content of the file; with `with_fpm`, a php-fpm is started first
/// and `text` receives its address.
///
/// # Errors
/// The same as for every stack.
pub fn start(
    job: &StackJob,
    folder: &RunFolder,
    with_fpm: bool,
    text: &dyn Fn(Option<&str>) -> String,
) -> Result<RunningStack, LabError> {
    let mut processes = Vec::new();
    let mut fastcgi = None;
    if with_fpm {
        let (address, fpm) = fpm::start(job, folder, FpmSocketKind::Unix, None)?;
        fastcgi = Some(address.to_string());
        processes.push(fpm);
    }
    let config = folder.write("howdah.toml", text(fastcgi.as_deref()))?;
    let address = free_address()?;
    let mut command = Command::new(&job.howdah);
    command
        .args(["serve", "--config"])
        .arg(config)
        .args(["--listen", &address.to_string(), "--control"])
        .arg(folder.join("control.sock"));
    if !with_fpm {
        // In mode fastcgi the php.ini of php-fpm applies.
        command
            .arg("--php-ini")
            .arg(&job.ini.file)
            .env("PHP_INI_SCAN_DIR", &job.ini.scan_directory);
    }
    let log = folder.join("howdah.log");
    let mut howdah = LabProcess::start("howdah", &command, log, folder.run_as())?;
    howdah.wait_for_listener(address)?;
    processes.push(howdah);
    Ok(RunningStack::new(address, processes))
}
