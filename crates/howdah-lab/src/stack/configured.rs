//! Starts Howdah with a configuration file, as users do: what is measured is what is recommended.
//! The lab adds the address, the control socket and the php.ini that all stacks share, on the
//! command line.

use std::process::Command;

use super::fpm::{self, Via};
use super::{Job, Running};
use crate::LabError;
use crate::folder::Folder;
use crate::ports::free_address;
use crate::process::Process;

/// Starts `howdah serve --config`. `text` makes the file; with `with_fpm`, a php-fpm is started
/// first and `text` gets its address.
///
/// # Errors
/// The same as for every stack.
pub fn start(
    job: &Job,
    folder: &Folder,
    with_fpm: bool,
    text: &dyn Fn(Option<&str>) -> String,
) -> Result<Running, LabError> {
    let mut processes = Vec::new();
    let mut fastcgi = None;
    if with_fpm {
        let (address, fpm) = fpm::start(job, folder, Via::Unix, None)?;
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
    let mut howdah = Process::start("howdah", &command, log, folder.run_as())?;
    howdah.wait_for_listener(address)?;
    processes.push(howdah);
    Ok(Running::new(address, processes))
}
