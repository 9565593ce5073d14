//! Howdah itself, started by its command line: the lab uses only what users can use.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::fpm::{self, FpmSocketKind};
use super::{RunningStack, StackJob, swoole};
use crate::LabError;
use crate::folder::RunFolder;
use crate::process::LabProcess;
use howdah_machine::ports::free_address;

/// Starts `howdah serve` with these arguments.
pub fn serve(
    job: &StackJob,
    folder: &RunFolder,
    arguments: &[&str],
) -> Result<RunningStack, LabError> {
    let mut command = command(job, folder);
    command
        .args(["--children", &job.children.to_string(), "--php-ini"])
        .arg(&job.ini.file)
        .env("PHP_INI_SCAN_DIR", &job.ini.scan_directory)
        .args(arguments);
    listen(command, job, folder, Vec::new())
}

/// Starts `howdah serve` with the pool's opcode cache off: the pool's setting takes precedence over
/// php.ini's.
pub fn without_opcache(
    job: &StackJob,
    folder: &RunFolder,
    arguments: &[&str],
) -> Result<RunningStack, LabError> {
    let config = folder.write(
        "howdah.toml",
        "[pool.www]\nphp_value = { \"opcache.enable\" = 0 }\n",
    )?;
    let config = config.display().to_string();
    serve(job, folder, &[arguments, &["--config", &config]].concat())
}

/// Starts `howdah serve --mode fastcgi` with a php-fpm that the lab starts.
pub fn fastcgi(
    job: &StackJob,
    folder: &RunFolder,
    via: FpmSocketKind,
    backlog: Option<u32>,
) -> Result<RunningStack, LabError> {
    let (address, fpm) = fpm::start(job, folder, via, backlog)?;
    // The number of requests that a backend may run concurrently is the only setting without a default.
    let config = folder.write(
        "howdah.toml",
        format!(
            "[pool.www]\nmode = \"fastcgi\"\nfastcgi = [\"{address}\"]\nmax_connections = {}\n",
            job.children
        ),
    )?;
    let mut command = command(job, folder);
    command.arg("--config").arg(config);
    listen(command, job, folder, vec![fpm])
}

/// The hello page as an application that stays in memory; FrankenPHP gets the same script.
pub const WORKER_SCRIPT: &str = "<?php
$answer = static function () {
    header('Content-Type: text/html');
    echo \"<h1>Hello World!</h1>\\n\";
};
while (frankenphp_handle_request($answer)) {
}
";

/// Starts `howdah serve` in mode `worker`.
pub fn worker(job: &StackJob, folder: &RunFolder) -> Result<RunningStack, LabError> {
    let script = folder.write("worker.php", WORKER_SCRIPT)?;
    let script = script.display().to_string();
    serve(job, folder, &["--mode", "worker", "--worker", &script])
}

fn command(job: &StackJob, folder: &RunFolder) -> Command {
    let mut command = Command::new(&job.howdah);
    command
        .arg("serve")
        .arg(&job.root)
        .arg("--control")
        .arg(folder.join("control.sock"));
    command
}

fn listen(
    mut command: Command,
    job: &StackJob,
    folder: &RunFolder,
    mut processes: Vec<LabProcess>,
) -> Result<RunningStack, LabError> {
    let address = free_address()?;
    let h2c = if job.h2c { " h2c" } else { "" };
    command.args(["--listen", &format!("{address}{h2c}")]);
    processes.push(start(&command, folder, address)?);
    Ok(RunningStack::new(address, processes))
}

/// Starts `howdah run` with the post's script.
pub fn run_script(job: &StackJob, folder: &RunFolder) -> Result<RunningStack, LabError> {
    let address = free_address()?;
    let script = folder.write("server.php", swoole::SCRIPT)?;
    let mut command = Command::new(&job.howdah);
    command
        .arg("run")
        .arg(Path::new(&script))
        .env("LAB_PORT", address.port().to_string())
        .env("LAB_WORKERS", swoole::workers());
    let process = start(&command, folder, address)?;
    Ok(RunningStack::new(address, vec![process]))
}

fn start(
    command: &Command,
    folder: &RunFolder,
    address: SocketAddr,
) -> Result<LabProcess, LabError> {
    let log = folder.join("howdah.log");
    let mut howdah = LabProcess::start("howdah", command, log, folder.run_as())?;
    howdah.wait_for_listener(address)?;
    Ok(howdah)
}
